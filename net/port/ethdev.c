/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds that are DPDK devices: virtual ones, made by name and arguments,
   and one PCI device that EAL found (DPDK Network Interface Controller
   Drivers guide, the chapters on TAP, libpcap, null, AF_PACKET and AF_XDP). */

#include "net/port/port_private.h"

#include "appliance/base/log.h"

#include <errno.h>
#include <net/if.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static tdm_status_t device_probe(tdm_port_t *p, const char *args, tdm_error_t *err) {
    int rc = rte_eal_hotplug_add("vdev", p->vdev_name, args);
    if (rc != 0)
        return tdm_error_set(err, TDM_ERR_IO, "port: %s(%s): %s", p->vdev_name, args,
                             rte_strerror(rc < 0 ? -rc : rte_errno));
    p->is_probed = 1;
    if (rte_eth_dev_get_port_by_name(p->vdev_name, &p->eth_id) != 0)
        return tdm_error_set(err, TDM_ERR_INTERNAL, "port: %s made no device", p->vdev_name);
    return TDM_OK;
}

/* queues_limit takes as many receive queues as asked for and there are. */
static int queues_limit(tdm_port_t *p, struct rte_eth_conf *conf) {
    struct rte_eth_dev_info info;
    int rc = rte_eth_dev_info_get(p->eth_id, &info);
    if (rc != 0 || p->rx_queue_cnt == 1) return rc;
    p->rx_queue_cnt = TDM_MIN(p->rx_queue_cnt, info.max_rx_queues);
    uint64_t hash = info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP);
    if (hash == 0) return 0;
    conf->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    conf->rx_adv_conf.rss_conf.rss_hf = hash;
    return 0;
}

/* device_start configures the queues, without any offload, and starts.
   want_irq: ask for a descriptor to sleep on. */
static tdm_status_t device_start(tdm_port_t *p, int want_irq, tdm_error_t *err) {
    struct rte_eth_conf conf = {.rxmode = {.mtu = p->c.mtu},
                                .intr_conf = {.rxq = want_irq ? 1 : 0}};
    uint16_t rx_desc = p->c.rx_desc, tx_desc = p->c.tx_desc;
    int rc = queues_limit(p, &conf);
    /* Drivers over a kernel interface want as many queues to send. */
    uint16_t tx_cnt = p->is_paired ? p->rx_queue_cnt : 1;
    if (rc == 0) rc = rte_eth_dev_configure(p->eth_id, p->rx_queue_cnt, tx_cnt, &conf);
    if (rc == 0) rc = rte_eth_dev_adjust_nb_rx_tx_desc(p->eth_id, &rx_desc, &tx_desc);
    for (uint16_t q = 0; rc == 0 && q < p->rx_queue_cnt; q++)
        rc = rte_eth_rx_queue_setup(p->eth_id, q, rx_desc, (unsigned)SOCKET_ID_ANY, NULL, p->pool);
    for (uint16_t q = 1; rc == 0 && q < tx_cnt; q++)
        rc = rte_eth_tx_queue_setup(p->eth_id, q, tx_desc, (unsigned)SOCKET_ID_ANY, NULL);
    if (rc == 0) rc = rte_eth_tx_queue_setup(p->eth_id, 0, tx_desc, (unsigned)SOCKET_ID_ANY, NULL);
    if (rc == 0) rc = rte_eth_dev_start(p->eth_id);
    if (rc != 0)
        return tdm_error_set(err, TDM_ERR_IO, "port: %s does not start: %s", p->vdev_name,
                             rte_strerror(-rc));
    p->is_started = 1;
    if (want_irq) p->rx_fd = rte_eth_dev_rx_intr_ctl_q_get_fd(p->eth_id, 0);
    return TDM_OK;
}

static void device_mac(tdm_port_t *p) {
    struct rte_ether_addr mac;
    if (rte_eth_macaddr_get(p->eth_id, &mac) == 0) memcpy(p->mac, mac.addr_bytes, 6);
}

tdm_status_t ethdev_open_null(tdm_port_t *p, tdm_error_t *err) {
    tdm_status_t st = device_probe(p, "", err);
    if (st == TDM_OK) st = device_start(p, 0, err);
    if (st == TDM_OK) device_mac(p);
    return st;
}

