/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_H3_PRIVATE_H
#define TDM_NET_H3_PRIVATE_H

/* The inside of net/h3: one file per noun.

     h3.c       life, the map from exchange to stream, deadlines, drain
     session.c  one connection: net/quic's calls, told to nghttp3
     request.c  one request: nghttp3's calls, told to the tile
     crowd.c    who gets a place where there is none
     linger.c   clients that take no answer
     reply.c    one reply: head, body from the pipe, acknowledgement
     refusal.c  the answers h3 words itself */

#include "net/h3/h3.h"

#include <nghttp3/nghttp3.h>

#define NONE_IDX         UINT32_MAX
#define REFUSAL_BODY_MAX 256u
#define OWN_COPY_MAX     1024u /* larger answers stay in their pipe */

/* Sources share a count where their hashes meet: of fairness alone. */
#define SOURCE_CNT 1024u

typedef struct session session_t;

/* draft keeps the fields of a header section until it is whole, in the
   memory of its connection: before, there is no exchange for them. */
typedef struct draft {
    char host[264]; /* of :authority or host: a name and a port */
    char path[sizeof((tdm_exchange_t *)0)->path];
    char query[sizeof((tdm_exchange_t *)0)->query];
    char authorization[sizeof((tdm_exchange_t *)0)->authorization];
    char content_type[sizeof((tdm_exchange_t *)0)->content_type];
    char content_coding[sizeof((tdm_exchange_t *)0)->content_coding];
    char request_id[sizeof((tdm_exchange_t *)0)->request_id];
    uint16_t is_truncated;
    uint16_t is_malformed;
} draft_t;

typedef struct stream {
    session_t *session;
    draft_t *draft;    /* NULL: the header is whole, or nobody asks any more */
    tdm_exchange_t *x; /* NULL: none, or given back */
    int64_t id;
    int64_t begin_ns;
    int64_t first_byte_ns;
    uint64_t header_sz;
    uint64_t content_sz; /* of content-length; 0: none */
    uint64_t discard_sz;
    uint64_t owed_sz;     /* bytes of the pipe that the client has not acknowledged */
    int64_t moved_ns;     /* when the client last did its part */
    const char *own_body; /* an answer of h3's, or own_copy, instead of the pipe */
    char *own_copy;       /* in the memory of its connection; NULL: none */
    uint32_t own_sz;
    uint32_t cursor;     /* of the pipe */
    uint32_t generation; /* of x */
    uint32_t source;     /* of the request, in [0, SOURCE_CNT) */
    uint16_t method;     /* tdm_method_t */
    uint16_t refuse;     /* found by the door, told with exchange_ready */
    uint32_t prev;       /* of the session's list */
    uint32_t next;
    uint32_t late_prev; /* of the list of requests not yet whole */
    uint32_t late_next;
    uint8_t is_used;
    uint8_t is_late_listed;
    uint8_t is_unfinished; /* has x, and the request is not whole */
    uint8_t is_whole;      /* the request's last byte came */
    uint8_t is_vital;      /* of somebody who watches */
    uint8_t is_delivered;  /* exchange_ready was called */
    uint8_t is_taken;      /* and answered NONE */
    uint8_t is_head_sent;
    uint8_t is_bodyless; /* HEAD, or a status without body */
    uint8_t is_end_seen; /* the api tile's END word came */
    uint8_t is_end_sent; /* the end was handed to nghttp3 */
    uint8_t is_gone;     /* the client left, or the stream was cut */
    uint8_t is_read_stopped;
    uint8_t has_lingered; /* and was reset for it */
} stream_t;

typedef enum goaway {
    GOAWAY_NONE,
    GOAWAY_NOTICE, /* no id named yet: requests on their way are served */
    GOAWAY_FINAL,  /* later ones are rejected */
} goaway_t;

struct session {
    tdm_h3_t *h;
    tdm_quic_conn_t *c;
    nghttp3_conn *nc;
    nghttp3_mem mem;
    uint32_t first; /* of its streams */
    uint32_t stream_cnt;
    uint32_t goaway;  /* goaway_t */
    uint64_t body_sz; /* bytes of bodies in the piece that is read */
    int64_t goaway_ns;
};

struct tdm_h3 {
    tdm_h3_config_t cfg;
    tdm_h3_counters_t counters;
    tdm_quic_t *q;
    session_t *session; /* [connection_max] by connection index */
    stream_t *stream;   /* [stream_max] */
    uint32_t *free_idx; /* [stream_max] */
    uint32_t *by_slot;  /* [exchange_max] stream of an exchange slot */
    uint32_t free_cnt;
    uint32_t late_head; /* oldest request not yet whole */
    uint32_t late_tail;
    uint32_t drain_cursor;
    uint32_t crowd_cursor;
    uint32_t linger_cursor;
    int64_t linger_ns;               /* next look at those that linger */
    int64_t short_ns;                /* when a request last found no place */
    uint32_t source_cnt[SOURCE_CNT]; /* requests not yet whole */
    int64_t drain_ns;                /* next visit; TDM_TIME_NEVER: not draining */
    int64_t now_ns;                  /* of the call that runs */
    char refusal[TDM_REASON_CNT][REFUSAL_BODY_MAX];
};

/* h3.c */
/* stream_open: a request begins; NULL: there is no place for it. */
stream_t *stream_open(session_t *s, int64_t id);
void stream_free(stream_t *st);
void late_remove(stream_t *st);
/* exchange_take gives a request with its whole header an exchange, where there
   is one, and ends the draft; is_whole: nothing follows. */
void exchange_take(stream_t *st, int is_whole);
void exchange_give_back(stream_t *st);
/* finished: the request needs nothing more from its client. */
void finished(stream_t *st);
void draft_free(stream_t *st);

/* crowd.c */
/* source_of counts an address among those that share its prefix. */
uint32_t source_of(const tdm_h3_t *h, const tdm_endpoint_t *remote);
/* crowd_yields ends a request that is not whole for one of source, which has
   own_cnt others; of those with an exchange where has_exchange.  0: none
   makes way. */
int crowd_yields(tdm_h3_t *h, uint32_t source, uint32_t own_cnt, int has_exchange);
/* linger.c */
/* linger_look ends what lingers and says how much that was; linger_next_ns:
   when it is due. */
uint32_t linger_look(tdm_h3_t *h);
int64_t linger_next_ns(const tdm_h3_t *h);
/* give_back_taken: the client has all of the answer. */
void give_back_taken(stream_t *st);

/* reject ends a stream of which nothing was done. */
void reject(session_t *s, int64_t id);

/* session.c */
void session_drain(session_t *s);
/* session_cut ends a request that is malformed. */
void session_cut(session_t *s, int64_t id, uint64_t error);
extern const tdm_quic_app_t session_calls;

/* request.c */
extern const nghttp3_callbacks request_calls;
/* client_left: nobody waits for this reply any more. */
void client_left(stream_t *st);
/* deliver gives the exchange to the tile, once. */
void deliver(stream_t *st);
void stop_read(stream_t *st, uint64_t error);

/* reply.c */
/* own_take copies a whole answer out of its pipe and gives the exchange back;
   0: it stays where it is. */
int own_take(stream_t *st);
void reply_head(stream_t *st, const tdm_reply_head_t *head);
void reply_more(stream_t *st);
void reply_cut(stream_t *st, uint64_t error);
int reply_acked(stream_t *st, uint64_t sz);

/* refusal.c */
void refusal_init(tdm_h3_t *h);
/* refusal_answer replies without an api tile. */
void refusal_answer(stream_t *st, tdm_reason_t reason);

#endif /* TDM_NET_H3_PRIVATE_H */
