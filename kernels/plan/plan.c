/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/plan/plan_private.h"

#include <stddef.h>
#include <string.h>

#include "kernels/plan/device.h"
#include "kernels/plan/hopper.h"
#include "kernels/ticket/ticket.h"

void tdm_pod_config_fill(tdm_pod_config_t *c) {
    if (c->seq_max == 0) c->seq_max = TDM_ATTN_SEQ_MAX;
    if (c->item_max == 0) c->item_max = TDM_POD_ITEM_DEFAULT;
    if (c->part_float_max == 0) c->part_float_max = TDM_POD_PART_FLOAT_DEFAULT;
    if (c->box_cnt == 0) c->box_cnt = 1;
    tdm_gpu_rates(&c->gpu);
    if (c->gpu.smid_cnt < c->gpu.sm_cnt) c->gpu.smid_cnt = c->gpu.sm_cnt;
}

uint32_t tdm_pod_merge_max(const tdm_pod_config_t *c) {
    return c->item_max / 2 + 1;
}

uint64_t tdm_pod_blob_max(const tdm_pod_config_t *c) {
    return sizeof(tdm_pod_head_t) + (uint64_t)c->seq_max * sizeof(tdm_attn_seq_t) +
           (uint64_t)tdm_pod_merge_max(c) * sizeof(tdm_pod_merge_t) +
           (uint64_t)c->item_max * sizeof(tdm_pod_item_t) + 256;
}

/* --- two passes: count, then place ---------------------------------- */

static uint64_t part_floats(const work_t *w, uint32_t kind, uint32_t row_cnt, uint32_t split_cnt) {
    if (w->plan->variant == TDM_POD_VARIANT_HOPPER && kind == TDM_KIND_PREFILL) {
        return (uint64_t)split_cnt * TDM_HOPPER_PART(w->config->shape.head_dim);
    }
    uint64_t cell = (uint64_t)row_cnt * split_cnt;
    return (cell * (w->config->shape.head_dim + 2) + 31) / 32 * 32;
}

/* x / d is x * magic_of(d) >> 32 as long as x * d < 2^32: blocks of a tile and
   of an item are far below. */
static uint64_t magic_of(uint32_t d) {
    return (UINT64_C(1) << 32) / d + 1;
}

/* How a tile is cut: `full` items of `span` blocks and, unless that leaves
   nothing, one of `rest`. */
typedef struct cut {
    uint32_t span;
    uint32_t full;
    uint32_t rest;
    uint32_t piece; /* items, at least one */
} cut_t;

static inline cut_t cut_of(const work_t *w, uint32_t kind, uint64_t magic, uint32_t s,
                           const tile_t *t) {
    int is_whole = kind == TDM_KIND_PREFILL &&
                   (s < w->whole_seq || (s == w->whole_seq && t->row < w->whole_row));
    cut_t c;
    c.span = is_whole ? COST_MAX : w->span[kind];
    c.full = is_whole ? t->block_cnt / COST_MAX : (uint32_t)(t->block_cnt * magic >> 32);
    c.rest = t->block_cnt - c.full * c.span;
    c.piece = c.full + (c.rest || c.full == 0);
    return c;
}

/* Whole tiles of a Hopper plan stand by head, and count as long as the longest
   of their sequence: SMs that run at one time then share the keys of a few
   heads, where those of all would come from memory once for each round. */
static int is_by_head(const work_t *w, uint32_t kind, const cut_t *cut) {
    return kind == TDM_KIND_PREFILL && w->plan->variant == TDM_POD_VARIANT_HOPPER &&
           cut->span == COST_MAX && cut->piece == 1;
}

static uint32_t whole_cost(const work_t *w, uint32_t s) {
    return TDM_MIN((w->seq[s].kv_cnt + KEY_BLOCK - 1) / KEY_BLOCK, COST_MAX);
}

/* Counts items, merges and floats of a kind into the plan and fills the
   buckets; 0 where a bound is passed. */
