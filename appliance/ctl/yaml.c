/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/yaml.h"

#include <stdint.h>
#include <stdlib.h>

static void put_scalar(const json_t *v, FILE *f) {
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));
    (void)fprintf(f, "%s\n", text ? text : "null");
    free(text);
}

static int is_flat(const json_t *v) {
    return (!json_is_object(v) || json_object_size(v) == 0) &&
           (!json_is_array(v) || json_array_size(v) == 0);
}

static void put(const json_t *v, int depth, FILE *f);

/* put_below writes what follows "key:" or "-". */
static void put_below(const json_t *v, int depth, FILE *f) {
    if (is_flat(v)) {
        (void)fputc(' ', f);
        put_scalar(v, f);
        return;
    }
    (void)fputc('\n', f);
    put(v, depth, f);
}

static void put(const json_t *v, int depth, FILE *f) {
    const char *key;
    json_t *member;
    if (is_flat(v)) {
        put_scalar(v, f);
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, member) {
        json_t *name = json_string(key);
        char *quoted = json_dumps(name, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
        (void)fprintf(f, "%*s%s:", depth * 2, "", quoted ? quoted : "\"?\"");
        free(quoted);
        json_decref(name);
        put_below(member, depth + 1, f);
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        (void)fprintf(f, "%*s-", depth * 2, "");
        put_below(json_array_get(v, i), depth + 1, f);
    }
}

void tdm_yaml_print(const json_t *value, FILE *f) {
    (void)fprintf(f, "---\n");
    put(value, 0, f);
}
