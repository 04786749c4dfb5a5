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

int backlog_add(backlog_t *b, const tdm_datagram_t *dg, const cid_t *dcid, const cid_t *odcid) {
    if (b->cnt == BACKLOG_MAX) return 0;
    waiting_t *w = &b->waiting[(b->head + b->cnt) % BACKLOG_MAX];
    w->remote = dg->remote;
    w->local = dg->local;
    w->dcid = *dcid;
    w->odcid = *odcid;
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
