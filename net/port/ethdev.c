/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds that are DPDK virtual devices: made by name and arguments, one
   queue each way (DPDK Network Interface Controller Drivers guide, the
   chapters on TAP, libpcap and null). */

#include "net/port/port_private.h"

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

/* device_start configures one queue each way, without any offload, and
   starts.  want_irq: ask for a descriptor to sleep on. */
static tdm_status_t device_start(tdm_port_t *p, int want_irq, tdm_error_t *err) {
    struct rte_eth_conf conf = {.rxmode = {.mtu = p->c.mtu},
                                .intr_conf = {.rxq = want_irq ? 1 : 0}};
    uint16_t rx_desc = p->c.rx_desc, tx_desc = p->c.tx_desc;
    int rc = rte_eth_dev_configure(p->eth_id, 1, 1, &conf);
    if (rc == 0) rc = rte_eth_dev_adjust_nb_rx_tx_desc(p->eth_id, &rx_desc, &tx_desc);
    if (rc == 0)
        rc = rte_eth_rx_queue_setup(p->eth_id, 0, rx_desc, (unsigned)SOCKET_ID_ANY, NULL, p->pool);
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
    snprintf(args, sizeof args, "iface=%s,mac=%s", p->c.tap_name, TAP_KERNEL_MAC);
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

void ethdev_close(tdm_port_t *p) {
    if (p->is_started) (void)rte_eth_dev_stop(p->eth_id);
    if (p->is_probed) {
        (void)rte_eth_dev_close(p->eth_id);
        (void)rte_eal_hotplug_remove("vdev", p->vdev_name);
    }
    p->is_started = p->is_probed = 0;
}

uint32_t ethdev_rx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt) {
    return rte_eth_rx_burst(p->eth_id, 0, m, (uint16_t)cnt);
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
}
