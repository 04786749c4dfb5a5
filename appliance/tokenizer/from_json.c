/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/tokenizer/tokenizer_private.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tokenizer from a tokenizer.json.  The file describes a pipeline of
   named steps; the three pipelines that are implemented are recognised,
   any other step is refused by name:

     byte-level   [Digits | Split by a known pattern] ByteLevel; merges
     pieces       normalizer Prepend U+2581, Replace space; merges with
                  byte_fallback */

#define FILE_MAX (128u << 20)

static tdm_status_t refuse(tdm_error_t *err, const char *what, const char *name) {
    return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "tokenizer.json: %s '%.60s' is not implemented",
                         what, name);
}

static tdm_status_t malformed(tdm_error_t *err, const char *what) {
    return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer.json: %s is malformed", what);
}

/* text_of and type_of never give NULL, so that they can be compared. */
static const char *text_of(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static const char *type_of(const json_t *o) {
    return json_is_null(o) || !o ? "none" : text_of(o, "type");
}

static int is_true(const json_t *o, const char *key) {
    return json_is_true(json_object_get(o, key));
}

static tdm_status_t read_byte_level(const json_t *o, int is_regex_used, tdm_error_t *err) {
    if (strcmp(type_of(o), "ByteLevel") != 0) return refuse(err, "pre_tokenizer", type_of(o));
    if (is_true(o, "add_prefix_space")) return refuse(err, "ByteLevel option", "add_prefix_space");
    const json_t *use = json_object_get(o, "use_regex"); /* absent means true */
    if (json_is_false(use) == is_regex_used) return refuse(err, "ByteLevel option", "use_regex");
    return TDM_OK;
}

/* read_words recognises the pre-tokenizer of a byte-level pipeline. */
static tdm_status_t read_words(tdm_tokenizer_t *t, const json_t *pre, tdm_error_t *err) {
    const char *name = "gpt-2";
    tdm_status_t st;
    if (strcmp(type_of(pre), "Sequence") == 0) {
        const json_t *steps = json_object_get(pre, "pretokenizers");
        const json_t *first = json_array_get(steps, 0);
        if (json_array_size(steps) != 2) return refuse(err, "pre_tokenizer", "Sequence");
        if (strcmp(type_of(first), "Digits") == 0 && is_true(first, "individual_digits")) {
            name = "smollm";
            st = read_byte_level(json_array_get(steps, 1), 1, err);
        } else if (strcmp(type_of(first), "Split") == 0) {
            const char *pattern = text_of(json_object_get(first, "pattern"), "Regex");
            name = tdm_pretok_of_pattern(pattern);
            if (!name) return refuse(err, "Split pattern", pattern);
            if (strcmp(text_of(first, "behavior"), "Isolated") != 0 || is_true(first, "invert"))
                return refuse(err, "Split behavior", text_of(first, "behavior"));
            st = read_byte_level(json_array_get(steps, 1), 0, err);
        } else {
            return refuse(err, "pre_tokenizer", type_of(first));
        }
    } else {
        st = read_byte_level(pre, 1, err);
    }
    if (st != TDM_OK) return st;
    t->form = TDM_TOK_BYTE_LEVEL;
    (void)snprintf(t->name, sizeof t->name, "json/%s", name);
    return tdm_pretok_open(&t->pretok, name, strlen(name), err);
}

/* read_pieces recognises the normalizer of a piece pipeline. */
static tdm_status_t read_pieces(tdm_tokenizer_t *t, const json_t *normalizer, tdm_error_t *err) {
    const json_t *steps = json_object_get(normalizer, "normalizers");
    size_t i;
    const json_t *step;
    int is_replaced = 0;
    if (strcmp(type_of(normalizer), "Sequence") != 0)
        return refuse(err, "normalizer", type_of(normalizer));
    json_array_foreach(steps, i, step) {
        if (strcmp(type_of(step), "Prepend") == 0 &&
            strcmp(text_of(step, "prepend"), "\xe2\x96\x81") == 0)
            t->is_space_prefixed = 1;
        else if (strcmp(type_of(step), "Replace") == 0 &&
                 strcmp(text_of(json_object_get(step, "pattern"), "String"), " ") == 0 &&
                 strcmp(text_of(step, "content"), "\xe2\x96\x81") == 0)
            is_replaced = 1;
        else
            return refuse(err, "normalizer", type_of(step));
    }
    if (!is_replaced) return refuse(err, "normalizer", "Sequence without Replace");
    t->form = TDM_TOK_PIECES;
    (void)snprintf(t->name, sizeof t->name, "json/pieces");
    return TDM_OK;
}

static tdm_status_t read_decoder(const tdm_tokenizer_t *t, const json_t *decoder,
                                 tdm_error_t *err) {
    if (t->form == TDM_TOK_BYTE_LEVEL)
        return strcmp(type_of(decoder), "ByteLevel") == 0
                   ? TDM_OK
                   : refuse(err, "decoder", type_of(decoder));
    static const char *const known[] = {"Replace", "ByteFallback", "Fuse", "Strip"};
    size_t i;
    const json_t *step;
    if (strcmp(type_of(decoder), "Sequence") != 0) return refuse(err, "decoder", type_of(decoder));
    json_array_foreach(json_object_get(decoder, "decoders"), i, step) {
        uint32_t k = 0;
        while (k < TDM_COUNT_OF(known) && strcmp(type_of(step), known[k]) != 0) k++;
        if (k == TDM_COUNT_OF(known)) return refuse(err, "decoder", type_of(step));
    }
    return TDM_OK;
}

static tdm_status_t read_pipeline(tdm_tokenizer_t *t, const json_t *root, tdm_error_t *err) {
    const json_t *model = json_object_get(root, "model");
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    const json_t *normalizer = json_object_get(root, "normalizer");
    if (!json_is_object(model)) return malformed(err, "model");
    if (strcmp(type_of(model), "BPE") != 0) return refuse(err, "model", type_of(model));
    static const char *const off[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (uint32_t i = 0; i < TDM_COUNT_OF(off); i++)
        if (*text_of(model, off[i])) return refuse(err, "model option", off[i]);
    if (json_number_value(json_object_get(model, "dropout")) > 0)
        return refuse(err, "model option", "dropout");
    tdm_status_t st;
    if (!is_true(model, "byte_fallback")) {
        if (normalizer && !json_is_null(normalizer))
            return refuse(err, "normalizer", type_of(normalizer));
        st = read_words(t, pre, err);
    } else {
        if (pre && !json_is_null(pre)) return refuse(err, "pre_tokenizer", type_of(pre));
        st = read_pieces(t, normalizer, err);
    }
    t->is_whole_word_direct = is_true(model, "ignore_merges");
    return st == TDM_OK ? read_decoder(t, json_object_get(root, "decoder"), err) : st;
}

/* One id of the file while it is gathered. */
typedef struct entry {
    const char *text;
    uint32_t kind; /* tdm_token_kind_t; 0: no token */
} entry_t;

static tdm_status_t gather_vocab(const tdm_tokenizer_t *t, const json_t *vocab, entry_t *entry,
                                 tdm_error_t *err) {
    const char *text;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)vocab, text, value) {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= t->row_cnt)
            return tdm_error_set(err, TDM_ERR_CORRUPT,
                                 "tokenizer.json: the id of '%.60s' is outside the model's %u",
                                 text, t->row_cnt);
        if (entry[id].kind)
            return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer.json: id %lld appears twice",
                                 (long long)id);
        int is_byte = t->form == TDM_TOK_PIECES && tdm_spelling_hex_byte(text, strlen(text)) >= 0;
        entry[id] = (entry_t){text, is_byte ? TDM_TOKEN_BYTE : TDM_TOKEN_NORMAL};
    }
    return TDM_OK;
}

