/* SPDX-License-Identifier: Apache-2.0 */
/* Choices of products over the executor's lives: whose they are. */
#include <string.h>
#include <sys/stat.h>

#include "appliance/base/log.h"
#include "kernels/cuda/cuda_private.h"
#include "kernels/keep/choices.h"

/* key_of fills all that choices depend on; 0 where something is not told, and
   nothing is kept then. */
static int key_of(const tdm_cuda_t *c, tdm_choices_key_t *key) {
    struct cudaDeviceProp prop;
    struct stat program;
    int device = 0, driver = 0, runtime = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaGetDeviceProperties(&prop, device) != cudaSuccess ||
        cudaDriverGetVersion(&driver) != cudaSuccess ||
        cudaRuntimeGetVersion(&runtime) != cudaSuccess || stat("/proc/self/exe", &program) != 0)
        return 0;
    _Static_assert(sizeof prop.uuid.bytes == sizeof key->device, "a UUID is 16 bytes");
    memset(key, 0, sizeof *key);
    memcpy(key->device, prop.uuid.bytes, sizeof key->device);
    key->arch = c->pod_config.gpu.arch;
    key->sm_cnt = c->pod_config.gpu.sm_cnt;
    key->driver = (uint32_t)driver;
    key->runtime = (uint32_t)runtime;
    key->library = tdm_gemm_library(c->gemm);
    key->program[0] = (uint64_t)program.st_dev;
    key->program[1] = (uint64_t)program.st_ino;
    key->program[2] = (uint64_t)program.st_size;
    key->program[3] =
        (uint64_t)program.st_mtim.tv_sec * UINT64_C(1000000000) + (uint64_t)program.st_mtim.tv_nsec;
    return 1;
}

tdm_status_t tdm_cuda_recall(tdm_cuda_t *c, tdm_error_t *err) {
    static tdm_choice_t before[TDM_CHOICES_MAX];
    tdm_choices_key_t key;
    const char *why = "the device or the program does not tell who it is";
    uint32_t cnt = 0;
    if (!c->choices) return TDM_OK;
    if (key_of(c, &key)) cnt = tdm_choices_take(c->choices, &key, before, &why);
    if (cnt == 0) tdm_log(TDM_LOG_INFO, "exec", "products are chosen anew: %s", why);
    return tdm_gemm_recall(c->gemm, before, cnt, err);
}

void tdm_cuda_remember(tdm_cuda_t *c) {
    static tdm_choice_t now[TDM_CHOICES_MAX];
    tdm_choices_key_t key;
    if (!c->choices || !key_of(c, &key)) return;
    tdm_choices_keep(c->choices, &key, now, tdm_gemm_choices(c->gemm, now));
}
