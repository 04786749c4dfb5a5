/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU behind the executor's door.  It finds the device, proves that a
   kernel of this build runs on it, and says that the model's kernels are
   not in this build. */
#include "kernels/include/backend.h"
#include "kernels/cuda/probe.h"

tdm_status_t tdm_backend_cuda_create(const tdm_weights_t *weights,
                                     const tdm_backend_config_t *config, tdm_backend_t **out,
                                     tdm_error_t *err) {
    tdm_cuda_probe_t probe;
    const char *why;
    (void)weights;
    (void)config;
    *out = NULL;
    if (tdm_cuda_probe(&probe, &why) != 0)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "no usable CUDA device: %s", why);
    return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                         "no GPU kernels in this build yet (device: %s, sm_%d, %d SMs)", probe.name,
                         probe.arch, probe.sm_cnt);
}
