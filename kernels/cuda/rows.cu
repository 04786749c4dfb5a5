// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/rows.h"

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include "appliance/abi/dummy.h"
#include "appliance/abi/fp8.h"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/ptx/special.cuh"

#define ROW_THREADS 256

static __device__ uint64_t page_of(const tdm_rows_pages_t &pages, const tdm_step_row_t *row) {
    uint64_t at = static_cast<uint64_t>(row->slot) * pages.table_stride;
    return pages.table[at + row->pos / TDM_KV_PAGE_TOKENS];
}

// --- page tables and embedding ------------------------------------------

static __global__ void scatter_kernel(const void *step, tdm_rows_pages_t pages) {
    const tdm_step_head_t *h = head_of(step);
    const tdm_step_page_t *page =
        reinterpret_cast<const tdm_step_page_t *>(static_cast<const uint8_t *>(step) + h->page_off);
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < h->page_cnt) pages.table[page[i].at] = page[i].page;
}

// A CTA a slot: its parameters word by word, to where the sampler reads them.
static __global__ void state_kernel(const void *step, tdm_sampling_t *state) {
    const tdm_step_head_t *h = head_of(step);
    if (blockIdx.x >= h->state_cnt) return;
    const tdm_step_state_t *from = reinterpret_cast<const tdm_step_state_t *>(
                                       static_cast<const uint8_t *>(step) + h->state_off) +
                                   blockIdx.x;
    const uint32_t *word = reinterpret_cast<const uint32_t *>(&from->sampling);
    uint32_t *to = reinterpret_cast<uint32_t *>(state + from->slot);
    for (uint32_t i = threadIdx.x; i < sizeof *state / 4; i += blockDim.x) to[i] = word[i];
}

static __global__ void embed_kernel(const void *step, const uint2 *embed, uint32_t hidden,
                                    float4 *residual, tdm_rows_pages_t pages, uint64_t *start_ns) {
    // In this order: who comes next may read the page tables at once.
    wait_for_before();
    let_next_in();
    uint32_t r = blockIdx.x;
    if (r == 0 && threadIdx.x == 0) *start_ns = ptx_globaltimer();
    uint32_t quads = hidden / 4;
    float4 *to = residual + static_cast<uint64_t>(r) * quads;
    if (r >= head_of(step)->row_cnt) {
        for (uint32_t i = threadIdx.x; i < quads; i += blockDim.x) to[i] = float4();
        return;
    }
    const tdm_step_row_t *row = row_of(step, r);
    int32_t token = row->token;
    if (token < 0) token = max(pages.last[row->slot], 0); // drawn by the iteration before
    const uint2 *from = embed + static_cast<uint64_t>(token) * quads;
    for (uint32_t i = threadIdx.x; i < quads; i += blockDim.x) {
        uint2 v = from[i];
        to[i] = make_float4(lower(v.x), upper(v.x), lower(v.y), upper(v.y));
    }
    if (threadIdx.x == 0) {
        uint64_t at = page_of(pages, row) * TDM_KV_PAGE_TOKENS + row->pos % TDM_KV_PAGE_TOKENS;
        pages.token[at] = token;
    }
}

// --- rotary positions -----------------------------------------------------

static __global__ void turn_kernel(const double *freq, uint32_t half, float *turn) {
    uint64_t p = blockIdx.x;
    float *row = turn + p * 2 * half;
    for (uint32_t i = threadIdx.x; i < half; i += blockDim.x) {
        double sine;
        double cosine;
        sincos(static_cast<double>(p) * freq[i], &sine, &cosine);
        row[i] = static_cast<float>(cosine);
        row[half + i] = static_cast<float>(sine);
    }
}

#define ROPE_HEADS 8u // of a CTA

// Element d of a head's row in a pool, as it is kept there.
template <bool IS_FP8>
static __device__ __forceinline__ void keep(void *pool, uint64_t row, uint32_t d, float v,
                                            float inverse) {
    if constexpr (IS_FP8) {
        static_cast<uint8_t *>(pool)[row + d] =
            __nv_cvt_float_to_fp8(v * inverse, __NV_SATFINITE, __NV_E4M3);
    } else {
        static_cast<__nv_bfloat16 *>(pool)[row + d] = __float2bfloat16_rn(v);
    }
}

