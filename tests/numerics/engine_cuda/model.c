/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whole models on the GPU.

     small    random models of many shapes, prompts in random slices beside
              decodes: the logits of every sampled row against kernels/ref
     llama    Llama-3-8B's widths, as many layers and ids as the file says that
              llama-ref made with kernels/ref (two and 8,192, or all 32 and
              128,256), weights drawn on the device: logits after 1..64 tokens
     golden   SmolLM2: greedy tokens against transformers' (as tests/numerics/model)

   A row of logits may be off by a part of its L2 norm: 1e-2 of a model of
   ordinary width.  fp8 pages are compared with the reference over the same
   scales: bf16 rounding in front of the append turns about one code in fifty
   to its neighbour, an eighth of the value at most, which makes some 1.3e-2 of
   an attention's output; 5e-2 is allowed (worst seen: 3.3e-2).  Each bf16 rounding costs 1.1e-3 of
   what it rounds, and a model of width 96 averages the sums of them over few terms: there 2e-2
   (worst of 16 models seen: 1.45e-2).  The best id must be the same wherever
   the reference's two best are further apart than the row's largest error. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "appliance/base/clock.h"
#include "appliance/model/dummy.h"
#include "appliance/model/model.h"
#include "kernels/cuda/peek.h"
#include "kernels/engine/kvscale.h"
#include "kernels/ref/forward_ref.h"
#include "tests/numerics/engine_cuda/bench.h"
#include "tests/numerics/model/rig.h"

#define L2_MAX       1e-2
#define L2_MAX_SMALL 2e-2
#define L2_MAX_FP8   5e-2

typedef struct book {
    const tdm_backend_t *b;
    uint32_t vocab;
    float *logits; /* [streams][RIG_TOKEN_MAX][vocab], by the position that was sampled */
    uint8_t *is_there;
} book_t;

static void note(void *ctx, uint32_t stream, uint32_t pos, uint32_t i) {
    book_t *k = ctx;
    uint64_t at = (uint64_t)stream * RIG_TOKEN_MAX + pos;
    k->is_there[at] = 1;
    bench_cuda(tdm_cuda_logits(k->b, i, k->logits + at * k->vocab), "logits");
}

static double worst_l2;
static uint32_t wrong_best;

static void judge(const char *name, uint32_t at, const float *got, const double *want,
                  uint32_t vocab, double l2_max) {
    double err = 0.0, norm = 0.0, most = 0.0, top = -INFINITY, next = -INFINITY;
    uint32_t best = 0, ours = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        double d = (double)got[i] - want[i];
        err += d * d;
        norm += want[i] * want[i];
        most = fmax(most, fabs(d));
        if (got[i] > got[ours]) ours = i;
        if (want[i] > top) {
            next = top;
            top = want[i];
            best = i;
        } else if (want[i] > next) {
            next = want[i];
        }
    }
    double l2 = sqrt(err / norm);
    worst_l2 = fmax(worst_l2, l2);
    bench_ok(l2 <= l2_max, "%s at %u: relative L2 %.3g", name, at, l2);
    int is_best = ours == best || top - next <= 2 * most;
    wrong_best += !is_best;
    bench_ok(is_best, "%s at %u: best id %u, reference %u by %.3g", name, at, ours, best,
             top - next);
}

/* --- small models --------------------------------------------------- */

#define SMALL_STREAMS 9

typedef struct small {
    const char *name;
    tdm_shape_t shape;
    uint32_t kv_dtype;
    uint32_t is_fp8; /* weights; rounded to bf16 once more than the reference's */
} small_t;

#define SHAPE(q, kv, dim, tied, ...)                                                               \
    {                                                                                              \
        .layer_cnt = 2, .hidden = 96, .nhead_q = (q), .nhead_kv = (kv), .head_dim = (dim),         \
        .ffn = 168, .vocab = 307, .context = 512, .is_tied = (tied), .rms_eps = 1e-5f,             \
        .rope_theta = 10000.0f, __VA_ARGS__                                                        \
    }
#define PLAIN .rope_kind = TDM_ROPE_PLAIN
#define LLAMA3                                                                                     \
    .rope_kind = TDM_ROPE_LLAMA3, .rope_factor = 8.0f, .rope_low_freq_factor = 1.0f,               \
    .rope_high_freq_factor = 4.0f, .rope_original_context = 64

