/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_HTTP1_PRIVATE_H
#define TDM_NET_HTTP1_PRIVATE_H

/* What the files of this room share: the door, its slots and the request
   in the making.

   http1.c    open, close, the library's daemon
   name.c     by what names this machine is asked
   peers.c    connections: bounds by address, and the watch for leaving
   slots.c    the slot table: take, egress flags, hang-up, give back
   request.c  from the library's callbacks to an exchange
   reply.c    from reply head and pipe to the library's response
   poll.c     the caller's side
   unix.c     the Unix socket
   feed.c     answers that go on

   Lock: tdm_http1.lock guards slots, the free list, body_total and
   is_closing.  It is taken before the library's own locks, never inside
   them. */

#include "net/http1/http1.h"

#include "appliance/abi/reasons.h"
#include "appliance/base/arena.h"
#include "appliance/base/clock.h"
#include "appliance/ring/pipe.h"
#include "appliance/ring/slots.h"
#include "telemetry/block/stream.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/un.h>

typedef struct MHD_Connection connection_t;

typedef struct slot {
    tdm_exchange_t exchange;
    tdm_pipe_t pipe;
    /* --- guarded by the lock --- */
    connection_t *conn;   /* NULL once the connection is done with the slot */
    uint32_t egress;      /* TDM_EGRESS_* seen so far */
    uint16_t api;         /* tile that got the arrival */
    uint8_t is_suspended; /* the connection waits for a flag or a record */
    uint8_t is_gone;      /* the client left; api was told or will be */
    uint8_t owes_hangup;  /* the hangup lane was full */
    uint64_t body_cap;    /* bytes counted in body_total for exchange.body */
    struct link *link;    /* of conn */
    /* --- the library thread's alone --- */
    uint32_t cursor;       /* of the pipe */
    tdm_pipe_record_t rec; /* record under way */
    uint32_t rec_off;      /* its bytes already handed over */
    tdm_stream_t stream;   /* of this exchange */
} slot_t;

/* peer is one address with at least one connection. */
typedef struct peer {
    uint8_t addr[16];  /* IPv4 mapped into IPv6 */
    uint32_t conn_cnt; /* 0: free place */
} peer_t;

/* link is one connection, from accept to close. */
typedef struct link {
    /* --- guarded by the lock --- */
    uint32_t generation;
    uint8_t is_used;
    uint8_t has_left; /* the client's FIN or RST was seen */
    slot_t *slot;     /* exchange under way, NULL: none */
    int fd;
    /* --- written by the library thread, relaxed --- */
    int64_t due_ns; /* the part under way is whole by then, TDM_TIME_NEVER: nothing is due */
    /* --- the library thread's alone --- */
    peer_t *peer; /* NULL: the Unix socket */
    int is_unix;
    int64_t yield_ns; /* from then on it may make way, unless it has a slot */
    int is_extra;     /* over a bound: good for health and pages alone */
    int has_feed;     /* it is sent an answer that goes on, and keeps nobody waiting */
} link_t;

/* The library's own connection bound lies above ours, so that ours is
   answered by closing and not by letting the client wait unaccepted.
   Between lie those over a bound, and those told to make way that the
   library has not closed yet. */
#define LINK_SPARE  16u
#define RESERVE_MAX (LINK_SPARE / 2)

/* How long a connection at a bound is safe from making way: long enough
   for the round trip of a request just begun, short enough that health
   answers within a second; a body that flows takes longer.  Estimates,
   not measured. */
#define YIELD_NS      (250 * TDM_NS_PER_MS)
#define YIELD_BODY_NS (2 * TDM_NS_PER_S)

/* Connections over the Unix socket, beside conn_max. */
#define UNIX_MAX  16u
#define UNIX_MARK UINT64_MAX /* of its listening socket among the watched */

/* How long peers wait where the process has no descriptor left: short for
   a person, and twenty looks a second cost nothing. */
#define PUT_OFF_NS (50 * TDM_NS_PER_MS)

/* Descriptors that the rest of the process may open later: files that are
   looked at for a moment, sockets of the console, pipes of the executor. */
#define DESCRIPTOR_SPARE 64u

#define FEED_MAX TDM_HTTP1_FEED_CNT_MAX

/* links: the places there are for connections. */
#define LINK_MAX(config) ((config)->conn_max + LINK_SPARE + UNIX_MAX)

/* LINK_SZ: the library's memory of a connection, in bytes: the text of its
   header, the table of it, and what is read and written at a time.  Up to
   32 KiB libmicrohttpd (0.9.75, MHD_pool_create) takes it from malloc; a
   larger one it maps and unmaps for each connection, which costs a fault for
   each of its pages and every tile an interrupt (its TLB).  It holds 16 KiB of
   250 fields, and 400 of the shortest; what is over gets 431. */
