/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/api/json.h"

#include "appliance/base/check.h"
#include "appliance/base/size.h"

#include <stdlib.h>

/* The region of the body this thread is reading, NULL outside one. */
static _Thread_local tdm_json_t *current;

static void *region_malloc(size_t sz) {
    return current ? tdm_json_take(current, sz) : malloc(sz);
}

static void region_free(void *p) {
    const uint8_t *b = p;
    if (current && b >= current->region && b < current->region + current->region_sz) return;
    free(p);
}

void tdm_json_install(void) {
    json_object_seed(0);
    json_set_alloc_funcs(region_malloc, region_free);
}

void *tdm_json_take(tdm_json_t *j, uint64_t sz) {
    if (sz > j->region_sz - j->used) {
        j->is_full = 1;
        return NULL;
    }
    uint8_t *p = j->region + j->used;
    j->used = TDM_MIN(tdm_size_align(j->used + sz, 16), j->region_sz);
    if (j->used > j->high) j->high = j->used;
    return p;
}

void tdm_json_begin(tdm_json_t *j) {
    TDM_CHECK(!current);
    j->used = 0;
    j->is_full = 0;
    current = j;
}

void tdm_json_end(tdm_json_t *j) {
    TDM_CHECK(current == j);
    current = NULL;
}

/* string_end gives the index after the closing quote of the string whose
   content starts at `at`, or sz. */
static uint64_t string_end(const uint8_t *body, uint64_t sz, uint64_t at) {
    while (at < sz && body[at] != '"') at += body[at] == '\\' ? 2 : 1;
    return at < sz ? at + 1 : sz;
}

tdm_reason_t tdm_json_scan(const uint8_t *body, uint64_t sz, const tdm_json_limits_t *limits) {
    uint32_t key_cnt[TDM_JSON_DEPTH_MAX + 1] = {0};
    uint32_t depth = 0, value_cnt = 0;
    for (uint64_t i = 0; i < sz;) {
        switch (body[i++]) {
        case '"': i = string_end(body, sz, i); break;
        case '{':
        case '[':
            if (++depth > limits->depth_max) return TDM_REFUSE_json_depth;
            key_cnt[depth] = 0;
            break;
        case '}':
        case ']':
            if (depth > 0) depth--;
            break;
        case ':':
            if (++key_cnt[depth] > limits->key_max) return TDM_REFUSE_bad_value;
            break;
        case ',':
            if (++value_cnt > limits->value_max) return TDM_REFUSE_bad_value;
            break;
        default: break;
        }
    }
    return TDM_REASON_NONE;
}

static tdm_reason_t reason_of(const tdm_json_t *j, const json_error_t *e) {
    if (j->is_full) return TDM_REFUSE_body_too_large;
    switch (json_error_code(e)) {
    case json_error_duplicate_key: return TDM_REFUSE_duplicate_key;
    case json_error_invalid_utf8: return TDM_REFUSE_bad_utf8;
    case json_error_stack_overflow: return TDM_REFUSE_json_depth;
    case json_error_numeric_overflow: return TDM_REFUSE_bad_value;
    case json_error_out_of_memory: return TDM_REFUSE_body_too_large;
    default: return TDM_REFUSE_bad_json;
    }
}

json_t *tdm_json_load(tdm_json_t *j, const uint8_t *body, uint64_t sz, tdm_json_error_t *err) {
    *err = (tdm_json_error_t){.reason = tdm_json_scan(body, sz, &j->limits)};
    if (err->reason) return NULL;
    json_error_t e = {0};
    json_t *root = json_loadb((const char *)body, sz, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    if (!root) {
        err->reason = reason_of(j, &e);
        if (err->reason != TDM_REFUSE_body_too_large && e.line > 0 && e.column >= 0) {
            err->line = (uint32_t)e.line;
            err->column = (uint32_t)e.column;
        }
        return NULL;
    }
    if (!json_is_object(root)) {
        err->reason = TDM_REFUSE_bad_type;
        return NULL;
    }
    return root;
}
