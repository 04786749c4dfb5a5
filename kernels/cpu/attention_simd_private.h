/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of attention, once.  Included by one .c file per
   instruction set, which defines

     vec_t, W           a vector of W floats; W divides 16
     PV_ROWS            rows whose outputs stay in registers: 2 or 4
     OPS                the name of the tdm_attn_ops_t to define
     INLINE             static and always inlined
     vec_load vec_store vec_set1 vec_add vec_mul vec_max
     vec_fma(a, b, c)   a * b + c (one or two roundings, always the same)
     vec_max(a, b)      b where a or b is NaN
     vec_sum vec_top    the sum and the maximum of a vector, fixed order
     vec_exp2(x)        exp2 of x <= 0, from exp2_poly below
     vec_bf16(p)        W bf16 at p as floats
     vec_fp8(p)         W e4m3 at p as floats, exactly
     vec_tree(acc)      acc[W] -> the vector of their W sums, one fixed tree

   Fixed order of a row, whatever shares its tile:
     score   W running sums over head_dim by fma, then vec_tree
     block   64 weights 2^(s - m), summed by vectors, then vec_sum
     output  one fma per key, keys in order, into each element

   Nothing past a row's last key takes part: its scores are -inf, its V
   rows are not read, so that neither NaN in unwritten tokens nor 0 * inf
   can leak. */

#include <math.h>
#include <string.h>

#include "appliance/abi/fp8.h"
#include "kernels/cpu/attention_ops.h"

#define BLOCK  TDM_KV_PAGE_TOKENS
#define PV_VEC 4 /* vectors of a row's output held at once */

/* dots scores one query row against W consecutive K rows. */
INLINE vec_t dots(const float *q, const float *k, uint32_t vec_cnt) {
    const uint32_t stride = vec_cnt * W;
    vec_t acc[W];
    vec_t x = vec_load(q);
#pragma GCC unroll 16
    for (int j = 0; j < W; j++) acc[j] = vec_mul(x, vec_load(k + (uint32_t)j * stride));
    for (uint32_t v = 1; v < vec_cnt; v++) {
        x = vec_load(q + v * W);
#pragma GCC unroll 16
        for (int j = 0; j < W; j++) {
            acc[j] = vec_fma(x, vec_load(k + (uint32_t)j * stride + v * W), acc[j]);
        }
    }
    return vec_tree(acc);
}

/* ahead_t is the KV block after the one at hand.  A decode passes over
   KV once, and pages are scattered, so that no hardware prefetcher sees
   the next one coming: it is asked for a few lines at a time, K while
   scores are made and V while outputs are, because a burst would stall
   on the core's miss buffers. */
typedef struct ahead {
    const uint8_t *k; /* NULL after the last block */
    const uint8_t *v;
    uint32_t key_sz; /* bytes of one key's row */
} ahead_t;

#define LINE_SZ 64

/* fetch asks for the lines of [p + begin, p + end). */
INLINE void fetch(const uint8_t *p, uint32_t begin, uint32_t end) {
    for (uint32_t at = begin; at < end; at += LINE_SZ) __builtin_prefetch(p + at, 0, 2);
}

/* score fills s for n keys of a block, K rows outside and query rows
   inside, so that W rows of K stay in the first-level cache. */
INLINE void score(const tdm_attn_tile_t *t, const float *k, uint32_t n, uint32_t vec_cnt,
                  ahead_t ahead) {
    const uint32_t stride = vec_cnt * W;
    const uint32_t share = (W * ahead.key_sz / t->row_cnt + LINE_SZ) & ~(LINE_SZ - 1u);
    for (uint32_t c = 0; c < n; c += W) {
        const float *rows = k + (uint64_t)c * stride;
        if (c + W > n) { /* the last few keys, with rows of 0 behind them */
            float *tail = t->k_copy + c * stride;
            if (rows != tail) memcpy(tail, rows, (n - c) * stride * sizeof(float));
            memset(tail + (n - c) * stride, 0, (c + W - n) * stride * sizeof(float));
            rows = tail;
        }
        for (uint32_t r = 0; r < t->row_cnt; r++) {
            if (ahead.k) {
                uint32_t end = (c + W) * ahead.key_sz;
                uint32_t at = c * ahead.key_sz + r * share;
                fetch(ahead.k, at, TDM_MIN(at + share, end));
            }
            vec_store(t->s + r * BLOCK + c, dots(t->q + r * stride, rows, vec_cnt));
        }
    }
}

