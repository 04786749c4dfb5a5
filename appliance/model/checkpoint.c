/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/model/checkpoint.h"

#include "appliance/model/checkpoint_private.h"
#include "appliance/model/layout_private.h"
#include "appliance/model/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- files of JSON ---------------------------------------------------------- */

static tdm_status_t load_object(const char *name, const char *text, uint64_t sz, json_t **out,
                                tdm_error_t *err) {
    json_error_t where;
    *out = json_loadb(text, sz, JSON_REJECT_DUPLICATES, &where);
    if (json_is_object(*out)) return TDM_OK;
    if (!*out)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "model: %s, line %d: %.80s", name, where.line,
                             where.text);
    json_decref(*out);
    *out = NULL;
    return tdm_error_set(err, TDM_ERR_CORRUPT, "model: %s is no JSON object", name);
}

tdm_status_t tdm_checkpoint_json(const char *folder, const char *name, uint64_t max, json_t **out,
                                 tdm_error_t *err) {
    char path[4096];
    *out = NULL;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return tdm_error_set(err, TDM_ERR_LIMIT, "model %.80s: the path is too long", folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tdm_error_set(err, errno == ENOENT ? TDM_ERR_NOT_FOUND : TDM_ERR_IO, "model %s: %s",
                             path, strerror(errno));
    struct stat sb;
    tdm_status_t st = TDM_OK;
    char *text = NULL;
    if (fstat(fd, &sb) != 0 || !S_ISREG(sb.st_mode))
        st = tdm_error_set(err, TDM_ERR_CORRUPT, "model %s: no regular file", path);
    else if ((uint64_t)sb.st_size > max)
        st = tdm_error_set(err, TDM_ERR_LIMIT, "model %s: %lld bytes, at most %llu are read", path,
                           (long long)sb.st_size, (unsigned long long)max);
    else if (!(text = malloc((size_t)sb.st_size + 1)))
        st = tdm_error_set(err, TDM_ERR_NOMEM, "model %s: no memory", path);
    else if (read(fd, text, (size_t)sb.st_size) != sb.st_size)
        st = tdm_error_set(err, TDM_ERR_IO, "model %s: cannot be read", path);
    else
        st = load_object(name, text, (uint64_t)sb.st_size, out, err);
    free(text);
    (void)close(fd);
    return st;
}

/* --- config.json ------------------------------------------------------------- */

/* value gives a key, NULL where it is absent or null. */
static const json_t *value(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_null(v) ? NULL : v;
}

static tdm_status_t refuse(tdm_error_t *err, const char *key) {
    return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "model: config.json: %s is not implemented",
                         key);
}

static tdm_status_t malformed(tdm_error_t *err, const char *key) {
    return tdm_error_set(err, TDM_ERR_CORRUPT, "model: config.json: %s is missing or malformed",
                         key);
}

/* get_u32 leaves *out where the key is absent and is_needed is 0. */
static tdm_status_t get_u32(const json_t *o, const char *key, int is_needed, uint32_t *out,
                            tdm_error_t *err) {
    const json_t *v = value(o, key);
    if (!v) return is_needed ? malformed(err, key) : TDM_OK;
    json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;
    if (n < 0 || n > UINT32_MAX) return malformed(err, key);
    *out = (uint32_t)n;
    return TDM_OK;
}

static tdm_status_t get_f32(const json_t *o, const char *key, int is_needed, float *out,
                            tdm_error_t *err) {
    const json_t *v = value(o, key);
    if (!v) return is_needed ? malformed(err, key) : TDM_OK;
    if (!json_is_number(v)) return malformed(err, key);
    *out = (float)json_number_value(v);
    return TDM_OK;
}

static tdm_status_t refuse_quantization(tdm_error_t *err, const char *key) {
    return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                         "model: config.json: this quantization_config.%s is not implemented", key);
}

static int is_string(const json_t *o, const char *key, const char *want) {
    const char *is = json_string_value(json_object_get(o, key));
    return is && strcmp(is, want) == 0;
}

