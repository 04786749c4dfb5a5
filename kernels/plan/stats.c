/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/plan/stats.h"

#include "kernels/plan/hopper.h"

static uint32_t tile_key(const tdm_pod_plan_t *p) {
    if (p->variant == TDM_POD_VARIANT_HOPPER) return TDM_HOPPER_KEY;
    if (p->variant == TDM_POD_VARIANT_PLAIN) return TDM_POD_PLAIN_KEY;
    return tdm_pod_tile_info(p->tile).key;
}

int tdm_pod_stats_add(const tdm_pod_plan_t *p, const tdm_pod_counters_t *c, uint32_t launch_cnt,
                      tdm_attn_stats_t *s) {
    uint64_t n = launch_cnt;
    int is_exact = c->merge_cnt == n * p->merge_cnt;
    for (uint32_t kind = 0; kind < TDM_KIND_CNT; kind++) {
        s->vcta_planned[kind] += n * p->item_cnt[kind];
        s->vcta_executed[kind] += c->vcta_executed[kind];
        s->vcta_ns[kind] += n * c->sm_ns[kind];
        s->kv_read_bytes += n * p->kind_bytes[kind];
        is_exact &= c->vcta_executed[kind] == n * p->item_cnt[kind];
    }
    if (p->item_cnt[TDM_KIND_PREFILL] > 0) {
        s->tile_row = p->tile_row;
        s->tile_key = tile_key(p);
    }
    /* A merge of k pieces counts k - 1 splits, and folds k partials. */
    s->slot_cnt = p->grid;
    s->split_cnt += n * p->split_cnt;
    s->merge_cnt += c->merge_cnt + n * p->split_cnt;
    s->flops += n * p->flops;
    s->colocated_ns += n * c->colocated_ns;
    s->overlap_ns += n * c->overlap_ns;
    s->wall_ns += n * c->wall_ns;
    /* tail = 1 - mean(end of SM) / wall, over the SMs that ran anything. */
    double tail = (double)c->tail * (double)c->wall_ns * (double)c->sm_used;
    if (tail > 0.0) s->tail_ns += n * (uint64_t)tail;
    s->role_switch_cnt += n * c->switch_cnt;
    s->ring_stall_cnt += c->ring_stall_cnt;
    if (c->clock_ghz > 0.0f) s->sm_clock_khz = (uint32_t)((double)c->clock_ghz * 1e6 + 0.5);
    return is_exact;
}
