/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_LOG_H
#define TDM_BASE_LOG_H

/* One line on stderr per event of boot, control and shutdown.  A polling
   tile never logs after start: it counts.  A line is written by a single
   write(2); where stderr is full or closed the line is lost and counted,
   the caller never waits and never sees SIGPIPE (main ignores it). */

#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

typedef enum tdm_log_level {
    TDM_LOG_ERROR,
    TDM_LOG_WARN,
    TDM_LOG_INFO,
    TDM_LOG_DEBUG,
} tdm_log_level_t;

/* tdm_log_set_level keeps lines of `level` and graver; INFO at start.
   Boot time only, before threads start. */
void tdm_log_set_level(tdm_log_level_t level);

/* tdm_log writes "tandem <area>: <text>\n"; text over 900 bytes is cut.
   Any thread, but not a sealed tile. */
void tdm_log(tdm_log_level_t level, const char *area, const char *fmt, ...) TDM_PRINTF(3, 4);

/* tdm_log_lost_cnt counts lines that stderr did not take. */
uint64_t tdm_log_lost_cnt(void);

TDM_END_DECLS

#endif /* TDM_BASE_LOG_H */
