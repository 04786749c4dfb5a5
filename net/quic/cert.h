/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_QUIC_CERT_H
#define TDM_NET_QUIC_CERT_H

/* The server's certificate.  An operator gives files; where there are
   none one is made at first start (ECDSA P-256, valid for 825 days or
   less) and kept, so that clients may pin its fingerprint.

   cert_file then holds two, the server's and that of the authority that
   signed it, whose key is thrown away: a client that trusts the file trusts
   this server and nothing else.  No single one is everybody's anchor: some
   verifiers want an authority there, and those that do refuse one that
   serves (RFC 5280, 4.2.1.9).  Boot time only; runs before any tile. */

#include "appliance/base/status.h"

#define TDM_CERT_DAYS_MAX    825u
#define TDM_CERT_NAME_MAX    16u /* subject alternative names */
#define TDM_CERT_FINGERPRINT 32u /* SHA-256 of the DER certificate */

typedef struct tdm_cert_config {
    const char *cert_file;               /* PEM, written 0644 */
    const char *key_file;                /* PEM, written 0600 */
    const char *name[TDM_CERT_NAME_MAX]; /* DNS names and IP addresses in text; "": skipped */
    uint32_t name_cnt;                   /* at least one */
    uint32_t days;                       /* 1..TDM_CERT_DAYS_MAX; 0: the most */
    int64_t wall_s;                      /* civil time now */
} tdm_cert_config_t;

/* tdm_cert_ensure does nothing where both files exist, makes both where
   neither does (*is_made says so), and refuses where only one does. */
TDM_MUST_USE tdm_status_t tdm_cert_ensure(const tdm_cert_config_t *cfg, int *is_made,
                                          tdm_error_t *err);

/* tdm_cert_fingerprint gives the SHA-256 of the first certificate of a PEM
   file. */
TDM_MUST_USE tdm_status_t tdm_cert_fingerprint(const char *cert_file,
                                               uint8_t out[TDM_CERT_FINGERPRINT], tdm_error_t *err);

#endif /* TDM_NET_QUIC_CERT_H */
