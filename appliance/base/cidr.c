/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/cidr.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* prefix_read takes up to three digits; 0 where they are no prefix. */
static uint32_t prefix_read(const char *digits, uint32_t most) {
    uint32_t bits = 0, cnt = 0;
    for (; cnt < 3 && digits[cnt] >= '0' && digits[cnt] <= '9'; cnt++)
        bits = bits * 10u + (uint32_t)(digits[cnt] - '0');
    return digits[cnt] == 0 && bits <= most ? bits : 0;
}

tdm_status_t tdm_cidr_read(const char *key, const char *text, int family, uint8_t *addr,
                           uint8_t *prefix, tdm_error_t *err) {
    char bare[64];
    *prefix = 0;
    if (text[0] == 0) return TDM_OK;
    const char *slash = strchr(text, '/');
    size_t sz = slash ? (size_t)(slash - text) : strlen(text);
    (void)snprintf(bare, sizeof bare, "%.*s", (int)TDM_MIN(sz, sizeof bare - 1), text);
    if (inet_pton(family, bare, addr) != 1)
        return tdm_error_set(err, TDM_ERR_INVAL, "%s: \"%s\" is no address", key, text);
    if (!slash) return TDM_OK;
    *prefix = (uint8_t)prefix_read(slash + 1, family == AF_INET ? 32 : 128);
    if (*prefix) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_INVAL, "%s: \"%s\" has no prefix of 1 to %d bits", key, text,
                         family == AF_INET ? 32 : 128);
}
