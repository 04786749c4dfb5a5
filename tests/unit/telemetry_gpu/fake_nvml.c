/* SPDX-License-Identifier: Apache-2.0 */
/* A libnvidia-ml for tests, built three times: whole; FAKE_OLD, as a driver
   of Pascal's days had it; FAKE_STRANGE, without the calls every one has. */
#include "fake_nvml.h"
#include "telemetry/gpu/nvml.h"

#include <string.h>

#define CALL __attribute__((visibility("default")))

CALL fake_nvml_t fake_nvml = FAKE_NVML_WELL;

CALL int nvmlInit_v2(void);
int nvmlInit_v2(void) {
    fake_nvml.open_cnt++;
    return 0;
}

#ifndef FAKE_STRANGE
static char device[1];

CALL int nvmlShutdown(void);
int nvmlShutdown(void) {
    fake_nvml.open_cnt--;
    return 0;
}

CALL int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out) {
    if (fake_nvml.rc[FAKE_BY_BUS]) return fake_nvml.rc[FAKE_BY_BUS];
    *out = device;
    return strcmp(bus, "0000:1b:00.0") == 0 ? 0 : 6; /* NOT_FOUND */
}

CALL int nvmlDeviceGetPowerUsage(void *d, uint32_t *mw);
int nvmlDeviceGetPowerUsage(void *d, uint32_t *mw) {
    (void)d;
    *mw = fake_nvml.average_mw;
    return fake_nvml.rc[FAKE_POWER];
}

CALL int nvmlDeviceGetEnforcedPowerLimit(void *d, uint32_t *mw);
int nvmlDeviceGetEnforcedPowerLimit(void *d, uint32_t *mw) {
    (void)d;
    *mw = fake_nvml.limit_mw;
    return fake_nvml.rc[FAKE_LIMIT];
}

CALL int nvmlDeviceGetClockInfo(void *d, int domain, uint32_t *mhz);
int nvmlDeviceGetClockInfo(void *d, int domain, uint32_t *mhz) {
    (void)d;
    *mhz = domain == TDM_NVML_CLOCK_SM ? fake_nvml.sm_mhz : fake_nvml.memory_mhz;
    return fake_nvml.rc[FAKE_CLOCK];
}

CALL int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, uint64_t *reasons);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, uint64_t *reasons) {
    (void)d;
    *reasons = fake_nvml.reasons;
    return fake_nvml.rc[FAKE_REASONS];
}

CALL int nvmlDeviceGetTemperature(void *d, int sensor, uint32_t *celsius);
int nvmlDeviceGetTemperature(void *d, int sensor, uint32_t *celsius) {
    (void)d;
    (void)sensor;
    *celsius = fake_nvml.celsius;
    return fake_nvml.rc[FAKE_TEMPERATURE];
}

CALL int nvmlDeviceGetMemoryInfo(void *d, tdm_nvml_memory_t *m);
int nvmlDeviceGetMemoryInfo(void *d, tdm_nvml_memory_t *m) {
    (void)d;
    *m = (tdm_nvml_memory_t){.total_sz = fake_nvml.memory_sz[0],
                             .free_sz = fake_nvml.memory_sz[1],
                             .used_sz = fake_nvml.memory_sz[2]};
    return fake_nvml.rc[FAKE_MEMORY];
}
#endif

#if !defined(FAKE_STRANGE) && !defined(FAKE_OLD)
CALL int nvmlDeviceGetFieldValues(void *d, int cnt, tdm_nvml_field_t *f);
int nvmlDeviceGetFieldValues(void *d, int cnt, tdm_nvml_field_t *f) {
    (void)d;
    for (int i = 0; i < cnt; i++) {
        f[i].status = fake_nvml.field_rc;
        f[i].type = TDM_NVML_VALUE_U32;
        f[i].value.u32 = f[i].id == TDM_NVML_FIELD_POWER_INSTANT   ? fake_nvml.instant_mw
                         : f[i].id == TDM_NVML_FIELD_POWER_AVERAGE ? fake_nvml.average_mw
                                                                   : 0;
    }
    return fake_nvml.rc[FAKE_FIELDS];
}

