/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/3 from bytes that no client of ours would write.  A pretended QUIC
   stands below net/h3: streams are fed directly, whole, cut and damaged,
   and memory comes from malloc, where the sanitizer watches each block. */
#include "appliance/base/rng.h"
#include "appliance/ring/pipe.h"
#include "net/h3/h3.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define H3_MESSAGE_ERROR    0x10eu
#define H3_FRAME_UNEXPECTED 0x105u
#define H3_FRAME_ERROR      0x106u
#define H3_MISSING_SETTINGS 0x10au
#define H3_SETTINGS_ERROR   0x109u
#define H3_CLOSED_CRITICAL  0x104u
#define H3_CREATION_ERROR   0x103u

/* --- QUIC, pretended --------------------------------------------------- */

struct tdm_quic_conn {
    void *user;
    uint64_t error; /* of tdm_quic_conn_fail */
    uint64_t reset_error;
    uint64_t consumed_sz;
    int64_t next_uni;
    uint32_t block_cnt;
    uint32_t alloc_left; /* then none */
    tdm_endpoint_t remote;
};

void *tdm_quic_conn_user(const tdm_quic_conn_t *c) {
    return c->user;
}
void tdm_quic_conn_set_user(tdm_quic_conn_t *c, void *user) {
    c->user = user;
}
uint32_t tdm_quic_conn_idx(const tdm_quic_conn_t *c) {
    (void)c;
    return 0;
}
const tdm_endpoint_t *tdm_quic_conn_remote(const tdm_quic_conn_t *c) {
    return &c->remote;
}
void tdm_quic_conn_wake(tdm_quic_conn_t *c) {
    (void)c;
}
void tdm_quic_conn_consumed(tdm_quic_conn_t *c, int64_t stream_id, uint64_t sz) {
    (void)stream_id;
    c->consumed_sz += sz;
}
int64_t tdm_quic_conn_open_uni(tdm_quic_conn_t *c) {
    c->next_uni += 4;
    return c->next_uni - 1; /* 3, 7, 11: a server's */
}
void tdm_quic_conn_reset(tdm_quic_conn_t *c, int64_t stream_id, uint64_t error) {
    (void)stream_id;
    c->reset_error = error;
}
void tdm_quic_conn_stop_read(tdm_quic_conn_t *c, int64_t stream_id, uint64_t error) {
    (void)c;
    (void)stream_id;
    (void)error;
}
void tdm_quic_conn_stop_write(tdm_quic_conn_t *c, int64_t stream_id, uint64_t error) {
    (void)stream_id;
    c->reset_error = error;
}
int tdm_quic_conn_is_shut(tdm_quic_conn_t *c, int64_t stream_id) {
    (void)c;
    (void)stream_id;
    return 0;
}
void tdm_quic_conn_fail(tdm_quic_conn_t *c, uint64_t error) {
    if (c->error == 0) c->error = error;
}
static int may_alloc(tdm_quic_conn_t *c) {
    if (c->alloc_left == 0) return 0;
    c->alloc_left--;
    return 1;
}
void *tdm_quic_conn_alloc(tdm_quic_conn_t *c, uint64_t sz) {
    if (!may_alloc(c)) return NULL;
    c->block_cnt++;
    return malloc(sz);
}
void *tdm_quic_conn_realloc(tdm_quic_conn_t *c, void *p, uint64_t sz) {
    if (!may_alloc(c)) return NULL;
    c->block_cnt += p == NULL;
    return realloc(p, sz);
}
void tdm_quic_conn_free(tdm_quic_conn_t *c, void *p) {
    c->block_cnt -= p != NULL;
    free(p);
}
uint32_t tdm_quic_conn_walk(tdm_quic_t *q, uint32_t *cursor, uint32_t max,
                            void (*visit)(void *arg, tdm_quic_conn_t *c), void *arg) {
    (void)q;
    (void)cursor;
    (void)max;
    (void)visit;
    (void)arg;
    return 0;
}

/* --- a tile of eight slots ---------------------------------------------- */

#define SLOT_CNT 8u
#define BODY_MAX 64u

typedef struct bench {
    tdm_h3_t *h3;
    void *h3_mem;
    tdm_quic_app_t app;
    tdm_quic_conn_t conn;
    tdm_exchange_t x[SLOT_CNT];
    tdm_pipe_t pipe[SLOT_CNT];
    int is_used[SLOT_CNT];
    int is_ready[SLOT_CNT];
    uint8_t body[SLOT_CNT][BODY_MAX];
    uint8_t pipe_buf[SLOT_CNT][1024] TDM_ALIGNED(8);
    uint32_t open_cnt;
    uint32_t ready_cnt;
    uint32_t closed_cnt;
} bench_t;

