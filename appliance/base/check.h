/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_CHECK_H
#define TDM_BASE_CHECK_H

/* TDM_CHECK guards an invariant and stays on in production: a broken one
   stops the process at once, before it can hand out a wrong token.
   TDM_DCHECK guards hot loops in dev, sim and fuzz builds only. */

#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

/* tdm_check_failed writes one line to stderr and aborts. */
TDM_NORETURN void tdm_check_failed(const char *expr, const char *file, int line);

#define TDM_CHECK(expr)                                                                            \
    do {                                                                                           \
        if (TDM_UNLIKELY(!(expr))) tdm_check_failed(#expr, __FILE__, __LINE__);                    \
    } while (0)

#ifdef TDM_DEV
#define TDM_DCHECK(expr) TDM_CHECK(expr)
#else
#define TDM_DCHECK(expr)                                                                           \
    do {                                                                                           \
        (void)sizeof(expr);                                                                        \
    } while (0)
#endif

TDM_END_DECLS

#endif /* TDM_BASE_CHECK_H */