static int measure(work_t *w, uint32_t kind) {
    const tdm_pod_config_t *c = w->config;
    uint32_t nhead = c->shape.nhead_kv;
    uint64_t magic = magic_of(w->span[kind]);
    uint64_t item = 0;
    uint64_t merge = 0;
    uint64_t part = 0;
    uint32_t *bucket = w->bucket[kind];
    memset(bucket, 0, sizeof w->bucket[kind]);
    w->cost_max[kind] = 0;
    for (uint32_t s = w->begin[kind]; s < w->end[kind]; s++) {
        for (tile_t t = {0}; tdm_pod_tile_next(w, kind, &w->seq[s], &t);) {
            cut_t cut = cut_of(w, kind, magic, s, &t);
            uint32_t most = cut.full ? cut.span : cut.rest;
            if (is_by_head(w, kind, &cut)) {
                most = whole_cost(w, s);
                bucket[most] += nhead;
            } else {
                if (cut.full) bucket[cut.span] += cut.full * nhead;
                if (cut.piece > cut.full) bucket[cut.rest] += nhead;
            }
            w->cost_max[kind] = TDM_MAX(w->cost_max[kind], most);
            item += (uint64_t)cut.piece * nhead;
            if (cut.piece == 1) continue;
            merge += nhead;
            part += nhead * part_floats(w, kind, t.row_cnt, cut.piece);
        }
    }
    uint64_t before = kind == TDM_KIND_DECODE ? w->plan->item_cnt[TDM_KIND_PREFILL] : 0;
    if (before + item > c->item_max || w->plan->merge_cnt + merge > tdm_pod_merge_max(c) ||
        w->plan->part_float_cnt + part > c->part_float_max) {
        return 0;
    }
    w->plan->item_cnt[kind] = (uint32_t)item;
    w->plan->merge_cnt += (uint32_t)merge;
    w->plan->part_float_cnt += part;
    return 1;
}

static void buckets_to_offsets(work_t *w, uint32_t kind) {
    uint32_t off = 0;
    for (uint32_t cost = w->cost_max[kind] + 1; cost-- > 0;) {
        uint32_t cnt = w->bucket[kind][cost];
        w->bucket[kind][cost] = off;
        off += cnt;
    }
}

/* Half an item, written at a stroke: most of a plan's time is such stores. */
typedef uint32_t half_t __attribute__((vector_size(16)));
_Static_assert(sizeof(tdm_pod_item_t) == 2 * sizeof(half_t) &&
                   offsetof(tdm_pod_item_t, head_kv) == 12 &&
                   offsetof(tdm_pod_item_t, kv_begin) == 16 &&
                   offsetof(tdm_pod_item_t, merge) == 24,
               "an item is seq, row, row_cnt, head_kv; kv_begin, kv_end, merge, split");

/* Pieces [from, to) of a tile.  Their items for all KV heads are neighbours
   in the list, for they read the same page numbers. */
static void place_pieces(work_t *w, uint32_t kind, uint32_t s, const tile_t *t, const cut_t *cut,
                         uint32_t merge, uint32_t from, uint32_t to) {
    const uint32_t nhead = w->config->shape.nhead_kv;
    const half_t next_head = {0, 0, 0, 1};
    const half_t next_merge = {0, 0, merge != TDM_POD_NO_MERGE, 0}; /* each head has its own */
    for (uint32_t i = from; i < to; i++) {
        uint32_t *off = &w->bucket[kind][i < cut->full ? cut->span : cut->rest];
        uint32_t begin = i * cut->span * KEY_BLOCK;
        uint32_t end = i < cut->full ? begin + cut->span * KEY_BLOCK : t->kv_cnt;
        half_t rows = {s, t->row, t->row_cnt, 0};
        half_t keys = {begin, TDM_MIN(end, t->kv_cnt), merge, i};
        tdm_pod_item_t *item = w->item[kind] + *off;
        *off += nhead;
        for (uint32_t h = 0; h < nhead; h++) {
            memcpy(&item[h].seq, &rows, sizeof rows);
            memcpy(&item[h].kv_begin, &keys, sizeof keys);
            rows += next_head;
            keys += next_merge;
        }
    }
}

/* The tile at row 0 of a sequence and those behind it, `cnt` in all, as whole
   items by head, the longest first. */
