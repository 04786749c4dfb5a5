/* SPDX-License-Identifier: Apache-2.0 */
#include "net/client/client_private.h"

#include "appliance/base/clock.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATAGRAM_MAX         1452u
#define STREAMS_PER_DATAGRAM 64u
#define VEC_MAX              16u

/* --- life ------------------------------------------------------------- */

static ngtcp2_conn *get_conn(ngtcp2_crypto_conn_ref *ref) {
    return ((tdm_client_t *)ref->user_data)->nc;
}

tdm_status_t client_host(char out[HOST_MAX], const char *host, tdm_error_t *err) {
    size_t sz = host == NULL ? 0 : strlen(host);
    if (sz >= 2 && host[0] == '[' && host[sz - 1] == ']') {
        host++;
        sz -= 2;
    }
    if (sz == 0 || sz >= HOST_MAX) {
        return tdm_error_set(err, TDM_ERR_INVAL, "client: no host name, or too long a one");
    }
    memcpy(out, host, sz);
    out[sz] = '\0';
    return TDM_OK;
}

tdm_status_t client_make(const tdm_client_config_t *cfg, tdm_client_t **out, tdm_error_t *err) {
    tdm_client_t *c = calloc(1, sizeof *c);
    if (c == NULL) return tdm_error_set(err, TDM_ERR_NOMEM, "client: no memory");
    c->cfg = *cfg;
    c->fd = -1;
    c->ref = (ngtcp2_crypto_conn_ref){get_conn, c};
    ngtcp2_connection_close_error_default(&c->close_error);
    if (c->cfg.connect_timeout_ns == 0) c->cfg.connect_timeout_ns = 5 * TDM_NS_PER_S;
    if (c->cfg.idle_timeout_ns == 0) c->cfg.idle_timeout_ns = 60 * TDM_NS_PER_S;
    if (c->cfg.window_sz == 0) c->cfg.window_sz = 1u << 20;
    tdm_status_t s = client_host(c->host, cfg->host, err);
    int is_v6 = strchr(c->host, ':') != NULL;
    snprintf(c->authority, sizeof c->authority, is_v6 ? "[%s]:%u" : "%s:%u", c->host, cfg->port);
    if (s == TDM_OK) s = trust_open(c, err);
    if (s != TDM_OK) {
        tdm_client_close(c);
        return s;
    }
    *out = c;
    return TDM_OK;
}

/* client_start makes the connection; local and remote are set. */
tdm_status_t client_start(tdm_client_t *c, int64_t now_ns, tdm_error_t *err) {
    ngtcp2_settings settings;
    ngtcp2_transport_params params;
    ngtcp2_cid dcid = {.datalen = 16};
    ngtcp2_cid scid = {.datalen = 12};
    ngtcp2_path path = {{(ngtcp2_sockaddr *)&c->local, c->local_sz},
                        {(ngtcp2_sockaddr *)&c->remote, c->remote_sz},
                        NULL};
    c->now_ns = now_ns;
    ngtcp2_settings_default(&settings);
    settings.initial_ts = (ngtcp2_tstamp)now_ns;
    settings.handshake_timeout = (ngtcp2_duration)c->cfg.connect_timeout_ns;
    settings.max_tx_udp_payload_size = DATAGRAM_MAX;
    ngtcp2_transport_params_default(&params);
    params.initial_max_stream_data_bidi_local = c->cfg.window_sz;
    params.initial_max_stream_data_uni = 64u << 10;
    params.initial_max_data = 16u * c->cfg.window_sz;
    params.initial_max_streams_uni = 3;
    params.max_idle_timeout = (ngtcp2_duration)c->cfg.idle_timeout_ns;
    params.active_connection_id_limit = 2;
    if (gnutls_rnd(GNUTLS_RND_NONCE, dcid.data, dcid.datalen) != 0 ||
        gnutls_rnd(GNUTLS_RND_NONCE, scid.data, scid.datalen) != 0) {
        return tdm_error_set(err, TDM_ERR_INTERNAL, "client: the system gives no randomness");
    }
    int rv = ngtcp2_conn_client_new(&c->nc, &dcid, &scid, &path, NGTCP2_PROTO_VER_V1,
                                    &client_callbacks, &settings, &params, NULL, c);
    if (rv != 0) {
        c->nc = NULL;
        return tdm_error_set(err, TDM_ERR_INTERNAL, "client: %s", ngtcp2_strerror(rv));
    }
    ngtcp2_conn_set_tls_native_handle(c->nc, c->tls);
    client_keep(c);
    return TDM_OK;
}

void client_keep(tdm_client_t *c) {
    if (c->cfg.is_keep_alive_off || c->nc == NULL) return;
    int64_t ns = c->cfg.idle_timeout_ns / 3;
    if (c->open_cnt > 0) ns = TDM_MIN(ns, TDM_CLIENT_LISTEN_NS);
    ngtcp2_conn_set_keep_alive_timeout(c->nc, (ngtcp2_duration)ns);
}

