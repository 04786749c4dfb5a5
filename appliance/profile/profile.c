/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/profile/profile.h"

#include <string.h>

tdm_profile_rates_t tdm_profile_cpu_rates(uint32_t sm_cnt) {
    return (tdm_profile_rates_t){
        .flops = 20e9 * sm_cnt,
        .bytes = 8e9 * sm_cnt,
        .fixed_ns = 200e3,
        .weight_elem = 2,
        .kv_elem = 4,
    };
}

tdm_profile_rates_t tdm_profile_gpu_rates(uint32_t sm_cnt) {
    return (tdm_profile_rates_t){
        .flops = 2.9e12 * sm_cnt,
        .bytes = 16e9 * sm_cnt,
        .fixed_ns = 500e3,
        .weight_elem = 2,
        .kv_elem = 2,
    };
}

/* elements of all weights that every row of input passes through */
static double linear_elems(const tdm_shape_t *s) {
    double attn = (double)s->hidden * s->head_dim * (2.0 * s->nhead_q + 2.0 * s->nhead_kv);
    return s->layer_cnt * (attn + 3.0 * s->hidden * s->ffn);
}

void tdm_profile_guess(const tdm_shape_t *shape, const tdm_profile_rates_t *r, tdm_profile_t *out) {
    double elems = linear_elems(shape);
    double head = (double)shape->vocab * shape->hidden;
    double weights_ns = (elems + head) * r->weight_elem / r->bytes * 1e9;
    double token_ns = 2.0 * (elems + head) / r->flops * 1e9;
    double heads = (double)shape->layer_cnt * shape->head_dim;
    double pair_ns = 4.0 * heads * shape->nhead_q / r->flops * 1e9;
    double kv_ns = 2.0 * heads * shape->nhead_kv * r->kv_elem / r->bytes * 1e9;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < TDM_ROUTE_CNT; i++)
        out->row[i] = (tdm_profile_row_t){r->fixed_ns + weights_ns, token_ns, pair_ns, kv_ns};
    out->row[TDM_ROUTE_IDLE] = (tdm_profile_row_t){.fixed_ns = r->fixed_ns};
}
