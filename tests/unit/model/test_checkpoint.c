/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a checkpoint of Hugging Face gives the bits that a GGUF file of
   the same model gives, and whatever in it would change the output and is
   not implemented is refused by name.
   Method: one small model written both ways (the GGUF file with its rotary
   rows side by side), in F32, F16 and BF16, whole and in shards; then the
   configuration with one thing changed. */
#include "appliance/abi/fp8.h"
#include "appliance/model/checkpoint.h"
#include "appliance/model/dequant.h"
#include "appliance/model/model.h"
#include "appliance/tokenizer/tokenizer.h"
#include "tests/unit/model/folder.h"
#include "tests/unit/model/gguf_build.h"

#include <setjmp.h>
#include <stdarg.h>
/* cmocka wants the four above first */
#include <cmocka.h>

enum { LAYERS = 2, HIDDEN = 12, NQ = 4, NKV = 2, HD = 4, FFN = 6, VOCAB = 5 };

typedef struct tensor {
    char hf[64], gguf[64];
    uint32_t rows, cols; /* rows 0: one row */
    int is_rotary;
} tensor_t;

static uint32_t list(tensor_t *t, int is_untied) {
    static const struct {
        const char *hf, *gguf;
        uint32_t rows, cols;
        int is_rotary;
    } row[] = {
        {"input_layernorm", "attn_norm", 0, HIDDEN, 0},
        {"self_attn.q_proj", "attn_q", NQ * HD, HIDDEN, 1},
        {"self_attn.k_proj", "attn_k", NKV * HD, HIDDEN, 1},
        {"self_attn.v_proj", "attn_v", NKV * HD, HIDDEN, 0},
        {"self_attn.o_proj", "attn_output", HIDDEN, NQ * HD, 0},
        {"post_attention_layernorm", "ffn_norm", 0, HIDDEN, 0},
        {"mlp.gate_proj", "ffn_gate", FFN, HIDDEN, 0},
        {"mlp.up_proj", "ffn_up", FFN, HIDDEN, 0},
        {"mlp.down_proj", "ffn_down", HIDDEN, FFN, 0},
    };
    uint32_t n = 0;
    t[n++] = (tensor_t){"model.embed_tokens.weight", "token_embd.weight", VOCAB, HIDDEN, 0};
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t k = 0; k < TDM_COUNT_OF(row); k++, n++) {
            t[n] = (tensor_t){"", "", row[k].rows, row[k].cols, row[k].is_rotary};
            (void)snprintf(t[n].hf, sizeof t[n].hf, "model.layers.%u.%s.weight", l, row[k].hf);
            (void)snprintf(t[n].gguf, sizeof t[n].gguf, "blk.%u.%s.weight", l, row[k].gguf);
        }
    t[n++] = (tensor_t){"model.norm.weight", "output_norm.weight", 0, HIDDEN, 0};
    if (is_untied) t[n++] = (tensor_t){"lm_head.weight", "output.weight", VOCAB, HIDDEN, 0};
    return n;
}
#define TENSOR_MAX 32

/* half_of gives the binary16 of a whole number in [-125, 125]: exact. */
static uint16_t half_of(int v) {
    uint32_t n = (uint32_t)(v < 0 ? -v : v), exponent = 0;
    if (n == 0) return 0;
    while (n >> (exponent + 1)) exponent++;
    uint32_t mantissa = (n << (10 - exponent)) & 0x3ffu;
    return (uint16_t)((v < 0 ? 0x8000u : 0) | (exponent + 15) << 10 | mantissa);
}

/* raw writes weight i of tensor n in one of the three types: a small
   number that all of them hold exactly. */
static uint64_t raw(uint8_t *out, tdm_dtype_t dtype, uint32_t n, uint32_t i) {
    int whole = (int)((n * 37u + i * 3u) % 251u) - 125;
    float v = (float)whole;
    if (dtype == TDM_DTYPE_F32) {
        memcpy(out, &v, 4);
        return 4;
    }
    uint16_t half = dtype == TDM_DTYPE_BF16 ? tdm_bf16_from_f32(v) : half_of(whole);
    if (dtype == TDM_DTYPE_F16) assert_true(tdm_f32_from_f16(half) == v);
    memcpy(out, &half, 2);
    return 2;
}

