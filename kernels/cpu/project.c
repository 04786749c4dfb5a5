/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers as work items: CPU_ITEM_ROWS rows by CPU_ITEM_OUTS
   outputs, drawn by ticket.  Which SM takes an item changes no bit. */
#include "appliance/base/atomic.h"
#include "appliance/base/size.h"
#include "kernels/cpu/cpu_private.h"
#include "kernels/cpu/norm.h"

typedef struct draw {
    tdm_cpu_t *cpu;
    uint64_t cnt;
    tdm_cpu_item_fn_t *fn;
    void *ctx;
} draw_t;

static void draw_on_sm(void *ctx, uint32_t sm) {
    draw_t *d = (draw_t *)ctx;
    for (;;) {
        /* Relaxed: the launch and its return order everything else. */
        uint64_t item = tdm_add_relaxed(&d->cpu->ticket, 1);
        if (item >= d->cnt) return;
        d->fn(d->ctx, item, sm);
    }
}

void tdm_cpu_draw(tdm_cpu_t *cpu, uint64_t cnt, tdm_cpu_item_fn_t *fn, void *ctx) {
    if (cnt == 1) {
        fn(ctx, 0, 0);
        return;
    }
    draw_t d = {.cpu = cpu, .cnt = cnt, .fn = fn, .ctx = ctx};
    tdm_store_relaxed(&cpu->ticket, 0);
    (void)tdm_sm_draw(cpu->pool, draw_on_sm, &d);
}

typedef struct job {
    tdm_cpu_t *cpu;
    const cpu_project_t *p;
    uint64_t items_per_chunk; /* over all parts that are items of their own */
} job_t;

/* run_tile computes rows x outs of part `idx` into y. */
static void run_tile(const job_t *j, uint32_t idx, uint32_t row, uint32_t row_cnt, uint32_t out,
                     uint32_t out_cnt, float *y, uint64_t y_stride, uint32_t sm) {
    const cpu_project_t *p = j->p;
    tdm_linear_tile_t t = {.xp = p->xp + row * p->xp_stride,
                           .xp_stride = p->xp_stride,
                           .in = p->in,
                           .row_cnt = row_cnt,
                           .out_cnt = out_cnt,
                           .y = y,
                           .y_stride = y_stride,
                           .panel = j->cpu->panel + sm * j->cpu->panel_stride};
    uint64_t at = (uint64_t)out * p->in;
    if (p->part[idx].w)
        t.w = p->part[idx].w + at;
    else
        t.fp8 = (tdm_fp8_matrix_t){p->part[idx].fp8->code + at, p->part[idx].fp8->scale + out};
    j->cpu->linear(&t);
}

static void project_item(void *ctx, uint64_t item, uint32_t sm) {
    const job_t *j = (const job_t *)ctx;
    const cpu_project_t *p = j->p;
    uint32_t row = (uint32_t)(item / j->items_per_chunk) * CPU_ITEM_ROWS;
    uint32_t row_cnt = TDM_MIN(p->row_cnt - row, CPU_ITEM_ROWS);
    uint64_t left = item % j->items_per_chunk;
    uint32_t idx = 0;
    while (left >= tdm_ceil_div(p->part[idx].out, CPU_ITEM_OUTS))
        left -= tdm_ceil_div(p->part[idx++].out, CPU_ITEM_OUTS);
    uint32_t out = (uint32_t)left * CPU_ITEM_OUTS;
    uint32_t out_cnt = TDM_MIN(p->part[idx].out - out, CPU_ITEM_OUTS);
    uint64_t y_stride = p->part[idx].y_stride;
    float *y = p->part[idx].y + row * y_stride;
    float *first = j->cpu->item + (uint64_t)sm * 2 * CPU_ITEM_ROWS * CPU_ITEM_OUTS;
    float *second = first + CPU_ITEM_ROWS * CPU_ITEM_OUTS;
    switch (p->kind) {
    case CPU_STORE: run_tile(j, idx, row, row_cnt, out, out_cnt, y + out, y_stride, sm); break;
    case CPU_ADD:
        run_tile(j, idx, row, row_cnt, out, out_cnt, first, CPU_ITEM_OUTS, sm);
        for (uint32_t r = 0; r < row_cnt; r++)
            for (uint32_t o = 0; o < out_cnt; o++)
                y[r * y_stride + out + o] += first[r * CPU_ITEM_OUTS + o];
        break;
    case CPU_SWIGLU:
        run_tile(j, 0, row, row_cnt, out, out_cnt, first, CPU_ITEM_OUTS, sm);
        run_tile(j, 1, row, row_cnt, out, out_cnt, second, CPU_ITEM_OUTS, sm);
        for (uint32_t r = 0; r < row_cnt; r++)
            tdm_cpu_swiglu(first + r * CPU_ITEM_OUTS, second + r * CPU_ITEM_OUTS, out, out_cnt,
                           y + r * y_stride);
        break;
    }
}

void tdm_cpu_project(tdm_cpu_t *cpu, const cpu_project_t *p) {
    job_t j = {.cpu = cpu, .p = p};
    uint32_t part_cnt = p->kind == CPU_STORE ? p->part_cnt : 1;
    for (uint32_t i = 0; i < part_cnt; i++)
        j.items_per_chunk += tdm_ceil_div(p->part[i].out, CPU_ITEM_OUTS);
    tdm_cpu_draw(cpu, j.items_per_chunk * tdm_ceil_div(p->row_cnt, CPU_ITEM_ROWS), project_item,
                 &j);
}
