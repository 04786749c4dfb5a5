/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: weights of a Llama file land where abi/model.h says, and whatever
   would change the output and is not implemented is refused by name.
   Method: a two-layer file whose weights are all different small numbers
   that bf16 holds exactly, then the same file with one thing changed. */
#include "appliance/abi/fp8.h"
#include "appliance/model/dequant.h"
#include "appliance/model/weights.h"
#include "tests/unit/model/gguf_build.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the four above first */
#include <cmocka.h>

enum { LAYERS = 2, HIDDEN = 12, NQ = 4, NKV = 2, HD = 4, FFN = 6, VOCAB = 5 };

/* What a case changes in the file. */
typedef struct change {
    const char *architecture, *extra_key, *scaling, *skip_tensor, *extra_tensor, *wide_tensor,
        *nan_tensor;
    float scaling_factor;
    int is_untied, has_old_scale;
    const float *rope_freqs;
    uint32_t head_dim, context;
} change_t;

/* weight gives entry i of tensor number n: a bf16 value of its own. */
static float weight(uint32_t n, uint32_t i) {
    return (float)(int)((n * 37u + i * 3u) % 251u) - 125.0f;
}

static void put(gguf_build_t *b, const change_t *c, uint32_t n, const char *name, uint64_t cols,
                uint64_t rows) {
    if (c->skip_tensor && strcmp(name, c->skip_tensor) == 0) return;
    if (c->wide_tensor && strcmp(name, c->wide_tensor) == 0) cols += 4;
    uint64_t cnt = cols * (rows ? rows : 1);
    float *w = malloc(cnt * sizeof *w);
    assert_non_null(w);
    for (uint32_t i = 0; i < cnt; i++) w[i] = weight(n, i);
    if (c->nan_tensor && strcmp(name, c->nan_tensor) == 0) w[cnt - 1] = NAN;
    gguf_tensor(b, name, TDM_DTYPE_F32, cols, rows, w, cnt * sizeof *w);
    free(w);
}

static void build(gguf_build_t *b, const change_t *c) {
    uint32_t hd = c->head_dim ? c->head_dim : HD;
    gguf_start(b);
    gguf_key_string(b, "general.architecture", c->architecture ? c->architecture : "llama");
    gguf_key_u32(b, "llama.block_count", LAYERS);
    gguf_key_u32(b, "llama.embedding_length", HIDDEN);
    gguf_key_u32(b, "llama.feed_forward_length", FFN);
    gguf_key_u32(b, "llama.context_length", c->context ? c->context : 64);
    gguf_key_u32(b, "llama.attention.head_count", NQ);
    gguf_key_u32(b, "llama.attention.head_count_kv", NKV);
    gguf_key_u32(b, "llama.attention.key_length", hd);
    gguf_key_u32(b, "llama.attention.value_length", hd);
    gguf_key_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_key_f32(b, "llama.rope.freq_base", 500000);
    if (c->extra_key) gguf_key_u32(b, c->extra_key, 8);
    if (c->scaling) {
        gguf_key_string(b, "llama.rope.scaling.type", c->scaling);
        gguf_key_f32(b, "llama.rope.scaling.factor", c->scaling_factor);
    }
    if (c->has_old_scale) gguf_key_f32(b, "llama.rope.scale_linear", 2);
    uint32_t n = 0;
    put(b, c, n++, "token_embd.weight", HIDDEN, VOCAB);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct {
            const char *name;
            uint32_t cols, rows;
        } row[] = {
            {"attn_norm", HIDDEN, 0},         {"attn_q", HIDDEN, NQ * hd},
            {"attn_k", HIDDEN, NKV * hd},     {"attn_v", HIDDEN, NKV * hd},
            {"attn_output", NQ * hd, HIDDEN}, {"ffn_norm", HIDDEN, 0},
            {"ffn_gate", HIDDEN, FFN},        {"ffn_up", HIDDEN, FFN},
            {"ffn_down", FFN, HIDDEN},
        };
        for (uint32_t k = 0; k < TDM_COUNT_OF(row); k++) {
            char name[64];
            (void)snprintf(name, sizeof name, "blk.%u.%s.weight", l, row[k].name);
            put(b, c, n++, name, row[k].cols, row[k].rows);
        }
    }
    put(b, c, n++, "output_norm.weight", HIDDEN, 0);
    if (c->is_untied) put(b, c, n++, "output.weight", HIDDEN, VOCAB);
    if (c->extra_tensor) put(b, c, n++, c->extra_tensor, HIDDEN, 0);
    if (c->rope_freqs)
        gguf_tensor(b, "rope_freqs.weight", TDM_DTYPE_F32, hd / 2, 0, c->rope_freqs,
                    hd / 2 * sizeof(float));
    gguf_finish(b);
}

