/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the GPU planner covers every row and key once, on every device it
   is described, within its bounds, and says why it cannot.
   Method: random batches over all known devices, checked item by item; and
   named cases for each reason. */
#include "kernels/plan/spans.h"
#include "tests/unit/attention_plan/plan_rig.h"

static void random_batches_are_covered_on_every_device(void **state) {
    (void)state;
    static const uint32_t heads[][2] = {{32, 8}, {32, 4}, {32, 32}, {28, 4}, {16, 1}, {9, 3}};
    tdm_rng_t rng = {.state = 20261129};
    for (uint32_t i = 0; i < 400; i++) {
        const char *name;
        uint32_t gpu = i;
        while (!tdm_gpu_known_at(gpu, &name)) gpu -= 11;
        rig_t r;
        uint32_t h = tdm_rng_below(&rng, TDM_COUNT_OF(heads));
        rig_open(&r, name, heads[h][0], heads[h][1]);
        r.config.shape.head_dim = tdm_rng_below(&rng, 2) ? 64 : 128;
        uint32_t prefill = tdm_rng_below(&rng, 4);
        uint32_t decode = tdm_rng_below(&rng, 40);
        for (uint32_t s = 0; s < prefill; s++) {
            uint32_t cnt = 1 + tdm_rng_below(&rng, 1500);
            add_prefill(&r, tdm_rng_below(&rng, 8) ? cnt + draw_kv(&rng) : cnt / 2, cnt);
        }
        for (uint32_t s = 0; s < decode; s++) {
            add_decode(&r, tdm_rng_below(&rng, 10) ? draw_kv(&rng) : 0);
        }
        uint32_t route = tdm_rng_below(&rng, 2) ? TDM_ROUTE_FUSED : TDM_ROUTE_SERIAL;
        build(&r, route);
        if (prefill && decode) assert_int_equal(r.plan.route, route);
        assert_int_equal(r.plan.reason, TDM_REASON_NONE);
        if (prefill + decode) check_cover(&r);
        rig_close(&r);
    }
}

static void every_device_gets_a_tile_and_two_ctas(void **state) {
    (void)state;
    const char *name;
    for (uint32_t i = 0; tdm_gpu_known_at(i, &name); i++) {
        for (uint32_t dim = 64; dim <= 128; dim += 64) {
            rig_t r;
            rig_open(&r, name, 32, 8);
            r.config.variant = TDM_POD_VARIANT_PORTABLE;
            r.config.shape.head_dim = dim;
            add_prefill(&r, 4096, 512);
            add_decode(&r, 4096);
            const tdm_pod_plan_t *p = build(&r, TDM_ROUTE_FUSED);
            assert_int_equal(p->route, TDM_ROUTE_FUSED);
            assert_true(p->cta_sm >= 2);
            assert_int_equal(p->grid, p->cta_sm * r.config.gpu.sm_cnt);
            assert_true(p->cta_sm * (p->smem_sz + 1024) <= r.config.gpu.smem_sm);
            rig_close(&r);
        }
    }
    assert_int_equal(tdm_gpu_known("a100")->arch, 80);
    assert_null(tdm_gpu_known("none"));
}

static void wide_tiles_on_hopper_narrower_where_shared_memory_ends(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t tile;
    } want[] = {{"h200", TDM_POD_TILE_WIDE2},    {"h20", TDM_POD_TILE_WIDE2},
                {"h100-1g", TDM_POD_TILE_WIDE2}, {"b200", TDM_POD_TILE_WIDE2},
                {"a100", TDM_POD_TILE_WIDE1},    {"a100-1g", TDM_POD_TILE_WIDE1},
                {"l40s", TDM_POD_TILE_SLIM},     {"rtx5090", TDM_POD_TILE_SLIM}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(want); i++) {
        rig_t r;
        rig_open(&r, want[i].name, 32, 8);
        r.config.variant = TDM_POD_VARIANT_PORTABLE;
        add_decode(&r, 100);
        assert_int_equal(build(&r, TDM_ROUTE_FUSED)->tile, want[i].tile);
        assert_int_equal(r.plan.route, TDM_ROUTE_DECODE_ONLY);
        rig_close(&r);
    }
}

static uint32_t reason_of(rig_t *r) {
    r->prefill_cnt = r->decode_cnt = 0;
    add_prefill(r, 4096, 512);
    add_decode(r, 4096);
    return build(r, TDM_ROUTE_FUSED)->reason;
}

