/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/measure/measure_private.h"

#include "scheduler/predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS_EXPECTED 5u    /* for where a growing depth should start */
#define SHALLOW_KV      1024u /* tokens of a shallow population: half of the first entry of S */
#define ROUND_MIN       2u    /* of every stage that is begun; of the first, one more */
#define SLOW_NS         0.5e9 /* of 512 tokens: with more a fine grid takes an hour */
#define CHEAP_NS        0.1e9 /* an iteration that is timed CHEAP_CNT times a round */
#define CHEAP_CNT       3u
#define CHECK_ROUNDS    5u   /* samples of a shape that only checks the table */
#define CHECK_SHARE     0.06 /* of the budget, kept for what is drawn */
#define END_SHARE       0.98 /* of the budget: nothing is begun later */
#define RAW_MAX         (TDM_GRID_STAGE_MAX * TDM_GRID_SHAPE_MAX)
#define BENT            0.03 /* of a time: farther off a straight line, two more shapes are due */

static void tell(const measure_t *m) {
    const tdm_measure_ask_t *a = m->ask;
    double share = a->budget_ns > 0 ? (double)tdm_rig_spent(&m->rig) / (double)a->budget_ns : 1.0;
    if (a->progress) a->progress(a->ctx, fmin(share, 1.0), m->stage.name, m->raw_cnt);
}

/* is_over: so much of the budget is spent. */
static int is_over(const measure_t *m, double share) {
    return (double)tdm_rig_spent(&m->rig) >= share * (double)m->ask->budget_ns;
}

/* --- one stage ------------------------------------------------------------ */

/* is_deep_at_once: the population is opened where it shall be. */
static int is_deep_at_once(const measure_t *m) {
    return m->ask->limits.is_filled && m->stage.pop_depth > 0;
}

/* build makes the population; a deep one starts as far below its nominal
   depth as it will grow while it is timed, halved. */
static tdm_status_t build(measure_t *m, tdm_error_t *err) {
    const tdm_grid_stage_t *s = &m->stage;
    uint32_t growth = s->shape_cnt * ROUNDS_EXPECTED / 2u, low = s->pop_depth / 2u;
    uint32_t start = s->pop_depth > low + growth ? s->pop_depth - growth : low;
    if (is_deep_at_once(m)) start = s->pop_depth - tdm_grid_drift(s->pop_depth);
    uint32_t page_tok = tdm_grid_page_tok(&m->ask->limits, s->pop_depth);
    tdm_status_t st = TDM_OK;
    if (m->pop_depth != s->pop_depth || m->pop_cnt > s->pop_cnt) st = tdm_rig_close(&m->rig, err);
    m->pop_depth = s->pop_depth;
    m->pop_cnt = s->pop_cnt;
    tell(m);
    return st == TDM_OK ? tdm_rig_populate(&m->rig, s->pop_cnt, start, page_tok, err) : st;
}

/* again takes a population back that outgrew its depth by half. */
static tdm_status_t again(measure_t *m, tdm_error_t *err) {
    const tdm_grid_stage_t *s = &m->stage;
    uint32_t deepest = m->rig.slot[0].pos;
    if (s->pop_depth == 0) {
        uint32_t most = TDM_MAX(SHALLOW_KV, 8u * s->pop_cnt);
        if (s->pop_cnt * deepest < most && deepest < SHALLOW_KV / 2u) return TDM_OK;
        return tdm_rig_reset(&m->rig, s->pop_cnt, tdm_grid_page_tok(&m->ask->limits, 0), err);
    }
    if (is_deep_at_once(m)) {
        if (deepest < s->pop_depth + tdm_grid_drift(s->pop_depth)) return TDM_OK;
        m->pop_depth = 0; /* build opens it anew */
        return build(m, err);
    }
    if (deepest < s->pop_depth + s->pop_depth / 2u) return TDM_OK;
    tdm_status_t st =
        tdm_rig_reset(&m->rig, s->pop_cnt, tdm_grid_page_tok(&m->ask->limits, s->pop_depth), err);
    return st == TDM_OK ? build(m, err) : st;
}

static tdm_status_t time_one(measure_t *m, raw_t *r, tdm_error_t *err) {
    tdm_rig_sample_t sample;
    tdm_status_t st = again(m, err);
    if (st == TDM_OK) st = tdm_rig_time(&m->rig, &r->shape, &sample, err);
    if (st != TDM_OK) return st;
    r->total[r->cnt] = sample.total_ns;
    r->attention[r->cnt++] = sample.attention_ns;
    if (sample.clock_khz > 0) m->clock_khz[m->clock_cnt++ % CLOCK_MAX] = sample.clock_khz;
    r->depth_sum += sample.depth;
    r->kv_sum += (double)sample.kv;
    return TDM_OK;
}

