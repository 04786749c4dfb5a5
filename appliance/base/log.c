/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/log.h"

#include "appliance/base/atomic.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static tdm_log_level_t log_level = TDM_LOG_INFO;
static uint64_t log_lost;

void tdm_log_set_level(tdm_log_level_t level) {
    log_level = level;
}

void tdm_log(tdm_log_level_t level, const char *area, const char *fmt, ...) {
    if (level > log_level) return;
    static const char *const mark[] = {"error: ", "warning: ", "", ""};
    char line[1024];
    int n = snprintf(line, sizeof line, "tandem %s: %s", area, mark[level]);
    if (n < 0 || (size_t)n >= sizeof line - 2) return;
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(line + n, sizeof line - 1 - (size_t)n, fmt, ap);
    va_end(ap);
    if (m < 0) return;
    size_t len = strlen(line);
    line[len++] = '\n';
    if (write(STDERR_FILENO, line, len) != (ssize_t)len) (void)tdm_add_relaxed(&log_lost, 1);
}

uint64_t tdm_log_lost_cnt(void) {
    return tdm_load_relaxed(&log_lost);
}