static void the_first_reason_in_order_is_given(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r, "h200", 32, 8);
    assert_int_equal(reason_of(&r), TDM_REASON_NONE);
    r.config.part_float_max = 1;
    r.config.decode_split_tok = 256;
    assert_int_equal(reason_of(&r), TDM_FALLBACK_workspace);
    assert_int_equal(r.plan.route, TDM_ROUTE_SERIAL);
    assert_int_equal(r.plan.merge_cnt, 0);
    check_cover(&r);
    r.config.state.is_graph_missing = 1;
    r.config.part_float_max = 1u << 24;
    assert_int_equal(reason_of(&r), TDM_FALLBACK_graph_miss);
    assert_int_equal(r.plan.route, TDM_ROUTE_SERIAL);
    r.config.gpu.smem_cta = 16384;
    assert_int_equal(reason_of(&r), TDM_FALLBACK_smem_limit);
    assert_int_equal(r.plan.route, TDM_ROUTE_IDLE);
    r.config.shape.feature = 1;
    assert_int_equal(reason_of(&r), TDM_FALLBACK_feature);
    r.config.shape.page_tok = 48;
    assert_int_equal(reason_of(&r), TDM_FALLBACK_page_size);
    r.config.shape.nhead_kv = 1;
    assert_int_equal(reason_of(&r), TDM_FALLBACK_group_size);
    r.config.shape.head_dim = 96;
    assert_int_equal(reason_of(&r), TDM_FALLBACK_head_dim);
    r.config.shape.kv_dtype = TDM_POD_F16;
    assert_int_equal(reason_of(&r), TDM_FALLBACK_kv_dtype);
    r.config.shape.dtype = TDM_POD_DTYPE_CNT;
    assert_int_equal(reason_of(&r), TDM_FALLBACK_dtype);
    r.config.gpu.sm_cnt = 4;
    assert_int_equal(reason_of(&r), TDM_FALLBACK_sm_partition);
    r.config.state.driver = 12090;
    assert_int_equal(reason_of(&r), TDM_FALLBACK_driver);
    assert_int_equal(r.plan.route, TDM_ROUTE_IDLE);
    r.config.gpu.arch = 75;
    assert_int_equal(reason_of(&r), TDM_FALLBACK_arch);
    r.config.is_off = 1;
    assert_int_equal(reason_of(&r), TDM_FALLBACK_operator);
    rig_close(&r);
}

/* What the fused kernels do not take, others run apart, under the reason
   that a counter is named for. */
static void plain_kernels_take_what_others_do_not(void **state) {
    (void)state;
    static const struct {
        uint32_t nhead_q, nhead_kv, head_dim, kv_dtype, reason;
    } c[] = {{32, 8, 128, TDM_POD_E4M3, TDM_FALLBACK_kv_dtype},
             {32, 8, 96, TDM_POD_BF16, TDM_FALLBACK_head_dim},
             {16, 8, 256, TDM_POD_BF16, TDM_FALLBACK_head_dim},
             {71, 1, 64, TDM_POD_BF16, TDM_FALLBACK_group_size},
             {24, 1, 128, TDM_POD_BF16, TDM_FALLBACK_group_size},
             {128, 1, 256, TDM_POD_E4M3, TDM_FALLBACK_kv_dtype}};
    const char *name;
    for (uint32_t i = 0; i < TDM_COUNT_OF(c); i++) {
        for (uint32_t g = 0; tdm_gpu_known_at(g, &name); g++) {
            rig_t r;
            rig_open(&r, name, c[i].nhead_q, c[i].nhead_kv);
            r.config.shape.head_dim = c[i].head_dim;
            r.config.shape.kv_dtype = c[i].kv_dtype;
            add_prefill(&r, 5000, 77);
            for (uint32_t s = 0; s < 9; s++) add_decode(&r, 1000 * s);
            build(&r, TDM_ROUTE_FUSED);
            assert_int_equal(r.plan.reason, c[i].reason);
            assert_int_equal(r.plan.variant, TDM_POD_VARIANT_PLAIN);
            assert_int_equal(r.plan.route, TDM_ROUTE_SERIAL);
            assert_true(r.plan.cta_sm >= 1);
            assert_true(r.plan.cta_sm * (r.plan.smem_sz + 1024) <= r.config.gpu.smem_sm);
            check_cover(&r);
            uint64_t elem = c[i].kv_dtype == TDM_POD_E4M3 ? 1 : 2;
            assert_int_equal(r.plan.kind_bytes[TDM_KIND_PREFILL],
                             2 * elem * 5000 * c[i].nhead_kv * c[i].head_dim);
            rig_close(&r);
        }
    }
}

/* The deterministic mode (tdm_cuda_fix_attention): every row a decode of its
   own, cut at positions 512, 1,024, ..., by the fused form and over fp8. */
