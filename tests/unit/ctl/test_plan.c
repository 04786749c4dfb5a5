/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: tandemctl plan plans with its own defaults, and refuses words that
   it does not know.
   Method: the shipped example and a drawn trace, a few requests, output as
   JSON in a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "appliance/base/attr.h"
#include "appliance/ctl/plan.h"

#include "appliance/ctl/measured.h"
#include "appliance/ctl/options.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* plan_to_file runs the command with its output in a file; the caller
   closes the file. */
static int plan_to_file(int argc, const char *const *argv, FILE **out) {
    *out = tmpfile();
    assert_non_null(*out);
    (void)fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    assert_true(kept >= 0 && dup2(fileno(*out), STDOUT_FILENO) >= 0);
    int rc = tdm_ctl_plan(argc, (char **)(uintptr_t)argv);
    (void)fflush(stdout);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    (void)close(kept);
    rewind(*out);
    return rc;
}

static void the_defaults_plan(void **state) {
    (void)state;
    static const char *const words[] = {
        "tandemctl", "plan",   "--profile",   "example", "--trace",   "azure_conv", "--requests",
        "40",        "--json", "--sequences", "32",      "--context", "16384"};
    FILE *f;
    assert_int_equal(plan_to_file((int)TDM_COUNT_OF(words), words, &f), 0);
    json_error_t err;
    json_t *j = json_loadf(f, JSON_REJECT_DUPLICATES, &err);
    if (!j) fail_msg("line %d: %s", err.line, err.text);
    json_decref(j);
    (void)fclose(f);
}

/* Policies, and pools beside appliances that do both, in one report. */
static void policies_and_pools_have_their_curves(void **state) {
    (void)state;
    static const char *const words[] = {"tandemctl",
                                        "plan",
                                        "--profile",
                                        "example",
                                        "--trace",
                                        "azure_conv",
                                        "--requests",
                                        "20",
                                        "--rates",
                                        "0.5",
                                        "--json",
                                        "--policies",
                                        "quantile,fifo:512,static:512",
                                        "--appliances",
                                        "2",
                                        "--link-gbit",
                                        "0.5,100"};
    FILE *f;
    assert_int_equal(plan_to_file((int)TDM_COUNT_OF(words), words, &f), 0);
    json_t *j = json_loadf(f, JSON_REJECT_DUPLICATES, NULL);
    const json_t *curves = json_object_get(j, "curves");
    assert_int_equal(json_array_size(curves), 2 * 3 * 3 + 2);
    const json_t *pools = json_array_get(curves, 18);
    assert_int_equal(json_integer_value(json_object_get(pools, "prefill_appliances")), 1);
    const json_t *fast = json_array_get(curves, 19);
    assert_true(json_real_value(json_object_get(pools, "best")) > 0.0);
    assert_string_equal(json_string_value(json_object_get(json_array_get(curves, 3), "policy")),
                        "fifo:512");
    assert_true(json_number_value(json_object_get(pools, "link_gbit")) == 0.5);
    assert_true(json_real_value(json_object_get(fast, "best")) >
                json_real_value(json_object_get(pools, "best")));
    /* 200 times the link carries 200 times the prompts */
    double wire = json_real_value(json_object_get(fast, "wire_per_s")) /
                  json_real_value(json_object_get(pools, "wire_per_s"));
    assert_true(wire > 199.0 && wire < 201.0);
    assert_true(json_real_value(json_object_get(pools, "best")) <=
                1.05 * json_real_value(json_object_get(pools, "wire_per_s")));
    assert_string_equal(json_string_value(json_object_get(json_array_get(curves, 6), "policy")),
                        "static:512");
    json_decref(j);
    (void)fclose(f);
}

/* Of two requests the 99th in a hundred is the slower one, as in a replay. */
static void of_few_requests_p99_is_the_slowest(void **state) {
    (void)state;
    static const char *const words[] = {"tandemctl", "plan",       "--profile",  "example",
                                        "--trace",   "azure_conv", "--requests", "2",
                                        "--rates",   "0.01",       "--json"};
    FILE *f;
    assert_int_equal(plan_to_file((int)TDM_COUNT_OF(words), words, &f), 0);
    json_t *j = json_loadf(f, 0, NULL);
    json_t *point = json_array_get(
        json_object_get(json_array_get(json_object_get(j, "curves"), 0), "points"), 0);
    json_t *ttft = json_object_get(point, "ttft_ms");
    double p50 = json_real_value(json_object_get(ttft, "p50"));
    assert_true(p50 > 0.0 && json_real_value(json_object_get(ttft, "p99")) > p50);
    json_decref(j);
    (void)fclose(f);
}

