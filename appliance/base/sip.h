/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_SIP_H
#define TDM_BASE_SIP_H

/* tdm_sip is SipHash (Aumasson and Bernstein, INDOCRYPT 2012), a keyed
   hash of 64 bits for tables whose entries strangers choose: without the
   key nobody can aim many at one bucket.  SipHash-1-3, one round per word
   and three at the end, is what Rust and Python use for that; the rounds
   are arguments so that the published vectors of SipHash-2-4 test the code.
   Input is whole words of 64 bits; a hit is compared in full by the caller,
   who must not trust 64 bits. */

#include "appliance/base/attr.h"

typedef struct tdm_sip {
    uint64_t v0, v1, v2, v3;
} tdm_sip_t;

static inline uint64_t tdm_sip_turn(uint64_t x, uint32_t bits) {
    return x << bits | x >> (64u - bits);
}

static inline void tdm_sip_rounds(tdm_sip_t *s, uint32_t cnt) {
    for (uint32_t i = 0; i < cnt; i++) {
        s->v0 += s->v1;
        s->v2 += s->v3;
        s->v1 = tdm_sip_turn(s->v1, 13) ^ s->v0;
        s->v3 = tdm_sip_turn(s->v3, 16) ^ s->v2;
        s->v0 = tdm_sip_turn(s->v0, 32);
        s->v2 += s->v1;
        s->v0 += s->v3;
        s->v1 = tdm_sip_turn(s->v1, 17) ^ s->v2;
        s->v3 = tdm_sip_turn(s->v3, 21) ^ s->v0;
        s->v2 = tdm_sip_turn(s->v2, 32);
    }
}

static inline tdm_sip_t tdm_sip_begin(const uint64_t key[2]) {
    return (tdm_sip_t){.v0 = key[0] ^ UINT64_C(0x736f6d6570736575),
                       .v1 = key[1] ^ UINT64_C(0x646f72616e646f6d),
                       .v2 = key[0] ^ UINT64_C(0x6c7967656e657261),
                       .v3 = key[1] ^ UINT64_C(0x7465646279746573)};
}

static inline void tdm_sip_word(tdm_sip_t *s, uint64_t word, uint32_t rounds) {
    s->v3 ^= word;
    tdm_sip_rounds(s, rounds);
    s->v0 ^= word;
}

/* tdm_sip_end takes the last word: the bytes left over, in its low seven,
   and the length of the message in bytes modulo 256 in its highest. */
static inline uint64_t tdm_sip_end(tdm_sip_t *s, uint64_t word, uint32_t rounds,
                                   uint32_t end_rounds) {
    tdm_sip_word(s, word, rounds);
    s->v2 ^= 0xff;
    tdm_sip_rounds(s, end_rounds);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

#endif /* TDM_BASE_SIP_H */
