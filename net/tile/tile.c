/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tile/tile_private.h"

#include "appliance/base/clock.h"
#include "appliance/base/size.h"

#include <string.h>
#include <sys/mman.h>

/* --- memory --------------------------------------------------------- */

/* plan_t says where each table lies behind the tile. */
typedef struct plan {
    uint64_t exchange, slot, place, link, quic, h3, pipes, body, end;
} plan_t;

/* config_full gives the rooms' configs with what this room decides. */
static tdm_net_tile_config_t config_full(const tdm_net_tile_config_t *config) {
    tdm_net_tile_config_t c = *config;
    c.h3.connection_max = c.quic.connection_max;
    c.h3.exchange_max = c.exchange_max;
    c.h3.body_max = c.body_max;
    c.h3.tile = exchange_calls(NULL); /* h3 wants its calls even to be measured */
    return c;
}

/* plan_add reserves n items of sz bytes and answers where they start. */
static int plan_add(plan_t *p, uint64_t *at, uint64_t n, uint64_t sz) {
    uint64_t bytes;
    *at = p->end;
    if (sz == 0 || !tdm_size_mul(n, sz, &bytes) || !tdm_size_add(p->end, bytes, &p->end)) return 0;
    if (!tdm_size_add(p->end, TDM_CACHE_LINE, &bytes)) return 0;
    p->end = tdm_size_align(p->end, TDM_CACHE_LINE);
    return 1;
}

static int plan_make(const tdm_net_tile_config_t *c, plan_t *p) {
    int is_pipe_ok =
        c->pipe_sz >= 1024 && c->pipe_sz <= 1u << 30 && (c->pipe_sz & (c->pipe_sz - 1)) == 0;
    if (c->exchange_max == 0 || c->exchange_max > TDM_NET_EXCHANGE_MAX || !is_pipe_ok) return 0;
    if (c->reserve_cnt >= c->exchange_max) return 0;
    if (c->body_max == 0 || c->body_max > UINT64_C(1) << 30) return 0;
    uint64_t own;
    memset(p, 0, sizeof *p);
    return plan_add(p, &own, 1, sizeof(tdm_net_tile_t)) &&
           plan_add(p, &p->exchange, c->exchange_max, sizeof(tdm_exchange_t)) &&
           plan_add(p, &p->slot, c->exchange_max, sizeof(slot_t)) &&
           plan_add(p, &p->place, c->exchange_max, sizeof(tdm_slot_place_t)) &&
           plan_add(p, &p->link, 1, tdm_link_footprint(c->link.neighbour_max)) &&
           plan_add(p, &p->quic, 1, tdm_quic_footprint(&c->quic)) &&
           plan_add(p, &p->h3, 1, tdm_h3_footprint(&c->h3)) &&
           plan_add(p, &p->pipes, c->exchange_max, PIPE_STRIDE(c)) &&
           plan_add(p, &p->body, c->exchange_max, c->body_max);
}

uint64_t tdm_net_tile_footprint(const tdm_net_tile_config_t *config) {
    tdm_net_tile_config_t c = config_full(config);
    plan_t p;
    return plan_make(&c, &p) ? p.end : 0;
}

/* --- life ----------------------------------------------------------- */

/* touch makes the pages that requests walk through in turn be there before
   the first request, or the tile would wait for the kernel to zero them in
   the midst of one.  Of a body's room that is where an ordinary body ends;
   the rest is for the largest, in small pages, whose first touch is short. */
static void touch(const tdm_net_tile_config_t *c, const plan_t *p, uint8_t *base) {
    memset(base, 0, p->body);
    uintptr_t first = ((uintptr_t)base + p->body + PAGE_SZ - 1) & ~(uintptr_t)(PAGE_SZ - 1);
    uintptr_t end = ((uintptr_t)base + p->end) & ~(uintptr_t)(PAGE_SZ - 1);
    if (first < end) (void)madvise((void *)first, end - first, MADV_NOHUGEPAGE);
    for (uint32_t i = 0; i < c->exchange_max; i++)
        memset(base + p->body + i * c->body_max, 0, TDM_MIN(c->body_max, BODY_TOUCHED));
}