static tdm_exchange_t *on_open(void *ctx, const tdm_endpoint_t *remote) {
    bench_t *b = ctx;
    (void)remote;
    for (uint32_t i = 0; i < SLOT_CNT; i++) {
        if (b->is_used[i]) continue;
        uint32_t generation = b->x[i].handle.generation + 1u;
        memset(&b->x[i], 0, sizeof b->x[i]);
        b->x[i].handle = (tdm_handle_t){i, generation};
        b->x[i].body = b->body[i];
        b->x[i].reply = &b->pipe[i];
        tdm_pipe_reset(&b->pipe[i]);
        b->is_used[i] = 1;
        b->is_ready[i] = 0;
        b->open_cnt++;
        return &b->x[i];
    }
    return NULL;
}

static tdm_reason_t on_ready(void *ctx, tdm_exchange_t *x, int64_t now_ns) {
    bench_t *b = ctx;
    (void)now_ns;
    assert_true(x->body_sz <= BODY_MAX);
    assert_non_null(memchr(x->path, 0, sizeof x->path));
    b->is_ready[x->handle.slot] = 1;
    b->ready_cnt++;
    return TDM_REASON_NONE;
}

static void on_gone(void *ctx, tdm_exchange_t *x, int64_t now_ns) {
    bench_t *b = ctx;
    (void)now_ns;
    b->is_ready[x->handle.slot] = 0;
}

static void on_closed(void *ctx, tdm_exchange_t *x, int64_t now_ns) {
    bench_t *b = ctx;
    (void)now_ns;
    b->is_used[x->handle.slot] = 0;
    b->closed_cnt++;
}

static void on_sent(void *ctx, tdm_exchange_t *x, uint32_t token_cnt, int64_t now_ns) {
    (void)ctx;
    (void)x;
    (void)token_cnt;
    (void)now_ns;
}

static void bench_open(bench_t *b) {
    tdm_error_t err = {0};
    memset(b, 0, sizeof *b);
    tdm_h3_config_t cfg = {.connection_max = 1,
                           .stream_max = 16,
                           .exchange_max = SLOT_CNT,
                           .body_max = BODY_MAX,
                           .header_max = 2048,
                           .tile = {b, on_open, on_ready, on_gone, on_closed, on_sent}};
    assert_int_equal(posix_memalign(&b->h3_mem, 64, tdm_h3_footprint(&cfg)), 0);
    assert_int_equal(tdm_h3_create(b->h3_mem, &cfg, &b->h3, &err), TDM_OK);
    b->app = tdm_h3_app(b->h3);
    for (uint32_t i = 0; i < SLOT_CNT; i++) {
        assert_int_equal(tdm_pipe_init(&b->pipe[i], b->pipe_buf[i], sizeof b->pipe_buf[i]), TDM_OK);
    }
}

static int conn_begin(bench_t *b, uint32_t alloc_max) {
    b->conn = (tdm_quic_conn_t){.alloc_left = alloc_max};
    return b->app.conn_open(b->app.ctx, &b->conn, 1);
}

static void conn_end(bench_t *b) {
    b->app.conn_close(b->app.ctx, &b->conn, 2);
    assert_int_equal(b->conn.block_cnt, 0);
    assert_int_equal(b->open_cnt, b->closed_cnt);
    assert_int_equal(tdm_h3_counters(b->h3)->stream_cnt, 0);
}

static void bench_close(bench_t *b) {
    free(b->h3_mem);
}

static int feed(bench_t *b, int64_t id, const void *bytes, uint64_t sz, int is_fin) {
    return b->app.stream_data(b->app.ctx, &b->conn, id, bytes, sz, is_fin, 1);
}

/* answer and drain: replies to what is ready, and takes all bytes. */
static void answer(bench_t *b) {
    for (uint32_t i = 0; i < SLOT_CNT; i++) {
        if (!b->is_used[i] || !b->is_ready[i]) continue;
        b->is_ready[i] = 0;
        b->x[i].head = (tdm_reply_head_t){.status = 200, .content_sz = 2};
        assert_int_equal(tdm_pipe_write(&b->pipe[i], "ok", 2, 0), 1);
        tdm_h3_reply(b->h3, &b->x[i], TDM_EGRESS_HEAD | TDM_EGRESS_RECORD | TDM_EGRESS_END, 1);
    }
}

