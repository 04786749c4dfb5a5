/* SPDX-License-Identifier: Apache-2.0 */
#include "net/quic/quic_private.h"

#include "appliance/base/carve.h"
#include "appliance/base/check.h"
#include "appliance/base/clock.h"

/* Timers and backlog entries of one poll: the rest waits for the next. */
#define EXPIRE_PER_POLL  64u
#define BACKLOG_PER_POLL 4u
/* Slots that are looked at for one tombstone to end early. */
#define RECLAIM_VISIT 256u
/* Slots that are looked at for one that may make way, and how long it had no
   request then: longer than a client needs to send its first one. */
#define QUIET_VISIT 256u
#define QUIET_NS    (2 * TDM_NS_PER_S)
#define H3_NO_ERROR 0x100u
/* Connections one output call may visit in vain before it answers 0. */
#define VISIT_PER_OUTPUT 16u

/* --- the ready list --------------------------------------------------- */

void ready_add(tdm_quic_conn_t *c) {
    tdm_quic_t *q = c->q;
    if (c->is_ready) return;
    c->is_ready = 1;
    c->ready_next = NONE_IDX;
    c->ready_prev = q->ready_tail;
    if (q->ready_tail == NONE_IDX) {
        q->ready_head = c->idx;
    } else {
        q->conn[q->ready_tail].ready_next = c->idx;
    }
    q->ready_tail = c->idx;
}

void ready_remove(tdm_quic_conn_t *c) {
    tdm_quic_t *q = c->q;
    if (!c->is_ready) return;
    c->is_ready = 0;
    if (c->ready_prev == NONE_IDX) {
        q->ready_head = c->ready_next;
    } else {
        q->conn[c->ready_prev].ready_next = c->ready_next;
    }
    if (c->ready_next == NONE_IDX) {
        q->ready_tail = c->ready_prev;
    } else {
        q->conn[c->ready_next].ready_prev = c->ready_prev;
    }
}

tdm_reason_t drop(tdm_quic_t *q, tdm_reason_t reason) {
    q->counters.drop[reason]++;
    return reason;
}

/* --- life ------------------------------------------------------------- */

static int is_config_good(const tdm_quic_config_t *cfg) {
    return cfg->connection_max >= 1 && cfg->connection_max <= TDM_QUIC_CONNECTION_MAX &&
           cfg->stream_max >= 1 && cfg->stream_max <= TDM_QUIC_STREAM_MAX &&
           cfg->pool_sz >= 65536 && cfg->pool_sz <= (UINT64_C(1) << 34) &&
           cfg->connection_pool_sz >= 1 && cfg->handshake_per_s >= 1 &&
           cfg->handshake_per_s_source >= 1 && cfg->idle_timeout_ns >= TDM_NS_PER_MS &&
           (cfg->datagram_max == 0 || cfg->datagram_max >= TDM_QUIC_DATAGRAM_MIN);
}

static tdm_quic_t *lay_out(tdm_carve_t *l, const tdm_quic_config_t *cfg) {
    uint64_t n = cfg->connection_max;
    uint64_t cid_cap = cid_table_capacity(cfg->connection_max);
    tdm_quic_t *q = tdm_carve_take(l, 1, sizeof *q);
    void *conn = tdm_carve_take(l, n, sizeof(tdm_quic_conn_t));
    void *slot = tdm_carve_take(l, cid_cap, sizeof(cid_slot_t));
    void *free_idx = tdm_carve_take(l, n, sizeof(uint32_t));
    void *heap = tdm_carve_take(l, n, sizeof(uint32_t));
    void *pos = tdm_carve_take(l, n, sizeof(uint32_t));
    void *due = tdm_carve_take(l, n, sizeof(int64_t));
    void *pool = tdm_carve_take(l, 1, tdm_pool_footprint(cfg->pool_sz));
    if (q == NULL) return NULL;
    memset(l->base, 0, (size_t)((uint8_t *)pool - l->base));
    q->conn = conn;
    q->cids.slot = slot;
    q->cids.mask = (uint32_t)cid_cap - 1u;
    q->free_idx = free_idx;
    q->timers = (timer_heap_t){.heap = heap, .pos = pos, .due_ns = due};
    TDM_CHECK(tdm_pool_init(pool, tdm_pool_footprint(cfg->pool_sz), &q->pool) == TDM_OK);
    return q;
}

