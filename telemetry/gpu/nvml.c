/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/gpu/nvml.h"

#include <dlfcn.h>
#include <string.h>

/* The folder is where container runtimes of some hosts mount the driver. */
static const char *const place[] = {"libnvidia-ml.so.1",
                                    "/usr/local/nvidia/lib64/libnvidia-ml.so.1"};

/* The layouts of the library's own structs. */
_Static_assert(sizeof(tdm_nvml_field_t) == 40, "nvmlFieldValue_t");
_Static_assert(sizeof(tdm_nvml_event_t) == 32, "nvmlEventData_t");
_Static_assert(sizeof(tdm_nvml_gpm_metric_t) == 40, "nvmlGpmMetric_t");
_Static_assert(offsetof(tdm_nvml_gpm_question_t, metric) == 24, "nvmlGpmMetricsGet_t");

static void *load(const char *library) {
    if (library) return dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *lib = NULL;
    for (size_t i = 0; i < TDM_COUNT_OF(place) && !lib; i++)
        lib = dlopen(place[i], RTLD_NOW | RTLD_LOCAL);
    return lib;
}

static const char *find(tdm_nvml_t *n) {
#define FIND(member, symbol, arguments) *(void **)&n->member = dlsym(n->library, symbol);
    TDM_NVML_NEEDED(FIND)
    TDM_NVML_OPTIONAL(FIND)
#undef FIND
#define LACKS(member, symbol, arguments)                                                           \
    if (!n->member) return symbol;
    TDM_NVML_NEEDED(LACKS)
#undef LACKS
    return NULL;
}

static tdm_status_t unload(tdm_nvml_t *n, tdm_status_t st) {
    (void)dlclose(n->library);
    memset(n, 0, sizeof *n);
    return st;
}

tdm_status_t tdm_nvml_open(tdm_nvml_t *n, const char *library, const char *bus, int *lost,
                           tdm_error_t *err) {
    memset(n, 0, sizeof *n);
    if (lost) *lost = 0;
    n->library = load(library);
    if (!n->library)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "%s is not there",
                             library ? library : place[0]);
    const char *lack = find(n);
    if (lack)
        return unload(n, tdm_error_set(err, TDM_ERR_UNSUPPORTED, "NVML has no call %s", lack));
    int rc = n->init();
    if (rc != TDM_NVML_OK)
        return unload(n, tdm_error_set(err, TDM_ERR_UNSUPPORTED, "nvmlInit_v2 answered %d", rc));
    rc = n->by_bus(bus, &n->device);
    if (rc == TDM_NVML_OK) return TDM_OK;
    if (lost) *lost = rc == TDM_NVML_ERROR_GPU_IS_LOST || rc == TDM_NVML_ERROR_RESET_REQUIRED;
    (void)n->shutdown();
    return unload(
        n, tdm_error_set(err, TDM_ERR_UNSUPPORTED, "NVML answered %d for the GPU at %s", rc, bus));
}

void tdm_nvml_close(tdm_nvml_t *n) {
    if (!n->library) return;
    (void)n->shutdown();
    (void)unload(n, TDM_OK);
}
