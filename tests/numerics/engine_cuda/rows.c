/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: each row kernel against the obvious loop in double, on ugly shapes:
   one row, rows past the count, widths of 8 and of many blocks, positions at
   the ends of pages; and that nothing else is written. */
#include "kernels/cuda/rows.h"
#include "kernels/cuda/norm.h"

#include <math.h>
#include <string.h>

#include "appliance/abi/dummy.h"
#include "appliance/abi/fp8.h"
#include "tests/numerics/engine_cuda/bench.h"

#define SLOTS  5u
#define STRIDE 7u
#define PAGES  40u

/* One made-up iteration, on both sides. */
typedef struct world {
    uint8_t step[1 << 16];
    tdm_step_head_t *head;
    tdm_step_want_t *want;
    tdm_step_row_t *row;
    uint32_t table[SLOTS * STRIDE];
    void *d_step;
    tdm_rows_pages_t pages;
} world_t;

static world_t w;

static void world_make(uint32_t rows, uint32_t wants, uint32_t vocab, tdm_rng_t *rng) {
    memset(&w, 0, sizeof w);
    w.head = (tdm_step_head_t *)(void *)w.step;
    w.head->row_cnt = rows;
    w.head->want_cnt = wants;
    w.head->want_off = sizeof *w.head;
    w.head->want_sz = sizeof *w.want;
    w.head->row_off = w.head->want_off + wants * (uint32_t)sizeof *w.want;
    w.want = (tdm_step_want_t *)(void *)(w.step + w.head->want_off);
    w.row = (tdm_step_row_t *)(void *)(w.step + w.head->row_off);
    for (uint32_t i = 0; i < SLOTS * STRIDE; i++) w.table[i] = (i * 11 + 3) % PAGES;
    for (uint32_t i = 0; i < rows; i++) /* each row has a place of its own */
        w.row[i] = (tdm_step_row_t){.token = (int32_t)tdm_rng_below(rng, vocab),
                                    .slot = i % SLOTS,
                                    .pos = i / SLOTS * 13 % (STRIDE * 64)};
    for (uint32_t i = 0; i < wants; i++) w.want[i].row = tdm_rng_below(rng, rows);
    w.d_step = bench_put(w.step, sizeof w.step);
    w.pages = (tdm_rows_pages_t){.table = bench_put(w.table, sizeof w.table),
                                 .token = bench_put(NULL, PAGES * 64 * 4),
                                 .table_stride = STRIDE};
}

static void world_end(void) {
    bench_free(w.d_step);
    bench_free(w.pages.table);
    bench_free(w.pages.token);
}

static uint64_t place_of(uint32_t r) {
    uint32_t page = w.table[w.row[r].slot * STRIDE + w.row[r].pos / 64];
    return (uint64_t)page * 64 + w.row[r].pos % 64;
}

static float *floats(uint64_t cnt, tdm_rng_t *rng) {
    float *p = bench_alloc(cnt * sizeof *p);
    for (uint64_t i = 0; i < cnt; i++) p[i] = bench_draw(rng);
    return p;
}

static uint16_t *halves(uint64_t cnt, tdm_rng_t *rng) {
    uint16_t *p = bench_alloc(cnt * sizeof *p);
    for (uint64_t i = 0; i < cnt; i++) p[i] = bench_bf16(bench_draw(rng));
    return p;
}

/* near: bf16 keeps 8 bits, so half a step is 2^-9 of the value; the float32
   arithmetic before it costs less than the same again. */
static void near(const char *what, uint64_t i, double got, double want) {
    double room = ldexp(fabs(want), -8) + 1e-6;
    bench_ok(fabs(got - want) <= room, "%s [%llu]: %.9g, reference %.9g", what,
             (unsigned long long)i, got, want);
}