template <bool IS_FP8>
static __global__ void rope_append_kernel(const void *step, tdm_rows_rope_t a,
                                          tdm_rows_pages_t pages) {
    let_next_in();
    wait_for_before();
    uint32_t r = blockIdx.x;
    if (r >= head_of(step)->row_cnt) return;
    const tdm_step_row_t *row = row_of(step, r);
    uint32_t dim = a.head_dim;
    uint32_t half = dim / 2;
    uint32_t head_cnt = a.nhead_q + 2 * a.nhead_kv;
    const float *from = a.qkv.part + static_cast<uint64_t>(r) * head_cnt * dim;
    const float *turn = a.turn + static_cast<uint64_t>(row->pos) * dim;
    uint64_t page = page_of(pages, row);
    uint32_t tok = row->pos % TDM_KV_PAGE_TOKENS;
    __nv_bfloat16 *q = static_cast<__nv_bfloat16 *>(a.q);
    uint32_t begin = blockIdx.y * ROPE_HEADS;
    uint32_t end = begin + ROPE_HEADS < head_cnt ? begin + ROPE_HEADS : head_cnt;
    for (uint32_t i = begin * half + threadIdx.x; i < end * half; i += blockDim.x) {
        uint32_t head = i / half;
        uint32_t d = i % half;
        float x = from[head * dim + d];
        float y = from[head * dim + half + d];
        for (uint32_t c = 1; c < a.qkv.cnt; c++) {
            x += from[c * a.qkv.stride + head * dim + d];
            y += from[c * a.qkv.stride + head * dim + half + d];
        }
        int is_v = head >= a.nhead_q + a.nhead_kv;
        if (!is_v) {
            float c = turn[d];
            float s = turn[half + d];
            float turned = x * c - y * s;
            y = y * c + x * s;
            x = turned;
        }
        if (head < a.nhead_q) {
            __nv_bfloat16 *to = q + (static_cast<uint64_t>(r) * a.nhead_q + head) * dim;
            to[d] = __float2bfloat16_rn(x);
            to[half + d] = __float2bfloat16_rn(y);
        } else {
            uint32_t kv = (head - a.nhead_q) % a.nhead_kv;
            uint64_t at = ((page * a.nhead_kv + kv) * TDM_KV_PAGE_TOKENS + tok) * dim;
            void *pool = is_v ? a.v_pool : a.k_pool;
            float inverse = IS_FP8 ? a.kv_inverse[is_v * a.nhead_kv + kv] : 1.0f;
            keep<IS_FP8>(pool, at, d, x, inverse);
            keep<IS_FP8>(pool, at, half + d, y, inverse);
        }
    }
}

// --- SwiGLU -----------------------------------------------------------------

static __device__ float swiglu(float gate, float up) {
    return gate / (1.0f + __expf(-gate)) * up;
}

static __device__ uint32_t swiglu2(uint32_t gate, uint32_t up) {
    __nv_bfloat162 v =
        __floats2bfloat162_rn(swiglu(lower(gate), lower(up)), swiglu(upper(gate), upper(up)));
    return *reinterpret_cast<uint32_t *>(&v);
}

// Eight outputs a thread.
static __global__ void swiglu_kernel(const uint4 *both, uint32_t oct_cnt, uint4 *out) {
    let_next_in();
    wait_for_before();
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t r = blockIdx.y;
    if (i >= oct_cnt) return;
    uint4 g = both[r * 2 * oct_cnt + i];
    uint4 u = both[r * 2 * oct_cnt + oct_cnt + i];
    out[r * oct_cnt + i] =
        make_uint4(swiglu2(g.x, u.x), swiglu2(g.y, u.y), swiglu2(g.z, u.z), swiglu2(g.w, u.w));
}

// --- a dummy's weights -----------------------------------------------------

static __global__ void draw_kernel(uint64_t seed, float scale, uint64_t quad_cnt,
                                   uint32_t blank_cols, uint2 *out) {
    uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; i < quad_cnt; i += stride) {
        uint64_t bits = tdm_dummy_bits(seed, i);
        float4 v = make_float4(tdm_dummy_value(bits, 0, scale), tdm_dummy_value(bits, 1, scale),
                               tdm_dummy_value(bits, 2, scale), tdm_dummy_value(bits, 3, scale));
        uint2 word = pack4(v);
        // Blank rows may begin anywhere: their width is no multiple of 4 by law.
        uint16_t *four = reinterpret_cast<uint16_t *>(&word);
        for (uint32_t k = 0; blank_cols && k < 4; k++) {
            if (!tdm_dummy_prints((4 * i + k) / blank_cols)) four[k] = 0;
        }
        out[i] = word;
    }
}

// --- fp8 weights ------------------------------------------------------------

// Two codes as two floats.
static __device__ float2 floats_of(uint32_t two) {
    __half2_raw h = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), __NV_E4M3);
    return __half22float2(*reinterpret_cast<__half2 *>(&h));
}

// Eight weights a thread and turn; cols is a multiple of 8.
static __global__ void widen_kernel(const uint2 *code, const float *scale, uint64_t oct_cnt,
                                    uint32_t row_octs, uint4 *wide) {
    uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; i < oct_cnt; i += stride) {
        float s = scale[i / row_octs];
        uint2 c = __ldcs(code + i);
        float2 v[4] = {floats_of(c.x & 0xffff), floats_of(c.x >> 16), floats_of(c.y & 0xffff),
                       floats_of(c.y >> 16)};
        uint2 lo = pack4(make_float4(v[0].x * s, v[0].y * s, v[1].x * s, v[1].y * s));
        uint2 hi = pack4(make_float4(v[2].x * s, v[2].y * s, v[3].x * s, v[3].y * s));
        wide[i] = make_uint4(lo.x, lo.y, hi.x, hi.y);
    }
}

