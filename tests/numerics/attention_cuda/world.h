// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_TESTS_NUMERICS_ATTENTION_CUDA_WORLD_H
#define TDM_TESTS_NUMERICS_ATTENTION_CUDA_WORLD_H

// A batch on the device: queries, paged KV, outputs, all from a seed, and
// the naive fp64 oracle over it.
//
//   Traps: pages are shuffled; tokens that no sequence wrote and whole
//   unused pages hold a poison (fill i mod 4: quiet NaN, +inf, -inf,
//   largest finite; of fp8, which has no infinity: two NaN, +-448); page
//   table entries past a sequence's end name no page; outputs begin as NaN;
//   guard bands lie around every tensor that kernels write.

#include <stdint.h>

#include "kernels/include/pod.h"

#define WORLD_GUARD 4096 // bytes on each side

typedef enum world_style {
    WORLD_NORMAL,  // q, K and V of variance 1
    WORLD_SINKING, // every score the same, about -7.5e4 (B04)
} world_style_t;

typedef enum world_hot {
    WORLD_COOL,
    WORLD_HOT_V,   // infinities in V of the hot tokens, in every seventh dimension
    WORLD_HOT_NAN, // NaN in their K and V
} world_hot_t;

typedef struct world {
    // What the caller fills in.
    tdm_pod_shape_t shape;
    tdm_attn_seq_t seq[TDM_ATTN_SEQ_MAX];
    uint32_t prefill_cnt;
    uint32_t decode_cnt;
    uint32_t row_cnt;
    uint32_t style;
    uint32_t hot;       // world_hot_t, of the last token of every slice and draft
    uint32_t is_shared; // every second sequence has the first half of the pages of the one before
    uint32_t page_min; // pages of the pools, at least; the sequences' lie at the 2^31, 2^32 borders
    // The rest.
    uint32_t page_cnt;
    uint32_t table_stride;
    uint32_t fill;
    uint64_t seed;
    float scale;
    uint32_t *host_table;
    // Device memory.
    uint8_t *block;
    uint64_t block_sz;
    void *q, *out, *k, *v;
    float *lse;
    float *kv_scale; // [2][nhead_kv]: of K, of V; ones unless e4m3
    uint32_t *table;
    double *ref;     // [row][head][dim]
    double *ref_lse; // [row][head]
    double *ref_top; // [row][head] largest |V| that the row sees; +inf: one is not finite
    float *ref_fa;   // [row][head][dim] with the roundings that cannot be avoided (oracle.cu)
    tdm_attn_seq_t *dev_seq;
} world_t;

// world_add appends a sequence of kv_cnt keys and cnt rows; the caller
// counts it as prefill or decode.
void world_add(world_t *w, uint32_t kv_cnt, uint32_t cnt);

// world_cost: (query row, key) pairs of all query heads; world_bytes: of
// K and V that the sequences hold.
uint64_t world_cost(const world_t *w);
uint64_t world_bytes(const world_t *w);

// world_open takes memory for what the caller has filled in, and fills it.
// Aborts with a sentence where the device fails.
void world_open(world_t *w, uint64_t seed, uint32_t fill);
void world_close(world_t *w);

tdm_pod_layer_t world_layer(const world_t *w);

// world_requery draws q anew; on a stream.
void world_requery(world_t *w, uint64_t seed, void *stream);

// world_spoil makes outputs NaN and guards whole.
void world_spoil(world_t *w);

// world_guards_ok: no guard byte was touched.
int world_guards_ok(const world_t *w);

// world_hash: a 64-bit sum over all bits of out and lse; order-free.
uint64_t world_hash(const world_t *w, void *stream);

// world_oracle fills the ref arrays.
void world_oracle(world_t *w);

// How out and lse lie against the oracle.
typedef struct world_error {
    double worst;  // max |d| / (2^-8 (max|V| of the row + |ref|) + 1e-3), bf16; 2^-11 for f16
    double rel_l2; // |d| / |ref|
    double fa_l2;  // the same of ref_fa
    double lse;    // max |d| / (1e-3 + 2^-21 |lse|)
    uint64_t bad;  // elements whose finiteness differs
    uint64_t cnt;  // finite elements compared
} world_error_t;
world_error_t world_compare(const world_t *w);

// world_check_reference: the largest difference between the oracle and the
// C reference (kernels/ref).  It reads the pools as they are where the
// reference knows the type and page, else their values in float32.
double world_check_reference(const world_t *w);

// world_noise keeps cta_cnt CTAs of the device busy for about us, on a
// stream of its own.
void world_noise(uint32_t cta_cnt, uint32_t us, void *stream);

#define WORLD_OK(call) world_ok((call), #call, __FILE__, __LINE__)
void world_ok(int error, const char *call, const char *file, int line);

#endif // TDM_TESTS_NUMERICS_ATTENTION_CUDA_WORLD_H
