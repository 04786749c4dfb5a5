/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to the kernel over rtnetlink (rtnetlink(7)): add an address,
   take an XDP program off, list the routes.  Boot time only. */

#include "net/port/port_private.h"

#include <errno.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* Bound on one answer of the kernel: it never sends more at once than
   the reader's buffer, 32 KiB at most (rtnetlink dumps). */
#define ANSWER_SZ 32768

static int netlink_open(void) {
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    struct timeval limit = {.tv_sec = 2};
    if (fd >= 0) (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
}

static void attr_put(struct nlmsghdr *h, uint16_t type, const void *data, uint16_t sz) {
    struct rtattr *a = (struct rtattr *)((char *)h + NLMSG_ALIGN(h->nlmsg_len));
    a->rta_type = type;
    a->rta_len = (uint16_t)RTA_LENGTH(sz);
    memcpy(RTA_DATA(a), data, sz);
    h->nlmsg_len = NLMSG_ALIGN(h->nlmsg_len) + (uint32_t)RTA_ALIGN(a->rta_len);
}

/* ask sends one request and waits for the kernel's word: 0 or an errno. */
static int ask(const struct nlmsghdr *req) {
    union {
        struct nlmsghdr h;
        char bytes[1024];
    } answer;
    int fd = netlink_open();
    if (fd < 0) return errno;
    int rc = 0;
    if (send(fd, req, req->nlmsg_len, 0) < 0) rc = errno;
    if (rc == 0) {
        ssize_t n = recv(fd, &answer, sizeof answer, 0);
        if (n < 0)
            rc = errno;
        else if (!NLMSG_OK(&answer.h, (uint32_t)n) || answer.h.nlmsg_type != NLMSG_ERROR)
            rc = EPROTO;
        else
            rc = -((struct nlmsgerr *)NLMSG_DATA(&answer.h))->error;
    }
    close(fd);
    return rc;
}

int netlink_xdp_detach(uint32_t if_idx) {
    struct {
        struct nlmsghdr h;
        struct ifinfomsg m;
        char attrs[64];
    } req;
    const int32_t none = -1;
    struct {
        struct rtattr head;
        int32_t fd;
    } nest = {{.rta_len = RTA_LENGTH(sizeof none), .rta_type = IFLA_XDP_FD}, none};
    memset(&req, 0, sizeof req);
    req.h.nlmsg_len = NLMSG_LENGTH(sizeof req.m);
    req.h.nlmsg_type = RTM_SETLINK;
    req.h.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    req.m.ifi_index = (int)if_idx;
    attr_put(&req.h, IFLA_XDP | NLA_F_NESTED, &nest, sizeof nest);
    return ask(&req.h);
}

int netlink_address_add(uint32_t if_idx, const tap_address_t *a) {
    struct {
        struct nlmsghdr h;
        struct ifaddrmsg m;
        char attrs[128];
    } req;
    uint16_t sz = a->family == AF_INET ? 4 : 16;
    memset(&req, 0, sizeof req);
    req.h.nlmsg_len = NLMSG_LENGTH(sizeof req.m);
    req.h.nlmsg_type = RTM_NEWADDR;
    req.h.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    req.m.ifa_family = a->family;
    req.m.ifa_prefixlen = a->prefix;
    req.m.ifa_index = if_idx;
    /* Nobody else is on this cable: skip duplicate address detection and
       the second of silence that it costs. */
    if (a->family == AF_INET6) req.m.ifa_flags = IFA_F_NODAD;
    attr_put(&req.h, IFA_LOCAL, a->addr, sz);
    attr_put(&req.h, IFA_ADDRESS, a->addr, sz);
    return ask(&req.h);
}

/* route_read takes one route message apart; 1 when it is one to show. */
static int route_read(struct nlmsghdr *h, const uint8_t **dst, uint32_t *prefix, uint32_t *if_idx) {
    struct rtmsg *m = NLMSG_DATA(h);
    size_t at = NLMSG_LENGTH(sizeof *m);
    *dst = NULL;
    *if_idx = 0;
    *prefix = m->rtm_dst_len;
    if (m->rtm_type != RTN_UNICAST || m->rtm_table != RT_TABLE_MAIN || m->rtm_dst_len == 0)
        return 0;
    while (at + sizeof(struct rtattr) <= h->nlmsg_len) {
        struct rtattr *a = (struct rtattr *)(void *)((char *)h + at);
        if (a->rta_len < sizeof *a || a->rta_len > h->nlmsg_len - at) break;
        if (a->rta_type == RTA_DST) *dst = RTA_DATA(a);
        if (a->rta_type == RTA_OIF) memcpy(if_idx, RTA_DATA(a), sizeof *if_idx);
        at += RTA_ALIGN(a->rta_len);
    }
    return *dst != NULL;
}

/* batch_visit walks one answer: 1 go on, 0 the list is complete or visit
   had enough; an error of the kernel goes to *rc. */
static int batch_visit(struct nlmsghdr *h, uint32_t n, netlink_route_visit_t visit, void *arg,
                       int *rc) {
    for (; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
        const uint8_t *dst;
        uint32_t prefix, if_idx;
        if (h->nlmsg_type == NLMSG_DONE) return 0;
        if (h->nlmsg_type == NLMSG_ERROR) {
            *rc = -((struct nlmsgerr *)NLMSG_DATA(h))->error;
            return 0;
        }
        if (h->nlmsg_type != RTM_NEWROUTE) continue;
        if (route_read(h, &dst, &prefix, &if_idx) && visit(arg, dst, prefix, if_idx)) return 0;
    }
    return 1;
}

int netlink_route_each(int family, netlink_route_visit_t visit, void *arg) {
    struct {
        struct nlmsghdr h;
        struct rtmsg m;
    } req;
    static char answer[ANSWER_SZ] TDM_ALIGNED(NLMSG_ALIGNTO);
    memset(&req, 0, sizeof req);
    req.h.nlmsg_len = NLMSG_LENGTH(sizeof req.m);
    req.h.nlmsg_type = RTM_GETROUTE;
    req.h.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    req.m.rtm_family = (unsigned char)family;

    int fd = netlink_open();
    if (fd < 0) return errno;
    int rc = 0;
    if (send(fd, &req, req.h.nlmsg_len, 0) < 0) rc = errno;
    while (rc == 0) {
        ssize_t n = recv(fd, answer, sizeof answer, 0);
        if (n < 0) {
            rc = errno;
            break;
        }
        if (!batch_visit((struct nlmsghdr *)(void *)answer, (uint32_t)n, visit, arg, &rc)) break;
    }
    close(fd);
    return rc;
}
