/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BOOT_HOUSE_PRIVATE_H
#define TDM_BOOT_HOUSE_PRIVATE_H

/* The parts of the house that have a file of their own. */

#include "appliance/boot/house.h"

enum { /* values of port.kind */
       TDM_HOUSE_PORT_TAP,
       TDM_HOUSE_PORT_NONE,
       TDM_HOUSE_PORT_AF_PACKET,
       TDM_HOUSE_PORT_AF_XDP,
       TDM_HOUSE_PORT_PCI,
};
enum { TDM_HOUSE_RETRY_AUTO, TDM_HOUSE_RETRY_ALWAYS, TDM_HOUSE_RETRY_NEVER }; /* of quic.retry */

/* --- house_tiles.c: memory and configuration of the tiles -------------- */

/* tdm_house_open_tiles makes scheduler, api tiles and, with a port, the net
   tile, in one arena; nothing runs yet. */
TDM_MUST_USE tdm_status_t tdm_house_open_tiles(tdm_house_t *h, tdm_error_t *err);

/* tdm_house_drain_tiles tells all of them to take nothing new. */
void tdm_house_drain_tiles(tdm_house_t *h);

/* tdm_house_promise tells api tiles and metrics what is promised now. */
void tdm_house_promise(tdm_house_t *h, const tdm_sched_live_t *live);

/* tdm_house_close_tiles undoes open, after the threads stopped. */
void tdm_house_close_tiles(tdm_house_t *h);

/* --- house_net.c: certificate, ports, the net tile's configuration ----- */

/* tdm_house_open_net makes the certificate where there is none, starts
   DPDK's environment, opens port and exception port, and fills n, whose
   memory is the caller's.  Once a process, with a port.kind; on an error
   what is open is left to tdm_house_close_net. */
TDM_MUST_USE tdm_status_t tdm_house_open_net(tdm_house_t *h, tdm_net_tile_config_t *n,
                                             tdm_error_t *err);

/* tdm_house_say_port logs where HTTP/3 is served. */
void tdm_house_say_port(const tdm_house_t *h);

/* tdm_house_close_net ends the net tile and what open_net opened, of it
   what there is; after the threads stopped. */
void tdm_house_close_net(tdm_house_t *h);

/* --- house_flight.c ---------------------------------------------------- */

/* tdm_house_open_flight makes the flight recorder, or says why not. */
void tdm_house_open_flight(tdm_house_t *h);

/* tdm_house_flight_ring: the writer's end of ring idx (telemetry/flight),
   NULL without a recorder. */
tdm_flight_ring_t *tdm_house_flight_ring(tdm_house_t *h, uint32_t idx);

/* --- house.c ----------------------------------------------------------- */

/* tdm_house_progress_max_ns: for so long pending work may stand still
   before the service manager's heartbeat is withheld. */
int64_t tdm_house_progress_max_ns(const tdm_config_t *c);

/* --- house_change.c ---------------------------------------------------- */

/* tdm_house_change takes one turn at what an operator asked for; where the
   scheduler has not taken the change before, the next turn tries again.
   Management thread. */
void tdm_house_change(tdm_house_t *h, int64_t now_ns);

/* --- house_tell.c ------------------------------------------------------ */

/* tdm_house_tell gives DPDK's telemetry socket its commands, where there is
   a port.  Once a process, after the blocks are there. */
void tdm_house_tell(tdm_house_t *h);

/* --- house_exec.c ------------------------------------------------------ */

/* tdm_house_executor_thread is the executor in thread mode. */
void tdm_house_executor_thread(tdm_channel_t *c, const uint32_t *stop);

#endif /* TDM_BOOT_HOUSE_PRIVATE_H */