static void place_whole(work_t *w, uint32_t s, uint32_t cnt) {
    const uint32_t nhead = w->config->shape.nhead_kv;
    const uint32_t step = cnt; /* from a head to the next */
    uint32_t *off = &w->bucket[TDM_KIND_PREFILL][whole_cost(w, s)];
    tdm_pod_item_t *item = w->item[TDM_KIND_PREFILL] + *off + cnt;
    *off += cnt * nhead;
    for (tile_t t = {0}; cnt-- && tdm_pod_tile_next(w, TDM_KIND_PREFILL, &w->seq[s], &t);) {
        half_t rows = {s, t.row, t.row_cnt, 0};
        half_t keys = {0, t.kv_cnt, TDM_POD_NO_MERGE, 0};
        item--;
        for (uint32_t h = 0; h < nhead; h++) {
            rows[3] = h;
            memcpy(&item[h * step].seq, &rows, sizeof rows);
            memcpy(&item[h * step].kv_begin, &keys, sizeof keys);
        }
    }
}

/* The merges of a tile's pieces, one for each KV head; returns the first's
   number, TDM_POD_NO_MERGE where the tile is one piece. */
static uint32_t place_merges(work_t *w, uint32_t kind, const tile_t *t, const cut_t *cut) {
    if (cut->piece == 1) return TDM_POD_NO_MERGE;
    uint32_t nhead = w->config->shape.nhead_kv;
    uint32_t first = w->merge_cnt;
    uint64_t floats = part_floats(w, kind, t->row_cnt, cut->piece);
    tdm_pod_merge_t merge = {
        .part_off = w->part_float_cnt, .split_cnt = cut->piece, .row_cnt = t->row_cnt};
    for (uint32_t h = 0; h < nhead; h++) {
        w->merge[first + h] = merge;
        merge.part_off += floats;
    }
    w->plan->split_cnt += (cut->piece - 1) * nhead;
    w->merge_cnt += nhead;
    w->part_float_cnt = merge.part_off;
    return first;
}

/* The items of a sequence.  Pieces outside, tiles inside: items of equal
   length stand in this order, so those that run at one time read the same
   keys and find them in L2. */
static void place_tiles(work_t *w, uint32_t kind, uint64_t magic, uint32_t s) {
    uint32_t first = w->merge_cnt;
    uint32_t most = 1;
    uint32_t whole = 0; /* by head, and the first of their sequence */
    for (tile_t t = {0}; tdm_pod_tile_next(w, kind, &w->seq[s], &t);) {
        cut_t cut = cut_of(w, kind, magic, s, &t);
        most = TDM_MAX(most, cut.piece);
        (void)place_merges(w, kind, &t, &cut);
        whole += (uint32_t)is_by_head(w, kind, &cut);
    }
    if (whole) place_whole(w, s, whole);
    for (uint32_t i = 0; i < most; i++) {
        uint32_t merge = first;
        for (tile_t t = {0}; tdm_pod_tile_next(w, kind, &w->seq[s], &t);) {
            cut_t cut = cut_of(w, kind, magic, s, &t);
            int is_cut = cut.piece > 1;
            if (i < cut.piece && !is_by_head(w, kind, &cut)) {
                place_pieces(w, kind, s, &t, &cut, is_cut ? merge : TDM_POD_NO_MERGE, i, i + 1);
            }
            if (is_cut) merge += w->config->shape.nhead_kv;
        }
    }
}

static void place(work_t *w, uint32_t kind) {
    uint64_t magic = magic_of(w->span[kind]);
    for (uint32_t s = w->begin[kind]; s < w->end[kind]; s++) {
        tile_t t = {0};
        int is_one = w->seq[s].cnt * w->group <= w->tile_row[kind]; /* tile a sequence */
        if (kind == TDM_KIND_PREFILL || !is_one) {
            place_tiles(w, kind, magic, s);
        } else if (tdm_pod_tile_next(w, kind, &w->seq[s], &t)) {
            cut_t cut = cut_of(w, kind, magic, s, &t);
            uint32_t merge = place_merges(w, kind, &t, &cut);
            place_pieces(w, kind, s, &t, &cut, merge, 0, cut.piece);
        }
    }
}

/* --- the plan ------------------------------------------------------- */