static const small_t smalls[] = {
    {"group 1", SHAPE(2, 2, 64, 0, PLAIN), TDM_KV_BF16, 0},
    {"group 3, tied", SHAPE(9, 3, 64, 1, PLAIN), TDM_KV_BF16, 0},
    {"group 4, linear", SHAPE(4, 1, 64, 0, .rope_kind = TDM_ROPE_LINEAR, .rope_factor = 4.0f),
     TDM_KV_BF16, 0},
    {"group 8, llama3, dim 128", SHAPE(8, 1, 128, 0, LLAMA3), TDM_KV_BF16, 0},
    {"group 4, dim 128, tied", SHAPE(8, 2, 128, 1, PLAIN), TDM_KV_BF16, 0},
    {"plain kernels, dim 96", SHAPE(4, 2, 96, 0, PLAIN), TDM_KV_BF16, 0},
    {"plain kernels, dim 256", SHAPE(2, 1, 256, 0, PLAIN), TDM_KV_BF16, 0},
    {"plain kernels, group 20", SHAPE(20, 1, 64, 0, PLAIN), TDM_KV_BF16, 0},
    {"fp8 pages, group 3", SHAPE(9, 3, 64, 1, PLAIN), TDM_KV_E4M3, 0},
    {"fp8 pages, group 4, dim 128", SHAPE(8, 2, 128, 0, LLAMA3), TDM_KV_E4M3, 0},
    {"fp8 pages, dim 96", SHAPE(4, 2, 96, 0, PLAIN), TDM_KV_E4M3, 0},
    {"fp8 weights, group 4", SHAPE(8, 2, 64, 0, PLAIN), TDM_KV_BF16, 1},
    {"fp8 weights and pages", SHAPE(4, 2, 128, 1, PLAIN), TDM_KV_E4M3, 1},
};

/* kv_scales gives the reference the scales that the backend finds. */
static float *kv_scales(tdm_weights_t *w) {
    uint32_t n = w->shape.nhead_kv;
    float *all = bench_alloc(2ull * w->shape.layer_cnt * n * sizeof *all), *at = all;
    for (uint32_t l = 0; l < w->shape.layer_cnt; l++, at += 2 * n) {
        tdm_kv_scale(w, 0, l, at, at + n);
        w->layer[l].k_scale = at;
        w->layer[l].v_scale = at + n;
    }
    return all;
}

static void try_small(const small_t *m, uint64_t seed) {
    tdm_rng_t rng = {seed};
    tdm_weights_t *w = rig_weights_make(&m->shape, seed);
    if (m->is_fp8) rig_weights_fp8(w);
    float *scales = kv_scales(w);
    tdm_backend_config_t config = {.kv_page_cnt = 48,
                                   .kv_dtype = m->kv_dtype,
                                   .seq_max = 6,
                                   .token_max = 160,
                                   .context_max = 448};
    tdm_backend_t *b = bench_backend(w, &config);
    uint32_t vocab = m->shape.vocab;
    rig_stream_t *s = bench_alloc(SMALL_STREAMS * sizeof *s);
    book_t book = {.b = b, .vocab = vocab};
    book.logits = bench_alloc((uint64_t)SMALL_STREAMS * RIG_TOKEN_MAX * vocab * 4);
    book.is_there = bench_alloc(SMALL_STREAMS * RIG_TOKEN_MAX);
    for (uint32_t i = 0; i < SMALL_STREAMS; i++)
        rig_stream_make(&s[i], i == 0 ? 400 : 1 + tdm_rng_below(&rng, 140),
                        1 + tdm_rng_below(&rng, 12), vocab, i % 2 == 0, &rng);
    rig_total_t total = {.sampled = note, .ctx = &book};
    rig_drive(b, &config, s, SMALL_STREAMS, &rng, &total);
    for (uint32_t i = 0; i < SMALL_STREAMS; i++) {
        uint32_t cnt = s[i].prompt_cnt + s[i].out_cnt - 1;
        double *want = bench_alloc((uint64_t)s[i].out_cnt * vocab * sizeof *want);
        if (tdm_forward_ref(w, (tdm_kv_dtype_t)m->kv_dtype, s[i].token, cnt, s[i].prompt_cnt - 1,
                            want) != TDM_OK)
            exit(2);
        for (uint32_t k = 0; k < s[i].out_cnt; k++) {
            uint64_t at = (uint64_t)i * RIG_TOKEN_MAX + s[i].prompt_cnt + k;
            bench_ok(book.is_there[at], "%s: stream %u step %u is missing", m->name, i, k);
            judge(m->name, s[i].prompt_cnt + k, book.logits + at * vocab, want + k * vocab, vocab,
                  m->kv_dtype == TDM_KV_E4M3 ? L2_MAX_FP8 : L2_MAX_SMALL);
        }
        free(want);
    }
    for (int k = 0; k < TDM_KIND_CNT; k++)
        bench_ok(total.vcta_planned[k] > 0 && total.vcta_planned[k] == total.vcta_executed[k],
                 "%s: %llu virtual CTAs planned, %llu executed", m->name,
                 (unsigned long long)total.vcta_planned[k],
                 (unsigned long long)total.vcta_executed[k]);
    tdm_backend_destroy(b);
    free(book.logits);
    free(book.is_there);
    free(s);
    free(scales);
    rig_weights_free(w);
}

