/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "scheduler/step_private.h"

#include <string.h>

#define CLOCK_LOW  0.5 /* a clock explains no more than this, over the profile's */
#define CLOCK_HIGH 1.1
#define CLOCK_PART (1.0 / 16.0) /* of the way, with each iteration */

/* A turn takes what came while it went on: by so much a result may end after
   the turn's own time.  More is a clock that lies. */
#define AHEAD_NS TDM_NS_PER_S

/* What comes back from the executor.  It is another process: a result is
   copied and checked against its plan before anything changes. */

/* doom counts a fault and lets watch ask for the executor's end. */
static void doom(tdm_sched_t *s, tdm_reason_t reason) {
    tdm_sched_count(s, reason);
    if (!s->is_doomed) s->verdict = reason;
    s->is_doomed = 1;
}

/* When an iteration ran, by its result. */
typedef struct span {
    int64_t start_ns;
    int64_t end_ns;
} span_t;

/* span_of reads each shared word once.  What has not happened yet, or ended
   before it began, is counted and took no time: so no sum of times that the
   executor gives passes its range. */
static span_t span_of(tdm_sched_t *s, const tdm_result_t *r) {
    span_t span = {tdm_load_relaxed(&r->start_ns), tdm_load_relaxed(&r->end_ns)};
    int is_now = span.end_ns >= 0 && span.end_ns <= s->now_ns + AHEAD_NS;
    if (is_now && span.start_ns >= 0 && span.start_ns <= span.end_ns) return span;
    tdm_sched_count(s, TDM_FAULT_clock_backwards);
    if (!is_now) span.end_ns = s->now_ns;
    span.start_ns = span.end_ns;
    return span;
}

/* copy_samples reads each shared word once; 0 where a sample contradicts
   the plan. */
static int copy_samples(tdm_sched_t *s, const tdm_flight_t *f, const tdm_result_t *r) {
    if (r->sample_cnt != f->sample_cnt) return 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->entry_cnt; i++) {
        const tdm_flight_entry_t *e = &f->entry[i];
        if (!e->is_sampled) continue;
        const tdm_result_sample_t *sample = &r->sample[n];
        if (sample->slot != e->slot || sample->pos != e->pos) return 0;
        s->sample[n] = sample->token;
        s->sample_flags[n] = sample->flags;
        int is_nan = (s->sample_flags[n] & TDM_SAMPLE_NAN) != 0;
        if (!is_nan && (uint32_t)s->sample[n] >= s->sizes.vocab) return 0;
        n++;
    }
    return 1;
}

/* take gives one sampled token to its sequence. */
static void take(tdm_sched_t *s, uint32_t idx, int32_t token, uint32_t flags, uint32_t pos,
                 int64_t end_ns) {
    tdm_seq_t *q = &s->seq[idx];
    TDM_CHECK(pos == q->prompt_cnt + q->out_cnt);
    if (flags & TDM_SAMPLE_NAN) {
        tdm_sched_count(s, TDM_FAULT_sequence_nan);
        tdm_sched_end(s, idx, TDM_SEQ_FAILED, TDM_FINISH_ERROR, TDM_REFUSE_nan_logits);
        return;
    }
    if (q->state == TDM_SEQ_PREFILL) tdm_seq_move(q, TDM_SEQ_DECODE);
    if (q->out_cnt == 0) q->first_ns = end_ns;
    uint32_t is_stop = flags & TDM_SAMPLE_STOP_ID;
    tdm_event_t event = {.handle = q->handle,
                         .kind = TDM_EVENT_TOKEN,
                         .flags = is_stop ? TDM_EVENT_FLAG_STOP_ID : 0u,
                         .token = token,
                         .index = q->out_cnt,
                         .iteration_ns = end_ns};
    if (q->out_cnt == 0) { /* what lies on a line of its own, asked for once */
        event.cached_cnt = q->cached_cnt;
        event.start_ns = q->accepted_ns + (int64_t)q->wait_us * TDM_NS_PER_US;
    }
    tdm_sched_push(s, q->api, &event);
    *tdm_tape_at(&s->tape, q->row, q->out_cnt) = token;
    q->out_cnt++;
    s->stats.output_tokens++;
    s->stats.last_token_ns = s->now_ns;
    if (is_stop) {
        tdm_sched_end(s, idx, TDM_SEQ_DONE, TDM_FINISH_STOP, TDM_REASON_NONE);
        return;
    }
    if (q->out_cnt == q->output_max) {
        tdm_sched_end(s, idx, TDM_SEQ_DONE, TDM_FINISH_LENGTH, TDM_REASON_NONE);
        return;
    }
}

