/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what an operator offers is taken whole or not at all, twice is
   once, what is made once stays, and a step back to what no longer parses
   falls back to the former file.
   Method: a root folder of the test's own, read with plain calls. */
#include "appliance/setup/store.h"
#include "tests/unit/shell.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka wants the first two above */
#include <cmocka.h>

static char root[64], offer[96];
static tdm_error_t err, warning;
static char key[64];

static char *path_of(const char *name) {
    static char path[512];
    (void)snprintf(path, sizeof path, "%s%s", root, name);
    return path;
}

static void put(const char *name, const char *text) {
    FILE *f = fopen(path_of(name), "w");
    assert_non_null(f);
    (void)fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static const char *get(const char *name) {
    static char text[8192];
    FILE *f = fopen(path_of(name), "r");
    if (!f) return "";
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    (void)fclose(f);
    return text;
}

static int is_there(const char *name) {
    return access(path_of(name), F_OK) == 0;
}

static tdm_status_t accept_offer(int *is_new) {
    memset(&err, 0, sizeof err);
    return tdm_setup_accept(root, offer, is_new, &err);
}

static void write_out(void) {
    memset(&warning, 0, sizeof warning);
    if (tdm_setup_write(root, key, &warning, &err) != TDM_OK) fail_msg("%s", err.text);
}

static int setup(void **state) {
    (void)state;
    strcpy(root, "/tmp/tdm-setup-XXXXXX");
    if (!mkdtemp(root)) return -1;
    (void)snprintf(offer, sizeof offer, "%s/offer", root);
    return mkdir(offer, 0755);
}

static int teardown(void **state) {
    (void)state;
    return shell("rm -rf '%s'", root);
}

#define STATE TDM_SETUP_STATE
#define RUN   TDM_SETUP_RUN
#define HASH  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void a_file_is_accepted_once(void **state) {
    (void)state;
    int is_new = 0;
    assert_int_equal(accept_offer(&is_new), TDM_ERR_NOT_FOUND);
    put("/offer/appliance.json", "{\"machine\": {\"hostname\": \"one\"}}");
    assert_int_equal(accept_offer(&is_new), TDM_OK);
    assert_int_equal(is_new, 1);
    assert_string_equal(get(STATE "/accepted/appliance.json"), get("/offer/appliance.json"));
    assert_int_equal(accept_offer(&is_new), TDM_OK);
    assert_int_equal(is_new, 0);
    assert_false(is_there(STATE "/former"));
    put("/offer/appliance.json", "{\"machine\": {\"hostname\": \"two\"}}");
    assert_int_equal(accept_offer(&is_new), TDM_OK);
    assert_int_equal(is_new, 1);
    assert_non_null(strstr(get(STATE "/accepted/appliance.json"), "two"));
    assert_non_null(strstr(get(STATE "/former/appliance.json"), "one"));
    assert_false(is_there(STATE "/next"));
}

static void what_is_refused_changes_nothing(void **state) {
    (void)state;
    put("/offer/appliance.json", "{\"machine\": {\"hostname\": \"one\"}}");
    assert_int_equal(accept_offer(NULL), TDM_OK);
    put("/offer/appliance.json", "{\"machine\": {\"hostname\": \"no name\"}}");
    assert_int_equal(accept_offer(NULL), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "machine.hostname"));
    put("/offer/appliance.json", "{\"machine\": {\"hostname\": \"two\"}}");
    put("/offer/certificate.pem", "x");
    assert_int_equal(accept_offer(NULL), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "without key.pem"));
    put("/offer/key.pem", "y");
    assert_int_equal(accept_offer(NULL), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "certificate.pem, key.pem"));
    assert_int_equal(unlink(path_of("/offer/key.pem")), 0);
    assert_int_equal(unlink(path_of("/offer/certificate.pem")), 0);
    assert_int_equal(unlink(path_of("/offer/appliance.json")), 0);
    assert_int_equal(symlink("/etc/passwd", path_of("/offer/appliance.json")), 0);
    assert_int_equal(accept_offer(NULL), TDM_ERR_IO); /* a link is not followed */
    assert_int_equal(unlink(path_of("/offer/appliance.json")), 0);
    assert_int_equal(mkfifo(path_of("/offer/appliance.json"), 0644), 0);
    assert_int_equal(accept_offer(NULL), TDM_ERR_INVAL); /* nor is a pipe waited for */
    assert_non_null(strstr(err.text, "no regular file"));
    assert_int_equal(truncate(path_of("/offer/appliance.json"), 0), -1);
    assert_int_equal(unlink(path_of("/offer/appliance.json")), 0);
    put("/offer/appliance.json", "");
    assert_int_equal(truncate(path_of("/offer/appliance.json"), TDM_SETUP_FILE_MAX + 1), 0);
    assert_int_equal(accept_offer(NULL), TDM_ERR_LIMIT);
    assert_non_null(strstr(get(STATE "/accepted/appliance.json"), "one"));
    assert_false(is_there(STATE "/former"));
}

