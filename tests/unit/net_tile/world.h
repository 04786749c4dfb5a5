/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_NET_TILE_WORLD_H
#define TDM_TESTS_NET_TILE_WORLD_H

/* A whole world around one net tile, in one thread and virtual time:

     tdm_client -- link -- wire port -- net tile -- rings -- fake api

   The client's side of the cable is a second tdm_link, so addresses are
   resolved as in life.  The fake api answers by path:
     /echo    the request's body, in one record
     /stream  as many one-token records as the body's number says, one a turn
     /hang    a head, then silence until a hangup comes
     /health  health_status and {"n":how many asked before} */

#include "appliance/base/sum.h"
#include "net/client/client.h"
#include "net/tile/tile.h"

#define WORLD_EXCHANGE_MAX 8u /* beside those that are kept */
#define WORLD_RESERVE      2u
#define WORLD_SLOT_CNT     (WORLD_EXCHANGE_MAX + WORLD_RESERVE)
#define WORLD_PIPE_SZ      65536u
#define WORLD_BODY_MAX     32768u
#define WORLD_MBUF_CNT     512u
#define WORLD_TURN_NS      INT64_C(50000)

typedef struct api_job {
    tdm_exchange_t *x; /* NULL: free */
    uint32_t generation;
    uint32_t left; /* records to write */
    uint32_t is_hanging;
    uint32_t is_head_due;
    uint32_t next;
} api_job_t;

typedef struct world {
    int64_t now_ns;
    tdm_port_t *port;
    tdm_port_t *exception; /* NULL: none */
    tdm_net_tile_t *tile;
    void *tile_mem;
    tdm_block_t *block;
    void *block_mem;
    tdm_lane_t *arrival_lane, *hangup_lane, *egress_lane;
    void *lane_mem[3];
    tdm_ring_t arrivals, hangups, egress;
    api_job_t job[WORLD_SLOT_CNT];
    uint64_t hangup_cnt;
    uint64_t stale_hangup_cnt;
    int is_api_asleep; /* the fake api takes nothing */
    uint16_t health_status;
    uint32_t health_cnt; /* requests for /health that reached the fake api */

    tdm_client_t *client;
    tdm_link_t *link; /* the client's station */
    void *link_mem;
    int is_server_known; /* the client never asks for the server's link address */
    uint32_t loss_ppm;   /* frames lost on the cable, both ways */
    int is_cut;          /* nothing the tile sends is taken off the wire */
    uint64_t rng;
} world_t;

/* What one request of the client has seen. */
typedef struct answer {
    int status;
    int is_ended;
    tdm_client_outcome_t outcome;
    uint64_t sz;
    uint64_t hash; /* tdm_sum_bytes of all body bytes in order */
    char text[256];
} answer_t;

/* world_open starts everything; the environment runs already.
   arrival_depth: of the exchange ring. */
void world_open(world_t *w, uint32_t arrival_depth);

/* world_open_exception gives the tile a wire for the kernel's frames. */
void world_open_exception(world_t *w);

/* world_open_chaos has bad weather on the cable. */
void world_open_chaos(world_t *w, uint32_t arrival_depth, const tdm_port_chaos_t *weather);

/* world_open_unasked has a client that knows the server's link address and
   so never asks, which would have told the server its own. */
void world_open_unasked(world_t *w);

/* world_is_connected starts a client and turns until it is ready or
   closed; says whether it is ready. */
int world_is_connected(world_t *w);

/* world_close checks that nothing is left: no mbuf, no slot of ours. */
void world_close(world_t *w);

/* world_connect opens a client and turns until it is ready. */
void world_connect(world_t *w);

/* world_turn moves everything once and time by WORLD_TURN_NS. */
void world_turn(world_t *w);

/* world_hurry is a turn that moves time to the next timer where nothing
   happened, by 2 ms at most. */
void world_hurry(world_t *w);

/* world_request starts a request whose progress lands in *a. */
int64_t world_request(world_t *w, const char *method, const char *path, const void *body,
                      uint64_t sz, answer_t *a);

/* world_until turns until *flag, at most max times; says whether. */
int world_until(world_t *w, const int *flag, uint32_t max);

/* world_settle turns until no slot is in use. */
void world_settle(world_t *w);

/* world_counted reads a series of the tile's block; world_drops what was
   dropped for a reason. */
uint64_t world_counted(world_t *w, tdm_metric_t metric, uint32_t idx);
uint64_t world_drops(world_t *w, tdm_reason_t reason);

#endif /* TDM_TESTS_NET_TILE_WORLD_H */
