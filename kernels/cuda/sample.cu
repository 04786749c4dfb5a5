// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sample.h"

#include <cuda_runtime.h>
#include <float.h>

#include "appliance/abi/result.h"
#include "appliance/base/rng.h"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/launch.cuh"

#define THREADS 1024u
#define WARPS   (THREADS / 32)

#define SURVEY_THREADS 512u
#define SURVEY_CTAS    512u // of all rows: about what a large device holds at once

#define UNIT_LG 40 // weights are counted in 2^-40 of the highest

typedef unsigned long long u64_t;

// A place in the order "highest first, lowest id first on a tie".
typedef struct place {
    uint32_t rising; // the value as a number that rises with it
    uint32_t id;
} place_t;

// One row: what is asked, and the values that the draw sees.
typedef struct row {
    const tdm_step_want_t *want;
    const tdm_sampling_t *sampling;
    const float *logits;
    float *changed;
    float *weight;
    uint32_t vocab;
} row_t;

static __device__ uint32_t rising_of(float v) {
    uint32_t bits = __float_as_uint(v + 0.0f); // -0 becomes +0: they tie
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static __device__ float value_of(uint32_t rising) {
    return __uint_as_float(rising & 0x80000000u ? rising & 0x7fffffffu : ~rising);
}

// tdm_exp_f32 of kernels/sample/exp.h, step by step; nothing is contracted.
static __device__ float exp_plain(float x) {
    x = x < -87.0f ? -87.0f : x;
    float top = x > 88.0f ? 88.0f : x;
    float shifted = __fadd_rn(__fmul_rn(top, 1.44269504f), 12582912.0f);
    float whole = __fsub_rn(shifted, 12582912.0f);
    float r = __fsub_rn(__fsub_rn(top, __fmul_rn(whole, 0.693359375f)),
                        __fmul_rn(whole, -2.12194440e-4f));
    const float c[7] = {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f};
    float p = 1.0f / 5040.0f;
    for (int i = 0; i < 7; i++) p = __fadd_rn(__fmul_rn(p, r), c[i]);
    float scale = __uint_as_float((__float_as_uint(shifted) - 0x4b400000u + 127u) << 23);
    return x <= -87.0f ? 0.0f : __fmul_rn(p, scale);
}

static __device__ u64_t units_of(float weight) {
    return __float2ull_rn(weight * static_cast<float>(UINT64_C(1) << UNIT_LG));
}

// --- the highest ----------------------------------------------------------

// The first place of a row without NaN.
static __device__ place_t first_place(const float *x, uint32_t vocab) {
    u64_t best = 0;
    for (uint32_t i = threadIdx.x; i < vocab; i += THREADS) {
        u64_t key = static_cast<u64_t>(rising_of(x[i])) << 32 | (~i & 0xffffffffu);
        best = key > best ? key : best;
    }
    best = block_max(best);
    place_t p = {static_cast<uint32_t>(best >> 32), ~static_cast<uint32_t>(best)};
    return p;
}

// --- the survey: a row's first place and its total, by many CTAs ------------

// Both are the same whatever the number of parts: a maximum of distinct keys,
// and a sum of whole numbers.
typedef tdm_sample_part_t part_t;

static __device__ __forceinline__ void range_of(const tdm_sample_args_t &a, uint32_t *begin,
                                                uint32_t *end) {
    uint32_t width = (a.vocab + a.part_cnt - 1) / a.part_cnt;
    *begin = min(blockIdx.x * width, a.vocab);
    *end = min(*begin + width, a.vocab);
}

static __device__ uint32_t want_cnt_of(const tdm_sample_args_t &a) {
    return static_cast<const tdm_step_head_t *>(a.step)->want_cnt;
}

static __global__ void __launch_bounds__(SURVEY_THREADS) first_kernel(tdm_sample_args_t a) {
    let_next_in();
    wait_for_before();
    if (blockIdx.y >= want_cnt_of(a)) return;
    const float *x = a.logits + static_cast<uint64_t>(blockIdx.y) * a.vocab;
    uint32_t begin, end;
    range_of(a, &begin, &end);
    u64_t best = 0;
    uint32_t bad = 0;
#pragma unroll 8
    for (uint32_t i = begin + threadIdx.x; i < end; i += SURVEY_THREADS) {
        float v = x[i];
        bad |= !(v < INFINITY);
        u64_t key = static_cast<u64_t>(rising_of(v)) << 32 | (~i & 0xffffffffu);
        best = key > best ? key : best;
    }
    best = block_max(best);
    bad = block_max(bad);
    part_t *part = a.part + blockIdx.y * TDM_SAMPLE_PART + blockIdx.x;
    if (threadIdx.x == 0) {
        part->first = best;
        part->is_bad = bad;
    }
}

static __device__ u64_t first_of_parts(const tdm_sample_args_t &a, uint32_t row, uint32_t *bad) {
    u64_t best = 0;
    *bad = 0;
    for (uint32_t p = 0; p < a.part_cnt; p++) {
        const part_t *part = a.part + row * TDM_SAMPLE_PART + p;
        best = part->first > best ? part->first : best;
        *bad |= part->is_bad;
    }
    return best;
}

static __global__ void __launch_bounds__(SURVEY_THREADS) total_kernel(tdm_sample_args_t a) {
    let_next_in();
    wait_for_before();
    if (blockIdx.y >= want_cnt_of(a)) return;
    const float *x = a.logits + static_cast<uint64_t>(blockIdx.y) * a.vocab;
    uint32_t begin, end, bad;
    range_of(a, &begin, &end);
    float top = value_of(static_cast<uint32_t>(first_of_parts(a, blockIdx.y, &bad) >> 32));
    if (bad || !(top > -INFINITY)) return; // nothing is drawn of such a row
    u64_t sum = 0;
#pragma unroll 4
    for (uint32_t i = begin + threadIdx.x; i < end; i += SURVEY_THREADS) {
        sum += units_of(exp_plain(x[i] - top));
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) a.part[blockIdx.y * TDM_SAMPLE_PART + blockIdx.x].total = sum;
}

static __device__ double log_total(const tdm_sample_args_t &a) {
    u64_t sum = 0;
    for (uint32_t p = 0; p < a.part_cnt; p++) {
        sum += a.part[blockIdx.x * TDM_SAMPLE_PART + p].total;
    }
    return log(static_cast<double>(sum) / static_cast<double>(UINT64_C(1) << UNIT_LG));
}

// --- what changes logits ---------------------------------------------------

static __device__ int has_mask(const row_t &r) {
    const tdm_step_want_t *w = r.want;
    uint32_t out_cnt = w->pos > w->prompt_cnt ? w->pos - w->prompt_cnt : 0;
    return out_cnt < r.sampling->min_tokens && r.sampling->stop_cnt > 0;
}

static __device__ int has_penalty(const row_t &r) {
    const tdm_sampling_t *p = r.sampling;
    return p->repetition_penalty != 1.0f || p->presence_penalty != 0.0f ||
           p->frequency_penalty != 0.0f;
}

#define COUNT_IN_PROMPT 0x80000000u // the lower bits count outputs

static __device__ uint32_t history_at(const tdm_sample_args_t &a, const tdm_step_want_t *w,
                                      uint32_t pos) {
    uint64_t at = static_cast<uint64_t>(w->slot) * a.table_stride + pos / TDM_KV_PAGE_TOKENS;
    uint64_t page = a.table[at];
    return static_cast<uint32_t>(a.token[page * TDM_KV_PAGE_TOKENS + pos % TDM_KV_PAGE_TOKENS]);
}

// Counts the history in the weights' scratch, then lets whoever empties a
// counter change that token: each distinct one once.
static __device__ void penalise(const tdm_sample_args_t &a, const row_t &r) {
    const tdm_step_want_t *w = r.want;
    const tdm_sampling_t *p = r.sampling;
    uint32_t *count = reinterpret_cast<uint32_t *>(r.weight);
    for (uint32_t i = threadIdx.x; i < r.vocab; i += THREADS) count[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < w->pos; i += THREADS) {
        uint32_t id = history_at(a, w, i);
        if (id >= r.vocab) continue;
        if (i < w->prompt_cnt) {
            atomicOr(&count[id], COUNT_IN_PROMPT);
        } else {
            atomicAdd(&count[id], 1u);
        }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < w->pos; i += THREADS) {
        uint32_t id = history_at(a, w, i);
        if (id >= r.vocab) continue;
        uint32_t seen = atomicExch(&count[id], 0u);
        if (seen == 0) continue;
        float out_cnt = static_cast<float>(seen & ~COUNT_IN_PROMPT);
        float x = r.changed[id];
        x = x > 0.0f ? __fdiv_rn(x, p->repetition_penalty) : __fmul_rn(x, p->repetition_penalty);
        if (out_cnt > 0.0f) {
            x = __fsub_rn(x,
                          __fadd_rn(p->presence_penalty, __fmul_rn(p->frequency_penalty, out_cnt)));
        }
        r.changed[id] = x > FLT_MAX ? FLT_MAX : x;
    }
    __syncthreads();
}

static __device__ void change(const tdm_sample_args_t &a, const row_t &r) {
    for (uint32_t i = threadIdx.x; i < r.vocab; i += THREADS) r.changed[i] = r.logits[i];
    __syncthreads();
    const tdm_sampling_t *p = r.sampling;
    if (has_mask(r) && threadIdx.x < p->stop_cnt) {
        uint32_t id = static_cast<uint32_t>(p->stop_id[threadIdx.x]);
        if (id < r.vocab) r.changed[id] = -INFINITY;
    }
    __syncthreads();
    if (has_penalty(r)) penalise(a, r);
}

// --- the search ----------------------------------------------------------------

// Who takes part in a search, and what each counts.
typedef struct crowd {
    place_t last;     // candidates up to here, in order
    float weight_min; // that weigh at least this, and more than nothing
    int is_heads;     // each counts 1, not its weight
} crowd_t;

static __device__ u64_t share(const row_t &r, const crowd_t &c, uint32_t i, uint32_t *rising) {
    float w = r.weight[i];
    *rising = rising_of(r.changed[i]);
    if (!(w > 0.0f) || w < c.weight_min || *rising < c.last.rising) return 0;
    if (*rising == c.last.rising && i > c.last.id) return 0;
    return c.is_heads ? 1 : units_of(w);
}

static __device__ u64_t total(const row_t &r, const crowd_t &c) {
    u64_t sum = 0;
    uint32_t rising;
    for (uint32_t i = threadIdx.x; i < r.vocab; i += THREADS) sum += share(r, c, i, &rising);
    return block_sum(sum);
}

// The highest value at which those of it and above come to goal; *above gets
// what lies above that value.
static __device__ uint32_t search_value(const row_t &r, const crowd_t &c, u64_t goal,
                                        u64_t *above) {
    uint32_t low = 0; // all candidates from low on come to goal
    *above = 0;
    for (int shift = 30; shift >= 0; shift -= 2) {
        u64_t sum[3] = {0, 0, 0};
        for (uint32_t i = threadIdx.x; i < r.vocab; i += THREADS) {
            uint32_t rising;
            u64_t s = share(r, c, i, &rising);
            for (uint32_t k = 0; k < 3; k++) {
                if (rising >= low + ((k + 1) << shift)) sum[k] += s;
            }
        }
        uint32_t step = 0;
        for (uint32_t k = 0; k < 3; k++) {
            sum[k] = block_sum(sum[k]);
            if (sum[k] >= goal) {
                step = k + 1;
            } else if (step == k) {
                *above = sum[k];
            }
        }
        low += step << shift;
    }
    return low;
}

// The first id at which those of value `rising` (any value where is_all) come
// to goal, by id.  A warp has a stretch of the row.
static __device__ uint32_t search_id(const row_t &r, const crowd_t &c, uint32_t rising, int is_all,
                                     u64_t goal) {
    __shared__ u64_t stretch_sum[WARPS];
    __shared__ uint32_t found;
    uint32_t lane = threadIdx.x % 32;
    uint32_t warp = threadIdx.x / 32;
    uint32_t width = ((r.vocab + WARPS - 1) / WARPS + 31) / 32 * 32;
    uint32_t begin = warp * width;
    uint32_t end = begin + width < r.vocab ? begin + width : r.vocab;
    u64_t sum = 0;
    uint32_t own;
    for (uint32_t i = begin + lane; i < end; i += 32) {
        u64_t s = share(r, c, i, &own);
        if (is_all || own == rising) sum += s;
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x == 0) found = 0;
    if (lane == 0) stretch_sum[warp] = sum;
    __syncthreads();
    u64_t before = 0;
    for (uint32_t w = 0; w < warp; w++) before += stretch_sum[w];
    if (before < goal && before + sum >= goal) {
        for (uint32_t at = begin; at < end; at += 32) {
            uint32_t i = at + lane;
            u64_t s = i < end ? share(r, c, i, &own) : 0;
            if (i >= end || !(is_all || own == rising)) s = 0;
            u64_t run = s;
            for (int step = 1; step < 32; step *= 2) {
                u64_t left = __shfl_up_sync(~0u, run, step);
                if (lane >= static_cast<uint32_t>(step)) run += left;
            }
            uint32_t over = __ballot_sync(~0u, before + run >= goal);
            if (over) {
                if (lane == 0) found = at + __ffs(static_cast<int>(over)) - 1;
                break;
            }
            before += __shfl_sync(~0u, run, 31);
        }
    }
    __syncthreads();
    uint32_t id = found;
    __syncthreads(); // found may be set anew only after all have read it
    return id;
}

// The candidate at which the crowd, in order, comes to goal.
static __device__ place_t search(const row_t &r, const crowd_t &c, u64_t goal) {
    u64_t above;
    place_t p;
    p.rising = search_value(r, c, goal, &above);
    p.id = search_id(r, c, p.rising, 0, goal - above);
    return p;
}

// --- the draw ----------------------------------------------------------------

static __device__ void weigh(const row_t &r, const float *from, float top) {
    float temperature = r.sampling->temperature;
    for (uint32_t i = threadIdx.x; i < r.vocab; i += THREADS) {
        float v = __fdiv_rn(__fsub_rn(from[i], top), temperature);
        r.changed[i] = v;
        r.weight[i] = exp_plain(v);
    }
    __syncthreads();
}

// What a share in [0, 1) of sum comes to, at least 1 and at most sum.
static __device__ u64_t past(double part, u64_t sum) {
    u64_t goal = static_cast<u64_t>(part * static_cast<double>(sum)) + 1;
    return goal < sum ? goal : sum;
}

static __device__ int32_t draw(const row_t &r, const float *from, float top) {
    const tdm_sampling_t *p = r.sampling;
    weigh(r, from, top);
    crowd_t all = {{0, 0xffffffffu}, 0.0f, 0};
    double u = tdm_rng_unit(tdm_rng_at(p->seed, r.want->pos));
    if (p->top_k == 0 && p->top_p >= 1.0f) {
        all.weight_min = p->min_p;
        return static_cast<int32_t>(search_id(r, all, 0, 1, past(u, total(r, all))));
    }
    if (p->top_k > 0) {
        crowd_t heads = all;
        heads.is_heads = 1;
        u64_t k = static_cast<u64_t>(p->top_k);
        if (k < total(r, heads)) all.last = search(r, heads, k);
    }
    if (p->top_p < 1.0f) {
        u64_t sum = total(r, all);
        u64_t goal =
            static_cast<u64_t>(ceil(static_cast<double>(sum) * static_cast<double>(p->top_p)));
        goal = goal < 1 ? 1 : goal > sum ? sum : goal;
        all.last = search(r, all, goal);
    }
    all.weight_min = p->min_p;
    return static_cast<int32_t>(search(r, all, past(u, total(r, all))).id);
}

static __device__ uint32_t stop_flag(const tdm_sampling_t *p, int32_t token) {
    if (p->flags & TDM_SAMPLING_IGNORE_EOS) return 0;
    for (uint32_t i = 0; i < p->stop_cnt; i++) {
        if (p->stop_id[i] == token) return TDM_SAMPLE_STOP_ID;
    }
    return 0;
}

static __device__ tdm_step_drawn_t sample_row(const tdm_sample_args_t &a, const row_t &r) {
    tdm_step_drawn_t none = {-1, TDM_SAMPLE_NAN, 0.0f, 0};
    uint32_t bad;
    u64_t key = first_of_parts(a, blockIdx.x, &bad);
    place_t first = {static_cast<uint32_t>(key >> 32), ~static_cast<uint32_t>(key)};
    float raw_top = value_of(first.rising);
    if (bad || !(raw_top > -INFINITY)) return none;
    double log_sum = log_total(a);
    const float *from = r.logits;
    float top = raw_top;
    if (has_mask(r) || has_penalty(r)) {
        change(a, r);
        from = r.changed;
        first = first_place(from, r.vocab);
        top = value_of(first.rising);
        if (!(top > -INFINITY)) return none;
    }
    int is_greedy = r.sampling->temperature == 0.0f;
    int32_t token = is_greedy ? static_cast<int32_t>(first.id) : draw(r, from, top);
    double logprob = static_cast<double>(r.logits[token]) - static_cast<double>(raw_top) - log_sum;
    tdm_step_drawn_t out = {token, stop_flag(r.sampling, token), static_cast<float>(logprob), 0};
    return out;
}

static __global__ void __launch_bounds__(THREADS) sample_kernel(tdm_sample_args_t a) {
    wait_for_before();
    const tdm_step_head_t *head = static_cast<const tdm_step_head_t *>(a.step);
    if (blockIdx.x >= head->want_cnt) return;
    const uint8_t *base = static_cast<const uint8_t *>(a.step);
    uint64_t at = static_cast<uint64_t>(blockIdx.x) * a.vocab;
    const tdm_step_want_t *want = reinterpret_cast<const tdm_step_want_t *>(
        base + head->want_off + static_cast<uint64_t>(blockIdx.x) * head->want_sz);
    row_t r = {want,          a.state ? a.state + want->slot : &want->sampling,
               a.logits + at, a.changed + at,
               a.weight + at, a.vocab};
    tdm_step_drawn_t out = sample_row(a, r);
    if (threadIdx.x != 0) return;
    a.drawn[blockIdx.x] = out;
    if (a.last) a.last[r.want->slot] = out.token;
}

int tdm_sample_rows(const tdm_sample_args_t *args, uint32_t wants, struct CUstream_st *stream) {
    tdm_sample_args_t a = *args;
    a.part_cnt = SURVEY_CTAS / wants;
    if (a.part_cnt < 1) a.part_cnt = 1;
    if (a.part_cnt > TDM_SAMPLE_PART) a.part_cnt = TDM_SAMPLE_PART;
    const dim3 parts(a.part_cnt, wants);
    cudaError_t e = launch_early(first_kernel, parts, SURVEY_THREADS, stream, a);
    if (e == cudaSuccess) e = launch_early(total_kernel, parts, SURVEY_THREADS, stream, a);
    if (e != cudaSuccess) return e;
    return launch_early(sample_kernel, wants, THREADS, stream, a);
}
