/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the one door opens files and dummies alike, and a dummy is worth
   running: the same bits every time, finite logits, printable text that
   varies.  Method: open, look, close; an obvious forward pass in double
   over the tiny dummy. */
#include "appliance/model/dequant.h"
#include "appliance/model/dummy.h"
#include "appliance/model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the four above first */
#include <cmocka.h>

static void known_dummies_have_their_published_shapes(void **state) {
    (void)state;
    const struct {
        const char *name;
        uint32_t layers, hidden, nq, nkv, hd, ffn, vocab;
    } row[] = {
        {"llama-3-8b", 32, 4096, 32, 8, 128, 14336, 128256},
        {"llama-2-7b", 32, 4096, 32, 32, 128, 11008, 32000},
        {"yi-6b", 32, 4096, 32, 4, 128, 11008, 64000},
        {"tiny", 2, 128, 4, 2, 64, 256, 512},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
        tdm_shape_t s;
        tdm_error_t err = {0};
        assert_int_equal(tdm_dummy_shape(row[i].name, &s, &err), TDM_OK);
        assert_int_equal(tdm_shape_check(&s, &err), TDM_OK);
        assert_int_equal(s.layer_cnt, row[i].layers);
        assert_int_equal(s.hidden, row[i].hidden);
        assert_int_equal(s.nhead_q, row[i].nq);
        assert_int_equal(s.nhead_kv, row[i].nkv);
        assert_int_equal(s.head_dim, row[i].hd);
        assert_int_equal(s.ffn, row[i].ffn);
        assert_int_equal(s.vocab, row[i].vocab);
    }
}

static void a_dummy_has_the_context_that_is_asked(void **state) {
    (void)state;
    static const char *const wrong[] = {"tiny@",           "tiny@0",   "tiny@131073",
                                        "tiny@-1",         "tiny@4k",  "tiny@ 1",
                                        "tiny@4294967297", "tiny@1@1", "tiny@0x10"};
    tdm_shape_t plain, s;
    tdm_error_t err = {0};
    assert_int_equal(tdm_dummy_shape("tiny", &plain, &err), TDM_OK);
    for (uint32_t context = 1; context <= TDM_CONTEXT_MAX; context = context * 3 + 1) {
        char name[32];
        (void)snprintf(name, sizeof name, "tiny@%u", context);
        assert_int_equal(tdm_dummy_shape(name, &s, &err), TDM_OK);
        assert_int_equal(s.context, context);
        s.context = plain.context;
        assert_memory_equal(&s, &plain, sizeof s);
    }
    assert_int_equal(tdm_dummy_shape("tiny@131072", &s, &err), TDM_OK);
    assert_int_equal(s.context, 131072);
    for (size_t i = 0; i < TDM_COUNT_OF(wrong); i++) {
        assert_int_equal(tdm_dummy_shape(wrong[i], &s, &err), TDM_ERR_INVAL);
        assert_non_null(strstr(err.text, wrong[i]));
    }
    assert_int_equal(tdm_dummy_shape("tin@1", &s, &err), TDM_ERR_NOT_FOUND);
    assert_int_equal(tdm_dummy_shape("@1", &s, &err), TDM_ERR_NOT_FOUND);
}

static void shape_alone_takes_no_memory_for_weights(void **state) {
    (void)state;
    tdm_model_options_t o = {.flags = TDM_MODEL_SHAPE_ONLY};
    tdm_model_t *m;
    tdm_error_t err = {0};
    const int32_t *eos;
    assert_int_equal(tdm_model_open("dummy:llama-3-8b", &o, &m, &err), TDM_OK);
    assert_null(tdm_model_weights(m));
    assert_null(tdm_model_arena(m));
    assert_null(tdm_model_gguf(m));
    assert_int_equal(tdm_model_shape(m)->vocab, 128256);
    assert_string_equal(tdm_model_name(m), "dummy:llama-3-8b");
    assert_int_equal(tdm_model_eos(m, &eos), 2);
    assert_int_equal(eos[0], TDM_DUMMY_EOS);
    tdm_model_close(m);
}

static void wrong_specs_are_refused_by_name(void **state) {
    (void)state;
    tdm_model_t *m;
    tdm_error_t err = {0};
    assert_int_equal(tdm_model_open("dummy:huge", NULL, &m, &err), TDM_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "huge"));
    assert_non_null(strstr(err.text, "tiny"));
    assert_null(m);
    assert_int_equal(tdm_model_open("/nonexistent/a.gguf", NULL, &m, &err), TDM_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nonexistent/a.gguf"));
    assert_int_equal(tdm_model_open("", NULL, &m, &err), TDM_ERR_NOT_FOUND);
    assert_int_equal(tdm_model_is_dummy("dummy:x"), 1);
    assert_int_equal(tdm_model_is_dummy("dummy.gguf"), 0);
    tdm_model_close(NULL);
}

