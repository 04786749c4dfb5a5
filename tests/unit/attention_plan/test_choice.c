/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the planner takes the route that measured best, says why it does
   not fuse, and cuts for the route it takes.
   Method: points of the grid with known answers; random batches on every
   device against the prediction in the plan. */
#include "tests/unit/attention_plan/plan_rig.h"

/* What is asked here is asked of the portable kernels. */
static void portable_open(rig_t *r, const char *gpu, uint32_t nhead_q, uint32_t nhead_kv) {
    rig_open(r, gpu, nhead_q, nhead_kv);
    r->config.variant = TDM_POD_VARIANT_PORTABLE;
}

/* A prefill chunk at the end of ctx beside decodes of the same context. */
static const tdm_pod_plan_t *hybrid(rig_t *r, uint32_t ctx, uint32_t chunk, uint32_t batch,
                                    uint32_t route) {
    r->prefill_cnt = r->decode_cnt = 0;
    add_prefill(r, ctx, chunk);
    for (uint32_t i = 0; i < batch; i++) add_decode(r, ctx);
    return build(r, route);
}

/* Routes that measured best on an H200 (tests/perf/results). */
static void the_planner_takes_the_route_that_measured_best(void **state) {
    (void)state;
    static const struct {
        uint32_t nhead_kv, ctx, chunk, batch, route;
    } want[] = {
        {8, 8192, 2048, 64, TDM_ROUTE_FUSED},    {8, 16384, 1024, 32, TDM_ROUTE_FUSED},
        {8, 16384, 2048, 3, TDM_ROUTE_FUSED},    {8, 4096, 512, 231, TDM_ROUTE_FUSED},
        {8, 16384, 512, 57, TDM_ROUTE_FUSED},    {8, 4096, 512, 14, TDM_ROUTE_FUSED},
        {8, 4096, 1024, 57, TDM_ROUTE_STREAMS},  {8, 8192, 512, 57, TDM_ROUTE_STREAMS},
        {4, 4096, 2048, 255, TDM_ROUTE_STREAMS}, {32, 4096, 512, 14, TDM_ROUTE_STREAMS},
        {32, 8192, 2048, 7, TDM_ROUTE_SERIAL},   {32, 4096, 512, 3, TDM_ROUTE_FUSED},
        {32, 16384, 2048, 14, TDM_ROUTE_FUSED},  {8, 16384, 2048, 28, TDM_ROUTE_SERIAL},
        {4, 16384, 2048, 57, TDM_ROUTE_SERIAL},  {32, 16384, 2048, 7, TDM_ROUTE_SERIAL},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(want); i++) {
        rig_t r;
        portable_open(&r, "h200", 32, want[i].nhead_kv);
        hybrid(&r, want[i].ctx, want[i].chunk, want[i].batch, TDM_POD_ROUTE_AUTO);
        assert_int_equal(r.plan.route, want[i].route);
        int is_fused = want[i].route == TDM_ROUTE_FUSED;
        assert_int_equal(r.plan.reason, is_fused ? 0 : TDM_FALLBACK_not_profitable);
        uint32_t way = is_fused                             ? TDM_POD_WAY_FUSED
                       : want[i].route == TDM_ROUTE_STREAMS ? TDM_POD_WAY_STREAMS_DP
                                                            : TDM_POD_WAY_SERIAL;
        assert_int_equal(r.plan.way, way);
        check_cover(&r);
        rig_close(&r);
    }
}

/* A prompt of 1,024 tokens, in chunks, beside 128 decodes of 1,024 to 1,408
   keys, what a served model meets: the portable kernels rather take two
   streams (measured at their grid), Hopper's fuse (served on an H200: 20 of
   20, tests/perf/results/service_cuda.md). */
static void prompts_beside_many_decodes_fuse_on_hopper(void **state) {
    (void)state;
    static const uint32_t want[TDM_POD_VARIANT_CNT] = {
        [TDM_POD_VARIANT_PORTABLE] = TDM_ROUTE_STREAMS, [TDM_POD_VARIANT_HOPPER] = TDM_ROUTE_FUSED};
    for (uint32_t v = TDM_POD_VARIANT_PORTABLE; v < TDM_POD_VARIANT_CNT; v++)
        for (uint32_t chunk = 256; chunk <= 1024; chunk *= 2)
            for (uint32_t at = 0; at < 1024; at += chunk) {
                rig_t r;
                rig_open(&r, "h200", 32, 8);
                r.config.variant = v;
                add_prefill(&r, at + chunk, chunk);
                for (uint32_t i = 0; i < 128; i++) add_decode(&r, 1024 + 3 * i);
                assert_int_equal(build(&r, TDM_POD_ROUTE_AUTO)->route, want[v]);
                rig_close(&r);
            }
}

/* Whatever is asked, the route is what the prediction says, its plan is the
   one that the route itself gives, and a caller's own choice stands. */