static void take_all(bench_t *b) {
    for (int i = 0; i < 200; i++) {
        tdm_quic_send_t s = {.stream_id = -1};
        if (b->app.send_pull(b->app.ctx, &b->conn, &s, 1) != 0 || s.stream_id < 0) return;
        uint64_t sz = 0;
        for (uint32_t v = 0; v < s.vec_cnt; v++) sz += s.vec[v].sz;
        if (b->app.send_sent(b->app.ctx, &b->conn, s.stream_id, sz) != 0) return;
        if (b->app.stream_acked(b->app.ctx, &b->conn, s.stream_id, sz) != 0) return;
    }
}

/* --- bytes --------------------------------------------------------------- */

static const uint8_t control[] = {0x00, 0x04, 0x00}; /* an empty SETTINGS */
static const uint8_t get[] = {0x01, 0x08, 0, 0, 0xd1, 0xd7, 0xc1, 0x50, 0x01, 'h'};
static const uint8_t post[] = {0x01, 0x0d, 0,   0,    0xd4, 0xd7, 0x51, 0x04, '/',  'a',  '?', 'b',
                               0x50, 0x01, 'h', 0x00, 0x03, 'x',  'y',  'z',  0x00, 0x01, '!'};

static void plain_bytes_are_served(void **state) {
    (void)state;
    static bench_t b;
    bench_open(&b);
    assert_int_equal(conn_begin(&b, 100000), 0);
    assert_int_equal(feed(&b, 2, control, sizeof control, 0), 0);
    assert_int_equal(feed(&b, 0, get, sizeof get, 1), 0);
    for (uint64_t i = 0; i < sizeof post; i++) { /* a byte at a time */
        assert_int_equal(feed(&b, 4, &post[i], 1, i + 1u == sizeof post), 0);
    }
    assert_int_equal(b.ready_cnt, 2);
    assert_string_equal(b.x[1].path, "/a");
    assert_string_equal(b.x[1].query, "b");
    assert_int_equal(b.x[1].body_sz, 4);
    assert_memory_equal(b.x[1].body, "xyz!", 4);
    answer(&b);
    take_all(&b);
    conn_end(&b);
    bench_close(&b);
}

/* error_of feeds one stream and gives the code the connection ends with. */
static uint64_t error_of(int64_t id, const void *bytes, uint64_t sz, int is_fin) {
    static bench_t b;
    bench_open(&b);
    assert_int_equal(conn_begin(&b, 100000), 0);
    if (id == 0) assert_int_equal(feed(&b, 2, control, sizeof control, 0), 0);
    (void)feed(&b, id, bytes, sz, is_fin);
    uint64_t error = b.conn.error;
    conn_end(&b);
    bench_close(&b);
    return error;
}

static void protocol_errors_have_their_codes(void **state) {
    (void)state;
    const uint8_t settings_twice[] = {0x00, 0x04, 0x00, 0x04, 0x00};
    const uint8_t goaway_first[] = {0x00, 0x07, 0x01, 0x00};
    const uint8_t h2_setting[] = {0x00, 0x04, 0x02, 0x02, 0x00};
    const uint8_t push_stream[] = {0x01, 0x00};
    const uint8_t data_first[] = {0x00, 0x01, 'x'};
    const uint8_t settings_here[] = {0x04, 0x00};
    assert_int_equal(error_of(2, settings_twice, sizeof settings_twice, 0), H3_FRAME_UNEXPECTED);
    assert_int_equal(error_of(2, goaway_first, sizeof goaway_first, 0), H3_MISSING_SETTINGS);
    assert_int_equal(error_of(2, h2_setting, sizeof h2_setting, 0), H3_SETTINGS_ERROR);
    assert_int_equal(error_of(2, push_stream, sizeof push_stream, 0), H3_CREATION_ERROR);
    assert_int_equal(error_of(2, control, sizeof control, 1), H3_CLOSED_CRITICAL);
    assert_int_equal(error_of(0, data_first, sizeof data_first, 0), H3_FRAME_UNEXPECTED);
    assert_int_equal(error_of(0, settings_here, sizeof settings_here, 0), H3_FRAME_UNEXPECTED);
    assert_int_equal(error_of(0, get, sizeof get - 2u, 1), H3_FRAME_ERROR);
    assert_int_equal(error_of(0, get, sizeof get, 1), 0);
}

