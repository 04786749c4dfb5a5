/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/stage.h"

#include <stdlib.h>

/* Marks of a layer (two norms, four products, rope, attention, SwiGLU), and
   of what is around the layers. */
#define LAYER_MARKS 9u
#define OTHER_MARKS 8u

int tdm_stages_open(cuda_stages_t *s, uint32_t layer_cnt) {
    uint32_t max = layer_cnt * LAYER_MARKS + OTHER_MARKS;
    *s = (cuda_stages_t){.event = (cudaEvent_t *)calloc(max, sizeof *s->event),
                         .stage = (uint8_t *)calloc(max, 1)};
    if (!s->event || !s->stage) return (int)cudaErrorMemoryAllocation;
    for (; s->event_max < max; s->event_max++) {
        cudaError_t e = cudaEventCreate(&s->event[s->event_max]);
        if (e != cudaSuccess) return (int)e;
    }
    return 0;
}

void tdm_stages_close(cuda_stages_t *s) {
    for (uint32_t i = 0; i < s->event_max; i++) (void)cudaEventDestroy(s->event[i]);
    free(s->event);
    free(s->stage);
}

int tdm_stages_begin(cuda_stages_t *s, uint64_t iteration, cudaStream_t stream) {
    s->is_on = iteration % CUDA_STAGE_EVERY == CUDA_STAGE_EVERY / 2;
    s->cnt = 0;
    if (!s->is_on) return 0;
    return (int)cudaEventRecord(s->event[s->cnt++], stream);
}

int tdm_stages_mark(cuda_stages_t *s, tdm_stage_t stage, cudaStream_t stream) {
    if (!s->is_on || s->cnt == s->event_max) return 0;
    s->stage[s->cnt] = (uint8_t)stage;
    return (int)cudaEventRecord(s->event[s->cnt++], stream);
}

int tdm_stages_read(cuda_stages_t *s, uint64_t *ns) {
    cudaError_t e = cudaSuccess;
    /* The mail of an iteration says nothing of the events in front of it. */
    if (s->is_on && s->cnt) e = cudaEventSynchronize(s->event[s->cnt - 1]);
    for (uint32_t i = 1; s->is_on && i < s->cnt && e == cudaSuccess; i++) {
        float ms = 0.0f;
        e = cudaEventElapsedTime(&ms, s->event[i - 1], s->event[i]);
        ns[s->stage[i]] += (uint64_t)((double)ms * 1e6);
    }
    s->is_on = 0;
    return (int)e;
}
