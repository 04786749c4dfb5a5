/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/numerics/model/rig.h"

#include "appliance/abi/fp8.h"
#include "appliance/base/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- weights -------------------------------------------------------- */

static tdm_bf16_t to_bf16(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (tdm_bf16_t)((bits + 0x8000u) >> 16);
}

static tdm_bf16_t *matrix(uint64_t out, uint64_t in, float scale, tdm_rng_t *rng) {
    tdm_bf16_t *w = malloc(out * in * sizeof *w);
    TDM_CHECK(w != NULL);
    for (uint64_t i = 0; i < out * in; i++)
        w[i] = to_bf16((float)(tdm_rng_unit(tdm_rng_next(rng)) * 2.0 - 1.0) * scale);
    return w;
}

static float *gains(uint32_t cnt, tdm_rng_t *rng) {
    float *g = malloc(cnt * sizeof *g);
    TDM_CHECK(g != NULL);
    for (uint32_t i = 0; i < cnt; i++)
        g[i] = 0.5f + (float)tdm_rng_below(rng, 256) / 256.0f; /* exact in bf16 */
    return g;
}

tdm_weights_t *rig_weights_make(const tdm_shape_t *shape, uint64_t seed) {
    tdm_rng_t rng = {seed};
    tdm_weights_t *w = calloc(1, sizeof *w);
    TDM_CHECK(w != NULL);
    w->shape = *shape;
    uint32_t hidden = shape->hidden, ffn = shape->ffn;
    uint32_t q = shape->nhead_q * shape->head_dim, kv = shape->nhead_kv * shape->head_dim;
    float by_hidden = 1.7f / sqrtf((float)hidden), by_q = 1.7f / sqrtf((float)q);
    w->embed = matrix(shape->vocab, hidden, shape->is_tied ? 2 * by_hidden : 1.0f, &rng);
    w->out_norm = gains(hidden, &rng);
    w->lm_head = shape->is_tied ? w->embed : matrix(shape->vocab, hidden, 2 * by_hidden, &rng);
    for (uint32_t l = 0; l < shape->layer_cnt; l++) {
        tdm_layer_weights_t *y = &w->layer[l];
        y->attn_norm = gains(hidden, &rng);
        y->wq = matrix(q, hidden, by_hidden, &rng);
        y->wk = matrix(kv, hidden, by_hidden, &rng);
        y->wv = matrix(kv, hidden, by_hidden, &rng);
        y->wo = matrix(hidden, q, by_q, &rng);
        y->ffn_norm = gains(hidden, &rng);
        y->w_gate = matrix(ffn, hidden, by_hidden, &rng);
        y->w_up = matrix(ffn, hidden, by_hidden, &rng);
        y->w_down = matrix(hidden, ffn, 1.7f / sqrtf((float)ffn), &rng);
    }
    return w;
}

static void release(const void *p) {
    free((void *)(uintptr_t)p);
}

/* coded makes codes of a matrix and frees it. */
static tdm_fp8_matrix_t coded(const tdm_bf16_t **w, uint64_t out, uint64_t in) {
    uint8_t *code = malloc(out * in);
    float *scale = malloc(out * sizeof *scale), *row = malloc(in * sizeof *row);
    TDM_CHECK(code && scale && row);
    for (uint64_t o = 0; o < out; o++) {
        for (uint64_t i = 0; i < in; i++) {
            uint32_t bits = (uint32_t)(*w)[o * in + i] << 16;
            memcpy(&row[i], &bits, sizeof bits);
        }
        scale[o] = tdm_fp8_row(row, in, code + o * in);
    }
    free(row);
    release(*w);
    *w = NULL;
    return (tdm_fp8_matrix_t){.code = code, .scale = scale};
}

void rig_weights_fp8(tdm_weights_t *w) {
    const tdm_shape_t *s = &w->shape;
    uint64_t q = (uint64_t)s->nhead_q * s->head_dim, kv = (uint64_t)s->nhead_kv * s->head_dim;
    w->dtype = TDM_WEIGHT_FP8;
    for (uint32_t l = 0; l < s->layer_cnt; l++) {
        tdm_layer_weights_t *y = &w->layer[l];
        y->fp8[TDM_MATRIX_Q] = coded(&y->wq, q, s->hidden);
        y->fp8[TDM_MATRIX_K] = coded(&y->wk, kv, s->hidden);
        y->fp8[TDM_MATRIX_V] = coded(&y->wv, kv, s->hidden);
        y->fp8[TDM_MATRIX_O] = coded(&y->wo, s->hidden, q);
        y->fp8[TDM_MATRIX_GATE] = coded(&y->w_gate, s->ffn, s->hidden);
        y->fp8[TDM_MATRIX_UP] = coded(&y->w_up, s->ffn, s->hidden);
        y->fp8[TDM_MATRIX_DOWN] = coded(&y->w_down, s->hidden, s->ffn);
    }
}

