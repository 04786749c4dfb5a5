/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BOOT_NOTIFY_H
#define TDM_BOOT_NOTIFY_H

/* tdm_notify tells the service manager how the appliance is, in the
   datagrams of sd_notify(3), spoken without its library: one message is
   lines of NAME=VALUE sent to the socket that NOTIFY_SOCKET names.  Where
   it names none, nothing is sent and nothing is an error.

   tdm_heartbeat says when WATCHDOG=1 may be sent.  It stands for forward
   progress, not for a process that exists: every tile has begun a turn
   lately, and where the executor serves and something is pending, an
   iteration ended or a token went out lately.  A service manager that
   hears nothing for WatchdogSec= starts the appliance anew.

   Both belong to the management thread. */

#include "appliance/base/status.h"

/* The longest message, with its zero; the manager takes 4 KiB. */
#define TDM_NOTIFY_SZ 256u

typedef struct tdm_notify {
    int fd;              /* -1: nobody listens */
    int64_t watchdog_ns; /* WatchdogSec=; 0: none is set for this process */
    uint64_t lost_cnt;   /* messages that the socket did not take */
} tdm_notify_t;

/* tdm_notify_open reads NOTIFY_SOCKET ("/path", or "@name" for an abstract
   one), WATCHDOG_USEC and WATCHDOG_PID and takes them out of the
   environment, so that no child speaks in our name.  A socket that cannot
   be had is a warning and leaves fd -1.  Before threads start. */
void tdm_notify_open(tdm_notify_t *n);

/* tdm_notify_say sends one message, made as printf does and cut to
   TDM_NOTIFY_SZ; it never waits. */
void tdm_notify_say(tdm_notify_t *n, const char *fmt, ...) TDM_PRINTF(2, 3);

/* tdm_notify_close may be called twice, and where there is no manager. */
void tdm_notify_close(tdm_notify_t *n);

/* --- forward progress --------------------------------------------------- */

#define TDM_HEARTBEAT_TILE_MAX 16u

typedef struct tdm_heartbeat {
    int64_t period_ns;       /* between two WATCHDOG=1; a quarter of WatchdogSec= */
    int64_t turn_max_ns;     /* a tile that began no turn for longer is stuck */
    int64_t progress_max_ns; /* and so is pending work that did not move for longer */
    int64_t next_ns;         /* the next is due; after one that was withheld, in a second */
    const char *tile_name[TDM_HEARTBEAT_TILE_MAX];
    const int64_t *tile_turn_ns[TDM_HEARTBEAT_TILE_MAX]; /* atomic: when its turn began */
    uint32_t tile_cnt;
    uint64_t withheld_cnt; /* times that it was due and not sent */
} tdm_heartbeat_t;

/* tdm_heartbeat_watch adds a tile; both pointers outlive the heartbeat. */
void tdm_heartbeat_watch(tdm_heartbeat_t *b, const char *name, const int64_t *turn_ns);

/* tdm_heartbeat_poll says whether WATCHDOG=1 is to be sent now: 1 yes, 0 it
   is not due, -1 it is due and withheld, with the reason in why (zero
   terminated, at most why_sz bytes).  progress_ns is when pending work
   last moved; is_pending: some is, and the executor serves. */
int tdm_heartbeat_poll(tdm_heartbeat_t *b, int64_t now_ns, int is_pending, int64_t progress_ns,
                       char *why, size_t why_sz);

#endif /* TDM_BOOT_NOTIFY_H */
