/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a safetensors file is taken only where all of it is sound, and
   every refusal has its kind and names its culprit.
   Method: a table of headers, each wrong in one way; every cut and every
   single changed byte of a good file; folders with shards and an index. */
#include "appliance/base/attr.h"
#include "appliance/model/dequant.h"
#include "appliance/model/safetensors.h"
#include "tests/unit/model/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the four above first */
#include <cmocka.h>

/* parse puts the file into a block of its exact size. */
static tdm_status_t parse(const uint8_t *bytes, uint64_t sz, tdm_safetensors_t **s,
                          tdm_error_t *err, uint8_t **block) {
    *block = malloc(sz ? sz : 1);
    assert_non_null(*block);
    memcpy(*block, bytes, sz);
    return tdm_safetensors_parse(*block, sz, s, err);
}

static tdm_status_t try_bytes(const uint8_t *bytes, uint64_t sz, tdm_error_t *err) {
    tdm_safetensors_t *s;
    uint8_t *block;
    tdm_status_t st = parse(bytes, sz, &s, err, &block);
    assert_true((st == TDM_OK) == (s != NULL));
    tdm_safetensors_close(s);
    free(block);
    return st;
}

/* file_of writes a header and data_sz bytes of data. */
static uint64_t file_of(const char *header, uint64_t data_sz, uint8_t *out) {
    uint64_t header_sz = strlen(header);
    memcpy(out, &header_sz, 8);
    memcpy(out + 8, header, header_sz);
    for (uint64_t i = 0; i < data_sz; i++) out[8 + header_sz + i] = (uint8_t)i;
    return 8 + header_sz + data_sz;
}

#define GOOD                                                                                       \
    "{\"__metadata__\":{\"format\":\"pt\",\"a\\\"b\":\"\\u0000\"},"                                \
    " \"b\" : {\"shape\":[2,3],\"dtype\":\"BF16\",\"data_offsets\":[8,20]},\n"                     \
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"                              \
    "\"c\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[20,22]}}   "

static void views_are_what_the_header_says(void **state) {
    (void)state;
    uint8_t file[1024], *block;
    uint64_t sz = file_of(GOOD, 22, file);
    tdm_safetensors_t *s;
    tdm_error_t err = {0};
    assert_int_equal(parse(file, sz, &s, &err, &block), TDM_OK);
    assert_int_equal(tdm_safetensors_cnt(s), 3);
    const tdm_safetensor_t *t = tdm_safetensors_find(s, "b");
    assert_non_null(t);
    assert_int_equal(t->dtype, TDM_DTYPE_BF16);
    assert_int_equal(t->dim_cnt, 2);
    assert_int_equal(t->dim[0], 2);
    assert_int_equal(t->dim[1], 3);
    assert_int_equal(t->sz, 12);
    assert_int_equal(t->bytes[0], 8);
    assert_int_equal(tdm_safetensors_find(s, "a")->dtype, TDM_DTYPE_F32);
    assert_int_equal(tdm_safetensors_find(s, "c")->dim_cnt, 0);
    assert_null(tdm_safetensors_find(s, "ab"));
    assert_null(tdm_safetensors_find(s, "__metadata__"));
    assert_memory_equal(tdm_safetensors_at(s, 0)->name, "a", 1);
    tdm_safetensors_close(s);
    free(block);
}

#define T(name, type, shape, offsets)                                                              \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