/* make_pair writes a key and a certificate of it. */
static void make_pair(const char *certificate, const char *secret) {
    gnutls_x509_privkey_t k;
    gnutls_x509_crt_t c;
    unsigned char pem[4096];
    size_t sz = sizeof pem - 1;
    assert_int_equal(gnutls_x509_privkey_init(&k), 0);
    assert_int_equal(gnutls_x509_privkey_generate(
                         k, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0),
                     0);
    assert_int_equal(gnutls_x509_privkey_export(k, GNUTLS_X509_FMT_PEM, pem, &sz), 0);
    pem[sz] = 0;
    put(secret, (const char *)pem);
    assert_int_equal(gnutls_x509_crt_init(&c), 0);
    assert_int_equal(gnutls_x509_crt_set_version(c, 3), 0);
    assert_int_equal(gnutls_x509_crt_set_serial(c, "\x01", 1), 0);
    assert_int_equal(gnutls_x509_crt_set_activation_time(c, 0), 0);
    assert_int_equal(gnutls_x509_crt_set_expiration_time(c, 0x7fffffff), 0);
    assert_int_equal(gnutls_x509_crt_set_key(c, k), 0);
    assert_int_equal(gnutls_x509_crt_sign2(c, c, k, GNUTLS_DIG_SHA256, 0), 0);
    sz = sizeof pem - 1;
    assert_int_equal(gnutls_x509_crt_export(c, GNUTLS_X509_FMT_PEM, pem, &sz), 0);
    pem[sz] = 0;
    put(certificate, (const char *)pem);
    gnutls_x509_crt_deinit(c);
    gnutls_x509_privkey_deinit(k);
}

