/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TEST_FAKE_NVML_H
#define TDM_TEST_FAKE_NVML_H

/* What the fake libnvidia-ml of these tests answers; a test finds it with
   dlsym(library, "fake_nvml"). */

#include <stdint.h>

enum { /* calls that can be told to fail */
       FAKE_BY_BUS,
       FAKE_FIELDS,
       FAKE_POWER,
       FAKE_LIMIT,
       FAKE_ENERGY,
       FAKE_CLOCK,
       FAKE_REASONS,
       FAKE_TEMPERATURE,
       FAKE_MEMORY,
       FAKE_ECC,
       FAKE_GPM_TAKE,
       FAKE_GPM_ASK,
       FAKE_CALL_CNT
};

typedef struct fake_nvml {
    int rc[FAKE_CALL_CNT]; /* what the call answers; 0: it works */
    int field_rc;          /* of each field, where the call works */
    uint32_t instant_mw, average_mw, limit_mw;
    uint64_t energy_mj;
    uint32_t sm_mhz, memory_mhz, celsius;
    uint64_t memory_sz[3]; /* total, free, used */
    uint64_t reasons;
    uint32_t gpm_is_unsupported;
    double gpm[4]; /* per cent: SM active, occupancy, tensor, DRAM */
    uint64_t xid[8];
    uint32_t xid_cnt, xid_told;
    uint32_t open_cnt;   /* init less shutdown */
    uint32_t object_cnt; /* GPM samples and event sets not freed */
} fake_nvml_t;

/* A board that is well and works hard. */
#define FAKE_NVML_WELL                                                                             \
    {                                                                                              \
        .instant_mw = 650000, .average_mw = 610000, .limit_mw = 700000, .energy_mj = 12345678,     \
        .sm_mhz = 1980, .memory_mhz = 3201, .celsius = 41, .memory_sz = {100, 70, 30}, .gpm = {    \
            87.5,                                                                                  \
            42.25,                                                                                 \
            33.0,                                                                                  \
            71.125                                                                                 \
        }                                                                                          \
    }

#endif /* TDM_TEST_FAKE_NVML_H */
