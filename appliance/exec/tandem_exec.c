/* SPDX-License-Identifier: Apache-2.0 */
/* tandem-exec: the process that owns the device.  Started by tandemd with
   a channel on descriptors 3, 4 and 5; reads the model, makes the backend
   and serves plans until a plan or the device fails, or tandemd ends.

   tandem-exec --device answers the question of appliance/exec/device.h in
   one line and ends.

   Exit status: 0 after --device; 1 the model or the backend could not be made (the
   channel says why); 2 usage; 3 a plan or the device failed. */

#include "appliance/abi/dummy.h"
#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "appliance/base/log.h"
#include "appliance/exec/sandbox.h"
#include "appliance/exec/worker.h"
#include "appliance/model/model.h"
#ifdef TDM_HAS_CUDA
#include "kernels/cuda/probe.h"
#include "telemetry/gpu/sampler.h"
#endif

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* progress_t: where a load is on the way to ready; of a GPU the upload is the
   second half. */
typedef struct progress {
    tdm_channel_t *c;
    uint32_t from, span; /* permille */
} progress_t;

static void on_progress(void *ctx, uint64_t done, uint64_t total) {
    const progress_t *p = ctx;
    uint32_t permille = p->from + (total ? (uint32_t)(done * p->span / total) : 0);
    tdm_store_relaxed(&p->c->head->progress_permille, permille);
}

#ifdef TDM_HAS_CUDA

/* A dummy's weights are drawn on the device: its file has none. */
static tdm_status_t make_cuda(tdm_channel_t *c, tdm_exec_spec_t *spec, tdm_backend_t **out,
                              tdm_error_t *err) {
    static tdm_weights_t shape_only;
    int is_dummy = tdm_model_is_dummy(spec->model);
    progress_t load = {c, 0, 500}, upload = {c, is_dummy ? 0 : 500, is_dummy ? 1000 : 500};
    tdm_model_options_t options = {.flags = is_dummy ? TDM_MODEL_SHAPE_ONLY : 0,
                                   .dtype = (tdm_weight_dtype_t)spec->weight_dtype,
                                   .progress = on_progress,
                                   .progress_ctx = &load};
    tdm_model_t *model = NULL;
    tdm_status_t st = tdm_model_open(spec->model, &options, &model, err);
    if (st != TDM_OK) return st;
    const tdm_weights_t *weights = tdm_model_weights(model);
    if (is_dummy) {
        spec->config.dummy_seed = TDM_DUMMY_SEED;
        shape_only.shape = *tdm_model_shape(model);
        shape_only.dtype = spec->weight_dtype;
        weights = &shape_only;
    }
    st = tdm_backend_cuda_create(weights, &spec->config, &c->head->choices, on_progress, &upload,
                                 out, err);
    tdm_model_close(model); /* the device has its copy */
    return st;
}

static tdm_sampler_t sampler;

/* watch_board lets the board be looked at from now to unwatch_board; what
   the driver does not tell is not shown, and nothing depends on it. */
static void watch_board(tdm_channel_t *c) {
    char bus[32];
    tdm_error_t err = {0};
    if (tdm_cuda_bus(bus, sizeof bus) != 0) return;
    tdm_status_t st =
        tdm_sampler_open(&sampler, &c->head->board, NULL, bus, tdm_clock_now_ns(), &err);
    if (st == TDM_OK) st = tdm_sampler_start(&sampler, &err);
    if (st != TDM_OK) tdm_log(TDM_LOG_WARN, "exec", "the GPU's board tells nothing: %s", err.text);
}

/* unwatch_board takes a last look: an Xid may be what ended this life. */
static void unwatch_board(void) {
    tdm_sampler_close(&sampler);
}

/* is_board_lost: why the backend failed, where the driver knows. */
static int is_board_lost(void) {
    return tdm_sampler_is_lost(&sampler);
}

static int print_device(void) {
    tdm_cuda_probe_t probe;
    const char *why;
    if (tdm_cuda_probe(&probe, &why) != 0) return printf("none %s\n", why) < 0;
    return printf("cuda sm_%d %d %llu %s\n", probe.arch, probe.sm_cnt,
                  (unsigned long long)probe.free_sz, probe.name) < 0;
}

