/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a block counts what it was told, in the series it was told, and
   the label tables agree with the enums of the other rooms.
   Method: one block in static memory, every metric touched once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "appliance/abi/event.h"
#include "appliance/abi/exchange.h"
#include "appliance/abi/plan.h"
#include "appliance/abi/result.h"
#include "telemetry/block/block.h"

#include <ctype.h>
#include <string.h>

static tdm_block_t block;

static int setup(void **state) {
    (void)state;
    (void)tdm_block_init(&block, "test");
    return 0;
}

static void every_word_belongs_to_one_series(void **state) {
    (void)state;
    uint32_t next = 0;
    for (uint32_t m = 0; m < TDM_METRIC_CNT; m++) {
        const tdm_metric_row_t *row = &tdm_metric_row[m];
        if (row->kind == TDM_METRIC_IS_INFO) continue;
        assert_int_equal(row->word_off, next);
        next += row->series_cnt * row->series_words;
    }
    assert_int_equal(next, TDM_BLOCK_WORD_CNT);
}

static void a_count_moves_its_own_word_only(void **state) {
    (void)state;
    for (uint32_t m = 0; m < TDM_METRIC_CNT; m++) {
        const tdm_metric_row_t *row = &tdm_metric_row[m];
        for (uint32_t i = 0; i < row->series_cnt; i++) {
            if (row->kind == TDM_METRIC_IS_HISTOGRAM) continue;
            memset(block.word, 0, sizeof block.word);
            tdm_count(&block, (tdm_metric_t)m, i, 7);
            for (uint32_t w = 0; w < TDM_BLOCK_WORD_CNT; w++)
                assert_int_equal(block.word[w], w == row->word_off + i ? 7 : 0);
        }
    }
}

static void no_label_counts_nowhere(void **state) {
    (void)state;
    tdm_count(&block, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REASON_NONE), 1);
    for (uint32_t w = 0; w < TDM_BLOCK_WORD_CNT; w++) assert_int_equal(block.word[w], 0);
}

static void a_value_on_a_bound_is_inside_it(void **state) {
    (void)state;
    const tdm_metric_row_t *row = &tdm_metric_row[TDM_METRIC_itl_seconds];
    uint64_t *w = &block.word[row->word_off];
    uint64_t sum = 0;
    for (uint32_t b = 0; b < row->bound_cnt; b++) {
        tdm_observe(&block, TDM_METRIC_itl_seconds, 0, row->bound[b]);
        tdm_observe(&block, TDM_METRIC_itl_seconds, 0, row->bound[b] + 1);
        sum += 2 * row->bound[b] + 1;
    }
    assert_int_equal(w[0], 1);
    for (uint32_t b = 1; b < row->bound_cnt; b++) assert_int_equal(w[b], 2);
    assert_int_equal(w[row->bound_cnt], 1);
    assert_int_equal(w[row->bound_cnt + 1], sum);
}

static void a_negative_interval_is_a_fault(void **state) {
    (void)state;
    tdm_observe_ns(&block, TDM_METRIC_ttft_seconds, 0, -1);
    const tdm_metric_row_t *faults = &tdm_metric_row[TDM_METRIC_faults_total];
    assert_int_equal(block.word[faults->word_off + tdm_label_reason(TDM_FAULT_clock_backwards)], 1);
    assert_int_equal(block.word[tdm_metric_row[TDM_METRIC_ttft_seconds].word_off], 0);
}

static void bounds_ascend(void **state) {
    (void)state;
    for (uint32_t m = 0; m < TDM_METRIC_CNT; m++)
        for (uint32_t b = 1; b < tdm_metric_row[m].bound_cnt; b++)
            assert_true(tdm_metric_row[m].bound[b - 1] < tdm_metric_row[m].bound[b]);
}

static void series_index_is_row_major(void **state) {
    (void)state;
    uint32_t next = 0;
    for (uint32_t a = 0; a < TDM_LABEL_CNT_API; a++)
        for (uint32_t b = 0; b < TDM_LABEL_CNT_SLO_CLASS; b++)
            for (uint32_t c = 0; c < TDM_LABEL_CNT_OUTCOME; c++)
                assert_int_equal(tdm_series3(TDM_METRIC_requests_total, a, b, c), next++);
    assert_int_equal(next, tdm_metric_row[TDM_METRIC_requests_total].series_cnt);
    assert_int_equal(tdm_series2(TDM_METRIC_net_packets_total, 1, 0), 1);
}

