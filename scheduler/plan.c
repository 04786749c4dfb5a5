/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/step_private.h"

#include <string.h>

/* A plan is drafted first (which slots, how many tokens), then written.

   1. every decode
   2. a quarter of what is left to short prompts, where both lengths wait
   3. all of what is left by slack, long prompts included
   4. nothing came of it, and progress is due: one slice of floor_cnt

   A prompt that starts takes a slot and its promise of pages on the way. */

/* ALIGN: a slice that the limit cuts ends on a multiple of 16 tokens, the
   smallest row tile of a tensor-core instruction; fewer are not begun. */
#define ALIGN 16u

typedef struct pick {
    uint32_t seq;
    uint32_t cnt;
} pick_t;

typedef struct draft {
    tdm_load_t load;
    int64_t limit_ns;
    double token_ns; /* for slack */
    uint32_t pick_cnt;
    tdm_reason_t cap;
    tdm_reason_t blocked[TDM_QUEUE_CNT]; /* why its next WAITING cannot start */
    uint32_t ward; /* only it may start: it was overtaken too long; TDM_SEQ_NONE */
    int is_forced;
    uint32_t start_cnt;
    uint16_t start_class[TDM_PLAN_SLICE_MAX];
    int64_t start_wait_ns[TDM_PLAN_SLICE_MAX];
    pick_t pick[TDM_PLAN_SLICE_MAX];
} draft_t;

/* bound of one pass over the queues. */
typedef struct bound {
    int is_short_only;
    int may_force;
    uint32_t token_max;
    int64_t limit_ns;
} bound_t;

static int is_decodable(const tdm_seq_t *q) {
    return q->pos >= q->fill_cnt && q->pos < tdm_seq_last(q);
}

static int64_t predict(const tdm_sched_t *s, const tdm_load_t *load) {
    return tdm_predict_ns(&s->predict, &s->live.profile, (tdm_route_t)s->live.route, load);
}

/* draft_decodes sums the decodes and takes the tightest gap among them as
   the limit. */
static void draft_decodes(const tdm_sched_t *s, draft_t *d) {
    int64_t gap = INT64_MAX;
    for (uint32_t i = 0; i < s->sizes.seq_max; i++) {
        if (s->slot_seq[i] == TDM_SEQ_NONE) continue;
        const tdm_seq_t *q = &s->seq[s->slot_seq[i]];
        if (!is_decodable(q)) continue;
        d->load.decode_cnt++;
        d->load.kv_cnt += (uint64_t)q->pos + 1u;
        gap = TDM_MIN(gap, s->live.class_of[q->slo_class].gap_ns);
    }
    d->limit_ns = d->load.decode_cnt ? gap - s->live.host_gap_ns : s->live.prefill_limit_ns;
}

/* find_ward gives the oldest head that waited past bypass_ns. */
static uint32_t find_ward(const tdm_sched_t *s) {
    uint32_t ward = TDM_SEQ_NONE;
    for (uint32_t i = 0; i < TDM_QUEUE_CNT; i++) {
        uint32_t idx = tdm_order_first_waiting(&s->queues, s->seq, i);
        if (idx == TDM_SEQ_NONE || s->now_ns - s->seq[idx].accepted_ns <= s->live.bypass_ns)
            continue;
        if (ward == TDM_SEQ_NONE || s->seq[idx].order < s->seq[ward].order) ward = idx;
    }
    return ward;
}

/* start_bar says why a WAITING sequence cannot get a slot now. */
static tdm_reason_t start_bar(const tdm_sched_t *s, const draft_t *d, uint32_t idx) {
    const tdm_seq_t *q = &s->seq[idx];
    if (s->rebuilt_cnt > 0) return TDM_CAP_recovering;
    if (s->kv.slot_free_cnt == 0) return TDM_CAP_slots;
    if (d->ward != TDM_SEQ_NONE && d->ward != idx) return TDM_CAP_kv_pages;
    if (!tdm_kv_can_open(&s->kv, tdm_sched_need(q->prompt_cnt, q->output_max)))
        return TDM_CAP_kv_pages;
    return TDM_REASON_NONE;
}

