/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/measure/rig.h"

#include "appliance/base/size.h"

#include <string.h>

#define SHALLOW_TOK 1u /* prompt of a decode that shall read next to nothing */

void tdm_rig_init(tdm_rig_t *rig, const tdm_measure_ask_t *ask) {
    memset(rig, 0, sizeof *rig);
    rig->ask = ask;
    rig->began_ns = ask->now(ask->ctx);
}

int64_t tdm_rig_spent(const tdm_rig_t *rig) {
    return rig->ask->now(rig->ask->ctx) - rig->began_ns;
}

static uint32_t prefill_slot(const tdm_rig_t *rig) {
    return rig->ask->limits.seq_max - 1u;
}

/* --- one plan --------------------------------------------------------- */

static tdm_plan_t *begin(tdm_rig_t *rig) {
    tdm_plan_t *p = rig->ask->plan;
    uint32_t epoch = p->epoch;
    memset(p, 0, offsetof(tdm_plan_t, close));
    p->iteration = ++rig->iteration;
    p->epoch = epoch;
    p->route = TDM_ROUTE_IDLE;
    return p;
}

static void add_close(tdm_rig_t *rig, uint32_t k) {
    if (!rig->slot[k].is_open) return;
    tdm_plan_t *p = rig->ask->plan;
    p->close[p->close_cnt++] = k;
    rig->slot[k].is_open = 0;
}

/* add_open opens a slot that has its pages, after closing it, with filled
   tokens taken as computed, a multiple of TDM_KV_PAGE_TOKENS. */
static void add_open(tdm_rig_t *rig, uint32_t k, uint32_t filled) {
    tdm_plan_t *p = rig->ask->plan;
    tdm_rig_slot_t *s = &rig->slot[k];
    add_close(rig, k);
    p->open[p->open_cnt++] = (tdm_plan_open_t){
        .slot = k,
        .prompt_cnt = 1,
        .filled_cnt = filled,
        .sampling = {.top_p = 1.0f, .repetition_penalty = 1.0f, .flags = TDM_SAMPLING_IGNORE_EOS}};
    p->grant[p->grant_cnt++] =
        (tdm_plan_grant_t){.slot = k, .page_off = p->page_cnt, .page_cnt = s->page_cnt};
    for (uint32_t i = 0; i < s->page_cnt; i++) p->page[p->page_cnt++] = s->page_off + i;
    s->is_open = 1;
    s->pos = filled;
    s->is_known = 0;
}

/* filled_of gives how much of depth a slot opens with: at least one token
   is computed, from which it goes on. */
static uint32_t filled_of(const tdm_rig_t *rig, uint32_t depth) {
    if (!rig->ask->limits.is_filled || depth == 0) return 0;
    return (depth - 1u) / TDM_KV_PAGE_TOKENS * TDM_KV_PAGE_TOKENS;
}

static void add_slice(tdm_rig_t *rig, uint32_t k, uint32_t cnt, uint32_t is_last) {
    tdm_plan_t *p = rig->ask->plan;
    tdm_rig_slot_t *s = &rig->slot[k];
    p->slice[p->slice_cnt++] = (tdm_plan_slice_t){
        .slot = k, .pos = s->pos, .cnt = cnt, .token_off = p->token_cnt, .is_last = is_last};
    for (uint32_t i = 0; i < cnt; i++)
        p->token[p->token_cnt++] =
            (int32_t)(((s->pos + i) * 2654435761u >> 7) % rig->ask->limits.vocab);
    s->pos += cnt;
    s->is_known = is_last;
}

static void add_decode(tdm_rig_t *rig, uint32_t k) {
    tdm_plan_t *p = rig->ask->plan;
    p->decode[p->decode_cnt++] = (tdm_plan_decode_t){.slot = k, .pos = rig->slot[k].pos};
    rig->slot[k].pos++;
}

