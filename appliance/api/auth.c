/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/api/auth.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define FILE_MAX (64u * 1024u)

void tdm_auth_init(tdm_auth_t *a) {
    memset(a, 0, sizeof *a);
    a->tenant_cnt = 1;
    memcpy(a->tenant_name[0], "open", 5);
}

static int is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static int read_hash(const char *hex, uint64_t sz, uint8_t *hash) {
    if (sz != 64) return 0;
    for (uint32_t i = 0; i < 32; i++) {
        int hi = hex_value(hex[2 * i]), lo = hex_value(hex[2 * i + 1]);
        if (hi < 0 || lo < 0) return 0;
        hash[i] = (uint8_t)(hi * 16 + lo);
    }
    return 1;
}

/* is_of_nothing: the hash of the empty text, as `echo -n $KEY | sha256sum`
   gives where KEY is not set: everybody has that key. */
static int is_of_nothing(const uint8_t *hash) {
    uint8_t empty[32];
    return gnutls_hash_fast(GNUTLS_DIG_SHA256, "", 0, empty) != 0 ||
           memcmp(hash, empty, sizeof empty) == 0;
}

/* tenant_of finds or adds a tenant; -1 where there is no room or the name
   does not fit. */
static int tenant_of(tdm_auth_t *a, const char *name, uint64_t sz) {
    if (sz == 0 || sz >= TDM_AUTH_TENANT_MAX) return -1;
    for (uint32_t i = 1; i < a->tenant_cnt; i++)
        if (strlen(a->tenant_name[i]) == sz && memcmp(a->tenant_name[i], name, sz) == 0)
            return (int)i;
    if (a->tenant_cnt == TDM_TENANT_MAX) return -1;
    memcpy(a->tenant_name[a->tenant_cnt], name, sz);
    return (int)a->tenant_cnt++;
}

static tdm_status_t parse_line(tdm_auth_t *a, const char *line, uint64_t sz, uint32_t number,
                               tdm_error_t *err) {
    const char *end = memchr(line, '#', sz);
    if (!end) end = line + sz;
    while (line < end && is_blank(*line)) line++;
    while (end > line && is_blank(end[-1])) end--;
    if (line == end) return TDM_OK;
    const char *space = line;
    while (space < end && !is_blank(*space)) space++;
    const char *hex = space;
    while (hex < end && is_blank(*hex)) hex++;
    if (a->key_cnt == TDM_AUTH_KEY_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT, "keys file line %u: more than %d keys", number,
                             TDM_AUTH_KEY_MAX);
    if (!read_hash(hex, (uint64_t)(end - hex), a->hash[a->key_cnt]))
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "keys file line %u: want \"<tenant> <64 hex digits>\"", number);
    if (is_of_nothing(a->hash[a->key_cnt]))
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "keys file line %u: the hash of an empty key, which anybody has",
                             number);
    int tenant = tenant_of(a, line, (uint64_t)(space - line));
    if (tenant < 0)
        return tdm_error_set(err, TDM_ERR_LIMIT,
                             "keys file line %u: tenant name over %d bytes, or over %d tenants",
                             number, TDM_AUTH_TENANT_MAX - 1, TDM_TENANT_MAX - 1);
    a->tenant[a->key_cnt++] = (uint16_t)tenant;
    return TDM_OK;
}

tdm_status_t tdm_auth_parse(tdm_auth_t *a, const char *text, uint64_t sz, tdm_error_t *err) {
    tdm_auth_init(a);
    uint32_t number = 0;
    for (uint64_t at = 0; at < sz;) {
        const char *nl = memchr(text + at, '\n', sz - at);
        uint64_t end = nl ? (uint64_t)(nl - text) : sz;
        tdm_status_t st = parse_line(a, text + at, end - at, ++number, err);
        if (st != TDM_OK) {
            tdm_auth_init(a);
            return st;
        }
        at = end + 1;
    }
    return TDM_OK;
}

tdm_status_t tdm_auth_load(tdm_auth_t *a, const char *path, tdm_error_t *err) {
    tdm_auth_init(a);
    FILE *f = fopen(path, "re");
    if (!f)
        return tdm_error_set(err, errno == ENOENT ? TDM_ERR_NOT_FOUND : TDM_ERR_IO,
                             "keys file %s: %s", path, strerror(errno));
    static char text[FILE_MAX];
    size_t sz = fread(text, 1, sizeof text, f);
    int is_bad = ferror(f), is_long = sz == sizeof text;
    fclose(f);
    if (is_bad) return tdm_error_set(err, TDM_ERR_IO, "keys file %s: cannot be read", path);
    if (is_long)
        return tdm_error_set(err, TDM_ERR_LIMIT, "keys file %s: over %u bytes", path, FILE_MAX - 1);
    tdm_status_t st = tdm_auth_parse(a, text, sz, err);
    gnutls_memset(text, 0, sizeof text);
    if (st != TDM_OK || a->key_cnt > 0) return st;
    return tdm_error_set(err, TDM_ERR_INVAL,
                         "keys file %s holds no key; to be open to trusted peers, name no file",
                         path);
}

int tdm_auth_check(const tdm_auth_t *a, const char *authorization, int is_trusted_peer) {
    if (a->key_cnt == 0) return is_trusted_peer ? 0 : -1;
    const char *key = authorization;
    int is_bearer = strncasecmp(key, "bearer ", 7) == 0;
    if (is_bearer) key += 7;
    while (*key == ' ') key++;
    uint8_t hash[32];
    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, key, strlen(key), hash) != 0) return -1;
    int tenant = -1;
    for (uint32_t i = 0; i < a->key_cnt; i++) {
        int is_equal = gnutls_memcmp(hash, a->hash[i], sizeof hash) == 0;
        tenant = is_equal ? (int)a->tenant[i] : tenant;
    }
    return is_bearer ? tenant : -1;
}
