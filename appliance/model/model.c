/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/model/model.h"

#include "appliance/model/checkpoint.h"
#include "appliance/model/dummy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DUMMY_PREFIX "dummy:"
#define EOS_MAX      (TDM_STOP_ID_MAX / 2)

struct tdm_model {
    char name[TDM_MODEL_NAME_MAX];
    char *folder; /* NULL: no checkpoint */
    tdm_gguf_t *gguf;
    tdm_safetensors_t *safetensors;
    tdm_shape_t shape;
    int has_weights;
    tdm_arena_t arena;
    tdm_weights_t weights;
    uint32_t eos_cnt;
    int32_t eos[EOS_MAX];
};

int tdm_model_is_dummy(const char *spec) {
    return strncmp(spec, DUMMY_PREFIX, sizeof DUMMY_PREFIX - 1) == 0;
}

static void name_from_path(tdm_model_t *m, const char *path) {
    size_t sz = strlen(path);
    while (sz > 1 && path[sz - 1] == '/') sz--; /* a folder may end so */
    size_t from = sz;
    while (from > 0 && path[from - 1] != '/') from--;
    (void)snprintf(m->name, sizeof m->name, "%.*s", (int)TDM_MIN(sz - from, sizeof m->name),
                   path + from);
    char *dot = strrchr(m->name, '.');
    if (dot && dot != m->name && strcmp(dot, ".gguf") == 0) *dot = 0;
    for (char *p = m->name; *p; p++)
        if (*p <= ' ' || *p > '~' || *p == '"' || *p == '\\') *p = '_';
}

static void add_eos(tdm_model_t *m, uint32_t id) {
    if (id >= m->shape.vocab || m->eos_cnt == EOS_MAX) return;
    for (uint32_t i = 0; i < m->eos_cnt; i++)
        if (m->eos[i] == (int32_t)id) return;
    m->eos[m->eos_cnt++] = (int32_t)id;
}

/* read_eos takes the ids that the file declares, then the control tokens
   that end a turn or a text by their well-known names: files made before
   eot_token_id existed declare only one of the two. */
static tdm_status_t read_eos(tdm_model_t *m, tdm_error_t *err) {
    static const char *const key[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                      "tokenizer.ggml.eom_token_id"};
    static const char *const text[] = {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>",
                                       "<|endoftext|>"};
    for (uint32_t i = 0; i < TDM_COUNT_OF(key); i++) {
        uint32_t id;
        if (!tdm_gguf_has(m->gguf, key[i])) continue;
        tdm_status_t st = tdm_gguf_u32(m->gguf, key[i], &id, err);
        if (st != TDM_OK) return st;
        if (id >= m->shape.vocab)
            return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: key %s: %u is outside the vocabulary",
                                 key[i], id);
        add_eos(m, id);
    }
    tdm_gguf_array_t tokens, types;
    if (tdm_gguf_array(m->gguf, "tokenizer.ggml.tokens", TDM_GGUF_STRING, &tokens, NULL) !=
            TDM_OK ||
        tdm_gguf_array(m->gguf, "tokenizer.ggml.token_type", TDM_GGUF_I32, &types, NULL) !=
            TDM_OK ||
        types.cnt != tokens.cnt)
        return TDM_OK; /* the tokenizer will say so, where one is wanted */
    uint64_t cursor = 0;
    tdm_gguf_string_t s;
    for (uint32_t id = 0; tdm_gguf_array_string(&tokens, &cursor, &s); id++) {
        if (s.sz < 2 || s.bytes[0] != '<' || tdm_gguf_array_u32(&types, id) != 3) continue;
        for (uint32_t k = 0; k < TDM_COUNT_OF(text); k++)
            if (tdm_gguf_equals(s, text[k])) add_eos(m, id);
    }
    return TDM_OK;
}