uint64_t tdm_quic_footprint(const tdm_quic_config_t *cfg) {
    if (!is_config_good(cfg)) return 0;
    tdm_carve_t l = {0};
    (void)lay_out(&l, cfg);
    return tdm_carve_sz(&l);
}

static void set_defaults(tdm_quic_config_t *cfg) {
    if (cfg->stream_window_sz == 0) cfg->stream_window_sz = 64u << 10;
    if (cfg->connection_window_sz == 0) cfg->connection_window_sz = 256u << 10;
    if (cfg->handshake_timeout_ns == 0) cfg->handshake_timeout_ns = 10 * TDM_NS_PER_S;
    if (cfg->datagram_max == 0) cfg->datagram_max = TDM_QUIC_DATAGRAM_MIN;
    if (cfg->half_open_max == 0) cfg->half_open_max = cfg->connection_max;
}

tdm_status_t tdm_quic_create(void *mem, const tdm_quic_config_t *cfg, tdm_quic_t **out,
                             tdm_error_t *err) {
    if (mem == NULL || (uintptr_t)mem % 64u != 0 || !is_config_good(cfg)) {
        return tdm_error_set(err, TDM_ERR_INVAL, "quic: a configured value is out of range");
    }
    tdm_carve_t l = {.base = mem};
    tdm_quic_t *q = lay_out(&l, cfg);
    q->cfg = *cfg;
    set_defaults(&q->cfg);
    q->rng.state = cfg->seed;
    q->ready_head = NONE_IDX;
    q->ready_tail = NONE_IDX;
    for (uint32_t i = 0; i < cfg->connection_max; i++) {
        q->timers.pos[i] = NONE_IDX;
        q->conn[i].idx = i;
        q->free_idx[q->free_cnt++] = cfg->connection_max - 1u - i;
    }
    if (gnutls_rnd(GNUTLS_RND_KEY, &q->hash, sizeof q->hash) != 0 ||
        gnutls_rnd(GNUTLS_RND_KEY, q->retry.secret, sizeof q->retry.secret) != 0) {
        return tdm_error_set(err, TDM_ERR_INTERNAL, "quic: the system gives no randomness");
    }
    q->cids.key = q->hash;
    q->rate.key = q->hash;
    rate_init(&q->rate, &q->cfg);
    tdm_status_t s = tls_open(&q->tls, cfg->cert_file, cfg->key_file, err);
    if (s == TDM_OK) s = tls_reset_secret(cfg->key_file, q->reset_secret, err);
    if (s != TDM_OK) {
        tls_close(&q->tls);
        return s;
    }
    *out = q;
    return TDM_OK;
}

void tdm_quic_destroy(tdm_quic_t *q) {
    if (q == NULL) return;
    for (uint32_t i = 0; i < q->cfg.connection_max; i++) {
        if (q->conn[i].state != CONN_FREE) conn_free(&q->conn[i]);
    }
    tls_close(&q->tls);
}

/* --- input ------------------------------------------------------------ */

static int is_initial(const tdm_datagram_t *dg) {
    return (dg->payload[0] & 0xb0u) == 0x80u; /* long header, type 0 */
}

/* quietest gives the connection that has had no request for longest, of those
   looked at now; NULL: each has one, or had a moment ago.  PINGs keep a
   connection from ending, and who sends nothing else would hold the table
   against everybody. */
static tdm_quic_conn_t *quietest(tdm_quic_t *q) {
    tdm_quic_conn_t *best = NULL;
    uint32_t visit = TDM_MIN(QUIET_VISIT, q->cfg.connection_max);
    for (uint32_t i = 0; i < visit; i++) {
        tdm_quic_conn_t *c = &q->conn[q->quiet_cursor];
        q->quiet_cursor = (q->quiet_cursor + 1u) % q->cfg.connection_max;
        if (c->state != CONN_OPEN || c->has_app_error || c->request_cnt > 0) continue;
        if (q->now_ns - c->quiet_ns < QUIET_NS) continue;
        if (best == NULL || c->quiet_ns < best->quiet_ns) best = c;
    }
    return best;
}

/* admit judges an Initial packet that may begin a connection; same_cnt:
   datagrams of the same one that wait already. */
