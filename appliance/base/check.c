/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/check.h"

#include <stdio.h>
#include <stdlib.h>

void tdm_check_failed(const char *expr, const char *file, int line) {
    fprintf(stderr, "tandem: invariant broken: %s (%s:%d)\n", expr, file, line);
    abort();
}
