/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/stage.h"

#include <stdlib.h>

/* Marks of a layer (two norms, four products, rope, attention, SwiGLU), and
   of what is around the layers. */
#define LAYER_MARKS 9u
#define OTHER_MARKS 8u

/* give_up: the timing, never the iteration. */
static void give_up(cuda_stages_t *s) {
    s->is_on = s->cnt = 0;
    s->is_broken = 1;
    (void)cudaGetLastError();
}

void tdm_stages_open(cuda_stages_t *s, uint32_t layer_cnt) {
    uint32_t max = layer_cnt * LAYER_MARKS + OTHER_MARKS;
    *s = (cuda_stages_t){.event = (cudaEvent_t *)calloc(max, sizeof *s->event),
                         .stage = (uint8_t *)calloc(max, 1)};
    if (!s->event || !s->stage) s->is_broken = 1;
    while (!s->is_broken && s->event_max < max) {
        if (cudaEventCreate(&s->event[s->event_max]) == cudaSuccess)
            s->event_max++;
        else
            give_up(s);
    }
}

void tdm_stages_close(cuda_stages_t *s) {
    for (uint32_t i = 0; i < s->event_max; i++) (void)cudaEventDestroy(s->event[i]);
    free(s->event);
    free(s->stage);
}

static void record(cuda_stages_t *s, cudaStream_t stream) {
    if (s->cnt == s->event_max) return;
    if (cudaEventRecord(s->event[s->cnt], stream) == cudaSuccess)
        s->cnt++;
    else
        give_up(s);
}

void tdm_stages_begin(cuda_stages_t *s, uint64_t iteration, cudaStream_t stream) {
    s->is_on = !s->is_broken && iteration % CUDA_STAGE_EVERY == CUDA_STAGE_EVERY / 2;
    s->cnt = 0;
    if (s->is_on) record(s, stream);
}

void tdm_stages_mark(cuda_stages_t *s, tdm_stage_t stage, cudaStream_t stream) {
    if (!s->is_on || s->cnt == s->event_max) return;
    s->stage[s->cnt] = (uint8_t)stage;
    record(s, stream);
}

void tdm_stages_read(cuda_stages_t *s, uint64_t *ns) {
    uint64_t sum[TDM_STAGE_CNT] = {0};
    if (!s->is_on || s->cnt < 2) return;
    s->is_on = 0;
    /* The mail of an iteration may be here before its last event is. */
    if (cudaEventSynchronize(s->event[s->cnt - 1]) != cudaSuccess) {
        give_up(s);
        return;
    }
    for (uint32_t i = 1; i < s->cnt; i++) {
        float ms = 0.0f;
        if (cudaEventElapsedTime(&ms, s->event[i - 1], s->event[i]) != cudaSuccess) {
            give_up(s);
            return;
        }
        sum[s->stage[i]] += (uint64_t)((double)ms * 1e6);
    }
    for (uint32_t k = 0; k < TDM_STAGE_CNT; k++) ns[k] += sum[k];
}
