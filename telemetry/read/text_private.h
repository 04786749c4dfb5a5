/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_TEXT_PRIVATE_H
#define TDM_TELEMETRY_TEXT_PRIVATE_H

/* tdm_text appends to a caller's buffer and never past it; it goes on
   counting where the buffer ended, so that the caller learns the size it
   would have needed.  Numbers are exact decimals made from integers. */

#include "appliance/base/status.h"

typedef struct tdm_text {
    char *buf;
    size_t cap;
    size_t sz; /* bytes wanted so far; text is whole where sz <= cap */
} tdm_text_t;

/* tdm_text_bytes appends sz bytes, tdm_text_str up to the NUL, tdm_text_u64
   in decimal. */
void tdm_text_bytes(tdm_text_t *t, const char *s, size_t sz);
void tdm_text_str(tdm_text_t *t, const char *s);
void tdm_text_u64(tdm_text_t *t, uint64_t v);

/* tdm_text_fixed writes v / 10^digits exactly, trailing zeros trimmed;
   with is_float at least one digit follows the point ("1.0"). */
void tdm_text_fixed(tdm_text_t *t, uint64_t v, uint32_t digits, int is_float);

/* tdm_text_escaped writes s with backslash, newline and, where is_label,
   the double quote escaped as the exposition formats ask. */
void tdm_text_escaped(tdm_text_t *t, const char *s, int is_label);

/* tdm_text_json writes s as a quoted JSON string. */
void tdm_text_json(tdm_text_t *t, const char *s);

#endif /* TDM_TELEMETRY_TEXT_PRIVATE_H */
