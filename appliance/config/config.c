/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/config/config.h"

#include "appliance/base/print.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum key_type { KEY_U64, KEY_STR, KEY_ENUM } key_type_t;

typedef struct key_row {
    const char *name; /* section.key */
    key_type_t type;
    size_t offset;
    uint64_t def, min, max; /* STR: max is the buffer's bytes */
    const char *text;       /* STR: default; ENUM: values a|b|c */
    const char *help;
} key_row_t;

#define OFFSET(section, key) offsetof(tdm_config_t, section##_##key)
#define TDM_U64(section, key, def, min, max, help)                                                 \
    {#section "." #key, KEY_U64, OFFSET(section, key), def, min, max, NULL, help},
#define TDM_STR(section, key, def, bytes, help)                                                    \
    {#section "." #key, KEY_STR, OFFSET(section, key), 0, 0, bytes, def, help},
#define TDM_ENUM(section, key, def, values, help)                                                  \
    {#section "." #key, KEY_ENUM, OFFSET(section, key), def, 0, 0, values, help},
static const key_row_t key_row[] = {
#include "appliance/config/config.def"
};
#define KEY_CNT  (sizeof key_row / sizeof key_row[0])
#define FILE_MAX (1u << 20)

static uint64_t *u64_at(tdm_config_t *c, const key_row_t *k) {
    return (uint64_t *)(void *)((char *)c + k->offset);
}

static uint32_t *enum_at(tdm_config_t *c, const key_row_t *k) {
    return (uint32_t *)(void *)((char *)c + k->offset);
}

static char *str_at(tdm_config_t *c, const key_row_t *k) {
    return (char *)c + k->offset;
}

static const key_row_t *key_find(const char *section, size_t section_len, const char *key) {
    for (size_t i = 0; i < KEY_CNT; i++) {
        const char *n = key_row[i].name;
        if (strncmp(n, section, section_len) == 0 && n[section_len] == '.' &&
            strcmp(n + section_len + 1, key) == 0)
            return &key_row[i];
    }
    return NULL;
}

/* enum_index finds word among "a|b|c"; -1 where it is none of them. */
static int enum_index(const char *values, const char *word) {
    int idx = 0;
    size_t len = strlen(word);
    for (const char *p = values; *p; idx++) {
        size_t n = strcspn(p, "|");
        if (n == len && memcmp(p, word, n) == 0) return idx;
        p += n + (p[n] == '|');
    }
    return -1;
}

static void enum_word(const char *values, uint32_t idx, char *word, size_t word_sz) {
    const char *p = values;
    while (idx--) p += strcspn(p, "|") + 1;
    (void)snprintf(word, word_sz, "%.*s", (int)strcspn(p, "|"), p);
}

static tdm_status_t set_u64(tdm_config_t *c, const key_row_t *k, uint64_t v, tdm_error_t *err) {
    if (v < k->min || v > k->max)
        return tdm_error_set(err, TDM_ERR_INVAL, "%s: %llu is outside %llu..%llu", k->name,
                             (unsigned long long)v, (unsigned long long)k->min,
                             (unsigned long long)k->max);
    *u64_at(c, k) = v;
    return TDM_OK;
}

/* is_text: UTF-8, as the file is and all that tells a value must be. */
static int is_text(const char *s) {
    json_t *v = json_string(s);
    int is_good = v != NULL;
    json_decref(v);
    return is_good;
}

static tdm_status_t set_text(tdm_config_t *c, const key_row_t *k, const char *s, tdm_error_t *err) {
    if (k->type == KEY_ENUM) {
        int idx = enum_index(k->text, s);
        if (idx < 0)
            return tdm_error_set(err, TDM_ERR_INVAL, "%s: \"%s\" is none of %s", k->name, s,
                                 k->text);
        *enum_at(c, k) = (uint32_t)idx;
        return TDM_OK;
    }
    if (strlen(s) >= k->max)
        return tdm_error_set(err, TDM_ERR_LIMIT, "%s: longer than %llu bytes", k->name,
                             (unsigned long long)k->max - 1);
    if (!is_text(s)) return tdm_error_set(err, TDM_ERR_INVAL, "%s: takes UTF-8 text", k->name);
    memcpy(str_at(c, k), s, strlen(s) + 1);
    return TDM_OK;
}

void tdm_config_default(tdm_config_t *config) {
    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < KEY_CNT; i++) {
        const key_row_t *k = &key_row[i];
        switch (k->type) {
        case KEY_U64: *u64_at(config, k) = k->def; break;
        case KEY_STR: memcpy(str_at(config, k), k->text, strlen(k->text) + 1); break;
        case KEY_ENUM: *enum_at(config, k) = (uint32_t)k->def; break;
        }
    }
}

static tdm_status_t merge_value(tdm_config_t *c, const key_row_t *k, const json_t *v,
                                tdm_error_t *err) {
    if (k->type == KEY_U64) {
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return tdm_error_set(err, TDM_ERR_INVAL, "%s: takes a whole number", k->name);
        return set_u64(c, k, (uint64_t)json_integer_value(v), err);
    }
    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
        return tdm_error_set(err, TDM_ERR_INVAL, "%s: takes a string", k->name);
    return set_text(c, k, json_string_value(v), err);
}

static tdm_status_t merge_root(tdm_config_t *c, json_t *root, tdm_error_t *err) {
    if (!json_is_object(root))
        return tdm_error_set(err, TDM_ERR_INVAL, "the configuration is no JSON object");
    const char *section, *key;
    json_t *object, *value;
    json_object_foreach(root, section, object) {
        if (!json_is_object(object))
            return tdm_error_set(err, TDM_ERR_INVAL, "%s: takes an object of keys", section);
        json_object_foreach(object, key, value) {
            const key_row_t *k = key_find(section, strlen(section), key);
            if (!k)
                return tdm_error_set(err, TDM_ERR_NOT_FOUND, "%s.%s: no such key", section, key);
            tdm_status_t st = merge_value(c, k, value, err);
            if (st != TDM_OK) return st;
        }
    }
    return TDM_OK;
}

/* file_read reads at most FILE_MAX bytes; the caller frees. */
static tdm_status_t file_read(const char *path, char **out, size_t *out_sz, tdm_error_t *err) {
    FILE *f = fopen(path, "re");
    if (!f) return tdm_error_set(err, TDM_ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
    char *buf = malloc(FILE_MAX + 1);
    if (!buf) {
        (void)fclose(f);
        return tdm_error_set(err, TDM_ERR_NOMEM, "no memory to read %s", path);
    }
    *out_sz = fread(buf, 1, FILE_MAX + 1, f);
    int is_bad = ferror(f);
    (void)fclose(f);
    if (!is_bad && *out_sz <= FILE_MAX) {
        *out = buf;
        return TDM_OK;
    }
    free(buf);
    if (is_bad) return tdm_error_set(err, TDM_ERR_IO, "%s: cannot be read", path);
    return tdm_error_set(err, TDM_ERR_LIMIT, "%s: over 1 MiB", path);
}

tdm_status_t tdm_config_parse(tdm_config_t *config, const char *text, uint64_t sz, const char *name,
                              tdm_error_t *err) {
    json_error_t je;
    json_t *root = json_loadb(text, sz, JSON_REJECT_DUPLICATES, &je);
    if (!root) return tdm_error_set(err, TDM_ERR_INVAL, "%s line %d: %s", name, je.line, je.text);
    tdm_config_t next = *config;
    tdm_status_t st = merge_root(&next, root, err);
    json_decref(root);
    if (st == TDM_OK) *config = next;
    return st;
}

tdm_status_t tdm_config_load(tdm_config_t *config, const char *path, tdm_error_t *err) {
    char *text = NULL;
    size_t text_sz = 0;
    tdm_status_t st = file_read(path, &text, &text_sz, err);
    if (st != TDM_OK) return st;
    st = tdm_config_parse(config, text, text_sz, path, err);
    free(text);
    return st;
}

tdm_status_t tdm_config_set(tdm_config_t *config, const char *assignment, tdm_error_t *err) {
    const char *eq = strchr(assignment, '=');
    const char *dot = strchr(assignment, '.');
    char key[64];
    if (!eq || !dot || dot > eq || (size_t)(eq - dot) > sizeof key)
        return tdm_error_set(err, TDM_ERR_INVAL, "\"%s\" is not section.key=value", assignment);
    (void)snprintf(key, sizeof key, "%.*s", (int)(eq - dot - 1), dot + 1);
    const key_row_t *k = key_find(assignment, (size_t)(dot - assignment), key);
    if (!k)
        return tdm_error_set(err, TDM_ERR_NOT_FOUND, "%.*s: no such key", (int)(eq - assignment),
                             assignment);
    if (k->type != KEY_U64) return set_text(config, k, eq + 1, err);
    char *end;
    errno = 0;
    unsigned long long v = strtoull(eq + 1, &end, 10);
    if (errno || *end || !isdigit((unsigned char)eq[1]))
        return tdm_error_set(err, TDM_ERR_INVAL, "%s: takes a whole number", k->name);
    return set_u64(config, k, v, err);
}

static int is_pow2(uint64_t v) {
    return v != 0 && (v & (v - 1)) == 0;
}

tdm_status_t tdm_config_check(const tdm_config_t *c, tdm_error_t *err) {
    if (!is_pow2(c->door_reply_bytes))
        return tdm_error_set(err, TDM_ERR_INVAL, "door.reply_bytes: takes a power of two");
    if (!is_pow2(c->sched_ring))
        return tdm_error_set(err, TDM_ERR_INVAL, "sched.ring: takes a power of two");
    if (!is_pow2(c->flight_iterations) || !is_pow2(c->flight_hops))
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "flight.iterations and flight.hops: take powers of two");
    if (c->http_address_connections > c->http_connections)
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "http.address_connections exceeds http.connections");
    if ((c->quic_certificate[0] == 0) != (c->quic_key[0] == 0))
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "quic.certificate and quic.key: give both or neither");
    if (c->model_path[0] == 0) return tdm_error_set(err, TDM_ERR_INVAL, "model.path is empty");
    return TDM_OK;
}

