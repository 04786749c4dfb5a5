/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the tile loses nothing between lanes and scheduler: every request
   answered in one poll, no cancel before its submit, no event lost to a
   full lane, no lane touched between two executor lives.
   Method: real lanes, the fake executor of tests/sim behind the plan
   lane, time in the test's hand. */

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "scheduler/tile/sched_tile.h"
#include "tests/sim/fake_executor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB    1000u
#define REQUESTS 16u
#define EVENTS   4u /* a small event lane */

static tdm_sched_tile_t *tile;
static tdm_sched_sizes_t sizes;
static tdm_sched_live_t live;
static tdm_sched_tile_wires_t wires;
static tdm_ring_t requests, controls, events;
static tdm_life_t life;
static tdm_block_t *block;
static tdm_plan_t *plan[2];
static tdm_result_t *result[2];
static fake_executor_t x;
static void *owned[16];
static uint32_t owned_cnt;
static int64_t now_ns;

static tdm_request_t request[REQUESTS];
static int32_t prompt[64];
static uint64_t want_hash[REQUESTS];
static uint32_t got_cnt[REQUESTS];
static int is_over[REQUESTS]; /* 1 + kind of the last event */
static tdm_event_t last[REQUESTS];

static void *own(size_t sz) {
    void *mem =
        aligned_alloc(TDM_CACHE_LINE, (sz + TDM_CACHE_LINE - 1) & ~(size_t)(TDM_CACHE_LINE - 1));
    assert_non_null(mem);
    return owned[owned_cnt++] = mem;
}

static tdm_lane_t *lane(uint32_t depth, uint32_t elem_sz) {
    tdm_lane_t *l = NULL;
    assert_int_equal(tdm_lane_init(own(tdm_lane_footprint(depth, elem_sz)), depth, elem_sz, &l),
                     TDM_OK);
    return l;
}

static void ring(tdm_ring_t *r, uint32_t depth, uint32_t elem_sz) {
    tdm_lane_t *l = lane(depth, elem_sz);
    tdm_ring_init(r, &l, 1, NULL);
}

static int setup(void **state) {
    (void)state;
    owned_cnt = 0;
    now_ns = TDM_NS_PER_S;
    memset(&life, 0, sizeof life);
    memset(&wires, 0, sizeof wires);
    memset(got_cnt, 0, sizeof got_cnt);
    memset(is_over, 0, sizeof is_over);
    ring(&requests, 16, sizeof(tdm_submit_t));
    ring(&controls, 32, sizeof(tdm_control_t));
    ring(&events, EVENTS, sizeof(tdm_event_t));
    wires.requests = &requests;
    wires.controls = &controls;
    wires.events[0] = &events;
    wires.life = &life;
    wires.plans = lane(2, sizeof(uint32_t));
    wires.results = lane(2, sizeof(uint32_t));
    wires.block = block = tdm_block_init(own(tdm_block_footprint()), "sched");
    for (uint32_t i = 0; i < 2; i++) {
        wires.plan[i] = plan[i] = own(sizeof(tdm_plan_t));
        wires.result[i] = result[i] = own(sizeof(tdm_result_t));
    }
    sizes = (tdm_sched_sizes_t){.seq_max = 4,
                                .waiting_max = 8,
                                .page_cnt = 64,
                                .context_max = 512,
                                .vocab = VOCAB,
                                .api_cnt = 1,
                                .request_max = REQUESTS,
                                .depth = 2};
    tdm_sched_live_default(&live);
    fake_open(&x, sizes.page_cnt, sizes.context_max, VOCAB);
    tdm_error_t err = {0};
    assert_int_equal(tdm_sched_tile_create(own(tdm_sched_tile_footprint(&sizes)), &sizes, &live,
                                           &wires, &tile, &err),
                     TDM_OK);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    fake_close(&x);
    while (owned_cnt > 0) free(owned[--owned_cnt]);
    return 0;
}

