/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/attention.h"

#include <string.h>

#include "appliance/base/atomic.h"
#include "appliance/base/check.h"
#include "appliance/base/clock.h"
#include "kernels/cpu/attention_private.h"
#include "kernels/cpu/isa.h"

static uint32_t row_max(const tdm_cpu_attn_config_t *c) {
    uint32_t group = c->nhead_q / c->kv.nhead_kv;
    return TDM_MAX(group, TDM_ATTN_TILE_ROWS);
}

static uint32_t stride_of(const tdm_cpu_attn_config_t *c) {
    return (uint32_t)tdm_size_align(c->kv.head_dim, TDM_ATTN_PAD);
}

/* Takes cnt elements of sz bytes off the block at *off; NULL where mem is
   NULL, which only measures. */
static void *take(uint8_t *mem, uint64_t *off, uint64_t cnt, uint64_t sz) {
    void *p = mem ? mem + *off : NULL;
    *off = tdm_size_align(*off + cnt * sz, TDM_CACHE_LINE);
    return p;
}

static float *take_floats(uint8_t *mem, uint64_t *off, uint64_t cnt) {
    return take(mem, off, cnt, sizeof(float));
}

static tdm_attn_rows_t take_rows(uint8_t *mem, uint64_t *off, uint32_t rows, uint32_t stride) {
    return (tdm_attn_rows_t){.o = take_floats(mem, off, (uint64_t)rows * stride),
                             .m = take_floats(mem, off, rows),
                             .l = take_floats(mem, off, rows)};
}

/* The scratch of one SM. */
static void carve_sm(uint8_t *mem, uint64_t *off, const tdm_cpu_attn_config_t *c,
                     tdm_attn_sm_t *sm) {
    uint32_t rows = row_max(c);
    uint32_t stride = stride_of(c);
    sm->tile.q = take_floats(mem, off, (uint64_t)rows * stride);
    sm->tile.s = take_floats(mem, off, (uint64_t)rows * TDM_KV_PAGE_TOKENS);
    sm->tile.k_copy = take_floats(mem, off, (uint64_t)TDM_KV_PAGE_TOKENS * stride);
    sm->tile.v_copy = take_floats(mem, off, (uint64_t)TDM_KV_PAGE_TOKENS * stride);
    sm->acc = take_rows(mem, off, rows, stride);
    sm->part = take_rows(mem, off, rows, stride);
}

/* The pieces of the memory block, in order; mem may be NULL to measure. */
static uint64_t carve(uint8_t *mem, const tdm_cpu_attn_config_t *c) {
    uint64_t off = 0;
    tdm_cpu_attn_t *a = take(mem, &off, 1, sizeof(tdm_cpu_attn_t));
    tdm_attn_sm_t *sm = take(mem, &off, c->sm_cnt, sizeof(tdm_attn_sm_t));
    tdm_ticket_line_t *drawn = take(mem, &off, c->sm_cnt, sizeof(tdm_ticket_line_t));
    uint32_t *arrived = take(mem, &off, c->merge_max, sizeof(uint32_t));
    float *part = take_floats(mem, &off, c->part_float_max);
    for (uint32_t i = 0; i < c->sm_cnt; i++) {
        tdm_attn_sm_t unused;
        carve_sm(mem, &off, c, sm ? &sm[i] : &unused);
    }
    if (a) {
        a->sm = sm;
        a->drawn = drawn;
        a->arrived = arrived;
        a->part = part;
    }
    return off;
}

tdm_status_t tdm_cpu_attn_footprint(const tdm_cpu_attn_config_t *c, uint64_t *bytes_out,
                                    tdm_error_t *err) {
    const tdm_kv_layout_t *kv = &c->kv;
    *bytes_out = 0;
    if (kv->nhead_kv == 0 || c->nhead_q == 0 || c->nhead_q % kv->nhead_kv) {
        return tdm_error_set(err, TDM_ERR_INVAL, "attention: %u query heads over %u KV heads",
                             c->nhead_q, kv->nhead_kv);
    }
    if (c->nhead_q / kv->nhead_kv > TDM_ATTN_GROUP_MAX) {
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "attention: %u query heads per KV head, at most %d",
                             c->nhead_q / kv->nhead_kv, TDM_ATTN_GROUP_MAX);
    }
    if (kv->head_dim == 0 || kv->head_dim % 2 || kv->head_dim > TDM_HEAD_DIM_MAX) {
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "attention: head dimension %u, need an even one up to %d",
                             kv->head_dim, TDM_HEAD_DIM_MAX);
    }
    if (kv->dtype >= TDM_KV_DTYPE_CNT || c->sm_cnt == 0 || c->sm_cnt > TDM_SM_MAX ||
        c->part_float_max > UINT64_MAX / 64) {
        return tdm_error_set(err, TDM_ERR_INVAL, "attention: KV type %u or %u SMs out of range",
                             kv->dtype, c->sm_cnt);
    }
    *bytes_out = carve(NULL, c);
    return TDM_OK;
}

