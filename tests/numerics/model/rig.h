/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_NUMERICS_MODEL_RIG_H
#define TDM_TESTS_NUMERICS_MODEL_RIG_H

/* A rig drives a backend through its door: it plays the scheduler with
   plans that are legal and otherwise as arbitrary as a seed makes them. */

#include "appliance/abi/model.h"
#include "appliance/base/rng.h"
#include "kernels/include/backend.h"

#define RIG_TOKEN_MAX 1024

/* One sequence and what came out of it. */
typedef struct rig_stream {
    tdm_sampling_t sampling;
    uint32_t prompt_cnt;
    uint32_t out_max; /* tokens to sample */
    int32_t token[RIG_TOKEN_MAX];
    float logprob[RIG_TOKEN_MAX]; /* of output tokens, by position */
    uint32_t flags[RIG_TOKEN_MAX];
    uint32_t out_cnt;
} rig_stream_t;

/* rig_weights_make fills random weights for shape (layer_cnt and so on),
   scaled so that logits spread over a few units.  rig_weights_free. */
tdm_weights_t *rig_weights_make(const tdm_shape_t *shape, uint64_t seed);
void rig_weights_free(tdm_weights_t *w);

/* rig_weights_fp8 makes the layers' matrices fp8. */
void rig_weights_fp8(tdm_weights_t *w);

/* rig_stream_make: a random prompt; is_greedy or random sampling. */
void rig_stream_make(rig_stream_t *s, uint32_t prompt_cnt, uint32_t out_max, uint32_t vocab,
                     int is_greedy, tdm_rng_t *rng);

/* rig_drive runs the streams to their ends.  With rng, when they start,
   in which slots and pages, how prompts are cut, who takes part in an
   iteration and by which route is random; with NULL everything runs as
   early and as whole as it can, FUSED.  Sums of all results are added to
   total (NULL: dropped).

   Of a backend that works ahead, every plan but the first is made and
   started while the one before is under way; a stream's end is heard of
   one iteration late, and the token past it dropped. */
typedef struct rig_total {
    uint64_t iteration_cnt;
    uint64_t route_cnt[TDM_ROUTE_CNT];
    uint64_t vcta_planned[TDM_KIND_CNT];
    uint64_t vcta_executed[TDM_KIND_CNT];
    uint64_t past_cnt; /* tokens computed past the end of a stream */
    /* Where set: hears of the i-th sampled row of each iteration that it gave
       streams[stream].token[pos]. */
    void (*sampled)(void *ctx, uint32_t stream, uint32_t pos, uint32_t i);
    void *ctx;
} rig_total_t;
void rig_drive(tdm_backend_t *b, const tdm_backend_config_t *config, rig_stream_t *streams,
               uint32_t cnt, tdm_rng_t *rng, rig_total_t *total);

/* rig_backend opens a CPU backend or fails the test. */
tdm_backend_t *rig_backend(const tdm_weights_t *w, const tdm_backend_config_t *config);

#endif /* TDM_TESTS_NUMERICS_MODEL_RIG_H */
