/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the small parts hold their bounds: writer, id slab, JSON scan and
   region, percent decoding. */
#include "appliance/api/json.h"
#include "appliance/api/route.h"
#include "appliance/api/slab.h"
#include "appliance/api/tile_private.h"
#include "appliance/api/writer.h"
#include "appliance/base/rng.h"
#include "tests/unit/api/rig.h"

#include <sys/mman.h>

static void a_writer_never_overruns(void **state) {
    (void)state;
    char buf[16] = "...............";
    tdm_writer_t w;
    tdm_writer_init(&w, buf, 8);
    tdm_write_lit(&w, "1234567");
    tdm_write_lit(&w, "ab"); /* does not fit: left out whole */
    assert_true(w.is_cut);
    assert_int_equal(w.sz, 7);
    tdm_write_lit(&w, "c");
    assert_int_equal(w.sz, 8);
    tdm_write_lit(&w, "d");
    assert_memory_equal(buf, "1234567c.......", 15);
}

static void numbers_are_decimal(void **state) {
    (void)state;
    static const struct {
        int64_t v;
        const char *text;
    } c[] = {{0, "0"},
             {-1, "-1"},
             {1234567890, "1234567890"},
             {INT64_MAX, "9223372036854775807"},
             {INT64_MIN, "-9223372036854775808"}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(c); i++) {
        char buf[32] = {0};
        tdm_writer_t w;
        tdm_writer_init(&w, buf, sizeof buf);
        tdm_write_i64(&w, c[i].v);
        assert_int_equal(w.sz, strlen(c[i].text));
        assert_string_equal(buf, c[i].text);
    }
    char buf[32] = {0};
    tdm_writer_t w;
    tdm_writer_init(&w, buf, sizeof buf);
    tdm_write_u64(&w, UINT64_MAX);
    assert_string_equal(buf, "18446744073709551615");
}

/* Every byte value, escaped, comes back from jansson as it went in. */
static void escaped_text_is_read_back_the_same(void **state) {
    (void)state;
    char text[160], buf[2048];
    uint32_t sz = 0;
    for (uint32_t c = 0; c < 128; c++) text[sz++] = (char)c;
    memcpy(text + sz, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9);
    sz += 9;
    tdm_writer_t w;
    tdm_writer_init(&w, buf, sizeof buf);
    tdm_write_lit(&w, "[\"");
    tdm_write_escaped(&w, text, sz);
    tdm_write_lit(&w, "\"]");
    assert_false(w.is_cut);
    json_t *v = json_loadb(buf, w.sz, JSON_ALLOW_NUL, NULL);
    assert_non_null(v);
    const json_t *s = json_array_get(v, 0);
    assert_int_equal(json_string_length(s), sz);
    assert_memory_equal(json_string_value(s), text, sz);
    json_decref(v);
}

/* A slab against a plain map of who owns each chunk. */
static void slab_runs_never_overlap(void **state) {
    (void)state;
    enum { CHUNKS = 100, RUNS = 40 };
    static int32_t ids[CHUNKS * TDM_SLAB_CHUNK];
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t used[(CHUNKS + 63) / 64] = {0};
        int owner[CHUNKS] = {0};
        struct {
            int32_t *at;
            uint64_t cnt;
        } run[RUNS] = {{0}};
        tdm_rng_t rng = {.state = seed};
        tdm_slab_t s;
        tdm_slab_init(&s, ids, used, CHUNKS);
        for (uint32_t turn = 0; turn < 2000; turn++) {
            uint32_t i = tdm_rng_below(&rng, RUNS);
            uint32_t chunk_cnt = (uint32_t)((run[i].cnt + TDM_SLAB_CHUNK - 1) / TDM_SLAB_CHUNK);
            if (run[i].at) {
                for (uint32_t k = 0; k < chunk_cnt; k++)
                    owner[(run[i].at - ids) / TDM_SLAB_CHUNK + k] = 0;
                tdm_slab_give(&s, run[i].at, run[i].cnt);
                run[i].at = NULL;
                continue;
            }
            run[i].cnt = 1 + tdm_rng_below(&rng, 12 * TDM_SLAB_CHUNK);
            run[i].at = tdm_slab_take(&s, run[i].cnt);
            if (!run[i].at) continue;
            chunk_cnt = (uint32_t)((run[i].cnt + TDM_SLAB_CHUNK - 1) / TDM_SLAB_CHUNK);
            for (uint32_t k = 0; k < chunk_cnt; k++) {
                int *o = &owner[(run[i].at - ids) / TDM_SLAB_CHUNK + k];
                if (*o) fail_msg("seed %llu: chunk lent twice", (unsigned long long)seed);
                *o = 1;
            }
        }
        uint32_t owned = 0;
        for (uint32_t c = 0; c < CHUNKS; c++) owned += (uint32_t)owner[c];
        assert_int_equal(s.used_cnt, owned);
    }
}

