/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/exec/supervisor.h"

#include "appliance/abi/reasons.h"
#include "appliance/base/atomic.h"
#include "appliance/base/check.h"
#include "appliance/base/clock.h"
#include "appliance/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

tdm_status_t tdm_supervisor_program(char *path, size_t path_sz, tdm_error_t *err) {
    char self[400];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return tdm_error_set(err, TDM_ERR_IO, "/proc/self/exe: %s", strerror(errno));
    self[n] = 0;
    *strrchr(self, '/') = 0;
    (void)snprintf(path, path_sz, "%s/tandem-exec", self);
    if (access(path, X_OK) == 0) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
}

void tdm_supervisor_init(tdm_supervisor_t *s, const tdm_supervisor_config_t *config,
                         tdm_channel_t *channel, tdm_life_t *life) {
    memset(s, 0, sizeof *s);
    s->config = *config;
    s->channel = channel;
    s->life = life;
}

static uint32_t head_state(const tdm_supervisor_t *s) {
    return tdm_load_acquire(&s->channel->head->state); /* pairs with E1 in worker.c */
}

/* child becomes tandem-exec with the three descriptors as 3, 4 and 5.  It
   dies with its parent.  Only async-signal-safe calls after fork. */
TDM_NORETURN static void child(const tdm_supervisor_t *s, pid_t parent) {
    const tdm_channel_t *c = s->channel;
    int fd[3] = {c->arena.fd, c->exec_bell.fd, c->sched_bell.fd};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    for (int i = 0; i < 3; i++) {
        fd[i] = fcntl(fd[i], F_DUPFD, 16); /* out of the way of 3..5 */
        if (fd[i] < 0) _exit(126);
    }
    for (int i = 0; i < 3; i++)
        if (dup2(fd[i], 3 + i) < 0) _exit(126);
    (void)close_range(6, ~0u, 0);
    char *const argv[] = {"tandem-exec", "--channel", "3", "4", "5", NULL};
    (void)execv(s->config.program, argv);
    _exit(127);
}

static void *thread_body(void *arg) {
    tdm_supervisor_t *s = arg;
    s->config.thread_main(s->channel, &s->stop);
    tdm_store_release(&s->thread_done, 1u); /* T1: pairs with the acquire in has_ended */
    return NULL;
}

static int start(tdm_supervisor_t *s, int64_t now_ns) {
    s->epoch++;
    s->told_ns = now_ns;
    s->told_permille = 0;
    tdm_channel_format(s->channel, s->epoch);
    if (!s->config.program) {
        s->thread_done = s->stop = 0;
        s->has_thread = pthread_create(&s->thread, NULL, thread_body, s) == 0;
        return (int)s->has_thread;
    }
    pid_t parent = getpid();
    s->pid = fork();
    if (s->pid == 0) child(s, parent);
    if (s->pid > 0) return 1;
    s->pid = 0;
    (void)tdm_error_set(&s->last, TDM_ERR_IO, "fork: %s", strerror(errno));
    return 0;
}

/* has_ended reaps an executor that is gone. */
static int has_ended(tdm_supervisor_t *s) {
    if (!s->config.program) {
        if (!s->has_thread || !tdm_load_acquire(&s->thread_done)) return !s->has_thread;
        (void)pthread_join(s->thread, NULL);
        s->has_thread = 0;
        return 1;
    }
    if (s->pid == 0) return 1;
    int status = 0;
    if (waitpid(s->pid, &status, WNOHANG) != s->pid) return 0;
    s->pid = 0;
    if (WIFSIGNALED(status))
        (void)tdm_error_set(&s->last, TDM_ERR_CLOSED, "the executor got signal %d",
                            WTERMSIG(status));
    else
        (void)tdm_error_set(&s->last, TDM_ERR_CLOSED, "the executor exited with %d",
                            WEXITSTATUS(status));
    return 1;
}

static void ended(tdm_supervisor_t *s, int64_t now_ns) {
    if (now_ns - s->window_ns > s->config.restart_window_ns) {
        s->window_ns = now_ns;
        s->window_deaths = 0;
    }
    s->window_deaths++;
    if (s->serve_ns && now_ns - s->serve_ns >= TDM_SUPERVISOR_SHORT_NS)
        s->short_cnt = 0;
    else
        tdm_choices_forget(&s->channel->head->choices); /* it may have died of them */
    s->serve_ns = 0;
    int64_t pause = s->config.pause_ns << TDM_MIN(s->short_cnt, 10u);
    s->short_cnt++;
    s->resume_ns = now_ns + TDM_MIN(pause, 5 * TDM_NS_PER_S);
    tdm_store_release(&s->life->epoch, 0u); /* L1: pairs with the tile's acquire */
    tdm_doorbell_ring(&s->channel->sched_bell);
    s->state = TDM_SUPERVISOR_ENDING;
    if (!s->is_stopping) tdm_log(TDM_LOG_WARN, "exec", "%s", s->last.text);
}

/* kill_child: the process is reaped by a later poll, for one that is stuck in
   its device's driver must not hold up the management thread. */
static void kill_child(tdm_supervisor_t *s) {
    TDM_CHECK(s->config.program); /* a hung thread cannot be ended alone */
    (void)kill(s->pid, SIGKILL);
    s->is_killed = 1;
}

