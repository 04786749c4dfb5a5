/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/norm.h"

#include "kernels/cpu/linear.h"
#include "kernels/sample/exp.h"

#include <math.h>

#define SUM_LANES 8

static double mean_square(const float *x, uint32_t cnt) {
    double lane[SUM_LANES] = {0};
    uint32_t i = 0;
    for (; i + SUM_LANES <= cnt; i += SUM_LANES)
        for (uint32_t l = 0; l < SUM_LANES; l++) lane[l] += (double)x[i + l] * (double)x[i + l];
    for (; i < cnt; i++) lane[i % SUM_LANES] += (double)x[i] * (double)x[i];
    for (int l = 1; l < SUM_LANES; l++) lane[0] += lane[l];
    return lane[0] / (double)cnt;
}

void tdm_cpu_norm(const float *x, const float *weight, uint32_t cnt, float eps, float *packed) {
    float scale = (float)(1.0 / sqrt(mean_square(x, cnt) + (double)eps));
    uint32_t whole = cnt / TDM_LINEAR_LANES * TDM_LINEAR_LANES;
    for (uint32_t k = 0; k < whole; k += TDM_LINEAR_LANES) {
        float row[TDM_LINEAR_LANES];
        for (uint32_t i = 0; i < TDM_LINEAR_LANES; i++) row[i] = x[k + i] * scale * weight[k + i];
        tdm_linear_pack(row, TDM_LINEAR_LANES, packed + k);
    }
    if (whole == cnt) return;
    float row[TDM_LINEAR_LANES];
    for (uint32_t i = 0; whole + i < cnt; i++) row[i] = x[whole + i] * scale * weight[whole + i];
    tdm_linear_pack(row, cnt - whole, packed + whole);
}

void tdm_cpu_swiglu(const float *gate, const float *up, uint32_t first, uint32_t cnt,
                    float *packed) {
    for (uint32_t i = 0; i < cnt; i++) {
        float silu = gate[i] / (1.0f + tdm_exp_f32(-gate[i]));
        packed[tdm_linear_place(first + i)] = silu * up[i];
    }
}

void tdm_cpu_widen(const tdm_bf16_t *src, uint32_t cnt, float *dst) {
    for (uint32_t i = 0; i < cnt; i++) dst[i] = tdm_bf16_to_f32(src[i]);
}

void tdm_cpu_narrow(const float *src, uint32_t cnt, tdm_bf16_t *dst) {
    for (uint32_t i = 0; i < cnt; i++) dst[i] = tdm_bf16_from_f32(src[i]);
}
