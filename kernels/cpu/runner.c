/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/runner.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "appliance/base/check.h"
#include "appliance/base/size.h"
#include "kernels/cpu/gate_private.h"

struct tdm_runner {
    gate_t go;   /* jobs posted: moved by the owner */
    gate_t done; /* jobs done: moved by the runner */
    tdm_runner_fn_t *fn;
    void *ctx;
    tdm_runner_fn_t *bell; /* NULL: nobody listens */
    void *bell_ctx;
    int64_t spin_ns;
    uint32_t is_closing;
    pthread_t thread;

    /* the owner's own, in [0, GATE_EPOCH_MASK] */
    uint32_t posted TDM_ALIGNED(TDM_CACHE_LINE);
    uint32_t awaited;
};

static uint32_t next(uint32_t epoch) {
    return (epoch + 1) & GATE_EPOCH_MASK;
}

static void *runner_main(void *arg) {
    tdm_runner_t *r = arg;
    for (uint32_t done = 0;; done = next(done)) {
        gate_wait(&r->go, done, r->spin_ns); /* A1: pairs with R1 in tdm_runner_post */
        if (tdm_load_relaxed(&r->is_closing)) return NULL;
        r->fn(r->ctx);
        gate_move(&r->done, next(done)); /* R2: pairs with A2 in tdm_runner_is_done and await */
        if (r->bell) r->bell(r->bell_ctx);
    }
}

uint64_t tdm_runner_footprint(void) {
    return tdm_size_align(sizeof(tdm_runner_t), TDM_CACHE_LINE);
}

tdm_status_t tdm_runner_open(void *mem, tdm_runner_fn_t *fn, void *ctx, uint32_t spin_us,
                             tdm_runner_t **out, tdm_error_t *err) {
    tdm_runner_t *r = mem;
    *out = NULL;
    memset(r, 0, sizeof *r);
    r->fn = fn;
    r->ctx = ctx;
    r->spin_ns = spin_us * TDM_NS_PER_US;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the main thread's */
    int rc = pthread_create(&r->thread, NULL, runner_main, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) return tdm_error_set(err, TDM_ERR_NOMEM, "the runner's thread: %s", strerror(rc));
    *out = r;
    return TDM_OK;
}

void tdm_runner_listen(tdm_runner_t *r, tdm_runner_fn_t *bell, void *ctx) {
    r->bell = bell;
    r->bell_ctx = ctx;
}

void tdm_runner_post(tdm_runner_t *r) {
    r->posted = next(r->posted);
    gate_move(&r->go, r->posted); /* R1: pairs with A1 in runner_main */
}

int tdm_runner_is_done(const tdm_runner_t *r) {
    return gate_epoch(&r->done) != r->awaited; /* A2 */
}

void tdm_runner_await(tdm_runner_t *r) {
    TDM_CHECK(r->awaited != r->posted);
    gate_wait(&r->done, r->awaited, r->spin_ns); /* A2: pairs with R2 in runner_main */
    r->awaited = next(r->awaited);
}

void tdm_runner_close(tdm_runner_t *r) {
    if (!r) return;
    tdm_store_relaxed(&r->is_closing, 1u);
    tdm_runner_post(r);
    pthread_join(r->thread, NULL);
}
