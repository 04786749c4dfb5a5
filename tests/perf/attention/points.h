/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_PERF_ATTENTION_POINTS_H
#define TDM_TESTS_PERF_ATTENTION_POINTS_H

/* The grid of hybrid batches.  A point: a prefill chunk at the end of a
   context, and `batch` decodes of the same context.  fi_serial_us and
   fi_pod_us are FlashInfer 0.6.18's FA2-class pair (FA2 prefill + its best
   decode) and its POD kernel, measured on an H200 at full clock on
   2026-11-29: the reference where FlashInfer is not run beside us; 0 where
   there is none. */

typedef struct point {
    const char *model;
    unsigned nhead_q;
    unsigned nhead_kv;
    unsigned ctx;
    unsigned chunk;
    unsigned batch;
    float fi_serial_us;
    float fi_pod_us;
    unsigned decode_ctx; /* of the decodes; 0: ctx */
} point_t;

#define LLAMA3 "llama3-8b", 32, 8
#define YI     "yi-6b", 32, 4
#define LLAMA2 "llama2-7b", 32, 32

static const point_t point_list[] = {
    {LLAMA3, 4096, 512, 16, 177, 155},
    {LLAMA3, 4096, 1024, 32, 316, 256},
    {LLAMA3, 4096, 2048, 64, 597, 468},
    {LLAMA3, 8192, 512, 16, 325, 284},
    {LLAMA3, 8192, 1024, 16, 494, 431},
    {LLAMA3, 8192, 1024, 32, 609, 496},
    {LLAMA3, 8192, 1024, 64, 849, 708},
    {LLAMA3, 8192, 2048, 64, 1178, 947},
    {LLAMA3, 8192, 2048, 128, 1651, 1318},
    {LLAMA3, 16384, 512, 16, 616, 536},
    {LLAMA3, 16384, 512, 64, 1325, 1178},
    {LLAMA3, 16384, 1024, 16, 961, 844},
    {LLAMA3, 16384, 1024, 32, 1194, 977},
    {LLAMA3, 16384, 1024, 64, 1669, 1410},
    {LLAMA3, 16384, 2048, 16, 1637, 1460},
    {LLAMA3, 16384, 2048, 64, 2346, 1903},
    {LLAMA3, 16384, 2048, 128, 3286, 2675},
    {LLAMA3, 32768, 512, 16, 1202, 1048},
    {LLAMA3, 32768, 1024, 32, 2362, 1950},
    {LLAMA3, 32768, 2048, 64, 4669, 3839},
    {YI, 4096, 1024, 64, 316, 257},
    {YI, 8192, 1024, 64, 609, 496},
    {YI, 16384, 512, 32, 618, 536},
    {YI, 16384, 1024, 64, 1190, 975},
    {YI, 16384, 2048, 64, 1875, 1631},
    {YI, 16384, 2048, 128, 2342, 1909},
    {YI, 32768, 1024, 64, 2358, 1934},
    {LLAMA2, 4096, 1024, 16, 425, 363},
    {LLAMA2, 8192, 2048, 16, 1163, 950},
    {LLAMA2, 16384, 512, 16, 1314, 1176},
    {LLAMA2, 16384, 2048, 16, 2330, 1914},
    /* The paper's C0, C1, C2 (arXiv 2410.18038, section 5.1): memory-bound,
       balanced, compute-bound. */
    {LLAMA3, 12288, 1024, 80, 0, 0},
    {LLAMA3, 12288, 12288, 220, 0, 0},
    {LLAMA3, 16384, 16384, 250, 0, 0, 12288},
    /* The wave-quantisation pair of section 3, scaled from 108 to 132 SMs:
       batch 66 fills the SMs' slots once, 67 begins another wave. */
    {YI, 16384, 512, 66, 0, 0},
    {YI, 16384, 512, 67, 0, 0},
};

#endif /* TDM_TESTS_PERF_ATTENTION_POINTS_H */