/* contents gives the tensor row by row; for GGUF the rotary rows of a head
   are (0, hd/2, 1, hd/2 + 1, ...). */
static uint64_t contents(uint8_t *out, const tensor_t *t, uint32_t n, tdm_dtype_t dtype,
                         int is_gguf) {
    uint64_t at = 0;
    for (uint32_t r = 0; r < (t->rows ? t->rows : 1); r++) {
        uint32_t from = r, in_head = r % HD;
        if (is_gguf && t->is_rotary) from = r - in_head + in_head / 2 + (in_head % 2) * (HD / 2);
        for (uint32_t c = 0; c < t->cols; c++) at += raw(out + at, dtype, n, from * t->cols + c);
    }
    return at;
}

/* What a case changes. */
typedef struct change {
    tdm_dtype_t dtype;
    int is_untied, is_sharded;
    const char *skip, *extra;
} change_t;

static const char *const type_name[] = {
    [TDM_DTYPE_F32] = "F32", [TDM_DTYPE_F16] = "F16", [TDM_DTYPE_BF16] = "BF16"};

/* put_file writes tensors [from, to) as one safetensors file. */
static void put_file(const folder_t *f, const char *name, const tensor_t *t, uint32_t from,
                     uint32_t to, const change_t *c) {
    char header[8192] = "{\"__metadata__\":{\"format\":\"pt\"}";
    uint8_t data[32768], file[49152];
    uint64_t at = 0, sz = 0;
    for (uint32_t n = from; n < to; n++) {
        if (c->skip && strcmp(t[n].hf, c->skip) == 0) continue;
        sz = contents(data + at, &t[n], n, c->dtype, 0);
        char dims[32];
        (void)snprintf(dims, sizeof dims, t[n].rows ? "%u,%u" : "%u",
                       t[n].rows ? t[n].rows : HIDDEN, t[n].cols);
        size_t used = strlen(header);
        (void)snprintf(header + used, sizeof header - used,
                       ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
                       t[n].hf, type_name[c->dtype], dims, (unsigned long long)at,
                       (unsigned long long)(at + sz));
        at += sz;
    }
    if (c->extra && to > 2) {
        size_t used = strlen(header);
        (void)snprintf(header + used, sizeof header - used,
                       ",\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%llu,%llu]}",
                       c->extra, (unsigned long long)at, (unsigned long long)(at + 4));
        memset(data + at, 0, 4);
        at += 4;
    }
    strcat(header, "}");
    uint64_t header_sz = strlen(header);
    memcpy(file, &header_sz, 8);
    memcpy(file + 8, header, header_sz);
    memcpy(file + 8 + header_sz, data, at);
    folder_put(f, name, file, 8 + header_sz + at);
}

#define CONFIG(more)                                                                               \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":12,"       \
    "\"intermediate_size\":6,\"num_hidden_layers\":2,\"num_attention_heads\":4,"                   \
    "\"num_key_value_heads\":2,\"head_dim\":4,\"vocab_size\":5,\"max_position_embeddings\":64,"    \
    "\"rms_norm_eps\":1e-5,\"rope_theta\":500000.0,\"hidden_act\":\"silu\",\"torch_dtype\":"       \
    "\"bfloat16\",\"rope_scaling\":null,\"attention_bias\":false" more "}"

#define FP8_CONFIG(format, strategy, bits)                                                         \
    ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"" format       \
    "\",\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":" bits  \
    ",\"type\":\"float\",\"symmetric\":true,\"strategy\":\"" strategy                              \
    "\",\"dynamic\":false}}},\"ignore\":[\"lm_head\"],\"kv_cache_scheme\":null}"

