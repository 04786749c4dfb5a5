/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/clock.h"
#include "appliance/base/probe.h"
#include "appliance/base/size.h"
#include "scheduler/tile/tile_private.h"

#include <string.h>

/* PUBLISH_NS: gauges lag by at most this; each costs some hundred stores.
   CHECK_NS, CHECK_CNT: every so often so many pages and sequences are looked
   at, some microseconds; 16,000 pages take a second.  A full walk takes 75 us
   with 10,000 of them, 1.6 ms with 100,000: what an end of a life may.
   RETRY_NS: an api tile takes that long to empty a full lane. */
#define PUBLISH_NS (50 * TDM_NS_PER_MS)
#define CHECK_NS   TDM_NS_PER_MS
#define CHECK_CNT  16u
#define RETRY_NS   (100 * TDM_NS_PER_US)

static uint64_t head_sz(void) {
    return tdm_size_align(sizeof(tdm_sched_tile_t), TDM_CACHE_LINE);
}

size_t tdm_sched_tile_footprint(const tdm_sched_sizes_t *sizes) {
    size_t core_sz = tdm_sched_footprint(sizes);
    return core_sz ? (size_t)head_sz() + core_sz : 0;
}

static int wires_are_whole(const tdm_sched_sizes_t *sizes, const tdm_sched_tile_wires_t *w) {
    int is_whole = w->requests && w->controls && w->life && w->plans && w->results;
    is_whole = is_whole && sizes->depth <= TDM_SCHED_TILE_SLOT_MAX;
    for (uint32_t i = 0; is_whole && i < sizes->api_cnt; i++) is_whole = w->events[i] != NULL;
    for (uint32_t i = 0; is_whole && i < sizes->depth; i++) is_whole = w->plan[i] && w->result[i];
    return is_whole;
}

tdm_status_t tdm_sched_tile_create(void *mem, const tdm_sched_sizes_t *sizes,
                                   const tdm_sched_live_t *live,
                                   const tdm_sched_tile_wires_t *wires, tdm_sched_tile_t **out,
                                   tdm_error_t *err) {
    if (!mem || (uintptr_t)mem % TDM_CACHE_LINE)
        return tdm_error_set(err, TDM_ERR_INVAL, "scheduler tile: memory is not aligned");
    if (!wires_are_whole(sizes, wires))
        return tdm_error_set(err, TDM_ERR_INVAL, "scheduler tile: a wire is missing");
    tdm_sched_tile_t *t = mem;
    memset(t, 0, sizeof *t);
    t->sizes = *sizes;
    t->w = *wires;
    tdm_status_t status = tdm_sched_init((uint8_t *)mem + head_sz(), sizes, live, &t->core, err);
    if (status == TDM_OK) *out = t;
    return status;
}

tdm_sched_t *tdm_sched_tile_core(tdm_sched_tile_t *t) {
    return t->core;
}

/* --- one turn, in order ------------------------------------------------- */

/* take_life ends and begins executor lives as the supervisor says. */
static uint32_t take_life(tdm_sched_tile_t *t) {
    uint32_t epoch = tdm_load_acquire(&t->w.life->epoch); /* L1 */
    if (epoch == t->epoch) return 0;
    if (t->epoch != 0) tdm_sched_executor_down(t->core, t->now_ns);
    t->slot_busy = 0;
    if (epoch != 0) tdm_sched_executor_up(t->core, t->now_ns, epoch);
    TDM_CHECK(tdm_sched_check(t->core) == NULL);
    t->epoch = epoch;
    tdm_store_release(&t->w.life->ack, epoch); /* L2 */
    return 1;
}

/* take_orders applies what the management thread left. */
static uint32_t take_orders(tdm_sched_tile_t *t) {
    tdm_sched_drain_set(t->core, (int)tdm_load_relaxed(&t->drain));
    uint32_t seq = tdm_load_acquire(&t->live_seq); /* L4 */
    if (seq == tdm_load_relaxed(&t->live_ack)) return 0;
    tdm_sched_live_set(t->core, &t->live);
    tdm_store_release(&t->live_ack, seq); /* L5 */
    return 1;
}

/* take_requests: a control word is popped first and applied last; its
   lane's acquire makes the submit that went before it visible, and the
   ring is then drained by as much as it can hold. */
static uint32_t take_requests(tdm_sched_tile_t *t) {
    uint32_t control_cnt = 0, request_cnt = 0;
    while (control_cnt < TDM_SCHED_TILE_CONTROLS &&
           tdm_ring_pop(t->w.controls, &t->control[control_cnt]))
        control_cnt++;
    tdm_submit_t submit;
    uint32_t most = tdm_ring_capacity(t->w.requests);
    while (request_cnt < most && tdm_ring_pop(t->w.requests, &submit)) {
        tdm_sched_submit(t->core, t->now_ns, &submit);
        request_cnt++;
    }
    for (uint32_t i = 0; i < control_cnt; i++)
        tdm_sched_control(t->core, t->now_ns, &t->control[i]);
    return control_cnt + request_cnt;
}

static uint32_t take_results(tdm_sched_tile_t *t) {
    uint32_t cnt = 0, slot = 0;
    while (t->epoch != 0 && cnt < t->sizes.depth && tdm_lane_pop(t->w.results, &slot)) {
        cnt++;
        if (slot >= t->sizes.depth || !(t->slot_busy >> slot & 1u)) {
            tdm_sched_executor_fault(t->core, t->now_ns, TDM_FAULT_executor_protocol);
            continue;
        }
        tdm_sched_result(t->core, t->now_ns, t->w.result[slot]);
        tdm_store_relaxed(&t->progress_ns, t->now_ns);
        tdm_sched_tile_count_result(t, t->w.result[slot]);
        tdm_sched_tile_note(t, slot);
        t->slot_busy &= ~(1u << slot);
    }
    return cnt;
}

