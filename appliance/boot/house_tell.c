/* SPDX-License-Identifier: Apache-2.0 */
/* What dpdk-telemetry.py hears of the appliance: sums of the same counters
   that a scraper reads.  DPDK has a thread for each client: the lock lets
   one at a time use the snapshot. */

#include "appliance/base/clock.h"
#include "appliance/boot/house_private.h"
#include "net/port/tell.h"
#include "telemetry/read/snapshot.h"

#include <pthread.h>
#include <stdio.h>

/* One command: metrics, each with the label set of its series. */
typedef struct tale {
    const char *command, *help;
    struct {
        tdm_metric_t metric;
        const char *prefix; /* before each label; NULL: the sum of all series */
        const char *name;   /* of the sum */
    } part[6];
} tale_t;

static const tale_t tale[] = {
    {"/tandem/summary",
     "Tokens, iterations, fused share and faults since start",
     {{TDM_METRIC_state, "state_", NULL},
      {TDM_METRIC_tokens_total, "tokens_", NULL},
      {TDM_METRIC_hybrid_iterations_total, "hybrid_", NULL},
      {TDM_METRIC_requests_total, NULL, "requests_ended"},
      {TDM_METRIC_refusals_total, NULL, "refusals"},
      {TDM_METRIC_faults_total, NULL, "faults"}}},
    {"/tandem/sched",
     "Iterations by path and what ended their prefill, KV pages",
     {{TDM_METRIC_iterations_total, "iterations_", NULL},
      {TDM_METRIC_sched_chunk_limited_total, "prefill_ended_by_", NULL},
      {TDM_METRIC_kv_pages, "kv_pages_", NULL},
      {TDM_METRIC_queue_requests, NULL, "requests_held"}}},
    {"/tandem/rings",
     "Entries, capacity and overflows of each ring",
     {{TDM_METRIC_ring_entries, "entries_", NULL},
      {TDM_METRIC_ring_capacity_entries, "capacity_", NULL},
      {TDM_METRIC_ring_high_watermark_entries, "highest_", NULL},
      {TDM_METRIC_ring_enqueue_failures_total, "full_", NULL}}},
    {"/tandem/vcta",
     "Virtual CTAs planned and executed",
     {{TDM_METRIC_vcta_planned_total, "planned_", NULL},
      {TDM_METRIC_vcta_total, "executed_", NULL},
      {TDM_METRIC_vcta_splits_total, NULL, "splits"},
      {TDM_METRIC_vcta_merges_total, NULL, "merges"}}},
    {"/tandem/fallbacks",
     "Hybrid iterations that were not fused, by reason",
     {{TDM_METRIC_fallbacks_total, "", NULL}}},
    {"/tandem/drops",
     "Frames and messages that went no further, by reason",
     {{TDM_METRIC_net_drops_total, "", NULL}}},
};

_Static_assert(TDM_COUNT_OF(tale) <= TDM_TELL_MAX, "every tale is a command");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const tdm_house_t *teller; /* of the one appliance in this process */

static void tell(void *ctx, tdm_told_t *t) {
    static tdm_snapshot_t s; /* too large for a stack */
    const tale_t *what = ctx;
    (void)pthread_mutex_lock(&lock);
    (void)tdm_snapshot_take(&s, (const tdm_block_t *const *)teller->wires.block,
                            teller->wires.block_cnt, tdm_clock_now_ns());
    for (size_t i = 0; i < TDM_COUNT_OF(what->part); i++) {
        tdm_metric_t m = what->part[i].metric;
        const tdm_metric_row_t *row = &tdm_metric_row[m];
        if (what->part[i].name) tdm_told_u64(t, what->part[i].name, tdm_snapshot_total(&s, m));
        for (uint32_t k = 0; what->part[i].prefix && k < row->series_cnt; k++) {
            char name[64];
            (void)snprintf(name, sizeof name, "%s%s", what->part[i].prefix,
                           tdm_label_value((tdm_label_set_t)row->set[0], k));
            tdm_told_u64(t, name, tdm_snapshot_value(&s, m, k));
        }
    }
    (void)pthread_mutex_unlock(&lock);
}

void tdm_house_tell(tdm_house_t *h) {
    if (!h->has_env) return;
    teller = h;
    for (size_t i = 0; i < TDM_COUNT_OF(tale); i++)
        (void)tdm_port_tell(tale[i].command, tale[i].help, tell, (void *)(uintptr_t)&tale[i]);
}
