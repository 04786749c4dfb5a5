/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_CLIENT_CLIENT_H
#define TDM_NET_CLIENT_CLIENT_H

/* tdm_client is an HTTP/3 client: one connection, many requests at once.
   tandemctl and the tests use it.  It comes in two forms of one object:

     over a kernel UDP socket      in memory, for tests
     tdm_client_connect            tdm_client_open
     tdm_client_request            tdm_client_request
     tdm_client_step / _wait       tdm_client_output -> server -> _input
     tdm_client_close              tdm_client_close

   A request's life is told through its tdm_client_sink_t: head once, then
   header per field, body in pieces as they come, end exactly once.

   Ownership: a request's fields and body are copied.  Sink calls come from
   inside step, wait, input, output, cancel, shutdown and close; they may
   request and cancel, nothing else.
   Threads: one at a time.  Memory comes from the heap: this room never
   runs on a polling tile. */

#include "appliance/base/status.h"

typedef struct tdm_client tdm_client_t;

#define TDM_CLIENT_PIN_SZ     32u
#define TDM_CLIENT_HEADER_MAX 16u

typedef enum tdm_client_verify {
    TDM_CLIENT_VERIFY_INSECURE, /* any certificate: a demo on this host only */
    TDM_CLIENT_VERIFY_CA,       /* chain to ca_file (or the system's), name = host */
    TDM_CLIENT_VERIFY_PIN,      /* SHA-256 of the leaf certificate equals pin */
} tdm_client_verify_t;

/* Silence after which a client that waits for a reply says that it is
   there.  It has nothing else to send, so a NAT that chose another port for
   it, or another network, would stay unknown to the server (RFC 9000,
   9.3): the stream would rest until the next keep-alive.  A second is the
   most that a reader takes for a pause; a PING and its answer are 80
   bytes.  An estimate, not measured. */
#define TDM_CLIENT_LISTEN_NS INT64_C(1000000000)

typedef struct tdm_client_config {
    const char *host; /* name or address; [::1] may have brackets */
    uint16_t port;
    uint16_t verify;     /* tdm_client_verify_t */
    const char *ca_file; /* PEM; NULL: the system's */
    uint8_t pin[TDM_CLIENT_PIN_SZ];
    int64_t connect_timeout_ns; /* 0: 5 s */
    int64_t idle_timeout_ns;    /* 0: 60 s; keep-alive PINGs go out at a third of it,
                                   and after TDM_CLIENT_LISTEN_NS where a reply is awaited */
    uint64_t window_sz;         /* unread bytes of one stream; 0: 1 MiB */
    uint8_t is_keep_alive_off;  /* send no PING: the peer will see silence */
} tdm_client_config_t;

typedef enum tdm_client_outcome {
    TDM_CLIENT_DONE,      /* the reply is whole */
    TDM_CLIENT_RESET,     /* the server cut the stream; error is its code */
    TDM_CLIENT_CANCELLED, /* tdm_client_cancel */
    TDM_CLIENT_LOST,      /* the connection ended first */
} tdm_client_outcome_t;

typedef struct tdm_client_sink {
    void *ctx;
    void (*head)(void *ctx, int64_t id, int status);
    void (*header)(void *ctx, int64_t id, const char *name, const char *value);
    void (*body)(void *ctx, int64_t id, const uint8_t *bytes, uint64_t sz);
    void (*end)(void *ctx, int64_t id, tdm_client_outcome_t outcome, uint64_t error);
} tdm_client_sink_t; /* any call may be NULL */

typedef struct tdm_client_header {
    const char *name; /* lower case */
    const char *value;
} tdm_client_header_t;

typedef struct tdm_client_request {
    const char *method; /* "GET", ... */
    const char *path;   /* with query */
    const tdm_client_header_t *header;
    uint32_t header_cnt; /* <= TDM_CLIENT_HEADER_MAX */
    const uint8_t *body; /* [body_sz], NULL: none */
    uint64_t body_sz;
} tdm_client_request_t;

