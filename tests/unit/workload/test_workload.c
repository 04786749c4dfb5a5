/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the three trace formats read as they are published, bad lines are
   named, and drawn workloads have the rate, the spread and the lengths that
   were asked for. */

#include "appliance/base/clock.h"
#include "appliance/workload/workload.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static tdm_workload_t w;
static tdm_error_t err;

static tdm_status_t read_text(const char *text, uint32_t most) {
    char path[] = "/tmp/tdm-workload-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    tdm_status_t st = tdm_workload_read(path, most, &w, &err);
    (void)unlink(path);
    return st;
}

static void row_is(uint32_t i, int64_t at_ns, uint32_t prompt, uint32_t output) {
    assert_true(llabs((long long)(w.row[i].at_ns - at_ns)) < 1000);
    assert_int_equal(w.row[i].prompt_cnt, prompt);
    assert_int_equal(w.row[i].output_cnt, output);
}

static void mooncake_lines_read(void **state) {
    (void)state;
    assert_int_equal(
        read_text("{\"timestamp\": 3000, \"input_length\": 6758, \"output_length\": 500, "
                  "\"hash_ids\": [0, 1]}\n"
                  "{\"timestamp\": 4500, \"input_length\": 7, \"output_length\": 0}\n",
                  10),
        TDM_OK);
    assert_int_equal(w.row_cnt, 2);
    assert_true(w.has_arrivals);
    row_is(0, 0, 6758, 500);
    row_is(1, 1500 * TDM_NS_PER_MS, 7, 1);
    tdm_workload_free(&w);
}

static void mooncake_blocks_read(void **state) {
    (void)state;
    assert_int_equal(read_text("{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 5, "
                               "\"hash_ids\": [0, 7, 4294967295]}\n"
                               "{\"timestamp\": 1, \"input_length\": 9, \"output_length\": 5}\n"
                               "{\"timestamp\": 2, \"input_length\": 600, \"output_length\": 5, "
                               "\"hash_ids\": [0,8]}\n",
                               10),
                     TDM_OK);
    assert_int_equal(w.block_cnt, 5);
    assert_int_equal(w.row[0].block_cnt, 3);
    assert_int_equal(w.block[w.row[0].block_off + 2], UINT32_MAX);
    assert_int_equal(w.row[1].block_cnt, 0);
    assert_int_equal(w.row[2].block_cnt, 2);
    assert_int_equal(w.block[w.row[2].block_off], 0);
    assert_int_equal(w.block[w.row[2].block_off + 1], 8);
    tdm_workload_free(&w);
    static const char *const bad[] = {"x]", "1, 2", "4294967296]", "-1]", "1 x]"};
    for (uint32_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        char text[200];
        (void)snprintf(text, sizeof text,
                       "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, "
                       "\"hash_ids\": [%s}\n",
                       bad[i]);
        assert_int_equal(read_text(text, 10), TDM_ERR_CORRUPT);
    }
}

static void lengths_scale_and_stay_lengths(void **state) {
    (void)state;
    assert_int_equal(read_text("num_prefill_tokens,num_decode_tokens\n1000,10\n1,1\n", 9), TDM_OK);
    assert_int_equal(tdm_workload_scale(&w, 0.25, &err), TDM_OK);
    row_is(0, 0, 250, 3);
    row_is(1, 0, 1, 1);
    assert_int_equal(tdm_workload_scale(&w, 4.0, &err), TDM_OK);
    /* what would be too long is refused, not another length, and changes nothing */
    static const double bad[] = {1049.0, 1e9, INFINITY, NAN};
    for (uint32_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        assert_int_equal(tdm_workload_scale(&w, bad[i], &err), TDM_ERR_INVAL);
        assert_non_null(strstr(err.text, "longest of 1000 tokens is over 1048576"));
        row_is(0, 0, 1000, 12);
    }
    assert_int_equal(tdm_workload_scale(&w, 1048.576, &err), TDM_OK);
    row_is(0, 0, 1u << 20, 12583);
    assert_true(tdm_workload_rate(&w) == 0.0);
    tdm_workload_pace(&w, 4.0, 1.0, 1);
    assert_true(tdm_workload_rate(&w) > 0.0);
    tdm_workload_free(&w);
}

