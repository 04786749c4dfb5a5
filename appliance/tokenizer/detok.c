/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/tokenizer/detok.h"

#include "appliance/tokenizer/utf8_private.h"

#include <string.h>

static const char replacement[3] = {'\xef', '\xbf', '\xbd'}; /* U+FFFD */

void tdm_detok_init(tdm_detok_t *d, uint32_t flags) {
    memset(d, 0, sizeof *d);
    d->is_strip_due = (flags & TDM_DETOK_STRIP_FIRST) != 0;
}

uint32_t tdm_detok_push(tdm_detok_t *d, const tdm_tokenizer_t *t, int32_t id, char *out) {
    uint8_t bytes[4 + TDM_PIECE_MAX];
    uint32_t piece_sz;
    const char *piece = tdm_tokenizer_piece(t, id, &piece_sz);
    if (piece_sz == 0) return 0;
    if (d->is_strip_due) {
        d->is_strip_due = 0;
        if (piece[0] == ' ') {
            piece++;
            piece_sz--;
        }
    }
    memcpy(bytes, d->held, d->held_cnt);
    memcpy(bytes + d->held_cnt, piece, piece_sz);
    uint32_t sz = d->held_cnt + piece_sz, n = 0, at = 0;
    d->held_cnt = 0;
    while (at < sz) {
        int len = tdm_utf8_scan(bytes + at, sz - at);
        if (len > 0) {
            memcpy(out + n, bytes + at, (uint32_t)len);
            n += (uint32_t)len;
            at += (uint32_t)len;
        } else if (len < 0) {
            memcpy(out + n, replacement, sizeof replacement);
            n += (uint32_t)sizeof replacement;
            at += (uint32_t)-len;
        } else { /* at most three bytes, waiting for the rest */
            d->held_cnt = (uint8_t)(sz - at);
            memcpy(d->held, bytes + at, d->held_cnt);
            break;
        }
    }
    return n;
}

uint32_t tdm_detok_flush(tdm_detok_t *d, char *out) {
    if (d->held_cnt == 0) return 0;
    d->held_cnt = 0;
    memcpy(out, replacement, sizeof replacement);
    return (uint32_t)sizeof replacement;
}
