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

/* pair_t: a certificate and its key in files of their own, not there yet. */
typedef struct pair {
    char cert[64], key[64];
    tdm_cert_config_t cfg;
    int is_made;
} pair_t;

static void pair_gone(const pair_t *p) {
    unlink(p->cert);
    unlink(p->key);
}

/* pair_of names the files by a letter; last is the third of its names. */
static void pair_of(pair_t *p, char letter, const char *last) {
    *p = (pair_t){0};
    snprintf(p->cert, sizeof p->cert, "/tmp/tdm-cert-%c%d.pem", letter, (int)getpid());
    snprintf(p->key, sizeof p->key, "/tmp/tdm-key-%c%d.pem", letter, (int)getpid());
    pair_gone(p);
    p->cfg = (tdm_cert_config_t){.cert_file = p->cert,
                                 .key_file = p->key,
                                 .name = {"tandem.test", "10.9.0.1", last},
                                 .name_cnt = 3,
                                 .wall_s = tdm_clock_wall_s()};
}

static void certificate_is_made_once_and_private(void **state) {
    (void)state;
    pair_t p;
    tdm_error_t err = {0};
    pair_of(&p, 'p', "fd00::1");
    uint8_t first[TDM_CERT_FINGERPRINT];
    uint8_t again[TDM_CERT_FINGERPRINT];
    struct stat st;
    assert_int_equal(tdm_cert_ensure(&p.cfg, &p.is_made, &err), TDM_OK);
    assert_true(p.is_made);
    assert_int_equal(stat(p.key, &st), 0);
    assert_int_equal(st.st_mode & 0777u, 0600);
    assert_int_equal(tdm_cert_fingerprint(p.cert, first, &err), TDM_OK);
    assert_int_equal(tdm_cert_ensure(&p.cfg, &p.is_made, &err), TDM_OK);
    assert_false(p.is_made);
    assert_int_equal(tdm_cert_fingerprint(p.cert, again, &err), TDM_OK);
    assert_memory_equal(first, again, sizeof first);
    unlink(p.key);
    assert_int_equal(tdm_cert_ensure(&p.cfg, &p.is_made, &err), TDM_ERR_NOT_FOUND);
    p.cfg.days = TDM_CERT_DAYS_MAX + 1u;
    assert_int_equal(tdm_cert_ensure(&p.cfg, &p.is_made, &err), TDM_ERR_INVAL);
    unlink(p.cert);
}

/* A host without an IPv6 address leaves that name empty. */
static void an_empty_name_spoils_no_certificate(void **state) {
    (void)state;
    pair_t p;
    tdm_error_t err = {0};
    pair_of(&p, 'e', "");
    assert_int_equal(tdm_cert_ensure(&p.cfg, &p.is_made, &err), TDM_OK);
    gnutls_certificate_credentials_t cred = NULL;
    assert_int_equal(gnutls_certificate_allocate_credentials(&cred), 0);
    assert_int_equal(gnutls_certificate_set_x509_key_file(cred, p.cert, p.key, GNUTLS_X509_FMT_PEM),
                     0);
    gnutls_certificate_free_credentials(cred);
    pair_gone(&p);
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
    pair_t p;
    tdm_error_t err = {0};
    pair_of(&p, 'a', "fd00::1");
    assert_int_equal(tdm_cert_ensure(&p.cfg, &p.is_made, &err), TDM_OK);
    assert_int_equal(shell("python3 " TDM_SOURCE_DIR "/tests/unit/net_quic/anchors.py %s %s "
                           "tandem.test 10.9.0.1 fd00::1",
                           p.cert, p.key),
                     0);
    assert_int_equal(cert_cnt(p.cert, p.key), 1);
    pair_gone(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificate_is_made_once_and_private),
        cmocka_unit_test(an_empty_name_spoils_no_certificate),
        cmocka_unit_test(the_file_is_an_anchor_by_the_strict_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
