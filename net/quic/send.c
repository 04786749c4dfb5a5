/* SPDX-License-Identifier: Apache-2.0 */
#include "net/quic/quic_private.h"

#include "appliance/base/clock.h"

/* Streams that may share one datagram.  ngtcp2 ends a datagram by itself
   when it is full; this bounds the loop where pieces are tiny. */
#define STREAMS_PER_DATAGRAM 64u

#define APP(c) ((c)->q->cfg.app)

static void address(const tdm_quic_conn_t *c, const ngtcp2_path *path, uint32_t ecn,
                    const uint8_t *buf, uint32_t sz, tdm_datagram_t *dg) {
    *dg = (tdm_datagram_t){.payload = buf, .payload_sz = sz, .ecn = ecn};
    if (path == NULL) {
        dg->remote = c->remote;
        dg->local = c->local;
        return;
    }
    endpoint_from_addr(&dg->remote, &path->remote);
    endpoint_from_addr(&dg->local, &path->local);
}

/* write_close says CONNECTION_CLOSE once and leaves a tombstone that says
   it again to whoever still talks, for three probe timeouts (RFC 9000,
   10.2.1). */
static uint32_t write_close(tdm_quic_conn_t *c, uint8_t *buf, uint32_t buf_sz, tdm_datagram_t *dg) {
    tdm_quic_t *q = c->q;
    ngtcp2_path_storage ps;
    ngtcp2_pkt_info pi = {0};
    ngtcp2_path_storage_zero(&ps);
    int64_t pto_ns = (int64_t)ngtcp2_conn_get_pto(c->nc);
    ngtcp2_ssize n = ngtcp2_conn_write_connection_close(c->nc, &ps.path, &pi, buf, buf_sz,
                                                        &c->error, (ngtcp2_tstamp)q->now_ns);
    if (n <= 0 || n > (ngtcp2_ssize)CLOSE_PKT_MAX) {
        if (n > 0) address(c, &ps.path, pi.ecn, buf, (uint32_t)n, dg);
        if (n > 0 && !c->is_proved) q->counters.unproved_tx_sz += (uint64_t)n;
        conn_free(c);
        return n > 0 ? (uint32_t)n : 0;
    }
    if (!c->is_proved) q->counters.unproved_tx_sz += (uint64_t)n;
    address(c, &ps.path, pi.ecn, buf, (uint32_t)n, dg);
    memcpy(c->close_pkt, buf, (size_t)n);
    c->close_pkt_sz = (uint16_t)n;
    conn_close_heavy(c);
    c->state = CONN_CLOSING;
    c->is_close_due = 0;
    q->closing_cnt++;
    timer_set(&q->timers, c->idx, q->now_ns + 3 * pto_ns);
    return (uint32_t)n;
}

static uint32_t repeat_close(tdm_quic_conn_t *c, uint8_t *buf, uint32_t buf_sz,
                             tdm_datagram_t *dg) {
    if (!c->is_close_due || buf_sz < c->close_pkt_sz) return 0;
    c->is_close_due = 0;
    if (!c->is_proved) c->q->counters.unproved_tx_sz += c->close_pkt_sz;
    memcpy(buf, c->close_pkt, c->close_pkt_sz);
    address(c, NULL, 0, buf, c->close_pkt_sz, dg);
    return c->close_pkt_sz;
}

/* pull asks the room above what to send; nothing where the connection's
   window is closed or no stream may exist yet. */
static int pull(tdm_quic_conn_t *c, tdm_quic_send_t *s) {
    s->stream_id = -1;
    s->is_fin = 0;
    s->vec_cnt = 0;
    if (!c->is_app_open || ngtcp2_conn_get_max_data_left(c->nc) == 0) return 0;
    return APP(c).send_pull(APP(c).ctx, c, s, c->q->now_ns);
}

/* fill writes one datagram: pieces of streams until it is full or nothing
   is left.  The result is ngtcp2's: bytes, 0, or an error. */
