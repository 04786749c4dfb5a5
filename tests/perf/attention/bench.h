// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_TESTS_PERF_ATTENTION_BENCH_H
#define TDM_TESTS_PERF_ATTENTION_BENCH_H

// The data that a point is measured on, and its ways ready to launch.
//
//   K and V are pools of random numbers, as large as asked for.  A point's
//   page tables come off one shuffled deck, dealt to as many sets of pages
//   as the pool holds (at most SET_MAX); launches take the sets in turn, so
//   no launch finds its keys in the L2 cache.
//   Each way has a device context of its own, kept as long as the model
//   stays the same.
//
// A call that fails ends the program with the line and CUDA's words.

#include <cuda_runtime.h>

#include "kernels/plan/plan.h"
#include "tests/perf/attention/points.h"
#include "tests/perf/attention/ways.h"

#define PAGE    64u
#define DIM     128u
#define SET_MAX 4u

#define OK(call) bench_ok((call), #call, __FILE__, __LINE__)
void bench_ok(int error, const char *call, const char *file, int line);

typedef struct bench {
    void *k, *v, *q, *out;
    float *lse;
    uint64_t pool_sz; // bytes of k, and of v
    uint32_t *table;  // device, [set_cnt][seq_cnt][stride]
    cudaStream_t stream;
    tdm_gpu_t gpu;         // as the driver describes it
    tdm_pod_config_t knob; // what all ways share
    // Of the model in hand.
    tdm_pod_t *pod[WAY_CNT];
    tdm_pod_config_t config[WAY_CNT];
    const char *model;
    // Of the point in hand.
    tdm_attn_seq_t seq[TDM_ATTN_SEQ_MAX];
    uint32_t seq_cnt;
    uint32_t stride;
    uint32_t set_cnt;
    uint32_t set; // to be taken next
    tdm_pod_plan_t plan[WAY_CNT];
    uint64_t launch_cnt[WAY_CNT]; // since the way's counters were read
} bench_t;

// bench_open takes pools of pool_sz bytes each and fills them.  knob holds
// what is set on the command line.
void bench_open(bench_t *b, uint64_t pool_sz, const tdm_pod_config_t *knob);

// bench_point makes the sequences and page tables of a point.
void bench_point(bench_t *b, const point_t *p);

// bench_way plans way i for the point in hand, uploads it and runs it once;
// 0 where the kernels do not take it.
int bench_way(bench_t *b, const point_t *p, uint32_t i);

// bench_choose stores the plan of a planner that is left the choice; needs
// way FUSED planned.
void bench_choose(bench_t *b, tdm_pod_plan_t *plan);

// bench_random takes sz bytes of device memory, bf16 numbers of variance 1.
void *bench_random(uint64_t sz, uint32_t seed);

// bench_launch queues way i on the next set.
void bench_launch(bench_t *b, uint32_t i);

// bench_counters reads way i's counters; 0 where they differ from the plan
// times the launches.
int bench_counters(bench_t *b, uint32_t i, tdm_pod_counters_t *out);

#endif // TDM_TESTS_PERF_ATTENTION_BENCH_H
