/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/api/refusal.h"

#include <stdarg.h>
#include <stdio.h>

int tdm_refuse(tdm_refusal_t *r, tdm_reason_t reason, const char *param) {
    *r = (tdm_refusal_t){.reason = reason};
    (void)snprintf(r->param, sizeof r->param, "%s", param);
    return 0;
}

int tdm_refuse_text(tdm_refusal_t *r, tdm_reason_t reason, const char *param, const char *fmt,
                    ...) {
    tdm_refuse(r, reason, param);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(r->text, sizeof r->text, fmt, args);
    va_end(args);
    return 0;
}
