/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/plan/hopper.h"

#include <string.h>

#include "kernels/plan/plan_private.h"

/* Times of an H200 at burst clocks, head_dim 128, from a sweep of shares and
   pieces over 31 batches (NOTES.md of the kernel): a prefill SM takes
   BLOCK_US for 192 rows and 64 keys, and ITEM_US to fill its pipeline,
   PIECE_US more where it leaves partials; BESIDE of all that while others
   decode. */
#define BLOCK_US  0.984f
#define ITEM_US   7.0f
#define PIECE_US  4.0f
#define BESIDE    1.13f
#define SWITCH_US 1.8f  /* from the last work of one kind to the first of the other */
#define LAUNCH_US 5.0f  /* of one more launch */
#define UNSURE    1.04f /* so much longer may prefill items take than foreseen */

/* GB/s that n of 132 SMs draw, in steps of 12 SMs. */
static const uint16_t rate_gbs[] = {0,    1240, 2480, 3490, 3590, 3670,
                                    3790, 3800, 3840, 3860, 4260, 4440};

#define SLOT_MAX 8u /* batches of slots that are free at one time */

/* `cnt` SMs that are free from `us` on. */
typedef struct batch {
    float us;
    uint32_t cnt;
} batch_t;

typedef struct game {
    const tdm_hopper_sum_t *sum;
    batch_t prefill[SLOT_MAX];
    uint32_t prefill_cnt;
    uint32_t left[2]; /* items not begun: whole, pieces */
    float cost[2];
    uint32_t decode_sm;
    float decode_rate; /* MB a microsecond that these draw, */
    float decode_slow; /* and microseconds a MB */
    float decode_mb;   /* bytes left */
    float decode_us;   /* up to when they are counted */
    float end;
} game_t;

/* n SMs decode from now on: their rate, GB/s / 1000. */
static void decode_take(game_t *g, uint32_t n) {
    float at = (float)n * 11.0f / (float)g->sum->sm_cnt;
    uint32_t i = TDM_MIN((uint32_t)at, 10u);
    float part = TDM_MIN(at - (float)i, 1.0f);
    g->decode_sm = n;
    g->decode_rate = ((float)rate_gbs[i] + part * (float)(rate_gbs[i + 1] - rate_gbs[i])) * 1e-3f;
    g->decode_slow = n ? 1.0f / g->decode_rate : 1e30f;
}

/* When decode ends if nothing joins it; far away if nobody works on it. */
static float decode_end(const game_t *g) {
    if (g->decode_mb <= 0.0f) return g->decode_us;
    if (g->decode_sm == 0) return 1e30f;
    return g->decode_us + g->decode_mb * g->decode_slow;
}

/* n SMs begin with decode at time us, before decode_end. */
static void decode_join(game_t *g, float us, uint32_t n) {
    if (us > g->decode_us) {
        g->decode_mb -= (us - g->decode_us) * g->decode_rate;
        g->decode_us = us;
    }
    decode_take(g, g->decode_sm + n);
}

static void prefill_add(game_t *g, float us, uint32_t n) {
    for (uint32_t i = 0; i < g->prefill_cnt; i++) {
        float apart = g->prefill[i].us - us;
        int is_last = g->prefill_cnt == SLOT_MAX && i + 1 == SLOT_MAX;
        if ((apart < 1.0f && apart > -1.0f) || is_last) {
            g->prefill[i].us = TDM_MAX(g->prefill[i].us, us);
            g->prefill[i].cnt += n;
            return;
        }
    }
    g->prefill[g->prefill_cnt++] = (batch_t){us, n};
}

static batch_t prefill_take_first(game_t *g) {
    uint32_t first = 0;
    for (uint32_t i = 1; i < g->prefill_cnt; i++) {
        if (g->prefill[i].us < g->prefill[first].us) first = i;
    }
    batch_t b = g->prefill[first];
    g->prefill[first] = g->prefill[--g->prefill_cnt];
    return b;
}

/* SMs of a batch begin items, longest first; those that find none turn to
   decode, or in two streams stay idle. */
static void play(game_t *g, batch_t b) {
    for (uint32_t i = 0; i < 2 && b.cnt; i++) {
        uint32_t n = TDM_MIN(b.cnt, g->left[i]);
        if (n == 0) continue;
        g->left[i] -= n;
        b.cnt -= n;
        float us = g->cost[i];
        if (g->decode_mb > 0.0f && decode_end(g) > b.us + 0.5f * us) us *= BESIDE;
        prefill_add(g, b.us + us, n);
        g->end = TDM_MAX(g->end, b.us + us);
    }
    if (g->sum->is_apart) return;
    if (b.cnt && decode_end(g) > b.us + SWITCH_US) decode_join(g, b.us + SWITCH_US, b.cnt);
}

