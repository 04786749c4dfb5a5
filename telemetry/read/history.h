/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_HISTORY_H
#define TDM_TELEMETRY_HISTORY_H

/* tdm_history is the last hour of snapshots, so that a console can say what
   was counted since then without a Prometheus: one every PERIOD_S, in a
   circle.

   Ownership: the caller's struct, the caller's lock: keep and find are not
   to overlap.  No clock, no allocation. */

#include "telemetry/read/snapshot.h"

TDM_BEGIN_DECLS

/* Half a minute is finer than what "since" is asked for, an hour what a
   shift looks back; together 121 x some 20 KiB. */
#define TDM_HISTORY_PERIOD_S 30
#define TDM_HISTORY_SPAN_S   3600
#define TDM_HISTORY_KEPT     (TDM_HISTORY_SPAN_S / TDM_HISTORY_PERIOD_S + 1)

typedef struct tdm_history {
    uint64_t cnt; /* ever kept */
    tdm_snapshot_t kept[TDM_HISTORY_KEPT];
} tdm_history_t;

/* tdm_history_due: a snapshot of now_ns is to be kept. */
int tdm_history_due(const tdm_history_t *h, int64_t now_ns);

/* tdm_history_keep copies s, the newest. */
void tdm_history_keep(tdm_history_t *h, const tdm_snapshot_t *s);

/* tdm_history_find gives the newest one kept at at_ns or before, else the
   oldest; NULL: none is, or the circle has not turned and at_ns lies
   before its first (the start is nearer). */
const tdm_snapshot_t *tdm_history_find(const tdm_history_t *h, int64_t at_ns);

TDM_END_DECLS

#endif /* TDM_TELEMETRY_HISTORY_H */
