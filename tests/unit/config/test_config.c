/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a wrong configuration never starts anything and says why.
   Method: each kind of mistake, and a print/load round trip. */
#include "appliance/base/rng.h"
#include "appliance/config/config.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* load_text reads the text as a file, and once more from memory, without a
   zero at its end: the outcome is one. */
static tdm_status_t load_text(tdm_config_t *c, const char *text, size_t sz, tdm_error_t *err) {
    char path[] = "/tmp/tdm-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sz), (ssize_t)sz);
    (void)close(fd);
    static tdm_config_t parsed;
    tdm_error_t parse_err = {0};
    char *copy = malloc(sz ? sz : 1);
    assert_non_null(copy);
    memcpy(copy, text, sz);
    parsed = *c;
    tdm_status_t parse_st = tdm_config_parse(&parsed, copy, sz, path, &parse_err);
    free(copy);
    tdm_status_t st = tdm_config_load(c, path, err);
    (void)unlink(path);
    assert_int_equal(parse_st, st);
    assert_memory_equal(&parsed, c, sizeof *c);
    if (st != TDM_OK) assert_string_equal(parse_err.text, err->text);
    return st;
}

static void defaults_pass_their_own_check(void **state) {
    (void)state;
    tdm_config_t c;
    tdm_error_t err = {0};
    tdm_config_default(&c);
    assert_int_equal(tdm_config_check(&c, &err), TDM_OK);
    assert_string_equal(c.model_path, "dummy:tiny");
    assert_int_equal(tdm_config_is_number("sched.ring"), 1);
    assert_int_equal(tdm_config_is_number("sched.route"), 0);
    assert_int_equal(tdm_config_is_number("update.older"), 0);
    assert_int_equal(tdm_config_is_number("sched.ring "), -1);
    assert_int_equal(tdm_config_is_number("sched."), -1);
    assert_int_equal(tdm_config_is_number("ring"), -1);
    assert_int_equal(tdm_config_is_number(""), -1);
}

static void what_is_printed_loads_back(void **state) {
    (void)state;
    tdm_config_t a, b;
    tdm_error_t err = {0};
    tdm_config_default(&a);
    assert_int_equal(tdm_config_set(&a, "port.udp=9999", &err), TDM_OK);
    assert_int_equal(tdm_config_set(&a, "model.name=a \"quoted\" n\xc3\xa4me", &err), TDM_OK);
    assert_int_equal(tdm_config_set(&a, "sched.route=serial", &err), TDM_OK);
    char text[16384];
    size_t sz = tdm_config_print(&a, text, sizeof text);
    assert_true(sz < sizeof text);
    tdm_config_default(&b);
    assert_int_equal(load_text(&b, text, sz, &err), TDM_OK);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(tdm_config_print(&a, NULL, 0), sz);
    assert_true(tdm_config_help(NULL, 0) > 1000);
}

