/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CPU_ROPE_H
#define TDM_KERNELS_CPU_ROPE_H

/* Rotary positions.  Pair i of a head is elements (i, i + head_dim / 2);
   at position p it turns by p * frequency(i), where

     PLAIN    frequency(i) = theta ^ (-2i / head_dim)
     LINEAR   that, divided by factor
     LLAMA3   that where the wavelength 2 pi / frequency is under
              original_context / high_freq_factor; divided by factor where
              it is over original_context / low_freq_factor; in between a
              blend linear in original_context / wavelength
              (Llama 3.1 reference code)

   Angles are double; sines and cosines are rounded to float32 once, in a
   table over all positions. */

#include "appliance/abi/model.h"

/* tdm_rope_frequency gives the radians per position of pair i. */
double tdm_rope_frequency(const tdm_shape_t *shape, uint32_t i);

/* tdm_rope_table fills table[position_cnt][head_dim]: the cosines of all
   pairs, then the sines. */
void tdm_rope_table(const tdm_shape_t *shape, uint32_t position_cnt, float *table);

/* tdm_rope_turn rotates head_cnt heads in place; row is the position's
   row of the table. */
void tdm_rope_turn(float *x, uint32_t head_cnt, uint32_t head_dim, const float *row);

#endif /* TDM_KERNELS_CPU_ROPE_H */
