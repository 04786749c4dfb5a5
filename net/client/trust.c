/* SPDX-License-Identifier: Apache-2.0 */
#include "net/client/client_private.h"

#include <arpa/inet.h>
#include <gnutls/x509.h>
#include <ngtcp2/ngtcp2_crypto_gnutls.h>
#include <string.h>

static const char priority_text[] =
    "%DISABLE_TLS13_COMPAT_MODE:NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:"
    "+AES-256-GCM:+CHACHA20-POLY1305:-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1:"
    "+GROUP-SECP384R1";

static uint8_t alpn_h3[] = {'h', '3'};

static tdm_client_t *client_of(gnutls_session_t tls) {
    return ((ngtcp2_crypto_conn_ref *)gnutls_session_get_ptr(tls))->user_data;
}

static int refuse(tdm_client_t *c, const char *text) {
    if (c->error.status == TDM_OK) tdm_error_set(&c->error, TDM_ERR_PERM, "%s", text);
    return GNUTLS_E_CERTIFICATE_ERROR;
}

static int verify_chain(tdm_client_t *c, gnutls_session_t tls) {
    unsigned status = 0;
    if (gnutls_certificate_verify_peers3(tls, c->host, &status) != 0) {
        return refuse(c, "the server's certificate could not be checked");
    }
    if (status == 0) return 0;
    gnutls_datum_t why = {0};
    gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &why, 0);
    int rv = refuse(c, why.data == NULL ? "the server's certificate is not trusted"
                                        : (const char *)why.data);
    gnutls_free(why.data);
    return rv;
}

/* verify is called inside the handshake, with the server's certificate. */
static int verify(gnutls_session_t tls) {
    tdm_client_t *c = client_of(tls);
    unsigned cnt = 0;
    size_t sz = sizeof c->peer_pin;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(tls, &cnt);
    if (chain == NULL || cnt == 0 ||
        gnutls_fingerprint(GNUTLS_DIG_SHA256, &chain[0], c->peer_pin, &sz) != 0) {
        return refuse(c, "the server sent no certificate");
    }
    c->has_peer_pin = 1;
    switch (c->cfg.verify) {
    case TDM_CLIENT_VERIFY_INSECURE: return 0;
    case TDM_CLIENT_VERIFY_PIN:
        if (memcmp(c->peer_pin, c->cfg.pin, sizeof c->peer_pin) == 0) return 0;
        return refuse(c, "the server's certificate is not the pinned one");
    default: return verify_chain(c, tls);
    }
}

static int is_address(const char *host) {
    uint8_t addr[16];
    return inet_pton(AF_INET, host, addr) == 1 || inet_pton(AF_INET6, host, addr) == 1;
}

static int set_session(tdm_client_t *c) {
    gnutls_datum_t alpn = {alpn_h3, sizeof alpn_h3};
    int rv = gnutls_priority_set_direct(c->tls, priority_text, NULL);
    if (rv == 0 && ngtcp2_crypto_gnutls_configure_client_session(c->tls) != 0) {
        rv = GNUTLS_E_INTERNAL_ERROR;
    }
    if (rv == 0) rv = gnutls_credentials_set(c->tls, GNUTLS_CRD_CERTIFICATE, c->cred);
    if (rv == 0) rv = gnutls_alpn_set_protocols(c->tls, &alpn, 1, GNUTLS_ALPN_MANDATORY);
    if (rv == 0 && !is_address(c->host)) {
        rv = gnutls_server_name_set(c->tls, GNUTLS_NAME_DNS, c->host, strlen(c->host));
    }
    gnutls_session_set_verify_function(c->tls, verify);
    gnutls_session_set_ptr(c->tls, &c->ref);
    return rv;
}

tdm_status_t trust_open(tdm_client_t *c, tdm_error_t *err) {
    int rv = gnutls_certificate_allocate_credentials(&c->cred);
    if (rv != 0) return tdm_error_set(err, TDM_ERR_NOMEM, "client: %s", gnutls_strerror(rv));
    if (c->cfg.verify == TDM_CLIENT_VERIFY_CA) {
        rv = c->cfg.ca_file == NULL ? gnutls_certificate_set_x509_system_trust(c->cred)
                                    : gnutls_certificate_set_x509_trust_file(
                                          c->cred, c->cfg.ca_file, GNUTLS_X509_FMT_PEM);
        if (rv <= 0) {
            return tdm_error_set(err, TDM_ERR_NOT_FOUND, "client: no CA certificate in %s",
                                 c->cfg.ca_file == NULL ? "the system's store" : c->cfg.ca_file);
        }
    }
    rv = gnutls_init(&c->tls, GNUTLS_CLIENT | GNUTLS_NO_TICKETS);
    if (rv == 0) rv = set_session(c);
    if (rv == 0) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_INTERNAL, "client: TLS: %s", gnutls_strerror(rv));
}

void trust_close(tdm_client_t *c) {
    if (c->tls != NULL) gnutls_deinit(c->tls);
    if (c->cred != NULL) gnutls_certificate_free_credentials(c->cred);
    c->tls = NULL;
    c->cred = NULL;
}