static tdm_reason_t admit(tdm_quic_t *q, const tdm_datagram_t *dg, const ngtcp2_pkt_hd *hd,
                          uint32_t same_cnt, cid_t *odcid) {
    switch (retry_token_check(q, &dg->remote, hd, odcid)) {
    case TOKEN_GOOD: break;
    case TOKEN_BAD: answer_bad_token(q, dg, hd); return TDM_DROP_quic_token;
    case TOKEN_NONE:
        if (same_cnt > 0) return TDM_REASON_NONE;
        retry_note(q, 1);
        if (!q->retry.is_on) break;
        answer_retry(q, dg, hd);
        return TDM_DROP_quic_retry;
    }
    if (same_cnt > 0) return TDM_REASON_NONE;
    tdm_quic_conn_t *quiet = NULL;
    if (q->free_cnt == 0 && q->closing_cnt == 0) {
        if ((quiet = quietest(q)) == NULL) return TDM_DROP_quic_connection_limit;
        if (odcid->sz == 0) { /* nobody makes way for a forged address */
            answer_retry(q, dg, hd);
            return TDM_DROP_quic_retry;
        }
    }
    if (q->counters.half_open_cnt + q->backlog.cnt >= q->cfg.half_open_max) {
        return TDM_DROP_quic_half_open;
    }
    if (!rate_take(&q->rate, &dg->remote, q->now_ns)) return TDM_DROP_quic_handshake_rate;
    if (quiet == NULL) return TDM_REASON_NONE;
    tdm_quic_conn_fail(quiet, H3_NO_ERROR); /* its place is there when the peer asks again */
    return TDM_DROP_quic_connection_limit;
}

/* input_new judges a datagram that no connection claims. */
static tdm_reason_t input_new(tdm_quic_t *q, const tdm_datagram_t *dg,
                              const ngtcp2_version_cid *vc) {
    q->counters.unproved_rx_sz += dg->payload_sz;
    if (vc->scid == NULL) { /* a short header */
        answer_reset(q, dg, vc);
        return drop(q, TDM_DROP_quic_unknown);
    }
    if (vc->version != NGTCP2_PROTO_VER_V1) {
        if (vc->version == 0) return drop(q, TDM_DROP_quic_malformed);
        if (dg->payload_sz < TDM_QUIC_DATAGRAM_MIN) return drop(q, TDM_DROP_quic_malformed);
        answer_version(q, dg, vc);
        return drop(q, TDM_DROP_quic_version);
    }
    ngtcp2_pkt_hd hd;
    if (!is_initial(dg)) return drop(q, TDM_DROP_quic_unknown);
    if (ngtcp2_accept(&hd, dg->payload, dg->payload_sz) != 0 || dg->payload_sz > BACKLOG_BYTES) {
        return drop(q, TDM_DROP_quic_malformed);
    }
    cid_t dcid = {.sz = (uint8_t)vc->dcidlen};
    memcpy(dcid.bytes, vc->dcid, vc->dcidlen);
    uint32_t same_cnt = backlog_count_dcid(&q->backlog, &dcid);
    cid_t odcid;
    tdm_reason_t reason = admit(q, dg, &hd, same_cnt, &odcid);
    if (reason != TDM_REASON_NONE) return drop(q, reason);
    if (same_cnt >= BACKLOG_SAME_MAX || q->backlog.cnt == BACKLOG_MAX) {
        return drop(q, TDM_DROP_quic_handshake_rate);
    }
    TDM_CHECK(backlog_add(&q->backlog, dg, &dcid, &odcid));
    return TDM_REASON_NONE;
}

tdm_reason_t tdm_quic_input(tdm_quic_t *q, const tdm_datagram_t *dg, int64_t now_ns) {
    q->now_ns = now_ns;
    q->counters.datagrams_rx++;
    if (dg->payload_sz == 0) return drop(q, TDM_DROP_quic_malformed);
    ngtcp2_version_cid vc;
    int rv = ngtcp2_pkt_decode_version_cid(&vc, dg->payload, dg->payload_sz, CID_SZ);
    if (rv != 0 && rv != NGTCP2_ERR_VERSION_NEGOTIATION) {
        return drop(q, TDM_DROP_quic_malformed);
    }
    uint32_t idx = cid_table_find(&q->cids, vc.dcid, vc.dcidlen);
    return idx == NONE_IDX ? input_new(q, dg, &vc) : conn_input(&q->conn[idx], dg);
}

/* --- poll ------------------------------------------------------------- */

/* reclaim ends a tombstone early, for a new connection. */
static void reclaim(tdm_quic_t *q) {
    for (uint32_t i = 0; i < RECLAIM_VISIT; i++) {
        tdm_quic_conn_t *c = &q->conn[q->reclaim_cursor];
        q->reclaim_cursor = (q->reclaim_cursor + 1u) % q->cfg.connection_max;
        if (c->state != CONN_CLOSING) continue;
        conn_free(c);
        return;
    }
}

