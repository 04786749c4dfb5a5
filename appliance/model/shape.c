/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/model/dequant.h"
#include "appliance/model/layout_private.h"
#include "appliance/model/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Upper bounds that keep every product of two of them under 2^40. */
#define HIDDEN_MAX 65536u
#define HEAD_MAX   1024u
#define FFN_MAX    (1u << 20)

static tdm_status_t outside(tdm_error_t *err, const char *field, double v) {
    return tdm_error_set(err, TDM_ERR_LIMIT, "model: %s of %g is outside its range", field, v);
}

tdm_status_t tdm_shape_check(const tdm_shape_t *s, tdm_error_t *err) {
    if (s->layer_cnt == 0 || s->layer_cnt > TDM_LAYER_MAX)
        return outside(err, "layer count", s->layer_cnt);
    if (s->hidden == 0 || s->hidden > HIDDEN_MAX) return outside(err, "hidden size", s->hidden);
    if (s->nhead_q == 0 || s->nhead_q > HEAD_MAX) return outside(err, "head count", s->nhead_q);
    if (s->nhead_kv == 0 || s->nhead_kv > s->nhead_q)
        return outside(err, "KV head count", s->nhead_kv);
    if (s->nhead_q % s->nhead_kv != 0)
        return tdm_error_set(err, TDM_ERR_CORRUPT,
                             "model: %u heads do not share %u KV heads evenly", s->nhead_q,
                             s->nhead_kv);
    if (s->head_dim == 0 || s->head_dim % 2 != 0 || s->head_dim > TDM_HEAD_DIM_MAX)
        return outside(err, "head dimension", s->head_dim);
    if (s->ffn == 0 || s->ffn > FFN_MAX) return outside(err, "feed-forward size", s->ffn);
    if (s->vocab == 0 || s->vocab > TDM_VOCAB_MAX) return outside(err, "vocabulary", s->vocab);
    if (s->context == 0 || s->context > TDM_CONTEXT_MAX)
        return outside(err, "context length", s->context);
    if (!(s->rms_eps > 0 && s->rms_eps < 0.1f))
        return outside(err, "RMSNorm epsilon", (double)s->rms_eps);
    if (!(s->rope_theta > 1 && s->rope_theta < 1e12f))
        return outside(err, "rotary base", (double)s->rope_theta);
    if (s->rope_kind > TDM_ROPE_LLAMA3) return outside(err, "rotary kind", s->rope_kind);
    if (s->rope_kind != TDM_ROPE_PLAIN && !(s->rope_factor >= 1 && s->rope_factor < 1e6f))
        return outside(err, "rotary scaling factor", (double)s->rope_factor);
    return TDM_OK;
}

/* Settings of the format that change the output and are not implemented;
   0 or absent means off. */
static const char *const refused_key[] = {
    "llama.expert_count",     "llama.attention.sliding_window", "llama.attention.scale",
    "llama.embedding_scale",  "llama.residual_scale",           "llama.logit_scale",
    "llama.attention.causal", "llama.attention.clamp_kqv",
};

static tdm_status_t refuse_variants(const tdm_gguf_t *g, tdm_error_t *err) {
    for (uint32_t i = 0; i < TDM_COUNT_OF(refused_key); i++) {
        const char *key = refused_key[i];
        if (!tdm_gguf_has(g, key)) continue;
        uint32_t n = 1;
        float f = 1;
        int b = 0;
        int is_off = (tdm_gguf_u32(g, key, &n, NULL) == TDM_OK && n == 0) ||
                     (tdm_gguf_f32(g, key, &f, NULL) == TDM_OK && f == 0) ||
                     (tdm_gguf_bool(g, key, &b, NULL) == TDM_OK && b);
        if (!is_off)
            return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "model: %s is not implemented", key);
    }
    return TDM_OK;
}

/* llama3_factor is what Llama 3.1 divides the frequency of pair i by
   (Llama 3.1's reference apply_scaling; low 1, high 4). */
static double llama3_factor(const tdm_shape_t *s, uint32_t i) {
    double freq = pow((double)s->rope_theta, -2.0 * i / s->head_dim);
    double wavelength = 2.0 * M_PI / freq;
    double original = s->rope_original_context;
    if (wavelength < original / (double)s->rope_high_freq_factor) return 1;
    if (wavelength > original / (double)s->rope_low_freq_factor) return (double)s->rope_factor;
    double smooth = (original / wavelength - (double)s->rope_low_freq_factor) /
                    (double)(s->rope_high_freq_factor - s->rope_low_freq_factor);
    return 1 / ((1 - smooth) / (double)s->rope_factor + smooth);
}

/* read_rope_tensor recognises the scaling behind rope_freqs.weight, the
   one form in which a GGUF file carries it: all ones is no scaling, else
   it must be Llama 3.1's with its published constants and whatever factor
   the last pair shows. */
