/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/tokenizer/stop.h"

#include <string.h>

void tdm_stop_init(tdm_stop_t *s) {
    s->cnt = 0;
    s->used = 0;
    s->is_matched = 0;
}

tdm_status_t tdm_stop_add(tdm_stop_t *s, const char *bytes, uint64_t sz) {
    if (sz == 0) return TDM_ERR_INVAL;
    if (s->cnt == TDM_STOP_STRING_MAX || sz > TDM_STOP_BYTES_MAX - s->used) return TDM_ERR_LIMIT;
    uint32_t at = s->used, k = s->cnt++;
    s->string[k].at = (uint16_t)at;
    s->string[k].len = (uint16_t)sz;
    s->string[k].got = 0;
    memcpy(s->text + at, bytes, sz);
    s->used += (uint32_t)sz;

    uint16_t *back = s->back + at; /* back[i]: longest border of bytes[0..i] */
    back[0] = 0;
    for (uint32_t i = 1; i < sz; i++) {
        uint16_t b = back[i - 1];
        while (b > 0 && bytes[i] != bytes[b]) b = back[b - 1];
        back[i] = (uint16_t)(b + (bytes[i] == bytes[b]));
    }
    return TDM_OK;
}

/* advance feeds one byte to string k and gives how much of it is matched. */
static uint32_t advance(tdm_stop_t *s, uint32_t k, char c) {
    const char *text = s->text + s->string[k].at;
    const uint16_t *back = s->back + s->string[k].at;
    uint16_t got = s->string[k].got;
    while (got > 0 && text[got] != c) got = back[got - 1];
    got = (uint16_t)(got + (text[got] == c));
    s->string[k].got = got;
    return got;
}

/* held gives the string of which the most is matched, and how much. */
static uint32_t held(const tdm_stop_t *s, const char **prefix) {
    uint32_t most = 0;
    for (uint32_t k = 0; k < s->cnt; k++) {
        if (s->string[k].got <= most) continue;
        most = s->string[k].got;
        *prefix = s->text + s->string[k].at;
    }
    return most;
}

int tdm_stop_push(tdm_stop_t *s, const char *bytes, uint32_t sz, char *out, uint32_t *out_sz) {
    *out_sz = 0;
    if (s->is_matched) return 1;
    /* What was held is a prefix of a stop string; the text is that prefix
       and then the new bytes.  All but what is held at the end goes out. */
    const char *prefix = NULL;
    uint32_t prefix_sz = held(s, &prefix);
    uint32_t keep = 0, used = sz;
    for (uint32_t i = 0; i < sz && !s->is_matched; i++) {
        for (uint32_t k = 0; k < s->cnt; k++) {
            uint32_t got = advance(s, k, bytes[i]);
            if (got < s->string[k].len) continue;
            s->is_matched = 1;
            keep = TDM_MAX(keep, got);
            used = i + 1;
        }
    }
    if (!s->is_matched) {
        const char *ignored;
        keep = held(s, &ignored);
    }
    uint32_t n = prefix_sz + used - keep;
    uint32_t from_prefix = TDM_MIN(n, prefix_sz);
    if (from_prefix) memcpy(out, prefix, from_prefix);
    if (n > from_prefix) memcpy(out + from_prefix, bytes, n - from_prefix);
    *out_sz = n;
    return s->is_matched;
}

uint32_t tdm_stop_flush(tdm_stop_t *s, char *out) {
    if (s->is_matched) return 0;
    const char *prefix = NULL;
    uint32_t sz = held(s, &prefix);
    if (sz) memcpy(out, prefix, sz);
    for (uint32_t k = 0; k < s->cnt; k++) s->string[k].got = 0;
    return sz;
}
