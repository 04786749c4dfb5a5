/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the measurement drives an executor only in ways that it accepts,
   finds the machine's law again where it measured, keeps to its budget and
   to the executor's limits, and says where it never looked.
   Method: a machine whose law is known, behind the executor's own check of
   every plan. */

#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "appliance/measure/grid.h"
#include "appliance/profile/file.h"
#include "appliance/profile/profile.h"
#include "scheduler/table.h"
#include "tests/unit/measure/machine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define FIXED_NS 30000.0

/* The machine: what an iteration costs, and the slots it keeps. */
static struct {
    tdm_measure_limits_t limits;
    machine_t machine;
    tdm_plan_t plan;
    tdm_result_t result;
    int64_t now_ns;
    tdm_rng_t rng;
    double noise;
    double pace;   /* factor on everything */
    int is_card;   /* card_ns is the law, without a host's fixed time */
    double serial; /* factor of the attention of a serial hybrid */
    uint64_t run_cnt, fail_at;
    double last_share;
} x;

static tdm_profile_t guess;
static tdm_error_t err;

static double attention_of(double pairs, double kv, uint32_t route) {
    double ns = pairs * 3.0 + kv * 40.0;
    return route == TDM_ROUTE_SERIAL ? ns * x.serial : ns;
}

static double law(double tok, double pairs, double kv, double decodes, uint32_t route) {
    double ns = FIXED_NS + 400e3 + tok * 20e3 + attention_of(pairs, kv, route) + decodes * 4e3;
    return ns * x.pace;
}

/* card: what an H200 with an 8B model is like, in round numbers; products go
   in tiles of 128 rows, a chunk's attention has a floor. */
static double card_attention(double pairs, double kv, uint32_t route) {
    double prefill = pairs > 0.0 ? fmax(pairs * 0.9, 4e5) : 0.0, decode = kv * 30.0;
    double fused = fmax(prefill, decode) + 0.25 * fmin(prefill, decode);
    if (route == TDM_ROUTE_SERIAL) return prefill + decode;
    return route == TDM_ROUTE_STREAMS ? 1.1 * fused : fused;
}

static double card_ns(double tok, double attention) {
    return 4e6 + ceil(tok / 128.0) * 128.0 * 20e3 + attention;
}

static tdm_status_t on_run(void *ctx, tdm_plan_t *plan, tdm_result_t *result, tdm_error_t *e) {
    (void)ctx;
    if (++x.run_cnt == x.fail_at) return tdm_error_set(e, TDM_ERR_CLOSED, "gone");
    machine_load_t l;
    tdm_status_t st = machine_take(&x.machine, plan, &l, e);
    if (st != TDM_OK) return st;
    double tok = l.prefill + l.decodes;
    double attention = x.is_card ? card_attention(l.pairs, l.kv, plan->route)
                                 : attention_of(l.pairs, l.kv, plan->route) * x.pace;
    double ns = FIXED_NS;
    if (tok > 0.0)
        ns = x.is_card ? card_ns(tok, attention) : law(tok, l.pairs, l.kv, l.decodes, plan->route);
    ns *= 1.0 + x.noise * (tdm_rng_unit(tdm_rng_next(&x.rng)) - 0.5);
    result->start_ns = x.now_ns;
    x.now_ns += (int64_t)ns;
    result->end_ns = x.now_ns;
    result->attention_ns = (int64_t)attention;
    return TDM_OK;
}

static int64_t on_now(void *ctx) {
    (void)ctx;
    return x.now_ns;
}

static void on_progress(void *ctx, double share, const char *stage, uint32_t points) {
    (void)ctx;
    (void)points;
    assert_true(share >= x.last_share && share <= 1.0 && stage[0]);
    x.last_share = share;
}

static void open_machine(tdm_measure_limits_t limits) {
    memset(&x, 0, sizeof x);
    x.limits = limits;
    x.serial = 1.5;
    x.pace = 1.0;
    machine_open(&x.machine, &limits);
    tdm_shape_t shape = {.layer_cnt = 2,
                         .hidden = 64,
                         .nhead_q = 2,
                         .nhead_kv = 1,
                         .head_dim = 64,
                         .ffn = 64,
                         .vocab = 100};
    tdm_profile_rates_t rates = tdm_profile_cpu_rates(2);
    tdm_profile_guess(&shape, &rates, &guess);
}

