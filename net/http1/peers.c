/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http1/http1_private.h"

#include "appliance/base/clock.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>

/* key_of maps either family to 16 bytes. */
static void key_of(const struct sockaddr *addr, uint8_t key[16]) {
    memset(key, 0, 16);
    if (addr->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, addr, sizeof in);
        key[10] = key[11] = 0xff;
        memcpy(key + 12, &in.sin_addr, 4);
    } else if (addr->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, addr, sizeof in6);
        memcpy(key, &in6.sin6_addr, 16);
    }
}

static int is_unix_socket(const struct sockaddr *addr) {
    return addr->sa_family == AF_UNIX;
}

static int is_loopback(const struct sockaddr *addr) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, one[16] = {[15] = 1};
    uint8_t key[16];
    if (addr->sa_family != AF_INET && addr->sa_family != AF_INET6) return 0;
    key_of(addr, key);
    return memcmp(key, one, 16) == 0 || (memcmp(key, mapped, 12) == 0 && key[12] == 127);
}

int tdm_http1_is_local(connection_t *conn, int *is_unix) {
    const union MHD_ConnectionInfo *peer =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    *is_unix = peer && peer->client_addr && is_unix_socket(peer->client_addr);
    return *is_unix || (peer && peer->client_addr && is_loopback(peer->client_addr));
}

/* find gives the place of key, else a free one, else NULL: the table is
   as long as that of the connections, so one of them is always there for
   an accepted one. */
static peer_t *find(tdm_http1_t *d, const uint8_t key[16]) {
    peer_t *vacant = NULL;
    for (uint32_t i = 0; i < d->config.conn_max + LINK_SPARE; i++) {
        peer_t *p = &d->peer[i];
        if (p->conn_cnt && memcmp(p->addr, key, 16) == 0) return p;
        if (!p->conn_cnt && !vacant) vacant = p;
    }
    return vacant;
}

/* --- bounds ----------------------------------------------------------- */

static int is_crowded(const tdm_http1_t *d, const peer_t *p) {
    return p && p->conn_cnt >= d->config.conn_per_address_max;
}

/* make_way shuts the connection that has kept us waiting longest, of peer
   where that is not NULL; says whether there was one. */
static int make_way(tdm_http1_t *d, const peer_t *peer) {
    int64_t now_ns = tdm_clock_now_ns();
    link_t *longest = NULL;
    (void)pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < LINK_MAX(&d->config); i++) {
        link_t *l = &d->link[i];
        if (!l->is_used || l->has_left || l->slot || l->has_feed || l->yield_ns > now_ns) continue;
        if (peer && l->peer != peer) continue;
        if (!longest || l->yield_ns < longest->yield_ns) longest = l;
    }
    if (longest) {
        longest->has_left = 1;
        (void)shutdown(longest->fd, SHUT_RDWR);
    }
    (void)pthread_mutex_unlock(&d->lock);
    return longest != NULL;
}

/* A connection that made way for another counts as refused, as does one
   that found no way made and no place kept for health. */
enum MHD_Result tdm_http1_accept(void *cls, const struct sockaddr *addr, socklen_t addr_sz) {
    tdm_http1_t *d = cls;
    (void)addr_sz;
    if (addr->sa_family == AF_UNIX) return MHD_YES; /* counted by unix.c, whose thread this is */
    uint8_t key[16];
    key_of(addr, key);
    const peer_t *p = find(d, key);
    int is_full = d->conn_cnt >= d->config.conn_max;
    if (!is_full && !is_crowded(d, p)) return MHD_YES;
    int has_room = p && d->conn_cnt + 1 < d->config.conn_max + LINK_SPARE;
    int is_way_made = has_room && make_way(d, is_crowded(d, p) ? p : NULL);
    int is_kept = has_room && !is_way_made && d->extra_cnt < d->config.reserve_cnt;
    if (!is_kept)
        tdm_count(d->wires.block, TDM_METRIC_connections_refused_total, TDM_LABEL_DOOR_http1, 1);
    d->is_next_extra = is_kept;
    return is_way_made || is_kept ? MHD_YES : MHD_NO;
}

void tdm_http1_yield(link_t *l, int64_t ns) {
    l->yield_ns = tdm_clock_now_ns() + ns;
}

