/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/worklist/worklist.h"

#include <string.h>

#include "appliance/base/check.h"

/* Items per SM that balance aims at: with longest-first order the last
   SM to finish is late by at most one item, 1/4 of an SM's share; more
   would write and fold more partials. */
#define ITEMS_PER_SM 4u

#define COST_MAX (TDM_CONTEXT_MAX / TDM_KV_PAGE_TOKENS)

struct tdm_worklist {
    tdm_worklist_config_t config;
    tdm_attn_plan_t plan;
    tdm_attn_seq_t *seq;
    tdm_attn_item_t *item[TDM_KIND_CNT];
    tdm_attn_merge_t *merge;
    uint32_t bucket[COST_MAX + 1]; /* counting sort: index of the next item of a cost */
};

/* One tile of query tokens of one sequence, for every KV head. */
typedef struct tile {
    uint32_t seq;
    uint32_t tok;
    uint32_t tok_cnt;
    uint32_t kv_cnt;    /* keys the tile's last row sees */
    uint32_t range_cnt; /* of them, begun ranges */
} tile_t;

static uint32_t group_of(const tdm_worklist_config_t *c) {
    return c->nhead_q / c->kv.nhead_kv;
}

uint32_t tdm_worklist_tile_tok(uint32_t group) {
    uint32_t tok = TDM_KV_PAGE_TOKENS;
    while (tok > 1 && tok * group > TDM_ATTN_TILE_ROWS) tok /= 2;
    return tok;
}

/* A slice of n tokens touches at most n / tile_tok + 2 anchored tiles, and
   tokens before position 0 (empty rows) are cut into tiles of their own. */
uint32_t tdm_worklist_item_floor(const tdm_worklist_config_t *config, uint32_t kind) {
    if (kind == TDM_KIND_DECODE) return config->seq_max * config->kv.nhead_kv;
    uint32_t tile = config->token_max / tdm_worklist_tile_tok(group_of(config));
    return (tile + 3 * TDM_PLAN_SLICE_MAX) * config->kv.nhead_kv;
}

/* Most items that splitting a kind can add. */
static uint32_t split_max(const tdm_worklist_config_t *c) {
    return c->sm_cnt > 1 ? ITEMS_PER_SM * c->sm_cnt : 0;
}

static void fill_bounds(tdm_worklist_config_t *c) {
    for (uint32_t kind = 0; kind < TDM_KIND_CNT; kind++) {
        if (!c->item_max[kind]) {
            c->item_max[kind] = tdm_worklist_item_floor(c, kind) + split_max(c);
        }
    }
    if (!c->merge_max) c->merge_max = TDM_KIND_CNT * split_max(c) + 1;
    if (!c->part_float_max) {
        uint64_t range = tdm_ceil_div(c->context_max, TDM_ATTN_RANGE_TOKENS);
        uint64_t row = TDM_MAX(TDM_ATTN_TILE_ROWS, group_of(c));
        uint64_t need = c->merge_max * range * row * (c->kv.head_dim + 48);
        c->part_float_max = TDM_MIN(need, TDM_WORKLIST_PART_FLOATS);
    }
}

tdm_status_t tdm_worklist_config_check(tdm_worklist_config_t *c, tdm_error_t *err) {
    const tdm_kv_layout_t *kv = &c->kv;
    if (kv->nhead_kv == 0 || c->nhead_q == 0 || c->nhead_q % kv->nhead_kv) {
        return tdm_error_set(err, TDM_ERR_INVAL, "attention: %u query heads over %u KV heads",
                             c->nhead_q, kv->nhead_kv);
    }
    if (c->nhead_q > TDM_ATTN_HEAD_MAX || group_of(c) > TDM_ATTN_GROUP_MAX) {
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "attention: %u query heads (at most %d), %u per KV head (at most %d)",
                             c->nhead_q, TDM_ATTN_HEAD_MAX, group_of(c), TDM_ATTN_GROUP_MAX);
    }
    if (kv->head_dim == 0 || kv->head_dim % 2 || kv->head_dim > TDM_HEAD_DIM_MAX) {
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "attention: head dimension %u, need an even one up to %d",
                             kv->head_dim, TDM_HEAD_DIM_MAX);
    }
    if (kv->dtype >= TDM_KV_DTYPE_CNT) {
        return tdm_error_set(err, TDM_ERR_INVAL, "attention: KV element type %u", kv->dtype);
    }
    if (c->sm_cnt == 0 || c->sm_cnt > 4096 || c->seq_max == 0 || c->seq_max > TDM_SEQ_MAX ||
        c->token_max == 0 || c->token_max > TDM_PLAN_TOKEN_MAX || c->context_max == 0 ||
        c->context_max > TDM_CONTEXT_MAX) {
        return tdm_error_set(err, TDM_ERR_LIMIT,
                             "attention: %u SMs, %u sequences, %u tokens or context %u is out of "
                             "range",
                             c->sm_cnt, c->seq_max, c->token_max, c->context_max);
    }
    fill_bounds(c);
    for (uint32_t kind = 0; kind < TDM_KIND_CNT; kind++) {
        if (c->item_max[kind] < tdm_worklist_item_floor(c, kind)) {
            return tdm_error_set(err, TDM_ERR_LIMIT, "attention: %u items of kind %u, need %u",
                                 c->item_max[kind], kind, tdm_worklist_item_floor(c, kind));
        }
    }
    return TDM_OK;
}