int part_small(uint64_t seeds) {
    for (size_t i = 0; i < TDM_COUNT_OF(smalls); i++) {
        worst_l2 = 0.0;
        for (uint64_t seed = 1; seed <= seeds; seed++) try_small(&smalls[i], seed);
        printf("  %s: worst relative L2 %.3g\n", smalls[i].name, worst_l2);
    }
    return bench_end("small");
}

/* --- Llama-3-8B's widths -------------------------------------------- */

#define LLAMA_LEN 64u

/* What a file of reference logits begins with; the rows are float32. */
typedef struct llama_head {
    char magic[8];
    uint32_t layer_cnt, vocab, len, reserved;
} llama_head_t;

static const char llama_magic[8] = {'t', 'd', 'm', 'l', 'o', 'g', 'i', 't'};

static tdm_shape_t llama_shape(uint32_t layer_cnt, uint32_t vocab) {
    tdm_shape_t shape;
    tdm_error_t err = {0};
    if (tdm_dummy_shape("llama-3-8b", &shape, &err) != TDM_OK) exit(2);
    if (layer_cnt < 1 || layer_cnt > shape.layer_cnt || vocab < 512 || vocab > shape.vocab) {
        printf("llama: 1 to %u layers, 512 to %u ids\n", shape.layer_cnt, shape.vocab);
        exit(2);
    }
    shape.layer_cnt = layer_cnt;
    shape.vocab = vocab;
    return shape;
}

static void llama_tokens(int32_t *token, uint32_t vocab) {
    tdm_rng_t rng = {88};
    for (uint32_t i = 0; i < LLAMA_LEN; i++) token[i] = (int32_t)tdm_rng_below(&rng, vocab);
}

static int llama_write(const char *path, const tdm_shape_t *shape, const double *want) {
    llama_head_t head = {.layer_cnt = shape->layer_cnt, .vocab = shape->vocab, .len = LLAMA_LEN};
    float *row = bench_alloc(shape->vocab * sizeof *row);
    FILE *f = fopen(path, "wb");
    memcpy(head.magic, llama_magic, sizeof head.magic);
    int is_good = f && fwrite(&head, sizeof head, 1, f) == 1;
    for (uint32_t r = 0; is_good && r < LLAMA_LEN; r++) {
        for (uint32_t i = 0; i < shape->vocab; i++)
            row[i] = (float)want[(uint64_t)r * shape->vocab + i];
        is_good = fwrite(row, sizeof *row, shape->vocab, f) == shape->vocab;
    }
    free(row);
    if (f && fclose(f) != 0) is_good = 0;
    return is_good;
}