void rig_weights_free(tdm_weights_t *w) {
    if (w->lm_head != w->embed) release(w->lm_head);
    release(w->embed);
    release(w->out_norm);
    for (uint32_t l = 0; l < w->shape.layer_cnt; l++) {
        tdm_layer_weights_t *y = &w->layer[l];
        const void *all[] = {y->attn_norm, y->wq,     y->wk,   y->wv,    y->wo,
                             y->ffn_norm,  y->w_gate, y->w_up, y->w_down};
        for (size_t i = 0; i < TDM_COUNT_OF(all); i++) release(all[i]);
        for (size_t i = 0; i < TDM_MATRIX_CNT; i++) {
            release(y->fp8[i].code);
            release(y->fp8[i].scale);
        }
    }
    free(w);
}

/* --- streams -------------------------------------------------------- */

void rig_stream_make(rig_stream_t *s, uint32_t prompt_cnt, uint32_t out_max, uint32_t vocab,
                     int is_greedy, tdm_rng_t *rng) {
    memset(s, 0, sizeof *s);
    TDM_CHECK(prompt_cnt + out_max <= RIG_TOKEN_MAX);
    s->prompt_cnt = prompt_cnt;
    s->out_max = out_max;
    for (uint32_t i = 0; i < prompt_cnt; i++) s->token[i] = (int32_t)tdm_rng_below(rng, vocab);
    s->sampling =
        (tdm_sampling_t){.seed = tdm_rng_next(rng), .top_p = 1.0f, .repetition_penalty = 1.0f};
    if (is_greedy) return;
    s->sampling.temperature = 0.5f + (float)tdm_rng_below(rng, 100) / 100.0f;
    if (tdm_rng_below(rng, 2)) s->sampling.top_p = 0.8f;
    if (tdm_rng_below(rng, 2)) s->sampling.top_k = 1 + (int32_t)tdm_rng_below(rng, 20);
    if (tdm_rng_below(rng, 2)) s->sampling.min_p = 0.05f;
    if (tdm_rng_below(rng, 2)) {
        s->sampling.repetition_penalty = 1.2f;
        s->sampling.presence_penalty = 0.3f;
        s->sampling.frequency_penalty = 0.1f;
    }
}

/* --- the scheduler's part ------------------------------------------- */

typedef struct seat {
    uint32_t slot;
    uint32_t pos;  /* next input position */
    uint64_t last; /* iteration that ran it last */
    uint32_t page_cnt;
    uint32_t page[(RIG_TOKEN_MAX + 63) / 64];
    enum { SEAT_OUT, SEAT_IN, SEAT_ENDED, SEAT_GONE } state;
} seat_t;

typedef struct rig {
    const tdm_backend_config_t *config;
    tdm_rng_t *rng;
    tdm_plan_t *plan;   /* the one being made */
    uint64_t planned;   /* iterations */
    uint64_t collected; /* of them */
    seat_t *seat;
    uint32_t *free_page, free_page_cnt;
    uint32_t free_slot[TDM_SEQ_MAX], free_slot_cnt;
} rig_t;

static int flip(rig_t *g, uint32_t one_in) {
    return g->rng ? tdm_rng_below(g->rng, one_in) == 0 : 0;
}

static uint32_t take(rig_t *g, uint32_t *pile, uint32_t *cnt) {
    TDM_CHECK(*cnt > 0);
    uint32_t i = g->rng ? tdm_rng_below(g->rng, *cnt) : *cnt - 1;
    uint32_t got = pile[i];
    pile[i] = pile[--*cnt];
    return got;
}

static void leave(rig_t *g, seat_t *t) {
    g->plan->close[g->plan->close_cnt++] = t->slot;
    for (uint32_t i = 0; i < t->page_cnt; i++) g->free_page[g->free_page_cnt++] = t->page[i];
    g->free_slot[g->free_slot_cnt++] = t->slot;
    t->state = SEAT_GONE;
}

static void enter(rig_t *g, seat_t *t, const rig_stream_t *s) {
    t->slot = take(g, g->free_slot, &g->free_slot_cnt);
    t->state = SEAT_IN;
    g->plan->open[g->plan->open_cnt++] =
        (tdm_plan_open_t){.slot = t->slot, .prompt_cnt = s->prompt_cnt, .sampling = s->sampling};
}

