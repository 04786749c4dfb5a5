/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_API_AUTH_H
#define TDM_API_AUTH_H

/* tdm_auth is the list of bearer keys, as SHA-256 hashes, and the tenant
   each belongs to.  Below this room a tenant is a small index only.

   Keys file, one key a line, '#' starts a comment:
     <tenant> <sha256 of the key, 64 hex digits>
   for instance by
     printf %s "$KEY" | sha256sum

   Tenants get indices 1, 2, ... in the order of their first line; 0 is
   "open", everybody where no key is configured.  A check hashes what the
   client sent and compares it with every hash in constant time, so its
   duration tells nothing about the keys. */

#include "appliance/abi/limits.h"
#include "appliance/base/status.h"

TDM_BEGIN_DECLS

#define TDM_AUTH_KEY_MAX    256 /* keys in all */
#define TDM_AUTH_TENANT_MAX 32  /* bytes of a tenant's name, NUL included */

typedef struct tdm_auth {
    uint32_t key_cnt;    /* 0: open to trusted peers only */
    uint32_t tenant_cnt; /* "open" included: indices are in [0, tenant_cnt) */
    char tenant_name[TDM_TENANT_MAX][TDM_AUTH_TENANT_MAX];
    uint16_t tenant[TDM_AUTH_KEY_MAX];
    uint8_t hash[TDM_AUTH_KEY_MAX][32];
} tdm_auth_t;

/* tdm_auth_init makes an empty list: no key, tenant 0 "open". */
void tdm_auth_init(tdm_auth_t *a);

/* tdm_auth_load reads a keys file into a; an error names the line, never
   its text.  A file without a key is an error too: whoever names one means
   to be asked.  Boot time only. */
TDM_MUST_USE tdm_status_t tdm_auth_load(tdm_auth_t *a, const char *path, tdm_error_t *err);

/* tdm_auth_parse is tdm_auth_load over text in memory. */
TDM_MUST_USE tdm_status_t tdm_auth_parse(tdm_auth_t *a, const char *text, uint64_t sz,
                                         tdm_error_t *err);

/* tdm_auth_check gives the tenant of an Authorization header value, or -1
   where it carries no valid key.  With no key configured everybody is
   tenant 0 if is_trusted_peer, whatever the header says. */
int tdm_auth_check(const tdm_auth_t *a, const char *authorization, int is_trusted_peer);

TDM_END_DECLS

#endif /* TDM_API_AUTH_H */
