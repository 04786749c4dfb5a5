/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: explain says in words what the record says in numbers, for every
   way an iteration can end; traces are JSON that the viewers' formats
   allow, with every record in them once.
   Method: hand-made records, every reason of its list; jansson reads the
   traces back and they are counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "appliance/abi/event.h"
#include "appliance/abi/reasons.h"
#include "telemetry/flight/explain.h"
#include "telemetry/flight/recent.h"
#include "telemetry/flight/trace.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define MS   INT64_C(1000000)
#define WALL (INT64_C(1790000000) * 1000 * MS) /* 2026-09-21 14:13:20 UTC */

static const tdm_flight_sizes_t sizes = {.iteration_cnt = 64, .hop_cnt = 64, .api_cnt = 1};
static void *mem;
static tdm_flight_ring_t iterations, hops;
static char text[4096];

static int setup(void **state) {
    (void)state;
    mem = aligned_alloc(TDM_CACHE_LINE, tdm_flight_footprint(&sizes));
    if (!mem) return 1;
    memset(mem, 0, tdm_flight_footprint(&sizes));
    tdm_flight_init(mem, &sizes, "1", "a \"model\"\n", 7, WALL);
    iterations = tdm_flight_writer(mem, 0);
    hops = tdm_flight_writer(mem, 1);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    free(mem);
    return 0;
}

/* A fused iteration within its limit. */
static tdm_flight_iteration_t fused(void) {
    return (tdm_flight_iteration_t){.iteration = 41,
                                    .epoch = 2,
                                    .planned_ns = 99 * MS,
                                    .start_ns = 100 * MS,
                                    .end_ns = 108 * MS,
                                    .limit_ns = 12 * MS,
                                    .predicted_ns = 10 * MS,
                                    .profile_ns = 9 * MS,
                                    .attention_ns = 6 * MS,
                                    .sample_ns = 1 * MS,
                                    .vcta_planned = {120, 40},
                                    .vcta_executed = {120, 40},
                                    .vcta_ns = {30 * MS, 10 * MS},
                                    .colocated_ns = 20 * MS,
                                    .kv_cnt = 4096,
                                    .quantile_ppm = 1200000,
                                    .split_cnt = 12,
                                    .merge_cnt = 4,
                                    .sm_cnt = 8,
                                    .tile_row = 64,
                                    .tile_key = 32,
                                    .prefill_cnt = 192,
                                    .decode_cnt = 8,
                                    .slice_cnt = 3,
                                    .running_cnt = 11,
                                    .waiting_cnt = 5,
                                    .page_free_cnt = 77,
                                    .route = TDM_ROUTE_FUSED,
                                    .ran = TDM_ROUTE_FUSED,
                                    .cap = TDM_CAP_no_work,
                                    .limit_class = 0};
}

static void explain(const tdm_flight_iteration_t *r) {
    size_t sz = tdm_explain(r, WALL, text, sizeof text);
    assert_true(sz < sizeof text);
    assert_int_equal(strlen(text), sz);
}

static void says(const char *what) {
    if (!strstr(text, what)) fail_msg("not said: %s\n%s", what, text);
}

static void says_not(const char *what) {
    if (strstr(text, what)) fail_msg("said: %s\n%s", what, text);
}

static void a_fused_iteration_is_told(void **state) {
    (void)state;
    tdm_flight_iteration_t r = fused();
    explain(&r);
    print_message("%s", text);
    says("iteration 41 of life 2, 2026-09-21 14:13:20.100000 UTC: fused, 8.000 ms");
    says("8 decodes over 4096 KV tokens, 192 prefill tokens in 3 slices");
    says("limit       12.000 ms, the gap promised to class interactive");
    says("up to 1.200 times their prediction (the tracked quantile), so 10.000 ms may be planned");
    says("prefill     ended by: no prompt was waiting (no_work)");
    says("fused: prefill and decode shared one attention launch per layer");
    says("120 prefill and 40 decode planned, all executed, 3.00 prefill per decode; prefill tiles "
         "of 64 rows x 32 keys; 12 splits");
    says(
        "predicted 10.000 ms, took 0.80 times that, by the profile alone 9.000 ms; attention 75 %");
    says_not("captured graph");
    r.miss_us = 870;
    explain(&r);
    says("no captured graph fitted: queued in 870 us");
    says("both kinds at once for 50 % of their time");
    says(
        "predicted 10.000 ms, took 0.80 times that, by the profile alone 9.000 ms; attention 75 %");
    says("within its limit, 0 of 8 decodes came later than promised");
    says_not("instead of");
    says_not("MHz");
}