static void rows_are_cut_at_fixed_positions(void **state) {
    (void)state;
    static const uint32_t kv_dtype[] = {TDM_POD_BF16, TDM_POD_E4M3};
    for (uint32_t i = 0; i < TDM_COUNT_OF(kv_dtype); i++) {
        rig_t r;
        rig_open(&r, "h200", 32, 8);
        r.config.shape.kv_dtype = kv_dtype[i];
        r.config.variant = TDM_POD_VARIANT_PORTABLE;
        r.config.decode_split_tok = 512;
        uint32_t want = 0;
        for (uint32_t kv = 1; kv < 3000; kv += 97) {
            add_decode(&r, kv);
            want += (kv + 511) / 512 * 8;
        }
        build(&r, TDM_ROUTE_DECODE_ONLY);
        assert_int_equal(r.plan.route, TDM_ROUTE_DECODE_ONLY);
        assert_int_equal(r.plan.variant, i ? TDM_POD_VARIANT_PLAIN : TDM_POD_VARIANT_PORTABLE);
        assert_int_equal(r.plan.item_cnt[TDM_KIND_DECODE], want);
        check_cover(&r);
        rig_close(&r);
    }
}

static void an_operator_s_no_leaves_the_halves_runnable(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r, "h200", 32, 8);
    r.config.is_off = 1;
    assert_int_equal(reason_of(&r), TDM_FALLBACK_operator);
    assert_int_equal(r.plan.route, TDM_ROUTE_SERIAL);
    check_cover(&r);
    rig_close(&r);
}

static void limits_of_context_and_chunk_are_reasons(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r, "h200", 32, 8);
    add_prefill(&r, TDM_CONTEXT_MAX, 512);
    add_decode(&r, TDM_CONTEXT_MAX);
    assert_int_equal(build(&r, TDM_ROUTE_FUSED)->reason, TDM_REASON_NONE);
    check_cover(&r);
    r.seq[1].kv_cnt++;
    assert_int_equal(build(&r, TDM_ROUTE_FUSED)->reason, TDM_FALLBACK_context_limit);
    assert_int_equal(r.plan.route, TDM_ROUTE_SERIAL);
    assert_int_equal(r.plan.variant, TDM_POD_VARIANT_PLAIN);
    check_cover(&r);
    r.seq[1].kv_cnt = TDM_POD_PLAIN_CONTEXT_MAX;
    assert_int_equal(build(&r, TDM_ROUTE_FUSED)->route, TDM_ROUTE_SERIAL);
    check_cover(&r);
    r.seq[1].kv_cnt++;
    assert_int_equal(build(&r, TDM_ROUTE_FUSED)->reason, TDM_FALLBACK_context_limit);
    assert_int_equal(r.plan.route, TDM_ROUTE_IDLE);
    r.seq[1].kv_cnt = 1;
    r.seq[0].cnt = TDM_POD_TOKEN_MAX + 1;
    assert_int_equal(build(&r, TDM_ROUTE_FUSED)->reason, TDM_FALLBACK_chunk_limit);
    rig_close(&r);
}

static void reasons_stand_in_the_agreed_order(void **state) {
    (void)state;
    static const uint32_t order[] = {
        TDM_FALLBACK_operator,         TDM_FALLBACK_arch,           TDM_FALLBACK_driver,
        TDM_FALLBACK_sm_partition,     TDM_FALLBACK_dtype,          TDM_FALLBACK_kv_dtype,
        TDM_FALLBACK_head_dim,         TDM_FALLBACK_group_size,     TDM_FALLBACK_page_size,
        TDM_FALLBACK_alignment,        TDM_FALLBACK_feature,        TDM_FALLBACK_context_limit,
        TDM_FALLBACK_chunk_limit,      TDM_FALLBACK_smem_limit,     TDM_FALLBACK_workspace,
        TDM_FALLBACK_graph_miss,       TDM_FALLBACK_bin_unverified, TDM_FALLBACK_not_profitable,
        TDM_FALLBACK_self_test_failed, TDM_FALLBACK_quarantined,    TDM_FALLBACK_kernel_error,
        TDM_FALLBACK_watchdog};
    for (uint32_t i = 1; i < TDM_COUNT_OF(order); i++) {
        assert_int_equal(order[i], order[i - 1] + 1);
    }
}

static void equal_batches_have_equal_keys_and_others_do_not(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r, "h100-pcie", 32, 4);
    add_prefill(&r, 9000, 700);
    for (uint32_t i = 0; i < 60; i++) add_decode(&r, 3000 + i);
    uint64_t key = build(&r, TDM_ROUTE_FUSED)->key;
    assert_int_equal(build(&r, TDM_ROUTE_FUSED)->key, key);
    r.seq[60].kv_cnt++;
    assert_int_not_equal(build(&r, TDM_ROUTE_FUSED)->key, key);
    rig_close(&r);
}

