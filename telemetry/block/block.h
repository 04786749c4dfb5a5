/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_BLOCK_H
#define TDM_TELEMETRY_BLOCK_H

/* tdm_block is one writer's counters: every series of metrics.def as one
   or more 64-bit words, in memory that nobody else writes.

     tile 0: tdm_count(...) --> [ block 0 ]--.
     tile 1: tdm_count(...) --> [ block 1 ]---+--> snapshot = sum of words
     mgmt:   tdm_gauge_set  --> [ block 2 ]--'     (telemetry/read)

   Words that tell one thing together (a fallback and its hybrid iteration,
   planned and executed virtual CTAs) are written between tdm_block_begin
   and tdm_block_end; a snapshot has all of a group or none of it, so an
   identity of one block holds in every scrape.  No lock, no locked
   instruction, nobody waits for a reader:

     writer                                exporter
     turn := odd                           read turn; odd: try again
     words          -- B1 / C1 -->         read words
     turn := even   -- B2 / C2 -->         read turn; changed: try again

   B1/C1  a new word cannot be seen without the odd turn before it.
   B2/C2  after an even turn its words are whole.

   A histogram series is its buckets, counted apart and not cumulatively,
   and its sum; the number of observations is the sum of the buckets, so
   it can never contradict them.

   Ownership: the caller gives memory and frees it.  Exactly one thread
   writes a block.  Blocks live as long as the exporter may read them.
   Limits: fixed size, all series there from the start with 0 but those
   that a device may not tell (TDM_STORED_TOLD_ONE and on); nothing
   allocates, divides or logs.  A series index outside its metric is a
   broken caller: caught in dev builds, otherwise counted nowhere. */

#include "appliance/base/atomic.h"
#include "appliance/base/check.h"
#include "appliance/base/status.h"
#include "telemetry/block/labels.h"

TDM_BEGIN_DECLS

typedef enum tdm_metric_kind {
    TDM_METRIC_IS_COUNTER,
    TDM_METRIC_IS_GAUGE,
    TDM_METRIC_IS_HISTOGRAM,
    TDM_METRIC_IS_INFO,
} tdm_metric_kind_t;

typedef enum tdm_metric_stored {
    TDM_STORED_ONE,
    TDM_STORED_NS,       /* nanoseconds, shown in seconds */
    TDM_STORED_PPM,      /* millionths, shown as a ratio */
    TDM_STORED_TOLD_ONE, /* from here on: value + 1, 0: not told, the series is absent */
    TDM_STORED_TOLD_NS,
    TDM_STORED_TOLD_PPM,
    TDM_STORED_TOLD_MILLI, /* thousandths */
    TDM_STORED_CNT
} tdm_metric_stored_t;

typedef enum tdm_metric_merge { TDM_MERGE_SUM, TDM_MERGE_MAX } tdm_metric_merge_t;

/* One row of the metric table; what the renderers walk. */
typedef struct tdm_metric_row {
    const char *name; /* on the wire, prefix included, counters with _total */
    const char *unit; /* "" where there is none */
    const char *help;
    const uint64_t *bound; /* [bound_cnt], histogram only */
    uint32_t bound_cnt;
    uint32_t word_off;   /* first word in a block */
    uint32_t series_cnt; /* product of the label counts; 0 for INFO */
    uint32_t series_words;
    uint8_t kind;   /* tdm_metric_kind_t */
    uint8_t stored; /* tdm_metric_stored_t */
    uint8_t merge;  /* tdm_metric_merge_t */
    uint8_t set[3]; /* tdm_label_set_t */
} tdm_metric_row_t;

extern const tdm_metric_row_t tdm_metric_row[TDM_METRIC_CNT];

/* tdm_metric_digits: decimal places between a word and what is shown. */
static inline uint32_t tdm_metric_digits(const tdm_metric_row_t *row) {
    static const uint8_t digits[TDM_STORED_CNT] = {0, 9, 6, 0, 9, 6, 3};
    return digits[row->stored];
}

