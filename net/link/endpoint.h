/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_LINK_ENDPOINT_H
#define TDM_NET_LINK_ENDPOINT_H

/* tdm_endpoint is one end of a UDP path.  All bytes are meaningful and
   unused ones are zero, so two endpoints are equal when memcmp says so
   and the struct may be hashed as it is. */

#include "appliance/base/attr.h"

#include <string.h>

typedef struct tdm_endpoint {
    uint8_t addr[16]; /* network order; IPv4 in the first four, then zeros */
    uint16_t port;    /* host order */
    uint16_t version; /* 4 or 6; 0 in a zeroed endpoint */
} tdm_endpoint_t;

static inline int tdm_endpoint_equal(const tdm_endpoint_t *a, const tdm_endpoint_t *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

#endif /* TDM_NET_LINK_ENDPOINT_H */
