/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http1/http1_private.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* is_dead: a socket has that name, and nobody is behind it.  What is no socket
   refuses a connection too, and is somebody's file. */
static int is_dead(const struct sockaddr_un *addr) {
    struct stat what;
    if (lstat(addr->sun_path, &what) != 0 || !S_ISSOCK(what.st_mode)) return 0;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return 0;
    int rc = connect(fd, (const struct sockaddr *)addr, sizeof *addr);
    int is_refused = rc != 0 && errno == ECONNREFUSED;
    (void)close(fd);
    return is_refused;
}

/* make_folder makes the last folder of path, where it is missing. */
static void make_folder(const char *path) {
    char folder[sizeof((struct sockaddr_un *)0)->sun_path];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return;
    memcpy(folder, path, (size_t)(slash - path));
    folder[slash - path] = '\0';
    (void)mkdir(folder, 0755); /* bind says what is wrong */
}

tdm_status_t tdm_http1_unix_open(tdm_http1_t *d, const char *path, tdm_error_t *err) {
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    TDM_CHECK(d->unix_fd < 0);
    if (strlen(path) >= sizeof addr.sun_path)
        return tdm_error_set(err, TDM_ERR_LIMIT, "%s: too long for a socket's name", path);
    memcpy(addr.sun_path, path, strlen(path) + 1);
    make_folder(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return tdm_error_set(err, TDM_ERR_IO, "%s: %s", path, strerror(errno));
    int rc = bind(fd, (const struct sockaddr *)&addr, sizeof addr);
    if (rc != 0 && errno == EADDRINUSE) {
        if (!is_dead(&addr)) {
            (void)close(fd);
            return tdm_error_set(err, TDM_ERR_FULL,
                                 "%s: another process answers there, or it is no socket", path);
        }
        (void)unlink(path);
        rc = bind(fd, (const struct sockaddr *)&addr, sizeof addr);
    }
    /* Whoever may reach it is asked who they are, by the page itself. */
    if (rc != 0 || chmod(path, 0666) != 0 || listen(fd, 16) != 0) {
        (void)tdm_error_set(err, TDM_ERR_IO, "%s: %s", path, strerror(errno));
        (void)close(fd);
        return TDM_ERR_IO;
    }
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = UNIX_MARK};
    (void)epoll_ctl(d->watch_fd, EPOLL_CTL_ADD, fd, &ev);
    d->unix_fd = fd;
    d->unix_addr = addr;
    return TDM_OK;
}

static void listen_for(tdm_http1_t *d, uint32_t events) {
    struct epoll_event ev = {.events = events, .data.u64 = UNIX_MARK};
    (void)epoll_ctl(d->watch_fd, EPOLL_CTL_MOD, d->unix_fd, &ev);
}

/* put_off: a peer that cannot be taken stays readable, and who watches it
   would never sleep. */
static void put_off(tdm_http1_t *d, int64_t now_ns) {
    listen_for(d, 0);
    d->unix_ns = now_ns + PUT_OFF_NS;
    tdm_count(d->wires.poll_block, TDM_METRIC_http_connections_put_off_total, 0, 1);
}

void tdm_http1_unix_retry(tdm_http1_t *d, int64_t now_ns) {
    if (d->unix_fd < 0 || now_ns < d->unix_ns) return;
    d->unix_ns = TDM_TIME_NEVER;
    listen_for(d, EPOLLIN);
}

/* The library calls back tdm_http1_accept on this thread, which lets a
   Unix peer pass without touching what the library thread owns. */
void tdm_http1_unix_accept(tdm_http1_t *d, int64_t now_ns) {
    for (uint32_t i = 0; i < UNIX_MAX; i++) {
        int fd = accept4(d->unix_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) put_off(d, now_ns);
            return;
        }
        if (tdm_load_relaxed(&d->unix_cnt) >= UNIX_MAX) {
            tdm_count(d->wires.poll_block, TDM_METRIC_connections_refused_total,
                      TDM_LABEL_DOOR_http1, 1);
            (void)close(fd);
            continue;
        }
        (void)tdm_add_relaxed(&d->unix_cnt, 1u);
        /* The library closes the socket where it does not take it. */
        if (MHD_add_connection(d->daemon, fd, (const struct sockaddr *)&d->unix_addr,
                               sizeof d->unix_addr) != MHD_YES)
            (void)tdm_add_relaxed(&d->unix_cnt, UINT32_MAX);
    }
}

void tdm_http1_unix_close(tdm_http1_t *d) {
    if (d->unix_fd < 0) return;
    (void)epoll_ctl(d->watch_fd, EPOLL_CTL_DEL, d->unix_fd, NULL);
    (void)unlink(d->unix_addr.sun_path);
    (void)close(d->unix_fd);
    d->unix_fd = -1;
}
