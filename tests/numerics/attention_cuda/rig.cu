// SPDX-License-Identifier: Apache-2.0
#include "tests/numerics/attention_cuda/rig.h"

#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/plan/plan.h"

// Relative L2 error of the outputs.  Two roundings to q's type cannot be
// avoided: of the weights on their way into the tensor core and of the
// result.  To bf16 (8 significant bits) a rounding costs 1.66e-3 of a normal
// variable's L2, and for the weights as much; both, independent, 2.34e-3.
// So 2e-3, which one rounding would keep, holds for f16 (8 times finer) and
// no kernel with bf16 weights keeps it; 2.34e-3 and five percent is the
// bound there.  On equal input the error must also stay within 1.25 of what
// these two roundings alone cost, everything else in double.
// A sinking world's weights are all alike and a little off 1: what their
// rounding costs has one sign, and is not averaged away.
#define REL_MAX_BF16 2.46e-3
#define REL_MAX_F16  4e-4
#define FA_RATIO_MAX 1.25
#define FA_ROOM      2e-5  // float32 sums
#define FA_ELEMENTS  4096u // fewer are no sample

const family_t family_list[FAMILY_MAX] = {
    {"wide2", TDM_POD_VARIANT_PORTABLE, TDM_POD_TILE_WIDE2},
    {"wide1", TDM_POD_VARIANT_PORTABLE, TDM_POD_TILE_WIDE1},
    {"slim", TDM_POD_VARIANT_PORTABLE, TDM_POD_TILE_SLIM},
    {"plain", TDM_POD_VARIANT_PLAIN, TDM_POD_TILE_AUTO},
    {"hopper", TDM_POD_VARIANT_HOPPER, TDM_POD_TILE_AUTO},
};

static const char *only; // NULL: all

int rig_only(const char *name) {
    for (uint32_t f = 0; f < FAMILY_MAX; f++) {
        if (!strcmp(family_list[f].name, name)) only = name;
    }
    return only != nullptr;
}

int rig_has(uint32_t family) {
    return !only || !strcmp(family_list[family].name, only);
}

const char *const way_name[TDM_POD_WAY_CNT] = {"serial", "streams_pd", "streams_dp",
                                               "fused",  "hfuse",      "prefill",
                                               "decode", "hfuse_warp", "intra"};

const uint32_t both_way[BOTH_WAY_CNT] = {
    TDM_POD_WAY_SERIAL, TDM_POD_WAY_FUSED,      TDM_POD_WAY_STREAMS_PD, TDM_POD_WAY_STREAMS_DP,
    TDM_POD_WAY_HFUSE,  TDM_POD_WAY_HFUSE_WARP, TDM_POD_WAY_INTRA};

uint64_t fail_cnt;

void fail(uint64_t seed, const char *what, const char *detail) {
    fail_cnt++;
    if (fail_cnt <= 20) printf("FAIL seed %llu: %s %s\n", (unsigned long long)seed, what, detail);
}

typedef struct table_row {
    uint64_t cnt;
    double worst, rel, fa_ratio, lse;
} table_row_t;
static table_row_t table[TDM_POD_DTYPE_CNT][2][4][FAMILY_MAX]; // dtype, is_fp8, dim, family
static uint64_t launch_cnt[FAMILY_MAX][TDM_POD_WAY_CNT];
static uint64_t reason_cnt[TDM_REASON_CNT];

void rig_open(rig_t *r, const world_t *w) {
    static tdm_gpu_t gpu;
    const char *why;
    memset(r, 0, sizeof *r);
    r->config.gpu = gpu;
    r->config.shape = w->shape;
    r->config.tile = TDM_POD_TILE_AUTO;
    r->config.item_max = 65536;
    r->config.part_float_max = 32u << 20;
    r->config.is_dependent = w->seed & 1; // of Hopper's launches every other world
    int e = tdm_pod_create(&r->config, &r->pod, &why);
    if (e) {
        fprintf(stderr, "create: %s\n", why);
        exit(1);
    }
    gpu = r->config.gpu;
}

void rig_close(rig_t *r) {
    tdm_pod_destroy(r->pod);
}

int rig_plan(rig_t *r, const world_t *w, const family_t *f, const knobs_t *k) {
    r->config.variant = f->variant;
    r->config.tile = f->tile;
    r->config.policy = k->policy;
    r->config.decode_split_tok = k->decode_split;
    r->config.prefill_split = k->prefill_split;
    tdm_pod_plan_build(&r->config, w->seq, w->prefill_cnt, w->decode_cnt, TDM_ROUTE_FUSED,
                       tdm_pod_blob(r->pod), &r->plan);
    if (r->plan.route == TDM_ROUTE_IDLE || r->plan.variant != f->variant) return 0;
    WORLD_OK(tdm_pod_upload(r->pod, &r->plan, nullptr));
    WORLD_OK(cudaDeviceSynchronize());
    return 1;
}