static void the_choice_follows_the_prediction(void **state) {
    (void)state;
    uint32_t seen[TDM_ROUTE_CNT] = {0};
    tdm_rng_t rng = {.state = 5};
    for (uint32_t i = 0; i < 600; i++) {
        const char *name;
        uint32_t gpu = i;
        while (!tdm_gpu_known_at(gpu, &name)) gpu -= 11;
        rig_t r;
        portable_open(&r, name, 32, 2u << tdm_rng_below(&rng, 5));
        r.config.part_float_max = UINT64_C(1) << 32; /* not what is asked here */
        uint32_t cnt = 1 + tdm_rng_below(&rng, 1u << (1 + tdm_rng_below(&rng, 12)));
        add_prefill(&r, cnt + draw_kv(&rng), cnt);
        for (uint32_t n = 1 + tdm_rng_below(&rng, 200); n > 0; n--) add_decode(&r, draw_kv(&rng));
        tdm_pod_plan_t p = *build(&r, TDM_POD_ROUTE_AUTO);
        check_cover(&r);
        assert_true(p.fused_us > 0.0f && p.serial_us > 0.0f);
        if (p.route == TDM_ROUTE_FUSED) assert_true(p.fused_us <= 1.03f * p.serial_us);
        if (p.route == TDM_ROUTE_SERIAL) assert_true(p.fused_us > 1.03f * p.serial_us);
        assert_int_equal(p.reason, p.route == TDM_ROUTE_FUSED ? 0 : TDM_FALLBACK_not_profitable);
        assert_int_equal(build(&r, p.route)->key, p.key);
        assert_int_equal(r.plan.way, p.way);
        assert_int_equal(r.plan.reason, TDM_REASON_NONE);
        seen[p.route]++;
        r.config.is_off = 1;
        assert_int_equal(build(&r, TDM_POD_ROUTE_AUTO)->route, TDM_ROUTE_SERIAL);
        assert_int_equal(r.plan.reason, TDM_FALLBACK_operator);
        rig_close(&r);
    }
    assert_true(seen[TDM_ROUTE_FUSED] && seen[TDM_ROUTE_STREAMS] && seen[TDM_ROUTE_SERIAL]);
}

/* 256 tiles on 264 slots, and decode that ends when the first 132 do: whole
   tiles measured 578 to 667 us, halves 525. */
static void prefill_is_cut_where_two_late_tiles_might_meet(void **state) {
    (void)state;
    static const struct {
        uint32_t nhead_kv, ctx, chunk, batch, item_cnt;
    } want[] = {{8, 8192, 1024, 32, 512}, {8, 4096, 1024, 32, 512}, {4, 8192, 1024, 57, 512},
                {8, 16384, 512, 16, 512}, {32, 4096, 512, 3, 128},  {8, 8192, 1024, 7, 256}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(want); i++) {
        rig_t r;
        portable_open(&r, "h200", 32, want[i].nhead_kv);
        hybrid(&r, want[i].ctx, want[i].chunk, want[i].batch, TDM_ROUTE_FUSED);
        assert_int_equal(r.plan.item_cnt[TDM_KIND_PREFILL], want[i].item_cnt);
        rig_close(&r);
    }
}

static void half_a_batch_has_the_route_of_its_kind(void **state) {
    (void)state;
    rig_t r;
    portable_open(&r, "h200", 32, 8);
    add_prefill(&r, 4096, 512);
    assert_int_equal(build(&r, TDM_POD_ROUTE_AUTO)->route, TDM_ROUTE_PREFILL_ONLY);
    assert_int_equal(r.plan.way, TDM_POD_WAY_PREFILL);
    assert_int_equal(r.plan.reason, TDM_REASON_NONE);
    r.prefill_cnt = 0;
    add_decode(&r, 4096);
    assert_int_equal(build(&r, TDM_POD_ROUTE_AUTO)->route, TDM_ROUTE_DECODE_ONLY);
    assert_int_equal(r.plan.way, TDM_POD_WAY_DECODE);
    assert_int_equal(r.plan.reason, TDM_REASON_NONE);
    rig_close(&r);
}

/* Short enough that what is left when prefill is done can be shared out. */
static void decode_items_are_short_beside_prefill(void **state) {
    (void)state;
    rig_t r;
    portable_open(&r, "h200", 32, 8);
    assert_int_equal(hybrid(&r, 8192, 512, 57, TDM_ROUTE_SERIAL)->decode_split_tok, 4096);
    assert_int_equal(hybrid(&r, 8192, 512, 57, TDM_ROUTE_STREAMS)->decode_split_tok, 4096);
    assert_int_equal(hybrid(&r, 8192, 512, 57, TDM_ROUTE_FUSED)->decode_split_tok, 2048);
    assert_int_equal(hybrid(&r, 8192, 512, 115, TDM_ROUTE_SERIAL)->decode_split_tok, 8192);
    /* Ten rounds end evenly as they are. */
    assert_int_equal(hybrid(&r, 12288, 1024, 220, TDM_ROUTE_FUSED)->decode_split_tok, 4096);
    rig_close(&r);
}

static void knobs_to_measure_with_are_obeyed(void **state) {
    (void)state;
    rig_t r;
    portable_open(&r, "h200", 32, 8);
    r.config.prefill_split = 4;
    r.config.decode_split_tok = 512;
    r.config.decode_warp = 1;
    hybrid(&r, 8192, 1024, 16, TDM_ROUTE_FUSED);
    assert_int_equal(r.plan.item_cnt[TDM_KIND_PREFILL], 32 * 8 * 4);
    assert_int_equal(r.plan.item_cnt[TDM_KIND_DECODE], 16 * 8 * 16);
    assert_int_equal(r.plan.decode_split_tok, 512);
    assert_int_equal(head_of(&r)->decode_warp, 1);
    check_cover(&r);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_planner_takes_the_route_that_measured_best),
        cmocka_unit_test(prompts_beside_many_decodes_fuse_on_hopper),
        cmocka_unit_test(the_choice_follows_the_prediction),
        cmocka_unit_test(prefill_is_cut_where_two_late_tiles_might_meet),
        cmocka_unit_test(half_a_batch_has_the_route_of_its_kind),
        cmocka_unit_test(decode_items_are_short_beside_prefill),
        cmocka_unit_test(knobs_to_measure_with_are_obeyed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