static tdm_status_t read_rope_tensor(const tdm_gguf_t *g, tdm_shape_t *s, tdm_error_t *err) {
    const tdm_gguf_tensor_t *t = tdm_gguf_tensor(g, "rope_freqs.weight");
    if (!t) return TDM_OK;
    uint32_t cnt = s->head_dim / 2;
    if (t->dtype != TDM_DTYPE_F32 || t->dim_cnt != 1 || t->dim[0] != cnt)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "model: tensor rope_freqs.weight is not F32[%u]",
                             cnt);
    if (s->rope_kind != TDM_ROPE_PLAIN)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "model: rope_freqs.weight together with llama.rope.scaling");
    float factor[TDM_HEAD_DIM_MAX / 2];
    tdm_dequant_f32(t->dtype, t->bytes, cnt, factor);
    int is_plain = 1;
    for (uint32_t i = 0; i < cnt; i++) is_plain &= factor[i] == 1.0f;
    if (is_plain) return TDM_OK;
    s->rope_kind = TDM_ROPE_LLAMA3;
    s->rope_factor = factor[cnt - 1];
    s->rope_low_freq_factor = 1;
    s->rope_high_freq_factor = 4;
    s->rope_original_context = 8192;
    for (uint32_t i = 0; i < cnt; i++) {
        double want = llama3_factor(s, i);
        if (!(fabs((double)factor[i] - want) <= 1e-3 * want))
            return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                                 "model: rope_freqs.weight is not the scaling of Llama 3.1 "
                                 "(pair %u has %g, expected %g)",
                                 i, (double)factor[i], want);
    }
    return TDM_OK;
}

static tdm_status_t read_rope(const tdm_gguf_t *g, tdm_shape_t *s, tdm_error_t *err) {
    tdm_status_t st = TDM_OK;
    uint32_t rotary = s->head_dim;
    s->rope_theta = 10000;
    s->rope_factor = 1;
    if (tdm_gguf_has(g, "llama.rope.freq_base"))
        st = tdm_gguf_f32(g, "llama.rope.freq_base", &s->rope_theta, err);
    if (st == TDM_OK && tdm_gguf_has(g, "llama.rope.dimension_count"))
        st = tdm_gguf_u32(g, "llama.rope.dimension_count", &rotary, err);
    if (st != TDM_OK) return st;
    if (rotary != s->head_dim)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "model: rotary over %u of %u dimensions of a head is not implemented",
                             rotary, s->head_dim);
    tdm_gguf_string_t type = {"none", 4};
    const char *factor_key = "llama.rope.scaling.factor";
    if (tdm_gguf_has(g, "llama.rope.scaling.type")) {
        st = tdm_gguf_string(g, "llama.rope.scaling.type", &type, err);
        if (st != TDM_OK) return st;
    } else if (tdm_gguf_has(g, "llama.rope.scale_linear")) { /* files of before scaling.type */
        type = (tdm_gguf_string_t){"linear", 6};
        factor_key = "llama.rope.scale_linear";
    }
    if (tdm_gguf_equals(type, "linear")) {
        s->rope_kind = TDM_ROPE_LINEAR;
        st = tdm_gguf_f32(g, factor_key, &s->rope_factor, err);
        if (st != TDM_OK) return st;
        if (s->rope_factor == 1.0f) s->rope_kind = TDM_ROPE_PLAIN;
    } else if (!tdm_gguf_equals(type, "none")) {
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "model: rotary scaling '%.*s' is not implemented",
                             (int)TDM_MIN(type.sz, (uint64_t)32), type.bytes);
    }
    return read_rope_tensor(g, s, err);
}

static tdm_status_t read_numbers(const tdm_gguf_t *g, tdm_shape_t *s, tdm_error_t *err) {
    const struct {
        const char *key;
        uint32_t *out;
    } needed[] = {
        {"llama.block_count", &s->layer_cnt},        {"llama.embedding_length", &s->hidden},
        {"llama.attention.head_count", &s->nhead_q}, {"llama.feed_forward_length", &s->ffn},
        {"llama.context_length", &s->context},
    };
    tdm_status_t st;
    for (uint32_t i = 0; i < TDM_COUNT_OF(needed); i++) {
        st = tdm_gguf_u32(g, needed[i].key, needed[i].out, err);
        if (st != TDM_OK) return st;
    }
    st = tdm_gguf_f32(g, "llama.attention.layer_norm_rms_epsilon", &s->rms_eps, err);
    if (st != TDM_OK) return st;
    s->context = TDM_MIN(s->context, (uint32_t)TDM_CONTEXT_MAX);
    s->nhead_kv = s->nhead_q;
    if (tdm_gguf_has(g, "llama.attention.head_count_kv")) {
        st = tdm_gguf_u32(g, "llama.attention.head_count_kv", &s->nhead_kv, err);
        if (st != TDM_OK) return st;
    }
    if (s->nhead_q == 0) return outside(err, "head count", 0);
    s->head_dim = s->hidden / s->nhead_q;
    if (tdm_gguf_has(g, "llama.attention.key_length")) {
        st = tdm_gguf_u32(g, "llama.attention.key_length", &s->head_dim, err);
        if (st != TDM_OK) return st;
    }
    uint32_t value_dim = s->head_dim;
    if (tdm_gguf_has(g, "llama.attention.value_length")) {
        st = tdm_gguf_u32(g, "llama.attention.value_length", &value_dim, err);
        if (st != TDM_OK) return st;
    }
    if (value_dim != s->head_dim)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "model: keys of %u and values of %u dimensions is not implemented",
                             s->head_dim, value_dim);
    return s->head_dim > TDM_HEAD_DIM_MAX ? outside(err, "head dimension", s->head_dim) : TDM_OK;
}