static void try_scatter(tdm_rng_t *rng) {
    world_make(1, 0, 10, rng);
    tdm_step_page_t page[300];
    uint32_t got[SLOTS * STRIDE], cnt = 20;
    for (uint32_t i = 0; i < cnt; i++)
        page[i] = (tdm_step_page_t){.at = (i * 3) % (SLOTS * STRIDE), .page = 1000 + i};
    w.head->page_cnt = cnt;
    w.head->page_off = w.head->row_off + (uint32_t)sizeof *w.row;
    memcpy(w.step + w.head->page_off, page, sizeof page);
    bench_free(w.d_step);
    w.d_step = bench_put(w.step, sizeof w.step);
    bench_cuda(tdm_rows_scatter(w.d_step, &w.pages, 300, NULL), "scatter");
    bench_get(got, w.pages.table, sizeof got);
    for (uint32_t i = 0; i < cnt; i++) w.table[page[i].at] = page[i].page;
    bench_ok(memcmp(got, w.table, sizeof got) == 0, "scatter");
    world_end();
}

static void try_embed(uint32_t rows, uint32_t grid, uint32_t hidden, tdm_rng_t *rng) {
    const uint32_t vocab = 37;
    world_make(rows, 0, vocab, rng);
    uint16_t *embed = halves((uint64_t)vocab * hidden, rng);
    float *got = bench_alloc((uint64_t)grid * hidden * 4);
    int32_t *token = bench_alloc(PAGES * 64 * 4), *want = bench_alloc(PAGES * 64 * 4);
    void *d_embed = bench_put(embed, (uint64_t)vocab * hidden * 2);
    float *d_out = bench_put(NULL, (uint64_t)grid * hidden * 4);
    uint64_t ns = 0, *d_ns = bench_put(NULL, sizeof ns);
    bench_cuda(tdm_rows_embed(w.d_step, d_embed, hidden, d_out, &w.pages, d_ns, grid, NULL),
               "embed");
    bench_get(&ns, d_ns, sizeof ns);
    bench_ok(ns != 0 && ns != UINT64_MAX, "the time of an embed: %llu", (unsigned long long)ns);
    bench_free(d_ns);
    bench_get(got, d_out, (uint64_t)grid * hidden * 4);
    bench_get(token, w.pages.token, PAGES * 64 * 4);
    int is_same = 1;
    for (uint32_t r = 0; r < grid; r++)
        for (uint32_t i = 0; i < hidden; i++) {
            uint64_t at = r < rows ? (uint64_t)w.row[r].token * hidden + i : 0;
            float v = r < rows ? bench_f32(embed[at]) : 0.0f;
            is_same &= !(got[(uint64_t)r * hidden + i] != v);
        }
    bench_ok(is_same, "embed of %u rows, grid %u, width %u", rows, grid, hidden);
    memset(want, 0xff, PAGES * 64 * 4);
    for (uint32_t r = 0; r < rows; r++) want[place_of(r)] = w.row[r].token;
    bench_ok(memcmp(token, want, PAGES * 64 * 4) == 0, "tokens by page, %u rows", rows);
    bench_free(d_embed);
    bench_free(d_out);
    world_end();
}

static void norm_ref(const float *x, const float *g, uint32_t hidden, double eps, double *y) {
    double sum = 0.0;
    for (uint32_t i = 0; i < hidden; i++) sum += (double)x[i] * (double)x[i];
    double scale = 1.0 / sqrt(sum / hidden + eps);
    for (uint32_t i = 0; i < hidden; i++) y[i] = (double)x[i] * scale * (double)g[i];
}

/* What a product left in cnt parts: x and its sums in plain order, too. */
static tdm_rows_sums_t parts(uint64_t elems, uint32_t cnt, float *whole, tdm_rng_t *rng) {
    tdm_rows_sums_t s = {.stride = elems, .cnt = cnt};
    if (!cnt) return s;
    float *part = floats(elems * cnt, rng);
    for (uint64_t i = 0; i < elems; i++) {
        float sum = part[i];
        for (uint32_t c = 1; c < cnt; c++) sum += part[c * elems + i];
        whole[i] += sum;
    }
    s.part = bench_put(part, elems * cnt * 4);
    return s;
}