tdm_status_t ethdev_open_pcap(tdm_port_t *p, tdm_error_t *err) {
    char args[1024];
    if (p->c.pcap_rx == NULL)
        return tdm_error_set(err, TDM_ERR_INVAL, "port: the pcap kind needs a file to read");
    int n = p->c.pcap_tx != NULL
                ? snprintf(args, sizeof args, "rx_pcap=%s,tx_pcap=%s", p->c.pcap_rx, p->c.pcap_tx)
                : snprintf(args, sizeof args, "rx_pcap=%s", p->c.pcap_rx);
    if (n < 0 || (size_t)n >= sizeof args)
        return tdm_error_set(err, TDM_ERR_LIMIT, "port: pcap file names are too long");
    tdm_status_t st = device_probe(p, args, err);
    if (st == TDM_OK) st = device_start(p, 0, err);
    if (st == TDM_OK) device_mac(p);
    return st;
}

/* The two stations of a TAP's private cable: the kernel's interface, and
   us.  Locally administered addresses (IEEE 802, second bit). */
#define TAP_KERNEL_MAC "02:74:64:6d:00:01"
static const uint8_t tap_our_mac[6] = {0x02, 't', 'd', 'm', 0, 2};

tdm_status_t ethdev_open_tap(tdm_port_t *p, tdm_error_t *err) {
    tap_address_t a4, a6;
    tdm_status_t st = tap_address_parse(p->c.tap_ipv4, AF_INET, &a4, err);
    if (st == TDM_OK) st = tap_address_parse(p->c.tap_ipv6, AF_INET6, &a6, err);
    if (st == TDM_OK) st = tap_check(p->c.tap_name, &a4, &a6, err);
    if (st != TDM_OK) return st;

    char args[96];
    char mac[18] = TAP_KERNEL_MAC;
    static const uint8_t zeros[6];
    const uint8_t *k = p->c.tap_mac;
    if (memcmp(k, zeros, 6) != 0)
        snprintf(mac, sizeof mac, "%02x:%02x:%02x:%02x:%02x:%02x", k[0], k[1], k[2], k[3], k[4],
                 k[5]);
    snprintf(args, sizeof args, "iface=%s,mac=%s", p->c.tap_name, mac);
    st = device_probe(p, args, err);
    if (st == TDM_OK) st = device_start(p, 1, err);
    if (st != TDM_OK) return st;
    if (rte_eth_dev_set_mtu(p->eth_id, p->c.mtu) != 0)
        return tdm_error_set(err, TDM_ERR_IO, "port: %s takes no mtu of %u", p->c.tap_name,
                             p->c.mtu);
    memcpy(p->mac, tap_our_mac, 6);
    if (a4.family != 0) st = tap_address_set(p->c.tap_name, &a4, err);
    if (st == TDM_OK && a6.family != 0) st = tap_address_set(p->c.tap_name, &a6, err);
    return st;
}

/* --- interfaces that exist ------------------------------------------ */

/* Memory of an af_packet ring each way: 8192 slots at the common size,
   enough for a burst of 5,000 datagrams (with the driver's own 512 two
   thirds of that were lost, and not counted). */
#define RING_SZ (16u << 20)

tdm_status_t ethdev_open_af_packet(tdm_port_t *p, tdm_error_t *err) {
    tdm_status_t st = netdev_take(p->c.device, p->c.mtu, err);
    if (st != TDM_OK) return st;
    char args[160];
    uint32_t slot = port_frame_room(p->c.mtu), block = TDM_MAX(slot, 65536u);
    snprintf(args, sizeof args, "iface=%s,blocksz=%u,framesz=%u,framecnt=%u,qpairs=%u", p->c.device,
             block, slot, RING_SZ / slot, p->rx_queue_cnt);
    p->is_paired = 1;
    st = device_probe(p, args, err);
    if (st == TDM_OK) st = device_start(p, 0, err);
    if (st == TDM_OK) device_mac(p);
    return st;
}

