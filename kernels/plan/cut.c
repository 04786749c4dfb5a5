/* SPDX-License-Identifier: Apache-2.0 */
/* How finely to cut: pure arithmetic on sums of the batch and figures of
   the device. */
#include "kernels/plan/plan_private.h"

/* Decode items, measured on an H200 in units of keys: an item costs 100
   keys beside its own; a round in which only a share f of the warps has an
   item takes 0.25 + 0.7 f of a full one, for few warps do not draw the whole
   memory rate.  Beside prefill, where fewer warps begin with decode, no
   longer than 4096. */
#define DECODE_ITEM_COST       100.0f
#define DECODE_ROUND_BASE      0.25f
#define DECODE_ROUND_SLOPE     0.7f
#define DECODE_ROUND_MAX       4u /* more only where whole sequences need them */
#define DECODE_SPLIT_MIN       256u
#define DECODE_SPLIT_MAX       8192u
#define DECODE_SPLIT_MAX_FUSED 4096u

/* Pieces of one prefill tile.  Each piece costs a partial of row * head_dim
   floats written and read: about 4 key blocks' worth of time (measured on an
   H200).  Below 16 blocks the pipeline's fill shows. */
#define PREFILL_SPLIT_MAX  8u
#define PREFILL_SPLIT_COST 4u
#define PREFILL_BLOCK_MIN  16u

/* Beside prefill decode takes this much longer than alone, and a prefill
   CTA is this much quicker beside decode than beside prefill (measured on
   an H200: 2.54 us a block against 2.93). */
#define DECODE_BESIDE  1.2f
#define PREFILL_BESIDE 0.87f
/* Pieces beyond two for each slot measured worse than longer ones. */
#define PIECE_ROUND 2u

/* Time of all decode items of at most split keys, in keys of one warp. */
static float decode_time(const work_t *w, uint32_t split) {
    uint64_t item = 0;
    for (uint32_t s = w->begin[TDM_KIND_DECODE]; s < w->end[TDM_KIND_DECODE]; s++) {
        item += (w->seq[s].kv_cnt + split - 1) / split;
    }
    uint64_t all = item * w->config->shape.nhead_kv;
    uint64_t slot = (uint64_t)w->plan->grid * TDM_POD_PACK;
    if (all > DECODE_ROUND_MAX * slot) return 1e30f;
    float share = (float)(all % slot) / (float)slot;
    float round = (float)(all / slot);
    if (share > 0.0f) round += TDM_MAX(DECODE_ROUND_BASE + DECODE_ROUND_SLOPE * share, share);
    return round * ((float)split + DECODE_ITEM_COST);
}

/* Blocks of a full decode item: the longest sequence in 1, 2, 3, ... pieces,
   whichever takes the least time. */
uint32_t tdm_pod_decode_span(const work_t *w, int is_fused) {
    static const uint8_t piece[] = {1, 2, 3, 4, 5, 6, 8, 11, 16, 24, 32, 48, 64, 96, 128, 255};
    uint32_t split = w->config->decode_split_tok;
    if (split == 0) {
        uint32_t most = is_fused ? DECODE_SPLIT_MAX_FUSED : DECODE_SPLIT_MAX;
        uint32_t longest = 1;
        float least = -1.0f;
        for (uint32_t s = w->begin[TDM_KIND_DECODE]; s < w->end[TDM_KIND_DECODE]; s++) {
            longest = TDM_MAX(longest, w->seq[s].kv_cnt);
        }
        split = DECODE_SPLIT_MIN;
        for (uint32_t i = 0; i < TDM_COUNT_OF(piece); i++) {
            uint32_t len = (longest + piece[i] - 1) / piece[i];
            len = (len + KEY_BLOCK - 1) / KEY_BLOCK * KEY_BLOCK;
            if (len > most) continue;
            if (len < DECODE_SPLIT_MIN && i > 0) break;
            float time = decode_time(w, len);
            if (least >= 0.0f && time > 1.3f * least && time > 1e29f) break;
            if (least >= 0.0f && time >= least) continue;
            least = time;
            split = len;
        }
    }
    w->plan->decode_split_tok = split;
    return TDM_MAX(split / KEY_BLOCK, 1u);
}

/* What the tiles of all prefill sequences add up to. */
typedef struct tile_sum {
    uint64_t tile_cnt; /* times KV heads */
    uint64_t block_cnt;
    uint32_t block_max;
} tile_sum_t;

