/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a row's bits depend on its own query, KV and position alone; and
   the counters say what ran.
   Method: one run per row as a decode, alone, on one SM, is the truth;
   every batch, cut, route, split and number of SMs must repeat it.  Every
   instruction set this machine has. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "appliance/base/rng.h"
#include "kernels/cpu/isa.h"
#include "tests/numerics/attention/batch.h"

static const batch_shape_t shape = {
    .nhead_q = 9, .nhead_kv = 3, .head_dim = 64, .dtype = TDM_KV_F32, .q_scale = 1};

static const uint32_t sm_cnt_list[] = {1, 2, 3, 5};
static tdm_sm_pool_t *pool[6];
static batch_t b;

/* Of the cuts, where there are thousands of batches: one KV head. */
static const batch_shape_t one_head = {
    .nhead_q = 3, .nhead_kv = 1, .head_dim = 64, .dtype = TDM_KV_F32, .q_scale = 1};

static uint64_t row_floats(const batch_shape_t *s) {
    return (uint64_t)s->nhead_q * s->head_dim;
}

static int open_pools(void **state) {
    (void)state;
    for (uint32_t i = 0; i < TDM_COUNT_OF(sm_cnt_list); i++) {
        pool[sm_cnt_list[i]] = batch_pool(sm_cnt_list[i]);
    }
    return 0;
}

static int close_pools(void **state) {
    (void)state;
    for (uint32_t i = 0; i < TDM_COUNT_OF(sm_cnt_list); i++) batch_pool_free(pool[sm_cnt_list[i]]);
    return 0;
}

static void for_each_isa(void (*fn)(uint32_t isa)) {
    for (uint32_t wanted = TDM_CPU_ISA_SCALAR; wanted < TDM_CPU_ISA_CNT; wanted++) {
        uint32_t isa;
        if (tdm_cpu_isa_resolve(wanted, &isa, NULL) == TDM_OK) fn(isa);
    }
}

/* Rows [pos, pos + cnt) of a stream, each alone as a decode. */
static float *truth(const batch_shape_t *s, uint64_t stream, uint32_t pos, uint32_t cnt,
                    uint32_t isa) {
    batch_seq_t seq = {stream, pos + cnt, cnt};
    batch_open(&b, s, &seq, 1, 0, stream);
    uint64_t width = row_floats(s);
    float *rows = malloc(cnt * width * sizeof *rows);
    assert_non_null(rows);
    b.prefill_cnt = 0;
    b.decode_cnt = 1;
    for (uint32_t i = 0; i < cnt; i++) {
        b.seq[0] = (tdm_attn_seq_t){.kv_cnt = pos + i + 1, .cnt = 1, .row = i};
        batch_how_t how = {.pool = pool[1], .isa = isa, .route = TDM_ROUTE_DECODE_ONLY};
        batch_run(&b, &how, NULL, NULL);
        memcpy(rows + i * width, b.out + i * width, width * sizeof *rows);
    }
    batch_close(&b);
    return rows;
}

static void check_rows(uint32_t seq, uint32_t cnt, const float *want) {
    assert_memory_equal(batch_row(&b, seq, 0), want, cnt * row_floats(&b.shape) * sizeof *want);
}

/* Rows [pos, pos + cnt) as one slice. */
static void check_slice(const float *rows, uint32_t pos, uint32_t cnt, uint32_t isa) {
    batch_seq_t seq = {7, pos + cnt, cnt};
    batch_open(&b, &one_head, &seq, 1, 0, pos);
    batch_how_t how = {.pool = pool[1], .isa = isa, .route = TDM_ROUTE_PREFILL_ONLY};
    batch_run(&b, &how, NULL, NULL);
    check_rows(0, cnt, rows + pos * row_floats(&one_head));
    batch_close(&b);
}

/* All two-way cuts of prompts of 1..80 tokens are made of the slices
   [0, n) and [n, total): each of those once on the widest instruction
   set, a sample on the others. */
static void two_way_cuts_in(uint32_t isa) {
    uint32_t best = isa;
    assert_int_equal(tdm_cpu_isa_resolve(TDM_CPU_ISA_AUTO, &best, NULL), TDM_OK);
    float *rows = truth(&one_head, 7, 0, 80, isa);
    for (uint32_t n = 1; n <= 80; n++) check_slice(rows, 0, n, isa);
    for (uint32_t n = 1; n < 80; n++) {
        for (uint32_t total = n + 1; total <= 80; total += isa == best ? 1 : 17) {
            check_slice(rows, n, total - n, isa);
        }
    }
    free(rows);
}

static void every_cut_of_a_prompt_gives_the_bits_of_decoding_it(void **state) {
    (void)state;
    for_each_isa(two_way_cuts_in);
}