static void try_norm(uint32_t rows, uint32_t wants, uint32_t grid, uint32_t hidden, uint32_t cnt,
                     tdm_rng_t *rng) {
    world_make(rows, wants, 10, rng);
    float *x = floats((uint64_t)rows * hidden, rng), *g = floats(hidden, rng);
    float *kept = bench_alloc((uint64_t)rows * hidden * 4);
    uint16_t *got = bench_alloc((uint64_t)TDM_MAX(rows, grid) * hidden * 2);
    double *y = bench_alloc(hidden * sizeof *y);
    float *d_x = bench_put(x, (uint64_t)rows * hidden * 4), *d_g = bench_put(g, hidden * 4);
    tdm_rows_sums_t sums = parts((uint64_t)rows * hidden, cnt, x, rng);
    void *d_out = bench_put(NULL, (uint64_t)grid * hidden * 2);
    bench_cuda(tdm_norm_wanted(w.d_step, d_x, &sums, d_g, hidden, 1e-5f, d_out, grid, NULL),
               "norm");
    bench_get(got, d_out, (uint64_t)grid * hidden * 2);
    for (uint32_t r = 0; r < grid; r++) {
        memset(y, 0, hidden * sizeof *y);
        if (r < wants) norm_ref(x + (uint64_t)w.want[r].row * hidden, g, hidden, 1e-5, y);
        for (uint32_t i = 0; i < hidden; i++)
            near("norm of wanted", i, (double)bench_f32(got[(uint64_t)r * hidden + i]), y[i]);
    }
    bench_free(d_out);
    d_out = bench_put(NULL, (uint64_t)rows * hidden * 2);
    bench_cuda(tdm_norm_rows(d_x, &sums, d_g, hidden, 1e-5f, d_out, rows, NULL), "norm");
    bench_get(got, d_out, (uint64_t)rows * hidden * 2);
    for (uint32_t r = 0; r < rows; r++) {
        norm_ref(x + (uint64_t)r * hidden, g, hidden, 1e-5, y);
        for (uint32_t i = 0; i < hidden; i++)
            near("norm", i, (double)bench_f32(got[(uint64_t)r * hidden + i]), y[i]);
    }
    bench_get(kept, d_x, (uint64_t)rows * hidden * 4);
    bench_ok(memcmp(kept, x, (uint64_t)rows * hidden * 4) == 0,
             "the residual of %u rows, width %u, %u parts", rows, hidden, cnt);
    bench_free(d_x);
    bench_free(d_g);
    bench_free(d_out);
    if (cnt) bench_free((void *)(uintptr_t)sums.part);
    world_end();
}

/* A row's bits are the same among few rows and among many, whatever makes them. */
static void try_norm_bits(uint32_t hidden, uint32_t cnt, tdm_rng_t *rng) {
    enum { FEW = 5, MANY = 300 };
    const uint32_t rows[] = {MANY, FEW};
    const uint64_t few = (uint64_t)FEW * hidden, many = (uint64_t)MANY * hidden;
    float *x = floats(many, rng), *whole = bench_alloc(many * 4), *kept = bench_alloc(2 * many * 4);
    uint16_t *got = bench_alloc(2 * many * 2);
    float *d_g = bench_put(floats(hidden, rng), hidden * 4);
    tdm_rows_sums_t sums = parts(many, cnt, whole, rng);
    for (uint32_t i = 0; i < 2; i++) {
        float *d_x = bench_put(x, many * 4);
        void *d_out = bench_put(NULL, many * 2);
        bench_cuda(tdm_norm_rows(d_x, &sums, d_g, hidden, 1e-5f, d_out, rows[i], NULL), "norm");
        bench_get(got + i * many, d_out, many * 2);
        bench_get(kept + i * many, d_x, many * 4);
        bench_free(d_x);
        bench_free(d_out);
    }
    int is_same = memcmp(got, got + many, few * 2) == 0 && memcmp(kept, kept + many, few * 4) == 0;
    bench_ok(is_same, "a norm's bits among few rows and many, width %u, %u parts", hidden, cnt);
    bench_free(d_g);
    if (cnt) bench_free((void *)(uintptr_t)sums.part);
}