static void one_cut_by_the_cap_names_promise_and_quantile(void **state) {
    (void)state;
    tdm_flight_iteration_t r = fused();
    r.cap = TDM_CAP_time_limit;
    r.limit_class = 2;
    r.end_ns = r.start_ns + 15 * MS;
    r.over_cnt = 8;
    r.flags = TDM_FLIGHT_FORCED | TDM_FLIGHT_OUTSIDE;
    r.clock_mhz = 1980;
    r.energy_uj = 2500000;
    explain(&r);
    says("promised to class batch");
    says("ended by: the iteration's time limit (time_limit); it went over the limit");
    says("outside the measured profile");
    says("3.000 ms over its limit, 8 of 8 decodes");
    says("1980 MHz, 2.500 J");
}

static void every_fallback_is_told_in_its_own_words(void **state) {
    (void)state;
    uint32_t cnt = tdm_reason_cnt(TDM_GROUP_FALLBACK);
    for (uint32_t i = 0; i < cnt; i++) {
        tdm_reason_t reason = (tdm_reason_t)(tdm_reason_first(TDM_GROUP_FALLBACK) + i);
        tdm_flight_iteration_t r = fused();
        r.ran = i % 2 ? TDM_ROUTE_SERIAL : TDM_ROUTE_STREAMS;
        r.fallback = (uint16_t)reason;
        explain(&r);
        char want[256];
        (void)snprintf(want, sizeof want, "%s instead of fused: %s (%s)",
                       i % 2 ? "serial" : "streams", tdm_reason_text(reason),
                       tdm_reason_name(reason));
        says(want);
    }
}

static void every_cap_is_told_in_its_own_words(void **state) {
    (void)state;
    for (uint32_t i = 0; i < tdm_reason_cnt(TDM_GROUP_CAP); i++) {
        tdm_reason_t reason = (tdm_reason_t)(tdm_reason_first(TDM_GROUP_CAP) + i);
        tdm_flight_iteration_t r = fused();
        r.cap = (uint16_t)reason;
        explain(&r);
        says(tdm_reason_text(reason));
        says(tdm_reason_name(reason));
    }
}

static void one_kind_a_lost_one_and_a_mismatch_are_told(void **state) {
    (void)state;
    tdm_flight_iteration_t r = fused();
    r.prefill_cnt = 0;
    r.ran = TDM_ROUTE_DECODE_ONLY;
    explain(&r);
    says("decode_only, 8.000 ms");
    says("one kind of work only");
    r = fused();
    r.decode_cnt = 0;
    r.limit_class = TDM_SLO_CLASS_MAX;
    explain(&r);
    says("the bound of an iteration without decodes");
    says_not("quantile");
    r = fused();
    r.vcta_executed[0] = 119;
    explain(&r);
    says("119 and 40 executed: a fault");
    r = fused();
    r.start_ns = r.end_ns = 0;
    r.flags = TDM_FLIGHT_LOST;
    explain(&r);
    says("planned fused, lost: the executor ended before it did");
    says_not("verdict");
}

static void nonsense_is_printed_as_numbers_and_bounds_hold(void **state) {
    (void)state;
    tdm_flight_iteration_t r;
    memset(&r, 0xff, sizeof r);
    for (uint32_t flags = 0; flags < 8; flags++) {
        r.flags = flags;
        size_t sz = tdm_explain(&r, INT64_MAX / 2, text, sizeof text);
        for (size_t cap = 0; cap < 40; cap++) {
            char *own = malloc(cap ? cap : 1);
            assert_non_null(own);
            assert_int_equal(tdm_explain(&r, INT64_MAX / 2, own, cap), sz);
            if (cap) assert_true(strlen(own) < cap);
            free(own);
        }
    }
    says("reason 65535");
}

