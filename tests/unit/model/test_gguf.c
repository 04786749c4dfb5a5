/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a GGUF file holds comes back, and no file, however broken,
   is read outside its bytes.  Method: a small file written by hand; every
   truncation of it, every byte of it changed, and each rule broken once,
   in exact allocations so that AddressSanitizer sees one byte too far. */
#include "appliance/model/dequant.h"
#include "appliance/model/gguf.h"
#include "tests/unit/model/gguf_build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
/* cmocka wants the four above first */
#include <cmocka.h>

static const uint8_t block[34] = {0, 0x3c, 1, 2, 3}; /* Q8_0, d = 1 */

static void build_small(gguf_build_t *b) {
    gguf_start(b);
    gguf_key_string(b, "general.architecture", "llama");
    gguf_key_u32(b, "a.count", 7);
    gguf_key_f32(b, "a.scale", 0.5f);
    gguf_key_bool(b, "a.flag", 1);
    gguf_key_array(b, "a.words", 8, 3);
    gguf_text(b, "one", 3);
    gguf_text(b, "", 0);
    gguf_text(b, "three", 5);
    gguf_key_array(b, "a.numbers", 5, 2);
    gguf_raw32(b, 11);
    gguf_raw32(b, 12);
    float row[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    gguf_tensor(b, "first", TDM_DTYPE_F32, 4, 2, row, sizeof row);
    gguf_tensor(b, "second", TDM_DTYPE_Q8_0, 32, 0, block, sizeof block);
    gguf_finish(b);
}

/* parse_exact parses a copy that ends where the allocation ends. */
static tdm_status_t parse_exact(const uint8_t *bytes, uint64_t sz, uint8_t **copy, tdm_gguf_t **g,
                                tdm_error_t *err) {
    *copy = malloc(sz ? sz : 1);
    assert_non_null(*copy);
    if (sz) memcpy(*copy, bytes, sz);
    return tdm_gguf_parse(*copy, sz, g, err);
}

/* walk reads every byte that a view hands out. */
static uint64_t walk(const tdm_gguf_t *g) {
    uint64_t sum = 0;
    tdm_error_t err;
    for (uint32_t i = 0; i < tdm_gguf_key_cnt(g); i++) {
        tdm_gguf_string_t key = tdm_gguf_key(g, i), s;
        char name[TDM_GGUF_NAME_MAX + 1];
        memcpy(name, key.bytes, key.sz);
        name[key.sz] = 0;
        uint32_t u;
        float f;
        int b;
        if (tdm_gguf_u32(g, name, &u, &err) == TDM_OK) sum += u;
        if (tdm_gguf_f32(g, name, &f, &err) == TDM_OK) sum += f > 0;
        if (tdm_gguf_bool(g, name, &b, &err) == TDM_OK) sum += (uint64_t)b;
        if (tdm_gguf_string(g, name, &s, &err) == TDM_OK)
            for (uint64_t k = 0; k < s.sz; k++) sum += (uint8_t)s.bytes[k];
        for (int type = 0; type < TDM_GGUF_TYPE_CNT; type++) {
            tdm_gguf_array_t a;
            if (tdm_gguf_array(g, name, (tdm_gguf_type_t)type, &a, &err) != TDM_OK) continue;
            for (uint64_t k = 0; k < a.sz; k++) sum += a.bytes[k];
            uint64_t cursor = 0, cnt = 0;
            while (type == TDM_GGUF_STRING && tdm_gguf_array_string(&a, &cursor, &s)) cnt++;
            if (type == TDM_GGUF_STRING) assert_int_equal(cnt, a.cnt);
        }
    }
    for (uint32_t i = 0; i < tdm_gguf_tensor_cnt(g); i++) {
        const tdm_gguf_tensor_t *t = tdm_gguf_tensor_at(g, i);
        for (uint64_t k = 0; k < t->sz; k++) sum += t->bytes[k];
    }
    return sum;
}

static void values_come_back_as_written(void **state) {
    (void)state;
    gguf_build_t b;
    tdm_gguf_t *g;
    tdm_error_t err = {0};
    uint32_t u;
    float f;
    int flag;
    tdm_gguf_string_t s;
    tdm_gguf_array_t a;
    build_small(&b);
    assert_int_equal(tdm_gguf_parse(b.bytes, b.sz, &g, &err), TDM_OK);
    assert_int_equal(tdm_gguf_u32(g, "a.count", &u, &err), TDM_OK);
    assert_int_equal(u, 7);
    assert_int_equal(tdm_gguf_f32(g, "a.scale", &f, &err), TDM_OK);
    assert_true(f == 0.5f);
    assert_int_equal(tdm_gguf_bool(g, "a.flag", &flag, &err), TDM_OK);
    assert_int_equal(flag, 1);
    assert_int_equal(tdm_gguf_string(g, "general.architecture", &s, &err), TDM_OK);
    assert_true(tdm_gguf_equals(s, "llama"));
    assert_int_equal(tdm_gguf_array(g, "a.words", TDM_GGUF_STRING, &a, &err), TDM_OK);
    uint64_t cursor = 0;
    const char *want[] = {"one", "", "three"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tdm_gguf_array_string(&a, &cursor, &s), 1);
        assert_true(tdm_gguf_equals(s, want[i]));
    }
    assert_int_equal(tdm_gguf_array_string(&a, &cursor, &s), 0);
    assert_int_equal(tdm_gguf_array(g, "a.numbers", TDM_GGUF_I32, &a, &err), TDM_OK);
    assert_int_equal(tdm_gguf_array_u32(&a, 1), 12);
    const tdm_gguf_tensor_t *t = tdm_gguf_tensor(g, "first");
    assert_non_null(t);
    assert_int_equal(t->dim[0], 4);
    assert_int_equal(t->dim[1], 2);
    assert_int_equal(t->sz, 32);
    memcpy(&f, t->bytes + 28, sizeof f);
    assert_true(f == 8);
    assert_memory_equal(tdm_gguf_tensor(g, "second")->bytes, block, sizeof block);
    assert_null(tdm_gguf_tensor(g, "third"));
    tdm_gguf_close(g);
    gguf_drop(&b);
}