/* A row that fits is left, another is cut as the simulator cuts it, and what is
   cut off is counted. */
static void what_a_context_cuts_off_is_counted(void **state) {
    (void)state;
    assert_int_equal(
        read_text("num_prefill_tokens,num_decode_tokens\n100,28\n100,29\n10,80\n500,500\n", 9),
        TDM_OK);
    tdm_workload_over_t over = tdm_workload_over(&w, 128);
    assert_int_equal(over.row_cnt, 3);
    assert_int_equal(over.prompt_cnt, 1 + 0 + 436);
    assert_int_equal(over.output_cnt, 0 + 16 + 436);
    row_is(3, 0, 500, 500); /* counting cuts nothing */
    static const uint32_t want[4][2] = {{100, 28}, {99, 29}, {10, 64}, {64, 64}};
    for (uint32_t i = 0; i < 4; i++) {
        tdm_workload_row_fit(&w.row[i], 128);
        row_is(i, 0, want[i][0], want[i][1]);
    }
    assert_int_equal(tdm_workload_over(&w, 128).row_cnt, 0);
    assert_int_equal(tdm_workload_over(&w, UINT32_MAX).row_cnt, 0);
    tdm_workload_free(&w);
}

static void azure_lines_read(void **state) {
    (void)state;
    assert_int_equal(read_text("TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                               "2023-11-16 23:59:59.5000000,4808,10\r\n"
                               "2023-11-17 00:00:01.0000000,3180,8\r\n",
                               10),
                     TDM_OK);
    row_is(0, 0, 4808, 10);
    row_is(1, 1500 * TDM_NS_PER_MS, 3180, 8);
    tdm_workload_free(&w);
}

/* As the traces of 2024 file them, whole weeks of a month and more. */
static void azure_lines_cross_months_and_years(void **state) {
    (void)state;
    static const struct {
        const char *from, *to;
        int64_t s;
    } row[] = {{"2024-05-31 23:59:59.009930+00:00", "2024-06-01 00:00:01.009930+00:00", 2},
               {"2024-02-28 12:00:00+00:00", "2024-03-01 12:00:00+00:00", 2 * 86400},
               {"2023-12-31 23:59:59.5", "2024-01-01 00:00:00.5", 1},
               {"2024-05-10 00:00:00.000001+00:00", "2024-05-19 23:59:59.000001+00:00", 863999}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
        char text[300];
        (void)snprintf(text, sizeof text,
                       "TIMESTAMP,ContextTokens,GeneratedTokens\n%s,2162,5\n%s,7,9\n", row[i].from,
                       row[i].to);
        assert_int_equal(read_text(text, 10), TDM_OK);
        row_is(0, 0, 2162, 5);
        row_is(1, row[i].s * TDM_NS_PER_S, 7, 9);
        tdm_workload_free(&w);
    }
    static const char *const bad[] = {"2024-13-01 00:00:00,1,2",       "2024-00-01 00:00:00,1,2",
                                      "2024-01-32 00:00:00,1,2",       "2024-01-01 24:00:00,1,2",
                                      "2024-01-01 00:60:00,1,2",       "2024-01-01 00:00:61,1,2",
                                      "2024-01-01 00:00:nan,1,2",      "1969-01-01 00:00:00,1,2",
                                      "2024-01-01 00:00:00+02:00,1,2", "2024-01-01 00:00:00"};
    for (uint32_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        char text[200];
        (void)snprintf(text, sizeof text, "TIMESTAMP,ContextTokens,GeneratedTokens\n%s\n", bad[i]);
        if (read_text(text, 10) != TDM_ERR_CORRUPT) fail_msg("%s was taken", bad[i]);
        assert_non_null(strstr(err.text, "line 2"));
    }
}

