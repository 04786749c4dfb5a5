/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/draft_private.h"

#include <string.h>

#define ALIGN TDM_DRAFT_ALIGN

/* bound of one pass over the queues. */
typedef struct bound {
    int is_short_only;
    int may_force;
    uint32_t token_max;
    int64_t budget_ns; /* of the predicted time */
} bound_t;

int64_t tdm_draft_predict(const tdm_sched_t *s, tdm_route_t both, const tdm_load_t *load) {
    if (s->live.policy == TDM_POLICY_MARGIN)
        return tdm_predict_profile_ns(&s->live.profile, both, load);
    return tdm_predict_ns(&s->predict, &s->live.profile, both, load);
}

/* slack_ns: how long this iteration may take before the next token of a
   sequence of a buffered class is late, counted from when it starts. */
static int64_t slack_ns(const tdm_sched_t *s, const tdm_seq_t *q, int64_t start_ns) {
    const tdm_sched_class_t *k = &s->live.class_of[q->slo_class];
    if (q->first_ns == 0) return k->burst_ns;
    int64_t index = (int64_t)q->pos + 1 - (int64_t)q->prompt_cnt;
    int64_t slack = q->first_ns + index * k->gap_ns - start_ns;
    return TDM_MIN(TDM_MAX(slack, 0), k->burst_ns);
}

/* start_ns is when the plan in the making would begin to run. */
static int64_t start_ns(const tdm_sched_t *s) {
    if (s->flight_cnt == 0) return s->now_ns;
    return TDM_MAX(s->now_ns, s->flight_ns + s->flight[0].record.predicted_ns);
}

/* limit_by keeps the tighter limit and whose it is. */
static void limit_by(tdm_draft_t *d, int64_t *limit_ns, uint32_t slo_class, int64_t own_ns) {
    if (own_ns >= *limit_ns) return;
    *limit_ns = own_ns;
    d->limit_class = slo_class;
}

/* draft_decodes sums the decodes and takes the tightest limit among them
   as the iteration's. */
static void draft_decodes(const tdm_sched_t *s, tdm_draft_t *d) {
    int64_t limit = INT64_MAX, start = start_ns(s);
    d->limit_class = TDM_SLO_CLASS_MAX;
    for (uint32_t i = 0; i < TDM_MIN(TDM_SCHED_AHEAD, s->sizes.seq_max); i++)
        if (s->slot_seq[i] != TDM_SEQ_NONE) __builtin_prefetch(&s->seq[s->slot_seq[i]], 1);
    for (uint32_t i = 0; i < s->sizes.seq_max; i++) {
        tdm_sched_ahead(s, i);
        if (s->slot_seq[i] == TDM_SEQ_NONE) continue;
        const tdm_seq_t *q = &s->seq[s->slot_seq[i]];
        if (!tdm_draft_is_decodable(q)) continue;
        d->load.decode_cnt++;
        d->load.kv_cnt += (uint64_t)q->pos + 1u;
        d->load.kv_max = TDM_MAX(d->load.kv_max, (uint64_t)q->pos + 1u);
        d->decode_of[q->slo_class]++;
        if (s->live.class_of[q->slo_class].burst_ns > 0)
            limit_by(d, &limit, q->slo_class, slack_ns(s, q, start));
    }
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++)
        if (d->decode_of[k] > 0 && s->live.class_of[k].burst_ns == 0)
            limit_by(d, &limit, k, s->live.class_of[k].gap_ns);
    int64_t host = TDM_MAX((int64_t)s->cap.host_ns, s->live.host_gap_ns);
    d->limit_ns = d->load.decode_cnt ? limit - host : s->live.prefill_limit_ns;
}

/* has_choice: the route of hybrids is the table's to choose. */
static int has_choice(const tdm_sched_t *s) {
    return s->live.route == TDM_ROUTE_FUSED && s->live.profile.table;
}