CALL int nvmlDeviceGetCurrentClocksEventReasons(void *d, uint64_t *reasons);
int nvmlDeviceGetCurrentClocksEventReasons(void *d, uint64_t *reasons) {
    return nvmlDeviceGetCurrentClocksThrottleReasons(d, reasons);
}

CALL int nvmlDeviceGetTotalEnergyConsumption(void *d, uint64_t *mj);
int nvmlDeviceGetTotalEnergyConsumption(void *d, uint64_t *mj) {
    (void)d;
    *mj = fake_nvml.energy_mj;
    return fake_nvml.rc[FAKE_ENERGY];
}

CALL int nvmlDeviceGetTotalEccErrors(void *d, int type, int counter, uint64_t *cnt);
int nvmlDeviceGetTotalEccErrors(void *d, int type, int counter, uint64_t *cnt) {
    (void)d;
    *cnt = counter != TDM_NVML_ECC_VOLATILE ? 99 : type == TDM_NVML_ECC_CORRECTED ? 5 : 0;
    return fake_nvml.rc[FAKE_ECC];
}

CALL int nvmlGpmQueryDeviceSupport(void *d, tdm_nvml_gpm_support_t *s);
int nvmlGpmQueryDeviceSupport(void *d, tdm_nvml_gpm_support_t *s) {
    (void)d;
    s->is_supported = !fake_nvml.gpm_is_unsupported;
    return s->version == TDM_NVML_GPM_VERSION ? 0 : 25;
}

static char sample[2][8];

CALL int nvmlGpmSampleAlloc(void **out);
int nvmlGpmSampleAlloc(void **out) {
    *out = sample[fake_nvml.object_cnt++ % 2];
    return 0;
}

CALL int nvmlGpmSampleFree(void *s);
int nvmlGpmSampleFree(void *s) {
    (void)s;
    fake_nvml.object_cnt--;
    return 0;
}

CALL int nvmlGpmSampleGet(void *d, char *s);
int nvmlGpmSampleGet(void *d, char *s) {
    static char turn;
    (void)d;
    s[0] = ++turn;
    return fake_nvml.rc[FAKE_GPM_TAKE];
}

CALL int nvmlGpmMetricsGet(tdm_nvml_gpm_question_t *q);
int nvmlGpmMetricsGet(tdm_nvml_gpm_question_t *q) {
    static const uint32_t id[] = {TDM_NVML_GPM_SM_ACTIVE, TDM_NVML_GPM_OCCUPANCY,
                                  TDM_NVML_GPM_TENSOR, TDM_NVML_GPM_DRAM};
    const char *before = (const char *)q->before, *after = (const char *)q->after;
    if (q->version != TDM_NVML_GPM_VERSION) return 25;
    if ((char)(before[0] + 1) != after[0]) return 2; /* not the last two, in order */
    for (uint32_t i = 0; i < q->metric_cnt; i++)
        for (uint32_t k = 0; k < 4; k++)
            if (q->metric[i].id == id[k]) q->metric[i].value = fake_nvml.gpm[k];
    return fake_nvml.rc[FAKE_GPM_ASK];
}

CALL int nvmlEventSetCreate(void **out);
int nvmlEventSetCreate(void **out) {
    fake_nvml.object_cnt += 4;
    *out = device;
    return 0;
}

CALL int nvmlEventSetFree(void *set);
int nvmlEventSetFree(void *set) {
    (void)set;
    fake_nvml.object_cnt -= 4;
    return 0;
}

CALL int nvmlDeviceRegisterEvents(void *d, uint64_t types, void *set);
int nvmlDeviceRegisterEvents(void *d, uint64_t types, void *set) {
    (void)d;
    (void)set;
    return types == TDM_NVML_EVENT_XID ? 0 : 2;
}

CALL int nvmlEventSetWait_v2(void *set, tdm_nvml_event_t *e, uint32_t timeout_ms);
int nvmlEventSetWait_v2(void *set, tdm_nvml_event_t *e, uint32_t timeout_ms) {
    (void)set;
    if (timeout_ms != 0) return 2; /* a look never waits */
    if (fake_nvml.xid_told == fake_nvml.xid_cnt) return 10;
    *e = (tdm_nvml_event_t){.type = TDM_NVML_EVENT_XID,
                            .data = fake_nvml.xid[fake_nvml.xid_told++ % 8]};
    return 0;
}
#endif
