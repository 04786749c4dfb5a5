/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_CIDR_H
#define TDM_BASE_CIDR_H

/* Addresses as an operator writes them: 192.0.2.10/24, fd00::10/64, or
   without the prefix. */

#include "appliance/base/status.h"

TDM_BEGIN_DECLS

/* tdm_cidr_read fills addr, 4 bytes of AF_INET or 16 of AF_INET6 in network
   order, and *prefix, 0 where text has none; an empty text leaves addr as it
   is.  TDM_ERR_INVAL, with key in err: no address of the family, or a
   prefix outside [1, 32] or [1, 128]. */
TDM_MUST_USE tdm_status_t tdm_cidr_read(const char *key, const char *text, int family,
                                        uint8_t *addr, uint8_t *prefix, tdm_error_t *err);

TDM_END_DECLS

#endif /* TDM_BASE_CIDR_H */