static void try_rope(uint32_t rows, uint32_t grid, uint32_t nq, uint32_t nkv, uint32_t dim,
                     uint32_t cnt, tdm_rng_t *rng) {
    world_make(rows, 0, 10, rng);
    uint32_t width = (nq + 2 * nkv) * dim, half = dim / 2;
    uint64_t pool_cnt = (uint64_t)PAGES * nkv * 64 * dim;
    float *qkv = bench_alloc((uint64_t)rows * width * 4);
    float *turn = bench_alloc((uint64_t)STRIDE * 64 * dim * 4);
    double freq[128];
    for (uint32_t i = 0; i < half; i++) freq[i] = pow(10000.0, -2.0 * i / dim);
    double *d_freq = bench_put(freq, sizeof freq);
    float *d_turn = bench_put(NULL, (uint64_t)STRIDE * 64 * dim * 4);
    bench_cuda(tdm_rows_turn(d_freq, dim, STRIDE * 64, d_turn, NULL), "turn");
    bench_get(turn, d_turn, (uint64_t)STRIDE * 64 * dim * 4);
    for (uint32_t p = 0; p < STRIDE * 64; p++)
        for (uint32_t i = 0; i < half; i++) {
            double c = cos(p * freq[i]), s = sin(p * freq[i]);
            bench_ok(fabs((double)turn[p * dim + i] - c) < 1e-7 &&
                         fabs((double)turn[p * dim + half + i] - s) < 1e-7,
                     "turn %u %u", p, i);
        }
    void *d_pool[2] = {bench_put(NULL, pool_cnt * 2), bench_put(NULL, pool_cnt * 2)};
    tdm_rows_rope_t a = {.qkv = parts((uint64_t)rows * width, cnt, qkv, rng),
                         .turn = d_turn,
                         .q = bench_put(NULL, (uint64_t)grid * nq * dim * 2),
                         .k_pool = d_pool[0],
                         .v_pool = d_pool[1],
                         .nhead_q = nq,
                         .nhead_kv = nkv,
                         .head_dim = dim};
    bench_cuda(tdm_rows_rope_append(w.d_step, &a, &w.pages, grid, NULL), "rope");
    uint16_t *q = bench_alloc((uint64_t)grid * nq * dim * 2);
    uint16_t *pool[2] = {bench_alloc(pool_cnt * 2), bench_alloc(pool_cnt * 2)};
    bench_get(q, a.q, (uint64_t)grid * nq * dim * 2);
    for (int v = 0; v < 2; v++) bench_get(pool[v], d_pool[v], pool_cnt * 2);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t h = 0; h < nq + 2 * nkv; h++)
            for (uint32_t i = 0; i < half; i++) {
                const float *x = qkv + (uint64_t)r * width + h * dim;
                double c = cos(w.row[r].pos * freq[i]), s = sin(w.row[r].pos * freq[i]);
                double lo = (double)x[i], hi = (double)x[half + i];
                int is_v = h >= nq + nkv;
                double want[2] = {is_v ? lo : lo * c - hi * s, is_v ? hi : hi * c + lo * s};
                uint64_t place = place_of(r);
                uint64_t at = ((place / 64 * nkv + (h - nq) % nkv) * 64 + place % 64) * dim;
                uint16_t *to = h < nq ? q + ((uint64_t)r * nq + h) * dim : pool[is_v] + at;
                /* the two terms may cancel: the room is of their size */
                for (int e = 0; e < 2; e++) {
                    double got = (double)bench_f32(to[i + (uint32_t)e * half]);
                    bench_ok(fabs(got - want[e]) <= ldexp(fabs(want[e]), -8) + 2e-6,
                             "rope row %u head %u pair %u: %.9g, reference %.9g", r, h, i, got,
                             want[e]);
                    if (h >= nq) to[i + (uint32_t)e * half] = 0xffff; /* as it was before */
                }
            }
    int is_clean = 1;
    for (uint64_t i = 0; i < pool_cnt; i++)
        is_clean &= pool[0][i] == 0xffff && pool[1][i] == 0xffff;
    bench_ok(is_clean, "rope wrote elsewhere: %u rows", rows);
    void *all[] = {d_freq, d_turn, d_pool[0], d_pool[1], (void *)(uintptr_t)a.qkv.part, a.q};
    for (size_t i = 0; i < TDM_COUNT_OF(all); i++) bench_free(all[i]);
    world_end();
}

