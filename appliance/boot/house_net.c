/* SPDX-License-Identifier: Apache-2.0 */
/* The way to the network: certificate, DPDK's environment and ports, and
   what the net tile is told. */
#include "appliance/boot/house_private.h"

#include "appliance/base/cidr.h"
#include "appliance/base/clock.h"
#include "appliance/base/log.h"
#include "net/quic/cert.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#define NEIGHBOURS     256u
#define REPLIES_PER_S  1000u
#define SOLICITS_PER_S 50u

/* Exchanges kept for GET /health and /ready.  Each is taken for as long as the
   api tile needs for its answer, and of /health one in 50 ms is. */
#define VITAL_MAX 8u

/* address_of copies what stands before the slash, or all. */
static void address_of(const char *cidr, char *out, size_t out_sz) {
    (void)snprintf(out, out_sz, "%.*s", (int)strcspn(cidr, "/"), cidr);
}

/* --- certificate ----------------------------------------------------- */

static tdm_status_t open_certificate(tdm_house_t *h, tdm_error_t *err) {
    const tdm_config_t *c = h->config;
    if (c->quic_certificate[0]) {
        (void)snprintf(h->cert_file, sizeof h->cert_file, "%s", c->quic_certificate);
        (void)snprintf(h->key_file, sizeof h->key_file, "%s", c->quic_key);
    } else {
        if (mkdir(c->state_dir, 0755) != 0 && errno != EEXIST)
            return tdm_error_set(err, TDM_ERR_IO, "state.dir %s: %s", c->state_dir,
                                 strerror(errno));
        (void)snprintf(h->cert_file, sizeof h->cert_file, "%s/certificate.pem", c->state_dir);
        (void)snprintf(h->key_file, sizeof h->key_file, "%s/key.pem", c->state_dir);
    }
    char ipv4[32], ipv6[64];
    address_of(c->port_ipv4, ipv4, sizeof ipv4);
    address_of(c->port_ipv6, ipv6, sizeof ipv6);
    tdm_cert_config_t cert = {
        .cert_file = h->cert_file,
        .key_file = h->key_file,
        .name = {c->quic_host},
        .name_cnt = 1,
        .wall_s = tdm_clock_wall_s(),
    };
    if (ipv4[0]) cert.name[cert.name_cnt++] = ipv4;
    if (ipv6[0]) cert.name[cert.name_cnt++] = ipv6;
    int is_made = 0;
    tdm_status_t st = tdm_cert_ensure(&cert, &is_made, err);
    if (st == TDM_OK && is_made)
        tdm_log(TDM_LOG_INFO, "boot", "made a certificate: %s", h->cert_file);
    return st;
}

/* --- port ------------------------------------------------ */

static tdm_port_kind_t port_kind(const tdm_config_t *c) {
    switch (c->port_kind) {
    case TDM_HOUSE_PORT_AF_PACKET: return TDM_PORT_AF_PACKET;
    case TDM_HOUSE_PORT_AF_XDP: return TDM_PORT_AF_XDP;
    case TDM_HOUSE_PORT_PCI: return TDM_PORT_PCI;
    default: return TDM_PORT_TAP;
    }
}

/* open_exception makes the TAP of the kernel, with the data port's station
   address. */
static tdm_status_t open_exception(tdm_house_t *h, tdm_port_config_t port, tdm_error_t *err) {
    const tdm_config_t *c = h->config;
    if (c->port_exception[0] == 0) return TDM_OK;
    if (port.kind == TDM_PORT_TAP)
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "port.exception: a TAP port is the kernel's already");
    port.kind = TDM_PORT_TAP;
    port.rx_queues = 1;
    (void)snprintf(port.tap_name, sizeof port.tap_name, "%s", c->port_exception);
    (void)snprintf(port.tap_ipv4, sizeof port.tap_ipv4, "%s", c->port_exception_ipv4);
    port.tap_ipv6[0] = 0;
    tdm_port_mac(h->port, port.tap_mac);
    return tdm_port_open(&port, &h->exception, err);
}

