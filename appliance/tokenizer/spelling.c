/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/tokenizer/tokenizer_private.h"
#include "appliance/tokenizer/utf8_private.h"

#include <string.h>

/* How vocabulary files spell the bytes of a token.

   Byte-level files write a byte as a printable character: the bytes
   '!'..'~', 0xa1..0xac and 0xae..0xff as the character of the same number,
   the other 68 bytes in ascending order as U+0100..U+0143 (GPT-2).
   Piece files write a space as U+2581. */

static int stands_for_itself(uint32_t c) {
    return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

/* byte_of gives the byte that a character stands for, -1 for none. */
static int byte_of(uint32_t c) {
    if (stands_for_itself(c)) return (int)c;
    if (c < 0x100 || c > 0x143) return -1;
    uint32_t k = c - 0x100;
    if (k < 33) return (int)k;               /* 0x00..0x20 */
    if (k < 33 + 34) return (int)(k + 0x5e); /* 0x7f..0xa0 */
    return 0xad;
}

/* byte_spelling turns byte-level characters into their bytes and gives their
   number; -1 where one stands for no byte. */
static int64_t byte_spelling(const char *text, uint64_t sz, char *out) {
    if (!tdm_utf8_is_valid((const uint8_t *)text, sz)) return -1;
    int64_t n = 0;
    for (uint64_t i = 0; i < sz;) {
        uint32_t len;
        int b = byte_of(tdm_utf8_decode((const uint8_t *)text + i, &len));
        if (b < 0) return -1;
        out[n++] = (char)b;
        i += len;
    }
    return n;
}

uint64_t tdm_spelling_spaces(const char *text, uint64_t sz, char *out) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < sz;) {
        if (sz - i >= 3 && memcmp(text + i, "\xe2\x96\x81", 3) == 0) {
            out[n++] = ' ';
            i += 3;
        } else {
            out[n++] = text[i++];
        }
    }
    return n;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int tdm_spelling_hex_byte(const char *text, uint64_t sz) {
    if (sz != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

tdm_status_t tdm_spelling_add(tdm_tokenizer_t *t, const char *text, uint64_t sz, uint32_t kind,
                              tdm_error_t *err) {
    char bytes[TDM_PIECE_MAX];
    uint32_t id = t->vocab.cnt;
    if (kind < TDM_TOKEN_NORMAL || kind > TDM_TOKEN_BYTE)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: token %u is of kind %u", id, kind);
    int is_spelt = kind == TDM_TOKEN_NORMAL || kind == TDM_TOKEN_BYTE;
    if (!is_spelt || sz > sizeof bytes) /* the vocabulary refuses the long ones */
        return tdm_vocab_add(&t->vocab, text, sz, (tdm_token_kind_t)kind, err);
    if (kind == TDM_TOKEN_BYTE) {
        int b = tdm_spelling_hex_byte(text, sz);
        if (b < 0) return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: token %u is no byte", id);
        bytes[0] = (char)b;
        return tdm_vocab_add(&t->vocab, bytes, 1, TDM_TOKEN_BYTE, err);
    }
    if (t->form == TDM_TOK_BYTE_LEVEL) {
        int64_t n = byte_spelling(text, sz, bytes);
        if (n < 0)
            return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: token %u is not byte-level", id);
        return tdm_vocab_add(&t->vocab, bytes, (uint64_t)n, TDM_TOKEN_NORMAL, err);
    }
    if (!tdm_utf8_is_valid((const uint8_t *)text, sz))
        return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: token %u is not UTF-8", id);
    uint64_t n = tdm_spelling_spaces(text, sz, bytes);
    return tdm_vocab_add(&t->vocab, bytes, n, TDM_TOKEN_NORMAL, err);
}

/* spell writes the bytes of one side of a merge; 0 where it has none. */
static uint64_t spell(const tdm_tokenizer_t *t, const char *text, uint64_t sz, char *out) {
    if (sz == 0 || sz > TDM_PIECE_MAX) return 0;
    if (t->form == TDM_TOK_PIECES) return tdm_spelling_spaces(text, sz, out);
    int64_t n = byte_spelling(text, sz, out);
    return n < 0 ? 0 : (uint64_t)n;
}

tdm_status_t tdm_merge_rule_add(tdm_tokenizer_t *t, uint32_t rank, const char *left,
                                uint64_t left_sz, const char *right, uint64_t right_sz,
                                tdm_error_t *err) {
    char bytes[2 * TDM_PIECE_MAX];
    uint64_t a = spell(t, left, left_sz, bytes);
    uint64_t b = a ? spell(t, right, right_sz, bytes + a) : 0;
    if (b == 0)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: merge %u is malformed", rank);
    int32_t left_id = tdm_vocab_find(&t->vocab, bytes, a);
    int32_t right_id = tdm_vocab_find(&t->vocab, bytes + a, b);
    int32_t id = tdm_vocab_find(&t->vocab, bytes, a + b);
    if (left_id < 0 || right_id < 0 || id < 0)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: merge %u names no token", rank);
    if (!tdm_pairs_add(&t->pairs, left_id, right_id, rank, id))
        return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: merge %u repeats an earlier one",
                             rank);
    return TDM_OK;
}
