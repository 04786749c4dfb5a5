/* SPDX-License-Identifier: Apache-2.0 */
#include "net/quic/quic_private.h"

#include "appliance/base/check.h"
#include "appliance/base/clock.h"

/* --- addresses ------------------------------------------------------- */

ngtcp2_addr addr_from_endpoint(sock_addr_t *store, const tdm_endpoint_t *e) {
    memset(store, 0, sizeof *store);
    if (e->version == 4) {
        store->in4.sin_family = AF_INET;
        store->in4.sin_port = htons(e->port);
        memcpy(&store->in4.sin_addr, e->addr, 4);
        return (ngtcp2_addr){&store->sa, sizeof store->in4};
    }
    store->in6.sin6_family = AF_INET6;
    store->in6.sin6_port = htons(e->port);
    memcpy(&store->in6.sin6_addr, e->addr, 16);
    return (ngtcp2_addr){&store->sa, sizeof store->in6};
}

void endpoint_from_addr(tdm_endpoint_t *e, const ngtcp2_addr *a) {
    sock_addr_t s;
    memset(e, 0, sizeof *e);
    if (a->addr == NULL || a->addrlen > sizeof s) return;
    memcpy(&s, a->addr, a->addrlen);
    if (s.sa.sa_family == AF_INET) {
        e->version = 4;
        e->port = ntohs(s.in4.sin_port);
        memcpy(e->addr, &s.in4.sin_addr, 4);
    } else if (s.sa.sa_family == AF_INET6) {
        e->version = 6;
        e->port = ntohs(s.in6.sin6_port);
        memcpy(e->addr, &s.in6.sin6_addr, 16);
    }
}

/* --- memory of the libraries ----------------------------------------- */

static void *mem_alloc(size_t sz, void *account) {
    return tdm_pool_alloc(account, sz);
}

static void mem_free(void *p, void *account) {
    tdm_pool_free(account, p);
}

static void *mem_calloc(size_t cnt, size_t sz, void *account) {
    return tdm_pool_calloc(account, cnt, sz);
}

static void *mem_realloc(void *p, size_t sz, void *account) {
    return tdm_pool_realloc(account, p, sz);
}

/* --- connection ids --------------------------------------------------- */

void cid_make(tdm_quic_t *q, uint8_t *bytes) {
    TDM_CHECK(gnutls_rnd(GNUTLS_RND_NONCE, bytes, CID_SZ) == 0);
    bytes[0] = q->cfg.tile_idx;
}

int conn_add_cid(tdm_quic_conn_t *c, const uint8_t *bytes, uint64_t sz) {
    if (c->cid_cnt == CID_PER_CONN || sz == 0 || sz > NGTCP2_MAX_CIDLEN) return 0;
    cid_t *cid = &c->cid[c->cid_cnt];
    cid->sz = (uint8_t)sz;
    memcpy(cid->bytes, bytes, sz);
    if (!cid_table_add(&c->q->cids, cid, c->idx)) return 0;
    c->cid_cnt++;
    return 1;
}

void conn_remove_cid(tdm_quic_conn_t *c, const uint8_t *bytes, uint64_t sz) {
    for (uint32_t i = 0; i < c->cid_cnt; i++) {
        if (c->cid[i].sz != sz || memcmp(c->cid[i].bytes, bytes, sz) != 0) continue;
        cid_table_remove(&c->q->cids, &c->cid[i]);
        c->cid[i] = c->cid[--c->cid_cnt];
        return;
    }
}

/* --- birth ------------------------------------------------------------ */

static ngtcp2_conn *get_conn(ngtcp2_crypto_conn_ref *ref) {
    return ((tdm_quic_conn_t *)ref->user_data)->nc;
}

static void fill_settings(tdm_quic_t *q, ngtcp2_settings *s) {
    ngtcp2_settings_default(s);
    s->initial_ts = (ngtcp2_tstamp)q->now_ns;
    s->handshake_timeout = (ngtcp2_duration)q->cfg.handshake_timeout_ns;
    s->max_tx_udp_payload_size = q->cfg.datagram_max;
    /* Path MTU discovery stays on although 1200 leaves it nothing to probe:
       ngtcp2 0.12 stops the process where a peer moves while it is off. */
    s->rand_ctx.native_handle = &q->rng;
}

