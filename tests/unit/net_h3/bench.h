/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_NET_H3_BENCH_H
#define TDM_TESTS_NET_H3_BENCH_H

/* bench stands around one net/h3 with a pretended QUIC below it and a tile
   of eight slots above: streams are fed as bytes, and memory comes from
   malloc, where the sanitizer watches each block.  One connection is there
   from bench_begin on; others may join it from other addresses.  A program that uses it
   links net/h3 and not net/quic's own functions. */

#include "appliance/ring/pipe.h"
#include "net/h3/h3.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct tdm_quic_conn {
    void *user;
    uint32_t idx;
    uint64_t error; /* of tdm_quic_conn_fail */
    uint64_t reset_error;
    int64_t reset_id; /* the stream of it */
    uint64_t consumed_sz;
    int64_t next_uni;
    uint64_t closed_cnt; /* streams of requests that are over, as the test counts them */
    uint32_t block_cnt;
    int is_kept;         /* the peer waits for us */
    uint32_t alloc_left; /* then none */
    tdm_endpoint_t remote;
};

#define BENCH_SLOT_CNT   8u
#define BENCH_BODY_MAX   64u
#define BENCH_STREAM_MAX 3u /* a peer's open requests */
#define BENCH_CONN_CNT   4u

typedef struct bench {
    tdm_h3_t *h3;
    void *h3_mem;
    tdm_quic_app_t app;
    tdm_quic_conn_t conn;
    tdm_quic_conn_t guest[BENCH_CONN_CNT - 1u];
    int64_t now_ns;
    tdm_exchange_t x[BENCH_SLOT_CNT];
    tdm_pipe_t pipe[BENCH_SLOT_CNT];
    int is_used[BENCH_SLOT_CNT];
    int is_ready[BENCH_SLOT_CNT];
    uint8_t body[BENCH_SLOT_CNT][BENCH_BODY_MAX];
    uint8_t pipe_buf[BENCH_SLOT_CNT][1024] TDM_ALIGNED(8);
    uint32_t open_cnt;
    uint32_t ready_cnt;
    uint32_t closed_cnt;
} bench_t;

void bench_open(bench_t *b);
void bench_close(bench_t *b);

/* bench_begin opens the one connection, whose allocations fail after
   alloc_max; bench_end closes it and checks that nothing stays taken. */
int bench_begin(bench_t *b, uint32_t alloc_max);
void bench_end(bench_t *b);

/* bench_feed gives a stream its next bytes; not 0: the connection ended. */
int bench_feed(bench_t *b, int64_t id, const void *bytes, uint64_t sz, int is_fin);

/* bench_join opens guest i from address 10.0.0.addr; bench_leave closes it;
   bench_feed_of is bench_feed for any connection. */
void bench_join(bench_t *b, uint32_t i, uint8_t addr);
void bench_leave(bench_t *b, uint32_t i);
int bench_feed_of(bench_t *b, tdm_quic_conn_t *c, int64_t id, const void *bytes, uint64_t sz,
                  int is_fin);

/* bench_answer replies "ok" to whatever is ready; bench_take takes all
   bytes to be sent and acknowledges them. */
void bench_answer(bench_t *b);
void bench_take(bench_t *b);

#endif /* TDM_TESTS_NET_H3_BENCH_H */
