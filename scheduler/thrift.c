/* SPDX-License-Identifier: Apache-2.0 */
/* How much of what fits is worth its time.  A limit on gaps is a bound and no
   aim: the last tokens that it admits cost more than the first where they
   begin a stair of the linear part, or where decode attention has no time
   left to hide prefill in, and every decode waits for them.

   An iteration of c prefill tokens, N rows in all, does in the time T what at
   the best takes W: N rows at the least that a row costs anywhere in the
   table, and its attention in series.  Taken is the c with the highest

     (W / T)^2  c / T

   what the device gains, and how fast the prompt goes on: the more tokens, the
   sooner its first one comes, so the second counts too, half as much.  The
   profile alone decides: what the machine does otherwise today moves all
   choices alike. */
#include "scheduler/draft_private.h"

/* STEP: rows between two choices, a stair of the linear part.
   CHOICES: most of them, so that a decision stays short. */
#define STEP    128u
#define CHOICES 16u

static double worth(const tdm_sched_t *s, const tdm_draft_t *d, uint32_t pos, uint32_t cnt) {
    const tdm_profile_table_t *t = s->live.profile.table;
    tdm_load_t load = d->load;
    load.prefill_cnt += cnt;
    load.pair_cnt += tdm_predict_pairs(pos, cnt);
    double rows = (double)load.prefill_cnt + (double)load.decode_cnt;
    double ns = tdm_table_ns(t, (uint32_t)d->both - TDM_ROUTE_FUSED, &load);
    double best_ns =
        rows * s->row_ns + tdm_table_attention_ns(t, TDM_ROUTE_SERIAL - TDM_ROUTE_FUSED, &load);
    if (!(ns > 0.0)) return 0.0;
    return best_ns / ns * (best_ns / ns) * (double)load.prefill_cnt / ns;
}

uint32_t tdm_draft_thrift(const tdm_sched_t *s, const tdm_draft_t *d, uint32_t pos, uint32_t cnt) {
    uint32_t had = d->load.decode_cnt + d->load.prefill_cnt;
    if (s->live.policy != TDM_POLICY_QUANTILE || !s->live.profile.is_measured ||
        !s->live.profile.table || d->load.decode_cnt == 0)
        return cnt;
    uint32_t step = TDM_MAX(s->live.grid_tok, STEP);
    while (cnt / step >= CHOICES) step *= 2u;
    uint32_t best = cnt;
    double most = worth(s, d, pos, cnt);
    for (uint32_t n = (had + cnt - 1u) / step * step; n >= had + TDM_DRAFT_ALIGN; n -= step) {
        double here = worth(s, d, pos, n - had);
        if (here <= most) continue;
        best = n - had;
        most = here;
    }
    return best;
}
