/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_H3_H3_H
#define TDM_NET_H3_H3_H

/* tdm_h3 turns the streams of net/quic into exchanges and exchanges'
   replies into streams (HTTP/3, RFC 9114, nghttp3 as a library).  It owns
   no ring: the net tile does the rings and is called for each step.

     client                h3                        tile
     HEADERS  ---------->  a draft of its fields
     whole    ---------->  exchange_open()     --->  a free slot, or NULL
                           fill method, path ...
     DATA     ---------->  copy to body
     FIN      ---------->  exchange_ready(x)   --->  exchange ring to api
                           tdm_h3_reply(x, HEAD..)   <- egress lane
     <- HEADERS, DATA ---  records of x->reply
                           record_sent(x, n)   --->  TTFT, token gaps
     ACK      ---------->  releases the pipe
                           exchange_closed(x)  --->  slot may be freed
     reset, close, silence
              ---------->  exchange_gone(x)    --->  control lane: cancel
                           exchange_closed(x)

   What h3 answers by itself (a short JSON error, made at start): no free
   slot (exchange_limit), and whatever refusal exchange_ready returns.
   What it only marks: x->refuse is header_too_large, body_too_large,
   bad_request (a field that may come once came twice) or request_timeout, and the api tile words
   the answer like any other.  A body over the bound is read and thrown away up to discard_max
   bytes, so that the client hears the answer; then the stream is stopped.  Malformed HTTP/3 resets
   the stream (H3_MESSAGE_ERROR: a field, :authority unlike host, or a body of another length than
   content-length; H3_REQUEST_INCOMPLETE: no request in it) or closes the connection with the code
   of RFC 9114.

   Crowds.  A header section that does not end holds no exchange, and
   requests whose body does not end hold at most unfinished_max of them, so
   that one that is whole finds a place.  Where places are short, the source
   (IPv4 /32, IPv6 /64) with most requests that are not whole gives up its
   oldest for one with fewer, or for anybody after a second: that one is
   reset with H3_REQUEST_REJECTED, which says that it may be sent again.

   Lingerers.  An exchange is given back once its answer is acknowledged.
   Whose client takes nothing of an answer that waits for it, or does not end
   its own half of a stream that is over, for linger_ns is reset, and where
   that is not acknowledged for as long its connection ends
   (H3_EXCESSIVE_LOAD).  While places are short two seconds have to
   do.

   Who watches.  GET and HEAD of /health and /ready may have an exchange of
   those that the tile keeps for them, are delivered with their header, and
   give it back as soon as their answer is whole: it is copied to the memory
   of their connection.  So a full table answers them, and who asks and takes
   no answer holds none of the places.

   Ownership: exchanges, their body memory and pipes are the tile's; h3
   uses them from exchange_open to exchange_closed.  The caller gives h3's
   memory; nghttp3 allocates within each connection's quota of the QUIC
   pool.
   Limits: one caller at a time; bounded work per call; no allocation of
   ours after init, no clock, no log. */

#include "appliance/abi/exchange.h"
#include "appliance/abi/reasons.h"
#include "appliance/base/status.h"
#include "net/quic/quic.h"

typedef struct tdm_h3 tdm_h3_t;

/* tdm_h3_tile: calls into the net tile.  They come from inside
   tdm_quic_input, tdm_quic_poll, tdm_quic_output, tdm_h3_reply and
   tdm_h3_poll, and must call none of these. */
typedef struct tdm_h3_tile {
    void *ctx;

    /* A free exchange, its header being whole: handle, door, door_kind, is_trusted_peer (judged by
       remote), body, reply (empty pipe) set and everything else zeroed.
       is_vital: of somebody who watches.  NULL: none is free; the client
       gets 503 exchange_limit. */
    tdm_exchange_t *(*exchange_open)(void *ctx, const tdm_endpoint_t *remote, int is_vital);

    /* The request is whole.  1: the tile answered at once: x->head is
       filled, the whole body lies in the pipe, and only exchange_closed
       follows.  0: exchange_ready does.  NULL: no such answers. */
    int (*exchange_answer)(void *ctx, tdm_exchange_t *x, int64_t now_ns);

    /* The request is whole, or refuse is set: it goes to an api tile.
       NONE: taken; else a refusal that h3 answers itself, after which only
       exchange_closed follows. */
    tdm_reason_t (*exchange_ready)(void *ctx, tdm_exchange_t *x, int64_t now_ns);

    /* The client left after exchange_ready and before the END word: cancel
       at the api tile.  exchange_closed follows once QUIC has let go of the
       reply's bytes. */
    void (*exchange_gone)(void *ctx, tdm_exchange_t *x, int64_t now_ns);

    /* h3 touches x no more, which may be inside tdm_h3_reply.  The slot is free once the api tile's
       END came too (where exchange_ready had returned NONE). */
    void (*exchange_closed)(void *ctx, tdm_exchange_t *x, int64_t now_ns);

    /* A record that completes token_cnt (>= 0) tokens, made at made_ns (0: not
       told), was handed to QUIC. */
    void (*record_sent)(void *ctx, tdm_exchange_t *x, uint32_t token_cnt, int64_t made_ns,
                        int64_t now_ns);
} tdm_h3_tile_t;

