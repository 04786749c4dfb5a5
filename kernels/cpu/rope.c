/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/rope.h"

#include <math.h>

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