static void put_json_string(tdm_print_t *w, const char *s) {
    json_t *v = json_string(s);
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
    tdm_print(w, "%s", text ? text : "\"\"");
    free(text);
    json_decref(v);
}

size_t tdm_config_print(const tdm_config_t *config, char *buf, size_t buf_sz) {
    tdm_config_t c = *config;
    tdm_print_t w = {buf, buf_sz, 0};
    size_t section_len = 0;
    for (size_t i = 0; i < KEY_CNT; i++) {
        const key_row_t *k = &key_row[i];
        size_t len = strcspn(k->name, ".");
        int is_new =
            i == 0 || len != section_len || strncmp(k->name, key_row[i - 1].name, len) != 0;
        section_len = len;
        if (is_new) tdm_print(&w, "%s  \"%.*s\": {\n", i ? "\n  },\n" : "{\n", (int)len, k->name);
        tdm_print(&w, "%s    \"%s\": ", is_new ? "" : ",\n", k->name + len + 1);
        char word[32];
        switch (k->type) {
        case KEY_U64: tdm_print(&w, "%llu", (unsigned long long)*u64_at(&c, k)); break;
        case KEY_STR: put_json_string(&w, str_at(&c, k)); break;
        case KEY_ENUM:
            enum_word(k->text, *enum_at(&c, k), word, sizeof word);
            tdm_print(&w, "\"%s\"", word);
            break;
        }
    }
    tdm_print(&w, "\n  }\n}\n");
    return w.sz;
}

