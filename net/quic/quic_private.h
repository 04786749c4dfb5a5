/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_QUIC_PRIVATE_H
#define TDM_NET_QUIC_PRIVATE_H

/* The inside of net/quic: one file per noun.

     quic.c     life, the tile's turn, the ready list
     conn.c     birth, input, timer and end of one connection
     events.c   what ngtcp2 tells a connection
     send.c     the next datagram of one connection
     tls.c      certificate, priorities, one session per connection
     cids.c     connection id -> connection
     rate.c     handshakes per second, in all and per source
     timer.c    who wants to be woken when
     backlog.c  first datagrams of new connections
     answer.c   answers that leave no state behind
     retry.c    when a source must prove its address, and its token
     gap.c      packet numbers that never arrived */

#include "appliance/base/rng.h"
#include "net/quic/pool.h"
#include "net/quic/quic.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>

#define CID_SZ        16u /* of the ids we give out */
#define CID_PER_CONN  16u
#define NONE_IDX      UINT32_MAX
#define CLOSE_PKT_MAX 192u

/* --- keyed hash ------------------------------------------------------ */

typedef struct hash_key {
    uint64_t k[2];
} hash_key_t;

/* hash_bytes is SipHash-2-4 (appliance/base/sip.h): peers choose the bytes,
   so the key keeps them from choosing the bucket. */
uint64_t hash_bytes(const hash_key_t *key, const uint8_t *bytes, uint64_t sz);

/* --- cids.c ---------------------------------------------------------- */

typedef struct cid {
    uint8_t sz; /* 0: empty */
    uint8_t bytes[NGTCP2_MAX_CIDLEN];
} cid_t;

typedef struct cid_slot {
    cid_t cid;
    uint32_t conn_idx;
} cid_slot_t;

/* Open addressing, linear probing, backward-shift deletion; at most half
   full by construction. */
typedef struct cid_table {
    hash_key_t key;
    cid_slot_t *slot;
    uint32_t mask;
    uint32_t cnt;
} cid_table_t;

/* cid_table_capacity gives the slots for so many connections, a power of
   two.  find: NONE_IDX where nobody has the id.  add: 0 where it is taken
   already.  remove of an id that is not there does nothing. */
uint32_t cid_table_capacity(uint32_t connection_max);
uint32_t cid_table_find(const cid_table_t *t, const uint8_t *bytes, uint64_t sz);
int cid_table_add(cid_table_t *t, const cid_t *cid, uint32_t conn_idx);
void cid_table_remove(cid_table_t *t, const cid_t *cid);

/* --- rate.c ---------------------------------------------------------- */

#define RATE_WAY_CNT 4u
#define RATE_SET_CNT 512u

typedef struct bucket {
    int64_t full_ns; /* when it will be full again; a past time: full */
} bucket_t;

typedef struct rate_entry {
    uint64_t prefix[2]; /* source prefix; all zero: empty */
    bucket_t bucket;
} rate_entry_t;

typedef struct rate {
    hash_key_t key;
    int64_t step_ns; /* per handshake, in all */
    int64_t depth_ns;
    int64_t source_step_ns;
    int64_t source_depth_ns;
    bucket_t all;
    rate_entry_t entry[RATE_SET_CNT][RATE_WAY_CNT];
} rate_t;

/* rate_init sets the limits of a zeroed r whose key is there. */
void rate_init(rate_t *r, const tdm_quic_config_t *cfg);
/* bucket_take: 1 where the bucket gives one more now. */
int bucket_take(bucket_t *b, int64_t step_ns, int64_t depth_ns, int64_t now_ns);
/* rate_take: 1 where a handshake from remote is allowed now. */
int rate_take(rate_t *r, const tdm_endpoint_t *remote, int64_t now_ns);

/* --- timer.c --------------------------------------------------------- */

/* A binary heap of connection indices by time. */
typedef struct timer_heap {
    uint32_t *heap;  /* [connection_max] */
    uint32_t *pos;   /* [connection_max] by connection, NONE_IDX: not in */
    int64_t *due_ns; /* [connection_max] by connection */
    uint32_t cnt;
} timer_heap_t;

void timer_set(timer_heap_t *t, uint32_t idx, int64_t due_ns); /* TDM_TIME_NEVER removes */
uint32_t timer_due(const timer_heap_t *t, int64_t now_ns);     /* NONE_IDX: none */
int64_t timer_next_ns(const timer_heap_t *t);

/* --- backlog.c ------------------------------------------------------- */

#define BACKLOG_MAX      64u
#define BACKLOG_SAME_MAX 3u /* datagrams of one new connection */
#define BACKLOG_BYTES    2048u

typedef struct waiting {
    tdm_endpoint_t remote;
    tdm_endpoint_t local;
    cid_t dcid;
    cid_t odcid; /* before a Retry; empty: there was none */
    uint32_t ecn;
    uint32_t sz;
    uint8_t bytes[BACKLOG_BYTES];
} waiting_t;

