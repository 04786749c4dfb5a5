/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's side of a TAP port: is it allowed, does it collide, and
   its addresses. */

#include "net/port/port_private.h"

#include "appliance/base/cidr.h"
#include "appliance/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

tdm_status_t tap_address_parse(const char *text, int family, tap_address_t *out, tdm_error_t *err) {
    memset(out, 0, sizeof *out);
    if (text[0] == '\0') return TDM_OK;
    tdm_status_t st = tdm_cidr_read("port", text, family, out->addr, &out->prefix, err);
    if (st != TDM_OK) return st;
    if (out->prefix == 0 || out->prefix > (family == AF_INET ? 31 : 127))
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "port: \"%s\" is no IPv%c address/prefix with room for two", text,
                             family == AF_INET ? '4' : '6');
    out->family = (uint8_t)family;
    return TDM_OK;
}

/* make_check makes the interface and lets it go again: the kernel's own
   answer to whether we may. */
static tdm_status_t make_check(const char *name, tdm_error_t *err) {
    if (name[0] == '\0' || strlen(name) >= IFNAMSIZ || strpbrk(name, "/,= %") != NULL)
        return tdm_error_set(err, TDM_ERR_INVAL, "port: \"%s\" is no interface name", name);
    if (if_nametoindex(name) != 0)
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "port: an interface %s exists already; is another tandemd running?",
                             name);
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES || errno == EPERM
                   ? tdm_error_set(err, TDM_ERR_PERM,
                                   "port: no right to open /dev/net/tun; run as "
                                   "root or with CAP_NET_ADMIN")
                   : tdm_error_set(err, TDM_ERR_NOT_FOUND,
                                   "port: /dev/net/tun: %s; the tap kind "
                                   "needs the kernel's tun driver",
                                   strerror(errno));
    struct ifreq ifr;
    memset(&ifr, 0, sizeof ifr);
    memcpy(ifr.ifr_name, name, strlen(name));
    ifr.ifr_flags = IFF_TAP | IFF_NO_PI;
    int rc = ioctl(fd, TUNSETIFF, &ifr), saved = errno;
    close(fd);
    if (rc == 0) return TDM_OK;
    return tdm_error_set(err, saved == EPERM ? TDM_ERR_PERM : TDM_ERR_IO,
                         "port: cannot make interface %s: %s%s", name, strerror(saved),
                         saved == EPERM ? "; run as root or with CAP_NET_ADMIN" : "");
}

/* --- collisions ----------------------------------------------------- */

typedef struct collision {
    const tap_address_t *want;
    uint8_t dst[16];
    uint32_t prefix;
    uint32_t if_idx;
    int is_found;
} collision_t;

/* overlaps: one of two prefixes contains the other. */
static int overlaps(const uint8_t *a, uint32_t a_bits, const uint8_t *b, uint32_t b_bits) {
    uint32_t bits = TDM_MIN(a_bits, b_bits), whole = bits / 8;
    if (memcmp(a, b, whole) != 0) return 0;
    if (bits % 8 == 0) return 1;
    return ((a[whole] ^ b[whole]) & (0xff00u >> bits % 8) & 0xffu) == 0;
}

static int collision_visit(void *arg, const uint8_t *dst, uint32_t prefix, uint32_t if_idx) {
    collision_t *c = arg;
    if (!overlaps(c->want->addr, c->want->prefix, dst, prefix)) return 0;
    memcpy(c->dst, dst, c->want->family == AF_INET ? 4 : 16);
    c->prefix = prefix;
    c->if_idx = if_idx;
    c->is_found = 1;
    return 1;
}

static tdm_status_t collision_check(const tap_address_t *a, tdm_error_t *err) {
    collision_t c = {.want = a};
    if (a->family == 0) return TDM_OK;
    int rc = netlink_route_each(a->family, collision_visit, &c);
    if (rc != 0)
        return tdm_error_set(err, TDM_ERR_IO, "port: cannot read the routes: %s", strerror(rc));
    if (!c.is_found) return TDM_OK;
    char want[INET6_ADDRSTRLEN], have[INET6_ADDRSTRLEN], if_name[IF_NAMESIZE];
    inet_ntop(a->family, a->addr, want, sizeof want);
    inet_ntop(a->family, c.dst, have, sizeof have);
    return tdm_error_set(err, TDM_ERR_INVAL,
                         "port: the TAP subnet of %s/%u overlaps %s/%u of %s; choose another", want,
                         a->prefix, have, c.prefix,
                         if_indextoname(c.if_idx, if_name) != NULL ? if_name : "a route");
}

tdm_status_t tap_check(const char *name, const tap_address_t *a4, tap_address_t *a6,
                       tdm_error_t *err) {
    if (a6->family != 0 && access("/proc/net/if_inet6", F_OK) != 0) {
        tdm_log(TDM_LOG_WARN, "net", "this host has no IPv6; the TAP gets its IPv4 address only");
        a6->family = 0;
    }
    tdm_status_t st = collision_check(a4, err);
    if (st == TDM_OK) st = collision_check(a6, err);
    return st == TDM_OK ? make_check(name, err) : st;
}

/* --- addresses ------------------------------------------------------ */

/* ipv6_enable lifts a host-wide "no IPv6 on new interfaces" for the one
   interface that is ours; failure shows when the address is refused. */
static void ipv6_enable(const char *name) {
    char path[96];
    snprintf(path, sizeof path, "/proc/sys/net/ipv6/conf/%s/disable_ipv6", name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (write(fd, "0\n", 2) != 2) tdm_log(TDM_LOG_WARN, "net", "%s: %s", path, strerror(errno));
    close(fd);
}

tdm_status_t tap_address_set(const char *name, const tap_address_t *a, tdm_error_t *err) {
    if (a->family == AF_INET6) ipv6_enable(name);
    int rc = netlink_address_add(if_nametoindex(name), a);
    if (rc == 0) return TDM_OK;
    char text[INET6_ADDRSTRLEN];
    inet_ntop(a->family, a->addr, text, sizeof text);
    return tdm_error_set(err, rc == EPERM ? TDM_ERR_PERM : TDM_ERR_IO,
                         "port: %s does not take the address %s/%u: %s", name, text, a->prefix,
                         strerror(rc));
}