static void start(tdm_sched_t *s, draft_t *d, uint32_t idx) {
    tdm_seq_t *q = &s->seq[idx];
    q->slot = tdm_kv_open(&s->kv, tdm_sched_need(q->prompt_cnt, q->output_max));
    s->slot_seq[q->slot] = idx;
    tdm_seq_move(q, TDM_SEQ_PREFILL);
    s->waiting_cnt--;
    s->waiting_tokens -= q->prompt_cnt;
    s->running_cnt++;
    s->stats.waiting_of[q->slo_class]--;
    s->stats.running_of[q->slo_class]++;
    d->start_class[d->start_cnt] = q->slo_class;
    d->start_wait_ns[d->start_cnt++] = s->now_ns - q->accepted_ns;
    if (d->ward == idx) d->ward = find_ward(s);
}

static pick_t *pick_find(draft_t *d, uint32_t seq) {
    for (uint32_t i = 0; i < d->pick_cnt; i++)
        if (d->pick[i].seq == seq) return &d->pick[i];
    return NULL;
}

/* next_head moves a queue's cursor to its first sequence that still has
   tokens outside the draft. */
static uint32_t next_head(const tdm_sched_t *s, draft_t *d, uint32_t at) {
    while (at != TDM_SEQ_NONE) {
        const pick_t *p = pick_find(d, at);
        if (!p || p->cnt < tdm_seq_fill_left(&s->seq[at])) return at;
        at = s->seq[at].next;
    }
    return at;
}

/* best_queue gives the queue whose head has the least slack, NONE where
   no queue can go on; a queue whose head cannot start is marked. */
static uint32_t best_queue(const tdm_sched_t *s, draft_t *d, const bound_t *b, uint32_t *cursor) {
    uint32_t best = TDM_QUEUE_CNT;
    int64_t best_slack = INT64_MAX;
    for (uint32_t i = 0; i < TDM_QUEUE_CNT; i++) {
        if (b->is_short_only && !tdm_queue_is_short(i)) continue;
        cursor[i] = next_head(s, d, cursor[i]);
        if (cursor[i] == TDM_SEQ_NONE) continue;
        const tdm_seq_t *q = &s->seq[cursor[i]];
        d->blocked[i] = q->state == TDM_SEQ_WAITING ? start_bar(s, d, cursor[i]) : TDM_REASON_NONE;
        if (d->blocked[i] != TDM_REASON_NONE) continue;
        int64_t slack = tdm_order_slack(q, s->now_ns, d->token_ns);
        if (best != TDM_QUEUE_CNT && slack >= best_slack) continue;
        best = i;
        best_slack = slack;
    }
    return best;
}

/* slice_cnt decides the tokens that head may add, 0 with d->cap set where
   none.  may_force: nothing more urgent was fed in this pass, so a head
   that does not fit would not fit later either. */
static uint32_t slice_cnt(const tdm_sched_t *s, draft_t *d, const bound_t *b, uint32_t idx,
                          int may_force) {
    const tdm_seq_t *q = &s->seq[idx];
    const pick_t *p = pick_find(d, idx);
    uint32_t had = p ? p->cnt : 0u;
    uint32_t left = tdm_seq_fill_left(q) - had;
    uint32_t room = b->token_max > d->load.prefill_cnt ? b->token_max - d->load.prefill_cnt : 0u;
    d->cap = TDM_CAP_slice_max;
    if (!p && d->pick_cnt == s->live.slice_max) return 0;
    d->cap = TDM_CAP_token_max;
    uint32_t most = TDM_MIN(left, room);
    if (most == 0) return 0;
    uint32_t cnt = tdm_predict_fit(&s->predict, &s->live.profile, (tdm_route_t)s->live.route,
                                   &d->load, q->pos + had, most, b->limit_ns);
    if (cnt < most) d->cap = TDM_CAP_time_limit;
    uint32_t cut = (q->pos + had + cnt) % ALIGN;
    if (cnt < left && cnt >= ALIGN + cut) cnt -= cut;
    if (cnt == left || cnt >= ALIGN || (cnt > 0 && cnt == most)) return cnt;
    int is_starved = s->now_ns - q->served_ns > s->live.starve_ns;
    int is_alone = d->load.decode_cnt == 0 && d->load.prefill_cnt == 0;
    if (!may_force || !(is_starved || is_alone)) return 0;
    d->is_forced = 1;
    return TDM_MIN(most, s->live.floor_cnt);
}

