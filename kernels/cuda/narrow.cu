// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/narrow.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/ptx/async.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma.cuh"

// One warp fetches, two warpgroups compute; each warpgroup has the 64 rows of
// its number in each block of 128.
//
//   stage  w block 0 [128][64] | w block 1 [128][64] | x [ROWS][64]
//
// Rows of 64 lie in the 128-byte swizzle of the copy engine.  Of a block's 128
// rows block_row are fetched; the products of what lies in the rest are dropped.

#define THREADS    288u
#define WARP_FETCH 8u
#define BLOCK      128u
#define BLOCK_SZ   (BLOCK * 128u)
#define STAGE_MAX  12

// Shared memory of a CTA: what 4 stages of the largest tile take.  The rest
// of an SM is for the small kernels in front and behind, which wait there.
#define SMEM_SZ (192u * 1024u)

typedef struct narrow_args {
    void *y;
    uint32_t rows;
    uint32_t out; // weight rows; of a pair those of one half
    uint32_t block_row;
    uint32_t step_cnt;
    uint32_t split_cnt;
    uint32_t row_tile_cnt;
    uint32_t unit_cnt; // tiles x splits x tiles of x
} narrow_args_t;

// A unit's weight rows, its steps of `in` and its rows of x.  Units of the same
// weights follow each other: they run side by side and read them once.
typedef struct unit {
    uint32_t tile;
    uint32_t row_tile;
    uint32_t split;
    uint32_t begin;
    uint32_t end;
} unit_t;

static __device__ __forceinline__ unit_t unit_of(const narrow_args_t &a, uint32_t i) {
    unit_t u;
    u.row_tile = i % a.row_tile_cnt;
    i /= a.row_tile_cnt;
    u.tile = i / a.split_cnt;
    u.split = i % a.split_cnt;
    u.begin = a.step_cnt * u.split / a.split_cnt;
    u.end = a.step_cnt * (u.split + 1) / a.split_cnt;
    return u;
}

// ROWS of x, BLOCKS of 128 weight rows; IS_PAIR: gates and ups.
template <uint32_t ROWS, uint32_t BLOCKS, bool IS_PAIR> struct narrow {
    static constexpr uint32_t X_ROWS = ROWS;
    static constexpr uint32_t W_SZ = BLOCKS * BLOCK_SZ;
    static constexpr uint32_t STAGE_SZ = W_SZ + ROWS * 128;
    static constexpr uint32_t FIT = SMEM_SZ / STAGE_SZ;
    static constexpr uint32_t STAGES = FIT < STAGE_MAX ? FIT : STAGE_MAX;
    static constexpr uint32_t SUMS = ROWS / 2; // of a thread and block

    // The first weight row of a tile's block.
    static __device__ __forceinline__ uint32_t row_of(const narrow_args_t &a, uint32_t tile,
                                                      uint32_t block) {
        return IS_PAIR ? tile * a.block_row + block * a.out : (tile * BLOCKS + block) * a.block_row;
    }
};

// Where the fetching thread is: step `step` of unit number `i`.
template <class TR> struct fetcher {
    const narrow_args_t &a;
    uint32_t i;
    unit_t u;
    uint32_t step;

    __device__ __forceinline__ explicit fetcher(const narrow_args_t &args)
        : a(args), i(blockIdx.x), u(unit_of(args, blockIdx.x)), step(u.begin) {}

    __device__ __forceinline__ bool is_left() const { return i < a.unit_cnt; }

    __device__ __forceinline__ void next() {
        if (++step < u.end) return;
        i += gridDim.x;
        u = unit_of(a, i);
        step = u.begin;
    }

    __device__ __forceinline__ void fetch_w(const CUtensorMap *w, uint32_t stage,
                                            uint32_t bar) const {
        ptx_mbarrier_arrive_expect(bar, TR::W_SZ / BLOCK * a.block_row + TR::X_ROWS * 128);
#pragma unroll
        for (uint32_t b = 0; b < TR::W_SZ / BLOCK_SZ; b++) {
            ptx_tma_load_2d(stage + b * BLOCK_SZ, w, bar, step * TDM_NARROW_K,
                            TR::row_of(a, u.tile, b), PTX_L2_EVICT_FIRST);
        }
    }

    __device__ __forceinline__ void fetch_x(const CUtensorMap *x, uint32_t stage,
                                            uint32_t bar) const {
        ptx_tma_load_2d(stage + TR::W_SZ, x, bar, step * TDM_NARROW_K, u.row_tile * TR::X_ROWS,
                        PTX_L2_EVICT_LAST);
    }
};