static tdm_status_t open_port(tdm_house_t *h, tdm_error_t *err) {
    const tdm_config_t *c = h->config;
    uint32_t memory_mb = tdm_port_memory_mb((uint32_t)c->port_mbufs, (uint16_t)c->port_mtu_bytes);
    /* Without an address DPDK would take every device that it finds. */
    if (c->port_kind != TDM_HOUSE_PORT_TAP && c->port_device[0] == 0)
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "port.device is empty: this port.kind needs an interface or a PCI "
                             "address");
    tdm_port_env_config_t env = {
        .memory_mb = c->port_exception[0] ? 2 * memory_mb : memory_mb,
        .pci = c->port_kind == TDM_HOUSE_PORT_PCI ? c->port_device : NULL,
        .is_no_huge = (uint8_t)c->port_no_huge,
        .drivers = c->port_drivers[0] ? c->port_drivers : NULL,
        .is_debug = c->log_level == TDM_LOG_DEBUG,
        .is_told = (uint8_t)c->port_telemetry,
    };
    tdm_status_t st = tdm_port_env_start(&env, err);
    if (st != TDM_OK) return st;
    h->has_env = 1;
    tdm_port_config_t port = {.kind = port_kind(c),
                              .mtu = (uint16_t)c->port_mtu_bytes,
                              .rx_desc = 512,
                              .tx_desc = 512,
                              .rx_queues = (uint16_t)c->port_rx_queues,
                              .mbuf_cnt = (uint32_t)c->port_mbufs};
    (void)snprintf(port.tap_name, sizeof port.tap_name, "%s", c->port_tap_name);
    (void)snprintf(port.tap_ipv4, sizeof port.tap_ipv4, "%s", c->port_tap_ipv4);
    (void)snprintf(port.tap_ipv6, sizeof port.tap_ipv6, "%s", c->port_tap_ipv6);
    (void)snprintf(port.device, sizeof port.device, "%s", c->port_device);
    st = tdm_port_open(&port, &h->port, err);
    return st == TDM_OK ? open_exception(h, port, err) : st;
}

/* --- net tile ---------------------------------------------------------- */

static tdm_status_t prefix_check(const tdm_link_config_t *l, tdm_error_t *err) {
    if (l->has_ipv4 && l->ipv4_prefix == 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "port.ipv4: needs its /prefix on this port.kind");
    if (l->has_ipv6 && l->ipv6_prefix == 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "port.ipv6: needs its /prefix on this port.kind");
    return TDM_OK;
}

/* side_check: behind a TAP our address is another one of the subnet that
   the kernel's side, cidr, names; any other would be reached by nobody. */
static tdm_status_t side_check(const char *key, const char *cidr, int family, const uint8_t *own,
                               uint8_t *prefix, tdm_error_t *err) {
    uint8_t kernel[16] = {0};
    uint32_t bits = family == AF_INET ? 32 : 128, same = 0;
    tdm_status_t st = tdm_cidr_read("port", cidr, family, kernel, prefix, err);
    if (st != TDM_OK) return st;
    while (same < bits && !((kernel[same / 8] ^ own[same / 8]) >> (7 - same % 8) & 1)) same++;
    if (same >= *prefix && same < bits) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_INVAL, "%s: not another address of the kernel's side, %s",
                         key, cidr);
}

static tdm_status_t link_config(tdm_house_t *h, tdm_link_config_t *l, uint64_t seed,
                                tdm_error_t *err) {
    const tdm_config_t *c = h->config;
    int is_tap = c->port_kind == TDM_HOUSE_PORT_TAP;
    const char *net4 = is_tap ? c->port_tap_ipv4 : c->port_ipv4;
    const char *net6 = is_tap ? c->port_tap_ipv6 : c->port_ipv6;
    *l = (tdm_link_config_t){
        .mtu = (uint16_t)c->port_mtu_bytes,
        .vlan = (uint16_t)c->port_vlan,
        .udp_port = (uint16_t)c->port_udp,
        .has_ipv4 = net4[0] != 0,
        .has_ipv6 = net6[0] != 0,
        .neighbour_max = NEIGHBOURS,
        .reply_per_s = REPLIES_PER_S,
        .solicit_per_s = SOLICITS_PER_S,
        .seed = seed,
    };
    tdm_port_mac(h->port, l->mac);
    uint8_t none;
    tdm_status_t st =
        tdm_cidr_read("port.ipv4", c->port_ipv4, AF_INET, l->ipv4, &l->ipv4_prefix, err);
    if (st == TDM_OK)
        st = tdm_cidr_read("port.ipv6", c->port_ipv6, AF_INET6, l->ipv6, &l->ipv6_prefix, err);
    if (st == TDM_OK)
        st = tdm_cidr_read("port.gateway4", c->port_gateway4, AF_INET, l->gateway4, &none, err);
    if (st == TDM_OK)
        st = tdm_cidr_read("port.gateway6", c->port_gateway6, AF_INET6, l->gateway6, &none, err);
    if (st == TDM_OK && is_tap && l->has_ipv4)
        st = side_check("port.ipv4", net4, AF_INET, l->ipv4, &l->ipv4_prefix, err);
    if (st == TDM_OK && is_tap && l->has_ipv6)
        st = side_check("port.ipv6", net6, AF_INET6, l->ipv6, &l->ipv6_prefix, err);
    return st == TDM_OK ? prefix_check(l, err) : st;
}