static void put_checkpoint(const folder_t *f, const change_t *c) {
    tensor_t t[TENSOR_MAX];
    uint32_t n = list(t, c->is_untied);
    const char *config = c->is_untied
                             ? CONFIG(",\"tie_word_embeddings\":false,\"eos_token_id\":[4,2]")
                             : CONFIG(",\"tie_word_embeddings\":true,\"eos_token_id\":4");
    folder_put(f, "config.json", config, strlen(config));
    if (!c->is_sharded) {
        put_file(f, "model.safetensors", t, 0, n, c);
        return;
    }
    char index[8192] = "{\"weight_map\":{";
    for (uint32_t i = 0; i < n; i++) {
        size_t used = strlen(index);
        (void)snprintf(index + used, sizeof index - used, "%s\"%s\":\"x-%u.safetensors\"",
                       i ? "," : "", t[i].hf, i < 7 ? 1u : 2u);
    }
    strcat(index, "}}");
    folder_put(f, "model.safetensors.index.json", index, strlen(index));
    put_file(f, "x-1.safetensors", t, 0, 7, c);
    put_file(f, "x-2.safetensors", t, 7, n, c);
}

static void put_gguf(const folder_t *f, const change_t *c) {
    gguf_build_t b;
    tensor_t t[TENSOR_MAX];
    uint8_t data[4096];
    uint32_t cnt = list(t, c->is_untied);
    gguf_start(&b);
    gguf_key_string(&b, "general.architecture", "llama");
    gguf_key_u32(&b, "llama.block_count", LAYERS);
    gguf_key_u32(&b, "llama.embedding_length", HIDDEN);
    gguf_key_u32(&b, "llama.feed_forward_length", FFN);
    gguf_key_u32(&b, "llama.context_length", 64);
    gguf_key_u32(&b, "llama.attention.head_count", NQ);
    gguf_key_u32(&b, "llama.attention.head_count_kv", NKV);
    gguf_key_u32(&b, "llama.attention.key_length", HD);
    gguf_key_u32(&b, "llama.attention.value_length", HD);
    gguf_key_f32(&b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_key_f32(&b, "llama.rope.freq_base", 500000);
    for (uint32_t n = 0; n < cnt; n++) {
        uint64_t sz = contents(data, &t[n], n, c->dtype, 1);
        gguf_tensor(&b, t[n].gguf, c->dtype, t[n].cols, t[n].rows, data, sz);
    }
    gguf_finish(&b);
    folder_put(f, "model.gguf", b.bytes, b.sz);
    gguf_drop(&b);
}

static void both_files_give_the_same_bits(void **state) {
    (void)state;
    static const tdm_dtype_t type[] = {TDM_DTYPE_F32, TDM_DTYPE_F16, TDM_DTYPE_BF16};
    for (uint32_t k = 0; k < 12; k++) {
        change_t c = {.dtype = type[k % 3], .is_untied = k / 3 % 2 == 1, .is_sharded = k >= 6};
        folder_t f;
        char path[160];
        tdm_model_t *hf, *gguf;
        tdm_error_t err = {0};
        folder_make(&f);
        put_checkpoint(&f, &c);
        put_gguf(&f, &c);
        (void)snprintf(path, sizeof path, "%s/", f.path);
        if (tdm_model_open(path, NULL, &hf, &err) != TDM_OK) fail_msg("%s", err.text);
        (void)snprintf(path, sizeof path, "%s/model.gguf", f.path);
        if (tdm_model_open(path, NULL, &gguf, &err) != TDM_OK) fail_msg("%s", err.text);
        assert_memory_equal(tdm_model_shape(hf), tdm_model_shape(gguf), sizeof(tdm_shape_t));
        const tdm_arena_t *a = tdm_model_arena(hf), *b = tdm_model_arena(gguf);
        uint64_t sz = tdm_weights_sz(tdm_model_shape(hf), TDM_WEIGHT_BF16);
        assert_memory_equal(a->base, b->base, sz);
        const tdm_weights_t *w = tdm_model_weights(hf);
        assert_true((w->lm_head == w->embed) == !c.is_untied);
        assert_string_equal(tdm_model_name(hf), f.path + strlen("/tmp/"));
        assert_non_null(tdm_model_folder(hf));
        assert_null(tdm_model_folder(gguf));
        assert_null(tdm_model_gguf(hf));
        const int32_t *eos;
        assert_int_equal(tdm_model_eos(hf, &eos), c.is_untied ? 2 : 1);
        assert_int_equal(eos[0], 4);
        tdm_model_close(hf);
        tdm_model_close(gguf);
        folder_drop(&f);
    }
}

/* put_fp8 writes the model with its matrices F8_E4M3: one scale a row, bf16
   and a column, or where is_tensor one float32 for all; of layer 1 scales of
   the KV cache.  What a change names is left out or, of scales, made -1. */
static void put_fp8(const folder_t *f, int is_tensor, const char *skip, const char *minus) {
    static const char config[] =
        CONFIG(",\"tie_word_embeddings\":true" FP8_CONFIG("float-quantized", "channel", "8"));
    char header[16384] = "{\"__metadata__\":{\"format\":\"pt\"}";
    uint8_t data[32768], file[49152];
    tensor_t t[TENSOR_MAX];
    uint32_t cnt = list(t, 0);
    uint64_t at = 0;
    folder_put(f, "config.json", config, strlen(config));
    for (uint32_t n = 0; n < cnt + 2; n++) {
        char name[80], dims[32];
        int is_kv = n >= cnt, is_code = !is_kv && t[n].rows && n > 0;
        for (int is_scale = is_kv; is_scale <= (is_code || is_kv); is_scale++) {
            uint32_t many = is_kv ? NKV : is_tensor ? 1 : t[n].rows;
            (void)snprintf(name, sizeof name, "model.layers.1.self_attn.%c_scale",
                           n == cnt ? 'k' : 'v');
            if (!is_kv)
                (void)snprintf(name, sizeof name, "%.63s%s", t[n].hf, is_scale ? "_scale" : "");
            if (skip && strcmp(skip, name) == 0) continue;
            uint64_t begin = at;
            const char *type = "BF16";
            if (is_scale) {
                float sign = minus && strcmp(minus, name) == 0 ? -1.0f : 1.0f;
                type = is_tensor ? "F32" : "BF16";
                for (uint32_t i = 0; i < many; i++) {
                    float v = sign * (0.25f + (float)(i % 3)); /* exact in bf16 */
                    uint16_t half = tdm_bf16_from_f32(v);
                    memcpy(data + at, is_tensor ? (void *)&v : (void *)&half, is_tensor ? 4 : 2);
                    at += is_tensor ? 4 : 2;
                }
                (void)snprintf(dims, sizeof dims, is_tensor || is_kv ? "%u" : "%u,1", many);
            } else if (is_code) {
                type = "F8_E4M3";
                for (uint32_t i = 0; i < t[n].rows * t[n].cols; i++)
                    data[at++] = (uint8_t)((n * 29 + i * 7) % 127 | (i % 2 ? 0x80 : 0));
                (void)snprintf(dims, sizeof dims, "%u,%u", t[n].rows, t[n].cols);
            } else {
                at += contents(data + at, &t[n], n, TDM_DTYPE_BF16, 0);
                (void)snprintf(dims, sizeof dims, t[n].rows ? "%u,%u" : "%u",
                               t[n].rows ? t[n].rows : HIDDEN, t[n].cols);
            }
            size_t used = strlen(header);
            (void)snprintf(header + used, sizeof header - used,
                           ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
                           name, type, dims, (unsigned long long)begin, (unsigned long long)at);
        }
    }
    strcat(header, "}");
    uint64_t header_sz = strlen(header);
    memcpy(file, &header_sz, 8);
    memcpy(file + 8, header, header_sz);
    memcpy(file + 8 + header_sz, data, at);
    folder_put(f, "model.safetensors", file, 8 + header_sz + at);
}

static void an_fp8_checkpoint_keeps_its_codes(void **state) {
    (void)state;
    for (int is_tensor = 0; is_tensor < 2; is_tensor++) {
        folder_t f;
        tdm_model_t *m[2];
        tdm_error_t err = {0};
        folder_make(&f);
        put_fp8(&f, is_tensor, NULL, NULL);
        for (int i = 0; i < 2; i++) {
            tdm_model_options_t o = {.dtype = i ? TDM_WEIGHT_FP8 : TDM_WEIGHT_BF16};
            if (tdm_model_open(f.path, &o, &m[i], &err) != TDM_OK) fail_msg("%s", err.text);
        }
        const tdm_layer_weights_t *bf16 = &tdm_model_weights(m[0])->layer[1];
        const tdm_layer_weights_t *fp8 = &tdm_model_weights(m[1])->layer[1];
        const tdm_fp8_matrix_t *q = &fp8->fp8[TDM_MATRIX_Q], *down = &fp8->fp8[TDM_MATRIX_DOWN];
        uint32_t n = 1 + 9 + 1; /* q_proj of layer 1 */
        for (uint32_t i = 0; i < NQ * HD * HIDDEN; i++) {
            float scale = is_tensor ? 0.25f : 0.25f + (float)(i / HIDDEN % 3);
            assert_int_equal(q->code[i], (n * 29 + i * 7) % 127 | (i % 2 ? 0x80 : 0));
            assert_true(q->scale[i / HIDDEN] == scale);
            assert_true(tdm_f32_from_bf16(bf16->wq[i]) == tdm_f32_from_fp8(q->code[i]) * scale);
        }
        assert_true(down->scale[HIDDEN - 1] == (is_tensor ? 0.25f : 0.25f + (HIDDEN - 1) % 3));
        assert_true(fp8->k_scale[0] == 0.25f && fp8->v_scale[1] == 1.25f && bf16->k_scale);
        assert_null(tdm_model_weights(m[1])->layer[0].k_scale);
        tdm_model_close(m[0]);
        tdm_model_close(m[1]);
        folder_drop(&f);
    }
}

static void fp8_tensors_without_scales_are_refused(void **state) {
    (void)state;
    static const char scale[] = "model.layers.0.mlp.up_proj.weight_scale";
    static const char kv[] = "model.layers.1.self_attn.k_scale";
    static const struct {
        const char *skip, *minus, *word;
    } row[] = {{scale, NULL, scale}, {NULL, scale, scale}, {NULL, kv, kv}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
        folder_t f;
        tdm_model_t *m;
        tdm_error_t err = {0};
        folder_make(&f);
        put_fp8(&f, 0, row[i].skip, row[i].minus);
        assert_int_equal(tdm_model_open(f.path, NULL, &m, &err), TDM_ERR_CORRUPT);
        assert_non_null(strstr(err.text, row[i].word));
        folder_drop(&f);
    }
}

static void generation_config_adds_end_tokens(void **state) {
    (void)state;
    static const char more[] = "{\"eos_token_id\":[4,3,1]}", wrong[] = "{\"eos_token_id\":5}";
    change_t c = {.dtype = TDM_DTYPE_BF16};
    folder_t f;
    tdm_model_t *m;
    tdm_error_t err = {0};
    const int32_t *eos;
    folder_make(&f);
    put_checkpoint(&f, &c);
    folder_put(&f, "generation_config.json", more, sizeof more - 1);
    assert_int_equal(tdm_model_open(f.path, NULL, &m, &err), TDM_OK);
    assert_int_equal(tdm_model_eos(m, &eos), 3);
    assert_int_equal(eos[1], 3);
    tdm_model_close(m);
    folder_put(&f, "generation_config.json", wrong, sizeof wrong - 1);
    assert_int_equal(tdm_model_open(f.path, NULL, &m, &err), TDM_ERR_CORRUPT);
    folder_drop(&f);
}

/* open_changed says how a changed checkpoint is refused. */
static tdm_status_t open_changed(const change_t *c, tdm_error_t *err) {
    folder_t f;
    tdm_model_t *m;
    tdm_model_options_t o = {.flags = TDM_MODEL_SHAPE_ONLY};
    folder_make(&f);
    put_checkpoint(&f, c);
    tdm_status_t st = tdm_model_open(f.path, &o, &m, err);
    tdm_model_close(m);
    folder_drop(&f);
    return st;
}

static void tensors_and_shape_are_compared_both_ways(void **state) {
    (void)state;
    tdm_error_t err = {0};
    change_t c = {.dtype = TDM_DTYPE_F16, .skip = "model.layers.1.mlp.up_proj.weight"};
    assert_int_equal(open_changed(&c, &err), TDM_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "model.layers.1.mlp.up_proj.weight is missing"));
    c = (change_t){.dtype = TDM_DTYPE_F32, .extra = "model.layers.0.self_attn.q_proj.bias"};
    assert_int_equal(open_changed(&c, &err), TDM_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "q_proj.bias is not part"));
    c.extra = "model.layers.0.self_attn.rotary_emb.inv_freq"; /* older files hold it */
    assert_int_equal(open_changed(&c, &err), TDM_OK);
    c.extra = "lm_head.weight"; /* of a tied model: not looked at */
    assert_int_equal(open_changed(&c, &err), TDM_OK);
}