/* draft_bounds sets what the passes may take, by the policy. */
static void draft_bounds(tdm_sched_t *s, tdm_draft_t *d) {
    uint32_t decode_cnt = d->load.decode_cnt, most = UINT32_MAX;
    d->both = (tdm_route_t)s->live.route;
    if (has_choice(s) && s->cap.is_drifting) d->both = TDM_ROUTE_SERIAL;
    d->token_max = s->live.token_max;
    d->budget_ns = d->limit_ns;
    if (decode_cnt == 0) return;
    switch (s->live.policy) {
    case TDM_POLICY_STATIC:
        most = s->live.token_max;
        d->budget_ns = INT64_MAX / 4;
        break;
    case TDM_POLICY_MARGIN: d->budget_ns = (int64_t)((double)d->limit_ns / s->live.margin); break;
    default:
        most = tdm_cap_token_max(&s->cap);
        d->budget_ns = tdm_cap_budget_ns(&s->cap, d->limit_ns);
        break;
    }
    most = most > decode_cnt ? most - decode_cnt : 0u;
    d->token_max = TDM_MIN(d->token_max, most);
    if (tdm_draft_predict(s, d->both, &d->load) <= d->budget_ns) return;
    tdm_draft_skip(s, d, start_ns(s));
}

static tdm_pick_t *pick_find(tdm_draft_t *d, uint32_t seq) {
    for (uint32_t i = 0; i < d->pick_cnt; i++)
        if (d->pick[i].seq == seq) return &d->pick[i];
    return NULL;
}

/* next_head moves a queue's cursor to its first sequence that still has
   tokens outside the draft. */
static uint32_t next_head(const tdm_sched_t *s, tdm_draft_t *d, uint32_t at) {
    while (at != TDM_SEQ_NONE) {
        const tdm_pick_t *p = pick_find(d, at);
        if (!p || p->cnt < tdm_seq_fill_left(&s->seq[at])) return at;
        at = s->seq[at].next;
    }
    return at;
}

/* A head that could go on. */
typedef struct head {
    uint32_t queue; /* TDM_QUEUE_CNT: none */
    int64_t due_ns;
    int64_t slack_ns;
    uint64_t order;
    double served; /* its tenant */
    int is_first;  /* it has or had a slot, or its deadline is lost */
} head_t;