/* read_vocab takes the vocabulary from the embedding, and refuses a
   metadata count that says otherwise. */
static tdm_status_t read_vocab(const tdm_gguf_t *g, tdm_shape_t *s, tdm_error_t *err) {
    const tdm_gguf_tensor_t *embed = tdm_gguf_tensor(g, "token_embd.weight");
    if (!embed)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "model: tensor token_embd.weight is missing");
    if (embed->dim_cnt != 2 || embed->dim[1] > TDM_VOCAB_MAX)
        return outside(err, "vocabulary", (double)embed->dim[1]);
    s->vocab = (uint32_t)embed->dim[1];
    s->is_tied = tdm_gguf_tensor(g, "output.weight") == NULL;
    uint32_t said = s->vocab;
    if (tdm_gguf_has(g, "llama.vocab_size")) {
        tdm_status_t st = tdm_gguf_u32(g, "llama.vocab_size", &said, err);
        if (st != TDM_OK) return st;
    }
    if (said != s->vocab)
        return tdm_error_set(err, TDM_ERR_CORRUPT,
                             "model: llama.vocab_size is %u, token_embd.weight has %u rows", said,
                             s->vocab);
    return TDM_OK;
}

/* check_tensors compares every tensor with the list, both ways. */
static tdm_status_t check_tensors(const tdm_gguf_t *g, const tdm_shape_t *s, tdm_error_t *err) {
    uint32_t cnt = tdm_item_cnt(s);
    for (uint32_t i = 0; i < cnt; i++) {
        tdm_item_t item;
        tdm_item_get(s, TDM_WEIGHT_BF16, i, &item);
        const tdm_gguf_tensor_t *t = tdm_gguf_tensor(g, item.name);
        if (!t)
            return tdm_error_set(err, TDM_ERR_CORRUPT, "model: tensor %s is missing", item.name);
        if (t->dim[0] != item.cols || t->dim[1] != item.rows || t->dim[2] != 1 || t->dim[3] != 1)
            return tdm_error_set(err, TDM_ERR_CORRUPT,
                                 "model: tensor %s is %llu x %llu, expected %llu x %llu", item.name,
                                 (unsigned long long)t->dim[1], (unsigned long long)t->dim[0],
                                 (unsigned long long)item.rows, (unsigned long long)item.cols);
    }
    uint32_t known = cnt + (tdm_gguf_tensor(g, "rope_freqs.weight") != NULL);
    if (tdm_gguf_tensor_cnt(g) == known) return TDM_OK;
    for (uint32_t i = 0; i < tdm_gguf_tensor_cnt(g); i++) {
        tdm_gguf_string_t name = tdm_gguf_tensor_at(g, i)->name;
        int is_known = tdm_gguf_equals(name, "rope_freqs.weight");
        for (uint32_t k = 0; !is_known && k < cnt; k++) {
            tdm_item_t item;
            tdm_item_get(s, TDM_WEIGHT_BF16, k, &item);
            is_known = tdm_gguf_equals(name, item.name);
        }
        if (!is_known)
            return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                                 "model: tensor %.*s is not part of a Llama model here",
                                 (int)TDM_MIN(name.sz, (uint64_t)80), name.bytes);
    }
    return TDM_OK;
}

tdm_status_t tdm_shape_from_gguf(const tdm_gguf_t *g, tdm_shape_t *shape, tdm_error_t *err) {
    memset(shape, 0, sizeof *shape);
    tdm_gguf_string_t architecture;
    tdm_status_t st = tdm_gguf_string(g, "general.architecture", &architecture, err);
    if (st != TDM_OK) return st;
    if (!tdm_gguf_equals(architecture, "llama"))
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "model: architecture '%.*s' is not implemented, only 'llama'",
                             (int)TDM_MIN(architecture.sz, (uint64_t)64), architecture.bytes);
    st = refuse_variants(g, err);
    if (st == TDM_OK) st = read_numbers(g, shape, err);
    if (st == TDM_OK) st = read_vocab(g, shape, err);
    if (st == TDM_OK) st = read_rope(g, shape, err);
    if (st == TDM_OK) st = tdm_shape_check(shape, err);
    if (st == TDM_OK) st = check_tensors(g, shape, err);
    return st;
}
