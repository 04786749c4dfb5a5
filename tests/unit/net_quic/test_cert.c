/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate that the door makes where none is given. */
#include "net/quic/cert.h"
#include "net/quic/quic_private.h"

#include "appliance/base/clock.h"
#include "tests/unit/shell.h"

#include <gnutls/gnutls.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void certificate_is_made_once_and_private(void **state) {
    (void)state;
    char cert[64];
    char key[64];
    snprintf(cert, sizeof cert, "/tmp/tdm-cert-%d.pem", (int)getpid());
    snprintf(key, sizeof key, "/tmp/tdm-key-%d.pem", (int)getpid());
    unlink(cert);
    unlink(key);
    tdm_cert_config_t cfg = {.cert_file = cert,
                             .key_file = key,
                             .name = {"tandem.test", "10.9.0.1", "fd00::1"},
                             .name_cnt = 3,
                             .wall_s = tdm_clock_wall_s()};
    tdm_error_t err = {0};
    int is_made = 0;
    uint8_t first[TDM_CERT_FINGERPRINT];
    uint8_t again[TDM_CERT_FINGERPRINT];
    struct stat st;
    assert_int_equal(tdm_cert_ensure(&cfg, &is_made, &err), TDM_OK);
    assert_true(is_made);
    assert_int_equal(stat(key, &st), 0);
    assert_int_equal(st.st_mode & 0777u, 0600);
    assert_int_equal(tdm_cert_fingerprint(cert, first, &err), TDM_OK);
    assert_int_equal(tdm_cert_ensure(&cfg, &is_made, &err), TDM_OK);
    assert_false(is_made);
    assert_int_equal(tdm_cert_fingerprint(cert, again, &err), TDM_OK);
    assert_memory_equal(first, again, sizeof first);
    unlink(key);
    assert_int_equal(tdm_cert_ensure(&cfg, &is_made, &err), TDM_ERR_NOT_FOUND);
    cfg.days = TDM_CERT_DAYS_MAX + 1u;
    assert_int_equal(tdm_cert_ensure(&cfg, &is_made, &err), TDM_ERR_INVAL);
    unlink(cert);
}

/* A host without an IPv6 address leaves that name empty. */
static void an_empty_name_spoils_no_certificate(void **state) {
    (void)state;
    char cert[64];
    char key[64];
    snprintf(cert, sizeof cert, "/tmp/tdm-cert-e%d.pem", (int)getpid());
    snprintf(key, sizeof key, "/tmp/tdm-key-e%d.pem", (int)getpid());
    unlink(cert);
    unlink(key);
    tdm_cert_config_t cfg = {.cert_file = cert,
                             .key_file = key,
                             .name = {"tandem.test", "10.9.0.1", ""},
                             .name_cnt = 3,
                             .wall_s = tdm_clock_wall_s()};
    tdm_error_t err = {0};
    int is_made = 0;
    assert_int_equal(tdm_cert_ensure(&cfg, &is_made, &err), TDM_OK);
    gnutls_certificate_credentials_t cred = NULL;
    assert_int_equal(gnutls_certificate_allocate_credentials(&cred), 0);
    assert_int_equal(gnutls_certificate_set_x509_key_file(cred, cert, key, GNUTLS_X509_FMT_PEM), 0);
    gnutls_certificate_free_credentials(cred);
    unlink(cert);
    unlink(key);
}

/* cert_cnt: certificates that a handshake sends. */
static uint32_t cert_cnt(const char *cert, const char *key) {
    tls_t t = {0};
    tdm_error_t err = {0};
    gnutls_datum_t der;
    uint32_t cnt = 0;
    if (tls_open(&t, cert, key, &err) != TDM_OK) fail_msg("%s", err.text);
    while (gnutls_certificate_get_crt_raw(t.cred, 0, cnt, &der) == 0) cnt++;
    tls_close(&t);
    return cnt;
}

/* Clients of another library take the server by its own file, and by the
   authority in it, for its names and no other. */
static void the_file_is_an_anchor_by_the_strict_rules(void **state) {
    (void)state;
    char cert[64];
    char key[64];
    snprintf(cert, sizeof cert, "/tmp/tdm-cert-a%d.pem", (int)getpid());
    snprintf(key, sizeof key, "/tmp/tdm-key-a%d.pem", (int)getpid());
    unlink(cert);
    unlink(key);
    tdm_cert_config_t cfg = {.cert_file = cert,
                             .key_file = key,
                             .name = {"tandem.test", "10.9.0.1", "fd00::1"},
                             .name_cnt = 3,
                             .wall_s = tdm_clock_wall_s()};
    tdm_error_t err = {0};
    int is_made = 0;
    assert_int_equal(tdm_cert_ensure(&cfg, &is_made, &err), TDM_OK);
    assert_int_equal(shell("python3 " TDM_SOURCE_DIR "/tests/unit/net_quic/anchors.py %s %s "
                           "tandem.test 10.9.0.1 fd00::1",
                           cert, key),
                     0);
    assert_int_equal(cert_cnt(cert, key), 1);
    unlink(cert);
    unlink(key);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificate_is_made_once_and_private),
        cmocka_unit_test(an_empty_name_spoils_no_certificate),
        cmocka_unit_test(the_file_is_an_anchor_by_the_strict_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