/* take_ahead asks for what the entries further on will touch. */
static void take_ahead(const tdm_sched_t *s, const tdm_flight_t *f, uint32_t i) {
    uint32_t next = i + TDM_SCHED_AHEAD;
    if (next >= f->entry_cnt || f->entry[next].seq == TDM_SEQ_NONE) return;
    __builtin_prefetch(&s->seq[f->entry[next].seq], 1);
}

/* list_pages offers the pages that the entry's inputs have filled; its
   sequence lives.  A decode fills one only with the last row of it. */
static void list_pages(tdm_sched_t *s, const tdm_flight_entry_t *e) {
    const tdm_seq_t *q = &s->seq[e->seq];
    const tdm_kv_chain_t *c = &s->kv.chain[e->slot];
    int32_t buf[TDM_KV_PAGE_TOKENS];
    if (s->kv.slot[e->slot].is_foreign) return;
    while ((c->cnt + 1u) * TDM_KV_PAGE_TOKENS <= e->pos)
        tdm_kv_list(&s->kv, e->slot, q->tenant, tdm_sched_page_tokens(s, q, c->cnt, buf));
}

/* take_samples hands the copied tokens out; whoever has ended meanwhile
   gets none, and the computed token is counted. */
static uint32_t take_samples(tdm_sched_t *s, const tdm_flight_t *f, int64_t end_ns) {
    uint32_t n = 0, discard_cnt = 0;
    for (uint32_t i = 0; i < f->entry_cnt; i++) {
        const tdm_flight_entry_t *e = &f->entry[i];
        take_ahead(s, f, i);
        const tdm_seq_t *q = e->seq == TDM_SEQ_NONE ? NULL : &s->seq[e->seq];
        int is_live = q && q->state != TDM_SEQ_FREE && TDM_ENTRY_IS_OF(e, q);
        if (is_live && s->sizes.has_cache &&
            (i < f->record.slice_cnt || e->pos % TDM_KV_PAGE_TOKENS == 0))
            list_pages(s, e);
        if (!e->is_sampled) continue;
        /* Ended or not: its slot is fenced until this result is done. */
        if (s->sample_flags[n] & TDM_SAMPLE_NAN) tdm_kv_doubt(&s->kv, e->slot);
        if (is_live)
            take(s, e->seq, s->sample[n], s->sample_flags[n], e->pos, end_ns);
        else {
            discard_cnt++;
            s->stats.discard_of[e->finish]++;
        }
        n++;
    }
    s->stats.discard_tokens += discard_cnt;
    return discard_cnt;
}

/* pace tracks how fast prefill goes, over about ten iterations with any. */
static void pace(tdm_sched_t *s, const tdm_sched_record_t *record) {
    if (record->prefill_cnt == 0 || record->actual_ns <= 0) return;
    s->fill_tok = 0.9 * s->fill_tok + (double)record->prefill_cnt;
    s->fill_ns = 0.9 * s->fill_ns + (double)record->actual_ns;
}

/* drain tracks how fast pages and slots come back, over some two hundred
   iterations. */
static void drain(tdm_sched_t *s, int64_t actual_ns) {
    s->drain_ns = 0.995 * s->drain_ns + (double)actual_ns;
    s->drain_pages = 0.995 * s->drain_pages + (double)(s->kv.released_cnt - s->drain_seen_pages);
    s->drain_seen_pages = s->kv.released_cnt;
    s->drain_slots *= 0.995;
}

/* judge_gaps counts the decodes whose token came later than promised.
   All that were in the plan before share one gap, from the end of that
   iteration; who was left out has one of its own. */