/* check_group: weights of the one kind that is read. */
static tdm_status_t check_group(const json_t *group, tdm_error_t *err) {
    const json_t *w = json_object_get(group, "weights");
    int is_read = json_is_object(w) && json_integer_value(json_object_get(w, "num_bits")) == 8 &&
                  is_string(w, "type", "float") &&
                  !json_is_false(json_object_get(w, "symmetric")) &&
                  !json_is_true(json_object_get(w, "dynamic"));
    if (!is_read) return refuse_quantization(err, "config_groups: weights");
    if (is_string(w, "strategy", "channel") || is_string(w, "strategy", "tensor")) return TDM_OK;
    return refuse_quantization(err, "config_groups: strategy");
}

/* check_quantization: none, or what checkpoint.h says. */
static tdm_status_t check_quantization(const json_t *o, tdm_error_t *err) {
    const json_t *q = value(o, "quantization_config");
    if (!q) return TDM_OK;
    if (!is_string(q, "quant_method", "compressed-tensors"))
        return refuse_quantization(err, "quant_method");
    if (!is_string(q, "format", "float-quantized")) return refuse_quantization(err, "format");
    const json_t *groups = json_object_get(q, "config_groups");
    if (!json_is_object(groups)) return refuse_quantization(err, "config_groups");
    const char *name;
    json_t *group;
    json_object_foreach((json_t *)(uintptr_t)groups, name, group) {
        tdm_status_t st = check_group(group, err);
        if (st != TDM_OK) return st;
    }
    return TDM_OK;
}

/* refuse_variants names what would change the output; absent, null, false
   and 0 mean off. */
static tdm_status_t refuse_variants(const json_t *o, tdm_error_t *err) {
    static const char *const key[] = {
        "attention_bias",
        "mlp_bias",
        "compression_config",
        "sliding_window",
        "num_local_experts",
        "num_experts",
        "qk_norm",
        "logit_scale",
        "embedding_multiplier",
        "logits_scaling",
        "residual_multiplier",
        "attention_multiplier",
        "final_logit_softcapping",
        "attn_logit_softcapping",
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(key); i++) {
        const json_t *v = value(o, key[i]);
        int is_off = !v || json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0);
        if (!is_off) return refuse(err, key[i]);
    }
    tdm_status_t st = check_quantization(o, err);
    if (st != TDM_OK) return st;
    const char *type = json_string_value(json_object_get(o, "model_type"));
    if (!type) return malformed(err, "model_type");
    if (strcmp(type, "llama") != 0)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "model: config.json: model_type '%.64s' is not implemented, only "
                             "'llama'",
                             type);
    const json_t *act = value(o, "hidden_act");
    const char *act_name = act ? json_string_value(act) : "silu";
    if (!act_name || strcmp(act_name, "silu") != 0) return refuse(err, "hidden_act");
    const json_t *part = value(o, "partial_rotary_factor");
    if (part && !(json_number_value(part) == 1)) return refuse(err, "partial_rotary_factor");
    return TDM_OK;
}

/* read_scaling reads the map of rotary scaling, whose type has two names. */
static tdm_status_t read_scaling(const json_t *o, tdm_shape_t *s, tdm_error_t *err) {
    const json_t *named = value(o, "rope_type");
    const char *type = json_string_value(named ? named : value(o, "type"));
    if (!type) return malformed(err, "rope_scaling.rope_type");
    if (strcmp(type, "default") == 0) return TDM_OK;
    int is_llama3 = strcmp(type, "llama3") == 0;
    if (!is_llama3 && strcmp(type, "linear") != 0)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "model: config.json: rotary scaling '%.32s' is not implemented", type);
    tdm_status_t st = get_f32(o, "factor", 1, &s->rope_factor, err);
    if (st != TDM_OK) return st;
    if (!is_llama3) {
        s->rope_kind = s->rope_factor == 1.0f ? TDM_ROPE_PLAIN : TDM_ROPE_LINEAR;
        return TDM_OK;
    }
    s->rope_kind = TDM_ROPE_LLAMA3;
    st = get_f32(o, "low_freq_factor", 1, &s->rope_low_freq_factor, err);
    if (st == TDM_OK) st = get_f32(o, "high_freq_factor", 1, &s->rope_high_freq_factor, err);
    if (st == TDM_OK)
        st = get_u32(o, "original_max_position_embeddings", 1, &s->rope_original_context, err);
    if (st != TDM_OK) return st;
    int is_sound = s->rope_low_freq_factor > 0 &&
                   s->rope_high_freq_factor > s->rope_low_freq_factor &&
                   s->rope_high_freq_factor < 1e6f && s->rope_original_context > 0;
    return is_sound ? TDM_OK : malformed(err, "rope_scaling");
}