/* is_sooner: does a go before b of the same tenant and class? */
static int is_sooner(const head_t *a, const head_t *b) {
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

/* is_before: does a go before b of another tenant of their class? */
static int is_before(const head_t *a, const head_t *b) {
    if (b->queue == TDM_QUEUE_CNT) return 1;
    if (a->is_first != b->is_first) return a->is_first;
    if (!a->is_first && a->served != b->served) return a->served < b->served;
    return a->order < b->order;
}

/* head_of looks at a queue's next head; a queue whose head cannot start is
   marked and gives none. */
static head_t head_of(const tdm_sched_t *s, tdm_draft_t *d, uint32_t queue, uint32_t *cursor) {
    head_t none = {.queue = TDM_QUEUE_CNT};
    *cursor = next_head(s, d, *cursor);
    /* who holds a row ran before, and so stands before all that never did */
    while (*cursor != TDM_SEQ_NONE && s->seq[*cursor].is_returned &&
           tdm_draft_lacks_row(s, &s->seq[*cursor])) {
        d->blocked[queue] = TDM_CAP_slots;
        *cursor = next_head(s, d, s->seq[*cursor].next);
    }
    if (*cursor == TDM_SEQ_NONE) return none;
    const tdm_seq_t *q = &s->seq[*cursor];
    int is_waiting = q->state == TDM_SEQ_WAITING;
    d->blocked[queue] = is_waiting ? tdm_draft_bar(s, d, *cursor) : TDM_REASON_NONE;
    if (d->blocked[queue] != TDM_REASON_NONE) return none;
    int64_t slack = tdm_order_slack(q, s->now_ns, d->token_ns);
    return (head_t){.queue = queue,
                    .due_ns = tdm_order_due(q, d->token_ns, s->live.patience),
                    .slack_ns = slack,
                    .order = q->order,
                    .served = s->queues.served[q->tenant],
                    .is_first = !is_waiting || q->is_returned || slack < 0};
}

/* class_head gives the head that goes next of the class of queue *at: the
   soonest of each tenant, and of these the first.  It leaves *at behind the
   class. */
static head_t class_head(const tdm_sched_t *s, tdm_draft_t *d, const bound_t *b, uint32_t *cursor,
                         uint32_t *at) {
    head_t of[TDM_TENANT_MAX], first = {.queue = TDM_QUEUE_CNT};
    uint32_t slo_class = tdm_queue_class(*at), seen = 0;
    for (; *at < TDM_QUEUE_CNT && tdm_queue_class(*at) == slo_class;
         *at = tdm_queue_next(&s->queues, *at + 1u)) {
        if (b->is_short_only && !tdm_queue_is_short(*at)) continue;
        head_t head = head_of(s, d, *at, &cursor[*at]);
        uint32_t tenant = *at % TDM_TENANT_MAX;
        if (head.queue == TDM_QUEUE_CNT) continue;
        if (!(seen >> tenant & 1u) || is_sooner(&head, &of[tenant])) of[tenant] = head;
        seen |= 1u << tenant;
    }
    for (; seen; seen &= seen - 1u) {
        const head_t *head = &of[__builtin_ctz(seen)];
        if (is_before(head, &first)) first = *head;
    }
    return first;
}

/* best_queue gives the queue whose head goes next, TDM_QUEUE_CNT where no
   queue can go on: of the heads of classes, the one with the least slack. */
static uint32_t best_queue(const tdm_sched_t *s, tdm_draft_t *d, const bound_t *b,
                           uint32_t *cursor) {
    head_t best = {.queue = TDM_QUEUE_CNT};
    for (uint32_t i = tdm_queue_next(&s->queues, 0); i < TDM_QUEUE_CNT;) {
        head_t head = class_head(s, d, b, cursor, &i);
        if (head.queue == TDM_QUEUE_CNT) continue;
        if (best.queue == TDM_QUEUE_CNT || head.slack_ns < best.slack_ns) best = head;
    }
    return best.queue;
}

/* fits: would the load plus cnt tokens after pos stay in the budget? */
static int fits(const tdm_sched_t *s, const tdm_draft_t *d, uint32_t pos, uint32_t cnt,
                int64_t budget_ns) {
    tdm_load_t more = d->load;
    more.prefill_cnt += cnt;
    more.pair_cnt += tdm_predict_pairs(pos, cnt);
    return tdm_draft_predict(s, d->both, &more) <= budget_ns;
}

/* fit gives the most tokens, at most cnt_max, that a slice starting at pos
   may add within the budget. */
static uint32_t fit(const tdm_sched_t *s, const tdm_draft_t *d, uint32_t pos, uint32_t cnt_max,
                    int64_t budget_ns) {
    if (fits(s, d, pos, cnt_max, budget_ns)) return cnt_max;
    uint32_t good = 0, bad = cnt_max;
    while (bad - good > 1) {
        uint32_t mid = good + (bad - good) / 2;
        if (fits(s, d, pos, mid, budget_ns))
            good = mid;
        else
            bad = mid;
    }
    return good;
}

/* forced_cnt: the slice that progress demands, 0 where it does not.
   may_force: nothing more urgent was fed in this pass, so a head that does
   not fit would not fit later either. */
static uint32_t forced_cnt(const tdm_sched_t *s, tdm_draft_t *d, const tdm_seq_t *q, uint32_t left,
                           int may_force) {
    int is_starved = s->now_ns - q->served_ns > s->live.starve_ns;
    int is_alone = d->load.decode_cnt == 0 && d->load.prefill_cnt == 0;
    if (!may_force || !(is_starved || is_alone)) return 0;
    if (d->load.prefill_cnt >= s->live.token_max) return 0;
    d->is_forced = 1;
    left = TDM_MIN(left, s->live.token_max - d->load.prefill_cnt);
    return TDM_MIN(left, s->live.floor_cnt);
}

/* on_grid takes off what a cut leaves over a multiple of the grid. */
static uint32_t on_grid(const tdm_sched_t *s, const tdm_draft_t *d, uint32_t pos, uint32_t cnt) {
    uint32_t cut = (pos + cnt) % ALIGN;
    if (s->live.grid_tok > 1)
        cut = (d->load.decode_cnt + d->load.prefill_cnt + cnt) % s->live.grid_tok;
    return cnt >= ALIGN + cut ? cnt - cut : cnt;
}

/* ungranted gives the filled pages of a sequence that its first slice brings
   the executor; it may have started some plans ago. */
static uint32_t ungranted(const tdm_sched_t *s, const tdm_seq_t *q) {
    if (q->slot == TDM_SEQ_NONE) return 0;
    const tdm_kv_slot_t *t = &s->kv.slot[q->slot];
    return t->filled_cnt > t->granted_cnt ? t->filled_cnt - t->granted_cnt : 0u;
}

/* slice_cnt decides the tokens that head may add, 0 with d->cap set where
   none. */
static uint32_t slice_cnt(const tdm_sched_t *s, tdm_draft_t *d, const bound_t *b, uint32_t idx,
                          int may_force) {
    const tdm_seq_t *q = &s->seq[idx];
    const tdm_pick_t *p = pick_find(d, idx);
    uint32_t had = p ? p->cnt : 0u;
    uint32_t left = tdm_seq_fill_left(q) - had;
    uint32_t room = b->token_max > d->load.prefill_cnt ? b->token_max - d->load.prefill_cnt : 0u;
    d->cap = TDM_CAP_slice_max;
    if (!p && (d->pick_cnt == s->live.slice_max || ungranted(s, q) > d->grant_left)) return 0;
    int is_climbing = s->live.policy == TDM_POLICY_QUANTILE && d->token_max < s->live.token_max;
    d->cap = is_climbing ? TDM_CAP_time_limit : TDM_CAP_token_max;
    uint32_t most = TDM_MIN(left, room);
    uint32_t cnt = most > 0 ? fit(s, d, q->pos + had, most, b->budget_ns) : 0u;
    if (cnt < most) d->cap = TDM_CAP_time_limit;
    if (cnt < most) cnt = on_grid(s, d, q->pos + had, cnt);
    if (cnt > 0 && !b->is_short_only) {
        uint32_t worth = tdm_draft_thrift(s, d, q->pos + had, cnt);
        d->is_thrifty = worth < cnt;
        if (d->is_thrifty) d->cap = TDM_CAP_time_limit;
        if (d->is_thrifty) return worth;
    }
    if (cnt == left || cnt >= ALIGN || (cnt > 0 && cnt == most)) return cnt;
    return forced_cnt(s, d, q, left, may_force);
}

static void pick_add(tdm_sched_t *s, tdm_draft_t *d, uint32_t idx, uint32_t cnt) {
    tdm_seq_t *q = &s->seq[idx];
    tdm_pick_t *p = pick_find(d, idx);
    if (!p) {
        p = &d->pick[d->pick_cnt++];
        *p = (tdm_pick_t){.seq = idx};
        d->grant_left -= ungranted(s, q);
    }
    d->load.pair_cnt += tdm_predict_pairs(q->pos + p->cnt, cnt);
    d->load.prefill_cnt += cnt;
    p->cnt += cnt;
}

/* draft_pass feeds heads by slack until a bound ends it, and leaves the
   reason in d->cap. */
static void draft_pass(tdm_sched_t *s, tdm_draft_t *d, const bound_t *b) {
    uint32_t cursor[TDM_QUEUE_CNT];
    for (uint32_t i = 0; (i = tdm_queue_next(&s->queues, i)) < TDM_QUEUE_CNT; i++) {
        cursor[i] = s->queues.queue[i].head;
        d->blocked[i] = TDM_REASON_NONE;
    }
    for (int is_first = 1;; is_first = 0) {
        uint32_t queue = best_queue(s, d, b, cursor);
        if (queue == TDM_QUEUE_CNT) break;
        uint32_t idx = cursor[queue];
        uint32_t before = d->load.prefill_cnt;
        int may_force = b->may_force && is_first, was_forced = d->is_forced;
        uint32_t cnt = slice_cnt(s, d, b, idx, may_force);
        if (cnt > 0 && s->seq[idx].state == TDM_SEQ_WAITING && tdm_draft_start(s, d, idx)) {
            d->is_forced = was_forced; /* the cache moved it on: look again */
            cnt = slice_cnt(s, d, b, idx, may_force);
        }
        if (cnt == 0) return;
        pick_add(s, d, idx, cnt);
        TDM_CHECK(d->load.prefill_cnt > before);
        const tdm_pick_t *p = pick_find(d, idx);
        if (p->cnt < tdm_seq_fill_left(&s->seq[idx])) return;
    }
    d->cap = TDM_CAP_no_work;
    for (uint32_t i = 0; (i = tdm_queue_next(&s->queues, i)) < TDM_QUEUE_CNT; i++)
        if (d->blocked[i] != TDM_REASON_NONE) d->cap = d->blocked[i];
}

/* has_both: short and long prompts have tokens to feed. */
static int has_both(const tdm_sched_t *s) {
    uint32_t filled[2] = {0, 0};
    for (uint32_t g = 0; g < TDM_GROUP_QUEUES; g++)
        filled[g % TDM_SIZE_CNT == 0] |= s->queues.filled[g];
    return filled[0] && filled[1];
}

/* other_route chooses the route for what fused admits, or for one more
   slice where that is nothing: where another route is faster there, it
   takes at least as much, and a second pass adds what it takes more.  Two
   looks at one variant cost less than every look at all three. */
static tdm_route_t other_route(const tdm_sched_t *s, const tdm_draft_t *d) {
    tdm_load_t load = d->load;
    if (load.prefill_cnt == 0) {
        load.prefill_cnt = 4u * ALIGN;
        load.pair_cnt = tdm_predict_pairs(0, load.prefill_cnt);
    }
    return tdm_predict_choose(&s->live.profile, &load);
}

static void draft_prefill(tdm_sched_t *s, tdm_draft_t *d) {
    d->token_ns = s->fill_tok > 0.0 ? s->fill_ns / s->fill_tok : 0.0;
    d->ward = tdm_draft_ward(s, d);
    int64_t base_ns = tdm_draft_predict(s, d->both, &d->load);
    if (s->live.patience > 0.0 && has_both(s) && base_ns < d->budget_ns) {
        bound_t quarter = {.is_short_only = 1,
                           .token_max = TDM_MAX(d->token_max / 4u, 1u),
                           .budget_ns = base_ns + (d->budget_ns - base_ns) / 4};
        draft_pass(s, d, &quarter);
    }
    bound_t all = {.may_force = 1, .token_max = d->token_max, .budget_ns = d->budget_ns};
    draft_pass(s, d, &all);
    if (has_choice(s) && !s->cap.is_drifting && d->load.decode_cnt > 0) {
        d->both = other_route(s, d);
        if (d->both != TDM_ROUTE_FUSED && d->cap == TDM_CAP_time_limit && !d->is_thrifty)
            draft_pass(s, d, &all);
    }
}

void tdm_draft_make(tdm_sched_t *s, tdm_draft_t *d) {
    memset(d, 0, sizeof *d);
    d->cap = TDM_CAP_no_work;
    d->match_left = d->grant_left = TDM_SCHED_MATCH_MAX;
    tdm_draft_make_room(s);
    draft_decodes(s, d);
    draft_bounds(s, d);
    draft_prefill(s, d);
    if (d->cap == TDM_CAP_time_limit && s->is_throttled) d->cap = TDM_CAP_power;
}
