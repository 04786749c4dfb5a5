/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CUDA_PRIVATE_H
#define TDM_KERNELS_CUDA_PRIVATE_H

/* The GPU backend's own struct.

     step -> embed -> residual -> norm -> x -> qkv -> rope -> q, KV pages
                                            q -> attention -> att -> residual
             residual -> norm -> x -> gate, up -> hidden -> residual
             residual -> norm of the wanted rows -> x -> logits -> drawn

   Everything runs on one stream, in order; the host waits once an
   iteration, in `finish`: it looks for the mail of the last kernel
   (mail.h).  With config.is_ahead two iterations may be on the stream: what
   the host writes for one and what the device writes back lies in a box of
   its own; what only the device has is one, as the stream keeps order. */

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/mail.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sample.h"
#include "kernels/cuda/stage.h"
#include "kernels/cuda/step.h"
#include "kernels/engine/engine.h"
#include "kernels/include/backend.h"
#include "kernels/include/pod.h"
#include "kernels/keep/graphs.h"

#define CUDA_WANT_MAX  ((uint32_t)TDM_PLAN_SLICE_MAX + TDM_SEQ_MAX) /* rows that sample */
#define CUDA_PAGE_MAX  TDM_PLAN_PAGE_MAX                            /* new table entries at once */
#define CUDA_GRAPH_MAX 48u /* captured decode iterations: for each number of rows up to two */

#define CUDA_PRODUCT_CNT 5u /* of a walk: qkv, o, gate_up, down; the head's */

/* One layer's weights and its KV pools, in device memory. */
typedef struct cuda_layer {
    float *attn_norm;
    float *ffn_norm;
    uint8_t *qkv;     /* [(nhead_q + 2 nhead_kv) * head_dim][hidden] bf16, or codes of fp8 */
    uint8_t *o;       /* [hidden][nhead_q * head_dim] */
    uint8_t *gate_up; /* [2 * ffn][hidden], gate first */
    uint8_t *down;    /* [hidden][ffn] */
    uint8_t *k_pool;
    uint8_t *v_pool;
    float *scale[CUDA_PRODUCT_CNT - 1]; /* of qkv, o, gate_up, down, [rows]; NULL: bf16 */
    float *kv_scale; /* fp8: [K, V][nhead_kv], then the inverses likewise; else NULL */
} cuda_layer_t;

/* Device memory, by what it is for; bytes. */
typedef struct cuda_budget {
    uint64_t weights;
    uint64_t kv;
    uint64_t activations;
    uint64_t sampling; /* logits and the sampler's scratch */
    uint64_t gemm;     /* cuBLASLt's workspace */
    uint64_t own;      /* all of the above: one allocation */
    uint64_t plan;     /* the attention's blob, log and partials (tdm_pod_need) */
    uint64_t code;     /* set aside for kernels and decode graphs, which the driver loads */
    uint64_t graphs;   /* and for other graphs, config.graph_sz */
    uint64_t total;
} cuda_budget_t;

/* What a step that was sent is judged by when its mail is there. */
typedef struct cuda_sent {
    uint64_t seq;
    tdm_pod_plan_t plan;
    uint32_t is_fresh;
    uint64_t upload_sz; /* bytes of its step and its attention plan */
    uint32_t graph;     /* tdm_graph_use_t */
    int64_t queue_ns;   /* the host's time to queue it; while it is queued the moment that began */
} cuda_sent_t;

typedef struct tdm_cuda {
    tdm_backend_t base; /* first: the door's handle */
    tdm_backend_config_t config;
    tdm_shape_t shape;
    uint32_t weight_dtype; /* tdm_weight_dtype_t */
    char isa[16];
    cuda_budget_t budget;
    uint32_t row_max;  /* rows of the activations, a tdm_gemm_rows number */
    uint32_t want_max; /* rows of the logits, likewise */

    /* the device */
    cudaStream_t stream;
    uint8_t *memory;
    cuda_layer_t layer[TDM_LAYER_MAX];
    uint8_t *embed, *head;
    float *out_norm;
    float *residual, *qkv, *part, *turn, *logits, *changed, *weight;
    uint8_t *x, *q, *att, *gate_up, *hidden; /* bf16 */
    uint8_t *wide; /* bf16 of the matrix at hand; NULL: weights are bf16 */
    uint8_t *step, *workspace;
    tdm_sampling_t *state; /* [seq_max] of each slot; NULL: wants bring their own */
    tdm_sample_part_t *survey;
    uint64_t *start_ns;
    tdm_step_drawn_t *drawn;
    tdm_rows_pages_t pages;
    tdm_gemm_t *gemm;
    tdm_pod_t *pod;
    uint32_t fresh_max;     /* items of a plan for tdm_pod_launch_fresh; 0: none */
    tdm_graphs_t graphs;    /* captured iterations; exec is a cudaGraphExec_t */
    tdm_choices_t *choices; /* until create returns; NULL: none are kept */

    /* the host's side, pinned where the device reads or writes it */
    uint32_t depth;               /* boxes of what is kept for each iteration under way */
    uint8_t *host_step;           /* [depth][tdm_cuda_step_sz] */
    tdm_step_drawn_t *host_drawn; /* [depth][want_max] */
    tdm_mail_t *mail;             /* [depth] */
    uint64_t seq;                 /* steps sent */
    uint64_t read;                /* of them, whose mail was read */
    uint32_t box;                 /* of the last one sent */
    uint32_t read_box;            /* and of the last one read */
    uint64_t end_ns;              /* the device's clock at the end of that */
    int64_t ask_ns;               /* when the device is asked how it is */
    cuda_sent_t sent[TDM_BACKEND_DEPTH_MAX]; /* by box */
    tdm_engine_t *engine;
    tdm_pod_config_t pod_config;
    tdm_attn_seq_t *row_seq; /* [row_max] each row as a sequence of one; deterministic mode's */
    tdm_sampling_t sampling[TDM_SEQ_MAX]; /* of each slot, as it was opened */
    uint64_t step_sz;                     /* bytes of the step sent last */
    tdm_tables_t tables; /* what the device has still to hear of page tables and slots */

    /* the iteration */
    tdm_pod_plan_t plan;
    uint32_t is_fresh;    /* the plan is for tdm_pod_launch_fresh */
    uint32_t rows;        /* run, a tdm_gemm_rows number */
    uint32_t wants;       /* likewise, of the head; 0: nothing samples */
    tdm_rows_sums_t sums; /* what the last product left in parts; cnt 0: nothing */
    uint32_t is_replayed; /* a graph does all up to the drawn tokens */
    cuda_stages_t stages[TDM_BACKEND_DEPTH_MAX]; /* by box */
    int error;         /* the first cudaError_t or cublasStatus_t of the iteration */
    const char *where; /* what failed */
} tdm_cuda_t;

