/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/status.h"

#include <stdarg.h>
#include <stdio.h>

const char *tdm_status_name(tdm_status_t status) {
    static const char *const name[TDM_STATUS_CNT] = {
        [TDM_OK] = "ok",
        [TDM_ERR_INVAL] = "inval",
        [TDM_ERR_NOMEM] = "nomem",
        [TDM_ERR_FULL] = "full",
        [TDM_ERR_EMPTY] = "empty",
        [TDM_ERR_IO] = "io",
        [TDM_ERR_NOT_FOUND] = "not_found",
        [TDM_ERR_UNSUPPORTED] = "unsupported",
        [TDM_ERR_LIMIT] = "limit",
        [TDM_ERR_CORRUPT] = "corrupt",
        [TDM_ERR_TIMEOUT] = "timeout",
        [TDM_ERR_CLOSED] = "closed",
        [TDM_ERR_PERM] = "perm",
        [TDM_ERR_INTERNAL] = "internal",
    };
    if ((unsigned)status >= TDM_STATUS_CNT) return "unknown";
    return name[status];
}

tdm_status_t tdm_error_set(tdm_error_t *err, tdm_status_t status, const char *fmt, ...) {
    if (!err) return status;
    err->status = status;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    for (char *p = err->text; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c < 0x20 || c == 0x7f) *p = '?';
    }
    return status;
}
