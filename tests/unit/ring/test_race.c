/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: rings, bells and pipes hold between threads and processes.
   Method: real threads with sums and order checked, sleepers woken by
   bells alone, a child process on shared memory.  Under the tsan preset
   the same program proves the absence of data races, unsuppressed. */
#include "appliance/base/arena.h"
#include "appliance/base/atomic.h"
#include "appliance/base/check.h"
#include "appliance/base/clock.h"
#include "appliance/ring/pipe.h"
#include "appliance/ring/poll.h"
#include "appliance/ring/ring.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PRODUCERS = 3, PER_PRODUCER = 20000 };

typedef struct producer {
    tdm_ring_t *ring;
    uint32_t idx;
} producer_t;

static void *produce(void *arg) {
    producer_t *p = arg;
    for (uint64_t i = 0; i < PER_PRODUCER;) {
        uint64_t v = ((uint64_t)p->idx << 32) | i;
        if (tdm_ring_push(p->ring, p->idx, &v))
            i++;
        else
            (void)usleep(10);
    }
    return NULL;
}

static void each_producer_keeps_its_order_and_the_sleeper_wakes(void **state) {
    (void)state;
    uint32_t asleep;
    tdm_doorbell_t bell;
    tdm_error_t err;
    void *mem[PRODUCERS];
    tdm_lane_t *lane[PRODUCERS];
    tdm_ring_t ring;
    assert_int_equal(tdm_doorbell_open(&bell, &asleep, &err), TDM_OK);
    for (int i = 0; i < PRODUCERS; i++) {
        mem[i] = aligned_alloc(TDM_CACHE_LINE, tdm_lane_footprint(64, 8));
        assert_int_equal(tdm_lane_init(mem[i], 64, 8, &lane[i]), TDM_OK);
    }
    tdm_ring_init(&ring, lane, PRODUCERS, &bell);
    pthread_t thread[PRODUCERS];
    producer_t producer[PRODUCERS];
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        producer[i] = (producer_t){&ring, i};
        assert_int_equal(pthread_create(&thread[i], NULL, produce, &producer[i]), 0);
    }
    tdm_poller_t poller;
    tdm_poller_init(&poller, TDM_POLL_ADAPTIVE, &bell, -1, tdm_clock_now_ns());
    poller.sleep_ns = poller.quiet_ns = 10 * TDM_NS_PER_S; /* only a bell can wake it in time */
    uint64_t next[PRODUCERS] = {0}, got = 0;
    while (got < (uint64_t)PRODUCERS * PER_PRODUCER) {
        uint64_t v;
        uint32_t work = 0;
        int64_t now = tdm_clock_now_ns();
        while (tdm_ring_pop(&ring, &v)) {
            assert_int_equal(v & 0xffffffff, next[v >> 32]++);
            work++;
        }
        got += work;
        if (!tdm_poller_may_sleep(&poller, work, now)) continue;
        if (tdm_ring_cnt(&ring))
            tdm_poller_stay(&poller);
        else
            tdm_poller_sleep(&poller, TDM_TIME_NEVER, now);
    }
    for (int i = 0; i < PRODUCERS; i++) {
        (void)pthread_join(thread[i], NULL);
        free(mem[i]);
    }
    tdm_doorbell_close(&bell);
}

static void *write_stream(void *arg) {
    tdm_pipe_t *p = arg;
    uint8_t bytes[100];
    for (uint32_t at = 0; at < 100000;) {
        uint32_t sz = 1 + at % 100;
        for (uint32_t i = 0; i < sz; i++) bytes[i] = (uint8_t)((at + i) * 31);
        if (tdm_pipe_write(p, bytes, sz, 1))
            at += sz;
        else
            (void)usleep(10);
    }
    return NULL;
}

static void a_pipe_holds_between_threads(void **state) {
    (void)state;
    uint8_t *buf = aligned_alloc(64, 1024);
    tdm_pipe_t p;
    assert_int_equal(tdm_pipe_init(&p, buf, 1024), TDM_OK);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_stream, &p), 0);
    uint32_t cursor = tdm_pipe_begin(), at = 0;
    while (at < 100000) {
        tdm_pipe_record_t rec;
        if (!tdm_pipe_peek(&p, &cursor, &rec)) {
            (void)usleep(10);
            continue;
        }
        for (uint32_t i = 0; i < rec.sz; i++)
            assert_int_equal(rec.bytes[i], (uint8_t)((at + i) * 31));
        at += rec.sz;
        tdm_pipe_release(&p, rec.sz);
    }
    (void)pthread_join(thread, NULL);
    free(buf);
}

static void a_lane_and_a_bell_hold_between_processes(void **state) {
    (void)state;
    tdm_arena_t a;
    tdm_error_t err = {0};
    size_t sz = tdm_lane_footprint(16, 8);
    assert_int_equal(tdm_arena_open(&a, TDM_ARENA_SHARED, sz + TDM_CACHE_LINE, &err), TDM_OK);
    uint32_t *asleep = tdm_arena_take(&a, sizeof *asleep, TDM_CACHE_LINE);
    void *mem = tdm_arena_take(&a, sz, TDM_CACHE_LINE);
    tdm_lane_t *lane;
    tdm_doorbell_t bell;
    assert_int_equal(tdm_doorbell_open(&bell, asleep, &err), TDM_OK);
    assert_int_equal(tdm_lane_init(mem, 16, 8, &lane), TDM_OK);
    pid_t child = fork();
    if (child == 0) {
        tdm_arena_t b;
        tdm_lane_t *far;
        tdm_doorbell_t ringer;
        if (tdm_arena_attach(&b, a.fd, &err) != TDM_OK) _exit(1);
        if (tdm_lane_attach(b.base + ((uint8_t *)mem - a.base), 8, &far) != TDM_OK) _exit(2);
        tdm_doorbell_attach(&ringer, (uint32_t *)(void *)b.base, bell.fd);
        for (uint64_t i = 0; i < 1000;) {
            if (tdm_lane_push(far, &i))
                i++;
            else
                (void)usleep(10);
            tdm_doorbell_ring(&ringer);
        }
        _exit(0);
    }
    uint64_t want = 0, v;
    while (want < 1000) {
        if (tdm_lane_pop(lane, &v)) {
            assert_int_equal(v, want++);
            continue;
        }
        tdm_doorbell_arm(&bell);
        if (tdm_lane_cnt(lane))
            tdm_doorbell_disarm(&bell);
        else
            assert_true(tdm_doorbell_sleep(&bell, -1, 10 * TDM_NS_PER_S));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    tdm_doorbell_close(&bell);
    tdm_arena_close(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_producer_keeps_its_order_and_the_sleeper_wakes),
        cmocka_unit_test(a_pipe_holds_between_threads),
        cmocka_unit_test(a_lane_and_a_bell_hold_between_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
