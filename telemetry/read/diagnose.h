/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_DIAGNOSE_H
#define TDM_TELEMETRY_DIAGNOSE_H

/* What is wrong, in plain words, from two snapshots: the same counters an
   alert would use, over the seconds between them.  Pure.

   Each finding names one cause; the gravest come first, and of equals the
   one nearer to the machine (a tile that is late before the ring that it
   does not empty). */

#include "telemetry/read/snapshot.h"

TDM_BEGIN_DECLS

typedef enum tdm_gravity {
    TDM_GRAVITY_NOTICE,   /* odd, nobody suffers */
    TDM_GRAVITY_WARNING,  /* somebody waits, or soon will */
    TDM_GRAVITY_CRITICAL, /* requests fail */
    TDM_GRAVITY_CNT
} tdm_gravity_t;

typedef struct tdm_finding {
    tdm_gravity_t gravity;
    const char *cause; /* "tile", "ring", "fallback", "kv", ...: never NULL */
    char text[200];    /* one sentence */
} tdm_finding_t;

#define TDM_FINDING_MAX 16u

/* tdm_diagnose fills out[TDM_FINDING_MAX] and says how many; 0: nothing is
   wrong.  before NULL: since start. */
uint32_t tdm_diagnose(const tdm_snapshot_t *before, const tdm_snapshot_t *after,
                      tdm_finding_t *out);

/* tdm_gravity_name: "notice", "warning", "critical". */
const char *tdm_gravity_name(tdm_gravity_t gravity);

TDM_END_DECLS

#endif /* TDM_TELEMETRY_DIAGNOSE_H */