/* --- which one -------------------------------------------------------- */

static void ten_iterations(void) {
    for (uint32_t i = 1; i <= 10; i++) {
        tdm_flight_iteration_t r = fused();
        r.iteration = i;
        r.start_ns = (int64_t)i * 100 * MS;
        r.planned_ns = r.start_ns - MS;
        r.end_ns = r.start_ns + (i == 4 ? 50 : (int64_t)i) * MS;
        if (i == 6 || i == 7) {
            r.ran = TDM_ROUTE_SERIAL;
            r.fallback = TDM_FALLBACK_operator;
        }
        if (i == 9) {
            r.flags = TDM_FLIGHT_LOST;
            r.start_ns = r.end_ns = 0;
        }
        tdm_flight_put(&iterations, &r);
    }
}

static void the_iteration_of_a_moment_is_found(void **state) {
    (void)state;
    tdm_flight_iteration_t r;
    assert_int_equal(tdm_explain_find(mem, 0, &r), 0);
    ten_iterations();
    assert_int_equal(tdm_explain_find(mem, 0, &r), 1);
    assert_int_equal(r.iteration, 10);
    assert_int_equal(tdm_explain_find(mem, 301 * MS, &r), 1);
    assert_int_equal(r.iteration, 3);
    assert_int_equal(tdm_explain_find(mem, 399 * MS, &r), 1);
    assert_int_equal(r.iteration, 3);
    assert_int_equal(tdm_explain_find(mem, 50 * MS, &r), 0);
    assert_int_equal(tdm_explain_number(mem, 5, &r), 1);
    assert_int_equal(r.iteration, 5);
    assert_int_equal(tdm_explain_number(mem, 11, &r), 0);
    assert_int_equal(tdm_explain_slowest(mem, 0, &r), 1);
    assert_int_equal(r.iteration, 4);
    assert_int_equal(tdm_explain_slowest(mem, TDM_FALLBACK_operator, &r), 1);
    assert_int_equal(r.iteration, 7);
    assert_int_equal(tdm_explain_slowest(mem, TDM_FALLBACK_dtype, &r), 0);
}

/* --- traces ----------------------------------------------------------- */

static void hop(uint32_t slot, tdm_flight_hop_kind_t kind, int64_t at_ns, uint16_t finish,
                uint16_t reason) {
    tdm_flight_hop_t h = {.at_ns = at_ns,
                          .handle = {.slot = slot, .generation = 3},
                          .kind = (uint16_t)kind,
                          .finish = finish,
                          .reason = reason,
                          .prompt_cnt = 20,
                          .output_cnt = kind >= TDM_HOP_LAST ? 5 : 0};
    tdm_flight_put(&hops, &h);
}

/* One that was served, one refused, one still open. */
static void three_requests(void) {
    hop(0, TDM_HOP_ARRIVED, 10 * MS, 0, 0);
    hop(0, TDM_HOP_SUBMITTED, 11 * MS, 0, 0);
    hop(0, TDM_HOP_ACCEPTED, 12 * MS, 0, 0);
    hop(1, TDM_HOP_ARRIVED, 12 * MS, 0, 0);
    hop(1, TDM_HOP_SUBMITTED, 13 * MS, 0, 0);
    hop(1, TDM_HOP_REFUSED, 14 * MS, 0, TDM_REFUSE_kv_full);
    hop(0, TDM_HOP_STARTED, 15 * MS, 0, 0);
    hop(0, TDM_HOP_FIRST, 20 * MS, 0, 0);
    hop(2, TDM_HOP_ARRIVED, 21 * MS, 0, 0);
    hop(0, TDM_HOP_LAST, 30 * MS, 0, 0);
    hop(0, TDM_HOP_ENDED, 31 * MS, TDM_FINISH_LENGTH, 0);
}