typedef struct backlog {
    uint32_t head;
    uint32_t cnt;
    waiting_t waiting[BACKLOG_MAX];
} backlog_t;

/* backlog_add copies a datagram of at most BACKLOG_BYTES; 0 where the queue
   is full.  backlog_count_dcid: how many wait for that id. */
uint32_t backlog_count_dcid(const backlog_t *b, const cid_t *dcid);
int backlog_add(backlog_t *b, const tdm_datagram_t *dg, const cid_t *dcid, const cid_t *odcid);
waiting_t *backlog_first(backlog_t *b); /* NULL: empty */
void backlog_drop_first(backlog_t *b);

/* --- answer.c -------------------------------------------------------- */

#define ANSWER_MAX   16u
#define ANSWER_BYTES 576u

typedef struct answer {
    tdm_endpoint_t remote;
    tdm_endpoint_t local;
    uint32_t sz;
    uint8_t bytes[ANSWER_BYTES];
} answer_t;

typedef struct answer_queue {
    uint32_t head;
    uint32_t cnt;
    answer_t answer[ANSWER_MAX];
} answer_queue_t;

/* Each queues one packet and counts it; nothing where the queue is full
   or the packet would be longer than the datagram that asked. */
void answer_version(tdm_quic_t *q, const tdm_datagram_t *dg, const ngtcp2_version_cid *vc);
void answer_retry(tdm_quic_t *q, const tdm_datagram_t *dg, const ngtcp2_pkt_hd *hd);
void answer_bad_token(tdm_quic_t *q, const tdm_datagram_t *dg, const ngtcp2_pkt_hd *hd);
void answer_reset(tdm_quic_t *q, const tdm_datagram_t *dg, const ngtcp2_version_cid *vc);
uint32_t answer_take(answer_queue_t *a, uint8_t *buf, uint32_t buf_sz, tdm_datagram_t *dg);

/* --- retry.c --------------------------------------------------------- */

typedef struct retry {
    uint8_t secret[32];
    int64_t window_ns;   /* when the window that counts ends */
    int64_t calm_ns;     /* Retry stays on until then at least */
    uint32_t window_cnt; /* new connections in the window */
    uint32_t is_on;
} retry_t;

typedef enum token_verdict {
    TOKEN_NONE, /* none, or one that we never made */
    TOKEN_GOOD,
    TOKEN_BAD,
} token_verdict_t;

/* retry_note counts a new connection, or none, and decides whether Retry
   is on. */
void retry_note(tdm_quic_t *q, uint32_t new_cnt);
/* retry_token_make seals address, ids and time; its size, 0 on failure. */
uint32_t retry_token_make(tdm_quic_t *q, const tdm_endpoint_t *remote, const ngtcp2_cid *scid,
                          const ngtcp2_pkt_hd *hd, uint8_t *token);
/* retry_token_check opens the token of hd; GOOD: *odcid is the id before
   the Retry. */
token_verdict_t retry_token_check(tdm_quic_t *q, const tdm_endpoint_t *remote,
                                  const ngtcp2_pkt_hd *hd, cid_t *odcid);

/* --- gap.c ----------------------------------------------------------- */

/* The newest 64 packet numbers of one peer. */
typedef struct gap {
    uint64_t next; /* one past the largest seen */
    uint64_t seen; /* bit k: next - 1 - k came */
} gap_t;

/* gap_note takes the pn_bits low bits of a packet number that was
   decrypted and answers how many older ones are given up by that. */
uint32_t gap_note(gap_t *g, uint64_t pn_low, uint32_t pn_bits);

/* --- tls.c ----------------------------------------------------------- */

typedef struct tls {
    gnutls_certificate_credentials_t cred;
    gnutls_priority_t priority;
} tls_t;

/* tls_open reads certificate and key; on an error nothing is left.
   tls_session_open makes a server's session for ref, to be freed by
   gnutls_deinit; 0 where memory is short. */
tdm_status_t tls_open(tls_t *t, const char *cert_file, const char *key_file, tdm_error_t *err);
void tls_close(tls_t *t);
/* tls_reset_secret makes the secret of stateless resets from the key. */
tdm_status_t tls_reset_secret(const char *key_file, uint8_t secret[32], tdm_error_t *err);
int tls_session_open(const tls_t *t, ngtcp2_crypto_conn_ref *ref, gnutls_session_t *out);

/* --- a connection ---------------------------------------------------- */

typedef enum conn_state {
    CONN_FREE,
    CONN_HANDSHAKE,
    CONN_OPEN,
    CONN_FAILED,  /* waits for output to write CONNECTION_CLOSE */
    CONN_CLOSING, /* a tombstone: answers late datagrams with close_pkt */
} conn_state_t;

