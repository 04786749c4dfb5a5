/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: processors are named as taskset takes them, and a control group's
   limit is found in both versions, whoever above set it.
   Method: tables; a folder made like /sys/fs/cgroup. */

#include "appliance/sizing/cpus.h"
#include "tests/unit/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];

static void put(const char *name, const char *text) {
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    for (char *at = path + strlen(dir) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = 0;
        (void)mkdir(path, 0700);
        *at = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int fresh(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/tdm-cpus-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int gone(void **state) {
    (void)state;
    return shell("rm -rf %s", dir);
}

static uint32_t limit(const char *groups) {
    char path[128];
    put("groups", groups);
    (void)snprintf(path, sizeof path, "%s/groups", dir);
    return tdm_cpus_limit(path, dir);
}

static void lists_are_read_in_order(void **state) {
    (void)state;
    tdm_cpus_t c;
    tdm_error_t err;
    assert_int_equal(tdm_cpus_parse("", &c, &err), TDM_OK);
    assert_int_equal(c.cnt, 0);
    assert_int_equal(tdm_cpus_parse("7", &c, &err), TDM_OK);
    assert_int_equal(c.cnt, 1);
    assert_int_equal(c.cpu[0], 7);
    assert_int_equal(tdm_cpus_parse("9,2-4,0", &c, &err), TDM_OK);
    static const uint16_t want[] = {9, 2, 3, 4, 0};
    assert_int_equal(c.cnt, 5);
    assert_memory_equal(c.cpu, want, sizeof want);
    assert_int_equal(tdm_cpus_parse("0-1023", &c, &err), TDM_OK);
    assert_int_equal(c.cnt, 1024);
}

static void what_is_no_list_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        ",",   "1,",  ",1",  "1,,2",  "a",  "-1",    "1-", "4-2",    "1024",
        "0x2", "1 2", "1,1", "2,1-3", " 1", "1-2-3", "+1", "0-9999", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tdm_cpus_t c = {.cnt = 5};
        tdm_error_t err = {0};
        assert_int_equal(tdm_cpus_parse(bad[i], &c, &err), TDM_ERR_INVAL);
        assert_non_null(strstr(err.text, "tile.cpus"));
        assert_int_equal(c.cnt, 0);
    }
}

static void no_group_is_no_limit(void **state) {
    (void)state;
    assert_int_equal(tdm_cpus_limit("/nowhere/at/all", dir), 0);
    assert_int_equal(limit(""), 0);
    assert_int_equal(limit("nonsense\n0::\n"), 0);
    assert_int_equal(limit("0::/a/b\n"), 0); /* without files */
}

static void version_2_takes_the_least_of_a_path(void **state) {
    (void)state;
    put("a/b/cpu.max", "max 100000\n");
    assert_int_equal(limit("0::/a/b\n"), 0);
    put("a/cpu.max", "250000 100000\n");
    assert_int_equal(limit("0::/a/b\n"), 3); /* two and a half */
    put("a/b/cpu.max", "100000 100000\n");
    assert_int_equal(limit("0::/a/b\n"), 1);
    assert_int_equal(limit("0::/a\n"), 3);
    put("a/b/cpu.max", "1000 100000\n");
    assert_int_equal(limit("0::/a/b\n"), 1); /* never none */
    put("cpu.max", "50000 100000\n");        /* a container sees its own group as the root */
    assert_int_equal(limit("0::/\n"), 1);
}

static void version_1_is_read_where_the_cpu_controller_is(void **state) {
    (void)state;
    put("cpu,cpuacct/x/cpu.cfs_quota_us", "400000\n");
    put("cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
    put("cpuset/x/cpu.cfs_quota_us", "100000\n");
    put("cpuset/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(limit("4:memory:/x\n3:cpuset:/x\n2:cpu,cpuacct:/x\n0::/\n"), 4);
    put("cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(limit("3:cpuset:/x\n2:cpu,cpuacct:/x\n"), 0);
    put("cpu,cpuacct/x/cpu.cfs_quota_us", "100000\n");
    put("cpu,cpuacct/x/cpu.cfs_period_us", "0\n");
    assert_int_equal(limit("2:cpu,cpuacct:/x\n"), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh, gone)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read_in_order),
        cmocka_unit_test(what_is_no_list_is_refused),
        TEST(no_group_is_no_limit),
        TEST(version_2_takes_the_least_of_a_path),
        TEST(version_1_is_read_where_the_cpu_controller_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
