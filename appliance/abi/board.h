/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ABI_BOARD_H
#define TDM_ABI_BOARD_H

/* Written by the executor's sampler (telemetry/gpu), read by tandemd's
   management thread and the scheduler tile, in the memory they share: what
   the driver tells of the GPU's board, apart from any iteration.

   Each word is a fact of its own and naturally atomic: 0 says that the
   board did not tell, else it is the value + 1.  A driver without a call,
   a board without a sensor and a call that failed look the same: nothing
   is claimed.  Readers take words older than TDM_BOARD_STALE_NS for untold
   (tdm_board_get): the executor that wrote them may be gone.

   Counters that the sampler keeps itself (throttled time, Xid errors) go
   on over executor lives, as the memory does. */

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"

#define TDM_BOARD_STALE_NS (5 * TDM_NS_PER_S)

typedef enum tdm_board_word {
    TDM_BOARD_POWER_MW,         /* at the last look */
    TDM_BOARD_POWER_MAX_MW,     /* highest look of the last whole second */
    TDM_BOARD_POWER_AVERAGE_MW, /* the driver's mean over a second */
    TDM_BOARD_POWER_LIMIT_MW,   /* that is enforced now */
    TDM_BOARD_ENERGY_MJ,        /* since the driver was loaded */
    TDM_BOARD_SM_CLOCK_MHZ,
    TDM_BOARD_MEMORY_CLOCK_MHZ,
    TDM_BOARD_THROTTLE,             /* TDM_THROTTLE_* bits at the last look */
    TDM_BOARD_THROTTLE_POWER_NS,    /* time that looks found it so */
    TDM_BOARD_THROTTLE_THERMAL_NS,  /* likewise */
    TDM_BOARD_THROTTLE_HARDWARE_NS, /* likewise */
    TDM_BOARD_THROTTLE_SYNC_NS,     /* likewise */
    TDM_BOARD_TEMPERATURE_C,        /* of the GPU's core */
    TDM_BOARD_MEMORY_TOTAL_SZ,
    TDM_BOARD_MEMORY_USED_SZ,
    TDM_BOARD_MEMORY_FREE_SZ,
    TDM_BOARD_SM_ACTIVE_PPM, /* GPM, over the last second or so, as the next three */
    TDM_BOARD_OCCUPANCY_PPM,
    TDM_BOARD_TENSOR_PPM,
    TDM_BOARD_DRAM_PPM,
    TDM_BOARD_ECC_CORRECTED,   /* since the driver was loaded */
    TDM_BOARD_ECC_UNCORRECTED, /* likewise */
    TDM_BOARD_XID_CNT,         /* since tandemd started */
    TDM_BOARD_XID_LAST,        /* its number; told once there was one */
    TDM_BOARD_LOST,            /* 1: the driver says that it is gone or wants a reset */
    TDM_BOARD_CNT
} tdm_board_word_t;

enum { /* why clocks are lower than they could be */
       TDM_THROTTLE_POWER = 1,
       TDM_THROTTLE_THERMAL = 2,
       TDM_THROTTLE_HARDWARE = 4, /* an external brake or a board limit */
       TDM_THROTTLE_SYNC = 8,     /* clocks of a group of boards held together */
};

typedef struct tdm_board {
    uint64_t word[TDM_BOARD_CNT] TDM_ALIGNED(TDM_CACHE_LINE);
    uint64_t look_ns; /* CLOCK_MONOTONIC of the last look; 0: none yet */
} tdm_board_t;

/* tdm_board_put tells a value, below UINT64_MAX.  The sampler's thread. */
static inline void tdm_board_put(tdm_board_t *b, tdm_board_word_t w, uint64_t value) {
    tdm_store_relaxed(&b->word[w], value + 1); /* words are independent facts */
}

/* tdm_board_forget: what w said is no longer known. */
static inline void tdm_board_forget(tdm_board_t *b, tdm_board_word_t w) {
    tdm_store_relaxed(&b->word[w], UINT64_C(0));
}

/* tdm_board_raw gives the word as it is kept: 0, or the value + 1. */
static inline uint64_t tdm_board_raw(const tdm_board_t *b, tdm_board_word_t w, int64_t now_ns) {
    int64_t look_ns = (int64_t)tdm_load_relaxed(&b->look_ns);
    if (look_ns == 0 || now_ns - look_ns > TDM_BOARD_STALE_NS) return 0;
    return tdm_load_relaxed(&b->word[w]);
}

/* tdm_board_get gives the value and 1, or 0 where it is not told. */
static inline int tdm_board_get(const tdm_board_t *b, tdm_board_word_t w, int64_t now_ns,
                                uint64_t *value) {
    uint64_t raw = tdm_board_raw(b, w, now_ns);
    *value = raw ? raw - 1 : 0;
    return raw != 0;
}

#endif /* TDM_ABI_BOARD_H */
