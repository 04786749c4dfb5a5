/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/scheduler_tile/rig.h"

#include <stdlib.h>
#include <string.h>

rig_t rig;

static int32_t prompt[20];
static void *owned[16];
static uint32_t owned_cnt;

void *rig_own(size_t sz) {
    void *mem =
        aligned_alloc(TDM_CACHE_LINE, (sz + TDM_CACHE_LINE - 1) & ~(size_t)(TDM_CACHE_LINE - 1));
    assert_non_null(mem);
    assert_true(owned_cnt < TDM_COUNT_OF(owned));
    return owned[owned_cnt++] = mem;
}

static tdm_lane_t *lane(uint32_t depth, uint32_t elem_sz) {
    tdm_lane_t *l = NULL;
    assert_int_equal(tdm_lane_init(rig_own(tdm_lane_footprint(depth, elem_sz)), depth, elem_sz, &l),
                     TDM_OK);
    return l;
}

static void ring(tdm_ring_t *r, uint32_t depth, uint32_t elem_sz) {
    tdm_lane_t *l = lane(depth, elem_sz);
    tdm_ring_init(r, &l, 1, NULL);
}

void rig_create(void) {
    tdm_error_t err = {0};
    assert_int_equal(tdm_sched_tile_create(rig_own(tdm_sched_tile_footprint(&rig.sizes)),
                                           &rig.sizes, &rig.live, &rig.wires, &rig.tile, &err),
                     TDM_OK);
}

int rig_setup(void **state) {
    (void)state;
    memset(&rig, 0, sizeof rig);
    rig.now_ns = TDM_NS_PER_S;
    ring(&rig.requests, 16, sizeof(tdm_submit_t));
    ring(&rig.controls, 32, sizeof(tdm_control_t));
    ring(&rig.events, RIG_EVENTS, sizeof(tdm_event_t));
    rig.wires.requests = &rig.requests;
    rig.wires.controls = &rig.controls;
    rig.wires.events[0] = &rig.events;
    rig.wires.life = &rig.life;
    rig.wires.plans = lane(2, sizeof(uint32_t));
    rig.wires.results = lane(2, sizeof(uint32_t));
    rig.wires.block = rig.block = tdm_block_init(rig_own(tdm_block_footprint()), "sched");
    for (uint32_t i = 0; i < 2; i++) {
        rig.wires.plan[i] = rig.plan[i] = rig_own(sizeof(tdm_plan_t));
        rig.wires.result[i] = rig.result[i] = rig_own(sizeof(tdm_result_t));
    }
    rig.sizes = (tdm_sched_sizes_t){.seq_max = 4,
                                    .waiting_max = 8,
                                    .page_cnt = 64,
                                    .context_max = 512,
                                    .vocab = RIG_VOCAB,
                                    .api_cnt = 1,
                                    .request_max = RIG_REQUESTS,
                                    .depth = 2};
    tdm_sched_live_default(&rig.live);
    fake_open(&rig.x, rig.sizes.page_cnt, rig.sizes.context_max, RIG_VOCAB);
    rig_create();
    return 0;
}

int rig_teardown(void **state) {
    (void)state;
    fake_close(&rig.x);
    while (owned_cnt > 0) free(owned[--owned_cnt]);
    return 0;
}

uint32_t rig_poll(void) {
    return tdm_sched_tile_poll(rig.tile, rig.now_ns);
}

void rig_begin_life(uint32_t epoch) {
    fake_restart(&rig.x, epoch);
    tdm_store_release(&rig.life.epoch, epoch);
    rig_poll();
    assert_int_equal(rig.life.ack, epoch);
}

