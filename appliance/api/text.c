/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/api/text.h"

#include "appliance/base/check.h"

#include <string.h>

void tdm_text_init(tdm_text_t *x, const tdm_tokenizer_t *tokenizer, int is_stop_visible) {
    x->tokenizer = tokenizer;
    x->is_stop_visible = is_stop_visible;
    tdm_detok_init(&x->detok, 0);
    tdm_stop_init(&x->stop);
}

void tdm_text_restart(tdm_text_t *x) {
    tdm_stop_t fresh;
    tdm_stop_init(&fresh);
    for (uint32_t i = 0; i < x->stop.cnt; i++)
        TDM_CHECK(tdm_stop_add(&fresh, x->stop.text + x->stop.string[i].at,
                               x->stop.string[i].len) == TDM_OK);
    x->stop = fresh;
    tdm_detok_init(&x->detok, 0);
}

/* What the stop matcher holds back is the longest prefix of a stop string
   matched so far. */
static uint32_t copy_held(const tdm_stop_t *s, char *to) {
    uint32_t longest = 0, sz = 0;
    for (uint32_t i = 0; i < s->cnt; i++) {
        if (s->string[i].got <= sz) continue;
        longest = i;
        sz = s->string[i].got;
    }
    memcpy(to, s->text + s->string[longest].at, sz);
    return sz;
}

/* stop_at gives the length of the stop string that hit, given the text
   from its first byte on: the shortest that fits, as it ended first. */
static uint32_t stop_at(const tdm_stop_t *s, const char *text, uint32_t sz) {
    uint32_t best = 0;
    for (uint32_t i = 0; i < s->cnt; i++) {
        uint32_t len = s->string[i].len;
        if (len > sz || (best && len >= best)) continue;
        if (memcmp(text, s->text + s->string[i].at, len) == 0) best = len;
    }
    return best;
}

/* push_visible is the stop matcher's push with the stop string itself kept
   at the end of a text that it ends. */
static uint32_t push_visible(tdm_stop_t *s, const char *bytes, uint32_t sz, char *piece,
                             int *is_hit) {
    char whole[TDM_STOP_BYTES_MAX + TDM_DETOK_OUT_MAX];
    uint32_t whole_sz = copy_held(s, whole);
    memcpy(whole + whole_sz, bytes, sz);
    whole_sz += sz;
    uint32_t out_sz = 0;
    *is_hit = tdm_stop_push(s, bytes, sz, piece, &out_sz);
    if (!*is_hit) return out_sz;
    uint32_t len = stop_at(s, whole + out_sz, whole_sz - out_sz);
    memcpy(piece + out_sz, whole + out_sz, len);
    return out_sz + len;
}

static uint32_t push_bytes(tdm_text_t *x, const char *bytes, uint32_t sz, char *piece,
                           int *is_hit) {
    if (x->stop.cnt > 0 && x->is_stop_visible)
        return push_visible(&x->stop, bytes, sz, piece, is_hit);
    uint32_t out_sz = 0;
    *is_hit = tdm_stop_push(&x->stop, bytes, sz, piece, &out_sz);
    return out_sz;
}

uint32_t tdm_text_push(tdm_text_t *x, int32_t id, char *piece, int *is_hit) {
    *is_hit = 0;
    if (x->stop.cnt == 0) return tdm_detok_push(&x->detok, x->tokenizer, id, piece);
    char bytes[TDM_DETOK_OUT_MAX];
    uint32_t sz = tdm_detok_push(&x->detok, x->tokenizer, id, bytes);
    return push_bytes(x, bytes, sz, piece, is_hit);
}

uint32_t tdm_text_finish(tdm_text_t *x, char *piece) {
    if (x->stop.is_matched) return 0;
    char bytes[8];
    uint32_t sz = tdm_detok_flush(&x->detok, bytes);
    int is_hit = 0;
    uint32_t out_sz = push_bytes(x, bytes, sz, piece, &is_hit);
    return is_hit ? out_sz : out_sz + tdm_stop_flush(&x->stop, piece + out_sz);
}
