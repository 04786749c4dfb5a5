/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_API_WRITER_H
#define TDM_API_WRITER_H

/* tdm_writer appends text to a caller's buffer, JSON-escaped where asked.
   It never overruns: what does not fit is left out and is_cut is set.
   The hot path of a token is a few of these calls; nothing allocates and
   nothing consults a locale. */

#include "appliance/base/attr.h"

#include <string.h>

typedef struct tdm_writer {
    char *buf;
    uint32_t sz;  /* bytes written */
    uint32_t max; /* capacity */
    int is_cut;
} tdm_writer_t;

static inline void tdm_writer_init(tdm_writer_t *w, char *buf, uint32_t max) {
    *w = (tdm_writer_t){.buf = buf, .max = max};
}

/* tdm_write copies sz bytes as they are. */
static inline void tdm_write(tdm_writer_t *w, const char *bytes, uint32_t sz) {
    if (TDM_UNLIKELY(sz > w->max - w->sz)) {
        w->is_cut = 1;
        return;
    }
    memcpy(w->buf + w->sz, bytes, sz);
    w->sz += sz;
}

/* tdm_write_lit copies a string literal. */
#define tdm_write_lit(w, literal) tdm_write((w), (literal), (uint32_t)(sizeof(literal) - 1))

/* tdm_write_str copies a NUL-terminated string as it is. */
void tdm_write_str(tdm_writer_t *w, const char *s);

/* tdm_write_u64 and tdm_write_i64 write decimal digits. */
void tdm_write_u64(tdm_writer_t *w, uint64_t v);
void tdm_write_i64(tdm_writer_t *w, int64_t v);

/* tdm_write_escaped writes valid UTF-8 as the inside of a JSON string:
   quote, backslash and bytes under 0x20 become escapes, and so does
   U+007F; the rest passes. */
void tdm_write_escaped(tdm_writer_t *w, const char *text, uint32_t sz);

/* tdm_write_string writes a NUL-terminated string as a JSON string. */
void tdm_write_string(tdm_writer_t *w, const char *s);

#endif /* TDM_API_WRITER_H */