tdm_status_t tdm_client_open(const tdm_client_config_t *cfg, int64_t now_ns, tdm_client_t **out,
                             tdm_error_t *err) {
    tdm_client_t *c;
    tdm_status_t s = client_make(cfg, &c, err);
    if (s != TDM_OK) return s;
    struct sockaddr_in *local = (struct sockaddr_in *)&c->local;
    struct sockaddr_in *remote = (struct sockaddr_in *)&c->remote;
    local->sin_family = AF_INET;
    local->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *remote = *local;
    remote->sin_port = htons(cfg->port);
    c->local_sz = sizeof *local;
    c->remote_sz = sizeof *remote;
    s = client_start(c, now_ns, err);
    if (s != TDM_OK) {
        tdm_client_close(c);
        return s;
    }
    *out = c;
    return TDM_OK;
}

void client_lost(tdm_client_t *c, tdm_status_t status, const char *text) {
    c->state = CLIENT_CLOSED;
    if (c->error.status == TDM_OK) tdm_error_set(&c->error, status, "%s", text);
    for (request_t *r = c->first; r != NULL; r = r->next) {
        request_end(r, TDM_CLIENT_LOST, 0);
    }
}

int tdm_client_is_ready(const tdm_client_t *c) {
    return c->state == CLIENT_READY;
}

int tdm_client_is_closed(const tdm_client_t *c, tdm_error_t *err) {
    if (c->state != CLIENT_CLOSED) return 0;
    if (err != NULL) *err = c->error;
    return 1;
}

int tdm_client_peer_pin(const tdm_client_t *c, uint8_t out[TDM_CLIENT_PIN_SZ]) {
    if (!c->has_peer_pin) return 0;
    memcpy(out, c->peer_pin, TDM_CLIENT_PIN_SZ);
    return 1;
}

int64_t tdm_client_rtt_ns(const tdm_client_t *c) {
    ngtcp2_conn_stat stat;
    if (c->nc == NULL) return 0;
    ngtcp2_conn_get_conn_stat(c->nc, &stat);
    return stat.first_rtt_sample_ts == UINT64_MAX ? 0 : (int64_t)stat.smoothed_rtt;
}

int tdm_client_fd(const tdm_client_t *c) {
    return c->fd;
}

/* --- the end ----------------------------------------------------------- */

/* lost_by explains a library error; the server hears of it at the next
   output unless it is the one that closed. */
static void lost_by(tdm_client_t *c, int liberr) {
    char text[160];
    ngtcp2_connection_close_error peer;
    switch (liberr) {
    case NGTCP2_ERR_IDLE_CLOSE:
        client_lost(c, TDM_ERR_TIMEOUT, "the server was silent for too long");
        return;
    case NGTCP2_ERR_HANDSHAKE_TIMEOUT:
        client_lost(c, TDM_ERR_TIMEOUT, "the server did not answer in time");
        return;
    case NGTCP2_ERR_RECV_VERSION_NEGOTIATION:
        client_lost(c, TDM_ERR_UNSUPPORTED, "the server does not speak QUIC version 1");
        return;
    case NGTCP2_ERR_DRAINING:
        if (c->is_forgotten) {
            client_lost(c, TDM_ERR_CLOSED,
                        "the server does not know this connection any more (stateless reset)");
            return;
        }
        ngtcp2_conn_get_connection_close_error(c->nc, &peer);
        snprintf(text, sizeof text, "the server closed the connection (error 0x%llx)",
                 (unsigned long long)peer.error_code);
        client_lost(c, TDM_ERR_CLOSED, text);
        return;
    default: break;
    }
    if (liberr == NGTCP2_ERR_CRYPTO) {
        snprintf(text, sizeof text, "TLS failed (alert %u)", ngtcp2_conn_get_tls_alert(c->nc));
        ngtcp2_connection_close_error_set_transport_error_tls_alert(
            &c->close_error, ngtcp2_conn_get_tls_alert(c->nc), NULL, 0);
    } else if (c->h3_error != 0) {
        snprintf(text, sizeof text, "the server broke HTTP/3 (error 0x%llx)",
                 (unsigned long long)c->h3_error);
        ngtcp2_connection_close_error_set_application_error(&c->close_error, c->h3_error, NULL, 0);
    } else {
        snprintf(text, sizeof text, "QUIC failed: %s", ngtcp2_strerror(liberr));
        ngtcp2_connection_close_error_set_transport_error_liberr(&c->close_error, liberr, NULL, 0);
    }
    c->is_close_due = 1;
    client_lost(c, TDM_ERR_CLOSED, text);
}

void tdm_client_shutdown(tdm_client_t *c) {
    if (c->state == CLIENT_CLOSED) return;
    if (c->state == CLIENT_READY) {
        ngtcp2_connection_close_error_set_application_error(&c->close_error, NGHTTP3_H3_NO_ERROR,
                                                            NULL, 0);
    }
    c->is_close_due = 1;
    client_lost(c, TDM_ERR_CLOSED, "closed by this side");
}

/* --- datagrams -------------------------------------------------------- */