/* --- shapes beside the points ---------------------------------------------- */

/* draw gives a number in [low, high], by its logarithm, low > 0. */
static uint32_t draw(measure_t *m, uint32_t low, uint32_t high) {
    double part = tdm_rng_unit(tdm_rng_next(&m->rng));
    if (high <= low) return high;
    return TDM_MIN((uint32_t)(low * pow((high + 1.0) / low, part)), high);
}

/* look times one shape that the table is not made from. */
static tdm_status_t look(measure_t *m, const tdm_grid_shape_t *shape, tdm_profile_way_t way,
                         tdm_error_t *err) {
    raw_t r = {.shape = *shape};
    while (r.cnt < CHECK_ROUNDS) {
        tdm_status_t st = time_one(m, &r, err);
        if (st != TDM_OK) return st;
    }
    uint64_t kv = (uint64_t)(r.kv_sum / r.cnt);
    uint32_t depth = (uint32_t)(r.depth_sum / r.cnt);
    m->check[m->check_cnt++] =
        (check_t){.load = {.prefill_cnt = shape->chunk,
                           .decode_cnt = shape->batch,
                           .pair_cnt = tdm_predict_pairs(depth, shape->chunk),
                           .kv_cnt = kv,
                           .kv_max = shape->batch ? kv / shape->batch : 0},
                  .is = {.chunk = shape->chunk,
                         .depth = shape->chunk ? depth : 0,
                         .batch = shape->batch,
                         .kv = (uint32_t)kv,
                         .variant = shape->variant,
                         .ns = tdm_measure_median(r.total, r.cnt)},
                  .way = way};
    return TDM_OK;
}

/* look_drawn draws the rest of shape i beside the population that stands. */
static tdm_status_t look_drawn(measure_t *m, uint32_t i, uint32_t depth, tdm_error_t *err) {
    static const tdm_profile_way_t way[POP_CHECK_CNT] = {
        TDM_PROFILE_WAY_FUSED,   TDM_PROFILE_WAY_FUSED,   TDM_PROFILE_WAY_SERIAL,
        TDM_PROFILE_WAY_STREAMS, TDM_PROFILE_WAY_DECODES, TDM_PROFILE_WAY_FUSED,
        TDM_PROFILE_WAY_PREFILL, TDM_PROFILE_WAY_SERIAL,  TDM_PROFILE_WAY_STREAMS,
        TDM_PROFILE_WAY_DECODES, TDM_PROFILE_WAY_FUSED,   TDM_PROFILE_WAY_PREFILL};
    tdm_grid_shape_t shape = {.variant = way[i] < TDM_PROFILE_VARIANT_CNT ? way[i] : 0};
    if (way[i] != TDM_PROFILE_WAY_DECODES) {
        shape.chunk = draw(m, 16, m->ask->limits.token_max);
        shape.depth = depth;
    }
    if (way[i] != TDM_PROFILE_WAY_PREFILL) shape.batch = draw(m, 1, m->stage.pop_cnt);
    return look(m, &shape, way[i], err);
}

/* look_beside draws shapes at the depths of the stage. */
static tdm_status_t look_beside(measure_t *m, tdm_error_t *err) {
    tdm_status_t st = TDM_OK;
    if (m->ask->limits.is_filled) return st;
    for (uint32_t i = 0; i < (m->is_slow ? 2u : CHECK_CNT) && st == TDM_OK; i++)
        st = look_drawn(m, i, m->stage.depth, err);
    return st;
}

/* look_around draws populations, and shapes beside each, over all that was
   measured. */
static tdm_status_t look_around(measure_t *m, tdm_error_t *err) {
    const tdm_measure_limits_t *l = &m->ask->limits;
    const reach_t *reach = &m->reach;
    uint32_t deepest = reach->depth;
    tdm_status_t st = TDM_OK;
    for (uint32_t k = 0; k < POP_CNT && st == TDM_OK && !is_over(m, END_SHARE); k++) {
        uint32_t pop_depth = k == 0 ? 0 : draw(m, 256, reach->pop_depth);
        m->stage.pop_depth = pop_depth;
        m->stage.pop_cnt = TDM_MIN(tdm_grid_pop(l, pop_depth, deepest), reach->batch);
        if (pop_depth) m->stage.pop_cnt = TDM_MIN(m->stage.pop_cnt, reach->kv / pop_depth);
        if (m->stage.pop_cnt == 0 || (pop_depth && reach->pop_depth == 0)) continue;
        (void)snprintf(m->stage.name, sizeof m->stage.name, "%u decodes, %u deep, drawn",
                       m->stage.pop_cnt, pop_depth);
        st = build(m, err);
        for (uint32_t i = 0; i < POP_CHECK_CNT && st == TDM_OK && !is_over(m, END_SHARE); i++) {
            uint32_t depth = i % 3u ? draw(m, TDM_KV_PAGE_TOKENS, deepest) : 0;
            st = look_drawn(m, i, depth / TDM_KV_PAGE_TOKENS * TDM_KV_PAGE_TOKENS, err);
            tell(m);
        }
    }
    return st;
}

