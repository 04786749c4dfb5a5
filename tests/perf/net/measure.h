/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_PERF_NET_MEASURE_H
#define TDM_TESTS_PERF_NET_MEASURE_H

/* How these programs measure: variants take turns, five rounds each; a
   sample is thread CPU time, or cycles, of a stretch of work; one during
   which the kernel took the processor away is counted and left out. */

#include "appliance/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define MEASURE_ROUNDS 5u

static inline int64_t measure_cpu_ns(void) {
    struct timespec ts;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * TDM_NS_PER_S + ts.tv_nsec;
}

/* measure_switches: how often the kernel took the processor away. */
static inline int64_t measure_switches(void) {
    struct rusage u;
    (void)getrusage(RUSAGE_THREAD, &u);
    return u.ru_nivcsw;
}

static inline int measure_ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* measure_p sorts and gives the value below which p percent of cnt lie. */
static inline int64_t measure_p(int64_t *v, uint32_t cnt, double p) {
    if (cnt == 0) return 0;
    qsort(v, cnt, sizeof *v, measure_ascending);
    uint32_t at = (uint32_t)((double)cnt * p / 100.0);
    return v[at < cnt ? at : cnt - 1];
}

#endif /* TDM_TESTS_PERF_NET_MEASURE_H */
