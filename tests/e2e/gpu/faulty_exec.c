/* SPDX-License-Identifier: Apache-2.0 */
/* An executor that fails when it is told to: tandem-exec as it ships, whose
   call of tdm_worker_run the linker leads here (--wrap).

     SIGUSR1  the device fails in the next iteration: a trap in a kernel,
              or on the CPU the error that such a trap ends in
     SIGUSR2  the next iteration is stuck for STUCK_MS, twice the watchdog's
              limit of the tests that send this, and goes on then: never
              an endless one

   Where libfake_nvml.so lies beside the program, it plays the driver that
   tells of the board, whatever the backend. */

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "appliance/exec/worker.h"
#include "telemetry/gpu/sampler.h"
#include "tests/e2e/gpu/fault.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STUCK_MS 2000u

tdm_status_t __real_tdm_worker_run(tdm_channel_t *c, tdm_backend_t *backend, tdm_poll_mode_t mode,
                                   const uint32_t *stop, tdm_error_t *err);
tdm_status_t __wrap_tdm_worker_run(tdm_channel_t *c, tdm_backend_t *backend, tdm_poll_mode_t mode,
                                   const uint32_t *stop, tdm_error_t *err);

static uint32_t told; /* the signal that came last, 0: none */
static const tdm_backend_ops_t *real_ops;
static tdm_sampler_t sampler;

static void on_signal(int number) {
    tdm_store_relaxed(&told, (uint32_t)number);
}

static tdm_status_t fail(const tdm_backend_t *b, tdm_error_t *err) {
    if (strcmp(b->info.name, "cuda") == 0 && fault_trap() == 0)
        return TDM_OK; /* on the device: the iteration itself finds out */
    return tdm_error_set(err, TDM_ERR_INTERNAL, "the device failed, as it was told to");
}

static void hang(const tdm_backend_t *b) {
    if (strcmp(b->info.name, "cuda") == 0 && fault_spin(STUCK_MS) == 0) return;
    struct timespec left = {.tv_sec = STUCK_MS / 1000, .tv_nsec = STUCK_MS % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0) {
    }
}

static tdm_status_t start(tdm_backend_t *b, const tdm_plan_t *plan, tdm_result_t *result,
                          tdm_error_t *err) {
    uint32_t number = tdm_swap_acq_rel(&told, 0u);
    if (number == SIGUSR1 && fail(b, err) != TDM_OK) return TDM_ERR_INTERNAL;
    if (number == SIGUSR2) hang(b);
    return real_ops->start(b, plan, result, err);
}

/* fake_board looks at the fake driver, where there is one. */
static void fake_board(tdm_channel_t *c) {
    char path[512];
    tdm_error_t err = {0};
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);
    if (n <= 0) return;
    path[n] = 0;
    (void)snprintf(strrchr(path, '/'), 32, "/libfake_nvml.so");
    if (access(path, R_OK) != 0) return;
    if (tdm_sampler_open(&sampler, &c->head->board, path, "0000:1b:00.0", tdm_clock_now_ns(),
                         &err) != TDM_OK ||
        tdm_sampler_start(&sampler, &err) != TDM_OK)
        (void)fprintf(stderr, "the fake board: %s\n", err.text);
}

tdm_status_t __wrap_tdm_worker_run(tdm_channel_t *c, tdm_backend_t *backend, tdm_poll_mode_t mode,
                                   const uint32_t *stop, tdm_error_t *err) {
    real_ops = backend->ops;
    tdm_backend_ops_t faulty_ops = *real_ops;
    faulty_ops.start = start;
    backend->ops = &faulty_ops;
    (void)signal(SIGUSR1, on_signal);
    (void)signal(SIGUSR2, on_signal);
    fake_board(c);
    tdm_status_t st = __real_tdm_worker_run(c, backend, mode, stop, err);
    backend->ops = real_ops;
    tdm_sampler_close(&sampler);
    return st;
}