typedef struct progress {
    uint32_t calls;
    uint64_t done, total;
} progress_t;

static void on_progress(void *ctx, uint64_t done, uint64_t total) {
    progress_t *p = ctx;
    assert_true(done >= p->done && done <= total);
    p->calls++;
    p->done = done;
    p->total = total;
}

static void assert_bf16(const tdm_bf16_t *got, uint32_t n, uint32_t cnt) {
    for (uint32_t i = 0; i < cnt; i++) assert_true(tdm_f32_from_bf16(got[i]) == weight(n, i));
}

static void assert_f32(const float *got, uint32_t n, uint32_t cnt) {
    for (uint32_t i = 0; i < cnt; i++) assert_true(got[i] == weight(n, i));
}

/* Row p of half h of a head is row 2p + h of it in the file. */
static void assert_half_split(const tdm_bf16_t *got, uint32_t n, uint32_t nhead) {
    for (uint32_t head = 0; head < nhead; head++)
        for (uint32_t h = 0; h < 2; h++)
            for (uint32_t p = 0; p < HD / 2; p++)
                for (uint32_t c = 0; c < HIDDEN; c++) {
                    uint32_t ours = head * HD + h * HD / 2 + p, theirs = head * HD + 2 * p + h;
                    assert_true(tdm_f32_from_bf16(got[ours * HIDDEN + c]) ==
                                weight(n, theirs * HIDDEN + c));
                }
}

static void weights_land_where_the_kernels_look(void **state) {
    (void)state;
    for (int is_untied = 0; is_untied < 2; is_untied++) {
        change_t c = {.is_untied = is_untied};
        gguf_build_t b;
        tdm_gguf_t *g;
        tdm_error_t err = {0};
        tdm_shape_t s;
        tdm_arena_t arena;
        progress_t p = {0};
        static tdm_weights_t w;
        build(&b, &c);
        assert_int_equal(tdm_gguf_parse(b.bytes, b.sz, &g, &err), TDM_OK);
        assert_int_equal(tdm_shape_from_gguf(g, &s, &err), TDM_OK);
        assert_int_equal(s.vocab, VOCAB);
        assert_int_equal(s.head_dim, HD);
        assert_int_equal(s.is_tied, !is_untied);
        assert_int_equal(s.rope_kind, TDM_ROPE_PLAIN);
        assert_true(s.rope_theta == 500000);
        assert_int_equal(
            tdm_arena_open(&arena, TDM_ARENA_PLAIN, tdm_weights_sz(&s, TDM_WEIGHT_BF16), &err),
            TDM_OK);
        assert_int_equal(
            tdm_weights_load(g, &s, TDM_WEIGHT_BF16, &arena, on_progress, &p, &w, &err), TDM_OK);
        assert_bf16(w.embed, 0, VOCAB * HIDDEN);
        for (uint32_t l = 0; l < LAYERS; l++) {
            uint32_t n = 1 + 9 * l;
            assert_f32(w.layer[l].attn_norm, n, HIDDEN);
            assert_half_split(w.layer[l].wq, n + 1, NQ);
            assert_half_split(w.layer[l].wk, n + 2, NKV);
            assert_bf16(w.layer[l].wv, n + 3, NKV * HD * HIDDEN);
            assert_bf16(w.layer[l].wo, n + 4, HIDDEN * NQ * HD);
            assert_f32(w.layer[l].ffn_norm, n + 5, HIDDEN);
            assert_bf16(w.layer[l].w_gate, n + 6, FFN * HIDDEN);
            assert_bf16(w.layer[l].w_up, n + 7, FFN * HIDDEN);
            assert_bf16(w.layer[l].w_down, n + 8, HIDDEN * FFN);
        }
        assert_f32(w.out_norm, 19, HIDDEN);
        if (is_untied)
            assert_bf16(w.lm_head, 20, VOCAB * HIDDEN);
        else
            assert_ptr_equal(w.lm_head, w.embed);
        assert_true(p.calls > LAYERS && p.done == p.total &&
                    p.total == tdm_weights_sz(&s, TDM_WEIGHT_BF16));
        tdm_arena_close(&arena);
        tdm_gguf_close(g);
        gguf_drop(&b);
    }
}

