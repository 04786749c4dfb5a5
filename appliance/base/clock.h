/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_CLOCK_H
#define TDM_BASE_CLOCK_H

/* Time in Tandem is an int64_t count of nanoseconds of CLOCK_MONOTONIC,
   shared by all processes of one host.  Only tiles and main programs read
   the clock, once per poll; everything below takes `now_ns` as an
   argument, so that tests and the simulator own time. */

#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

#define TDM_NS_PER_US  INT64_C(1000)
#define TDM_NS_PER_MS  INT64_C(1000000)
#define TDM_NS_PER_S   INT64_C(1000000000)
#define TDM_TIME_NEVER INT64_MAX

/* tdm_clock_now_ns reads the monotonic clock; it never fails. */
int64_t tdm_clock_now_ns(void);

/* tdm_clock_wall_s reads the civil clock, seconds since 1970-01-01 UTC:
   for the `created` field and certificates, never for an interval. */
int64_t tdm_clock_wall_s(void);

TDM_END_DECLS

#endif /* TDM_BASE_CLOCK_H */