#define LINK_SZ (32u * 1024u)

typedef struct feed {
    struct request *request; /* NULL: free place */
    uint8_t is_suspended;
    int64_t due_ns; /* of the next piece */
    int64_t period_ns;
    tdm_http1_more_fn *more;
    void *ctx;
    uint64_t cursor;
    char *text; /* [TDM_HTTP1_FEED_MAX] */
    size_t off, sz;
} feed_t;

struct tdm_http1 {
    tdm_http1_config_t config;
    tdm_http1_wires_t wires;
    struct MHD_Daemon *daemon;
    tdm_arena_t arena; /* slots, pipes, peers */
    pthread_mutex_t lock;
    slot_t *slot; /* [config.slot_cnt] */
    tdm_slots_t slots;
    uint32_t link_cnt; /* connections */
    uint32_t owed_cnt; /* slots that owe a hang-up */
    uint64_t body_total;
    int is_closing;
    int watch_fd; /* epoll over the sockets of all links */
    link_t *link; /* [LINK_MAX] */
    feed_t feed[FEED_MAX];
    uint32_t unix_cnt; /* atomic: connections over the Unix socket */
    int unix_fd;       /* -1: none; the poller's */
    struct sockaddr_un unix_addr;
    int listen_fd;
    uint16_t port;
    char name[256];  /* of this machine, "" unknown */
    char hosts[512]; /* config.hosts, as "a,b" */
    /* --- the poller's alone --- */
    int64_t scan_ns; /* next look for requests that are overdue */
    int64_t unix_ns; /* next look at the Unix socket's peers, NEVER: none was put off */
    /* --- the library thread's alone --- */
    peer_t *peer; /* [config.conn_max + LINK_SPARE] */
    uint32_t conn_cnt;
    uint32_t extra_cnt; /* of them is_extra */
    int is_next_extra;  /* the one just accepted is */
    uint32_t next_api;
};

/* request is one HTTP request between its first line and its end; the
   library hands it back as con_cls. */
typedef struct request {
    tdm_http1_t *door;
    connection_t *conn;
    link_t *link;
    slot_t *slot;           /* NULL before the body is whole, and for local answers */
    feed_t *feed;           /* NULL: none */
    const char *target_end; /* of the request's target, in the library's memory */
    int64_t first_byte_ns;
    uint8_t *body;
    uint64_t body_sz;
    uint64_t body_cap;
    uint64_t dropped_sz; /* bytes read past the bound and thrown away */
    uint16_t method;
    uint16_t refuse;      /* TDM_REFUSE_* the door answers itself, or 0 */
    uint8_t has_head;     /* header fields were looked at */
    uint8_t is_truncated; /* path, query or coding did not fit */
    uint8_t is_trusted;   /* of this machine, and asks by its name */
    uint8_t is_misnamed;  /* of this machine, and asks by another's name */
    uint8_t is_last;      /* refused before its end is known: the connection ends with it */
    char host[256];       /* of a target that names one, instead of Host */
    char path[sizeof((tdm_exchange_t *)0)->path];
    char query[sizeof((tdm_exchange_t *)0)->query];
    char coding[sizeof((tdm_exchange_t *)0)->content_coding];
} request_t;

/* --- peers.c: library thread only ------------------------------------ */

/* The library's callbacks for a connection that comes, and that begins or
   ends; cls is the door. */
enum MHD_Result tdm_http1_accept(void *cls, const struct sockaddr *addr, socklen_t addr_sz);
void tdm_http1_connection(void *cls, connection_t *conn, void **socket_ctx,
                          enum MHD_ConnectionNotificationCode code);

/* tdm_http1_is_local: a process of this machine, over the Unix socket
   where is_unix. */
int tdm_http1_is_local(connection_t *conn, int *is_unix);

/* tdm_http1_log takes the library's messages and counts those that say it
   refused a request by itself. */
void tdm_http1_log(void *cls, const char *format, va_list args);

/* tdm_http1_due sets when the part of a request under way is due, ms from
   now; 0: never. */
void tdm_http1_due(link_t *l, uint32_t ms);

/* tdm_http1_yield says that a connection may make way ns from now. */
void tdm_http1_yield(link_t *l, int64_t ns);

/* tdm_http1_is_extra: the connection is over a bound, still. */
int tdm_http1_is_extra(tdm_http1_t *d, link_t *l);

/* tdm_http1_link_of finds a connection's link; NULL: it has none. */
link_t *tdm_http1_link_of(connection_t *conn);

/* --- name.c ------------------------------------------------------------ */

/* tdm_http1_names_take keeps the names of this machine: its own, and those
   of a list. */
TDM_MUST_USE tdm_status_t tdm_http1_names_take(tdm_http1_t *d, const char *hosts, const char *name,
                                               tdm_error_t *err);