static void fill_params(const tdm_quic_t *q, ngtcp2_transport_params *p) {
    ngtcp2_transport_params_default(p);
    p->initial_max_stream_data_bidi_remote = q->cfg.stream_window_sz;
    p->initial_max_stream_data_uni = q->cfg.stream_window_sz;
    p->initial_max_data = q->cfg.connection_window_sz;
    p->initial_max_streams_bidi = q->cfg.stream_max;
    /* Control and two QPACK streams, and a few that we do not know. */
    p->initial_max_streams_uni = 8;
    p->max_idle_timeout = (ngtcp2_duration)q->cfg.idle_timeout_ns;
    p->active_connection_id_limit = 2;
    p->stateless_reset_token_present = 1;
}

/* fill_retry says which ids the peer used before and in the Retry: it
   checks both (RFC 9000, 7.3).  The token tells ngtcp2 that the address is
   proved. */
static void fill_retry(ngtcp2_settings *s, ngtcp2_transport_params *p, const ngtcp2_pkt_hd *hd,
                       const cid_t *odcid) {
    p->original_dcid = hd->dcid;
    if (odcid->sz == 0) return;
    ngtcp2_cid_init(&p->original_dcid, odcid->bytes, odcid->sz);
    p->retry_scid = hd->dcid;
    p->retry_scid_present = 1;
    s->token = hd->token;
}

static int make_library_conn(tdm_quic_conn_t *c, const tdm_datagram_t *dg, const ngtcp2_pkt_hd *hd,
                             const cid_t *odcid) {
    tdm_quic_t *q = c->q;
    ngtcp2_settings settings;
    ngtcp2_transport_params params;
    sock_addr_t local;
    sock_addr_t remote;
    ngtcp2_cid scid = {.datalen = CID_SZ};
    ngtcp2_path path = {addr_from_endpoint(&local, &dg->local),
                        addr_from_endpoint(&remote, &dg->remote), NULL};
    fill_settings(q, &settings);
    fill_params(q, &params);
    fill_retry(&settings, &params, hd, odcid);
    cid_make(q, scid.data);
    if (ngtcp2_crypto_generate_stateless_reset_token(params.stateless_reset_token, q->reset_secret,
                                                     sizeof q->reset_secret, &scid) != 0) {
        return 0;
    }
    c->mem = (ngtcp2_mem){&c->account, mem_alloc, mem_free, mem_calloc, mem_realloc};
    if (ngtcp2_conn_server_new(&c->nc, &hd->scid, &scid, &path, hd->version, &conn_callbacks,
                               &settings, &params, &c->mem, c) != 0) {
        c->nc = NULL;
        return 0;
    }
    return conn_add_cid(c, scid.data, scid.datalen) &&
           conn_add_cid(c, hd->dcid.data, hd->dcid.datalen);
}

tdm_quic_conn_t *conn_open(tdm_quic_t *q, const tdm_datagram_t *dg, const ngtcp2_pkt_hd *hd,
                           const cid_t *odcid) {
    uint32_t idx = q->free_idx[--q->free_cnt];
    tdm_quic_conn_t *c = &q->conn[idx];
    memset(c, 0, sizeof *c);
    c->q = q;
    c->idx = idx;
    c->state = CONN_HANDSHAKE;
    c->ready_next = NONE_IDX;
    c->ready_prev = NONE_IDX;
    c->remote = dg->remote;
    c->local = dg->local;
    c->ref = (ngtcp2_crypto_conn_ref){get_conn, c};
    tdm_pool_account_init(&c->account, q->pool, q->cfg.connection_pool_sz);
    ngtcp2_connection_close_error_default(&c->error);
    q->counters.connection_cnt++;

    c->is_proved = odcid->sz > 0;
    if (!make_library_conn(c, dg, hd, odcid) || !tls_session_open(&q->tls, &c->ref, &c->tls)) {
        conn_free(c);
        return NULL;
    }
    q->counters.tls_session_cnt++;
    q->counters.handshakes_started++;
    q->counters.half_open_cnt++;
    q->counters.retry_tokens += c->is_proved;
    c->is_begun = 1;
    ngtcp2_conn_set_tls_native_handle(c->nc, c->tls);
    return c;
}