static tdm_status_t config_check(const tdm_net_tile_config_t *c, tdm_error_t *err) {
    if (c->port == NULL || c->egress == NULL || c->block == NULL)
        return tdm_error_set(err, TDM_ERR_INVAL, "net tile: port, egress ring or block is missing");
    if (c->api_cnt == 0 || c->api_cnt > TDM_API_TILE_MAX)
        return tdm_error_set(err, TDM_ERR_INVAL, "net tile: %u api tiles, outside 1..%u",
                             c->api_cnt, TDM_API_TILE_MAX);
    for (uint32_t i = 0; i < c->api_cnt; i++) {
        if (c->arrivals[i] == NULL || c->hangups[i] == NULL ||
            c->door >= c->arrivals[i]->lane_cnt || c->door >= c->hangups[i]->lane_cnt)
            return tdm_error_set(err, TDM_ERR_INVAL, "net tile: no lane to api tile %u", i);
        if (tdm_lane_depth(c->hangups[i]->lane[c->door]) < c->exchange_max)
            return tdm_error_set(err, TDM_ERR_INVAL,
                                 "net tile: the hangup lane to api tile %u is shorter than %u", i,
                                 c->exchange_max);
    }
    return TDM_OK;
}

tdm_status_t tdm_net_tile_create(void *mem, const tdm_net_tile_config_t *config, int64_t now_ns,
                                 tdm_net_tile_t **out, tdm_error_t *err) {
    tdm_net_tile_t *t = mem;
    uint8_t *base = mem;
    plan_t p;
    tdm_net_tile_config_t c = config_full(config);
    tdm_status_t st = config_check(&c, err);
    if (st != TDM_OK) return st;
    if (!plan_make(&c, &p))
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "net tile: a bound is out of range (%u exchanges, %llu body bytes, "
                             "%u pipe bytes, %u neighbours)",
                             c.exchange_max, (unsigned long long)c.body_max, c.pipe_sz,
                             c.link.neighbour_max);
    touch(&c, &p, base);
    t->c = c;
    t->refused_from_ns = TDM_TIME_NEVER;
    t->exchange = (tdm_exchange_t *)(void *)(base + p.exchange);
    t->slot = (slot_t *)(void *)(base + p.slot);
    t->body = base + p.body;
    st = exchange_init(t, (tdm_slot_place_t *)(void *)(base + p.place), base + p.pipes, err);
    if (st == TDM_OK) st = tdm_link_init(base + p.link, &t->c.link, now_ns, &t->link, err);
    if (st != TDM_OK) return st;
    t->c.h3.tile = exchange_calls(t);
    st = tdm_h3_create(base + p.h3, &t->c.h3, &t->h3, err);
    if (st != TDM_OK) return st;
    t->c.quic.app = tdm_h3_app(t->h3);
    st = tdm_quic_create(base + p.quic, &t->c.quic, &t->quic, err);
    if (st != TDM_OK) return st;
    tdm_h3_attach(t->h3, t->quic);
    *out = t;
    return TDM_OK;
}

void tdm_net_tile_destroy(tdm_net_tile_t *t) {
    if (t == NULL) return;
    tdm_quic_destroy(t->quic);
    rte_pktmbuf_free(t->spare);
    t->spare = NULL;
}

/* --- sending -------------------------------------------------------- */

uint32_t frames_send(tdm_net_tile_t *t, struct rte_mbuf **m, uint32_t cnt, int64_t now_ns) {
    uint32_t taken = tdm_port_tx(t->c.port, m, cnt);
    t->refused_from_ns = taken > 0 ? TDM_TIME_NEVER : TDM_MIN(t->refused_from_ns, now_ns);
    t->refused_last_ns = now_ns;
    return taken;
}

/* Refusals that lie far back say nothing: an idle tile sends nothing that
   could succeed. */
static uint32_t is_stuck(const tdm_net_tile_t *t, int64_t now_ns) {
    return t->refused_from_ns != TDM_TIME_NEVER &&
           t->refused_last_ns - t->refused_from_ns >= TDM_NET_STUCK_NS &&
           now_ns - t->refused_last_ns < STUCK_KNOWN_NS;
}

int tdm_net_tile_is_stuck(const tdm_net_tile_t *t) {
    return (int)tdm_load_relaxed(&t->is_stuck);
}

/* --- a turn: in ----------------------------------------------------- */

