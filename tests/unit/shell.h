/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_UNIT_SHELL_H
#define TDM_TESTS_UNIT_SHELL_H

#include "appliance/base/attr.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* shell runs a command line of at most 1,023 bytes; 0 where it went well,
   else what system(3) says. */
TDM_PRINTF(1, 2) static inline int shell(const char *format, ...) {
    char command[1024];
    va_list args;
    va_start(args, format);
    int sz = vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return sz >= 0 && sz < (int)sizeof command ? system(command) : -1;
}

#endif /* TDM_TESTS_UNIT_SHELL_H */
