/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TEST_RIG_H
#define TDM_TEST_RIG_H

/* A whole HTTP/3 exchange in memory: clients of net/client, a server of
   net/quic and net/h3, a tile that answers by itself, and a wire with a
   clock of its own.  Nothing here waits or reads the real time. */

#include "appliance/base/rng.h"
#include "appliance/base/sum.h"
#include "appliance/ring/pipe.h"
#include "net/client/client.h"
#include "net/h3/h3.h"
#include "net/quic/cert.h"
#include "net/quic/quic.h"

#define RIG_CLIENT_MAX   64u
#define RIG_EXCHANGE_MAX 64u
#define RIG_PIPE_SZ      (64u << 10)
#define RIG_BODY_MAX     (256u << 10)
#define RIG_MS           INT64_C(1000000)

typedef struct rig rig_t;

/* One exchange slot of the pretended tile. */
typedef struct rig_slot {
    tdm_exchange_t x;
    tdm_pipe_t pipe;
    uint8_t *body;
    uint8_t *pipe_buf;
    int is_used;
    int is_ready;
    int is_gone;
    int is_end_sent;
    uint32_t record_cnt; /* still to write, by the streaming answer */
    uint32_t record_no;
} rig_slot_t;

typedef struct rig_config {
    uint32_t connection_max;
    uint32_t stream_max;
    uint32_t exchange_max;
    uint32_t handshake_per_s;
    uint32_t handshake_per_s_source;
    uint32_t half_open_max;
    uint32_t retry_half_open;
    uint32_t retry_per_s;
    int is_retry_always;
    uint64_t pool_sz;
    uint64_t connection_pool_sz;
    uint64_t discard_max;
    int64_t idle_timeout_ns;
    int64_t request_timeout_ns;
    uint16_t datagram_max;
} rig_config_t;

struct rig {
    int64_t now_ns;
    uint32_t loss; /* of 1000 datagrams, either way */
    uint64_t seed;
    tdm_rng_t rng;
    void *quic_mem;
    void *h3_mem;
    tdm_quic_t *quic;
    tdm_h3_t *h3;
    rig_slot_t slot[RIG_EXCHANGE_MAX];
    uint32_t exchange_max;
    tdm_client_t *client[RIG_CLIENT_MAX];
    tdm_endpoint_t client_at[RIG_CLIENT_MAX];
    int is_deaf[RIG_CLIENT_MAX]; /* the wire of this client is cut */
    tdm_reason_t ready_answer;   /* what exchange_ready says */
    int is_keep_alive;           /* clients dialled from now on send PINGs */
    int is_tile_silent;          /* the tile never replies */
    uint32_t open_cnt;
    uint32_t ready_cnt;
    uint32_t gone_cnt;
    uint32_t closed_cnt;
    uint64_t token_cnt;
    tdm_exchange_t last; /* a copy of the last ready exchange */
    uint64_t last_body_hash;
};

/* What one request saw. */
typedef struct rig_reply {
    int status;
    int is_ended;
    tdm_client_outcome_t outcome;
    uint64_t error;
    uint64_t body_sz;
    uint64_t body_hash; /* tdm_sum_bytes from 0 */
    uint32_t piece_cnt;
    char head[2048]; /* "name: value\n" lines */
    char body[512];  /* the first bytes */
} rig_reply_t;

rig_config_t rig_default(void);
/* rig_open starts the server; cfg NULL: rig_default. */
void rig_open(rig_t *r, const rig_config_t *cfg);
/* rig_begin is rig_open with the defaults, and client 0 is connected. */
void rig_begin(rig_t *r);
void rig_close(rig_t *r);

/* rig_dial adds a client from source address 10.0.x.y (n chooses). */
void rig_dial(rig_t *r, uint32_t i, uint32_t source);
/* rig_dial_ready also runs until its handshake is done. */
void rig_dial_ready(rig_t *r, uint32_t i);

int64_t rig_send(rig_t *r, uint32_t i, const char *method, const char *path, const void *body,
                 uint64_t body_sz, rig_reply_t *out);

/* rig_serve_one asks for /health over client i and waits for the answer. */
void rig_serve_one(rig_t *r, uint32_t i);

/* rig_send_with is a GET with own fields. */
int64_t rig_send_with(rig_t *r, uint32_t i, const char *path, const tdm_client_header_t *header,
                      uint32_t header_cnt, rig_reply_t *out);

/* rig_turn moves every datagram once and the clock by step_ns; a datagram
   takes half a step. */
void rig_turn(rig_t *r, int64_t step_ns);
/* rig_run turns until *flag or for at most ms of its own clock; 1: set. */
int rig_run(rig_t *r, const int *flag, int64_t ms);
void rig_idle(rig_t *r, int64_t ms);

/* rig_input gives the server one raw datagram from address source. */
tdm_reason_t rig_input(rig_t *r, const void *bytes, uint32_t sz, uint32_t source);

const char *rig_cert(void);
const char *rig_key(void);

#endif /* TDM_TEST_RIG_H */
