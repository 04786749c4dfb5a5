/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what the door keeps of /health is the api tile's own answer, never
   older than 100 ms, and hides neither a tile that stands still nor one
   that says no; and a full table still answers it.
   Method: the world of world.h; the fake api numbers its answers. */

#include "world.h"

#include "appliance/base/clock.h"
#include "tests/unit/net_port/env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define STALE_NS (100 * TDM_NS_PER_MS)

static world_t w;

static int setup(void **state) {
    (void)state;
    world_open(&w, 64);
    world_connect(&w);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    world_close(&w);
    return 0;
}

static void settle(void) {
    world_settle(&w);
    assert_int_equal(tdm_net_tile_is_conserved(w.tile), 1);
}

/* ask gives the number of the answer to one probe. */
static unsigned ask(const char *method, const char *path) {
    answer_t a;
    unsigned n = 9999;
    world_request(&w, method, path, NULL, 0, &a);
    assert_true(world_until(&w, &a.is_ended, 20000));
    assert_int_equal(a.outcome, TDM_CLIENT_DONE);
    assert_int_equal(a.status, w.health_status);
    if (strcmp(method, "HEAD") != 0) assert_int_equal(sscanf(a.text, "{\"n\":%u}", &n), 1);
    return n;
}

static void pass(int64_t ns) {
    for (int64_t end = w.now_ns + ns; w.now_ns < end;) world_turn(&w);
}

static uint64_t answered(void) {
    tdm_net_tile_publish(w.tile);
    return *tdm_block_word(
        w.block, TDM_METRIC_http_responses_total,
        tdm_series2(TDM_METRIC_http_responses_total, TDM_LABEL_DOOR_h3, TDM_LABEL_CODE_2xx));
}

static void probes_share_an_answer_for_a_while(void **state) {
    (void)state;
    int64_t begin = w.now_ns;
    uint32_t asked = 0;
    for (; w.now_ns - begin < TDM_NS_PER_S; asked++) {
        unsigned n = ask("GET", "/health");
        assert_true(n + 1 == w.health_cnt || n + 2 == w.health_cnt);
    }
    assert_true(asked > 200);
    assert_in_range(w.health_cnt, 18, 21); /* one each 50 ms */
    assert_int_equal(answered(), asked);
    settle();
}

static void only_the_plain_question_is_kept(void **state) {
    (void)state;
    assert_int_equal(ask("GET", "/health"), 0);
    assert_int_equal(ask("GET", "/health"), 0);
    assert_int_equal(ask("GET", "/health?verbose"), 1);
    (void)ask("HEAD", "/health");
    assert_int_equal(w.health_cnt, 3);
    assert_int_equal(ask("GET", "/health"), 0); /* nor did those replace it */
    answer_t a;
    world_request(&w, "POST", "/health", "x", 1, &a);
    assert_true(world_until(&w, &a.is_ended, 20000));
    assert_int_equal(w.health_cnt, 4);
    settle();
}

static void an_api_tile_that_stands_still_is_noticed(void **state) {
    (void)state;
    answer_t a[2];
    assert_int_equal(ask("GET", "/health"), 0);
    w.is_api_asleep = 1;
    pass(STALE_NS / 2 + TDM_NS_PER_MS);
    world_request(&w, "GET", "/health", NULL, 0, &a[0]); /* the one that asks anew */
    pass(5 * TDM_NS_PER_MS);
    assert_int_equal(a[0].is_ended, 0);
    assert_int_equal(ask("GET", "/health"), 0); /* the others need not wait yet */
    pass(STALE_NS / 2);
    world_request(&w, "GET", "/health", NULL, 0, &a[1]);
    pass(STALE_NS);
    assert_int_equal(a[0].is_ended, 0);
    assert_int_equal(a[1].is_ended, 0);
    w.is_api_asleep = 0;
    assert_true(world_until(&w, &a[0].is_ended, 20000));
    assert_true(world_until(&w, &a[1].is_ended, 20000));
    assert_int_equal(w.health_cnt, 3);
    settle();
}

static void a_no_is_never_kept(void **state) {
    (void)state;
    assert_int_equal(ask("GET", "/health"), 0);
    pass(STALE_NS);
    w.health_status = 503;
    for (unsigned i = 1; i < 5; i++) assert_int_equal(ask("GET", "/health"), i);
    w.health_status = 200;
    assert_int_equal(ask("GET", "/health"), 5);
    assert_int_equal(ask("GET", "/health"), 5);
    settle();
}

static void readers_that_leave_cost_the_api_tile_nothing(void **state) {
    (void)state;
    assert_int_equal(ask("GET", "/health"), 0);
    answer_t a;
    for (int i = 0; i < 20; i++) {
        int64_t id = world_request(&w, "GET", "/health", NULL, 0, &a);
        tdm_client_cancel(w.client, id);
        pass(TDM_NS_PER_MS);
    }
    settle();
    assert_int_equal(w.hangup_cnt, 0);
    assert_int_equal(w.health_cnt, 1);
}