static void a_certificate_comes_with_its_own_key(void **state) {
    (void)state;
    put("/offer/appliance.json", "{}");
    make_pair("/offer/certificate.pem", "/offer/key.pem");
    assert_int_equal(accept_offer(NULL), TDM_OK);
    write_out();
    assert_non_null(strstr(get(RUN "/tandem.json"), "accepted/certificate.pem"));
    make_pair("/offer/other.pem", "/offer/key.pem");
    assert_int_equal(accept_offer(NULL), TDM_ERR_INVAL);
    struct stat sb;
    assert_int_equal(stat(path_of(STATE "/accepted/key.pem"), &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0640);
    assert_int_equal(unlink(path_of("/offer/certificate.pem")), 0);
    assert_int_equal(unlink(path_of("/offer/key.pem")), 0);
    assert_int_equal(accept_offer(NULL), TDM_OK); /* taken away again */
    assert_false(is_there(STATE "/accepted/certificate.pem"));
}

static void identity_and_key_are_made_once(void **state) {
    (void)state;
    char id[64], made[64], stored[256];
    write_out();
    strcpy(made, key);
    assert_true(strncmp(made, "tdm-", 4) == 0 && strlen(made) == 52);
    strcpy(id, get(STATE "/machine-id"));
    assert_int_equal(strspn(id, "0123456789abcdef"), 32);
    strcpy(stored, get(STATE "/api.keys"));
    assert_null(strstr(stored, made)); /* the hash alone is kept */
    write_out();
    assert_string_equal(key, "");
    assert_string_equal(get(STATE "/machine-id"), id);
    assert_string_equal(get(STATE "/api.keys"), stored);
    assert_non_null(strstr(get(RUN "/api.keys"), stored));
    char local[128];
    strcpy(local, get(RUN "/local.key"));
    assert_int_equal(strlen(local), 52);
    assert_null(strstr(get(RUN "/api.keys"), local));
    assert_non_null(strstr(get(RUN "/api.keys"), "\nlocal "));
    struct stat sb;
    assert_int_equal(stat(path_of(RUN "/local.key"), &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0600);
    put("/offer/appliance.json", "{\"keys\": {\"api\": [\"chat " HASH "\"]}}");
    assert_int_equal(accept_offer(NULL), TDM_OK); /* a key that was given takes its place */
    write_out();
    assert_null(strstr(get(RUN "/api.keys"), stored));
    assert_non_null(strstr(get(RUN "/api.keys"), "chat " HASH "\nlocal "));
}

/* Whatever cannot be written: a key that is kept was shown. */
static void a_key_is_kept_only_where_it_is_shown(void **state) {
    (void)state;
    static const char *const file[] = {
        RUN "/tandem.json", RUN "/api.keys",
        RUN "/hostname",    RUN "/units",
        RUN "/environment", RUN "/local.key",
        RUN "/manifest",    STATE "/machine-id",
        STATE "/api.keys",  "/run/systemd/system/tandemd.service.d/appliance.conf"};
    for (size_t i = 0; i < TDM_COUNT_OF(file); i++) {
        char inside[256];
        (void)snprintf(inside, sizeof inside, "%s/x", file[i]);
        /* a folder that holds something takes no file's name */
        assert_int_equal(
            shell("rm -rf '%s'/run '%s'/var; mkdir -p '%s%s'", root, root, root, inside), 0);
        memset(&err, 0, sizeof err);
        assert_int_not_equal(tdm_setup_write(root, key, &warning, &err), TDM_OK);
        assert_string_equal(key, "");
        if (i != 8) assert_false(is_there(STATE "/api.keys"));
        assert_int_equal(shell("rm -rf '%s%s'", root, file[i]), 0);
        write_out();
        assert_int_equal(strlen(key), 52);
        assert_true(is_there(STATE "/api.keys"));
    }
}

/* A write that was cut leaves NAME.new behind; so does a whole next/. */
static void what_a_cut_left_is_in_nobodys_way(void **state) {
    (void)state;
    static const char *const left[] = {"appliance.json", "certificate.pem", "key.pem"};
    static const char *const where[] = {"next", "former"};
    put("/offer/appliance.json", "{\"machine\": {\"hostname\": \"one\"}}");
    assert_int_equal(accept_offer(NULL), TDM_OK);
    for (uint32_t i = 0; i < 12; i++) {
        char name[128], text[96];
        (void)snprintf(name, sizeof name, STATE "/%s", where[i / 6]);
        (void)mkdir(path_of(name), 0750);
        (void)snprintf(name, sizeof name, STATE "/%s/%s%s", where[i / 6], left[i % 3],
                       i / 3 % 2 ? "" : ".new");
        put(name, "half");
        (void)snprintf(text, sizeof text, "{\"machine\": {\"hostname\": \"host%u\"}}", i);
        put("/offer/appliance.json", text);
        int is_new = 0;
        if (accept_offer(&is_new) != TDM_OK) fail_msg("%s: %s", name, err.text);
        assert_int_equal(is_new, 1);
        assert_string_equal(get(STATE "/accepted/appliance.json"), text);
        assert_false(is_there(STATE "/next"));
        assert_false(is_there(STATE "/accepted/key.pem"));
        write_out();
    }
}

/* Whose text is empty is nobody's key. */
static void an_empty_local_key_is_made_anew(void **state) {
    (void)state;
    write_out();
    put(RUN "/local.key", "");
    write_out();
    assert_int_equal(strlen(get(RUN "/local.key")), 52);
    assert_null(strstr(get(RUN "/api.keys"), "e3b0c44298fc1c14"));
}

static void the_image_s_own_id_is_kept(void **state) {
    (void)state;
    assert_int_equal(mkdir(path_of("/etc"), 0755), 0);
    put("/etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    write_out();
    assert_string_equal(get(STATE "/machine-id"), "0123456789abcdef0123456789abcdef\n");
    put("/etc/machine-id", "ffffffffffffffffffffffffffffffff\n");
    write_out();
    assert_string_equal(get(STATE "/machine-id"), "0123456789abcdef0123456789abcdef\n");
}

static void stale_files_go_and_altered_ones_come_back(void **state) {
    (void)state;
    static const char slice[] = "/run/systemd/system/system.slice.d/appliance.conf";
    uint32_t cnt, bad;
    char first[128];
    put("/offer/appliance.json", "{\"machine\": {\"house_cpus\": \"0\"}}");
    assert_int_equal(accept_offer(NULL), TDM_OK);
    write_out();
    assert_true(is_there(slice));
    assert_int_equal(tdm_setup_held(root, &cnt, &bad, first, &err), TDM_OK);
    assert_true(cnt > 5 && bad == 0);
    put(slice, "[Slice]\nAllowedCPUs=3\n");
    assert_int_equal(tdm_setup_held(root, &cnt, &bad, first, &err), TDM_OK);
    assert_int_equal(bad, 1);
    assert_string_equal(first, slice);
    write_out();
    assert_non_null(strstr(get(slice), "AllowedCPUs=0\n"));
    put("/offer/appliance.json", "{}");
    assert_int_equal(accept_offer(NULL), TDM_OK);
    write_out();
    assert_false(is_there(slice));
    assert_false(is_there(RUN "/tandem.json.new"));
}

static void a_step_back_takes_the_former_file(void **state) {
    (void)state;
    put("/offer/appliance.json", "{\"machine\": {\"hostname\": \"one\"}}");
    assert_int_equal(accept_offer(NULL), TDM_OK);
    put("/offer/appliance.json", "{\"machine\": {\"hostname\": \"two\"}}");
    assert_int_equal(accept_offer(NULL), TDM_OK);
    put(STATE "/accepted/appliance.json", "{\"machine\": {\"of_a_later_version\": 1}}");
    write_out();
    assert_non_null(strstr(warning.text, "of_a_later_version"));
    assert_string_equal(get(RUN "/hostname"), "one\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_is_accepted_once, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_refused_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_certificate_comes_with_its_own_key, setup, teardown),
        cmocka_unit_test_setup_teardown(identity_and_key_are_made_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_key_is_kept_only_where_it_is_shown, setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_cut_left_is_in_nobodys_way, setup, teardown),
        cmocka_unit_test_setup_teardown(an_empty_local_key_is_made_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(the_image_s_own_id_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(stale_files_go_and_altered_ones_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(a_step_back_takes_the_former_file, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