void tdm_client_input(tdm_client_t *c, const uint8_t *bytes, uint64_t sz, int64_t now_ns) {
    if (c->state == CLIENT_CLOSED) return;
    c->now_ns = now_ns;
    const ngtcp2_pkt_info pi = {0};
    ngtcp2_path path = {{(ngtcp2_sockaddr *)&c->local, c->local_sz},
                        {(ngtcp2_sockaddr *)&c->remote, c->remote_sz},
                        NULL};
    int rv = ngtcp2_conn_read_pkt(c->nc, &path, &pi, bytes, sz, (ngtcp2_tstamp)now_ns);
    if (rv != 0) lost_by(c, rv);
}

static uint32_t write_close(tdm_client_t *c, uint8_t *buf, uint32_t buf_sz) {
    if (!c->is_close_due) return 0;
    c->is_close_due = 0;
    ngtcp2_pkt_info pi;
    ngtcp2_ssize n = ngtcp2_conn_write_connection_close(c->nc, NULL, &pi, buf, buf_sz,
                                                        &c->close_error, (ngtcp2_tstamp)c->now_ns);
    return n > 0 ? (uint32_t)n : 0;
}

/* fill writes one datagram from whatever streams have; ngtcp2's result. */
static ngtcp2_ssize fill(tdm_client_t *c, uint8_t *buf, uint32_t buf_sz) {
    for (uint32_t i = 0;; i++) {
        nghttp3_vec vec[VEC_MAX];
        int64_t id = -1;
        int is_fin = 0;
        nghttp3_ssize cnt = 0;
        if (c->hc != NULL && c->h3_error == 0 && i < STREAMS_PER_DATAGRAM &&
            ngtcp2_conn_get_max_data_left(c->nc) > 0) {
            cnt = nghttp3_conn_writev_stream(c->hc, &id, &is_fin, vec, VEC_MAX);
        }
        if (cnt < 0) {
            c->h3_error = nghttp3_err_infer_quic_app_error_code((int)cnt);
            cnt = 0;
            id = -1;
        }
        ngtcp2_vec out[VEC_MAX];
        for (nghttp3_ssize v = 0; v < cnt; v++) out[v] = (ngtcp2_vec){vec[v].base, vec[v].len};
        uint32_t flags = id == -1 ? 0 : NGTCP2_WRITE_STREAM_FLAG_MORE;
        if (is_fin) flags |= NGTCP2_WRITE_STREAM_FLAG_FIN;
        ngtcp2_ssize sent = -1;
        ngtcp2_ssize n = ngtcp2_conn_writev_stream(c->nc, NULL, NULL, buf, buf_sz, &sent, flags, id,
                                                   out, (size_t)cnt, (ngtcp2_tstamp)c->now_ns);
        if (sent >= 0 && id != -1) {
            (void)nghttp3_conn_add_write_offset(c->hc, id, (size_t)sent);
        }
        if (n == NGTCP2_ERR_STREAM_DATA_BLOCKED) {
            nghttp3_conn_block_stream(c->hc, id);
        } else if (n == NGTCP2_ERR_STREAM_SHUT_WR || n == NGTCP2_ERR_STREAM_NOT_FOUND) {
            nghttp3_conn_shutdown_stream_write(c->hc, id);
        } else if (n != NGTCP2_ERR_WRITE_MORE) {
            return n >= 0 && c->h3_error != 0 ? NGTCP2_ERR_CALLBACK_FAILURE : n;
        }
    }
}

uint32_t tdm_client_output(tdm_client_t *c, uint8_t *buf, uint32_t buf_sz, int64_t now_ns) {
    c->now_ns = now_ns;
    if (buf_sz < DATAGRAM_MAX) return 0;
    if (c->state == CLIENT_CLOSED) return write_close(c, buf, buf_sz);
    if (ngtcp2_conn_get_expiry(c->nc) <= (ngtcp2_tstamp)now_ns) {
        int rv = ngtcp2_conn_handle_expiry(c->nc, (ngtcp2_tstamp)now_ns);
        if (rv != 0) {
            lost_by(c, rv);
            return write_close(c, buf, buf_sz);
        }
    }
    ngtcp2_ssize n = fill(c, buf, DATAGRAM_MAX);
    if (n < 0) {
        lost_by(c, (int)n);
        return write_close(c, buf, buf_sz);
    }
    /* Unpaced until a round trip is measured: the initial window bounds it. */
    if (n == 0 && tdm_client_rtt_ns(c) > 0)
        ngtcp2_conn_update_pkt_tx_time(c->nc, (ngtcp2_tstamp)now_ns);
    return (uint32_t)n;
}

int64_t tdm_client_next_ns(const tdm_client_t *c) {
    if (c->state == CLIENT_CLOSED) return c->is_close_due ? 0 : TDM_TIME_NEVER;
    ngtcp2_tstamp t = ngtcp2_conn_get_expiry(c->nc);
    return t > (ngtcp2_tstamp)INT64_MAX ? TDM_TIME_NEVER : (int64_t)t;
}
