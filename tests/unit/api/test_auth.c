/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a keys file gives tenants or one clear sentence; a check accepts
   the keys in it and nothing else. */
#include "tests/unit/api/rig.h"

#include <unistd.h>

/* sha256 of "k", "other", "third" and "". */
#define HASH_K     "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a"
#define HASH_OTHER "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"
#define HASH_THIRD "b1e99324505bd32da0e1f85dcf5e19a09db0481e8a15f62c41eb320304a8e927"
#define HASH_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static tdm_status_t parse(tdm_auth_t *a, const char *text, tdm_error_t *err) {
    *err = (tdm_error_t){0};
    return tdm_auth_parse(a, text, strlen(text), err);
}

static void tenants_are_numbered_in_order(void **state) {
    (void)state;
    tdm_auth_t a;
    tdm_error_t err;
    assert_int_equal(parse(&a,
                           "# keys\n\n  acme   " HASH_K "  # first\r\n"
                           "umbrella\t" HASH_OTHER "\nacme " HASH_THIRD,
                           &err),
                     TDM_OK);
    assert_int_equal(a.key_cnt, 3);
    assert_int_equal(a.tenant_cnt, 3);
    assert_string_equal(a.tenant_name[0], "open");
    assert_string_equal(a.tenant_name[1], "acme");
    assert_string_equal(a.tenant_name[2], "umbrella");
    assert_int_equal(tdm_auth_check(&a, "Bearer k", 0), 1);
    assert_int_equal(tdm_auth_check(&a, "Bearer other", 0), 2);
    assert_int_equal(tdm_auth_check(&a, "Bearer third", 0), 1);
    assert_int_equal(tdm_auth_check(&a, "Bearer ", 0), -1);
    assert_int_equal(tdm_auth_check(&a, "", 1), -1); /* keys shut out trusted peers too */
    assert_int_equal(tdm_auth_check(&a, "Bearer K", 1), -1);
    assert_int_equal(tdm_auth_check(&a, "Bearer kk", 1), -1);
    assert_int_equal(tdm_auth_check(&a, "Bearerk", 1), -1);
    assert_int_equal(tdm_auth_check(&a, "Basic k", 1), -1);
    assert_int_equal(tdm_auth_check(&a, "Bearer " HASH_K, 1), -1); /* the hash is no key */
}

static void no_key_means_open_to_trusted_peers(void **state) {
    (void)state;
    tdm_auth_t a;
    tdm_auth_init(&a);
    assert_int_equal(tdm_auth_check(&a, "", 1), 0);
    assert_int_equal(tdm_auth_check(&a, "Bearer whatever", 1), 0);
    assert_int_equal(tdm_auth_check(&a, "Bearer whatever", 0), -1);
}

static void a_bad_line_is_named_and_not_quoted(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *line;
    } c[] = {
        {"acme SECRET\n", "line 1"},
        {"# x\nacme\n", "line 2"},
        {"acme " HASH_K "\nacme " HASH_K "0\n", "line 2"},
        {"acme " HASH_K " SECRET\n", "line 1"},
        {HASH_K "\n", "line 1"},
        {"acme " HASH_K "\nSECRET " HASH_EMPTY "\n", "line 2: the hash of an empty key"},
        {"a-name-of-a-tenant-that-is-too-long-SECRET " HASH_K "\n", "line 1"},
    };
    tdm_auth_t a;
    tdm_error_t err;
    for (uint32_t i = 0; i < TDM_COUNT_OF(c); i++) {
        assert_int_not_equal(parse(&a, c[i].text, &err), TDM_OK);
        assert_non_null(strstr(err.text, c[i].line));
        assert_null(strstr(err.text, "SECRET"));
        assert_int_equal(a.key_cnt, 0);
    }
}

static void bounds_are_refused(void **state) {
    (void)state;
    tdm_auth_t a;
    tdm_error_t err;
    char *text = malloc(64 * 1024);
    assert_non_null(text);
    char *at = text;
    for (uint32_t i = 1; i <= TDM_TENANT_MAX; i++) at += sprintf(at, "t%u " HASH_K "\n", i);
    assert_int_equal(parse(&a, text, &err), TDM_ERR_LIMIT); /* one tenant too many */
    at = text;
    for (uint32_t i = 0; i <= TDM_AUTH_KEY_MAX; i++) at += sprintf(at, "t " HASH_K "\n");
    assert_int_equal(parse(&a, text, &err), TDM_ERR_LIMIT);
    free(text);
    assert_int_equal(tdm_auth_load(&a, "/nonexistent/keys", &err), TDM_ERR_NOT_FOUND);
}

static void a_file_is_read_as_its_text(void **state) {
    (void)state;
    char path[] = "/tmp/tdm_auth_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    assert_true(fputs("acme " HASH_K "\n", f) >= 0);
    assert_int_equal(fclose(f), 0);
    tdm_auth_t a;
    tdm_error_t err = {0};
    assert_int_equal(tdm_auth_load(&a, path, &err), TDM_OK);
    assert_int_equal(tdm_auth_check(&a, "Bearer k", 0), 1);
    assert_int_equal(remove(path), 0);
}

static void a_file_without_a_key_does_not_open_the_house(void **state) {
    (void)state;
    tdm_auth_t a;
    tdm_error_t err = {0};
    char path[] = "/tmp/tdm-auth-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "# later\n\n", 9), 9);
    (void)close(fd);
    assert_int_equal(tdm_auth_load(&a, path, &err), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "no key"));
    assert_int_equal(remove(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tenants_are_numbered_in_order),
        cmocka_unit_test(no_key_means_open_to_trusted_peers),
        cmocka_unit_test(a_bad_line_is_named_and_not_quoted),
        cmocka_unit_test(bounds_are_refused),
        cmocka_unit_test(a_file_is_read_as_its_text),
        cmocka_unit_test(a_file_without_a_key_does_not_open_the_house),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