static void judge_gaps(tdm_sched_t *s, tdm_flight_t *f, int64_t gap_ns, int64_t end_ns) {
    uint32_t late_of[TDM_SLO_CLASS_MAX] = {0};
    for (uint32_t i = 0; i < f->late_cnt; i++) {
        const tdm_flight_late_t *late = &f->late[i];
        late_of[late->slo_class]++;
        int64_t most_ns = s->live.class_of[late->slo_class].gap_ns;
        f->record.over_cnt += end_ns - late->since_ns > most_ns ? 1u : 0u;
    }
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++) {
        const tdm_sched_class_t *c = &s->live.class_of[k];
        if (gap_ns > (c->burst_ns > 0 ? c->burst_ns : c->gap_ns))
            f->record.over_cnt += f->decode_of[k] - late_of[k];
    }
    s->stats.gap_cnt += f->record.decode_cnt;
    s->stats.gap_over_cnt += f->record.over_cnt;
}

/* follow_clock tells the cap how fast the device runs, by what the kernels
   themselves count.  A clock that lies explains a factor of two at most, and
   never moves a prediction: it only says whether a slow machine is news. */
static void follow_clock(tdm_sched_t *s, const tdm_result_t *r) {
    const tdm_profile_table_t *t = s->live.profile.table;
    if (!t || !(t->clock_khz > 0.0) || r->sm_clock_khz == 0) return;
    double ratio = (double)r->sm_clock_khz / t->clock_khz;
    ratio = TDM_MIN(TDM_MAX(ratio, CLOCK_LOW), CLOCK_HIGH);
    tdm_sched_clock_ratio(s, s->clock_ratio + (ratio - s->clock_ratio) * CLOCK_PART);
}

/* explained_ns gives what the profile says of an iteration, as near to what it
   took as the device's clock explains: a clock makes no news, it takes some
   away. */
static double explained_ns(const tdm_sched_t *s, double profile_ns, int64_t actual_ns) {
    double paced_ns = profile_ns / s->clock_ratio;
    double low = TDM_MIN(profile_ns, paced_ns), high = TDM_MAX(profile_ns, paced_ns);
    return TDM_MIN(TDM_MAX((double)actual_ns, low), high);
}

/* learn_cap shows the iteration to the cap. */
static void learn_cap(tdm_sched_t *s, tdm_flight_t *f, const tdm_result_t *r, const span_t *span) {
    int64_t actual_ns = f->record.actual_ns;
    int is_joined = s->end_ns != 0 && span->start_ns >= s->end_ns;
    int64_t host_ns = is_joined ? span->start_ns - s->end_ns : -1;
    f->record.idle_ns = is_joined && f->record.planned_ns < s->end_ns ? (int64_t)r->idle_ns : -1;
    s->end_ns = span->end_ns;
    follow_clock(s, r);
    judge_gaps(s, f, actual_ns + TDM_MAX(host_ns, 0), span->end_ns);
    tdm_cap_sample_t x = {.predicted_ns = (double)f->record.predicted_ns,
                          .actual_ns = (double)actual_ns,
                          .host_ns = (double)host_ns,
                          .epsilon = 1.0,
                          .decode_cnt = f->record.decode_cnt,
                          .over_cnt = f->record.over_cnt,
                          .prefill_cnt = f->record.prefill_cnt};
    if (s->live.profile.is_measured)
        x.profile_ns = explained_ns(s, (double)f->profile_ns, actual_ns);
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++)
        if (f->decode_of[k] > 0 && s->live.class_of[k].epsilon < x.epsilon)
            x.epsilon = s->live.class_of[k].epsilon;
    uint32_t was_drifting = s->cap.is_drifting;
    tdm_cap_learn(&s->cap, &x, s->live.grid_tok);
    s->stats.drift_cnt += !was_drifting && s->cap.is_drifting;
}