/* Of every matrix of a layer: the row's largest is the largest code, and each
   weight is within half a step of its bf16 value. */
static void assert_codes(const tdm_fp8_matrix_t *m, const tdm_bf16_t *w, uint64_t rows,
                         uint64_t cols) {
    for (uint64_t r = 0; r < rows; r++) {
        float most = 0.0f;
        for (uint64_t c = 0; c < cols; c++)
            most = fmaxf(most, fabsf(tdm_f32_from_bf16(w[r * cols + c])));
        assert_true(m->scale[r] == (most > 0.0f ? most / 448.0f : 1.0f));
        for (uint64_t c = 0; c < cols; c++) {
            float want = tdm_f32_from_bf16(w[r * cols + c]);
            float got = tdm_f32_from_fp8(m->code[r * cols + c]) * m->scale[r];
            assert_true(fabsf(got - want) <=
                        fmaxf(0x1p-4f * fabsf(want), 0x1p-10f * m->scale[r]) * 1.0001f);
        }
    }
}

static void weights_become_fp8_where_asked_for(void **state) {
    (void)state;
    change_t c = {.is_untied = 1};
    gguf_build_t b;
    tdm_gguf_t *g;
    tdm_error_t err = {0};
    tdm_shape_t s;
    tdm_arena_t arena[2];
    static tdm_weights_t w[2];
    build(&b, &c);
    assert_int_equal(tdm_gguf_parse(b.bytes, b.sz, &g, &err), TDM_OK);
    assert_int_equal(tdm_shape_from_gguf(g, &s, &err), TDM_OK);
    for (uint32_t i = 0; i < 2; i++) {
        tdm_weight_dtype_t dtype = i ? TDM_WEIGHT_FP8 : TDM_WEIGHT_BF16;
        uint64_t sz = tdm_weights_sz(&s, dtype);
        assert_int_equal(tdm_arena_open(&arena[i], TDM_ARENA_PLAIN, sz, &err), TDM_OK);
        assert_int_equal(tdm_weights_load(g, &s, dtype, &arena[i], NULL, NULL, &w[i], &err),
                         TDM_OK);
        assert_int_equal(arena[i].used, sz);
        assert_int_equal(w[i].dtype, dtype);
    }
    assert_memory_equal(w[0].embed, w[1].embed, VOCAB * HIDDEN * sizeof(tdm_bf16_t));
    assert_memory_equal(w[0].lm_head, w[1].lm_head, VOCAB * HIDDEN * sizeof(tdm_bf16_t));
    for (uint32_t l = 0; l < LAYERS; l++) {
        const tdm_layer_weights_t *x = &w[0].layer[l], *y = &w[1].layer[l];
        assert_true(!y->wq && !y->w_down && !x->fp8[TDM_MATRIX_Q].code);
        assert_codes(&y->fp8[TDM_MATRIX_Q], x->wq, NQ * HD, HIDDEN);
        assert_codes(&y->fp8[TDM_MATRIX_K], x->wk, NKV * HD, HIDDEN);
        assert_codes(&y->fp8[TDM_MATRIX_V], x->wv, NKV * HD, HIDDEN);
        assert_codes(&y->fp8[TDM_MATRIX_O], x->wo, HIDDEN, NQ * HD);
        assert_codes(&y->fp8[TDM_MATRIX_GATE], x->w_gate, FFN, HIDDEN);
        assert_codes(&y->fp8[TDM_MATRIX_UP], x->w_up, FFN, HIDDEN);
        assert_codes(&y->fp8[TDM_MATRIX_DOWN], x->w_down, HIDDEN, FFN);
    }
    tdm_arena_close(&arena[0]);
    tdm_arena_close(&arena[1]);
    tdm_gguf_close(g);
    gguf_drop(&b);
}

