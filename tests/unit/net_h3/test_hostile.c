/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/3 from bytes that no client of ours would write.  A pretended QUIC
   stands below net/h3: streams are fed directly, whole, cut and damaged,
   and memory comes from malloc, where the sanitizer watches each block. */
#include "appliance/base/rng.h"
#include "tests/unit/net_h3/bench.h"

#define H3_MESSAGE_ERROR      0x10eu
#define H3_FRAME_UNEXPECTED   0x105u
#define H3_FRAME_ERROR        0x106u
#define H3_MISSING_SETTINGS   0x10au
#define H3_SETTINGS_ERROR     0x109u
#define H3_CLOSED_CRITICAL    0x104u
#define H3_CREATION_ERROR     0x103u
#define H3_REQUEST_INCOMPLETE 0x10du
#define H3_ID_ERROR           0x108u

/* --- bytes --------------------------------------------------------------- */

static const uint8_t control[] = {0x00, 0x04, 0x00}; /* an empty SETTINGS */
static const uint8_t get[] = {0x01, 0x08, 0, 0, 0xd1, 0xd7, 0xc1, 0x50, 0x01, 'h'};
static const uint8_t post[] = {0x01, 0x0d, 0,   0,    0xd4, 0xd7, 0x51, 0x04, '/',  'a',  '?', 'b',
                               0x50, 0x01, 'h', 0x00, 0x03, 'x',  'y',  'z',  0x00, 0x01, '!'};

static const uint8_t health[] = {0x01, 0x10, 0,   0,   0xd1, 0xd7, 0x51, 0x07, '/',
                                 'h',  'e',  'a', 'l', 't',  'h',  0x50, 0x01, 'h'};

static void plain_bytes_are_served(void **state) {
    (void)state;
    static bench_t b;
    bench_open(&b);
    assert_int_equal(bench_begin(&b, 100000), 0);
    assert_int_equal(bench_feed(&b, 2, control, sizeof control, 0), 0);
    assert_int_equal(bench_feed(&b, 0, get, sizeof get, 1), 0);
    for (uint64_t i = 0; i < sizeof post; i++) { /* a byte at a time */
        assert_int_equal(bench_feed(&b, 4, &post[i], 1, i + 1u == sizeof post), 0);
    }
    assert_int_equal(b.ready_cnt, 2);
    assert_string_equal(b.x[1].path, "/a");
    assert_string_equal(b.x[1].query, "b");
    assert_int_equal(b.x[1].body_sz, 4);
    assert_memory_equal(b.x[1].body, "xyz!", 4);
    bench_answer(&b);
    bench_take(&b);
    bench_end(&b);
    bench_close(&b);
}

/* error_of feeds one stream and gives the code the connection ends with. */
static uint64_t error_of(int64_t id, const void *bytes, uint64_t sz, int is_fin) {
    static bench_t b;
    bench_open(&b);
    assert_int_equal(bench_begin(&b, 100000), 0);
    if (id == 0) assert_int_equal(bench_feed(&b, 2, control, sizeof control, 0), 0);
    (void)bench_feed(&b, id, bytes, sz, is_fin);
    uint64_t error = b.conn.error;
    bench_end(&b);
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
    assert_int_equal(bench_begin(&b, 100000), 0);
    assert_int_equal(bench_feed(&b, 2, control, sizeof control, 0), 0);
    assert_int_equal(bench_feed(&b, 0, bytes, sizeof bytes, 1), 0);
    assert_int_equal(b.conn.error, 0); /* the stream's fault alone */
    assert_int_equal(b.conn.reset_error, H3_MESSAGE_ERROR);
    assert_int_equal(b.ready_cnt, 0);
    bench_end(&b);
    bench_close(&b);
}

/* --- the host that is asked ------------------------------------------------ */