#else

static tdm_status_t make_cuda(tdm_channel_t *c, tdm_exec_spec_t *spec, tdm_backend_t **out,
                              tdm_error_t *err) {
    (void)c;
    (void)spec;
    *out = NULL;
    return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                         "exec.backend=cuda: this build has no CUDA backend (nvcc was not found)");
}

static void watch_board(tdm_channel_t *c) {
    (void)c;
}
static void unwatch_board(void) {}
static int is_board_lost(void) {
    return 0;
}

static int print_device(void) {
    return printf("none this build has no CUDA backend (nvcc was not found)\n") < 0;
}

#endif

static tdm_status_t make_cpu(tdm_channel_t *c, const tdm_exec_spec_t *spec, tdm_model_t **model,
                             tdm_backend_t **out, tdm_error_t *err) {
    progress_t load = {c, 0, 1000};
    tdm_model_options_t options = {.dtype = (tdm_weight_dtype_t)spec->weight_dtype,
                                   .progress = on_progress,
                                   .progress_ctx = &load};
    tdm_status_t st = tdm_model_open(spec->model, &options, model, err);
    if (st != TDM_OK) return st;
    return tdm_backend_cpu_create(tdm_model_weights(*model), &spec->config, NULL, out, err);
}

/* enter_sandbox: what a kernel lacks is a warning, what it half does is not
   lived with. */
static tdm_status_t enter_sandbox(const tdm_exec_spec_t *spec, tdm_error_t *err) {
    tdm_sandbox_t sandbox;
    tdm_status_t st =
        tdm_sandbox_enter(spec->model, spec->backend == TDM_EXEC_BACKEND_CUDA, &sandbox, err);
    if (st == TDM_OK && !(sandbox.is_files && sandbox.is_calls))
        tdm_log(TDM_LOG_WARN, "exec", "the executor's sandbox lacks %s: this kernel has it not",
                sandbox.is_files   ? "seccomp"
                : sandbox.is_calls ? "Landlock"
                                   : "Landlock and seccomp");
    return st;
}

static int serve(tdm_channel_t *c) {
    tdm_error_t err = {0};
    tdm_model_t *model = NULL; /* of the CPU, whose backend borrows the weights */
    tdm_backend_t *backend = NULL;
    tdm_exec_spec_t spec = c->head->spec;
    if (spec.is_sandboxed && enter_sandbox(&spec, &err) != TDM_OK) {
        tdm_worker_fail(c, &err);
        return 1;
    }
    if (spec.backend == TDM_EXEC_BACKEND_CUDA) watch_board(c);
    tdm_status_t st = spec.backend == TDM_EXEC_BACKEND_CPU
                          ? make_cpu(c, &spec, &model, &backend, &err)
                          : make_cuda(c, &spec, &backend, &err);
    if (st != TDM_OK) {
        unwatch_board();
        if (is_board_lost())
            (void)tdm_error_set(&err, st, "the driver says that the GPU is lost or wants a reset");
        tdm_worker_fail(c, &err);
        tdm_model_close(model);
        return 1;
    }
    st = tdm_worker_run(c, backend, (tdm_poll_mode_t)spec.poll_mode, NULL, &err);
    if (st != TDM_OK) tdm_log(TDM_LOG_ERROR, "exec", "%s", err.text);
    unwatch_board();
    tdm_backend_destroy(backend);
    tdm_model_close(model);
    return 3;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--device") == 0) return print_device();
    if (argc != 5 || strcmp(argv[1], "--channel") != 0) {
        fprintf(stderr, "tandem-exec is started by tandemd\n");
        return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    /* A terminal's ^C and a service manager's stop reach the whole group;
       they are tandemd's to handle, who ends this process after the drain. */
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    tdm_channel_t c;
    tdm_error_t err = {0};
    if (tdm_channel_attach(&c, atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), &err) != TDM_OK) {
        tdm_log(TDM_LOG_ERROR, "exec", "%s", err.text);
        return 2;
    }
    int rc = serve(&c);
    tdm_channel_close(&c);
    return rc;
}