/* --- end -------------------------------------------------------------- */

void conn_close_heavy(tdm_quic_conn_t *c) {
    tdm_quic_t *q = c->q;
    if (c->is_app_open) {
        c->is_app_open = 0;
        q->cfg.app.conn_close(q->cfg.app.ctx, c, q->now_ns);
    }
    if (c->is_begun) {
        c->is_begun = 0;
        q->counters.half_open_cnt--;
        q->counters.handshakes_failed++;
    }
    if (c->nc != NULL) ngtcp2_conn_del(c->nc);
    c->nc = NULL;
    if (c->tls != NULL) {
        gnutls_deinit(c->tls);
        q->counters.tls_session_cnt--;
    }
    c->tls = NULL;
    /* ngtcp2 0.12 forgets some frames of lost packets until here. */
    if (c->account.pool != NULL) tdm_pool_account_close(&c->account);
}

void conn_free(tdm_quic_conn_t *c) {
    tdm_quic_t *q = c->q;
    if (c->state == CONN_CLOSING) q->closing_cnt--;
    conn_close_heavy(c);
    ready_remove(c);
    timer_set(&q->timers, c->idx, TDM_TIME_NEVER);
    while (c->cid_cnt > 0) cid_table_remove(&q->cids, &c->cid[--c->cid_cnt]);
    c->state = CONN_FREE;
    q->free_idx[q->free_cnt++] = c->idx;
    q->counters.connection_cnt--;
}

void conn_fail(tdm_quic_conn_t *c, int liberr) {
    tdm_quic_t *q = c->q;
    switch (liberr) {
    case NGTCP2_ERR_IDLE_CLOSE:
        q->counters.connections_idle++;
        conn_free(c);
        return;
    case NGTCP2_ERR_DRAINING: conn_free(c); return;
    case NGTCP2_ERR_NOMEM:
        /* The library may be between two states: nothing more is asked of
           it. */
        q->counters.connections_failed++;
        conn_free(c);
        return;
    case NGTCP2_ERR_DROP_CONN:
    case NGTCP2_ERR_RETRY:
    case NGTCP2_ERR_HANDSHAKE_TIMEOUT:
        q->counters.connections_failed++;
        conn_free(c);
        return;
    case NGTCP2_ERR_CRYPTO:
        ngtcp2_connection_close_error_set_transport_error_tls_alert(
            &c->error, ngtcp2_conn_get_tls_alert(c->nc), NULL, 0);
        break;
    default:
        if (c->has_app_error && c->is_settled) {
            ngtcp2_connection_close_error_set_application_error(&c->error, c->app_error, NULL, 0);
        } else if (c->has_app_error) {
            /* Not inside the datagram that ends the handshake: ngtcp2 0.12
               stops the process there (and RFC 9000, 10.2.3 hides the code). */
            ngtcp2_connection_close_error_set_transport_error(&c->error, NGTCP2_APPLICATION_ERROR,
                                                              NULL, 0);
        } else {
            ngtcp2_connection_close_error_set_transport_error_liberr(&c->error, liberr, NULL, 0);
        }
    }
    if (!c->has_app_error || c->app_error != 0x100 /* H3_NO_ERROR */) {
        q->counters.connections_failed++;
    }
    c->state = CONN_FAILED;
    ready_add(c);
}

/* --- input and timer --------------------------------------------------- */

