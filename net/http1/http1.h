/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_HTTP1_H
#define TDM_NET_HTTP1_H

/* tdm_http1 is the HTTP/1.1 door: the management port, on libmicrohttpd.
   It makes the same exchanges as the net tile (appliance/abi/exchange.h);
   only the bytes come over a kernel socket.

     client   library thread             api tile         caller's thread
     ------>  headers, body
              take a slot, fill it
              push arrival -----------> parse, answer
              suspend the connection    HEAD|RECORD|END
                                        on the egress ring --> tdm_http1_poll
              resumed <-------------------------------------- sets flags
     <------  one record, one chunk
              ...
              FIN seen by an own epoll -----------------> tdm_http1_poll
                                        hangup <-- push

   A suspended connection of the library never notices that its client
   left, so the door watches those sockets itself (EPOLLRDHUP); half-close
   counts as leaving.

   Threads: one library thread owns all connections and is the one
   producer of arrivals; the caller's management thread calls
   tdm_http1_poll.  A mutex guards the slot table between the two; no
   polling tile ever takes it.
   Ownership: slots, pipes and bodies are the door's.  A slot is free again
   once api sent END and the connection is done with it.
   Limits: every number of tdm_http1_config_t.  Over the connection bounds
   a connection is closed at once; over the others the client gets
   header_too_large, body_too_large or exchange_limit as JSON, each
   counted.  A few exchange slots and connections above the bounds are kept
   for GET /health and /ready and for the caller's pages, so that whoever
   watches a full or attacked house still sees it.  At a connection bound
   the connection that has kept us waiting longest (idle, or with a request
   that is not whole) makes way for the new one.  A request that two
   readers could understand in two ways (two lengths, a length beside
   chunks, a transfer coding that is not chunked, a blank in a name, two
   keys, a NUL, a folded line) or that lacks the Host of HTTP/1.1 is
   bad_request and the last of its connection.  What the library itself
   refuses (no HTTP, a header larger than its buffer) gets its 400, 413 or
   431, counted too; of a length that is no number libmicrohttpd 0.9.75
   says so twice, the second head before the body.  A request that drips in
   more slowly than header_ms and body_ms allow is cut and counted as
   request_timeout: the library's own timer only knows silence. */

#include "appliance/abi/exchange.h"
#include "appliance/ring/ring.h"
#include "telemetry/block/block.h"

#include <sys/socket.h>

TDM_BEGIN_DECLS

typedef struct tdm_http1 tdm_http1_t;

/* A page that the door answers by itself, without an api tile: /metrics
   must tell most when the rest is busiest. */
typedef struct tdm_http1_ask {
    uint16_t method;      /* tdm_method_t: GET, HEAD or POST */
    uint16_t is_trusted;  /* loopback peer that asks by a name of ours, or over the Unix socket */
    uint32_t is_misnamed; /* loopback peer, but Host or Origin name another machine */
    int peer_fd;          /* the Unix socket's connection, for SO_PEERCRED; -1: TCP */
    const char *path;     /* raw, without the query */
    const char *query;    /* after '?', may be empty */
    const char *accept;   /* "" where absent, as all that follow */
    const char *accept_encoding;
    const char *authorization;
    const char *host;
    const char *origin;
    const char *fetch_site;     /* Sec-Fetch-Site */
    const char *csrf;           /* X-Csrf-Token */
    const char *content_type;   /* of the body */
    const char *content_coding; /* of the body, content-encoding: lines joined by commas */
    const char *body;           /* [body_sz], not NUL-terminated */
    uint64_t body_sz;
} tdm_http1_ask_t;

/* tdm_http1_more_fn writes the next piece of an answer that goes on (server
   sent events) into buf[cap] and gives its size; 0: nothing now, ask again
   one period later.  *cursor is the answer's own, 0 at first.  On the
   library thread. */
typedef size_t tdm_http1_more_fn(void *ctx, uint64_t *cursor, int64_t now_ns, char *buf,
                                 size_t cap);

typedef struct tdm_http1_page {
    uint16_t status;
    uint16_t content_type; /* tdm_content_type_t */
    uint32_t is_gzip;
    uint32_t is_coded; /* refused for the body's coding: Accept-Encoding says identity */
    uint32_t more_ms;  /* period of more */
    const char *data;  /* copied before the next call */
    uint64_t sz;
    const char *policy;      /* Content-Security-Policy, with the other headers of a page for
                                people; NULL: none */
    const char *location;    /* NULL: none */
    tdm_http1_more_fn *more; /* not NULL: no data, but an answer that goes on */
    void *more_ctx;
} tdm_http1_page_t;

/* What one piece of a feed holds, and how many feeds there are at once;
   one more is told exchange_limit. */
#define TDM_HTTP1_FEED_MAX     (256u * 1024u)
#define TDM_HTTP1_FEED_CNT_MAX 8u

/* tdm_http1_page_fn fills page and returns 1, or returns 0 where path is
   not its own.  On the library thread: it may allocate and take a few
   milliseconds. */
typedef int tdm_http1_page_fn(void *ctx, const tdm_http1_ask_t *ask, tdm_http1_page_t *page);

