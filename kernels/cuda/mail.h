/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CUDA_MAIL_H
#define TDM_KERNELS_CUDA_MAIL_H

/* The end of an iteration, told to the host without a copy or a call: the
   last kernel writes tokens, counters and log into pinned host memory and
   then the iteration's number.

     device                                  host
     drawn, counters, log into host memory
     seq := the step's number    -- G1 --> C1 -- sees seq, reads them

   G1/C1  a store with release and a load with acquire, both at the scope of
          the system: all that the mail holds is there when its number is.

   One iteration is on its way at a time, or two: each step names its box,
   and the host reads a box's mail before it sends the next step that names
   it. */

#include "appliance/base/atomic.h"
#include "kernels/cuda/step.h"
#include "kernels/include/pod.h"

TDM_BEGIN_DECLS

struct CUstream_st;

/* tdm_mail_t lies in pinned host memory, one for each box. */
typedef struct tdm_mail {
    uint64_t seq;      /* of the last step that is done; written last */
    uint64_t start_ns; /* the device's clock (%globaltimer) as its first kernel began */
    uint64_t end_ns;   /* and as its last one was about to end */
    uint64_t reserved[5];
} tdm_mail_t;

/* tdm_mail_send queues the mail of the step's box: want_cnt tokens of the
   step from drawn to host_drawn [box][drawn_max], what `log` names, then the
   step's number into mail [box]; the device's counters are cleared. */
int tdm_mail_send(const void *step, const uint64_t *start_ns, const tdm_step_drawn_t *drawn,
                  const tdm_pod_log_t *log, tdm_step_drawn_t *host_drawn, uint32_t drawn_max,
                  tdm_mail_t *mail, struct CUstream_st *stream);

/* tdm_mail_is_here: C1.  Is the mail of this step or a later one there? */
static inline int tdm_mail_is_here(const tdm_mail_t *mail, uint64_t seq) {
    return tdm_load_acquire(&mail->seq) >= seq;
}

TDM_END_DECLS

#endif /* TDM_KERNELS_CUDA_MAIL_H */