/* tdm_http1_is_named: Host and Origin, "" where absent, name this machine. */
int tdm_http1_is_named(const tdm_http1_t *d, const char *host, const char *origin);

/* --- unix.c: the poller's thread ----------------------------------------- */

/* tdm_http1_unix_accept gives waiting peers of the Unix socket to the
   library; those over the bound are closed and counted.  Without descriptor
   or memory they are put off: the socket is not watched until unix_ns, and
   _retry watches it again.  _close also takes the socket's file away. */
void tdm_http1_unix_accept(tdm_http1_t *d, int64_t now_ns);
void tdm_http1_unix_retry(tdm_http1_t *d, int64_t now_ns);
void tdm_http1_unix_close(tdm_http1_t *d);

/* --- feed.c -------------------------------------------------------------- */

/* tdm_http1_feed_open gives a feed of page->more; NULL: none free. */
feed_t *tdm_http1_feed_open(tdm_http1_t *d, request_t *r, const tdm_http1_page_t *page);
void tdm_http1_feed_close(tdm_http1_t *d, feed_t *f);

/* tdm_http1_feed_read is the library's reader of a feed. */
ssize_t tdm_http1_feed_read(void *cls, uint64_t pos, char *buf, size_t max);

/* tdm_http1_feed_resume_locked wakes the feeds that are due;
   tdm_http1_feed_next_locked says when the next one is. */
void tdm_http1_feed_resume_locked(tdm_http1_t *d, int64_t now_ns);
int64_t tdm_http1_feed_next_locked(const tdm_http1_t *d);

/* --- slots.c ----------------------------------------------------------- */

/* tdm_http1_slots_init frees all slots; places: [slot_cnt], pipes:
   [slot_cnt * pipe_sz] of the door's memory. */
void tdm_http1_slots_init(tdm_http1_t *d, tdm_slot_place_t *places, uint8_t *pipes);

/* tdm_http1_slot_take gives a slot with a fresh generation, an empty pipe
   and a zeroed exchange but for handle, door and reply; NULL: none free.
   Only is_vital may take one that is kept for health. */
slot_t *tdm_http1_slot_take(tdm_http1_t *d, int is_vital);

/* tdm_http1_slot_detach says that the connection is done with the slot
   and gives it back if api is done too; else api hears that nobody reads
   where is_cut, before the answer was whole, or is_head, which reads no
   body. */
void tdm_http1_slot_detach(tdm_http1_t *d, slot_t *s, int is_cut, int is_head);

/* tdm_http1_slot_end says how an answer that the client has whole ended. */
tdm_stream_end_t tdm_http1_slot_end(tdm_http1_t *d, const slot_t *s);

/* With the lock held: release gives body, records and, where api is done
   too, the slot back; gone says once that the client left; hangup tells api
   (0: its lane is full, and it is owed); resume lets the library go on with
   the connection. */
void tdm_http1_slot_release_locked(tdm_http1_t *d, slot_t *s);
void tdm_http1_slot_gone_locked(tdm_http1_t *d, slot_t *s);
int tdm_http1_slot_hangup_locked(tdm_http1_t *d, slot_t *s);
void tdm_http1_slot_resume_locked(slot_t *s);

/* tdm_http1_body_grow makes room for sz more bytes; 0 where the bound of
   all bodies or memory says no.  tdm_http1_body_drop gives it back. */
int tdm_http1_body_grow(tdm_http1_t *d, request_t *r, uint64_t sz);
void tdm_http1_body_drop(tdm_http1_t *d, uint8_t *body, uint64_t cap);

/* --- request.c --------------------------------------------------------- */

/* The library's callbacks for one request, in this order: the target as it
   came, which makes the request_t; head, body in pieces, end; and, in any
   case, that it is over, which frees it. */
void *tdm_http1_uri(void *cls, const char *uri, connection_t *conn);
enum MHD_Result tdm_http1_handle(void *cls, connection_t *conn, const char *url, const char *method,
                                 const char *version, const char *data, size_t *data_sz,
                                 void **con_cls);
void tdm_http1_completed(void *cls, connection_t *conn, void **con_cls,
                         enum MHD_RequestTerminationCode code);

/* --- reply.c ----------------------------------------------------------- */

/* tdm_http1_reply queues the response of a slot whose head is final. */
enum MHD_Result tdm_http1_reply(request_t *r, connection_t *conn);

/* tdm_http1_refuse queues the door's own error. */
enum MHD_Result tdm_http1_refuse(request_t *r, connection_t *conn, tdm_reason_t reason);

/* tdm_http1_local asks the caller's pages; 0 where none is meant. */
int tdm_http1_local(request_t *r, connection_t *conn, enum MHD_Result *result);

#endif /* TDM_NET_HTTP1_PRIVATE_H */
