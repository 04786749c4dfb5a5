/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a Hopper plan covers its batch once, keeps what its kernel asks
   (short decode items, shares that add up), says why it is not taken, and
   gives way to the portable one where its items do not fit.
   Method: random batches on every device; named cases. */
#include "kernels/plan/hopper.h"

#include "tests/unit/attention_plan/plan_rig.h"

static void hopper_rig(rig_t *r, const char *gpu, uint32_t nhead_q, uint32_t nhead_kv) {
    rig_open(r, gpu, nhead_q, nhead_kv);
    r->config.variant = TDM_POD_VARIANT_HOPPER;
}

static void check_hopper(const rig_t *r) {
    const tdm_pod_plan_t *p = &r->plan;
    check_cover(r);
    assert_true(p->tile_row == TDM_HOPPER_ROW || p->tile_row == TDM_HOPPER_ROW_SHORT);
    if (r->decode_cnt) assert_int_equal(p->tile_row, TDM_HOPPER_ROW);
    assert_int_equal(p->cta_sm, 1);
    assert_int_equal(p->grid, 2 * r->config.gpu.sm_cnt);
    assert_int_equal(p->share[0] + p->share[1], r->config.gpu.sm_cnt);
    assert_int_equal(head_of(r)->share[0], p->share[0]);
    for (uint32_t kind = 0; kind < TDM_KIND_CNT; kind++) {
        if (p->item_cnt[kind]) assert_true(p->share[kind] > 0);
    }
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->item_cnt[TDM_KIND_DECODE]; i++) {
        const tdm_pod_item_t *it = &items(r, TDM_KIND_DECODE)[i];
        uint32_t page = (it->kv_end - it->kv_begin) / r->config.shape.page_tok;
        assert_true(it->kv_end - it->kv_begin <= TDM_HOPPER_ITEM_TOK);
        assert_true(page <= TDM_HOPPER_ITEM_PAGE);
        assert_true(it->row_cnt <= head_of(r)->decode_row);
        most = TDM_MAX(most, it->row_cnt);
    }
    if (most) assert_int_equal(head_of(r)->decode_row, most);
    assert_true(most <= TDM_HOPPER_DECODE_ROW);
}

static void random_batches_keep_what_the_kernel_asks(void **state) {
    (void)state;
    static const uint32_t heads[][2] = {{32, 8}, {32, 4}, {32, 32}, {28, 4},
                                        {8, 1},  {9, 3},  {32, 2},  {24, 2}};
    static const char *const gpu[] = {"h200", "h100-pcie", "h20", "h100-1g", "h100-3g"};
    tdm_rng_t rng = {.state = 90};
    for (uint32_t i = 0; i < 400; i++) {
        rig_t r;
        uint32_t h = tdm_rng_below(&rng, TDM_COUNT_OF(heads));
        hopper_rig(&r, gpu[i % TDM_COUNT_OF(gpu)], heads[h][0], heads[h][1]);
        r.config.part_float_max = UINT64_C(1) << 32; /* not what is asked here */
        r.config.shape.head_dim = tdm_rng_below(&rng, 2) ? 64 : 128;
        r.config.shape.page_tok = 16u << tdm_rng_below(&rng, 4);
        uint32_t prefill = tdm_rng_below(&rng, 4);
        uint32_t decode = tdm_rng_below(&rng, 100);
        if (prefill + decode == 0) decode = 1;
        for (uint32_t s = 0; s < prefill; s++) {
            uint32_t cnt = 1 + tdm_rng_below(&rng, 1500);
            add_prefill(&r, tdm_rng_below(&rng, 8) ? cnt + draw_kv(&rng) : cnt / 2, cnt);
        }
        for (uint32_t s = 0; s < decode; s++) {
            add_decode(&r, tdm_rng_below(&rng, 10) ? draw_kv(&rng) : 0);
            if (i % 4 == 3) draft(&r, 1 + tdm_rng_below(&rng, 8));
        }
        build(&r, TDM_ROUTE_FUSED);
        assert_int_equal(r.plan.variant, TDM_POD_VARIANT_HOPPER);
        check_hopper(&r);
        uint64_t key = r.plan.key;
        assert_int_equal(build(&r, TDM_ROUTE_FUSED)->key, key);
        rig_close(&r);
    }
}

