// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/hopper/launch.h"

#include <stdlib.h>

#include "kernels/attention/hopper/control.cuh"
#include "kernels/attention/hopper/instance.h"
#include "kernels/plan/hopper.h"

#define SET_CNT 2u // launches that may run side by side

typedef CUresult encode_fn_t(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                             const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                             const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                             CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

typedef struct hop_layer {
    const void *k;
    const void *v;
    hop_maps_t maps;
} hop_layer_t;

struct hop {
    tdm_pod_shape_t shape;
    encode_fn_t *encode;
    tdm_ticket_line_t *begun; // device, [SET_CNT]
    uint32_t layer_cnt;       // ever made; those beyond HOP_LAYER_MAX replace the oldest
    hop_layer_t layer[HOP_LAYER_MAX];
};

#define BOTH (1u << TDM_KIND_PREFILL | 1u << TDM_KIND_DECODE)

const void *hop_kernel_of(const tdm_pod_shape_t *s, uint32_t kinds) {
    if (s->head_dim != 64 && s->head_dim != 128) return nullptr;
    if (s->dtype == TDM_POD_BF16) {
        return s->head_dim == 64 ? hop_bf16_d64(kinds) : hop_bf16_d128(kinds);
    }
    if (s->dtype == TDM_POD_F16) {
        return s->head_dim == 64 ? hop_f16_d64(kinds) : hop_f16_d128(kinds);
    }
    return nullptr;
}

static cudaError_t find_encode(hop_t *h) {
    cudaDriverEntryPointQueryResult found;
    void *fn = nullptr;
    cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000,
                                                     cudaEnableDefault, &found);
    if (e != cudaSuccess) return e;
    if (found != cudaDriverEntryPointSuccess || !fn) return cudaErrorNotSupported;
    h->encode = reinterpret_cast<encode_fn_t *>(fn);
    return cudaSuccess;
}

cudaError_t hop_open(const tdm_pod_shape_t *shape, hop_t **out) {
    *out = nullptr;
    if (!hop_kernel_of(shape, BOTH)) return cudaErrorNotSupported;
    auto *h = static_cast<hop_t *>(calloc(1, sizeof(hop_t)));
    if (!h) return cudaErrorMemoryAllocation;
    h->shape = *shape;
    cudaError_t e = find_encode(h);
    if (e == cudaSuccess) e = cudaMalloc(&h->begun, SET_CNT * sizeof(tdm_ticket_line_t));
    if (e == cudaSuccess) e = cudaMemset(h->begun, 0, SET_CNT * sizeof(tdm_ticket_line_t));
    for (uint32_t kinds = 1; kinds <= BOTH && e == cudaSuccess; kinds++) {
        e = cudaFuncSetAttribute(hop_kernel_of(shape, kinds),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, HOP_SMEM_SZ);
    }
    if (e != cudaSuccess) {
        hop_close(h);
        return e;
    }
    *out = h;
    return cudaSuccess;
}

void hop_close(hop_t *h) {
    if (!h) return;
    (void)cudaFree(h->begun);
    free(h);
}