/* The whole launch, prefill items taking `slow` times as long as foreseen. */
static float play_launch(const tdm_hopper_sum_t *s, const tdm_hopper_cut_t *c, float slow) {
    game_t g = {.sum = s};
    decode_take(&g, c->share[TDM_KIND_DECODE]);
    uint32_t rest = s->tile_cnt - c->whole_cnt;
    float tile = s->tile_cnt ? (float)s->block_cnt / (float)s->tile_cnt : 0.0f;
    float piece = c->span ? (tile + (float)c->span - 1.0f) / (float)c->span : 1.0f;
    uint32_t cut = TDM_MAX((uint32_t)piece, 1u);
    float block_us = BLOCK_US * slow * (float)s->head_dim / 128.0f;
    g.left[0] = c->whole_cnt * s->nhead_kv;
    g.left[1] = rest * cut * s->nhead_kv;
    g.cost[0] = tile * block_us + ITEM_US;
    g.cost[1] = tile / (float)cut * block_us + ITEM_US + (cut > 1 ? PIECE_US : 0.0f);
    g.decode_mb = (float)s->decode_bytes * 1e-6f;
    if (c->share[TDM_KIND_PREFILL]) prefill_add(&g, 0.0f, c->share[TDM_KIND_PREFILL]);
    int is_decode = g.decode_mb > 0.0f;
    if (!is_decode && g.decode_sm) prefill_add(&g, 0.0f, g.decode_sm);
    /* Each turn takes a batch off or ends decode: a handful of turns. */
    for (uint32_t turn = 0; turn < 4096 && (g.prefill_cnt || is_decode); turn++) {
        float until = is_decode ? decode_end(&g) : 1e30f;
        int is_next = g.prefill_cnt > 0;
        batch_t b = {1e30f, 0};
        if (is_next) b = prefill_take_first(&g);
        if (is_decode && (!is_next || until <= b.us)) {
            if (is_next) prefill_add(&g, b.us, b.cnt);
            g.end = TDM_MAX(g.end, until);
            is_decode = 0;
            g.decode_mb = 0.0f;
            g.decode_us = until;
            if (g.left[0] + g.left[1] && !s->is_apart)
                prefill_add(&g, until + SWITCH_US, g.decode_sm);
            continue;
        }
        play(&g, b);
    }
    return g.end;
}

float tdm_hopper_time(const tdm_hopper_sum_t *s, const tdm_hopper_cut_t *c) {
    return play_launch(s, c, 1.0f);
}

/* Decode items: long ones cost least, but there must be enough to share
   out. */
static uint32_t decode_span(const tdm_hopper_sum_t *s) {
    uint64_t cnt = s->decode_tok * s->nhead_kv / 2048;
    if (cnt >= 24u * s->sm_cnt) return TDM_HOPPER_ITEM_TOK / 64;
    if (cnt >= 3u * s->sm_cnt) return 2048 / 64;
    return cnt >= s->sm_cnt ? 16 : 8;
}

/* The least that a piece may be: below, its partials cost more than the
   evenness gains. */
#define SPAN_MIN  16u
#define PIECE_MAX 3u

/* Keeps the cut where it is faster; of two that are near, the first.  A cut
   whose last round just fits must also be good where it does not. */
static void try_cut(const tdm_hopper_sum_t *s, tdm_hopper_cut_t *c, tdm_hopper_cut_t *best) {
    float most = best->us < 0.0f ? 1e30f : best->us * 0.995f;
    float us = play_launch(s, c, 1.0f);
    if (us >= most) return; /* slower items make no launch faster */
    c->us = 0.5f * (us + play_launch(s, c, UNSURE));
    if (c->us < most) *best = *c;
}

/* So many SMs for decode, and all tiles whole. */
static void try_whole(const tdm_hopper_sum_t *s, uint32_t decode_sm, tdm_hopper_cut_t *best) {
    tdm_hopper_cut_t c = *best;
    if (s->piece > 1) return;
    c.share[TDM_KIND_DECODE] = decode_sm;
    c.share[TDM_KIND_PREFILL] = s->sm_cnt - decode_sm;
    c.whole_cnt = s->tile_cnt;
    c.span = TDM_MAX(s->block_max, 1u);
    try_cut(s, &c, best);
}

