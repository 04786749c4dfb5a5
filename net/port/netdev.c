/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces of the kernel that somebody else made: taken before a driver
   opens them, and watched afterwards (netdevice(7)). */

#include "net/port/port_private.h"

#include "appliance/base/log.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int socket_open(void) {
    return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

static void request(struct ifreq *r, const char *name) {
    memset(r, 0, sizeof *r);
    memcpy(r->ifr_name, name, strnlen(name, IFNAMSIZ - 1));
}

static int has_address(const char *name) {
    struct ifaddrs *list, *a;
    int found = 0;
    if (getifaddrs(&list) != 0) return 0;
    for (a = list; a != NULL; a = a->ifa_next)
        found |= a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_INET &&
                 strcmp(a->ifa_name, name) == 0;
    freeifaddrs(list);
    return found;
}

/* prepare asks and sets flags and mtu through fd. */
static tdm_status_t prepare(int fd, const char *name, uint16_t mtu, tdm_error_t *err) {
    struct ifreq r;
    request(&r, name);
    if (ioctl(fd, SIOCGIFMTU, &r) != 0)
        return tdm_error_set(err, TDM_ERR_IO, "port: %s: %s", name, strerror(errno));
    if (r.ifr_mtu < mtu)
        return tdm_error_set(err, TDM_ERR_INVAL, "port: %s carries %d bytes, port.mtu_bytes is %u",
                             name, r.ifr_mtu, mtu);
    request(&r, name);
    if (ioctl(fd, SIOCGIFFLAGS, &r) != 0)
        return tdm_error_set(err, TDM_ERR_IO, "port: %s: %s", name, strerror(errno));
    r.ifr_flags = (short)(r.ifr_flags | IFF_UP | IFF_ALLMULTI);
    if (ioctl(fd, SIOCSIFFLAGS, &r) != 0)
        return tdm_error_set(err, errno == EPERM ? TDM_ERR_PERM : TDM_ERR_IO,
                             "port: cannot bring %s up: %s; it needs CAP_NET_ADMIN", name,
                             strerror(errno));
    return TDM_OK;
}

tdm_status_t netdev_take(const char *name, uint16_t mtu, tdm_error_t *err) {
    if (name[0] == '\0' || strlen(name) >= IFNAMSIZ || strpbrk(name, "/,= %") != NULL)
        return tdm_error_set(err, TDM_ERR_INVAL, "port: \"%s\" is no interface name", name);
    if (if_nametoindex(name) == 0)
        return tdm_error_set(err, TDM_ERR_NOT_FOUND, "port: there is no interface %s", name);
    int fd = socket_open();
    if (fd < 0) return tdm_error_set(err, TDM_ERR_IO, "port: socket: %s", strerror(errno));
    tdm_status_t st = prepare(fd, name, mtu, err);
    close(fd);
    if (st == TDM_OK && has_address(name))
        tdm_log(TDM_LOG_WARN, "port",
                "the kernel has an address on %s; it may answer frames that are ours", name);
    return st;
}

int netdev_is_up(const char *name) {
    struct ifreq r;
    int fd = socket_open();
    if (fd < 0) return 0;
    request(&r, name);
    int is_up = ioctl(fd, SIOCGIFFLAGS, &r) == 0 && (r.ifr_flags & IFF_RUNNING) != 0;
    close(fd);
    return is_up;
}
