/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/read/snapshot.h"

#include <sched.h>
#include <string.h>

/* copy_block copies all words between two groups; 0: torn. */
static int copy_block(uint64_t *word, const tdm_block_t *block) {
    for (uint32_t n = 0; n < TDM_SNAPSHOT_TRIES; n++) {
        uint32_t turn = tdm_load_acquire(&block->turn); /* C2 */
        if (turn % 2 == 0 || n + 1 == TDM_SNAPSHOT_TRIES) {
            for (uint32_t i = 0; i < TDM_BLOCK_WORD_CNT; i++)
                word[i] = tdm_load_acquire(&block->word[i]); /* C1 */
            if (turn % 2 == 0 && tdm_load_relaxed(&block->turn) == turn) return 1;
        }
        (void)sched_yield();
    }
    return 0;
}

static void merge_metric(tdm_snapshot_t *out, const uint64_t *word, const tdm_metric_row_t *row) {
    uint32_t end = row->word_off + row->series_cnt * row->series_words;
    for (uint32_t i = row->word_off; i < end; i++) {
        if (row->merge == TDM_MERGE_MAX)
            out->word[i] = TDM_MAX(out->word[i], word[i]);
        else
            out->word[i] += word[i];
    }
}

uint32_t tdm_snapshot_take(tdm_snapshot_t *out, const tdm_block_t *const *block, uint32_t block_cnt,
                           int64_t now_ns) {
    uint64_t word[TDM_BLOCK_WORD_CNT];
    uint32_t torn_cnt = 0;
    memset(out, 0, sizeof *out);
    out->at_ns = now_ns;
    for (uint32_t b = 0; b < block_cnt; b++) {
        torn_cnt += !copy_block(word, block[b]);
        for (uint32_t m = 0; m < TDM_METRIC_CNT; m++) merge_metric(out, word, &tdm_metric_row[m]);
    }
    return torn_cnt;
}

uint64_t tdm_snapshot_value(const tdm_snapshot_t *s, tdm_metric_t metric, uint32_t idx) {
    uint64_t value;
    return tdm_snapshot_told(s, metric, idx, &value) ? value : 0;
}

int tdm_snapshot_told(const tdm_snapshot_t *s, tdm_metric_t metric, uint32_t idx, uint64_t *value) {
    const tdm_metric_row_t *row = &tdm_metric_row[metric];
    if (idx >= row->series_cnt) return 0;
    uint64_t word = s->word[row->word_off + idx * row->series_words];
    *value = tdm_metric_is_told(row) && word ? word - 1 : word;
    return !tdm_metric_is_told(row) || word;
}

uint64_t tdm_snapshot_total(const tdm_snapshot_t *s, tdm_metric_t metric) {
    const tdm_metric_row_t *row = &tdm_metric_row[metric];
    int is_histogram = row->kind == TDM_METRIC_IS_HISTOGRAM;
    uint32_t words = is_histogram ? row->bound_cnt + 1 : 1;
    uint64_t total = 0;
    TDM_DCHECK(!tdm_metric_is_told(row));
    for (uint32_t i = 0; i < row->series_cnt; i++)
        for (uint32_t w = 0; w < words; w++)
            total += s->word[row->word_off + i * row->series_words + w];
    return total;
}

void tdm_histogram_between(tdm_histogram_t *out, const tdm_snapshot_t *before,
                           const tdm_snapshot_t *after, tdm_metric_t metric) {
    const tdm_metric_row_t *row = &tdm_metric_row[metric];
    TDM_CHECK(row->kind == TDM_METRIC_IS_HISTOGRAM && row->bound_cnt < TDM_HISTOGRAM_BUCKET_MAX);
    memset(out, 0, sizeof *out);
    out->bound = row->bound;
    out->bound_cnt = row->bound_cnt;
    for (uint32_t i = 0; i < row->series_cnt; i++) {
        uint32_t off = row->word_off + i * row->series_words;
        for (uint32_t b = 0; b <= row->bound_cnt; b++) {
            uint64_t n = after->word[off + b] - (before ? before->word[off + b] : 0);
            out->bucket[b] += n;
            out->cnt += n;
        }
        uint32_t at_sum = off + row->bound_cnt + 1;
        out->sum += after->word[at_sum] - (before ? before->word[at_sum] : 0);
    }
}

uint64_t tdm_histogram_quantile(const tdm_histogram_t *h, uint32_t permille) {
    if (h->cnt == 0 || h->bound_cnt == 0) return 0;
    /* The rank is at least 1, so that the lowest quantile is the first
       observation and not an empty bucket before it. */
    uint64_t rank = h->cnt / 1000 * permille + (h->cnt % 1000 * permille + 999) / 1000;
    rank = TDM_MAX(rank, 1u);
    uint64_t below = 0;
    for (uint32_t b = 0; b < h->bound_cnt; b++) {
        uint64_t n = h->bucket[b];
        if (below + n < rank) {
            below += n;
            continue;
        }
        uint64_t lo = b ? h->bound[b - 1] : 0;
        double share = (double)(rank - below) / (double)n;
        return lo + (uint64_t)((double)(h->bound[b] - lo) * share);
    }
    return h->bound[h->bound_cnt - 1];
}