static tdm_status_t gather_added(const tdm_tokenizer_t *t, const json_t *added, entry_t *entry,
                                 tdm_error_t *err) {
    size_t i;
    const json_t *a;
    json_array_foreach(added, i, a) {
        const json_t *value = json_object_get(a, "id");
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        const char *text = text_of(a, "content");
        if (id < 0 || id >= t->row_cnt || !*text) return malformed(err, "added_tokens");
        static const char *const option[] = {"lstrip", "rstrip", "single_word"};
        for (uint32_t k = 0; k < TDM_COUNT_OF(option); k++)
            if (is_true(a, option[k])) return refuse(err, "added token option", option[k]);
        if (entry[id].kind && strcmp(entry[id].text, text) != 0)
            return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer.json: id %lld appears twice",
                                 (long long)id);
        entry[id] = (entry_t){text, is_true(a, "special") ? TDM_TOKEN_CONTROL : TDM_TOKEN_USER};
    }
    return TDM_OK;
}

static tdm_status_t read_tokens(tdm_tokenizer_t *t, const json_t *root, tdm_error_t *err) {
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    if (!json_is_object(vocab)) return malformed(err, "model.vocab");
    entry_t *entry = calloc((uint64_t)t->row_cnt + 1, sizeof *entry);
    if (!entry) return tdm_error_set(err, TDM_ERR_NOMEM, "tokenizer: no memory");
    tdm_status_t st = gather_vocab(t, vocab, entry, err);
    if (st == TDM_OK) st = gather_added(t, json_object_get(root, "added_tokens"), entry, err);
    uint32_t cnt = t->row_cnt;
    while (cnt > 0 && entry[cnt - 1].kind == 0) cnt--;
    if (st == TDM_OK) st = tdm_vocab_open(&t->vocab, cnt, 8 * (uint64_t)cnt, err);
    for (uint32_t id = 0; st == TDM_OK && id < cnt; id++) {
        const char *text = entry[id].kind ? entry[id].text : "";
        uint32_t kind = entry[id].kind ? entry[id].kind : TDM_TOKEN_UNUSED;
        st = tdm_spelling_add(t, text, strlen(text), kind, err);
    }
    free(entry);
    return st == TDM_OK ? tdm_vocab_seal(&t->vocab, err) : st;
}