static tdm_status_t go(tdm_rig_t *rig, uint32_t route, tdm_error_t *err) {
    const tdm_measure_ask_t *a = rig->ask;
    if (a->plan->slice_cnt)
        a->plan->route = a->plan->decode_cnt ? route : (uint32_t)TDM_ROUTE_PREFILL_ONLY;
    else if (a->plan->decode_cnt)
        a->plan->route = TDM_ROUTE_DECODE_ONLY;
    return a->run(a->ctx, a->plan, a->result, err);
}

/* --- pages -------------------------------------------------------------- */

/* Decodes take pages from the front of the pool, the prefill slot from its
   end, so that it can have more without giving any back. */
static tdm_status_t reserve(tdm_rig_t *rig, uint32_t k, uint32_t tok, tdm_error_t *err) {
    const tdm_measure_limits_t *l = &rig->ask->limits;
    tdm_rig_slot_t *s = &rig->slot[k];
    uint32_t pages = (uint32_t)tdm_ceil_div(TDM_MIN(tok, l->context_max), TDM_KV_PAGE_TOKENS);
    uint32_t is_prefill = k == prefill_slot(rig);
    if (s->page_cnt >= pages) return TDM_OK;
    if (pages > l->kv_page_cnt - rig->page_used ||
        (rig->slot[prefill_slot(rig)].page_cnt > l->kv_page_cnt - rig->page_used - pages &&
         !is_prefill))
        return tdm_error_set(err, TDM_ERR_LIMIT, "measure: the KV pool of %u pages is too small",
                             l->kv_page_cnt);
    s->page_off = is_prefill ? l->kv_page_cnt - pages : rig->page_used;
    s->page_cnt = pages;
    if (!is_prefill) rig->page_used += pages;
    return TDM_OK;
}

tdm_status_t tdm_rig_close(tdm_rig_t *rig, tdm_error_t *err) {
    (void)begin(rig);
    for (uint32_t k = 0; k < rig->ask->limits.seq_max; k++) {
        add_close(rig, k);
        rig->slot[k].page_cnt = 0;
    }
    rig->page_used = 0;
    return go(rig, TDM_ROUTE_IDLE, err);
}

/* --- the population ------------------------------------------------------- */

/* grow gives slots their slices until all are at depth; as many slots in
   one plan as its bounds allow. */
static tdm_status_t grow(tdm_rig_t *rig, uint32_t cnt, uint32_t depth, tdm_error_t *err) {
    tdm_status_t st = TDM_OK;
    for (uint32_t k = 0; k < cnt && st == TDM_OK;) {
        tdm_plan_t *p = begin(rig);
        while (k < cnt && p->slice_cnt < TDM_PLAN_SLICE_MAX &&
               p->token_cnt < rig->ask->limits.token_max) {
            tdm_rig_slot_t *s = &rig->slot[k];
            uint32_t room = rig->ask->limits.token_max - p->token_cnt;
            if (!s->is_open) {
                if (s->page_cnt > TDM_PLAN_PAGE_MAX - p->page_cnt) break;
                add_open(rig, k, filled_of(rig, depth));
            }
            if (s->pos >= depth && s->is_known) {
                k++;
                continue;
            }
            uint32_t left = s->pos < depth ? depth - s->pos : 1u;
            add_slice(rig, k, TDM_MIN(left, room), left <= room);
            if (left > room) break;
            k++;
        }
        st = go(rig, TDM_ROUTE_FUSED, err);
    }
    return st;
}

tdm_status_t tdm_rig_populate(tdm_rig_t *rig, uint32_t cnt, uint32_t depth, uint32_t page_tok,
                              tdm_error_t *err) {
    tdm_status_t st = TDM_OK;
    for (uint32_t k = 0; k < cnt && st == TDM_OK; k++)
        if (!rig->slot[k].is_open) st = reserve(rig, k, page_tok, err);
    return st == TDM_OK ? grow(rig, cnt, TDM_MAX(depth, SHALLOW_TOK), err) : st;
}

tdm_status_t tdm_rig_reset(tdm_rig_t *rig, uint32_t cnt, uint32_t page_tok, tdm_error_t *err) {
    (void)begin(rig);
    for (uint32_t k = 0; k < cnt; k++) add_close(rig, k);
    tdm_status_t st = go(rig, TDM_ROUTE_IDLE, err);
    return st == TDM_OK ? tdm_rig_populate(rig, cnt, SHALLOW_TOK, page_tok, err) : st;
}