/* frame_in judges one frame.  The spare mbuf becomes the reply, where
   there is one; an empty pool costs the reply, never the datagram. */
static struct rte_mbuf *frame_in(tdm_net_tile_t *t, const struct rte_mbuf *m, int *is_passed,
                                 int64_t now_ns) {
    *is_passed = 0;
    if (m->nb_segs != 1) {
        tdm_link_rx_drop(t->link, TDM_DROP_frame_segmented, rte_pktmbuf_pkt_len(m));
        return NULL;
    }
    if (t->spare == NULL) t->spare = tdm_port_mbuf_alloc(t->c.port);
    uint8_t *reply = t->spare != NULL ? rte_pktmbuf_mtod(t->spare, uint8_t *) : NULL;
    uint32_t reply_cap = t->spare != NULL ? rte_pktmbuf_tailroom(t->spare) : 0;
    tdm_link_verdict_t v = tdm_link_rx(t->link, rte_pktmbuf_mtod(m, const uint8_t *),
                                       rte_pktmbuf_data_len(m), reply, reply_cap, now_ns);
    if (v.kind == TDM_LINK_DATAGRAM) {
        if (tdm_quic_input(t->quic, &v.datagram, now_ns) == TDM_REASON_NONE)
            t->n.quic_taken++;
        else
            t->n.quic_dropped++;
    }
    if (v.kind == TDM_LINK_DROP) *is_passed = exception_takes(t, v.reason);
    if (v.kind != TDM_LINK_REPLY) return NULL;
    struct rte_mbuf *r = t->spare;
    t->spare = NULL;
    rte_pktmbuf_append(r, (uint16_t)v.reply_sz);
    return r;
}

static uint32_t frames_in(tdm_net_tile_t *t, int64_t now_ns) {
    struct rte_mbuf *rx[TDM_PORT_BURST_MAX], *tx[TDM_PORT_BURST_MAX], *pass[TDM_PORT_BURST_MAX];
    uint32_t cnt = tdm_port_rx(t->c.port, rx, TDM_PORT_BURST_MAX), tx_cnt = 0, pass_cnt = 0;
    for (uint32_t i = 0; i < cnt; i++) {
        int is_passed;
        struct rte_mbuf *r = frame_in(t, rx[i], &is_passed, now_ns);
        if (r != NULL) tx[tx_cnt++] = r;
        if (is_passed)
            pass[pass_cnt++] = rx[i];
        else
            rte_pktmbuf_free(rx[i]);
    }
    if (pass_cnt > 0) exception_out(t, pass, pass_cnt);
    if (tx_cnt > 0) (void)frames_send(t, tx, tx_cnt, now_ns);
    return cnt;
}

/* --- a turn: out ---------------------------------------------------- */

/* datagram_out lets QUIC write its next datagram straight into an mbuf,
   with the headers before it.  *out is NULL where the link knew no way, or
   holds the datagram until it does.
   0: nothing to send, or no mbuf, which the port counted. */
static int datagram_out(tdm_net_tile_t *t, struct rte_mbuf **out, int64_t now_ns) {
    tdm_datagram_t dg;
    uint32_t header_sz;
    struct rte_mbuf *m = t->spare != NULL ? t->spare : tdm_port_mbuf_alloc(t->c.port);
    t->spare = NULL;
    *out = NULL;
    if (m == NULL) return 0;
    uint8_t *payload = rte_pktmbuf_mtod(m, uint8_t *);
    uint32_t sz = tdm_quic_output(t->quic, payload, rte_pktmbuf_tailroom(m), &dg, now_ns);
    if (sz == 0 ||
        tdm_link_udp_wrap(t->link, &dg.remote, t->c.link.udp_port, dg.ecn, payload, sz, now_ns,
                          &header_sz) != TDM_REASON_NONE ||
        header_sz == 0) {
        t->spare = m;
        return sz != 0;
    }
    rte_pktmbuf_append(m, (uint16_t)sz);
    rte_pktmbuf_prepend(m, (uint16_t)header_sz);
    *out = m;
    return 1;
}

/* burst_out sends what datagram_out wrote.  How long its tokens took from
   their iteration's end to here is measured with a clock of its own. */
