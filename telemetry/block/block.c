/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/block/block.h"

#include <string.h>

/* --- label tables ---------------------------------------------------- */

#define TDM_VALUE(set, value)        #value,
#define TDM_LABELS(set, key, values) static const char *const label_##set[] = {values};
#include "telemetry/block/metrics.def"
#undef TDM_VALUE

typedef struct label_row {
    const char *key;
    const char *const *value; /* NULL where the values are reasons */
    uint32_t cnt;
    uint32_t first; /* reason of index 0, or of index 1 where has_none */
    uint32_t has_none;
} label_row_t;

static const label_row_t label_row[TDM_SET_CNT] = {
#define TDM_LABELS(set, key, values) {key, label_##set, TDM_LABEL_CNT_##set, 0, 0},
#define TDM_LABELS_REASON(set, key, group, has_none)                                               \
    {key, NULL, TDM_LABEL_CNT_##set, TDM_LABEL_FIRST_##group, has_none},
#include "telemetry/block/metrics.def"
};

const char *tdm_label_key(tdm_label_set_t set) {
    return label_row[set].key;
}

const char *tdm_label_value(tdm_label_set_t set, uint32_t idx) {
    const label_row_t *row = &label_row[set];
    TDM_CHECK(idx < row->cnt);
    if (row->value) return row->value[idx];
    if (row->has_none && idx == 0) return "none";
    return tdm_reason_name((tdm_reason_t)(row->first + idx - row->has_none));
}

uint32_t tdm_label_cnt(tdm_label_set_t set) {
    return label_row[set].cnt;
}

/* --- the metric table ------------------------------------------------ */

/* Not const: a promise of the configuration becomes a bound at boot. */
#define TDM_BOUNDS(name, ...) static uint64_t bound_##name[] = {__VA_ARGS__};
#include "telemetry/block/metrics.def"

#define WORD_OF(name) (uint32_t)(offsetof(tdm_metric_words_t, name) / sizeof(uint64_t))
#define SETS(a, b, c)                                                                              \
    { TDM_SET_##a, TDM_SET_##b, TDM_SET_##c }

/* The wire name: process_ metrics carry no prefix. */
#define PREFIXED(name) "tandem_" #name
#define WIRE(name)     (&PREFIXED(name)[__builtin_strncmp(#name, "process_", 8) == 0 ? 7 : 0])

const tdm_metric_row_t tdm_metric_row[TDM_METRIC_CNT] = {
#define TDM_COUNTER(name_, unit_, stored_, a, b, c, help_)                                         \
    {.name = WIRE(name_),                                                                          \
     .unit = #unit_,                                                                               \
     .help = help_,                                                                                \
     .word_off = WORD_OF(name_),                                                                   \
     .series_cnt = TDM_SERIES_OF(a, b, c),                                                         \
     .series_words = 1,                                                                            \
     .kind = TDM_METRIC_IS_COUNTER,                                                                \
     .stored = TDM_STORED_##stored_,                                                               \
     .set = SETS(a, b, c)},
#define TDM_GAUGE(name_, unit_, stored_, merge_, a, b, c, help_)                                   \
    {.name = WIRE(name_),                                                                          \
     .unit = #unit_,                                                                               \
     .help = help_,                                                                                \
     .word_off = WORD_OF(name_),                                                                   \
     .series_cnt = TDM_SERIES_OF(a, b, c),                                                         \
     .series_words = 1,                                                                            \
     .kind = TDM_METRIC_IS_GAUGE,                                                                  \
     .stored = TDM_STORED_##stored_,                                                               \
     .merge = TDM_MERGE_##merge_,                                                                  \
     .set = SETS(a, b, c)},
#define TDM_HISTOGRAM(name_, unit_, stored_, bounds_, a, b, c, help_)                              \
    {.name = WIRE(name_),                                                                          \
     .unit = #unit_,                                                                               \
     .help = help_,                                                                                \
     .bound = bound_##bounds_,                                                                     \
     .bound_cnt = TDM_BOUND_CNT_##bounds_,                                                         \
     .word_off = WORD_OF(name_),                                                                   \
     .series_cnt = TDM_SERIES_OF(a, b, c),                                                         \
     .series_words = TDM_BOUND_CNT_##bounds_ + 2,                                                  \
     .kind = TDM_METRIC_IS_HISTOGRAM,                                                              \
     .stored = TDM_STORED_##stored_,                                                               \
     .set = SETS(a, b, c)},
#define TDM_INFO(name_, help_)                                                                     \
    {.name = WIRE(name_), .unit = "", .help = help_, .kind = TDM_METRIC_IS_INFO},
#include "telemetry/block/metrics.def"
};

/* --- promises as bounds ----------------------------------------------- */

enum { PROMISE_MAX = 16 };
static const uint64_t *promise[PROMISE_MAX]; /* bounds that are promises */
static uint32_t promise_cnt;

static int is_promise(const uint64_t *bound) {
    for (uint32_t i = 0; i < promise_cnt; i++)
        if (promise[i] == bound) return 1;
    return 0;
}

/* apart is how far two bounds are from each other, as a ratio >= 1. */
static double apart(uint64_t a, uint64_t b) {
    return a > b ? (double)a / (double)b : (double)b / (double)a;
}

/* may_take: would v at place b stay between its neighbours? */
static int may_take(const tdm_metric_row_t *row, uint32_t b, uint64_t v) {
    return !is_promise(&row->bound[b]) && (b == 0 || row->bound[b - 1] < v) &&
           (b + 1 == row->bound_cnt || v < row->bound[b + 1]);
}

tdm_status_t tdm_bounds_fit(tdm_metric_t metric, int64_t ns) {
    const tdm_metric_row_t *row = &tdm_metric_row[metric];
    TDM_CHECK(row->kind == TDM_METRIC_IS_HISTOGRAM && row->stored == TDM_STORED_NS);
    if (ns <= 0 || promise_cnt == PROMISE_MAX) return TDM_ERR_INVAL;
    uint64_t v = (uint64_t)ns;
    uint32_t best = row->bound_cnt;
    for (uint32_t b = 0; b < row->bound_cnt; b++) {
        if (row->bound[b] == v) {
            if (!is_promise(&row->bound[b])) promise[promise_cnt++] = &row->bound[b];
            return TDM_OK;
        }
        if (!may_take(row, b, v)) continue;
        if (best == row->bound_cnt || apart(row->bound[b], v) < apart(row->bound[best], v))
            best = b;
    }
    if (best == row->bound_cnt) return TDM_ERR_INVAL;
    *(uint64_t *)(uintptr_t)&row->bound[best] = v; /* bound_* above, not const */
    promise[promise_cnt++] = &row->bound[best];
    return TDM_OK;
}

/* --- life cycle ------------------------------------------------------- */

size_t tdm_block_footprint(void) {
    return sizeof(tdm_block_t);
}

tdm_block_t *tdm_block_init(void *mem, const char *writer) {
    TDM_CHECK(mem && (uintptr_t)mem % TDM_CACHE_LINE == 0);
    tdm_block_t *block = mem;
    memset(block, 0, sizeof *block);
    (void)strncpy(block->writer, writer, sizeof block->writer - 1);
    return block;
}