static void configurations_are_read_or_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *text;
        tdm_status_t want;
        const char *word;
    } row[] = {
        {CONFIG(""), TDM_OK, ""},
        {CONFIG(",\"sliding_window\":null,\"mlp_bias\":false,\"pretraining_tp\":1"), TDM_OK, ""},
        {CONFIG(",\"sliding_window\":4096"), TDM_ERR_UNSUPPORTED, "sliding_window"},
        {CONFIG(",\"mlp_bias\":true"), TDM_ERR_UNSUPPORTED, "mlp_bias"},
        {CONFIG(",\"quantization_config\":{\"bits\":4}"), TDM_ERR_UNSUPPORTED, "quant_method"},
        {CONFIG(FP8_CONFIG("float-quantized", "channel", "8")), TDM_OK, ""},
        {CONFIG(FP8_CONFIG("float-quantized", "tensor", "8")), TDM_OK, ""},
        {CONFIG(FP8_CONFIG("float-quantized", "block", "8")), TDM_ERR_UNSUPPORTED, "strategy"},
        {CONFIG(FP8_CONFIG("float-quantized", "channel", "4")), TDM_ERR_UNSUPPORTED, "weights"},
        {CONFIG(FP8_CONFIG("pack-quantized", "channel", "8")), TDM_ERR_UNSUPPORTED, "format"},
        {CONFIG(",\"quantization_config\":{\"quant_method\":\"fbgemm_fp8\"}"), TDM_ERR_UNSUPPORTED,
         "quant_method"},
        {CONFIG(",\"num_local_experts\":8"), TDM_ERR_UNSUPPORTED, "num_local_experts"},
        {CONFIG(",\"partial_rotary_factor\":0.5"), TDM_ERR_UNSUPPORTED, "partial_rotary_factor"},
        {CONFIG(",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2.0}"), TDM_OK, ""},
        {CONFIG(",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":2.0}"),
         TDM_ERR_UNSUPPORTED, "yarn"},
        {CONFIG(",\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
                "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                "\"original_max_position_embeddings\":8192}"),
         TDM_OK, ""},
        {CONFIG(",\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
                "\"low_freq_factor\":4.0,\"high_freq_factor\":4.0,"
                "\"original_max_position_embeddings\":8192}"),
         TDM_ERR_CORRUPT, "rope_scaling"},
        {CONFIG(",\"rope_parameters\":{\"factor\":8.0}"), TDM_ERR_CORRUPT, "rope_type"},
        {CONFIG(",\"rope_parameters\":3"), TDM_ERR_CORRUPT, "rope_scaling"},
        {CONFIG(",\"eos_token_id\":[]"), TDM_OK, ""},
        {CONFIG(",\"eos_token_id\":-1"), TDM_ERR_CORRUPT, "eos_token_id"},
        {CONFIG(",\"eos_token_id\":\"x\""), TDM_ERR_CORRUPT, "eos_token_id"},
        {CONFIG(",\"tie_word_embeddings\":1"), TDM_ERR_CORRUPT, "tie_word_embeddings"},
        {CONFIG(",\"head_dim\":4"), TDM_ERR_CORRUPT, "duplicate"},
        {"[]", TDM_ERR_CORRUPT, "no JSON object"},
        {"", TDM_ERR_CORRUPT, "line"},
        {"{}", TDM_ERR_CORRUPT, "model_type"},
        {"{\"model_type\":\"gpt2\"}", TDM_ERR_UNSUPPORTED, "'gpt2'"},
        {"{\"model_type\":\"llama\",\"hidden_act\":\"gelu\"}", TDM_ERR_UNSUPPORTED, "hidden_act"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":1.5}", TDM_ERR_CORRUPT,
         "num_hidden_layers"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":99999999999}", TDM_ERR_CORRUPT,
         "num_hidden_layers"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"hidden_size\":8,"
         "\"intermediate_size\":8,\"num_attention_heads\":0,\"vocab_size\":4,"
         "\"max_position_embeddings\":8,\"rms_norm_eps\":1e-5}",
         TDM_ERR_CORRUPT, "num_attention_heads"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":100000,\"hidden_size\":8,"
         "\"intermediate_size\":8,\"num_attention_heads\":2,\"vocab_size\":4,"
         "\"max_position_embeddings\":8,\"rms_norm_eps\":1e-5}",
         TDM_ERR_LIMIT, "layer count"},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
        tdm_checkpoint_t c;
        tdm_error_t err = {0};
        tdm_status_t st = tdm_checkpoint_parse(row[i].text, strlen(row[i].text), &c, &err);
        if (st != row[i].want || !strstr(err.text, row[i].word))
            fail_msg("%s: status %d, \"%s\"", row[i].text, (int)st, err.text);
    }
}

