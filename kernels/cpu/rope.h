/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CPU_ROPE_H
#define TDM_KERNELS_CPU_ROPE_H

/* Rotary positions on the CPU (kernels/engine/rope.h has the law).
   Angles are double; sines and cosines are rounded to float32 once, in a
   table over all positions. */

#include "kernels/engine/rope.h"

/* tdm_rope_table fills table[position_cnt][head_dim]: the cosines of all
   pairs, then the sines. */
void tdm_rope_table(const tdm_shape_t *shape, uint32_t position_cnt, float *table);

/* tdm_rope_turn rotates head_cnt heads in place; row is the position's
   row of the table. */
void tdm_rope_turn(float *x, uint32_t head_cnt, uint32_t head_dim, const float *row);

#endif /* TDM_KERNELS_CPU_ROPE_H */