int part_llama_ref(const char *path, uint32_t layer_cnt, uint32_t vocab) {
    tdm_arena_t arena = {.fd = -1};
    tdm_error_t err = {0};
    tdm_shape_t shape = llama_shape(layer_cnt, vocab);
    int32_t token[LLAMA_LEN];
    static tdm_weights_t w;
    double *want = bench_alloc((uint64_t)LLAMA_LEN * vocab * sizeof *want);
    int64_t start_ns = tdm_clock_now_ns();
    llama_tokens(token, vocab);
    if (tdm_arena_open(&arena, TDM_ARENA_PLAIN, tdm_weights_sz(&shape, TDM_WEIGHT_BF16) + 4096,
                       &err) != TDM_OK ||
        tdm_dummy_fill(&shape, TDM_DUMMY_SEED, TDM_WEIGHT_BF16, &arena, NULL, NULL, &w, &err) !=
            TDM_OK)
        exit(2);
    int64_t filled_ns = tdm_clock_now_ns();
    if (tdm_forward_ref(&w, TDM_KV_BF16, token, LLAMA_LEN, 0, want) != TDM_OK) exit(2);
    printf("llama-ref: %u layers, %u ids: weights %.1f s, %u rows %.1f s\n", layer_cnt, vocab,
           (double)(filled_ns - start_ns) * 1e-9, LLAMA_LEN,
           (double)(tdm_clock_now_ns() - filled_ns) * 1e-9);
    int is_good = llama_write(path, &shape, want);
    tdm_arena_close(&arena);
    free(want);
    return !is_good;
}

/* llama_read gives the reference logits [LLAMA_LEN][vocab] and their shape. */
static double *llama_read(const char *path, tdm_shape_t *shape) {
    llama_head_t head;
    FILE *f = fopen(path, "rb");
    if (!f || fread(&head, sizeof head, 1, f) != 1 || head.len != LLAMA_LEN ||
        memcmp(head.magic, llama_magic, sizeof head.magic) != 0) {
        printf("%s: no reference\n", path);
        exit(2);
    }
    *shape = llama_shape(head.layer_cnt, head.vocab);
    float *row = bench_alloc(head.vocab * sizeof *row);
    double *want = bench_alloc((uint64_t)LLAMA_LEN * head.vocab * sizeof *want);
    for (uint32_t r = 0; r < LLAMA_LEN; r++) {
        if (fread(row, sizeof *row, head.vocab, f) != head.vocab) exit(2);
        for (uint32_t i = 0; i < head.vocab; i++)
            want[(uint64_t)r * head.vocab + i] = (double)row[i];
    }
    free(row);
    (void)fclose(f);
    return want;
}

/* Prompts of 1..64 of the same tokens, and as many others that decode. */
int part_llama(const char *path) {
    tdm_backend_config_t config = {.kv_page_cnt = 600,
                                   .kv_dtype = TDM_KV_BF16,
                                   .seq_max = 128,
                                   .token_max = 512,
                                   .context_max = 256,
                                   .dummy_seed = TDM_DUMMY_SEED};
    static tdm_weights_t w;
    double *want = llama_read(path, &w.shape);
    uint32_t vocab = w.shape.vocab;
    int32_t token[LLAMA_LEN];
    llama_tokens(token, vocab);
    tdm_backend_t *b = bench_backend(&w, &config);
    rig_stream_t *s = bench_alloc(2 * LLAMA_LEN * sizeof *s);
    book_t book = {.b = b, .vocab = vocab};
    /* Pages of it that no row is written to are never there. */
    book.logits = bench_alloc((uint64_t)2 * LLAMA_LEN * RIG_TOKEN_MAX * vocab * 4);
    book.is_there = bench_alloc(2 * LLAMA_LEN * RIG_TOKEN_MAX);
    for (uint64_t seed = 0; seed < 4; seed++) { /* 0: whole and at once */
        tdm_rng_t rng = {seed};
        for (uint32_t i = 0; i < LLAMA_LEN; i++) {
            rig_stream_make(&s[i], i + 1, 1, vocab, 1, &rng);
            memcpy(s[i].token, token, (i + 1) * sizeof *token);
            rig_stream_make(&s[LLAMA_LEN + i], 1 + tdm_rng_below(&rng, 200), 20, vocab, 0, &rng);
        }
        rig_total_t total = {.sampled = note, .ctx = &book};
        worst_l2 = 0.0;
        wrong_best = 0;
        rig_drive(b, &config, s, 2 * LLAMA_LEN, seed ? &rng : NULL, &total);
        for (uint32_t i = 0; i < LLAMA_LEN; i++)
            judge("llama", i, book.logits + ((uint64_t)i * RIG_TOKEN_MAX + i + 1) * vocab,
                  want + (uint64_t)i * vocab, vocab, L2_MAX);
        printf(
            "  llama, %u layers, %u ids, batching %llu: worst relative L2 %.3g, %u best ids wrong; "
            "routes: prefill %llu, decode %llu, fused %llu, streams %llu, serial %llu\n",
            w.shape.layer_cnt, vocab, (unsigned long long)seed, worst_l2, wrong_best,
            (unsigned long long)total.route_cnt[TDM_ROUTE_PREFILL_ONLY],
            (unsigned long long)total.route_cnt[TDM_ROUTE_DECODE_ONLY],
            (unsigned long long)total.route_cnt[TDM_ROUTE_FUSED],
            (unsigned long long)total.route_cnt[TDM_ROUTE_STREAMS],
            (unsigned long long)total.route_cnt[TDM_ROUTE_SERIAL]);
    }
    tdm_backend_destroy(b);
    free(book.logits);
    free(book.is_there);
    free(s);
    free(want);
    return bench_end("llama");
}