static void a_slab_gives_all_it_has_and_no_more(void **state) {
    (void)state;
    static int32_t ids[65 * TDM_SLAB_CHUNK];
    uint64_t used[2] = {0};
    tdm_slab_t s;
    tdm_slab_init(&s, ids, used, 65);
    assert_null(tdm_slab_take(&s, 0));
    assert_null(tdm_slab_take(&s, 65 * TDM_SLAB_CHUNK + 1));
    assert_null(tdm_slab_take(&s, UINT64_MAX));
    int32_t *all = tdm_slab_take(&s, 65 * TDM_SLAB_CHUNK);
    assert_ptr_equal(all, ids);
    assert_null(tdm_slab_take(&s, 1));
    tdm_slab_give(&s, all, 65 * TDM_SLAB_CHUNK);
    int32_t *a = tdm_slab_take(&s, 64 * TDM_SLAB_CHUNK);
    int32_t *b = tdm_slab_take(&s, 1);
    assert_non_null(a);
    assert_ptr_equal(b, ids + 64 * TDM_SLAB_CHUNK);
    assert_null(tdm_slab_take(&s, 1));
    tdm_slab_give(&s, a, 64 * TDM_SLAB_CHUNK);
    assert_ptr_equal(tdm_slab_take(&s, 1), ids);
}

static tdm_reason_t scan(const char *text, uint32_t depth_max, uint32_t key_max,
                         uint32_t value_max) {
    tdm_json_limits_t l = {.depth_max = depth_max, .key_max = key_max, .value_max = value_max};
    return tdm_json_scan((const uint8_t *)text, strlen(text), &l);
}

static void the_scan_counts_outside_strings_only(void **state) {
    (void)state;
    assert_int_equal(scan("[[[]]]", 3, 9, 9), TDM_REASON_NONE);
    assert_int_equal(scan("[[[]]]", 2, 9, 9), TDM_REFUSE_json_depth);
    assert_int_equal(scan("[\"[[[[\"]", 1, 9, 9), TDM_REASON_NONE);
    assert_int_equal(scan("[\"\\\"[[[[\"]", 1, 9, 9), TDM_REASON_NONE);
    assert_int_equal(scan("[\"\\\\\",[[]]]", 2, 9, 9), TDM_REFUSE_json_depth);
    assert_int_equal(scan("{\"a\":1,\"b\":2}", 9, 2, 9), TDM_REASON_NONE);
    assert_int_equal(scan("{\"a\":1,\"b\":2}", 9, 1, 9), TDM_REFUSE_bad_value);
    assert_int_equal(scan("{\"a\":{\"b\":{\"c\":1}}}", 9, 1, 9), TDM_REASON_NONE);
    assert_int_equal(scan("[{\"a\":1},{\"a\":1},{\"a\":1}]", 9, 1, 9), TDM_REASON_NONE);
    assert_int_equal(scan("[1,2,3]", 9, 9, 2), TDM_REASON_NONE);
    assert_int_equal(scan("[1,2,3]", 9, 9, 1), TDM_REFUSE_bad_value);
    assert_int_equal(scan("\"\\", 9, 9, 9), TDM_REASON_NONE); /* jansson will refuse it */
    assert_int_equal(scan("]]]]]}}}}", 9, 9, 9), TDM_REASON_NONE);
}

/* Inside begin/end jansson lives in the region; outside it is malloc's. */
static void the_region_serves_one_body_at_a_time(void **state) {
    (void)state;
    static uint8_t region[4096] TDM_ALIGNED(16);
    tdm_json_t j = {.region = region,
                    .region_sz = sizeof region,
                    .limits = {.depth_max = 9, .key_max = 9, .value_max = 999}};
    tdm_json_install();
    json_t *outside = json_loads("{\"a\":[1,2,3]}", 0, NULL);
    tdm_json_error_t e;
    for (uint32_t i = 0; i < 100; i++) {
        static const char body[] = "{\"a\":[1,2,3],\"b\":\"text\"}";
        tdm_json_begin(&j);
        const json_t *v = tdm_json_load(&j, (const uint8_t *)body, sizeof body - 1, &e);
        assert_non_null(v);
        const uint8_t *at = (const uint8_t *)v;
        assert_true(at >= region && at < region + sizeof region);
        assert_int_equal(json_array_size(json_object_get(v, "a")), 3);
        tdm_json_end(&j);
    }
    assert_true(j.high > 0 && j.high <= sizeof region);
    assert_int_equal(json_array_size(json_object_get(outside, "a")), 3);
    json_decref(outside);
    char big[2100];
    memset(big, '1', sizeof big);
    for (uint32_t i = 1; i < sizeof big; i += 2) big[i] = ',';
    memcpy(big, "{\"a\":[", 6);
    memcpy(big + sizeof big - 3, "1]}", 3);
    j.limits.value_max = 9999;
    tdm_json_begin(&j);
    assert_null(tdm_json_load(&j, (const uint8_t *)big, sizeof big, &e));
    assert_int_equal(e.reason, TDM_REFUSE_body_too_large);
    tdm_json_end(&j);
}

