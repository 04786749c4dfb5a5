/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ring/poll.h"

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"

void tdm_poller_init(tdm_poller_t *p, tdm_poll_mode_t mode, tdm_doorbell_t *bell, int extra_fd,
                     int64_t now_ns) {
    *p = (tdm_poller_t){
        .mode = mode,
        .bell = bell,
        .extra_fd = extra_fd,
        .spin_ns = 50 * TDM_NS_PER_US,
        .sleep_ns = 200 * TDM_NS_PER_US,
        .idle_ns = 100 * TDM_NS_PER_MS,
        .quiet_ns = 20 * TDM_NS_PER_MS,
        .last_work_ns = now_ns,
    };
}

int tdm_poller_may_sleep(tdm_poller_t *p, uint32_t work, int64_t now_ns) {
    if (work) {
        p->last_work_ns = now_ns;
        p->busy_cnt++;
        return 0;
    }
    p->idle_cnt++;
    if (p->mode == TDM_POLL_BUSY || now_ns - p->last_work_ns < p->spin_ns) {
        tdm_cpu_relax();
        return 0;
    }
    tdm_doorbell_arm(p->bell);
    return 1;
}

void tdm_poller_stay(tdm_poller_t *p) {
    tdm_doorbell_disarm(p->bell);
}

void tdm_poller_sleep(tdm_poller_t *p, int64_t next_ns, int64_t now_ns) {
    int64_t bound = now_ns - p->last_work_ns < p->idle_ns ? p->sleep_ns : p->quiet_ns;
    int64_t wait = next_ns == TDM_TIME_NEVER ? bound : next_ns - now_ns;
    if (wait <= 0) {
        tdm_doorbell_disarm(p->bell);
        return;
    }
    p->sleep_cnt++;
    (void)tdm_doorbell_sleep(p->bell, p->extra_fd, wait < bound ? wait : bound);
}