/* --- SmolLM2 -------------------------------------------------------- */

#define GOLDEN_MAX 16u

typedef struct golden {
    const json_t *prompts;
    uint32_t cnt;
    rig_stream_t *stream;
} golden_t;

static void make_streams(golden_t *g) {
    memset(g->stream, 0, g->cnt * sizeof *g->stream);
    for (uint32_t i = 0; i < g->cnt; i++) {
        rig_stream_t *s = &g->stream[i];
        const json_t *ids = json_object_get(json_array_get(g->prompts, i), "prompt");
        s->prompt_cnt = (uint32_t)json_array_size(ids);
        s->out_max =
            (uint32_t)json_array_size(json_object_get(json_array_get(g->prompts, i), "tokens"));
        for (uint32_t t = 0; t < s->prompt_cnt; t++)
            s->token[t] = (int32_t)json_integer_value(json_array_get(ids, t));
        s->sampling = (tdm_sampling_t){.top_p = 1.0f, .repetition_penalty = 1.0f};
    }
}

/* compare follows each stream to its end or its first other token, which
   must be a tie: the oracle's two best closer than `tie`. */
static void compare(const golden_t *g, double tie) {
    uint32_t equal = 0, all = 0;
    for (uint32_t i = 0; i < g->cnt; i++) {
        const rig_stream_t *s = &g->stream[i];
        const json_t *want = json_object_get(json_array_get(g->prompts, i), "tokens");
        const json_t *margin = json_object_get(json_array_get(g->prompts, i), "margin");
        uint32_t t = 0;
        while (t < s->out_max &&
               s->token[s->prompt_cnt + t] == (int32_t)json_integer_value(json_array_get(want, t)))
            t++;
        double gap = t < s->out_max ? json_number_value(json_array_get(margin, t)) : 0.0;
        printf("  prompt %u: %u of %u tokens equal%s", i, t, s->out_max,
               t < s->out_max ? "" : "\n");
        if (t < s->out_max) printf(", then another where the best led by %.4f\n", gap);
        bench_ok(gap <= tie, "prompt %u: another token though the best led by %.4f", i, gap);
        equal += t;
        all += s->out_max;
    }
    printf("  %u of %u tokens compared and equal\n", equal, all);
}

#define GOLDEN_TIE 1e-3

int part_golden(const char *path, const char *tokens) {
    json_error_t where;
    tdm_error_t err = {0};
    tdm_model_t *model = NULL;
    json_t *root = json_load_file(tokens, 0, &where);
    golden_t g = {.prompts = json_object_get(root, "prompts")};
    g.cnt = (uint32_t)json_array_size(g.prompts);
    if (g.cnt == 0 || g.cnt > GOLDEN_MAX || tdm_model_open(path, NULL, &model, &err) != TDM_OK) {
        printf("golden: %s\n", err.text);
        return 2;
    }
    g.stream = bench_alloc(g.cnt * sizeof *g.stream);
    tdm_backend_config_t config = {.kv_page_cnt = 64,
                                   .kv_dtype = TDM_KV_BF16,
                                   .seq_max = 8,
                                   .token_max = 256,
                                   .context_max = 512};
    tdm_backend_t *b = bench_backend(tdm_model_weights(model), &config);
    for (uint64_t seed = 0; seed < 3; seed++) {
        tdm_rng_t rng = {seed};
        make_streams(&g);
        rig_drive(b, &config, g.stream, g.cnt, seed ? &rng : NULL, NULL);
        compare(&g, GOLDEN_TIE);
    }
    tdm_backend_destroy(b);
    tdm_model_close(model);
    free(g.stream);
    json_decref(root);
    return bench_end("golden");
}