uint64_t rig_run(rig_t *r, world_t *w, uint32_t way, uint32_t grid, int *is_taken) {
    char where[128];
    snprintf(where, sizeof where, "(%s, grid %u, variant %u, tile %u, hd %u, group %u, page %u)",
             way_name[way], grid, r->plan.variant, r->plan.tile, w->shape.head_dim,
             w->shape.nhead_q / w->shape.nhead_kv, w->shape.page_tok);
    tdm_pod_layer_t layer = world_layer(w);
    tdm_pod_counters_t c;
    world_spoil(w);
    int e = tdm_pod_launch(r->pod, &r->plan, &layer, way, grid, nullptr);
    *is_taken = e != cudaErrorNotSupported;
    if (!*is_taken) return 0;
    WORLD_OK(e);
    e = tdm_pod_read(r->pod, &r->plan, &c);
    if (e) fprintf(stderr, "seed %llu %s:\n", (unsigned long long)w->seed, where);
    WORLD_OK(e);
    for (int kind = 0; kind < TDM_KIND_CNT; kind++) {
        if (c.vcta_executed[kind] != r->plan.item_cnt[kind]) {
            fail(w->seed, "executed virtual CTAs are not the plan's", where);
        }
    }
    if (c.merge_cnt != r->plan.merge_cnt) fail(w->seed, "merges are not the plan's", where);
    if (!world_guards_ok(w)) fail(w->seed, "a guard band was touched", where);
    return world_hash(w, nullptr);
}

static uint32_t dim_index(uint32_t dim) {
    return dim == 64 ? 0 : dim == 96 ? 1 : dim == 128 ? 2 : 3;
}

static void check_error(const world_t *w, uint32_t family) {
    world_error_t e = world_compare(w);
    int is_fp8 = w->shape.kv_dtype == TDM_POD_E4M3;
    int is_bf16 = w->shape.dtype == TDM_POD_BF16;
    table_row_t *t = &table[w->shape.dtype][is_fp8][dim_index(w->shape.head_dim)][family];
    int is_sample = e.cnt >= FA_ELEMENTS;
    double ratio = is_sample && e.fa_l2 > 1e-4 ? (e.rel_l2 - FA_ROOM) / e.fa_l2 : 0.0;
    t->cnt++;
    t->worst = fmax(t->worst, e.worst);
    t->lse = fmax(t->lse, e.lse);
    t->fa_ratio = fmax(t->fa_ratio, ratio);
    if (is_sample) t->rel = fmax(t->rel, e.rel_l2);
    char what[192];
    snprintf(what, sizeof what,
             "%s hd %u group %u: worst %.3f rel %.2e of two roundings %.2e lse %.2e bad %llu",
             family_list[family].name, w->shape.head_dim, w->shape.nhead_q / w->shape.nhead_kv,
             e.worst, e.rel_l2, e.fa_l2, e.lse, (unsigned long long)e.bad);
    int is_sinking = w->style == WORLD_SINKING;
    int is_over = is_sample &&
                  (e.rel_l2 * (is_sinking ? 0.5 : 1.0) > (is_bf16 ? REL_MAX_BF16 : REL_MAX_F16) ||
                   e.rel_l2 > FA_RATIO_MAX * e.fa_l2 + FA_ROOM);
    if (e.bad || !(e.worst <= 1.0) || !(e.lse <= 1.0) || is_over) {
        fail(w->seed, "against the oracle:", what);
    }
}

static void check_family(rig_t *r, world_t *w, uint32_t family, const knobs_t *k, tdm_rng_t *rng) {
    static const uint32_t grids[] = {1, 16, 66, 114, 131, 264, 300, 0};
    uint64_t first = 0;
    uint32_t run_cnt = 0;
    if (!rig_plan(r, w, &family_list[family], k)) return;
    for (uint32_t i = 0; i < BOTH_WAY_CNT; i++) {
        uint32_t grid = i == 1 ? 0 : grids[tdm_rng_below(rng, TDM_COUNT_OF(grids))];
        int is_taken;
        uint64_t hash = rig_run(r, w, both_way[i], grid, &is_taken);
        if (!is_taken) continue;
        launch_cnt[family][both_way[i]]++;
        if (run_cnt++ == 0) {
            first = hash;
            check_error(w, family);
        } else if (hash != first) {
            fail(w->seed, "bits differ:", way_name[both_way[i]]);
        }
    }
    if (run_cnt == 0) fail(w->seed, "no way takes a plan of", family_list[family].name);
}