/* Drafts that are verified as decodes of several tokens: Hopper's own, and of
   the others the plain kernels alone. */
static void drafts_need_a_kernel_that_knows_them(void **state) {
    (void)state;
    static const struct {
        const char *gpu;
        uint32_t variant, reason;
    } want[] = {{"h200", TDM_POD_VARIANT_HOPPER, TDM_REASON_NONE},
                {"a100", TDM_POD_VARIANT_PLAIN, TDM_FALLBACK_feature}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(want); i++) {
        rig_t r;
        rig_open(&r, want[i].gpu, 32, 8);
        add_prefill(&r, 4096, 512);
        for (uint32_t s = 0; s < 9; s++) {
            add_decode(&r, 500 * s);
            draft(&r, 1 + s % 8);
        }
        build(&r, TDM_ROUTE_FUSED);
        assert_int_equal(r.plan.variant, want[i].variant);
        assert_int_equal(r.plan.reason, want[i].reason);
        check_cover(&r);
        rig_close(&r);
    }
}

/* Prefill alone, whose short tiles all begin at once. */
static void few_tiles_alone_are_short(void **state) {
    (void)state;
    rig_t r;
    hopper_rig(&r, "h200", 32, 8);
    add_prefill(&r, 4096, 512);
    assert_int_equal(build(&r, TDM_ROUTE_FUSED)->tile_row, TDM_HOPPER_ROW_SHORT);
    check_hopper(&r);
    add_decode(&r, 4096);
    assert_int_equal(build(&r, TDM_ROUTE_FUSED)->tile_row, TDM_HOPPER_ROW);
    r.prefill_cnt = r.decode_cnt = 0;
    add_prefill(&r, 4096, 640);
    assert_int_equal(build(&r, TDM_ROUTE_FUSED)->tile_row, TDM_HOPPER_ROW);
    rig_close(&r);
}

/* A group of 16 reads keys twice: portable where decode is much of the work,
   unless the config insists. */
static void wide_groups_decode_on_the_portable_kernels(void **state) {
    (void)state;
    static const struct {
        uint32_t prefill, decode, variant;
    } want[] = {{0, 64, TDM_POD_VARIANT_PORTABLE},
                {1024, 200, TDM_POD_VARIANT_PORTABLE},
                {1024, 64, TDM_POD_VARIANT_HOPPER},
                {1024, 0, TDM_POD_VARIANT_HOPPER}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(want); i++) {
        rig_t r;
        rig_open(&r, "h200", 32, 2);
        if (want[i].prefill) add_prefill(&r, 8192, want[i].prefill);
        for (uint32_t s = 0; s < want[i].decode; s++) add_decode(&r, 8192);
        assert_int_equal(build(&r, TDM_ROUTE_FUSED)->variant, want[i].variant);
        assert_int_equal(r.plan.reason, TDM_REASON_NONE);
        check_cover(&r);
        r.config.variant = TDM_POD_VARIANT_HOPPER;
        assert_int_equal(build(&r, TDM_ROUTE_FUSED)->variant, TDM_POD_VARIANT_HOPPER);
        rig_close(&r);
    }
}

/* Routes that measured best on an H200: with little to decode a small gain is
   no gain. */
