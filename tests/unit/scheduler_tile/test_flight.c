/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the flight recorder holds every iteration, lost ones included.
   Method: a life of the rig's executor that ends with plans under way. */
#include "tests/unit/scheduler_tile/rig.h"

#include <string.h>

static void every_iteration_is_in_the_flight_recorder(void **state) {
    (void)state;
    tdm_flight_sizes_t keep = {.iteration_cnt = 256, .hop_cnt = 1, .api_cnt = 0};
    void *mem = rig_own(tdm_flight_footprint(&keep));
    memset(mem, 0, tdm_flight_footprint(&keep));
    tdm_flight_init(mem, &keep, "1", "m", 0, 0);
    tdm_flight_ring_t writer = tdm_flight_writer(mem, 0);
    rig.wires.flight = &writer;
    static tdm_board_t board;
    board = (tdm_board_t){.look_ns = (uint64_t)rig.now_ns};
    tdm_board_put(&board, TDM_BOARD_POWER_MW, 500000);
    tdm_board_put(&board, TDM_BOARD_SM_CLOCK_MHZ, 345); /* the measured one goes first */
    rig.wires.board = &board;
    rig.live.route = TDM_ROUTE_SERIAL;
    rig_create();
    rig_begin_life(1);
    rig_submit(0, 30);
    rig_run(5);
    rig_submit(1, 5);
    rig_run(3);
    rig_poll(); /* leaves plans at the executor */
    uint64_t ran = tdm_sched_stats(tdm_sched_tile_core(rig.tile))->iteration_cnt;
    rig.life.epoch = 0;
    rig_poll();
    const tdm_sched_stats_t *s = tdm_sched_stats(tdm_sched_tile_core(rig.tile));
    assert_true(s->lost_cnt > 0);
    assert_int_equal(tdm_flight_newest(mem, 0), ran + s->lost_cnt);
    assert_int_equal(rig_metric(TDM_METRIC_flight_records_total, TDM_LABEL_FLIGHT_iteration),
                     ran + s->lost_cnt);
    uint32_t lost_cnt = 0, fallback_cnt = 0;
    for (uint64_t n = 0; n < ran + s->lost_cnt; n++) {
        tdm_flight_iteration_t f;
        assert_true(tdm_flight_get(mem, 0, n, &f));
        assert_int_equal(f.iteration, n + 1);
        assert_int_equal(f.epoch, 1);
        assert_true(f.planned_ns > 0 && f.limit_ns > 0 && f.predicted_ns > 0);
        assert_true(f.profile_ns > 0 && (f.pair_cnt > 0) == (f.prefill_cnt > 0));
        assert_int_equal(f.limit_class, f.decode_cnt ? 0 : TDM_SLO_CLASS_MAX);
        if (f.flags & TDM_FLIGHT_LOST) {
            lost_cnt++;
            assert_int_equal(f.start_ns, 0);
            continue;
        }
        assert_int_equal(f.end_ns - f.start_ns, TDM_NS_PER_MS);
        assert_int_equal(f.vcta_planned[0], 10);
        assert_int_equal(f.vcta_executed[0], 10);
        assert_int_equal(f.tile_row, 48);
        assert_int_equal(f.tile_key, 64);
        assert_int_equal(f.miss_us, f.iteration == 3 ? 3 : 0);
        assert_int_equal(f.energy_uj, 500000); /* 500 W for a millisecond */
        assert_int_equal(f.clock_mhz, 1755);
        if (f.prefill_cnt == 0 || f.decode_cnt == 0) continue;
        fallback_cnt++;
        assert_int_equal(f.ran, TDM_ROUTE_SERIAL);
        assert_int_equal(f.fallback, TDM_FALLBACK_operator);
    }
    assert_int_equal(lost_cnt, s->lost_cnt);
    assert_int_equal(fallback_cnt, 1);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        CASE(every_iteration_is_in_the_flight_recorder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