/* weigh turns the n scores of row r into weights and moves m, l and o to
   the new maximum. */
INLINE void weigh(float *s, uint32_t n, float *m, float *l, float *o, uint32_t vec_cnt) {
    for (uint32_t i = n; i < BLOCK; i++) s[i] = -INFINITY;
    vec_t top = vec_load(s);
#pragma GCC unroll 16
    for (int i = 1; i < BLOCK / W; i++) top = vec_max(vec_load(s + i * W), top);
    float m_new = vec_top(top);
    m_new = m_new > *m ? m_new : *m;
    vec_t minus_m = vec_set1(-m_new);
    vec_t sum = vec_set1(0.0f);
#pragma GCC unroll 16
    for (int i = 0; i < BLOCK / W; i++) {
        vec_t p = vec_exp2(vec_add(vec_load(s + i * W), minus_m));
        vec_store(s + i * W, p);
        sum = vec_add(sum, p);
    }
    /* Where the maximum stays, the factor is exactly 1. */
    if (m_new != *m) {
        vec_t factor = vec_exp2(vec_set1(*m - m_new));
        float f[W] TDM_ALIGNED(64);
        vec_store(f, factor);
        *l *= f[0];
        for (uint32_t v = 0; v < vec_cnt; v++) {
            vec_store(o + v * W, vec_mul(vec_load(o + v * W), factor));
        }
    }
    *l += vec_sum(sum);
    *m = m_new;
}

/* add_values adds n weighted V rows to `rows` output rows, whose weights
   lie BLOCK apart; vecs vectors of each row at a time. */
INLINE void add_values(float *o, const float *p, const float *v, uint32_t n, uint32_t stride,
                       const int rows, const int vecs, ahead_t ahead) {
    vec_t acc[PV_ROWS][PV_VEC];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int i = 0; i < vecs; i++) acc[r][i] = vec_load(o + (uint32_t)r * stride + i * W);
    }
    for (uint32_t k = 0; k < n; k++) {
        vec_t x[PV_VEC];
#pragma GCC unroll 4
        for (int i = 0; i < vecs; i++) x[i] = vec_load(v + k * stride + (uint32_t)i * W);
        if (ahead.v) fetch(ahead.v, k * ahead.key_sz, (k + 1) * ahead.key_sz);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            vec_t w = vec_set1(p[r * BLOCK + (int)k]);
#pragma GCC unroll 4
            for (int i = 0; i < vecs; i++) acc[r][i] = vec_fma(w, x[i], acc[r][i]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int i = 0; i < vecs; i++) vec_store(o + (uint32_t)r * stride + i * W, acc[r][i]);
    }
}

INLINE void add_values_wide(float *o, const float *p, const float *v, uint32_t n, uint32_t vec_cnt,
                            const int rows, ahead_t ahead) {
    uint32_t i = 0;
    for (; i + PV_VEC <= vec_cnt; i += PV_VEC) {
        add_values(o + i * W, p, v + i * W, n, vec_cnt * W, rows, PV_VEC, ahead);
        ahead.v = NULL;
    }
    for (; i < vec_cnt; i++) {
        add_values(o + i * W, p, v + i * W, n, vec_cnt * W, rows, 1, ahead);
        ahead.v = NULL;
    }
}