// One thread.  The ring's first weights set out before the kernel in front
// is done, its rows of x behind it.
template <class TR>
static __device__ __forceinline__ void fetch_all(const narrow_args_t &a, const CUtensorMap *w,
                                                 const CUtensorMap *x, uint32_t smem, uint32_t full,
                                                 uint32_t empty) {
    fetcher<TR> f(a);
    uint32_t early = 0;
    for (; early < TR::STAGES && f.is_left(); early++, f.next()) {
        f.fetch_w(w, smem + early * TR::STAGE_SZ, full + early * 8);
    }
    wait_for_before();
    fetcher<TR> again(a);
    for (uint32_t s = 0; s < early; s++, again.next()) {
        again.fetch_x(x, smem + s * TR::STAGE_SZ, full + s * 8);
    }
    uint32_t s = 0;
    uint32_t parity = 0;
    for (; f.is_left(); f.next()) {
        ptx_mbarrier_wait(empty + s * 8, parity);
        f.fetch_w(w, smem + s * TR::STAGE_SZ, full + s * 8);
        f.fetch_x(x, smem + s * TR::STAGE_SZ, full + s * 8);
        if (++s == TR::STAGES) {
            s = 0;
            parity ^= 1;
        }
    }
}

// A stage's products, issued.
template <uint32_t ROWS, uint32_t BLOCKS>
static __device__ __forceinline__ void multiply(float (&sum)[BLOCKS][ROWS / 2], uint32_t stage,
                                                uint32_t wg, int is_add) {
    const uint64_t x = ptx_wgmma_desc(stage + BLOCKS * BLOCK_SZ, 16, 1024);
    const uint64_t w = ptx_wgmma_desc(stage + wg * (BLOCK_SZ / 2), 16, 1024);
#pragma unroll
    for (uint32_t k = 0; k < TDM_NARROW_K / 16; k++) {
#pragma unroll
        for (uint32_t b = 0; b < BLOCKS; b++) {
            ptx_wgmma<__nv_bfloat16>::keys(sum[b], w + ((b * BLOCK_SZ + k * 32) >> 4),
                                           x + (k * 32 >> 4), k > 0 || is_add);
        }
    }
    ptx_wgmma_commit();
}

static __device__ __forceinline__ float swiglu(float gate, float up) {
    return gate / (1.0f + __expf(-gate)) * up;
}

// A unit's sums on their way out; row `o` of the weights, row `r` of x.
template <uint32_t ROWS, uint32_t BLOCKS, bool IS_PAIR>
static __device__ __forceinline__ void put(const narrow_args_t &a, const unit_t &u, uint32_t wg,
                                           const float (&sum)[BLOCKS][ROWS / 2]) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t down = wg * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4; // of the block
    float *part = static_cast<float *>(a.y) + static_cast<uint64_t>(u.split) * a.rows * a.out;
    __nv_bfloat16 *y = static_cast<__nv_bfloat16 *>(a.y);
#pragma unroll
    for (uint32_t i = 0; i < ROWS / 2; i++) {
        const uint32_t r = u.row_tile * ROWS + i / 4 * 8 + lane % 4 * 2 + i % 2;
        const uint32_t at = down + i / 2 % 2 * 8;
        if (r >= a.rows || at >= a.block_row) continue;
        if constexpr (IS_PAIR) {
            const uint32_t o = u.tile * a.block_row + at;
            if (o < a.out) {
                y[static_cast<uint64_t>(r) * a.out + o] =
                    __float2bfloat16_rn(swiglu(sum[0][i], sum[1][i]));
            }
        } else {
#pragma unroll
            for (uint32_t b = 0; b < BLOCKS; b++) {
                const uint32_t o = (u.tile * BLOCKS + b) * a.block_row + at;
                if (o < a.out) part[static_cast<uint64_t>(r) * a.out + o] = sum[b][i];
            }
        }
    }
}

template <uint32_t ROWS, uint32_t BLOCKS, bool IS_PAIR>
static __device__ __forceinline__ void compute_all(const narrow_args_t &a, uint32_t smem,
                                                   uint32_t full, uint32_t empty) {
    using TR = narrow<ROWS, BLOCKS, IS_PAIR>;
    const uint32_t wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    float sum[BLOCKS][ROWS / 2];
    uint32_t s = 0;
    uint32_t parity = 0;
    for (uint32_t i = blockIdx.x; i < a.unit_cnt; i += gridDim.x) {
        const unit_t u = unit_of(a, i);
        uint32_t last = ~0u; // the stage in front, in use until its products are made
        for (uint32_t step = u.begin; step < u.end; step++) {
            ptx_mbarrier_wait(full + s * 8, parity);
            ptx_wgmma_fence();
            multiply<ROWS, BLOCKS>(sum, smem + s * TR::STAGE_SZ, wg, step > u.begin);
            ptx_wgmma_wait<1>();
            if (last != ~0u && threadIdx.x % 32 == 0) ptx_mbarrier_arrive(empty + last * 8);
            last = s;
            if (++s == TR::STAGES) {
                s = 0;
                parity ^= 1;
            }
        }
        ptx_wgmma_wait<0>();
#pragma unroll
        for (uint32_t b = 0; b < BLOCKS; b++) ptx_wgmma_hold(sum[b]);
        if (threadIdx.x % 32 == 0) ptx_mbarrier_arrive(empty + last * 8);
        put<ROWS, BLOCKS, IS_PAIR>(a, u, wg, sum);
    }
}

