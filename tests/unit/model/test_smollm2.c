/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the demo model is read bit for bit as other people's libraries
   read it.  Method: tests/numerics/golden/smollm2_weights.json holds a sum
   over the bits of every tensor.  Needs the model's file. */
#include "appliance/model/dequant.h"
#include "appliance/model/model.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#define MODEL TDM_MODEL_DIR "/smollm2.gguf"

static uint64_t sum_bf16(const tdm_bf16_t *w, uint64_t cnt) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < cnt; i++) sum += (w[i] + UINT64_C(1)) * (2 * i + 1);
    return sum;
}

static uint64_t sum_f32(const float *w, uint64_t cnt) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < cnt; i++) sum += (tdm_bf16_from_f32(w[i]) + UINT64_C(1)) * (2 * i + 1);
    return sum;
}

static uint32_t checked;

static void check(const json_t *sums, const char *name, uint64_t sum) {
    char text[17];
    (void)snprintf(text, sizeof text, "%016llx", (unsigned long long)sum);
    const char *want = json_string_value(json_object_get(sums, name));
    if (!want || strcmp(text, want) != 0)
        fail_msg("%s: %s, expected %s", name, text, want ? want : "nothing");
    checked++;
}

static void every_tensor_has_its_golden_bits(void **state) {
    (void)state;
    json_error_t where;
    tdm_error_t err = {0};
    tdm_model_t *m;
    json_t *golden =
        json_load_file(TDM_SOURCE_DIR "/tests/numerics/golden/smollm2_weights.json", 0, &where);
    assert_non_null(golden);
    const json_t *sums = json_object_get(golden, "sums");
    if (tdm_model_open(MODEL, NULL, &m, &err) != TDM_OK) fail_msg("%s", err.text);
    const tdm_weights_t *w = tdm_model_weights(m);
    const tdm_shape_t *s = &w->shape;
    uint64_t h = s->hidden, q = (uint64_t)s->nhead_q * s->head_dim;
    uint64_t k = (uint64_t)s->nhead_kv * s->head_dim;
    check(sums, "model.embed_tokens.weight", sum_bf16(w->embed, s->vocab * h));
    check(sums, "model.norm.weight", sum_f32(w->out_norm, h));
    for (uint32_t l = 0; l < s->layer_cnt; l++) {
        const tdm_layer_weights_t *lw = &w->layer[l];
        const struct {
            const char *name;
            uint64_t sum;
        } row[] = {
            {"input_layernorm", sum_f32(lw->attn_norm, h)},
            {"self_attn.q_proj", sum_bf16(lw->wq, q * h)},
            {"self_attn.k_proj", sum_bf16(lw->wk, k * h)},
            {"self_attn.v_proj", sum_bf16(lw->wv, k * h)},
            {"self_attn.o_proj", sum_bf16(lw->wo, h * q)},
            {"post_attention_layernorm", sum_f32(lw->ffn_norm, h)},
            {"mlp.gate_proj", sum_bf16(lw->w_gate, s->ffn * h)},
            {"mlp.up_proj", sum_bf16(lw->w_up, s->ffn * h)},
            {"mlp.down_proj", sum_bf16(lw->w_down, h * s->ffn)},
        };
        for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
            char name[128];
            (void)snprintf(name, sizeof name, "model.layers.%u.%s.weight", l, row[i].name);
            check(sums, name, row[i].sum);
        }
    }
    assert_int_equal(checked, json_object_size(sums));
    tdm_model_close(m);
    json_decref(golden);
}

static void the_door_knows_the_demo_model(void **state) {
    (void)state;
    tdm_model_options_t o = {.flags = TDM_MODEL_SHAPE_ONLY};
    tdm_error_t err = {0};
    tdm_model_t *m;
    const int32_t *eos;
    assert_int_equal(tdm_model_open(MODEL, &o, &m, &err), TDM_OK);
    const tdm_shape_t *s = tdm_model_shape(m);
    assert_string_equal(tdm_model_name(m), "smollm2");
    assert_int_equal(s->layer_cnt, 30);
    assert_int_equal(s->hidden, 576);
    assert_int_equal(s->nhead_q, 9);
    assert_int_equal(s->nhead_kv, 3);
    assert_int_equal(s->head_dim, 64);
    assert_int_equal(s->ffn, 1536);
    assert_int_equal(s->vocab, 49152);
    assert_int_equal(s->context, 8192);
    assert_int_equal(s->is_tied, 1);
    assert_int_equal(s->rope_kind, TDM_ROPE_PLAIN);
    assert_true(s->rope_theta == 100000);
    assert_int_equal(tdm_model_eos(m, &eos), 2);
    assert_int_equal(eos[0], 2); /* <|im_end|> */
    assert_int_equal(eos[1], 0); /* <|endoftext|> */
    assert_null(tdm_model_weights(m));
    assert_non_null(tdm_model_gguf(m));
    tdm_model_close(m);
}

int main(void) {
    if (access(MODEL, R_OK) != 0) {
        print_message("skipped: no " MODEL " (deploy/fetch/smollm2)\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_has_its_golden_bits),
        cmocka_unit_test(the_door_knows_the_demo_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