/* take_board hears whether the device is held back. */
static void take_board(tdm_sched_tile_t *t) {
    uint64_t bits = 0;
    if (!t->w.board) return;
    (void)tdm_board_get(t->w.board, TDM_BOARD_THROTTLE, t->now_ns, &bits);
    tdm_sched_throttled(t->core,
                        bits & (TDM_THROTTLE_POWER | TDM_THROTTLE_THERMAL | TDM_THROTTLE_HARDWARE));
}

static uint32_t free_slot(const tdm_sched_tile_t *t) {
    uint32_t slot = 0;
    while (slot < t->sizes.depth && (t->slot_busy >> slot & 1u)) slot++;
    return slot;
}

/* make_plans fills free slots.  The decision's time is the one thing
   measured with a clock of its own. */
static uint32_t make_plans(tdm_sched_tile_t *t) {
    uint32_t cnt = 0;
    for (uint32_t slot; t->epoch != 0 && (slot = free_slot(t)) < t->sizes.depth; cnt++) {
        int64_t begin_ns = tdm_clock_now_ns();
        if (!tdm_sched_plan(t->core, t->now_ns, t->w.plan[slot])) break;
        if (t->w.block)
            tdm_observe_ns(t->w.block, TDM_METRIC_sched_decision_seconds, 0,
                           tdm_clock_now_ns() - begin_ns);
        t->slot_busy |= 1u << slot;
        if (!tdm_lane_push(t->w.plans, &slot)) {
            tdm_sched_executor_fault(t->core, t->now_ns, TDM_FAULT_executor_protocol);
            break;
        }
        const tdm_plan_t *p = t->w.plan[slot];
        TDM_PROBE3(iter_begin, p->iteration, p->decode_cnt, p->token_cnt);
        if (t->w.exec_bell) tdm_doorbell_ring(t->w.exec_bell);
    }
    return cnt;
}

static uint32_t watch(tdm_sched_tile_t *t) {
    tdm_reason_t verdict = tdm_sched_watch(t->core, t->now_ns);
    if (verdict == TDM_REASON_NONE) return 0;
    tdm_store_relaxed(&t->w.life->kill_reason, (uint32_t)verdict);
    tdm_store_release(&t->w.life->kill, t->epoch); /* L3 */
    return 1;
}

static uint32_t give_events(tdm_sched_tile_t *t) {
    uint32_t cnt = 0;
    t->event_left = 0;
    for (uint32_t api = 0; api < t->sizes.api_cnt; api++) {
        const tdm_event_t *e;
        while ((e = tdm_sched_event_peek(t->core, api)) != NULL) {
            if (!tdm_ring_push(t->w.events[api], 0, e)) {
                t->event_left++;
                break;
            }
            if (e->kind <= TDM_EVENT_REFUSED) TDM_PROBE3(req_admit, api, e->handle.slot, e->reason);
            tdm_sched_event_drop(t->core, api);
            cnt++;
        }
    }
    return cnt;
}

static void give_records(tdm_sched_tile_t *t) {
    tdm_sched_record_t record;
    while (tdm_sched_record_pop(t->core, &record)) {
        tdm_sched_tile_count_record(t, &record);
        tdm_sched_tile_fly(t, &record);
    }
}

uint32_t tdm_sched_tile_poll(tdm_sched_tile_t *t, int64_t now_ns) {
    t->now_ns = now_ns;
    uint32_t work = take_life(t) + take_orders(t) + take_requests(t) + take_results(t);
    take_board(t);
    work += make_plans(t) + watch(t) + give_events(t);
    give_records(t);
    const tdm_sched_stats_t *stats = tdm_sched_stats(t->core);
    tdm_store_relaxed(&t->pending, stats->waiting_cnt + stats->running_cnt + t->event_left);
    if (now_ns >= t->publish_ns) {
        tdm_sched_tile_publish(t);
        t->publish_ns = now_ns + PUBLISH_NS;
    }
    if (now_ns >= t->check_ns) {
        TDM_CHECK(tdm_sched_check_some(t->core, &t->looked, CHECK_CNT) == NULL);
        t->check_ns = now_ns + CHECK_NS;
    }
    return work;
}

int64_t tdm_sched_tile_next_ns(const tdm_sched_tile_t *t) {
    int64_t next_ns = tdm_sched_watch_ns(t->core);
    if (t->event_left > 0) next_ns = TDM_MIN(next_ns, t->now_ns + RETRY_NS);
    return next_ns;
}

/* --- from another thread ------------------------------------------------- */

void tdm_sched_tile_drain_set(tdm_sched_tile_t *t, int is_draining) {
    tdm_store_relaxed(&t->drain, is_draining ? 1u : 0u);
}

tdm_status_t tdm_sched_tile_live_set(tdm_sched_tile_t *t, const tdm_sched_live_t *live,
                                     tdm_error_t *err) {
    tdm_status_t status = tdm_sched_live_check(live, err);
    if (status != TDM_OK) return status;
    uint32_t seq = tdm_load_relaxed(&t->live_seq);
    if (tdm_load_acquire(&t->live_ack) != seq) /* L5 */
        return tdm_error_set(err, TDM_ERR_FULL, "scheduler: the last change is not taken yet");
    t->live = *live;
    tdm_store_release(&t->live_seq, seq + 1u); /* L4 */
    return TDM_OK;
}

uint32_t tdm_sched_tile_pending(const tdm_sched_tile_t *t) {
    return tdm_load_relaxed(&t->pending);
}

int64_t tdm_sched_tile_progress_ns(const tdm_sched_tile_t *t) {
    return tdm_load_relaxed(&t->progress_ns);
}
