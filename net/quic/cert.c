/* SPDX-License-Identifier: Apache-2.0 */
#include "net/quic/cert.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DAY_S 86400

static tdm_status_t tls_error(tdm_error_t *err, const char *what, int rv) {
    return tdm_error_set(err, TDM_ERR_INTERNAL, "certificate: %s: %s", what, gnutls_strerror(rv));
}

/* write_file writes a new file whole, with its final mode from the first
   byte on. */
static tdm_status_t write_file(const char *path, const gnutls_datum_t *d, mode_t mode,
                               tdm_error_t *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0) return tdm_error_set(err, TDM_ERR_IO, "certificate: %s: %m", path);
    ssize_t n = write(fd, d->data, d->size);
    int is_bad = n != (ssize_t)d->size || fsync(fd) != 0;
    if (close(fd) != 0) is_bad = 1;
    if (!is_bad) return TDM_OK;
    unlink(path);
    return tdm_error_set(err, TDM_ERR_IO, "certificate: cannot write %s", path);
}

/* add_name: an empty name is one that the host does not have.  Written
   into the certificate, it would make GnuTLS refuse the whole of it. */
static int add_name(gnutls_x509_crt_t crt, const char *name) {
    uint8_t addr[16];
    if (name[0] == '\0') return 0;
    if (inet_pton(AF_INET, name, addr) == 1) {
        return gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_IPADDRESS, addr, 4,
                                                    GNUTLS_FSAN_APPEND);
    }
    if (inet_pton(AF_INET6, name, addr) == 1) {
        return gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_IPADDRESS, addr, 16,
                                                    GNUTLS_FSAN_APPEND);
    }
    return gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_DNSNAME, name,
                                                (unsigned)strlen(name), GNUTLS_FSAN_APPEND);
}

/* made is a certificate with its own key. */
typedef struct made {
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t crt;
    char name[32]; /* common name */
    uint8_t id[20];
    size_t id_sz;
} made_t;

