/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/measure/grid.h"

#include "appliance/base/size.h"

#include <stdio.h>

typedef struct pair {
    uint32_t pop_depth, depth;
} pair_t;

/* In the order of their worth: shallow populations tell what batch and
   chunk cost, 1,024 deep ones are the usual conversation.  Stages with one
   population stand together: it is built once. */
static const pair_t computed[] = {
    {0, 0},       {0, 1024},     {1024, 0},     {1024, 1024}, {256, 0},   {256, 1024}, {4096, 0},
    {4096, 1024}, {16384, 1024}, {65536, 1024}, {0, 4096},    {0, 16384}, {0, 65536}};

/* Of executors on which a population costs nothing: what a card that is
   worth its price does all day comes first. */
static const pair_t opened[] = {
    {0, 0},     {4096, 0}, {4096, 4096}, {1024, 1024}, {16384, 0},    {16384, 16384}, {0, 4096},
    {0, 16384}, {256, 0},  {0, 1024},    {8192, 8192}, {65536, 1024}, {0, 65536}};

#define KV_MIN      2048u      /* first entry of the S axis that is not 0 */
#define KV_MAX      (1u << 20) /* no population of more */
#define SHALLOW     512u       /* room of a shallow sequence */
#define SHALLOW_CNT 192u       /* of them, where they are opened: each token more is S */

/* The chunk axis of the table from 16 on, without those that lie between in
   no step. */
static const uint32_t ladder[] = {16, 64, 128, 256, 512, 1024, 1536, 2048};

static uint32_t pages_of(const tdm_measure_limits_t *l, uint64_t tok) {
    return (uint32_t)tdm_ceil_div(TDM_MIN(tok, l->context_max), TDM_KV_PAGE_TOKENS);
}

/* pop_max gives how many decodes of a depth there can be beside the
   prefill slot. */
static uint32_t pop_max(const tdm_measure_limits_t *l, int is_slow, uint32_t pop_depth,
                        uint32_t depth) {
    uint32_t own = pages_of(l, (uint64_t)depth + depth / 2u + l->token_max);
    uint32_t each = pages_of(l, tdm_grid_page_tok(l, pop_depth));
    if (l->kv_page_cnt < own + each) return 0;
    uint32_t most = TDM_MIN((l->kv_page_cnt - own) / each, l->seq_max - 1u);
    if (l->is_filled) return TDM_MIN(most, pop_depth ? KV_MAX / pop_depth : SHALLOW_CNT);
    /* deep ones cost their prefill: enough for S, no more */
    uint32_t enough = is_slow ? TDM_MAX(8192u / (pop_depth + 1u), 2u) : 16384u / (pop_depth + 1u);
    return TDM_MIN(most, pop_depth ? TDM_MAX(enough + 1u, 4u >> is_slow) : 64u);
}

uint32_t tdm_grid_pop(const tdm_measure_limits_t *l, uint32_t pop_depth, uint32_t depth) {
    return pop_max(l, 0, pop_depth, depth);
}

static void add(tdm_grid_stage_t *s, tdm_grid_shape_t shape) {
    if (s->shape_cnt < TDM_GRID_SHAPE_MAX) s->shape[s->shape_cnt++] = shape;
}

/* alone adds prefill without decodes. */
static void alone(const tdm_measure_limits_t *l, tdm_grid_stage_t *s) {
    static const uint32_t small[] = {1, 2, 4, 8, 32};
    static const struct {
        uint32_t from, to, step;
    } rows[] = {{24, 56, 8}, {80, 240, 16}, {320, 1984, 64}};
    static const uint32_t chunk[] = {16, 64, 128, 256, 512, 1024, 2048, 4096};
    for (uint32_t i = 0; i < TDM_COUNT_OF(small); i++)
        if (s->depth == 0 && small[i] <= l->token_max)
            add(s, (tdm_grid_shape_t){.chunk = small[i]});
    for (uint32_t i = 0; i < TDM_COUNT_OF(chunk); i++)
        if (chunk[i] <= l->token_max)
            add(s, (tdm_grid_shape_t){.chunk = chunk[i], .depth = s->depth});
    /* products go in tiles: every step of theirs that lin has an entry for */
    for (uint32_t i = 0; i < TDM_COUNT_OF(rows) && l->is_filled && s->depth == 0; i++)
        for (uint32_t n = rows[i].from; n <= TDM_MIN(rows[i].to, l->token_max); n += rows[i].step)
            if (n & (n - 1u)) add(s, (tdm_grid_shape_t){.chunk = n});
}

/* is_compared says whether streams and serial are timed at batch b too. */
static int is_compared(uint32_t b, uint32_t pop, int is_slow) {
    return b == pop || (!is_slow && b == TDM_MAX(pop / 8u, 1u));
}