void rig_submit(uint32_t slot, uint32_t output_max) {
    tdm_request_t *r = &rig.request[slot];
    uint32_t generation = r->handle.generation + 1;
    *r = (tdm_request_t){.handle = {.slot = slot, .generation = generation},
                         .arrival_ns = rig.now_ns,
                         .deadline_ns = TDM_TIME_NEVER,
                         .prompt_cnt = TDM_COUNT_OF(prompt),
                         .output_max = output_max,
                         .prompt = prompt,
                         .sampling = {.seed = slot * 1000u + generation}};
    uint64_t hash = fake_root(r->sampling.seed);
    for (uint32_t i = 0; i < r->prompt_cnt; i++) {
        prompt[i] = (int32_t)i;
        hash = fake_hash(hash, prompt[i]);
    }
    rig.want_hash[slot] = hash;
    rig.got_cnt[slot] = 0;
    rig.is_ended[slot] = 0;
    tdm_submit_t word = {.request = r, .generation = generation};
    assert_int_equal(tdm_ring_push(&rig.requests, 0, &word), 1);
}

void rig_control(uint32_t slot, tdm_control_kind_t kind) {
    tdm_control_t word = {.handle = rig.request[slot].handle, .kind = (uint16_t)kind};
    assert_int_equal(tdm_ring_push(&rig.controls, 0, &word), 1);
}

int rig_read_event(void) {
    tdm_event_t e;
    if (!tdm_ring_pop(&rig.events, &e)) return 0;
    uint32_t slot = e.handle.slot, flags = 0;
    assert_true(slot < RIG_REQUESTS);
    assert_false(rig.is_ended[slot]);
    if (e.kind == TDM_EVENT_TOKEN) {
        assert_int_equal(e.index, rig.got_cnt[slot]);
        int32_t token = fake_token(rig.want_hash[slot], rig.request[slot].sampling.seed, RIG_VOCAB,
                                   e.index, 0, 0, &flags);
        assert_int_equal(e.token, token);
        rig.want_hash[slot] = fake_hash(rig.want_hash[slot], token);
        rig.got_cnt[slot]++;
    }
    rig.is_ended[slot] = e.kind == TDM_EVENT_END;
    rig.last[slot] = e;
    return 1;
}

/* fill gives a result what a device counts beside the tokens. */
static void fill(tdm_result_t *r, uint64_t iteration) {
    r->vcta_planned[0] = r->vcta_executed[0] = 10;
    r->overlap_ns = 11;
    r->tail_ns = 12;
    r->role_switch_cnt = 13;
    r->ring_stall_cnt = 14;
    r->sm_clock_khz = 1755000;
    r->launch_cnt = 5; /* 2 of 4 CTAs: half a wave */
    r->slot_cnt = 4;
    r->tile_row = 48;
    r->tile_key = 64;
    if (iteration == 2)
        for (uint32_t i = 0; i < TDM_STAGE_CNT; i++) r->stage_ns[i] = 100 + i;
    if (iteration == 1) return; /* the first is of a device without graphs */
    r->graph_cnt = 9;
    r->graph_bytes = 1000;
    r->queue_ns = 2500;
    r->upload_bytes = 600;
    r->graph = iteration == 3   ? TDM_GRAPH_MISSED
               : iteration == 4 ? 77 /* nonsense of another process */
                                : TDM_GRAPH_REPLAYED;
}

int rig_execute(void) {
    uint32_t slot = 0;
    if (!tdm_lane_pop(rig.wires.plans, &slot)) return 0;
    if (!fake_take(&rig.x, rig.plan[slot], 1)) fail_msg("%s", rig.x.wrong);
    *rig.result[slot] = *fake_finish(&rig.x, rig.now_ns, rig.now_ns + TDM_NS_PER_MS);
    fill(rig.result[slot], rig.plan[slot]->iteration);
    rig.now_ns += TDM_NS_PER_MS;
    assert_int_equal(tdm_lane_push(rig.wires.results, &slot), 1);
    return 1;
}

void rig_run(uint32_t turns) {
    while (turns-- > 0) {
        rig_poll();
        rig_execute();
        while (rig_read_event()) {
        }
    }
}

uint64_t rig_metric(tdm_metric_t m, uint32_t idx) {
    return *tdm_block_word(rig.block, m, idx);
}