static void wrong_lookups_say_which_key(void **state) {
    (void)state;
    gguf_build_t b;
    tdm_gguf_t *g;
    tdm_error_t err = {0};
    uint32_t u;
    tdm_gguf_array_t a;
    build_small(&b);
    assert_int_equal(tdm_gguf_parse(b.bytes, b.sz, &g, &err), TDM_OK);
    assert_int_equal(tdm_gguf_u32(g, "a.absent", &u, &err), TDM_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "a.absent"));
    assert_int_equal(tdm_gguf_u32(g, "a.scale", &u, &err), TDM_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "a.scale"));
    assert_int_equal(tdm_gguf_u32(g, "a.words", &u, &err), TDM_ERR_CORRUPT);
    assert_int_equal(tdm_gguf_array(g, "a.words", TDM_GGUF_F32, &a, &err), TDM_ERR_CORRUPT);
    tdm_gguf_close(g);
    gguf_drop(&b);
}

static void integers_of_any_width_become_u32_where_they_fit(void **state) {
    (void)state;
    const struct {
        uint32_t type, sz;
        int64_t value;
        tdm_status_t want;
    } row[] = {
        {0, 1, 200, TDM_OK},
        {1, 1, 100, TDM_OK},
        {1, 1, -1, TDM_ERR_CORRUPT},
        {2, 2, 60000, TDM_OK},
        {3, 2, -5, TDM_ERR_CORRUPT},
        {5, 4, 70000, TDM_OK},
        {5, 4, -70000, TDM_ERR_CORRUPT},
        {10, 8, 4294967295, TDM_OK},
        {10, 8, 4294967296, TDM_ERR_CORRUPT},
        {10, 8, -1, TDM_ERR_CORRUPT},
        {11, 8, 9, TDM_OK},
        {11, 8, -9, TDM_ERR_CORRUPT},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
        gguf_build_t b;
        tdm_gguf_t *g;
        tdm_error_t err = {0};
        uint32_t u = 0;
        gguf_start(&b);
        gguf_key(&b, "n", row[i].type);
        gguf_raw(&b, &row[i].value, row[i].sz);
        gguf_finish(&b);
        assert_int_equal(tdm_gguf_parse(b.bytes, b.sz, &g, &err), TDM_OK);
        assert_int_equal(tdm_gguf_u32(g, "n", &u, &err), row[i].want);
        if (row[i].want == TDM_OK) assert_int_equal(u, row[i].value);
        tdm_gguf_close(g);
        gguf_drop(&b);
    }
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    gguf_build_t b;
    build_small(&b);
    for (uint64_t sz = 0; sz < b.sz; sz++) {
        tdm_gguf_t *g;
        uint8_t *copy;
        tdm_error_t err = {0};
        assert_int_equal(parse_exact(b.bytes, sz, &copy, &g, &err), TDM_ERR_CORRUPT);
        assert_null(g);
        assert_true(err.text[0] != 0);
        free(copy);
    }
    gguf_drop(&b);
}

