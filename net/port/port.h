/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_PORT_PORT_H
#define TDM_NET_PORT_PORT_H

/* tdm_port is a DPDK ethdev of one kind with its packet pool: the only
   way into and out of the machine on the data path.  This room and
   net/tile are the only ones that see DPDK.

     kind       what it is                              for
     tap        net_tap: an interface of the kernel,    default, demo
                with an address on the kernel's side
     pcap       net_pcap, file to file                  golden tests
     wire       two rings in this process               tests of the tile
     null       net_null: receives zeros                benches
     af_packet  net_af_packet: an interface that        a NIC without a
                exists; the kernel sees every frame     driver in DPDK
                too, so it must have no address there
     af_xdp     net_af_xdp: the same, taken away from   the same, faster
                the kernel before its stack; root only
     pci        a NIC bound to vfio-pci or uio          production
     chaos      bad weather around any of the others    tests of loss

   An af_xdp port that was killed leaves its XDP program on the interface:
   it lets frames through to the kernel, and the next open takes it off.
   Its driver takes the packet pool as one area without gaps, so the pool
   is made so (port.c), and it lends the kernel 2,048 buffers per queue,
   so fewer than that and its rings are refused.

   A new kind is one value of the enum and one row of port.c's table.

     device --> rx queue --> tdm_port_rx --> mbufs, the caller's
     mbufs  --> tdm_port_tx --> tx queue --> device
                     `-- still full after its bound: freed, counted

   Ownership: tdm_port_rx gives mbufs to the caller; tdm_port_tx takes
   them whatever happens.  The pool belongs to the port and dies with it,
   so every mbuf must be back before tdm_port_close.
   Threads: rx, tx and alloc from the port's one tile (the pool has one
   taker and one giver); open and close from main while no tile runs.
   Limits: one queue to send; up to TDM_PORT_RX_QUEUE_MAX to receive, all
   polled by the one tile, so nothing has to be steered; single-segment
   frames; bounded bursts. */

#include "appliance/base/status.h"

struct rte_mbuf;

#define TDM_PORT_BURST_MAX    32u
#define TDM_PORT_NAME_MAX     16u /* IFNAMSIZ, the terminating zero included */
#define TDM_PORT_RX_QUEUE_MAX 8u

/* --- the environment ------------------------------------------------ */

typedef struct tdm_port_env_config {
    uint32_t memory_mb; /* packet memory to reserve; see tdm_port_memory_mb */
    uint8_t is_no_huge; /* ordinary pages: only where the operator asked */
    uint8_t is_debug;   /* let EAL talk on stderr */
    uint8_t is_told;    /* open DPDK's telemetry socket (net/port/tell.h) */
    uint8_t reserved;
    const char *file_prefix; /* NULL: "tandem"; nothing is shared under it */
    const char *pci;         /* the one PCI address to take; NULL: none, no scan */
    const char *drivers;     /* folder of driver libraries; NULL: where DPDK was installed */
} tdm_port_env_config_t;

/* tdm_port_memory_mb: what a port with mbuf_cnt buffers of mtu bytes
   needs, in whole MiB, the environment's own share included. */
uint32_t tdm_port_memory_mb(uint32_t mbuf_cnt, uint16_t mtu);

/* tdm_port_env_start starts EAL once per process: in memory (a killed
   process leaves no page taken), no PCI scan, virtual addresses, a
   telemetry socket only where is_told.  Where hugepages are short it returns NOMEM before
   EAL runs, with have, need and how in one line.  The calling thread's
   CPU affinity and signal mask are unchanged afterwards.  EAL cannot
   start twice. */
TDM_MUST_USE tdm_status_t tdm_port_env_start(const tdm_port_env_config_t *config, tdm_error_t *err);

/* tdm_port_env_stop frees what EAL took; after the last port's close. */
void tdm_port_env_stop(void);

/* --- one port ------------------------------------------------------- */

typedef enum tdm_port_kind {
    TDM_PORT_TAP,
    TDM_PORT_PCAP,
    TDM_PORT_WIRE,
    TDM_PORT_NULL,
    TDM_PORT_AF_PACKET,
    TDM_PORT_AF_XDP,
    TDM_PORT_PCI,
    TDM_PORT_CHAOS,
    TDM_PORT_KIND_CNT
} tdm_port_kind_t;

/* tdm_port_kind_name gives "tap", ...; "unknown" outside the enum. */
const char *tdm_port_kind_name(tdm_port_kind_t kind);

/* tdm_port_kind_parse: NOT_FOUND where no kind has this name. */
TDM_MUST_USE tdm_status_t tdm_port_kind_parse(const char *name, tdm_port_kind_t *out);

/* Bad weather, both ways and for each frame on its own: shares in
   millionths, drawn from one seed.  Time is counted in calls of tdm_port_rx, so that a run can be
   repeated.  At most 64 frames are held back in each direction. */
typedef struct tdm_port_chaos {
    tdm_port_kind_t under; /* the kind that carries the frames; not chaos */
    uint32_t drop_ppm;
    uint32_t double_ppm;  /* comes twice */
    uint32_t reorder_ppm; /* a few calls late, so that others overtake it */
    uint32_t delay_ppm;   /* up to 400 calls late */
    uint32_t corrupt_ppm; /* one to four bytes change; half of them behind the
                             UDP checksum's back */
    uint64_t seed;
} tdm_port_chaos_t;