static void many_cuts_in(uint32_t isa) {
    float *rows = truth(&one_head, 7, 0, 100, isa);
    static const uint32_t cut[][8] = {{100},       {33, 33, 34}, {1, 99},
                                      {99, 1},     {16, 84},     {17, 17, 17, 17, 17, 15},
                                      {64, 1, 35}, {63, 2, 35}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(cut); i++) {
        uint32_t pos = 0;
        for (uint32_t j = 0; j < 8 && cut[i][j]; j++) {
            check_slice(rows, pos, cut[i][j], isa);
            pos += cut[i][j];
        }
        assert_int_equal(pos, 100);
    }
    free(rows);
}

static void later_slices_see_the_right_keys(void **state) {
    (void)state;
    for_each_isa(many_cuts_in);
}

/* A hybrid batch over several ranges: slices off the tile grid, decodes
   at range edges, an empty row. */
static const batch_seq_t hybrid[] = {{11, 1100, 21}, {12, 37, 37}, {13, 530, 40},
                                     {14, 1, 1},     {15, 512, 1}, {16, 513, 1},
                                     {17, 2100, 1},  {18, 0, 1},   {19, 777, 1}};
#define HYBRID_PREFILL 3
#define HYBRID_DECODE  6

static void hybrid_in(const batch_shape_t *s, uint32_t isa) {
    float *want[HYBRID_PREFILL + HYBRID_DECODE];
    for (uint32_t q = 0; q < TDM_COUNT_OF(hybrid); q++) {
        uint32_t kv = hybrid[q].kv_cnt;
        want[q] = kv ? truth(s, hybrid[q].stream, kv - hybrid[q].cnt, hybrid[q].cnt, isa)
                     : calloc(s->nhead_q * s->head_dim, sizeof(float));
    }
    static const uint32_t route[] = {TDM_ROUTE_FUSED, TDM_ROUTE_SERIAL, TDM_ROUTE_STREAMS};
    batch_open(&b, s, hybrid, HYBRID_PREFILL, HYBRID_DECODE, isa);
    for (uint32_t n = 0; n < TDM_COUNT_OF(sm_cnt_list); n++) {
        for (uint32_t r = 0; r < TDM_COUNT_OF(route); r++) {
            for (uint32_t plan_sm = 1; plan_sm <= 16; plan_sm *= 4) {
                batch_how_t how = {.pool = pool[sm_cnt_list[n]],
                                   .isa = isa,
                                   .route = route[r],
                                   .plan_sm_cnt = plan_sm};
                batch_run(&b, &how, NULL, NULL);
                for (uint32_t q = 0; q < TDM_COUNT_OF(hybrid); q++) {
                    check_rows(q, hybrid[q].cnt, want[q]);
                }
            }
        }
    }
    batch_close(&b);
    for (uint32_t q = 0; q < TDM_COUNT_OF(hybrid); q++) free(want[q]);
}

static void hybrid_isa(uint32_t isa) {
    hybrid_in(&shape, isa);
}

static void alone_and_in_any_batch_route_split_and_thread_count(void **state) {
    (void)state;
    for_each_isa(hybrid_isa);
}

static void other_shapes_too(void **state) {
    (void)state;
    uint32_t isa = TDM_CPU_ISA_SCALAR;
    assert_int_equal(tdm_cpu_isa_resolve(TDM_CPU_ISA_AUTO, &isa, NULL), TDM_OK);
    static const batch_shape_t list[] = {
        {.nhead_q = 4, .nhead_kv = 1, .head_dim = 128, .dtype = TDM_KV_BF16, .q_scale = 1},
        {.nhead_q = 7, .nhead_kv = 1, .head_dim = 80, .dtype = TDM_KV_F32, .q_scale = 2},
        {.nhead_q = 2, .nhead_kv = 2, .head_dim = 20, .dtype = TDM_KV_BF16, .q_scale = 1},
        {.nhead_q = 6, .nhead_kv = 2, .head_dim = 64, .dtype = TDM_KV_E4M3, .q_scale = 1},
        {.nhead_q = 2, .nhead_kv = 1, .head_dim = 22, .dtype = TDM_KV_E4M3, .q_scale = 1},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(list); i++) hybrid_in(&list[i], isa);
}

