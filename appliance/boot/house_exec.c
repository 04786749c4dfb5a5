/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/log.h"
#include "appliance/boot/house_private.h"

#include "appliance/exec/worker.h"

/* The CPU backend only: a device belongs in a process of its own. */
void tdm_house_executor_thread(tdm_channel_t *c, const uint32_t *stop) {
    tdm_error_t err = {0};
    tdm_model_t *model = NULL;
    tdm_backend_t *backend = NULL;
    tdm_exec_spec_t spec = c->head->spec;
    tdm_model_options_t options = {.dtype = (tdm_weight_dtype_t)spec.weight_dtype};
    tdm_status_t st = tdm_model_open(spec.model, &options, &model, &err);
    if (st == TDM_OK && spec.backend != TDM_EXEC_BACKEND_CPU)
        st = tdm_error_set(&err, TDM_ERR_UNSUPPORTED, "exec.mode=thread runs the CPU backend only");
    if (st == TDM_OK)
        st = tdm_backend_cpu_create(tdm_model_weights(model), &spec.config, NULL, &backend, &err);
    if (st != TDM_OK)
        tdm_worker_fail(c, &err);
    else if (tdm_worker_run(c, backend, (tdm_poll_mode_t)spec.poll_mode, stop, &err) != TDM_OK)
        tdm_log(TDM_LOG_ERROR, "exec", "%s", err.text);
    tdm_backend_destroy(backend);
    tdm_model_close(model);
}
