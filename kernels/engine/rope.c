/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/engine/rope.h"

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
