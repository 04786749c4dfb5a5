/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_NET_HTTP1_RAW_H
#define TDM_TESTS_NET_HTTP1_RAW_H

/* Requests as text, and what is looked for in the answers. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rig.h"

#include <string.h>

#define HOST "Host: localhost\r\n"
#define END  HOST "Connection: close\r\n\r\n"

static inline void has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("no \"%s\" in:\n%.2000s", part, text);
}

static inline void hasnt(const char *text, const char *part) {
    if (strstr(text, part)) fail_msg("\"%s\" in:\n%.2000s", part, text);
}

/* close_idle closes the rig; -1 where an exchange slot was not given back. */
static inline int close_idle(rig_t *rig) {
    int is_idle = rig_wait_idle(rig);
    rig_close(rig);
    return is_idle ? 0 : -1;
}

#endif /* TDM_TESTS_NET_HTTP1_RAW_H */