static void no_changed_byte_leads_outside_the_file(void **state) {
    (void)state;
    gguf_build_t b;
    build_small(&b);
    uint32_t refused = 0, taken = 0;
    uint64_t sum = 0;
    static const uint8_t flip[] = {0x01, 0x02, 0x10, 0x80, 0xff};
    for (uint64_t at = 0; at < b.sz; at++) {
        for (uint32_t k = 0; k < sizeof flip; k++) {
            tdm_gguf_t *g;
            uint8_t *copy;
            tdm_error_t err = {0};
            b.bytes[at] ^= flip[k];
            tdm_status_t st = parse_exact(b.bytes, b.sz, &copy, &g, &err);
            b.bytes[at] ^= flip[k];
            if (st == TDM_OK) {
                sum += walk(g);
                taken++;
            } else {
                assert_true(err.text[0] != 0);
                refused++;
            }
            tdm_gguf_close(g);
            free(copy);
        }
    }
    assert_true(sum > 0 && refused > 500 && taken > 100);
    gguf_drop(&b);
}

/* Each case writes one file that breaks one rule. */
typedef void (*break_fn)(gguf_build_t *b);

static const uint64_t dim_1[4] = {32, 1, 1, 1};

static void bad_magic(gguf_build_t *b) {
    gguf_finish(b);
    b->bytes[0] = 'X';
}
static void version_1(gguf_build_t *b) {
    gguf_finish(b);
    b->bytes[4] = 1;
}
static void big_endian(gguf_build_t *b) {
    gguf_finish(b);
    memcpy(b->bytes + 4, "\0\0\0\3", 4);
}
static void many_tensors(gguf_build_t *b) {
    b->tensor_cnt = UINT64_MAX;
    gguf_finish(b);
}
static void many_keys(gguf_build_t *b) {
    b->key_cnt = UINT64_C(1) << 40;
    gguf_finish(b);
}
static void long_key(gguf_build_t *b) {
    gguf_raw64(b, UINT64_MAX - 7);
    b->key_cnt++;
    gguf_finish(b);
}
static void control_in_key(gguf_build_t *b) {
    gguf_key_u32(b, "a\nb", 1);
    gguf_finish(b);
}
static void empty_key(gguf_build_t *b) {
    gguf_key_u32(b, "", 1);
    gguf_finish(b);
}
static void unknown_type(gguf_build_t *b) {
    gguf_key(b, "k", 13);
    gguf_finish(b);
}
static void bool_of_two(gguf_build_t *b) {
    gguf_key_bool(b, "k", 2);
    gguf_finish(b);
}
static void long_string(gguf_build_t *b) {
    gguf_key(b, "k", 8);
    gguf_raw64(b, UINT64_MAX);
    gguf_finish(b);
}
static void nested_array(gguf_build_t *b) {
    gguf_key_array(b, "k", 9, 1);
    gguf_finish(b);
}
static void unknown_elements(gguf_build_t *b) {
    gguf_key_array(b, "k", 99, 1);
    gguf_finish(b);
}
static void long_array(gguf_build_t *b) {
    gguf_key_array(b, "k", 4, UINT64_C(1) << 62);
    gguf_finish(b);
}
static void duplicate_key(gguf_build_t *b) {
    gguf_key_u32(b, "twin", 1);
    gguf_key_u32(b, "other", 1);
    gguf_key_u32(b, "twin", 2);
    gguf_finish(b);
}
static void odd_alignment(gguf_build_t *b) {
    gguf_key_u32(b, "general.alignment", 24);
    gguf_finish(b);
}
static void zero_alignment(gguf_build_t *b) {
    gguf_key_u32(b, "general.alignment", 0);
    gguf_finish(b);
}
static void five_dimensions(gguf_build_t *b) {
    uint64_t dim[5] = {32, 1, 1, 1, 1};
    gguf_tensor_at(b, "t", TDM_DTYPE_F32, 5, dim, 0);
    gguf_finish(b);
}
static void zero_dimension(gguf_build_t *b) {
    uint64_t dim[2] = {32, 0};
    gguf_tensor_at(b, "t", TDM_DTYPE_F32, 2, dim, 0);
    gguf_finish(b);
}
static void product_wraps(gguf_build_t *b) {
    uint64_t dim[4] = {UINT64_C(1) << 32, UINT64_C(1) << 32, 2, 1};
    gguf_tensor_at(b, "t", TDM_DTYPE_F32, 3, dim, 0);
    gguf_finish(b);
}
static void size_wraps(gguf_build_t *b) {
    uint64_t dim[1] = {UINT64_C(1) << 62};
    gguf_tensor_at(b, "t", TDM_DTYPE_F32, 1, dim, 0);
    gguf_finish(b);
}
static void offset_wraps(gguf_build_t *b) {
    gguf_tensor_at(b, "t", TDM_DTYPE_Q8_0, 1, dim_1, UINT64_MAX - 31);
    gguf_finish(b);
}
static void offset_outside(gguf_build_t *b) {
    gguf_tensor_at(b, "t", TDM_DTYPE_Q8_0, 1, dim_1, 4096);
    gguf_finish(b);
}
static void offset_unaligned(gguf_build_t *b) {
    gguf_tensor(b, "t", TDM_DTYPE_Q8_0, 32, 0, block, sizeof block);
    b->bytes[b->sz - 8] = 1;
    gguf_finish(b);
}
static void part_of_a_block(gguf_build_t *b) {
    uint64_t dim[1] = {33};
    gguf_tensor_at(b, "t", TDM_DTYPE_Q8_0, 1, dim, 0);
    gguf_finish(b);
}
static void k_quant(gguf_build_t *b) {
    gguf_tensor_at(b, "t", 12, 1, dim_1, 0);
    gguf_finish(b);
}
static void no_such_dtype(gguf_build_t *b) {
    gguf_tensor_at(b, "t", 1000, 1, dim_1, 0);
    gguf_finish(b);
}
static void duplicate_tensor(gguf_build_t *b) {
    gguf_tensor(b, "t", TDM_DTYPE_Q8_0, 32, 0, block, sizeof block);
    gguf_tensor(b, "t", TDM_DTYPE_Q8_0, 32, 0, block, sizeof block);
    gguf_finish(b);
}
static void overlap(gguf_build_t *b) {
    gguf_tensor(b, "t", TDM_DTYPE_Q8_0, 32, 0, block, sizeof block);
    gguf_tensor_at(b, "u", TDM_DTYPE_Q8_0, 1, dim_1, 0);
    gguf_finish(b);
}

