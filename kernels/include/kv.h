/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_INCLUDE_KV_H
#define TDM_KERNELS_INCLUDE_KV_H

/* The element type of the KV pool, chosen once per backend. */

#include <stdint.h>

typedef enum tdm_kv_dtype {
    TDM_KV_F32,  /* 4 bytes: exact, for tests and small pools */
    TDM_KV_BF16, /* 2 bytes, rounded to nearest even at append */
    TDM_KV_E4M3, /* 1 byte: fp8 codes (appliance/abi/fp8.h), one float32 scale per layer and
                    KV head (kernels/engine/kvscale.h) */
    TDM_KV_DTYPE_CNT
} tdm_kv_dtype_t;

/* tdm_kv_dtype_sz: bytes of one element. */
static inline uint64_t tdm_kv_dtype_sz(uint32_t dtype) {
    return dtype == TDM_KV_F32 ? 4u : dtype == TDM_KV_BF16 ? 2u : 1u;
}

#endif /* TDM_KERNELS_INCLUDE_KV_H */