/* is_cheap: another sample costs next to nothing, and there is room for it.
   Most gaps are as short as these. */
static int is_cheap(const raw_t *r) {
    return r->cnt > 0 && r->cnt < TDM_MEASURE_ROUND_MAX && r->total[r->cnt - 1u] < CHEAP_NS;
}

/* --- more shapes where it is worth it ---------------------------------------- */

/* is_line: two shapes that differ in nothing but prefill tokens. */
static int is_line(const tdm_grid_shape_t *a, const tdm_grid_shape_t *b) {
    return a->batch == b->batch && a->kv == b->kv && a->depth == b->depth &&
           a->variant == b->variant && a->chunk > 0 && b->chunk > 0;
}

/* next_on finds the shape of raw[0, cnt) that follows raw[i] on its line; cnt:
   none. */
static uint32_t next_on(const raw_t *raw, uint32_t cnt, uint32_t i) {
    uint32_t best = cnt;
    for (uint32_t k = 0; k < cnt; k++)
        if (is_line(&raw[k].shape, &raw[i].shape) && raw[k].shape.chunk > raw[i].shape.chunk &&
            (best == cnt || raw[k].shape.chunk < raw[best].shape.chunk))
            best = k;
    return best;
}

/* add_between gives the stage the shape between two of a line. */
static void add_between(measure_t *m, raw_t *raw, const raw_t *a, const raw_t *b, uint32_t most) {
    uint32_t chunk = tdm_grid_between(a->shape.chunk, b->shape.chunk);
    tdm_grid_stage_t *s = &m->stage;
    if (chunk == 0 || s->shape_cnt >= most) return;
    tdm_grid_shape_t shape = a->shape;
    shape.chunk = chunk;
    for (uint32_t i = 0; i < s->shape_cnt; i++)
        if (is_line(&s->shape[i], &shape) && s->shape[i].chunk == chunk) return;
    raw[s->shape_cnt] = (raw_t){.shape = shape};
    s->shape[s->shape_cnt++] = shape;
    m->raw_cnt++;
}

/* refine looks at every three neighbours of a line.  No stage may take more
   than its part of what the coarse grid leaves. */
static void refine(measure_t *m, raw_t *raw) {
    uint32_t cnt = m->stage.shape_cnt;
    uint32_t left = TDM_MEASURE_POINT_MAX - TDM_MIN(m->coarse_cnt, TDM_MEASURE_POINT_MAX);
    uint32_t most = TDM_MIN(cnt + left / TDM_MAX(m->stage_cnt, 1u), TDM_GRID_SHAPE_MAX);
    for (uint32_t i = 0; i < cnt && !m->is_slow; i++) {
        uint32_t at = next_on(raw, cnt, i), end = at < cnt ? next_on(raw, cnt, at) : cnt;
        if (end == cnt) continue;
        double from = tdm_measure_median(raw[i].total, raw[i].cnt),
               to = tdm_measure_median(raw[end].total, raw[end].cnt);
        double mid = tdm_measure_median(raw[at].total, raw[at].cnt);
        double part = (double)(raw[at].shape.chunk - raw[i].shape.chunk) /
                      (double)(raw[end].shape.chunk - raw[i].shape.chunk);
        if (fabs(from + (to - from) * part - mid) <= BENT * mid) continue;
        add_between(m, raw, &raw[i], &raw[at], most);
        add_between(m, raw, &raw[at], &raw[end], most);
    }
}

/* run_stage times all shapes of the stage, ROUND_MIN times and then as often as
   until_ns of executor time allows.  Streams and serial get every second
   round: they are there to be compared with fused. */
static tdm_status_t run_stage(measure_t *m, int64_t until_ns, tdm_error_t *err) {
    raw_t *raw = m->raw + m->raw_cnt;
    int is_first = raw == m->raw;
    m->raw_cnt += m->stage.shape_cnt;
    for (uint32_t i = 0; i < m->stage.shape_cnt; i++) raw[i] = (raw_t){.shape = m->stage.shape[i]};
    uint32_t least = is_first ? ROUND_MIN + 1u : ROUND_MIN;
    tdm_status_t st = build(m, err);
    for (uint32_t round = 0; round < TDM_MEASURE_ROUND_MAX && st == TDM_OK; round++) {
        for (uint32_t i = 0; i < m->stage.shape_cnt && st == TDM_OK; i++) {
            if (round >= least && tdm_rig_spent(&m->rig) >= until_ns) return look_beside(m, err);
            if (!is_first && is_over(m, END_SHARE - CHECK_SHARE)) return TDM_OK;
            if ((round % 2u && raw[i].shape.variant) || raw[i].cnt == TDM_MEASURE_ROUND_MAX)
                continue;
            for (uint32_t k = 0; k == 0 || (k < CHEAP_CNT && is_cheap(&raw[i])); k++)
                if (st == TDM_OK) st = time_one(m, &raw[i], err);
            tell(m);
        }
        if (round + 1u == ROUND_MIN && st == TDM_OK) refine(m, raw);
    }
    return st == TDM_OK ? look_beside(m, err) : st;
}