/* The same with tiles in pieces: those that do not begin at once, or all. */
static void try_pieces(const tdm_hopper_sum_t *s, uint32_t decode_sm, tdm_hopper_cut_t *best) {
    tdm_hopper_cut_t c = *best;
    c.share[TDM_KIND_DECODE] = decode_sm;
    c.share[TDM_KIND_PREFILL] = s->sm_cnt - decode_sm;
    uint32_t at_once = TDM_MIN(c.share[TDM_KIND_PREFILL] / s->nhead_kv, s->tile_cnt);
    for (uint32_t n = 2; n <= TDM_MAX(PIECE_MAX, s->piece); n++) {
        if (s->piece && s->piece != n) continue;
        uint32_t least = (s->block_max + TDM_HOPPER_SPLIT_MAX - 1) / TDM_HOPPER_SPLIT_MAX;
        c.span = TDM_MAX((s->block_max + n - 1) / n, TDM_MAX(least, 1u));
        if (c.span < SPAN_MIN && !s->piece) break;
        c.whole_cnt = at_once;
        try_cut(s, &c, best);
        c.whole_cnt = 0;
        if (at_once) try_cut(s, &c, best);
    }
}

static void try_share(const tdm_hopper_sum_t *s, uint32_t decode_sm, tdm_hopper_cut_t *best) {
    try_whole(s, decode_sm, best);
    try_pieces(s, decode_sm, best);
}

/* Whole tiles want SMs that they fill so many times and no more. */
#define ROUND_MAX 8u

/* From a tenth of the SMs to six for decode, coarsely, then near the best:
   more never measured best where SMs change sides.  Apart, either kind may
   be nearly all. */
static void search(const tdm_hopper_sum_t *s, tdm_hopper_cut_t *best) {
    uint32_t least = TDM_MAX(s->sm_cnt / (s->is_apart ? 22 : 11), 1u);
    uint32_t most = TDM_MAX(s->is_apart ? s->sm_cnt - least : s->sm_cnt * 6 / 10, 1u);
    uint32_t step = TDM_MAX(s->sm_cnt / 12, 1u);
    for (uint32_t n = 1; n <= ROUND_MAX; n++) {
        uint32_t prefill = (s->tile_cnt * s->nhead_kv + n - 1) / n;
        if (prefill + least > s->sm_cnt || prefill + most < s->sm_cnt) continue;
        try_whole(s, s->sm_cnt - prefill, best);
    }
    for (uint32_t n = least; n <= most; n += step) try_share(s, n, best);
    int is_whole = best->whole_cnt == s->tile_cnt;
    for (; step > 1; step /= 2) {
        uint32_t at = best->share[TDM_KIND_DECODE];
        for (uint32_t up = 0; up < 2; up++) {
            uint32_t n = up ? at + step / 2 : at - TDM_MIN(step / 2, at);
            if (n < least || n > most) continue;
            if (is_whole) {
                try_whole(s, n, best);
            } else {
                try_pieces(s, n, best);
            }
        }
    }
}

void tdm_hopper_choose(const tdm_hopper_sum_t *s, tdm_hopper_cut_t *out) {
    *out = (tdm_hopper_cut_t){.decode_span = decode_span(s), .us = -1.0f};
    if (s->tile_cnt == 0) {
        try_whole(s, s->sm_cnt, out);
    } else if (s->decode_bytes == 0) {
        try_share(s, 0, out);
    } else if (s->decode_sm) {
        try_share(s, s->decode_sm, out);
    } else {
        search(s, out);
    }
}

/* --- a plan's sums in, its cut out --------------------------------------- */

/* Of more query heads of a KV head than a decode item has columns keys are read
   twice: decode takes 1.6 times as long as the portable one, prefill half as
   long (measured with groups of 12 and 16).  A config that insists on the
   variant gets it. */
#define TWICE_PREFILL 1.2f

int tdm_pod_hopper_is_slow(const work_t *w) {
    const tdm_pod_plan_t *p = w->plan;
    if (p->variant != TDM_POD_VARIANT_HOPPER || w->group <= TDM_HOPPER_DECODE_ROW) return 0;
    if (w->config->variant == TDM_POD_VARIANT_HOPPER) return 0;
    if (tdm_pod_variant_gate(w->config, TDM_POD_VARIANT_PORTABLE)) return 0;
    for (uint32_t s = w->begin[TDM_KIND_DECODE]; s < w->end[TDM_KIND_DECODE]; s++) {
        if (w->seq[s].cnt > 1) return 0; /* they know decodes of one token alone */
    }
    return p->pred_us[TDM_KIND_PREFILL] < TWICE_PREFILL * p->pred_us[TDM_KIND_DECODE];
}

/* Short tiles where nothing decodes and all of them begin at once: 4K/512 of 8
   KV heads took 66 us, and in 88 tall ones 73; everywhere else tall ones, which
   share each block of keys among three warpgroups, are 4 to 12 % faster. */
