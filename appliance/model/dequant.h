/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_MODEL_DEQUANT_H
#define TDM_MODEL_DEQUANT_H

/* Blocks of a weight file become float32, then bfloat16.

   A row is a run of blocks; each block holds `elem_cnt` consecutive
   weights (ggml's ggml-common.h gives the layouts):

     F32 F16 BF16   1 weight                      4, 2, 2 bytes
     Q4_0          32 weights  w = d*(q-8)        f16 d, 16 bytes of nibbles
     Q4_1          32 weights  w = d*q + m        f16 d, f16 m, 16 bytes
     Q8_0          32 weights  w = d*q            f16 d, 32 int8
     Q6_K         256 weights  w = d*s*(q-32)     128 low nibbles, 64 high
                                                  pairs, 16 int8 s, f16 d
   In Q4 the low nibbles are weights 0..15 and the high ones 16..31. */

#include "appliance/abi/model.h"
#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

/* Element types, as numbered in a GGUF file.  Only these are read. */
typedef enum tdm_dtype {
    TDM_DTYPE_F32 = 0,
    TDM_DTYPE_F16 = 1,
    TDM_DTYPE_Q4_0 = 2,
    TDM_DTYPE_Q4_1 = 3,
    TDM_DTYPE_Q8_0 = 8,
    TDM_DTYPE_Q6_K = 14,
    TDM_DTYPE_BF16 = 30,
} tdm_dtype_t;

#define TDM_DTYPE_ELEM_MAX 256 /* weights of the largest block */

/* tdm_dtype_name: "Q4_1", also for the types of the format that are not
   read; NULL for a number the format does not have. */
const char *tdm_dtype_name(uint32_t dtype);

/* tdm_dtype_block gives weights and bytes of one block; 0 where the type
   is not read. */
int tdm_dtype_block(uint32_t dtype, uint32_t *elem_cnt, uint32_t *block_sz);

/* tdm_dequant_f32 decodes `cnt` weights, a multiple of the block's, from
   src (any alignment) into dst.  dtype is one that is read. */
void tdm_dequant_f32(uint32_t dtype, const uint8_t *src, uint64_t cnt, float *dst);

/* tdm_bf16_from_f32 rounds to nearest, ties to even; NaN stays NaN. */
static inline tdm_bf16_t tdm_bf16_from_f32(float v) {
    uint32_t bits;
    __builtin_memcpy(&bits, &v, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (tdm_bf16_t)((bits >> 16) | 0x40u);
    bits += 0x7fffu + ((bits >> 16) & 1u);
    return (tdm_bf16_t)(bits >> 16);
}

/* tdm_f32_from_bf16 is exact. */
static inline float tdm_f32_from_bf16(tdm_bf16_t v) {
    uint32_t bits = (uint32_t)v << 16;
    float f;
    __builtin_memcpy(&f, &bits, sizeof f);
    return f;
}

/* tdm_f32_from_f16 is exact (IEEE 754 binary16). */
float tdm_f32_from_f16(uint16_t v);

TDM_END_DECLS

#endif /* TDM_MODEL_DEQUANT_H */
