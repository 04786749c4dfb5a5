/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/sum.h"

#include <stdio.h>

uint64_t tdm_sum_bytes(uint64_t sum, const void *bytes, size_t sz) {
    const unsigned char *p = bytes;
    for (size_t i = 0; i < sz; i++) sum = (sum ^ p[i]) * UINT64_C(1099511628211);
    return sum;
}

uint64_t tdm_sum_file(uint64_t sum, const char *path) {
    unsigned char bytes[4096];
    FILE *f = fopen(path, "re");
    for (size_t n; f && (n = fread(bytes, 1, sizeof bytes, f)) > 0;)
        sum = tdm_sum_bytes(sum, bytes, n);
    if (f) (void)fclose(f);
    return sum;
}