static void missing_path_is_a_message_error(void **state) {
    (void)state;
    static bench_t b;
    const uint8_t bytes[] = {0x01, 0x07, 0, 0, 0xd1, 0xd7, 0x50, 0x01, 'h'};
    bench_open(&b);
    assert_int_equal(conn_begin(&b, 100000), 0);
    assert_int_equal(feed(&b, 2, control, sizeof control, 0), 0);
    assert_int_equal(feed(&b, 0, bytes, sizeof bytes, 1), 0);
    assert_int_equal(b.conn.error, 0); /* the stream's fault alone */
    assert_int_equal(b.conn.reset_error, H3_MESSAGE_ERROR);
    assert_int_equal(b.ready_cnt, 0);
    conn_end(&b);
    bench_close(&b);
}

/* --- at random ------------------------------------------------------------- */

static uint64_t damage(tdm_rng_t *r, uint8_t *buf, const uint8_t *from, uint64_t sz) {
    memcpy(buf, from, sz);
    if (tdm_rng_below(r, 2) == 0) return sz;
    for (uint32_t n = tdm_rng_below(r, 4); n > 0; n--) {
        uint64_t at = tdm_rng_below(r, (uint32_t)sz);
        switch (tdm_rng_below(r, 3)) {
        case 0: buf[at] = (uint8_t)tdm_rng_next(r); break;
        case 1: buf[at] = (uint8_t)(buf[at] ^ (1u << tdm_rng_below(r, 8))); break;
        default: sz = at + 1u;
        }
    }
    return sz;
}

/* feed_cut feeds in pieces of random size; -1 where the connection ended. */
static int feed_cut(bench_t *b, tdm_rng_t *r, int64_t id, const uint8_t *bytes, uint64_t sz) {
    int is_fin = tdm_rng_below(r, 4) != 0;
    for (uint64_t at = 0; at < sz;) {
        uint64_t n = 1u + tdm_rng_below(r, (uint32_t)(sz - at));
        if (feed(b, id, bytes + at, n, is_fin && at + n == sz) != 0) return -1;
        at += n;
    }
    return 0;
}

static void one_conversation(bench_t *b, tdm_rng_t *r, uint32_t alloc_max) {
    uint8_t buf[64];
    int64_t id = 0;
    int is_alive = conn_begin(b, alloc_max) == 0;
    if (is_alive && tdm_rng_below(r, 8) != 0) {
        uint64_t sz = tdm_rng_below(r, 4) == 0 ? damage(r, buf, control, sizeof control)
                                               : (memcpy(buf, control, sizeof control), 3u);
        is_alive = feed(b, 2, buf, sz, 0) == 0;
    }
    for (uint32_t n = 0; is_alive && n < 12; n++, id += 4) {
        uint64_t sz = tdm_rng_below(r, 2) == 0 ? damage(r, buf, get, sizeof get)
                                               : damage(r, buf, post, sizeof post);
        is_alive = feed_cut(b, r, id, buf, sz) == 0;
        if (!is_alive) break;
        switch (tdm_rng_below(r, 5)) {
        case 0: (void)b->app.stream_reset(b->app.ctx, &b->conn, id, 0x10c); break;
        case 1: is_alive = b->app.stream_close(b->app.ctx, &b->conn, id, 0x100) == 0; break;
        case 2: answer(b); break;
        case 3:
            answer(b);
            take_all(b);
            break;
        default: break;
        }
        is_alive = is_alive && b->conn.error == 0;
    }
    conn_end(b);
}

static void damaged_bytes_do_no_harm(void **state) {
    (void)state;
    static bench_t b;
    const uint64_t seed = 7;
    tdm_rng_t r = {seed};
    bench_open(&b);
    for (uint32_t i = 0; i < 6000; i++) one_conversation(&b, &r, 100000);
    assert_true(b.ready_cnt > 3000);
    assert_true(tdm_h3_counters(b.h3)->protocol_errors > 1000);
    bench_close(&b);
}

static void failing_allocations_do_no_harm(void **state) {
    (void)state;
    static bench_t b;
    const uint64_t seed = 8;
    tdm_rng_t r = {seed};
    bench_open(&b);
    for (uint32_t i = 0; i < 3000; i++) one_conversation(&b, &r, i % 150u);
    assert_true(b.ready_cnt > 100);
    bench_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_bytes_are_served),
        cmocka_unit_test(protocol_errors_have_their_codes),
        cmocka_unit_test(missing_path_is_a_message_error),
        cmocka_unit_test(damaged_bytes_do_no_harm),
        cmocka_unit_test(failing_allocations_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