/* near_code: the nearest code, or one that is as near but for the rounding of
   what it was made of. */
static void near_code(const char *what, uint8_t got, double want) {
    double best = (double)tdm_f32_from_fp8(tdm_fp8_from_f32((float)want));
    double room = fabs(best - want) + 1e-5 * fabs(want) + 1e-6;
    bench_ok(fabs((double)tdm_f32_from_fp8(got) - want) <= room, "%s: code %02x of %.9g", what, got,
             want);
}

/* fp8 pages: rotations are those of try_rope, so position 0 does; values that
   saturate, a NaN, and heads of other scales. */
static void try_append_fp8(uint32_t rows, uint32_t grid, uint32_t nq, uint32_t nkv, uint32_t dim,
                           tdm_rng_t *rng) {
    world_make(rows, 0, 10, rng);
    uint32_t width = (nq + 2 * nkv) * dim, half = dim / 2;
    uint64_t pool_sz = (uint64_t)PAGES * nkv * 64 * dim;
    float *qkv = floats((uint64_t)rows * width, rng);
    float *turn = bench_alloc((uint64_t)STRIDE * 64 * dim * 4), inverse[2 * 64];
    for (uint32_t i = 0; i < 2 * nkv; i++) inverse[i] = ldexpf(1.0f, (int)(i % 7)) * 1.1f;
    for (uint32_t p = 0; p < STRIDE * 64; p++)
        for (uint32_t i = 0; i < half; i++) {
            turn[p * dim + i] = (float)cos(p * 0.37 + i);
            turn[p * dim + half + i] = (float)sin(p * 0.37 + i);
        }
    uint32_t v_first = (nq + nkv) * dim; /* of row 0: V is not rotated */
    qkv[v_first] = 1e9f;
    qkv[v_first + 1] = -INFINITY;
    qkv[v_first + 2] = NAN;
    void *d_pool[2] = {bench_put(NULL, pool_sz), bench_put(NULL, pool_sz)};
    void *d_qkv = bench_put(qkv, (uint64_t)rows * width * 4), *d_inverse;
    void *d_turn = bench_put(turn, (uint64_t)STRIDE * 64 * dim * 4);
    d_inverse = bench_put(inverse, sizeof inverse);
    tdm_rows_rope_t a = {.qkv = {.part = d_qkv, .stride = (uint64_t)rows * width, .cnt = 1},
                         .turn = d_turn,
                         .q = bench_put(NULL, (uint64_t)grid * nq * dim * 2),
                         .k_pool = d_pool[0],
                         .v_pool = d_pool[1],
                         .kv_inverse = d_inverse,
                         .nhead_q = nq,
                         .nhead_kv = nkv,
                         .head_dim = dim};
    bench_cuda(tdm_rows_rope_append(w.d_step, &a, &w.pages, grid, NULL), "fp8 append");
    uint8_t *pool[2] = {bench_alloc(pool_sz), bench_alloc(pool_sz)};
    for (int v = 0; v < 2; v++) bench_get(pool[v], d_pool[v], pool_sz);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t h = nq; h < nq + 2 * nkv; h++)
            for (uint32_t d = 0; d < dim; d++) {
                const float *x = qkv + (uint64_t)r * width + h * dim;
                const float *t = turn + (uint64_t)w.row[r].pos * dim;
                uint32_t is_v = h >= nq + nkv, i = d % half, kv = (h - nq) % nkv;
                double c = (double)t[i], s = (double)t[half + i], lo = (double)x[i];
                double hi = (double)x[half + i],
                       turned = d < half ? lo * c - hi * s : hi * c + lo * s;
                double want = (is_v ? (double)x[d] : turned) * (double)inverse[is_v * nkv + kv];
                uint64_t place = place_of(r);
                uint8_t *got = pool[is_v] + ((place / 64 * nkv + kv) * 64 + place % 64) * dim + d;
                if (isfinite(want) && fabs(want) < 400.0)
                    near_code("fp8 append", *got, want);
                else
                    bench_ok(*got == tdm_fp8_from_f32((float)want), "fp8 append of %g: %02x", want,
                             *got);
                *got = 0xff; /* as it was before */
            }
    int is_clean = 1;
    for (uint64_t i = 0; i < pool_sz; i++) is_clean &= pool[0][i] == 0xff && pool[1][i] == 0xff;
    bench_ok(is_clean, "fp8 append wrote elsewhere: %u rows", rows);
    void *all[] = {d_pool[0], d_pool[1], d_qkv, d_turn, d_inverse, a.q};
    for (size_t i = 0; i < TDM_COUNT_OF(all); i++) bench_free(all[i]);
    world_end();
}

