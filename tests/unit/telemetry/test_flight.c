/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the flight recorder keeps the newest records whole, a reader beside
   a writer never sees half of one, and no damaged file, and nothing that
   another put in its place, does more than be refused.
   Method: rings in memory, a writer thread, a child that is killed while
   it writes, and seeded damage to every byte of the header. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "appliance/base/rng.h"
#include "telemetry/flight/file.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const tdm_flight_sizes_t sizes = {.iteration_cnt = 64, .hop_cnt = 128, .api_cnt = 2};
static void *mem;
static uint64_t mem_sz;
static char dir[64], path[96];

static int setup(void **state) {
    (void)state;
    mem_sz = tdm_flight_footprint(&sizes);
    mem = aligned_alloc(TDM_CACHE_LINE, mem_sz);
    if (!mem) return 1;
    memset(mem, 0, mem_sz);
    tdm_flight_init(mem, &sizes, "1.2.3", "a model", 5, 1000);
    (void)snprintf(dir, sizeof dir, "/tmp/tandem-flight-XXXXXX");
    if (!mkdtemp(dir)) return 1;
    (void)snprintf(path, sizeof path, "%s/flight", dir);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    char last[128];
    (void)snprintf(last, sizeof last, "%s.last", path);
    (void)unlink(path);
    (void)unlink(last);
    (void)rmdir(dir);
    free(mem);
    return 0;
}

/* A record whose every word follows from its number. */
static tdm_flight_iteration_t numbered(uint64_t n) {
    tdm_flight_iteration_t r;
    uint64_t word[sizeof r / sizeof(uint64_t)];
    for (size_t i = 0; i < TDM_COUNT_OF(word); i++) word[i] = n * 1000 + i;
    memcpy(&r, word, sizeof r);
    return r;
}

static int is_numbered(const tdm_flight_iteration_t *r, uint64_t n) {
    tdm_flight_iteration_t want = numbered(n);
    return memcmp(r, &want, sizeof want) == 0;
}

static void the_newest_are_kept_and_the_oldest_overwritten(void **state) {
    (void)state;
    tdm_flight_ring_t ring = tdm_flight_writer(mem, 0);
    tdm_flight_iteration_t r;
    assert_int_equal(tdm_flight_get(mem, 0, 0, &r), 0);
    for (uint64_t n = 0; n < 200; n++) {
        r = numbered(n);
        tdm_flight_put(&ring, &r);
        assert_int_equal(tdm_flight_newest(mem, 0), n + 1);
        uint64_t oldest = tdm_flight_oldest(mem, 0);
        assert_int_equal(oldest, n < 64 ? 0 : n + 1 - 64);
        for (uint64_t k = 0; k <= n + 1; k++) {
            int is_there = tdm_flight_get(mem, 0, k, &r);
            assert_int_equal(is_there, k >= oldest && k <= n);
            if (is_there) assert_true(is_numbered(&r, k));
        }
    }
    assert_int_equal(tdm_flight_newest(mem, 1), 0);
}

static void rings_do_not_touch_each_other(void **state) {
    (void)state;
    tdm_flight_ring_t ring[3];
    for (uint32_t i = 0; i < 3; i++) ring[i] = tdm_flight_writer(mem, i);
    for (uint64_t n = 0; n < 300; n++) {
        tdm_flight_iteration_t r = numbered(n);
        tdm_flight_put(&ring[0], &r);
        for (uint16_t api = 0; api < 2; api++) {
            tdm_flight_hop_t h = {.at_ns = (int64_t)n, .api = api};
            tdm_flight_put(&ring[1 + api], &h);
        }
    }
    for (uint32_t i = 1; i < 3; i++) {
        tdm_flight_hop_t h;
        assert_int_equal(tdm_flight_newest(mem, i) - tdm_flight_oldest(mem, i), 128);
        for (uint64_t n = 172; n < 300; n++) {
            assert_true(tdm_flight_get(mem, i, n, &h));
            assert_int_equal(h.at_ns, n);
            assert_int_equal(h.api, i - 1);
        }
    }
    tdm_flight_put(NULL, NULL); /* no recorder: nothing */
}

