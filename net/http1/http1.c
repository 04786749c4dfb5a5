/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http1/http1_private.h"

#include "appliance/base/size.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

void tdm_http1_config_default(tdm_http1_config_t *config) {
    *config = (tdm_http1_config_t){
        .address = "127.0.0.1",
        .port = 8080,
        .slot_cnt = 256,
        .reserve_cnt = 2,
        .conn_max = 512,
        .conn_per_address_max = 64,
        .header_max = 16 * 1024,
        .pipe_sz = 256 * 1024,
        .header_ms = 5000,
        .body_ms = 30000,
        .idle_s = 15,
        .egress_batch = 256,
        .body_max = UINT64_C(4) << 20,
        .body_total_max = UINT64_C(64) << 20,
        .allow_origin = "*",
    };
}

static tdm_status_t check(const tdm_http1_config_t *c, const tdm_http1_wires_t *w,
                          tdm_error_t *err) {
    if (c->slot_cnt == 0 || c->slot_cnt > 65536)
        return tdm_error_set(err, TDM_ERR_INVAL, "http1: slot_cnt is %u", c->slot_cnt);
    if (c->conn_max == 0 || c->conn_max > 16384 || c->conn_per_address_max == 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "http1: conn_max is %u, per address %u",
                             c->conn_max, c->conn_per_address_max);
    if (c->reserve_cnt > RESERVE_MAX || c->reserve_cnt >= c->slot_cnt)
        return tdm_error_set(err, TDM_ERR_INVAL, "http1: reserve_cnt is %u of %u slots, at most %u",
                             c->reserve_cnt, c->slot_cnt, RESERVE_MAX);
    if (c->pipe_sz < 64 || (c->pipe_sz & (c->pipe_sz - 1)) || c->pipe_sz > 1u << 30)
        return tdm_error_set(err, TDM_ERR_INVAL, "http1: pipe_sz %u is no power of two",
                             c->pipe_sz);
    if (c->header_max < 256 || c->header_max > LINK_SZ / 2 || c->egress_batch == 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "http1: header_max is %u, egress_batch %u",
                             c->header_max, c->egress_batch);
    if (c->body_max == 0 || c->body_max > c->body_total_max)
        return tdm_error_set(err, TDM_ERR_INVAL, "http1: body_max %llu, body_total_max %llu",
                             (unsigned long long)c->body_max,
                             (unsigned long long)c->body_total_max);
    if (c->door >= TDM_DOOR_MAX || w->api_cnt == 0 || w->api_cnt > TDM_API_TILE_MAX)
        return tdm_error_set(err, TDM_ERR_INVAL, "http1: door %u, %u api tiles", c->door,
                             w->api_cnt);
    return TDM_OK;
}

static tdm_status_t take_memory(tdm_http1_t *d, tdm_error_t *err) {
    const tdm_http1_config_t *c = &d->config;
    uint64_t slots = (uint64_t)c->slot_cnt * sizeof(slot_t);
    uint64_t places = (uint64_t)c->slot_cnt * sizeof(tdm_slot_place_t);
    uint64_t peers = (uint64_t)(c->conn_max + LINK_SPARE) * sizeof(peer_t), pipes;
    uint64_t links = (uint64_t)LINK_MAX(c) * sizeof(link_t);
    if (!tdm_size_mul(c->slot_cnt, c->pipe_sz, &pipes))
        return tdm_error_set(err, TDM_ERR_LIMIT, "http1: pipes are too large");
    tdm_status_t st = tdm_arena_open(&d->arena, TDM_ARENA_PLAIN,
                                     slots + places + peers + links + pipes + 4 * 4096, err);
    if (st != TDM_OK) return st;
    d->slot = tdm_arena_take(&d->arena, slots, TDM_CACHE_LINE);
    tdm_slot_place_t *place = tdm_arena_take(&d->arena, places, TDM_CACHE_LINE);
    d->peer = tdm_arena_take(&d->arena, peers, TDM_CACHE_LINE);
    d->link = tdm_arena_take(&d->arena, links, TDM_CACHE_LINE);
    uint8_t *buf = tdm_arena_take(&d->arena, pipes, 4096);
    TDM_CHECK(d->slot && place && d->peer && d->link && buf);
    tdm_arena_seal(&d->arena);
    memset(d->arena.base, 0, d->arena.sz); /* its pages are there before a request is */
    tdm_http1_slots_init(d, place, buf);
    return TDM_OK;
}