/* named writes a GET with these, NULL: without the field; gives its size. */
static uint64_t named(uint8_t *buf, const char *authority, const char *host) {
    uint64_t sz = 0;
    const uint8_t head[] = {0x01, 0, 0, 0, 0xd1, 0xd7, 0xc1};
    memcpy(buf, head, sizeof head);
    sz = sizeof head;
    if (authority != NULL) {
        buf[sz++] = 0x50;
        buf[sz++] = (uint8_t)strlen(authority);
        memcpy(buf + sz, authority, strlen(authority));
        sz += strlen(authority);
    }
    if (host != NULL) {
        memcpy(buf + sz, "\x24host", 5);
        sz += 5;
        buf[sz++] = (uint8_t)strlen(host);
        memcpy(buf + sz, host, strlen(host));
        sz += strlen(host);
    }
    buf[1] = (uint8_t)(sz - 2u);
    return sz;
}

/* RFC 9114, 4.3.1: neither is empty, and both say the same. */
static void two_hosts_are_a_message_error(void **state) {
    (void)state;
    static const struct {
        const char *authority, *host;
        int is_good;
    } c[] = {{"h", NULL, 1}, {NULL, "h", 1}, {"h", "h", 1},   {"Ab:1", "aB:1", 1}, {"h", "x", 0},
             {"h", "hh", 0}, {"hh", "h", 0}, {"h", "h:1", 0}, {"h@x", "h", 0},     {"", NULL, 0},
             {NULL, "", 0},  {"h", "", 0},   {"", "h", 0},    {NULL, NULL, 0}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(c); i++) {
        static bench_t b;
        uint8_t buf[64];
        uint64_t sz = named(buf, c[i].authority, c[i].host);
        bench_open(&b);
        assert_int_equal(bench_begin(&b, 100000), 0);
        assert_int_equal(bench_feed(&b, 2, control, sizeof control, 0), 0);
        assert_int_equal(bench_feed(&b, 0, buf, sz, 1), 0);
        assert_int_equal(b.conn.error, 0);
        assert_int_equal(b.conn.reset_error, c[i].is_good ? 0 : H3_MESSAGE_ERROR);
        assert_int_equal(b.ready_cnt, c[i].is_good);
        assert_int_equal(tdm_h3_counters(b.h3)->protocol_errors, !c[i].is_good);
        assert_int_equal(b.app.stream_close(b.app.ctx, &b.conn, 0, 0x100), 0);
        assert_int_equal(b.open_cnt, b.closed_cnt);
        /* With a body behind it, and beside one that is good. */
        assert_int_equal(bench_feed(&b, 4, get, sizeof get, 1), 0);
        assert_int_equal(bench_feed(&b, 8, buf, sz, 0), 0);
        assert_int_equal(bench_feed(&b, 8, "\0\1x", 3, 1), 0);
        assert_int_equal(b.conn.error, 0);
        assert_int_equal(b.ready_cnt, 1 + 2 * c[i].is_good);
        bench_answer(&b);
        bench_take(&b);
        bench_end(&b);
        bench_close(&b);
    }
}

/* --- priorities --------------------------------------------------------- */

/* update feeds a PRIORITY_UPDATE of request stream id (RFC 9218, 7.2). */
static int update(bench_t *b, uint8_t id) {
    const uint8_t frame[] = {0x80, 0x0f, 0x07, 0x00, 0x04, id, 'u', '=', '0'};
    return bench_feed(b, 2, frame, sizeof frame, 0);
}

/* Browsers send them, before a request or during it. */
static void priorities_of_streams_that_may_be_are_taken(void **state) {
    (void)state;
    static bench_t b;
    bench_open(&b);
    assert_int_equal(bench_begin(&b, 100000), 0);
    assert_int_equal(bench_feed(&b, 2, control, sizeof control, 0), 0);
    for (uint8_t id = 0; id < 40; id += 4) {
        uint8_t last = (uint8_t)(id + 4u * (BENCH_STREAM_MAX - 1u));
        assert_int_equal(update(&b, id), 0);
        assert_int_equal(update(&b, last), 0);
        assert_int_equal(bench_feed(&b, id, get, sizeof get, 1), 0);
        assert_int_equal(update(&b, id), 0);
        bench_answer(&b);
        bench_take(&b);
        b.conn.closed_cnt++;
        assert_int_equal(b.app.stream_close(b.app.ctx, &b.conn, id, 0x100), 0);
        assert_int_equal(update(&b, id), 0); /* of one that is over */
        assert_int_equal(b.conn.error, 0);
    }
    assert_int_equal(b.ready_cnt, 10);
    assert_int_equal(b.closed_cnt, 10);
    assert_int_not_equal(update(&b, 40 + 4u * BENCH_STREAM_MAX), 0);
    assert_int_equal(b.conn.error, H3_ID_ERROR);
    bench_end(&b);
    bench_close(&b);
}

