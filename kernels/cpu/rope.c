/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/rope.h"

#include <math.h>

#define TWO_PI 6.283185307179586476925

static double llama3(const tdm_shape_t *s, double freq) {
    double low = (double)s->rope_low_freq_factor;
    double high = (double)s->rope_high_freq_factor;
    double turns = (double)s->rope_original_context * freq / TWO_PI;
    if (turns > high) return freq;
    if (turns < low) return freq / (double)s->rope_factor;
    double blend = (turns - low) / (high - low);
    return (1.0 - blend) * freq / (double)s->rope_factor + blend * freq;
}

double tdm_rope_frequency(const tdm_shape_t *shape, uint32_t i) {
    double freq = pow((double)shape->rope_theta, -2.0 * (double)i / (double)shape->head_dim);
    switch (shape->rope_kind) {
    case TDM_ROPE_LINEAR: return freq / (double)shape->rope_factor;
    case TDM_ROPE_LLAMA3: return llama3(shape, freq);
    default: return freq;
    }
}

void tdm_rope_table(const tdm_shape_t *shape, uint32_t position_cnt, float *table) {
    uint32_t half = shape->head_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        double freq = tdm_rope_frequency(shape, i);
        for (uint32_t p = 0; p < position_cnt; p++) {
            float *row = table + (uint64_t)p * shape->head_dim;
            row[i] = (float)cos((double)p * freq);
            row[half + i] = (float)sin((double)p * freq);
        }
    }
}

void tdm_rope_turn(float *x, uint32_t head_cnt, uint32_t head_dim, const float *row) {
    uint32_t half = head_dim / 2;
    const float *cosine = row, *sine = row + half;
    for (uint32_t h = 0; h < head_cnt; h++, x += head_dim) {
        for (uint32_t i = 0; i < half; i++) {
            float a = x[i], b = x[i + half];
            x[i] = a * cosine[i] - b * sine[i];
            x[i + half] = b * cosine[i] + a * sine[i];
        }
    }
}