tdm_status_t ethdev_open_af_xdp(tdm_port_t *p, tdm_error_t *err) {
    tdm_status_t st = netdev_take(p->c.device, p->c.mtu, err);
    if (st != TDM_OK) return st;
    /* What a killed process left: its map leads nowhere now. */
    int rc = netlink_xdp_detach(if_nametoindex(p->c.device));
    if (rc != 0)
        return tdm_error_set(err, rc == EPERM ? TDM_ERR_PERM : TDM_ERR_UNSUPPORTED,
                             "port: %s takes no XDP program: %s; af_xdp needs root", p->c.device,
                             strerror(rc));
    char args[96];
    snprintf(args, sizeof args, "iface=%s,start_queue=0,queue_count=%u,busy_budget=0", p->c.device,
             p->rx_queue_cnt);
    p->is_paired = 1;
    int before[XDP_SOCKET_MAX];
    uint32_t before_cnt = xdp_sockets(before, TDM_COUNT_OF(before));
    st = device_probe(p, args, err);
    if (st == TDM_OK) st = device_start(p, 0, err);
    if (st == TDM_OK) device_mac(p);
    if (st == TDM_OK) xdp_found(p, before, before_cnt);
    /* The driver's fill ring is never emptied, nor the last sent frames
       fetched: they die with the pool. */
    if (st == TDM_OK) p->kept = rte_mempool_in_use_count(p->pool) + p->c.tx_desc;
    return st;
}

/* A PCI device was found by EAL, or it was not: see tdm_port_env_config. */
tdm_status_t ethdev_open_pci(tdm_port_t *p, tdm_error_t *err) {
    if (rte_eth_dev_get_port_by_name(p->c.device, &p->eth_id) != 0)
        return tdm_error_set(err, TDM_ERR_NOT_FOUND,
                             "port: no driver of DPDK took the PCI device \"%s\"; bind it to "
                             "vfio-pci (systemctl start tandem-nic@%s)",
                             p->c.device, p->c.device);
    p->is_found = 1;
    tdm_status_t st = device_start(p, 0, err);
    if (st != TDM_OK) return st;
    device_mac(p);
    /* IPv6 neighbours ask a group; without the filter every group comes. */
    if (rte_eth_allmulticast_enable(p->eth_id) != 0)
        tdm_log(TDM_LOG_WARN, "port",
                "%s does not take all groups: IPv6 neighbours may not find us", p->c.device);
    return TDM_OK;
}

int ethdev_is_up_tap(tdm_port_t *p) {
    return netdev_is_up(p->c.tap_name);
}

int ethdev_is_up_netdev(tdm_port_t *p) {
    return netdev_is_up(p->c.device);
}

int ethdev_is_up_pci(tdm_port_t *p) {
    struct rte_eth_link link = {0};
    return rte_eth_link_get_nowait(p->eth_id, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

/* --- all of them ---------------------------------------------------- */

void ethdev_close(tdm_port_t *p) {
    xdp_forget(p);
    if (p->is_started) (void)rte_eth_dev_stop(p->eth_id);
    if (p->is_probed || p->is_found) (void)rte_eth_dev_close(p->eth_id);
    if (p->is_probed) (void)rte_eal_hotplug_remove("vdev", p->vdev_name);
    p->is_found = 0;
    p->is_started = p->is_probed = 0;
}

uint32_t ethdev_rx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt) {
    uint32_t got = 0;
    for (uint32_t n = 0; n < p->rx_queue_cnt && got < cnt; n++) {
        uint16_t q = p->rx_queue;
        p->rx_queue = (uint16_t)(q + 1u == p->rx_queue_cnt ? 0 : q + 1u);
        got += rte_eth_rx_burst(p->eth_id, q, m + got, (uint16_t)(cnt - got));
    }
    return got;
}

uint32_t ethdev_tx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt) {
    return rte_eth_tx_burst(p->eth_id, 0, m, (uint16_t)cnt);
}

void ethdev_stats(tdm_port_t *p, tdm_port_stats_t *out) {
    struct rte_eth_stats s;
    if (rte_eth_stats_get(p->eth_id, &s) != 0) return;
    out->nic_missed = s.imissed;
    out->nic_error = s.ierrors;
    out->no_mbuf = s.rx_nombuf;
    xdp_stats(p, out);
}