static void fallbacks_give_the_same_bits(void **state) {
    (void)state;
    uint32_t isa = TDM_CPU_ISA_SCALAR;
    assert_int_equal(tdm_cpu_isa_resolve(TDM_CPU_ISA_AUTO, &isa, NULL), TDM_OK);
    batch_open(&b, &shape, hybrid, HYBRID_PREFILL, HYBRID_DECODE, 1);
    uint64_t sz = b.row_cnt * row_floats(&shape) * sizeof(float);
    float *split = malloc(sz);
    tdm_attn_plan_t plan;
    batch_how_t how = {.pool = pool[3], .isa = isa, .route = TDM_ROUTE_FUSED, .plan_sm_cnt = 8};
    batch_run(&b, &how, NULL, &plan);
    assert_true(plan.merge_cnt > 0 && plan.reason == TDM_REASON_NONE);
    memcpy(split, b.out, sz);
    how.part_float_max = 100;
    batch_run(&b, &how, NULL, &plan);
    assert_int_equal(plan.reason, TDM_FALLBACK_workspace);
    assert_int_equal(plan.route, TDM_ROUTE_SERIAL);
    assert_memory_equal(b.out, split, sz);
    free(split);
    batch_close(&b);
}

static void counters_say_what_ran(void **state) {
    (void)state;
    static const uint32_t route[] = {TDM_ROUTE_FUSED, TDM_ROUTE_SERIAL, TDM_ROUTE_STREAMS};
    uint32_t best = TDM_CPU_ISA_SCALAR;
    assert_int_equal(tdm_cpu_isa_resolve(TDM_CPU_ISA_AUTO, &best, NULL), TDM_OK);
    float *decode = truth(&shape, hybrid[6].stream, hybrid[6].kv_cnt - 1, 1, best);
    batch_open(&b, &shape, hybrid, HYBRID_PREFILL, HYBRID_DECODE, 1);
    for (uint32_t n = 0; n < TDM_COUNT_OF(sm_cnt_list); n++) {
        for (uint32_t r = 0; r < TDM_COUNT_OF(route); r++) {
            tdm_attn_stats_t stats = {0};
            tdm_attn_plan_t plan;
            batch_how_t how = {.pool = pool[sm_cnt_list[n]],
                               .isa = TDM_CPU_ISA_AUTO,
                               .route = route[r],
                               .plan_sm_cnt = 4,
                               .again_cnt = 1};
            batch_run(&b, &how, &stats, &plan);
            check_rows(6, 1, decode); /* a split row, of the second launch */
            for (uint32_t k = 0; k < TDM_KIND_CNT; k++) {
                assert_int_equal(stats.vcta_planned[k], 2u * plan.item_cnt[k]);
                assert_int_equal(stats.vcta_executed[k], 2u * plan.item_cnt[k]);
                assert_true(stats.vcta_ns[k] > 0);
            }
            uint64_t busy_ns = stats.vcta_ns[0] + stats.vcta_ns[1];
            assert_true(busy_ns <= stats.wall_ns * sm_cnt_list[n]);
            assert_true(stats.colocated_ns <= busy_ns);
            if (route[r] == TDM_ROUTE_SERIAL || sm_cnt_list[n] == 1) {
                assert_int_equal(stats.colocated_ns, 0);
            }
            assert_true(plan.part_cnt > 0);
            assert_int_equal(stats.merge_cnt, 2 * plan.part_cnt);
            assert_int_equal(stats.split_cnt, 2 * plan.split_cnt);
            assert_int_equal(stats.flops, 2 * plan.flops);
            assert_int_equal(stats.kv_read_bytes, 2 * plan.kv_read_bytes);
        }
    }
    batch_close(&b);
    free(decode);
}

static void both_kinds_run_side_by_side_when_fused(void **state) {
    (void)state;
    /* Long enough that two threads overlap even on a busy machine. */
    static const batch_seq_t seq[] = {{1, 2048, 256}, {2, 2048, 1}, {3, 2048, 1}, {4, 2048, 1}};
    batch_open(&b, &shape, seq, 1, 3, 1);
    batch_how_t how = {.pool = pool[2], .isa = TDM_CPU_ISA_SCALAR, .route = TDM_ROUTE_FUSED};
    uint64_t colocated_ns = 0;
    for (int i = 0; i < 200 && colocated_ns == 0; i++) {
        tdm_attn_stats_t stats = {0};
        batch_run(&b, &how, &stats, NULL);
        colocated_ns += stats.colocated_ns;
    }
    assert_true(colocated_ns > 0);
    batch_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_of_a_prompt_gives_the_bits_of_decoding_it),
        cmocka_unit_test(later_slices_see_the_right_keys),
        cmocka_unit_test(alone_and_in_any_batch_route_split_and_thread_count),
        cmocka_unit_test(other_shapes_too),
        cmocka_unit_test(fallbacks_give_the_same_bits),
        cmocka_unit_test(counters_say_what_ran),
        cmocka_unit_test(both_kinds_run_side_by_side_when_fused),
    };
    return cmocka_run_group_tests(tests, open_pools, close_pools);
}
