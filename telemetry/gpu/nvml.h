/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_GPU_NVML_H
#define TDM_TELEMETRY_GPU_NVML_H

/* The calls of NVML, the driver's management library, that the sampler
   makes, found when an executor starts.  The library comes with the driver
   and its header with neither the driver nor every toolkit: it is loaded,
   and what is used of its types is declared here.  Numbers, names and
   layouts: NVML API reference, "Device Queries", "Field Value Enums",
   "GPM Structs", "Event Handling Methods".

   Every call but the first three may be missing: an old driver has fewer.
   None changes a setting of the GPU. */

#include "appliance/base/status.h"

typedef struct tdm_nvml_device tdm_nvml_device_t;
typedef struct tdm_nvml_events tdm_nvml_events_t;
typedef struct tdm_nvml_gpm tdm_nvml_gpm_t;

enum { /* nvmlReturn_t */
       TDM_NVML_OK = 0,
       TDM_NVML_ERROR_GPU_IS_LOST = 15,
       TDM_NVML_ERROR_RESET_REQUIRED = 16,
};
enum { TDM_NVML_CLOCK_SM = 1, TDM_NVML_CLOCK_MEM = 2 };
enum { TDM_NVML_SENSOR_GPU = 0 };
enum { TDM_NVML_ECC_CORRECTED = 0, TDM_NVML_ECC_UNCORRECTED = 1, TDM_NVML_ECC_VOLATILE = 0 };
enum { TDM_NVML_FIELD_POWER_AVERAGE = 185, TDM_NVML_FIELD_POWER_INSTANT = 186 };
enum { TDM_NVML_VALUE_U32 = 1, TDM_NVML_VALUE_U64 = 3 };
enum { /* clocks event reasons */
       TDM_NVML_REASON_SW_POWER = 0x4,
       TDM_NVML_REASON_HW_SLOWDOWN = 0x8,
       TDM_NVML_REASON_SYNC_BOOST = 0x10,
       TDM_NVML_REASON_SW_THERMAL = 0x20,
       TDM_NVML_REASON_HW_THERMAL = 0x40,
       TDM_NVML_REASON_HW_BRAKE = 0x80,
};
enum { /* GPM metrics, all in per cent */
       TDM_NVML_GPM_SM_ACTIVE = 2,
       TDM_NVML_GPM_OCCUPANCY = 3,
       TDM_NVML_GPM_TENSOR = 5,
       TDM_NVML_GPM_DRAM = 10,
};
#define TDM_NVML_GPM_VERSION 1u
#define TDM_NVML_GPM_ROOM    512u /* metrics the library's own struct may have, at most */
#define TDM_NVML_EVENT_XID   UINT64_C(8)

typedef struct tdm_nvml_field {
    uint32_t id;
    uint32_t scope;
    int64_t timestamp_us;
    int64_t latency_us;
    int32_t type;   /* TDM_NVML_VALUE_* */
    int32_t status; /* of this field alone */
    union {
        double f64;
        uint32_t u32;
        uint64_t u64;
    } value;
} tdm_nvml_field_t;

typedef struct tdm_nvml_memory {
    uint64_t total_sz, free_sz, used_sz;
} tdm_nvml_memory_t;

typedef struct tdm_nvml_event {
    tdm_nvml_device_t *device;
    uint64_t type;
    uint64_t data; /* the Xid */
    uint32_t gpu_instance, compute_instance;
} tdm_nvml_event_t;

typedef struct tdm_nvml_gpm_support {
    uint32_t version;
    uint32_t is_supported;
} tdm_nvml_gpm_support_t;

typedef struct tdm_nvml_gpm_metric {
    uint32_t id;
    int32_t status;
    double value;
    const char *name[3];
} tdm_nvml_gpm_metric_t;

typedef struct tdm_nvml_gpm_question {
    uint32_t version;
    uint32_t metric_cnt;
    tdm_nvml_gpm_t *before, *after;
    tdm_nvml_gpm_metric_t metric[TDM_NVML_GPM_ROOM];
} tdm_nvml_gpm_question_t;