static uint32_t route_of(const work_t *w, uint32_t wanted) {
    const tdm_pod_plan_t *p = w->plan;
    int is_prefill = w->begin[TDM_KIND_PREFILL] < w->end[TDM_KIND_PREFILL];
    int is_decode = w->begin[TDM_KIND_DECODE] < w->end[TDM_KIND_DECODE];
    if (!is_prefill && !is_decode) return TDM_ROUTE_IDLE;
    if (!is_decode) return TDM_ROUTE_PREFILL_ONLY;
    if (!is_prefill) return TDM_ROUTE_DECODE_ONLY;
    if (p->reason) return TDM_ROUTE_SERIAL;
    if (wanted == TDM_ROUTE_FUSED || wanted == TDM_ROUTE_STREAMS) return wanted;
    return TDM_ROUTE_SERIAL;
}

/* Of two streams decode goes first: its items find the slots free, and
   prefill fills up (measured on an H200). */
static uint32_t way_of(uint32_t route) {
    switch (route) {
    case TDM_ROUTE_PREFILL_ONLY: return TDM_POD_WAY_PREFILL;
    case TDM_ROUTE_DECODE_ONLY: return TDM_POD_WAY_DECODE;
    case TDM_ROUTE_FUSED: return TDM_POD_WAY_FUSED;
    case TDM_ROUTE_STREAMS: return TDM_POD_WAY_STREAMS_DP;
    default: return TDM_POD_WAY_SERIAL;
    }
}

/* Rows, FLOPs, bytes, and the times they take at the device's rates. */
static void count_work(work_t *w) {
    const tdm_pod_shape_t *m = &w->config->shape;
    tdm_pod_plan_t *p = w->plan;
    for (uint32_t kind = 0; kind < TDM_KIND_CNT; kind++) {
        uint64_t visible = 0;
        uint64_t key_cnt = 0;
        for (uint32_t s = w->begin[kind]; s < w->end[kind]; s++) {
            const tdm_attn_seq_t *q = &w->seq[s];
            uint64_t n = TDM_MIN(q->cnt, q->kv_cnt); /* rows that see something */
            visible += n * q->kv_cnt - n * (n - (n > 0)) / 2;
            key_cnt += q->kv_cnt;
            p->row_cnt = TDM_MAX(p->row_cnt, q->row + q->cnt);
        }
        p->kind_flops[kind] = 4u * visible * m->nhead_q * m->head_dim;
        uint64_t elem_sz = m->kv_dtype == TDM_POD_E4M3 ? 1 : 2;
        p->kind_bytes[kind] = 2u * elem_sz * key_cnt * m->nhead_kv * m->head_dim;
        p->flops += p->kind_flops[kind];
        float mma_us = (float)p->kind_flops[kind] / w->config->gpu.mma_tflops * 1e-6f;
        float hbm_us = (float)p->kind_bytes[kind] / w->config->gpu.hbm_gbs * 1e-3f;
        p->pred_us[kind] = TDM_MAX(mma_us, hbm_us);
    }
}

/* Query tokens of the decode that has most of them: more than one where drafts
   are verified, which the portable kernels do not take. */
static uint32_t decode_tok(const work_t *w) {
    uint32_t most = 0;
    for (uint32_t s = w->begin[TDM_KIND_DECODE]; s < w->end[TDM_KIND_DECODE]; s++) {
        most = TDM_MAX(most, w->seq[s].cnt);
    }
    return most;
}

/* The first reason that the sequences give; turns *variant to one that
   takes them. */
static uint32_t seq_gate(const work_t *w, uint32_t prefill_cnt, uint32_t decode_cnt,
                         uint32_t *variant) {
    uint64_t tok = 0;
    uint32_t longest = 0;
    for (uint32_t s = 0; s < prefill_cnt + decode_cnt; s++) {
        longest = TDM_MAX(longest, w->seq[s].kv_cnt);
        tok += s < prefill_cnt ? w->seq[s].cnt : 0;
    }
    int is_plain = longest <= TDM_POD_PLAIN_CONTEXT_MAX &&
                   !tdm_pod_variant_gate(w->config, TDM_POD_VARIANT_PLAIN);
    if (tok > TDM_POD_TOKEN_MAX || prefill_cnt + decode_cnt > w->config->seq_max) {
        *variant = TDM_POD_VARIANT_NONE;
    } else if (longest > TDM_CONTEXT_MAX) {
        *variant = is_plain ? TDM_POD_VARIANT_PLAIN : TDM_POD_VARIANT_NONE;
    }
    if (*variant == TDM_POD_VARIANT_PORTABLE && decode_tok(w) > 1) {
        *variant = is_plain ? TDM_POD_VARIANT_PLAIN : TDM_POD_VARIANT_NONE;
        return TDM_FALLBACK_feature;
    }
    if (longest > TDM_CONTEXT_MAX) return TDM_FALLBACK_context_limit;
    return *variant ? (uint32_t)TDM_REASON_NONE : (uint32_t)TDM_FALLBACK_chunk_limit;
}