typedef tdm_status_t trace_fn(const void *mem, const tdm_trace_span_t *span, FILE *f);

static json_t *trace(trace_fn *write, int64_t from_ns, int64_t to_ns) {
    char *buf = NULL;
    size_t sz = 0;
    FILE *f = open_memstream(&buf, &sz);
    assert_non_null(f);
    tdm_trace_span_t span = {from_ns, to_ns};
    assert_int_equal(write(mem, &span, f), TDM_OK);
    assert_int_equal(fclose(f), 0);
    json_error_t e;
    json_t *root = json_loads(buf, JSON_REJECT_DUPLICATES, &e);
    if (!root) fail_msg("line %d: %s\n%s", e.line, e.text, buf);
    free(buf);
    return root;
}

static const char *str(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static uint32_t events(const json_t *root, const char *ph, const char *name) {
    uint32_t cnt = 0;
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e) {
        assert_true(json_is_string(json_object_get(e, "ph")));
        assert_true(json_is_integer(json_object_get(e, "pid")));
        assert_true(strcmp(str(e, "ph"), "M") == 0 || json_is_number(json_object_get(e, "ts")));
        if (strcmp(str(e, "ph"), ph) == 0 && (!name || strcmp(str(e, "name"), name) == 0)) cnt++;
    }
    return cnt;
}

static void a_chrome_trace_has_every_record_once(void **state) {
    (void)state;
    ten_iterations();
    three_requests();
    json_t *root = trace(tdm_trace_chrome, 0, INT64_MAX);
    assert_int_equal(events(root, "X", NULL), 9);
    assert_int_equal(events(root, "X", "serial"), 2);
    assert_int_equal(events(root, "i", "lost"), 1);
    assert_int_equal(events(root, "C", NULL), 18);
    assert_int_equal(events(root, "b", NULL), events(root, "e", NULL));
    assert_int_equal(events(root, "b", "request"), 3);
    assert_int_equal(events(root, "b", "ingest"), 2);
    assert_int_equal(events(root, "b", "queue"), 1);
    assert_int_equal(events(root, "b", "prefill"), 1);
    assert_int_equal(events(root, "b", "decode"), 1);
    assert_string_equal(str(json_object_get(root, "otherData"), "model"), "a \"model\"\n");
    json_decref(root);
    root = trace(tdm_trace_chrome, 250 * MS, 450 * MS);
    assert_int_equal(events(root, "X", NULL), 2); /* 3 and 4: 2 ended, 5 was planned later */
    assert_int_equal(events(root, "b", NULL), 0);
    json_decref(root);
}

static uint32_t spans(const json_t *list, const char *name) {
    uint32_t cnt = 0;
    size_t i, k;
    json_t *s, *other;
    json_array_foreach(list, i, s) {
        assert_int_equal(strlen(str(s, "traceId")), 32);
        assert_int_equal(strlen(str(s, "spanId")), 16);
        assert_true(strtoll(str(s, "startTimeUnixNano"), NULL, 10) >= WALL);
        assert_true(strtoll(str(s, "endTimeUnixNano"), NULL, 10) >=
                    strtoll(str(s, "startTimeUnixNano"), NULL, 10));
        int has_parent = json_object_get(s, "parentSpanId") == NULL;
        json_array_foreach(list, k, other) {
            if (k != i) assert_string_not_equal(str(s, "spanId"), str(other, "spanId"));
            if (strcmp(str(s, "parentSpanId"), str(other, "spanId")) == 0) has_parent = 1;
        }
        assert_true(has_parent);
        if (!name || strcmp(str(s, "name"), name) == 0) cnt++;
    }
    return cnt;
}

static void an_otlp_trace_has_every_record_once(void **state) {
    (void)state;
    ten_iterations();
    three_requests();
    json_t *root = trace(tdm_trace_otlp, 0, INT64_MAX);
    const json_t *resource = json_array_get(json_object_get(root, "resourceSpans"), 0);
    const json_t *scope = json_array_get(json_object_get(resource, "scopeSpans"), 0);
    const json_t *list = json_object_get(scope, "spans");
    assert_int_equal(spans(list, "iteration"), 10);
    assert_int_equal(spans(list, "request"), 3);
    assert_int_equal(spans(list, "queue"), 1);
    assert_int_equal(spans(list, NULL), 10 + 3 + 2 + 1 + 1 + 1);
    json_decref(root);
}