typedef struct tdm_port_config {
    tdm_port_kind_t kind;
    uint16_t mtu;     /* bytes of an IP packet, 1280..9000 */
    uint16_t rx_desc; /* descriptors asked for; the device may round them */
    uint16_t tx_desc;
    uint16_t rx_queues; /* 0: one; more where the device has them */
    uint32_t mbuf_cnt;  /* packet buffers; at least rx_desc + tx_desc + 2 bursts,
                           af_xdp: 2048 + 2 rx_desc for each queue + 2 bursts */
    /* tap: the kernel's side.  Empty strings: no address of that version. */
    char tap_name[TDM_PORT_NAME_MAX]; /* "tandem0" */
    char tap_ipv4[32];                /* "10.88.0.1/24" */
    char tap_ipv6[64];                /* "fd88:7464:6d00::1/64" */
    uint8_t tap_mac[6];               /* of the kernel's side; zeros: our own choice */
    /* af_packet, af_xdp: the interface; pci: the address, as "0000:05:00.0" */
    char device[32];
    /* pcap */
    const char *pcap_rx; /* file read once, then silence */
    const char *pcap_tx; /* file written; NULL: sent frames go nowhere */
    tdm_port_chaos_t chaos;
} tdm_port_config_t;

typedef struct tdm_port tdm_port_t;

/* tdm_port_open makes the device, its pool and (tap) the kernel's
   addresses, and starts it.  Errors name what to change: PERM without
   the right to make a TAP, NOT_FOUND without /dev/net/tun, INVAL where
   the demo subnet overlaps an address or route that exists, NOMEM where
   the pool does not fit (af_xdp: not in one piece). */
TDM_MUST_USE tdm_status_t tdm_port_open(const tdm_port_config_t *config, tdm_port_t **out,
                                        tdm_error_t *err);

/* tdm_port_close stops and removes the device (a TAP disappears) and
   frees the pool; NULL is allowed.  Returns how many mbufs were not back
   in the pool: 0 unless somebody leaks. */
uint32_t tdm_port_close(tdm_port_t *p);

/* tdm_port_mac: the station address to use on this port.  On a TAP it
   differs from the kernel side's own. */
void tdm_port_mac(const tdm_port_t *p, uint8_t mac[6]);

/* tdm_port_rx_fd: a descriptor that poll(2) finds readable when frames
   wait, for a tile that sleeps; -1 where the kind has none. */
int tdm_port_rx_fd(const tdm_port_t *p);

/* tdm_port_is_up asks whether the device has a carrier.  Not for the tile:
   it may be a system call.  Any one thread. */
int tdm_port_is_up(tdm_port_t *p);

/* tdm_port_rx fetches up to cnt (at most TDM_PORT_BURST_MAX) frames. */
uint32_t tdm_port_rx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt);

/* tdm_port_tx sends cnt frames, asking the device a bounded number of
   times; those it did not take are freed and counted as tx_full.
   Returns how many were taken. */
uint32_t tdm_port_tx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt);

/* tdm_port_mbuf_alloc gives an empty buffer, NULL (counted as no_mbuf of
   the sending side) when the pool is empty.  Its data starts with at
   least TDM_PORT_HEADROOM free bytes in front and has room for mtu plus
   link headers behind. */
struct rte_mbuf *tdm_port_mbuf_alloc(tdm_port_t *p);
#define TDM_PORT_HEADROOM 128u

typedef struct tdm_port_stats {
    uint64_t rx_frames; /* handed out by tdm_port_rx */
    uint64_t rx_bytes;
    uint64_t tx_frames; /* taken by the device */
    uint64_t tx_bytes;
    uint64_t tx_full;    /* freed: the transmit queue stayed full */
    uint64_t tx_no_mbuf; /* tdm_port_mbuf_alloc found the pool empty */
    uint64_t nic_missed; /* imissed: the device had no descriptor; af_xdp: or its ring was full */
    uint64_t nic_error;  /* ierrors; af_xdp: buffers that the kernel refused */
    uint64_t no_mbuf;    /* rx_nombuf: the device found the pool empty */
    uint32_t mbuf_cnt;   /* pool size */
    uint32_t mbuf_used;  /* outside the pool now, the receive queue's included */
} tdm_port_stats_t;

/* tdm_port_stats_read asks the device too: a few hundred nanoseconds, and
   two system calls for each queue of af_xdp.  From the port's tile. */
void tdm_port_stats_read(tdm_port_t *p, tdm_port_stats_t *out);

/* --- the chaos kind, for tests -------------------------------------- */

/* What the weather did, by direction: 0 received, 1 sent.  At any time
   in + doubled == out + dropped + held. */
typedef struct tdm_port_chaos_stats {
    uint64_t in[2];
    uint64_t out[2];
    uint64_t dropped[2];
    uint64_t doubled[2];
    uint64_t late[2];
    uint64_t corrupted[2];
    uint64_t held[2]; /* gauge */
} tdm_port_chaos_stats_t;

/* tdm_port_chaos_read: of a chaos port. */
void tdm_port_chaos_read(const tdm_port_t *p, tdm_port_chaos_stats_t *out);

/* tdm_port_chaos_calm lets every frame through from now on; those held
   back come out in their time. */
void tdm_port_chaos_calm(tdm_port_t *p);

/* --- the wire kind, for tests --------------------------------------- */

/* tdm_port_wire_put lets a frame arrive at a wire port; 0, and a count
   as a device would give it, when the wire is full (nic_missed, 256
   frames), the pool is empty (no_mbuf) or the frame longer than a buffer
   (nic_error).  tdm_port_wire_get takes the next frame that the port sent
   and returns its size, 0 when none; frames over cap are cut.  Same
   thread as the tile. */
int tdm_port_wire_put(tdm_port_t *p, const uint8_t *frame, uint32_t sz);
uint32_t tdm_port_wire_get(tdm_port_t *p, uint8_t *frame, uint32_t cap);

#endif /* TDM_NET_PORT_PORT_H */
