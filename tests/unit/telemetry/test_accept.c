/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a scraper gets the format it prefers, and no header, however
   broken, does more than fall back to text 0.0.4.
   Method: the headers that real scrapers send, a table of edges, and
   seeded random headers made of the grammar's own pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "appliance/base/rng.h"
#include "telemetry/read/accept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *accept;
    tdm_metrics_format_t format;
} accept_row[] = {
    {NULL, TDM_METRICS_PROMETHEUS},
    {"", TDM_METRICS_PROMETHEUS},
    /* Prometheus 2.42 */
    {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
     "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
     TDM_METRICS_OPENMETRICS},
    /* Prometheus 3 */
    {"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
     "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;"
     "q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
     TDM_METRICS_OPENMETRICS},
    {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
     "text/plain;version=0.0.4;q=0.5",
     TDM_METRICS_PROMETHEUS},
    {"text/plain;q=0.4, application/openmetrics-text;q=0.9", TDM_METRICS_OPENMETRICS},
    {"text/plain;q=0.9, application/openmetrics-text;q=0.4", TDM_METRICS_PROMETHEUS},
    {"application/openmetrics-text, text/plain", TDM_METRICS_OPENMETRICS},
    {"text/plain, application/openmetrics-text", TDM_METRICS_PROMETHEUS},
    {"application/openmetrics-text; version=\"1.0.0\"", TDM_METRICS_OPENMETRICS},
    {"APPLICATION/OpenMetrics-Text ; Version=1.0.0 ; Q=1", TDM_METRICS_OPENMETRICS},
    {"application/openmetrics-text;version=0.0.1", TDM_METRICS_PROMETHEUS},
    {"application/openmetrics-text;version=9", TDM_METRICS_PROMETHEUS},
    {"application/openmetrics-text;q=0", TDM_METRICS_PROMETHEUS},
    {"application/openmetrics-text;q=0.000, */*;q=0.001", TDM_METRICS_PROMETHEUS},
    {"application/openmetrics-text;q=2", TDM_METRICS_PROMETHEUS},
    {"application/openmetrics-text;q=1.001", TDM_METRICS_PROMETHEUS},
    {"application/openmetrics-text;q=-1", TDM_METRICS_PROMETHEUS},
    {"application/openmetrics-text;q=nan", TDM_METRICS_PROMETHEUS},
    {"application/openmetrics-text;q=0.5000", TDM_METRICS_PROMETHEUS},
    {"application/openmetrics-text;q=", TDM_METRICS_PROMETHEUS},
    {"application/json", TDM_METRICS_PROMETHEUS},
    {"*/*", TDM_METRICS_PROMETHEUS},
    {";;;,,,;q=1", TDM_METRICS_PROMETHEUS},
    {"\"application/openmetrics-text", TDM_METRICS_PROMETHEUS},
    {"text/html;a=\",application/openmetrics-text,\"", TDM_METRICS_PROMETHEUS},
    {"text/html;a=\"\\\",\", application/openmetrics-text", TDM_METRICS_OPENMETRICS},
};

static void the_preferred_format_wins(void **state) {
    (void)state;
    for (size_t i = 0; i < TDM_COUNT_OF(accept_row); i++)
        if (tdm_accept_metrics(accept_row[i].accept) != accept_row[i].format)
            fail_msg("Accept: %s", accept_row[i].accept ? accept_row[i].accept : "(absent)");
}

static void gzip_needs_to_be_welcome(void **state) {
    (void)state;
    static const struct {
        const char *header;
        int is_welcome;
    } row[] = {{NULL, 0},
               {"", 0},
               {"gzip", 1},
               {"GZIP", 1},
               {"x-gzip", 1},
               {"deflate, gzip;q=0.5", 1},
               {"gzip;q=0", 0},
               {"gzip;q=0, *", 0},
               {"*", 1},
               {"*;q=0", 0},
               {"identity", 0},
               {"gzipp", 0},
               {"br;q=1.0, gzip;q=0.001", 1}};
    for (size_t i = 0; i < TDM_COUNT_OF(row); i++)
        if (tdm_accept_gzip(row[i].header) != row[i].is_welcome)
            fail_msg("Accept-Encoding: %s", row[i].header ? row[i].header : "(absent)");
}

static void the_set_is_one_of_three(void **state) {
    (void)state;
    static const struct {
        const char *query;
        uint32_t sets;
    } row[] = {{NULL, TDM_METRICS_ALL},
               {"", TDM_METRICS_ALL},
               {"&&", TDM_METRICS_ALL},
               {"set=all", TDM_METRICS_ALL},
               {"set=native", TDM_METRICS_NATIVE},
               {"set=compat", TDM_METRICS_COMPAT},
               {"a=b&set=compat&set=native", TDM_METRICS_COMPAT},
               {"offset=native", TDM_METRICS_ALL},
               {"set", TDM_METRICS_ALL},
               {"set=", 0},
               {"set=Native", 0},
               {"set=nativee", 0},
               {"set=nativ", 0}};
    for (size_t i = 0; i < TDM_COUNT_OF(row); i++)
        if (tdm_accept_set(row[i].query) != row[i].sets)
            fail_msg("query: %s", row[i].query ? row[i].query : "(none)");
}

/* A random header in memory of its own exact size, so that a read past
   its end is seen. */
static char *random_header(tdm_rng_t *rng) {
    static const char *const piece[] = {"application/openmetrics-text",
                                        "text/plain",
                                        "*/*",
                                        "gzip",
                                        "*",
                                        ";",
                                        ";",
                                        ",",
                                        ",",
                                        "q=",
                                        "set=",
                                        "&",
                                        "version=",
                                        "1.0.0",
                                        "0.0.4",
                                        "0.5",
                                        "1",
                                        "0",
                                        " ",
                                        "\t",
                                        "\"",
                                        "\\",
                                        "=",
                                        "\xff",
                                        "/"};
    char text[512] = "";
    size_t sz = 0;
    uint32_t cnt = tdm_rng_below(rng, 24);
    for (uint32_t i = 0; i < cnt; i++) {
        const char *p = piece[tdm_rng_below(rng, TDM_COUNT_OF(piece))];
        if (sz + strlen(p) >= sizeof text) break;
        sz += (size_t)snprintf(text + sz, sizeof text - sz, "%s", p);
    }
    char *own = malloc(sz + 1);
    assert_non_null(own);
    memcpy(own, text, sz + 1);
    return own;
}

static void no_header_breaks_the_parser(void **state) {
    (void)state;
    const uint64_t seed = 20260418;
    tdm_rng_t rng = {seed};
    uint32_t open_cnt = 0, gzip_cnt = 0;
    for (int i = 0; i < 50000; i++) {
        char *header = random_header(&rng);
        tdm_metrics_format_t format = tdm_accept_metrics(header);
        if (format == TDM_METRICS_OPENMETRICS && !strstr(header, "application/openmetrics-text"))
            fail_msg("seed %llu, header %d: %s", (unsigned long long)seed, i, header);
        open_cnt += format == TDM_METRICS_OPENMETRICS;
        gzip_cnt += tdm_accept_gzip(header) != 0;
        assert_true(tdm_accept_set(header) <= TDM_METRICS_ALL);
        free(header);
    }
    assert_true(open_cnt > 100 && gzip_cnt > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_preferred_format_wins),
        cmocka_unit_test(gzip_needs_to_be_welcome),
        cmocka_unit_test(the_set_is_one_of_three),
        cmocka_unit_test(no_header_breaks_the_parser),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