typedef struct tdm_h3_config {
    uint32_t connection_max;    /* as in tdm_quic_config_t */
    uint32_t stream_max;        /* requests open at once, all connections */
    uint32_t exchange_max;      /* handle.slot of an exchange is below it */
    uint64_t body_max;          /* bytes at x->body */
    uint64_t discard_max;       /* bytes of an oversized body to read and drop; 0: 1 MiB */
    uint64_t header_max;        /* bytes of names and values of one request; 0: 16 KiB */
    int64_t request_timeout_ns; /* from HEADERS to the body's end; 0: 30 s */
    int64_t linger_ns;          /* a client may rest for so long; 0: 30 s */
    uint32_t unfinished_max;    /* exchanges of requests that are not whole; 0: 7/8 of them */
    uint64_t seed;              /* keeps strangers from choosing whose count they share */
    tdm_h3_tile_t tile;
} tdm_h3_config_t;

typedef struct tdm_h3_counters {
    uint64_t requests;                /* header sections that came whole */
    uint64_t replies;                 /* heads submitted */
    uint64_t protocol_errors;         /* streams or connections with bad HTTP/3 */
    uint64_t body_discarded_sz;       /* bytes read and dropped */
    uint64_t rejected;                /* requests reset for want of a place, or to make one */
    uint64_t lingered;                /* streams reset, and connections ended, for that */
    uint64_t stale;                   /* reply words for an exchange already closed */
    uint64_t refused[TDM_REASON_CNT]; /* answered by h3 itself, by reason */
    uint32_t stream_cnt;              /* gauge */
    uint32_t unfinished_cnt;          /* gauge: of exchanges whose request is not whole */
    uint32_t connection_cnt;          /* gauge */
} tdm_h3_counters_t;

/* tdm_h3_footprint gives the bytes that create needs; 0: out of range. */
uint64_t tdm_h3_footprint(const tdm_h3_config_t *cfg);

/* tdm_h3_create formats mem (64-byte aligned).  Boot time only. */
TDM_MUST_USE tdm_status_t tdm_h3_create(void *mem, const tdm_h3_config_t *cfg, tdm_h3_t **out,
                                        tdm_error_t *err);

/* tdm_h3_app gives the table to put into tdm_quic_config_t. */
tdm_quic_app_t tdm_h3_app(tdm_h3_t *h);

/* tdm_h3_attach tells h3 its QUIC, between tdm_quic_create and the first
   datagram. */
void tdm_h3_attach(tdm_h3_t *h, tdm_quic_t *q);

/* tdm_h3_reply acts on an egress word's flags (TDM_EGRESS_*; BODY_DONE is
   the tile's business and ignored): HEAD submits x->head, RECORD says that
   the pipe has more, END that nothing follows, END with ABORT cuts the
   stream off.  For an exchange after exchange_closed it is counted as
   stale and ignored. */
void tdm_h3_reply(tdm_h3_t *h, tdm_exchange_t *x, uint32_t flags, int64_t now_ns);

/* tdm_h3_poll ends requests that took too long, and streams that linger,
   and, while draining, tells
   a few connections to go away; after tdm_quic_poll in a turn.  It answers
   how much it did. */
uint32_t tdm_h3_poll(tdm_h3_t *h, int64_t now_ns);

/* tdm_h3_next_ns: when tdm_h3_poll wants to run. */
int64_t tdm_h3_next_ns(const tdm_h3_t *h);

/* tdm_h3_drain starts the graceful end: GOAWAY to every connection, new
   ones included; a connection closes when its last stream has. */
void tdm_h3_drain(tdm_h3_t *h);

/* tdm_h3_cut ends every connection with CONNECTION_CLOSE, its streams with
   it, as tdm_quic_output goes on. */
void tdm_h3_cut(tdm_h3_t *h);

/* tdm_h3_counters: good while h lives, gauges as of this call.  Net tile
   only. */
const tdm_h3_counters_t *tdm_h3_counters(tdm_h3_t *h);

#endif /* TDM_NET_H3_H3_H */