static uint64_t hash_weights(const tdm_weights_t *w) {
    const tdm_shape_t *s = &w->shape;
    uint64_t h = 0;
    for (uint32_t i = 0; i < s->vocab * s->hidden; i++)
        h = (h ^ w->embed[i] ^ (uint64_t)w->lm_head[i] << 16) * UINT64_C(0x100000001b3);
    for (uint32_t l = 0; l < s->layer_cnt; l++)
        for (uint32_t i = 0; i < s->ffn * s->hidden; i++)
            h = (h ^ w->layer[l].w_up[i] ^ (uint64_t)w->layer[l].w_down[i] << 16) *
                UINT64_C(0x100000001b3);
    return h;
}

static void the_same_seed_gives_the_same_bits(void **state) {
    (void)state;
    tdm_shape_t s;
    tdm_error_t err = {0};
    uint64_t h[3];
    assert_int_equal(tdm_dummy_shape("tiny", &s, &err), TDM_OK);
    for (uint32_t k = 0; k < 3; k++) {
        tdm_arena_t a;
        static tdm_weights_t w;
        assert_int_equal(
            tdm_arena_open(&a, TDM_ARENA_PLAIN, tdm_weights_sz(&s, TDM_WEIGHT_BF16), &err), TDM_OK);
        assert_int_equal(
            tdm_dummy_fill(&s, k < 2 ? 7 : 8, TDM_WEIGHT_BF16, &a, NULL, NULL, &w, &err), TDM_OK);
        h[k] = hash_weights(&w);
        tdm_arena_close(&a);
    }
    assert_true(h[0] == h[1]);
    assert_true(h[0] != h[2]);
}

static void syllables_are_short_and_lower_case(void **state) {
    (void)state;
    char first[4], again[4];
    for (uint32_t id = TDM_DUMMY_SYLLABLE; id < 512; id++) {
        uint32_t n = tdm_dummy_syllable(id, first);
        assert_int_equal(n, strlen(first));
        assert_true(n == 2 || n == 3);
        for (uint32_t k = 0; k < n; k++) assert_true(first[k] >= 'a' && first[k] <= 'z');
    }
    (void)tdm_dummy_syllable(TDM_DUMMY_SYLLABLE, first);
    (void)tdm_dummy_syllable(TDM_DUMMY_SYLLABLE + 252, again);
    assert_string_equal(first, again);
}

/* --- the obvious forward pass --- */

enum { POS_MAX = 64, WIDTH_MAX = 512 };

static double kv[2][8][POS_MAX][2][WIDTH_MAX]; /* k or v, layer, position, KV head, dimension */

static void matmul(const tdm_bf16_t *w, const double *x, uint32_t rows, uint32_t cols, double *y) {
    for (uint32_t r = 0; r < rows; r++) {
        y[r] = 0;
        for (uint32_t c = 0; c < cols; c++)
            y[r] += (double)tdm_f32_from_bf16(w[r * cols + c]) * x[c];
    }
}

static void normalise(const float *g, const double *x, uint32_t n, double eps, double *y) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++) y[i] = x[i] / sqrt(sum / n + eps) * (double)g[i];
}

static void rotate(double *x, uint32_t hd, uint32_t pos, double theta) {
    for (uint32_t i = 0; i < hd / 2; i++) {
        double a = pos * pow(theta, -2.0 * i / hd), u = x[i], v = x[i + hd / 2];
        x[i] = u * cos(a) - v * sin(a);
        x[i + hd / 2] = v * cos(a) + u * sin(a);
    }
}

