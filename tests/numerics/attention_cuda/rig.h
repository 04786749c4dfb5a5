// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_TESTS_NUMERICS_ATTENTION_CUDA_RIG_H
#define TDM_TESTS_NUMERICS_ATTENTION_CUDA_RIG_H

// One context on the device, plans for it, and what every launch must keep:
// the plan's counters, whole guard bands, the oracle's numbers, and the same
// bits whatever the way and the grid.
//
// A family is the launches that share a plan, and so their bits: a variant
// and a tile, with every way that the launcher takes for it.

#include "appliance/base/rng.h"
#include "tests/numerics/attention_cuda/world.h"

typedef struct family {
    const char *name;
    uint32_t variant;
    uint32_t tile;
} family_t;

#define FAMILY_MAX 5u
extern const family_t family_list[FAMILY_MAX];

// rig_only leaves the others out from now on; 0 where none has the name.
int rig_only(const char *name);

// Whether this family is to be run.
int rig_has(uint32_t family);

typedef struct rig {
    tdm_pod_config_t config;
    tdm_pod_t *pod;
    tdm_pod_plan_t plan;
} rig_t;

// Knobs of a plan; zeros are the planner's choice.
typedef struct knobs {
    uint32_t policy;
    uint32_t decode_split;
    uint32_t prefill_split;
} knobs_t;

void rig_open(rig_t *r, const world_t *w);
void rig_close(rig_t *r);

// rig_plan builds and uploads; 1, or 0 where the family does not take the
// world.
int rig_plan(rig_t *r, const world_t *w, const family_t *f, const knobs_t *k);

// rig_run launches and returns the hash; *is_taken is 0 where the launcher
// does not take this way.
uint64_t rig_run(rig_t *r, world_t *w, uint32_t way, uint32_t grid, int *is_taken);

// rig_check runs a world through every family, way and a few grids, and
// against its oracle.
void rig_check(world_t *w, const knobs_t *k, tdm_rng_t *rng);

// rig_table prints what rig_check has seen: worst errors by type, head_dim
// and family, and launches by way.
void rig_table(void);

// Failures so far, and one more.
extern uint64_t fail_cnt;
void fail(uint64_t seed, const char *what, const char *detail);

extern const char *const way_name[TDM_POD_WAY_CNT];

// The ways that run both halves.
#define BOTH_WAY_CNT 7u
extern const uint32_t both_way[BOTH_WAY_CNT];

// edges.cu: every named case, all four fills.
void edges(uint64_t seed);

#endif // TDM_TESTS_NUMERICS_ATTENTION_CUDA_RIG_H