static void pick_add(tdm_sched_t *s, draft_t *d, uint32_t idx, uint32_t cnt) {
    tdm_seq_t *q = &s->seq[idx];
    if (q->state == TDM_SEQ_WAITING) start(s, d, idx);
    pick_t *p = pick_find(d, idx);
    if (!p) {
        p = &d->pick[d->pick_cnt++];
        *p = (pick_t){.seq = idx};
    }
    d->load.pair_cnt += tdm_predict_pairs(q->pos + p->cnt, cnt);
    d->load.prefill_cnt += cnt;
    p->cnt += cnt;
}

/* draft_pass feeds heads by slack until a bound ends it, and leaves the
   reason in d->cap. */
static void draft_pass(tdm_sched_t *s, draft_t *d, const bound_t *b) {
    uint32_t cursor[TDM_QUEUE_CNT];
    for (uint32_t i = 0; i < TDM_QUEUE_CNT; i++) {
        cursor[i] = s->queues.queue[i].head;
        d->blocked[i] = TDM_REASON_NONE;
    }
    for (int is_first = 1;; is_first = 0) {
        uint32_t queue = best_queue(s, d, b, cursor);
        if (queue == TDM_QUEUE_CNT) break;
        uint32_t idx = cursor[queue];
        uint32_t before = d->load.prefill_cnt;
        uint32_t cnt = slice_cnt(s, d, b, idx, b->may_force && is_first);
        if (cnt == 0) return;
        pick_add(s, d, idx, cnt);
        TDM_CHECK(d->load.prefill_cnt > before);
        const pick_t *p = pick_find(d, idx);
        if (p->cnt < tdm_seq_fill_left(&s->seq[idx])) return;
    }
    d->cap = TDM_CAP_no_work;
    for (uint32_t i = 0; i < TDM_QUEUE_CNT; i++)
        if (d->blocked[i] != TDM_REASON_NONE) d->cap = d->blocked[i];
}

/* has_both: short and long prompts have tokens to feed. */
static int has_both(const tdm_sched_t *s) {
    uint32_t cnt[2] = {0, 0};
    for (uint32_t i = 0; i < TDM_QUEUE_CNT; i++)
        cnt[tdm_queue_is_short(i)] += s->queues.queue[i].cnt;
    return cnt[0] > 0 && cnt[1] > 0;
}

static void draft_prefill(tdm_sched_t *s, draft_t *d) {
    d->token_ns = s->fill_tok > 0.0 ? s->fill_ns / s->fill_tok : 0.0;
    d->ward = find_ward(s);
    int64_t base_ns = predict(s, &d->load);
    if (has_both(s) && base_ns < d->limit_ns) {
        bound_t quarter = {.is_short_only = 1,
                           .token_max = TDM_MAX(s->live.token_max / 4u, 1u),
                           .limit_ns = base_ns + (d->limit_ns - base_ns) / 4};
        draft_pass(s, d, &quarter);
    }
    bound_t all = {.may_force = 1, .token_max = s->live.token_max, .limit_ns = d->limit_ns};
    draft_pass(s, d, &all);
}

/* --- writing ---------------------------------------------------------- */

static void write_closes(tdm_sched_t *s, tdm_plan_t *plan) {
    for (uint32_t i = 0; i < s->sizes.seq_max; i++) {
        if (!s->kv.slot[i].must_close) continue;
        s->kv.slot[i].must_close = 0;
        plan->close[plan->close_cnt++] = i;
    }
}

/* write_slot opens the slot where the executor does not have it, and
   grants the pages that cover tok tokens. */
