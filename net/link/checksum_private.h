/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_LINK_CHECKSUM_PRIVATE_H
#define TDM_NET_LINK_CHECKSUM_PRIVATE_H

/* The Internet checksum (RFC 1071), eight bytes at a time.  A sum is kept
   in the machine's own byte order, which RFC 1071 section 2(B) allows as
   long as the result is stored in that order too. */

#include "appliance/base/attr.h"

#include <string.h>

/* sum_add adds sz bytes to a running sum.  Only the last piece of a
   message may have an odd size.  2^31 words fit before the sum wraps. */
static inline uint64_t sum_add(uint64_t sum, const uint8_t *p, size_t sz) {
    while (sz >= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        sum += (w >> 32) + (w & UINT32_MAX);
        p += 8;
        sz -= 8;
    }
    if (sz > 0) {
        uint64_t w = 0;
        memcpy(&w, p, sz);
        sum += (w >> 32) + (w & UINT32_MAX);
    }
    return sum;
}

/* sum_fold gives the 16-bit one's complement sum, not yet inverted; a
   message that includes its right checksum folds to 0xffff. */
static inline uint16_t sum_fold(uint64_t sum) {
    sum = (sum >> 32) + (sum & UINT32_MAX);
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    return (uint16_t)sum;
}

/* sum_store writes the inverted sum as the checksum at p. */
static inline void sum_store(uint8_t *p, uint64_t sum) {
    uint16_t c = (uint16_t)~sum_fold(sum);
    memcpy(p, &c, 2);
}

#endif /* TDM_NET_LINK_CHECKSUM_PRIVATE_H */