template <uint32_t ROWS, uint32_t BLOCKS, bool IS_PAIR>
static __global__ void __launch_bounds__(THREADS, 1)
    narrow_kernel(const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x,
                  const narrow_args_t a) {
    using TR = narrow<ROWS, BLOCKS, IS_PAIR>;
    extern __shared__ __align__(1024) uint8_t narrow_smem[];
    __shared__ __align__(8) uint64_t bar[2 * STAGE_MAX];
    const uint32_t smem = ptx_smem_addr(narrow_smem);
    const uint32_t full = ptx_smem_addr(bar);
    const uint32_t empty = full + STAGE_MAX * 8;
    let_next_in();
    if (threadIdx.x == 0) {
        for (uint32_t s = 0; s < TR::STAGES; s++) {
            ptx_mbarrier_init(full + s * 8, 1);
            ptx_mbarrier_init(empty + s * 8, WARP_FETCH); // each computing warp once
        }
        ptx_mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x / 32 == WARP_FETCH) {
        if (threadIdx.x % 32 == 0) fetch_all<TR>(a, &w, &x, smem, full, empty);
    } else {
        compute_all<ROWS, BLOCKS, IS_PAIR>(a, smem, full, empty);
    }
}

// --- the C side ------------------------------------------------------------

typedef void narrow_t(const CUtensorMap w, const CUtensorMap x, const narrow_args_t a);

typedef CUresult encode_t(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                          const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                          const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                          CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

#define ROW_KIND 5 // 8, 16, 32, 64, 128 rows
#define KINDS    3 // one block, two, a pair

#define KERNELS_OF(rows)                                                                           \
    { narrow_kernel<rows, 1, false>, narrow_kernel<rows, 2, false>, narrow_kernel<rows, 2, true> }

static narrow_t *const kernel_of[ROW_KIND][KINDS] = {KERNELS_OF(8), KERNELS_OF(16), KERNELS_OF(32),
                                                     KERNELS_OF(64), KERNELS_OF(128)};

int tdm_narrow_open(void **encode_out, uint32_t *sm_cnt_out) {
    cudaDriverEntryPointQueryResult found;
    int device = 0;
    int value = 0;
    *encode_out = nullptr;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess) {
        e = cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, device);
    }
    if (e != cudaSuccess) return e;
    if (value != 9) return cudaErrorNotSupported; // wgmma is of 9.0 alone
    e = cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device);
    *sm_cnt_out = static_cast<uint32_t>(value);
    if (e == cudaSuccess) {
        e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", encode_out, 12000,
                                             cudaEnableDefault, &found);
    }
    for (int r = 0; r < ROW_KIND; r++) {
        for (int k = 0; k < KINDS && e == cudaSuccess; k++) {
            e = cudaFuncSetAttribute(kernel_of[r][k], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     SMEM_SZ);
        }
    }
    if (e == cudaSuccess && (found != cudaDriverEntryPointSuccess || !*encode_out)) {
        e = cudaErrorNotSupported;
    }
    return e;
}

// A map over [rows][cols] bf16, for boxes of box_rows x 64 columns.  What lies
// outside reads as zero.
static int encode(void *fn, const void *p, uint32_t rows, uint32_t cols, uint32_t box_rows,
                  CUtensorMapL2promotion promotion, CUtensorMap *out) {
    const cuuint64_t dim[2] = {cols, rows};
    const cuuint64_t stride[1] = {static_cast<cuuint64_t>(cols) * 2};
    const cuuint32_t box[2] = {TDM_NARROW_K, box_rows};
    const cuuint32_t step[2] = {1, 1};
    CUresult r = reinterpret_cast<encode_t *>(fn)(
        out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void *>(p), dim, stride, box, step,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, promotion,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

int tdm_narrow_run(void *encode_fn, const tdm_gemm_shape_t *s, const tdm_narrow_cut_t *cut,
                   const void *x, const void *w, void *y, struct CUstream_st *stream) {
    CUtensorMap w_map;
    CUtensorMap x_map;
    const int is_pair = s->y_type == TDM_GEMM_BF16;
    if (!tdm_narrow_takes(s) || cut->grid == 0) return cudaErrorInvalidValue;
    int row_kind = 0;
    while (8u << row_kind < cut->row_cnt) row_kind++;
    int e = encode(encode_fn, w, s->out, s->in, cut->block_row, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                   &w_map);
    if (e == cudaSuccess) {
        e = encode(encode_fn, x, s->rows, s->in, cut->row_cnt, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                   &x_map);
    }
    if (e != cudaSuccess) return e;
    narrow_args_t a = {y,
                       s->rows,
                       is_pair ? s->out / 2 : s->out,
                       cut->block_row,
                       (s->in + TDM_NARROW_K - 1) / TDM_NARROW_K,
                       cut->split_cnt,
                       cut->row_tile_cnt,
                       cut->tile_cnt * cut->split_cnt * cut->row_tile_cnt};
    narrow_t *kernel = kernel_of[row_kind][is_pair ? 2 : cut->block_cnt - 1];
    return launch_early_smem(kernel, cut->grid, THREADS, SMEM_SZ, stream, w_map, x_map, a);
}
