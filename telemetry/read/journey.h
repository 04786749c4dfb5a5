/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_JOURNEY_H
#define TDM_TELEMETRY_JOURNEY_H

/* What happened between two snapshots, told in the order a request
   travels: packets, ring, scheduler, iterations, virtual CTAs, tokens. */

#include "telemetry/read/snapshot.h"

#include "appliance/abi/plan.h"
#include "appliance/abi/result.h"

TDM_BEGIN_DECLS

typedef struct tdm_journey {
    int64_t span_ns; /* between the snapshots; since start: the later one's time */
    uint64_t packets_rx;
    uint64_t packets_tx;
    uint64_t drops;
    uint64_t drop[TDM_LABEL_CNT_DROP]; /* of them by reason, in the order of reasons.def */
    uint64_t exchanges;                /* over all doors */
    uint64_t accepted;                 /* by the scheduler */
    uint64_t refused;                  /* by the scheduler */
    uint64_t ring_full;                /* pushes that found a lane full, all rings */
    uint64_t ring_high_water;          /* of the request ring, since start */
    uint64_t tokens_prompt;            /* accepted */
    uint64_t tokens_output;            /* handed to a door */
    uint64_t path[TDM_ROUTE_CNT];      /* iterations */
    uint64_t hybrid_fused;
    uint64_t hybrid_fallback;
    uint64_t vcta_planned[TDM_KIND_CNT];
    uint64_t vcta_executed[TDM_KIND_CNT];
    uint64_t ttft_p50_ns; /* 0 where no first token was sent */
    uint64_t ttft_p99_ns;
    uint64_t itl_p50_ns; /* 0 where no stream sent two tokens */
    uint64_t itl_p99_ns;
    uint64_t faults;
} tdm_journey_t;

/* tdm_journey_between tells after - before; before NULL: since start. */
void tdm_journey_between(tdm_journey_t *out, const tdm_snapshot_t *before,
                         const tdm_snapshot_t *after);

/* tdm_journey_text writes a few lines for a person into buf[cap], always
   NUL-terminated, and returns the length it wanted. */
size_t tdm_journey_text(const tdm_journey_t *j, char *buf, size_t cap);

/* tdm_journey_json writes one JSON object likewise, the fields above by
   name. */
size_t tdm_journey_json(const tdm_journey_t *j, char *buf, size_t cap);

TDM_END_DECLS

#endif /* TDM_TELEMETRY_JOURNEY_H */