static void each_broken_rule_is_refused_by_name(void **state) {
    (void)state;
    const struct {
        break_fn make;
        tdm_status_t want;
        const char *text;
    } row[] = {
        {bad_magic, TDM_ERR_CORRUPT, "magic"},
        {version_1, TDM_ERR_UNSUPPORTED, "version 1"},
        {big_endian, TDM_ERR_UNSUPPORTED, "big-endian"},
        {many_tensors, TDM_ERR_LIMIT, "tensors, at most"},
        {many_keys, TDM_ERR_LIMIT, "keys, at most"},
        {long_key, TDM_ERR_LIMIT, "key 0"},
        {control_in_key, TDM_ERR_CORRUPT, "control byte"},
        {empty_key, TDM_ERR_CORRUPT, "empty"},
        {unknown_type, TDM_ERR_CORRUPT, "key k: unknown type 13"},
        {bool_of_two, TDM_ERR_CORRUPT, "key k: a bool of 2"},
        {long_string, TDM_ERR_LIMIT, "key k: a string"},
        {nested_array, TDM_ERR_UNSUPPORTED, "key k: an array of arrays"},
        {unknown_elements, TDM_ERR_CORRUPT, "element type 99"},
        {long_array, TDM_ERR_LIMIT, "key k: an array"},
        {duplicate_key, TDM_ERR_CORRUPT, "key twin appears twice"},
        {odd_alignment, TDM_ERR_CORRUPT, "general.alignment: 24"},
        {zero_alignment, TDM_ERR_CORRUPT, "general.alignment: 0"},
        {five_dimensions, TDM_ERR_CORRUPT, "tensor t: 5 dimensions"},
        {zero_dimension, TDM_ERR_CORRUPT, "tensor t: dimension 1"},
        {product_wraps, TDM_ERR_CORRUPT, "tensor t: dimension 1"},
        {size_wraps, TDM_ERR_CORRUPT, "tensor t: too large"},
        {offset_wraps, TDM_ERR_CORRUPT, "tensor t lies outside"},
        {offset_outside, TDM_ERR_CORRUPT, "tensor t lies outside"},
        {offset_unaligned, TDM_ERR_CORRUPT, "tensor t: offset 1 is not aligned"},
        {part_of_a_block, TDM_ERR_CORRUPT, "not a multiple of 32"},
        {k_quant, TDM_ERR_UNSUPPORTED, "Q4_K"},
        {no_such_dtype, TDM_ERR_CORRUPT, "unknown type 1000"},
        {duplicate_tensor, TDM_ERR_CORRUPT, "tensor t appears twice"},
        {overlap, TDM_ERR_CORRUPT, "overlap"},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
        gguf_build_t b;
        tdm_gguf_t *g;
        uint8_t *copy;
        tdm_error_t err = {0};
        gguf_start(&b);
        row[i].make(&b);
        tdm_status_t st = parse_exact(b.bytes, b.sz, &copy, &g, &err);
        if (st != row[i].want || !strstr(err.text, row[i].text))
            fail_msg("case %u: %s: %s", i, tdm_status_name(st), err.text);
        free(copy);
        gguf_drop(&b);
    }
}