/* start_waiting takes the first datagram of the backlog: 1 where that
   began a handshake. */
static int start_waiting(tdm_quic_t *q) {
    waiting_t *w = backlog_first(&q->backlog);
    tdm_datagram_t dg = {.remote = w->remote,
                         .local = w->local,
                         .payload = w->bytes,
                         .payload_sz = w->sz,
                         .ecn = w->ecn};
    int is_start = 0;
    q->counters.unproved_rx_sz -= dg.payload_sz; /* conn_input counts it now */
    uint32_t idx = cid_table_find(&q->cids, w->dcid.bytes, w->dcid.sz);
    ngtcp2_pkt_hd hd;
    if (idx != NONE_IDX) {
        (void)conn_input(&q->conn[idx], &dg);
    } else if (ngtcp2_accept(&hd, w->bytes, w->sz) == 0) {
        is_start = 1;
        if (q->free_cnt == 0 && q->closing_cnt > 0) reclaim(q);
        tdm_quic_conn_t *c = NULL;
        if (q->free_cnt == 0) {
            drop(q, TDM_DROP_quic_connection_limit);
        } else if ((c = conn_open(q, &dg, &hd, &w->odcid)) == NULL) {
            drop(q, TDM_DROP_quic_memory);
        } else {
            (void)conn_input(c, &dg);
        }
    }
    backlog_drop_first(&q->backlog);
    return is_start;
}

static void refresh_gauges(tdm_quic_t *q) {
    tdm_pool_stat_t s;
    tdm_pool_stat(q->pool, &s);
    q->counters.pool_fail_cnt = s.fail_cnt;
    q->counters.pool_used_sz = s.used_sz;
    q->counters.pool_high_sz = s.high_sz;
    q->counters.left_blocks = s.left_cnt;
}

uint32_t tdm_quic_poll(tdm_quic_t *q, int64_t now_ns) {
    q->now_ns = now_ns;
    uint32_t done = 0;
    retry_note(q, 0);
    for (uint32_t i = 0; i < EXPIRE_PER_POLL; i++) {
        uint32_t idx = timer_due(&q->timers, now_ns);
        if (idx == NONE_IDX) break;
        conn_expire(&q->conn[idx]);
        done++;
    }
    for (uint32_t i = 0; i < BACKLOG_PER_POLL && q->backlog.cnt > 0; i++) {
        done++;
        if (start_waiting(q)) break;
    }
    refresh_gauges(q);
    return done;
}

/* --- output ----------------------------------------------------------- */

uint32_t tdm_quic_output(tdm_quic_t *q, uint8_t *buf, uint32_t buf_sz, tdm_datagram_t *dg,
                         int64_t now_ns) {
    q->now_ns = now_ns;
    if (buf_sz < TDM_QUIC_DATAGRAM_MIN) return 0;
    uint32_t sz = answer_take(&q->answers, buf, buf_sz, dg);
    q->counters.unproved_tx_sz += sz;
    for (uint32_t i = 0; sz == 0 && i < VISIT_PER_OUTPUT && q->ready_head != NONE_IDX; i++) {
        sz = conn_output(&q->conn[q->ready_head], buf, buf_sz, dg);
    }
    if (sz > 0) q->counters.datagrams_tx++;
    return sz;
}

int64_t tdm_quic_next_ns(const tdm_quic_t *q) {
    if (q->backlog.cnt > 0 || q->answers.cnt > 0 || q->ready_head != NONE_IDX) return 0;
    return timer_next_ns(&q->timers);
}

const tdm_quic_counters_t *tdm_quic_counters(tdm_quic_t *q) {
    refresh_gauges(q);
    return &q->counters;
}

uint32_t tdm_quic_conn_walk(tdm_quic_t *q, uint32_t *cursor, uint32_t max,
                            void (*visit)(void *arg, tdm_quic_conn_t *c), void *arg) {
    uint32_t visited = 0;
    for (uint32_t i = 0; i < max; i++) {
        tdm_quic_conn_t *c = &q->conn[*cursor];
        *cursor = (*cursor + 1u) % q->cfg.connection_max;
        if (c->is_app_open && c->state == CONN_OPEN) {
            visit(arg, c);
            visited++;
        }
        if (*cursor == 0) break;
    }
    return visited;
}