size_t tdm_config_help(char *buf, size_t buf_sz) {
    tdm_print_t w = {buf, buf_sz, 0};
    for (size_t i = 0; i < KEY_CNT; i++) {
        const key_row_t *k = &key_row[i];
        char word[32];
        switch (k->type) {
        case KEY_U64:
            tdm_print(&w, "%-30s %llu  [%llu..%llu]\n", k->name, (unsigned long long)k->def,
                      (unsigned long long)k->min, (unsigned long long)k->max);
            break;
        case KEY_STR: tdm_print(&w, "%-30s \"%s\"\n", k->name, k->text); break;
        case KEY_ENUM:
            enum_word(k->text, (uint32_t)k->def, word, sizeof word);
            tdm_print(&w, "%-30s %s  [%s]\n", k->name, word, k->text);
            break;
        }
        tdm_print(&w, "    %s%s\n", k->help, tdm_config_is_live(k->name) ? " (live)" : "");
    }
    return w.sz;
}

int tdm_config_is_live(const char *name) {
    static const char *const live[] = {"class0.",
                                       "class1.",
                                       "class2.",
                                       "class3.",
                                       "sched.route",
                                       "sched.policy",
                                       "sched.ttft_guard",
                                       "sched.tenant_tokens_per_s",
                                       "sched.waiting_tokens",
                                       "sched.prefill_tokens",
                                       "sched.patience",
                                       "sched.ttft_ms",
                                       "sched.gap_ms",
                                       "sched.watchdog_ms",
                                       "sched.evictions",
                                       "sched.drain_ms",
                                       "update.older",
                                       "log.level"};
    for (size_t i = 0; i < TDM_COUNT_OF(live); i++) {
        size_t len = strlen(live[i]);
        int is_section = live[i][len - 1] == '.';
        if (is_section ? strncmp(name, live[i], len) == 0 : strcmp(name, live[i]) == 0) return 1;
    }
    return 0;
}