static uint32_t poll(void) {
    return tdm_sched_tile_poll(tile, now_ns);
}

static void begin_life(uint32_t epoch) {
    fake_restart(&x, epoch);
    tdm_store_release(&life.epoch, epoch);
    poll();
    assert_int_equal(life.ack, epoch);
}

static void submit(uint32_t slot, uint32_t output_max) {
    tdm_request_t *r = &request[slot];
    uint32_t generation = r->handle.generation + 1;
    *r = (tdm_request_t){.handle = {.slot = slot, .generation = generation},
                         .arrival_ns = now_ns,
                         .deadline_ns = TDM_TIME_NEVER,
                         .prompt_cnt = 20,
                         .output_max = output_max,
                         .prompt = prompt,
                         .sampling = {.seed = slot * 1000u + generation}};
    want_hash[slot] = fake_root(r->sampling.seed);
    for (uint32_t i = 0; i < r->prompt_cnt; i++) {
        prompt[i] = (int32_t)i;
        want_hash[slot] = fake_hash(want_hash[slot], prompt[i]);
    }
    got_cnt[slot] = 0;
    is_over[slot] = 0;
    tdm_submit_t word = {.request = r, .generation = generation};
    assert_int_equal(tdm_ring_push(&requests, 0, &word), 1);
}

static void control(uint32_t slot, tdm_control_kind_t kind) {
    tdm_control_t word = {.handle = request[slot].handle, .kind = (uint16_t)kind};
    assert_int_equal(tdm_ring_push(&controls, 0, &word), 1);
}

/* read_event takes one event and checks a token against the oracle. */
static int read_event(void) {
    tdm_event_t e;
    if (!tdm_ring_pop(&events, &e)) return 0;
    uint32_t slot = e.handle.slot, flags = 0;
    assert_true(slot < REQUESTS);
    assert_int_equal(is_over[slot] == 1 + TDM_EVENT_END, 0);
    if (e.kind == TDM_EVENT_TOKEN) {
        assert_int_equal(e.index, got_cnt[slot]);
        int32_t token =
            fake_token(want_hash[slot], request[slot].sampling.seed, VOCAB, e.index, 0, 0, &flags);
        assert_int_equal(e.token, token);
        want_hash[slot] = fake_hash(want_hash[slot], token);
        got_cnt[slot]++;
    }
    is_over[slot] = 1 + e.kind;
    last[slot] = e;
    return 1;
}

/* execute runs one plan from the lane; its result goes back. */
static int execute(void) {
    uint32_t slot = 0;
    if (!tdm_lane_pop(wires.plans, &slot)) return 0;
    if (!fake_take(&x, plan[slot], 1)) fail_msg("%s", x.wrong);
    *result[slot] = *fake_finish(&x, now_ns, now_ns + TDM_NS_PER_MS);
    result[slot]->vcta_planned[0] = result[slot]->vcta_executed[0] = 10;
    result[slot]->overlap_ns = 11;
    result[slot]->tail_ns = 12;
    result[slot]->role_switch_cnt = 13;
    result[slot]->ring_stall_cnt = 14;
    result[slot]->sm_clock_khz = 1755000;
    if (plan[slot]->iteration > 1) { /* the first is of a device without graphs */
        result[slot]->graph_cnt = 9;
        result[slot]->graph_bytes = 1000;
        result[slot]->queue_ns = 2500;
        result[slot]->upload_bytes = 600;
        result[slot]->graph = plan[slot]->iteration == 3 ? TDM_GRAPH_MISSED : TDM_GRAPH_REPLAYED;
        if (plan[slot]->iteration == 4) result[slot]->graph = 77; /* nonsense of another process */
    }
    result[slot]->launch_cnt = 5; /* 2 of 4 CTAs: half a wave */
    result[slot]->slot_cnt = 4;
    if (plan[slot]->iteration == 2)
        for (uint32_t i = 0; i < TDM_STAGE_CNT; i++) result[slot]->stage_ns[i] = 100 + i;
    result[slot]->tile_row = 48;
    result[slot]->tile_key = 64;
    now_ns += TDM_NS_PER_MS;
    assert_int_equal(tdm_lane_push(wires.results, &slot), 1);
    return 1;
}