const tdm_attn_ops_t *tdm_attn_ops_of(uint32_t isa) {
    switch (isa) {
#if defined(__x86_64__)
    case TDM_CPU_ISA_AVX2: return &tdm_attn_ops_avx2;
    case TDM_CPU_ISA_AVX512: return &tdm_attn_ops_avx512;
#endif
    default: return &tdm_attn_ops_scalar;
    }
}

tdm_status_t tdm_cpu_attn_init(void *mem, const tdm_cpu_attn_config_t *config,
                               tdm_cpu_attn_t **attn_out, tdm_error_t *err) {
    *attn_out = NULL;
    uint64_t bytes;
    tdm_status_t status = tdm_cpu_attn_footprint(config, &bytes, err);
    if (status) return status;
    uint32_t isa;
    status = tdm_cpu_isa_resolve(config->isa, &isa, err);
    if (status) return status;
    if (tdm_sm_pool_cnt(config->pool) != config->sm_cnt) {
        return tdm_error_set(err, TDM_ERR_INVAL, "attention: sized for %u SMs, the pool has %u",
                             config->sm_cnt, tdm_sm_pool_cnt(config->pool));
    }
    tdm_cpu_attn_t *a = mem;
    memset(a, 0, sizeof *a);
    a->config = *config;
    a->config.isa = isa;
    a->ops = tdm_attn_ops_of(isa);
    a->group = config->nhead_q / config->kv.nhead_kv;
    a->stride = stride_of(config);
    carve(mem, config);
    for (uint32_t i = 0; i < config->sm_cnt; i++) {
        tdm_attn_tile_t *t = &a->sm[i].tile;
        t->group = a->group;
        t->stride = a->stride;
        t->kv = &a->config.kv;
    }
    *attn_out = a;
    return TDM_OK;
}

#define RUNNING_BITS 10 /* holds TDM_SM_MAX */
#define RUNNING_MASK ((UINT64_C(1) << RUNNING_BITS) - 1)

static int64_t active_time(uint64_t word) {
    return (int64_t)word >> RUNNING_BITS;
}

static uint64_t active_word(int64_t time, uint64_t running) {
    return (uint64_t)time << RUNNING_BITS | running;
}

/* active_at reads the kind's active time at now. */
static int64_t active_at(const tdm_attn_active_t *a, int64_t now) {
    uint64_t word = tdm_load_relaxed(&a->word);
    return active_time(word) + (word & RUNNING_MASK ? now : 0);
}

static void active_begin(tdm_attn_active_t *a, int64_t now) {
    uint64_t word = tdm_load_relaxed(&a->word);
    uint64_t next;
    do {
        uint64_t running = word & RUNNING_MASK;
        next = active_word(active_time(word) - (running ? 0 : now), running + 1);
    } while (!tdm_cas_acq_rel(&a->word, &word, next));
}

static void active_end(tdm_attn_active_t *a, int64_t now) {
    uint64_t word = tdm_load_relaxed(&a->word);
    uint64_t next;
    do {
        uint64_t running = word & RUNNING_MASK;
        next = active_word(active_time(word) + (running == 1 ? now : 0), running - 1);
    } while (!tdm_cas_acq_rel(&a->word, &word, next));
}

/* Runs and counts one item.  It was colocated for as long as the other
   kind was active meanwhile; clocks of two cores may disagree by a few
   ns, hence the clamp. */
static void item_run(tdm_cpu_attn_t *a, uint32_t sm_idx, uint32_t kind, uint32_t index) {
    tdm_attn_sm_t *sm = &a->sm[sm_idx];
    const tdm_attn_active_t *other = &a->active[kind ^ 1u];
    int64_t start = tdm_clock_now_ns() - a->start_ns;
    int64_t other_before = active_at(other, start);
    active_begin(&a->active[kind], start);
    tdm_attn_item_run(a, sm, &a->launch->plan->item[kind][index]);
    int64_t end = tdm_clock_now_ns() - a->start_ns;
    int64_t both = active_at(other, end) - other_before;
    active_end(&a->active[kind], end);
    sm->item_cnt[kind]++;
    sm->item_ns[kind] += (uint64_t)(end - start);
    sm->colocated_ns += (uint64_t)TDM_MIN(TDM_MAX(both, 0), end - start);
}

/* FUSED, and what has one kind only. */
static void sm_draw(void *ctx, uint32_t sm) {
    tdm_cpu_attn_t *a = ctx;
    uint32_t index;
    for (;;) {
        uint32_t kind = tdm_ticket_draw(&a->ticket, &a->deal, &a->drawn[sm], sm, &index);
        if (kind == TDM_TICKET_NONE) return;
        item_run(a, sm, kind, index);
    }
}

