/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/exec/device.h"

#include "appliance/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASK_MAX_NS (30 * TDM_NS_PER_S)

static void none(tdm_device_t *out, const char *why) {
    memset(out, 0, sizeof *out);
    (void)snprintf(out->why, sizeof out->why, "%s", why);
}

void tdm_device_read(const char *line, tdm_device_t *out) {
    unsigned sm_cnt;
    unsigned long long free_sz;
    memset(out, 0, sizeof *out);
    if (strncmp(line, "none ", 5) == 0) {
        none(out, line + 5);
        out->why[strcspn(out->why, "\n")] = 0;
    } else if (sscanf(line, "cuda %15s %u %llu %95[^\n]", out->arch, &sm_cnt, &free_sz,
                      out->name) == 4 &&
               sm_cnt > 0) {
        out->is_there = 1;
        out->sm_cnt = sm_cnt;
        out->free_sz = free_sz;
    } else {
        none(out, "the executor gave no answer about its device");
    }
}

TDM_NORETURN static void child(const char *program, int fd) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(fd, STDOUT_FILENO) < 0) _exit(126);
    (void)close_range(3, ~0u, 0);
    char *const argv[] = {"tandem-exec", "--device", NULL};
    (void)execv(program, argv);
    _exit(127);
}

/* hear reads until the other side is done or the time is up. */
static void hear(int fd, char *line, size_t line_sz) {
    int64_t end_ns = tdm_clock_now_ns() + ASK_MAX_NS;
    size_t got = 0;
    for (int64_t now_ns; got + 1 < line_sz && (now_ns = tdm_clock_now_ns()) < end_ns;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll(&p, 1, (int)((end_ns - now_ns) / TDM_NS_PER_MS) + 1);
        if (ready < 0 && errno != EINTR) break;
        if (ready <= 0) continue;
        ssize_t n = read(fd, line + got, line_sz - 1 - got);
        if (n <= 0) break;
        got += (size_t)n;
    }
    line[got] = 0;
}

void tdm_device_ask(const char *program, tdm_device_t *out) {
    char line[512];
    int fd[2];
    if (pipe(fd) != 0) {
        none(out, strerror(errno));
        return;
    }
    pid_t pid = fork();
    if (pid == 0) child(program, fd[1]);
    (void)close(fd[1]);
    line[0] = 0;
    if (pid > 0) {
        hear(fd[0], line, sizeof line);
        (void)kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    (void)close(fd[0]);
    tdm_device_read(line, out);
}
