/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/cost.h"

#include "appliance/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tdm_cost_llama8b(tdm_cost_t *cost) {
    *cost = (tdm_cost_t){.fixed_ns = 0.5e6,
                         .weights_ns = 5.3e6,
                         .token_ns = 39e3,
                         .pair_ns = 1.75,
                         .kv_ns = 46.8,
                         .bias_low = -0.04,
                         .bias_high = 0.08,
                         .bias_seed = 1,
                         .noise = 0.02,
                         .spike_share = 0.002,
                         .spike_low_ns = 5e6,
                         .spike_high_ns = 25e6,
                         .slow_window_ns = 60 * TDM_NS_PER_S,
                         .host_ns = 50 * TDM_NS_PER_US};
}

static double linear_ns(const tdm_cost_t *cost, double tok) {
    double steps = ceil(tok / 64.0) * 64.0;
    return tok > 0.0 ? fmax(cost->weights_ns, cost->token_ns * steps) : 0.0;
}

static double attention_ns(const tdm_cost_t *cost, uint32_t variant, double pairs, double kv) {
    static const double overlap[TDM_PROFILE_VARIANT_CNT] = {0.25, 0.5, 1.0};
    double fill = cost->pair_ns * pairs, decode = cost->kv_ns * kv;
    return fmax(fill, decode) + overlap[variant] * fmin(fill, decode);
}

/* table_attention_ns is the profile's, where stretch is set at another clock. */
static double table_attention_ns(const tdm_cost_t *cost, uint32_t variant, const tdm_load_t *load) {
    double both = tdm_table_attention_ns(cost->table, variant, load);
    if (cost->stretch <= 0.0 || load->prefill_cnt == 0) return both;
    tdm_load_t fill = {.prefill_cnt = load->prefill_cnt, .pair_cnt = load->pair_cnt};
    tdm_load_t step = {
        .decode_cnt = load->decode_cnt, .kv_cnt = load->kv_cnt, .kv_max = load->kv_max};
    double a = tdm_table_attention_ns(cost->table, variant, &fill);
    double b = load->decode_cnt > 0 ? tdm_table_attention_ns(cost->table, variant, &step) : 0.0;
    return a + b > 0.0 ? both * (1.0 + (cost->stretch - 1.0) * a / (a + b)) : both;
}

/* table_ns is the profile's, likewise. */
static double table_ns(const tdm_cost_t *cost, uint32_t variant, const tdm_load_t *load) {
    static const tdm_load_t one = {.decode_cnt = 1, .kv_cnt = 1, .kv_max = 1};
    double all = tdm_table_ns(cost->table, variant, load);
    if (cost->stretch <= 0.0) return all;
    double rest = all - tdm_table_attention_ns(cost->table, variant, load);
    double least = tdm_table_ns(cost->table, variant, &one) -
                   tdm_table_attention_ns(cost->table, variant, &one);
    return least + (rest - least) * cost->stretch + table_attention_ns(cost, variant, load);
}

double tdm_cost_attention_ns(const tdm_cost_t *cost, uint32_t variant, const tdm_load_t *load) {
    if (cost->table) return table_attention_ns(cost, variant, load);
    return attention_ns(cost, variant, (double)load->pair_cnt, (double)load->kv_cnt);
}

double tdm_cost_quiet_ns(const tdm_cost_t *cost, uint32_t variant, const tdm_load_t *load) {
    if (cost->table) return table_ns(cost, variant, load);
    double tok = (double)load->prefill_cnt + (double)load->decode_cnt;
    return cost->fixed_ns + linear_ns(cost, tok) +
           attention_ns(cost, variant, (double)load->pair_cnt, (double)load->kv_cnt);
}