/* The pieces of the memory block, in order; mem may be NULL to measure. */
static uint64_t carve(uint8_t *mem, const tdm_worklist_config_t *c, tdm_worklist_t *list) {
    uint64_t off = tdm_size_align(sizeof(tdm_worklist_t), TDM_CACHE_LINE);
    if (list) list->seq = (tdm_attn_seq_t *)(void *)(mem + off);
    off += (TDM_PLAN_SLICE_MAX + (uint64_t)c->seq_max) * sizeof(tdm_attn_seq_t);
    off = tdm_size_align(off, TDM_CACHE_LINE);
    for (uint32_t kind = 0; kind < TDM_KIND_CNT; kind++) {
        if (list) list->item[kind] = (tdm_attn_item_t *)(void *)(mem + off);
        off += (uint64_t)c->item_max[kind] * sizeof(tdm_attn_item_t);
        off = tdm_size_align(off, TDM_CACHE_LINE);
    }
    if (list) list->merge = (tdm_attn_merge_t *)(void *)(mem + off);
    off += (uint64_t)c->merge_max * sizeof(tdm_attn_merge_t);
    return tdm_size_align(off, TDM_CACHE_LINE);
}

uint64_t tdm_worklist_footprint(const tdm_worklist_config_t *config) {
    return carve(NULL, config, NULL);
}

tdm_worklist_t *tdm_worklist_init(void *mem, const tdm_worklist_config_t *config) {
    tdm_worklist_t *list = mem;
    memset(list, 0, sizeof *list);
    list->config = *config;
    carve(mem, config, list);
    return list;
}

tdm_attn_seq_t *tdm_worklist_seq(tdm_worklist_t *list) {
    return list->seq;
}

/* Starts the walk over the tiles of seq s; tile_next moves it. */
static tile_t tile_begin(uint32_t s) {
    return (tile_t){.seq = s};
}

/* tile_next cuts the next tile off the sequence; 0 at its end.  Tokens
   before position 0 have nothing to attend to and keep to themselves. */
static int tile_next(const tdm_attn_seq_t *seq, uint32_t tile_tok, tile_t *t) {
    t->tok += t->tok_cnt;
    if (t->tok == seq->cnt) return 0;
    int64_t pos = (int64_t)seq->kv_cnt - seq->cnt + t->tok;
    int64_t room = pos < 0 ? TDM_MIN(-pos, (int64_t)tile_tok) : tile_tok - pos % tile_tok;
    t->tok_cnt = (uint32_t)TDM_MIN(room, (int64_t)(seq->cnt - t->tok));
    int64_t kv_cnt = pos + t->tok_cnt;
    t->kv_cnt = kv_cnt > 0 ? (uint32_t)kv_cnt : 0;
    t->range_cnt = (uint32_t)tdm_ceil_div(t->kv_cnt, TDM_ATTN_RANGE_TOKENS);
    return 1;
}

static uint32_t kind_begin(const tdm_attn_plan_t *p, uint32_t kind) {
    return kind == TDM_KIND_PREFILL ? 0 : p->prefill_seq_cnt;
}

static uint32_t kind_end(const tdm_attn_plan_t *p, uint32_t kind) {
    return kind == TDM_KIND_PREFILL ? p->prefill_seq_cnt : p->seq_cnt;
}

