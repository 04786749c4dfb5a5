/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the items of a plan cover every (row, KV head, range) exactly
   once, longest first, within their bounds; and what does not fit is
   built whole under a named reason.
   Method: random iterations and the extremes; a brute-force cover. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "appliance/base/rng.h"
#include "kernels/worklist/worklist.h"

typedef struct fixture {
    tdm_worklist_config_t config;
    tdm_worklist_t *list;
    void *mem;
} fixture_t;

static tdm_worklist_config_t config_of(uint32_t nhead_q, uint32_t nhead_kv, uint32_t sm_cnt) {
    return (tdm_worklist_config_t){
        .nhead_q = nhead_q,
        .kv = {.page_cnt = 1, .nhead_kv = nhead_kv, .head_dim = 64, .dtype = TDM_KV_F32},
        .sm_cnt = sm_cnt,
        .seq_max = TDM_SEQ_MAX,
        .token_max = TDM_PLAN_TOKEN_MAX,
        .context_max = TDM_CONTEXT_MAX};
}

static fixture_t open_config(const tdm_worklist_config_t *config) {
    fixture_t f = {.config = *config};
    assert_int_equal(tdm_worklist_config_check(&f.config, NULL), TDM_OK);
    uint64_t sz = tdm_worklist_footprint(&f.config);
    f.mem = aligned_alloc(TDM_CACHE_LINE, sz);
    assert_non_null(f.mem);
    f.list = tdm_worklist_init(f.mem, &f.config);
    return f;
}

static fixture_t open_shape(uint32_t nhead_q, uint32_t nhead_kv, uint32_t sm_cnt) {
    tdm_worklist_config_t c = config_of(nhead_q, nhead_kv, sm_cnt);
    return open_config(&c);
}

/* Keys that token tok of a sequence sees. */
static uint32_t keys_of(const tdm_attn_seq_t *s, uint32_t tok) {
    int64_t n = (int64_t)s->kv_cnt - s->cnt + tok + 1;
    return n > 0 ? (uint32_t)n : 0;
}

static uint32_t ranges_of(uint32_t keys) {
    return (keys + TDM_ATTN_RANGE_TOKENS - 1) / TDM_ATTN_RANGE_TOKENS;
}

/* Every (token, head, range) of a kind is in exactly one item; counts and
   order are as promised. */
static void check_cover(const fixture_t *f, const tdm_attn_plan_t *p, uint32_t kind) {
    uint32_t nhead = f->config.kv.nhead_kv;
    uint32_t first[TDM_ATTN_SEQ_MAX];
    uint32_t tok_cnt = 0;
    for (uint32_t s = 0; s < p->seq_cnt; s++) {
        first[s] = tok_cnt;
        tok_cnt += p->seq[s].cnt;
    }
    uint64_t sz = (uint64_t)tok_cnt * nhead * (TDM_ATTN_RANGE_MAX + 1);
    uint8_t *seen = calloc(sz + 1, 1);
    uint32_t *arrival = calloc(p->merge_cnt + 1, sizeof *arrival);
    assert_non_null(seen);
    assert_non_null(arrival);
    for (uint32_t i = 0; i < p->item_cnt[kind]; i++) {
        const tdm_attn_item_t *it = &p->item[kind][i];
        if (i) assert_true(it->cost <= p->item[kind][i - 1].cost);
        assert_true(it->head_kv < nhead && it->tok_cnt >= 1);
        assert_int_equal(it->seq < p->prefill_seq_cnt, kind == TDM_KIND_PREFILL);
        const tdm_attn_seq_t *s = &p->seq[it->seq];
        assert_true(it->tok + it->tok_cnt <= s->cnt && it->tok_cnt <= p->tile_tok);
        uint32_t keys = keys_of(s, it->tok + it->tok_cnt - 1);
        uint32_t keys_first = keys_of(s, it->tok);
        assert_true(it->range + it->range_cnt <= ranges_of(keys));
        /* one KV page holds the ends of all rows, or all rows are empty */
        if (keys) {
            assert_true(keys_first > 0);
            assert_int_equal((keys - 1) / TDM_KV_PAGE_TOKENS,
                             (keys_first - 1) / TDM_KV_PAGE_TOKENS);
        }
        if (it->merge == TDM_ATTN_NO_MERGE) {
            assert_int_equal(it->range, 0);
            assert_int_equal(it->range_cnt, ranges_of(keys));
        } else {
            assert_true(it->merge < p->merge_cnt);
            arrival[it->merge]++;
            assert_int_equal(p->merge[it->merge].range_cnt, ranges_of(keys));
        }
        for (uint32_t t = it->tok; t < it->tok + it->tok_cnt; t++) {
            uint64_t at =
                ((uint64_t)(first[it->seq] + t) * nhead + it->head_kv) * (TDM_ATTN_RANGE_MAX + 1);
            if (it->range_cnt == 0) seen[at]++;
            for (uint32_t r = 0; r < it->range_cnt; r++) seen[at + it->range + r]++;
        }
    }
    uint32_t begin = kind == TDM_KIND_PREFILL ? 0 : p->prefill_seq_cnt;
    uint32_t end = kind == TDM_KIND_PREFILL ? p->prefill_seq_cnt : p->seq_cnt;
    for (uint32_t s = begin; s < end; s++) {
        for (uint32_t t = 0; t < p->seq[s].cnt; t++) {
            uint32_t n = TDM_MAX(ranges_of(keys_of(&p->seq[s], t)), 1);
            for (uint32_t h = 0; h < nhead; h++) {
                uint64_t at = ((uint64_t)(first[s] + t) * nhead + h) * (TDM_ATTN_RANGE_MAX + 1);
                for (uint32_t r = 0; r < n; r++) assert_int_equal(seen[at + r], 1);
            }
        }
    }
    for (uint32_t m = 0; m < p->merge_cnt; m++) {
        if (arrival[m]) assert_int_equal(arrival[m], p->merge[m].item_cnt);
        if (arrival[m]) assert_true(arrival[m] >= 2);
    }
    free(arrival);
    free(seen);
}

