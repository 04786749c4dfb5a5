// SPDX-License-Identifier: Apache-2.0
#include "tests/perf/attention/steady.h"

#include <dlfcn.h>
#include <string.h>
#include <time.h>

// NVML, found at run time: what a machine without a driver lacks.  The
// field value is nvmlFieldValue_t of nvml.h; 186 is its
// NVML_FI_DEV_POWER_INSTANT, in milliwatts.
#define FIELD_POWER_INSTANT 186u
typedef struct field {
    uint32_t id;
    uint32_t scope;
    int64_t timestamp;
    int64_t latency_us;
    int32_t type;
    int32_t error;
    union {
        uint32_t u32;
        uint64_t u64;
    } value;
} field_t;

typedef struct nvml {
    int (*energy)(void *device, unsigned long long *mj);
    int (*fields)(void *device, int cnt, field_t *field);
    void *device;
} nvml_t;

// The device that CUDA gave us, by its bus: NVML counts all of the host.
static int open_nvml(nvml_t *n) {
    char bus[32];
    int dev;
    OK(cudaGetDevice(&dev));
    OK(cudaDeviceGetPCIBusId(bus, sizeof bus, dev));
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!lib) return 0;
    auto init = (int (*)(void))dlsym(lib, "nvmlInit_v2");
    auto get = (int (*)(const char *, void **))dlsym(lib, "nvmlDeviceGetHandleByPciBusId_v2");
    n->energy =
        (int (*)(void *, unsigned long long *))dlsym(lib, "nvmlDeviceGetTotalEnergyConsumption");
    n->fields = (int (*)(void *, int, field_t *))dlsym(lib, "nvmlDeviceGetFieldValues");
    return init && get && n->energy && n->fields && init() == 0 && get(bus, &n->device) == 0;
}

static double watt_now(const nvml_t *n) {
    field_t f;
    memset(&f, 0, sizeof f);
    f.id = FIELD_POWER_INSTANT;
    return n->fields(n->device, 1, &f) == 0 && f.error == 0 ? f.value.u32 * 1e-3 : 0.0;
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

int steady_run(bench_t *b, steady_fn *fn, uint32_t i, double seconds, steady_t *out) {
    static nvml_t n;
    if (!n.device && !open_nvml(&n)) return 0;
    unsigned long long mj0 = 0, mj1 = 0;
    uint64_t cnt = 0;
    double begin = 0, warm = now_us();
    memset(out, 0, sizeof *out);
    cudaEvent_t done[2]; // two lots of launches in flight: the card never waits for us
    for (int e = 0; e < 2; e++) OK(cudaEventCreateWithFlags(&done[e], cudaEventDisableTiming));
    uint32_t lot = 0;
    for (double now = warm; begin == 0 || now < begin + seconds * 1e6; now = now_us(), lot++) {
        if (begin == 0 && now > warm + 0.3e6) {
            begin = now;
            cnt = 0;
            (void)n.energy(n.device, &mj0);
        }
        for (int k = 0; k < 8; k++, cnt++) fn(b, i);
        OK(cudaEventRecord(done[lot & 1], b->stream));
        if (lot) OK(cudaEventSynchronize(done[(lot & 1) ^ 1]));
        double watt = watt_now(&n);
        if (begin != 0 && watt > out->watt_most) out->watt_most = watt;
    }
    OK(cudaStreamSynchronize(b->stream));
    (void)n.energy(n.device, &mj1);
    double us = now_us() - begin;
    for (int e = 0; e < 2; e++) OK(cudaEventDestroy(done[e]));
    tdm_pod_counters_t c;
    OK(tdm_pod_read(b->pod[i], &b->plan[i], &c));
    b->launch_cnt[i] = 0;
    out->us = us / (double)cnt;
    out->joule = (double)(mj1 - mj0) * 1e-3 / (double)cnt;
    out->watt_mean = (double)(mj1 - mj0) * 1e3 / us;
    out->seconds = us * 1e-6;
    out->clock_ghz = c.clock_ghz;
    return 1;
}