/* Ranges that one item of the kind may hold at most. */
static uint32_t span_of(const tdm_worklist_t *list, uint32_t kind) {
    const tdm_attn_plan_t *p = &list->plan;
    uint32_t aim = split_max(&list->config);
    if (aim == 0) return TDM_ATTN_RANGE_MAX;
    uint64_t range_cnt = 0;
    for (uint32_t s = kind_begin(p, kind); s < kind_end(p, kind); s++) {
        for (tile_t t = tile_begin(s); tile_next(&list->seq[s], p->tile_tok, &t);) {
            range_cnt += (uint64_t)t.range_cnt * list->config.kv.nhead_kv;
        }
    }
    uint64_t span = tdm_ceil_div(range_cnt, aim);
    return (uint32_t)TDM_MIN(TDM_MAX(span, 1), TDM_ATTN_RANGE_MAX);
}

/* KV blocks of ranges [begin, end) of a tile, at least 1. */
static uint32_t cost_of(const tile_t *t, uint32_t begin, uint32_t end) {
    uint32_t first = begin * TDM_ATTN_RANGE_TOKENS;
    uint32_t last = TDM_MIN(t->kv_cnt, end * TDM_ATTN_RANGE_TOKENS);
    return TDM_MAX((uint32_t)tdm_ceil_div(last - first, TDM_KV_PAGE_TOKENS), 1);
}

/* First pass: how many items, merges and floats a span makes; fills the
   buckets with counts.  The reason where a bound is passed, else NONE. */
static tdm_reason_t measure(tdm_worklist_t *list, uint32_t kind, uint32_t span) {
    tdm_attn_plan_t *p = &list->plan;
    const tdm_worklist_config_t *c = &list->config;
    uint32_t nhead = c->kv.nhead_kv;
    uint64_t item = 0;
    uint64_t merge = p->merge_cnt;
    uint64_t part_float = p->part_float_cnt;
    memset(list->bucket, 0, sizeof list->bucket);
    for (uint32_t s = kind_begin(p, kind); s < kind_end(p, kind); s++) {
        for (tile_t t = tile_begin(s); tile_next(&list->seq[s], p->tile_tok, &t);) {
            uint32_t r = 0;
            do {
                uint32_t end = TDM_MIN(r + span, t.range_cnt);
                list->bucket[cost_of(&t, r, end)] += nhead;
                item += nhead;
                r = end;
            } while (r < t.range_cnt);
            if (t.range_cnt <= span) continue;
            merge += nhead;
            part_float +=
                nhead * tdm_attn_part_floats(t.tok_cnt * p->group, c->kv.head_dim, t.range_cnt);
        }
    }
    if (item > c->item_max[kind] || merge > c->merge_max) return TDM_FALLBACK_workspace;
    if (part_float > c->part_float_max) return TDM_FALLBACK_workspace;
    p->item_cnt[kind] = (uint32_t)item;
    return TDM_REASON_NONE;
}

/* Turns counts per cost into the first index of each cost, costliest
   first. */
static void buckets_to_offsets(tdm_worklist_t *list) {
    uint32_t off = 0;
    for (uint32_t cost = COST_MAX + 1; cost-- > 0;) {
        uint32_t cnt = list->bucket[cost];
        list->bucket[cost] = off;
        off += cnt;
    }
}

/* Second pass, one tile and KV head: its items, and its merge if it has
   several. */
static void place_tile(tdm_worklist_t *list, uint32_t kind, const tile_t *t, uint32_t head_kv,
                       uint32_t span) {
    tdm_attn_plan_t *p = &list->plan;
    uint32_t merge = TDM_ATTN_NO_MERGE;
    if (t->range_cnt > span) {
        merge = p->merge_cnt++;
        uint32_t item_cnt = (uint32_t)tdm_ceil_div(t->range_cnt, span);
        list->merge[merge] = (tdm_attn_merge_t){
            .part_off = p->part_float_cnt, .item_cnt = item_cnt, .range_cnt = t->range_cnt};
        p->part_float_cnt +=
            tdm_attn_part_floats(t->tok_cnt * p->group, list->config.kv.head_dim, t->range_cnt);
        p->part_cnt += t->range_cnt;
        p->split_cnt += item_cnt - 1;
    }
    uint32_t r = 0;
    do {
        uint32_t end = TDM_MIN(r + span, t->range_cnt);
        uint32_t cost = cost_of(t, r, end);
        list->item[kind][list->bucket[cost]++] = (tdm_attn_item_t){.seq = t->seq,
                                                                   .tok = t->tok,
                                                                   .tok_cnt = t->tok_cnt,
                                                                   .head_kv = head_kv,
                                                                   .range = r,
                                                                   .range_cnt = end - r,
                                                                   .merge = merge,
                                                                   .cost = cost};
        r = end;
    } while (r < t->range_cnt);
}