static void run(uint32_t turns) {
    while (turns-- > 0) {
        poll();
        execute();
        while (read_event()) {
        }
    }
}

static uint64_t metric(tdm_metric_t m, uint32_t idx) {
    return *tdm_block_word(block, m, idx);
}

static void a_request_is_answered_within_one_poll_while_an_iteration_runs(void **state) {
    (void)state;
    begin_life(1);
    submit(0, 50);
    poll();
    assert_int_equal(tdm_lane_cnt(wires.plans), 2);
    read_event();
    for (uint32_t i = 1; i < 5; i++) {
        submit(i, 5);
        poll();
        assert_true(read_event());
        assert_int_equal(last[i].kind, TDM_EVENT_ACCEPTED);
    }
    run(100);
    for (uint32_t i = 0; i < 5; i++) assert_int_equal(last[i].finish, TDM_FINISH_LENGTH);
    assert_int_equal(got_cnt[0], 50);
    assert_int_equal(tdm_sched_tile_pending(tile), 0);
}

static void a_cancel_never_overtakes_its_submit(void **state) {
    (void)state;
    begin_life(1);
    for (uint32_t i = 0; i < 4; i++) {
        submit(i, 5);
        control(i, TDM_CONTROL_CANCEL);
    }
    run(10);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(last[i].kind, TDM_EVENT_END);
        assert_int_equal(last[i].finish, TDM_FINISH_CANCELLED);
    }
    assert_int_equal(metric(TDM_METRIC_net_drops_total, tdm_label_reason(TDM_DROP_stale_handle)),
                     0);
}

static void a_full_event_lane_loses_nothing(void **state) {
    (void)state;
    begin_life(1);
    for (uint32_t i = 0; i < 8; i++) submit(i, 30);
    for (uint32_t turn = 0; turn < 2000; turn++) {
        poll();
        execute();
        if (turn % 3 == 0) read_event();
        assert_true(tdm_lane_cnt(events.lane[0]) <= EVENTS);
    }
    assert_true(tdm_ring_full_cnt(&events) > 0);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(got_cnt[i], 30);
        assert_int_equal(last[i].kind, TDM_EVENT_END);
    }
}

static void a_waiting_event_is_retried_soon(void **state) {
    (void)state;
    begin_life(1);
    for (uint32_t i = 0; i < 8; i++) submit(i, 5);
    poll();
    int64_t next = tdm_sched_tile_next_ns(tile);
    assert_true(next > now_ns && next <= now_ns + TDM_NS_PER_MS);
    run(100);
    assert_true(tdm_sched_tile_next_ns(tile) == TDM_TIME_NEVER);
}

static void between_two_lives_no_lane_is_touched(void **state) {
    (void)state;
    begin_life(1);
    submit(0, 40);
    run(10);
    uint32_t before = got_cnt[0];
    assert_true(before > 0 && before < 40);
    poll();
    tdm_store_release(&life.epoch, 0u);
    poll();
    while (read_event()) {
    }
    assert_int_equal(life.ack, 0);
    uint32_t slot;
    while (tdm_lane_pop(wires.plans, &slot)) {
    }
    slot = 0;
    assert_int_equal(tdm_lane_push(wires.results, &slot), 1);
    memset(plan[0], 0x5a, sizeof *plan[0]);
    memset(plan[1], 0x5a, sizeof *plan[1]);
    for (int i = 0; i < 5; i++) poll();
    assert_int_equal(tdm_lane_cnt(wires.plans), 0);
    assert_int_equal(tdm_lane_cnt(wires.results), 1);
    assert_int_equal(*(uint8_t *)plan[0], 0x5a);
    submit(1, 3);
    poll();
    assert_true(read_event());
    assert_int_equal(last[1].reason, TDM_REFUSE_executor_down);
    assert_int_equal(tdm_lane_pop(wires.results, &slot), 1);
    begin_life(2);
    run(100);
    assert_int_equal(got_cnt[0], 40);
    tdm_sched_tile_publish(tile);
    assert_int_equal(metric(TDM_METRIC_executor_epoch, 0), 2);
}