static void write_slot(tdm_sched_t *s, tdm_plan_t *plan, const tdm_seq_t *q, uint32_t tok) {
    tdm_kv_slot_t *t = &s->kv.slot[q->slot];
    if (!t->is_open) {
        tdm_plan_open_t *open = &plan->open[plan->open_cnt++];
        *open = (tdm_plan_open_t){
            .slot = q->slot, .prompt_cnt = q->prompt_cnt, .sampling = q->request->sampling};
        t->is_open = 1;
    }
    t->last_iteration = plan->iteration;
    tdm_kv_cover(&s->kv, q->slot, tok);
    uint32_t want = tdm_kv_pages(tok);
    if (t->granted_cnt >= want) return;
    tdm_plan_grant_t *grant = &plan->grant[plan->grant_cnt++];
    *grant = (tdm_plan_grant_t){
        .slot = q->slot, .page_off = plan->page_cnt, .page_cnt = want - t->granted_cnt};
    TDM_CHECK(plan->page_cnt + grant->page_cnt <= TDM_PLAN_PAGE_MAX);
    while (t->granted_cnt < want)
        plan->page[plan->page_cnt++] =
            tdm_kv_page(&s->kv, q->slot, t->granted_cnt++ * TDM_KV_PAGE_TOKENS);
}

static void write_entry(tdm_flight_t *f, const tdm_sched_t *s, uint32_t idx, uint32_t pos,
                        int is_sampled) {
    const tdm_seq_t *q = &s->seq[idx];
    f->entry[f->entry_cnt++] = (tdm_flight_entry_t){.order = q->order,
                                                    .seq = idx,
                                                    .slot = q->slot,
                                                    .pos = pos,
                                                    .is_sampled = is_sampled ? 1u : 0u};
    f->sample_cnt += is_sampled ? 1u : 0u;
}

static void write_slice(tdm_sched_t *s, tdm_plan_t *plan, tdm_flight_t *f, const pick_t *p) {
    tdm_seq_t *q = &s->seq[p->seq];
    uint32_t end = q->pos + p->cnt;
    int is_last = end == q->fill_cnt;
    write_slot(s, plan, q, end);
    plan->slice[plan->slice_cnt++] = (tdm_plan_slice_t){.slot = q->slot,
                                                        .pos = q->pos,
                                                        .cnt = p->cnt,
                                                        .token_off = plan->token_cnt,
                                                        .is_last = is_last ? 1u : 0u};
    for (uint32_t pos = q->pos; pos < end; pos++)
        plan->token[plan->token_cnt++] =
            pos < q->prompt_cnt ? q->request->prompt[pos] : tdm_kv_recall(&s->kv, q->slot, pos);
    if (q->pos < q->fed_cnt) s->stats.rebuilt_tokens += TDM_MIN(end, q->fed_cnt) - q->pos;
    q->served_ns = s->now_ns;
    tdm_order_advance(&s->queues, s->seq, p->seq, p->cnt);
    write_entry(f, s, p->seq, end, is_last);
    if (!is_last) return;
    tdm_order_remove(&s->queues, s->seq, p->seq);
    s->rebuilt_cnt -= q->is_rebuilt;
    q->is_rebuilt = 0;
}

static void write_decode(tdm_sched_t *s, tdm_plan_t *plan, tdm_flight_t *f, uint32_t idx) {
    tdm_seq_t *q = &s->seq[idx];
    write_slot(s, plan, q, q->pos + 1u);
    plan->decode[plan->decode_cnt++] = (tdm_plan_decode_t){.slot = q->slot, .pos = q->pos};
    q->pos++;
    write_entry(f, s, idx, q->pos, 1);
}

/* write_plan: decodes are marked before the slices move anyone's pos, as
   a prompt that ends in this plan decodes in the next one. */
static void write_plan(tdm_sched_t *s, const draft_t *d, tdm_plan_t *plan, tdm_flight_t *f) {
    uint32_t decode[TDM_SEQ_MAX];
    uint32_t decode_cnt = 0;
    for (uint32_t i = 0; i < s->sizes.seq_max; i++)
        if (s->slot_seq[i] != TDM_SEQ_NONE && is_decodable(&s->seq[s->slot_seq[i]]))
            decode[decode_cnt++] = s->slot_seq[i];
    TDM_CHECK(decode_cnt == d->load.decode_cnt);
    write_closes(s, plan);
    for (uint32_t i = 0; i < d->pick_cnt; i++) write_slice(s, plan, f, &d->pick[i]);
    for (uint32_t i = 0; i < decode_cnt; i++) write_decode(s, plan, f, decode[i]);
    TDM_CHECK(plan->token_cnt == d->load.prefill_cnt);
}

