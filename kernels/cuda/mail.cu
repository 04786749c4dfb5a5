// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/mail.h"

#include <cuda/atomic>
#include <cuda_runtime.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/ptx/special.cuh"

#define MAIL_THREADS 1024u

// So many 16-byte pieces.
static __device__ __forceinline__ void copy(void *to, const void *from, uint32_t cnt) {
    for (uint32_t i = threadIdx.x; i < cnt; i += MAIL_THREADS) {
        static_cast<uint4 *>(to)[i] = __ldcg(static_cast<const uint4 *>(from) + i);
    }
}

static __global__ void __launch_bounds__(MAIL_THREADS)
    send_kernel(const tdm_step_head_t *step, const uint64_t *start_ns,
                const tdm_step_drawn_t *drawn, tdm_pod_log_t log, tdm_step_drawn_t *host_drawn,
                uint32_t drawn_max, tdm_mail_t *mail) {
    wait_for_before();
    uint64_t box = step->box;
    mail += box;
    copy(host_drawn + box * drawn_max, drawn, step->want_cnt * (sizeof *drawn / 16));
    const tdm_pod_head_t *head = static_cast<const tdm_pod_head_t *>(log.blob);
    uint32_t span_cnt = head->item_cnt[TDM_KIND_PREFILL] + head->item_cnt[TDM_KIND_DECODE];
    copy(log.host_span + box * log.span_max, log.span, span_cnt * (sizeof *log.span / 16));
    if (threadIdx.x < log.count_cnt) {
        log.host_count[box * log.count_cnt + threadIdx.x] = log.count[threadIdx.x];
        log.count[threadIdx.x] = 0;
    }
    __threadfence_system(); // this thread's part of the mail
    __syncthreads();
    if (threadIdx.x != 0) return;
    mail->start_ns = *start_ns;
    mail->end_ns = ptx_globaltimer();
    cuda::atomic_ref<uint64_t, cuda::thread_scope_system> seq(mail->seq);
    seq.store(step->seq, cuda::memory_order_release); // G1: and everybody's, before the number
}

int tdm_mail_send(const void *step, const uint64_t *start_ns, const tdm_step_drawn_t *drawn,
                  const tdm_pod_log_t *log, tdm_step_drawn_t *host_drawn, uint32_t drawn_max,
                  tdm_mail_t *mail, struct CUstream_st *stream) {
    return launch_early(send_kernel, 1, MAIL_THREADS, stream,
                        static_cast<const tdm_step_head_t *>(step), start_ns, drawn, *log,
                        host_drawn, drawn_max, mail);
}
