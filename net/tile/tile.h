/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_TILE_TILE_H
#define TDM_NET_TILE_TILE_H

/* tdm_net_tile is the door on the data path: one port, one link, one QUIC
   server and its HTTP/3, polled by one thread.

     port --frame--> link --datagram--> quic --stream--> h3
      ^               |  |                               | exchange
      |             reply  drop + reason                 v
      +-- frames <-- link <-- quic <-- h3      exchange ring of an api tile
                                        ^                |
                                        +- egress ring <-+  head, records

   A turn is bounded: one burst in, a number of egress words, timers and
   at most one handshake, bursts out.  It parses no JSON and takes no
   lock; it makes no system call but the port driver's own.

   Exchanges.  The tile owns a table of slots, each with a request body
   and a reply pipe of fixed size.  A slot is taken when a header is
   whole and is free again when both sides are done: h3 with the stream, the api
   tile with its END word.  A few are kept for those who ask after health:
   a full table would look like a dead machine.  A client that leaves costs one hangup to the
   api tile, within the same turn.

   Observed here, at hand-over to QUIC: time to first token, gaps between
   tokens of a stream, and the time to the last byte, by SLO class.

   Conservation, at every moment between turns (tdm_net_tile_is_conserved):
     frames from the port   == frames judged by the link
     datagrams of the link  == datagrams taken by QUIC + its drops
     frames passed by it    == frames that the exception port took or not
     and the two identities of net/link/link.h

   The exception port, where there is one, is a TAP that carries the port's
   station address: frames that are not ours go to the kernel through it,
   and what the kernel sends goes out on the port.  So its TCP, ssh and
   DHCP live on the same cable.  Over af_packet the kernel has seen those
   frames already: put the TAP into another network namespace there.

   Ownership: the caller gives memory, port, rings and block, and outlives
   the tile with them.  Bodies and pipes belong to the tile; an api tile
   may use them from the arrival to its END.
   Threads: poll and next_ns from the tile's thread; drain, exchange_cnt
   and is_stuck from any; the rest from main while the tile rests. */

#include "appliance/abi/exchange.h"
#include "appliance/base/status.h"
#include "appliance/ring/ring.h"
#include "net/h3/h3.h"
#include "net/link/link.h"
#include "net/port/port.h"
#include "net/quic/quic.h"
#include "telemetry/block/block.h"

#define TDM_NET_EXCHANGE_MAX 16384u

typedef struct tdm_net_tile_config {
    uint16_t door;              /* our index among the doors: producer of the rings below */
    uint16_t api_cnt;           /* api tiles, 1..TDM_API_TILE_MAX */
    uint16_t is_subnet_trusted; /* peers of our own subnet need no key (TAP demo) */
    uint16_t reserved;
    uint32_t exchange_max; /* slots, 1..TDM_NET_EXCHANGE_MAX */
    uint32_t reserve_cnt;  /* of them kept for GET /health and /ready, below exchange_max */
    uint32_t pipe_sz;      /* reply bytes per slot, a power of two, 1 KiB..1 GiB */
    uint64_t body_max;     /* request bytes per slot, 1..1 GiB */

    tdm_port_t *port;
    tdm_port_t *exception;  /* NULL: frames that are not ours are dropped */
    tdm_link_config_t link; /* mac, mtu: of the port (tdm_port_mac) */
    tdm_quic_config_t quic; /* app is filled in here */
    tdm_h3_config_t h3;     /* tile, connection_max, exchange_max, body_max likewise */

    /* Rings of each api tile, written as producer `door`: tdm_arrival_t,
       and tdm_hangup_t with lanes at least exchange_max deep. */
    tdm_ring_t *arrivals[TDM_API_TILE_MAX];
    tdm_ring_t *hangups[TDM_API_TILE_MAX];
    /* Our own ring, one lane per api tile: tdm_egress_t. */
    tdm_ring_t *egress;
    tdm_block_t *block; /* ours alone to write */
} tdm_net_tile_config_t;

typedef struct tdm_net_tile tdm_net_tile_t;

/* tdm_net_tile_footprint gives the bytes that create needs, bodies and
   pipes included; 0 where a bound is out of range. */
uint64_t tdm_net_tile_footprint(const tdm_net_tile_config_t *config);

/* tdm_net_tile_create formats mem, zeroed and TDM_CACHE_LINE aligned.
   Errors name the bound or file at fault.  Boot time only. */
TDM_MUST_USE tdm_status_t tdm_net_tile_create(void *mem, const tdm_net_tile_config_t *config,
                                              int64_t now_ns, tdm_net_tile_t **out,
                                              tdm_error_t *err);

/* tdm_net_tile_destroy forgets all connections and gives every mbuf back
   to the port, which the caller then closes.  NULL is allowed. */
void tdm_net_tile_destroy(tdm_net_tile_t *t);

/* tdm_net_tile_poll does one turn and says how much it did; 0: nothing. */
uint32_t tdm_net_tile_poll(tdm_net_tile_t *t, int64_t now_ns);

/* tdm_net_tile_next_ns: when the tile wants a turn although nothing came.
   A sleeper also wakes for tdm_port_rx_fd and the egress ring's bell. */
int64_t tdm_net_tile_next_ns(const tdm_net_tile_t *t);

/* tdm_net_tile_drain: from the next turn on, connections are told to go
   away and end with their last stream. */
void tdm_net_tile_drain(tdm_net_tile_t *t);

/* tdm_net_tile_farewell says CONNECTION_CLOSE to every client that is still
   there, so that none waits for its idle timeout.  After the tile's thread
   stopped, before destroy; bounded by the connections there are. */
void tdm_net_tile_farewell(tdm_net_tile_t *t, int64_t now_ns);

/* tdm_net_tile_exchange_cnt: slots in use, for a drain that waits. */
uint32_t tdm_net_tile_exchange_cnt(const tdm_net_tile_t *t);

/* tdm_net_tile_is_stuck: for TDM_NET_STUCK_NS or longer the port has taken
   none of the frames it was given, and one was given lately.  Each was
   offered a bounded number of times, then freed and counted (tx_full).
   Refreshed every 50 ms. */
int tdm_net_tile_is_stuck(const tdm_net_tile_t *t);
#define TDM_NET_STUCK_NS INT64_C(1000000000)

/* tdm_net_tile_is_conserved checks the identities above. */
int tdm_net_tile_is_conserved(tdm_net_tile_t *t);

/* tdm_net_tile_publish copies all counts to the block now; poll does it
   every 50 ms. */
void tdm_net_tile_publish(tdm_net_tile_t *t);

/* What lies below, for tests and the console. */
const tdm_link_counters_t *tdm_net_tile_link_counters(const tdm_net_tile_t *t);
const tdm_quic_counters_t *tdm_net_tile_quic_counters(tdm_net_tile_t *t);

#endif /* TDM_NET_TILE_TILE_H */
