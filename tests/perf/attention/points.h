/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_PERF_ATTENTION_POINTS_H
#define TDM_TESTS_PERF_ATTENTION_POINTS_H

/* The hybrid batches that are measured.  A point is a prefill chunk at the
   end of a context beside `batch` decodes, of the same context unless
   decode_ctx says otherwise.

   named   points that a peer was measured on, the paper's three, and its
           wave-quantisation pair
   small   a few tokens of prefill, few or many decodes, short contexts: what
           a launch itself costs shows here
   wide    many query heads of a KV head
   grid    3 models x 3 chunks x 4 contexts x 4 decode batches: as many
           sequences as the memory holds beside the model's weights, and a
           half, a quarter and a sixteenth of them

   fi_serial_us, fi_pod_us and fa3_us are what FlashInfer 0.6.18's FA2-class
   pair (FA2 prefill + its best decode), its POD kernel, and the best pair
   of any peer (FlashAttention-3 + a good decode) took on an H200 at full
   clock on 2026-11-29 beside a GEMM 8192^3 of 793 TFLOP/s and a read
   ceiling of 4,600 GB/s: the reference where a peer is not run beside us;
   0 where there is none.  split_us is the best composition of peers,
   FlashAttention-3 on fewer SMs beside a decode stream, vattn_us the POD of
   vattention, the best of its three modes. */

#include <stdint.h>

typedef struct point {
    const char *model;
    uint32_t nhead_q;
    uint32_t nhead_kv;
    uint32_t ctx;
    uint32_t chunk;
    uint32_t batch;
    float fi_serial_us;
    float fi_pod_us;
    float fa3_us;
    uint32_t decode_ctx; /* of the decodes; 0: ctx */
    uint32_t is_steady;  /* one of the eight that also run for seconds */
    uint32_t is_ablated; /* one of the ten of the ablations */
    uint32_t is_ncu;     /* one of the three that the profiler sees */
    float split_us;      /* 0, or with vattn_us: one of the 31 that every peer was measured on */
    float vattn_us;
} point_t;

#define LLAMA3 "llama3-8b", 32, 8
#define YI     "yi-6b", 32, 4
#define LLAMA2 "llama2-7b", 32, 32