/* --- the run ----------------------------------------------------------------- */

/* find_pace runs a long slice three times: it warms caches and pages, and
   tells how fine a grid is affordable. */
static tdm_status_t find_pace(measure_t *m, tdm_error_t *err) {
    tdm_rig_sample_t sample = {0};
    tdm_grid_shape_t shape = {.chunk = TDM_MIN(m->ask->limits.token_max, 512u)};
    tdm_status_t st = TDM_OK;
    for (uint32_t i = 0; i < 3 && st == TDM_OK; i++)
        st = tdm_rig_time(&m->rig, &shape, &sample, err);
    m->is_slow = sample.total_ns * 512.0 / shape.chunk > SLOW_NS;
    return st;
}

/* reach notes how far the stage went. */
static void reach(measure_t *m) {
    const tdm_grid_stage_t *s = &m->stage;
    m->reach.depth = TDM_MAX(m->reach.depth, s->depth);
    m->reach.pop_depth = TDM_MAX(m->reach.pop_depth, s->pop_depth);
    m->reach.batch = TDM_MAX(m->reach.batch, s->pop_cnt);
    m->reach.kv = TDM_MAX(m->reach.kv, s->pop_cnt * s->pop_depth);
}

static tdm_status_t all_stages(measure_t *m, double *fixed_ns, tdm_error_t *err) {
    double idle[TDM_MEASURE_ROUND_MAX];
    tdm_status_t st = tdm_rig_close(&m->rig, err);
    for (uint32_t i = 0; i < TDM_MEASURE_ROUND_MAX && st == TDM_OK; i++)
        st = tdm_rig_idle(&m->rig, &idle[i], err);
    if (st != TDM_OK) return st;
    *fixed_ns = fmax(tdm_measure_median(idle, TDM_MEASURE_ROUND_MAX), 0.0);
    st = find_pace(m, err);
    while (tdm_grid_stage(&m->ask->limits, m->is_slow, m->stage_cnt, &m->stage)) {
        m->stage_cnt++;
        for (uint32_t i = 0; i < m->stage.shape_cnt; i++)
            m->coarse_cnt += tdm_measure_point_cnt(m, &m->stage.shape[i]);
    }
    for (uint32_t k = 0; k < m->stage_cnt && st == TDM_OK; k++) {
        (void)tdm_grid_stage(&m->ask->limits, m->is_slow, k, &m->stage);
        /* what is timed beside the points comes after them */
        int64_t spent = tdm_rig_spent(&m->rig);
        int64_t left = (int64_t)((END_SHARE - CHECK_SHARE) * (double)m->ask->budget_ns) - spent;
        if (left <= 0 && k > 0) break;
        st = run_stage(m, spent + left / (int64_t)(m->stage_cnt - k), err);
        reach(m);
    }
    if (st == TDM_OK && m->ask->limits.is_filled) st = look_around(m, err);
    return st == TDM_OK ? tdm_rig_close(&m->rig, err) : st;
}

tdm_status_t tdm_measure_run(const tdm_measure_ask_t *ask, tdm_profile_set_t *set,
                             tdm_error_t *err) {
    const tdm_measure_limits_t *l = &ask->limits;
    if (l->seq_max < 2 || l->seq_max > TDM_SEQ_MAX || l->token_max == 0 ||
        l->token_max > TDM_PLAN_TOKEN_MAX || l->vocab == 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "measure: needs two sequences and tokens");
    measure_t *m = calloc(1, sizeof *m);
    if (m) m->raw = calloc(RAW_MAX, sizeof *m->raw);
    tdm_status_t st = TDM_ERR_NOMEM;
    if (m && m->raw) {
        m->ask = ask;
        tdm_profile_axes(&m->table);
        tdm_rig_init(&m->rig, ask);
        set->split_max = 1;
        set->stair_from = ask->stair_from;
        st = all_stages(m, &set->fixed_ns, err);
        if (st == TDM_OK) st = tdm_measure_points(m, set, err);
    } else {
        (void)tdm_error_set(err, st, "measure: no memory");
    }
    if (m) free(m->raw);
    free(m);
    return st;
}