struct tdm_quic_conn {
    tdm_quic_t *q;
    ngtcp2_conn *nc;
    gnutls_session_t tls;
    ngtcp2_crypto_conn_ref ref;
    ngtcp2_mem mem;
    tdm_pool_account_t account;
    void *user;
    uint32_t idx;
    uint8_t state; /* conn_state_t */
    uint8_t is_app_open;
    uint8_t has_app_error;
    uint8_t is_ready;
    uint8_t is_close_due; /* CLOSING: close_pkt wants to go out again */
    uint8_t is_settled;   /* a datagram was taken in after the handshake's end */
    uint8_t has_rtt;      /* a round trip was measured */
    uint8_t is_begun;     /* counted as started, neither done nor failed yet */
    uint8_t has_next_key; /* ngtcp2 made the keys after the present ones */
    uint8_t is_proved;    /* the peer's first address is its own */
    uint8_t cid_cnt;
    uint16_t close_pkt_sz;
    uint32_t ready_next;
    uint32_t ready_prev;
    uint64_t app_error;
    uint64_t closed_cnt;  /* streams of requests that are over */
    uint32_t request_cnt; /* those that are open */
    int64_t quiet_ns;     /* since then none is */
    uint64_t burst_sz;    /* bytes since pacing was last updated */
    ngtcp2_connection_close_error error;
    tdm_endpoint_t remote;
    tdm_endpoint_t local;
    gap_t gap;
    cid_t cid[CID_PER_CONN];
    uint8_t close_pkt[CLOSE_PKT_MAX];
};

struct tdm_quic {
    tdm_quic_config_t cfg;
    tdm_quic_counters_t counters;
    tls_t tls;
    hash_key_t hash;
    uint8_t reset_secret[32];
    tdm_rng_t rng;
    tdm_pool_t *pool;
    cid_table_t cids;
    timer_heap_t timers;
    rate_t rate;
    backlog_t backlog;
    answer_queue_t answers;
    bucket_t reset_bucket;
    retry_t retry;
    tdm_quic_conn_t *conn; /* [connection_max] */
    uint32_t *free_idx;    /* stack of free slots */
    uint32_t free_cnt;
    uint32_t ready_head;
    uint32_t ready_tail;
    uint32_t closing_cnt;
    uint32_t reclaim_cursor;
    uint32_t quiet_cursor;
    int64_t now_ns; /* of the call that runs */
};

/* quic.c: the ready list, and counted drops. */
void ready_add(tdm_quic_conn_t *c);
void ready_remove(tdm_quic_conn_t *c);
tdm_reason_t drop(tdm_quic_t *q, tdm_reason_t reason);

/* conn.c */
/* conn_open takes a free slot, which must be there, for the source of dg;
   NULL, and the slot free again, where it cannot be made.  odcid is empty
   where no Retry came before. */
tdm_quic_conn_t *conn_open(tdm_quic_t *q, const tdm_datagram_t *dg, const ngtcp2_pkt_hd *hd,
                           const cid_t *odcid);
/* conn_input takes one datagram: NONE, or why it was dropped.  conn_expire
   is the timer's call; c may be free after either.  conn_arm sets the timer
   to what the library asks for. */
tdm_reason_t conn_input(tdm_quic_conn_t *c, const tdm_datagram_t *dg);
void conn_expire(tdm_quic_conn_t *c);
void conn_arm(tdm_quic_conn_t *c);
/* conn_fail decides by a library error whether the peer hears of it. */
void conn_fail(tdm_quic_conn_t *c, int liberr);
/* conn_free forgets everything at once. */
void conn_free(tdm_quic_conn_t *c);
/* conn_close_heavy gives back all but the slot, its ids and close_pkt. */
void conn_close_heavy(tdm_quic_conn_t *c);
/* conn_add_cid leads datagrams of that id to c: 0 where c has CID_PER_CONN
   already or another has the id.  cid_make draws CID_SZ bytes. */
int conn_add_cid(tdm_quic_conn_t *c, const uint8_t *bytes, uint64_t sz);
void conn_remove_cid(tdm_quic_conn_t *c, const uint8_t *bytes, uint64_t sz);
void cid_make(tdm_quic_t *q, uint8_t *bytes);

/* events.c: the calls of ngtcp2.  reader_set says whose datagram is being
   decrypted, as ngtcp2's decrypt call does not; NULL: nobody's. */
extern const ngtcp2_callbacks conn_callbacks;
void reader_set(tdm_quic_conn_t *c);

/* send.c: bytes written, 0: nothing now. */
uint32_t conn_output(tdm_quic_conn_t *c, uint8_t *buf, uint32_t buf_sz, tdm_datagram_t *dg);

/* addresses */
typedef union sock_addr {
    struct sockaddr sa;
    struct sockaddr_in in4;
    struct sockaddr_in6 in6;
} sock_addr_t;

/* addr_from_endpoint points into store, which the caller keeps. */
ngtcp2_addr addr_from_endpoint(sock_addr_t *store, const tdm_endpoint_t *e);
void endpoint_from_addr(tdm_endpoint_t *e, const ngtcp2_addr *a);

#endif /* TDM_NET_QUIC_PRIVATE_H */