void conn_arm(tdm_quic_conn_t *c) {
    ngtcp2_tstamp t = ngtcp2_conn_get_expiry(c->nc);
    timer_set(&c->q->timers, c->idx, t > (ngtcp2_tstamp)INT64_MAX ? TDM_TIME_NEVER : (int64_t)t);
}

/* reason_of: what became of a datagram after which the library gave up.
   An answer of the room above, or of TLS, means that it was taken in. */
static tdm_reason_t reason_of(const tdm_quic_conn_t *c, int liberr) {
    switch (liberr) {
    case NGTCP2_ERR_DRAINING:
    case NGTCP2_ERR_CRYPTO: return TDM_REASON_NONE;
    case NGTCP2_ERR_CALLBACK_FAILURE:
        return c->account.fail_cnt > 0 ? TDM_DROP_quic_memory : TDM_REASON_NONE;
    case NGTCP2_ERR_NOMEM: return TDM_DROP_quic_memory;
    default: return TDM_DROP_quic_malformed;
    }
}

tdm_reason_t conn_input(tdm_quic_conn_t *c, const tdm_datagram_t *dg) {
    tdm_quic_t *q = c->q;
    if (c->state == CONN_CLOSING) {
        /* A stranger gets no more back than it sent. */
        if (!c->is_proved) q->counters.unproved_rx_sz += dg->payload_sz;
        if (!c->is_proved && dg->payload_sz < c->close_pkt_sz) return TDM_REASON_NONE;
        c->is_close_due = 1;
        ready_add(c);
        return TDM_REASON_NONE;
    }
    if (c->state == CONN_FAILED) return TDM_REASON_NONE;
    sock_addr_t local;
    sock_addr_t remote;
    ngtcp2_path path = {addr_from_endpoint(&local, &dg->local),
                        addr_from_endpoint(&remote, &dg->remote), NULL};
    ngtcp2_pkt_info pi = {.ecn = (uint8_t)dg->ecn};
    if (!c->is_proved) q->counters.unproved_rx_sz += dg->payload_sz;
    reader_set(c);
    int rv = ngtcp2_conn_read_pkt(c->nc, &path, &pi, dg->payload, dg->payload_sz,
                                  (ngtcp2_tstamp)q->now_ns);
    reader_set(NULL);
    if (rv != 0) {
        tdm_reason_t reason = reason_of(c, rv);
        conn_fail(c, rv);
        return reason == TDM_REASON_NONE ? reason : drop(q, reason);
    }
    if (c->has_app_error) {
        conn_fail(c, NGTCP2_ERR_CALLBACK_FAILURE);
        return TDM_REASON_NONE;
    }
    c->is_settled = c->state == CONN_OPEN;
    tdm_endpoint_t before = c->remote;
    endpoint_from_addr(&c->remote, &ngtcp2_conn_get_path(c->nc)->remote);
    q->counters.path_changes += (uint64_t)!tdm_endpoint_equal(&before, &c->remote);
    if (c->is_app_open) q->cfg.app.input_done(q->cfg.app.ctx, c, q->now_ns);
    ready_add(c);
    conn_arm(c);
    return TDM_REASON_NONE;
}

void conn_expire(tdm_quic_conn_t *c) {
    tdm_quic_t *q = c->q;
    timer_set(&q->timers, c->idx, TDM_TIME_NEVER);
    if (c->state == CONN_CLOSING) {
        conn_free(c);
        return;
    }
    if (c->state == CONN_FAILED) return;
    int rv = ngtcp2_conn_handle_expiry(c->nc, (ngtcp2_tstamp)q->now_ns);
    if (rv != 0) {
        conn_fail(c, rv);
        return;
    }
    ready_add(c);
    conn_arm(c);
}

/* --- for the room above ------------------------------------------------ */

void *tdm_quic_conn_user(const tdm_quic_conn_t *c) {
    return c->user;
}

void tdm_quic_conn_set_user(tdm_quic_conn_t *c, void *user) {
    c->user = user;
}

uint32_t tdm_quic_conn_idx(const tdm_quic_conn_t *c) {
    return c->idx;
}

