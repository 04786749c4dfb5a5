/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_EXEC_SUPERVISOR_H
#define TDM_EXEC_SUPERVISOR_H

/* tdm_supervisor keeps one executor alive.

            start              READY in the head
     IDLE ---------> LOADING ------------------> SERVING
                        |  exit, or killed as       |  exit, or kill asked for
                        v  its load stalls          v
                     WAITING <------- ack ------- ENDING
                        |  pause over, restarts left: format, next epoch
                        `--> LOADING        none left, or state FAILED --> FAILED

   A load stalls when it tells no progress for load_stall_ns: a driver that
   hangs in its start, a disk that gives nothing.  One that goes on telling
   may take as long as it needs.

   The executor is a process of its own (a device error kills one process
   and nobody's connection) or, for tests, a thread; both go through the
   same states.  A hung thread cannot be killed: in thread mode a kill ends
   the whole process, by a check.

   Called from one thread, boot's management loop; never blocks longer
   than reaping a killed child takes. */

#include "appliance/abi/life.h"
#include "appliance/base/clock.h"
#include "appliance/exec/channel.h"

#include <pthread.h>
#include <sys/types.h>

typedef enum tdm_supervisor_state {
    TDM_SUPERVISOR_IDLE,
    TDM_SUPERVISOR_LOADING,
    TDM_SUPERVISOR_SERVING,
    TDM_SUPERVISOR_ENDING,
    TDM_SUPERVISOR_WAITING,
    TDM_SUPERVISOR_FAILED,
} tdm_supervisor_state_t;

/* tdm_executor_main is the body of an executor in thread mode: open the
   model, make the backend, tdm_worker_run until *stop.  boot gives it. */
typedef void (*tdm_executor_main_fn)(tdm_channel_t *c, const uint32_t *stop);

#define TDM_SUPERVISOR_SHORT_NS (1000 * TDM_NS_PER_MS)

typedef struct tdm_supervisor_config {
    const char *program;              /* path of tandem-exec; NULL: thread mode */
    tdm_executor_main_fn thread_main; /* thread mode */
    uint32_t restart_max;             /* lives after the first, within restart_window_ns */
    int64_t restart_window_ns;
    int64_t pause_ns;      /* before a restart; doubles with each life in a row that served for less
                              than TDM_SUPERVISOR_SHORT_NS, to 5 s: who waits for a stream waits no
                              longer than an executor needs that is otherwise well */
    int64_t load_stall_ns; /* a load without progress for so long is ended */
} tdm_supervisor_config_t;

typedef struct tdm_supervisor {
    tdm_supervisor_config_t config;
    tdm_channel_t *channel;
    tdm_life_t *life;
    tdm_supervisor_state_t state;
    uint32_t epoch;
    pid_t pid; /* process mode: 0 where none runs */
    pthread_t thread;
    uint32_t has_thread;
    uint32_t thread_done; /* atomic */
    uint32_t stop;        /* atomic, thread mode */
    uint32_t is_stopping;
    uint32_t is_killed; /* SIGKILL was sent; not reaped yet */
    int64_t resume_ns;
    int64_t serve_ns;       /* since when this life serves; 0: it does not yet */
    int64_t told_ns;        /* when this life's load began, or last told progress */
    uint32_t told_permille; /* that progress */
    uint32_t short_cnt;     /* short lives in a row */
    int64_t window_ns;      /* start of the window that window_deaths counts in */
    uint32_t window_deaths;
    uint64_t exit_cnt;       /* executors that ended by themselves */
    uint64_t kill_cnt;       /* executors killed on request */
    uint64_t load_stall_cnt; /* executors killed because their load stalled */
    tdm_error_t last;        /* why the last one ended */
} tdm_supervisor_t;

/* tdm_supervisor_program writes the path of tandem-exec, which stands
   beside the running program.  NOT_FOUND where it does not. */
TDM_MUST_USE tdm_status_t tdm_supervisor_program(char *path, size_t path_sz, tdm_error_t *err);

/* tdm_supervisor_init ties channel and life, which outlive it. */
void tdm_supervisor_init(tdm_supervisor_t *s, const tdm_supervisor_config_t *config,
                         tdm_channel_t *channel, tdm_life_t *life);

/* tdm_supervisor_poll starts, watches, kills, reaps and restarts; call it
   every few milliseconds.  The first call starts the first life. */
tdm_supervisor_state_t tdm_supervisor_poll(tdm_supervisor_t *s, int64_t now_ns);

/* tdm_supervisor_is_serving: an executor is there and not on its way out: a
   killed one may need long to go while its device's driver holds it. */
int tdm_supervisor_is_serving(const tdm_supervisor_t *s);

/* tdm_supervisor_stop ends the executor for good and waits for it (it is
   killed, after plans in flight no longer matter). */
void tdm_supervisor_stop(tdm_supervisor_t *s);

#endif /* TDM_EXEC_SUPERVISOR_H */
