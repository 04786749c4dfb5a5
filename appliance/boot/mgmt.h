/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BOOT_MGMT_H
#define TDM_BOOT_MGMT_H

/* tdm_mgmt is what the main thread does while the tiles poll: it keeps the
   executor alive, moves the HTTP/1.1 door's replies, says what state the
   appliance is in (to /ready and to the service manager), and refreshes the
   slow gauges.  Polled like a tile. */

#include "appliance/abi/life.h"
#include "appliance/api/api_tile.h"
#include "appliance/boot/notify.h"
#include "appliance/boot/wires.h"
#include "appliance/control/audit.h"
#include "appliance/exec/supervisor.h"
#include "net/http1/http1.h"
#include "net/port/port.h"
#include "net/tile/tile.h"
#include "scheduler/tile/sched_tile.h"

typedef struct tdm_mgmt {
    tdm_wires_t *wires;
    tdm_supervisor_t *supervisor;
    const tdm_sched_tile_t *sched;
    tdm_http1_t *http1;
    tdm_vitals_t *vitals;
    tdm_port_t *port;          /* NULL: none */
    const tdm_net_tile_t *net; /* NULL: none */
    tdm_notify_t *notify;      /* the service manager */
    const tdm_audit_t *audit;
    tdm_heartbeat_t heartbeat;
    int64_t watch_ns;     /* next look at the executor */
    int64_t publish_ns;   /* next refresh of gauges */
    uint32_t is_draining; /* towards the end */
    uint32_t is_held;     /* an operator drains */
    uint32_t was_ready;
    uint32_t said_permille; /* loading progress already logged */
    uint32_t is_withheld;   /* the heartbeat is, and the log says so */
} tdm_mgmt_t;

/* tdm_mgmt_poll does one turn; http1 may be NULL (not open yet). */
uint32_t tdm_mgmt_poll(void *ctx, int64_t now_ns);
int64_t tdm_mgmt_next_ns(void *ctx, int64_t now_ns);

/* tdm_mgmt_is_failed: the executor is gone for good. */
int tdm_mgmt_is_failed(const tdm_mgmt_t *m);

#endif /* TDM_BOOT_MGMT_H */
