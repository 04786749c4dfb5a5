/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_QUIC_QUIC_H
#define TDM_NET_QUIC_QUIC_H

/* tdm_quic is the server side of QUIC version 1 for one net tile: ngtcp2
   and GnuTLS as libraries without I/O.  Datagrams and a time go in,
   datagrams come out; streams go up to the room above (net/h3) through a
   table of calls.

     link --datagram--> tdm_quic_input --+-- id known -----> connection
                                         +-- new, Initial -> backlog
                                         +-- the same, no token, under load
                                         |                -> answer: Retry
                                         +-- other version > answer: ours
                                         +-- id unknown ---> answer: reset
                                         +-- else ---------> one drop reason
     tdm_quic_poll   timers that are due; one handshake from the backlog
     tdm_quic_output one datagram at a time, connections in turn

   A tile's turn: input for each datagram of a burst, poll once, output
   until it gives 0 or the burst is full.  Only connections with something
   to do are visited.

   Memory.  ngtcp2 and the room above allocate from one pool, each
   connection within its own quota; a connection that cannot allocate is
   closed (a datagram lost to that counts as quic_memory), the others do
   not notice.  Measured with ngtcp2 0.12 and nghttp3 0.8: 84 KiB in the
   handshake, 140 KiB idle, about 20 KiB more per reply that streams, and
   the windows where datagrams come out of order.  GnuTLS keeps its contexts
   on the heap (16 KiB): one session per connection, counted; handshakes are
   limited per second in all and per source (IPv4 /32, IPv6 /64), and at
   most one starts per poll.

   Strangers.  Until a source has proved its address it gets at most three
   times the bytes that it sent, and no more than it sent while Retry is on
   (RFC 9000, 8.1); Retry keeps no state: what must be remembered travels
   in a sealed token.  Retry goes on when unfinished handshakes or new
   connections per second pass their bound, and off again when both stayed
   under half of it for two seconds.  Unfinished handshakes are bounded, so
   that silent ones cannot fill the table.  Answers without state (Retry,
   version negotiation, stateless reset) are never longer than what asked
   for them; the queue for them is short, and resets have a rate.  The
   reset secret is made from the TLS key, so that a restarted server can
   end the connections of its former life.  No session tickets: no 0-RTT.

   Peers that move, behind a NAT that chose another port or address or on
   purpose (allowed: the two cannot be told apart), are followed once the
   new path answered a challenge; before that it gets at most three times
   the bytes that came from it.

   Ownership: the caller gives the memory and every buffer; a datagram is
   not kept after input returns (a new connection's first ones are
   copied).  Bytes of a stream that are handed over for sending stay the
   room above's until acked says that the peer has them.
   Limits: one caller at a time; bounded work per call; no allocation of
   ours after init, no clock, no log. */

#include "appliance/abi/reasons.h"
#include "appliance/base/status.h"
#include "net/link/link.h"

#define TDM_QUIC_DATAGRAM_MIN   1200u /* RFC 9000, 14.1 */
#define TDM_QUIC_DATAGRAM_MAX   1452u /* UDP payload of a 1500-byte IPv6 packet */
#define TDM_QUIC_CONNECTION_MAX 65536u
#define TDM_QUIC_STREAM_MAX     1024u
#define TDM_QUIC_SEND_VEC_MAX   8u

typedef struct tdm_quic tdm_quic_t;
typedef struct tdm_quic_conn tdm_quic_conn_t;

typedef struct tdm_quic_vec {
    const uint8_t *bytes;
    uint64_t sz;
} tdm_quic_vec_t;

/* tdm_quic_send is what a connection wants to put into a datagram next.
   stream_id -1: nothing.  vec_cnt 0 with is_fin: just the end. */
typedef struct tdm_quic_send {
    int64_t stream_id;
    int is_fin;
    uint32_t vec_cnt;
    tdm_quic_vec_t vec[TDM_QUIC_SEND_VEC_MAX];
} tdm_quic_send_t;

