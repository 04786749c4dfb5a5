/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer of a folder: tokenizer.json, and beside it what
   transformers keeps in tokenizer_config.json. */
#include "appliance/tokenizer/tokenizer_private.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX (UINT64_C(8) << 20) /* added tokens of a large vocabulary stand here once more */

/* read_file gives a file's text, NULL and OK where there is none; the
   caller frees. */
static tdm_status_t read_file(const char *folder, const char *name, char **out, uint64_t *sz,
                              tdm_error_t *err) {
    char path[4096];
    *out = NULL;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return tdm_error_set(err, TDM_ERR_LIMIT, "tokenizer: the path of %.80s is too long",
                             folder);
    FILE *f = fopen(path, "re");
    if (!f && errno == ENOENT) return TDM_OK;
    if (!f) return tdm_error_set(err, TDM_ERR_IO, "tokenizer %s: %s", path, strerror(errno));
    char *text = malloc(FILE_MAX + 1);
    *sz = text ? fread(text, 1, FILE_MAX + 1, f) : 0;
    int is_bad = ferror(f);
    (void)fclose(f);
    if (text && !is_bad && *sz <= FILE_MAX) {
        *out = text;
        return TDM_OK;
    }
    free(text);
    if (!text) return tdm_error_set(err, TDM_ERR_NOMEM, "tokenizer: no memory");
    if (is_bad) return tdm_error_set(err, TDM_ERR_IO, "tokenizer %s: cannot be read", path);
    return tdm_error_set(err, TDM_ERR_LIMIT, "tokenizer %s: over %llu bytes", path,
                         (unsigned long long)FILE_MAX);
}

static tdm_status_t malformed(tdm_error_t *err, const char *key) {
    return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer_config.json: %s is malformed", key);
}

/* read_token finds the id of a token that is named as a text or as an
   object with its content; *id stays where it is absent or null. */
static tdm_status_t read_token(const tdm_tokenizer_t *t, const json_t *root, const char *key,
                               int32_t *id, tdm_error_t *err) {
    const json_t *v = json_object_get(root, key);
    if (!v || json_is_null(v)) return TDM_OK;
    const char *text = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
    if (!text) return malformed(err, key);
    int32_t found = tdm_tokenizer_find_special(t, text);
    if (found < 0)
        return tdm_error_set(err, TDM_ERR_CORRUPT,
                             "tokenizer_config.json: %s '%.60s' is no special token", key, text);
    *id = found;
    return TDM_OK;
}

/* read_template takes a template's text, or the one named "default" of a
   list of them. */
static tdm_status_t read_template(tdm_tokenizer_t *t, const json_t *v, tdm_error_t *err) {
    static const char key[] = "chat_template";
    size_t i;
    const json_t *entry;
    if (json_is_string(v)) {
        t->chat = tdm_chat_detect(json_string_value(v), json_string_length(v));
        return TDM_OK;
    }
    if (!json_is_array(v)) return malformed(err, key);
    t->chat = TDM_CHAT_UNKNOWN; /* there are some, and none is the default */
    json_array_foreach(v, i, entry) {
        const char *name = json_string_value(json_object_get(entry, "name"));
        const json_t *source = json_object_get(entry, "template");
        if (!name || !json_is_string(source)) return malformed(err, key);
        if (strcmp(name, "default") != 0) continue;
        t->chat = tdm_chat_detect(json_string_value(source), json_string_length(source));
    }
    return TDM_OK;
}

static tdm_status_t apply(tdm_tokenizer_t *t, const json_t *root, tdm_error_t *err) {
    if (!json_is_object(root)) return malformed(err, "the file");
    int32_t bos = t->bos, eos = t->eos;
    tdm_status_t st = read_token(t, root, "bos_token", &bos, err);
    if (st == TDM_OK) st = read_token(t, root, "eos_token", &eos, err);
    if (st != TDM_OK) return st;
    /* What the post-processor adds to a text stays what it is. */
    if (!t->is_bos_added) t->bos = bos;
    if (!t->is_eos_added) t->eos = eos;
    const json_t *chat = json_object_get(root, "chat_template");
    return chat && !json_is_null(chat) ? read_template(t, chat, err) : TDM_OK;
}

static tdm_status_t read_config(tdm_tokenizer_t *t, const char *folder, tdm_error_t *err) {
    char *text;
    uint64_t sz;
    tdm_status_t st = read_file(folder, "tokenizer_config.json", &text, &sz, err);
    if (st != TDM_OK || !text) return st;
    json_error_t where;
    json_t *root = json_loadb(text, sz, JSON_REJECT_DUPLICATES, &where);
    free(text);
    if (!root)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer_config.json: line %d: %s", where.line,
                             where.text);
    st = apply(t, root, err);
    json_decref(root);
    return st;
}

/* read_jinja: newer checkpoints keep the template in a file of its own,
   which then counts. */
static tdm_status_t read_jinja(tdm_tokenizer_t *t, const char *folder, tdm_error_t *err) {
    char *text;
    uint64_t sz;
    tdm_status_t st = read_file(folder, "chat_template.jinja", &text, &sz, err);
    if (st == TDM_OK && text) t->chat = tdm_chat_detect(text, sz);
    free(text);
    return st;
}

tdm_status_t tdm_tokenizer_open_folder(const char *folder, uint32_t vocab, tdm_tokenizer_t **out,
                                       tdm_error_t *err) {
    char path[4096];
    *out = NULL;
    if (snprintf(path, sizeof path, "%s/tokenizer.json", folder) >= (int)sizeof path)
        return tdm_error_set(err, TDM_ERR_LIMIT, "tokenizer: the path of %.80s is too long",
                             folder);
    tdm_tokenizer_t *t;
    tdm_status_t st = tdm_tokenizer_open_json(path, vocab, &t, err);
    if (st == TDM_OK) st = read_config(t, folder, err);
    if (st == TDM_OK) st = read_jinja(t, folder, err);
    if (st != TDM_OK) {
        tdm_tokenizer_close(t);
        return st;
    }
    *out = t;
    return TDM_OK;
}
