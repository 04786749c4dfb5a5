/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: both exposition formats are what scrapers accept, tell the same
   numbers, and never pass the caller's bound.
   Method: line checks here; promtool and the python parsers as oracles
   where they are installed; zlib as the inverse of the gzip page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "appliance/base/rng.h"
#include "telemetry/read/compat.h"
#include "telemetry/read/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

static tdm_block_t block;
static const tdm_block_t *const blocks[] = {&block};
static tdm_snapshot_t snap;
static char text[TDM_METRICS_TEXT_MAX + 1];
static const tdm_fact_t facts[] = {{"version", "0.1.0"}, {"model", "odd \"name\"\\\n<b>"}};

/* A block in which every series moved, seeded. */
static int setup(void **state) {
    (void)state;
    tdm_rng_t rng = {7};
    (void)tdm_block_init(&block, "test");
    for (uint32_t m = 0; m < TDM_METRIC_CNT; m++) {
        const tdm_metric_row_t *row = &tdm_metric_row[m];
        for (uint32_t i = 0; i < row->series_cnt; i++) {
            if (row->kind != TDM_METRIC_IS_HISTOGRAM)
                tdm_gauge_set(&block, (tdm_metric_t)m, i, tdm_rng_below(&rng, 1000000));
            else
                for (int k = 0; k < 20; k++)
                    tdm_observe(&block, (tdm_metric_t)m, i,
                                tdm_rng_next(&rng) % (row->bound[row->bound_cnt - 1] * 2));
        }
    }
    tdm_snapshot_take(&snap, blocks, 1, 1);
    return 0;
}

static size_t render(tdm_metrics_format_t format) {
    size_t sz = 0;
    assert_int_equal(tdm_render_metrics(&snap, format, facts, 2, text, sizeof text - 1, &sz),
                     TDM_OK);
    text[sz] = '\0';
    return sz;
}

static size_t render_compat(tdm_metrics_format_t format) {
    size_t sz = 0;
    assert_int_equal(tdm_render_compat(&snap, format, "m", text, sizeof text - 1, &sz), TDM_OK);
    text[sz] = '\0';
    return sz;
}

static void has_line(const char *line) {
    char want[256];
    (void)snprintf(want, sizeof want, "\n%s\n", line);
    if (!strstr(text, want)) fail_msg("no line: %s", line);
}

static void values_are_exact(void **state) {
    (void)state;
    (void)tdm_block_init(&block, "test");
    tdm_count(&block, TDM_METRIC_attention_seconds_total, TDM_LABEL_PATH_fused, 1500000001);
    tdm_count(&block, TDM_METRIC_tokens_total, TDM_LABEL_TOKEN_prompt, UINT64_MAX);
    tdm_gauge_set(&block, TDM_METRIC_kv_usage_ratio, 0, 250000);
    tdm_observe(&block, TDM_METRIC_itl_seconds, 0, TDM_US(7500));
    tdm_snapshot_take(&snap, blocks, 1, 1);
    (void)render(TDM_METRICS_PROMETHEUS);
    has_line("# TYPE tandem_tokens_total counter");
    has_line("tandem_tokens_total{kind=\"prompt\"} 18446744073709551615");
    has_line("tandem_attention_seconds_total{path=\"fused\"} 1.500000001");
    has_line("tandem_kv_usage_ratio 0.25");
    has_line("tandem_itl_seconds_bucket{slo_class=\"interactive\",le=\"0.005\"} 0");
    has_line("tandem_itl_seconds_bucket{slo_class=\"interactive\",le=\"0.0075\"} 1");
    has_line("tandem_itl_seconds_bucket{slo_class=\"interactive\",le=\"1.0\"} 1");
    has_line("tandem_itl_seconds_bucket{slo_class=\"interactive\",le=\"+Inf\"} 1");
    has_line("tandem_itl_seconds_sum{slo_class=\"interactive\"} 0.0075");
    has_line("tandem_itl_seconds_count{slo_class=\"interactive\"} 1");
    has_line("tandem_sched_decode_batch_bucket{le=\"16.0\"} 0");
    has_line("process_open_fds 0");
    has_line("tandem_build_info{version=\"0.1.0\",model=\"odd \\\"name\\\"\\\\\\n<b>\"} 1");
}

static void openmetrics_names_the_family(void **state) {
    (void)state;
    size_t sz = render(TDM_METRICS_OPENMETRICS);
    has_line("# TYPE tandem_tokens counter");
    has_line("# UNIT tandem_tokens tokens");
    has_line("# TYPE tandem_build info");
    assert_null(strstr(text, "# TYPE tandem_tokens_total"));
    assert_null(strstr(text, ",}"));
    assert_string_equal(text + sz - 6, "# EOF\n");
}