static void files_that_are_none_are_refused(void **state) {
    (void)state;
    tdm_gguf_t *g;
    tdm_error_t err = {0};
    assert_int_equal(tdm_gguf_open("/nonexistent/x.gguf", &g, &err), TDM_ERR_NOT_FOUND);
    assert_int_equal(tdm_gguf_open("/", &g, &err), TDM_ERR_CORRUPT);
    assert_int_equal(tdm_gguf_open("/dev/null", &g, &err), TDM_ERR_CORRUPT);
    char path[] = "/tmp/tdm-gguf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(tdm_gguf_open(path, &g, &err), TDM_ERR_CORRUPT);
    gguf_build_t b;
    build_small(&b);
    assert_int_equal(write(fd, b.bytes, b.sz), b.sz);
    assert_int_equal(tdm_gguf_open(path, &g, &err), TDM_OK);
    assert_true(walk(g) > 0);
    tdm_gguf_close(g);
    (void)close(fd);
    (void)unlink(path);
    gguf_drop(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_back_as_written),
        cmocka_unit_test(wrong_lookups_say_which_key),
        cmocka_unit_test(integers_of_any_width_become_u32_where_they_fit),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(no_changed_byte_leads_outside_the_file),
        cmocka_unit_test(each_broken_rule_is_refused_by_name),
        cmocka_unit_test(files_that_are_none_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