int tdm_http1_is_extra(tdm_http1_t *d, link_t *l) {
    int is_within = d->conn_cnt <= d->config.conn_max &&
                    (!l->peer || l->peer->conn_cnt <= d->config.conn_per_address_max);
    if (l->is_extra && is_within) {
        l->is_extra = 0;
        d->extra_cnt--;
    }
    return l->is_extra;
}

/* --- one connection ---------------------------------------------------- */

/* peer_of gives the entry of a connection's address; NULL: it has none. */
static peer_t *peer_of(tdm_http1_t *d, connection_t *conn) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (!info || !info->client_addr) return NULL;
    uint8_t key[16];
    key_of(info->client_addr, key);
    peer_t *p = find(d, key);
    if (p && !p->conn_cnt) memcpy(p->addr, key, 16);
    return p;
}

/* watch asks to be told when the client leaves.  The library misses a FIN
   that arrives together with part of a request (it waits on edges and
   does not read again), and any FIN while a connection is suspended. */
static void watch(tdm_http1_t *d, link_t *l) {
    uint32_t idx = (uint32_t)(l - d->link);
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLET,
                             .data.u64 = (uint64_t)l->generation << 32 | idx};
    (void)epoll_ctl(d->watch_fd, EPOLL_CTL_ADD, l->fd, &ev);
    int on = 1; /* a token must not wait for the acknowledgement of the one before */
    (void)setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static link_t *link_open(tdm_http1_t *d, connection_t *conn) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    link_t *l = NULL;
    (void)pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; info && i < LINK_MAX(&d->config) && !l; i++)
        if (!d->link[i].is_used) l = &d->link[i];
    if (l) {
        *l = (link_t){.generation = l->generation + 1, .is_used = 1, .fd = info->connect_fd};
        tdm_http1_due(l, d->config.header_ms);
        tdm_http1_yield(l, YIELD_NS);
        watch(d, l);
        d->link_cnt++;
    }
    (void)pthread_mutex_unlock(&d->lock);
    return l;
}

/* link_close runs before the library closes the socket, so that the
   number in the watch never means another one's. */
static void link_close(tdm_http1_t *d, link_t *l) {
    (void)pthread_mutex_lock(&d->lock);
    (void)epoll_ctl(d->watch_fd, EPOLL_CTL_DEL, l->fd, NULL);
    l->is_used = 0;
    d->link_cnt--;
    (void)pthread_mutex_unlock(&d->lock);
}

void tdm_http1_due(link_t *l, uint32_t ms) {
    int64_t due_ns = ms ? tdm_clock_now_ns() + (int64_t)ms * TDM_NS_PER_MS : TDM_TIME_NEVER;
    tdm_store_relaxed(&l->due_ns, due_ns);
}

link_t *tdm_http1_link_of(connection_t *conn) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* on_unix: the connections of the Unix socket have a bound of their own
   (unix.c) and no address. */
static void on_unix(tdm_http1_t *d, connection_t *conn, void **socket_ctx, int is_begin) {
    link_t *l = is_begin ? link_open(d, conn) : *socket_ctx;
    if (is_begin && l) l->is_unix = 1;
    if (!is_begin && l) link_close(d, l);
    if (!is_begin) (void)tdm_add_relaxed(&d->unix_cnt, UINT32_MAX);
    *socket_ctx = l;
}

void tdm_http1_connection(void *cls, connection_t *conn, void **socket_ctx,
                          enum MHD_ConnectionNotificationCode code) {
    tdm_http1_t *d = cls;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (info && info->client_addr && is_unix_socket(info->client_addr)) {
        on_unix(d, conn, socket_ctx, code == MHD_CONNECTION_NOTIFY_STARTED);
        return;
    }
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        link_t *l = link_open(d, conn);
        peer_t *p = peer_of(d, conn);
        if (l) l->peer = p;
        if (l && p) p->conn_cnt++;
        if (l && d->is_next_extra) {
            l->is_extra = 1;
            d->extra_cnt++;
        }
        d->is_next_extra = 0;
        d->conn_cnt++;
        *socket_ctx = l;
    } else {
        link_t *l = *socket_ctx;
        if (l && l->peer) l->peer->conn_cnt--;
        if (l && l->is_extra) d->extra_cnt--;
        if (l) link_close(d, l);
        d->conn_cnt--;
    }
    tdm_gauge_set(d->wires.block, TDM_METRIC_connections, TDM_LABEL_DOOR_http1, d->conn_cnt);
}