static uint32_t stop;

static void *write_until_stopped(void *arg) {
    tdm_flight_ring_t *ring = arg;
    while (!tdm_load_relaxed(&stop)) {
        tdm_flight_iteration_t r = numbered(ring->next);
        tdm_flight_put(ring, &r);
    }
    return NULL;
}

static void a_reader_never_sees_half_a_record(void **state) {
    (void)state;
    tdm_flight_ring_t ring = tdm_flight_writer(mem, 0);
    pthread_t thread;
    stop = 0;
    assert_int_equal(pthread_create(&thread, NULL, write_until_stopped, &ring), 0);
    uint64_t read_cnt = 0, gone_cnt = 0;
    while (read_cnt < 20000 || tdm_flight_newest(mem, 0) < 20000) {
        uint64_t newest = tdm_flight_newest(mem, 0);
        for (uint64_t n = newest > 4 ? newest - 4 : 0; n < newest; n++) {
            tdm_flight_iteration_t r;
            if (!tdm_flight_get(mem, 0, n, &r)) {
                gone_cnt++;
                continue;
            }
            assert_true(is_numbered(&r, n));
            read_cnt++;
        }
    }
    tdm_store_relaxed(&stop, 1u);
    (void)pthread_join(thread, NULL);
    print_message("%llu read, %llu gone\n", (unsigned long long)read_cnt,
                  (unsigned long long)gone_cnt);
}

/* The writer of a file is killed at no particular moment. */
static void what_a_killed_writer_left_is_whole(void **state) {
    (void)state;
    tdm_flight_sizes_t big = {.iteration_cnt = 4096, .hop_cnt = 64, .api_cnt = 1};
    tdm_error_t err = {0};
    stop = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tdm_flight_file_t f;
        if (tdm_flight_create(&f, path, &big, "1.2.3", "m", 0, 0, &err) != TDM_OK) _exit(1);
        tdm_flight_ring_t ring = tdm_flight_writer(f.mem, 0);
        (void)write_until_stopped(&ring);
        _exit(0);
    }
    tdm_flight_file_t f;
    uint64_t newest = 0, there_cnt = 0;
    for (int i = 0; i < 6000 && newest <= big.iteration_cnt; i++) { /* once round the ring */
        (void)usleep(10000);
        if (tdm_flight_open(&f, path, "1.2.3", &err) != TDM_OK) continue;
        newest = tdm_flight_newest(f.mem, 0);
        tdm_flight_close(&f);
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(tdm_flight_open(&f, path, "1.2.3", &err), TDM_OK);
    newest = tdm_flight_newest(f.mem, 0);
    assert_true(newest > big.iteration_cnt);
    for (uint64_t n = tdm_flight_oldest(f.mem, 0); n < newest; n++) {
        tdm_flight_iteration_t r;
        if (!tdm_flight_get(f.mem, 0, n, &r)) continue;
        there_cnt++;
        assert_true(is_numbered(&r, n));
    }
    uint64_t room = TDM_MIN(newest, 4096u);
    assert_true(there_cnt >= room - 1); /* one may have been in the making */
    tdm_flight_close(&f);
    /* The next life keeps it beside its own. */
    char last[128];
    (void)snprintf(last, sizeof last, "%s.last", path);
    assert_int_equal(tdm_flight_create(&f, path, &big, "1.2.3", "m", 0, 0, &err), TDM_OK);
    assert_int_equal(tdm_flight_newest(f.mem, 0), 0);
    tdm_flight_file_t old;
    assert_int_equal(tdm_flight_open(&old, last, "1.2.3", &err), TDM_OK);
    assert_int_equal(tdm_flight_newest(old.mem, 0), newest);
    tdm_flight_close(&old);
    tdm_flight_close(&f);
}