/* --- both forms ----------------------------------------------------- */

/* tdm_client_request starts a request; its stream id goes to *id.
   TDM_ERR_FULL: the server allows no further stream right now. */
TDM_MUST_USE tdm_status_t tdm_client_request(tdm_client_t *c, const tdm_client_request_t *req,
                                             const tdm_client_sink_t *sink, int64_t *id,
                                             tdm_error_t *err);

/* tdm_client_cancel resets the stream; end(CANCELLED) is called at once.
   An unknown id is ignored. */
void tdm_client_cancel(tdm_client_t *c, int64_t id);

/* tdm_client_shutdown ends the connection: open requests end as LOST, the
   next output is CONNECTION_CLOSE. */
void tdm_client_shutdown(tdm_client_t *c);

/* tdm_client_close does the same, sends that last datagram where there is
   a socket, and frees everything.  NULL is allowed. */
void tdm_client_close(tdm_client_t *c);

/* tdm_client_is_ready: the handshake is done and verified, the connection
   is alive, requests may be made. */
int tdm_client_is_ready(const tdm_client_t *c);

/* tdm_client_is_closed: it will never be ready (again); the reason is in
 *err (NULL allowed). */
int tdm_client_is_closed(const tdm_client_t *c, tdm_error_t *err);

/* tdm_client_open_cnt counts requests without their end yet. */
uint32_t tdm_client_open_cnt(const tdm_client_t *c);

/* tdm_client_rtt_ns: smoothed round trip time, 0 where unknown. */
int64_t tdm_client_rtt_ns(const tdm_client_t *c);

/* tdm_client_peer_pin gives the leaf certificate's SHA-256; 0 before the
   handshake. */
int tdm_client_peer_pin(const tdm_client_t *c, uint8_t out[TDM_CLIENT_PIN_SZ]);

/* --- over a socket -------------------------------------------------- */

/* tdm_client_connect resolves, tries the host's addresses in turn until a
   handshake is done, or says why the last one failed. */
TDM_MUST_USE tdm_status_t tdm_client_connect(const tdm_client_config_t *cfg, tdm_client_t **out,
                                             tdm_error_t *err);

/* tdm_client_step waits for datagrams or timers, at most timeout_ns, and
   handles what is there.  OK; else the connection is over: CLOSED, TIMEOUT
   (silence) or PERM (not trusted). */
TDM_MUST_USE tdm_status_t tdm_client_step(tdm_client_t *c, int64_t timeout_ns, tdm_error_t *err);

/* tdm_client_wait steps until request id has ended: OK; TIMEOUT (the
   request goes on) or CLOSED otherwise.  id -1: until none is open. */
TDM_MUST_USE tdm_status_t tdm_client_wait(tdm_client_t *c, int64_t id, int64_t timeout_ns,
                                          tdm_error_t *err);

/* tdm_client_fd: the socket, for a caller's own poll(2); -1 in memory. */
int tdm_client_fd(const tdm_client_t *c);

/* --- in memory ------------------------------------------------------ */

/* tdm_client_open makes a client without a socket; port and host only name
   the server. */
TDM_MUST_USE tdm_status_t tdm_client_open(const tdm_client_config_t *cfg, int64_t now_ns,
                                          tdm_client_t **out, tdm_error_t *err);

/* tdm_client_input takes one datagram from the server. */
void tdm_client_input(tdm_client_t *c, const uint8_t *bytes, uint64_t sz, int64_t now_ns);

/* tdm_client_output writes the next datagram, buf_sz >= 1452; 0: none. */
uint32_t tdm_client_output(tdm_client_t *c, uint8_t *buf, uint32_t buf_sz, int64_t now_ns);

/* tdm_client_next_ns: when output should be called although nothing came. */
int64_t tdm_client_next_ns(const tdm_client_t *c);

#endif /* TDM_NET_CLIENT_CLIENT_H */
