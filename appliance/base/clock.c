/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/clock.h"

#include "appliance/base/check.h"

#include <time.h>

static struct timespec clock_read(clockid_t id) {
    struct timespec ts;
    TDM_CHECK(clock_gettime(id, &ts) == 0);
    return ts;
}

int64_t tdm_clock_now_ns(void) {
    struct timespec ts = clock_read(CLOCK_MONOTONIC);
    return (int64_t)ts.tv_sec * TDM_NS_PER_S + ts.tv_nsec;
}

int64_t tdm_clock_wall_s(void) {
    return (int64_t)clock_read(CLOCK_REALTIME).tv_sec;
}
