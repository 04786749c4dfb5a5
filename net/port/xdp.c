/* SPDX-License-Identifier: Apache-2.0 */
/* The AF_XDP sockets below an af_xdp port.  The driver keeps them to
   itself: no descriptor to sleep on, and of the kernel's counts only one.
   So they are found among this process's descriptors, right after the
   driver opened them (xsk_poll and xsk_getsockopt of the kernel,
   net/xdp/xsk.c: poll(2) works in copy mode too, and sends what waits). */

#include "net/port/port_private.h"

#include <dirent.h>
#include <errno.h>
#include <linux/if_xdp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static int is_xdp(int fd) {
    int domain = 0;
    socklen_t sz = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &sz) == 0 && domain == AF_XDP;
}

uint32_t xdp_sockets(int *fd, uint32_t max) {
    uint32_t cnt = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL) return 0;
    struct dirent *e;
    while (cnt < max && (e = readdir(dir)) != NULL) {
        int n = atoi(e->d_name);
        if (e->d_name[0] >= '0' && e->d_name[0] <= '9' && is_xdp(n)) fd[cnt++] = n;
    }
    closedir(dir);
    return cnt;
}

static int is_among(int fd, const int *list, uint32_t cnt) {
    for (uint32_t i = 0; i < cnt; i++)
        if (list[i] == fd) return 1;
    return 0;
}

/* wait_fd is one descriptor for all sockets. */
static int wait_fd(tdm_port_t *p) {
    if (p->xdp_cnt <= 1) return p->xdp_cnt == 1 ? p->xdp_fd[0] : -1;
    p->xdp_epoll = epoll_create1(EPOLL_CLOEXEC);
    for (uint32_t i = 0; p->xdp_epoll >= 0 && i < p->xdp_cnt; i++) {
        struct epoll_event ev = {.events = EPOLLIN};
        if (epoll_ctl(p->xdp_epoll, EPOLL_CTL_ADD, p->xdp_fd[i], &ev) == 0) continue;
        (void)close(p->xdp_epoll);
        p->xdp_epoll = -1;
    }
    return p->xdp_epoll;
}

void xdp_found(tdm_port_t *p, const int *before, uint32_t before_cnt) {
    int now[XDP_SOCKET_MAX];
    uint32_t cnt = xdp_sockets(now, TDM_COUNT_OF(now));
    for (uint32_t i = 0; i < cnt && p->xdp_cnt < TDM_PORT_RX_QUEUE_MAX; i++)
        if (!is_among(now[i], before, before_cnt)) p->xdp_fd[p->xdp_cnt++] = now[i];
    p->rx_fd = wait_fd(p);
}

void xdp_forget(tdm_port_t *p) {
    if (p->xdp_epoll >= 0) (void)close(p->xdp_epoll);
    p->xdp_epoll = -1;
    p->xdp_cnt = 0;
}

void xdp_stats(const tdm_port_t *p, tdm_port_stats_t *out) {
    for (uint32_t i = 0; i < p->xdp_cnt; i++) {
        struct xdp_statistics s;
        socklen_t sz = sizeof s;
        memset(&s, 0, sizeof s);
        if (getsockopt(p->xdp_fd[i], SOL_XDP, XDP_STATISTICS, &s, &sz) != 0) continue;
        out->nic_missed += s.rx_ring_full; /* rx_dropped is in already: the driver's imissed */
        out->nic_error += s.rx_invalid_descs + s.tx_invalid_descs;
    }
}