static tdm_status_t fill(tdm_model_t *m, const tdm_model_options_t *o, tdm_error_t *err) {
    uint64_t sz = tdm_weights_sz(&m->shape, o->dtype);
    if (m->safetensors) sz += tdm_weights_kv_scale_sz(&m->shape);
    tdm_status_t st = tdm_arena_open(&m->arena, o->arena_kind, sz, err);
    if (st != TDM_OK) return st;
    if (m->gguf)
        st = tdm_weights_load(m->gguf, &m->shape, o->dtype, &m->arena, o->progress, o->progress_ctx,
                              &m->weights, err);
    else if (m->safetensors)
        st = tdm_weights_load_checkpoint(m->safetensors, &m->shape, o->dtype, &m->arena,
                                         o->progress, o->progress_ctx, &m->weights, err);
    else
        st = tdm_dummy_fill(&m->shape, TDM_DUMMY_SEED, o->dtype, &m->arena, o->progress,
                            o->progress_ctx, &m->weights, err);
    if (st != TDM_OK) return st;
    tdm_arena_seal(&m->arena);
    m->has_weights = 1;
    return TDM_OK;
}

static int is_folder(const char *spec) {
    struct stat sb;
    return stat(spec, &sb) == 0 && S_ISDIR(sb.st_mode);
}

static tdm_status_t open_folder(tdm_model_t *m, const char *spec, tdm_error_t *err) {
    tdm_checkpoint_t c;
    m->folder = strdup(spec);
    if (!m->folder) return tdm_error_set(err, TDM_ERR_NOMEM, "model: no memory");
    tdm_status_t st = tdm_checkpoint_read(spec, &c, err);
    if (st == TDM_OK) st = tdm_safetensors_open(spec, &m->safetensors, err);
    if (st == TDM_OK) st = tdm_checkpoint_match(m->safetensors, &c.shape, err);
    if (st != TDM_OK) return st;
    m->shape = c.shape;
    for (uint32_t i = 0; i < c.eos_cnt; i++) add_eos(m, (uint32_t)c.eos[i]);
    return TDM_OK;
}

tdm_status_t tdm_model_open(const char *spec, const tdm_model_options_t *options, tdm_model_t **out,
                            tdm_error_t *err) {
    static const tdm_model_options_t plain;
    const tdm_model_options_t *o = options ? options : &plain;
    *out = NULL;
    tdm_model_t *m = calloc(1, sizeof *m);
    if (!m) return tdm_error_set(err, TDM_ERR_NOMEM, "model: no memory");
    m->arena.fd = -1;
    tdm_status_t st;
    if (tdm_model_is_dummy(spec)) {
        (void)snprintf(m->name, sizeof m->name, "%s", spec);
        st = tdm_dummy_shape(spec + sizeof DUMMY_PREFIX - 1, &m->shape, err);
        if (st == TDM_OK) add_eos(m, TDM_DUMMY_EOS);
        if (st == TDM_OK) add_eos(m, TDM_DUMMY_END);
    } else if (is_folder(spec)) {
        name_from_path(m, spec);
        st = open_folder(m, spec, err);
    } else {
        name_from_path(m, spec);
        st = tdm_gguf_open(spec, &m->gguf, err);
        if (st == TDM_OK) st = tdm_shape_from_gguf(m->gguf, &m->shape, err);
        if (st == TDM_OK) st = read_eos(m, err);
    }
    if (st == TDM_OK && !(o->flags & TDM_MODEL_SHAPE_ONLY)) st = fill(m, o, err);
    if (st != TDM_OK) {
        tdm_model_close(m);
        return st;
    }
    *out = m;
    return TDM_OK;
}

void tdm_model_close(tdm_model_t *m) {
    if (!m) return;
    tdm_arena_close(&m->arena);
    tdm_gguf_close(m->gguf);
    tdm_safetensors_close(m->safetensors);
    free(m->folder);
    free(m);
}

const char *tdm_model_name(const tdm_model_t *m) {
    return m->name;
}

const tdm_shape_t *tdm_model_shape(const tdm_model_t *m) {
    return &m->shape;
}

const tdm_weights_t *tdm_model_weights(const tdm_model_t *m) {
    return m->has_weights ? &m->weights : NULL;
}

const tdm_arena_t *tdm_model_arena(const tdm_model_t *m) {
    return m->has_weights ? &m->arena : NULL;
}

const tdm_gguf_t *tdm_model_gguf(const tdm_model_t *m) {
    return m->gguf;
}

const char *tdm_model_folder(const tdm_model_t *m) {
    return m->folder;
}

uint32_t tdm_model_eos(const tdm_model_t *m, const int32_t **ids) {
    *ids = m->eos;
    return m->eos_cnt;
}
