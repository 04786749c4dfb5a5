/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TOKENIZER_UTF8_PRIVATE_H
#define TDM_TOKENIZER_UTF8_PRIVATE_H

/* UTF-8 as RFC 3629 and Unicode table 3-7 define it: no surrogates, no
   overlong forms, nothing above U+10FFFF. */

#include "appliance/base/attr.h"

/* tdm_utf8_need gives the length of the sequence that lead byte b begins,
   0 where none may; *lo and *hi bound its second byte. */
static inline uint32_t tdm_utf8_need(uint8_t b, uint8_t *lo, uint8_t *hi) {
    *lo = 0x80;
    *hi = 0xbf;
    if (b < 0x80) return 1;
    if (b < 0xc2) return 0;
    if (b < 0xe0) return 2;
    if (b < 0xf0) {
        if (b == 0xe0) *lo = 0xa0;
        if (b == 0xed) *hi = 0x9f;
        return 3;
    }
    if (b > 0xf4) return 0;
    if (b == 0xf0) *lo = 0x90;
    if (b == 0xf4) *hi = 0x8f;
    return 4;
}

/* tdm_utf8_scan looks at the sequence at p, sz >= 1 bytes: its length
   where it is whole; 0 where it is cut off by the end of the bytes; and
   minus the length of its maximal broken part otherwise. */
static inline int tdm_utf8_scan(const uint8_t *p, uint64_t sz) {
    uint8_t lo, hi;
    uint32_t need = tdm_utf8_need(p[0], &lo, &hi);
    if (need == 0) return -1;
    for (uint32_t i = 1; i < need; i++) {
        if (i == sz) return 0;
        if (p[i] < lo || p[i] > hi) return -(int)i;
        lo = 0x80;
        hi = 0xbf;
    }
    return (int)need;
}

static inline int tdm_utf8_is_valid(const uint8_t *p, uint64_t sz) {
    for (uint64_t i = 0; i < sz;) {
        int n = p[i] < 0x80 ? 1 : tdm_utf8_scan(p + i, sz - i);
        if (n <= 0) return 0;
        i += (uint64_t)n;
    }
    return 1;
}

/* tdm_utf8_decode gives the code point of a whole sequence. */
static inline uint32_t tdm_utf8_decode(const uint8_t *p, uint32_t *len) {
    if (p[0] < 0x80) {
        *len = 1;
        return p[0];
    }
    *len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    uint32_t c = p[0] & (0x7fu >> *len);
    for (uint32_t i = 1; i < *len; i++) c = (c << 6) | (p[i] & 0x3fu);
    return c;
}

#endif /* TDM_TOKENIZER_UTF8_PRIVATE_H */
