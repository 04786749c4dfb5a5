/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_KERNELS_ENGINE_QUEUE_H
#define TDM_TESTS_KERNELS_ENGINE_QUEUE_H

/* A device as a GPU is one: it plans for itself (begin), takes the walk into
   a queue, and answers when asked whether it is finished.  Of the rig, which
   does its ops. */

#include "tests/unit/kernels_engine/rig.h"

typedef struct queue {
    uint32_t is_replay;   /* the next iterations leave the walk out */
    uint32_t is_failing;  /* the next finish is an error */
    uint32_t applied_cnt; /* plans heard, and pages granted in them */
    uint64_t iteration;   /* that began last */
} queue_t;

extern queue_t queue;

/* queue_ops gives the op table, and forgets what was. */
const tdm_engine_ops_t *queue_ops(void);

#endif /* TDM_TESTS_KERNELS_ENGINE_QUEUE_H */
