/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/boot/wires.h"

#include "appliance/abi/event.h"
#include "appliance/abi/exchange.h"
#include "appliance/abi/request.h"
#include "appliance/base/check.h"
#include "appliance/base/size.h"

#include <stdio.h>
#include <string.h>

/* The same walk sizes the arena (arena NULL) and fills it. */
typedef struct layout {
    tdm_arena_t *arena;
    uint64_t sz;
} layout_t;

static void *take(layout_t *l, uint64_t sz) {
    sz = tdm_size_align(sz, TDM_CACHE_LINE);
    l->sz += sz;
    if (!l->arena) return NULL;
    void *p = tdm_arena_take(l->arena, sz, TDM_CACHE_LINE);
    TDM_CHECK(p);
    return p;
}

static uint32_t pow2(uint32_t n) {
    uint32_t p = 1;
    while (p < n) p *= 2;
    return p;
}

static void ring(layout_t *l, tdm_ring_t *r, uint32_t lane_cnt, uint32_t depth, uint32_t elem_sz,
                 tdm_doorbell_t *bell) {
    tdm_lane_t *lane[TDM_RING_LANE_MAX];
    for (uint32_t i = 0; i < lane_cnt; i++) {
        void *mem = take(l, tdm_lane_footprint(depth, elem_sz));
        if (mem) TDM_CHECK(tdm_lane_init(mem, depth, elem_sz, &lane[i]) == TDM_OK);
    }
    if (l->arena) tdm_ring_init(r, lane, lane_cnt, bell);
}

static tdm_status_t bell(layout_t *l, tdm_doorbell_t *b, tdm_error_t *err) {
    uint32_t *word = take(l, sizeof *word);
    return word ? tdm_doorbell_open(b, word, err) : TDM_OK;
}

static void block(layout_t *l, tdm_wires_t *w, const char *writer) {
    void *mem = take(l, tdm_block_footprint());
    if (mem) w->block[w->block_cnt++] = tdm_block_init(mem, writer);
}

static tdm_status_t lay(layout_t *l, tdm_wires_t *w, const tdm_wires_config_t *c,
                        tdm_error_t *err) {
    tdm_status_t st = TDM_OK;
    uint32_t exchanges = pow2(c->exchange_max), requests = pow2(c->request_max);
    for (uint32_t d = 0; st == TDM_OK && d < c->door_cnt; d++) {
        st = bell(l, &w->door_bell[d], err);
        ring(l, &w->egress[d], c->api_cnt, 4 * exchanges, sizeof(tdm_egress_t), &w->door_bell[d]);
    }
    for (uint32_t k = 0; st == TDM_OK && k < c->api_cnt; k++) {
        st = bell(l, &w->api_bell[k], err);
        ring(l, &w->arrivals[k], c->door_cnt, exchanges, sizeof(tdm_arrival_t), &w->api_bell[k]);
        ring(l, &w->hangups[k], c->door_cnt, exchanges, sizeof(tdm_hangup_t), &w->api_bell[k]);
        ring(l, &w->events[k], 1, 4 * requests, sizeof(tdm_event_t), &w->api_bell[k]);
    }
    ring(l, &w->requests, c->api_cnt, c->request_depth, sizeof(tdm_submit_t), c->sched_bell);
    ring(l, &w->controls, c->api_cnt, 2 * requests, sizeof(tdm_control_t), c->sched_bell);
    static const char *const writer[TDM_BLOCK_API] = {"net", "http1", "mgmt", "sched", "page"};
    for (uint32_t i = 0; i < TDM_BLOCK_API; i++) block(l, w, writer[i]);
    for (uint32_t k = 0; k < c->api_cnt; k++) {
        char name[16];
        (void)snprintf(name, sizeof name, "api%u", k);
        block(l, w, name);
    }
    return st;
}