static void burst_out(tdm_net_tile_t *t, struct rte_mbuf **tx, uint32_t cnt, int64_t now_ns) {
    if (cnt > 0) (void)frames_send(t, tx, cnt, now_ns);
    if (t->made_cnt == 0) return;
    int64_t sent_ns = tdm_clock_now_ns();
    for (uint32_t i = 0; i < t->made_cnt; i++)
        tdm_observe_ns(t->c.block, TDM_METRIC_wire_seconds, 0, sent_ns - t->made_ns[i]);
    t->made_cnt = 0;
}

static uint32_t datagrams_out(tdm_net_tile_t *t, int64_t now_ns) {
    struct rte_mbuf *tx[TDM_PORT_BURST_MAX], *m;
    uint32_t cnt = 0, tx_cnt = 0;
    while (cnt < OUTPUT_PER_TURN && datagram_out(t, &m, now_ns)) {
        cnt++;
        if (m != NULL) tx[tx_cnt++] = m;
        if (tx_cnt == TDM_PORT_BURST_MAX) {
            burst_out(t, tx, tx_cnt, now_ns);
            tx_cnt = 0;
        }
    }
    burst_out(t, tx, tx_cnt, now_ns);
    return cnt;
}

/* link_out sends what the link has by itself: datagrams that waited for an
   answer, then questions. */
static uint32_t link_out(tdm_net_tile_t *t, int64_t now_ns) {
    uint32_t cnt = 0;
    while (cnt < TDM_LINK_HELD_MAX + TDM_LINK_PENDING_MAX) {
        struct rte_mbuf *m = t->spare != NULL ? t->spare : tdm_port_mbuf_alloc(t->c.port);
        t->spare = NULL;
        if (m == NULL) break;
        uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
        uint32_t cap = rte_pktmbuf_tailroom(m);
        uint32_t sz = tdm_link_release(t->link, frame, cap, now_ns);
        if (sz == 0) sz = tdm_link_solicit(t->link, frame, cap, now_ns);
        if (sz == 0) {
            t->spare = m;
            break;
        }
        rte_pktmbuf_append(m, (uint16_t)sz);
        (void)frames_send(t, &m, 1, now_ns);
        cnt++;
    }
    return cnt;
}

/* --- a turn --------------------------------------------------------- */

uint32_t tdm_net_tile_poll(tdm_net_tile_t *t, int64_t now_ns) {
    if (TDM_UNLIKELY(!t->is_draining && tdm_load_relaxed(&t->is_drain_wanted))) {
        t->is_draining = 1;
        tdm_h3_drain(t->h3);
    }
    uint32_t work = frames_in(t, now_ns);
    if (t->c.exception != NULL) work += exception_in(t, now_ns);
    work += egress_drain(t, now_ns);
    if (TDM_UNLIKELY(t->hangup_due_cnt > 0)) work += hangup_retry(t);
    work += tdm_quic_poll(t->quic, now_ns);
    work += tdm_h3_poll(t->h3, now_ns);
    work += datagrams_out(t, now_ns);
    work += link_out(t, now_ns);
    if (now_ns >= t->publish_ns) {
        t->publish_ns = now_ns + PUBLISH_NS;
        tdm_store_relaxed(&t->is_stuck, is_stuck(t, now_ns));
        tdm_net_tile_publish(t);
    }
    return work;
}

int64_t tdm_net_tile_next_ns(const tdm_net_tile_t *t) {
    int64_t quic_ns = tdm_quic_next_ns(t->quic), h3_ns = tdm_h3_next_ns(t->h3);
    return TDM_MIN(quic_ns, h3_ns);
}

void tdm_net_tile_drain(tdm_net_tile_t *t) {
    tdm_store_relaxed(&t->is_drain_wanted, 1);
}

void tdm_net_tile_farewell(tdm_net_tile_t *t, int64_t now_ns) {
    tdm_h3_cut(t->h3);
    uint32_t turn_max = t->c.quic.connection_max / OUTPUT_PER_TURN + 1;
    for (uint32_t i = 0; i < turn_max && datagrams_out(t, now_ns) > 0; i++) {
    }
}

uint32_t tdm_net_tile_exchange_cnt(const tdm_net_tile_t *t) {
    return tdm_slots_used_cnt(&t->slots);
}
