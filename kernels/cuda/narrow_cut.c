/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/size.h"
#include "kernels/cuda/narrow.h"

/* Weight rows of a block: what its swizzle of 8 rows allows. */
#define BLOCK_LEAST 64u
#define BLOCK_MOST  128u
#define BLOCK_STEP  8u
/* Of more rows of x, which each tile reads anew, lower blocks measured slower:
   10.32 beside 10.20 ms a step of 128 rows, where 32 took 5.25 beside 5.29. */
#define LOW_ROW_MAX 32u

int tdm_narrow_takes(const tdm_gemm_shape_t *s) {
    if (s->rows == 0 || s->in % 8 != 0 || s->in == 0) return 0;
    if (s->y_type == TDM_GEMM_BF16) return s->out % 2 == 0 && !s->is_add;
    return !s->is_add || s->is_split;
}

static uint32_t rows_of(uint32_t rows) {
    uint32_t n = 8;
    while (n < rows && n < TDM_NARROW_ROWS_MAX) n *= 2;
    return n;
}

/* cost: the bytes that the busiest CTA moves, one after the other: weights
   and rows, and its part of what lies between it and who adds up. */
static uint64_t cost(const tdm_gemm_shape_t *s, const tdm_narrow_cut_t *c) {
    uint64_t steps = tdm_ceil_div(tdm_ceil_div(s->in, TDM_NARROW_K), c->split_cnt);
    uint64_t units = tdm_ceil_div((uint64_t)c->tile_cnt * c->split_cnt * c->row_tile_cnt, c->grid);
    uint64_t stage = ((uint64_t)c->block_cnt * c->block_row + c->row_cnt) * TDM_NARROW_K * 2;
    uint64_t sums = (uint64_t)c->block_cnt * c->block_row * TDM_MIN(s->rows, c->row_cnt) * 4;
    return units * (steps * stage + (c->split_cnt > 1 ? 2 * sums : 0));
}

static tdm_narrow_cut_t cut_of(const tdm_gemm_shape_t *s, uint32_t sm_cnt, uint32_t blocks,
                               uint32_t block_row, uint32_t splits) {
    tdm_narrow_cut_t c = {.row_cnt = rows_of(s->rows),
                          .block_cnt = blocks,
                          .block_row = block_row,
                          .split_cnt = splits};
    c.tile_cnt = (uint32_t)tdm_ceil_div(s->out, blocks * block_row);
    /* A pair's tile is one block of each half. */
    if (s->y_type == TDM_GEMM_BF16) c.tile_cnt = (uint32_t)tdm_ceil_div(s->out / 2, block_row);
    c.row_tile_cnt = (uint32_t)tdm_ceil_div(s->rows, c.row_cnt);
    c.grid = TDM_MIN(c.tile_cnt * splits * c.row_tile_cnt, sm_cnt);
    return c;
}

/* The best of `in` whole or in ranges that are all resident at once. */
static void try_splits(const tdm_gemm_shape_t *s, uint32_t sm_cnt, uint32_t blocks,
                       uint32_t block_row, tdm_narrow_cut_t *best) {
    uint32_t steps = (uint32_t)tdm_ceil_div(s->in, TDM_NARROW_K);
    int is_cut = s->is_split && s->y_type != TDM_GEMM_BF16;
    uint32_t split_max = is_cut ? TDM_MIN(TDM_NARROW_SPLIT_MAX, steps) : 1;
    for (uint32_t splits = 1; splits <= split_max; splits++) {
        tdm_narrow_cut_t c = cut_of(s, sm_cnt, blocks, block_row, splits);
        if (splits > 1 && c.tile_cnt * splits * c.row_tile_cnt > sm_cnt) break;
        if (cost(s, &c) < cost(s, best)) *best = c;
    }
}

/* SMs that a product may take.  Behind one in parts that are added to nothing
   few rows' attention begins (rows.h, pod.h: tdm_pod_launch_fresh), whose CTAs
   find no room beside its rings: it leaves them a quarter of the SMs, where they
   ask for their items and first keys meanwhile.  Llama-3-8B's attention takes 9.9
   us a layer then instead of 12.3, the step of 1 row 3,972 us instead of 4,024. */
static uint32_t sm_of(const tdm_gemm_shape_t *s, uint32_t sm_cnt) {
    int is_before_attention = s->is_split && !s->is_add && s->rows <= LOW_ROW_MAX;
    return is_before_attention ? sm_cnt - sm_cnt / 4 : sm_cnt;
}

tdm_narrow_cut_t tdm_narrow_cut(const tdm_gemm_shape_t *s, uint32_t sm_cnt_all) {
    uint32_t sm_cnt = sm_of(s, sm_cnt_all);
    tdm_narrow_cut_t best = cut_of(s, sm_cnt, 2, BLOCK_MOST, 1);
    uint32_t few = s->y_type == TDM_GEMM_BF16 ? 2 : 1;
    uint32_t low = s->rows <= LOW_ROW_MAX ? BLOCK_LEAST : BLOCK_MOST;
    for (uint32_t row = BLOCK_MOST; row >= low; row -= BLOCK_STEP)
        for (uint32_t blocks = few; blocks <= 2; blocks++)
            try_splits(s, sm_cnt, blocks, row, &best);
    return best;
}

tdm_narrow_cut_t tdm_narrow_cut_fixed(const tdm_gemm_shape_t *s, uint32_t sm_cnt) {
    tdm_gemm_shape_t at = *s;
    at.rows = TDM_NARROW_ROWS_MAX;
    tdm_narrow_cut_t c = tdm_narrow_cut(&at, sm_cnt);
    return cut_of(s, sm_cnt, c.block_cnt, c.block_row, c.split_cnt);
}