/* read_rope: rope_parameters is the newer form, scaling and base in one. */
static tdm_status_t read_rope(const json_t *o, tdm_shape_t *s, tdm_error_t *err) {
    const json_t *newer = value(o, "rope_parameters"), *scaling = value(o, "rope_scaling");
    if (newer && scaling) return malformed(err, "rope_scaling beside rope_parameters");
    if (newer) scaling = newer;
    if (scaling && !json_is_object(scaling)) return malformed(err, "rope_scaling");
    s->rope_theta = 10000;
    s->rope_factor = 1;
    tdm_status_t st = get_f32(o, "rope_theta", 0, &s->rope_theta, err);
    if (st == TDM_OK && newer) st = get_f32(newer, "rope_theta", 0, &s->rope_theta, err);
    return st == TDM_OK && scaling ? read_scaling(scaling, s, err) : st;
}

static tdm_status_t read_shape(const json_t *o, tdm_shape_t *s, tdm_error_t *err) {
    tdm_status_t st = get_u32(o, "num_hidden_layers", 1, &s->layer_cnt, err);
    if (st == TDM_OK) st = get_u32(o, "hidden_size", 1, &s->hidden, err);
    if (st == TDM_OK) st = get_u32(o, "intermediate_size", 1, &s->ffn, err);
    if (st == TDM_OK) st = get_u32(o, "num_attention_heads", 1, &s->nhead_q, err);
    s->nhead_kv = s->nhead_q;
    if (st == TDM_OK) st = get_u32(o, "num_key_value_heads", 0, &s->nhead_kv, err);
    if (st == TDM_OK) st = get_u32(o, "vocab_size", 1, &s->vocab, err);
    if (st == TDM_OK) st = get_u32(o, "max_position_embeddings", 1, &s->context, err);
    if (st == TDM_OK) st = get_f32(o, "rms_norm_eps", 1, &s->rms_eps, err);
    if (st != TDM_OK) return st;
    if (s->nhead_q == 0) return malformed(err, "num_attention_heads");
    s->head_dim = s->hidden / s->nhead_q;
    st = get_u32(o, "head_dim", 0, &s->head_dim, err);
    if (st != TDM_OK) return st;
    s->context = TDM_MIN(s->context, (uint32_t)TDM_CONTEXT_MAX);
    const json_t *tied = value(o, "tie_word_embeddings");
    if (tied && !json_is_boolean(tied)) return malformed(err, "tie_word_embeddings");
    s->is_tied = json_is_true(tied);
    return read_rope(o, s, err);
}

/* read_eos takes one id or a list of them. */
static tdm_status_t read_eos(const json_t *o, tdm_checkpoint_t *c, tdm_error_t *err) {
    const json_t *v = value(o, "eos_token_id");
    size_t cnt = json_is_array(v) ? json_array_size(v) : v != NULL;
    for (size_t i = 0; i < cnt; i++) {
        const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
        json_int_t id = json_is_integer(one) ? json_integer_value(one) : -1;
        if (id < 0 || id >= c->shape.vocab) return malformed(err, "eos_token_id");
        uint32_t k = 0;
        while (k < c->eos_cnt && c->eos[k] != (int32_t)id) k++;
        if (k == c->eos_cnt && k < TDM_CHECKPOINT_EOS_MAX) c->eos[c->eos_cnt++] = (int32_t)id;
    }
    return TDM_OK;
}