/* tdm_quic_app is the room above.  Calls come from inside input, poll and
   output, never after conn_close of that connection.  The int calls
   return 0, or -1 to close the connection: with the application error
   last given to tdm_quic_conn_fail, else with an internal error.  They may
   call any tdm_quic_conn_* below but must not call input, poll or
   output. */
typedef struct tdm_quic_app {
    void *ctx;

    /* The handshake is done: open own streams.  Before any stream call. */
    int (*conn_open)(void *ctx, tdm_quic_conn_t *c, int64_t now_ns);
    /* The connection is gone, for whatever reason; *c is still valid
       during the call.  Only after a conn_open that returned 0 or -1. */
    void (*conn_close)(void *ctx, tdm_quic_conn_t *c, int64_t now_ns);

    /* In-order bytes of a stream.  The callee says with
       tdm_quic_conn_consumed how many it is done with; that reopens the
       peer's window. */
    int (*stream_data)(void *ctx, tdm_quic_conn_t *c, int64_t stream_id, const uint8_t *bytes,
                       uint64_t sz, int is_fin, int64_t now_ns);
    /* The peer acknowledged the next sz bytes of this stream, in order. */
    int (*stream_acked)(void *ctx, tdm_quic_conn_t *c, int64_t stream_id, uint64_t sz);
    /* RESET_STREAM came: nothing more to read. */
    int (*stream_reset)(void *ctx, tdm_quic_conn_t *c, int64_t stream_id, uint64_t error);
    /* Both directions are done; the id is forgotten after the call.  A
       peer's bidirectional stream is replaced by a new credit. */
    int (*stream_close)(void *ctx, tdm_quic_conn_t *c, int64_t stream_id, uint64_t error);

    /* A datagram was taken in whole.  The moment to ask
       tdm_quic_conn_is_shut for streams whose reader may have left. */
    void (*input_done)(void *ctx, tdm_quic_conn_t *c, int64_t now_ns);

    /* Sending: pull fills *out; sent says how many of those bytes (and,
       where all of them, the fin) went into a datagram; blocked: the
       peer's window is closed until writable; shut: this stream takes no
       more bytes. */
    int (*send_pull)(void *ctx, tdm_quic_conn_t *c, tdm_quic_send_t *out, int64_t now_ns);
    int (*send_sent)(void *ctx, tdm_quic_conn_t *c, int64_t stream_id, uint64_t sz);
    void (*send_blocked)(void *ctx, tdm_quic_conn_t *c, int64_t stream_id);
    void (*send_shut)(void *ctx, tdm_quic_conn_t *c, int64_t stream_id);
    int (*send_writable)(void *ctx, tdm_quic_conn_t *c, int64_t stream_id);
} tdm_quic_app_t;

typedef struct tdm_quic_config {
    uint32_t connection_max;         /* 1..TDM_QUIC_CONNECTION_MAX */
    uint32_t stream_max;             /* a peer's open requests per connection */
    uint64_t pool_sz;                /* bytes for ngtcp2 and the room above, all connections */
    uint64_t connection_pool_sz;     /* quota of one connection, bytes */
    uint64_t stream_window_sz;       /* unread bytes of one stream; 0: 64 KiB */
    uint64_t connection_window_sz;   /* unread bytes of all streams; 0: 256 KiB */
    uint32_t handshake_per_s;        /* new connections per second, in all */
    uint32_t handshake_per_s_source; /* the same, per source prefix */
    uint32_t handshake_burst;        /* bucket depth in all; 0: handshake_per_s */
    uint32_t handshake_burst_source; /* bucket depth per source; 0: as per second */
    int64_t idle_timeout_ns;         /* silence that ends a connection */
    int64_t handshake_timeout_ns;    /* time for a handshake; 0: 10 s */
    uint16_t datagram_max;           /* bytes we send, 1200..; 0: 1200 */
    uint8_t tile_idx;                /* first byte of our connection ids: steering */
    uint8_t is_retry_always;         /* every new source proves its address */
    uint32_t half_open_max;          /* unfinished handshakes; 0: connection_max */
    uint32_t retry_half_open;        /* Retry goes on with so many of them; 0: not by that */
    uint32_t retry_per_s;            /* or with so many new ones per second; 0: not by that */
    uint32_t reserved;
    const char *cert_file; /* PEM chain */
    const char *key_file;  /* PEM key */
    uint64_t seed;         /* for padding and probes; not for secrets */
    tdm_quic_app_t app;
} tdm_quic_config_t;

