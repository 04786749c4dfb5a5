/* SPDX-License-Identifier: Apache-2.0 */
#include "net/quic/quic_private.h"

#include "appliance/base/check.h"
#include "appliance/base/sip.h"

uint64_t hash_bytes(const hash_key_t *key, const uint8_t *bytes, uint64_t sz) {
    tdm_sip_t s = tdm_sip_begin(key->k);
    uint64_t i = 0;
    for (; i + 8u <= sz; i += 8u) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        tdm_sip_word(&s, word, 2);
    }
    uint64_t last = (sz & 255u) << 56;
    for (uint64_t j = i; j < sz; j++) last |= (uint64_t)bytes[j] << (8u * (j - i));
    return tdm_sip_end(&s, last, 2, 4);
}

uint32_t cid_table_capacity(uint32_t connection_max) {
    uint64_t want = (uint64_t)connection_max * CID_PER_CONN * 2u;
    uint64_t cap = 64;
    while (cap < want) cap *= 2u;
    return (uint32_t)cap;
}

static uint32_t home(const cid_table_t *t, const uint8_t *bytes, uint64_t sz) {
    return (uint32_t)hash_bytes(&t->key, bytes, sz) & t->mask;
}

/* seek gives the slot that holds the id, or the empty one where it would
   go.  Ends because the table is at most half full. */
static uint32_t seek(const cid_table_t *t, const uint8_t *bytes, uint64_t sz) {
    uint32_t i = home(t, bytes, sz);
    for (;; i = (i + 1u) & t->mask) {
        const cid_t *c = &t->slot[i].cid;
        if (c->sz == 0) return i;
        if (c->sz == sz && memcmp(c->bytes, bytes, sz) == 0) return i;
    }
}

uint32_t cid_table_find(const cid_table_t *t, const uint8_t *bytes, uint64_t sz) {
    if (sz == 0 || sz > NGTCP2_MAX_CIDLEN) return NONE_IDX;
    const cid_slot_t *s = &t->slot[seek(t, bytes, sz)];
    return s->cid.sz == 0 ? NONE_IDX : s->conn_idx;
}

int cid_table_add(cid_table_t *t, const cid_t *cid, uint32_t conn_idx) {
    TDM_CHECK(t->cnt <= t->mask / 2u);
    cid_slot_t *s = &t->slot[seek(t, cid->bytes, cid->sz)];
    if (s->cid.sz != 0) return 0;
    s->cid = *cid;
    s->conn_idx = conn_idx;
    t->cnt++;
    return 1;
}

void cid_table_remove(cid_table_t *t, const cid_t *cid) {
    uint32_t hole = seek(t, cid->bytes, cid->sz);
    if (t->slot[hole].cid.sz == 0) return;
    t->cnt--;
    /* Later entries of the run move back where their home allows it. */
    for (uint32_t i = (hole + 1u) & t->mask; t->slot[i].cid.sz != 0; i = (i + 1u) & t->mask) {
        uint32_t h = home(t, t->slot[i].cid.bytes, t->slot[i].cid.sz);
        if (((i - h) & t->mask) >= ((i - hole) & t->mask)) {
            t->slot[hole] = t->slot[i];
            hole = i;
        }
    }
    t->slot[hole].cid.sz = 0;
}