/* Partials of different merges do not overlap and fit. */
static void check_parts(const fixture_t *f, const tdm_attn_plan_t *p) {
    uint64_t off = 0;
    uint64_t part_cnt = 0;
    for (uint32_t m = 0; m < p->merge_cnt; m++) {
        assert_true(p->merge[m].part_off >= off);
        off = p->merge[m].part_off +
              p->merge[m].range_cnt * p->group * (uint64_t)f->config.kv.head_dim;
        part_cnt += p->merge[m].range_cnt;
    }
    assert_true(off <= p->part_float_cnt);
    assert_true(p->part_float_cnt <= f->config.part_float_max);
    assert_int_equal(part_cnt, p->part_cnt);
}

static void check_figures(const fixture_t *f, const tdm_attn_plan_t *p) {
    uint64_t flops = 0;
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < p->seq_cnt; s++) {
        for (uint32_t t = 0; t < p->seq[s].cnt; t++) {
            flops += 4ull * keys_of(&p->seq[s], t) * f->config.nhead_q * f->config.kv.head_dim;
        }
        bytes += 2ull * p->seq[s].kv_cnt * f->config.kv.nhead_kv * f->config.kv.head_dim * 4;
    }
    assert_int_equal(p->flops, flops);
    assert_int_equal(p->kv_read_bytes, bytes);
}

static void random_iterations_are_covered_exactly_once(void **state) {
    (void)state;
    static const uint32_t head[][2] = {{1, 1}, {9, 3}, {7, 7}, {28, 4}, {71, 1}, {32, 8}, {8, 1}};
    for (uint64_t seed = 0; seed < 140; seed++) {
        tdm_rng_t rng = {seed};
        uint32_t shape = (uint32_t)(seed % TDM_COUNT_OF(head));
        fixture_t f = open_shape(head[shape][0], head[shape][1], 1 + tdm_rng_below(&rng, 12));
        tdm_attn_seq_t *seq = tdm_worklist_seq(f.list);
        uint32_t prefill = tdm_rng_below(&rng, 4);
        uint32_t decode = tdm_rng_below(&rng, 6);
        uint32_t row = 0;
        for (uint32_t s = 0; s < prefill + decode; s++) {
            uint32_t cnt = s < prefill ? 1 + tdm_rng_below(&rng, 150) : 1;
            uint32_t kv = tdm_rng_below(&rng, 1u << (1 + tdm_rng_below(&rng, 15)));
            seq[s] = (tdm_attn_seq_t){.slot = s, .kv_cnt = kv, .cnt = cnt, .row = row};
            row += cnt;
        }
        const tdm_attn_plan_t *p = tdm_worklist_build(f.list, prefill, decode, TDM_ROUTE_FUSED);
        assert_int_equal(p->row_cnt, row);
        assert_int_equal(p->reason, TDM_REASON_NONE);
        check_cover(&f, p, TDM_KIND_PREFILL);
        check_cover(&f, p, TDM_KIND_DECODE);
        check_parts(&f, p);
        check_figures(&f, p);
        free(f.mem);
    }
}

