/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: deploy/docs/metrics.md says what metrics.def says.
   Method: the page is written here, from the metric table, and compared;
   `test_telemetry_doc --write` replaces the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "telemetry/block/block.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE TDM_SOURCE_DIR "/deploy/docs/metrics.md"

static void put_labels(FILE *f, const tdm_metric_row_t *row) {
    int is_first = 1;
    for (int k = 0; k < 3; k++) {
        tdm_label_set_t set = (tdm_label_set_t)row->set[k];
        if (set == TDM_SET_NONE || row->kind == TDM_METRIC_IS_INFO) continue;
        fprintf(f, "%s%s", is_first ? "" : ", ", tdm_label_key(set));
        is_first = 0;
    }
    if (is_first) fprintf(f, row->kind == TDM_METRIC_IS_INFO ? "facts of boot" : "-");
}

static void put_bounds(FILE *f, const tdm_metric_row_t *row) {
    static const double scale[] = {[0] = 1, [6] = 1e6, [9] = 1e9};
    for (uint32_t b = 0; b < row->bound_cnt; b++)
        fprintf(f, "%s%g", b ? " " : "", (double)row->bound[b] / scale[tdm_metric_digits(row)]);
}

static void put_page(FILE *f) {
    static const char *const kind[] = {"counter", "gauge", "histogram", "info"};
    fprintf(
        f,
        "# Metrics\n\n"
        "`GET /metrics` on the management port answers Prometheus text 0.0.4 or OpenMetrics "
        "1.0.0, whichever `Accept` prefers.\n"
        "`?set=native` has the families below, `?set=compat` the same numbers under vLLM's "
        "names\n(`telemetry/read/compat.c`), `?set=all` and no query both. "
        "Words that one thread writes together are\nread together, so identities such as "
        "`requests_received_total` = `requests_total` + `requests_open` hold in\nevery scrape. "
        "Promises (`sched.ttft_ms`, `sched.gap_ms`) are bucket bounds.\n"
        "Every series is there from the start with 0, but those that a GPU's driver may not tell: "
        "they are absent then.\nThis page is written from `telemetry/block/metrics.def` by "
        "`test_telemetry_doc --write`; the same program is the test that it is\nup to date.\n\n"
        "| name | type | labels | meaning |\n|---|---|---|---|\n");
    for (uint32_t m = 0; m < TDM_METRIC_CNT; m++) {
        const tdm_metric_row_t *row = &tdm_metric_row[m];
        fprintf(f, "| `%s` | %s | ", row->name, kind[row->kind]);
        put_labels(f, row);
        fprintf(f, " | %s |\n", row->help);
    }
    fprintf(f, "\n## Label values\n\n| label | of | values |\n|---|---|---|\n");
    for (uint32_t s = 0; s < TDM_SET_CNT; s++) {
        if (s == TDM_SET_NONE) continue;
        fprintf(f, "| `%s` | ", tdm_label_key((tdm_label_set_t)s));
        int is_first = 1;
        for (uint32_t m = 0; m < TDM_METRIC_CNT; m++) {
            const tdm_metric_row_t *row = &tdm_metric_row[m];
            if (row->kind == TDM_METRIC_IS_INFO) continue;
            if (row->set[0] != s && row->set[1] != s && row->set[2] != s) continue;
            fprintf(f, "%s`%s`", is_first ? "" : ", ", row->name);
            is_first = 0;
        }
        fprintf(f, " | ");
        for (uint32_t i = 0; i < tdm_label_cnt((tdm_label_set_t)s); i++)
            fprintf(f, "%s%s", i ? ", " : "", tdm_label_value((tdm_label_set_t)s, i));
        fprintf(f, " |\n");
    }
    fprintf(f, "\n## Bucket bounds\n\n| histogram | upper bounds |\n|---|---|\n");
    for (uint32_t m = 0; m < TDM_METRIC_CNT; m++) {
        const tdm_metric_row_t *row = &tdm_metric_row[m];
        if (row->kind != TDM_METRIC_IS_HISTOGRAM) continue;
        fprintf(f, "| `%s` | ", row->name);
        put_bounds(f, row);
        fprintf(f, " |\n");
    }
}

static void the_page_is_up_to_date(void **state) {
    (void)state;
    char *want = NULL;
    size_t want_sz = 0;
    FILE *mem = open_memstream(&want, &want_sz);
    assert_non_null(mem);
    put_page(mem);
    assert_int_equal(fclose(mem), 0);
    FILE *f = fopen(PAGE, "re");
    assert_non_null(f);
    char *have = calloc(1, want_sz + 2);
    assert_non_null(have);
    size_t have_sz = fread(have, 1, want_sz + 1, f);
    (void)fclose(f);
    assert_int_equal(have_sz, want_sz);
    assert_memory_equal(have, want, want_sz);
    free(have);
    free(want);
}

static void every_label_set_is_used(void **state) {
    (void)state;
    for (uint32_t s = 0; s < TDM_SET_CNT; s++) {
        int is_used = 0;
        for (uint32_t m = 0; m < TDM_METRIC_CNT; m++)
            for (int k = 0; k < 3; k++) is_used |= tdm_metric_row[m].set[k] == s;
        if (!is_used) fail_msg("label set %s is unused", tdm_label_key((tdm_label_set_t)s));
    }
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--write") == 0) {
        FILE *f = fopen(PAGE, "we");
        if (!f) return 1;
        put_page(f);
        return fclose(f) != 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_is_up_to_date),
        cmocka_unit_test(every_label_set_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
