/* SPDX-License-Identifier: Apache-2.0 */
/* Turns left out.  Where decodes alone would pass the tightest gap that
   one of them was promised, sequences of classes with longer gaps sit an
   iteration out, in rotation, as long as their own promise bears it: after
   this iteration they must still be in time with the next. */
#include "scheduler/draft_private.h"

static int may_skip(const tdm_sched_t *s, const tdm_draft_t *d, const tdm_seq_t *q,
                    int64_t start_ns) {
    const tdm_sched_class_t *k = &s->live.class_of[q->slo_class];
    if (q->slo_class == d->limit_class || k->burst_ns > 0) return 0;
    int64_t waited_ns = q->is_skipped ? TDM_MAX(start_ns - q->skip_ns, 0) : 0;
    return waited_ns <= k->gap_ns - 2 * d->limit_ns;
}

static int is_over(const tdm_sched_t *s, const tdm_draft_t *d) {
    return tdm_draft_predict(s, d->both, &d->load) > d->budget_ns;
}

static void skip(tdm_sched_t *s, tdm_draft_t *d, uint32_t slot, tdm_seq_t *q, int64_t start_ns) {
    if (!q->is_skipped) q->skip_ns = start_ns;
    q->is_skipped = 1;
    d->skip[slot / 64u] |= UINT64_C(1) << slot % 64u;
    d->load.decode_cnt--;
    d->load.kv_cnt -= (uint64_t)q->pos + 1u;
    d->decode_of[q->slo_class]--;
    q->skip_cnt++;
    s->stats.skip_cnt++;
    s->skip_slot = slot + 1u;
}

void tdm_draft_skip(tdm_sched_t *s, tdm_draft_t *d, int64_t start_ns) {
    uint32_t first = s->skip_slot;
    if (s->live.policy == TDM_POLICY_STATIC || d->limit_ns <= 0) return;
    for (uint32_t i = 0; i < s->sizes.seq_max && is_over(s, d); i++) {
        uint32_t slot = (first + i) % s->sizes.seq_max;
        if (s->slot_seq[slot] == TDM_SEQ_NONE) continue;
        tdm_seq_t *q = &s->seq[s->slot_seq[slot]];
        if (tdm_draft_is_decodable(q) && may_skip(s, d, q, start_ns)) skip(s, d, slot, q, start_ns);
    }
}