static void before_the_first_life_requests_are_refused_as_starting(void **state) {
    (void)state;
    submit(0, 3);
    poll();
    assert_true(read_event());
    assert_int_equal(last[0].reason, TDM_REFUSE_starting);
    assert_true(last[0].retry_after_ms > 0);
}

static void a_hang_asks_for_the_kill_of_this_life(void **state) {
    (void)state;
    begin_life(7);
    submit(0, 30);
    run(3);
    poll();
    int64_t due = tdm_sched_tile_next_ns(tile);
    assert_true(due != TDM_TIME_NEVER && due > now_ns);
    now_ns = due;
    poll();
    assert_int_equal(life.kill, 7);
    assert_int_equal(life.kill_reason, TDM_FAULT_executor_hang);
    tdm_sched_tile_publish(tile);
    assert_int_equal(metric(TDM_METRIC_faults_total, tdm_label_reason(TDM_FAULT_executor_hang)), 1);
}

static void a_slot_number_that_is_none_ends_the_executor(void **state) {
    (void)state;
    static const uint32_t bad[] = {2, UINT32_MAX, 1};
    for (uint32_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        begin_life(10 + i);
        assert_int_equal(tdm_lane_push(wires.results, &bad[i]), 1);
        poll();
        assert_int_equal(life.kill, 10 + i);
        assert_int_equal(life.kill_reason, TDM_FAULT_executor_protocol);
        tdm_store_release(&life.epoch, 0u);
        poll();
    }
}

static void drain_refuses_and_pending_reaches_zero(void **state) {
    (void)state;
    begin_life(1);
    submit(0, 10);
    poll();
    read_event();
    assert_int_equal(tdm_sched_tile_pending(tile), 1);
    tdm_sched_tile_drain_set(tile, 1);
    submit(1, 10);
    run(30);
    assert_int_equal(last[1].reason, TDM_REFUSE_draining);
    assert_int_equal(got_cnt[0], 10);
    assert_int_equal(tdm_sched_tile_pending(tile), 0);
}

static void a_live_change_is_taken_once_and_a_second_waits(void **state) {
    (void)state;
    begin_life(1);
    live.token_max = 8;
    live.floor_cnt = 8;
    live.revision = 2;
    assert_int_equal(tdm_sched_tile_live_set(tile, &live, NULL), TDM_OK);
    assert_int_equal(tdm_sched_tile_live_set(tile, &live, NULL), TDM_ERR_FULL);
    submit(0, 2);
    poll();
    assert_int_equal(plan[0]->token_cnt, 8);
    assert_int_equal(tdm_sched_tile_live_set(tile, &live, NULL), TDM_OK);
    live.token_max = 0;
    tdm_error_t err = {0};
    assert_int_equal(tdm_sched_tile_live_set(tile, &live, &err), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "token_max"));
}

static void the_block_counts_what_is_cached(void **state) {
    (void)state;
    tdm_error_t err = {0};
    sizes.has_cache = 1;
    assert_int_equal(tdm_sched_tile_create(own(tdm_sched_tile_footprint(&sizes)), &sizes, &live,
                                           &wires, &tile, &err),
                     TDM_OK);
    begin_life(1);
    submit(0, 120);
    run(140);
    submit(1, 120);
    run(140);
    tdm_sched_tile_publish(tile);
    assert_int_equal(metric(TDM_METRIC_kv_pages, TDM_LABEL_KV_used), 0);
    assert_int_equal(metric(TDM_METRIC_kv_cached_pages, 0), 4);
    assert_int_equal(metric(TDM_METRIC_kv_pages, TDM_LABEL_KV_free), 60);
    tdm_store_release(&life.epoch, 0u);
    poll();
    begin_life(2);
    tdm_sched_tile_publish(tile);
    assert_int_equal(metric(TDM_METRIC_kv_cached_pages, 0), 0);
    assert_int_equal(metric(TDM_METRIC_prefix_lost_pages_total, TDM_LABEL_LOSS_flushed), 4);
}