/* Gauges and counters, written by the tile only; the tile copies them to
   its telemetry block. */
typedef struct tdm_quic_counters {
    uint64_t datagrams_rx;
    uint64_t datagrams_tx;
    uint64_t handshakes_started;
    uint64_t handshakes_done;
    uint64_t handshakes_failed;  /* started == done + failed + half_open_cnt */
    uint64_t connections_idle;   /* ended by silence */
    uint64_t connections_failed; /* ended by an error */
    uint64_t version_answers;
    uint64_t retries;      /* Retry packets sent */
    uint64_t retry_tokens; /* connections begun with a good token */
    uint64_t resets;       /* stateless resets sent */
    uint64_t key_updates;  /* by either side */
    uint64_t path_changes; /* peers followed to another address */
    /* Bytes from and to sources that had not proved their address, by the
       time each was seen. */
    uint64_t unproved_rx_sz;
    uint64_t unproved_tx_sz;
    uint64_t packet_gaps;          /* 1-RTT packets of peers that never arrived */
    uint64_t left_blocks;          /* pool blocks that the library forgot, freed at close */
    uint64_t drop[TDM_REASON_CNT]; /* by reason; the quic_* ones move */
    uint64_t pool_fail_cnt;        /* allocations that were refused */
    uint64_t pool_used_sz;         /* gauge */
    uint64_t pool_high_sz;         /* most of it ever used */
    uint32_t connection_cnt;       /* gauge: slots in use, closing ones included */
    uint32_t tls_session_cnt;      /* gauge: GnuTLS sessions on the heap */
    uint32_t half_open_cnt;        /* gauge: unfinished handshakes */
    uint32_t is_retry_on;          /* gauge */
} tdm_quic_counters_t;

/* --- life ----------------------------------------------------------- */

/* tdm_quic_footprint gives the bytes that create needs for this
   configuration; 0 where a value is out of range. */
uint64_t tdm_quic_footprint(const tdm_quic_config_t *cfg);

/* tdm_quic_create formats mem (footprint bytes, 64-byte aligned), loads
   certificate and key, and answers a ready server.  Boot time only. */
TDM_MUST_USE tdm_status_t tdm_quic_create(void *mem, const tdm_quic_config_t *cfg, tdm_quic_t **out,
                                          tdm_error_t *err);

/* tdm_quic_destroy forgets every connection without a word to the peers
   (conn_close is called for each) and frees what GnuTLS holds. */
void tdm_quic_destroy(tdm_quic_t *q);

/* --- the tile's turn ------------------------------------------------ */

/* tdm_quic_input takes one datagram.  NONE: it was for a connection, or
   waits in the backlog; else the drop reason, already counted. */
tdm_reason_t tdm_quic_input(tdm_quic_t *q, const tdm_datagram_t *dg, int64_t now_ns);

/* tdm_quic_poll runs timers that are due and starts at most one
   handshake.  It answers how much it did, 0 = nothing. */
uint32_t tdm_quic_poll(tdm_quic_t *q, int64_t now_ns);

/* tdm_quic_output writes the next datagram to buf (buf_sz >= 1200, best the
   configured datagram_max) and says in *dg where it goes (payload = buf).
   0: nothing to send now. */
uint32_t tdm_quic_output(tdm_quic_t *q, uint8_t *buf, uint32_t buf_sz, tdm_datagram_t *dg,
                         int64_t now_ns);

