/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/linear.h"

#include "appliance/abi/fp8.h"
#include "kernels/include/backend.h"

#include <math.h>
#include <string.h>

void tdm_linear_pack(const float *x, uint32_t in, float *xp) {
    uint64_t whole = in / 64 * 64;
    for (uint64_t k = 0; k < whole; k += 64) {
        for (uint64_t j = 0; j < 16; j++) {
            xp[k + j] = x[k + 2 * j];
            xp[k + 16 + j] = x[k + 2 * j + 1];
            xp[k + 32 + j] = x[k + 32 + 2 * j];
            xp[k + 48 + j] = x[k + 32 + 2 * j + 1];
        }
    }
    if (whole == in) return;
    memset(xp + whole, 0, 64 * sizeof *xp);
    for (uint64_t k = whole; k < in; k++) xp[tdm_linear_place(k)] = x[k];
}

/* weight gives element k of output o, without its scale. */
static float weight(const tdm_linear_tile_t *t, uint32_t o, uint64_t k) {
    uint64_t at = (uint64_t)o * t->in + k;
    return t->w ? tdm_bf16_to_f32(t->w[at]) : tdm_f32_from_fp8(t->fp8.code[at]);
}

/* The rule of linear.h in its plainest form. */
static float dot(const float *xp, const tdm_linear_tile_t *t, uint32_t o) {
    float sum[64] = {0};
    uint64_t padded = tdm_linear_padded(t->in);
    for (uint64_t k = 0; k < padded; k++) {
        float wk = k < t->in ? weight(t, o, k) : 0.0f;
        uint64_t place = tdm_linear_place(k);
        sum[place % 64] = fmaf(xp[place], wk, sum[place % 64]);
    }
    float s[16];
    for (int j = 0; j < 16; j++) s[j] = (sum[j] + sum[16 + j]) + (sum[32 + j] + sum[48 + j]);
    for (int half = 8; half > 0; half /= 2)
        for (int j = 0; j < half; j++) s[j] += s[j + half];
    return t->w ? s[0] : s[0] * t->fp8.scale[o];
}

void tdm_linear_scalar(const tdm_linear_tile_t *t) {
    for (uint32_t o = 0; o < t->out_cnt; o++)
        for (uint32_t r = 0; r < t->row_cnt; r++)
            t->y[r * t->y_stride + o] = dot(t->xp + r * t->xp_stride, t, o);
}

tdm_linear_fn_t tdm_linear_for(uint32_t isa) {
#if defined(__x86_64__)
    if (isa == TDM_CPU_ISA_AVX512) return tdm_linear_avx512;
    if (isa == TDM_CPU_ISA_AVX2) return tdm_linear_avx2;
#endif
    return tdm_linear_scalar;
}