/* --- the prefill slot ------------------------------------------------------- */

/* place opens the prefill slot at depth, in a plan of its own. */
static tdm_status_t place(tdm_rig_t *rig, uint32_t depth, tdm_error_t *err) {
    (void)begin(rig);
    add_open(rig, prefill_slot(rig), depth);
    return go(rig, TDM_ROUTE_IDLE, err);
}

/* deepen brings the prefill slot to where a slice of chunk tokens lies
   about depth: depth 0 needs a new slot each time, and the plan that is
   being written opens it. */
static tdm_status_t deepen(tdm_rig_t *rig, uint32_t chunk, uint32_t depth, tdm_error_t *err) {
    const tdm_measure_limits_t *l = &rig->ask->limits;
    uint32_t k = prefill_slot(rig), low = depth / 2u, high = depth + low;
    tdm_rig_slot_t *s = &rig->slot[k];
    tdm_status_t st = TDM_OK;
    if (s->is_open && (uint64_t)s->page_cnt * TDM_KV_PAGE_TOKENS < (uint64_t)high + l->token_max) {
        (void)begin(rig); /* a deeper stage: it needs more pages, from the start */
        add_close(rig, k);
        st = go(rig, TDM_ROUTE_IDLE, err);
    }
    if (st == TDM_OK) st = reserve(rig, k, high + l->token_max, err);
    if (st != TDM_OK || depth == 0) return st;
    if (l->is_filled) {
        int is_near = s->is_open && s->pos >= depth && s->pos - depth <= depth / 32u;
        return is_near ? TDM_OK : place(rig, depth, err);
    }
    if (s->is_open && s->pos >= low && s->pos + chunk / 2u <= high) return TDM_OK;
    if (s->is_open && s->pos > low) {
        (void)begin(rig);
        add_close(rig, k);
        st = go(rig, TDM_ROUTE_IDLE, err);
    }
    while (st == TDM_OK && (!s->is_open || s->pos < low)) {
        (void)begin(rig);
        if (!s->is_open) add_open(rig, k, 0);
        add_slice(rig, k, TDM_MIN(low - s->pos, l->token_max), 0);
        st = go(rig, TDM_ROUTE_FUSED, err);
    }
    return st;
}

tdm_status_t tdm_rig_time(tdm_rig_t *rig, const tdm_grid_shape_t *shape, tdm_rig_sample_t *sample,
                          tdm_error_t *err) {
    const tdm_result_t *r = rig->ask->result;
    *sample = (tdm_rig_sample_t){0};
    if (shape->chunk) {
        tdm_status_t st = deepen(rig, shape->chunk, shape->depth, err);
        if (st != TDM_OK) return st;
    }
    (void)begin(rig);
    if (shape->chunk) {
        uint32_t k = prefill_slot(rig);
        if (shape->depth == 0) add_open(rig, k, 0);
        sample->depth = rig->slot[k].pos;
        add_slice(rig, k, shape->chunk, 0);
    }
    for (uint32_t i = 0; i < shape->batch; i++) {
        sample->kv += rig->slot[i].pos + 1u;
        add_decode(rig, i);
    }
    tdm_status_t st = go(rig, TDM_ROUTE_FUSED + shape->variant, err);
    if (st != TDM_OK) return st;
    sample->total_ns = (double)(r->end_ns - r->start_ns);
    sample->attention_ns = (double)r->attention_ns;
    sample->clock_khz = r->sm_clock_khz;
    return TDM_OK;
}

tdm_status_t tdm_rig_idle(tdm_rig_t *rig, double *ns, tdm_error_t *err) {
    (void)begin(rig);
    tdm_status_t st = go(rig, TDM_ROUTE_IDLE, err);
    *ns = (double)(rig->ask->result->end_ns - rig->ask->result->start_ns);
    return st;
}
