/* SPDX-License-Identifier: Apache-2.0 */
#include "net/port/port_private.h"

#include "appliance/base/size.h"

#include <rte_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(TDM_PORT_HEADROOM == RTE_PKTMBUF_HEADROOM, "headroom is a build option of DPDK");

/* How often a full transmit queue is asked again for one burst.  A
   device frees descriptors within microseconds; more attempts would only
   hold up the receive side.  A guess, not a measurement. */
#define TX_ATTEMPT_MAX 8u

/* Buffers that the af_xdp driver lends the kernel for each receive queue,
   whatever was asked for (DPDK 22.11, ETH_AF_XDP_DFLT_NUM_DESCS). */
#define XDP_FILL 2048u

static const port_ops_t kind_ops[TDM_PORT_KIND_CNT] = {
    [TDM_PORT_TAP] = {"tap", ethdev_open_tap, ethdev_close, ethdev_rx, ethdev_tx, ethdev_stats,
                      ethdev_is_up_tap},
    [TDM_PORT_PCAP] = {"pcap", ethdev_open_pcap, ethdev_close, ethdev_rx, ethdev_tx, ethdev_stats,
                       NULL},
    [TDM_PORT_WIRE] = {"wire", wire_open, wire_close, wire_rx, wire_tx, wire_stats, NULL},
    [TDM_PORT_NULL] = {"null", ethdev_open_null, ethdev_close, ethdev_rx, ethdev_tx, ethdev_stats,
                       NULL},
    [TDM_PORT_AF_PACKET] = {"af_packet", ethdev_open_af_packet, ethdev_close, ethdev_rx, ethdev_tx,
                            ethdev_stats, ethdev_is_up_netdev},
    [TDM_PORT_AF_XDP] = {"af_xdp", ethdev_open_af_xdp, ethdev_close, ethdev_rx, ethdev_tx,
                         ethdev_stats, ethdev_is_up_netdev},
    [TDM_PORT_PCI] = {"pci", ethdev_open_pci, ethdev_close, ethdev_rx, ethdev_tx, ethdev_stats,
                      ethdev_is_up_pci},
    [TDM_PORT_CHAOS] = {"chaos", chaos_open, chaos_close, chaos_rx, chaos_tx, chaos_stats, NULL},
};

const char *tdm_port_kind_name(tdm_port_kind_t kind) {
    return (unsigned)kind < TDM_PORT_KIND_CNT ? kind_ops[kind].name : "unknown";
}

tdm_status_t tdm_port_kind_parse(const char *name, tdm_port_kind_t *out) {
    for (unsigned i = 0; i < TDM_PORT_KIND_CNT; i++) {
        if (strcmp(kind_ops[i].name, name) != 0) continue;
        *out = (tdm_port_kind_t)i;
        return TDM_OK;
    }
    return TDM_ERR_NOT_FOUND;
}

/* is_umem asks whether the kernel takes the pool as AF_XDP memory. */
static int is_umem(const tdm_port_config_t *c) {
    return c->kind == TDM_PORT_AF_XDP ||
           (c->kind == TDM_PORT_CHAOS && c->chaos.under == TDM_PORT_AF_XDP);
}

/* mbuf_least: buffers without which a port of this kind starves. */
static uint32_t mbuf_least(const tdm_port_config_t *c) {
    uint32_t queues = TDM_MAX(c->rx_queues, (uint16_t)1), bursts = 2 * TDM_PORT_BURST_MAX;
    if (!is_umem(c)) return queues * c->rx_desc + c->tx_desc + bursts;
    /* Each queue keeps XDP_FILL buffers with the kernel; its transmit ring
       is as long as the receive ring asked for (DPDK 22.11, xsk_configure),
       and as many again may wait to be fetched back. */
    return queues * (XDP_FILL + 2u * c->rx_desc) + bursts;
}