static int new_key(made_t *m) {
    int rv = gnutls_x509_privkey_init(&m->key);
    if (rv == 0) rv = gnutls_x509_crt_init(&m->crt);
    if (rv == 0) {
        rv = gnutls_x509_privkey_generate(m->key, GNUTLS_PK_ECDSA,
                                          GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
    }
    return rv;
}

/* fill_common sets what an issuer and a server have alike. */
static int fill_common(made_t *m, const tdm_cert_config_t *cfg, const uint8_t serial[16]) {
    uint32_t days = cfg->days == 0 ? TDM_CERT_DAYS_MAX : cfg->days;
    int64_t end_s = cfg->wall_s - 3600 + (int64_t)days * DAY_S - 1;
    int rv = gnutls_x509_crt_set_version(m->crt, 3);
    if (rv == 0) rv = gnutls_x509_crt_set_serial(m->crt, serial, 16);
    /* An hour of grace for clients whose clock is behind. */
    if (rv == 0) rv = gnutls_x509_crt_set_activation_time(m->crt, cfg->wall_s - 3600);
    if (rv == 0) rv = gnutls_x509_crt_set_expiration_time(m->crt, end_s);
    if (rv == 0) {
        rv = gnutls_x509_crt_set_dn_by_oid(m->crt, GNUTLS_OID_X520_COMMON_NAME, 0, m->name,
                                           (unsigned)strlen(m->name));
    }
    if (rv == 0) rv = gnutls_x509_crt_set_key(m->crt, m->key);
    m->id_sz = sizeof m->id;
    if (rv == 0) rv = gnutls_x509_crt_get_key_id(m->crt, 0, m->id, &m->id_sz);
    if (rv == 0) rv = gnutls_x509_crt_set_subject_key_id(m->crt, m->id, m->id_sz);
    return rv;
}

static int new_serial(uint8_t serial[16]) {
    int rv = gnutls_rnd(GNUTLS_RND_NONCE, serial, 16);
    serial[0] &= 0x7f; /* a serial number is positive */
    serial[0] |= 0x40;
    return rv;
}

/* make_issuer: its name is its own, as two of one name in a client's store
   would be taken for each other. */
static int make_issuer(made_t *m, const tdm_cert_config_t *cfg) {
    uint8_t serial[16];
    int rv = new_serial(serial);
    uint64_t word;
    memcpy(&word, serial + 8, sizeof word);
    snprintf(m->name, sizeof m->name, "tandem %016llx", (unsigned long long)word);
    if (rv == 0) rv = new_key(m);
    if (rv == 0) rv = fill_common(m, cfg, serial);
    if (rv == 0) rv = gnutls_x509_crt_set_basic_constraints(m->crt, 1, 0);
    if (rv == 0) rv = gnutls_x509_crt_set_key_usage(m->crt, GNUTLS_KEY_KEY_CERT_SIGN);
    if (rv == 0) rv = gnutls_x509_crt_sign2(m->crt, m->crt, m->key, GNUTLS_DIG_SHA256, 0);
    return rv;
}

static int make_server(made_t *m, const made_t *issuer, const tdm_cert_config_t *cfg) {
    static const char purpose[] = GNUTLS_KP_TLS_WWW_SERVER;
    uint8_t serial[16];
    snprintf(m->name, sizeof m->name, "tandem");
    int rv = new_serial(serial);
    if (rv == 0) rv = new_key(m);
    if (rv == 0) rv = fill_common(m, cfg, serial);
    for (uint32_t i = 0; rv == 0 && i < cfg->name_cnt; i++) rv = add_name(m->crt, cfg->name[i]);
    if (rv == 0) rv = gnutls_x509_crt_set_basic_constraints(m->crt, 0, -1);
    if (rv == 0) rv = gnutls_x509_crt_set_key_usage(m->crt, GNUTLS_KEY_DIGITAL_SIGNATURE);
    if (rv == 0) rv = gnutls_x509_crt_set_key_purpose_oid(m->crt, purpose, 0);
    if (rv == 0) rv = gnutls_x509_crt_set_authority_key_id(m->crt, issuer->id, issuer->id_sz);
    if (rv == 0) rv = gnutls_x509_crt_sign2(m->crt, issuer->crt, issuer->key, GNUTLS_DIG_SHA256, 0);
    return rv;
}

static void made_free(made_t *m) {
    gnutls_x509_crt_deinit(m->crt);
    gnutls_x509_privkey_deinit(m->key);
}

/* join gives the text of both certificates in one. */
static int join(const made_t *server, const made_t *issuer, gnutls_datum_t *out) {
    gnutls_datum_t pem[2] = {0};
    int rv = gnutls_x509_crt_export2(server->crt, GNUTLS_X509_FMT_PEM, &pem[0]);
    if (rv == 0) rv = gnutls_x509_crt_export2(issuer->crt, GNUTLS_X509_FMT_PEM, &pem[1]);
    if (rv == 0) {
        out->data = gnutls_malloc(pem[0].size + pem[1].size);
        if (out->data == NULL) rv = GNUTLS_E_MEMORY_ERROR;
    }
    if (rv == 0) {
        memcpy(out->data, pem[0].data, pem[0].size);
        memcpy(out->data + pem[0].size, pem[1].data, pem[1].size);
        out->size = pem[0].size + pem[1].size;
    }
    gnutls_free(pem[0].data);
    gnutls_free(pem[1].data);
    return rv;
}

static tdm_status_t make(const tdm_cert_config_t *cfg, tdm_error_t *err) {
    made_t issuer = {0}, server = {0};
    gnutls_datum_t key_pem = {0};
    gnutls_datum_t crt_pem = {0};
    int rv = make_issuer(&issuer, cfg);
    if (rv == 0) rv = make_server(&server, &issuer, cfg);
    if (rv == 0) rv = gnutls_x509_privkey_export2(server.key, GNUTLS_X509_FMT_PEM, &key_pem);
    if (rv == 0) rv = join(&server, &issuer, &crt_pem);

    tdm_status_t s = rv == 0 ? TDM_OK : tls_error(err, "cannot make one", rv);
    if (s == TDM_OK) s = write_file(cfg->key_file, &key_pem, 0600, err);
    if (s == TDM_OK) {
        s = write_file(cfg->cert_file, &crt_pem, 0644, err);
        if (s != TDM_OK) unlink(cfg->key_file);
    }
    if (key_pem.data != NULL) gnutls_memset(key_pem.data, 0, key_pem.size);
    gnutls_free(key_pem.data);
    gnutls_free(crt_pem.data);
    made_free(&issuer); /* its key goes with it: it signs nothing more */
    made_free(&server);
    return s;
}

tdm_status_t tdm_cert_ensure(const tdm_cert_config_t *cfg, int *is_made, tdm_error_t *err) {
    *is_made = 0;
    if (cfg->cert_file == NULL || cfg->key_file == NULL || cfg->name_cnt == 0 ||
        cfg->name_cnt > TDM_CERT_NAME_MAX || cfg->days > TDM_CERT_DAYS_MAX) {
        return tdm_error_set(err, TDM_ERR_INVAL, "certificate: a configured value is wrong");
    }
    int has_cert = access(cfg->cert_file, F_OK) == 0;
    int has_key = access(cfg->key_file, F_OK) == 0;
    if (has_cert && has_key) return TDM_OK;
    if (has_cert != has_key) {
        return tdm_error_set(
            err, TDM_ERR_NOT_FOUND, "certificate: %s exists but %s does not; give both or neither",
            has_cert ? cfg->cert_file : cfg->key_file, has_cert ? cfg->key_file : cfg->cert_file);
    }
    tdm_status_t s = make(cfg, err);
    *is_made = s == TDM_OK;
    return s;
}

tdm_status_t tdm_cert_fingerprint(const char *cert_file, uint8_t out[TDM_CERT_FINGERPRINT],
                                  tdm_error_t *err) {
    gnutls_datum_t pem = {0};
    gnutls_x509_crt_t crt = NULL;
    size_t sz = TDM_CERT_FINGERPRINT;
    int rv = gnutls_load_file(cert_file, &pem);
    if (rv != 0) {
        return tdm_error_set(err, TDM_ERR_NOT_FOUND, "certificate: cannot read %s", cert_file);
    }
    rv = gnutls_x509_crt_init(&crt);
    if (rv == 0) rv = gnutls_x509_crt_import(crt, &pem, GNUTLS_X509_FMT_PEM);
    if (rv == 0) rv = gnutls_x509_crt_get_fingerprint(crt, GNUTLS_DIG_SHA256, out, &sz);
    gnutls_free(pem.data);
    gnutls_x509_crt_deinit(crt);
    if (rv != 0) {
        return tdm_error_set(err, TDM_ERR_CORRUPT, "certificate: %s: %s", cert_file,
                             gnutls_strerror(rv));
    }
    return TDM_OK;
}