/* --- a body of another length than content-length ----------------------- */

/* body_of writes a POST of content-length 5 whose body comes in DATA frames of
   these sizes, 0 ends the list; gives its size. */
static uint64_t body_of(uint8_t *buf, const uint8_t *frame) {
    static const uint8_t head[] = {0x01, 0x0a, 0, 0, 0xd4, 0xd7, 0xc1, 0x50, 1, 'h', 0x54, 1, '5'};
    uint64_t sz = sizeof head;
    memcpy(buf, head, sizeof head);
    buf[1] = sizeof head - 2u;
    for (; *frame != 0; frame++) {
        buf[sz++] = 0x00;
        buf[sz++] = *frame;
        memset(buf + sz, 'x', *frame);
        sz += *frame;
    }
    return sz;
}

/* Who lies about a length loses that request; the others of the connection
   are served, and the window has room for them. */
static void a_body_of_another_length_costs_its_stream(void **state) {
    (void)state;
    static const uint8_t frame[][4] = {{0},       {4},   {2, 2}, {6},   {5, 1},
                                       {2, 2, 2}, {100}, {5},    {3, 2}};
    const uint32_t good = 7; /* from there on all is as it was said */
    for (uint32_t i = 0; i < TDM_COUNT_OF(frame); i++) {
        for (uint32_t step = 1; step < 128; step += step) {
            static bench_t b;
            uint8_t buf[160];
            uint64_t sz = body_of(buf, frame[i]), sent = 0;
            bench_open(&b);
            assert_int_equal(bench_begin(&b, 100000), 0);
            assert_int_equal(bench_feed(&b, 2, control, sizeof control, 0), 0);
            assert_int_equal(bench_feed(&b, 4, post, 12, 0), 0);
            for (; sent < sz && b.conn.reset_error == 0; sent += step) {
                uint64_t n = TDM_MIN(sz - sent, step);
                assert_int_equal(bench_feed(&b, 0, buf + sent, n, sent + n == sz), 0);
            }
            assert_int_equal(b.conn.error, 0);
            assert_int_equal(b.conn.reset_error, i < good ? H3_MESSAGE_ERROR : 0);
            assert_int_equal(b.ready_cnt, i < good ? 0 : 1);
            assert_int_equal(tdm_h3_counters(b.h3)->protocol_errors, i < good);
            uint64_t taken = sizeof control + 12u + TDM_MIN(sent, sz);
            assert_int_equal(b.conn.consumed_sz, taken);
            /* What comes later of it, its end and its neighbour. */
            if (i < good) assert_int_equal(bench_feed(&b, 0, "late", 4, 1), 0);
            assert_int_equal(b.app.stream_close(b.app.ctx, &b.conn, 0, H3_MESSAGE_ERROR), 0);
            assert_int_equal(bench_feed(&b, 4, post + 12, sizeof post - 12u, 1), 0);
            assert_int_equal(b.conn.error, 0);
            assert_int_equal(b.ready_cnt, i < good ? 1 : 2);
            bench_answer(&b);
            bench_take(&b);
            bench_end(&b);
            bench_close(&b);
        }
    }
}

/* A client that changes its mind ends a stream without a word; what was on its
   way may be a frame that nobody knows. */