static tdm_status_t read_config(const json_t *o, tdm_checkpoint_t *out, tdm_error_t *err) {
    memset(out, 0, sizeof *out);
    tdm_status_t st = refuse_variants(o, err);
    if (st == TDM_OK) st = read_shape(o, &out->shape, err);
    if (st == TDM_OK) st = tdm_shape_check(&out->shape, err);
    return st == TDM_OK ? read_eos(o, out, err) : st;
}

tdm_status_t tdm_checkpoint_parse(const char *text, uint64_t sz, tdm_checkpoint_t *out,
                                  tdm_error_t *err) {
    json_t *o = NULL;
    tdm_status_t st = load_object("config.json", text, sz, &o, err);
    if (st == TDM_OK) st = read_config(o, out, err);
    json_decref(o);
    return st;
}

tdm_status_t tdm_checkpoint_read(const char *folder, tdm_checkpoint_t *out, tdm_error_t *err) {
    json_t *config = NULL, *generation = NULL;
    tdm_status_t st =
        tdm_checkpoint_json(folder, "config.json", TDM_CHECKPOINT_JSON_MAX, &config, err);
    if (st == TDM_OK) st = read_config(config, out, err);
    json_decref(config);
    if (st != TDM_OK) return st;
    st = tdm_checkpoint_json(folder, "generation_config.json", TDM_CHECKPOINT_JSON_MAX, &generation,
                             err);
    if (st == TDM_ERR_NOT_FOUND) return TDM_OK;
    if (st == TDM_OK) st = read_eos(generation, out, err);
    json_decref(generation);
    return st;
}

/* --- tensors against the shape ------------------------------------------------ */

/* is_spare: a tensor that other readers derive or replace too: the rotary
   frequencies of older checkpoints, and the head of a tied one. */
static int is_spare(const tdm_safetensor_t *t, const tdm_shape_t *shape) {
    static const char tail[] = ".rotary_emb.inv_freq", head[] = "lm_head.weight";
    uint32_t tail_sz = sizeof tail - 1;
    if (t->name_sz > tail_sz && memcmp(t->name + t->name_sz - tail_sz, tail, tail_sz) == 0)
        return 1;
    return shape->is_tied && t->name_sz == sizeof head - 1 &&
           memcmp(t->name, head, t->name_sz) == 0;
}

static int is_shaped(const tdm_safetensor_t *t, const tdm_item_t *item) {
    if (item->kind == TDM_ITEM_NORM) return t->dim_cnt == 1 && t->dim[0] == item->cols;
    return t->dim_cnt == 2 && t->dim[0] == item->rows && t->dim[1] == item->cols;
}

/* has_cnt: is t a tensor of one number, or of cnt in a row or a column? */
static int has_cnt(const tdm_safetensor_t *t, uint64_t cnt) {
    uint64_t all = 1;
    for (uint32_t i = 0; i < t->dim_cnt; i++) all *= t->dim[i];
    int is_row = t->dim_cnt <= 1 || (t->dim_cnt == 2 && (t->dim[0] == 1 || t->dim[1] == 1));
    return t->dtype != TDM_SAFETENSORS_F8 && is_row && (all == 1 || all == cnt);
}

/* check_scale holds an fp8 tensor to its scales; *cnt counts those in use. */
static tdm_status_t check_scale(const tdm_safetensors_t *s, const tdm_safetensor_t *t,
                                const tdm_item_t *item, uint32_t *cnt, tdm_error_t *err) {
    if (t->dtype != TDM_SAFETENSORS_F8) return TDM_OK;
    if (item->matrix == TDM_MATRIX_CNT)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "model: tensor %s is F8_E4M3, which only a layer's matrices may be",
                             item->hf_name);
    const tdm_safetensor_t *scale = tdm_item_scale(s, item);
    if (!scale || !has_cnt(scale, item->rows))
        return tdm_error_set(err, TDM_ERR_CORRUPT,
                             "model: tensor %s_scale is missing, or not one number or one a row",
                             item->hf_name);
    ++*cnt;
    return TDM_OK;
}

