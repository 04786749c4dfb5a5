/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CUDA_CUBLASLT_H
#define TDM_KERNELS_CUDA_CUBLASLT_H

/* The calls of cuBLASLt that a matrix product needs, found when the first
   GPU backend is made.  The library is loaded, not linked: it is half a
   gigabyte that a machine without a GPU does not have, and the same
   executor must start there; what is missing becomes one sentence. */

#include <cublasLt.h>

#include "appliance/base/status.h"

/* name, result, arguments */
#define TDM_CUBLASLT_CALLS(X)                                                                      \
    X(Create, cublasStatus_t, (cublasLtHandle_t *))                                                \
    X(Destroy, cublasStatus_t, (cublasLtHandle_t))                                                 \
    X(Matmul, cublasStatus_t,                                                                      \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *, cublasLtMatrixLayout_t, \
       const void *, cublasLtMatrixLayout_t, const void *, const void *, cublasLtMatrixLayout_t,   \
       void *, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t,               \
       cudaStream_t))                                                                              \
    X(MatmulDescCreate, cublasStatus_t,                                                            \
      (cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType_t))                               \
    X(MatmulDescDestroy, cublasStatus_t, (cublasLtMatmulDesc_t))                                   \
    X(MatmulDescSetAttribute, cublasStatus_t,                                                      \
      (cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *, size_t))                \
    X(MatrixLayoutCreate, cublasStatus_t,                                                          \
      (cublasLtMatrixLayout_t *, cudaDataType, uint64_t, uint64_t, int64_t))                       \
    X(MatrixLayoutDestroy, cublasStatus_t, (cublasLtMatrixLayout_t))                               \
    X(MatmulPreferenceCreate, cublasStatus_t, (cublasLtMatmulPreference_t *))                      \
    X(MatmulPreferenceDestroy, cublasStatus_t, (cublasLtMatmulPreference_t))                       \
    X(MatmulPreferenceSetAttribute, cublasStatus_t,                                                \
      (cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *, size_t))    \
    X(MatmulAlgoCheck, cublasStatus_t,                                                             \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,     \
       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *,               \
       cublasLtMatmulHeuristicResult_t *))                                                         \
    X(GetVersion, size_t, (void))                                                                  \
    X(MatmulAlgoGetHeuristic, cublasStatus_t,                                                      \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,     \
       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,            \
       cublasLtMatmulHeuristicResult_t *, int *))

typedef struct tdm_cublaslt {
#define TDM_CUBLASLT_MEMBER(name, result, arguments) result(*name) arguments;
    TDM_CUBLASLT_CALLS(TDM_CUBLASLT_MEMBER)
#undef TDM_CUBLASLT_MEMBER
} tdm_cublaslt_t;

/* tdm_cublaslt_load finds the library of this toolkit's major version: by
   its plain name, then in the toolkit's usual folder.  It stays loaded for
   the life of the process.  UNSUPPORTED says what was not found. */
TDM_MUST_USE tdm_status_t tdm_cublaslt_load(tdm_cublaslt_t *lt, tdm_error_t *err);

#endif /* TDM_KERNELS_CUDA_CUBLASLT_H */