static void what_is_not_implemented_is_refused_by_name(void **state) {
    (void)state;
    const struct {
        change_t c;
        tdm_status_t want;
        const char *text;
    } row[] = {
        {{.architecture = "qwen2"}, TDM_ERR_UNSUPPORTED, "qwen2"},
        {{.extra_key = "llama.expert_count"}, TDM_ERR_UNSUPPORTED, "llama.expert_count"},
        {{.extra_key = "llama.attention.sliding_window"}, TDM_ERR_UNSUPPORTED, "sliding_window"},
        {{.extra_key = "llama.rope.dimension_count"}, TDM_ERR_UNSUPPORTED, "rotary over 8 of 4"},
        {{.extra_key = "llama.vocab_size"}, TDM_ERR_CORRUPT, "vocab_size is 8"},
        {{.scaling = "yarn", .scaling_factor = 2}, TDM_ERR_UNSUPPORTED, "yarn"},
        {{.scaling = "linear", .scaling_factor = 0.25f}, TDM_ERR_LIMIT, "scaling factor"},
        {{.skip_tensor = "blk.1.ffn_up.weight"}, TDM_ERR_CORRUPT, "blk.1.ffn_up.weight is missing"},
        {{.skip_tensor = "token_embd.weight"}, TDM_ERR_CORRUPT, "token_embd.weight is missing"},
        {{.extra_tensor = "blk.0.attn_q.bias"}, TDM_ERR_UNSUPPORTED, "blk.0.attn_q.bias"},
        {{.wide_tensor = "blk.0.attn_k.weight"}, TDM_ERR_CORRUPT, "8 x 16, expected 8 x 12"},
        {{.wide_tensor = "output_norm.weight"}, TDM_ERR_CORRUPT, "output_norm.weight"},
        {{.head_dim = 3}, TDM_ERR_LIMIT, "head dimension"},
        {{.head_dim = 258}, TDM_ERR_LIMIT, "head dimension"},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
        gguf_build_t b;
        tdm_gguf_t *g;
        tdm_error_t err = {0};
        tdm_shape_t s;
        build(&b, &row[i].c);
        assert_int_equal(tdm_gguf_parse(b.bytes, b.sz, &g, &err), TDM_OK);
        tdm_status_t st = tdm_shape_from_gguf(g, &s, &err);
        if (st != row[i].want || !strstr(err.text, row[i].text))
            fail_msg("case %u: %s: %s", i, tdm_status_name(st), err.text);
        tdm_gguf_close(g);
        gguf_drop(&b);
    }
}

static void weights_that_are_not_finite_are_refused(void **state) {
    (void)state;
    const char *name[] = {"token_embd.weight", "blk.1.attn_q.weight", "output_norm.weight"};
    for (uint32_t i = 0; i < TDM_COUNT_OF(name); i++) {
        change_t c = {.nan_tensor = name[i]};
        gguf_build_t b;
        tdm_gguf_t *g;
        tdm_error_t err = {0};
        tdm_shape_t s;
        tdm_arena_t arena;
        static tdm_weights_t w;
        build(&b, &c);
        assert_int_equal(tdm_gguf_parse(b.bytes, b.sz, &g, &err), TDM_OK);
        assert_int_equal(tdm_shape_from_gguf(g, &s, &err), TDM_OK);
        assert_int_equal(
            tdm_arena_open(&arena, TDM_ARENA_PLAIN, tdm_weights_sz(&s, TDM_WEIGHT_BF16), &err),
            TDM_OK);
        assert_int_equal(tdm_weights_load(g, &s, TDM_WEIGHT_BF16, &arena, NULL, NULL, &w, &err),
                         TDM_ERR_CORRUPT);
        assert_non_null(strstr(err.text, name[i]));
        tdm_arena_close(&arena);
        tdm_gguf_close(g);
        gguf_drop(&b);
    }
}