static void try_swiglu(uint32_t rows, uint32_t ffn, tdm_rng_t *rng) {
    uint16_t *both = halves((uint64_t)rows * 2 * ffn, rng);
    both[0] = bench_bf16(-90.0f); /* exp(90) is an infinity away */
    both[1] = bench_bf16(90.0f);
    uint16_t *got = bench_alloc((uint64_t)rows * ffn * 2);
    void *d_both = bench_put(both, (uint64_t)rows * 2 * ffn * 2);
    void *d_out = bench_put(NULL, (uint64_t)rows * ffn * 2);
    bench_cuda(tdm_rows_swiglu(d_both, ffn, d_out, rows, NULL), "swiglu");
    bench_get(got, d_out, (uint64_t)rows * ffn * 2);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < ffn; i++) {
            double g = (double)bench_f32(both[(uint64_t)r * 2 * ffn + i]);
            double u = (double)bench_f32(both[((uint64_t)r * 2 + 1) * ffn + i]);
            near("swiglu", i, (double)bench_f32(got[(uint64_t)r * ffn + i]),
                 g / (1.0 + exp(-g)) * u);
        }
    bench_free(d_both);
    bench_free(d_out);
}

/* fp8 weights: codes and scales are tdm_fp8_row's, bit for bit, and what is
   widened is code * scale, rounded once. */
static void try_weights(uint32_t rows, uint32_t cols, tdm_rng_t *rng) {
    uint64_t cnt = (uint64_t)rows * cols;
    uint16_t *wide = halves(cnt, rng), *back = bench_alloc(cnt * 2);
    uint8_t *code = bench_alloc(cnt), *got = bench_alloc(cnt);
    float *scale = bench_alloc(rows * 4), *got_scale = bench_alloc(rows * 4);
    float *row = bench_alloc(cols * 4);
    memset(wide, 0, cols * 2); /* a row of zeros */
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t i = 0; i < cols; i++) row[i] = bench_f32(wide[(uint64_t)r * cols + i]);
        scale[r] = tdm_fp8_row(row, cols, code + (uint64_t)r * cols);
    }
    void *d_wide = bench_put(wide, cnt * 2), *d_code = bench_put(NULL, cnt);
    void *d_back = bench_put(NULL, cnt * 2);
    float *d_scale = bench_put(NULL, rows * 4);
    bench_cuda(tdm_rows_code(d_wide, rows, cols, d_code, d_scale, NULL), "code");
    bench_get(got, d_code, cnt);
    bench_get(got_scale, d_scale, rows * 4);
    bench_ok(memcmp(got, code, cnt) == 0 && memcmp(got_scale, scale, rows * 4) == 0,
             "codes of %u x %u", rows, cols);
    bench_cuda(tdm_rows_widen(d_code, d_scale, rows, cols, d_back, NULL), "widen");
    bench_get(back, d_back, cnt * 2);
    int is_same = 1;
    for (uint64_t i = 0; i < cnt; i++)
        is_same &= back[i] == bench_bf16(tdm_f32_from_fp8(code[i]) * scale[i / cols]);
    bench_ok(is_same, "widened codes of %u x %u", rows, cols);
    void *all[] = {d_wide, d_code, d_back, d_scale};
    for (size_t i = 0; i < TDM_COUNT_OF(all); i++) bench_free(all[i]);
}

