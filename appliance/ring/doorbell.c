/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ring/doorbell.h"

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

tdm_status_t tdm_doorbell_open(tdm_doorbell_t *b, uint32_t *asleep, tdm_error_t *err) {
    b->asleep = asleep;
    b->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (b->fd < 0) return tdm_error_set(err, TDM_ERR_IO, "eventfd: %s", strerror(errno));
    tdm_store_relaxed(asleep, 0u);
    return TDM_OK;
}

void tdm_doorbell_attach(tdm_doorbell_t *b, uint32_t *asleep, int fd) {
    b->asleep = asleep;
    b->fd = fd;
}

void tdm_doorbell_close(tdm_doorbell_t *b) {
    if (b->fd >= 0) (void)close(b->fd);
    b->fd = -1;
}

void tdm_doorbell_ring(tdm_doorbell_t *b) {
    if (tdm_swap_acq_rel(b->asleep, 0u) == 0) return; /* X1: pairs with X2 in tdm_doorbell_arm */
    uint64_t one = 1;
    (void)!write(b->fd, &one, sizeof one); /* EAGAIN: the counter is full, so it is readable */
}

void tdm_doorbell_arm(tdm_doorbell_t *b) {
    (void)tdm_swap_acq_rel(b->asleep, 1u); /* X2: pairs with X1 in tdm_doorbell_ring */
}

void tdm_doorbell_disarm(tdm_doorbell_t *b) {
    tdm_store_relaxed(b->asleep, 0u);
}

int tdm_doorbell_sleep(tdm_doorbell_t *b, int extra_fd, int64_t timeout_ns) {
    struct pollfd pfd[2] = {{.fd = b->fd, .events = POLLIN}, {.fd = extra_fd, .events = POLLIN}};
    struct timespec ts = {.tv_sec = (time_t)(timeout_ns / TDM_NS_PER_S),
                          .tv_nsec = (long)(timeout_ns % TDM_NS_PER_S)};
    int n = ppoll(pfd, extra_fd >= 0 ? 2 : 1, &ts, NULL);
    tdm_doorbell_disarm(b);
    if (n > 0 && (pfd[0].revents & POLLIN)) {
        uint64_t drained;
        (void)!read(b->fd, &drained, sizeof drained);
    }
    return n > 0;
}
