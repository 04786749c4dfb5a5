/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CPU_PRIVATE_H
#define TDM_KERNELS_CPU_PRIVATE_H

/* The CPU backend's own struct: where its memory lies and who uses it.

     residual -> norm -> xp -> q k v -> (rope) -> KV pages
                                 q -> attention -> att -> xp -> residual
     residual -> norm -> xp -> gate, up -> hidden -> residual
     residual -> norm -> xp -> logits -> samplers */

#include "kernels/cpu/attention.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/runner.h"
#include "kernels/cpu/sm.h"
#include "kernels/engine/engine.h"
#include "kernels/include/backend.h"
#include "kernels/sample/sample.h"

/* Outputs of one work item of a linear layer: 24 rows of 576 bf16 are
   27 KiB, about 1 us of memory traffic against 50 ns for a ticket; and
   576 outputs still make 24 items. */
#define CPU_ITEM_OUTS 24u

/* Rows of one item: x of 128 rows by 576 floats is 288 KiB and stays in a
   1 MiB second-level cache while the weights pass. */
#define CPU_ITEM_ROWS 128u

/* Rows that go through the feed-forward at once; bounds `hidden`. */
#define CPU_FFN_ROWS 512u

/* Sampled rows per pass over the lm head; bounds `logits`. */
#define CPU_LOGITS_ROWS 32u

/* Up to so many rows the caller does row-wise work itself: a wake-up
   costs more than the work. */
#define CPU_ALONE_ROWS 4u

typedef struct cpu_memory {
    uint64_t backend, pool, runner, attn, engine;
    uint64_t residual; /* [row_max][hidden] */
    uint64_t xp;       /* [row_max][xp_stride] packed */
    uint64_t q, k, v;  /* [row_max][heads * head_dim] */
    uint64_t att;      /* [row_max][nhead_q * head_dim] */
    uint64_t hidden;   /* [CPU_FFN_ROWS][hidden_stride] packed */
    uint64_t logits;   /* [CPU_LOGITS_ROWS][vocab] */
    uint64_t rope;     /* [context_max][head_dim] */
    uint64_t panel;    /* per SM: panel_stride floats */
    uint64_t item;     /* per SM: two tiles of CPU_ITEM_ROWS x CPU_ITEM_OUTS */
    uint64_t sampler;  /* per SM: sampler_sz bytes */
    uint64_t kv_scale; /* [layer][K, V][scale, its inverse][nhead_kv]; nothing unless fp8 */
    uint64_t kv;       /* [layer][K, V] pools of kv_pool_sz bytes */
    uint64_t end;
    uint64_t sampler_sz;
    uint64_t kv_pool_sz;
} cpu_memory_t;

typedef struct tdm_cpu {
    tdm_backend_t base; /* first: the door's handle */
    tdm_backend_config_t config;
    const tdm_weights_t *weights;
    tdm_arena_t own_arena; /* where the caller gave none */
    tdm_sm_pool_t *pool;
    tdm_runner_t *runner; /* computes; NULL where not ahead: finish does */
    tdm_cpu_attn_t *attn;
    tdm_engine_t *engine;
    tdm_linear_fn_t linear;
    tdm_kv_layout_t kv_layout;

    float *residual, *xp, *q, *k, *v, *att, *hidden, *logits, *rope, *panel, *item;
    float *kv_scale; /* NULL unless fp8 */
    uint8_t *sampler, *kv;
    uint64_t xp_stride, hidden_stride, panel_stride, sampler_sz, kv_pool_sz;

    TDM_ALIGNED(TDM_CACHE_LINE) uint64_t ticket; /* all SMs draw from it */
} tdm_cpu_t;

extern const tdm_engine_ops_t tdm_cpu_ops;

/* tdm_cpu_item_fn_t does one item of a draw. */
typedef void tdm_cpu_item_fn_t(void *ctx, uint64_t item, uint32_t sm);

/* tdm_cpu_draw hands out the items [0, cnt) by ticket to all SMs and
   returns when all are done. */
void tdm_cpu_draw(tdm_cpu_t *cpu, uint64_t cnt, tdm_cpu_item_fn_t *fn, void *ctx);

/* tdm_cpu_project runs linear layers over packed rows. */
typedef enum cpu_project_kind {
    CPU_STORE,  /* y[part] = x * w[part] for up to three parts */
    CPU_ADD,    /* y[0] += x * w[0] */
    CPU_SWIGLU, /* y[0] = silu(x * w[0]) * (x * w[1]), packed */
} cpu_project_kind_t;

typedef struct cpu_project {
    cpu_project_kind_t kind;
    uint32_t row_cnt;
    const float *xp;
    uint64_t xp_stride;
    uint32_t in;
    uint32_t part_cnt; /* of STORE */
    struct {
        const tdm_bf16_t *w; /* [out, in]; NULL: fp8 */
        uint32_t out;
        float *y; /* [row_cnt, y_stride] */
        uint64_t y_stride;
        const tdm_fp8_matrix_t *fp8;
    } part[3];
} cpu_project_t;

void tdm_cpu_project(tdm_cpu_t *cpu, const cpu_project_t *p);

#endif /* TDM_KERNELS_CPU_PRIVATE_H */
