/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a log means does not depend on how it is put in order.  Method:
   random logs, among them all on one SM, all at one time and starts that are
   years apart, against a count over the intervals between all starts and
   ends. */
#include "kernels/plan/spans.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "appliance/base/rng.h"

#define SPANS 160u
#define BASE  UINT64_C(1700000000000000000)

static tdm_pod_span_t log_of[SPANS];

static int by_time(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* both gives the time in which both kinds run on sm, or anywhere (sm
   UINT32_MAX). */
static uint64_t both(uint32_t cnt, uint32_t sm) {
    uint64_t edge[2 * SPANS], sum = 0;
    uint32_t edges = 0;
    for (uint32_t i = 0; i < cnt; i++) {
        edge[edges++] = log_of[i].start_ns;
        edge[edges++] = log_of[i].end_ns;
    }
    qsort(edge, edges, sizeof *edge, by_time);
    for (uint32_t e = 0; e + 1 < edges; e++) {
        uint32_t kinds = 0;
        for (uint32_t i = 0; i < cnt; i++) {
            const tdm_pod_span_t *s = &log_of[i];
            if (sm != UINT32_MAX && s->sm != sm) continue;
            if (s->start_ns <= edge[e] && s->end_ns >= edge[e + 1]) kinds |= 1u << s->kind;
        }
        if (kinds == 3) sum += edge[e + 1] - edge[e];
    }
    return sum;
}

static void try_log(uint32_t cnt, uint32_t sms, uint64_t width, uint32_t kinds, tdm_rng_t *rng) {
    uint64_t colocated = 0;
    tdm_pod_counters_t c;
    for (uint32_t i = 0; i < cnt; i++) {
        log_of[i] = (tdm_pod_span_t){.start_ns = BASE + (width ? tdm_rng_next(rng) % width : 0),
                                     .clock_cnt = 1000,
                                     .sm = tdm_rng_below(rng, sms),
                                     .kind = kinds == 2 ? tdm_rng_below(rng, 2) : kinds,
                                     .warp_cnt = 1};
        log_of[i].end_ns = log_of[i].start_ns + 1 + tdm_rng_below(rng, 20000);
    }
    for (uint32_t sm = 0; sm < sms; sm++) colocated += both(cnt, sm);
    uint64_t overlap = both(cnt, UINT32_MAX);
    tdm_pod_spans_fold(log_of, cnt, 2, 132, &c);
    assert_true(c.colocated_ns == colocated);
    assert_true(c.overlap_ns == overlap);
    assert_int_equal(c.span_cnt, cnt);
    for (uint32_t i = 0, used = 0; i < cnt; i++) {
        used += i == 0 || log_of[i].sm != log_of[i - 1].sm;
        if (i + 1 == cnt && kinds != 2) assert_int_equal(c.sm_used, used); /* left by SM */
    }
}

static void any_order_means_the_same(void **state) {
    (void)state;
    const uint64_t width[] = {0, 1, 50, 100000, UINT64_C(1) << 40, UINT64_C(1) << 60};
    const uint32_t sms[] = {1, 2, 40, 132};
    tdm_rng_t rng = {11};
    for (uint32_t cnt = 1; cnt <= SPANS; cnt += 1 + cnt / 3)
        for (size_t w = 0; w < TDM_COUNT_OF(width); w++)
            for (size_t m = 0; m < TDM_COUNT_OF(sms); m++)
                for (uint32_t kinds = 0; kinds <= 2; kinds++)
                    try_log(cnt, sms[m], width[w], kinds, &rng);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_order_means_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
