/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/leave.h"

#include "appliance/base/atomic.h"
#include "appliance/base/attr.h"

#include <signal.h>

static const int leaving[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
static uint32_t left_by; /* atomic: the signal that came, 0 while none did */

static void on_signal(int number) {
    tdm_store_relaxed(&left_by, (uint32_t)number);
}

void tdm_leave_heed(void) {
    struct sigaction sa = {.sa_handler = on_signal}, was;
    for (size_t i = 0; i < TDM_COUNT_OF(leaving); i++) {
        if (sigaction(leaving[i], NULL, &was) != 0 || was.sa_handler == SIG_IGN) continue;
        (void)sigaction(leaving[i], &sa, NULL);
    }
}

int tdm_leave_by(void) {
    return (int)tdm_load_relaxed(&left_by);
}

void tdm_leave(void) {
    int number = tdm_leave_by();
    if (!number) return;
    struct sigaction sa = {.sa_handler = SIG_DFL};
    (void)sigaction(number, &sa, NULL);
    (void)raise(number);
}