static void the_block_tells_what_happened(void **state) {
    (void)state;
    begin_life(1);
    submit(0, 30);
    run(10);
    submit(1, 5);
    run(60);
    tdm_sched_tile_publish(tile);
    const tdm_sched_stats_t *s = tdm_sched_stats(tdm_sched_tile_core(tile));
    assert_int_equal(metric(TDM_METRIC_admission_total, 0), 2);
    assert_int_equal(metric(TDM_METRIC_vcta_total, TDM_LABEL_OP_prefill), 10 * s->iteration_cnt);
    assert_int_equal(metric(TDM_METRIC_attention_overlap_seconds_total, 0), 11 * s->iteration_cnt);
    assert_int_equal(metric(TDM_METRIC_attention_tail_seconds_total, 0), 12 * s->iteration_cnt);
    assert_int_equal(metric(TDM_METRIC_attention_role_switches_total, 0), 13 * s->iteration_cnt);
    assert_int_equal(metric(TDM_METRIC_attention_ring_stalls_total, 0), 14 * s->iteration_cnt);
    assert_int_equal(metric(TDM_METRIC_executor_sm_clock_hertz, 0), UINT64_C(1755000000));
    assert_int_equal(metric(TDM_METRIC_executor_sm_clock_max_hertz, 0), UINT64_C(1755000000));
    assert_int_equal(metric(TDM_METRIC_stage_iterations_total, 0), 1);
    for (uint32_t i = 0; i < TDM_STAGE_CNT; i++)
        assert_int_equal(metric(TDM_METRIC_stage_seconds_total, i), 100 + i);
    assert_int_equal(metric(TDM_METRIC_graph_iterations_total, TDM_LABEL_GRAPH_missed), 1);
    assert_int_equal(metric(TDM_METRIC_graph_queue_seconds_total, TDM_LABEL_GRAPH_missed), 2500);
    assert_int_equal(metric(TDM_METRIC_graph_iterations_total, TDM_LABEL_GRAPH_replayed),
                     s->iteration_cnt - 3);
    assert_int_equal(metric(TDM_METRIC_graph_iterations_total, TDM_LABEL_GRAPH_none), 0);
    assert_int_equal(metric(TDM_METRIC_graphs, 0), 9);
    assert_int_equal(metric(TDM_METRIC_device_upload_bytes_total, 0), 600 * (s->iteration_cnt - 1));
    assert_int_equal(metric(TDM_METRIC_graph_bytes, 0), 1000);
    /* Half a wave each: the second bucket has them all. */
    assert_int_equal(metric(TDM_METRIC_vcta_waves, 0), 0);
    const tdm_metric_row_t *waves = &tdm_metric_row[TDM_METRIC_vcta_waves];
    assert_int_equal(block->word[waves->word_off + 1], s->iteration_cnt);
    uint64_t iterations = 0;
    for (uint32_t r = 0; r < TDM_ROUTE_CNT; r++)
        iterations += metric(TDM_METRIC_iterations_total, r);
    assert_int_equal(iterations, s->iteration_cnt);
    assert_int_equal(metric(TDM_METRIC_hybrid_iterations_total, TDM_LABEL_HYBRID_fused), 1);
    assert_int_equal(metric(TDM_METRIC_kv_pages, TDM_LABEL_KV_total), 64);
    assert_int_equal(metric(TDM_METRIC_kv_pages, TDM_LABEL_KV_free), 64);
    assert_int_equal(metric(TDM_METRIC_kv_pages, TDM_LABEL_KV_used), 0);
    assert_int_equal(s->gap_cnt, 29 + 4);
    assert_int_equal(metric(TDM_METRIC_sched_gaps_total, TDM_LABEL_GAP_kept) +
                         metric(TDM_METRIC_sched_gaps_total, TDM_LABEL_GAP_over),
                     s->gap_cnt);
    assert_true(metric(TDM_METRIC_sched_cap_quantile_ratio, 0) >= 1000000);
    assert_true(metric(TDM_METRIC_sched_cap_alpha_ratio, 0) > 0);
    assert_int_equal(metric(TDM_METRIC_sched_outside_profile_total, 0), s->outside_cnt);
    assert_int_equal(metric(TDM_METRIC_sched_drifting, 0), 0);
    assert_int_equal(metric(TDM_METRIC_executor_epoch, 0), 1);
    live.route = TDM_ROUTE_SERIAL;
    assert_int_equal(tdm_sched_tile_live_set(tile, &live, NULL), TDM_OK);
    submit(0, 30);
    run(5);
    submit(1, 5);
    run(60);
    assert_int_equal(metric(TDM_METRIC_hybrid_iterations_total, TDM_LABEL_HYBRID_fallback), 1);
    assert_int_equal(metric(TDM_METRIC_fallbacks_total, tdm_label_reason(TDM_FALLBACK_operator)),
                     1);
}