/* untold_cnt counts the series that a device may not tell. */
static uint32_t untold_cnt(void) {
    uint32_t n = 0;
    for (uint32_t m = 0; m < TDM_METRIC_CNT; m++)
        if (tdm_metric_is_told(&tdm_metric_row[m])) n += tdm_metric_row[m].series_cnt;
    assert_true(n > 0);
    return n;
}

static void what_a_device_does_not_tell_is_absent(void **state) {
    (void)state;
    (void)tdm_block_init(&block, "test");
    tdm_tell(&block, TDM_METRIC_gpu_power_watts, TDM_LABEL_POWER_average, 1 + 612345);
    tdm_tell(&block, TDM_METRIC_gpu_xid_errors_total, 0, 1 + 0);
    tdm_tell(&block, TDM_METRIC_gpu_tensor_active_ratio, 0, 1 + 330000);
    tdm_tell(&block, TDM_METRIC_gpu_throttle_seconds_total, TDM_LABEL_THROTTLE_power,
             1 + 1500000000);
    tdm_snapshot_take(&snap, blocks, 1, 1);
    for (int format = 0; format <= TDM_METRICS_OPENMETRICS; format++) {
        (void)render((tdm_metrics_format_t)format);
        has_line("tandem_gpu_power_watts{mode=\"average\"} 612.345");
        has_line("tandem_gpu_xid_errors_total 0"); /* told: there was none */
        has_line("tandem_gpu_tensor_active_ratio 0.33");
        has_line("tandem_gpu_throttle_seconds_total{reason=\"power\"} 1.5");
        assert_null(strstr(text, "tandem_gpu_power_watts{mode=\"instant_max\"}"));
        assert_null(strstr(text, "\ntandem_gpu_xid_last "));
        assert_null(strstr(text, "tandem_gpu_ecc_errors_total{"));
    }
    uint64_t v = 7;
    assert_true(tdm_snapshot_told(&snap, TDM_METRIC_gpu_xid_errors_total, 0, &v) && v == 0);
    assert_false(tdm_snapshot_told(&snap, TDM_METRIC_gpu_xid_last, 0, &v));
    assert_false(tdm_snapshot_told(&snap, TDM_METRIC_gpu_xid_last, 1, &v));
}

static void every_series_is_there_from_the_start(void **state) {
    (void)state;
    (void)tdm_block_init(&block, "test");
    tdm_snapshot_take(&snap, blocks, 1, 1);
    for (int format = 0; format <= TDM_METRICS_OPENMETRICS; format++) {
        size_t sz = render((tdm_metrics_format_t)format);
        uint32_t lines = 0;
        for (char *line = text; *line; line = strchr(line, '\n') + 1) lines += *line != '#';
        assert_int_equal(lines, tdm_metrics_series_cnt() - untold_cnt());
        assert_int_equal(text[sz - 1], '\n');
    }
}

static void the_budget_holds(void **state) {
    (void)state;
    uint32_t series = tdm_metrics_series_cnt() + tdm_compat_series_cnt();
    size_t sz = render(TDM_METRICS_OPENMETRICS) + render_compat(TDM_METRICS_OPENMETRICS);
    print_message("%u series, %zu bytes in both sets\n", series, sz);
    assert_true(series <= 3000);
    assert_true(sz <= 512 * 1024);
}

static void a_small_buffer_is_refused_and_not_overrun(void **state) {
    (void)state;
    size_t whole = render(TDM_METRICS_PROMETHEUS), need = 0;
    const size_t caps[] = {0, 1, 100, whole - 1};
    for (size_t i = 0; i < TDM_COUNT_OF(caps); i++) {
        char *own = malloc(caps[i] ? caps[i] : 1);
        assert_non_null(own);
        assert_int_equal(
            tdm_render_metrics(&snap, TDM_METRICS_PROMETHEUS, facts, 2, own, caps[i], &need),
            TDM_ERR_LIMIT);
        assert_int_equal(need, whole);
        free(own);
    }
}

static tdm_metrics_ask_t native_ask(const char *accept) {
    return (tdm_metrics_ask_t){.query = "set=native",
                               .accept = accept,
                               .accept_encoding = "gzip",
                               .fact = facts,
                               .fact_cnt = 2,
                               .model_name = "odd \"name\"\\\n<b>"};
}