/* Each case: header, bytes of data, the outcome, a word of the sentence. */
static const struct {
    const char *header;
    uint64_t data_sz;
    tdm_status_t want;
    const char *word;
} bad[] = {
    {"", 0, TDM_ERR_CORRUPT, "malformed"},
    {"{", 0, TDM_ERR_CORRUPT, "malformed"},
    {"[]", 0, TDM_ERR_CORRUPT, "malformed"},
    {"{}", 0, TDM_ERR_CORRUPT, "no tensor"},
    {"{}", 4, TDM_ERR_CORRUPT, "after the last"},
    {"{" T("a", "F32", "1", "0,4") "}x", 4, TDM_ERR_CORRUPT, "malformed"},
    {"{" T("a", "F32", "1", "0,4") ",}", 4, TDM_ERR_CORRUPT, "malformed"},
    {"{" T("a", "F32", "1", "0,4") T("b", "F32", "1", "4,8") "}", 8, TDM_ERR_CORRUPT, "malformed"},
    {"{" T("a", "F32", "1,", "0,4") "}", 4, TDM_ERR_CORRUPT, "malformed"},
    {"{" T("a", "F32", "-1", "0,4") "}", 4, TDM_ERR_CORRUPT, "malformed"},
    {"{" T("a", "F32", "1.0", "0,4") "}", 4, TDM_ERR_CORRUPT, "malformed"},
    {"{" T("a", "F32", "1e0", "0,4") "}", 4, TDM_ERR_CORRUPT, "malformed"},
    {"{" T("a", "F32", "01", "0,4") "}", 4, TDM_ERR_CORRUPT, "malformed"},
    {"{" T("a", "F32", "true", "0,4") "}", 4, TDM_ERR_CORRUPT, "malformed"},
    {"{" T("a", "F32", "1", "0") "}", 4, TDM_ERR_CORRUPT, "malformed"},
    {"{" T("a", "F32", "1", "0,4,4") "}", 4, TDM_ERR_CORRUPT, "malformed"},
    {"{" T("a", "F32", "1", "0,18446744073709551616") "}", 4, TDM_ERR_CORRUPT, "malformed"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, TDM_ERR_CORRUPT, "malformed"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     TDM_ERR_CORRUPT, "malformed"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, TDM_ERR_CORRUPT,
     "malformed"},
    {"{\"a\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TDM_ERR_CORRUPT, "malformed"},
    {"{\"a\":{}}", 0, TDM_ERR_CORRUPT, "malformed"},
    {"{\"a\":[]}", 0, TDM_ERR_CORRUPT, "malformed"},
    {"{\"a", 0, TDM_ERR_CORRUPT, "malformed"},
    {"{\"a\\", 0, TDM_ERR_CORRUPT, "malformed"},
    {"{\"a\nb\":{}}", 0, TDM_ERR_CORRUPT, "malformed"},
    {"{\"__metadata__\":{\"a\":1}," T("a", "F32", "1", "0,4") "}", 4, TDM_ERR_CORRUPT, "malformed"},
    {"{\"__metadata__\":{\"a\":{\"b\":\"c\"}}," T("a", "F32", "1", "0,4") "}", 4, TDM_ERR_CORRUPT,
     "malformed"},
    {"{\"__metadata__\":{},\"__metadata__\":{}," T("a", "F32", "1", "0,4") "}", 4, TDM_ERR_CORRUPT,
     "malformed"},
    {"{\"__metadata__\":{}}", 0, TDM_ERR_CORRUPT, "no tensor"},
    {"{" T("a", "F32", "1", "0,4") "," T("a", "F32", "1", "4,8") "}", 8, TDM_ERR_CORRUPT, "twice"},
    {"{" T("a", "F32", "1", "0,4") "," T("a", "F32", "1", "0,4") "}", 4, TDM_ERR_CORRUPT,
     "overlap"},
    {"{" T("a", "F32", "2", "0,8") "," T("b", "F32", "2", "4,12") "}", 12, TDM_ERR_CORRUPT,
     "overlap before tensor b"},
    {"{" T("a", "F32", "1", "0,4") "," T("b", "F32", "1", "8,12") "}", 12, TDM_ERR_CORRUPT,
     "bytes of no tensor before tensor b"},
    {"{" T("a", "F32", "1", "4,8") "}", 8, TDM_ERR_CORRUPT, "bytes of no tensor"},
    {"{" T("a", "F32", "1", "0,4") "}", 8, TDM_ERR_CORRUPT, "4 bytes after"},
    {"{" T("a", "F32", "1", "0,4") "}", 3, TDM_ERR_CORRUPT, "tensor a"},
    {"{" T("a", "F32", "1", "4,0") "}", 4, TDM_ERR_CORRUPT, "tensor a"},
    {"{" T("a", "F32", "1", "0,18446744073709551615") "}", 4, TDM_ERR_CORRUPT, "tensor a"},
    {"{" T("a", "F32", "2", "0,4") "}", 4, TDM_ERR_CORRUPT, "tensor a"},
    {"{" T("a", "F32", "0", "0,0") "," T("b", "F32", "1", "0,4") "}", 4, TDM_ERR_CORRUPT,
     "tensor a"},
    {"{" T("a", "F32", "4294967296,4294967296", "0,0") "}", 0, TDM_ERR_CORRUPT, "tensor a"},
    {"{" T("a", "F32", "4611686018427387905", "0,4") "}", 4, TDM_ERR_CORRUPT, "tensor a"},
    {"{" T("b", "BF16", "1", "0,2") "," T("a", "F32", "1", "2,6") "}", 6, TDM_ERR_CORRUPT,
     "tensor a"},
    {"{" T("a", "F32", "1,1,1,1,1", "0,4") "}", 4, TDM_ERR_LIMIT, "5 dimensions"},
    {"{" T("", "F32", "1", "0,4") "}", 4, TDM_ERR_LIMIT, "0 bytes"},
    {"{" T("a\\n", "F32", "1", "0,4") "}", 4, TDM_ERR_UNSUPPORTED, "escape"},
    {"{" T("a", "F64", "1", "0,8") "}", 8, TDM_ERR_UNSUPPORTED, "'F64'"},
    {"{" T("a", "I8", "1", "0,1") "}", 1, TDM_ERR_UNSUPPORTED, "'I8'"},
    {"{" T("a", "F8_E5M2", "1", "0,1") "}", 1, TDM_ERR_UNSUPPORTED, "'F8_E5M2'"},
    {"{" T("a", "f32", "1", "0,4") "}", 4, TDM_ERR_UNSUPPORTED, "'f32'"},
    {"{" T("a", "", "1", "0,4") "}", 4, TDM_ERR_UNSUPPORTED, "''"},
};

static void each_wrong_header_has_its_refusal(void **state) {
    (void)state;
    for (uint32_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        uint8_t file[1024];
        tdm_error_t err = {0};
        uint64_t sz = file_of(bad[i].header, bad[i].data_sz, file);
        tdm_status_t st = try_bytes(file, sz, &err);
        if (st != bad[i].want || !strstr(err.text, bad[i].word))
            fail_msg("%s: status %d, \"%s\"", bad[i].header, (int)st, err.text);
    }
}

static void header_length_is_held_to_the_file(void **state) {
    (void)state;
    uint8_t file[1024];
    tdm_error_t err = {0};
    uint64_t sz = file_of(GOOD, 22, file);
    const uint64_t lies[] = {0, 1, sz - 7, sz, UINT64_MAX, UINT64_MAX - 7, UINT64_C(1) << 63};
    for (uint32_t i = 0; i < TDM_COUNT_OF(lies); i++) {
        memcpy(file, &lies[i], 8);
        assert_int_equal(try_bytes(file, sz, &err), TDM_ERR_CORRUPT);
    }
    for (uint64_t n = 0; n < 8; n++) assert_int_equal(try_bytes(file, n, &err), TDM_ERR_CORRUPT);
}

static void a_header_over_16_mib_is_a_limit(void **state) {
    (void)state;
    uint64_t header_sz = TDM_SAFETENSORS_HEADER_MAX + 1;
    uint8_t *file = calloc(1, 8 + header_sz);
    tdm_error_t err = {0};
    tdm_safetensors_t *s;
    assert_non_null(file);
    memcpy(file, &header_sz, 8);
    assert_int_equal(tdm_safetensors_parse(file, 8 + header_sz, &s, &err), TDM_ERR_LIMIT);
    free(file);
}

static void more_tensors_than_the_bound_are_a_limit(void **state) {
    (void)state;
    const uint32_t cnt = TDM_SAFETENSORS_TENSOR_MAX + 1;
    char *header = malloc(cnt * 96u);
    assert_non_null(header);
    size_t at = 0;
    for (uint32_t i = 0; i < cnt; i++)
        at += (size_t)sprintf(header + at, "%c" T("t%u", "F16", "1", "%u,%u"), i ? ',' : '{', i,
                              2 * i, 2 * i + 2);
    strcpy(header + at, "}");
    uint8_t *file = malloc(at + 64 + 2u * cnt);
    assert_non_null(file);
    tdm_error_t err = {0};
    tdm_safetensors_t *s;
    uint64_t sz = file_of(header, 2u * cnt, file);
    assert_int_equal(tdm_safetensors_parse(file, sz, &s, &err), TDM_ERR_LIMIT);
    assert_non_null(strstr(err.text, "16384"));
    free(header);
    free(file);
}

static void every_cut_is_refused(void **state) {
    (void)state;
    uint8_t file[1024];
    tdm_error_t err = {0};
    uint64_t sz = file_of(GOOD, 22, file);
    for (uint64_t n = 0; n < sz; n++) assert_int_equal(try_bytes(file, n, &err), TDM_ERR_CORRUPT);
    assert_int_equal(try_bytes(file, sz, &err), TDM_OK);
}

/* Each byte of header and length takes 256 values: none may crash, and a
   refusal always has a sentence. */
static void every_changed_byte_is_judged(void **state) {
    (void)state;
    uint8_t file[1024];
    uint64_t sz = file_of(GOOD, 22, file);
    uint32_t taken = 0, refused = 0;
    for (uint64_t i = 0; i < sz - 22; i++) {
        uint8_t keep = file[i];
        for (uint32_t v = 0; v < 256; v++) {
            tdm_error_t err = {0};
            file[i] = (uint8_t)v;
            if (try_bytes(file, sz, &err) == TDM_OK) {
                taken++;
            } else {
                refused++;
                assert_true(err.text[0] != 0);
            }
        }
        file[i] = keep;
    }
    assert_true(taken > 1000 && refused > 10000);
}

/* --- shards ------------------------------------------------------------------ */

#define INDEX "model.safetensors.index.json"

static void put_shard(const folder_t *f, const char *name, const char *header, uint64_t data_sz) {
    uint8_t file[1024];
    folder_put(f, name, file, file_of(header, data_sz, file));
}

static void put_shards(const folder_t *f, const char *index) {
    put_shard(f, "x-1.safetensors", "{" T("a", "F32", "1", "0,4") "}", 4);
    put_shard(f, "x-2.safetensors", "{" T("c", "F32", "1", "4,8") "," T("b", "F32", "1", "0,4") "}",
              8);
    folder_put(f, INDEX, index, strlen(index));
}

static void shards_make_one_checkpoint(void **state) {
    (void)state;
    folder_t f;
    tdm_safetensors_t *s;
    tdm_error_t err = {0};
    folder_make(&f);
    put_shards(&f, "{\"metadata\":{\"total_size\":12},\"weight_map\":{\"a\":\"x-1.safetensors\","
                   "\"b\":\"x-2.safetensors\",\"c\":\"x-2.safetensors\"}}");
    assert_int_equal(tdm_safetensors_open(f.path, &s, &err), TDM_OK);
    assert_int_equal(tdm_safetensors_cnt(s), 3);
    assert_int_equal(tdm_safetensors_find(s, "a")->bytes[0], 0);
    assert_int_equal(tdm_safetensors_find(s, "c")->bytes[0], 4);
    tdm_safetensors_close(s);
    folder_drop(&f);
}

static void an_index_that_lies_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *index;
        tdm_status_t want;
        const char *word;
    } lie[] = {
        {"{}", TDM_ERR_CORRUPT, "weight_map"},
        {"[]", TDM_ERR_CORRUPT, "object"},
        {"{\"weight_map\":{}}", TDM_ERR_CORRUPT, "names no tensor"},
        {"{\"weight_map\":{\"a\":1}}", TDM_ERR_CORRUPT, "no plain file"},
        {"{\"weight_map\":{\"a\":\"../x-1.safetensors\"}}", TDM_ERR_CORRUPT, "no plain file"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", TDM_ERR_CORRUPT, "no plain file"},
        {"{\"weight_map\":{\"a\":\".safetensors\"}}", TDM_ERR_CORRUPT, "no plain file"},
        {"{\"weight_map\":{\"a\":\"y.safetensors\"}}", TDM_ERR_NOT_FOUND, "y.safetensors"},
        {"{\"weight_map\":{\"a\":\"x-1.safetensors\",\"a\":\"x-2.safetensors\"}}", TDM_ERR_CORRUPT,
         "duplicate"},
        {"{\"weight_map\":{\"a\":\"x-1.safetensors\",\"b\":\"x-1.safetensors\"}}", TDM_ERR_CORRUPT,
         "tensor b is not in"},
        {"{\"weight_map\":{\"a\":\"x-2.safetensors\",\"b\":\"x-2.safetensors\",\"c\":"
         "\"x-2.safetensors\"}}",
         TDM_ERR_CORRUPT, "tensor a is not in"},
        {"{\"weight_map\":{\"a\":\"x-1.safetensors\",\"b\":\"x-2.safetensors\"}}", TDM_ERR_CORRUPT,
         "hold 3"},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(lie); i++) {
        folder_t f;
        tdm_safetensors_t *s;
        tdm_error_t err = {0};
        folder_make(&f);
        put_shards(&f, lie[i].index);
        tdm_status_t st = tdm_safetensors_open(f.path, &s, &err);
        if (st != lie[i].want || !strstr(err.text, lie[i].word))
            fail_msg("%s: status %d, \"%s\"", lie[i].index, (int)st, err.text);
        folder_drop(&f);
    }
}

