/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/read/text_private.h"

#include <string.h>

void tdm_text_bytes(tdm_text_t *t, const char *s, size_t sz) {
    if (t->sz < t->cap) memcpy(t->buf + t->sz, s, TDM_MIN(sz, t->cap - t->sz));
    t->sz += sz;
}

void tdm_text_str(tdm_text_t *t, const char *s) {
    tdm_text_bytes(t, s, strlen(s));
}

/* digits_of fills at most 20 digits from the right of out and returns
   where they begin. */
static char *digits_of(char *end, uint64_t v, uint32_t width_min) {
    char *p = end;
    do {
        *--p = (char)('0' + v % 10);
        v /= 10;
    } while (v || (uint32_t)(end - p) < width_min);
    return p;
}

void tdm_text_u64(tdm_text_t *t, uint64_t v) {
    char tmp[24];
    char *end = tmp + sizeof tmp, *p = digits_of(end, v, 1);
    tdm_text_bytes(t, p, (size_t)(end - p));
}

void tdm_text_fixed(tdm_text_t *t, uint64_t v, uint32_t digits, int is_float) {
    char tmp[32];
    char *end = tmp + sizeof tmp, *p = digits_of(end, v, digits + 1);
    size_t whole = (size_t)(end - p) - digits;
    tdm_text_bytes(t, p, whole);
    while (digits && end[-1] == '0') {
        end--;
        digits--;
    }
    if (digits) {
        tdm_text_str(t, ".");
        tdm_text_bytes(t, end - digits, digits);
    } else if (is_float) {
        tdm_text_str(t, ".0");
    }
}

void tdm_text_escaped(tdm_text_t *t, const char *s, int is_label) {
    for (; *s; s++) {
        if (*s == '\\')
            tdm_text_str(t, "\\\\");
        else if (*s == '\n')
            tdm_text_str(t, "\\n");
        else if (*s == '"' && is_label)
            tdm_text_str(t, "\\\"");
        else
            tdm_text_bytes(t, s, 1);
    }
}

void tdm_text_json(tdm_text_t *t, const char *s) {
    static const char hex[] = "0123456789abcdef";
    tdm_text_str(t, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            char esc[2] = {'\\', (char)c};
            tdm_text_bytes(t, esc, 2);
        } else if (c < 0x20 || c == 0x7f) {
            char esc[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
            tdm_text_bytes(t, esc, 6);
        } else {
            tdm_text_bytes(t, s, 1);
        }
    }
    tdm_text_str(t, "\"");
}