static void plan_reset(tdm_plan_t *plan) {
    plan->variant = 0;
    plan->reason = 0;
    plan->close_cnt = plan->open_cnt = plan->grant_cnt = plan->page_cnt = 0;
    plan->slice_cnt = plan->token_cnt = plan->decode_cnt = plan->reserved = 0;
}

static void write_record(tdm_sched_t *s, const draft_t *d, const tdm_plan_t *plan,
                         tdm_flight_t *f) {
    f->record = (tdm_sched_record_t){.iteration = plan->iteration,
                                     .epoch = plan->epoch,
                                     .live_revision = s->live.revision,
                                     .route = (uint16_t)plan->route,
                                     .cap = (uint16_t)d->cap,
                                     .fallback = (uint16_t)plan->reason,
                                     .planned_ns = s->now_ns,
                                     .limit_ns = plan->limit_ns,
                                     .predicted_ns = plan->predicted_ns,
                                     .decode_cnt = plan->decode_cnt,
                                     .slice_cnt = plan->slice_cnt,
                                     .prefill_cnt = plan->token_cnt,
                                     .open_cnt = plan->open_cnt,
                                     .pair_cnt = d->load.pair_cnt,
                                     .kv_cnt = d->load.kv_cnt,
                                     .waiting_cnt = s->waiting_cnt,
                                     .running_cnt = s->running_cnt,
                                     .page_free_cnt = s->kv.free_cnt,
                                     .is_forced = d->is_forced ? 1u : 0u};
    f->record.start_cnt = d->start_cnt;
    memcpy(f->record.start_class, d->start_class, sizeof d->start_class);
    memcpy(f->record.start_wait_ns, d->start_wait_ns, sizeof d->start_wait_ns);
    f->profile_ns = tdm_predict_profile_ns(&s->live.profile, (tdm_route_t)s->live.route, &d->load);
    tdm_sched_count(s, d->cap);
    s->stats.prefill_tokens += plan->token_cnt;
    s->stats.forced_cnt += d->is_forced ? 1u : 0u;
}

/* has_room: each api tile could take a token from every sequence, those
   in flight included. */
static int has_room(const tdm_sched_t *s) {
    uint32_t flying = s->sizes.seq_max;
    for (uint32_t i = 0; i < s->flight_cnt; i++) flying += s->flight[i].sample_cnt;
    for (uint32_t i = 0; i < s->sizes.api_cnt; i++)
        if (s->outbox[i].token_cnt + flying > TDM_OUTBOX_TOKENS(s->sizes.seq_max)) return 0;
    return 1;
}

int tdm_sched_plan(tdm_sched_t *s, int64_t now_ns, tdm_plan_t *plan) {
    tdm_sched_clock(s, now_ns);
    if (!s->is_up || s->is_doomed || s->flight_cnt >= s->sizes.depth) return 0;
    if (s->waiting_cnt + s->running_cnt == 0) return 0;
    if (!has_room(s)) {
        s->stats.outbox_stall_cnt++;
        return 0;
    }
    draft_t d;
    memset(&d, 0, sizeof d);
    d.cap = TDM_CAP_no_work;
    draft_decodes(s, &d);
    draft_prefill(s, &d);
    if (d.load.decode_cnt == 0 && d.load.prefill_cnt == 0) return 0;

    tdm_flight_t *f = &s->flight[s->flight_cnt];
    f->entry_cnt = f->sample_cnt = 0;
    plan_reset(plan);
    plan->iteration = ++s->iteration;
    plan->epoch = s->epoch;
    plan->route = tdm_predict_route(&d.load, (tdm_route_t)s->live.route);
    int is_fused_wanted = plan->route < TDM_ROUTE_STREAMS;
    plan->reason = is_fused_wanted ? TDM_REASON_NONE : TDM_FALLBACK_operator_off;
    plan->limit_ns = d.limit_ns;
    plan->predicted_ns = predict(s, &d.load);
    write_plan(s, &d, plan, f);
    write_record(s, &d, plan, f);
    if (s->flight_cnt++ == 0) s->flight_ns = s->now_ns;
    return 1;
}