static int is_equal(const tdm_config_t *a, const tdm_config_t *b, const key_row_t *k) {
    const void *x = (const char *)a + k->offset, *y = (const char *)b + k->offset;
    if (k->type == KEY_STR) return strcmp(x, y) == 0;
    return memcmp(x, y, k->type == KEY_U64 ? sizeof(uint64_t) : sizeof(uint32_t)) == 0;
}

const char *tdm_config_fixed(const tdm_config_t *a, const tdm_config_t *b) {
    for (size_t i = 0; i < KEY_CNT; i++)
        if (!tdm_config_is_live(key_row[i].name) && !is_equal(a, b, &key_row[i]))
            return key_row[i].name;
    return NULL;
}

/* value_text writes a key's value as the file would have it. */
static void value_text(const tdm_config_t *config, const key_row_t *k, char *buf, size_t cap) {
    const void *at = (const char *)config + k->offset;
    if (k->type == KEY_STR) {
        (void)snprintf(buf, cap, "%.*s", (int)cap - 1, (const char *)at);
    } else if (k->type == KEY_U64) {
        (void)snprintf(buf, cap, "%llu", (unsigned long long)*(const uint64_t *)at);
    } else {
        enum_word(k->text, *(const uint32_t *)at, buf, cap);
    }
}

_Static_assert(KEY_CNT <= TDM_CONFIG_KEY_MAX, "TDM_CONFIG_KEY_MAX holds every key");

size_t tdm_config_diff(const tdm_config_t *a, const tdm_config_t *b, tdm_config_change_t *out,
                       size_t cap) {
    size_t cnt = 0;
    for (size_t i = 0; i < KEY_CNT && cnt < cap; i++) {
        const key_row_t *k = &key_row[i];
        if (is_equal(a, b, k)) continue;
        out[cnt].key = k->name;
        value_text(a, k, out[cnt].from, sizeof out[cnt].from);
        value_text(b, k, out[cnt].to, sizeof out[cnt].to);
        cnt++;
    }
    return cnt;
}

int tdm_config_is_number(const char *name) {
    size_t len = strcspn(name, ".");
    const key_row_t *k = name[len] ? key_find(name, len, name + len + 1) : NULL;
    return k ? k->type == KEY_U64 : -1;
}
