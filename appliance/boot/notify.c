/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/boot/notify.h"

#include "appliance/base/atomic.h"
#include "appliance/base/check.h"
#include "appliance/base/clock.h"
#include "appliance/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int connect_to(const char *name) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t sz = strlen(name);
    if ((name[0] != '/' && name[0] != '@') || sz < 2 || sz >= sizeof to.sun_path) {
        errno = EINVAL;
        return -1;
    }
    memcpy(to.sun_path, name, sz + 1);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sz);
    if (name[0] == '@')
        to.sun_path[0] = 0; /* abstract: the length ends the name, no zero does */
    else
        len++;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (connect(fd, (const struct sockaddr *)&to, len) == 0) return fd;
    int saved = errno;
    (void)close(fd);
    errno = saved;
    return -1;
}

/* watchdog_ns reads WatchdogSec= where it is meant for this process
   (sd_watchdog_enabled(3)): at most a day, else it is no number of ours. */
static int64_t watchdog_ns(void) {
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!usec || (pid && strtol(pid, NULL, 10) != (long)getpid())) return 0;
    char *end = NULL;
    errno = 0;
    unsigned long long v = strtoull(usec, &end, 10);
    if (errno || *usec < '0' || *usec > '9' || *end || v == 0 || v > 86400000000u) {
        tdm_log(TDM_LOG_WARN, "boot", "WATCHDOG_USEC is no time: no watchdog is fed");
        return 0;
    }
    return (int64_t)v * 1000;
}

void tdm_notify_open(tdm_notify_t *n) {
    const char *name = getenv("NOTIFY_SOCKET");
    *n = (tdm_notify_t){.fd = -1};
    if (name) {
        n->fd = connect_to(name);
        if (n->fd < 0)
            tdm_log(TDM_LOG_WARN, "boot", "NOTIFY_SOCKET: %s: the service manager hears nothing",
                    strerror(errno));
        else
            n->watchdog_ns = watchdog_ns();
    }
    (void)unsetenv("NOTIFY_SOCKET");
    (void)unsetenv("WATCHDOG_USEC");
    (void)unsetenv("WATCHDOG_PID");
}

void tdm_notify_say(tdm_notify_t *n, const char *fmt, ...) {
    char text[TDM_NOTIFY_SZ];
    va_list args;
    if (n->fd < 0) return;
    va_start(args, fmt);
    int sz = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (sz <= 0) return;
    size_t len = TDM_MIN((size_t)sz, sizeof text - 1);
    ssize_t sent;
    do sent = send(n->fd, text, len, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent != (ssize_t)len) n->lost_cnt++;
}

void tdm_notify_close(tdm_notify_t *n) {
    if (n->fd >= 0) (void)close(n->fd);
    n->fd = -1;
}

void tdm_heartbeat_watch(tdm_heartbeat_t *b, const char *name, const int64_t *turn_ns) {
    TDM_CHECK(b->tile_cnt < TDM_HEARTBEAT_TILE_MAX);
    b->tile_name[b->tile_cnt] = name;
    b->tile_turn_ns[b->tile_cnt++] = turn_ns;
}

/* stuck writes why there is no progress; 0: there is. */
static int stuck(const tdm_heartbeat_t *b, int64_t now_ns, int is_pending, int64_t progress_ns,
                 char *why, size_t why_sz) {
    for (uint32_t i = 0; i < b->tile_cnt; i++) {
        int64_t ns = now_ns - tdm_load_relaxed(b->tile_turn_ns[i]);
        if (ns <= b->turn_max_ns) continue;
        (void)snprintf(why, why_sz, "tile %s has begun no turn for %lld ms", b->tile_name[i],
                       (long long)(ns / TDM_NS_PER_MS));
        return 1;
    }
    if (!is_pending || now_ns - progress_ns <= b->progress_max_ns) return 0;
    (void)snprintf(why, why_sz, "requests are pending and nothing moved for %lld ms",
                   (long long)((now_ns - progress_ns) / TDM_NS_PER_MS));
    return 1;
}

int tdm_heartbeat_poll(tdm_heartbeat_t *b, int64_t now_ns, int is_pending, int64_t progress_ns,
                       char *why, size_t why_sz) {
    if (b->period_ns <= 0 || now_ns < b->next_ns) return 0;
    if (stuck(b, now_ns, is_pending, progress_ns, why, why_sz)) {
        b->withheld_cnt++;
        b->next_ns = now_ns + TDM_MIN(b->period_ns, TDM_NS_PER_S);
        return -1;
    }
    b->next_ns = now_ns + b->period_ns;
    return 1;
}