/* grow makes room for positions [0, until). */
static void grow(rig_t *g, seat_t *t, uint32_t until) {
    tdm_plan_t *p = g->plan;
    tdm_plan_grant_t grant = {.slot = t->slot, .page_off = p->page_cnt};
    while (t->page_cnt * TDM_KV_PAGE_TOKENS < until) {
        uint32_t page = take(g, g->free_page, &g->free_page_cnt);
        t->page[t->page_cnt++] = page;
        p->page[p->page_cnt++] = page;
        grant.page_cnt++;
    }
    if (grant.page_cnt > 0) p->grant[p->grant_cnt++] = grant;
}

/* has_room: whole lifetimes are reserved, so nobody can get stuck. */
static int has_room(const rig_t *g, const rig_stream_t *s, uint32_t promised) {
    uint32_t need = (s->prompt_cnt + s->out_max + 63) / 64;
    return g->free_slot_cnt > 0 && g->free_page_cnt >= promised + need;
}

/* run_inputs plans a seat's next inputs.  Two under way: the token that a
   decode runs on may not be known, nor that it was the last. */
static void run_inputs(rig_t *g, seat_t *t, const rig_stream_t *s) {
    tdm_plan_t *p = g->plan;
    if (t->pos >= s->prompt_cnt) {
        grow(g, t, t->pos + 1);
        p->decode[p->decode_cnt++] = (tdm_plan_decode_t){.slot = t->slot, .pos = t->pos++};
        t->last = p->iteration;
        return;
    }
    uint32_t room = g->config->token_max - p->token_cnt;
    if (room == 0 || p->slice_cnt == TDM_PLAN_SLICE_MAX) return;
    uint32_t cnt = TDM_MIN(s->prompt_cnt - t->pos, room);
    if (g->rng && !flip(g, 4)) cnt = 1 + tdm_rng_below(g->rng, cnt);
    grow(g, t, t->pos + cnt);
    p->slice[p->slice_cnt++] = (tdm_plan_slice_t){.slot = t->slot,
                                                  .pos = t->pos,
                                                  .cnt = cnt,
                                                  .token_off = p->token_cnt,
                                                  .is_last = t->pos + cnt == s->prompt_cnt};
    memcpy(p->token + p->token_cnt, s->token + t->pos, cnt * sizeof *p->token);
    p->token_cnt += cnt;
    t->pos += cnt;
    t->last = p->iteration;
}

static uint32_t pick_route(rig_t *g) {
    const tdm_plan_t *p = g->plan;
    if (p->slice_cnt == 0 && p->decode_cnt == 0) return TDM_ROUTE_IDLE;
    if (p->decode_cnt == 0) return TDM_ROUTE_PREFILL_ONLY;
    if (p->slice_cnt == 0) return TDM_ROUTE_DECODE_ONLY;
    return TDM_ROUTE_FUSED + (g->rng ? tdm_rng_below(g->rng, 3) : 0);
}

static void build(rig_t *g, const rig_stream_t *streams, uint32_t cnt) {
    tdm_plan_t *p = g->plan;
    memset(p, 0, offsetof(tdm_plan_t, close));
    p->iteration = ++g->planned;
    uint32_t promised = 0;
    for (uint32_t i = 0; i < cnt; i++) {
        seat_t *t = &g->seat[i];
        if (t->state == SEAT_ENDED && t->last <= g->collected) leave(g, t);
        if (t->state == SEAT_IN)
            promised += (streams[i].prompt_cnt + streams[i].out_max + 63) / 64 - t->page_cnt;
    }
    for (uint32_t i = 0; i < cnt; i++) {
        seat_t *t = &g->seat[i];
        if (t->state != SEAT_OUT || flip(g, 2) || !has_room(g, &streams[i], promised)) continue;
        enter(g, t, &streams[i]);
        promised += (streams[i].prompt_cnt + streams[i].out_max + 63) / 64;
    }
    uint32_t start = g->rng ? tdm_rng_below(g->rng, cnt) : 0;
    for (uint32_t n = 0; n < cnt; n++) {
        uint32_t i = (start + n) % cnt;
        if (g->seat[i].state == SEAT_IN && !flip(g, 3)) run_inputs(g, &g->seat[i], &streams[i]);
    }
    p->route = pick_route(g);
}