static void little_decode_is_fused_where_it_gains(void **state) {
    (void)state;
    static const struct {
        uint32_t nhead_kv, ctx, chunk, batch, route;
    } want[] = {{4, 32768, 1024, 3, TDM_ROUTE_SERIAL},
                {4, 32768, 512, 3, TDM_ROUTE_SERIAL},
                {4, 16384, 1024, 7, TDM_ROUTE_FUSED},
                {8, 16384, 1024, 32, TDM_ROUTE_FUSED},
                {8, 512, 64, 1, TDM_ROUTE_FUSED}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(want); i++) {
        rig_t r;
        hopper_rig(&r, "h200", 32, want[i].nhead_kv);
        r.config.part_float_max = UINT64_C(1) << 32;
        add_prefill(&r, want[i].ctx, want[i].chunk);
        for (uint32_t s = 0; s < want[i].batch; s++) add_decode(&r, want[i].ctx);
        assert_int_equal(build(&r, TDM_POD_ROUTE_AUTO)->route, want[i].route);
        int is_fused = want[i].route == TDM_ROUTE_FUSED;
        assert_int_equal(r.plan.reason, is_fused ? 0 : TDM_FALLBACK_not_profitable);
        rig_close(&r);
    }
}

static uint32_t bar_of(const rig_t *r) {
    return tdm_pod_variant_gate(&r->config, TDM_POD_VARIANT_HOPPER);
}

static void what_it_does_not_take_has_a_name(void **state) {
    (void)state;
    rig_t r;
    hopper_rig(&r, "h200", 32, 8);
    assert_int_equal(bar_of(&r), TDM_REASON_NONE);
    r.config.gpu.smem_cta = 227 * 1024 - 1;
    assert_int_equal(bar_of(&r), TDM_FALLBACK_smem_limit);
    r.config.shape.nhead_kv = 1; /* a group of 32 */
    assert_int_equal(bar_of(&r), TDM_FALLBACK_group_size);
    r.config.shape.head_dim = 96;
    assert_int_equal(bar_of(&r), TDM_FALLBACK_head_dim);
    r.config.shape.kv_dtype = TDM_POD_E4M3;
    assert_int_equal(bar_of(&r), TDM_FALLBACK_kv_dtype);
    r.config.gpu.arch = 100;
    assert_int_equal(bar_of(&r), TDM_FALLBACK_arch);
    r.config.variant = TDM_POD_VARIANT_PORTABLE;
    assert_int_equal(bar_of(&r), TDM_FALLBACK_operator);
    rig_close(&r);
}

static void other_devices_get_the_portable_plan(void **state) {
    (void)state;
    const char *name;
    for (uint32_t i = 0; tdm_gpu_known_at(i, &name); i++) {
        rig_t r;
        hopper_rig(&r, name, 32, 8);
        add_prefill(&r, 4096, 512);
        add_decode(&r, 4096);
        build(&r, TDM_ROUTE_FUSED);
        int is_hopper = r.config.gpu.arch == 90;
        assert_int_equal(r.plan.variant,
                         is_hopper ? TDM_POD_VARIANT_HOPPER : TDM_POD_VARIANT_PORTABLE);
        check_cover(&r);
        r.config.variant = 0; /* any: the best that there is */
        build(&r, TDM_ROUTE_FUSED);
        assert_int_equal(r.plan.variant,
                         is_hopper ? TDM_POD_VARIANT_HOPPER : TDM_POD_VARIANT_PORTABLE);
        assert_int_equal(r.plan.reason, TDM_REASON_NONE);
        rig_close(&r);
    }
}

/* Portable items may be whole where partials have no room; Hopper's decode
   items may not. */
static void without_room_for_partials_the_portable_plan_comes(void **state) {
    (void)state;
    rig_t r;
    hopper_rig(&r, "h200", 32, 8);
    r.config.part_float_max = 1;
    add_prefill(&r, 16384, 512);
    for (uint32_t i = 0; i < 8; i++) add_decode(&r, 16384);
    build(&r, TDM_ROUTE_FUSED);
    assert_int_equal(r.plan.variant, TDM_POD_VARIANT_PORTABLE);
    assert_int_equal(r.plan.merge_cnt, 0);
    check_cover(&r);
    rig_close(&r);
}

/* Shares follow the batch: much more decode, no fewer SMs for it (beside
   pieces a share may do with less than beside whole tiles); one kind alone
   has all.  The time grows with the work. */