/* is_beside says whether batch b of a population is timed beside prefill. */
static int is_beside(const tdm_measure_limits_t *l, uint32_t b, uint32_t pop, int is_slow) {
    uint32_t lg = 31u - (uint32_t)__builtin_clz(b);
    if (l->is_filled && !is_slow) return 1;
    return is_compared(b, pop, is_slow) || lg % (is_slow ? 3u : 2u) == 0;
}

/* batch_after gives the next batch size of a population, past it the last. */
static uint32_t batch_after(uint32_t b, uint32_t pop) {
    return b < pop ? TDM_MIN(2u * b, pop) : 2u * b;
}

/* hybrids adds decodes alone, where no stage before had the population, and
   beside prefill.  The other variants differ from fused by a factor that a
   few shapes tell. */
static void hybrids(const tdm_measure_limits_t *l, int is_slow, int is_new, tdm_grid_stage_t *s) {
    static const uint32_t some[] = {16, 64, 512, 2048}, few[] = {16, 64, 256};
    const uint32_t *chunk = is_slow ? few : some;
    uint32_t cnt = is_slow ? TDM_COUNT_OF(few) : TDM_COUNT_OF(some);
    for (uint32_t b = 1; b <= s->pop_cnt; b = batch_after(b, s->pop_cnt)) {
        uint64_t kv = (uint64_t)b * s->pop_depth;
        if (kv > 0 && kv < KV_MIN) continue;
        tdm_grid_shape_t one = {.batch = b, .kv = (uint32_t)kv};
        if (is_new) add(s, one);
        if (!is_beside(l, b, s->pop_cnt, is_slow)) continue;
        for (uint32_t i = 0; i < cnt; i++) {
            uint32_t others = is_compared(b, s->pop_cnt, is_slow) && chunk[i] >= 64;
            if (chunk[i] > l->token_max || (s->pop_depth && chunk[i] < 64)) continue;
            one.chunk = chunk[i];
            one.depth = s->depth;
            for (one.variant = 0; one.variant < TDM_PROFILE_VARIANT_CNT; one.variant++)
                if (one.variant == 0 || others) add(s, one);
        }
    }
}

uint32_t tdm_grid_drift(uint32_t pop_depth) {
    return TDM_MIN(pop_depth / 4u, 256u);
}

uint32_t tdm_grid_page_tok(const tdm_measure_limits_t *l, uint32_t pop_depth) {
    if (pop_depth == 0) return SHALLOW;
    return l->is_filled ? pop_depth + tdm_grid_drift(pop_depth) + 1u : 2u * pop_depth;
}

uint32_t tdm_grid_between(uint32_t low, uint32_t high) {
    uint32_t from = 0, to = 0;
    for (uint32_t i = 0; i < TDM_COUNT_OF(ladder); i++) {
        if (ladder[i] <= low) from = i;
        if (ladder[i] <= high) to = i;
    }
    return to > from + 1u && ladder[from] == low && ladder[to] == high ? ladder[(from + to) / 2u]
                                                                       : 0;
}

int tdm_grid_stage(const tdm_measure_limits_t *l, int is_slow, uint32_t k, tdm_grid_stage_t *s) {
    *s = (tdm_grid_stage_t){0};
    const pair_t *plan_of = l->is_filled ? opened : computed;
    uint32_t cnt = l->is_filled ? TDM_COUNT_OF(opened) : TDM_COUNT_OF(computed);
    for (uint32_t i = 0; i < cnt; i++) {
        uint32_t pop_depth = plan_of[i].pop_depth, depth = plan_of[i].depth;
        uint64_t reach = (uint64_t)depth + depth / 2u + l->token_max;
        if (2ull * pop_depth > l->context_max || (depth && reach > l->context_max)) continue;
        if (is_slow && pop_depth == 256) continue;
        uint32_t most = pop_max(l, is_slow, pop_depth, depth), pop = 1;
        if (most == 0) continue;
        while (pop * 2u <= most) pop *= 2u;
        if (pop_depth == 0 && most >= pop + pop / 2u && pop >= 32) pop += pop / 2u;
        if (pop_depth && (uint64_t)pop * pop_depth < KV_MIN) continue;
        if (k-- > 0) continue;
        s->pop_cnt = pop;
        s->pop_depth = pop_depth;
        s->depth = depth;
        (void)snprintf(s->name, sizeof s->name, "%u decodes, %u deep, prefill at %u", pop,
                       pop_depth, depth);
        if (pop_depth == 0) alone(l, s);
        uint32_t before = 0;
        while (plan_of[before].pop_depth != pop_depth) before++;
        hybrids(l, is_slow, before == i, s);
        return 1;
    }
    return 0;
}
