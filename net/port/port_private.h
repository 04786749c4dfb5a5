/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_PORT_PORT_PRIVATE_H
#define TDM_NET_PORT_PORT_PRIVATE_H

/* What the files of net/port share: the port, its kind's row of calls,
   and the kernel side of a TAP. */

#include "net/port/port.h"

#include <rte_mbuf.h>
#include <rte_mempool.h>

/* Frames that wait on one direction of a wire. */
#define WIRE_DEPTH 256u

typedef struct wire_fifo {
    struct rte_mbuf *m[WIRE_DEPTH];
    uint32_t head; /* next to write */
    uint32_t tail; /* next to read; head - tail wait */
} wire_fifo_t;

/* One row per kind: what differs between them. */
typedef struct port_ops {
    const char *name;
    tdm_status_t (*open)(tdm_port_t *p, tdm_error_t *err);
    void (*close)(tdm_port_t *p);
    uint32_t (*rx)(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt);
    uint32_t (*tx)(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt);
    /* Fills nic_missed, nic_error and no_mbuf. */
    void (*stats)(tdm_port_t *p, tdm_port_stats_t *out);
    /* NULL: always up. */
    int (*is_up)(tdm_port_t *p);
} port_ops_t;

typedef struct chaos chaos_t;

struct tdm_port {
    const port_ops_t *ops;
    const port_ops_t *under; /* chaos: of the kind below */
    chaos_t *chaos;
    tdm_port_config_t c;
    struct rte_mempool *pool;
    uint8_t mac[6];
    uint16_t eth_id;
    uint16_t rx_queue_cnt;
    uint16_t rx_queue; /* the next to poll */
    int is_probed;     /* the vdev exists */
    int is_found;      /* the PCI device is ours */
    int is_paired;     /* as many queues to send as to receive */
    uint32_t kept;     /* buffers that the driver never gives back */
    int is_started;
    int rx_fd;
    int xdp_fd[TDM_PORT_RX_QUEUE_MAX]; /* af_xdp: the driver's sockets */
    uint32_t xdp_cnt;
    int xdp_epoll; /* over several of them; -1: none */
    char vdev_name[32];
    tdm_port_stats_t n;
    wire_fifo_t to_port;
    wire_fifo_t from_port;
};

/* --- ethdev.c: kinds that are DPDK devices -------------------------- */

/* The calls of port_ops_t.  Each open makes or finds the device and starts
   it; close is allowed after an open that failed half way.  rx and tx give
   how many were moved, cnt at most: what tx does not take stays the
   caller's.  Net tile only, but for is_up. */
tdm_status_t ethdev_open_pcap(tdm_port_t *p, tdm_error_t *err);
tdm_status_t ethdev_open_null(tdm_port_t *p, tdm_error_t *err);
tdm_status_t ethdev_open_tap(tdm_port_t *p, tdm_error_t *err);
tdm_status_t ethdev_open_af_packet(tdm_port_t *p, tdm_error_t *err);
tdm_status_t ethdev_open_af_xdp(tdm_port_t *p, tdm_error_t *err);
tdm_status_t ethdev_open_pci(tdm_port_t *p, tdm_error_t *err);
int ethdev_is_up_tap(tdm_port_t *p);
int ethdev_is_up_netdev(tdm_port_t *p);
int ethdev_is_up_pci(tdm_port_t *p);
void ethdev_close(tdm_port_t *p);
uint32_t ethdev_rx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt);
uint32_t ethdev_tx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt);
void ethdev_stats(tdm_port_t *p, tdm_port_stats_t *out);

/* --- xdp.c: the sockets of an af_xdp port ---------------------------- */

#define XDP_SOCKET_MAX 64u

/* xdp_sockets lists this process's AF_XDP sockets, at most max. */
uint32_t xdp_sockets(int *fd, uint32_t max);

/* xdp_found takes those that were not there before as the port's, and
   their descriptor as the one to sleep on; none where /proc is not to be
   read.  xdp_forget goes before the driver closes them. */
void xdp_found(tdm_port_t *p, const int *before, uint32_t before_cnt);
void xdp_forget(tdm_port_t *p);

/* xdp_stats adds what the driver does not tell: frames lost to a full
   receive ring (nic_missed), and buffers that the kernel did not take
   for its own, 0 unless the pool lies wrong (nic_error). */
void xdp_stats(const tdm_port_t *p, tdm_port_stats_t *out);

/* --- wire.c: two queues, a test at the other end --------------------- */

tdm_status_t wire_open(tdm_port_t *p, tdm_error_t *err);
void wire_close(tdm_port_t *p);
uint32_t wire_rx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt);
uint32_t wire_tx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt);
void wire_stats(tdm_port_t *p, tdm_port_stats_t *out);

/* --- chaos.c: bad weather before another kind's calls ---------------- */

tdm_status_t chaos_open(tdm_port_t *p, tdm_error_t *err);
void chaos_close(tdm_port_t *p);
uint32_t chaos_rx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt);
uint32_t chaos_tx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt);
void chaos_stats(tdm_port_t *p, tdm_port_stats_t *out);

/* --- netdev.c: interfaces that exist -------------------------------- */

/* netdev_take makes an interface ready to be driven: it exists, is up,
   takes every multicast frame, and carries at least mtu bytes.  A warning
   where the kernel has an address on it. */
tdm_status_t netdev_take(const char *name, uint16_t mtu, tdm_error_t *err);

/* netdev_is_up: it has a carrier. */
int netdev_is_up(const char *name);

/* --- port.c --------------------------------------------------------- */

/* port_frame_room: data bytes of an mbuf for this mtu, a power of two, so
   that a ring slot of af_packet fits. */
uint32_t port_frame_room(uint16_t mtu);

/* --- tap.c: the kernel's side --------------------------------------- */

typedef struct tap_address {
    uint8_t addr[16]; /* network order */
    uint8_t family;   /* AF_INET, AF_INET6, or 0: none */
    uint8_t prefix;
} tap_address_t;

/* tap_address_parse reads "10.88.0.1/24"; family says which version is
   wanted; an empty text gives none. */
tdm_status_t tap_address_parse(const char *text, int family, tap_address_t *out, tdm_error_t *err);

/* tap_check answers before anything is made: may this process make the
   interface, is the name free, do the subnets overlap no address or
   route.  An IPv6 address is dropped, with a log line, on a host without
   IPv6. */
tdm_status_t tap_check(const char *name, const tap_address_t *a4, tap_address_t *a6,
                       tdm_error_t *err);

/* tap_address_set gives the interface its addresses, after it is up. */
tdm_status_t tap_address_set(const char *name, const tap_address_t *a, tdm_error_t *err);

/* --- netlink.c ------------------------------------------------------ */

/* netlink_address_add adds an address to an interface and waits for the
   kernel's answer: 0 or an errno. */
int netlink_address_add(uint32_t if_idx, const tap_address_t *a);

/* netlink_xdp_detach takes any XDP program off an interface: 0 or an
   errno. */
int netlink_xdp_detach(uint32_t if_idx);

/* netlink_route_each calls visit for each unicast route of the main table
   (connected subnets included), of one family, default routes left out,
   until it answers non-zero; 0 or an errno. */
typedef int (*netlink_route_visit_t)(void *arg, const uint8_t *dst, uint32_t prefix,
                                     uint32_t if_idx);
int netlink_route_each(int family, netlink_route_visit_t visit, void *arg);

#endif /* TDM_NET_PORT_PORT_PRIVATE_H */