/* descriptors_take sees to it that the bound of connections is reached before
   that of descriptors: without one, the library takes nobody until one of its
   connections ends.  Raises the soft bound where it has to. */
static tdm_status_t descriptors_take(const tdm_http1_t *d, tdm_error_t *err) {
    struct rlimit l;
    int least = dup(d->watch_fd); /* all below it are taken */
    if (least >= 0) (void)close(least);
    if (least < 0 || getrlimit(RLIMIT_NOFILE, &l) != 0)
        return tdm_error_set(err, TDM_ERR_IO, "http1: descriptors: %s", strerror(errno));
    uint64_t need = (uint64_t)least + LINK_MAX(&d->config) + DESCRIPTOR_SPARE;
    if (l.rlim_cur >= need) return TDM_OK;
    l.rlim_cur = TDM_MIN(need, l.rlim_max);
    if (l.rlim_cur >= need && setrlimit(RLIMIT_NOFILE, &l) == 0) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_LIMIT,
                         "http1: %u connections want %llu descriptors, %llu are allowed "
                         "(ulimit -n, LimitNOFILE=)",
                         d->config.conn_max, (unsigned long long)need,
                         (unsigned long long)l.rlim_max);
}

/* listen_on makes the socket itself, so that a failure names its cause
   and the port is known. */
static tdm_status_t listen_on(tdm_http1_t *d, tdm_error_t *err) {
    const tdm_http1_config_t *c = &d->config;
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(c->port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(c->port)};
    int is_v4 = inet_pton(AF_INET, c->address, &in.sin_addr) == 1;
    if (!is_v4 && inet_pton(AF_INET6, c->address, &in6.sin6_addr) != 1)
        return tdm_error_set(err, TDM_ERR_INVAL, "http1: %s is no numeric address", c->address);
    const struct sockaddr *addr = is_v4 ? (const void *)&in : (const void *)&in6;
    socklen_t addr_sz = is_v4 ? sizeof in : sizeof in6;
    d->listen_fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;
    if (d->listen_fd < 0 ||
        setsockopt(d->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(d->listen_fd, addr, addr_sz) != 0 || listen(d->listen_fd, 256) != 0)
        return tdm_error_set(err, TDM_ERR_IO, "http1: cannot listen on %s port %u: %s", c->address,
                             c->port, strerror(errno));
    struct sockaddr_storage bound;
    socklen_t bound_sz = sizeof bound;
    if (getsockname(d->listen_fd, (struct sockaddr *)&bound, &bound_sz) != 0)
        return tdm_error_set(err, TDM_ERR_IO, "http1: getsockname: %s", strerror(errno));
    if (is_v4)
        memcpy(&in, &bound, sizeof in);
    else
        memcpy(&in6, &bound, sizeof in6);
    d->port = ntohs(is_v4 ? in.sin_port : in6.sin6_port);
    return TDM_OK;
}

static tdm_status_t start(tdm_http1_t *d, tdm_error_t *err) {
    unsigned flags = MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    flags |= d->config.is_driven ? (unsigned)MHD_USE_EPOLL | MHD_USE_ITC
                                 : (unsigned)MHD_USE_EPOLL_INTERNAL_THREAD;
    d->daemon = MHD_start_daemon(
        flags, 0, tdm_http1_accept, d, tdm_http1_handle, d, MHD_OPTION_LISTEN_SOCKET, d->listen_fd,
        MHD_OPTION_EXTERNAL_LOGGER, tdm_http1_log, d, MHD_OPTION_URI_LOG_CALLBACK, tdm_http1_uri, d,
        MHD_OPTION_NOTIFY_COMPLETED, tdm_http1_completed, d, MHD_OPTION_NOTIFY_CONNECTION,
        tdm_http1_connection, d, MHD_OPTION_CONNECTION_LIMIT, (unsigned)LINK_MAX(&d->config),
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)d->config.idle_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)LINK_SZ, MHD_OPTION_END);
    if (!d->daemon)
        return tdm_error_set(err, TDM_ERR_IO, "http1: libmicrohttpd did not start on port %u",
                             d->port);
    d->listen_fd = -1; /* the library's now */
    return TDM_OK;
}

