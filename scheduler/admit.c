/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/clock.h"
#include "scheduler/step_private.h"

#include <math.h>

/* MARGIN on an estimated wait: short prompts that come later may go first,
   and an iteration may carry less prefill than lately.  With 1.0 a sixth
   of what is admitted at the edge of capacity came up to 25 % too late
   (tests/sim/test_sched_cost.c, 16 requests a second); more refuses what
   would have been in time. */
#define MARGIN 1.3

/* token_ns gives the time one backlog token takes, from what was seen. */
static double token_ns(const tdm_sched_t *s) {
    return s->fill_tok > 0.0 ? s->fill_ns / s->fill_tok : 0.0;
}

/* --- a tenant's bucket ---------------------------------------------------- */

static double cost_of(const tdm_request_t *request) {
    return (double)request->prompt_cnt + (double)request->output_max;
}

static double bucket_level(const tdm_sched_t *s, uint32_t tenant) {
    const tdm_sched_tenant_t *t = &s->live.tenant[tenant];
    const tdm_bucket_t *b = &s->bucket[tenant];
    double level = b->level + t->token_per_s * (double)(s->now_ns - b->at_ns) / 1e9;
    return TDM_MIN(level, t->token_burst);
}

/* bucket_lack gives the tokens that are missing for a request; one over the
   whole burst is let through by a full bucket, or it never would be. */
static double bucket_lack(const tdm_sched_t *s, const tdm_request_t *request) {
    const tdm_sched_tenant_t *t = &s->live.tenant[request->tenant];
    if (!(t->token_per_s > 0.0)) return 0.0;
    double want = TDM_MIN(cost_of(request), t->token_burst);
    return TDM_MAX(want - bucket_level(s, request->tenant), 0.0);
}

void tdm_admit_take(tdm_sched_t *s, const tdm_request_t *request) {
    if (!(s->live.tenant[request->tenant].token_per_s > 0.0)) return;
    s->bucket[request->tenant] = (tdm_bucket_t){
        .level = bucket_level(s, request->tenant) - cost_of(request), .at_ns = s->now_ns};
}

void tdm_admit_refund(tdm_sched_t *s, uint32_t tenant, uint32_t tokens) {
    if (s->live.tenant[tenant].token_per_s > 0.0) s->bucket[tenant].level += (double)tokens;
}

/* --- time ------------------------------------------------------------------ */

/* An arrival outside the last hour is a broken clock, not a claim to
   urgency. */
int64_t tdm_admit_deadline_ns(const tdm_sched_t *s, const tdm_request_t *request) {
    int64_t arrival = TDM_MIN(request->arrival_ns, s->now_ns);
    if (arrival < s->now_ns - 3600 * TDM_NS_PER_S) arrival = s->now_ns;
    return TDM_MIN(arrival + s->live.class_of[request->slo_class].ttft_ns, request->deadline_ns);
}

uint32_t tdm_admit_retry_ms(const tdm_sched_t *s, const tdm_request_t *request,
                            tdm_reason_t reason) {
    double ms = token_ns(s) * (double)tdm_order_backlog(&s->queues, TDM_SLO_CLASS_MAX - 1) / 1e6;
    if (reason == TDM_REFUSE_tenant_rate)
        ms = 1e3 * bucket_lack(s, request) / s->live.tenant[request->tenant].token_per_s;
    if (ms < s->live.retry_min_ms) return s->live.retry_min_ms;
    return ms < s->live.retry_max_ms ? (uint32_t)ms : s->live.retry_max_ms;
}

/* judge_shape: what can never run here, whatever the load.  The api tile
   checks the same from the same limits; this is the gate before the
   device, so it does not rely on that. */
static tdm_reason_t judge_shape(const tdm_sched_t *s, const tdm_request_t *request) {
    uint64_t tok = (uint64_t)request->prompt_cnt + request->output_max;
    if (request->prompt_cnt == 0 || request->prompt == NULL) return TDM_REFUSE_prompt_empty;
    if (request->output_max == 0 || request->held_cnt > request->prompt_cnt ||
        request->slo_class >= TDM_SLO_CLASS_MAX || request->tenant >= TDM_TENANT_MAX ||
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

/* drain_wait: the time until lack slots or pages have come back, nine times
   in ten, at the pace at which got came back lately; sequences end by
   chance, so some may take long.  0 where none is lacking, or none has
   come back yet. */
static double drain_wait(const tdm_sched_t *s, double lack, double got) {
    if (!(lack > 0.0) || !(got > 0.0)) return 0.0;
    return (lack + 1.3 * sqrt(lack)) * s->drain_ns / got;
}

/* is_late: the first token would come too late, with the tokens of its
   class and of more urgent ones ahead of it. */
static int is_late(const tdm_sched_t *s, const tdm_request_t *request, int64_t deadline_ns) {
    double ahead = (double)tdm_order_backlog(&s->queues, request->slo_class);
    double wait = token_ns(s) * (ahead + request->prompt_cnt);
    double lack = (double)s->waiting_cnt + 1.0 - (double)s->kv.slot_free_cnt;
    double slot_wait = drain_wait(s, lack, s->drain_slots);
    if (slot_wait > 0.0) wait = TDM_MAX(wait, slot_wait + token_ns(s) * request->prompt_cnt);
    return (double)s->now_ns + MARGIN * wait > (double)deadline_ns;
}

/* is_short_of_pages: its pages would not be free in time, at the pace at
   which pages came back lately. */
static int is_short_of_pages(const tdm_sched_t *s, const tdm_request_t *request,
                             int64_t deadline_ns) {
    double need =
        (double)(s->waiting_pages + tdm_sched_need(request->prompt_cnt, request->output_max));
    double lack = need - (double)tdm_kv_spare(&s->kv);
    double wait = drain_wait(s, lack, s->drain_pages);
    return (double)s->now_ns + wait > (double)deadline_ns;
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
    if (bucket_lack(s, request) > 0.0) return TDM_REFUSE_tenant_rate;
    int64_t deadline =
        s->live.ttft_guard ? tdm_admit_deadline_ns(s, request) : request->deadline_ns;
    if (deadline != TDM_TIME_NEVER) {
        if (is_short_of_pages(s, request, deadline)) return TDM_REFUSE_kv_full;
        if (is_late(s, request, deadline)) return TDM_REFUSE_deadline_unreachable;
    }
    if (is_too_dense(s, request)) return TDM_REFUSE_decode_over_budget;
    return TDM_REASON_NONE;
}