static tdm_status_t measure(int64_t budget_ns, tdm_profile_set_t *set) {
    tdm_measure_ask_t ask = {.limits = x.limits,
                             .guess = &guess,
                             .budget_ns = budget_ns,
                             .stair_from = (uint32_t)x.is_card,
                             .run = on_run,
                             .now = on_now,
                             .plan = &x.plan,
                             .result = &x.result,
                             .progress = on_progress};
    *set = (tdm_profile_set_t){.device = "machine", .model = "law", .build = "1"};
    return tdm_measure_run(&ask, set, &err);
}

static const tdm_measure_limits_t usual = {
    .seq_max = 33, .token_max = 512, .context_max = 8192, .kv_page_cnt = 2048, .vocab = 100};

static double predicted(const tdm_profile_table_t *t, uint32_t v, double c, double h, double b,
                        double s) {
    tdm_load_t load = {.prefill_cnt = (uint32_t)c,
                       .decode_cnt = (uint32_t)b,
                       .pair_cnt = (uint64_t)(c * h + c * (c + 1.0) / 2.0),
                       .kv_cnt = (uint64_t)s,
                       .kv_max = b > 0.0 ? (uint64_t)(s / b) : 0};
    return tdm_table_ns(t, v, &load);
}

static void the_law_is_found_again(void **state) {
    (void)state;
    static tdm_profile_table_t table;
    tdm_profile_set_t set;
    open_machine(usual);
    x.noise = 0.05;
    assert_int_equal(measure(600 * TDM_NS_PER_S, &set), TDM_OK);
    assert_int_equal(tdm_profile_build(&set, &guess, &table, &err), TDM_OK);
    assert_true(tdm_profile_is_monotone(&table));
    assert_true(fabs(set.fixed_ns / FIXED_NS - 1.0) < 0.05);
    static const double shape[][4] = {{512, 0, 0, 0},        {128, 1024, 0, 0},    {0, 0, 8, 8192},
                                      {64, 0, 16, 16384},    {256, 1024, 4, 4096}, {0, 0, 32, 8192},
                                      {512, 1024, 16, 16384}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(shape); i++) {
        const double *p = shape[i];
        double pairs = p[0] * p[1] + p[0] * (p[0] + 1.0) / 2.0;
        for (uint32_t v = 0; v < 3; v++) {
            int is_hybrid = p[0] > 0.0 && p[2] > 0.0;
            double want = law(p[0] + p[2], pairs, p[3], p[2],
                              is_hybrid ? TDM_ROUTE_FUSED + v : (uint32_t)TDM_ROUTE_DECODE_ONLY);
            double got = predicted(&table, v, p[0], p[1], p[2], p[3]);
            if (fabs(got / want - 1.0) > 0.08)
                fail_msg("shape %u, variant %u: %.0f instead of %.0f", i, v, got, want);
        }
    }
    assert_true(set.check.shape_cnt >= 8 && set.check.p50_error < 0.1f);
    tdm_profile_set_free(&set);
    machine_close(&x.machine);
}

static void points_lie_on_the_axes_with_their_samples(void **state) {
    (void)state;
    tdm_profile_set_t set;
    uint32_t kind[TDM_PROFILE_KIND_CNT] = {0};
    open_machine(usual);
    assert_int_equal(measure(600 * TDM_NS_PER_S, &set), TDM_OK);
    for (uint32_t i = 0; i < set.point_cnt; i++) {
        const tdm_profile_point_t *p = &set.point[i];
        kind[p->kind]++;
        assert_true(p->cnt >= 1 && p->cnt <= TDM_MEASURE_ROUND_MAX && p->spread >= 1.0f);
        assert_true(p->chunk <= usual.token_max && p->batch < usual.seq_max);
        for (uint32_t k = 0; k < i; k++) {
            const tdm_profile_point_t *q = &set.point[k];
            assert_false(p->kind == q->kind && p->chunk == q->chunk && p->depth == q->depth &&
                         p->batch == q->batch && p->kv == q->kv);
        }
    }
    assert_true(kind[TDM_PROFILE_LIN] >= 8);
    /* either kind alone is fused's */
    assert_true(kind[TDM_PROFILE_FUSED] >= 50);
    assert_true(kind[TDM_PROFILE_STREAMS] >= 20 && kind[TDM_PROFILE_SERIAL] >= 20);
    tdm_profile_set_free(&set);
    machine_close(&x.machine);
}