// A map over a pool as [page * nhead_kv][HALF][page_tok][64], for boxes of
// `row` keys of `half` halves.  How many pages the pool has nobody tells us:
// the bound is what a terabyte holds, and page numbers are the caller's word.
static CUresult encode_pool(const hop_t *h, const void *pool, uint32_t row, uint32_t half,
                            CUtensorMapL2promotion promotion, CUtensorMap *out) {
    const uint64_t row_sz = h->shape.head_dim * 2;
    const uint64_t page_sz = row_sz * h->shape.page_tok;
    const cuuint64_t dim[4] = {64, h->shape.page_tok, h->shape.head_dim / 64,
                               (UINT64_C(1) << 40) / page_sz};
    const cuuint64_t stride[3] = {row_sz, 128, page_sz};
    const cuuint32_t box[4] = {64, row, half, 1};
    const cuuint32_t step[4] = {1, 1, 1, 1};
    return h->encode(out,
                     h->shape.dtype == TDM_POD_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                    : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                     4, const_cast<void *>(pool), dim, stride, box, step,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, promotion,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// Keys of a box: what is asked for at once, or a page where that is less;
// and the halves that come with it.
static uint32_t box_tok(const tdm_pod_shape_t *s, uint32_t tok) {
    return TDM_MIN(tok, s->page_tok);
}

static uint32_t box_half(const tdm_pod_shape_t *s, uint32_t tok) {
    return tok <= s->page_tok ? s->head_dim / 64 : 1;
}

// The two pools' maps for boxes of `row` keys.
static CUresult encode_pair(const hop_t *h, const hop_layer_t *l, uint32_t row, uint32_t half,
                            CUtensorMapL2promotion promotion, CUtensorMap *k, CUtensorMap *v) {
    CUresult r = encode_pool(h, l->k, row, half, promotion, k);
    return r == CUDA_SUCCESS ? encode_pool(h, l->v, row, half, promotion, v) : r;
}

static CUresult encode_layer(const hop_t *h, hop_layer_t *l) {
    const tdm_pod_shape_t *s = &h->shape;
    const uint32_t step = box_tok(s, HOP_STEP_SZ / (s->head_dim * 2));
    const uint32_t step_half = box_half(s, HOP_STEP_SZ / (s->head_dim * 2));
    CUresult r = CUDA_SUCCESS;
    for (uint32_t i = 0; i < HOP_BOX_MAX / 16 && r == CUDA_SUCCESS; i++) {
        const uint32_t row = box_tok(s, 16 * (i + 1)); // no page holds more: not used
        r = encode_pair(h, l, row, 1, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, &l->maps.k_block[i],
                        &l->maps.v_block[i]);
    }
    if (r != CUDA_SUCCESS) return r;
    // Promotion to 256 bytes costs decode 3 % on scattered pages; to 64 nothing.
    return encode_pair(h, l, step, step_half, CU_TENSOR_MAP_L2_PROMOTION_L2_64B, &l->maps.k_step,
                       &l->maps.v_step);
}

// The maps of a pair of pools; NULL where the driver refuses them.
static const hop_maps_t *layer_maps(hop_t *h, const void *k, const void *v) {
    uint32_t cnt = TDM_MIN(h->layer_cnt, HOP_LAYER_MAX);
    for (uint32_t i = 0; i < cnt; i++) {
        if (h->layer[i].k == k && h->layer[i].v == v) return &h->layer[i].maps;
    }
    hop_layer_t *l = &h->layer[h->layer_cnt % HOP_LAYER_MAX];
    l->k = k;
    l->v = v;
    if (encode_layer(h, l) != CUDA_SUCCESS) {
        l->k = l->v = nullptr;
        return nullptr;
    }
    h->layer_cnt++;
    return &l->maps;
}

cudaError_t hop_launch(hop_t *h, const pod_args_t *a, uint32_t set, uint32_t grid, int is_dependent,
                       cudaStream_t stream) {
    const hop_maps_t *maps = layer_maps(h, a->layer.k_pool, a->layer.v_pool);
    if (!maps) return cudaErrorInvalidValue;
    hop_args_t args = {*a, h->begun + set,
                       box_tok(&h->shape, HOP_STEP_SZ / (h->shape.head_dim * 2)), 0};
    // Keys are read once, but where the heads of a group are several items.
    const uint32_t group = h->shape.nhead_q / h->shape.nhead_kv;
    args.decode_l2 = group > TDM_HOPPER_DECODE_ROW ? PTX_L2_NORMAL : PTX_L2_EVICT_FIRST;
    if (grid < 2 && a->kind_mask == BOTH) grid = 2;
    if (grid == 0 || grid >= 1u << 16 || set >= SET_CNT) return cudaErrorInvalidValue;
    void *arg[] = {&args, const_cast<hop_maps_t *>(maps)};
    cudaLaunchAttribute attr = cudaLaunchAttribute();
    attr.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = cudaLaunchConfig_t();
    config.gridDim = dim3(grid);
    config.blockDim = dim3(HOP_THREAD);
    config.dynamicSmemBytes = HOP_SMEM_SZ;
    config.stream = stream;
    config.attrs = &attr;
    config.numAttrs = is_dependent ? 1 : 0;
    return cudaLaunchKernelExC(&config, hop_kernel_of(&h->shape, a->kind_mask), arg);
}