static void rotary_scaling_lands_in_the_shape(void **state) {
    (void)state;
    static const char text[] = CONFIG(
        ",\"rope_parameters\":{\"rope_theta\":1000.0,\"rope_type\":\"llama3\",\"factor\":8.0,"
        "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
        "\"original_max_position_embeddings\":8192}");
    tdm_checkpoint_t c;
    tdm_error_t err = {0};
    assert_int_equal(tdm_checkpoint_parse(text, sizeof text - 1, &c, &err), TDM_OK);
    assert_int_equal(c.shape.rope_kind, TDM_ROPE_LLAMA3);
    assert_true(c.shape.rope_theta == 1000.0f && c.shape.rope_factor == 8.0f);
    assert_int_equal(c.shape.rope_original_context, 8192);
    assert_int_equal(c.shape.head_dim, 4);
}

static void a_folder_brings_its_tokenizer(void **state) {
    (void)state;
    static const char json[] =
        "{\"added_tokens\":[],\"normalizer\":null,\"post_processor\":null,\"pre_tokenizer\":"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
        "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":"
        "{\"a\":0,\"b\":1,\"ab\":2,\"c\":3},\"merges\":[\"a b\"]}}";
    change_t c = {.dtype = TDM_DTYPE_BF16};
    folder_t f;
    tdm_model_t *m;
    tdm_tokenizer_t *t;
    tdm_encode_scratch_t *s;
    tdm_error_t err = {0};
    int32_t ids[8];
    uint32_t cnt = 0;
    folder_make(&f);
    put_checkpoint(&f, &c);
    assert_int_equal(tdm_model_open(f.path, NULL, &m, &err), TDM_OK);
    assert_int_equal(tdm_tokenizer_open(m, &t, &err), TDM_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "tokenizer.json"));
    folder_put(&f, "tokenizer.json", json, sizeof json - 1);
    if (tdm_tokenizer_open(m, &t, &err) != TDM_OK) fail_msg("%s", err.text);
    assert_int_equal(tdm_encode_scratch_create(t, 64, &s, &err), TDM_OK);
    assert_int_equal(tdm_tokenizer_encode(t, s, "abc", 3, 0, ids, 8, &cnt), TDM_ENCODE_OK);
    assert_int_equal(cnt, 2);
    assert_int_equal(ids[0], 2);
    assert_int_equal(ids[1], 3);
    tdm_encode_scratch_destroy(s);
    tdm_tokenizer_close(t);
    tdm_model_close(m);
    folder_drop(&f);
}

static void a_folder_without_config_is_not_found(void **state) {
    (void)state;
    folder_t f;
    tdm_model_t *m;
    tdm_error_t err = {0};
    folder_make(&f);
    assert_int_equal(tdm_model_open(f.path, NULL, &m, &err), TDM_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "config.json"));
    folder_drop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_files_give_the_same_bits),
        cmocka_unit_test(an_fp8_checkpoint_keeps_its_codes),
        cmocka_unit_test(fp8_tensors_without_scales_are_refused),
        cmocka_unit_test(generation_config_adds_end_tokens),
        cmocka_unit_test(tensors_and_shape_are_compared_both_ways),
        cmocka_unit_test(configurations_are_read_or_refused_by_name),
        cmocka_unit_test(rotary_scaling_lands_in_the_shape),
        cmocka_unit_test(a_folder_brings_its_tokenizer),
        cmocka_unit_test(a_folder_without_config_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