static void shares_follow_the_batch(void **state) {
    (void)state;
    uint32_t first = 0;
    float us = 0.0f;
    for (uint32_t n = 8; n <= 128; n *= 2) {
        tdm_hopper_cut_t cut;
        tdm_hopper_sum_t s = {.sm_cnt = 132,
                              .nhead_kv = 8,
                              .head_dim = 128,
                              .tile_cnt = 22,
                              .block_max = 256,
                              .block_cnt = 22 * 250,
                              .decode_tok = n * UINT64_C(16384)};
        s.decode_bytes = s.decode_tok * 8 * 512;
        tdm_hopper_choose(&s, &cut);
        if (n == 8) first = cut.share[TDM_KIND_DECODE];
        if (n == 128) assert_true(cut.share[TDM_KIND_DECODE] >= first);
        assert_true(cut.us > us);
        assert_true(cut.us >= (float)s.decode_bytes / 4.8e6f);
        us = cut.us;
        s.tile_cnt = s.block_max = 0;
        s.block_cnt = 0;
        tdm_hopper_choose(&s, &cut);
        assert_int_equal(cut.share[TDM_KIND_DECODE], 132);
    }
}

/* Two streams hand no SM over, and the plan is made for that: neither half is
   starved, so that both take about as long as in turn at most; fused, whose SMs
   change sides, is foreseen to be no slower. */
static void two_streams_have_a_split_of_their_own(void **state) {
    (void)state;
    static const uint32_t chunk[] = {16, 64, 256, 1024, 2048};
    for (uint32_t i = 0; i < TDM_COUNT_OF(chunk); i++) {
        for (uint32_t n = 1; n <= 128; n *= 2) {
            rig_t r;
            hopper_rig(&r, "h200", 32, 8);
            r.config.part_float_max = UINT64_C(1) << 32;
            add_prefill(&r, 8192 + chunk[i], chunk[i]);
            for (uint32_t s = 0; s < n; s++) add_decode(&r, 8192);
            build(&r, TDM_ROUTE_FUSED);
            float fused_us = r.plan.fused_us;
            float serial_us = r.plan.serial_us;
            build(&r, TDM_ROUTE_STREAMS);
            check_hopper(&r);
            uint32_t tile = (chunk[i] * 4 + TDM_HOPPER_ROW - 1) / TDM_HOPPER_ROW;
            tdm_hopper_sum_t half = {.sm_cnt = 132,
                                     .nhead_kv = 8,
                                     .head_dim = 128,
                                     .tile_cnt = tile,
                                     .block_max = (8192 + chunk[i] + 63) / 64,
                                     .decode_tok = n * UINT64_C(8192),
                                     .decode_bytes = n * UINT64_C(8192) * 8 * 512,
                                     .is_apart = 1};
            half.block_cnt = (uint64_t)tile * half.block_max;
            tdm_hopper_cut_t cut;
            tdm_hopper_choose(&half, &cut);
            assert_true(cut.us <= 1.10f * serial_us);
            assert_true(cut.us >= 0.97f * fused_us);
            float decode_us = (float)half.decode_bytes / 4.44e6f;
            float share = (float)r.plan.share[TDM_KIND_DECODE] / 132.0f;
            if (decode_us > 0.8f * serial_us) assert_true(share > 0.5f);
            rig_close(&r);
        }
    }
}

/* Whole tiles: the longest sequence first, in it head by head, and of a head
   the longest tile first. */
