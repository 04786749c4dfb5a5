/* SPDX-License-Identifier: Apache-2.0 */
#include "net/quic/quic_private.h"

uint32_t backlog_count_dcid(const backlog_t *b, const cid_t *dcid) {
    uint32_t cnt = 0;
    for (uint32_t i = 0; i < b->cnt; i++) {
        const waiting_t *w = &b->waiting[(b->head + i) % BACKLOG_MAX];
        cnt += w->dcid.sz == dcid->sz && memcmp(w->dcid.bytes, dcid->bytes, dcid->sz) == 0;
    }
    return cnt;
}

int backlog_add(backlog_t *b, const tdm_datagram_t *dg, const cid_t *dcid) {
    if (b->cnt == BACKLOG_MAX) return 0;
    waiting_t *w = &b->waiting[(b->head + b->cnt) % BACKLOG_MAX];
    w->remote = dg->remote;
    w->local = dg->local;
    w->dcid = *dcid;
    w->ecn = dg->ecn;
    w->sz = dg->payload_sz;
    memcpy(w->bytes, dg->payload, dg->payload_sz);
    b->cnt++;
    return 1;
}

waiting_t *backlog_first(backlog_t *b) {
    return b->cnt == 0 ? NULL : &b->waiting[b->head];
}

void backlog_drop_first(backlog_t *b) {
    b->head = (b->head + 1u) % BACKLOG_MAX;
    b->cnt--;
}

int answer_version(backlog_t *b, const tdm_datagram_t *dg, const ngtcp2_version_cid *vc,
                   uint8_t random) {
    /* One version that exists and one that never will: RFC 9000, 6.3. */
    static const uint32_t version[] = {NGTCP2_PROTO_VER_V1, UINT32_C(0x3a4a5a6a)};
    if (b->answer_cnt == ANSWER_MAX) return 0;
    answer_t *a = &b->answer[(b->answer_head + b->answer_cnt) % ANSWER_MAX];
    ngtcp2_ssize sz = ngtcp2_pkt_write_version_negotiation(
        a->bytes, sizeof a->bytes, random, vc->scid, vc->scidlen, vc->dcid, vc->dcidlen, version,
        TDM_COUNT_OF(version));
    if (sz <= 0) return 0;
    a->remote = dg->remote;
    a->local = dg->local;
    a->sz = (uint32_t)sz;
    b->answer_cnt++;
    return 1;
}

uint32_t answer_take(backlog_t *b, uint8_t *buf, uint32_t buf_sz, tdm_datagram_t *dg) {
    if (b->answer_cnt == 0) return 0;
    answer_t *a = &b->answer[b->answer_head];
    b->answer_head = (b->answer_head + 1u) % ANSWER_MAX;
    b->answer_cnt--;
    if (a->sz > buf_sz) return 0;
    memcpy(buf, a->bytes, a->sz);
    *dg = (tdm_datagram_t){
        .remote = a->remote, .local = a->local, .payload = buf, .payload_sz = a->sz};
    return a->sz;
}