/* tdm_metric_is_told: words are value + 1, or 0 for what is not told. */
static inline int tdm_metric_is_told(const tdm_metric_row_t *row) {
    return row->stored >= TDM_STORED_TOLD_ONE;
}

/* The layout of a block: one array per metric, in the order of
   metrics.def.  A histogram series is bound_cnt + 1 buckets and the sum. */
#define TDM_SERIES_OF(a, b, c) (TDM_LABEL_CNT_##a * TDM_LABEL_CNT_##b * TDM_LABEL_CNT_##c)
typedef struct tdm_metric_words {
#define TDM_COUNTER(name, unit, stored, a, b, c, help)      uint64_t name[TDM_SERIES_OF(a, b, c)];
#define TDM_GAUGE(name, unit, stored, merge, a, b, c, help) uint64_t name[TDM_SERIES_OF(a, b, c)];
#define TDM_HISTOGRAM(name, unit, stored, bounds, a, b, c, help)                                   \
    uint64_t name[TDM_SERIES_OF(a, b, c) * (TDM_BOUND_CNT_##bounds + 2)];
#include "telemetry/block/metrics.def"
} tdm_metric_words_t;

#define TDM_BLOCK_WORD_CNT (sizeof(tdm_metric_words_t) / sizeof(uint64_t))

typedef struct tdm_block {
    uint64_t word[TDM_BLOCK_WORD_CNT];
    uint32_t turn;   /* odd: a group is being written */
    char writer[32]; /* "net0", "sched", ...: for the console */
} TDM_ALIGNED(TDM_CACHE_LINE) tdm_block_t;

/* tdm_bounds_fit makes ns a bucket bound of a histogram in nanoseconds: a
   promise must be a bound, so that buckets tell exactly who kept it.  The
   number of bounds stays: ns takes the place of the bound nearest to it
   (by ratio) that no earlier promise took, between its neighbours.  Boot
   time only, before anyone observes.  TDM_ERR_INVAL: ns is not positive,
   or every bound near it is taken. */
TDM_MUST_USE tdm_status_t tdm_bounds_fit(tdm_metric_t metric, int64_t ns);

/* tdm_block_footprint: bytes of one block; align to TDM_CACHE_LINE. */
size_t tdm_block_footprint(void);

/* tdm_block_init formats mem as a block of zeros.  Boot time only. */
tdm_block_t *tdm_block_init(void *mem, const char *writer);

/* tdm_series2 and tdm_series3 give the series index of a metric with two
   or three label sets from the indices in each set. */
static inline uint32_t tdm_series2(tdm_metric_t metric, uint32_t a, uint32_t b) {
    const tdm_metric_row_t *row = &tdm_metric_row[metric];
    return a * tdm_label_cnt((tdm_label_set_t)row->set[1]) + b;
}
static inline uint32_t tdm_series3(tdm_metric_t metric, uint32_t a, uint32_t b, uint32_t c) {
    const tdm_metric_row_t *row = &tdm_metric_row[metric];
    return tdm_series2(metric, a, b) * tdm_label_cnt((tdm_label_set_t)row->set[2]) + c;
}

/* tdm_block_word is the first word of a series, NULL where idx is outside
   the metric. */
static inline uint64_t *tdm_block_word(tdm_block_t *block, tdm_metric_t metric, uint32_t idx) {
    const tdm_metric_row_t *row = &tdm_metric_row[metric];
    TDM_DCHECK(idx < row->series_cnt || idx == UINT32_MAX);
    if (TDM_UNLIKELY(idx >= row->series_cnt)) return NULL;
    return &block->word[row->word_off + idx * row->series_words];
}

/* tdm_block_begin and tdm_block_end enclose one group of words; groups do
   not nest and are short: a snapshot tries again meanwhile.  NULL is
   ignored.  Owner of the block only, as all below. */
static inline void tdm_block_begin(tdm_block_t *block) {
    if (!block) return;
    TDM_DCHECK(block->turn % 2 == 0);
    tdm_store_relaxed(&block->turn, block->turn + 1); /* ordered by every B1 that follows */
}
static inline void tdm_block_end(tdm_block_t *block) {
    if (!block) return;
    TDM_DCHECK(block->turn % 2 == 1);
    tdm_store_release(&block->turn, block->turn + 1); /* B2: pairs with C2 in snapshot.c */
}

/* tdm_word_put is the one store of this room. */
static inline void tdm_word_put(uint64_t *word, uint64_t v) {
    tdm_store_release(word, v); /* B1: pairs with C1 in snapshot.c */
}

/* tdm_count adds n to a counter.  idx: 0 without labels, the label's
   index with one (TDM_LABEL_* or tdm_label_reason()), tdm_series2/3 with
   more; UINT32_MAX is ignored. */
static inline void tdm_count(tdm_block_t *block, tdm_metric_t metric, uint32_t idx, uint64_t n) {
    uint64_t *w = tdm_block_word(block, metric, idx);
    if (w) tdm_word_put(w, tdm_load_relaxed(w) + n);
}

/* tdm_count_to sets a counter to a total that is kept elsewhere (a lane's
   full_cnt, a device's imissed); the total never falls. */
static inline void tdm_count_to(tdm_block_t *block, tdm_metric_t metric, uint32_t idx,
                                uint64_t total) {
    uint64_t *w = tdm_block_word(block, metric, idx);
    if (w) tdm_word_put(w, total);
}

/* tdm_gauge_set sets a gauge, in its stored unit. */
static inline void tdm_gauge_set(tdm_block_t *block, tdm_metric_t metric, uint32_t idx,
                                 uint64_t value) {
    uint64_t *w = tdm_block_word(block, metric, idx);
    if (w) tdm_word_put(w, value);
}

/* tdm_tell copies a word of a metric that a device may not tell: 0, or the
   value + 1 (tdm_metric_is_told). */
static inline void tdm_tell(tdm_block_t *block, tdm_metric_t metric, uint32_t idx, uint64_t raw) {
    TDM_DCHECK(tdm_metric_is_told(&tdm_metric_row[metric]));
    uint64_t *w = tdm_block_word(block, metric, idx);
    if (w) tdm_word_put(w, raw);
}

/* tdm_observe puts one value, in the stored unit, into its bucket (the
   first whose bound is >= value) and adds it to the sum: a bounded binary
   search, at most five steps. */
static inline void tdm_observe(tdm_block_t *block, tdm_metric_t metric, uint32_t idx,
                               uint64_t value) {
    uint64_t *w = tdm_block_word(block, metric, idx);
    if (!w) return;
    const tdm_metric_row_t *row = &tdm_metric_row[metric];
    uint32_t lo = 0, hi = row->bound_cnt;
    while (lo < hi) {
        uint32_t mid = (lo + hi) >> 1;
        if (row->bound[mid] < value)
            lo = mid + 1;
        else
            hi = mid;
    }
    uint64_t *sum = &w[row->bound_cnt + 1];
    tdm_word_put(&w[lo], tdm_load_relaxed(&w[lo]) + 1);
    tdm_word_put(sum, tdm_load_relaxed(sum) + value);
}

/* tdm_observe_ns is tdm_observe for an interval; a negative one, which a
   monotonic clock never yields, counts as the fault clock_backwards. */
static inline void tdm_observe_ns(tdm_block_t *block, tdm_metric_t metric, uint32_t idx,
                                  int64_t ns) {
    if (TDM_LIKELY(ns >= 0))
        tdm_observe(block, metric, idx, (uint64_t)ns);
    else
        tdm_count(block, TDM_METRIC_faults_total, tdm_label_reason(TDM_FAULT_clock_backwards), 1);
}

TDM_END_DECLS

#endif /* TDM_TELEMETRY_BLOCK_H */