static void percent_decoding_refuses_what_it_cannot_hold(void **state) {
    (void)state;
    char out[8];
    assert_int_equal(tdm_percent_decode("a%2Fb", out, sizeof out), 3);
    assert_string_equal(out, "a/b");
    assert_int_equal(tdm_percent_decode("%c3%A9", out, sizeof out), 2);
    assert_int_equal(tdm_percent_decode("1234567", out, sizeof out), 7);
    assert_int_equal(tdm_percent_decode("12345678", out, sizeof out), -1);
    assert_int_equal(tdm_percent_decode("%", out, sizeof out), -1);
    assert_int_equal(tdm_percent_decode("%4", out, sizeof out), -1);
    assert_int_equal(tdm_percent_decode("%4g", out, sizeof out), -1);
    assert_int_equal(tdm_percent_decode("a%00", out, sizeof out), -1);
    assert_int_equal(tdm_percent_decode("", out, sizeof out), 0);
}

static void bounds_of_the_config_are_checked(void **state) {
    (void)state;
    tdm_api_config_t c;
    tdm_api_wires_t w = {.door_cnt = 1, .door = {{.slot_cnt = 4}}};
    tdm_api_config_default(&c);
    assert_true(tdm_api_tile_footprint(&c, &w) > c.id_slab_sz + c.json_sz);
#define BREAKS(field, value)                                                                       \
    do {                                                                                           \
        tdm_api_config_t bad = c;                                                                  \
        bad.field = value;                                                                         \
        assert_int_equal(tdm_api_tile_footprint(&bad, &w), 0);                                     \
    } while (0)
    BREAKS(api_idx, TDM_API_TILE_MAX);
    BREAKS(class_cnt, 0);
    BREAKS(class_cnt, TDM_SLO_CLASS_MAX + 1);
    BREAKS(class_default, 1);
    BREAKS(model_name_cnt, 0);
    BREAKS(model_name[0], "");
    BREAKS(request_max, 0);
    BREAKS(context_max, 1);
    BREAKS(context_max, TDM_CONTEXT_MAX + 1);
    BREAKS(id_slab_sz, 4096);
    BREAKS(json_depth_max, TDM_JSON_DEPTH_MAX + 1);
    BREAKS(json_sz, 0);
    BREAKS(arrival_batch, 0);
    BREAKS(event_batch, 0);
    BREAKS(end_cnt, 1);
    w.door_cnt = 0;
    assert_int_equal(tdm_api_tile_footprint(&c, &w), 0);
}

/* A polling tile waits for no page: before the first request all are there
   but those that only a very long prompt's values need. */
static void pages_are_there_before_requests(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    r.config.json_sz = 16 << 20;
    rig_start(&r);
    uint64_t sz = tdm_api_tile_footprint(&r.tile->config, &r.tile->wires);
    uint64_t there = sz - (UINT64_C(14) << 20), page_cnt = there / 4096;
    void *mem = mmap(NULL, sz, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *is_there = calloc(page_cnt, 1);
    assert_ptr_not_equal(mem, MAP_FAILED);
    assert_non_null(is_there);
    (void)madvise(mem, sz, MADV_NOHUGEPAGE); /* each page for itself */
    tdm_api_tile_t *t = NULL;
    tdm_error_t err = {0};
    assert_int_equal(tdm_api_tile_init(mem, &r.tile->config, &r.tile->wires, &t, &err), TDM_OK);
    assert_int_equal(mincore(mem, 4096 * page_cnt, is_there), 0);
    for (uint64_t i = 0; i < page_cnt; i++) assert_true(is_there[i] & 1);
    free(is_there);
    (void)munmap(mem, sz);
    rig_stop(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_writer_never_overruns),
        cmocka_unit_test(numbers_are_decimal),
        cmocka_unit_test(escaped_text_is_read_back_the_same),
        cmocka_unit_test(slab_runs_never_overlap),
        cmocka_unit_test(a_slab_gives_all_it_has_and_no_more),
        cmocka_unit_test(the_scan_counts_outside_strings_only),
        cmocka_unit_test(the_region_serves_one_body_at_a_time),
        cmocka_unit_test(percent_decoding_refuses_what_it_cannot_hold),
        cmocka_unit_test(bounds_of_the_config_are_checked),
        cmocka_unit_test(pages_are_there_before_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