/* The widest tile that leaves two CTAs an SM, else the one that fits at
   all; a forced one as it is. */
static void choose_portable_tile(work_t *w) {
    const tdm_pod_config_t *c = w->config;
    tdm_pod_plan_t *p = w->plan;
    for (uint32_t least = 2; least > 0 && p->cta_sm == 0; least--) {
        for (uint32_t t = 0; t < TDM_POD_TILE_CNT && p->cta_sm == 0; t++) {
            if (c->tile != TDM_POD_TILE_AUTO && c->tile != t) continue;
            uint32_t fit = tdm_pod_tile_fit(&c->gpu, t, c->shape.head_dim);
            if (fit < least) continue;
            p->tile = t;
            p->cta_sm = fit;
        }
    }
    p->smem_sz = tdm_pod_tile_smem(p->tile, c->shape.head_dim);
    p->tile_row = tdm_pod_tile_info(p->tile).row;
}

static void choose_tile(work_t *w) {
    const tdm_pod_config_t *c = w->config;
    tdm_pod_plan_t *p = w->plan;
    if (p->variant == TDM_POD_VARIANT_PLAIN) {
        p->tile = TDM_POD_TILE_CNT;
        p->cta_sm = tdm_pod_plain_fit(&c->gpu, c->shape.head_dim);
        p->smem_sz = tdm_pod_plain_smem(c->shape.head_dim);
        p->tile_row = TDM_POD_PLAIN_ROW;
    } else if (p->variant == TDM_POD_VARIANT_HOPPER) {
        p->tile = TDM_POD_TILE_CNT;
        p->cta_sm = 1;
        p->smem_sz = TDM_HOPPER_SMEM;
        p->tile_row = tdm_pod_hopper_row(w);
    } else {
        choose_portable_tile(w);
    }
    p->grid = p->cta_sm * c->gpu.sm_cnt;
    /* A CTA that is done makes room for one of the other kind. */
    if (p->variant == TDM_POD_VARIANT_HOPPER) p->grid *= 2;
    w->tile_row[TDM_KIND_PREFILL] = w->tile_row[TDM_KIND_DECODE] = p->tile_row;
    if (p->variant == TDM_POD_VARIANT_HOPPER) w->tile_row[TDM_KIND_DECODE] = TDM_HOPPER_DECODE_ROW;
}