// The reason that the planner must give for this world where nobody forces a
// variant, worked out anew; what the planner's costs decide is no reason here.
static uint32_t expected_reason(const world_t *w, uint32_t arch) {
    const tdm_pod_shape_t *s = &w->shape;
    uint32_t longest = 0;
    uint32_t drafted = 0;
    for (uint32_t i = 0; i < w->prefill_cnt + w->decode_cnt; i++) {
        longest = w->seq[i].kv_cnt > longest ? w->seq[i].kv_cnt : longest;
        drafted += i >= w->prefill_cnt && w->seq[i].cnt > 1;
    }
    if (!w->prefill_cnt || !w->decode_cnt) return TDM_REASON_NONE; // no hybrid
    if (s->kv_dtype != s->dtype) return TDM_FALLBACK_kv_dtype;
    if (s->head_dim == 96 || s->head_dim == 256) return TDM_FALLBACK_head_dim;
    if (s->nhead_q / s->nhead_kv > 16) return TDM_FALLBACK_group_size;
    if (drafted && arch != 90) return TDM_FALLBACK_feature; // Hopper's alone
    if (longest > TDM_CONTEXT_MAX) return TDM_FALLBACK_context_limit;
    return TDM_REASON_NONE;
}

static void check_reason(rig_t *r, const world_t *w) {
    r->config.variant = TDM_POD_VARIANT_NONE;
    r->config.tile = TDM_POD_TILE_AUTO;
    r->config.decode_split_tok = r->config.prefill_split = 0;
    tdm_pod_plan_build(&r->config, w->seq, w->prefill_cnt, w->decode_cnt, TDM_ROUTE_FUSED,
                       tdm_pod_blob(r->pod), &r->plan);
    uint32_t want = expected_reason(w, r->config.gpu.arch);
    reason_cnt[r->plan.reason]++;
    if (r->plan.reason != want) {
        fail(w->seed, "a fallback has the reason",
             tdm_reason_name(static_cast<tdm_reason_t>(r->plan.reason)));
    }
    if (want && r->plan.variant != TDM_POD_VARIANT_PLAIN) {
        fail(w->seed, "a fallback runs on no plain kernel", "");
    }
}

void rig_check(world_t *w, const knobs_t *k, tdm_rng_t *rng) {
    rig_t r;
    uint64_t before = fail_cnt;
    uint32_t plan_cnt = 0;
    rig_open(&r, w);
    check_reason(&r, w);
    world_oracle(w);
    for (uint32_t f = 0; f < FAMILY_MAX; f++) {
        if (!rig_has(f)) continue;
        check_family(&r, w, f, k, rng);
        plan_cnt += r.plan.route != TDM_ROUTE_IDLE;
    }
    if (plan_cnt == 0 && !only) fail(w->seed, "no plan", "");
    if (fail_cnt != before) {
        printf("  shape: %u/%u heads, dim %u, dtype %u, kv %u, page %u, %u prefill, %u decode\n",
               w->shape.nhead_q, w->shape.nhead_kv, w->shape.head_dim, w->shape.dtype,
               w->shape.kv_dtype, w->shape.page_tok, w->prefill_cnt, w->decode_cnt);
    }
    rig_close(&r);
}

void rig_table(void) {
    static const char *const type[2][2] = {{"bf16", "bf16/e4m3"}, {"f16", "f16/e4m3"}};
    static const uint32_t dim[] = {64, 96, 128, 256};
    printf("%-10s %4s %-7s %6s %9s %9s %9s %9s\n", "type", "dim", "family", "shapes", "worst",
           "rel L2", "/ two r.", "lse");
    for (uint32_t t = 0; t < TDM_POD_DTYPE_CNT; t++) {
        for (uint32_t k = 0; k < 2; k++) {
            for (uint32_t d = 0; d < 4; d++) {
                for (uint32_t f = 0; f < FAMILY_MAX; f++) {
                    const table_row_t *row = &table[t][k][d][f];
                    if (!row->cnt) continue;
                    printf("%-10s %4u %-7s %6llu %9.3f %9.2e %9.3f %9.2e\n", type[t][k], dim[d],
                           family_list[f].name, (unsigned long long)row->cnt, row->worst, row->rel,
                           row->fa_ratio, row->lse);
                }
            }
        }
    }
    printf("launches:");
    for (uint32_t f = 0; f < FAMILY_MAX; f++) {
        for (uint32_t i = 0; i < TDM_POD_WAY_CNT; i++) {
            if (!launch_cnt[f][i]) continue;
            printf(" %s.%s %llu", family_list[f].name, way_name[i],
                   (unsigned long long)launch_cnt[f][i]);
        }
    }
    printf("\nworlds by reason:");
    for (uint32_t i = 0; i < TDM_REASON_CNT; i++) {
        if (!reason_cnt[i]) continue;
        printf(" %s %llu", i ? tdm_reason_name(static_cast<tdm_reason_t>(i)) : "none",
               (unsigned long long)reason_cnt[i]);
    }
    printf("\n");
}