static uint64_t total(tdm_metric_t m) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < tdm_metric_row[m].series_cnt; i++) n += metric(m, i);
    return n;
}

static void accepted_are_queued_or_ended_at_every_publish(void **state) {
    (void)state;
    begin_life(1);
    uint64_t ended = 0;
    for (uint32_t i = 0; i < 4; i++) {
        submit(i % 2, 3 + i);
        for (uint32_t turn = 0; turn < 3; turn++) {
            run(1);
            tdm_sched_tile_publish(tile);
            ended = total(TDM_METRIC_sequences_ended_total);
            assert_int_equal(metric(TDM_METRIC_admission_total, 0),
                             total(TDM_METRIC_queue_requests) + ended);
        }
    }
    run(60);
    tdm_sched_tile_publish(tile);
    assert_int_equal(metric(TDM_METRIC_sequences_ended_total, TDM_LABEL_FINISH_length), 4);
    assert_true(ended < 4);
    assert_int_equal(total(TDM_METRIC_queue_requests), 0);
    assert_int_equal(block->turn % 2, 0);
}

/* What the flight recorder holds of every iteration, lost ones included. */
static void every_iteration_is_in_the_flight_recorder(void **state) {
    (void)state;
    tdm_flight_sizes_t keep = {.iteration_cnt = 256, .hop_cnt = 1, .api_cnt = 0};
    void *mem = own(tdm_flight_footprint(&keep));
    memset(mem, 0, tdm_flight_footprint(&keep));
    tdm_flight_init(mem, &keep, "1", "m", 0, 0);
    tdm_flight_ring_t writer = tdm_flight_writer(mem, 0);
    wires.flight = &writer;
    static tdm_board_t board;
    board = (tdm_board_t){.look_ns = (uint64_t)now_ns};
    tdm_board_put(&board, TDM_BOARD_POWER_MW, 500000);
    tdm_board_put(&board, TDM_BOARD_SM_CLOCK_MHZ, 345); /* the measured one goes first */
    wires.board = &board;
    tdm_error_t err = {0};
    live.route = TDM_ROUTE_SERIAL;
    assert_int_equal(tdm_sched_tile_create(own(tdm_sched_tile_footprint(&sizes)), &sizes, &live,
                                           &wires, &tile, &err),
                     TDM_OK);
    begin_life(1);
    submit(0, 30);
    run(5);
    submit(1, 5);
    run(3);
    poll(); /* leaves plans at the executor */
    uint64_t ran = tdm_sched_stats(tdm_sched_tile_core(tile))->iteration_cnt;
    life.epoch = 0;
    poll();
    const tdm_sched_stats_t *s = tdm_sched_stats(tdm_sched_tile_core(tile));
    assert_true(s->lost_cnt > 0);
    assert_int_equal(tdm_flight_newest(mem, 0), ran + s->lost_cnt);
    assert_int_equal(metric(TDM_METRIC_flight_records_total, TDM_LABEL_FLIGHT_iteration),
                     ran + s->lost_cnt);
    uint32_t lost_cnt = 0, fallback_cnt = 0;
    for (uint64_t n = 0; n < ran + s->lost_cnt; n++) {
        tdm_flight_iteration_t f;
        assert_true(tdm_flight_get(mem, 0, n, &f));
        assert_int_equal(f.iteration, n + 1);
        assert_int_equal(f.epoch, 1);
        assert_true(f.planned_ns > 0 && f.limit_ns > 0 && f.predicted_ns > 0);
        assert_int_equal(f.limit_class, f.decode_cnt ? 0 : TDM_SLO_CLASS_MAX);
        if (f.flags & TDM_FLIGHT_LOST) {
            lost_cnt++;
            assert_int_equal(f.start_ns, 0);
            continue;
        }
        assert_int_equal(f.end_ns - f.start_ns, TDM_NS_PER_MS);
        assert_int_equal(f.vcta_planned[0], 10);
        assert_int_equal(f.vcta_executed[0], 10);
        assert_int_equal(f.tile_row, 48);
        assert_int_equal(f.tile_key, 64);
        assert_int_equal(f.miss_us, f.iteration == 3 ? 3 : 0);
        assert_int_equal(f.energy_uj, 500000); /* 500 W for a millisecond */
        assert_int_equal(f.clock_mhz, 1755);
        if (f.prefill_cnt == 0 || f.decode_cnt == 0) continue;
        fallback_cnt++;
        assert_int_equal(f.ran, TDM_ROUTE_SERIAL);
        assert_int_equal(f.fallback, TDM_FALLBACK_operator);
    }
    assert_int_equal(lost_cnt, s->lost_cnt);
    assert_int_equal(fallback_cnt, 1);
}