static tdm_status_t config_check(const tdm_port_config_t *c, tdm_error_t *err) {
    if ((unsigned)c->kind >= TDM_PORT_KIND_CNT)
        return tdm_error_set(err, TDM_ERR_INVAL, "port: unknown kind %d", (int)c->kind);
    if (c->kind == TDM_PORT_CHAOS && (unsigned)c->chaos.under >= TDM_PORT_CHAOS)
        return tdm_error_set(err, TDM_ERR_INVAL, "port: chaos over kind %d", (int)c->chaos.under);
    if (c->mtu < 1280 || c->mtu > 9000)
        return tdm_error_set(err, TDM_ERR_INVAL, "port: mtu %u is outside 1280..9000", c->mtu);
    if (c->rx_desc < 32 || c->tx_desc < 32 || c->rx_desc > 4096 || c->tx_desc > 4096)
        return tdm_error_set(err, TDM_ERR_INVAL, "port: %u and %u descriptors, outside 32..4096",
                             c->rx_desc, c->tx_desc);
    uint32_t queues = TDM_MAX(c->rx_queues, (uint16_t)1);
    if (queues > TDM_PORT_RX_QUEUE_MAX)
        return tdm_error_set(err, TDM_ERR_INVAL, "port: %u receive queues, over %u", queues,
                             TDM_PORT_RX_QUEUE_MAX);
    uint32_t least = mbuf_least(c);
    if (c->mbuf_cnt < least || c->mbuf_cnt > 1u << 20)
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "port: %u packet buffers, outside %u..%u for %s (port.mbufs)",
                             c->mbuf_cnt, least, 1u << 20, tdm_port_kind_name(c->kind));
    return TDM_OK;
}

uint32_t port_frame_room(uint16_t mtu) {
    uint32_t room = 2048;
    while (room < mtu + 128u) room *= 2;
    return room;
}

/* pool_fill gives the pool its memory.  An af_xdp driver tells the kernel
   that the pool is one area of buffers times their size (DPDK 22.11,
   xdp_umem_configure).  Where objects may not cross a page, which is the
   default for devices that need physical addresses, each page ends in a
   gap, and the last buffers lie behind that area: the kernel then throws a
   fill entry away and stops sending at a transmit entry, once each.  So
   there the objects lie without gaps, and in one piece. */
static tdm_status_t pool_fill(tdm_port_t *p, tdm_error_t *err) {
    struct rte_mempool *mp = p->pool;
    if (rte_mempool_populate_default(mp) < (int)mp->size)
        return tdm_error_set(err, TDM_ERR_NOMEM, "port: no memory for %u packet buffers: %s",
                             p->c.mbuf_cnt, rte_strerror(rte_errno));
    if (is_umem(&p->c) && mp->nb_mem_chunks != 1)
        return tdm_error_set(err, TDM_ERR_NOMEM,
                             "port: the memory of %u packet buffers lies in %u pieces, af_xdp "
                             "takes one",
                             p->c.mbuf_cnt, mp->nb_mem_chunks);
    rte_mempool_obj_iter(mp, rte_pktmbuf_init, NULL);
    return TDM_OK;
}

static tdm_status_t pool_make(tdm_port_t *p, tdm_error_t *err) {
    uint32_t room = TDM_PORT_HEADROOM + port_frame_room(p->c.mtu);
    struct rte_pktmbuf_pool_private priv = {.mbuf_data_room_size = (uint16_t)room};
    char name[RTE_MEMPOOL_NAMESIZE];
    snprintf(name, sizeof name, "packets-%.16s", p->vdev_name);
    p->pool = rte_mempool_create_empty(
        name, p->c.mbuf_cnt, (uint32_t)sizeof(struct rte_mbuf) + room, 0, sizeof priv,
        SOCKET_ID_ANY, is_umem(&p->c) ? RTE_MEMPOOL_F_NO_IOVA_CONTIG : 0);
    /* One tile takes and gives; before it runs, main alone does. */
    if (p->pool == NULL || rte_mempool_set_ops_byname(p->pool, "ring_sp_sc", NULL) != 0)
        return tdm_error_set(err, TDM_ERR_NOMEM, "port: no memory for %u packet buffers: %s",
                             p->c.mbuf_cnt, rte_strerror(rte_errno));
    rte_pktmbuf_pool_init(p->pool, &priv);
    return pool_fill(p, err);
}