tdm_status_t tdm_wires_open(tdm_wires_t *w, const tdm_wires_config_t *config, tdm_error_t *err) {
    memset(w, 0, sizeof *w);
    for (uint32_t d = 0; d < TDM_DOOR_MAX; d++) w->door_bell[d].fd = -1;
    for (uint32_t k = 0; k < TDM_API_TILE_MAX; k++) w->api_bell[k].fd = -1;
    w->door_cnt = config->door_cnt;
    w->api_cnt = config->api_cnt;
    layout_t size = {0};
    tdm_status_t st = lay(&size, w, config, err);
    if (st == TDM_OK) st = tdm_arena_open(&w->arena, config->kind, size.sz, err);
    if (st != TDM_OK) return st;
    layout_t fill = {.arena = &w->arena};
    st = lay(&fill, w, config, err);
    tdm_arena_seal(&w->arena);
    if (st != TDM_OK) tdm_wires_close(w);
    return st;
}

void tdm_wires_close(tdm_wires_t *w) {
    for (uint32_t d = 0; d < w->door_cnt; d++) tdm_doorbell_close(&w->door_bell[d]);
    for (uint32_t k = 0; k < w->api_cnt; k++) tdm_doorbell_close(&w->api_bell[k]);
    tdm_arena_close(&w->arena);
}

/* One label of the ring metrics sums all lanes of all rings of that name;
   the high water is that of the fullest lane. */
typedef struct reading {
    uint64_t entries, capacity, high_water, full;
} reading_t;

static void add_lane(reading_t *r, const tdm_lane_t *lane) {
    r->entries += tdm_lane_cnt(lane);
    r->capacity += tdm_lane_depth(lane);
    r->high_water = TDM_MAX(r->high_water, (uint64_t)tdm_lane_high_water(lane));
    r->full += tdm_lane_full_cnt(lane);
}

static void add(reading_t *r, const tdm_ring_t *ring_) {
    r->entries += tdm_ring_cnt(ring_);
    r->capacity += tdm_ring_capacity(ring_);
    r->high_water = TDM_MAX(r->high_water, (uint64_t)tdm_ring_high_water(ring_));
    r->full += tdm_ring_full_cnt(ring_);
}

static void put(tdm_block_t *b, uint32_t label, const reading_t *r) {
    tdm_gauge_set(b, TDM_METRIC_ring_entries, label, r->entries);
    tdm_gauge_set(b, TDM_METRIC_ring_capacity_entries, label, r->capacity);
    tdm_gauge_set(b, TDM_METRIC_ring_high_watermark_entries, label, r->high_water);
    tdm_count_to(b, TDM_METRIC_ring_enqueue_failures_total, label, r->full);
}

void tdm_wires_publish(const tdm_wires_t *w, const tdm_lane_t *plans, const tdm_lane_t *results) {
    tdm_block_t *b = w->block[TDM_BLOCK_MGMT];
    reading_t exchange = {0}, hangup = {0}, egress = {0}, request = {0}, control = {0};
    reading_t event = {0}, plan = {0}, result = {0};
    for (uint32_t k = 0; k < w->api_cnt; k++) {
        add(&exchange, &w->arrivals[k]);
        add(&hangup, &w->hangups[k]);
        add(&event, &w->events[k]);
    }
    for (uint32_t d = 0; d < w->door_cnt; d++) add(&egress, &w->egress[d]);
    add(&request, &w->requests);
    add(&control, &w->controls);
    add_lane(&plan, plans);
    add_lane(&result, results);
    put(b, TDM_LABEL_RING_exchange, &exchange);
    put(b, TDM_LABEL_RING_hangup, &hangup);
    put(b, TDM_LABEL_RING_egress, &egress);
    put(b, TDM_LABEL_RING_request, &request);
    put(b, TDM_LABEL_RING_control, &control);
    put(b, TDM_LABEL_RING_event, &event);
    put(b, TDM_LABEL_RING_plan, &plan);
    put(b, TDM_LABEL_RING_result, &result);
}