uint32_t tdm_pod_hopper_row(const work_t *w) {
    const tdm_pod_config_t *c = w->config;
    if (c->prefill_row) {
        return c->prefill_row == TDM_HOPPER_ROW_SHORT ? TDM_HOPPER_ROW_SHORT : TDM_HOPPER_ROW;
    }
    if (w->begin[TDM_KIND_DECODE] < w->end[TDM_KIND_DECODE]) return TDM_HOPPER_ROW;
    uint64_t tile = 0;
    for (uint32_t s = w->begin[TDM_KIND_PREFILL]; s < w->end[TDM_KIND_PREFILL]; s++) {
        uint64_t row = (uint64_t)w->seq[s].cnt * w->group;
        tile += (row + TDM_HOPPER_ROW_SHORT - 1) / TDM_HOPPER_ROW_SHORT * c->shape.nhead_kv;
    }
    return tile <= c->gpu.sm_cnt ? TDM_HOPPER_ROW_SHORT : TDM_HOPPER_ROW;
}

/* The first whole_cnt tiles, as a sequence and a row. */
static void mark_whole(work_t *w, uint32_t whole_cnt) {
    w->whole_seq = w->begin[TDM_KIND_PREFILL];
    w->whole_row = 0;
    while (whole_cnt && w->whole_seq < w->end[TDM_KIND_PREFILL]) {
        uint32_t row = w->seq[w->whole_seq].cnt * w->group;
        uint32_t tile = (row + w->tile_row[TDM_KIND_PREFILL] - 1) / w->tile_row[TDM_KIND_PREFILL];
        if (tile > whole_cnt) {
            w->whole_row = whole_cnt * w->tile_row[TDM_KIND_PREFILL];
            return;
        }
        whole_cnt -= tile;
        w->whole_seq++;
    }
}

/* SMs that the config gives decode, by the ratio of its shares; 0: free. */
static uint32_t share_of(const tdm_pod_config_t *c) {
    uint32_t p = c->share[TDM_KIND_PREFILL];
    uint32_t d = c->share[TDM_KIND_DECODE];
    if (p == 0 || d == 0) return 0;
    uint32_t n = (uint32_t)((uint64_t)c->gpu.sm_cnt * d / (p + d));
    return TDM_MIN(TDM_MAX(n, 1u), c->gpu.sm_cnt - 1);
}

static tdm_hopper_sum_t sum_of(const work_t *w) {
    const tdm_pod_config_t *c = w->config;
    const tdm_pod_shape_t *m = &c->shape;
    tdm_hopper_sum_t s = {.sm_cnt = c->gpu.sm_cnt,
                          .nhead_kv = m->nhead_kv,
                          .head_dim = m->head_dim,
                          .tile_cnt = (uint32_t)(w->sum.tile_cnt / m->nhead_kv),
                          .block_max = w->sum.block_max,
                          .block_cnt = w->sum.block_cnt / m->nhead_kv,
                          .decode_bytes = w->plan->kind_bytes[TDM_KIND_DECODE],
                          .decode_sm = share_of(c),
                          .piece = c->prefill_split_max == 1 ? 1 : c->prefill_split};
    s.decode_tok = s.decode_bytes / (4u * m->nhead_kv * m->head_dim);
    return s;
}

void tdm_pod_hopper_survey(work_t *w) {
    tdm_hopper_sum_t s = sum_of(w);
    tdm_hopper_choose(&s, &w->hopper);
    w->hopper_alone = w->hopper;
    if (!s.tile_cnt || !s.decode_bytes) return;
    tdm_hopper_cut_t decode = {.share = {0, s.sm_cnt}};
    tdm_hopper_sum_t half = s;
    half.decode_bytes = 0;
    tdm_hopper_choose(&half, &w->hopper_alone);
    half = s;
    half.tile_cnt = 0;
    w->plan->fused_us = w->hopper.us;
    w->plan->serial_us = w->hopper_alone.us + LAUNCH_US + tdm_hopper_time(&half, &decode);
}

void tdm_pod_hopper_cut(work_t *w, uint32_t route) {
    const tdm_pod_config_t *c = w->config;
    if (route == TDM_ROUTE_STREAMS) {
        tdm_hopper_sum_t s = sum_of(w);
        s.is_apart = 1;
        tdm_hopper_choose(&s, &w->hopper);
    }
    const tdm_hopper_cut_t *tiles = route == TDM_ROUTE_SERIAL ? &w->hopper_alone : &w->hopper;
    uint32_t span = w->hopper.decode_span;
    if (c->decode_split_tok) span = TDM_MAX(c->decode_split_tok / KEY_BLOCK, 1u);
    uint32_t most = TDM_MIN(TDM_HOPPER_ITEM_TOK, TDM_HOPPER_ITEM_PAGE * c->shape.page_tok);
    span = TDM_MIN(span, most / KEY_BLOCK);
    memcpy(w->plan->share, w->hopper.share, sizeof w->plan->share);
    w->plan->decode_split_tok = span * KEY_BLOCK;
    w->span[TDM_KIND_DECODE] = span;
    w->span[TDM_KIND_PREFILL] = TDM_MIN(TDM_MAX(tiles->span, 1u), COST_MAX);
    mark_whole(w, tiles->whole_cnt);
}