/* tdm_quic_next_ns: when poll wants to run although nothing came; a time
   in the past where work waits already; TDM_TIME_NEVER. */
int64_t tdm_quic_next_ns(const tdm_quic_t *q);

/* tdm_quic_counters: the pointer is good for q's life. */
const tdm_quic_counters_t *tdm_quic_counters(tdm_quic_t *q);

/* --- one connection, for the room above ----------------------------- */

/* tdm_quic_conn_user and _set_user: a pointer of the room above. */
void *tdm_quic_conn_user(const tdm_quic_conn_t *c);
void tdm_quic_conn_set_user(tdm_quic_conn_t *c, void *user);

/* tdm_quic_conn_idx: in [0, connection_max), stable for its life. */
uint32_t tdm_quic_conn_idx(const tdm_quic_conn_t *c);

/* tdm_quic_conn_remote: the peer's current address. */
const tdm_endpoint_t *tdm_quic_conn_remote(const tdm_quic_conn_t *c);

/* tdm_quic_conn_wake: the room above has bytes to send. */
void tdm_quic_conn_wake(tdm_quic_conn_t *c);

/* tdm_quic_conn_keep: the peer waits for us (1) or not (0).  While it does,
   a PING every sixth of the idle timeout asks for a sign of life: a peer
   that lives is not given up for a silence that is ours, and one that is
   gone is missed a sixth later. */
void tdm_quic_conn_keep(tdm_quic_conn_t *c, int is_wanted);

/* tdm_quic_conn_consumed: sz bytes of stream_data are done with. */
void tdm_quic_conn_consumed(tdm_quic_conn_t *c, int64_t stream_id, uint64_t sz);

/* tdm_quic_conn_stream_max: how many streams of requests the peer may have
   opened by now, from the first on. */
uint64_t tdm_quic_conn_stream_max(const tdm_quic_conn_t *c);

/* tdm_quic_conn_open_uni opens a stream of ours; -1 where the peer allows
   none. */
int64_t tdm_quic_conn_open_uni(tdm_quic_conn_t *c);

/* tdm_quic_conn_reset ends both directions of a stream (RESET_STREAM and
   STOP_SENDING); _stop_read sends STOP_SENDING only, _stop_write
   RESET_STREAM only. */
void tdm_quic_conn_reset(tdm_quic_conn_t *c, int64_t stream_id, uint64_t error);
void tdm_quic_conn_stop_read(tdm_quic_conn_t *c, int64_t stream_id, uint64_t error);
void tdm_quic_conn_stop_write(tdm_quic_conn_t *c, int64_t stream_id, uint64_t error);

/* tdm_quic_conn_is_shut: our half of the stream takes no more bytes: its
   end was sent, or it was reset, or the peer sent STOP_SENDING. */
int tdm_quic_conn_is_shut(tdm_quic_conn_t *c, int64_t stream_id);

/* tdm_quic_conn_fail marks the connection to be closed with an
   application error at the next output. */
void tdm_quic_conn_fail(tdm_quic_conn_t *c, uint64_t error);

/* tdm_quic_conn_alloc and _free: the pool, within the connection's quota;
   NULL where it is exhausted.  realloc as in C. */
void *tdm_quic_conn_alloc(tdm_quic_conn_t *c, uint64_t sz);
void *tdm_quic_conn_realloc(tdm_quic_conn_t *c, void *p, uint64_t sz);
void tdm_quic_conn_free(tdm_quic_conn_t *c, void *p);

/* tdm_quic_conn_walk visits live connections whose conn_open was called,
   from *cursor on, at most max of them; it moves the cursor and returns
   how many were visited; *cursor == 0 again: the round is complete. */
uint32_t tdm_quic_conn_walk(tdm_quic_t *q, uint32_t *cursor, uint32_t max,
                            void (*visit)(void *arg, tdm_quic_conn_t *c), void *arg);

#endif /* TDM_NET_QUIC_QUIC_H */