static void account(tdm_sched_t *s, tdm_flight_t *f, const tdm_result_t *r, const span_t *span,
                    uint32_t route, uint32_t reason) {
    int64_t actual_ns = span->end_ns - span->start_ns;
    for (uint32_t k = 0; k < TDM_KIND_CNT; k++)
        if (r->vcta_planned[k] != r->vcta_executed[k]) {
            tdm_sched_count(s, TDM_FAULT_vcta_mismatch);
            break;
        }
    if (reason != TDM_REASON_NONE) f->record.fallback = (uint16_t)reason;
    if (route == TDM_ROUTE_FUSED) f->record.fallback = TDM_REASON_NONE;
    if (f->record.fallback != TDM_REASON_NONE) tdm_sched_count(s, (tdm_reason_t)f->record.fallback);
    f->record.ran = (uint16_t)route;
    f->record.actual_ns = actual_ns;
    f->record.end_ns = span->end_ns;
    s->stats.iteration_cnt++;
    s->stats.route_cnt[route]++;
    tdm_load_t load = {.prefill_cnt = f->record.prefill_cnt,
                       .decode_cnt = f->record.decode_cnt,
                       .pair_cnt = f->record.pair_cnt,
                       .kv_cnt = f->record.kv_cnt};
    tdm_predict_learn(&s->predict, &s->live.profile, (tdm_route_t)route, &load, f->profile_ns,
                      actual_ns);
    learn_cap(s, f, r, span);
    pace(s, &f->record);
    drain(s, actual_ns);
}

static int is_reason_of(uint32_t reason, tdm_reason_group_t group) {
    return reason > TDM_REASON_NONE && reason < TDM_REASON_CNT &&
           tdm_reason_group_of((tdm_reason_t)reason) == group;
}

/* flight_move copies a flight without the entries it does not have. */
static void flight_move(tdm_flight_t *to, const tdm_flight_t *from) {
    memcpy(to, from, offsetof(tdm_flight_t, entry));
    memcpy(to->entry, from->entry, from->entry_cnt * sizeof *to->entry);
    to->late_cnt = from->late_cnt;
    memcpy(to->late, from->late, from->late_cnt * sizeof *to->late);
}

void tdm_sched_result(tdm_sched_t *s, int64_t now_ns, const tdm_result_t *result) {
    tdm_sched_clock(s, now_ns);
    if (!s->is_up || result->epoch != s->epoch) {
        tdm_sched_count(s, TDM_FAULT_executor_stale);
        return;
    }
    tdm_flight_t *f = &s->flight[0];
    uint32_t route = result->route, reason = result->reason, fault = result->fault;
    if (is_reason_of(fault, TDM_GROUP_FAULT)) {
        doom(s, (tdm_reason_t)fault);
        return;
    }
    if (s->flight_cnt == 0 || result->iteration != f->record.iteration || fault != 0 ||
        route >= TDM_ROUTE_CNT || (reason != 0 && !is_reason_of(reason, TDM_GROUP_FALLBACK)) ||
        !copy_samples(s, f, result)) {
        doom(s, TDM_FAULT_executor_protocol);
        return;
    }
    span_t span = span_of(s, result);
    account(s, f, result, &span, route, reason);
    f->record.discard_cnt = take_samples(s, f, span.end_ns);
    tdm_kv_done(&s->kv, f->record.iteration);
    tdm_sched_record_push(s, &f->record);
    s->flight_cnt--;
    if (s->flight_cnt > 0) flight_move(&s->flight[0], &s->flight[1]);
    s->flight_ns = s->now_ns;
}

/* --- executor lives ---------------------------------------------------- */

void tdm_sched_executor_fault(tdm_sched_t *s, int64_t now_ns, tdm_reason_t reason) {
    tdm_sched_clock(s, now_ns);
    TDM_CHECK(is_reason_of(reason, TDM_GROUP_FAULT));
    if (s->is_up) doom(s, reason);
}

void tdm_sched_executor_up(tdm_sched_t *s, int64_t now_ns, uint32_t epoch) {
    tdm_sched_clock(s, now_ns);
    if (s->is_up) tdm_sched_executor_down(s, now_ns);
    TDM_CHECK(!s->was_up || epoch != s->epoch);
    s->epoch = epoch;
    s->is_up = 1;
    s->was_up = 1;
    s->is_doomed = 0;
    s->verdict = TDM_REASON_NONE;
    s->end_ns = 0;
}