static void a_stream_without_a_request_is_incomplete(void **state) {
    (void)state;
    static const uint8_t unknown[] = {0x21, 0x02, 'x', 'y'};
    for (uint32_t i = 0; i < 2; i++) {
        static bench_t b;
        bench_open(&b);
        assert_int_equal(bench_begin(&b, 100000), 0);
        assert_int_equal(bench_feed(&b, 2, control, sizeof control, 0), 0);
        if (i == 1) assert_int_equal(bench_feed(&b, 0, unknown, sizeof unknown, 0), 0);
        assert_int_equal(bench_feed(&b, 0, "", 0, 1), 0);
        assert_int_equal(b.conn.error, 0);
        assert_int_equal(b.conn.reset_error, H3_REQUEST_INCOMPLETE);
        assert_int_equal(b.app.stream_close(b.app.ctx, &b.conn, 0, H3_REQUEST_INCOMPLETE), 0);
        assert_int_equal(bench_feed(&b, 4, get, sizeof get, 1), 0);
        assert_int_equal(b.ready_cnt, 1);
        bench_answer(&b);
        bench_take(&b);
        bench_end(&b);
        bench_close(&b);
    }
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
        if (bench_feed(b, id, bytes + at, n, is_fin && at + n == sz) != 0) return -1;
        at += n;
    }
    return 0;
}

static void one_conversation(bench_t *b, tdm_rng_t *r, uint32_t alloc_max) {
    uint8_t buf[64];
    int64_t id = 0;
    int is_alive = bench_begin(b, alloc_max) == 0;
    if (is_alive && tdm_rng_below(r, 8) != 0) {
        uint64_t sz = tdm_rng_below(r, 4) == 0 ? damage(r, buf, control, sizeof control)
                                               : (memcpy(buf, control, sizeof control), 3u);
        is_alive = bench_feed(b, 2, buf, sz, 0) == 0;
    }
    for (uint32_t n = 0; is_alive && n < 12; n++, id += 4) {
        uint32_t kind = (uint32_t)tdm_rng_below(r, 3);
        uint64_t sz = kind == 0   ? damage(r, buf, get, sizeof get)
                      : kind == 1 ? damage(r, buf, health, sizeof health)
                                  : damage(r, buf, post, sizeof post);
        is_alive = feed_cut(b, r, id, buf, sz) == 0;
        if (!is_alive) break;
        switch (tdm_rng_below(r, 5)) {
        case 0: (void)b->app.stream_reset(b->app.ctx, &b->conn, id, 0x10c); break;
        case 1: is_alive = b->app.stream_close(b->app.ctx, &b->conn, id, 0x100) == 0; break;
        case 2: bench_answer(b); break;
        case 3:
            bench_answer(b);
            bench_take(b);
            break;
        default: break;
        }
        is_alive = is_alive && b->conn.error == 0;
    }
    bench_end(b);
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

/* A GET of /health is whole with its header, ended or not, and its exchange is
   free again before the client has taken a byte: as one that takes none, or
   says no end, could hold what is kept for others. */
static void who_watches_holds_an_exchange_for_its_answer_alone(void **state) {
    (void)state;
    static bench_t b;
    static const uint8_t body[] = {0x00, 0x02, 'n', 'o'};
    for (int has_end = 0; has_end < 2; has_end++) {
        bench_open(&b);
        assert_int_equal(bench_begin(&b, 100000), 0);
        assert_int_equal(bench_feed(&b, 2, control, sizeof control, 0), 0);
        assert_int_equal(bench_feed(&b, 0, health, sizeof health, has_end), 0);
        assert_int_equal(b.ready_cnt, 1);
        assert_int_equal(tdm_h3_counters(b.h3)->unfinished_cnt, 0);
        bench_answer(&b);
        assert_int_equal(b.closed_cnt, 1);
        bench_take(&b);
        if (!has_end) assert_int_equal(bench_feed(&b, 0, body, sizeof body, 1), 0);
        assert_int_equal(b.ready_cnt, 1);
        assert_int_equal(b.conn.error, 0);
        bench_end(&b);
        bench_close(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_bytes_are_served),
        cmocka_unit_test(protocol_errors_have_their_codes),
        cmocka_unit_test(missing_path_is_a_message_error),
        cmocka_unit_test(two_hosts_are_a_message_error),
        cmocka_unit_test(priorities_of_streams_that_may_be_are_taken),
        cmocka_unit_test(a_body_of_another_length_costs_its_stream),
        cmocka_unit_test(a_stream_without_a_request_is_incomplete),
        cmocka_unit_test(damaged_bytes_do_no_harm),
        cmocka_unit_test(failing_allocations_do_no_harm),
        cmocka_unit_test(who_watches_holds_an_exchange_for_its_answer_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