static void attend(const tdm_weights_t *w, uint32_t l, uint32_t pos, const double *x, double *out) {
    const tdm_shape_t *s = &w->shape;
    const tdm_layer_weights_t *lw = &w->layer[l];
    double q[WIDTH_MAX], k[WIDTH_MAX], v[WIDTH_MAX];
    uint32_t hd = s->head_dim, group = s->nhead_q / s->nhead_kv;
    matmul(lw->wq, x, s->nhead_q * hd, s->hidden, q);
    matmul(lw->wk, x, s->nhead_kv * hd, s->hidden, k);
    matmul(lw->wv, x, s->nhead_kv * hd, s->hidden, v);
    for (uint32_t h = 0; h < s->nhead_kv; h++) {
        rotate(k + h * hd, hd, pos, (double)s->rope_theta);
        memcpy(kv[0][l][pos][h], k + h * hd, hd * sizeof *k);
        memcpy(kv[1][l][pos][h], v + h * hd, hd * sizeof *v);
    }
    for (uint32_t h = 0; h < s->nhead_q; h++) {
        double p[POS_MAX], sum = 0;
        rotate(q + h * hd, hd, pos, (double)s->rope_theta);
        for (uint32_t j = 0; j <= pos; j++) {
            double dot = 0;
            for (uint32_t d = 0; d < hd; d++) dot += q[h * hd + d] * kv[0][l][j][h / group][d];
            p[j] = exp(dot / sqrt(hd));
            sum += p[j];
        }
        for (uint32_t d = 0; d < hd; d++) {
            out[h * hd + d] = 0;
            for (uint32_t j = 0; j <= pos; j++)
                out[h * hd + d] += p[j] / sum * kv[1][l][j][h / group][d];
        }
    }
}

static void forward(const tdm_weights_t *w, int32_t token, uint32_t pos, double *logits) {
    const tdm_shape_t *s = &w->shape;
    double x[WIDTH_MAX], n[WIDTH_MAX], a[WIDTH_MAX], y[WIDTH_MAX], gate[WIDTH_MAX], up[WIDTH_MAX];
    for (uint32_t i = 0; i < s->hidden; i++)
        x[i] = (double)tdm_f32_from_bf16(w->embed[(uint32_t)token * s->hidden + i]);
    for (uint32_t l = 0; l < s->layer_cnt; l++) {
        const tdm_layer_weights_t *lw = &w->layer[l];
        normalise(lw->attn_norm, x, s->hidden, (double)s->rms_eps, n);
        attend(w, l, pos, n, a);
        matmul(lw->wo, a, s->hidden, s->nhead_q * s->head_dim, y);
        for (uint32_t i = 0; i < s->hidden; i++) x[i] += y[i];
        normalise(lw->ffn_norm, x, s->hidden, (double)s->rms_eps, n);
        matmul(lw->w_gate, n, s->ffn, s->hidden, gate);
        matmul(lw->w_up, n, s->ffn, s->hidden, up);
        for (uint32_t i = 0; i < s->ffn; i++) gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
        matmul(lw->w_down, gate, s->hidden, s->ffn, y);
        for (uint32_t i = 0; i < s->hidden; i++) x[i] += y[i];
    }
    normalise(w->out_norm, x, s->hidden, (double)s->rms_eps, n);
    matmul(w->lm_head, n, s->vocab, s->hidden, logits);
}

static void tiny_speaks_printable_text_that_varies(void **state) {
    (void)state;
    tdm_model_t *m;
    tdm_error_t err = {0};
    const char *prompt[] = {"Hello", "What is the capital of France?", "zzz"};
    uint8_t seen[512] = {0};
    uint32_t distinct_all = 0;
    assert_int_equal(tdm_model_open("dummy:tiny", NULL, &m, &err), TDM_OK);
    const tdm_weights_t *w = tdm_model_weights(m);
    assert_non_null(w);
    for (uint32_t k = 0; k < 3; k++) {
        double logits[512];
        uint32_t pos = 0, distinct = 0, out = 0;
        uint8_t mine[512] = {0};
        forward(w, TDM_DUMMY_BOS, pos++, logits);
        for (const char *p = prompt[k]; *p; p++) forward(w, (uint8_t)*p, pos++, logits);
        for (; out < 24; out++) {
            int32_t best = 0;
            for (int32_t i = 0; i < 512; i++) {
                assert_true(isfinite(logits[i]) && fabs(logits[i]) < 100);
                if (logits[i] > logits[best]) best = i;
            }
            assert_true((best >= 0x20 && best < 0x7f) || best >= TDM_DUMMY_SYLLABLE);
            distinct += !mine[best];
            mine[best] = 1;
            distinct_all += !seen[best];
            seen[best] = 1;
            forward(w, best, pos++, logits);
        }
        print_message("'%s': %u different tokens of %u\n", prompt[k], distinct, out);
        assert_true(distinct >= 8);
    }
    assert_true(distinct_all >= 24);
    tdm_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_dummies_have_their_published_shapes),
        cmocka_unit_test(a_dummy_has_the_context_that_is_asked),
        cmocka_unit_test(shape_alone_takes_no_memory_for_weights),
        cmocka_unit_test(wrong_specs_are_refused_by_name),
        cmocka_unit_test(the_same_seed_gives_the_same_bits),
        cmocka_unit_test(syllables_are_short_and_lower_case),
        cmocka_unit_test(tiny_speaks_printable_text_that_varies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
