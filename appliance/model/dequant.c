/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/model/dequant.h"

#include "appliance/base/check.h"

#include <string.h>

/* The whole list of the format, so that a refusal can name the type; the
   gaps are numbers that ggml has retired. */
static const char *const dtype_name[] = {
    [0] = "F32",     [1] = "F16",      [2] = "Q4_0",   [3] = "Q4_1",    [6] = "Q5_0",
    [7] = "Q5_1",    [8] = "Q8_0",     [9] = "Q8_1",   [10] = "Q2_K",   [11] = "Q3_K",
    [12] = "Q4_K",   [13] = "Q5_K",    [14] = "Q6_K",  [15] = "Q8_K",   [16] = "IQ2_XXS",
    [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S",
    [22] = "IQ2_S",  [23] = "IQ4_XS",  [24] = "I8",    [25] = "I16",    [26] = "I32",
    [27] = "I64",    [28] = "F64",     [29] = "IQ1_M", [30] = "BF16",   [34] = "TQ1_0",
    [35] = "TQ2_0",  [39] = "MXFP4",
};

const char *tdm_dtype_name(uint32_t dtype) {
    return dtype < TDM_COUNT_OF(dtype_name) ? dtype_name[dtype] : NULL;
}

int tdm_dtype_block(uint32_t dtype, uint32_t *elem_cnt, uint32_t *block_sz) {
    static const struct {
        uint32_t dtype, elem_cnt, block_sz;
    } row[] = {
        {TDM_DTYPE_F32, 1, 4},      {TDM_DTYPE_F16, 1, 2},    {TDM_DTYPE_BF16, 1, 2},
        {TDM_DTYPE_Q4_0, 32, 18},   {TDM_DTYPE_Q4_1, 32, 20}, {TDM_DTYPE_Q8_0, 32, 34},
        {TDM_DTYPE_Q6_K, 256, 210},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
        if (row[i].dtype != dtype) continue;
        *elem_cnt = row[i].elem_cnt;
        *block_sz = row[i].block_sz;
        return 1;
    }
    return 0;
}

float tdm_f32_from_f16(uint16_t v) {
    uint32_t sign = (uint32_t)(v & 0x8000u) << 16;
    uint32_t exponent = (v >> 10) & 0x1fu;
    uint32_t mantissa = v & 0x3ffu;
    uint32_t bits;
    if (exponent == 0x1f) {
        bits = sign | 0x7f800000u | (mantissa << 13);
    } else if (exponent != 0) {
        bits = sign | ((exponent + 112) << 23) | (mantissa << 13);
    } else { /* zero and subnormals: mantissa * 2^-24 is exact */
        float f = (float)mantissa * 0x1p-24f;
        memcpy(&bits, &f, sizeof bits);
        bits |= sign;
    }
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

static float f16_at(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return tdm_f32_from_f16(v);
}

static void decode_q4_0(const uint8_t *b, float *dst) {
    float d = f16_at(b);
    for (int i = 0; i < 16; i++) {
        dst[i] = d * (float)((b[2 + i] & 15) - 8);
        dst[i + 16] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

static void decode_q4_1(const uint8_t *b, float *dst) {
    float d = f16_at(b);
    float m = f16_at(b + 2);
    for (int i = 0; i < 16; i++) {
        dst[i] = d * (float)(b[4 + i] & 15) + m;
        dst[i + 16] = d * (float)(b[4 + i] >> 4) + m;
    }
}

static void decode_q8_0(const uint8_t *b, float *dst) {
    float d = f16_at(b);
    for (int i = 0; i < 32; i++) dst[i] = d * (float)(int8_t)b[2 + i];
}

/* A Q6_K block is two halves of 128 weights.  In a half, byte l of 64 low
   bytes holds the low nibbles of weights l and l + 64, and byte l of 32
   high bytes the top bit pairs of weights l, l + 32, l + 64 and l + 96;
   each scale covers 16 weights. */
static void decode_q6_k(const uint8_t *b, float *dst) {
    const uint8_t *low = b, *high = b + 128, *scale = b + 192;
    float d = f16_at(b + 208);
    for (int half = 0; half < 2; half++) {
        for (int w = 0; w < 128; w++) {
            int nibble = w < 64 ? low[w] & 15 : low[w - 64] >> 4;
            int top = (high[w % 32] >> (2 * (w / 32))) & 3;
            float ds = d * (float)(int8_t)scale[w / 16];
            dst[w] = ds * (float)((nibble | (top << 4)) - 32);
        }
        low += 64;
        high += 32;
        scale += 8;
        dst += 128;
    }
}

void tdm_dequant_f32(uint32_t dtype, const uint8_t *src, uint64_t cnt, float *dst) {
    uint32_t elem_cnt, block_sz;
    TDM_CHECK(tdm_dtype_block(dtype, &elem_cnt, &block_sz) && cnt % elem_cnt == 0);
    if (dtype == TDM_DTYPE_F32) {
        memcpy(dst, src, cnt * sizeof *dst);
        return;
    }
    for (uint64_t i = 0; i < cnt; i += elem_cnt, src += block_sz, dst += elem_cnt) {
        uint16_t half;
        switch (dtype) {
        case TDM_DTYPE_F16: *dst = f16_at(src); break;
        case TDM_DTYPE_BF16:
            memcpy(&half, src, sizeof half);
            *dst = tdm_f32_from_bf16(half);
            break;
        case TDM_DTYPE_Q4_0: decode_q4_0(src, dst); break;
        case TDM_DTYPE_Q4_1: decode_q4_1(src, dst); break;
        case TDM_DTYPE_Q8_0: decode_q8_0(src, dst); break;
        case TDM_DTYPE_Q6_K: decode_q6_k(src, dst); break;
        default: break;
        }
    }
}
