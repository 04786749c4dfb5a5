/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/api/writer.h"

void tdm_write_str(tdm_writer_t *w, const char *s) {
    tdm_write(w, s, (uint32_t)strlen(s));
}

void tdm_write_u64(tdm_writer_t *w, uint64_t v) {
    char digit[20];
    uint32_t at = sizeof digit;
    do {
        digit[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    tdm_write(w, digit + at, (uint32_t)sizeof digit - at);
}

void tdm_write_i64(tdm_writer_t *w, int64_t v) {
    if (v < 0) tdm_write_lit(w, "-");
    tdm_write_u64(w, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

static int is_plain(unsigned char c) {
    return c >= 0x20 && c != '"' && c != '\\' && c != 0x7f;
}

static void write_escape(tdm_writer_t *w, unsigned char c) {
    static const char hex[] = "0123456789abcdef";
    switch (c) {
    case '"': tdm_write_lit(w, "\\\""); return;
    case '\\': tdm_write_lit(w, "\\\\"); return;
    case '\n': tdm_write_lit(w, "\\n"); return;
    case '\r': tdm_write_lit(w, "\\r"); return;
    case '\t': tdm_write_lit(w, "\\t"); return;
    default: break;
    }
    char u[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    tdm_write(w, u, sizeof u);
}

void tdm_write_escaped(tdm_writer_t *w, const char *text, uint32_t sz) {
    uint32_t run = 0;
    for (uint32_t i = 0; i < sz; i++) {
        if (is_plain((unsigned char)text[i])) continue;
        tdm_write(w, text + run, i - run);
        write_escape(w, (unsigned char)text[i]);
        run = i + 1;
    }
    tdm_write(w, text + run, sz - run);
}

void tdm_write_string(tdm_writer_t *w, const char *s) {
    tdm_write_lit(w, "\"");
    tdm_write_escaped(w, s, (uint32_t)strlen(s));
    tdm_write_lit(w, "\"");
}