/* Out of order by arrival, else as filed. */
static void rows_of_one_moment_stay_as_filed(void **state) {
    (void)state;
    char text[4096] = "num_prefill_tokens,num_decode_tokens\n";
    for (uint32_t i = 0; i < 200; i++) {
        size_t sz = strlen(text);
        (void)snprintf(text + sz, sizeof text - sz, "%u,1\n", i + 1u);
    }
    assert_int_equal(read_text(text, 500), TDM_OK);
    for (uint32_t i = 0; i < 200; i++) row_is(i, 0, i + 1u, 1);
    tdm_workload_free(&w);
    assert_int_equal(read_text("{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\n"
                               "{\"timestamp\": 9, \"input_length\": 3, \"output_length\": 1}\n"
                               "{\"timestamp\": 5, \"input_length\": 2, \"output_length\": 1}\n",
                               10),
                     TDM_OK);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(w.row[i].prompt_cnt, i + 1u);
    tdm_workload_free(&w);
}

static void count_lines_read_without_arrivals(void **state) {
    (void)state;
    assert_int_equal(read_text("num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n"
                               "7564.0,192.0,7756.0,39.3\n74,918,992,0.08\n5,5,10,1\n",
                               2),
                     TDM_OK);
    assert_int_equal(w.row_cnt, 2);
    assert_false(w.has_arrivals);
    row_is(0, 0, 7564, 192);
    row_is(1, 0, 74, 918);
    tdm_workload_free(&w);
}

static void a_bad_line_is_named(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "hello\n",
        "num_prefill_tokens,num_decode_tokens\n1,2\nx,y\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16,1,2\n",
        "{\"timestamp\": 1, \"input_length\": 2}\n",
        "{\"timestamp\": nan, \"input_length\": 2, \"output_length\": 2}\n",
        "num_prefill_tokens,num_decode_tokens\n",
        "num_prefill_tokens,num_decode_tokens\n1.5,2\n",
        "num_prefill_tokens,num_decode_tokens\n1,inf\n",
        "num_prefill_tokens,num_decode_tokens\n1,-2\n"};
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++)
        if (read_text(bad[i], 10) != TDM_ERR_CORRUPT) fail_msg("%s was taken", bad[i]);
    assert_int_equal(read_text(bad[2], 10), TDM_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "line 3"));
    assert_int_equal(read_text("{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\n"
                               "{\"timestamp\": 2e12, \"input_length\": 1, \"output_length\": 1}\n",
                               10),
                     TDM_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "line 2 arrives more than 1e+09 s from the first"));
    assert_int_equal(read_text("\x1f\x8b\x08\x08garbage", 10), TDM_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "compressed by gzip"));
    assert_int_equal(tdm_workload_read("/nonexistent/t", 1, &w, &err), TDM_ERR_NOT_FOUND);
}

/* Times that count from 1970, in ms; lines that are blank, of either ending. */
static void clocks_and_blank_lines_are_no_matter(void **state) {
    (void)state;
    assert_int_equal(
        read_text(
            "{\"timestamp\": 1764000000000, \"input_length\": 5, \"output_length\": 3}\n\n"
            " \t\r\n"
            "{\"timestamp\": 1764000000500, \"input_length\": 6, \"output_length\": 4}\r\n\r\n",
            10),
        TDM_OK);
    assert_int_equal(w.row_cnt, 2);
    row_is(0, 0, 5, 3);
    row_is(1, 500 * TDM_NS_PER_MS, 6, 4);
    tdm_workload_free(&w);
}

/* As a shell's <(zcat trace.gz) gives it. */
static void a_pipe_is_read(void **state) {
    (void)state;
    static const char text[] = "num_prefill_tokens,num_decode_tokens\n7,9\n";
    char path[32];
    int end[2];
    assert_int_equal(pipe(end), 0);
    assert_int_equal(write(end[1], text, sizeof text - 1), (ssize_t)sizeof text - 1);
    (void)close(end[1]);
    (void)snprintf(path, sizeof path, "/dev/fd/%d", end[0]);
    assert_int_equal(tdm_workload_read(path, 9, &w, &err), TDM_OK);
    row_is(0, 0, 7, 9);
    tdm_workload_free(&w);
    (void)close(end[0]);
}

