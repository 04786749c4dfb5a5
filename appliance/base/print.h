/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_PRINT_H
#define TDM_BASE_PRINT_H

/* tdm_print appends to a caller's buffer as snprintf writes to one: never
   past it, always with a NUL where there is room for one, and it goes on
   counting where the buffer ended, so that the caller learns the size it
   would have needed.  No tile prints. */

#include "appliance/base/attr.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

typedef struct tdm_print {
    char *buf;
    size_t cap;
    size_t sz; /* bytes wanted so far, without the NUL: whole where sz < cap */
} tdm_print_t;

TDM_PRINTF(2, 3) static inline void tdm_print(tdm_print_t *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    size_t room = p->sz < p->cap ? p->cap - p->sz : 0;
    int n = vsnprintf(room ? p->buf + p->sz : NULL, room, format, args);
    va_end(args);
    if (n > 0) p->sz += (size_t)n;
}

#endif /* TDM_BASE_PRINT_H */