static tile_sum_t sum_tiles(const work_t *w) {
    tile_sum_t sum = {0, 0, 0};
    uint32_t nhead = w->config->shape.nhead_kv;
    for (uint32_t s = w->begin[TDM_KIND_PREFILL]; s < w->end[TDM_KIND_PREFILL]; s++) {
        for (tile_t t = {0}; tdm_pod_tile_next(w, &w->seq[s], &t);) {
            sum.tile_cnt += nhead;
            sum.block_cnt += (uint64_t)t.block_cnt * nhead;
            sum.block_max = TDM_MAX(sum.block_max, t.block_cnt);
        }
    }
    return sum;
}

/* Time, in blocks, that items of at most `span` blocks take on all slots:
   whole waves where the items are equal, longest-first otherwise. */
static uint64_t makespan(const tile_sum_t *sum, uint32_t span, uint32_t slot) {
    uint64_t piece = (sum->block_max + span - 1) / span;
    uint64_t item = sum->tile_cnt * piece;
    uint64_t wave = (item + slot - 1) / slot * span;
    uint64_t lpt = sum->block_cnt / slot + span / 2;
    uint64_t fold = piece > 1 ? PREFILL_SPLIT_COST * ((item + slot - 1) / slot) : 0;
    return TDM_MAX(TDM_MIN(wave, lpt), span) + fold;
}

/* Time beside decode of items of at most span blocks, in blocks: half of
   the slots begin at once, the other half when decode is done, and
   whichever half is free first takes the next round of items. */
static float makespan_beside(const tile_sum_t *sum, uint32_t span, uint32_t slot, float decode) {
    int is_whole = span >= sum->block_max;
    float item = is_whole ? (float)sum->block_cnt / (float)sum->tile_cnt
                          : (float)(span + PREFILL_SPLIT_COST);
    float cnt = is_whole ? (float)sum->tile_cnt : (float)sum->block_cnt / (float)span;
    float free_at[2] = {0.0f, decode};
    float end = 0.0f;
    for (float dealt = 0.0f; dealt < cnt; dealt += (float)(slot / 2)) {
        float *half = free_at[0] <= free_at[1] ? &free_at[0] : &free_at[1];
        *half += item;
        end = TDM_MAX(end, *half);
    }
    return end;
}

/* Blocks of a full prefill item beside decode: the longest tile whole, in
   halves or quarters.  Other cuts, and whole tiles first with
   pieces behind them, measured worse: they read more parts of K and V at
   one time than the L2 cache holds. */
static uint32_t prefill_span_beside(const work_t *w, const tile_sum_t *sum, uint32_t most) {
    uint32_t slot = w->plan->grid;
    uint32_t best = sum->block_max;
    float flop = 4.0f * (float)(w->tile_row * KEY_BLOCK * w->config->shape.head_dim);
    float block_us = flop * (float)slot / w->config->gpu.mma_tflops * 1e-6f * PREFILL_BESIDE;
    float decode = w->plan->pred_us[TDM_KIND_DECODE] * DECODE_BESIDE / block_us;
    if (2 * sum->tile_cnt > PIECE_ROUND * (uint64_t)slot) return best;
    float least = makespan_beside(sum, best, slot, decode);
    for (uint32_t n = 2; n <= most; n *= 2) {
        uint32_t span = (sum->block_max + n - 1) / n;
        if (span < PREFILL_BLOCK_MIN || n * sum->tile_cnt > PIECE_ROUND * (uint64_t)slot) break;
        float time = makespan_beside(sum, span, slot, decode);
        if (time >= least * 0.97f) continue; /* a finer cut must earn its keep */
        least = time;
        best = span;
    }
    return best;
}

/* Alone: the cut of the least time. */
static uint32_t prefill_span_alone(const work_t *w, const tile_sum_t *sum, uint32_t most) {
    uint32_t best = sum->block_max;
    uint64_t least = UINT64_MAX;
    for (uint32_t n = 1; n <= most; n++) {
        uint32_t span = (sum->block_max + n - 1) / n;
        if (n > 1 && span < PREFILL_BLOCK_MIN) break;
        uint64_t time = makespan(sum, span, w->plan->grid);
        if (time >= least) continue;
        least = time;
        best = span;
    }
    return best;
}

uint32_t tdm_pod_prefill_span(const work_t *w, int is_fused) {
    tile_sum_t sum = sum_tiles(w);
    uint32_t most = w->config->prefill_split_max;
    if (most == 0) most = PREFILL_SPLIT_MAX;
    if (sum.block_max == 0) return 1;
    return is_fused && w->plan->grid > 1 ? prefill_span_beside(w, &sum, most)
                                         : prefill_span_alone(w, &sum, most);
}