static void destroy(tdm_http1_t *d) {
    if (d->listen_fd >= 0) (void)close(d->listen_fd);
    if (d->watch_fd >= 0) (void)close(d->watch_fd);
    for (uint32_t i = 0; d->slot && i < d->config.slot_cnt; i++) free(d->slot[i].exchange.body);
    tdm_arena_close(&d->arena);
    (void)pthread_mutex_destroy(&d->lock);
    free(d);
}

tdm_status_t tdm_http1_open(const tdm_http1_config_t *config, const tdm_http1_wires_t *wires,
                            tdm_http1_t **out, tdm_error_t *err) {
    *out = NULL;
    tdm_status_t st = check(config, wires, err);
    if (st != TDM_OK) return st;
    tdm_http1_t *d = calloc(1, sizeof *d);
    if (!d) return tdm_error_set(err, TDM_ERR_NOMEM, "http1: no memory");
    d->config = *config;
    d->wires = *wires;
    d->listen_fd = d->unix_fd = -1;
    d->unix_ns = TDM_TIME_NEVER;
    (void)pthread_mutex_init(&d->lock, NULL);
    d->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    char name[sizeof d->name] = "";
    if (gethostname(name, sizeof name - 1) != 0) name[0] = '\0';
    st = tdm_http1_names_take(d, config->hosts ? config->hosts : "", name, err);
    if (st == TDM_OK && d->watch_fd < 0)
        st = tdm_error_set(err, TDM_ERR_IO, "epoll: %s", strerror(errno));
    if (st == TDM_OK) st = descriptors_take(d, err);
    if (st == TDM_OK) st = take_memory(d, err);
    if (st == TDM_OK) st = listen_on(d, err);
    if (st == TDM_OK) st = start(d, err);
    if (st != TDM_OK) {
        destroy(d);
        return st;
    }
    *out = d;
    return TDM_OK;
}

void tdm_http1_turn(tdm_http1_t *d) {
    TDM_CHECK(d->config.is_driven);
    (void)MHD_run(d->daemon);
}

int tdm_http1_adopt(tdm_http1_t *d, int fd, const struct sockaddr *addr, socklen_t addr_sz) {
    TDM_CHECK(d->config.is_driven);
    return MHD_add_connection(d->daemon, fd, addr, addr_sz) == MHD_YES;
}

uint16_t tdm_http1_port(const tdm_http1_t *d) {
    return d->port;
}

void tdm_http1_quiesce(tdm_http1_t *d) {
    int fd = MHD_quiesce_daemon(d->daemon);
    if (fd >= 0) (void)close(fd);
}

void tdm_http1_close(tdm_http1_t *d) {
    if (!d) return;
    tdm_http1_quiesce(d);
    tdm_http1_unix_close(d);
    /* No connection may be suspended when the daemon stops. */
    (void)pthread_mutex_lock(&d->lock);
    d->is_closing = 1;
    for (uint32_t i = 0; i < d->config.slot_cnt; i++) tdm_http1_slot_resume_locked(&d->slot[i]);
    tdm_http1_feed_resume_locked(d, tdm_clock_now_ns());
    (void)pthread_mutex_unlock(&d->lock);
    MHD_stop_daemon(d->daemon);
    destroy(d);
}
