// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_TESTS_PERF_ATTENTION_PRODUCT_H
#define TDM_TESTS_PERF_ATTENTION_PRODUCT_H

// bf16 matrix products by cuBLAS, found at run time.

#include <cuda_runtime.h>
#include <stdint.h>

typedef int product_gemm_t(void *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                           const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                           const void *beta, void *c, int c_type, int ldc, int compute, int algo);

typedef struct product {
    void *handle;
    product_gemm_t *gemm;
} product_t;

// product_open: 0 where the machine has no cuBLAS.
int product_open(product_t *p, cudaStream_t stream);

// product_run queues y [rows][out] = x [rows][in] * w [out][in]^T, sums in
// float32; 0, or the cublasStatus_t.
int product_run(const product_t *p, uint32_t rows, uint32_t out, uint32_t in, const void *x,
                const void *w, void *y);

#endif // TDM_TESTS_PERF_ATTENTION_PRODUCT_H
