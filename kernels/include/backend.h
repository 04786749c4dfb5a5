/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_INCLUDE_BACKEND_H
#define TDM_KERNELS_INCLUDE_BACKEND_H

/* tdm_backend is whatever turns one plan into one result: the CPU with
   worker threads that play SMs, or a GPU.  The executor sees this door
   and nothing behind it.

     executor                         backend
     tdm_backend_cpu_need      ->     bytes, before anything is taken
     tdm_backend_cpu_create    ->     weights borrowed; slot tables, KV pool,
                                      workspaces, threads taken
     tdm_backend_start(plan)   ->     checked, deltas applied, queued
     tdm_backend_finish        ->     layers walked,
                               <-     result filled: one whole iteration
     tdm_backend_destroy       ->     threads joined, memory given back

   Ahead (config.is_ahead): a second plan may be started while the first
   is under way, and is computed right after it, without the host between.
   Its decodes run on the tokens that the first samples, wherever those
   lie; results come in the order of the plans, the same as without.

   The backend owns the slot tables (page table, token history, sampling
   parameters) and the KV contents.  They live from create to destroy and
   change only by plans, so a fresh backend is brought up to date by
   opening every live slot again in full.

   Bits: a token and its logprob depend on the sequence's own tokens, its
   sampling parameters and the weights; never on the route, the chunking,
   the other rows of the iteration, the slot, the page numbers or the
   thread count.  On a GPU this is so in deterministic mode; else sums are
   cut as the batch makes it fastest, and rounding shows it.

   Ownership: weights and arena are the caller's; on the CPU they outlive the backend.
   Limits: create takes all memory; run allocates, locks and logs nothing.
   One thread calls the door.

   Times in a result are CLOCK_MONOTONIC, read by the backend itself: an
   iteration is the one place below a tile where time passes. */

#include "appliance/abi/model.h"
#include "appliance/abi/plan.h"
#include "appliance/abi/result.h"
#include "appliance/base/arena.h"
#include "appliance/base/status.h"
#include "kernels/include/choices.h"
#include "kernels/include/kv.h"

TDM_BEGIN_DECLS

typedef enum tdm_cpu_isa {
    TDM_CPU_ISA_AUTO, /* the widest that this processor has */
    TDM_CPU_ISA_SCALAR,
    TDM_CPU_ISA_AVX2,   /* with FMA */
    TDM_CPU_ISA_AVX512, /* F, BW, DQ, VL */
    TDM_CPU_ISA_CNT
} tdm_cpu_isa_t;

#define TDM_SM_MAX 256 /* worker threads of the CPU backend */

typedef struct tdm_backend_config {
    uint32_t kv_page_cnt; /* pool, pages of TDM_KV_PAGE_TOKENS tokens, >= 1 */
    uint32_t kv_dtype;    /* tdm_kv_dtype_t */
    uint32_t seq_max;     /* slots in [0, seq_max), 1..TDM_SEQ_MAX */
    uint32_t token_max;   /* prefill tokens of one plan, 1..TDM_PLAN_TOKEN_MAX */
    uint32_t context_max; /* input positions in [0, context_max), 1..TDM_CONTEXT_MAX */
    uint32_t sm_cnt;      /* CPU: worker threads, the caller's included, 1..TDM_SM_MAX */
    uint32_t cpu_isa;     /* CPU: tdm_cpu_isa_t; more than the processor has is refused */
    uint64_t dummy_seed;  /* GPU: not 0: the weights are drawn on the device as
                             appliance/abi/dummy.h says, and only their shape is read */
    uint32_t
        is_deterministic; /* GPU: 1: bits as below hold there too; slower.  The CPU's always do */
    uint32_t is_ahead;    /* 1: two iterations may be under way */
    uint32_t is_resident; /* GPU: 1: sampling parameters lie there by slot, sent once */
    uint32_t graph_max;   /* GPU: captured graphs besides those of decodes alone; 0: none */
    uint64_t graph_sz;    /* GPU: device memory for them, bytes */
} tdm_backend_config_t;

/* What a running backend says of itself; constant after create. */
typedef struct tdm_backend_info {
    const char *name; /* "cpu", "cuda" */
    const char *isa;  /* CPU: "scalar", "avx2", "avx512"; GPU: "sm_90a" */
    uint32_t sm_cnt;
    uint32_t depth;         /* iterations under way at once: 1, ahead 2 */
    uint32_t has_bell;      /* what tdm_backend_listen names is called */
    uint32_t variant_cnt;   /* a plan's variant lies in [0, variant_cnt) */
    uint32_t kv_page_cnt;   /* as configured */
    uint32_t kv_dtype;      /* as configured */
    uint64_t kv_page_bytes; /* one page: K and V, all layers */
    uint64_t memory_bytes;  /* taken at create, KV pool included */
    uint64_t row_flops;     /* linear layers, per input row */
    uint64_t logits_flops;  /* lm head, per sampled row */
    uint64_t weight_bytes;  /* bytes of all weights that one iteration reads */
} tdm_backend_info_t;

typedef struct tdm_backend tdm_backend_t;

#define TDM_BACKEND_DEPTH_MAX 2u

/* tdm_backend_bell_t hears that an iteration is computed; any thread. */
typedef void tdm_backend_bell_t(void *ctx);