static uint64_t hash_step(uint64_t h, uint64_t v) {
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

/* Four lanes, for a step waits for the one before it. */
static uint64_t hash_words(uint64_t h, const void *data, uint64_t sz) {
    const uint8_t *at = data;
    uint64_t h1 = h + 1;
    uint64_t h2 = h + 2;
    uint64_t h3 = h + 3;
    uint64_t i = 0;
    for (; i + 32 <= sz; i += 32) {
        uint64_t v[4];
        memcpy(v, at + i, sizeof v);
        h = hash_step(h, v[0]);
        h1 = hash_step(h1, v[1]);
        h2 = hash_step(h2, v[2]);
        h3 = hash_step(h3, v[3]);
    }
    for (; i + 4 <= sz; i += 4) {
        uint32_t v;
        memcpy(&v, at + i, sizeof v);
        h = hash_step(h, v);
    }
    return hash_step(hash_step(hash_step(h, h1), h2), h3);
}

static uint32_t policy_of(uint32_t policy) {
    switch (policy) {
    case TDM_POD_POLICY_PROPORTIONAL: return TDM_TICKET_PROPORTIONAL;
    case TDM_POD_POLICY_EVEN: return TDM_TICKET_EVEN;
    default: return TDM_TICKET_STICKY;
    }
}

/* Rows of the tallest decode tile. */
static uint32_t decode_row(const work_t *w) {
    uint64_t row = (uint64_t)TDM_MAX(decode_tok(w), 1u) * w->group;
    return (uint32_t)TDM_MIN(row, w->tile_row[TDM_KIND_DECODE]);
}

/* Carves the blob; its pieces stand in the order of tdm_pod_head_t. */
static void lay_out(work_t *w, uint32_t seq_cnt, uint8_t *blob) {
    tdm_pod_plan_t *p = w->plan;
    tdm_pod_head_t *head = (tdm_pod_head_t *)(void *)blob;
    uint32_t off = sizeof *head;
    *head = (tdm_pod_head_t){.merge_cnt = p->merge_cnt,
                             .seq_cnt = seq_cnt,
                             .group = w->group,
                             .policy = policy_of(w->config->policy),
                             .decode_warp = w->config->decode_warp,
                             .decode_row = decode_row(w)};
    int is_hopper = p->variant == TDM_POD_VARIANT_HOPPER;
    int is_even = !w->config->share[TDM_KIND_PREFILL] && !w->config->share[TDM_KIND_DECODE];
    for (uint32_t kind = 0; kind < TDM_KIND_CNT; kind++) {
        head->share[kind] = is_hopper ? p->share[kind] : is_even ? 1 : w->config->share[kind];
    }
    if (w->group > 1) {
        head->group_magic = (uint32_t)(((UINT64_C(1) << 32) + w->group - 1) / w->group);
    }
    head->seq_off = off;
    memcpy(blob + off, w->seq, seq_cnt * sizeof(tdm_attn_seq_t));
    off += seq_cnt * (uint32_t)sizeof(tdm_attn_seq_t);
    head->merge_off = off;
    w->merge = (tdm_pod_merge_t *)(void *)(blob + off);
    off += p->merge_cnt * (uint32_t)sizeof(tdm_pod_merge_t);
    off = (off + 31) / 32 * 32;
    for (uint32_t kind = 0; kind < TDM_KIND_CNT; kind++) {
        head->item_cnt[kind] = p->item_cnt[kind];
        head->item_off[kind] = off;
        w->item[kind] = (tdm_pod_item_t *)(void *)(blob + off);
        off += p->item_cnt[kind] * (uint32_t)sizeof(tdm_pod_item_t);
    }
    p->blob_sz = off;
}

/* Sizes one kind; whole where split does not fit. */
static int size_kind(work_t *w, uint32_t kind) {
    if (measure(w, kind)) return 1;
    if (w->plan->reason == TDM_REASON_NONE) w->plan->reason = TDM_FALLBACK_workspace;
    w->span[kind] = COST_MAX;
    return measure(w, kind);
}

/* Cuts and sizes both kinds; 0 where they do not fit. */
static int size_items(work_t *w, uint32_t route) {
    w->whole_seq = w->whole_row = 0;
    if (w->plan->variant == TDM_POD_VARIANT_HOPPER) {
        tdm_pod_hopper_cut(w, route);
        return measure(w, TDM_KIND_PREFILL) && measure(w, TDM_KIND_DECODE);
    }
    float decode_us;
    w->plan->decode_split_tok = tdm_pod_decode_cut(w, route, &decode_us);
    w->span[TDM_KIND_DECODE] = TDM_MAX(w->plan->decode_split_tok / KEY_BLOCK, 1u);
    w->span[TDM_KIND_PREFILL] = tdm_pod_prefill_cut(w, route, decode_us, NULL);
    for (uint32_t kind = 0; kind < TDM_KIND_CNT; kind++) {
        w->span[kind] = TDM_MIN(w->span[kind], COST_MAX); /* the buckets end there */
        if (!size_kind(w, kind)) return 0;
    }
    return 1;
}

static void place_items(work_t *w, uint32_t seq_cnt, void *blob) {
    lay_out(w, seq_cnt, blob);
    for (uint32_t kind = 0; kind < TDM_KIND_CNT; kind++) {
        buckets_to_offsets(w, kind);
        place(w, kind);
    }
}

/* Rows, sums and tile of the plan's variant. */
static void survey(work_t *w) {
    tdm_pod_plan_t *p = w->plan;
    p->cta_sm = p->item_cnt[TDM_KIND_PREFILL] = p->item_cnt[TDM_KIND_DECODE] = 0;
    p->merge_cnt = 0;
    p->part_float_cnt = 0;
    choose_tile(w);
    tdm_pod_survey(w);
    if (p->variant == TDM_POD_VARIANT_HOPPER) tdm_pod_hopper_survey(w);
}

void tdm_pod_plan_build(const tdm_pod_config_t *config, const tdm_attn_seq_t *seq,
                        uint32_t prefill_cnt, uint32_t decode_cnt, uint32_t route, void *blob,
                        tdm_pod_plan_t *plan) {
    work_t w;
    w.config = config;
    w.seq = seq;
    w.plan = plan;
    w.begin[TDM_KIND_PREFILL] = 0;
    w.end[TDM_KIND_PREFILL] = w.begin[TDM_KIND_DECODE] = prefill_cnt;
    w.end[TDM_KIND_DECODE] = prefill_cnt + decode_cnt;
    w.merge_cnt = 0;
    w.part_float_cnt = 0;
    *plan = (tdm_pod_plan_t){.route = TDM_ROUTE_IDLE};
    plan->reason = tdm_pod_gate(config, &plan->variant);
    if (plan->variant) {
        uint32_t limit = seq_gate(&w, prefill_cnt, decode_cnt, &plan->variant);
        if (limit && (!plan->reason || limit < plan->reason)) plan->reason = limit;
    }
    if (!plan->variant) return;

    w.group = config->shape.nhead_q / config->shape.nhead_kv;
    count_work(&w);
    if (tdm_pod_hopper_is_slow(&w)) plan->variant = TDM_POD_VARIANT_PORTABLE;
    survey(&w);
    int is_auto = route == TDM_POD_ROUTE_AUTO;
    int is_hybrid = prefill_cnt && decode_cnt;
    if (is_auto)
        route = is_hybrid && !plan->reason ? tdm_pod_choose(&w) : (uint32_t)TDM_ROUTE_FUSED;
    int is_fine = size_items(&w, route_of(&w, route));
    if (!is_fine && plan->variant == TDM_POD_VARIANT_HOPPER && decode_tok(&w) <= 1 &&
        !tdm_pod_variant_gate(config, TDM_POD_VARIANT_PORTABLE)) {
        /* Its items must be short; the portable ones may be whole. */
        plan->variant = TDM_POD_VARIANT_PORTABLE;
        survey(&w);
        if (is_auto)
            route = is_hybrid && !plan->reason ? tdm_pod_choose(&w) : (uint32_t)TDM_ROUTE_FUSED;
        is_fine = size_items(&w, route_of(&w, route));
    }
    if (!is_fine) return;
    place_items(&w, prefill_cnt + decode_cnt, blob);
    plan->route = route_of(&w, route);
    plan->way = way_of(plan->route);
    if (is_auto && is_hybrid && plan->route != TDM_ROUTE_FUSED && !plan->reason) {
        plan->reason = TDM_FALLBACK_not_profitable;
    } else if (plan->route != TDM_ROUTE_SERIAL) {
        plan->reason = TDM_REASON_NONE;
    }
    plan->wave[TDM_KIND_PREFILL] = (float)plan->item_cnt[TDM_KIND_PREFILL] / (float)plan->grid;
    plan->wave[TDM_KIND_DECODE] =
        (float)plan->item_cnt[TDM_KIND_DECODE] / (float)(plan->grid * TDM_POD_PACK);
    for (uint32_t kind = 0; kind < TDM_KIND_CNT && plan->variant == TDM_POD_VARIANT_HOPPER;
         kind++) { /* an item of either kind fills an SM */
        plan->wave[kind] = (float)plan->item_cnt[kind] / (float)config->gpu.sm_cnt;
    }
    plan->key = hash_words(0, &config->shape, sizeof config->shape);
    plan->key = hash_words(plan->key, seq, (prefill_cnt + decode_cnt) * sizeof *seq);
    plan->key = hash_words(plan->key, w.span, sizeof w.span);
    const uint32_t whole[] = {w.whole_seq, w.whole_row};
    plan->key = hash_words(plan->key, whole, sizeof whole);
    plan->key = hash_words(plan->key, &plan->variant, sizeof plan->variant);
    plan->key = hash_words(plan->key, &plan->tile, sizeof plan->tile);
}