double tdm_cost_bias(const tdm_cost_t *cost, const tdm_load_t *load) {
    double shift = 2.0 * tdm_rng_unit(tdm_rng_at(cost->bias_seed, 1000));
    uint64_t a = (uint64_t)((shift + log2(1.0 + (double)load->pair_cnt)) / 2.3);
    uint64_t b = (uint64_t)((shift + log2(1.0 + (double)load->kv_cnt)) / 2.7);
    double u = tdm_rng_unit(tdm_rng_at(cost->bias_seed, a * 16u + b));
    return 1.0 + cost->bias_low + u * (cost->bias_high - cost->bias_low);
}

double tdm_cost_slow(const tdm_cost_t *cost, int64_t now_ns) {
    return now_ns / cost->slow_window_ns % 2 ? 1.0 + cost->slow : 1.0;
}

void tdm_cost_rows(const tdm_cost_t *cost, tdm_profile_t *rows) {
    memset(rows, 0, sizeof *rows);
    for (uint32_t r = 0; r < TDM_ROUTE_CNT; r++)
        rows->row[r] = (tdm_profile_row_t){.fixed_ns = cost->fixed_ns + cost->weights_ns,
                                           .token_ns = cost->token_ns,
                                           .pair_ns = cost->pair_ns,
                                           .kv_ns = cost->kv_ns};
}

static void put(tdm_profile_set_t *set, uint32_t kind, uint32_t c, uint32_t h, uint32_t b,
                uint32_t kv, double ns) {
    set->point[set->point_cnt++] = (tdm_profile_point_t){.kind = kind,
                                                         .chunk = c,
                                                         .depth = h,
                                                         .batch = b,
                                                         .kv = kv,
                                                         .cnt = 1,
                                                         .ns = (float)ns,
                                                         .spread = 1.0f};
}

/* put_attention covers one variant; a batch without KV, or KV without a
   batch, is no shape. */
static void put_attention(const tdm_cost_t *cost, const tdm_profile_table_t *t, uint32_t v,
                          tdm_profile_set_t *set) {
    for (uint32_t k = 0; k < TDM_PROFILE_KV_CNT; k++)
        for (uint32_t b = 0; b < TDM_PROFILE_BATCH_CNT; b++) {
            if ((k == 0) != (b == 0)) continue;
            for (uint32_t h = 0; h < TDM_PROFILE_DEPTH_CNT; h++)
                for (uint32_t c = 0; c < TDM_PROFILE_CHUNK_CNT; c++) {
                    double chunk = (double)t->chunk_at[c], kv = (double)t->kv_at[k];
                    double pairs = chunk * (double)t->depth_at[h] + chunk * (chunk + 1.0) / 2.0;
                    put(set, TDM_PROFILE_FUSED + v, (uint32_t)chunk, (uint32_t)t->depth_at[h],
                        (uint32_t)t->batch_at[b], (uint32_t)kv, attention_ns(cost, v, pairs, kv));
                }
        }
}

tdm_status_t tdm_cost_profile(const tdm_cost_t *cost, tdm_profile_set_t *set, tdm_error_t *err) {
    tdm_profile_table_t *axes = malloc(sizeof *axes);
    *set = (tdm_profile_set_t){
        .split_max = 1, .stair_from = 1, .is_model = 1, .fixed_ns = cost->fixed_ns};
    set->point = malloc(TDM_PROFILE_POINT_MAX * sizeof *set->point);
    if (!axes || !set->point) {
        free(axes);
        tdm_profile_set_free(set);
        return tdm_error_set(err, TDM_ERR_NOMEM, "cost: no memory");
    }
    (void)snprintf(set->device, sizeof set->device, "model of two A100");
    (void)snprintf(set->model, sizeof set->model, "8B");
    tdm_profile_axes(axes);
    for (uint32_t i = 0; i < TDM_PROFILE_LIN_CNT; i++)
        put(set, TDM_PROFILE_LIN, (uint32_t)axes->lin_at[i], 0, 0, 0,
            linear_ns(cost, (double)axes->lin_at[i]));
    for (uint32_t v = 0; v < TDM_PROFILE_VARIANT_CNT; v++) put_attention(cost, axes, v, set);
    free(axes);
    return TDM_OK;
}