const tdm_endpoint_t *tdm_quic_conn_remote(const tdm_quic_conn_t *c) {
    return &c->remote;
}

void tdm_quic_conn_wake(tdm_quic_conn_t *c) {
    if (c->state == CONN_OPEN || c->state == CONN_HANDSHAKE) ready_add(c);
}

void tdm_quic_conn_consumed(tdm_quic_conn_t *c, int64_t stream_id, uint64_t sz) {
    if (c->nc == NULL || sz == 0) return;
    /* A stream that is gone needs no window; a lack of memory shows at the
       next write. */
    (void)ngtcp2_conn_extend_max_stream_offset(c->nc, stream_id, sz);
    ngtcp2_conn_extend_max_offset(c->nc, sz);
}

uint64_t tdm_quic_conn_stream_max(const tdm_quic_conn_t *c) {
    return c->q->cfg.stream_max + c->closed_cnt;
}

int64_t tdm_quic_conn_open_uni(tdm_quic_conn_t *c) {
    int64_t id;
    return ngtcp2_conn_open_uni_stream(c->nc, &id, NULL) == 0 ? id : -1;
}

void tdm_quic_conn_reset(tdm_quic_conn_t *c, int64_t stream_id, uint64_t error) {
    if (c->nc == NULL) return;
    (void)ngtcp2_conn_shutdown_stream(c->nc, stream_id, error);
    tdm_quic_conn_wake(c);
}

void tdm_quic_conn_stop_read(tdm_quic_conn_t *c, int64_t stream_id, uint64_t error) {
    if (c->nc == NULL) return;
    (void)ngtcp2_conn_shutdown_stream_read(c->nc, stream_id, error);
    tdm_quic_conn_wake(c);
}

void tdm_quic_conn_stop_write(tdm_quic_conn_t *c, int64_t stream_id, uint64_t error) {
    if (c->nc == NULL) return;
    (void)ngtcp2_conn_shutdown_stream_write(c->nc, stream_id, error);
    tdm_quic_conn_wake(c);
}

int tdm_quic_conn_is_shut(tdm_quic_conn_t *c, int64_t stream_id) {
    /* ngtcp2 0.12 has no call for STOP_SENDING received.  It looks at the
       stream before it looks at the length, so a length that cannot be is
       a question without a side effect. */
    const ngtcp2_vec impossible = {NULL, SIZE_MAX};
    ngtcp2_ssize rv = ngtcp2_conn_writev_stream(c->nc, NULL, NULL, NULL, 0, NULL, 0, stream_id,
                                                &impossible, 1, (ngtcp2_tstamp)c->q->now_ns);
    return rv == NGTCP2_ERR_STREAM_SHUT_WR;
}

void tdm_quic_conn_keep(tdm_quic_conn_t *c, int is_wanted) {
    if (c->nc == NULL) return;
    ngtcp2_duration idle = (ngtcp2_duration)c->q->cfg.idle_timeout_ns;
    const ngtcp2_transport_params *peer = ngtcp2_conn_get_remote_transport_params(c->nc);
    if (peer != NULL && peer->max_idle_timeout != 0) idle = TDM_MIN(idle, peer->max_idle_timeout);
    ngtcp2_conn_set_keep_alive_timeout(c->nc, is_wanted ? TDM_MAX(idle / 6u, 1u) : 0);
}

void tdm_quic_conn_fail(tdm_quic_conn_t *c, uint64_t error) {
    if (c->has_app_error) return;
    c->has_app_error = 1;
    c->app_error = error;
    tdm_quic_conn_wake(c);
}

void *tdm_quic_conn_alloc(tdm_quic_conn_t *c, uint64_t sz) {
    return tdm_pool_alloc(&c->account, sz);
}

void *tdm_quic_conn_realloc(tdm_quic_conn_t *c, void *p, uint64_t sz) {
    return tdm_pool_realloc(&c->account, p, sz);
}

void tdm_quic_conn_free(tdm_quic_conn_t *c, void *p) {
    tdm_pool_free(&c->account, p);
}
