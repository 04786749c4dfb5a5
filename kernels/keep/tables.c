/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/keep/tables.h"

#include <string.h>

void tdm_tables_init(tdm_tables_t *t, uint32_t stride) {
    memset(t, 0, sizeof *t);
    t->stride = stride;
}

static void open_one(tdm_tables_t *t, uint32_t slot) {
    t->page_cnt[slot] = 0;
    if (t->is_stale[slot]) return;
    t->is_stale[slot] = 1;
    t->stale[t->stale_cnt++] = slot;
}

void tdm_tables_apply(tdm_tables_t *t, const tdm_plan_t *plan, void (*send)(void *ctx), void *ctx) {
    for (uint32_t i = 0; i < plan->open_cnt; i++) open_one(t, plan->open[i].slot);
    for (uint32_t i = 0; i < plan->grant_cnt; i++) {
        const tdm_plan_grant_t *g = &plan->grant[i];
        uint32_t at = g->slot * t->stride + t->page_cnt[g->slot];
        for (uint32_t k = 0; k < g->page_cnt; k++) {
            if (t->entry_cnt == TDM_PLAN_PAGE_MAX) send(ctx);
            t->entry[t->entry_cnt++] =
                (tdm_table_entry_t){.at = at + k, .page = plan->page[g->page_off + k]};
        }
        t->page_cnt[g->slot] += g->page_cnt;
    }
}

void tdm_tables_sent(tdm_tables_t *t, int is_state) {
    t->entry_cnt = 0;
    if (!is_state) return;
    for (uint32_t i = 0; i < t->stale_cnt; i++) t->is_stale[t->stale[i]] = 0;
    t->stale_cnt = 0;
}