static void whole_tiles_stand_by_head(void **state) {
    (void)state;
    rig_t r;
    hopper_rig(&r, "h200", 32, 8);
    r.config.part_float_max = UINT64_C(1) << 32;
    r.config.prefill_split = 1;
    add_prefill(&r, 3000, 500);
    add_prefill(&r, 9000, 2048);
    build(&r, TDM_ROUTE_FUSED);
    uint32_t cnt = r.plan.item_cnt[TDM_KIND_PREFILL];
    assert_int_equal(cnt, 8 * (11 + 43));
    for (uint32_t i = 0; i < cnt; i++) {
        const tdm_pod_item_t *it = &items(&r, TDM_KIND_PREFILL)[i];
        uint32_t own = i < 8 * 43 ? i : i - 8 * 43; /* number in its sequence */
        uint32_t tile = i < 8 * 43 ? 43 : 11;
        assert_int_equal(it->seq, i < 8 * 43);
        assert_int_equal(it->head_kv, own / tile);
        assert_int_equal(it->row, (tile - 1 - own % tile) * TDM_HOPPER_ROW);
    }
    rig_close(&r);
}

/* A config's shares and pieces are obeyed: what a sweep measures. */
static void forced_cuts_are_obeyed(void **state) {
    (void)state;
    rig_t r;
    hopper_rig(&r, "h200", 32, 8);
    r.config.part_float_max = UINT64_C(1) << 32;
    add_prefill(&r, 16384, 1024);
    for (uint32_t i = 0; i < 16; i++) add_decode(&r, 16384);
    uint64_t key = 0;
    for (uint32_t sm = 12; sm < 80; sm += 11) {
        for (uint32_t n = 1; n <= 4; n++) {
            r.config.share[TDM_KIND_DECODE] = sm;
            r.config.share[TDM_KIND_PREFILL] = 132 - sm;
            r.config.prefill_split = n;
            build(&r, TDM_ROUTE_FUSED);
            check_hopper(&r);
            assert_int_equal(r.plan.share[TDM_KIND_DECODE], sm);
            uint32_t most = 1;
            for (uint32_t i = 0; i < r.plan.item_cnt[TDM_KIND_PREFILL]; i++) {
                most = TDM_MAX(most, items(&r, TDM_KIND_PREFILL)[i].split + 1);
            }
            assert_int_equal(most, n);
            assert_int_not_equal(r.plan.key, key);
            key = r.plan.key;
        }
    }
    rig_close(&r);
}

/* Of the halves apart prefill is cut as if it were alone, and a batch is not
   fused where one launch is predicted to be slower. */
static void a_route_has_its_cut(void **state) {
    (void)state;
    rig_t r;
    hopper_rig(&r, "h200", 32, 8);
    r.config.part_float_max = UINT64_C(1) << 32;
    add_prefill(&r, 16384, 1024);
    uint32_t alone = build(&r, TDM_ROUTE_SERIAL)->item_cnt[TDM_KIND_PREFILL];
    for (uint32_t i = 0; i < 32; i++) add_decode(&r, 16384);
    assert_int_equal(build(&r, TDM_ROUTE_SERIAL)->item_cnt[TDM_KIND_PREFILL], alone);
    assert_int_not_equal(build(&r, TDM_ROUTE_FUSED)->item_cnt[TDM_KIND_PREFILL], alone);
    build(&r, TDM_POD_ROUTE_AUTO);
    assert_int_equal(r.plan.route, TDM_ROUTE_FUSED);
    assert_true(r.plan.fused_us > 0.0f && r.plan.fused_us < r.plan.serial_us);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_batches_keep_what_the_kernel_asks),
        cmocka_unit_test(little_decode_is_fused_where_it_gains),
        cmocka_unit_test(few_tiles_alone_are_short),
        cmocka_unit_test(wide_groups_decode_on_the_portable_kernels),
        cmocka_unit_test(drafts_need_a_kernel_that_knows_them),
        cmocka_unit_test(what_it_does_not_take_has_a_name),
        cmocka_unit_test(other_devices_get_the_portable_plan),
        cmocka_unit_test(without_room_for_partials_the_portable_plan_comes),
        cmocka_unit_test(shares_follow_the_batch),
        cmocka_unit_test(two_streams_have_a_split_of_their_own),
        cmocka_unit_test(whole_tiles_stand_by_head),
        cmocka_unit_test(forced_cuts_are_obeyed),
        cmocka_unit_test(a_route_has_its_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