static void prefill_is_not_cut_where_decode_fills_the_gaps(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r, "h200", 32, 8);
    r.config.variant = TDM_POD_VARIANT_PORTABLE;
    add_prefill(&r, 16384, 1024);
    for (uint32_t i = 0; i < 250; i++) add_decode(&r, 16384);
    build(&r, TDM_ROUTE_FUSED);
    assert_int_equal(r.plan.item_cnt[TDM_KIND_PREFILL], 256);
    r.config.prefill_split_max = 1;
    r.decode_cnt = 1;
    build(&r, TDM_ROUTE_FUSED);
    assert_int_equal(r.plan.item_cnt[TDM_KIND_PREFILL], 256);
    rig_close(&r);
}

static void a_tensor_off_sixteen_bytes_is_a_reason(void **state) {
    (void)state;
    TDM_ALIGNED(16) uint8_t block[32];
    tdm_pod_layer_t layer = {.q = block, .out = block, .k_pool = block, .v_pool = block};
    assert_int_equal(tdm_pod_layer_gate(&layer), TDM_REASON_NONE);
    layer.v_pool = block + 2;
    assert_int_equal(tdm_pod_layer_gate(&layer), TDM_FALLBACK_alignment);
}

/* Two SMs; times in the picture are microseconds times ten.
     SM 0  P [0, 100)   D [20, 60)  D [60, 80)
     SM 3  D [0, 30)                P [90, 120)                       */
static void spans_tell_colocation_overlap_and_tail(void **state) {
    (void)state;
    const uint64_t t = 1000000;
    tdm_pod_span_t span[] = {
        {.start_ns = t + 0,
         .end_ns = t + 100000,
         .clock_cnt = 180000,
         .sm = 0,
         .kind = 0,
         .warp_cnt = 4},
        {.start_ns = t + 20000,
         .end_ns = t + 60000,
         .clock_cnt = 72000,
         .sm = 0,
         .kind = 1,
         .warp_cnt = 4},
        {.start_ns = t + 60000,
         .end_ns = t + 80000,
         .clock_cnt = 36000,
         .sm = 0,
         .kind = 1,
         .warp_cnt = 4},
        {.start_ns = t + 0,
         .end_ns = t + 30000,
         .clock_cnt = 54000,
         .sm = 3,
         .kind = 1,
         .warp_cnt = 4},
        {.start_ns = t + 90000,
         .end_ns = t + 120000,
         .clock_cnt = 54000,
         .sm = 3,
         .kind = 0,
         .warp_cnt = 4},
    };
    tdm_pod_counters_t c = {0};
    tdm_pod_spans_fold(span, 5, 2, 132, &c);
    assert_int_equal(c.span_cnt, 5);
    assert_int_equal(c.sm_used, 2);
    assert_int_equal(c.switch_cnt, 2); /* one on each */
    assert_int_equal(c.wall_ns, 120000);
    assert_int_equal(c.colocated_ns, 60000);
    assert_int_equal(c.overlap_ns, 80000);
    assert_int_equal(c.sm_ns[TDM_KIND_PREFILL], 65000);
    assert_int_equal(c.sm_ns[TDM_KIND_DECODE], 45000);
    assert_true(c.clock_ghz > 1.79f && c.clock_ghz < 1.81f);
    assert_true(c.tail > 0.08f && c.tail < 0.09f); /* 1 - (100 + 120) / 2 / 120 */
    tdm_pod_spans_fold(span, 0, 2, 132, &c);
    assert_int_equal(c.wall_ns, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_batches_are_covered_on_every_device),
        cmocka_unit_test(every_device_gets_a_tile_and_two_ctas),
        cmocka_unit_test(wide_tiles_on_hopper_narrower_where_shared_memory_ends),
        cmocka_unit_test(the_first_reason_in_order_is_given),
        cmocka_unit_test(plain_kernels_take_what_others_do_not),
        cmocka_unit_test(rows_are_cut_at_fixed_positions),
        cmocka_unit_test(an_operator_s_no_leaves_the_halves_runnable),
        cmocka_unit_test(limits_of_context_and_chunk_are_reasons),
        cmocka_unit_test(reasons_stand_in_the_agreed_order),
        cmocka_unit_test(equal_batches_have_equal_keys_and_others_do_not),
        cmocka_unit_test(a_tensor_off_sixteen_bytes_is_a_reason),
        cmocka_unit_test(spans_tell_colocation_overlap_and_tail),
        cmocka_unit_test(prefill_is_not_cut_where_decode_fills_the_gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
