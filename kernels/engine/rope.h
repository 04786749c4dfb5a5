/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_ENGINE_ROPE_H
#define TDM_KERNELS_ENGINE_ROPE_H

/* Rotary positions.  Pair i of a head is elements (i, i + head_dim / 2);
   at position p it turns by p * frequency(i), where

     PLAIN    frequency(i) = theta ^ (-2i / head_dim)
     LINEAR   that, divided by factor
     LLAMA3   that where the wavelength 2 pi / frequency is under
              original_context / high_freq_factor; divided by factor where
              it is over original_context / low_freq_factor; in between a
              blend linear in original_context / wavelength
              (Llama 3.1 reference code) */

#include "appliance/abi/model.h"

TDM_BEGIN_DECLS

/* tdm_rope_frequency gives the radians per position of pair i, in [0,
   head_dim / 2), of a checked shape. */
double tdm_rope_frequency(const tdm_shape_t *shape, uint32_t i);

TDM_END_DECLS

#endif /* TDM_KERNELS_ENGINE_ROPE_H */
