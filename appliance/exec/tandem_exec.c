/* SPDX-License-Identifier: Apache-2.0 */
/* tandem-exec: the process that owns the device.  Started by tandemd with
   a channel on descriptors 3, 4 and 5; reads the model, makes the backend
   and serves plans until a plan or the device fails, or tandemd ends.

   Exit status: 0 never; 1 the model or the backend could not be made (the
   channel says why); 2 usage; 3 a plan or the device failed. */

#include "appliance/base/atomic.h"
#include "appliance/base/log.h"
#include "appliance/exec/worker.h"
#include "appliance/model/model.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_progress(void *ctx, uint64_t done, uint64_t total) {
    tdm_channel_t *c = ctx;
    uint32_t permille = total ? (uint32_t)(done * 1000 / total) : 0;
    tdm_store_relaxed(&c->head->progress_permille, permille);
}

static tdm_status_t make_backend(const tdm_exec_spec_t *spec, const tdm_weights_t *weights,
                                 tdm_backend_t **out, tdm_error_t *err) {
    if (spec->backend == TDM_EXEC_BACKEND_CPU)
        return tdm_backend_cpu_create(weights, &spec->config, NULL, out, err);
#ifdef TDM_HAS_CUDA
    return tdm_backend_cuda_create(weights, &spec->config, out, err);
#else
    return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                         "exec.backend=cuda: this build has no CUDA backend (nvcc was not found)");
#endif
}

static int serve(tdm_channel_t *c) {
    tdm_error_t err = {0};
    tdm_model_t *model = NULL;
    tdm_backend_t *backend = NULL;
    tdm_exec_spec_t spec = c->head->spec;
    tdm_model_options_t options = {.progress = on_progress, .progress_ctx = c};
    tdm_status_t st = tdm_model_open(spec.model, &options, &model, &err);
    if (st == TDM_OK) st = make_backend(&spec, tdm_model_weights(model), &backend, &err);
    if (st != TDM_OK) {
        tdm_worker_fail(c, &err);
        tdm_model_close(model);
        return 1;
    }
    st = tdm_worker_run(c, backend, (tdm_poll_mode_t)spec.poll_mode, NULL, &err);
    if (st != TDM_OK) tdm_log(TDM_LOG_ERROR, "exec", "%s", err.text);
    tdm_backend_destroy(backend);
    tdm_model_close(model);
    return 3;
}

int main(int argc, char **argv) {
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
