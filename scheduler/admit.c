/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/clock.h"
#include "scheduler/step_private.h"

/* token_ns gives the time one backlog token takes, from what was seen. */
static double token_ns(const tdm_sched_t *s) {
    return s->fill_tok > 0.0 ? s->fill_ns / s->fill_tok : 0.0;
}

uint32_t tdm_admit_retry_ms(const tdm_sched_t *s) {
    double ms = token_ns(s) * (double)tdm_order_backlog(&s->queues, TDM_SLO_CLASS_MAX - 1) / 1e6;
    if (ms < s->live.retry_min_ms) return s->live.retry_min_ms;
    return ms < s->live.retry_max_ms ? (uint32_t)ms : s->live.retry_max_ms;
}

/* judge_shape: what can never run here, whatever the load.  The api tile
   checks the same from the same limits; this is the gate before the
   device, so it does not rely on that. */
static tdm_reason_t judge_shape(const tdm_sched_t *s, const tdm_request_t *request) {
    uint64_t tok = (uint64_t)request->prompt_cnt + request->output_max;
    if (request->prompt_cnt == 0 || request->prompt == NULL) return TDM_REFUSE_prompt_empty;
    if (request->output_max == 0 || request->slo_class >= TDM_SLO_CLASS_MAX ||
        request->sampling.stop_cnt > TDM_STOP_ID_MAX)
        return TDM_REFUSE_bad_value;
    if (tok > s->sizes.context_max) return TDM_REFUSE_context_too_long;
    if (tdm_sched_need(request->prompt_cnt, request->output_max) > s->sizes.page_cnt)
        return TDM_REFUSE_kv_never;
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < request->prompt_cnt; i++)
        wrong |= (uint32_t)request->prompt[i] >= s->sizes.vocab;
    return wrong ? TDM_REFUSE_token_out_of_vocabulary : TDM_REASON_NONE;
}

/* is_late: the first token would come after the client's own deadline,
   with the tokens of its class and of more urgent ones ahead of it. */
static int is_late(const tdm_sched_t *s, const tdm_request_t *request) {
    if (request->deadline_ns == TDM_TIME_NEVER) return 0;
    double ahead = (double)tdm_order_backlog(&s->queues, request->slo_class);
    double wait = token_ns(s) * (ahead + request->prompt_cnt);
    return (double)s->now_ns + wait > (double)request->deadline_ns;
}

/* is_too_dense: with one stream more, an iteration of decodes alone would
   pass the tightest gap that is promised to anyone running or to it. */
static int is_too_dense(const tdm_sched_t *s, const tdm_request_t *request) {
    if (!s->live.decode_guard) return 0;
    int64_t gap = s->live.class_of[request->slo_class].gap_ns;
    tdm_load_t load = {
        .decode_cnt = 1, .kv_cnt = request->prompt_cnt, .kv_max = request->prompt_cnt};
    for (uint32_t i = 0; i < s->sizes.seq_max; i++) {
        if (s->slot_seq[i] == TDM_SEQ_NONE) continue;
        const tdm_seq_t *q = &s->seq[s->slot_seq[i]];
        load.decode_cnt++;
        uint64_t kv = TDM_MAX(q->pos, q->fill_cnt);
        load.kv_cnt += kv;
        load.kv_max = TDM_MAX(load.kv_max, kv);
        gap = TDM_MIN(gap, s->live.class_of[q->slo_class].gap_ns);
    }
    int64_t host = TDM_MAX((int64_t)s->cap.host_ns, s->live.host_gap_ns);
    return tdm_predict_ns(&s->predict, &s->live.profile, (tdm_route_t)s->live.route, &load) >
           tdm_cap_budget_ns(&s->cap, gap - host);
}

tdm_reason_t tdm_admit_judge(const tdm_sched_t *s, const tdm_request_t *request) {
    tdm_reason_t shape = judge_shape(s, request);
    if (shape != TDM_REASON_NONE) return shape;
    if (s->is_draining) return TDM_REFUSE_draining;
    if (!s->is_up) return s->was_up ? TDM_REFUSE_executor_down : TDM_REFUSE_starting;
    if (s->waiting_cnt >= s->sizes.waiting_max) return TDM_REFUSE_waiting_full;
    if (s->waiting_tokens + request->prompt_cnt > s->live.waiting_tokens_max && s->waiting_cnt > 0)
        return TDM_REFUSE_waiting_full;
    if (is_late(s, request)) return TDM_REFUSE_deadline_unreachable;
    if (is_too_dense(s, request)) return TDM_REFUSE_decode_over_budget;
    return TDM_REASON_NONE;
}
