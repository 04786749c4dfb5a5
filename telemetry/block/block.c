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

#define TDM_BOUNDS(name, ...) static const uint64_t bound_##name[] = {__VA_ARGS__};
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