static void a_file_has_one_writer(void **state) {
    (void)state;
    tdm_flight_file_t f, other;
    tdm_error_t err = {0};
    assert_int_equal(tdm_flight_create(&f, path, &sizes, "1", "m", 0, 0, &err), TDM_OK);
    assert_int_equal(tdm_flight_create(&other, path, &sizes, "1", "m", 0, 0, &err), TDM_ERR_FULL);
    assert_non_null(strstr(err.text, "another process"));
    tdm_flight_close(&f);
    assert_int_equal(tdm_flight_create(&other, path, &sizes, "1", "m", 0, 0, &err), TDM_OK);
    tdm_flight_close(&other);
    assert_int_equal(tdm_flight_create(&f, "/nonexistent/flight", &sizes, "1", "m", 0, 0, &err),
                     TDM_ERR_IO);
    assert_int_equal(tdm_flight_open(&f, "/nonexistent/flight", "1", &err), TDM_ERR_IO);
}

/* What somebody may have put where the recorder goes. */
typedef enum squat {
    SQUAT_OWN, /* what an earlier life left: no squat */
    SQUAT_LINK,
    SQUAT_DANGLING,
    SQUAT_PIPE,
    SQUAT_FOLDER,
    SQUAT_OTHERS,  /* of another user */
    SQUAT_WIDE,    /* others may write it */
    SQUAT_TWICE,   /* a second name of somebody's file */
    SQUAT_REPLACE, /* nothing, in a folder without the sticky bit */
    SQUAT_CNT
} squat_t;

static void squat_make(squat_t kind, const char *at, const char *beside) {
    tdm_flight_file_t f;
    tdm_error_t err = {0};
    assert_int_equal(chmod(dir, 01777), 0);
    if (kind != SQUAT_DANGLING && kind != SQUAT_REPLACE) {
        assert_int_equal(tdm_flight_create(&f, beside, &sizes, "1", "m", 0, 0, &err), TDM_OK);
        tdm_flight_close(&f);
    }
    if (kind == SQUAT_LINK || kind == SQUAT_DANGLING) assert_int_equal(symlink(beside, at), 0);
    if (kind == SQUAT_PIPE) assert_int_equal(mkfifo(at, 0600), 0);
    if (kind == SQUAT_FOLDER) assert_int_equal(mkdir(at, 0700), 0);
    if (kind == SQUAT_TWICE) assert_int_equal(link(beside, at), 0);
    if (kind == SQUAT_OWN || kind == SQUAT_OTHERS || kind == SQUAT_WIDE)
        assert_int_equal(rename(beside, at), 0);
    if (kind == SQUAT_OTHERS) assert_int_equal(chown(at, 65534, 65534), 0);
    if (kind == SQUAT_WIDE) assert_int_equal(chmod(at, 0660), 0);
    if (kind == SQUAT_REPLACE) assert_int_equal(chmod(dir, 0777), 0);
}

/* Each is refused by writer and reader, with a reason, and left as it is. */
static void a_squatter_is_refused(void **state) {
    (void)state;
    static const char *const told[SQUAT_CNT] = {
        [SQUAT_LINK] = "symbolic link", [SQUAT_DANGLING] = "symbolic link",
        [SQUAT_PIPE] = "a pipe",        [SQUAT_FOLDER] = "a folder",
        [SQUAT_OTHERS] = "user 65534",  [SQUAT_WIDE] = "mode 0660",
        [SQUAT_TWICE] = "2 names",      [SQUAT_REPLACE] = "not sticky"};
    char last[128], beside[128];
    (void)snprintf(last, sizeof last, "%s.last", path);
    (void)snprintf(beside, sizeof beside, "%s.beside", path);
    for (uint32_t kind = 0; kind < SQUAT_CNT; kind++) {
        if (kind == SQUAT_OTHERS && geteuid() != 0) continue;
        tdm_flight_file_t f;
        tdm_error_t err = {0};
        struct stat before = {0}, after = {0};
        squat_make((squat_t)kind, path, beside);
        (void)lstat(path, &before);
        tdm_status_t read = tdm_flight_open(&f, path, "1", &err);
        if (read == TDM_OK) tdm_flight_close(&f);
        print_message("%u: %s\n", kind, err.text);
        if (told[kind]) assert_non_null(strstr(err.text, told[kind]));
        assert_int_equal(read, told[kind] ? TDM_ERR_PERM : TDM_OK);
        tdm_status_t made = tdm_flight_create(&f, path, &sizes, "1", "m", 0, 0, &err);
        if (told[kind]) assert_non_null(strstr(err.text, told[kind]));
        assert_int_equal(made, told[kind] ? TDM_ERR_PERM : TDM_OK);
        tdm_flight_close(&f);
        (void)lstat(path, &after);
        if (told[kind]) {
            assert_true(before.st_ino == after.st_ino && before.st_mtime == after.st_mtime);
            assert_int_not_equal(access(last, F_OK), 0);
        }
        (void)unlink(path);
        (void)rmdir(path);
        (void)unlink(last);
        (void)unlink(beside);
    }
}