static void a_result_taken_is_progress(void **state) {
    (void)state;
    begin_life(1);
    submit(0, 2);
    poll();
    assert_int_equal(tdm_sched_tile_progress_ns(tile), 0);
    assert_true(execute());
    now_ns += TDM_NS_PER_S;
    poll();
    assert_int_equal(tdm_sched_tile_progress_ns(tile), now_ns);
}

static void a_missing_wire_is_named_at_start(void **state) {
    (void)state;
    tdm_sched_tile_wires_t broken = wires;
    broken.events[0] = NULL;
    tdm_sched_tile_t *out = NULL;
    tdm_error_t err = {0};
    assert_int_equal(tdm_sched_tile_create(own(tdm_sched_tile_footprint(&sizes)), &sizes, &live,
                                           &broken, &out, &err),
                     TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "wire"));
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_request_is_answered_within_one_poll_while_an_iteration_runs),
        CASE(a_cancel_never_overtakes_its_submit),
        CASE(a_full_event_lane_loses_nothing),
        CASE(a_waiting_event_is_retried_soon),
        CASE(between_two_lives_no_lane_is_touched),
        CASE(before_the_first_life_requests_are_refused_as_starting),
        CASE(a_hang_asks_for_the_kill_of_this_life),
        CASE(a_slot_number_that_is_none_ends_the_executor),
        CASE(drain_refuses_and_pending_reaches_zero),
        CASE(a_live_change_is_taken_once_and_a_second_waits),
        CASE(the_block_counts_what_is_cached),
        CASE(the_block_tells_what_happened),
        CASE(accepted_are_queued_or_ended_at_every_publish),
        CASE(every_iteration_is_in_the_flight_recorder),
        CASE(a_result_taken_is_progress),
        CASE(a_missing_wire_is_named_at_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