// Begins when all in front is done and written; what is launched behind it may
// begin beside it.
static __global__ void fence_kernel() {}

// A row a CTA.
static __global__ void code_kernel(const __nv_bfloat16 *wide, uint32_t cols, uint8_t *code,
                                   float *scale) {
    const uint64_t row = blockIdx.x;
    wide += row * cols;
    code += row * cols;
    float most = 0.0f;
    for (uint32_t i = threadIdx.x; i < cols; i += blockDim.x) {
        most = fmaxf(most, fabsf(__bfloat162float(wide[i])));
    }
    most = block_max(most);
    float s = most == 0.0f ? 1.0f : fmaxf(__fdiv_rn(most, TDM_FP8_MAX), 0x1p-126f);
    for (uint32_t i = threadIdx.x; i < cols; i += blockDim.x) {
        code[i] = __nv_cvt_float_to_fp8(__fdiv_rn(__bfloat162float(wide[i]), s), __NV_SATFINITE,
                                        __NV_E4M3);
    }
    if (threadIdx.x == 0) scale[row] = s;
}

// --- the C side ---------------------------------------------------------

int tdm_rows_scatter(const void *step, const tdm_rows_pages_t *pages, uint32_t page_cnt,
                     struct CUstream_st *stream) {
    scatter_kernel<<<(page_cnt + 255) / 256, 256, 0, stream>>>(step, *pages);
    return cudaGetLastError();
}

int tdm_rows_state(const void *step, tdm_sampling_t *state, uint32_t state_cnt,
                   struct CUstream_st *stream) {
    state_kernel<<<state_cnt, 32, 0, stream>>>(step, state);
    return cudaGetLastError();
}

int tdm_rows_embed(const void *step, const void *embed, uint32_t hidden, float *residual,
                   const tdm_rows_pages_t *pages, uint64_t *start_ns, uint32_t rows,
                   struct CUstream_st *stream) {
    return launch_early(embed_kernel, rows, ROW_THREADS, stream, step,
                        static_cast<const uint2 *>(embed), hidden,
                        reinterpret_cast<float4 *>(residual), *pages, start_ns);
}

int tdm_rows_rope_append(const void *step, const tdm_rows_rope_t *rope,
                         const tdm_rows_pages_t *pages, uint32_t rows, struct CUstream_st *stream) {
    uint32_t head_cnt = rope->nhead_q + 2 * rope->nhead_kv;
    dim3 grid(rows, (head_cnt + ROPE_HEADS - 1) / ROPE_HEADS);
    auto kernel = rope->kv_inverse ? rope_append_kernel<true> : rope_append_kernel<false>;
    return launch_early(kernel, grid, ROW_THREADS, stream, step, *rope, *pages);
}

int tdm_rows_turn(const double *freq, uint32_t head_dim, uint32_t position_cnt, float *turn,
                  struct CUstream_st *stream) {
    turn_kernel<<<position_cnt, 64, 0, stream>>>(freq, head_dim / 2, turn);
    return cudaGetLastError();
}

int tdm_rows_swiglu(const void *both, uint32_t ffn, void *out, uint32_t rows,
                    struct CUstream_st *stream) {
    uint32_t oct_cnt = ffn / 8;
    dim3 grid((oct_cnt + ROW_THREADS - 1) / ROW_THREADS, rows);
    return launch_early(swiglu_kernel, grid, ROW_THREADS, stream, static_cast<const uint4 *>(both),
                        oct_cnt, static_cast<uint4 *>(out));
}

int tdm_rows_draw(uint64_t seed, float scale, uint64_t cnt, uint32_t blank_cols, void *out,
                  struct CUstream_st *stream) {
    uint64_t quads = cnt / 4;
    uint64_t want = (quads + 255) / 256;
    uint32_t grid = want < 8192 ? static_cast<uint32_t>(want) : 8192u;
    draw_kernel<<<grid, 256, 0, stream>>>(seed, scale, quads, blank_cols,
                                          static_cast<uint2 *>(out));
    return cudaGetLastError();
}

int tdm_rows_widen(const void *code, const float *scale, uint32_t rows, uint32_t cols, void *wide,
                   struct CUstream_st *stream) {
    uint64_t octs = static_cast<uint64_t>(rows) * cols / 8;
    uint64_t want = (octs + 255) / 256;
    uint32_t grid = want < 8192 ? static_cast<uint32_t>(want) : 8192u;
    widen_kernel<<<grid, 256, 0, stream>>>(static_cast<const uint2 *>(code), scale, octs, cols / 8,
                                           static_cast<uint4 *>(wide));
    fence_kernel<<<1, 32, 0, stream>>>();
    return cudaGetLastError();
}

int tdm_rows_code(const void *wide, uint32_t rows, uint32_t cols, void *code, float *scale,
                  struct CUstream_st *stream) {
    code_kernel<<<rows, ROW_THREADS, 0, stream>>>(static_cast<const __nv_bfloat16 *>(wide), cols,
                                                  static_cast<uint8_t *>(code), scale);
    return cudaGetLastError();
}