static void the_budget_is_kept_and_the_rest_is_outside(void **state) {
    (void)state;
    static tdm_profile_table_t table;
    tdm_profile_set_t set;
    open_machine(usual);
    assert_int_equal(measure(TDM_NS_PER_S, &set), TDM_OK);
    /* one round of the first stage is never given up */
    assert_true(x.now_ns < 3 * TDM_NS_PER_S);
    assert_int_equal(tdm_profile_build(&set, &guess, &table, &err), TDM_OK);
    tdm_load_t deep = {.prefill_cnt = 64, .decode_cnt = 16, .pair_cnt = 64, .kv_cnt = 16384};
    assert_true(tdm_table_is_outside(&table, 0, &deep));
    tdm_profile_set_free(&set);
    machine_close(&x.machine);
}

static void small_executors_are_measured_too(void **state) {
    (void)state;
    static const tdm_measure_limits_t limits[] = {
        {.seq_max = 2, .token_max = 64, .context_max = 128, .kv_page_cnt = 4, .vocab = 2},
        {.seq_max = 5, .token_max = 100, .context_max = 300, .kv_page_cnt = 9, .vocab = 7},
        {.seq_max = 256,
         .token_max = 2048,
         .context_max = 131072,
         .kv_page_cnt = 40000,
         .vocab = 1000},
        {.seq_max = 9, .token_max = 512, .context_max = 4096, .kv_page_cnt = 70, .vocab = 50},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(limits); i++) {
        tdm_profile_set_t set;
        open_machine(limits[i]);
        if (measure(60 * TDM_NS_PER_S, &set) != TDM_OK) fail_msg("%u: %s", i, err.text);
        assert_true(set.point_cnt > 0);
        tdm_profile_set_free(&set);
        machine_close(&x.machine);
    }
}

/* With slots that open at any depth a large card is measured whole within
   four minutes, with no more shapes than allowed, as deep as its pool. */
static void a_large_card_is_measured_in_four_minutes(void **state) {
    (void)state;
    static tdm_profile_table_t table;
    static const tdm_measure_limits_t limits = {.seq_max = 256,
                                                .token_max = 2048,
                                                .context_max = 131072,
                                                .kv_page_cnt = 14000,
                                                .vocab = 1000,
                                                .is_filled = 1};
    tdm_profile_set_t set;
    open_machine(limits);
    x.is_card = 1;
    x.noise = 0.02;
    assert_int_equal(measure(240 * TDM_NS_PER_S, &set), TDM_OK);
    assert_true(x.now_ns <= 240 * TDM_NS_PER_S);
    uint32_t shapes = 0;
    for (uint32_t i = 0; i < set.point_cnt; i++) {
        const tdm_profile_point_t *p = &set.point[i];
        int is_alone = p->chunk == 0 || p->batch == 0;
        shapes += p->kind != TDM_PROFILE_LIN && (!is_alone || p->kind == TDM_PROFILE_FUSED);
        assert_true(p->kind == TDM_PROFILE_LIN || p->ns > 0.0f);
    }
    assert_true(shapes >= 400 && shapes <= TDM_MEASURE_POINT_MAX);
    assert_int_equal(tdm_profile_build(&set, &guess, &table, &err), TDM_OK);
    assert_true(table.box[0].kv >= 524288.0f && table.box[0].batch >= 128.0f &&
                table.box[2].kv >= 524288.0f && table.box[0].depth >= 65536.0f);
    assert_true(set.check.shape_cnt >= 40);
    print_message("%u shapes, %.0f s, error p50 %.3f p95 %.3f worst %.3f\n", shapes,
                  (double)x.now_ns / 1e9, (double)set.check.p50_error, (double)set.check.p95_error,
                  (double)set.check.worst_error);
    assert_true(set.check.p50_error < 0.05f && set.check.p95_error < 0.15f);
    tdm_profile_set_free(&set);
    machine_close(&x.machine);
}

/* A machine where 512 tokens take a second: few shapes, and the law holds
   between them. */