/* poll_stall ends a load that tells nothing more. */
static void poll_stall(tdm_supervisor_t *s, int64_t now_ns) {
    uint32_t permille = tdm_load_relaxed(&s->channel->head->progress_permille);
    if (permille != s->told_permille) {
        s->told_permille = permille;
        s->told_ns = now_ns;
    }
    if (now_ns - s->told_ns < s->config.load_stall_ns) return;
    kill_child(s);
    s->load_stall_cnt++;
    tdm_log(TDM_LOG_WARN, "exec", "the load told no progress past %u %% for %lld s: killed",
            permille / 10, (long long)(s->config.load_stall_ns / TDM_NS_PER_S));
}

/* poll_stalled waits for the end of a load that was killed.  The wait for its
   progress says nothing for it, so the window of deaths does not run on. */
static void poll_stalled(tdm_supervisor_t *s, int64_t now_ns) {
    if (!has_ended(s)) return;
    (void)tdm_error_set(&s->last, TDM_ERR_TIMEOUT,
                        "the executor was killed: its load told no progress for %lld s",
                        (long long)(s->config.load_stall_ns / TDM_NS_PER_S));
    s->is_killed = 0;
    s->window_ns += now_ns - s->told_ns;
    ended(s, now_ns);
}

static void poll_loading(tdm_supervisor_t *s, int64_t now_ns) {
    if (s->is_killed) {
        poll_stalled(s, now_ns);
    } else if (head_state(s) == TDM_EXEC_FAILED) {
        (void)tdm_error_set(&s->last, TDM_ERR_INVAL, "%s", s->channel->head->error);
        s->state = TDM_SUPERVISOR_FAILED;
    } else if (has_ended(s)) {
        s->exit_cnt++;
        ended(s, now_ns);
    } else if (head_state(s) == TDM_EXEC_READY) {
        s->state = TDM_SUPERVISOR_SERVING;
        s->serve_ns = now_ns;
        tdm_store_release(&s->life->epoch, s->epoch); /* L1: pairs with the tile's acquire */
        tdm_doorbell_ring(&s->channel->sched_bell);
    } else {
        poll_stall(s, now_ns);
    }
}

/* A life ends only after the tile took it up: an ack that is still 0 would
   otherwise be read as the answer to its end. */
static void poll_serving(tdm_supervisor_t *s, int64_t now_ns) {
    if (tdm_load_acquire(&s->life->ack) != s->epoch) return; /* L2: pairs with the tile's release */
    int is_asked = tdm_load_acquire(&s->life->kill) == s->epoch; /* L3: pairs with its release */
    if (is_asked && !s->is_killed) {
        kill_child(s);
        s->kill_cnt++;
    }
    if (!has_ended(s)) return;
    if (s->is_killed)
        (void)tdm_error_set(&s->last, TDM_ERR_TIMEOUT, "the executor was killed: %s",
                            tdm_reason_text((tdm_reason_t)s->life->kill_reason));
    else
        s->exit_cnt++;
    s->is_killed = 0;
    ended(s, now_ns);
}

static void poll_waiting(tdm_supervisor_t *s, int64_t now_ns) {
    if (now_ns < s->resume_ns) return;
    if (s->window_deaths > s->config.restart_max) {
        s->state = TDM_SUPERVISOR_FAILED;
    } else if (start(s, now_ns)) {
        s->state = TDM_SUPERVISOR_LOADING;
    } else {
        ended(s, now_ns);
    }
}

tdm_supervisor_state_t tdm_supervisor_poll(tdm_supervisor_t *s, int64_t now_ns) {
    switch (s->state) {
    case TDM_SUPERVISOR_IDLE:
        s->window_ns = now_ns;
        s->state = TDM_SUPERVISOR_WAITING;
        poll_waiting(s, now_ns);
        break;
    case TDM_SUPERVISOR_LOADING: poll_loading(s, now_ns); break;
    case TDM_SUPERVISOR_SERVING: poll_serving(s, now_ns); break;
    case TDM_SUPERVISOR_ENDING:
        if (tdm_load_acquire(&s->life->ack) == 0) /* L2: pairs with the tile's release */
            s->state = TDM_SUPERVISOR_WAITING;
        break;
    case TDM_SUPERVISOR_WAITING: poll_waiting(s, now_ns); break;
    case TDM_SUPERVISOR_FAILED: break;
    }
    return s->state;
}

int tdm_supervisor_is_serving(const tdm_supervisor_t *s) {
    return s->state == TDM_SUPERVISOR_SERVING && !s->is_killed;
}

void tdm_supervisor_stop(tdm_supervisor_t *s) {
    s->is_stopping = 1;
    if (s->has_thread) {
        tdm_store_relaxed(&s->stop, 1u);
        tdm_doorbell_ring(&s->channel->exec_bell);
        (void)pthread_join(s->thread, NULL);
        s->has_thread = 0;
    }
    if (s->pid > 0) {
        (void)kill(s->pid, SIGKILL);
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR) {
        }
        s->pid = 0;
    }
    s->state = TDM_SUPERVISOR_FAILED;
}
