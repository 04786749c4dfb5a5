/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_INCLUDE_KV_H
#define TDM_KERNELS_INCLUDE_KV_H

/* The element type of the KV pool, chosen once per backend. */

typedef enum tdm_kv_dtype {
    TDM_KV_F32,                    /* 4 bytes: exact, for tests and small pools */
    TDM_KV_BF16,                   /* 2 bytes, rounded to nearest even at append */
    TDM_KV_DTYPE_CNT,              /* what backends keep their pools in, so far */
    TDM_KV_E4M3 = TDM_KV_DTYPE_CNT /* fp8 codes, for the GPU's plain kernels and the reference */
} tdm_kv_dtype_t;

#endif /* TDM_KERNELS_INCLUDE_KV_H */