tdm_status_t tdm_port_open(const tdm_port_config_t *config, tdm_port_t **out, tdm_error_t *err) {
    static unsigned opened; /* device names of one process differ */
    tdm_status_t st = config_check(config, err);
    if (st != TDM_OK) return st;
    tdm_port_t *p = calloc(1, sizeof *p);
    if (p == NULL) return tdm_error_set(err, TDM_ERR_NOMEM, "port: out of memory");
    p->c = *config;
    p->ops = &kind_ops[config->kind];
    p->rx_fd = p->xdp_epoll = -1;
    p->rx_queue_cnt = TDM_MAX(config->rx_queues, (uint16_t)1);
    if (config->kind == TDM_PORT_CHAOS) p->under = &kind_ops[config->chaos.under];
    const port_ops_t *device = p->under != NULL ? p->under : p->ops;
    snprintf(p->vdev_name, sizeof p->vdev_name, "net_%s%u", device->name, opened++);
    st = pool_make(p, err);
    if (st == TDM_OK) st = p->ops->open(p, err);
    if (st != TDM_OK) {
        tdm_port_close(p);
        return st;
    }
    p->n.mbuf_cnt = config->mbuf_cnt;
    *out = p;
    return TDM_OK;
}

uint32_t tdm_port_close(tdm_port_t *p) {
    if (p == NULL) return 0;
    p->ops->close(p);
    uint32_t used = p->pool != NULL ? rte_mempool_in_use_count(p->pool) : 0;
    uint32_t leaked = used > p->kept ? used - p->kept : 0;
    rte_mempool_free(p->pool);
    free(p);
    return leaked;
}

void tdm_port_mac(const tdm_port_t *p, uint8_t mac[6]) {
    memcpy(mac, p->mac, 6);
}

int tdm_port_rx_fd(const tdm_port_t *p) {
    return p->rx_fd;
}

int tdm_port_is_up(tdm_port_t *p) {
    const port_ops_t *device = p->under != NULL ? p->under : p->ops;
    return device->is_up == NULL || device->is_up(p);
}

/* --- hot path ------------------------------------------------------- */

static uint64_t bytes_of(struct rte_mbuf *const *m, uint32_t cnt) {
    uint64_t sz = 0;
    for (uint32_t i = 0; i < cnt; i++) sz += rte_pktmbuf_pkt_len(m[i]);
    return sz;
}

uint32_t tdm_port_rx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt) {
    uint32_t got = p->ops->rx(p, m, TDM_MIN(cnt, TDM_PORT_BURST_MAX));
    p->n.rx_frames += got;
    p->n.rx_bytes += bytes_of(m, got);
    return got;
}

uint32_t tdm_port_tx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt) {
    uint32_t sent = 0;
    for (uint32_t attempt = 0; sent < cnt && attempt < TX_ATTEMPT_MAX; attempt++) {
        uint32_t offer = TDM_MIN(cnt - sent, TDM_PORT_BURST_MAX);
        /* The device may free what it takes: bytes are counted before,
           and those that stayed ours taken off again. */
        p->n.tx_bytes += bytes_of(m + sent, offer);
        uint32_t taken = p->ops->tx(p, m + sent, offer);
        p->n.tx_bytes -= bytes_of(m + sent + taken, offer - taken);
        sent += taken;
        if (taken > 0) attempt = 0;
    }
    for (uint32_t i = sent; i < cnt; i++) rte_pktmbuf_free(m[i]);
    p->n.tx_frames += sent;
    p->n.tx_full += cnt - sent;
    return sent;
}

struct rte_mbuf *tdm_port_mbuf_alloc(tdm_port_t *p) {
    struct rte_mbuf *m = rte_pktmbuf_alloc(p->pool);
    p->n.tx_no_mbuf += m == NULL;
    return m;
}

void tdm_port_stats_read(tdm_port_t *p, tdm_port_stats_t *out) {
    p->ops->stats(p, &p->n);
    p->n.mbuf_used = rte_mempool_in_use_count(p->pool);
    *out = p->n;
}
