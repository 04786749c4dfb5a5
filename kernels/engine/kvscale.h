/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_ENGINE_KVSCALE_H
#define TDM_KERNELS_ENGINE_KVSCALE_H

/* The scales of an fp8 KV cache: one float32 for K and one for V of each
   layer and KV head.  A stored code is fp8(x * (1 / scale)), what is read is
   code * scale.

   They are the model's, never the data's, so a page holds the same codes
   whatever shared its batch, and pages stay good across preemption, in the
   prefix cache and in the next executor:

     1. the checkpoint's own, where it has them (tdm_layer_weights_t.k_scale,
        v_scale);
     2. else a bound.  RMSNorm gives rows of length at most sqrt(hidden)
        before its gains g, so an element of V is at most
        |g * w| sqrt(hidden), w being its weight row (Cauchy and Schwarz),
        and one of K, after its pair (a, b) was turned, at most
        sqrt(|g * a|^2 + |g * b|^2) sqrt(hidden).  The scale is the least
        power of two that keeps the head's largest bound within 448.

   Nothing saturates under 2.  What that costs: an element is within its
   bound by about sqrt(hidden), 2^6 of 4,096, which leaves ten binades of
   e4m3's normal numbers below a usual element; a floating format loses
   nothing by such a shift.  Powers of two make x / scale and code * scale
   exact, on any device. */

#include "appliance/abi/model.h"

TDM_BEGIN_DECLS

/* tdm_kv_scale stores the scales of one layer, [nhead_kv] each, of a checked
   shape.  dummy_seed not 0: the weights are drawn as appliance/abi/dummy.h
   says, and only w->shape is read: as bf16, also where they will be fp8.  Boot
   time: reads wk and wv once. */
void tdm_kv_scale(const tdm_weights_t *w, uint64_t dummy_seed, uint32_t layer, float *k_scale,
                  float *v_scale);

TDM_END_DECLS

#endif /* TDM_KERNELS_ENGINE_KVSCALE_H */
