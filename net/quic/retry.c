/* SPDX-License-Identifier: Apache-2.0 */
#include "net/quic/quic_private.h"

#include "appliance/base/clock.h"

#define WINDOW_NS (100 * TDM_NS_PER_MS)
/* Retry stays on so long after the last sign of load: an attack that
   pauses finds it on, a client pays one round trip at most. */
#define HOLD_NS (2 * TDM_NS_PER_S)
/* A client comes back within a few round trips. */
#define TOKEN_LIFE_NS (10 * TDM_NS_PER_S)

/* is_loaded: over a bound, or over half of it while Retry is on. */
static int is_loaded(const tdm_quic_t *q) {
    const retry_t *r = &q->retry;
    uint64_t part = r->is_on ? 2u : 1u;
    uint64_t half_open = (uint64_t)q->counters.half_open_cnt + q->backlog.cnt;
    uint64_t per_window = (q->cfg.retry_per_s + 9u) / 10u;
    if (q->cfg.retry_half_open > 0 && half_open * part >= q->cfg.retry_half_open) return 1;
    return q->cfg.retry_per_s > 0 && r->window_cnt * part > per_window;
}

void retry_note(tdm_quic_t *q, uint32_t new_cnt) {
    retry_t *r = &q->retry;
    if (q->now_ns >= r->window_ns) {
        r->window_ns = q->now_ns + WINDOW_NS;
        r->window_cnt = 0;
    }
    r->window_cnt += new_cnt;
    if (is_loaded(q)) {
        r->is_on = 1;
        r->calm_ns = q->now_ns + HOLD_NS;
    } else if (r->is_on && q->now_ns >= r->calm_ns) {
        r->is_on = 0;
    }
    if (q->cfg.is_retry_always) r->is_on = 1;
    q->counters.is_retry_on = r->is_on;
}

uint32_t retry_token_make(tdm_quic_t *q, const tdm_endpoint_t *remote, const ngtcp2_cid *scid,
                          const ngtcp2_pkt_hd *hd, uint8_t *token) {
    sock_addr_t store;
    ngtcp2_addr addr = addr_from_endpoint(&store, remote);
    ngtcp2_ssize sz = ngtcp2_crypto_generate_retry_token(
        token, q->retry.secret, sizeof q->retry.secret, hd->version, addr.addr, addr.addrlen, scid,
        &hd->dcid, (ngtcp2_tstamp)q->now_ns);
    return sz > 0 ? (uint32_t)sz : 0;
}

token_verdict_t retry_token_check(tdm_quic_t *q, const tdm_endpoint_t *remote,
                                  const ngtcp2_pkt_hd *hd, cid_t *odcid) {
    sock_addr_t store;
    ngtcp2_cid before;
    ngtcp2_addr addr = addr_from_endpoint(&store, remote);
    odcid->sz = 0;
    if (hd->token.len == 0 || hd->token.base[0] != NGTCP2_CRYPTO_TOKEN_MAGIC_RETRY) {
        return TOKEN_NONE;
    }
    if (ngtcp2_crypto_verify_retry_token(&before, hd->token.base, hd->token.len, q->retry.secret,
                                         sizeof q->retry.secret, hd->version, addr.addr,
                                         addr.addrlen, &hd->dcid, (ngtcp2_duration)TOKEN_LIFE_NS,
                                         (ngtcp2_tstamp)q->now_ns) != 0) {
        return TOKEN_BAD;
    }
    odcid->sz = (uint8_t)before.datalen;
    memcpy(odcid->bytes, before.data, before.datalen);
    return TOKEN_GOOD;
}
