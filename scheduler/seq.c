/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/seq.h"

#define TO(s) (1u << TDM_SEQ_##s)

static const uint32_t arrows[TDM_SEQ_STATE_CNT] = {
    [TDM_SEQ_FREE] = TO(WAITING),
    [TDM_SEQ_WAITING] = TO(PREFILL) | TO(CANCELLED) | TO(DONE) | TO(FAILED),
    [TDM_SEQ_PREFILL] = TO(WAITING) | TO(DECODE) | TO(CANCELLED) | TO(DONE) | TO(FAILED),
    [TDM_SEQ_DECODE] = TO(WAITING) | TO(CANCELLED) | TO(DONE) | TO(FAILED),
    [TDM_SEQ_DONE] = TO(FREE),
    [TDM_SEQ_CANCELLED] = TO(FREE),
    [TDM_SEQ_FAILED] = TO(FREE),
};

static const char *const names[TDM_SEQ_STATE_CNT] = {
    "free", "waiting", "prefill", "decode", "done", "cancelled", "failed",
};

int tdm_seq_may(tdm_seq_state_t from, tdm_seq_state_t to) {
    if ((unsigned)from >= TDM_SEQ_STATE_CNT || (unsigned)to >= TDM_SEQ_STATE_CNT) return 0;
    return (arrows[from] >> to) & 1u;
}

void tdm_seq_move(tdm_seq_t *q, tdm_seq_state_t to) {
    TDM_CHECK(tdm_seq_may((tdm_seq_state_t)q->state, to));
    q->state = (uint8_t)to;
}

const char *tdm_seq_state_name(tdm_seq_state_t state) {
    return (unsigned)state < TDM_SEQ_STATE_CNT ? names[state] : "unknown";
}
