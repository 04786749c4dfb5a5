// SPDX-License-Identifier: Apache-2.0
#include "tests/perf/attention/product.h"

#include <dlfcn.h>

// Of cuBLAS' header.
#define OP_T        1  // CUBLAS_OP_T
#define TYPE_BF16   14 // CUDA_R_16BF
#define COMPUTE_F32 68 // CUBLAS_COMPUTE_32F
#define ALGO_ANY    -1 // CUBLAS_GEMM_DEFAULT

int product_open(product_t *p, cudaStream_t stream) {
    void *lib = nullptr;
    for (const char *name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
        if (!lib) lib = dlopen(name, RTLD_NOW);
    if (!lib) return 0;
    auto create = (int (*)(void **))dlsym(lib, "cublasCreate_v2");
    auto set_stream = (int (*)(void *, cudaStream_t))dlsym(lib, "cublasSetStream_v2");
    p->gemm = (product_gemm_t *)dlsym(lib, "cublasGemmEx");
    return create && set_stream && p->gemm && create(&p->handle) == 0 &&
           set_stream(p->handle, stream) == 0;
}

int product_run(const product_t *p, uint32_t rows, uint32_t out, uint32_t in, const void *x,
                const void *w, void *y) {
    const float one = 1.0f, zero = 0.0f;
    const int m = (int)out, n = (int)rows, k = (int)in; // column-major there: y^T = w x^T
    return p->gemm(p->handle, OP_T, 0, m, n, k, &one, w, TYPE_BF16, k, x, TYPE_BF16, k, &zero, y,
                   TYPE_BF16, m, COMPUTE_F32, ALGO_ANY);
}
