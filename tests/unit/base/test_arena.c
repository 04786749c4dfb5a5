/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an arena gives what it was asked for or says why not.
   Method: every kind; shared ones through their descriptor; more
   hugepages than the machine has. */
#include "appliance/base/arena.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void plain_memory_is_zeroed_aligned_and_bounded(void **state) {
    (void)state;
    tdm_arena_t a;
    tdm_error_t err = {0};
    assert_int_equal(tdm_arena_open(&a, TDM_ARENA_PLAIN, 10000, &err), TDM_OK);
    assert_int_equal(a.page_sz, 4096);
    uint8_t *p = tdm_arena_take(&a, 100, 64);
    uint8_t *q = tdm_arena_take(&a, 1, 4096);
    assert_non_null(p);
    assert_int_equal((uintptr_t)q % 4096, 0);
    for (int i = 0; i < 100; i++) assert_int_equal(p[i], 0);
    assert_null(tdm_arena_take(&a, UINT64_MAX, 8));
    assert_null(tdm_arena_take(&a, a.sz, 8));
    assert_non_null(tdm_arena_take(&a, a.sz - a.used, 1));
    tdm_arena_close(&a);
    tdm_arena_close(&a);
}

static void shared_memory_is_seen_through_its_descriptor(void **state) {
    (void)state;
    tdm_arena_t a, b;
    tdm_error_t err = {0};
    assert_int_equal(tdm_arena_open(&a, TDM_ARENA_SHARED, 1 << 16, &err), TDM_OK);
    char *p = tdm_arena_take(&a, 16, 64);
    tdm_arena_seal(&a);
    strcpy(p, "hello");
    assert_int_equal(tdm_arena_attach(&b, a.fd, &err), TDM_OK);
    assert_int_equal(b.sz, a.sz);
    assert_string_equal((char *)b.base, "hello");
    assert_int_not_equal(ftruncate(a.fd, 0), 0); /* sealed: nobody can pull it away */
    tdm_arena_close(&b);
    tdm_arena_close(&a);
    assert_int_equal(tdm_arena_attach(&b, -1, &err), TDM_ERR_INVAL);
}

static void too_many_hugepages_are_refused_in_one_line(void **state) {
    (void)state;
    tdm_arena_t a;
    tdm_error_t err = {0};
    assert_int_equal(tdm_arena_open(&a, TDM_ARENA_HUGE, UINT64_C(1) << 45, &err), TDM_ERR_NOMEM);
    assert_non_null(strstr(err.text, "have "));
    assert_non_null(strstr(err.text, "need "));
    assert_non_null(strstr(err.text, "how: "));
    assert_int_equal(tdm_arena_open(&a, TDM_ARENA_SHARED_HUGE, UINT64_C(1) << 45, &err),
                     TDM_ERR_NOMEM);
    assert_int_equal(tdm_arena_open(&a, TDM_ARENA_PLAIN, 0, &err), TDM_ERR_INVAL);
    assert_int_equal(tdm_arena_open(&a, TDM_ARENA_PLAIN, UINT64_MAX, &err), TDM_ERR_INVAL);
}

/* huge_kib: what this process has of hugepages, whoever takes some beside it. */
static uint64_t huge_kib(void) {
    unsigned long long kib = UINT64_MAX;
    char line[128];
    FILE *f = fopen("/proc/self/status", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) (void)sscanf(line, "HugetlbPages: %llu kB", &kib);
    (void)fclose(f);
    return kib;
}

static void hugepages_are_real_where_the_pool_has_some(void **state) {
    (void)state;
    uint64_t page, total, avail;
    tdm_hugepages_read(&page, &total, &avail);
    if (avail < 1) skip();
    const tdm_arena_kind_t kind[] = {TDM_ARENA_HUGE, TDM_ARENA_SHARED_HUGE};
    for (int i = 0; i < 2; i++) {
        tdm_arena_t a;
        tdm_error_t err = {0};
        assert_int_equal(tdm_arena_open(&a, kind[i], 100, &err), TDM_OK);
        assert_int_equal(a.page_sz, page);
        memset(tdm_arena_take(&a, 100, 64), 1, 100);
        assert_int_equal(huge_kib(), page / 1024);
        int fd = a.fd;
        tdm_arena_close(&a);
        assert_int_equal(huge_kib(), 0);
        assert_int_equal(fcntl(fd, F_GETFD), -1); /* an open one would hold the page */
    }
}

/* Seen from a child: what it does not inherit can be neither read nor made
   read-only for its parent. */
static void private_memory_is_not_shared_with_a_fork(void **state) {
    (void)state;
    const tdm_arena_kind_t kind[] = {TDM_ARENA_PLAIN, TDM_ARENA_SHARED};
    for (int i = 0; i < 2; i++) {
        tdm_arena_t a;
        tdm_error_t err = {0};
        assert_int_equal(tdm_arena_open(&a, kind[i], 1 << 16, &err), TDM_OK);
        a.base[0] = 1;
        pid_t pid = fork();
        if (pid == 0) _exit(msync(a.base, 4096, MS_ASYNC) == 0);
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), kind[i] == TDM_ARENA_SHARED);
        tdm_arena_close(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_memory_is_zeroed_aligned_and_bounded),
        cmocka_unit_test(shared_memory_is_seen_through_its_descriptor),
        cmocka_unit_test(too_many_hugepages_are_refused_in_one_line),
        cmocka_unit_test(hugepages_are_real_where_the_pool_has_some),
        cmocka_unit_test(private_memory_is_not_shared_with_a_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