static double number_at(const json_t *j, size_t point, const char *a, const char *b) {
    const json_t *curve = json_array_get(json_object_get(j, "curves"), 0);
    const json_t *p = json_array_get(json_object_get(curve, "points"), point);
    p = json_object_get(p, a);
    return json_number_value(b ? json_object_get(p, b) : p);
}

/* A window is no longer than it is: of twenty times what can be served nobody is
   heard to wait longer, the queue grows, and the promise is missed; all that
   arrive are counted.  Decodes that run before it begins are in its gaps. */
static void a_window_is_cut_and_starts_warm(void **state) {
    (void)state;
    static const char *const words[] = {
        "tandemctl", "plan",       "--profile", "example", "--trace", "azure_conv",
        "--rates",   "0.5,0.6@40", "--window",  "20",      "--json",  "--requests",
        "5000",      "--policies", "quantile",  "--seed",  "1"};
    const char *full[TDM_COUNT_OF(words)];
    FILE *f;
    assert_int_equal(plan_to_file((int)TDM_COUNT_OF(words), words, &f), 0);
    json_t *j = json_loadf(f, 0, NULL);
    (void)fclose(f);
    assert_true(number_at(j, 0, "requests", NULL) > 2 && number_at(j, 0, "requests", NULL) < 25);
    assert_true(number_at(j, 1, "decodes", NULL) > number_at(j, 0, "decodes", NULL) + 1.0);
    assert_true(number_at(j, 1, "gap_ms", "p50") > number_at(j, 0, "gap_ms", "p50"));
    json_decref(j);
    memcpy(full, words, sizeof full);
    full[7] = "100";
    assert_int_equal(plan_to_file((int)TDM_COUNT_OF(full), full, &f), 0);
    j = json_loadf(f, 0, NULL);
    (void)fclose(f);
    assert_true(number_at(j, 0, "requests", NULL) > 1000);
    double longest = number_at(j, 0, "ttft_ms", "p999");
    assert_true(longest > 10000 && longest <= 20000);
    assert_true(number_at(j, 0, "waiting_last", NULL) > 2 * number_at(j, 0, "waiting_first", NULL));
    const json_t *curve = json_array_get(json_object_get(j, "curves"), 0);
    assert_true(json_is_false(
        json_object_get(json_array_get(json_object_get(curve, "points"), 0), "kept")));
    json_decref(j);
}

/* A window is of one appliance, at rates that are named. */
static void a_window_of_nothing_is_refused(void **state) {
    (void)state;
    static const char *const bad[][11] = {
        {"tandemctl", "plan", "--profile", "example", "--trace", "azure_conv", "--window", "5",
         "--requests", "50", "--json"},
        {"tandemctl", "plan", "--profile", "example", "--trace", "azure_conv", "--window", "5",
         "--rates", "1@999", "--json"}};
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        FILE *f;
        assert_int_equal(plan_to_file(11, bad[i], &f), i == 0 ? 1 : 2);
        (void)fclose(f);
    }
}

/* measured_file holds a bench with a plan's errors, of a model; the caller
   closes and removes it. */
static FILE *measured_file(char path[32], const char *model) {
    (void)snprintf(path, 32, "/tmp/measured-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    fprintf(
        f,
        "{\"appliance\": {\"model\": \"%s\"}, \"trace\": \"day.csv\", \"planned\": {\"gap_ms\": "
        "60}, \"carries\": [{\"path\": \"fused\", \"policy\": \"quantile\", \"rate\": 2.0, "
        "\"is_open\": false, \"is_seen\": true, \"planned\": 1.9}, {\"path\": \"serial\", "
        "\"policy\": \"quantile\", \"rate\": 1.0, \"is_open\": true, \"is_seen\": true, "
        "\"planned\": 3.0}], \"errors\": [",
        model);
    fprintf(f,
            "{\"path\": \"fused\", \"policy\": \"quantile\", \"rate\": 1.0, \"gap_p50\": 0.04, "
            "\"gap_p99\": null},"
            "{\"path\": \"fused\", \"policy\": \"quantile\", \"rate\": 2.0, \"gap_p50\": -0.11},"
            "{\"path\": \"fused\", \"policy\": \"quantile\", \"rate\": 2.1, \"gap_p50\": 0.9},"
            "{\"path\": \"serial\", \"policy\": \"quantile\", \"rate\": 1.0, \"gap_p50\": 0.07}]}");
    assert_int_equal(fflush(f), 0);
    return f;
}

static double erred_at(const json_t *row, const char *key, const char *what) {
    return json_number_value(json_object_get(json_object_get(row, key), what));
}