static uint32_t owner_of(const rig_t *g, uint32_t slot, uint32_t cnt) {
    for (uint32_t i = 0; i < cnt; i++)
        if ((g->seat[i].state == SEAT_IN || g->seat[i].state == SEAT_ENDED) &&
            g->seat[i].slot == slot)
            return i;
    TDM_CHECK(0);
    return 0;
}

static void collect(rig_t *g, const tdm_plan_t *p, const tdm_result_t *r, rig_stream_t *streams,
                    uint32_t cnt, rig_total_t *total) {
    uint32_t next = 0;
    TDM_CHECK(r->iteration == p->iteration && r->iteration == ++g->collected);
    for (uint32_t i = 0; i < p->slice_cnt + p->decode_cnt; i++) {
        int is_slice = i < p->slice_cnt;
        const tdm_plan_decode_t *d = &p->decode[i - p->slice_cnt];
        uint32_t slot = is_slice ? p->slice[i].slot : d->slot;
        uint32_t pos = is_slice ? p->slice[i].pos + p->slice[i].cnt : d->pos + 1;
        if (is_slice && !p->slice[i].is_last) continue;
        uint32_t at = owner_of(g, slot, cnt);
        seat_t *t = &g->seat[at];
        rig_stream_t *s = &streams[at];
        const tdm_result_sample_t *got = &r->sample[next++];
        TDM_CHECK(got->slot == slot && got->pos == pos);
        if (t->state == SEAT_ENDED) { /* computed past the end */
            if (total) total->past_cnt++;
            continue;
        }
        if (total && total->sampled) total->sampled(total->ctx, at, pos, next - 1);
        s->token[pos] = got->token;
        s->logprob[pos] = got->logprob;
        s->flags[pos] = got->flags;
        if (++s->out_cnt == s->out_max) t->state = SEAT_ENDED;
    }
    TDM_CHECK(next == r->sample_cnt);
}

static void add(rig_total_t *total, const tdm_result_t *r) {
    if (!total) return;
    total->iteration_cnt++;
    total->route_cnt[r->route]++;
    for (int k = 0; k < TDM_KIND_CNT; k++) {
        total->vcta_planned[k] += r->vcta_planned[k];
        total->vcta_executed[k] += r->vcta_executed[k];
    }
}

void rig_drive(tdm_backend_t *b, const tdm_backend_config_t *config, rig_stream_t *streams,
               uint32_t cnt, tdm_rng_t *rng, rig_total_t *total) {
    rig_t g = {.config = config, .rng = rng};
    uint32_t depth = tdm_backend_info(b)->depth;
    tdm_plan_t *plan = calloc(depth, sizeof *plan);
    tdm_result_t *result = calloc(depth, sizeof *result);
    tdm_error_t err = {0};
    g.seat = calloc(cnt, sizeof *g.seat);
    g.free_page = calloc(config->kv_page_cnt, sizeof *g.free_page);
    TDM_CHECK(plan && result && g.seat && g.free_page);
    for (uint32_t i = 0; i < config->kv_page_cnt; i++) g.free_page[g.free_page_cnt++] = i;
    for (uint32_t i = 0; i < config->seq_max; i++) g.free_slot[g.free_slot_cnt++] = i;
    for (uint32_t gone = 0, turn = 0; gone < cnt; turn++) {
        TDM_CHECK(turn < 100000);
        gone = 0;
        for (uint32_t i = 0; i < cnt; i++) gone += g.seat[i].state == SEAT_GONE;
        if (gone < cnt) {
            g.plan = &plan[g.planned % depth];
            build(&g, streams, cnt);
            if (tdm_backend_start(b, g.plan, &result[(g.planned - 1) % depth], &err) != TDM_OK)
                tdm_check_failed(err.text, __FILE__, __LINE__);
            if (g.planned - g.collected < depth) continue;
        }
        while (g.collected < g.planned) {
            uint32_t at = (uint32_t)(g.collected % depth);
            if (tdm_backend_finish(b, &err) != TDM_OK)
                tdm_check_failed(err.text, __FILE__, __LINE__);
            add(total, &result[at]);
            collect(&g, &plan[at], &result[at], streams, cnt, total);
            if (gone < cnt) break;
        }
    }
    free(plan);
    free(result);
    free(g.seat);
    free(g.free_page);
}

tdm_backend_t *rig_backend(const tdm_weights_t *w, const tdm_backend_config_t *config) {
    tdm_backend_t *b;
    tdm_error_t err = {0};
    if (tdm_backend_cpu_create(w, config, NULL, &b, &err) != TDM_OK)
        tdm_check_failed(err.text, __FILE__, __LINE__);
    return b;
}