/* blame counts a death for every sequence of a lost plan, once per life. */
static void blame(tdm_sched_t *s, const tdm_flight_t *f) {
    for (uint32_t i = 0; i < f->entry_cnt; i++) {
        if (f->entry[i].seq == TDM_SEQ_NONE) continue;
        tdm_seq_t *q = &s->seq[f->entry[i].seq];
        if (q->state == TDM_SEQ_FREE || !TDM_ENTRY_IS_OF(&f->entry[i], q)) continue;
        if (q->death_cnt > 0 && q->death_epoch == s->epoch) continue;
        if (q->death_cnt > 0 && s->now_ns - q->death_ns > s->live.death_window_ns) q->death_cnt = 0;
        if (q->death_cnt == 0) q->death_ns = s->now_ns;
        q->death_cnt++;
        q->death_epoch = s->epoch;
    }
}

/* take_back sends a sequence back with all tokens it has; one that streams
   goes before all that never ran. */
static void take_back(tdm_sched_t *s, uint32_t idx) {
    tdm_seq_t *q = &s->seq[idx];
    tdm_sched_give_back(s, idx);
    if (q->out_cnt == 0 || q->is_rebuilt) return;
    q->is_rebuilt = 1;
    s->rebuilt_cnt++;
}

void tdm_sched_executor_down(tdm_sched_t *s, int64_t now_ns) {
    tdm_sched_clock(s, now_ns);
    if (!s->is_up) return;
    for (uint32_t i = 0; i < s->flight_cnt; i++) {
        blame(s, &s->flight[i]);
        s->flight[i].record.is_lost = 1;
        tdm_sched_record_push(s, &s->flight[i].record);
    }
    s->stats.lost_cnt += s->flight_cnt;
    s->stats.restart_cnt++;
    s->flight_cnt = 0;
    s->heir = TDM_SEQ_NONE;
    s->is_up = 0;
    s->down_ns = s->now_ns;
    tdm_kv_epoch_end(&s->kv, s->iteration);
    for (uint32_t i = 0; i < s->sizes.seq_max; i++) {
        uint32_t idx = s->slot_seq[i];
        if (idx == TDM_SEQ_NONE) continue;
        if (s->seq[idx].death_cnt >= s->live.death_max)
            tdm_sched_end(s, idx, TDM_SEQ_FAILED, TDM_FINISH_ERROR, TDM_REFUSE_executor_failed);
        else
            take_back(s, idx);
    }
}

/* watchdog_ns gives the time at which the running iteration is overdue. */
static int64_t watchdog_ns(const tdm_sched_t *s) {
    double span = s->live.watchdog_factor * (double)s->flight[0].record.predicted_ns;
    int64_t most = INT64_MAX / 4;
    int64_t span_ns = span < (double)most ? (int64_t)span : most;
    return s->flight_ns + TDM_MAX(span_ns, s->live.watchdog_min_ns);
}

tdm_reason_t tdm_sched_watch(tdm_sched_t *s, int64_t now_ns) {
    tdm_sched_clock(s, now_ns);
    if (s->is_up && !s->is_doomed && s->flight_cnt > 0 && s->now_ns > watchdog_ns(s))
        doom(s, TDM_FAULT_executor_hang);
    if (!s->is_up && s->was_up && s->now_ns - s->down_ns > s->live.down_max_ns)
        for (uint32_t i = 0; i < s->seq_cnt; i++)
            if (s->seq[i].state != TDM_SEQ_FREE)
                tdm_sched_end(s, i, TDM_SEQ_FAILED, TDM_FINISH_ERROR, TDM_REFUSE_executor_failed);
    tdm_reason_t verdict = (tdm_reason_t)s->verdict;
    s->verdict = TDM_REASON_NONE;
    return verdict;
}

int64_t tdm_sched_watch_ns(const tdm_sched_t *s) {
    if (s->verdict != TDM_REASON_NONE) return s->now_ns;
    if (s->is_up && !s->is_doomed && s->flight_cnt > 0) return watchdog_ns(s) + 1;
    if (!s->is_up && s->was_up && s->waiting_cnt + s->running_cnt > 0)
        return s->down_ns + s->live.down_max_ns + 1;
    return TDM_TIME_NEVER;
}