/* The answer says by how much such plans erred where that was measured: of the
   windows that kept the promise, and of a capacity that was closed; it says that
   nobody told where nobody did, and takes no other model's word. */
static void the_answer_says_by_how_much_plans_erred(void **state) {
    (void)state;
    char path[32];
    const char *words[] = {"tandemctl",  "plan",       "--profile", "example", "--trace",
                           "azure_conv", "--requests", "20",        "--rates", "0.5",
                           "--json",     "--measured", path};
    FILE *f, *told = measured_file(path, "8B");
    assert_int_equal(plan_to_file(13, words, &f), 0);
    json_t *j = json_loadf(f, 0, NULL);
    (void)fclose(f);
    assert_true(json_is_true(json_object_get(j, "is_simulated")));
    const json_t *row = json_array_get(json_object_get(json_object_get(j, "erred"), "rows"), 0);
    assert_string_equal(json_string_value(json_object_get(row, "trace")), "day.csv");
    assert_true(erred_at(row, "gap_p50", "cnt") == 3);
    assert_true(erred_at(row, "gap_p50", "low") == -0.11 &&
                erred_at(row, "gap_p50", "high") == 0.07);
    assert_null(json_object_get(row, "gap_p99"));
    assert_true(erred_at(row, "capacity", "cnt") == 1 && erred_at(row, "capacity", "low") == -0.05);
    json_decref(j);
    (void)fclose(told);
    (void)remove(path);
    assert_int_equal(plan_to_file(13, words, &f), 1); /* no such file */
    (void)fclose(f);
    told = measured_file(path, "70B");
    assert_int_equal(plan_to_file(13, words, &f), 1);
    (void)fclose(f);
    (void)fclose(told);
    (void)remove(path);
    char text[800] = "";
    assert_int_equal(plan_to_file(10, words, &f), 0);
    assert_true(fread(text, 1, sizeof text - 1, f) > 100);
    (void)fclose(f);
    assert_non_null(strstr(text, "all simulated, "));
    assert_non_null(strstr(text, "of windows erred beside measured ones nobody told"));
}

/* A kept profile has such a list beside it, and says how it errs itself. */
static void beside_a_kept_profile_lies_how_plans_erred(void **state) {
    (void)state;
    char beside[64];
    tdm_measured_beside("a.b/c", beside, sizeof beside);
    assert_string_equal(beside, "a.b/c.measured.json");
    static const char *const words[] = {
        "tandemctl",  "plan",
        "--profile",  TDM_SOURCE_DIR "/deploy/profiles/h200_llama-3-8b.json",
        "--trace",    "azure_conv",
        "--requests", "20",
        "--rates",    "0.5",
        "--json"};
    FILE *f;
    assert_int_equal(plan_to_file((int)TDM_COUNT_OF(words), words, &f), 0);
    json_t *j = json_loadf(f, 0, NULL);
    (void)fclose(f);
    const json_t *erred = json_object_get(j, "erred");
    assert_string_equal(json_string_value(json_object_get(erred, "device")), "NVIDIA H200");
    assert_true(json_array_size(json_object_get(erred, "rows")) >= 5);
    assert_true(erred_at(j, "profile_error", "shapes") == 96);
    json_decref(j);
}

/* A profile that tells no clock cannot be asked for another. */
static void another_clock_needs_one_of_the_profile(void **state) {
    (void)state;
    static const char *const words[] = {"tandemctl", "plan",       "--profile", "example",
                                        "--trace",   "azure_conv", "--clock",   "1000",
                                        "--rates",   "1",          "--json"};
    FILE *f;
    assert_int_equal(plan_to_file((int)TDM_COUNT_OF(words), words, &f), 1);
    assert_int_equal(fgetc(f), EOF);
    (void)fclose(f);
}

static void unknown_words_are_refused(void **state) {
    (void)state;
    static const char *const bad[][5] = {{"tandemctl", "plan", "--trace", "azure_conv", "--json"},
                                         {"tandemctl", "plan", "--profile", "example", "--json"},
                                         {"tandemctl", "plan", "--speed", "9", "--json"},
                                         {"tandemctl", "plan", "--policies", "static:0", "--json"},
                                         {"tandemctl", "plan", "--policies", "best", "--json"},
                                         {"tandemctl", "plan", "--policies", "mean,", "--json"},
                                         {"tandemctl", "plan", "--json", "--seed", "x"}};
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        FILE *f;
        int is_none = strcmp(bad[i][2], "--speed") == 0;
        assert_int_equal(plan_to_file(5, bad[i], &f), is_none ? TDM_EXIT_HELP : TDM_EXIT_USAGE);
        assert_int_equal(fgetc(f), EOF);
        (void)fclose(f);
    }
}