static void mistakes_are_named_and_nothing_is_applied(void **state) {
    (void)state;
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"[]", "object"},
        {"{\"port\": 1}", "port"},
        {"{\"port\": {\"udb\": 1}}", "port.udb"},
        {"{\"prot\": {\"udp\": 1}}", "prot.udp"},
        {"{\"port\": {\"udp\": \"4433\"}}", "port.udp"},
        {"{\"port\": {\"udp\": 4433.0}}", "port.udp"},
        {"{\"port\": {\"udp\": -1}}", "port.udp"},
        {"{\"port\": {\"udp\": 65536}}", "1..65535"},
        {"{\"port\": {\"udp\": 1, \"udp\": 2}}", "duplicate"},
        {"{\"sched\": {\"route\": \"fast\"}}", "fused|streams|serial"},
        {"{\"port\": {\"tap_name\": \"a-name-that-is-too-long\"}}", "port.tap_name"},
        {"{\"port\": {\"tap_name\": \"nul\\u0000byte\"}}", "line 1"},
        {"{\"port\": {\"mtu_bytes\": 1400, \"udp\": 0}}", "port.udp"},
        {"{\n\n  oops", "line 3"},
        {"", "line 1"},
    };
    tdm_config_t before, c;
    tdm_config_default(&before);
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        tdm_error_t err = {0};
        tdm_config_default(&c);
        assert_int_not_equal(load_text(&c, bad[i].text, strlen(bad[i].text), &err), TDM_OK);
        if (!strstr(err.text, bad[i].word)) fail_msg("case %zu says: %s", i, err.text);
        assert_memory_equal(&before, &c, sizeof c);
    }
    static const char *const set[] = {"port.udp",
                                      "udp=1",
                                      "port.udp=x",
                                      "port.udp=",
                                      "port.udp=-1",
                                      "port.udp=1x",
                                      "port.nope=1",
                                      "=",
                                      ".=",
                                      "sched.route=x",
                                      "port.udp=99999",
                                      "model.name=\xff",
                                      "model.path=cut\xc3",
                                      "model.name=\xed\xa0\x80",
                                      "state.dir=\xc0\xaf"};
    for (size_t i = 0; i < TDM_COUNT_OF(set); i++) {
        tdm_error_t err = {0};
        assert_int_not_equal(tdm_config_set(&c, set[i], &err), TDM_OK);
        assert_true(err.text[0] != 0);
        assert_memory_equal(&before, &c, sizeof c);
    }
    tdm_error_t err = {0};
    assert_int_equal(tdm_config_load(&c, "/nonexistent/tandem.json", &err), TDM_ERR_NOT_FOUND);
    c.door_reply_bytes = 65537;
    assert_int_equal(tdm_config_check(&c, &err), TDM_ERR_INVAL);
}

static void what_may_change_without_a_restart_is_told_from_what_may_not(void **state) {
    (void)state;
    tdm_config_t a, b;
    tdm_error_t err = {0};
    tdm_config_default(&a);
    b = a;
    assert_null(tdm_config_fixed(&a, &b));
    static const char *const live[] = {
        "sched.gap_ms=77",   "sched.policy=static", "class2.weight=50",        "class0.ttft_ms=9",
        "sched.evictions=0", "log.level=debug",     "sched.prefill_tokens=64", "update.older=1.2"};
    for (size_t i = 0; i < TDM_COUNT_OF(live); i++)
        assert_int_equal(tdm_config_set(&b, live[i], &err), TDM_OK);
    assert_null(tdm_config_fixed(&a, &b));
    static const char *const fixed[][2] = {{"sched.sequences=7", "sched.sequences"},
                                           {"model.name=other", "model.name"},
                                           {"exec.kv_dtype=bf16", "exec.kv_dtype"}};
    for (size_t i = 0; i < TDM_COUNT_OF(fixed); i++) {
        tdm_config_t c = b;
        assert_int_equal(tdm_config_set(&c, fixed[i][0], &err), TDM_OK);
        assert_string_equal(tdm_config_fixed(&a, &c), fixed[i][1]);
    }
    assert_true(tdm_config_is_live("class3.gap_ms") && !tdm_config_is_live("sched.depth"));
}

static void mutated_files_never_crash(void **state) {
    (void)state;
    char text[16384], cut[16384];
    tdm_config_t c;
    tdm_config_default(&c);
    size_t sz = tdm_config_print(&c, text, sizeof text);
    tdm_rng_t rng = {20261129};
    for (int i = 0; i < 300; i++) {
        memcpy(cut, text, sz);
        for (int k = 0; k < 3; k++)
            cut[tdm_rng_below(&rng, (uint32_t)sz)] = (char)tdm_rng_next(&rng);
        tdm_error_t err = {0};
        size_t part = i % 3 ? sz : tdm_rng_below(&rng, (uint32_t)sz);
        if (load_text(&c, cut, part, &err) != TDM_OK) assert_true(err.text[0] != 0);
        tdm_config_default(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_pass_their_own_check),
        cmocka_unit_test(what_is_printed_loads_back),
        cmocka_unit_test(mistakes_are_named_and_nothing_is_applied),
        cmocka_unit_test(what_may_change_without_a_restart_is_told_from_what_may_not),
        cmocka_unit_test(mutated_files_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
