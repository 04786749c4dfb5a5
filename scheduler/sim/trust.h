/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_SIM_TRUST_H
#define TDM_SCHEDULER_SIM_TRUST_H

/* tdm_trust is how far a plan may be believed, as far as anybody looked: by
   how much the profile errs at shapes that it was not made from, and by how
   much plans of windows erred on that device, fed the arrivals that were
   measured.  Nothing of it is computed here, and no plan is corrected by it. */

#include "appliance/base/attr.h"

#include <stdint.h>

TDM_BEGIN_DECLS

#define TDM_TRUST_ROW_MAX 16u

typedef enum tdm_trust_key {
    TDM_TRUST_GAP_P50,
    TDM_TRUST_GAP_P99,
    TDM_TRUST_TTFT_P50,
    TDM_TRUST_TTFT_P90,
    TDM_TRUST_CAPACITY, /* of ways to serve, not of windows */
    TDM_TRUST_KEY_CNT
} tdm_trust_key_t;

/* Windows of one trace and promise, those that kept it; errors are told / seen - 1. */
typedef struct tdm_trust_row {
    char trace[64];
    double gap_ms;
    uint32_t cnt[TDM_TRUST_KEY_CNT]; /* that low and high are of; 0: none */
    double low[TDM_TRUST_KEY_CNT], high[TDM_TRUST_KEY_CNT];
} tdm_trust_row_t;

typedef struct tdm_trust {
    uint32_t shape_cnt;     /* beside the profile's points; 0: nobody looked */
    double p50, p95, worst; /* |told / measured - 1| over them */
    char device[96];        /* the profile's */
    char windows[64];       /* the file that tells the rows; "": nobody named one */
    uint32_t row_cnt;
    tdm_trust_row_t row[TDM_TRUST_ROW_MAX];
} tdm_trust_t;

TDM_END_DECLS

#endif /* TDM_SCHEDULER_SIM_TRUST_H */