static void an_empty_recorder_is_an_empty_trace(void **state) {
    (void)state;
    json_t *root = trace(tdm_trace_chrome, 0, INT64_MAX);
    assert_int_equal(events(root, "X", NULL), 0);
    json_decref(root);
    json_decref(trace(tdm_trace_otlp, 0, INT64_MAX));
}

/* --- the newest, for consoles ------------------------------------------- */

static json_t *recent(uint64_t from, uint32_t max, uint64_t *next) {
    char *buf = NULL;
    size_t sz = 0;
    FILE *f = open_memstream(&buf, &sz);
    assert_non_null(f);
    *next = tdm_recent_iterations(mem, from, max, f);
    assert_int_equal(fclose(f), 0);
    assert_null(strchr(buf, '\n'));
    json_t *root = json_loads(buf, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_is_array(root));
    free(buf);
    return root;
}

static void the_lane_goes_on_where_it_was(void **state) {
    (void)state;
    uint64_t next;
    json_t *root = recent(0, 100, &next);
    assert_int_equal(json_array_size(root), 0);
    assert_int_equal(next, 0);
    json_decref(root);
    ten_iterations();
    root = recent(next, 100, &next);
    assert_int_equal(json_array_size(root), 10);
    assert_int_equal(next, 10);
    assert_string_equal(str(json_array_get(root, 5), "path"), "serial");
    assert_string_equal(str(json_array_get(root, 5), "fallback"), "operator");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(root, 8), "lost")), 1);
    assert_true(json_real_value(json_object_get(json_array_get(root, 3), "ms")) == 50.0);
    assert_true(json_real_value(json_object_get(json_array_get(root, 3), "at_s")) >
                (double)(WALL / (1000 * MS))); /* of the wall's clock, as --at takes it */
    json_decref(root);
    root = recent(next, 100, &next);
    assert_int_equal(json_array_size(root), 0);
    json_decref(root);
    root = recent(0, 3, &next); /* the newest of them */
    assert_int_equal(json_array_size(root), 3);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(root, 0), "n")), 7);
    json_decref(root);
    root = recent(1000, 3, &next); /* a number of another life: this one from its newest on */
    assert_int_equal(json_array_size(root), 3);
    assert_int_equal(next, 10);
    json_decref(root);
}