static tdm_status_t check_kv_scales(const tdm_safetensors_t *s, const tdm_shape_t *shape,
                                    uint32_t *cnt, tdm_error_t *err) {
    for (uint32_t i = 0; i < 2 * shape->layer_cnt; i++) {
        const tdm_safetensor_t *t = tdm_layer_kv_scale(s, i / 2, i % 2);
        if (t && !has_cnt(t, shape->nhead_kv))
            return tdm_error_set(err, TDM_ERR_CORRUPT,
                                 "model: tensor %.*s is not one number or one a KV head",
                                 (int)TDM_MIN(t->name_sz, 80u), t->name);
        *cnt += t != NULL;
    }
    return TDM_OK;
}

/* is_scale: one that the tensors above lead to. */
static int is_scale(const tdm_safetensors_t *s, const tdm_shape_t *shape,
                    const tdm_safetensor_t *t) {
    for (uint32_t i = 0; i < 2 * shape->layer_cnt; i++)
        if (tdm_layer_kv_scale(s, i / 2, i % 2) == t) return 1;
    for (uint32_t i = 0; i < tdm_item_cnt(shape); i++) {
        tdm_item_t item;
        tdm_item_get(shape, TDM_WEIGHT_BF16, i, &item);
        const tdm_safetensor_t *of = tdm_safetensors_find(s, item.hf_name);
        if (of && of->dtype == TDM_SAFETENSORS_F8 && tdm_item_scale(s, &item) == t) return 1;
    }
    return 0;
}

tdm_status_t tdm_checkpoint_match(const tdm_safetensors_t *s, const tdm_shape_t *shape,
                                  tdm_error_t *err) {
    uint32_t cnt = tdm_item_cnt(shape), scale_cnt = 0;
    tdm_item_t item;
    for (uint32_t i = 0; i < cnt; i++) {
        tdm_item_get(shape, TDM_WEIGHT_BF16, i, &item);
        const tdm_safetensor_t *t = tdm_safetensors_find(s, item.hf_name);
        if (!t)
            return tdm_error_set(err, TDM_ERR_CORRUPT, "model: tensor %s is missing", item.hf_name);
        if (!is_shaped(t, &item))
            return tdm_error_set(
                err, TDM_ERR_CORRUPT, "model: tensor %s has another shape than %llu x %llu",
                item.hf_name, (unsigned long long)item.rows, (unsigned long long)item.cols);
        tdm_status_t st = check_scale(s, t, &item, &scale_cnt, err);
        if (st != TDM_OK) return st;
    }
    tdm_status_t st = check_kv_scales(s, shape, &scale_cnt, err);
    if (st != TDM_OK) return st;
    uint32_t spare_cnt = 0;
    for (uint32_t i = 0; i < tdm_safetensors_cnt(s); i++)
        spare_cnt += (uint32_t)is_spare(tdm_safetensors_at(s, i), shape);
    if (tdm_safetensors_cnt(s) == cnt + scale_cnt + spare_cnt) return TDM_OK;
    for (uint32_t i = 0; i < tdm_safetensors_cnt(s); i++) {
        const tdm_safetensor_t *t = tdm_safetensors_at(s, i);
        int is_known = is_spare(t, shape) || is_scale(s, shape, t);
        for (uint32_t k = 0; !is_known && k < cnt; k++) {
            tdm_item_get(shape, TDM_WEIGHT_BF16, k, &item);
            is_known = strlen(item.hf_name) == t->name_sz &&
                       memcmp(item.hf_name, t->name, t->name_sz) == 0;
        }
        if (!is_known)
            return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                                 "model: tensor %.*s is not part of a Llama model here",
                                 (int)TDM_MIN(t->name_sz, 80u), t->name);
    }
    return TDM_OK;
}