static void no_item_is_longer_than_its_share(void **state) {
    (void)state;
    fixture_t f = open_shape(9, 3, 4);
    tdm_attn_seq_t *seq = tdm_worklist_seq(f.list);
    seq[0] = (tdm_attn_seq_t){.kv_cnt = 40000, .cnt = 1};
    for (uint32_t s = 1; s < 20; s++) {
        seq[s] = (tdm_attn_seq_t){.slot = s, .kv_cnt = 300, .cnt = 1, .row = s};
    }
    const tdm_attn_plan_t *p = tdm_worklist_build(f.list, 0, 20, TDM_ROUTE_FUSED);
    uint32_t total = 3 * (79 + 19); /* ranges of all heads */
    for (uint32_t i = 0; i < p->item_cnt[TDM_KIND_DECODE]; i++) {
        assert_true(p->item[TDM_KIND_DECODE][i].range_cnt <= (total + 15) / 16);
    }
    assert_true(p->split_cnt >= 9 && p->split_cnt <= 16);
    assert_int_equal(p->merge_cnt, 3);
    free(f.mem);
}

static void one_sm_splits_nothing(void **state) {
    (void)state;
    fixture_t f = open_shape(9, 3, 1);
    tdm_attn_seq_t *seq = tdm_worklist_seq(f.list);
    seq[0] = (tdm_attn_seq_t){.kv_cnt = 100000, .cnt = 1};
    const tdm_attn_plan_t *p = tdm_worklist_build(f.list, 0, 1, TDM_ROUTE_FUSED);
    assert_int_equal(p->item_cnt[TDM_KIND_DECODE], 3);
    assert_int_equal(p->merge_cnt, 0);
    assert_int_equal(p->part_float_cnt, 0);
    free(f.mem);
}

static void the_largest_iteration_fits_whole_and_split(void **state) {
    (void)state;
    for (uint32_t group = 1; group <= 8; group += 7) {
        fixture_t f = open_shape(8 * group, 8, 64);
        tdm_attn_seq_t *seq = tdm_worklist_seq(f.list);
        uint32_t cnt = TDM_PLAN_TOKEN_MAX / TDM_PLAN_SLICE_MAX;
        uint32_t row = 0;
        for (uint32_t s = 0; s < TDM_PLAN_SLICE_MAX + TDM_SEQ_MAX; s++) {
            int is_prefill = s < TDM_PLAN_SLICE_MAX;
            /* slices off the tile grid, some before position 0 */
            uint32_t kv = is_prefill ? (s % 4 ? 70000 + 2 * s + 1 : cnt - 3) : TDM_CONTEXT_MAX;
            seq[s] =
                (tdm_attn_seq_t){.slot = s, .kv_cnt = kv, .cnt = is_prefill ? cnt : 1, .row = row};
            row += seq[s].cnt;
        }
        const tdm_attn_plan_t *p =
            tdm_worklist_build(f.list, TDM_PLAN_SLICE_MAX, TDM_SEQ_MAX, TDM_ROUTE_FUSED);
        for (uint32_t kind = 0; kind < TDM_KIND_CNT; kind++) {
            assert_true(p->item_cnt[kind] <= f.config.item_max[kind]);
        }
        assert_true(p->merge_cnt <= f.config.merge_max);
        assert_int_equal(p->reason, TDM_REASON_NONE);
        assert_int_equal(p->route, TDM_ROUTE_FUSED);
        free(f.mem);
    }
}

/* One slice and one long decode on 8 SMs: both kinds would be split. */
static const tdm_attn_plan_t *hybrid(fixture_t *f, uint32_t route) {
    tdm_attn_seq_t *seq = tdm_worklist_seq(f->list);
    seq[0] = (tdm_attn_seq_t){.slot = 0, .kv_cnt = 20000, .cnt = 16, .row = 0};
    seq[1] = (tdm_attn_seq_t){.slot = 1, .kv_cnt = 20000, .cnt = 1, .row = 16};
    return tdm_worklist_build(f->list, 1, 1, route);
}

static void too_many_items_run_whole_and_serial_for_lack_of_workspace(void **state) {
    (void)state;
    tdm_worklist_config_t c = config_of(9, 3, 8);
    c.item_max[TDM_KIND_DECODE] = tdm_worklist_item_floor(&c, TDM_KIND_DECODE);
    c.item_max[TDM_KIND_PREFILL] = tdm_worklist_item_floor(&c, TDM_KIND_PREFILL);
    c.merge_max = 4; /* room for the prefill's three merges, not for six */
    fixture_t f = open_config(&c);
    const tdm_attn_plan_t *p = hybrid(&f, TDM_ROUTE_FUSED);
    assert_int_equal(p->route, TDM_ROUTE_SERIAL);
    assert_int_equal(p->reason, TDM_FALLBACK_workspace);
    assert_int_equal(p->merge_cnt, 3);
    assert_int_equal(p->item_cnt[TDM_KIND_DECODE], 3);
    check_cover(&f, p, TDM_KIND_PREFILL);
    check_cover(&f, p, TDM_KIND_DECODE);
    free(f.mem);
}