static void the_slowest_requests_come_first(void **state) {
    (void)state;
    three_requests();
    char *buf = NULL;
    size_t sz = 0;
    FILE *f = open_memstream(&buf, &sz);
    assert_non_null(f);
    void *room = malloc(tdm_recent_footprint(mem));
    assert_non_null(room);
    tdm_recent_slowest(mem, room, 2, f);
    free(room);
    assert_int_equal(fclose(f), 0);
    json_t *root = json_loads(buf, JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(json_array_size(root), 2);
    const json_t *first = json_array_get(root, 0);
    assert_string_equal(str(first, "ending"), "length");
    assert_true(json_real_value(json_object_get(first, "total_ms")) == 21.0);
    assert_true(json_real_value(json_object_get(first, "at_s")) >= (double)(WALL / (1000 * MS)));
    const json_t *phases = json_object_get(first, "phases");
    assert_int_equal(json_object_size(phases), 4);
    assert_true(json_real_value(json_object_get(phases, "decode")) == 10.0);
    assert_string_equal(str(json_array_get(root, 1), "ending"), "kv_full");
    json_decref(root);
    free(buf);
    f = fopen("/dev/null", "we");
    assert_non_null(f);
    assert_int_equal(tdm_recent_footprint(NULL), 0);
    tdm_recent_slowest(NULL, NULL, 2, f);
    (void)fclose(f);
}

/* The linker leads what the recorder's readers take and sort to these: libc's
   qsort takes memory by itself. */
static uint32_t taken_cnt;
void *__real_malloc(size_t sz);
void *__real_calloc(size_t cnt, size_t sz);
void *__real_realloc(void *was, size_t sz);
void __real_qsort(void *at, size_t cnt, size_t sz, int (*cmp)(const void *, const void *));
void *__wrap_malloc(size_t sz);
void *__wrap_calloc(size_t cnt, size_t sz);
void *__wrap_realloc(void *was, size_t sz);
void __wrap_qsort(void *at, size_t cnt, size_t sz, int (*cmp)(const void *, const void *));

void *__wrap_malloc(size_t sz) {
    taken_cnt++;
    return __real_malloc(sz);
}

void *__wrap_calloc(size_t cnt, size_t sz) {
    taken_cnt++;
    return __real_calloc(cnt, sz);
}

void *__wrap_realloc(void *was, size_t sz) {
    taken_cnt++;
    return __real_realloc(was, sz);
}

void __wrap_qsort(void *at, size_t cnt, size_t sz, int (*cmp)(const void *, const void *)) {
    taken_cnt++;
    __real_qsort(at, cnt, sz, cmp);
}

/* A console asks each second: nothing is taken for it, and the order is that
   of a sort, whatever came when. */
static void a_console_that_asks_takes_no_memory(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 30; i++) {
        tdm_flight_hop_t h = {.handle = {.slot = i, .generation = 1}, .kind = TDM_HOP_ARRIVED};
        h.at_ns = 1000 * MS;
        tdm_flight_put(&hops, &h);
        h.kind = TDM_HOP_ENDED;
        h.at_ns += (int64_t)(i * 7 % 30 + 1) * MS;
        tdm_flight_put(&hops, &h);
    }
    static char big[65536];
    static _Alignas(8) uint8_t room[1 << 20];
    assert_true(tdm_recent_footprint(mem) <= sizeof room);
    static const uint32_t max[] = {0, 1, 7, 30, 100};
    for (size_t i = 0; i < TDM_COUNT_OF(max); i++) {
        FILE *f = fmemopen(big, sizeof big, "w");
        assert_non_null(f);
        (void)fputc(' ', f); /* its buffer is there */
        memset(room, 0xa5, sizeof room);
        taken_cnt = 0;
        (void)tdm_recent_iterations(mem, 0, 100, f);
        rewind(f);
        tdm_recent_slowest(mem, room, max[i], f);
        assert_int_equal(taken_cnt, 0);
        assert_int_equal(fclose(f), 0);
        json_t *root = json_loads(big, JSON_DISABLE_EOF_CHECK, NULL);
        assert_int_equal(json_array_size(root), TDM_MIN(max[i], 30u));
        for (uint32_t k = 0; k < json_array_size(root); k++)
            assert_true(json_real_value(json_object_get(json_array_get(root, k), "total_ms")) ==
                        (double)(30 - k));
        json_decref(root);
    }
}

static void a_full_disk_is_told(void **state) {
    (void)state;
    ten_iterations();
    FILE *f = fopen("/dev/full", "we");
    assert_non_null(f);
    tdm_trace_span_t span = {0, INT64_MAX};
    assert_int_equal(tdm_trace_chrome(mem, &span, f), TDM_ERR_IO);
    (void)fclose(f);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_fused_iteration_is_told),
        CASE(one_cut_by_the_cap_names_promise_and_quantile),
        CASE(every_fallback_is_told_in_its_own_words),
        CASE(every_cap_is_told_in_its_own_words),
        CASE(one_kind_a_lost_one_and_a_mismatch_are_told),
        CASE(nonsense_is_printed_as_numbers_and_bounds_hold),
        CASE(the_iteration_of_a_moment_is_found),
        CASE(a_chrome_trace_has_every_record_once),
        CASE(an_otlp_trace_has_every_record_once),
        CASE(an_empty_recorder_is_an_empty_trace),
        CASE(the_lane_goes_on_where_it_was),
        CASE(the_slowest_requests_come_first),
        CASE(a_console_that_asks_takes_no_memory),
        CASE(a_full_disk_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