extern const tdm_engine_ops_t tdm_cuda_ops;

/* tdm_cuda_budget computes the sizes for a checked shape and config; LIMIT
   where they pass 2^46 bytes. */
TDM_MUST_USE tdm_status_t tdm_cuda_budget(tdm_cuda_t *c, tdm_error_t *err);

/* tdm_cuda_budget_check prints the budget, and refuses what the device has
   not: NOMEM with the numbers and the key to lower. */
TDM_MUST_USE tdm_status_t tdm_cuda_budget_check(const tdm_cuda_t *c, tdm_error_t *err);

/* tdm_cuda_step_sz: the most bytes of a step (kernels/cuda/step.h), a
   multiple of 256. */
uint64_t tdm_cuda_step_sz(const tdm_cuda_t *c);

/* tdm_cuda_carve points everything into memory, budget.own bytes. */
void tdm_cuda_carve(tdm_cuda_t *c);

/* tdm_cuda_weights brings the weights in: from the host through two pinned
   buffers, or drawn on the device (config.dummy_seed).  progress as in
   tdm_backend_cuda_create. */
TDM_MUST_USE tdm_status_t tdm_cuda_weights(tdm_cuda_t *c, const tdm_weights_t *w,
                                           tdm_backend_progress_t *progress, void *ctx,
                                           tdm_error_t *err);

/* tdm_cuda_recall gives the products the choices of an earlier life, where
   they are this device's and program's; tdm_cuda_remember leaves this one's. */
TDM_MUST_USE tdm_status_t tdm_cuda_recall(tdm_cuda_t *c, tdm_error_t *err);
void tdm_cuda_remember(tdm_cuda_t *c);

/* tdm_cuda_capture asks for all algorithms and captures one decode
   iteration for each number of rows.  After it `run` allocates nothing. */
TDM_MUST_USE tdm_status_t tdm_cuda_capture(tdm_cuda_t *c, tdm_error_t *err);

/* tdm_cuda_graph gives the captured graph of the iteration that c->rows,
   c->wants, c->plan and c->is_fresh describe, or NULL; *use is a
   tdm_graph_use_t. */
cudaGraphExec_t tdm_cuda_graph(tdm_cuda_t *c, uint32_t *use);

/* tdm_cuda_idle captures one graph that is asked for; 0: none is. */
int tdm_cuda_idle(tdm_cuda_t *c);

/* tdm_cuda_graphs_close destroys them. */
void tdm_cuda_graphs_close(tdm_cuda_t *c);

/* tdm_cuda_walk queues embedding and layers, tdm_cuda_head the head and the
   sampler, for c->rows and c->wants rows and c->plan, tdm_cuda_mail the
   mail. */
void tdm_cuda_walk(tdm_cuda_t *c);
void tdm_cuda_head(tdm_cuda_t *c);
void tdm_cuda_mail(tdm_cuda_t *c);

/* tdm_cuda_is_done: the mail of the oldest step that was not read is there, or
   the device failed, or none was sent. */
int tdm_cuda_is_done(tdm_cuda_t *c);

/* tdm_cuda_product: the product of a layer's k-th matrix, in the order of
   the walk: qkv, o, gate_up, down; 4 is the head's. */
tdm_gemm_shape_t tdm_cuda_product(const tdm_cuda_t *c, uint32_t k, uint32_t rows);

/* tdm_cuda_fix_attention sets pod_config up for the deterministic mode: every
   row a sequence of its own, cut at fixed positions. */
void tdm_cuda_fix_attention(tdm_cuda_t *c);

/* tdm_cuda_note keeps the first error of an iteration. */
static inline void tdm_cuda_note(tdm_cuda_t *c, int error, const char *where) {
    if (c->error || error == 0) return;
    c->error = error;
    c->where = where;
}

/* Runs a call unless something failed before. */
#define CUDA_TRY(c, call, where)                                                                   \
    do {                                                                                           \
        if (!(c)->error) tdm_cuda_note((c), (int)(call), (where));                                 \
    } while (0)

/* tdm_cuda_failed turns the noted error into a status. */
tdm_status_t tdm_cuda_failed(const tdm_cuda_t *c, tdm_error_t *err);

#endif /* TDM_KERNELS_CUDA_PRIVATE_H */