static tdm_status_t shape_of(const change_t *c, tdm_shape_t *s, tdm_error_t *err) {
    gguf_build_t b;
    tdm_gguf_t *g;
    build(&b, c);
    assert_int_equal(tdm_gguf_parse(b.bytes, b.sz, &g, err), TDM_OK);
    tdm_status_t st = tdm_shape_from_gguf(g, s, err);
    tdm_gguf_close(g);
    gguf_drop(&b);
    return st;
}

static void linear_scaling_is_read_from_both_spellings(void **state) {
    (void)state;
    tdm_shape_t s;
    tdm_error_t err = {0};
    change_t c = {.scaling = "linear", .scaling_factor = 4};
    assert_int_equal(shape_of(&c, &s, &err), TDM_OK);
    assert_int_equal(s.rope_kind, TDM_ROPE_LINEAR);
    assert_true(s.rope_factor == 4);
    c = (change_t){.has_old_scale = 1};
    assert_int_equal(shape_of(&c, &s, &err), TDM_OK);
    assert_int_equal(s.rope_kind, TDM_ROPE_LINEAR);
    assert_true(s.rope_factor == 2);
    c = (change_t){.scaling = "none", .scaling_factor = 4};
    assert_int_equal(shape_of(&c, &s, &err), TDM_OK);
    assert_int_equal(s.rope_kind, TDM_ROPE_PLAIN);
}

/* published_factor is Llama 3.1's rule, written from its constants. */
static float published_factor(uint32_t i, uint32_t head_dim, float factor) {
    double wavelength = 2 * M_PI * pow(500000, 2.0 * i / head_dim);
    if (wavelength < 8192.0 / 4) return 1;
    if (wavelength > 8192.0) return factor;
    double smooth = (8192.0 / wavelength - 1) / 3;
    return (float)(1 / ((1 - smooth) / (double)factor + smooth));
}

static void scaling_of_llama_3_1_is_recognised_by_its_tensor(void **state) {
    (void)state;
    float freqs[64];
    tdm_shape_t s;
    tdm_error_t err = {0};
    const float factor[] = {8, 32};
    for (uint32_t k = 0; k < 2; k++) {
        change_t c = {.head_dim = 128, .rope_freqs = freqs, .context = 131072};
        uint32_t smooth = 0;
        for (uint32_t i = 0; i < 64; i++) {
            freqs[i] = published_factor(i, 128, factor[k]);
            smooth += freqs[i] > 1 && freqs[i] < factor[k];
        }
        assert_true(smooth >= 4);
        assert_int_equal(shape_of(&c, &s, &err), TDM_OK);
        assert_int_equal(s.rope_kind, TDM_ROPE_LLAMA3);
        assert_true(s.rope_factor == factor[k]);
        assert_true(s.rope_low_freq_factor == 1 && s.rope_high_freq_factor == 4);
        assert_int_equal(s.rope_original_context, 8192);
        freqs[30] *= 1.01f;
        assert_int_equal(shape_of(&c, &s, &err), TDM_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.text, "rope_freqs.weight"));
        freqs[30] = NAN;
        assert_int_equal(shape_of(&c, &s, &err), TDM_ERR_UNSUPPORTED);
        for (uint32_t i = 0; i < 64; i++) freqs[i] = 1;
        assert_int_equal(shape_of(&c, &s, &err), TDM_OK);
        assert_int_equal(s.rope_kind, TDM_ROPE_PLAIN);
    }
}

static void a_longer_context_is_cut_to_what_the_house_takes(void **state) {
    (void)state;
    tdm_shape_t s;
    tdm_error_t err = {0};
    change_t c = {.context = 1u << 20};
    assert_int_equal(shape_of(&c, &s, &err), TDM_OK);
    assert_int_equal(s.context, TDM_CONTEXT_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_land_where_the_kernels_look),
        cmocka_unit_test(weights_become_fp8_where_asked_for),
        cmocka_unit_test(what_is_not_implemented_is_refused_by_name),
        cmocka_unit_test(weights_that_are_not_finite_are_refused),
        cmocka_unit_test(linear_scaling_is_read_from_both_spellings),
        cmocka_unit_test(scaling_of_llama_3_1_is_recognised_by_its_tensor),
        cmocka_unit_test(a_longer_context_is_cut_to_what_the_house_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