static void lengths_are_cut_to_their_bounds(void **state) {
    (void)state;
    assert_int_equal(read_text("num_prefill_tokens,num_decode_tokens\n1048576,0\n", 5), TDM_OK);
    row_is(0, 0, 1u << 20, 1);
    tdm_workload_free(&w);
}

static void drawn_arrivals_have_rate_and_spread(void **state) {
    (void)state;
    static const double cv[] = {0.5, 1.0, 3.0};
    for (uint32_t k = 0; k < TDM_COUNT_OF(cv); k++) {
        assert_int_equal(tdm_workload_generate("azure_conv", 40000, 5, &w, &err), TDM_OK);
        tdm_workload_pace(&w, 8.0, cv[k], 9);
        double sum = 0.0, square = 0.0;
        for (uint32_t i = 1; i < w.row_cnt; i++) {
            double gap = (double)(w.row[i].at_ns - w.row[i - 1].at_ns) / 1e9;
            assert_true(gap >= 0.0);
            sum += gap;
            square += gap * gap;
        }
        double n = w.row_cnt - 1u, mean = sum / n, sd = sqrt(square / n - mean * mean);
        assert_true(fabs(mean * 8.0 - 1.0) < 0.06);
        assert_true(fabs(sd / mean / cv[k] - 1.0) < 0.1);
        tdm_workload_free(&w);
    }
}

static void known_arrivals_are_stretched(void **state) {
    (void)state;
    assert_int_equal(read_text("TIMESTAMP,ContextTokens,GeneratedTokens\n"
                               "2023-11-16 10:00:00.0,1,1\n2023-11-16 10:00:01.0,2,2\n"
                               "2023-11-16 10:00:04.0,3,3\n",
                               10),
                     TDM_OK);
    tdm_workload_pace(&w, 4.0, 1.0, 1);
    row_is(1, TDM_NS_PER_S / 8, 2, 2);
    row_is(2, TDM_NS_PER_S / 2, 3, 3);
    tdm_workload_free(&w);
}

/* Four at 0 s, one at 3 s, two at 6 s: as a trace in steps of 3 s files them. */
static void steps_are_spread_to_the_next(void **state) {
    (void)state;
    assert_int_equal(read_text("TIMESTAMP,ContextTokens,GeneratedTokens\n"
                               "2023-11-16 10:00:00.0,1,1\n2023-11-16 10:00:00.0,2,2\n"
                               "2023-11-16 10:00:00.0,3,3\n2023-11-16 10:00:00.0,4,4\n"
                               "2023-11-16 10:00:03.0,5,5\n2023-11-16 10:00:06.0,6,6\n"
                               "2023-11-16 10:00:06.0,7,7\n",
                               10),
                     TDM_OK);
    tdm_workload_spread(&w);
    for (uint32_t i = 0; i < 4; i++) row_is(i, i * 750 * TDM_NS_PER_MS, i + 1u, i + 1u);
    row_is(4, 3 * TDM_NS_PER_S, 5, 5);
    row_is(5, 6 * TDM_NS_PER_S, 6, 6);
    row_is(6, 7500 * TDM_NS_PER_MS, 7, 7);
    tdm_workload_free(&w);
}

static int ascending(const void *a, const void *b) {
    const tdm_workload_row_t *x = a, *y = b;
    return (x->prompt_cnt > y->prompt_cnt) - (x->prompt_cnt < y->prompt_cnt);
}

static void fits_have_the_published_medians(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double median;
    } want[] = {{"arxiv_sample", 8800},
                {"arxiv_long", 27700},
                {"azure_code", 1100},
                {"azure_conv", 760},
                {"mooncake", 6900}};
    for (uint32_t k = 0; k < TDM_COUNT_OF(want); k++) {
        assert_int_equal(tdm_workload_generate(want[k].name, 20001, 1, &w, &err), TDM_OK);
        qsort(w.row, w.row_cnt, sizeof *w.row, ascending);
        double got = w.row[10000].prompt_cnt;
        if (fabs(got / want[k].median - 1.0) > 0.06) fail_msg("%s: median %g", want[k].name, got);
        tdm_workload_free(&w);
    }
    assert_int_equal(tdm_workload_generate("none such", 1, 1, &w, &err), TDM_ERR_NOT_FOUND);
}