typedef struct tdm_http1_config {
    const char *address;  /* numeric IPv4 or IPv6 address to listen on */
    uint16_t port;        /* 0: any free one, see tdm_http1_port */
    uint16_t door;        /* index of this door, in [0, TDM_DOOR_MAX) */
    uint32_t slot_cnt;    /* exchanges at once, in [1, 65536] */
    uint32_t reserve_cnt; /* of them kept for health, and as many connections, in [0, 8] */
    uint32_t conn_max;    /* connections, in [1, 16384] */
    uint32_t conn_per_address_max;
    uint32_t header_max;      /* bytes of all header fields of a request, in [256, 16384] */
    uint32_t pipe_sz;         /* bytes of each reply pipe, a power of two */
    uint32_t header_ms;       /* accept or first line to the end of the header; 0: no bound */
    uint32_t body_ms;         /* end of the header to the end of the body; 0: no bound */
    uint32_t idle_s;          /* a silent connection is closed after this; 0: never */
    uint32_t egress_batch;    /* egress words of one poll */
    uint32_t is_driven;       /* no library thread: the caller runs tdm_http1_turn */
    uint64_t body_max;        /* bytes of one request body */
    uint64_t body_total_max;  /* bytes of all bodies held at once */
    const char *allow_origin; /* Access-Control-Allow-Origin, NULL: not sent */
    const char *hosts;        /* "a,b": names that lead here, beside addresses, localhost and
                                 the machine's own; a loopback peer that asks by another is not
                                 trusted.  NULL: none */
} tdm_http1_config_t;

/* tdm_http1_config_default: loopback, port 8080, door 0, 256 slots, 512
   connections (64 per address), 16 KiB of header, pipes of 256 KiB, 5 s
   for a header, 30 s for a body, 15 s idle, 4 MiB per body and 64 MiB in
   all, origin "*"; 2 of each kept for health. */
void tdm_http1_config_default(tdm_http1_config_t *config);

typedef struct tdm_http1_wires {
    uint32_t api_cnt;                       /* in [1, TDM_API_TILE_MAX] */
    tdm_ring_t *arrivals[TDM_API_TILE_MAX]; /* of tdm_arrival_t; our lane is config->door */
    tdm_ring_t *hangups[TDM_API_TILE_MAX];  /* of tdm_hangup_t; our lane is config->door */
    tdm_ring_t *egress;                     /* of tdm_egress_t, one lane per api tile */
    tdm_block_t *block;                     /* written by the library thread */
    tdm_block_t *poll_block;                /* written by the caller of tdm_http1_poll */
    tdm_http1_page_fn *page;                /* NULL: no pages */
    void *page_ctx;
} tdm_http1_wires_t;

/* tdm_http1_open binds, listens and starts the library thread.  Copies
   config and wires; the rings and blocks outlive the door.  Raises the soft
   bound of descriptors to what its connections want; TDM_ERR_LIMIT where the
   hard one is lower. */
TDM_MUST_USE tdm_status_t tdm_http1_open(const tdm_http1_config_t *config,
                                         const tdm_http1_wires_t *wires, tdm_http1_t **out,
                                         tdm_error_t *err);

/* tdm_http1_unix_open listens on a Unix socket as well, made in its folder
   with mode 0666: the same door, where a page can ask the kernel who is
   there.  A name that a dead process left is taken over; TDM_ERR_FULL:
   another process answers there, or what is there is no socket.  At most once, by the thread that
   polls, before the first poll. */
TDM_MUST_USE tdm_status_t tdm_http1_unix_open(tdm_http1_t *d, const char *path, tdm_error_t *err);

/* tdm_http1_port: the port really bound. */
uint16_t tdm_http1_port(const tdm_http1_t *d);

/* tdm_http1_poll takes egress words, resumes connections, and tells api
   tiles about clients that left.  Never blocks; says how much it did.
   One thread. */
uint32_t tdm_http1_poll(tdm_http1_t *d, int64_t now_ns);

/* tdm_http1_turn does, once, what the library thread does all the time:
   takes connections, reads, calls back, writes; never blocks.  For a door
   that is_driven, where the caller then is the library thread too: tests
   and fuzzers, which want an order that repeats. */
void tdm_http1_turn(tdm_http1_t *d);

/* tdm_http1_adopt hands a connected stream socket to the door as if it had
   been accepted from addr; it is the door's then, and closed where a bound
   refuses it (0).  Only where is_driven. */
int tdm_http1_adopt(tdm_http1_t *d, int fd, const struct sockaddr *addr, socklen_t addr_sz);

/* tdm_http1_next_ns: when to poll even without a ring of the egress
   bell; TDM_TIME_NEVER if never.  Same thread as tdm_http1_poll. */
int64_t tdm_http1_next_ns(tdm_http1_t *d, int64_t now_ns);

/* tdm_http1_fd becomes readable when a client left: the extra_fd of the
   polling thread's tdm_doorbell_sleep. */
int tdm_http1_fd(const tdm_http1_t *d);

/* tdm_http1_open_cnt: exchange slots in use; any thread. */
uint32_t tdm_http1_open_cnt(tdm_http1_t *d);

/* tdm_http1_conn_cnt: connections that the library has not closed; any
   thread. */
uint32_t tdm_http1_conn_cnt(tdm_http1_t *d);

/* tdm_http1_quiesce stops listening; open connections go on. */
void tdm_http1_quiesce(tdm_http1_t *d);

/* tdm_http1_close cuts what is left and frees.  The api tiles have
   stopped, for they may write into slots until then; nobody polls. */
void tdm_http1_close(tdm_http1_t *d);

TDM_END_DECLS

#endif /* TDM_NET_HTTP1_H */