/* output adds n V rows to row_cnt rows that all see n keys. */
INLINE void output(float *o, const float *p, const float *v, uint32_t n, uint32_t row_cnt,
                   uint32_t vec_cnt, ahead_t ahead) {
    const uint32_t stride = vec_cnt * W;
    uint32_t r = 0;
    for (; r + PV_ROWS <= row_cnt; r += PV_ROWS) {
        add_values_wide(o + r * stride, p + r * BLOCK, v, n, vec_cnt, PV_ROWS, ahead);
        ahead.v = NULL;
    }
    o += r * stride;
    p += r * BLOCK;
    switch (row_cnt - r) {
#if PV_ROWS > 2
    case 3: add_values_wide(o, p, v, n, vec_cnt, 3, ahead); break;
    case 2: add_values_wide(o, p, v, n, vec_cnt, 2, ahead); break;
#endif
    case 1: add_values_wide(o, p, v, n, vec_cnt, 1, ahead); break;
    default: break;
    }
}

/* widen_fp8 makes one row of codes floats of the head's scale. */
INLINE void widen_fp8(float *to, const uint8_t *code, uint32_t dim, float scale) {
    uint32_t d = 0;
    for (; d + W <= dim; d += W) vec_store(to + d, vec_mul(vec_fp8(code + d), vec_set1(scale)));
    for (; d < dim; d++) to[d] = tdm_f32_from_fp8(code[d]) * scale;
}

/* widen copies n rows of a KV block to float32 rows of `stride`; scale is of
   TDM_KV_E4M3. */
static void widen(float *to, const void *pool, const tdm_kv_layout_t *kv, float scale, uint64_t off,
                  uint32_t n, uint32_t stride) {
    const uint32_t dim = kv->head_dim;
    for (uint32_t i = 0; i < n; i++) {
        float *row = to + i * stride;
        if (kv->dtype == TDM_KV_F32) {
            memcpy(row, (const float *)pool + off + (uint64_t)i * dim, dim * sizeof(float));
        } else if (kv->dtype == TDM_KV_E4M3) {
            widen_fp8(row, (const uint8_t *)pool + off + (uint64_t)i * dim, dim, scale);
        } else {
            const uint16_t *src = (const uint16_t *)pool + off + (uint64_t)i * dim;
            uint32_t d = 0;
            for (; d + W <= dim; d += W) vec_store(row + d, vec_bf16(src + d));
            for (; d < dim; d++) {
                uint32_t bits = (uint32_t)src[d] << 16;
                memcpy(row + d, &bits, sizeof bits);
            }
        }
        for (uint32_t d = dim; d < stride; d++) row[d] = 0.0f;
    }
}

/* block_of gives n float32 rows of a KV block: in place where the pool
   has that form, a copy otherwise. */
INLINE const float *block_of(const tdm_attn_tile_t *t, const void *pool, float scale, float *copy,
                             uint64_t off, uint32_t n) {
    if (t->kv->dtype == TDM_KV_F32 && t->kv->head_dim == t->stride) {
        return (const float *)pool + off;
    }
    widen(copy, pool, t->kv, scale, off, n, t->stride);
    return copy;
}

INLINE ahead_t ahead_of(const tdm_attn_tile_t *t, uint32_t begin) {
    if (begin >= t->kv_cnt) return (ahead_t){0};
    uint64_t sz = tdm_kv_elem_sz(t->kv);
    uint64_t off = tdm_kv_offset(t->kv, t->page[begin / BLOCK], t->head_kv, 0) * sz;
    return (ahead_t){.k = (const uint8_t *)t->k_pool + off,
                     .v = (const uint8_t *)t->v_pool + off,
                     .key_sz = (uint32_t)(t->kv->head_dim * sz)};
}