static void rotation_keeps_the_rows_and_moves_them(void **state) {
    (void)state;
    assert_int_equal(tdm_workload_generate("azure_conv", 100, 5, &w, &err), TDM_OK);
    uint64_t sum = 0, moved = 0;
    uint32_t first = w.row[0].prompt_cnt;
    for (uint32_t i = 0; i < 100; i++) sum += w.row[i].prompt_cnt;
    tdm_workload_rotate(&w, 3);
    for (uint32_t i = 0; i < 100; i++) moved += w.row[i].prompt_cnt;
    assert_true(sum == moved && w.row[0].prompt_cnt != first);
    tdm_workload_free(&w);
}

/* Rows out of order keep their distances, whichever is filed first; a mark of
   the encoding and CRLF change nothing. */
static void rows_out_of_order_keep_their_times(void **state) {
    (void)state;
    static const char text[] = "\xef\xbb\xbf"
                               "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                               "2023-11-16 18:17:03.5,30,3\r\n"
                               "2023-11-16 18:17:01.0,10,1\r\n"
                               "2023-11-16 18:17:02.0,20,2\r\n";
    assert_int_equal(read_text(text, 10), TDM_OK);
    assert_int_equal(w.row_cnt, 3);
    row_is(0, 0, 10, 1);
    row_is(1, TDM_NS_PER_S, 20, 2);
    row_is(2, 2500 * TDM_NS_PER_MS, 30, 3);
    tdm_workload_free(&w);
}

/* Each file that holds no request says what is wrong with it. */
static void what_is_no_trace_says_why(void **state) {
    (void)state;
    static const struct {
        const char *text, *why;
    } bad[] = {{"", "empty"},
               {"prompt,output\n1,2\n", "line 1 is no request of a known format, nor a heading"},
               {"TIMESTAMP,ContextTokens,GeneratedTokens\n", "no request behind its heading"},
               {"num_prefill_tokens,num_decode_tokens\n1,2\n1\n", "line 3 is no request"},
               {"num_prefill_tokens,num_decode_tokens\n1,2\n1048577,2\n",
                "line 3 has a length over 1048576 tokens"},
               {"num_prefill_tokens,num_decode_tokens\n1,1e30\n", "line 2 has a length over"},
               {"{\"timestamp\": 1, \"input_length\": 2000000, \"output_length\": 1}\n",
                "line 1 has a length over"},
               {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,9,inf\n",
                "line 2 has a length over"},
               {"num_prefill_tokens,num_decode_tokens\n\n1,-2\n", "line 3 is no request"}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        assert_int_equal(read_text(bad[i].text, 10), TDM_ERR_CORRUPT);
        if (!strstr(err.text, bad[i].why)) fail_msg("%s", err.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_out_of_order_keep_their_times),
        cmocka_unit_test(what_is_no_trace_says_why),
        cmocka_unit_test(mooncake_lines_read),
        cmocka_unit_test(mooncake_blocks_read),
        cmocka_unit_test(lengths_scale_and_stay_lengths),
        cmocka_unit_test(what_a_context_cuts_off_is_counted),
        cmocka_unit_test(azure_lines_read),
        cmocka_unit_test(azure_lines_cross_months_and_years),
        cmocka_unit_test(rows_of_one_moment_stay_as_filed),
        cmocka_unit_test(count_lines_read_without_arrivals),
        cmocka_unit_test(a_bad_line_is_named),
        cmocka_unit_test(clocks_and_blank_lines_are_no_matter),
        cmocka_unit_test(a_pipe_is_read),
        cmocka_unit_test(lengths_are_cut_to_their_bounds),
        cmocka_unit_test(drawn_arrivals_have_rate_and_spread),
        cmocka_unit_test(known_arrivals_are_stretched),
        cmocka_unit_test(steps_are_spread_to_the_next),
        cmocka_unit_test(fits_have_the_published_medians),
        cmocka_unit_test(rotation_keeps_the_rows_and_moves_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
