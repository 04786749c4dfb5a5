/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/net_h3/bench.h"

void *tdm_quic_conn_user(const tdm_quic_conn_t *c) {
    return c->user;
}
void tdm_quic_conn_set_user(tdm_quic_conn_t *c, void *user) {
    c->user = user;
}
uint32_t tdm_quic_conn_idx(const tdm_quic_conn_t *c) {
    return c->idx;
}
const tdm_endpoint_t *tdm_quic_conn_remote(const tdm_quic_conn_t *c) {
    return &c->remote;
}
void tdm_quic_conn_wake(tdm_quic_conn_t *c) {
    (void)c;
}
void tdm_quic_conn_keep(tdm_quic_conn_t *c, int is_wanted) {
    c->is_kept = is_wanted;
}
void tdm_quic_conn_consumed(tdm_quic_conn_t *c, int64_t stream_id, uint64_t sz) {
    (void)stream_id;
    c->consumed_sz += sz;
}
uint64_t tdm_quic_conn_stream_max(const tdm_quic_conn_t *c) {
    return BENCH_STREAM_MAX + c->closed_cnt;
}
int64_t tdm_quic_conn_open_uni(tdm_quic_conn_t *c) {
    c->next_uni += 4;
    return c->next_uni - 1; /* 3, 7, 11: a server's */
}
void tdm_quic_conn_reset(tdm_quic_conn_t *c, int64_t stream_id, uint64_t error) {
    c->reset_id = stream_id;
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

static tdm_exchange_t *on_open(void *ctx, const tdm_endpoint_t *remote, int is_vital) {
    bench_t *b = ctx;
    (void)remote;
    (void)is_vital;
    for (uint32_t i = 0; i < BENCH_SLOT_CNT; i++) {
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
    assert_true(x->body_sz <= BENCH_BODY_MAX);
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

static void on_sent(void *ctx, tdm_exchange_t *x, uint32_t token_cnt, int64_t made_ns,
                    int64_t now_ns) {
    (void)made_ns;
    (void)ctx;
    (void)x;
    (void)token_cnt;
    (void)now_ns;
}

void bench_open(bench_t *b) {
    tdm_error_t err = {0};
    memset(b, 0, sizeof *b);
    b->now_ns = 1;
    tdm_h3_config_t cfg = {.connection_max = BENCH_CONN_CNT,
                           .stream_max = 16,
                           .exchange_max = BENCH_SLOT_CNT,
                           .body_max = BENCH_BODY_MAX,
                           .header_max = 2048,
                           .tile = {.ctx = b,
                                    .exchange_open = on_open,
                                    .exchange_ready = on_ready,
                                    .exchange_gone = on_gone,
                                    .exchange_closed = on_closed,
                                    .record_sent = on_sent}};
    assert_int_equal(posix_memalign(&b->h3_mem, 64, tdm_h3_footprint(&cfg)), 0);
    assert_int_equal(tdm_h3_create(b->h3_mem, &cfg, &b->h3, &err), TDM_OK);
    b->app = tdm_h3_app(b->h3);
    for (uint32_t i = 0; i < BENCH_SLOT_CNT; i++) {
        assert_int_equal(tdm_pipe_init(&b->pipe[i], b->pipe_buf[i], sizeof b->pipe_buf[i]), TDM_OK);
    }
}

int bench_begin(bench_t *b, uint32_t alloc_max) {
    b->conn = (tdm_quic_conn_t){.alloc_left = alloc_max};
    return b->app.conn_open(b->app.ctx, &b->conn, 1);
}

void bench_end(bench_t *b) {
    b->app.conn_close(b->app.ctx, &b->conn, 2);
    assert_int_equal(b->conn.block_cnt, 0);
    assert_int_equal(b->open_cnt, b->closed_cnt);
    assert_int_equal(tdm_h3_counters(b->h3)->stream_cnt, 0);
}

void bench_close(bench_t *b) {
    free(b->h3_mem);
}

int bench_feed(bench_t *b, int64_t id, const void *bytes, uint64_t sz, int is_fin) {
    return bench_feed_of(b, &b->conn, id, bytes, sz, is_fin);
}

void bench_join(bench_t *b, uint32_t i, uint8_t addr) {
    b->guest[i] = (tdm_quic_conn_t){.idx = i + 1u, .alloc_left = 100000};
    b->guest[i].remote = (tdm_endpoint_t){.version = 4, .addr = {10, 0, 0, addr}};
    assert_int_equal(b->app.conn_open(b->app.ctx, &b->guest[i], b->now_ns), 0);
}

void bench_leave(bench_t *b, uint32_t i) {
    b->app.conn_close(b->app.ctx, &b->guest[i], b->now_ns);
    assert_int_equal(b->guest[i].block_cnt, 0);
}

int bench_feed_of(bench_t *b, tdm_quic_conn_t *c, int64_t id, const void *bytes, uint64_t sz,
                  int is_fin) {
    return b->app.stream_data(b->app.ctx, c, id, bytes, sz, is_fin, b->now_ns);
}

void bench_answer(bench_t *b) {
    for (uint32_t i = 0; i < BENCH_SLOT_CNT; i++) {
        if (!b->is_used[i] || !b->is_ready[i]) continue;
        b->is_ready[i] = 0;
        b->x[i].head = (tdm_reply_head_t){.status = 200, .content_sz = 2};
        assert_int_equal(tdm_pipe_write(&b->pipe[i], "ok", 2, 0), 1);
        tdm_h3_reply(b->h3, &b->x[i], TDM_EGRESS_HEAD | TDM_EGRESS_RECORD | TDM_EGRESS_END,
                     b->now_ns);
    }
}

void bench_take(bench_t *b) {
    for (int i = 0; i < 200; i++) {
        tdm_quic_send_t s = {.stream_id = -1};
        if (b->app.send_pull(b->app.ctx, &b->conn, &s, 1) != 0 || s.stream_id < 0) return;
        uint64_t sz = 0;
        for (uint32_t v = 0; v < s.vec_cnt; v++) sz += s.vec[v].sz;
        if (b->app.send_sent(b->app.ctx, &b->conn, s.stream_id, sz) != 0) return;
        if (b->app.stream_acked(b->app.ctx, &b->conn, s.stream_id, sz) != 0) return;
    }
}
