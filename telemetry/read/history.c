/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/read/history.h"

static const tdm_snapshot_t *number(const tdm_history_t *h, uint64_t n) {
    return &h->kept[n % TDM_HISTORY_KEPT];
}

int tdm_history_due(const tdm_history_t *h, int64_t now_ns) {
    if (h->cnt == 0) return 1;
    return now_ns - number(h, h->cnt - 1)->at_ns >= TDM_HISTORY_PERIOD_S * INT64_C(1000000000);
}

void tdm_history_keep(tdm_history_t *h, const tdm_snapshot_t *s) {
    h->kept[h->cnt++ % TDM_HISTORY_KEPT] = *s;
}

const tdm_snapshot_t *tdm_history_find(const tdm_history_t *h, int64_t at_ns) {
    uint64_t oldest = h->cnt > TDM_HISTORY_KEPT ? h->cnt - TDM_HISTORY_KEPT : 0;
    for (uint64_t n = h->cnt; n > oldest; n--)
        if (number(h, n - 1)->at_ns <= at_ns) return number(h, n - 1);
    return oldest ? number(h, oldest) : NULL;
}
