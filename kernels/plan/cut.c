/* SPDX-License-Identifier: Apache-2.0 */
/* How finely to cut: pure arithmetic on sums of the batch and figures of
   the device.  The numbers below were measured on an H200
   (tests/perf/results/attention_portable.md). */
#include "kernels/plan/plan_private.h"

/* Decode items, in units of keys: an item costs 100 keys beside its own; a
   round in which only a share f of the warps has an item takes 0.25 + 0.7 f
   of a full one, for few warps do not draw the whole memory rate. */
#define DECODE_ITEM_COST   100.0f
#define DECODE_ROUND_BASE  0.25f
#define DECODE_ROUND_SLOPE 0.7f
#define DECODE_ROUND_MAX   4u /* more only where whole sequences need them */
#define DECODE_SPLIT_MIN   256u
#define DECODE_SPLIT_MAX   8192u

/* Beside prefill decode begins on half of the warps, so items are no longer
   than 4096.  In one launch, where prefill's CTAs turn to what decode has
   left, fewer than four rounds of that half end unevenly: then 2048. */
#define DECODE_SPLIT_MAX_BESIDE 4096u
#define DECODE_SPLIT_MAX_FUSED  2048u
#define DECODE_ROUND_FUSED      4u

/* Pieces of one prefill tile: each costs a partial of row * head_dim floats
   written and read, as long as about 4 key blocks alone and 3 beside decode.
   Below 16 blocks a piece does not pay. */
#define PREFILL_SPLIT_MAX    8u
#define PREFILL_SPLIT_COST   4u
#define PREFILL_SPLIT_BESIDE 3u
#define PREFILL_BLOCK_MIN    16u
#define PREFILL_SPLIT_GAIN   0.985f /* of the time at most: a finer cut must earn its keep */

/* Time of what shares an SM, in that of two prefill CTAs side by side: a
   prefill CTA beside decode, and one alone.  Those that begin together are
   one on each SM; of later ones two may meet on one SM while another has
   none, and do where decode ends within a sixth of the first items' end:
   16K/2048/28 of 8 KV heads, 12 % apart, took 0.94 to 1.05 of serial.
   Decode beside prefill, in its time alone. */
#define PREFILL_BESIDE 0.87f
#define PREFILL_SINGLE 0.72f
#define PREFILL_LATER  0.9f
#define PREFILL_MEET   0.16f
#define DECODE_BESIDE  1.2f

/* Pieces beyond two for each slot measured worse than longer ones: they
   read more parts of K and V at one time than the L2 cache holds. */
#define PIECE_ROUND 2u

#define STEP_MAX 4096 /* of a simulated launch; far more than items allow */

/* Lengths that are worth a look: the longest sequence in 1, 2, 3, ...
   pieces. */
static void survey_decode(work_t *w) {
    static const uint8_t piece[] = {1, 2, 3, 4, 5, 6, 8, 11, 16, 24, 32, 48, 64, 96, 128, 255};
    _Static_assert(sizeof piece <= DECODE_TRY_MAX, "one try a piece");
    uint64_t magic[DECODE_TRY_MAX];
    uint32_t longest = 1;
    uint32_t cnt = 0;
    for (uint32_t s = w->begin[TDM_KIND_DECODE]; s < w->end[TDM_KIND_DECODE]; s++) {
        longest = TDM_MAX(longest, w->seq[s].kv_cnt);
    }
    for (uint32_t i = 0; i < TDM_COUNT_OF(piece); i++) {
        uint32_t len = (longest + piece[i] - 1) / piece[i];
        len = (len + KEY_BLOCK - 1) / KEY_BLOCK * KEY_BLOCK;
        if (len > DECODE_SPLIT_MAX) continue;
        if (len < DECODE_SPLIT_MIN && i > 0) break;
        /* x / len == x * magic >> 32 while x * len < 2^32: all but plain contexts */
        magic[cnt] = (UINT64_C(1) << 32) / len + 1;
        w->decode_try[cnt++] = (decode_try_t){.len = len};
    }
    for (uint32_t i = 0; i < cnt; i++) {
        uint64_t len = w->decode_try[i].len;
        uint32_t item = 0;
        for (uint32_t s = w->begin[TDM_KIND_DECODE]; s < w->end[TDM_KIND_DECODE]; s++) {
            item += (uint32_t)((w->seq[s].kv_cnt + len - 1) * magic[i] >> 32);
        }
        w->decode_try[i].item_cnt = item;
    }
    w->try_cnt = cnt;
}

void tdm_pod_survey(work_t *w) {
    uint32_t nhead = w->config->shape.nhead_kv;
    tile_sum_t sum = {0, 0, 0};
    for (uint32_t s = w->begin[TDM_KIND_PREFILL]; s < w->end[TDM_KIND_PREFILL]; s++) {
        for (tile_t t = {0}; tdm_pod_tile_next(w, TDM_KIND_PREFILL, &w->seq[s], &t);) {
            sum.tile_cnt += nhead;
            sum.block_cnt += (uint64_t)t.block_cnt * nhead;
            sum.block_max = TDM_MAX(sum.block_max, t.block_cnt);
        }
    }
    w->sum = sum;
    if (w->plan->variant != TDM_POD_VARIANT_HOPPER) survey_decode(w); /* has its own cuts */
}