static void quic_config(tdm_house_t *h, tdm_quic_config_t *q, uint64_t seed) {
    const tdm_config_t *c = h->config;
    uint64_t pool_sz = c->quic_pool_mib << 20;
    *q = (tdm_quic_config_t){
        .connection_max = (uint32_t)c->quic_connections,
        .stream_max = (uint32_t)c->quic_streams,
        .pool_sz = pool_sz,
        .connection_pool_sz =
            TDM_MIN(pool_sz / 4, (UINT64_C(256) + UINT64_C(32) * c->quic_streams) << 10),
        .datagram_max = (uint16_t)TDM_MIN(c->port_mtu_bytes - 48, (uint64_t)TDM_QUIC_DATAGRAM_MAX),
        .handshake_per_s = (uint32_t)c->quic_handshakes_per_s,
        .handshake_per_s_source = (uint32_t)c->quic_source_handshakes_per_s,
        .half_open_max = (uint32_t)c->quic_half_open,
        .is_retry_always = c->quic_retry == TDM_HOUSE_RETRY_ALWAYS,
        .handshake_timeout_ns = (int64_t)c->quic_handshake_ms * TDM_NS_PER_MS,
        .idle_timeout_ns = (int64_t)c->quic_idle_ms * TDM_NS_PER_MS,
        .cert_file = h->cert_file,
        .key_file = h->key_file,
        .seed = seed,
    };
    if (c->quic_retry == TDM_HOUSE_RETRY_NEVER) return;
    q->retry_half_open = (uint32_t)c->quic_retry_half_open;
    q->retry_per_s = (uint32_t)c->quic_retry_per_s;
}

static tdm_status_t net_config(tdm_house_t *h, tdm_net_tile_config_t *n, tdm_error_t *err) {
    const tdm_config_t *c = h->config;
    uint64_t seed[3] = {1, 2, 3};
    (void)!getrandom(seed, sizeof seed, 0);
    *n = (tdm_net_tile_config_t){
        .door = 0,
        .api_cnt = (uint16_t)h->wires.api_cnt,
        /* A TAP's subnet is this machine; a real one is anybody. */
        .is_subnet_trusted = c->port_kind == TDM_HOUSE_PORT_TAP,
        .exchange_max = (uint32_t)c->door_exchanges,
        .reserve_cnt = (uint32_t)TDM_MIN(c->door_exchanges / 8, VITAL_MAX),
        .pipe_sz = (uint32_t)c->door_reply_bytes,
        .body_max = c->door_body_bytes,
        .port = h->port,
        .exception = h->exception,
        .h3 = {.stream_max =
                   (uint32_t)TDM_MIN(c->quic_connections * c->quic_streams, 2 * c->door_exchanges),
               .seed = seed[2]},
        .egress = &h->wires.egress[0],
        .block = h->wires.block[TDM_BLOCK_NET],
    };
    for (uint32_t k = 0; k < h->wires.api_cnt; k++) {
        n->arrivals[k] = &h->wires.arrivals[k];
        n->hangups[k] = &h->wires.hangups[k];
    }
    quic_config(h, &n->quic, seed[0]);
    return link_config(h, &n->link, seed[1], err);
}

tdm_status_t tdm_house_open_net(tdm_house_t *h, tdm_net_tile_config_t *n, tdm_error_t *err) {
    tdm_status_t st = open_certificate(h, err);
    if (st == TDM_OK) st = open_port(h, err);
    return st == TDM_OK ? net_config(h, n, err) : st;
}

void tdm_house_say_port(const tdm_house_t *h) {
    const tdm_config_t *c = h->config;
    int is_tap = c->port_kind == TDM_HOUSE_PORT_TAP;
    char ipv4[32];
    address_of(c->port_ipv4, ipv4, sizeof ipv4);
    tdm_log(TDM_LOG_INFO, "port", "%s %s: https://%s:%llu over HTTP/3",
            tdm_port_kind_name(port_kind(c)), is_tap ? c->port_tap_name : c->port_device, ipv4,
            (unsigned long long)c->port_udp);
}

void tdm_house_close_net(tdm_house_t *h) {
    tdm_net_tile_destroy(h->net);
    if (h->port && tdm_port_close(h->port) != 0)
        tdm_log(TDM_LOG_WARN, "port", "packet buffers were not all given back");
    if (tdm_port_close(h->exception) != 0)
        tdm_log(TDM_LOG_WARN, "port", "the kernel's packet buffers were not all given back");
    if (h->has_env) tdm_port_env_stop();
}