/* Heads outside, tiles inside: equal costs keep this order, so the tiles
   that share a head's KV run close in time. */
static void place(tdm_worklist_t *list, uint32_t kind, uint32_t span) {
    tdm_attn_plan_t *p = &list->plan;
    buckets_to_offsets(list);
    for (uint32_t s = kind_begin(p, kind); s < kind_end(p, kind); s++) {
        for (uint32_t h = 0; h < list->config.kv.nhead_kv; h++) {
            for (tile_t t = tile_begin(s); tile_next(&list->seq[s], p->tile_tok, &t);) {
                place_tile(list, kind, &t, h, span);
            }
        }
    }
}

/* One kind, split where that fits and whole where not; of two reasons
   the first in reasons.def stays. */
static void build_kind(tdm_worklist_t *list, uint32_t kind) {
    tdm_attn_plan_t *p = &list->plan;
    uint32_t span = span_of(list, kind);
    tdm_reason_t reason = measure(list, kind, span);
    if (reason != TDM_REASON_NONE) {
        if (p->reason == TDM_REASON_NONE || reason < p->reason) p->reason = reason;
        span = TDM_ATTN_RANGE_MAX;
        TDM_CHECK(measure(list, kind, span) == TDM_REASON_NONE);
    }
    place(list, kind, span);
}

/* Rows, and the model-derived figures. */
static void count_rows(tdm_worklist_t *list) {
    tdm_attn_plan_t *p = &list->plan;
    const tdm_kv_layout_t *kv = &list->config.kv;
    uint64_t visible = 0;
    uint64_t key_cnt = 0;
    for (uint32_t s = 0; s < p->seq_cnt; s++) {
        const tdm_attn_seq_t *seq = &list->seq[s];
        uint64_t n = TDM_MIN(seq->cnt, seq->kv_cnt); /* rows that are not empty */
        visible += n * seq->kv_cnt - n * (n - (n > 0)) / 2;
        key_cnt += seq->kv_cnt;
        p->row_cnt = TDM_MAX(p->row_cnt, seq->row + seq->cnt);
    }
    p->flops = 4u * visible * list->config.nhead_q * kv->head_dim;
    p->kv_read_bytes = 2u * key_cnt * kv->nhead_kv * kv->head_dim * tdm_kv_elem_sz(kv);
}

static uint32_t route_of(const tdm_attn_plan_t *p, uint32_t wanted) {
    if (p->seq_cnt == 0) return TDM_ROUTE_IDLE;
    if (p->prefill_seq_cnt == 0) return TDM_ROUTE_DECODE_ONLY;
    if (p->prefill_seq_cnt == p->seq_cnt) return TDM_ROUTE_PREFILL_ONLY;
    if (p->reason != TDM_REASON_NONE) return TDM_ROUTE_SERIAL;
    if (wanted == TDM_ROUTE_FUSED || wanted == TDM_ROUTE_STREAMS) return wanted;
    return TDM_ROUTE_SERIAL;
}

const tdm_attn_plan_t *tdm_worklist_build(tdm_worklist_t *list, uint32_t prefill_cnt,
                                          uint32_t decode_cnt, uint32_t route) {
    TDM_CHECK(prefill_cnt <= TDM_PLAN_SLICE_MAX && decode_cnt <= list->config.seq_max);
    tdm_attn_plan_t *p = &list->plan;
    *p = (tdm_attn_plan_t){
        .seq_cnt = prefill_cnt + decode_cnt,
        .prefill_seq_cnt = prefill_cnt,
        .group = group_of(&list->config),
        .tile_tok = tdm_worklist_tile_tok(group_of(&list->config)),
        .seq = list->seq,
        .item = {list->item[TDM_KIND_PREFILL], list->item[TDM_KIND_DECODE]},
        .merge = list->merge,
    };
    build_kind(list, TDM_KIND_PREFILL);
    build_kind(list, TDM_KIND_DECODE);
    count_rows(list);
    p->route = route_of(p, route);
    if (p->route != TDM_ROUTE_SERIAL) p->reason = TDM_REASON_NONE;
    return p;
}