static void try_draw(uint64_t rows, uint64_t cols, int is_head) {
    uint64_t cnt = rows * cols;
    uint64_t begin = tdm_rng_at(TDM_DUMMY_SEED, 5);
    float scale = tdm_dummy_scale(cols);
    uint16_t *got = bench_alloc(cnt * 2);
    void *d_out = bench_put(NULL, cnt * 2);
    bench_cuda(tdm_rows_draw(begin, scale, cnt, is_head ? (uint32_t)cols : 0, d_out, NULL), "draw");
    bench_get(got, d_out, cnt * 2);
    int is_same = 1;
    tdm_rng_t rng = {begin};
    for (uint64_t i = 0; i < cnt; i += 4) {
        uint64_t bits = tdm_rng_next(&rng);
        for (uint32_t k = 0; k < 4; k++) {
            uint16_t want = bench_bf16((float)(int16_t)(bits >> (16 * k) & 0xffff) * scale);
            if (is_head && !tdm_dummy_prints((i + k) / cols)) want = 0;
            is_same &= got[i + k] == want;
        }
    }
    bench_ok(is_same, "drawn weights of %llu x %llu", (unsigned long long)rows,
             (unsigned long long)cols);
    bench_free(d_out);
}

int part_rows(void) {
    tdm_rng_t rng = {1};
    const uint32_t width[] = {8, 24, 96, 576, 1032, 3200, 4096, 5120, 8192, 16640};
    const uint32_t count[][2] = {{1, 1}, {1, 8}, {3, 4}, {33, 40}, {130, 144}};
    try_scatter(&rng);
    for (size_t k = 0; k < TDM_COUNT_OF(count); k++) {
        uint32_t rows = count[k][0], grid = count[k][1];
        for (size_t i = 0; i < TDM_COUNT_OF(width); i++) {
            try_embed(rows, grid, width[i], &rng);
            try_norm(rows, (rows + 1) / 2, grid, width[i], (uint32_t)(k + i) % 9, &rng);
            try_swiglu(rows, width[i], &rng);
        }
        try_rope(rows, grid, 3, 1, 64, 1, &rng);
        try_rope(rows, grid, 32, 8, 128, 2 + (uint32_t)k, &rng);
        try_rope(rows, grid, 2, 2, 96, 3 + (uint32_t)k, &rng);
        try_rope(rows, grid, 16, 1, 256, 4 + (uint32_t)k, &rng);
        try_append_fp8(rows, grid, 3, 1, 64, &rng);
        try_append_fp8(rows, grid, 32, 8, 128, &rng);
    }
    const uint32_t norm_width[] = {576, 3080, 3200, 4096, 5120, 8192, 16640};
    for (uint32_t i = 0; i < TDM_COUNT_OF(norm_width); i++)
        try_norm_bits(norm_width[i], i + 2, &rng);
    try_weights(5, 8, &rng);
    try_weights(33, 96, &rng);
    try_weights(300, 4096, &rng);
    try_draw(307, 4, 1);
    try_draw(300, 96, 1);
    try_draw(77, 4096, 0);
    return bench_end("rows");
}