static void a_slow_machine_is_measured_in_minutes(void **state) {
    (void)state;
    static tdm_profile_table_t table;
    tdm_profile_set_t set;
    open_machine(usual);
    x.pace = 100.0;
    x.noise = 0.02;
    assert_int_equal(measure(240 * TDM_NS_PER_S, &set), TDM_OK);
    assert_true(x.now_ns < 400 * TDM_NS_PER_S);
    assert_true(set.check.shape_cnt >= 6 && set.check.p50_error < 0.1f);
    assert_int_equal(tdm_profile_build(&set, &guess, &table, &err), TDM_OK);
    static const double shape[][4] = {{128, 0, 8, 2048}, {64, 1024, 16, 8192}, {0, 0, 16, 4096}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(shape); i++) {
        const double *p = shape[i];
        double pairs = p[0] * p[1] + p[0] * (p[0] + 1.0) / 2.0;
        for (uint32_t v = 0; v < 3; v += 2) {
            uint32_t route = p[0] > 0.0 ? TDM_ROUTE_FUSED + v : (uint32_t)TDM_ROUTE_DECODE_ONLY;
            double want = law(p[0] + p[2], pairs, p[3], p[2], route);
            double got = predicted(&table, v, p[0], p[1], p[2], p[3]);
            if (fabs(got / want - 1.0) > 0.15)
                fail_msg("shape %u, variant %u: %.0f instead of %.0f", i, v, got, want);
        }
    }
    tdm_profile_set_free(&set);
    machine_close(&x.machine);
}

/* With two samples of a shape and a fifth of noise the points are off, and
   what lies between them is no worse: the noise of small remainders must
   not be multiplied into the rest. */
static void noise_does_not_grow_between_the_points(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        tdm_profile_set_t set;
        open_machine(usual);
        x.pace = 100.0;
        x.noise = 0.4;
        x.rng.state = seed;
        assert_int_equal(measure(200 * TDM_NS_PER_S, &set), TDM_OK);
        if (set.check.p50_error > 0.2f || set.check.worst_error > 0.6f)
            fail_msg("seed %u: %g, %g", (unsigned)seed, (double)set.check.p50_error,
                     (double)set.check.worst_error);
        tdm_profile_set_free(&set);
        machine_close(&x.machine);
    }
}

static void both_files_say_the_same(void **state) {
    (void)state;
    static tdm_profile_table_t a, b;
    tdm_profile_set_t set, json, bin;
    char dir[] = "/tmp/tdm-measure-XXXXXX", path[2][64];
    open_machine(usual);
    x.noise = 0.3;
    assert_int_equal(measure(20 * TDM_NS_PER_S, &set), TDM_OK);
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path[0], sizeof path[0], "%s/p.json", dir);
    (void)snprintf(path[1], sizeof path[1], "%s/p.bin", dir);
    assert_int_equal(tdm_profile_write_json(path[0], &set, &err), TDM_OK);
    assert_int_equal(tdm_profile_write_compact(path[1], &set, &err), TDM_OK);
    assert_int_equal(tdm_profile_read(path[0], "law", "machine", &json, &err), TDM_OK);
    assert_int_equal(tdm_profile_read(path[1], "law", "machine", &bin, &err), TDM_OK);
    assert_int_equal(json.point_cnt, bin.point_cnt);
    assert_int_equal(tdm_profile_build(&json, &guess, &a, &err), TDM_OK);
    assert_int_equal(tdm_profile_build(&bin, &guess, &b, &err), TDM_OK);
    assert_true(tdm_profile_is_monotone(&a));
    for (uint32_t i = 0; i < TDM_PROFILE_LIN_CNT; i++)
        assert_true(fabs((double)(a.lin_ns[i] - b.lin_ns[i])) <= 1e-5 * (double)b.lin_ns[i]);
    assert_int_equal(tdm_profile_read(path[1], "law", "another", &bin, &err), TDM_ERR_INVAL);
    for (uint32_t i = 0; i < 2; i++) (void)unlink(path[i]);
    (void)rmdir(dir);
    tdm_profile_set_free(&set);
    tdm_profile_set_free(&json);
    tdm_profile_set_free(&bin); /* the refused file changed nothing */
    machine_close(&x.machine);
}

static void an_executor_that_ends_is_told(void **state) {
    (void)state;
    for (uint64_t at = 1; at < 200; at += 33) {
        tdm_profile_set_t set;
        open_machine(usual);
        x.fail_at = at;
        assert_int_equal(measure(TDM_NS_PER_S, &set), TDM_ERR_CLOSED);
        assert_null(set.point);
        machine_close(&x.machine);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_law_is_found_again),
        cmocka_unit_test(points_lie_on_the_axes_with_their_samples),
        cmocka_unit_test(the_budget_is_kept_and_the_rest_is_outside),
        cmocka_unit_test(small_executors_are_measured_too),
        cmocka_unit_test(a_large_card_is_measured_in_four_minutes),
        cmocka_unit_test(a_slow_machine_is_measured_in_minutes),
        cmocka_unit_test(noise_does_not_grow_between_the_points),
        cmocka_unit_test(both_files_say_the_same),
        cmocka_unit_test(an_executor_that_ends_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