typedef struct tdm_backend_ops {
    tdm_status_t (*start)(tdm_backend_t *b, const tdm_plan_t *plan, tdm_result_t *result,
                          tdm_error_t *err);
    int (*is_done)(tdm_backend_t *b);                                      /* NULL: depth is 1 */
    void (*listen)(tdm_backend_t *b, tdm_backend_bell_t *bell, void *ctx); /* NULL: no bell */
    tdm_status_t (*finish)(tdm_backend_t *b, tdm_error_t *err);
    int (*idle)(tdm_backend_t *b); /* NULL: idle time is no use */
    void (*destroy)(tdm_backend_t *b);
} tdm_backend_ops_t;

/* First member of every backend's own struct. */
struct tdm_backend {
    const tdm_backend_ops_t *ops;
    tdm_backend_info_t info;
};

/* tdm_backend_cpu_need gives the bytes that create will take from the
   arena for this shape and config.  It checks both in full, so a config
   that passes here fails in create only for lack of memory or threads. */
TDM_MUST_USE tdm_status_t tdm_backend_cpu_need(const tdm_weights_t *weights,
                                               const tdm_backend_config_t *config,
                                               uint64_t *bytes_out, tdm_error_t *err);

/* tdm_backend_cpu_create starts the CPU backend.  arena gives the memory
   (need bytes); NULL makes the backend open and own a PLAIN one. */
TDM_MUST_USE tdm_status_t tdm_backend_cpu_create(const tdm_weights_t *weights,
                                                 const tdm_backend_config_t *config,
                                                 tdm_arena_t *arena, tdm_backend_t **out,
                                                 tdm_error_t *err);

/* tdm_backend_progress_t hears how many bytes of the weights are there. */
typedef void tdm_backend_progress_t(void *ctx, uint64_t done_sz, uint64_t total_sz);

/* tdm_backend_cuda_create starts the GPU backend on the current device.  It
   copies the weights: they may go when it returns.  progress (NULL: nobody
   asks) is called from within.  choices (NULL: none) are an earlier life's and
   become this one's (choices.h); they outlive the call alone.  UNSUPPORTED where the build, the
   machine or the model's shape cannot; NOMEM with the budget where device memory is short, before
   any is taken. */
TDM_MUST_USE tdm_status_t tdm_backend_cuda_create(const tdm_weights_t *weights,
                                                  const tdm_backend_config_t *config,
                                                  tdm_choices_t *choices,
                                                  tdm_backend_progress_t *progress, void *ctx,
                                                  tdm_backend_t **out, tdm_error_t *err);

/* tdm_backend_start takes an iteration on; info.depth may be under way.

   TDM_OK           plan and result are the backend's until its finish.
   TDM_ERR_CORRUPT  the plan contradicts itself, the config or the slot
                    tables: result->fault is TDM_FAULT_executor_protocol,
                    sample_cnt 0, nothing was changed; the sentence names
                    the first contradiction.  plan may be hostile memory,
                    as long as nobody writes it from start to finish.
   TDM_ERR_INTERNAL as of tdm_backend_finish.

   iteration, epoch, route and the times are set in every case. */
TDM_MUST_USE static inline tdm_status_t tdm_backend_start(tdm_backend_t *b, const tdm_plan_t *plan,
                                                          tdm_result_t *result, tdm_error_t *err) {
    return b->ops->start(b, plan, result, err);
}

/* tdm_backend_is_done says whether the oldest iteration under way would be
   finished without a wait, or has failed; at depth 1 finish is what
   computes, and the answer is yes. */
static inline int tdm_backend_is_done(tdm_backend_t *b) {
    return b->ops->is_done ? b->ops->is_done(b) : 1;
}

/* tdm_backend_idle may be called while nothing is under way and no plan waits:
   one piece of work of a few milliseconds that makes later iterations faster
   and changes no bit of them.  1: there may be more; 0: none is left. */
static inline int tdm_backend_idle(tdm_backend_t *b) {
    return b->ops->idle ? b->ops->idle(b) : 0;
}

/* tdm_backend_listen lets bell(ctx) be called whenever an iteration is done,
   where info.has_bell; before the first start. */
static inline void tdm_backend_listen(tdm_backend_t *b, tdm_backend_bell_t *bell, void *ctx) {
    if (b->ops->listen) b->ops->listen(b, bell, ctx);
}

/* tdm_backend_finish waits for the oldest iteration under way and fills its
   result; result->fault is 0.  TDM_ERR_INTERNAL: the device failed, and the
   backend must be destroyed.  Bytes of result->sample past sample_cnt are
   left as they were. */
TDM_MUST_USE static inline tdm_status_t tdm_backend_finish(tdm_backend_t *b, tdm_error_t *err) {
    return b->ops->finish(b, err);
}

/* tdm_backend_run does one whole iteration; none may be under way. */
TDM_MUST_USE static inline tdm_status_t tdm_backend_run(tdm_backend_t *b, const tdm_plan_t *plan,
                                                        tdm_result_t *result, tdm_error_t *err) {
    tdm_status_t st = tdm_backend_start(b, plan, result, err);
    return st == TDM_OK ? tdm_backend_finish(b, err) : st;
}

/* tdm_backend_destroy ends the backend; NULL is allowed. */
static inline void tdm_backend_destroy(tdm_backend_t *b) {
    if (b) b->ops->destroy(b);
}

/* tdm_backend_info: never NULL, lives as long as the backend. */
static inline const tdm_backend_info_t *tdm_backend_info(const tdm_backend_t *b) {
    return &b->info;
}

TDM_END_DECLS

#endif /* TDM_KERNELS_INCLUDE_BACKEND_H */
