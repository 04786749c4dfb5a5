/* SPDX-License-Identifier: Apache-2.0 */
#include "net/quic/quic_private.h"

#include <gnutls/x509.h>
#include <ngtcp2/ngtcp2_crypto_gnutls.h>

/* TLS 1.3 only, without the middlebox compatibility records that QUIC
   forbids (RFC 9001, 8.4).  AES-128-GCM first: with AES instructions it
   is the cheapest per byte. */
static const char priority_text[] =
    "%DISABLE_TLS13_COMPAT_MODE:NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:"
    "+AES-256-GCM:+CHACHA20-POLY1305:-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1:"
    "+GROUP-SECP384R1";

static uint8_t alpn_h3[] = {'h', '3'};

/* chain_take gives the server its chain without an authority at its end that
   signed itself: who trusts it has it (RFC 8446, 4.4.2), and the first
   flight goes to a client that may get three times its own bytes. */
static int chain_take(tls_t *t, const char *cert_file, const char *key_file) {
    gnutls_datum_t cert_pem = {0}, key_pem = {0};
    gnutls_x509_crt_t *crt = NULL;
    gnutls_x509_privkey_t key = NULL;
    unsigned cnt = 0;
    int rv = gnutls_load_file(cert_file, &cert_pem);
    if (rv == 0) rv = gnutls_load_file(key_file, &key_pem);
    if (rv == 0) {
        rv = gnutls_x509_crt_list_import2(&crt, &cnt, &cert_pem, GNUTLS_X509_FMT_PEM,
                                          GNUTLS_X509_CRT_LIST_SORT);
    }
    if (rv >= 0) rv = gnutls_x509_privkey_init(&key);
    if (rv == 0) rv = gnutls_x509_privkey_import2(key, &key_pem, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (rv == 0) {
        unsigned is_rooted = cnt > 1 && gnutls_x509_crt_check_issuer(crt[cnt - 1], crt[cnt - 1]);
        rv = gnutls_certificate_set_x509_key(t->cred, crt, (int)(cnt - is_rooted), key);
    }
    for (unsigned i = 0; i < cnt; i++) gnutls_x509_crt_deinit(crt[i]);
    gnutls_free(crt);
    gnutls_x509_privkey_deinit(key);
    if (key_pem.data != NULL) gnutls_memset(key_pem.data, 0, key_pem.size);
    gnutls_free(key_pem.data);
    gnutls_free(cert_pem.data);
    return rv;
}

tdm_status_t tls_open(tls_t *t, const char *cert_file, const char *key_file, tdm_error_t *err) {
    if (cert_file == NULL || key_file == NULL) {
        return tdm_error_set(err, TDM_ERR_INVAL, "quic: certificate and key files are required");
    }
    int rv = gnutls_certificate_allocate_credentials(&t->cred);
    if (rv != 0) return tdm_error_set(err, TDM_ERR_NOMEM, "quic: %s", gnutls_strerror(rv));
    rv = chain_take(t, cert_file, key_file);
    if (rv < 0) {
        tdm_error_set(err, TDM_ERR_INVAL, "quic: cannot use certificate %s with key %s: %s",
                      cert_file, key_file, gnutls_strerror(rv));
        goto fail_cred;
    }
    rv = gnutls_priority_init(&t->priority, priority_text, NULL);
    if (rv != 0) {
        tdm_error_set(err, TDM_ERR_INTERNAL, "quic: TLS priorities: %s", gnutls_strerror(rv));
        goto fail_cred;
    }
    return TDM_OK;

fail_cred:
    gnutls_certificate_free_credentials(t->cred);
    t->cred = NULL;
    return err == NULL ? TDM_ERR_INVAL : err->status;
}

tdm_status_t tls_reset_secret(const char *key_file, uint8_t secret[32], tdm_error_t *err) {
    static const char label[] = "tandem stateless reset";
    gnutls_datum_t key;
    int rv = gnutls_load_file(key_file, &key);
    if (rv != 0)
        return tdm_error_set(err, TDM_ERR_IO, "quic: %s: %s", key_file, gnutls_strerror(rv));
    rv = gnutls_hmac_fast(GNUTLS_MAC_SHA256, key.data, key.size, label, sizeof label, secret);
    gnutls_memset(key.data, 0, key.size);
    gnutls_free(key.data);
    if (rv == 0) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_INTERNAL, "quic: reset secret: %s", gnutls_strerror(rv));
}

void tls_close(tls_t *t) {
    if (t->priority != NULL) gnutls_priority_deinit(t->priority);
    if (t->cred != NULL) gnutls_certificate_free_credentials(t->cred);
    *t = (tls_t){0};
}

int tls_session_open(const tls_t *t, ngtcp2_crypto_conn_ref *ref, gnutls_session_t *out) {
    gnutls_session_t s;
    /* No tickets: without them there is neither resumption nor 0-RTT, so
       nothing of a request can be replayed. */
    if (gnutls_init(&s, GNUTLS_SERVER | GNUTLS_NO_TICKETS | GNUTLS_NO_END_OF_EARLY_DATA) != 0) {
        return 0;
    }
    gnutls_datum_t alpn = {alpn_h3, sizeof alpn_h3};
    if (gnutls_priority_set(s, t->priority) != 0 ||
        ngtcp2_crypto_gnutls_configure_server_session(s) != 0 ||
        gnutls_credentials_set(s, GNUTLS_CRD_CERTIFICATE, t->cred) != 0 ||
        gnutls_alpn_set_protocols(s, &alpn, 1,
                                  GNUTLS_ALPN_MANDATORY | GNUTLS_ALPN_SERVER_PRECEDENCE) != 0) {
        gnutls_deinit(s);
        return 0;
    }
    gnutls_session_set_ptr(s, ref);
    *out = s;
    return 1;
}
