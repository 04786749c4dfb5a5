/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_STREAM_H
#define TDM_TELEMETRY_STREAM_H

/* tdm_stream follows one reply where its bytes are handed to the wire, and
   is the one place where token latency is seen and promises are judged:

     record with tokens   first of a stream: TTFT, and ttft met or missed
                          later ones: a gap, met or missed
     end                  whole: e2e; of a stream also TPOT, and tpot and
                          all met or missed, goodput
                          broken by us after its first token: missed
                          left by the client: nothing

   Tokens that share a record share its moment: one gap.  A reply that does
   not stream has no first token of its own, only an end.  A promise of 0
   is none: every stream meets it.

   Ownership: a member of a door's slot, zeroed when the slot is taken; the
   door's thread alone. */

#include "appliance/abi/exchange.h"
#include "telemetry/block/block.h"

TDM_BEGIN_DECLS

typedef struct tdm_stream {
    int64_t first_ns; /* hand-over of the first token; 0: none yet */
    int64_t last_ns;  /* hand-over of the newest record with tokens */
    int64_t sent_ns;  /* hand-over of the newest record */
    uint32_t token_cnt;
    uint32_t is_ttft_missed;
} tdm_stream_t;

typedef enum tdm_stream_end {
    TDM_STREAM_WHOLE,  /* the client has all of it */
    TDM_STREAM_BROKEN, /* we cut it */
    TDM_STREAM_LEFT,   /* the client did */
} tdm_stream_end_t;

/* tdm_stream_sent tells of one record handed over. */
static inline void tdm_stream_sent(tdm_stream_t *s, tdm_block_t *block, const tdm_exchange_t *x,
                                   uint32_t token_cnt, int64_t now_ns) {
    s->sent_ns = now_ns;
    if (token_cnt == 0) return;
    int64_t last_ns = s->last_ns;
    s->last_ns = now_ns;
    s->token_cnt += token_cnt;
    if (s->first_ns == 0) s->first_ns = now_ns;
    if (!x->head.is_stream) return;
    uint32_t slo_class = x->slo_class;
    tdm_block_begin(block);
    if (last_ns == 0) {
        int64_t ttft_ns = now_ns - x->arrival_ns;
        s->is_ttft_missed = x->promise_ttft_ns > 0 && ttft_ns > x->promise_ttft_ns;
        tdm_observe_ns(block, TDM_METRIC_ttft_seconds, slo_class, ttft_ns);
        uint32_t ttft = tdm_series3(TDM_METRIC_slo_requests_total, slo_class,
                                    TDM_LABEL_OBJECTIVE_ttft, s->is_ttft_missed);
        tdm_count(block, TDM_METRIC_slo_requests_total, ttft, 1);
    } else {
        int64_t gap_ns = now_ns - last_ns;
        uint32_t is_missed = x->promise_gap_ns > 0 && gap_ns > x->promise_gap_ns;
        tdm_observe_ns(block, TDM_METRIC_itl_seconds, slo_class, gap_ns);
        uint32_t gap = tdm_series2(TDM_METRIC_slo_gaps_total, slo_class, is_missed);
        tdm_count(block, TDM_METRIC_slo_gaps_total, gap, 1);
    }
    tdm_block_end(block);
}

/* tdm_stream_ended tells how it ended, once. */
static inline void tdm_stream_ended(tdm_stream_t *s, tdm_block_t *block, const tdm_exchange_t *x,
                                    tdm_stream_end_t end) {
    /* No tokens went out: a health check or a refusal, that would make the
       histograms look good. */
    if (s->first_ns == 0 || end == TDM_STREAM_LEFT) return;
    uint32_t slo_class = x->slo_class;
    int is_whole = end == TDM_STREAM_WHOLE;
    tdm_block_begin(block);
    if (is_whole)
        tdm_observe_ns(block, TDM_METRIC_e2e_seconds, slo_class, s->sent_ns - x->arrival_ns);
    if (x->head.is_stream) {
        int64_t span_ns = s->last_ns - s->first_ns;
        int64_t tpot_ns = s->token_cnt > 1 ? span_ns / (int64_t)(s->token_cnt - 1) : 0;
        if (is_whole && s->token_cnt > 1)
            tdm_observe_ns(block, TDM_METRIC_tpot_seconds, slo_class, tpot_ns);
        uint32_t is_late = x->promise_gap_ns > 0 && tpot_ns > x->promise_gap_ns;
        uint32_t tpot = !is_whole || is_late, all = tpot || s->is_ttft_missed;
        tdm_count(
            block, TDM_METRIC_slo_requests_total,
            tdm_series3(TDM_METRIC_slo_requests_total, slo_class, TDM_LABEL_OBJECTIVE_tpot, tpot),
            1);
        tdm_count(
            block, TDM_METRIC_slo_requests_total,
            tdm_series3(TDM_METRIC_slo_requests_total, slo_class, TDM_LABEL_OBJECTIVE_all, all), 1);
        if (!all) tdm_count(block, TDM_METRIC_goodput_tokens_total, slo_class, s->token_cnt);
    }
    tdm_block_end(block);
}

TDM_END_DECLS

#endif /* TDM_TELEMETRY_STREAM_H */