/* --- decode --------------------------------------------------------- */

/* Time of all decode items of at most len keys, in keys of one warp. */
static float decode_time(const work_t *w, const decode_try_t *t) {
    uint64_t all = (uint64_t)t->item_cnt * w->config->shape.nhead_kv;
    uint64_t slot = (uint64_t)w->plan->grid * TDM_POD_PACK;
    float share = (float)(all % slot) / (float)slot;
    float round = (float)(all / slot);
    if (share > 0.0f) round += TDM_MAX(DECODE_ROUND_BASE + DECODE_ROUND_SLOPE * share, share);
    return round * ((float)t->len + DECODE_ITEM_COST);
}

/* Of the lengths up to most the one of the least time: among those of few
   rounds, or else the longest. */
static const decode_try_t *decode_best(const work_t *w, uint32_t most) {
    uint64_t slot = (uint64_t)w->plan->grid * TDM_POD_PACK;
    const decode_try_t *best = NULL;
    float least = 0.0f;
    for (uint32_t i = 0; i < w->try_cnt; i++) {
        const decode_try_t *t = &w->decode_try[i];
        if (t->len > most) continue;
        int is_many = (uint64_t)t->item_cnt * w->config->shape.nhead_kv > DECODE_ROUND_MAX * slot;
        if (best && is_many) break;
        float time = decode_time(w, t);
        if (best && time >= least) continue;
        best = t;
        least = time;
    }
    return best;
}

uint32_t tdm_pod_decode_cut(const work_t *w, uint32_t route, float *us_out) {
    int is_beside = route == TDM_ROUTE_FUSED || route == TDM_ROUTE_STREAMS;
    uint32_t split = w->config->decode_split_tok;
    const decode_try_t *t = decode_best(w, is_beside ? DECODE_SPLIT_MAX_BESIDE : DECODE_SPLIT_MAX);
    if (t && route == TDM_ROUTE_FUSED) {
        uint64_t all = (uint64_t)t->item_cnt * w->config->shape.nhead_kv;
        uint64_t half = (uint64_t)w->plan->grid * TDM_POD_PACK / 2;
        const decode_try_t *finer = decode_best(w, DECODE_SPLIT_MAX_FUSED);
        if (finer && all < DECODE_ROUND_FUSED * half) t = finer;
    }
    if (us_out) {
        /* The warps of the whole device share its memory rate. */
        uint32_t key_sz = w->config->shape.head_dim * 4;
        float key_us = (float)(w->plan->grid * TDM_POD_PACK * key_sz) / w->config->gpu.hbm_gbs;
        *us_out = t ? TDM_MAX(decode_time(w, t) * key_us * 1e-3f, w->plan->pred_us[TDM_KIND_DECODE])
                    : 0.0f;
    }
    if (split) return split;
    return t ? t->len : DECODE_SPLIT_MIN;
}

/* --- prefill -------------------------------------------------------- */