/* Few requests are over before a queue grows: no capacity is made of that,
   and no gain. */
static void too_few_requests_give_no_capacity(void **state) {
    (void)state;
    static const char *const words[] = {"tandemctl",  "plan",    "--profile",
                                        "example",    "--trace", "azure_conv",
                                        "--requests", "2",       "--json"};
    FILE *f;
    assert_int_equal(plan_to_file((int)TDM_COUNT_OF(words), words, &f), 0);
    json_t *j = json_loadf(f, 0, NULL);
    (void)fclose(f);
    for (size_t i = 0; i < 3; i++) {
        const json_t *c = json_array_get(json_object_get(j, "curves"), i);
        assert_true(json_is_true(json_object_get(c, "is_open")));
        assert_true(json_number_value(json_object_get(c, "gain")) == 0.0);
    }
    json_decref(j);
    assert_int_equal(plan_to_file((int)TDM_COUNT_OF(words) - 1, words, &f), 0);
    char text[4000] = "";
    assert_true(fread(text, 1, sizeof text - 1, f) > 100);
    (void)fclose(f);
    assert_non_null(strstr(text, "carries at least "));
    assert_non_null(strstr(text, "more --requests"));
    assert_null(strstr(text, "its attention allows"));
}

/* What would be without effect, or is out of range, is refused by its name. */
static void refusals_name_the_word_and_what_it_takes(void **state) {
    (void)state;
    static const struct {
        const char *word, *value, *why;
    } bad[] = {{"--link-gbit", "10", "--link-gbit is between pools, of --appliances 2 or more"},
               {"--kv-bytes", "100", "--kv-bytes needs --link-gbit"},
               {"--link-us", "1", "--link-us needs --link-gbit"},
               {"--link-gbit", "0", "--link-gbit takes up to 8 speeds"},
               {"--link-gbit", "100,10", "rising, not \"100,10\""},
               {"--link-gbit", "1,2,3,4,5,6,7,8,9", "--link-gbit takes up to 8 speeds"},
               {"--requests", "0", "--requests takes a whole number from 2 to 1048576"},
               {"--gap-ms", "nan", "--gap-ms takes a number from 1 to 1000000, not \"nan\""},
               {"--rates", "0", "--rates takes"},
               {"--rates", "0.5,1,0.5", "RATE[@WARM], each once, above 0"},
               {"--rates", "1@20,1.0@30", "each once"},
               {"--floor", "4096", "--floor is more than --prefill-tokens"},
               {"--policies", "static:0", "--policies takes"},
               {"--policies", "mean,static:512,mean", "--policies takes up to 8, each once,"},
               {"--speed", "9", "--speed"},
               {"--seed", NULL, "--seed takes a value"}};
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        const char *words[] = {"tandemctl", "plan",       "--profile", "example",
                               "--trace",   "azure_conv", bad[i].word, bad[i].value};
        FILE *said = tmpfile(), *f;
        char text[400] = "";
        assert_non_null(said);
        int kept = dup(STDERR_FILENO);
        assert_true(kept >= 0 && dup2(fileno(said), STDERR_FILENO) >= 0);
        int rc = plan_to_file(bad[i].value ? 8 : 7, words, &f);
        assert_true(dup2(kept, STDERR_FILENO) >= 0);
        (void)close(kept);
        rewind(said);
        assert_non_null(fgets(text, sizeof text, said));
        assert_int_equal(rc, strcmp(bad[i].word, "--speed") == 0 ? TDM_EXIT_HELP : TDM_EXIT_USAGE);
        if (!strstr(text, bad[i].why)) fail_msg("%s", text);
        (void)fclose(said);
        (void)fclose(f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(too_few_requests_give_no_capacity),
                                       cmocka_unit_test(the_defaults_plan),
                                       cmocka_unit_test(policies_and_pools_have_their_curves),
                                       cmocka_unit_test(of_few_requests_p99_is_the_slowest),
                                       cmocka_unit_test(a_window_is_cut_and_starts_warm),
                                       cmocka_unit_test(a_window_of_nothing_is_refused),
                                       cmocka_unit_test(the_answer_says_by_how_much_plans_erred),
                                       cmocka_unit_test(beside_a_kept_profile_lies_how_plans_erred),
                                       cmocka_unit_test(another_clock_needs_one_of_the_profile),
                                       cmocka_unit_test(refusals_name_the_word_and_what_it_takes),
                                       cmocka_unit_test(unknown_words_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