static ngtcp2_ssize fill(tdm_quic_conn_t *c, ngtcp2_path *path, ngtcp2_pkt_info *pi, uint8_t *buf,
                         uint32_t buf_sz) {
    ngtcp2_tstamp now = (ngtcp2_tstamp)c->q->now_ns;
    int is_broken = 0;
    for (uint32_t i = 0;; i++) {
        tdm_quic_send_t s = {.stream_id = -1};
        /* A datagram that was begun has to be ended before anything else,
           also when the room above has failed. */
        if (!is_broken && i < STREAMS_PER_DATAGRAM && pull(c, &s) != 0) {
            is_broken = 1;
            s = (tdm_quic_send_t){.stream_id = -1};
        }
        ngtcp2_vec vec[TDM_QUIC_SEND_VEC_MAX];
        for (uint32_t v = 0; v < s.vec_cnt; v++) {
            vec[v] = (ngtcp2_vec){(uint8_t *)(uintptr_t)s.vec[v].bytes, s.vec[v].sz};
        }
        uint32_t flags = s.stream_id == -1 ? 0 : NGTCP2_WRITE_STREAM_FLAG_MORE;
        if (s.is_fin) flags |= NGTCP2_WRITE_STREAM_FLAG_FIN;
        ngtcp2_ssize sent = -1;
        ngtcp2_ssize n = ngtcp2_conn_writev_stream(c->nc, path, pi, buf, buf_sz, &sent, flags,
                                                   s.stream_id, vec, s.vec_cnt, now);
        if (sent >= 0 && s.stream_id != -1 &&
            APP(c).send_sent(APP(c).ctx, c, s.stream_id, (uint64_t)sent) != 0) {
            is_broken = 1;
        }
        if (n == NGTCP2_ERR_STREAM_DATA_BLOCKED) {
            APP(c).send_blocked(APP(c).ctx, c, s.stream_id);
        } else if (n == NGTCP2_ERR_STREAM_SHUT_WR || n == NGTCP2_ERR_STREAM_NOT_FOUND) {
            APP(c).send_shut(APP(c).ctx, c, s.stream_id);
        } else if (n != NGTCP2_ERR_WRITE_MORE) {
            return is_broken && n >= 0 ? NGTCP2_ERR_CALLBACK_FAILURE : n;
        }
    }
}

/* pace lets what was sent delay the next burst by its share.  Before the
   first round trip is measured that share would be of 333 ms: 27 ms of
   silence after one datagram.  Until then the initial window alone bounds
   the burst, as RFC 9002, 7.7, allows. */
static void pace(tdm_quic_conn_t *c) {
    if (!c->has_rtt) {
        ngtcp2_conn_stat stat;
        ngtcp2_conn_get_conn_stat(c->nc, &stat);
        c->has_rtt = stat.first_rtt_sample_ts != UINT64_MAX;
    }
    if (c->has_rtt) ngtcp2_conn_update_pkt_tx_time(c->nc, (ngtcp2_tstamp)c->q->now_ns);
}

uint32_t conn_output(tdm_quic_conn_t *c, uint8_t *buf, uint32_t buf_sz, tdm_datagram_t *dg) {
    tdm_quic_t *q = c->q;
    ready_remove(c);
    if (c->state == CONN_CLOSING) return repeat_close(c, buf, buf_sz, dg);
    if (c->state != CONN_FAILED && c->has_app_error) conn_fail(c, NGTCP2_ERR_CALLBACK_FAILURE);
    if (c->state == CONN_FAILED) {
        ready_remove(c);
        return write_close(c, buf, buf_sz, dg);
    }

    ngtcp2_path_storage ps;
    ngtcp2_pkt_info pi = {0};
    ngtcp2_path_storage_zero(&ps);
    ngtcp2_ssize n = fill(c, &ps.path, &pi, buf, TDM_MIN(buf_sz, (uint32_t)q->cfg.datagram_max));
    if (n < 0) {
        conn_fail(c, (int)n);
        return 0;
    }
    c->burst_sz += (uint64_t)n;
    if (!c->is_proved) q->counters.unproved_tx_sz += (uint64_t)n;
    int is_more = n > 0 && c->burst_sz < ngtcp2_conn_get_send_quantum(c->nc);
    if (is_more) {
        ready_add(c); /* at the tail: the others come first */
    } else {
        c->burst_sz = 0;
        pace(c);
    }
    conn_arm(c);
    if (n > 0) address(c, &ps.path, pi.ecn, buf, (uint32_t)n, dg);
    return (uint32_t)n;
}