/* In a folder of one's own a copy may have any mode: who wrote there could
   have written anything. */
static void a_copy_at_home_is_read(void **state) {
    (void)state;
    tdm_flight_file_t f;
    tdm_error_t err = {0};
    assert_int_equal(tdm_flight_create(&f, path, &sizes, "1", "m", 0, 0, &err), TDM_OK);
    tdm_flight_close(&f);
    assert_int_equal(chmod(path, 0664), 0);
    assert_int_equal(tdm_flight_open(&f, path, "1", &err), TDM_OK);
    tdm_flight_close(&f);
}

static void another_version_is_refused(void **state) {
    (void)state;
    tdm_error_t err = {0};
    assert_int_equal(tdm_flight_check(mem, mem_sz, "1.2.3", &err), TDM_OK);
    assert_int_equal(tdm_flight_check(mem, mem_sz, "1.2.4", &err), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "1.2.3"));
    assert_int_equal(tdm_flight_check(mem, mem_sz - 1, "1.2.3", &err), TDM_ERR_INVAL);
    assert_int_equal(tdm_flight_check(mem, 16, "1.2.3", &err), TDM_ERR_INVAL);
}

/* Whatever the damage, a header that is accepted keeps every read inside
   the memory: the sanitizer watches. */
static void no_damage_leads_outside(void **state) {
    (void)state;
    const uint64_t seed = 20261130;
    tdm_rng_t rng = {seed};
    uint8_t *own = aligned_alloc(TDM_CACHE_LINE, mem_sz);
    assert_non_null(own);
    uint32_t refused_cnt = 0;
    for (int i = 0; i < 20000; i++) {
        memcpy(own, mem, mem_sz);
        uint32_t flips = 1 + tdm_rng_below(&rng, 4);
        for (uint32_t k = 0; k < flips; k++)
            own[tdm_rng_below(&rng, sizeof(tdm_flight_head_t))] = (uint8_t)tdm_rng_next(&rng);
        tdm_error_t err = {0};
        if (tdm_flight_check(own, mem_sz, "1.2.3", &err) != TDM_OK) {
            refused_cnt++;
            continue;
        }
        const tdm_flight_head_t *h = (const tdm_flight_head_t *)own;
        for (uint32_t r = 0; r < h->ring_cnt; r++) {
            tdm_flight_iteration_t record;
            (void)tdm_flight_oldest(own, r);
            for (uint64_t n = 0; n < 4; n++)
                (void)tdm_flight_get(own, r, tdm_rng_next(&rng), &record);
        }
    }
    assert_true(refused_cnt > 5000);
    free(own);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(the_newest_are_kept_and_the_oldest_overwritten),
        CASE(rings_do_not_touch_each_other),
        CASE(a_reader_never_sees_half_a_record),
        CASE(what_a_killed_writer_left_is_whole),
        CASE(a_file_has_one_writer),
        CASE(a_squatter_is_refused),
        CASE(a_copy_at_home_is_read),
        CASE(another_version_is_refused),
        CASE(no_damage_leads_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