static void a_name_in_two_shards_comes_twice(void **state) {
    (void)state;
    folder_t f;
    tdm_safetensors_t *s;
    tdm_error_t err = {0};
    folder_make(&f);
    put_shards(&f, "{\"weight_map\":{\"a\":\"x-1.safetensors\",\"b\":\"x-2.safetensors\"}}");
    put_shard(&f, "x-2.safetensors",
              "{" T("a", "F32", "1", "4,8") "," T("b", "F32", "1", "0,4") "}", 8);
    assert_int_equal(tdm_safetensors_open(f.path, &s, &err), TDM_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "tensor a comes twice"));
    folder_drop(&f);
}

static void a_folder_without_weights_is_not_found(void **state) {
    (void)state;
    folder_t f;
    tdm_safetensors_t *s;
    tdm_error_t err = {0};
    folder_make(&f);
    assert_int_equal(tdm_safetensors_open(f.path, &s, &err), TDM_ERR_NOT_FOUND);
    folder_put(&f, "model.safetensors", "", 0);
    assert_int_equal(tdm_safetensors_open(f.path, &s, &err), TDM_ERR_CORRUPT);
    folder_drop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_are_what_the_header_says),
        cmocka_unit_test(each_wrong_header_has_its_refusal),
        cmocka_unit_test(header_length_is_held_to_the_file),
        cmocka_unit_test(a_header_over_16_mib_is_a_limit),
        cmocka_unit_test(more_tensors_than_the_bound_are_a_limit),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(every_changed_byte_is_judged),
        cmocka_unit_test(shards_make_one_checkpoint),
        cmocka_unit_test(an_index_that_lies_is_refused),
        cmocka_unit_test(a_name_in_two_shards_comes_twice),
        cmocka_unit_test(a_folder_without_weights_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
