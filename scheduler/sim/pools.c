/* SPDX-License-Identifier: Apache-2.0 */
/* Appliances that do prefill alone, and hand over to those that decode. */
#include "scheduler/sim/look.h"

#include <stdlib.h>

static int by_first(const void *a, const void *b) {
    const tdm_look_hand_over_t *x = a, *y = b;
    if (x->first_ns != y->first_ns) return x->first_ns < y->first_ns ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static int by_there(const void *a, const void *b) {
    const tdm_look_hand_over_t *x = a, *y = b;
    if (x->there_ns != y->there_ns) return x->there_ns < y->there_ns ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

/* see_prompt: a prompt is done; one that wants one token alone is served. */
static void see_prompt(void *ctx, const tdm_sim_request_t *r) {
    tdm_look_t *l = ctx;
    uint32_t row = l->owner[r->row];
    if (r->refused != TDM_REASON_NONE) return;
    if (l->all.row[row].output_cnt == 1) {
        double ns = (double)(r->first_ns - r->arrival_ns);
        tdm_look_served(l, ns, ns, 0, 0);
        return;
    }
    l->handed[l->handed_cnt++] =
        (tdm_look_hand_over_t){.row = row, .asked_ns = r->arrival_ns, .first_ns = r->first_ns};
}

static tdm_status_t prefill(tdm_look_t *l, tdm_error_t *err) {
    tdm_status_t st = TDM_OK;
    l->handed_cnt = 0;
    for (uint32_t k = 0; k < l->prefill_cnt && st == TDM_OK; k++) {
        tdm_look_dealer_t d = {.cnt = l->prefill_cnt};
        uint32_t before = l->handed_cnt;
        l->share.row_cnt = 0;
        for (uint32_t i = 0; i < l->all.row_cnt; i++) {
            tdm_workload_row_t row = l->all.row[i];
            if (tdm_look_deal(&d, (double)row.at_ns, tdm_look_fill_ns(l, &row)) != k) continue;
            row.output_cnt = 1;
            l->owner[l->share.row_cnt] = i;
            l->share.row[l->share.row_cnt++] = row;
        }
        st = tdm_look_run(l, k, see_prompt, err);
        for (uint32_t i = before; i < l->handed_cnt; i++) l->handed[i].from = k;
    }
    return st;
}

/* travel sends the prompts' keys and values, one after the other on each
   link, and sorts them by when they are there. */
static void travel(tdm_look_t *l) {
    const tdm_planner_link_t *link = &l->ask->link;
    double free_at[TDM_PLANNER_APPLIANCE_MAX] = {0};
    qsort(l->handed, l->handed_cnt, sizeof *l->handed, by_first);
    for (uint32_t i = 0; i < l->handed_cnt; i++) {
        tdm_look_hand_over_t *h = &l->handed[i];
        double bytes = link->token_bytes * l->all.row[h->row].prompt_cnt;
        double begin = TDM_MAX(free_at[h->from], (double)h->first_ns);
        free_at[h->from] = begin + bytes / link->bytes_per_s[l->link] * 1e9;
        h->there_ns = (int64_t)free_at[h->from] + link->latency_ns;
    }
    qsort(l->handed, l->handed_cnt, sizeof *l->handed, by_there);
}

/* see_rest: the client hears from the decode pool, its first token too. */
static void see_rest(void *ctx, const tdm_sim_request_t *r) {
    tdm_look_t *l = ctx;
    const tdm_look_hand_over_t *h = &l->handed[l->owner[r->row]];
    if (r->refused != TDM_REASON_NONE) return;
    double gap = (double)(r->first_ns - h->there_ns), bin = gap / TDM_SIM_BIN_NS;
    l->sum.bin[bin < TDM_SIM_BIN_CNT ? (uint32_t)bin : TDM_SIM_BIN_CNT]++;
    l->sum.gap_cnt++;
    tdm_look_served(l, (double)(h->there_ns - h->asked_ns), (double)(r->last_ns - h->asked_ns),
                    r->gap_cnt + 1u, r->over_cnt + (gap > (double)l->ask->gap_ns));
}

static tdm_status_t decode(tdm_look_t *l, tdm_error_t *err) {
    tdm_status_t st = TDM_OK;
    uint32_t cnt = l->appliances - l->prefill_cnt;
    for (uint32_t k = 0; k < cnt && st == TDM_OK; k++) {
        tdm_look_dealer_t d = {.cnt = cnt};
        l->share.row_cnt = 0;
        for (uint32_t i = 0; i < l->handed_cnt; i++) {
            const tdm_look_hand_over_t *h = &l->handed[i];
            const tdm_workload_row_t *of = &l->all.row[h->row];
            tdm_workload_row_t row = {.at_ns = h->there_ns,
                                      .prompt_cnt = of->prompt_cnt + 1u,
                                      .output_cnt = of->output_cnt - 1u,
                                      .held_cnt = of->prompt_cnt};
            if (tdm_look_deal(&d, (double)row.at_ns, tdm_look_step_ns(l, &row)) != k) continue;
            l->owner[l->share.row_cnt] = i;
            l->share.row[l->share.row_cnt++] = row;
        }
        st = tdm_look_run(l, l->prefill_cnt + k, see_rest, err);
    }
    return st;
}

tdm_status_t tdm_look_pools(tdm_look_t *l, tdm_error_t *err) {
    tdm_status_t st = prefill(l, err);
    if (st != TDM_OK) return st;
    travel(l);
    return decode(l, err);
}
