/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_SNAPSHOT_H
#define TDM_TELEMETRY_SNAPSHOT_H

/* tdm_snapshot is all blocks merged at one moment: counters, histogram
   words and SUM gauges are added, MAX gauges take the greatest.  Every
   question of this room is a function of one snapshot or of two.

   Writers go on meanwhile.  Each block is copied between two groups of its
   writer (telemetry/block/block.h), so identities between words of one
   block hold in every snapshot; blocks are copied one after the other, so
   two counters of different blocks may be a few events apart.  A block
   whose writer was in a group at every try (its thread had no core for
   TDM_SNAPSHOT_TRIES turns) is taken as it is and counted as torn.

   No clock, no I/O, no allocation. */

#include "telemetry/block/block.h"

TDM_BEGIN_DECLS

typedef struct tdm_snapshot {
    int64_t at_ns;
    uint64_t word[TDM_BLOCK_WORD_CNT];
} tdm_snapshot_t;

/* A try that fails costs a group's length, well under a microsecond, or
   the rest of its writer's time slice: then the core is offered to it. */
#define TDM_SNAPSHOT_TRIES 1000u

/* tdm_snapshot_take merges block[0..block_cnt) into out and says how many
   blocks are torn.  Not for a polling tile. */
uint32_t tdm_snapshot_take(tdm_snapshot_t *out, const tdm_block_t *const *block, uint32_t block_cnt,
                           int64_t now_ns);

/* tdm_snapshot_value is one counter or gauge in its stored unit; 0 where
   idx is outside or a device did not tell. */
uint64_t tdm_snapshot_value(const tdm_snapshot_t *s, tdm_metric_t metric, uint32_t idx);

/* tdm_snapshot_told gives the same and 1, or 0 where there is no value. */
int tdm_snapshot_told(const tdm_snapshot_t *s, tdm_metric_t metric, uint32_t idx, uint64_t *value);

/* tdm_snapshot_total adds all series of a counter that is always told, or all observations of
   all series of a histogram. */
uint64_t tdm_snapshot_total(const tdm_snapshot_t *s, tdm_metric_t metric);

/* tdm_histogram is the sum of all series of one histogram, or the growth
   of that sum between two snapshots. */
#define TDM_HISTOGRAM_BUCKET_MAX 32
typedef struct tdm_histogram {
    const uint64_t *bound; /* [bound_cnt], stored unit */
    uint32_t bound_cnt;
    uint64_t bucket[TDM_HISTOGRAM_BUCKET_MAX]; /* [bound_cnt + 1], not cumulative */
    uint64_t cnt;
    uint64_t sum;
} tdm_histogram_t;

/* tdm_histogram_between fills out from after - before; before may be NULL
   (since start). */
void tdm_histogram_between(tdm_histogram_t *out, const tdm_snapshot_t *before,
                           const tdm_snapshot_t *after, tdm_metric_t metric);

/* tdm_histogram_quantile estimates the value below which a share of
   permille / 1000 of the observations lies, linear inside a bucket; the
   highest bound where it lies above all; 0 without observations. */
uint64_t tdm_histogram_quantile(const tdm_histogram_t *h, uint32_t permille);

TDM_END_DECLS

#endif /* TDM_TELEMETRY_SNAPSHOT_H */