/* read_merges takes both spellings of a merge: "a b" and ["a", "b"]. */
static tdm_status_t read_merges(tdm_tokenizer_t *t, const json_t *root, tdm_error_t *err) {
    const json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
    size_t rank, cnt = json_array_size(merges);
    const json_t *m;
    if (!json_is_array(merges)) return malformed(err, "model.merges");
    if (cnt > TDM_GGUF_ELEMENT_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT, "tokenizer.json: %zu merges, at most %u", cnt,
                             TDM_GGUF_ELEMENT_MAX);
    tdm_status_t st = tdm_pairs_open(&t->pairs, (uint32_t)cnt, err);
    json_array_foreach(merges, rank, m) {
        if (st != TDM_OK) break;
        const char *left = json_string_value(m), *right;
        size_t left_sz;
        if (left) {
            right = *left ? strchr(left + 1, ' ') : NULL;
            left_sz = right ? (size_t)(right - left) : 0;
            right = right ? right + 1 : "";
        } else {
            left = json_string_value(json_array_get(m, 0));
            right = json_string_value(json_array_get(m, 1));
            if (!left || !right || json_array_size(m) != 2) return malformed(err, "model.merges");
            left_sz = strlen(left);
        }
        st = tdm_merge_rule_add(t, (uint32_t)rank, left, left_sz, right, strlen(right), err);
    }
    return st;
}

/* read_template finds the begin and end tokens of a TemplateProcessing. */
static tdm_status_t read_template(tdm_tokenizer_t *t, const json_t *post, tdm_error_t *err) {
    const char *type = type_of(post);
    size_t i;
    const json_t *step;
    if (strcmp(type, "none") == 0 || strcmp(type, "ByteLevel") == 0) return TDM_OK;
    if (strcmp(type, "Sequence") == 0) {
        json_array_foreach(json_object_get(post, "processors"), i, step) {
            if (strcmp(type_of(step), "Sequence") == 0) return refuse(err, "processor", "Sequence");
            tdm_status_t st = read_template(t, step, err);
            if (st != TDM_OK) return st;
        }
        return TDM_OK;
    }
    if (strcmp(type, "TemplateProcessing") != 0) return refuse(err, "post_processor", type);
    int is_text_seen = 0;
    json_array_foreach(json_object_get(post, "single"), i, step) {
        const json_t *special = json_object_get(step, "SpecialToken");
        if (!special) {
            is_text_seen = 1;
            continue;
        }
        int32_t id = tdm_tokenizer_find_special(t, text_of(special, "id"));
        if (id < 0) return malformed(err, "post_processor");
        if (is_text_seen) {
            t->eos = id;
            t->is_eos_added = 1;
        } else {
            t->bos = id;
            t->is_bos_added = 1;
        }
    }
    return TDM_OK;
}