/* block_run reduces the keys [begin, begin + 64) that the tile sees. */
INLINE void block_run(const tdm_attn_tile_t *t, uint32_t begin, tdm_attn_rows_t out,
                      uint32_t vec_cnt) {
    const uint32_t stride = vec_cnt * W;
    uint32_t n = TDM_MIN(t->kv_cnt - begin, BLOCK);
    uint64_t off = tdm_kv_offset(t->kv, t->page[begin / BLOCK], t->head_kv, 0);
    const float *k = block_of(t, t->k_pool, t->k_scale, t->k_copy, off, n);
    const float *v = block_of(t, t->v_pool, t->v_scale, t->v_copy, off, n);
    ahead_t ahead = ahead_of(t, begin + BLOCK);
    score(t, k, n, vec_cnt, ahead);
    uint32_t n_first = TDM_MIN(t->kv_first - begin, BLOCK);
    for (uint32_t r = 0; r < t->row_cnt; r++) {
        uint32_t n_row = TDM_MIN(n_first + r / t->group, n);
        weigh(t->s + r * BLOCK, n_row, &out.m[r], &out.l[r], out.o + r * stride, vec_cnt);
    }
    if (n_first == n) {
        output(out.o, t->s, v, n, t->row_cnt, vec_cnt, ahead);
        return;
    }
    for (uint32_t tok = 0; tok < t->tok_cnt; tok++) { /* the diagonal */
        uint32_t r = tok * t->group;
        output(out.o + r * stride, t->s + r * BLOCK, v, n_first + tok, t->group, vec_cnt,
               (ahead_t){0});
    }
}

INLINE void range_body(const tdm_attn_tile_t *t, uint32_t range, tdm_attn_rows_t out,
                       uint32_t vec_cnt) {
    memset(out.o, 0, (uint64_t)t->row_cnt * t->stride * sizeof(float));
    for (uint32_t r = 0; r < t->row_cnt; r++) {
        out.m[r] = -INFINITY;
        out.l[r] = 0.0f;
    }
    uint32_t begin = range * TDM_ATTN_RANGE_TOKENS;
    uint32_t end = TDM_MIN(begin + TDM_ATTN_RANGE_TOKENS, t->kv_cnt);
    for (; begin < end; begin += BLOCK) block_run(t, begin, out, vec_cnt);
}

/* The usual head dimensions get code with constant trip counts. */
static void range_run(const tdm_attn_tile_t *t, uint32_t range, tdm_attn_rows_t out) {
    switch (t->stride) {
    case 64: range_body(t, range, out, 64 / W); break;
    case 128: range_body(t, range, out, 128 / W); break;
    default: range_body(t, range, out, t->stride / W); break;
    }
}

static void fold_run(tdm_attn_rows_t a, tdm_attn_rows_t b, uint32_t row_cnt, uint32_t stride) {
    for (uint32_t r = 0; r < row_cnt; r++) {
        float *oa = a.o + r * stride;
        const float *ob = b.o + r * stride;
        if (b.m[r] == -INFINITY && b.l[r] == 0.0f) continue;
        if (a.m[r] == -INFINITY && a.l[r] == 0.0f) {
            memcpy(oa, ob, stride * sizeof(float));
            a.m[r] = b.m[r];
            a.l[r] = b.l[r];
            continue;
        }
        float m = a.m[r] > b.m[r] ? a.m[r] : b.m[r];
        vec_t fa = vec_exp2(vec_set1(a.m[r] - m));
        vec_t fb = vec_exp2(vec_set1(b.m[r] - m));
        float f[2][W] TDM_ALIGNED(64);
        vec_store(f[0], fa);
        vec_store(f[1], fb);
        a.m[r] = m;
        a.l[r] = a.l[r] * f[0][0] + b.l[r] * f[1][0];
        for (uint32_t d = 0; d < stride; d += W) {
            vec_store(oa + d, vec_fma(vec_load(oa + d), fa, vec_mul(vec_load(ob + d), fb)));
        }
    }
}

const tdm_attn_ops_t OPS = {.range = range_run, .fold = fold_run};