static void compat_families_are_sums_of_native_series(void **state) {
    (void)state;
    (void)tdm_block_init(&block, "test");
    for (uint32_t c = 0; c < 2; c++) {
        tdm_gauge_set(&block, TDM_METRIC_queue_requests,
                      tdm_series2(TDM_METRIC_queue_requests, c, TDM_LABEL_QUEUE_running), 3 + c);
        tdm_observe(&block, TDM_METRIC_ttft_seconds, c, TDM_MS(40));
        tdm_count(&block, TDM_METRIC_requests_total,
                  tdm_series3(TDM_METRIC_requests_total, c, c, TDM_LABEL_OUTCOME_cancelled), 5);
    }
    tdm_count(&block, TDM_METRIC_requests_total,
              tdm_series3(TDM_METRIC_requests_total, 0, 1, TDM_LABEL_OUTCOME_error), 2);
    tdm_count(&block, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_waiting_full), 7);
    tdm_gauge_set(&block, TDM_METRIC_kv_usage_ratio, 0, 250000);
    tdm_gauge_set(&block, TDM_METRIC_kv_pages, TDM_LABEL_KV_total, 4096);
    tdm_count(&block, TDM_METRIC_sched_places_yielded_total, 0, 11);
    tdm_snapshot_take(&snap, blocks, 1, 1);
    size_t sz = render_compat(TDM_METRICS_PROMETHEUS);
    has_line("vllm:num_requests_running{model_name=\"m\",engine=\"0\"} 7");
    has_line("vllm:num_requests_waiting{model_name=\"m\",engine=\"0\"} 0");
    has_line("vllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0.25");
    has_line("vllm:num_preemptions_total{model_name=\"m\",engine=\"0\"} 11");
    has_line("# TYPE vllm:request_success_total counter");
    has_line("vllm:request_success_total{model_name=\"m\",engine=\"0\",finished_reason=\"abort\"} "
             "10");
    has_line(
        "vllm:request_success_total{model_name=\"m\",engine=\"0\",finished_reason=\"error\"} 2");
    has_line(
        "vllm:admission_rejections_total{model_name=\"m\",engine=\"0\",reason=\"max_num_queued_"
        "reqs\"} 7");
    has_line(
        "vllm:time_to_first_token_seconds_bucket{model_name=\"m\",engine=\"0\",le=\"0.03\"} 0");
    has_line(
        "vllm:time_to_first_token_seconds_bucket{model_name=\"m\",engine=\"0\",le=\"0.04\"} 2");
    has_line("vllm:time_to_first_token_seconds_sum{model_name=\"m\",engine=\"0\"} 0.08");
    has_line(
        "vllm:cache_config_info{model_name=\"m\",engine=\"0\",block_size=\"64\",num_gpu_blocks="
        "\"4096\"} 1");
    uint32_t lines = 0;
    for (char *line = text; *line; line = strchr(line, '\n') + 1) lines += *line != '#';
    assert_int_equal(lines, tdm_compat_series_cnt());
    assert_int_equal(text[sz - 1], '\n');
}

static void the_query_chooses_the_sets(void **state) {
    (void)state;
    static const struct {
        const char *query;
        int has_native, has_compat;
    } row[] = {{NULL, 1, 1},         {"", 1, 1},           {"set=all", 1, 1},
               {"set=native", 1, 0}, {"set=compat", 0, 1}, {"x=1&set=compat", 0, 1}};
    for (uint32_t i = 0; i < 2 * TDM_COUNT_OF(row); i++) {
        int is_open = i >= TDM_COUNT_OF(row);
        tdm_metrics_ask_t ask = native_ask(is_open ? "application/openmetrics-text" : NULL);
        ask.query = row[i % TDM_COUNT_OF(row)].query;
        tdm_metrics_page_t page;
        assert_int_equal(tdm_metrics_page(&snap, &ask, text, sizeof text - 1, NULL, 0, &page),
                         TDM_OK);
        text[page.sz] = '\0';
        assert_int_equal(strstr(text, "\ntandem_tokens_total{") != NULL,
                         row[i % TDM_COUNT_OF(row)].has_native);
        assert_int_equal(strstr(text, "\nvllm:generation_tokens_total{") != NULL,
                         row[i % TDM_COUNT_OF(row)].has_compat);
        char *eof = strstr(text, "# EOF\n");
        assert_int_equal(eof != NULL, is_open);
        if (eof) assert_ptr_equal(eof + 6, text + page.sz);
        ask.query = "set=some";
        assert_int_equal(tdm_metrics_page(&snap, &ask, text, sizeof text, NULL, 0, &page),
                         TDM_ERR_INVAL);
    }
}