static void fill(answer_t *a, int64_t *id) {
    for (uint32_t i = 0; i < WORLD_EXCHANGE_MAX; i++)
        id[i] = world_request(&w, "GET", "/hang", NULL, 0, &a[i]);
    pass(100 * TDM_NS_PER_MS);
    assert_int_equal(tdm_net_tile_exchange_cnt(w.tile), WORLD_EXCHANGE_MAX);
}

static void leave(const int64_t *id) {
    for (uint32_t i = 0; i < WORLD_EXCHANGE_MAX; i++) tdm_client_cancel(w.client, id[i]);
    settle();
}

static uint64_t reserved(void) {
    return world_counted(&w, TDM_METRIC_exchanges_reserved_total, TDM_LABEL_DOOR_h3);
}

/* Who takes a busy machine for a dead one makes it one. */
static void a_full_table_answers_who_watches(void **state) {
    (void)state;
    answer_t a[WORLD_EXCHANGE_MAX], more;
    int64_t id[WORLD_EXCHANGE_MAX];
    fill(a, id);
    static const char *const other[] = {"/hang", "/healthy", "/health/", "/v1/models"};
    for (uint32_t i = 0; i < TDM_COUNT_OF(other); i++) {
        world_request(&w, "GET", other[i], NULL, 0, &more);
        assert_true(world_until(&w, &more.is_ended, 20000));
        assert_int_equal(more.status, 503);
    }
    world_request(&w, "POST", "/health", "x", 1, &more);
    assert_true(world_until(&w, &more.is_ended, 20000));
    assert_int_equal(more.status, 503);
    assert_int_equal(reserved(), 0);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(ask("GET", "/health"), i);
        pass(STALE_NS);
    }
    assert_int_equal(reserved(), 10);
    (void)ask("HEAD", "/health");
    world_request(&w, "GET", "/ready", NULL, 0, &more);
    assert_true(world_until(&w, &more.is_ended, 20000));
    assert_int_equal(more.status, 200);
    assert_int_equal(reserved(), 12);
    assert_int_equal(tdm_net_tile_exchange_cnt(w.tile), WORLD_EXCHANGE_MAX);
    leave(id);
}

/* Not even those who ask and take no answer hold what is kept. */
static void who_watches_and_takes_nothing_holds_no_place(void **state) {
    (void)state;
    answer_t a[WORLD_EXCHANGE_MAX], b[3 * WORLD_RESERVE];
    int64_t id[WORLD_EXCHANGE_MAX];
    fill(a, id);
    w.is_cut = 1;
    for (uint32_t i = 0; i < TDM_COUNT_OF(b); i++) {
        uint32_t asked = w.health_cnt;
        world_request(&w, "GET", "/health", NULL, 0, &b[i]);
        pass(STALE_NS + TDM_NS_PER_MS);
        assert_int_equal(w.health_cnt, asked + 1);
        assert_int_equal(b[i].is_ended, 0);
        assert_int_equal(tdm_net_tile_exchange_cnt(w.tile), WORLD_EXCHANGE_MAX);
    }
    w.is_cut = 0;
    for (uint32_t i = 0; i < TDM_COUNT_OF(b); i++) {
        unsigned n = 9999;
        assert_true(world_until(&w, &b[i].is_ended, 200000));
        assert_int_equal(b[i].status, 200);
        assert_int_equal(sscanf(b[i].text, "{\"n\":%u}", &n), 1);
        assert_int_equal(n, i);
    }
    leave(id);
}

/* What is kept has a bound too, and who is over it hears so. */
static void an_api_tile_that_sleeps_holds_what_is_kept(void **state) {
    (void)state;
    answer_t a[WORLD_EXCHANGE_MAX], b[WORLD_RESERVE + 1];
    int64_t id[WORLD_EXCHANGE_MAX];
    fill(a, id);
    w.is_api_asleep = 1;
    for (uint32_t i = 0; i < WORLD_RESERVE; i++)
        world_request(&w, "GET", "/health", NULL, 0, &b[i]);
    pass(STALE_NS);
    assert_int_equal(tdm_net_tile_exchange_cnt(w.tile), WORLD_SLOT_CNT);
    world_request(&w, "GET", "/health", NULL, 0, &b[WORLD_RESERVE]);
    assert_true(world_until(&w, &b[WORLD_RESERVE].is_ended, 20000));
    assert_int_equal(b[WORLD_RESERVE].status, 503);
    w.is_api_asleep = 0;
    for (uint32_t i = 0; i < WORLD_RESERVE; i++) {
        assert_true(world_until(&w, &b[i].is_ended, 20000));
        assert_int_equal(b[i].status, 200);
    }
    leave(id);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    if (env_begin(4096)) return 1;
    const struct CMUnitTest tests[] = {
        TEST(probes_share_an_answer_for_a_while),
        TEST(only_the_plain_question_is_kept),
        TEST(an_api_tile_that_stands_still_is_noticed),
        TEST(a_no_is_never_kept),
        TEST(readers_that_leave_cost_the_api_tile_nothing),
        TEST(a_full_table_answers_who_watches),
        TEST(who_watches_and_takes_nothing_holds_no_place),
        TEST(an_api_tile_that_sleeps_holds_what_is_kept),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_port_env_stop();
    return failed;
}