static tdm_status_t read_all(tdm_tokenizer_t *t, const json_t *root, tdm_error_t *err) {
    if (!json_is_object(root)) return malformed(err, "the file");
    tdm_status_t st = read_pipeline(t, root, err);
    if (st == TDM_OK) st = read_tokens(t, root, err);
    if (st == TDM_OK) st = read_merges(t, root, err);
    if (st == TDM_OK) st = read_template(t, json_object_get(root, "post_processor"), err);
    const char *unknown = text_of(json_object_get(root, "model"), "unk_token");
    if (st == TDM_OK && *unknown) t->unknown = tdm_tokenizer_find_special(t, unknown);
    return st == TDM_OK ? tdm_tokenizer_seal(t, err) : st;
}

static tdm_status_t load_file(const char *path, json_t **root, tdm_error_t *err) {
    FILE *f = fopen(path, "re");
    if (!f) return tdm_error_set(err, TDM_ERR_NOT_FOUND, "tokenizer %s: cannot be read", path);
    long sz = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    if (sz < 0 || sz > (long)FILE_MAX) {
        (void)fclose(f);
        return tdm_error_set(err, TDM_ERR_LIMIT, "tokenizer %s: over %u bytes", path, FILE_MAX);
    }
    rewind(f);
    json_error_t where;
    *root = json_loadf(f, JSON_REJECT_DUPLICATES, &where);
    (void)fclose(f);
    if (*root) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer %s: line %d: %s", path, where.line,
                         where.text);
}

static tdm_status_t check_vocab(uint32_t vocab, tdm_error_t *err) {
    if (vocab > 0 && vocab <= TDM_VOCAB_MAX) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_INVAL, "tokenizer: a vocabulary of %u", vocab);
}

/* from_root takes over the reference to root. */
static tdm_status_t from_root(json_t *root, uint32_t vocab, tdm_tokenizer_t **out,
                              tdm_error_t *err) {
    tdm_tokenizer_t *t = calloc(1, sizeof *t);
    if (!t) {
        json_decref(root);
        return tdm_error_set(err, TDM_ERR_NOMEM, "tokenizer: no memory");
    }
    t->row_cnt = vocab;
    t->bos = t->eos = t->unknown = -1;
    tdm_status_t st = read_all(t, root, err);
    json_decref(root);
    if (st != TDM_OK) {
        tdm_tokenizer_close(t);
        return st;
    }
    *out = t;
    return TDM_OK;
}

tdm_status_t tdm_tokenizer_open_json(const char *path, uint32_t vocab, tdm_tokenizer_t **out,
                                     tdm_error_t *err) {
    json_t *root = NULL;
    *out = NULL;
    tdm_status_t st = check_vocab(vocab, err);
    if (st == TDM_OK) st = load_file(path, &root, err);
    return st == TDM_OK ? from_root(root, vocab, out, err) : st;
}

tdm_status_t tdm_tokenizer_parse_json(const char *text, uint64_t sz, const char *name,
                                      uint32_t vocab, tdm_tokenizer_t **out, tdm_error_t *err) {
    *out = NULL;
    tdm_status_t st = check_vocab(vocab, err);
    if (st != TDM_OK) return st;
    json_error_t where;
    json_t *root = json_loadb(text, sz, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer %s: line %d: %s", name, where.line,
                             where.text);
    return from_root(root, vocab, out, err);
}