/* Time of one key block of a tile when prefill has all slots. */
static float block_us(const work_t *w) {
    float flop =
        4.0f * (float)(w->tile_row[TDM_KIND_PREFILL] * KEY_BLOCK * w->config->shape.head_dim);
    return flop * (float)w->plan->grid / w->config->gpu.mma_tflops * 1e-6f;
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

/* What it comes to: whole waves of items of the mean length, for the longest
   come first and the shorter behind them. */
static float prefill_alone(const tile_sum_t *sum, uint32_t span, uint32_t slot) {
    uint64_t piece = (sum->block_max + span - 1) / span;
    uint64_t item = sum->tile_cnt * piece;
    float wave = (float)((item + slot - 1) / slot);
    float mean =
        (float)sum->block_cnt / (float)item + (piece > 1 ? (float)PREFILL_SPLIT_COST : 0.0f);
    return TDM_MAX(wave * mean, (float)span);
}

/* Alone: the cut of the least time. */
static uint32_t prefill_cut_alone(const work_t *w, uint32_t most, float *us_out) {
    uint32_t best = w->sum.block_max;
    uint64_t least = UINT64_MAX;
    for (uint32_t n = 1; n <= most; n++) {
        uint32_t span = (w->sum.block_max + n - 1) / n;
        if (n > 1 && span < PREFILL_BLOCK_MIN) break;
        uint64_t time = makespan(&w->sum, span, w->plan->grid);
        if (time >= least) continue;
        least = time;
        best = span;
    }
    if (us_out) *us_out = prefill_alone(&w->sum, best, w->plan->grid) * block_us(w);
    return best;
}

/* A launch of both kinds, in blocks of time.  Half 0 of the slots begins
   with prefill items, half 1 with decode, and takes prefill items when
   decode is done; when prefill is done first, decode goes on at its own
   rate.  An item's speed is that of its SM's two CTAs. */
typedef struct beside {
    float left;    /* prefill items not begun */
    float work[2]; /* of the item that a half is at; 0: of none */
    float single;  /* time of an item without a neighbour */
    float end[2];  /* when half 0 was done with its first item, and decode; 0: not yet */
    float decode;  /* left, as long as it takes beside prefill */
} beside_t;

static void beside_take(beside_t *b, uint32_t half, float item, float slot_half) {
    if (b->work[half] > 0.0f || b->left <= 0.0f) return;
    if (b->single > 0.0f) {
        float apart = b->end[0] > b->end[1] ? b->end[0] - b->end[1] : b->end[1] - b->end[0];
        int is_met = b->end[0] > 0.0f && b->end[1] > 0.0f && apart < PREFILL_MEET * b->end[0];
        b->single = is_met ? 1.0f : PREFILL_LATER;
    } else {
        b->single = PREFILL_SINGLE;
    }
    b->left -= slot_half;
    b->work[half] = item;
}

static float beside_time(float item, float cnt, float slot_half, float decode) {
    const float none = 1e30f;
    beside_t b = {.left = cnt, .decode = decode};
    float now = 0.0f;
    for (uint32_t i = 0; i < STEP_MAX; i++) {
        int is_decode = b.decode > 0.0f;
        beside_take(&b, 0, item, slot_half);
        if (!is_decode) beside_take(&b, 1, item, slot_half);
        int is_on[2] = {b.work[0] > 0.0f, b.work[1] > 0.0f};
        if (!is_on[0] && !is_on[1] && !is_decode) break;
        float rate[2] = {1.0f, is_on[0] ? 1.0f : 1.0f / b.single};
        if (is_decode || !is_on[1]) rate[0] = 1.0f / (is_decode ? PREFILL_BESIDE : b.single);
        float decode_rate = is_on[0] ? 1.0f : DECODE_BESIDE;
        float step = is_decode ? b.decode / decode_rate : none;
        for (uint32_t h = 0; h < 2; h++) {
            if (is_on[h]) step = TDM_MIN(step, b.work[h] / rate[h]);
        }
        now += step;
        step *= 1.0001f; /* what ends now, ends in spite of rounding */
        for (uint32_t h = 0; h < 2; h++) b.work[h] -= is_on[h] ? step * rate[h] : 0.0f;
        b.decode -= is_decode ? step * decode_rate : 0.0f;
        if (b.end[0] == 0.0f && is_on[0] && b.work[0] <= 0.0f) b.end[0] = now;
        if (b.end[1] == 0.0f && is_decode && b.decode <= 0.0f) b.end[1] = now;
    }
    return now;
}

/* Beside decode: the longest tile whole, in halves or in quarters.  Other
   cuts, and whole tiles first with pieces behind them, measured worse. */
static uint32_t prefill_cut_beside(const work_t *w, uint32_t most, float decode_us, float *us_out) {
    const tile_sum_t *sum = &w->sum;
    uint32_t slot = w->plan->grid;
    uint32_t best = sum->block_max;
    float half = (float)(slot / 2);
    float decode = decode_us * DECODE_BESIDE / block_us(w);
    float whole = (float)sum->block_cnt / (float)sum->tile_cnt;
    float least = beside_time(whole, (float)sum->tile_cnt, half, decode);
    for (uint32_t n = 2; n <= most; n *= 2) {
        uint32_t span = (sum->block_max + n - 1) / n;
        if (span < PREFILL_BLOCK_MIN || n * sum->tile_cnt > PIECE_ROUND * (uint64_t)slot) break;
        float item = (float)(span + PREFILL_SPLIT_BESIDE);
        float time = beside_time(item, (float)sum->block_cnt / (float)span, half, decode);
        if (time >= least * PREFILL_SPLIT_GAIN) continue;
        least = time;
        best = span;
    }
    if (us_out) *us_out = least * block_us(w);
    return best;
}

uint32_t tdm_pod_prefill_cut(const work_t *w, uint32_t route, float decode_us, float *us_out) {
    uint32_t most = w->config->prefill_split_max;
    int is_beside = route == TDM_ROUTE_FUSED || route == TDM_ROUTE_STREAMS;
    if (most == 0) most = PREFILL_SPLIT_MAX;
    if (us_out) *us_out = 0.0f;
    if (w->sum.block_max == 0) return 1;
    if (w->config->prefill_split) {
        return (w->sum.block_max + w->config->prefill_split - 1) / w->config->prefill_split;
    }
    return is_beside && w->plan->grid > 1 ? prefill_cut_beside(w, most, decode_us, us_out)
                                          : prefill_cut_alone(w, most, us_out);
}