static void sm_take_all(tdm_cpu_attn_t *a, uint32_t sm, uint32_t kind) {
    uint32_t index;
    while ((index = tdm_ticket_take(&a->ticket, &a->deal, kind)) != TDM_TICKET_NONE) {
        item_run(a, sm, kind, index);
    }
}

/* STREAMS: two groups, each with its kind; a single SM is both. */
static void sm_stream(void *ctx, uint32_t sm) {
    tdm_cpu_attn_t *a = ctx;
    if (sm < a->decode_sm || a->config.sm_cnt == 1) sm_take_all(a, sm, TDM_KIND_PREFILL);
    if (sm >= a->decode_sm || a->config.sm_cnt == 1) sm_take_all(a, sm, TDM_KIND_DECODE);
}

static void deal(tdm_cpu_attn_t *a, uint32_t prefill_cnt, uint32_t decode_cnt) {
    a->deal = (tdm_ticket_deal_t){.item_cnt = {prefill_cnt, decode_cnt},
                                  .policy = TDM_TICKET_PROPORTIONAL};
}

/* phase_drawn needs no particular SM: whoever comes in time draws, and
   one whose core is busy is not waited for. */
static void phase_drawn(tdm_cpu_attn_t *a, uint32_t prefill_cnt, uint32_t decode_cnt) {
    deal(a, prefill_cnt, decode_cnt);
    (void)tdm_sm_draw(a->config.pool, sm_draw, a);
    tdm_ticket_reset(&a->ticket, a->drawn, a->config.sm_cnt);
}

/* phase_streams needs both groups. */
static void phase_streams(tdm_cpu_attn_t *a, uint32_t prefill_cnt, uint32_t decode_cnt) {
    deal(a, prefill_cnt, decode_cnt);
    a->decode_sm = (a->config.sm_cnt + 1) / 2;
    tdm_sm_run(a->config.pool, sm_stream, a);
    tdm_ticket_reset(&a->ticket, a->drawn, a->config.sm_cnt);
}

static void run_route(tdm_cpu_attn_t *a, const tdm_attn_plan_t *p) {
    uint32_t prefill = p->item_cnt[TDM_KIND_PREFILL];
    uint32_t decode = p->item_cnt[TDM_KIND_DECODE];
    switch (p->route) {
    case TDM_ROUTE_SERIAL:
        phase_drawn(a, prefill, 0);
        phase_drawn(a, 0, decode);
        break;
    case TDM_ROUTE_STREAMS: phase_streams(a, prefill, decode); break;
    default: phase_drawn(a, prefill, decode); break;
    }
}

/* Moves what the SMs did into stats and clears it. */
static void collect(tdm_cpu_attn_t *a, const tdm_attn_plan_t *p, tdm_attn_stats_t *stats) {
    for (uint32_t i = 0; i < a->config.sm_cnt; i++) {
        tdm_attn_sm_t *sm = &a->sm[i];
        for (uint32_t kind = 0; kind < TDM_KIND_CNT; kind++) {
            stats->vcta_executed[kind] += sm->item_cnt[kind];
            stats->vcta_ns[kind] += sm->item_ns[kind];
            sm->item_cnt[kind] = 0;
            sm->item_ns[kind] = 0;
        }
        stats->merge_cnt += sm->merge_cnt;
        stats->colocated_ns += sm->colocated_ns;
        sm->merge_cnt = 0;
        sm->colocated_ns = 0;
    }
    for (uint32_t kind = 0; kind < TDM_KIND_CNT; kind++) {
        stats->vcta_planned[kind] += p->item_cnt[kind];
    }
    if (p->item_cnt[TDM_KIND_PREFILL] > 0) {
        stats->tile_row = p->tile_tok * p->group;
        stats->tile_key = TDM_KV_PAGE_TOKENS;
    }
    stats->split_cnt += p->split_cnt;
    stats->kv_read_bytes += p->kv_read_bytes;
    stats->flops += p->flops;
}

void tdm_cpu_attn_run(tdm_cpu_attn_t *a, const tdm_attn_launch_t *launch, tdm_attn_stats_t *stats) {
    const tdm_attn_plan_t *p = launch->plan;
    TDM_CHECK(p->merge_cnt <= a->config.merge_max);
    TDM_CHECK(p->part_float_cnt <= a->config.part_float_max);
    TDM_CHECK(p->seq_cnt == 0 || p->group == a->group);
    if (p->seq_cnt == 0) return;
    a->launch = launch;
    a->start_ns = tdm_clock_now_ns();
    memset(a->active, 0, sizeof a->active); /* no SM runs: the launch publishes it */
    run_route(a, p);
    a->launch = NULL;
    collect(a, p, stats);
    stats->wall_ns += (uint64_t)(tdm_clock_now_ns() - a->start_ns);
}