static void too_little_workspace_runs_whole_and_serial_as_workspace(void **state) {
    (void)state;
    tdm_worklist_config_t c = config_of(9, 3, 8);
    c.part_float_max = 1000;
    fixture_t f = open_config(&c);
    const tdm_attn_plan_t *p = hybrid(&f, TDM_ROUTE_FUSED);
    assert_int_equal(p->route, TDM_ROUTE_SERIAL);
    assert_int_equal(p->reason, TDM_FALLBACK_workspace);
    assert_int_equal(p->part_float_cnt, 0);
    check_cover(&f, p, TDM_KIND_PREFILL);
    check_cover(&f, p, TDM_KIND_DECODE);
    /* Not a hybrid iteration: whole all the same, and no reason. */
    p = tdm_worklist_build(f.list, 1, 0, TDM_ROUTE_FUSED);
    assert_int_equal(p->route, TDM_ROUTE_PREFILL_ONLY);
    assert_int_equal(p->reason, TDM_REASON_NONE);
    free(f.mem);
}

static void routes_follow_what_is_present(void **state) {
    (void)state;
    fixture_t f = open_shape(9, 3, 2);
    static const uint32_t hybrid_route[TDM_ROUTE_CNT] = {
        [TDM_ROUTE_IDLE] = TDM_ROUTE_SERIAL,        [TDM_ROUTE_PREFILL_ONLY] = TDM_ROUTE_SERIAL,
        [TDM_ROUTE_DECODE_ONLY] = TDM_ROUTE_SERIAL, [TDM_ROUTE_FUSED] = TDM_ROUTE_FUSED,
        [TDM_ROUTE_STREAMS] = TDM_ROUTE_STREAMS,    [TDM_ROUTE_SERIAL] = TDM_ROUTE_SERIAL};
    for (uint32_t route = 0; route < TDM_ROUTE_CNT; route++) {
        assert_int_equal(hybrid(&f, route)->route, hybrid_route[route]);
        assert_int_equal(tdm_worklist_build(f.list, 1, 0, route)->route, TDM_ROUTE_PREFILL_ONLY);
        tdm_worklist_seq(f.list)[0].cnt = 1;
        assert_int_equal(tdm_worklist_build(f.list, 0, 1, route)->route, TDM_ROUTE_DECODE_ONLY);
        const tdm_attn_plan_t *p = tdm_worklist_build(f.list, 0, 0, route);
        assert_int_equal(p->route, TDM_ROUTE_IDLE);
        assert_int_equal(p->item_cnt[0] + p->item_cnt[1], 0);
    }
    free(f.mem);
}

static void shapes_out_of_range_are_refused(void **state) {
    (void)state;
    tdm_error_t err = {0};
    tdm_worklist_config_t c = config_of(9, 2, 1);
    assert_int_equal(tdm_worklist_config_check(&c, &err), TDM_ERR_INVAL);
    c = config_of(0, 1, 1);
    assert_int_equal(tdm_worklist_config_check(&c, &err), TDM_ERR_INVAL);
    c = config_of(TDM_ATTN_GROUP_MAX + 1, 1, 1);
    assert_int_equal(tdm_worklist_config_check(&c, &err), TDM_ERR_UNSUPPORTED);
    c = config_of(9, 3, 1);
    c.kv.head_dim = 65;
    assert_int_equal(tdm_worklist_config_check(&c, &err), TDM_ERR_UNSUPPORTED);
    c = config_of(9, 3, 0);
    assert_int_equal(tdm_worklist_config_check(&c, &err), TDM_ERR_LIMIT);
    c = config_of(9, 3, 1);
    c.item_max[TDM_KIND_DECODE] = 5;
    assert_int_equal(tdm_worklist_config_check(&c, &err), TDM_ERR_LIMIT);
    c = config_of(9, 3, 1);
    c.kv.dtype = TDM_KV_DTYPE_CNT;
    assert_int_equal(tdm_worklist_config_check(&c, &err), TDM_ERR_INVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_iterations_are_covered_exactly_once),
        cmocka_unit_test(no_item_is_longer_than_its_share),
        cmocka_unit_test(one_sm_splits_nothing),
        cmocka_unit_test(the_largest_iteration_fits_whole_and_split),
        cmocka_unit_test(too_many_items_run_whole_and_serial_for_lack_of_workspace),
        cmocka_unit_test(too_little_workspace_runs_whole_and_serial_as_workspace),
        cmocka_unit_test(routes_follow_what_is_present),
        cmocka_unit_test(shapes_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