static void reason_labels_follow_the_list(void **state) {
    (void)state;
    static const struct {
        tdm_reason_group_t group;
        tdm_label_set_t set;
    } row[] = {{TDM_GROUP_DROP, TDM_SET_DROP},
               {TDM_GROUP_REFUSE, TDM_SET_REFUSE},
               {TDM_GROUP_CAP, TDM_SET_CAP},
               {TDM_GROUP_FALLBACK, TDM_SET_FALLBACK},
               {TDM_GROUP_FAULT, TDM_SET_FAULT}};
    for (uint32_t g = 0; g < TDM_COUNT_OF(row); g++) {
        uint32_t first = tdm_reason_first(row[g].group);
        assert_int_equal(tdm_label_cnt(row[g].set), tdm_reason_cnt(row[g].group));
        for (uint32_t i = 0; i < tdm_label_cnt(row[g].set); i++) {
            assert_int_equal(tdm_label_reason(first + i), i);
            assert_string_equal(tdm_label_value(row[g].set, i),
                                tdm_reason_name((tdm_reason_t)(first + i)));
        }
    }
    assert_string_equal(tdm_label_value(TDM_SET_VERDICT, tdm_label_verdict(0)), "none");
    assert_string_equal(tdm_label_value(TDM_SET_VERDICT, tdm_label_verdict(TDM_REFUSE_kv_full)),
                        "kv_full");
}

static void labels_follow_the_enums_they_stand_for(void **state) {
    (void)state;
    assert_int_equal(TDM_LABEL_CNT_PATH, TDM_ROUTE_CNT);
    assert_int_equal(TDM_LABEL_PATH_idle, TDM_ROUTE_IDLE);
    assert_int_equal(TDM_LABEL_PATH_prefill_only, TDM_ROUTE_PREFILL_ONLY);
    assert_int_equal(TDM_LABEL_PATH_decode_only, TDM_ROUTE_DECODE_ONLY);
    assert_int_equal(TDM_LABEL_PATH_fused, TDM_ROUTE_FUSED);
    assert_int_equal(TDM_LABEL_PATH_streams, TDM_ROUTE_STREAMS);
    assert_int_equal(TDM_LABEL_PATH_serial, TDM_ROUTE_SERIAL);
    assert_int_equal(TDM_LABEL_CNT_OP, TDM_KIND_CNT);
    assert_int_equal(TDM_LABEL_OP_decode, TDM_KIND_DECODE);
    assert_int_equal(TDM_LABEL_CNT_SLO_CLASS, TDM_SLO_CLASS_MAX);
    assert_int_equal(TDM_LABEL_CNT_FINISH, TDM_FINISH_CNT - 1);
    assert_int_equal(TDM_LABEL_FINISH_stop, TDM_FINISH_STOP - 1);
    assert_int_equal(TDM_LABEL_FINISH_error, TDM_FINISH_ERROR - 1);
    assert_int_equal(TDM_LABEL_DOOR_h3, TDM_DOOR_H3);
    assert_int_equal(TDM_LABEL_DOOR_http1, TDM_DOOR_HTTP1);
    assert_int_equal(tdm_label_code(200), TDM_LABEL_CODE_2xx);
    assert_int_equal(tdm_label_code(503), TDM_LABEL_CODE_5xx);
}

/* The naming rules of prometheus.io/docs/practices/naming that promtool
   does not know: a unit is the last word, counters alone end in _total. */
static void names_carry_unit_and_kind(void **state) {
    (void)state;
    for (uint32_t m = 0; m < TDM_METRIC_CNT; m++) {
        const tdm_metric_row_t *row = &tdm_metric_row[m];
        char family[96];
        assert_true(strlen(row->name) < sizeof family);
        (void)strcpy(family, row->name);
        char *total = strstr(family, "_total");
        assert_int_equal(row->kind == TDM_METRIC_IS_COUNTER, total && !total[6]);
        if (total) *total = '\0';
        size_t unit_sz = strlen(row->unit), family_len = strlen(family);
        if (unit_sz) {
            assert_true(family_len > unit_sz);
            assert_string_equal(family + family_len - unit_sz, row->unit);
            assert_int_equal(family[family_len - unit_sz - 1], '_');
        }
        assert_true(strncmp(row->name, "tandem_", 7) == 0 ||
                    strncmp(row->name, "process_", 8) == 0);
        for (const char *p = row->name; *p; p++)
            assert_true(islower(*p) || *p == '_' || isdigit(*p));
        size_t help_sz = strlen(row->help);
        assert_true(help_sz > 10 && row->help[help_sz - 1] == '.');
    }
}

static void process_metrics_have_no_prefix(void **state) {
    (void)state;
    assert_string_equal(tdm_metric_row[TDM_METRIC_process_open_fds].name, "process_open_fds");
    assert_string_equal(tdm_metric_row[TDM_METRIC_kv_pages].name, "tandem_kv_pages");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_word_belongs_to_one_series, setup),
        cmocka_unit_test_setup(a_count_moves_its_own_word_only, setup),
        cmocka_unit_test_setup(no_label_counts_nowhere, setup),
        cmocka_unit_test_setup(a_value_on_a_bound_is_inside_it, setup),
        cmocka_unit_test_setup(a_negative_interval_is_a_fault, setup),
        cmocka_unit_test_setup(bounds_ascend, setup),
        cmocka_unit_test_setup(series_index_is_row_major, setup),
        cmocka_unit_test_setup(reason_labels_follow_the_list, setup),
        cmocka_unit_test_setup(labels_follow_the_enums_they_stand_for, setup),
        cmocka_unit_test_setup(names_carry_unit_and_kind, setup),
        cmocka_unit_test_setup(process_metrics_have_no_prefix, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
