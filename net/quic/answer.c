/* SPDX-License-Identifier: Apache-2.0 */
#include "net/quic/quic_private.h"

#include "appliance/base/clock.h"

/* Resets per second, in all: a peer of a former life sends a few
   datagrams before one of them is answered. */
#define RESET_PER_S 200
/* What looks like the shortest packet that somebody would send: RFC 9000,
   10.3. */
#define RESET_SZ     43u
#define RESET_MIN_SZ (NGTCP2_MIN_STATELESS_RESET_RANDLEN + NGTCP2_STATELESS_RESET_TOKENLEN)

/* next_answer gives the slot to write; NULL where the queue is full. */
static answer_t *next_answer(answer_queue_t *q) {
    return q->cnt == ANSWER_MAX ? NULL : &q->answer[(q->head + q->cnt) % ANSWER_MAX];
}

/* commit queues what was written, unless it would amplify. */
static int commit(answer_queue_t *q, answer_t *a, const tdm_datagram_t *dg, ngtcp2_ssize sz) {
    if (sz <= 0 || sz > (ngtcp2_ssize)dg->payload_sz) return 0;
    a->remote = dg->remote;
    a->local = dg->local;
    a->sz = (uint32_t)sz;
    q->cnt++;
    return 1;
}

void answer_version(tdm_quic_t *q, const tdm_datagram_t *dg, const ngtcp2_version_cid *vc) {
    /* One version that exists and one that never will: RFC 9000, 6.3. */
    static const uint32_t version[] = {NGTCP2_PROTO_VER_V1, UINT32_C(0x3a4a5a6a)};
    answer_t *a = next_answer(&q->answers);
    if (a == NULL) return;
    ngtcp2_ssize sz = ngtcp2_pkt_write_version_negotiation(
        a->bytes, sizeof a->bytes, (uint8_t)tdm_rng_next(&q->rng), vc->scid, vc->scidlen, vc->dcid,
        vc->dcidlen, version, TDM_COUNT_OF(version));
    q->counters.version_answers += (uint64_t)commit(&q->answers, a, dg, sz);
}

void answer_retry(tdm_quic_t *q, const tdm_datagram_t *dg, const ngtcp2_pkt_hd *hd) {
    answer_t *a = next_answer(&q->answers);
    if (a == NULL) return;
    uint8_t token[NGTCP2_CRYPTO_MAX_RETRY_TOKENLEN];
    ngtcp2_cid scid = {.datalen = CID_SZ};
    cid_make(q, scid.data);
    uint32_t token_sz = retry_token_make(q, &dg->remote, &scid, hd, token);
    if (token_sz == 0) return;
    ngtcp2_ssize sz = ngtcp2_crypto_write_retry(a->bytes, sizeof a->bytes, hd->version, &hd->scid,
                                                &scid, &hd->dcid, token, token_sz);
    q->counters.retries += (uint64_t)commit(&q->answers, a, dg, sz);
}

void answer_bad_token(tdm_quic_t *q, const tdm_datagram_t *dg, const ngtcp2_pkt_hd *hd) {
    answer_t *a = next_answer(&q->answers);
    if (a == NULL) return;
    ngtcp2_ssize sz =
        ngtcp2_crypto_write_connection_close(a->bytes, sizeof a->bytes, hd->version, &hd->scid,
                                             &hd->dcid, NGTCP2_INVALID_TOKEN, NULL, 0);
    (void)commit(&q->answers, a, dg, sz);
}

void answer_reset(tdm_quic_t *q, const tdm_datagram_t *dg, const ngtcp2_version_cid *vc) {
    /* Shorter than its cause, so that two servers cannot go on for ever. */
    if (vc->dcidlen != CID_SZ || dg->payload_sz <= RESET_MIN_SZ) return;
    answer_t *a = next_answer(&q->answers);
    if (a == NULL) return;
    const int64_t step_ns = TDM_NS_PER_S / RESET_PER_S;
    if (!bucket_take(&q->reset_bucket, step_ns, TDM_NS_PER_S, q->now_ns)) return;
    uint8_t token[NGTCP2_STATELESS_RESET_TOKENLEN];
    uint8_t random[RESET_SZ];
    ngtcp2_cid cid = {.datalen = CID_SZ};
    memcpy(cid.data, vc->dcid, CID_SZ);
    if (ngtcp2_crypto_generate_stateless_reset_token(token, q->reset_secret, sizeof q->reset_secret,
                                                     &cid) != 0 ||
        gnutls_rnd(GNUTLS_RND_NONCE, random, sizeof random) != 0) {
        return;
    }
    uint32_t sz = TDM_MIN(RESET_SZ, dg->payload_sz - 1u);
    ngtcp2_ssize n = ngtcp2_pkt_write_stateless_reset(a->bytes, sz, token, random,
                                                      sz - NGTCP2_STATELESS_RESET_TOKENLEN);
    q->counters.resets += (uint64_t)commit(&q->answers, a, dg, n);
}

uint32_t answer_take(answer_queue_t *q, uint8_t *buf, uint32_t buf_sz, tdm_datagram_t *dg) {
    if (q->cnt == 0) return 0;
    answer_t *a = &q->answer[q->head];
    q->head = (q->head + 1u) % ANSWER_MAX;
    q->cnt--;
    if (a->sz > buf_sz) return 0;
    memcpy(buf, a->bytes, a->sz);
    *dg = (tdm_datagram_t){
        .remote = a->remote, .local = a->local, .payload = buf, .payload_sz = a->sz};
    return a->sz;
}