static void a_gzip_page_unpacks_to_the_plain_one(void **state) {
    (void)state;
    static char packed[TDM_METRICS_TEXT_MAX], plain[TDM_METRICS_TEXT_MAX];
    tdm_metrics_page_t page;
    tdm_metrics_ask_t ask = native_ask("application/openmetrics-text");
    assert_int_equal(tdm_metrics_page(&snap, &ask, text, sizeof text, packed, sizeof packed, &page),
                     TDM_OK);
    assert_int_equal(page.format, TDM_METRICS_OPENMETRICS);
    assert_int_equal(page.is_gzip, 1);
    assert_ptr_equal(page.data, packed);
    z_stream z;
    memset(&z, 0, sizeof z);
    assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
    z.next_in = (Bytef *)packed;
    z.avail_in = (uInt)page.sz;
    z.next_out = (Bytef *)plain;
    z.avail_out = sizeof plain;
    assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
    size_t plain_sz = sizeof plain - z.avail_out;
    (void)inflateEnd(&z);
    assert_int_equal(plain_sz, render(TDM_METRICS_OPENMETRICS));
    assert_memory_equal(plain, text, plain_sz);
}

static void gzip_without_room_sends_the_plain_page(void **state) {
    (void)state;
    char little[16];
    tdm_metrics_page_t page;
    tdm_metrics_ask_t ask = native_ask(NULL);
    assert_int_equal(tdm_metrics_page(&snap, &ask, text, sizeof text, little, sizeof little, &page),
                     TDM_OK);
    assert_int_equal(page.is_gzip, 0);
    assert_ptr_equal(page.data, text);
}

/* --- oracles ---------------------------------------------------------- */

static void save(const char *path, tdm_metrics_format_t format, int is_compat) {
    size_t sz = is_compat ? render_compat(format) : render(format);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, sz, f), sz);
    assert_int_equal(fclose(f), 0);
}

static int run(const char *command) {
    int rc = system(command); /* a fixed command line of this test */
    return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}

/* lines_wanted: one a series, less those that nobody told. */
static uint32_t lines_wanted(int is_compat) {
    uint32_t n = is_compat ? tdm_compat_series_cnt() : tdm_metrics_series_cnt();
    for (uint32_t m = 0; !is_compat && m < TDM_METRIC_CNT; m++)
        for (uint32_t i = 0; i < tdm_metric_row[m].series_cnt; i++) {
            uint64_t v;
            n -= !tdm_snapshot_told(&snap, (tdm_metric_t)m, i, &v);
        }
    return n;
}

static void oracles_accept_set(int is_compat) {
    char dir[] = "/tmp/tandem-render-XXXXXX", a[64], b[64], command[512];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(a, sizeof a, "%s/text", dir);
    (void)snprintf(b, sizeof b, "%s/open", dir);
    save(a, TDM_METRICS_PROMETHEUS, is_compat);
    save(b, TDM_METRICS_OPENMETRICS, is_compat);
    int promtool = run("command -v promtool >/dev/null");
    if (promtool != 0) print_message("promtool is not installed: not asked\n");
    if (promtool == 0) {
        (void)snprintf(command, sizeof command, "promtool check metrics < %s", a);
        promtool = run(command);
        if (is_compat && promtool == 3) promtool = 0; /* lint: vLLM's names have a colon */
    } else {
        promtool = 0;
    }
    (void)snprintf(command, sizeof command,
                   "/usr/bin/python3 " TDM_SOURCE_DIR "/tests/unit/telemetry/oracle.py %s %s %u", a,
                   b, lines_wanted(is_compat));
    int python = run(command);
    if (python == 77 || python == 127) {
        print_message("python3-prometheus-client is not installed: not asked\n");
        python = 0;
    }
    (void)unlink(a);
    (void)unlink(b);
    (void)rmdir(dir);
    assert_int_equal(promtool, 0);
    assert_int_equal(python, 0);
}

static void oracles_accept(void) {
    oracles_accept_set(0);
    oracles_accept_set(1);
}

static void oracles_accept_a_full_snapshot(void **state) {
    (void)state;
    oracles_accept();
}

static void oracles_accept_an_empty_snapshot(void **state) {
    (void)state;
    memset(&snap, 0, sizeof snap);
    oracles_accept();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(values_are_exact, setup),
        cmocka_unit_test_setup(openmetrics_names_the_family, setup),
        cmocka_unit_test_setup(every_series_is_there_from_the_start, setup),
        cmocka_unit_test_setup(what_a_device_does_not_tell_is_absent, setup),
        cmocka_unit_test_setup(the_budget_holds, setup),
        cmocka_unit_test_setup(a_small_buffer_is_refused_and_not_overrun, setup),
        cmocka_unit_test_setup(compat_families_are_sums_of_native_series, setup),
        cmocka_unit_test_setup(the_query_chooses_the_sets, setup),
        cmocka_unit_test_setup(a_gzip_page_unpacks_to_the_plain_one, setup),
        cmocka_unit_test_setup(gzip_without_room_sends_the_plain_page, setup),
        cmocka_unit_test_setup(oracles_accept_a_full_snapshot, setup),
        cmocka_unit_test_setup(oracles_accept_an_empty_snapshot, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