static const point_t point_named[] = {
    {LLAMA3, 4096, 512, 16, 177, 155, 125, 0, 0, 0, 0, 106, 166},
    {LLAMA3, 4096, 1024, 32, 316, 256, 220, 0, 1, 0, 0, 180, 294},
    {LLAMA3, 4096, 2048, 64, 597, 468, 399, 0, 1, 0, 0, 339, 509},
    {LLAMA3, 8192, 512, 16, 325, 284, 227, 0, 0, 0, 0, 184, 308},
    {LLAMA3, 8192, 1024, 16, 494, 431, 306, 0, 0, 1, 0, 267, 468},
    {LLAMA3, 8192, 1024, 32, 609, 496, 426, 0, 0, 1, 0, 346, 566},
    {LLAMA3, 8192, 1024, 64, 849, 708, 662, 0, 0, 1, 0, 574, 773},
    {LLAMA3, 8192, 2048, 64, 1178, 947, 806, 0, 1, 1, 1, 641, 1060},
    {LLAMA3, 8192, 2048, 128, 1651, 1318, 1278, 0, 0, 0, 0, 1108, 1315},
    {LLAMA3, 16384, 512, 16, 616, 536, 431, 0, 0, 0, 0, 354, 593},
    {LLAMA3, 16384, 512, 64, 1325, 1178, 1141, 0, 1, 1, 0, 1076, 1043},
    {LLAMA3, 16384, 1024, 16, 961, 844, 600, 0, 0, 1, 0, 520, 916},
    {LLAMA3, 16384, 1024, 32, 1194, 977, 835, 0, 1, 1, 1, 692, 1108},
    {LLAMA3, 16384, 1024, 64, 1669, 1410, 1309, 0, 1, 1, 1, 1116, 1535},
    {LLAMA3, 16384, 2048, 16, 1637, 1460, 922, 0, 0, 0, 0, 837, 1529},
    {LLAMA3, 16384, 2048, 64, 2346, 1903, 1631, 0, 1, 0, 0, 1334, 2141},
    {LLAMA3, 16384, 2048, 128, 3286, 2675, 2567, 0, 0, 0, 0, 2116, 2636},
    {LLAMA3, 32768, 512, 16, 1202, 1048, 839, 0, 0, 0, 0, 699, 1156},
    {LLAMA3, 32768, 1024, 32, 2362, 1950, 1659, 0, 0, 0, 0, 1387, 2188},
    {LLAMA3, 32768, 2048, 64, 4669, 3839, 3276, 0, 0, 0, 0, 2720, 4297},
    {YI, 4096, 1024, 64, 316, 257, 221, 0, 0, 0, 0, 178, 293},
    {YI, 8192, 1024, 64, 609, 496, 427, 0, 0, 0, 0, 343, 565},
    {YI, 16384, 512, 32, 618, 536, 434, 0, 0, 0, 0, 353, 593},
    {YI, 16384, 1024, 64, 1190, 975, 836, 0, 0, 0, 0, 691, 1107},
    {YI, 16384, 2048, 64, 1875, 1631, 1156, 0, 0, 0, 0, 1111, 1755},
    {YI, 16384, 2048, 128, 2342, 1909, 1627, 0, 0, 0, 0, 1333, 2145},
    {YI, 32768, 1024, 64, 2358, 1934, 1659, 0, 0, 0, 0, 1386, 2194},
    {LLAMA2, 4096, 1024, 16, 425, 363, 334, 0, 0, 1, 0, 319, 410},
    {LLAMA2, 8192, 2048, 16, 1163, 950, 806, 0, 1, 1, 0, 699, 1071},
    {LLAMA2, 16384, 512, 16, 1314, 1176, 1140, 0, 0, 0, 0, 1109, 1094},
    {LLAMA2, 16384, 2048, 16, 2330, 1914, 1641, 0, 0, 0, 0, 1346, 2166},
    /* The paper's C0, C1, C2 (arXiv 2410.18038, section 5.1): memory-bound,
       balanced, compute-bound. */
    {LLAMA3, 12288, 1024, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {LLAMA3, 12288, 12288, 220, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {LLAMA3, 16384, 16384, 250, 0, 0, 0, 12288, 0, 0, 0, 0, 0},
    /* The wave-quantisation pair of section 3, scaled from 108 to 132 SMs:
       batch 66 fills the SMs' slots once, 67 begins another wave. */
    {YI, 16384, 512, 66, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {YI, 16384, 512, 67, 0, 0, 0, 0, 0, 0, 0, 0, 0},
};
#define POINT_NAMED_CNT (sizeof point_named / sizeof point_named[0])

/* What the grid is made of.  tok_max: tokens of KV that an H200 holds beside
   the weights (16 bits, 32 layers): 125 GB less 16, over the bytes of one
   token. */
typedef struct point_model {
    const char *model;
    uint32_t nhead_q;
    uint32_t nhead_kv;
    uint32_t tok_max;
} point_model_t;

static const point_model_t point_model[] = {{LLAMA3, 950000}, {YI, 1900000}, {LLAMA2, 237500}};
static const uint32_t point_chunk[] = {512, 1024, 2048};
static const uint32_t point_ctx[] = {4096, 8192, 16384, 32768};
static const uint32_t point_part[] = {1, 2, 4, 16}; /* of the batch that fits */
#define POINT_GRID_CNT  (3u * 3u * 4u * 4u)
#define POINT_BATCH_MAX 255u /* sequences of an iteration, less the slice */

/* point_grid makes the idx-th point of the grid, idx < POINT_GRID_CNT;
   those of a model stand together. */
static inline point_t point_grid(uint32_t idx) {
    const point_model_t *m = &point_model[idx / 48];
    uint32_t ctx = point_ctx[idx / 12 % 4];
    uint32_t part = point_part[idx % 4];
    uint32_t batch = m->tok_max / ctx / part;
    if (batch < 1) batch = 1;
    if (batch > POINT_BATCH_MAX) batch = POINT_BATCH_MAX;
    point_t p = {m->model, m->nhead_q, m->nhead_kv, ctx, point_chunk[idx / 4 % 3],
                 batch,    0,          0,           0,   0,
                 0,        0,          0,           0,   0};
    return p;
}

/* Groups of 8, 12 and 16 query heads of a KV head, chunk beside decodes that
   take about as long. */
static const point_t point_wide[] = {
    {"group8", 32, 4, 8192, 1024, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"group12", 24, 2, 8192, 1024, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"group16", 32, 2, 8192, 1024, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0},
};
#define POINT_WIDE_CNT (sizeof point_wide / sizeof point_wide[0])

#define POINT_SMALL_CNT (3u * 3u * 4u)

/* point_small makes the idx-th small point, idx < POINT_SMALL_CNT. */
static inline point_t point_small(uint32_t idx) {
    static const uint32_t ctx[] = {512, 2048, 8192};
    static const uint32_t chunk[] = {16, 64, 256};
    static const uint32_t batch[] = {1, 8, 64, 200};
    point_t p = {LLAMA3, ctx[idx / 12], chunk[idx / 4 % 3], batch[idx % 4], 0, 0, 0, 0, 0, 0, 0, 0,
                 0};
    return p;
}

#endif /* TDM_TESTS_PERF_ATTENTION_POINTS_H */