/* member, symbol, arguments; all answer an nvmlReturn_t */
#define TDM_NVML_NEEDED(X)                                                                         \
    X(init, "nvmlInit_v2", (void))                                                                 \
    X(shutdown, "nvmlShutdown", (void))                                                            \
    X(by_bus, "nvmlDeviceGetHandleByPciBusId_v2", (const char *, tdm_nvml_device_t **))
#define TDM_NVML_OPTIONAL(X)                                                                       \
    X(fields, "nvmlDeviceGetFieldValues", (tdm_nvml_device_t *, int, tdm_nvml_field_t *))          \
    X(power, "nvmlDeviceGetPowerUsage", (tdm_nvml_device_t *, uint32_t *))                         \
    X(limit, "nvmlDeviceGetEnforcedPowerLimit", (tdm_nvml_device_t *, uint32_t *))                 \
    X(energy, "nvmlDeviceGetTotalEnergyConsumption", (tdm_nvml_device_t *, uint64_t *))            \
    X(clock, "nvmlDeviceGetClockInfo", (tdm_nvml_device_t *, int, uint32_t *))                     \
    X(reasons, "nvmlDeviceGetCurrentClocksEventReasons", (tdm_nvml_device_t *, uint64_t *))        \
    X(reasons_old, "nvmlDeviceGetCurrentClocksThrottleReasons", (tdm_nvml_device_t *, uint64_t *)) \
    X(temperature, "nvmlDeviceGetTemperature", (tdm_nvml_device_t *, int, uint32_t *))             \
    X(memory, "nvmlDeviceGetMemoryInfo", (tdm_nvml_device_t *, tdm_nvml_memory_t *))               \
    X(ecc, "nvmlDeviceGetTotalEccErrors", (tdm_nvml_device_t *, int, int, uint64_t *))             \
    X(gpm_support, "nvmlGpmQueryDeviceSupport", (tdm_nvml_device_t *, tdm_nvml_gpm_support_t *))   \
    X(gpm_alloc, "nvmlGpmSampleAlloc", (tdm_nvml_gpm_t **))                                        \
    X(gpm_free, "nvmlGpmSampleFree", (tdm_nvml_gpm_t *))                                           \
    X(gpm_take, "nvmlGpmSampleGet", (tdm_nvml_device_t *, tdm_nvml_gpm_t *))                       \
    X(gpm_ask, "nvmlGpmMetricsGet", (tdm_nvml_gpm_question_t *))                                   \
    X(events_create, "nvmlEventSetCreate", (tdm_nvml_events_t **))                                 \
    X(events_free, "nvmlEventSetFree", (tdm_nvml_events_t *))                                      \
    X(events_ask, "nvmlDeviceRegisterEvents",                                                      \
      (tdm_nvml_device_t *, uint64_t, tdm_nvml_events_t *))                                        \
    X(events_wait, "nvmlEventSetWait_v2", (tdm_nvml_events_t *, tdm_nvml_event_t *, uint32_t))

typedef struct tdm_nvml {
    void *library;
    tdm_nvml_device_t *device;
#define TDM_NVML_MEMBER(member, symbol, arguments) int(*member) arguments;
    TDM_NVML_NEEDED(TDM_NVML_MEMBER)
    TDM_NVML_OPTIONAL(TDM_NVML_MEMBER) /* NULL where the library has no such call */
#undef TDM_NVML_MEMBER
} tdm_nvml_t;

/* tdm_nvml_open loads library (NULL: the driver's own) and finds the device
   at a PCI address ("0000:1b:00.0").  UNSUPPORTED says what was missing;
   nothing stays loaded then.  *lost (may be NULL) is 1 where the driver
   says that this device is gone or wants a reset. */
TDM_MUST_USE tdm_status_t tdm_nvml_open(tdm_nvml_t *n, const char *library, const char *bus,
                                        int *lost, tdm_error_t *err);

/* tdm_nvml_close undoes open. */
void tdm_nvml_close(tdm_nvml_t *n);

#endif /* TDM_TELEMETRY_GPU_NVML_H */
