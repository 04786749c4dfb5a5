/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_LABELS_H
#define TDM_TELEMETRY_LABELS_H

/* The closed label sets and the metric ids of metrics.def as enums.

     TDM_LABEL_<SET>_<value>   a value's index in its set
     TDM_LABEL_CNT_<SET>       how many values the set has
     TDM_METRIC_<name>         a metric
     TDM_BOUND_CNT_<NAME>      finite bucket bounds of a histogram

   Sets made from appliance/abi/reasons.def take tdm_label_reason(). */

#include "appliance/abi/reasons.h"

TDM_BEGIN_DECLS

#define TDM_VALUE(set, value)        TDM_LABEL_##set##_##value,
#define TDM_LABELS(set, key, values) enum { values TDM_LABEL_CNT_##set };
#include "telemetry/block/metrics.def"
#undef TDM_VALUE

/* How many reasons each group has, and its first one: the groups follow
   each other in reasons.def and a test holds these to its table. */
#define TDM_DROP(n, t) +1
#define TDM_REFUSE(n, h, t)
#define TDM_CAP(n, t)
#define TDM_FALLBACK(n, t)
#define TDM_FAULT(n, t)
enum {
    TDM_LABEL_REASONS_DROP = 0
#include "appliance/abi/reasons.def"
};
#undef TDM_DROP
#undef TDM_REFUSE
#define TDM_DROP(n, t)
#define TDM_REFUSE(n, h, t) +1
enum {
    TDM_LABEL_REASONS_REFUSE = 0
#include "appliance/abi/reasons.def"
};
#undef TDM_REFUSE
#undef TDM_CAP
#define TDM_REFUSE(n, h, t)
#define TDM_CAP(n, t) +1
enum {
    TDM_LABEL_REASONS_CAP = 0
#include "appliance/abi/reasons.def"
};
#undef TDM_CAP
#undef TDM_FALLBACK
#define TDM_CAP(n, t)
#define TDM_FALLBACK(n, t) +1
enum {
    TDM_LABEL_REASONS_FALLBACK = 0
#include "appliance/abi/reasons.def"
};
#undef TDM_FALLBACK
#undef TDM_FAULT
#define TDM_FALLBACK(n, t)
#define TDM_FAULT(n, t) +1
enum {
    TDM_LABEL_REASONS_FAULT = 0
#include "appliance/abi/reasons.def"
};
#undef TDM_DROP
#undef TDM_REFUSE
#undef TDM_CAP
#undef TDM_FALLBACK
#undef TDM_FAULT

enum {
    TDM_LABEL_FIRST_DROP = 1,
    TDM_LABEL_FIRST_REFUSE = TDM_LABEL_FIRST_DROP + TDM_LABEL_REASONS_DROP,
    TDM_LABEL_FIRST_CAP = TDM_LABEL_FIRST_REFUSE + TDM_LABEL_REASONS_REFUSE,
    TDM_LABEL_FIRST_FALLBACK = TDM_LABEL_FIRST_CAP + TDM_LABEL_REASONS_CAP,
    TDM_LABEL_FIRST_FAULT = TDM_LABEL_FIRST_FALLBACK + TDM_LABEL_REASONS_FALLBACK,
};

#define TDM_LABELS_REASON(set, key, group, has_none)                                               \
    enum { TDM_LABEL_CNT_##set = TDM_LABEL_REASONS_##group + (has_none) };
#include "telemetry/block/metrics.def"

/* tdm_label_reason gives the index of a reason in its own group's set
   (DROP, REFUSE, CAP, FALLBACK, FAULT); 0xffffffff for NONE, which every
   counting call ignores. */
static inline uint32_t tdm_label_reason(uint32_t reason) {
    uint32_t first = reason >= TDM_LABEL_FIRST_FAULT      ? TDM_LABEL_FIRST_FAULT
                     : reason >= TDM_LABEL_FIRST_FALLBACK ? TDM_LABEL_FIRST_FALLBACK
                     : reason >= TDM_LABEL_FIRST_CAP      ? TDM_LABEL_FIRST_CAP
                     : reason >= TDM_LABEL_FIRST_REFUSE   ? TDM_LABEL_FIRST_REFUSE
                                                          : TDM_LABEL_FIRST_DROP;
    return reason - first;
}

/* tdm_label_verdict gives the index in the set VERDICT: 0 for NONE, else
   1 + the refusal's index. */
static inline uint32_t tdm_label_verdict(uint32_t reason) {
    return reason == 0 ? 0 : reason - TDM_LABEL_FIRST_REFUSE + 1;
}

/* tdm_label_code gives the index in the set CODE of an HTTP status. */
static inline uint32_t tdm_label_code(uint32_t status) {
    return status / 100 - 1;
}

#define TDM_US(n) ((uint64_t)(n)*1000u)
#define TDM_MS(n) ((uint64_t)(n)*1000000u)
#define TDM_BOUNDS(name, ...)                                                                      \
    enum { TDM_BOUND_CNT_##name = sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t) };
#include "telemetry/block/metrics.def"

typedef enum tdm_metric {
#define TDM_COUNTER(name, unit, stored, a, b, c, help)           TDM_METRIC_##name,
#define TDM_GAUGE(name, unit, stored, merge, a, b, c, help)      TDM_METRIC_##name,
#define TDM_HISTOGRAM(name, unit, stored, bounds, a, b, c, help) TDM_METRIC_##name,
#define TDM_INFO(name, help)                                     TDM_METRIC_##name,
#include "telemetry/block/metrics.def"
    TDM_METRIC_CNT
} tdm_metric_t;

typedef enum tdm_label_set {
#define TDM_LABELS(set, key, values)                 TDM_SET_##set,
#define TDM_LABELS_REASON(set, key, group, has_none) TDM_SET_##set,
#include "telemetry/block/metrics.def"
    TDM_SET_CNT
} tdm_label_set_t;

/* tdm_label_key and tdm_label_value give the words a scraper reads: the
   key of a set ("" for NONE) and the value of an index in
   [0, tdm_label_cnt(set)). */
const char *tdm_label_key(tdm_label_set_t set);
uint32_t tdm_label_cnt(tdm_label_set_t set);
const char *tdm_label_value(tdm_label_set_t set, uint32_t idx);

TDM_END_DECLS

#endif /* TDM_TELEMETRY_LABELS_H */
