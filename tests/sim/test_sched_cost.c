/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the simulator replays from its seed, and in it the promise holds
   where a fixed margin breaks: at most 1 % of all gaps over 100 ms with a
   machine that is 35 % slower half of the time, with prefill that a
   margin of 1.2 does not reach on a good day.  Method: generated lengths
   at a load under the knee; the figures themselves come from sched_bench. */

#include "appliance/base/clock.h"
#include "scheduler/sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GAP_NS (100 * TDM_NS_PER_MS)

static tdm_profile_table_t table;
static tdm_sim_result_t result, again;
static tdm_cost_t cost;

static int setup(void **state) {
    (void)state;
    tdm_profile_t rows;
    tdm_profile_set_t set;
    tdm_cost_llama8b(&cost);
    tdm_cost_rows(&cost, &rows);
    if (tdm_cost_profile(&cost, &set, NULL) != TDM_OK) return 1;
    if (tdm_profile_build(&set, &rows, &table, NULL) != TDM_OK) return 1;
    tdm_profile_set_free(&set);
    return 0;
}

static void run(uint32_t policy, double slow, uint64_t seed, tdm_sim_result_t *out) {
    tdm_workload_t w;
    assert_int_equal(tdm_workload_generate("arxiv_sample", 250, seed, &w, NULL), TDM_OK);
    tdm_workload_pace(&w, 1.3, 1.0, seed);
    cost.slow = slow;
    tdm_sim_ask_t a = {.workload = &w,
                       .cost = &cost,
                       .table = &table,
                       .seed = seed,
                       .gap_ns = GAP_NS,
                       .ttft_ns = 30 * TDM_NS_PER_S};
    a.sizes = (tdm_sched_sizes_t){.seq_max = 256,
                                  .waiting_max = 8192,
                                  .page_cnt = 14000,
                                  .context_max = TDM_CONTEXT_MAX,
                                  .vocab = 1000};
    tdm_sched_live_default(&a.live);
    tdm_cost_rows(&cost, &a.live.profile);
    a.live.policy = policy;
    a.live.grid_tok = 128;
    a.live.floor_cnt = 128;
    a.live.starve_ns = 10 * TDM_NS_PER_S;
    a.live.class_of[0].gap_ns = GAP_NS;
    tdm_error_t err = {0};
    if (tdm_sim_run(&a, out, &err) != TDM_OK) fail_msg("seed %d: %s", (int)seed, err.text);
    tdm_workload_free(&w);
}

static void one_seed_replays_everything(void **state) {
    (void)state;
    run(TDM_POLICY_QUANTILE, 0.12, 3, &result);
    run(TDM_POLICY_QUANTILE, 0.12, 3, &again);
    assert_memory_equal(&result, &again, sizeof result);
    assert_int_equal(result.finished, 250);
    run(TDM_POLICY_QUANTILE, 0.12, 4, &again);
    assert_memory_not_equal(&result, &again, sizeof result);
}

static void the_promise_holds_where_a_margin_breaks(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        run(TDM_POLICY_QUANTILE, 0.35, seed, &result);
        if (result.over_share > 0.01) fail_msg("seed %d: %g", (int)seed, result.over_share);
        run(TDM_POLICY_MARGIN, 0.35, seed, &again);
        assert_true(again.over_share > 0.1);
    }
}

static void on_a_good_day_more_prefill_fits(void **state) {
    (void)state;
    run(TDM_POLICY_QUANTILE, 0.0, 1, &result);
    run(TDM_POLICY_MARGIN, 0.0, 1, &again);
    assert_true(result.over_share <= 0.01);
    assert_true(result.chunk_bound > 1.06 * again.chunk_bound);
    assert_true(result.fused_share > 0.99);
}

static void the_profile_is_the_machine_on_a_quiet_day(void **state) {
    (void)state;
    tdm_load_t load = {.prefill_cnt = 1536, .decode_cnt = 60, .kv_cnt = 600000, .kv_max = 20000};
    load.pair_cnt = 1536ull * 4096 + 1536ull * 1537 / 2;
    for (uint32_t v = 0; v < TDM_PROFILE_VARIANT_CNT; v++) {
        double quiet = tdm_cost_quiet_ns(&cost, v, &load), said = tdm_table_ns(&table, v, &load);
        assert_true(said > 0.97 * quiet && said < 1.08 * quiet);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_seed_replays_everything),
        cmocka_unit_test(the_promise_holds_where_a_margin_breaks),
        cmocka_unit_test(on_a_good_day_more_prefill_fits),
        cmocka_unit_test(the_profile_is_the_machine_on_a_quiet_day),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
