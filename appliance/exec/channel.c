/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/exec/channel.h"

#include "appliance/base/atomic.h"
#include "appliance/base/check.h"
#include "appliance/base/size.h"

#include <string.h>
#include <unistd.h>

#define CHANNEL_MAGIC UINT64_C(0x74646d2d63686e6c)
#define ALIGN         UINT64_C(4096)

static uint64_t take_off(tdm_channel_t *c, uint64_t sz) {
    uint8_t *p = tdm_arena_take(&c->arena, sz, ALIGN);
    TDM_CHECK(p);
    return (uint64_t)(p - c->arena.base);
}

/* view points the local struct at what the head describes; 0 where an
   offset leaves the arena. */
static int view(tdm_channel_t *c) {
    const tdm_channel_head_t *h = c->head;
    uint64_t end = c->arena.sz;
    for (uint32_t i = 0; i < TDM_CHANNEL_DEPTH; i++) {
        if (h->plan_off[i] % ALIGN || h->plan_off[i] > end - sizeof(tdm_plan_t)) return 0;
        if (h->result_off[i] % ALIGN || h->result_off[i] > end - sizeof(tdm_result_t)) return 0;
        c->plan[i] = (tdm_plan_t *)(void *)(c->arena.base + h->plan_off[i]);
        c->result[i] = (tdm_result_t *)(void *)(c->arena.base + h->result_off[i]);
    }
    uint64_t lane_sz = tdm_lane_footprint(TDM_CHANNEL_DEPTH, sizeof(uint32_t));
    return h->plans_off % ALIGN == 0 && h->plans_off <= end - lane_sz &&
           h->results_off % ALIGN == 0 && h->results_off <= end - lane_sz;
}

tdm_status_t tdm_channel_open(tdm_channel_t *c, tdm_arena_kind_t kind, const tdm_exec_spec_t *spec,
                              tdm_error_t *err) {
    memset(c, 0, sizeof *c);
    c->exec_bell.fd = c->sched_bell.fd = -1;
    uint64_t lane_sz = tdm_lane_footprint(TDM_CHANNEL_DEPTH, sizeof(uint32_t));
    uint64_t sz = tdm_size_align(sizeof(tdm_channel_head_t), ALIGN) +
                  TDM_CHANNEL_DEPTH * (tdm_size_align(sizeof(tdm_plan_t), ALIGN) +
                                       tdm_size_align(sizeof(tdm_result_t), ALIGN)) +
                  2 * tdm_size_align(lane_sz, ALIGN);
    tdm_status_t st = tdm_arena_open(&c->arena, kind, sz, err);
    if (st != TDM_OK) return st;
    c->head = tdm_arena_take(&c->arena, sizeof *c->head, ALIGN);
    for (uint32_t i = 0; i < TDM_CHANNEL_DEPTH; i++) {
        c->head->plan_off[i] = take_off(c, sizeof(tdm_plan_t));
        c->head->result_off[i] = take_off(c, sizeof(tdm_result_t));
    }
    c->head->plans_off = take_off(c, lane_sz);
    c->head->results_off = take_off(c, lane_sz);
    c->head->plan_sz = (uint32_t)sizeof(tdm_plan_t);
    c->head->result_sz = (uint32_t)sizeof(tdm_result_t);
    c->head->spec = *spec;
    c->head->magic = CHANNEL_MAGIC;
    tdm_arena_seal(&c->arena);
    TDM_CHECK(view(c));
    tdm_channel_format(c, 0);
    st = tdm_doorbell_open(&c->exec_bell, &c->head->exec_asleep, err);
    if (st == TDM_OK) st = tdm_doorbell_open(&c->sched_bell, &c->head->sched_asleep, err);
    if (st != TDM_OK) tdm_channel_close(c);
    return st;
}

void tdm_channel_format(tdm_channel_t *c, uint32_t epoch) {
    tdm_channel_head_t *h = c->head;
    TDM_CHECK(tdm_lane_init(c->arena.base + h->plans_off, TDM_CHANNEL_DEPTH, sizeof(uint32_t),
                            &c->plans) == TDM_OK);
    TDM_CHECK(tdm_lane_init(c->arena.base + h->results_off, TDM_CHANNEL_DEPTH, sizeof(uint32_t),
                            &c->results) == TDM_OK);
    h->epoch = epoch;
    h->progress_permille = 0;
    h->error[0] = 0;
    tdm_store_relaxed(&h->exec_asleep, 0u);
    tdm_store_release(&h->state, (uint32_t)TDM_EXEC_LOADING); /* before the process exists */
}

tdm_status_t tdm_channel_attach(tdm_channel_t *c, int arena_fd, int exec_bell_fd, int sched_bell_fd,
                                tdm_error_t *err) {
    memset(c, 0, sizeof *c);
    tdm_doorbell_attach(&c->exec_bell, NULL, exec_bell_fd);
    tdm_doorbell_attach(&c->sched_bell, NULL, sched_bell_fd);
    tdm_status_t st = tdm_arena_attach(&c->arena, arena_fd, err);
    if (st != TDM_OK) return st;
    (void)close(arena_fd);
    c->head = (tdm_channel_head_t *)(void *)c->arena.base;
    if (c->arena.sz < sizeof *c->head || c->head->magic != CHANNEL_MAGIC ||
        c->head->plan_sz != sizeof(tdm_plan_t) || c->head->result_sz != sizeof(tdm_result_t) ||
        !view(c) ||
        tdm_lane_attach(c->arena.base + c->head->plans_off, sizeof(uint32_t), &c->plans) ||
        tdm_lane_attach(c->arena.base + c->head->results_off, sizeof(uint32_t), &c->results)) {
        tdm_channel_close(c);
        return tdm_error_set(err, TDM_ERR_CORRUPT, "the channel is not of this build");
    }
    c->exec_bell.asleep = &c->head->exec_asleep;
    c->sched_bell.asleep = &c->head->sched_asleep;
    return TDM_OK;
}

void tdm_channel_close(tdm_channel_t *c) {
    tdm_doorbell_close(&c->exec_bell);
    tdm_doorbell_close(&c->sched_bell);
    tdm_arena_close(&c->arena);
    c->head = NULL;
}
