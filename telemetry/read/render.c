/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/read/render.h"

#include "telemetry/read/text_private.h"

#include <string.h>

/* family_sz is the length of the family's name: a counter's name without
   _total and an info's without _info where the format is OpenMetrics. */
static size_t family_sz(const tdm_metric_row_t *row, tdm_metrics_format_t format) {
    size_t sz = strlen(row->name);
    if (format != TDM_METRICS_OPENMETRICS) return sz;
    if (row->kind == TDM_METRIC_IS_COUNTER) return sz - strlen("_total");
    if (row->kind == TDM_METRIC_IS_INFO) return sz - strlen("_info");
    return sz;
}

static void meta_line(tdm_text_t *t, const char *what, const char *name, size_t name_sz,
                      const char *value) {
    tdm_text_str(t, "# ");
    tdm_text_str(t, what);
    tdm_text_bytes(t, name, name_sz);
    tdm_text_str(t, " ");
    tdm_text_escaped(t, value, 0);
    tdm_text_str(t, "\n");
}

static void family_head(tdm_text_t *t, const tdm_metric_row_t *row, tdm_metrics_format_t format) {
    static const char *const type[] = {"counter", "gauge", "histogram", "info"};
    size_t sz = family_sz(row, format);
    int is_open = format == TDM_METRICS_OPENMETRICS;
    int is_info = row->kind == TDM_METRIC_IS_INFO;
    meta_line(t, "HELP ", row->name, sz, row->help);
    meta_line(t, "TYPE ", row->name, sz, is_info && !is_open ? "gauge" : type[row->kind]);
    if (is_open && row->unit[0]) meta_line(t, "UNIT ", row->name, sz, row->unit);
}

/* series_labels writes "{a="x",b="y"}" of one series, with le last where
   there is one (le_is: 0 none, 1 a bound, 2 +Inf). */
static void series_labels(tdm_text_t *t, const tdm_metric_row_t *row, uint32_t idx, int le_is,
                          uint64_t le) {
    uint32_t value[3];
    for (int k = 2; k >= 0; k--) {
        uint32_t cnt = tdm_label_cnt((tdm_label_set_t)row->set[k]);
        value[k] = idx % cnt;
        idx /= cnt;
    }
    const char *sep = "{";
    for (int k = 0; k < 3; k++) {
        tdm_label_set_t set = (tdm_label_set_t)row->set[k];
        if (set == TDM_SET_NONE) continue;
        tdm_text_str(t, sep);
        tdm_text_str(t, tdm_label_key(set));
        tdm_text_str(t, "=\"");
        tdm_text_escaped(t, tdm_label_value(set, value[k]), 1);
        tdm_text_str(t, "\"");
        sep = ",";
    }
    if (le_is) {
        tdm_text_str(t, sep);
        tdm_text_str(t, "le=\"");
        if (le_is == 1)
            tdm_text_fixed(t, le, tdm_metric_digits(row), 1);
        else
            tdm_text_str(t, "+Inf");
        tdm_text_str(t, "\"");
        sep = ",";
    }
    if (sep[0] == ',') tdm_text_str(t, "}");
}

static void sample(tdm_text_t *t, const tdm_metric_row_t *row, const char *suffix, uint32_t idx,
                   uint64_t v, uint32_t digits) {
    tdm_text_str(t, row->name);
    tdm_text_str(t, suffix);
    series_labels(t, row, idx, 0, 0);
    tdm_text_str(t, " ");
    tdm_text_fixed(t, v, digits, 0);
    tdm_text_str(t, "\n");
}

static void histogram(tdm_text_t *t, const tdm_metric_row_t *row, const uint64_t *w, uint32_t idx) {
    uint64_t cnt = 0;
    for (uint32_t b = 0; b <= row->bound_cnt; b++) {
        cnt += w[b];
        int is_last = b == row->bound_cnt;
        tdm_text_str(t, row->name);
        tdm_text_str(t, "_bucket");
        series_labels(t, row, idx, is_last ? 2 : 1, is_last ? 0 : row->bound[b]);
        tdm_text_str(t, " ");
        tdm_text_u64(t, cnt);
        tdm_text_str(t, "\n");
    }
    sample(t, row, "_sum", idx, w[row->bound_cnt + 1], tdm_metric_digits(row));
    sample(t, row, "_count", idx, cnt, 0);
}

static void info(tdm_text_t *t, const tdm_metric_row_t *row, const tdm_fact_t *fact,
                 uint32_t fact_cnt) {
    tdm_text_str(t, row->name);
    for (uint32_t i = 0; i < fact_cnt; i++) {
        tdm_text_str(t, i ? "," : "{");
        tdm_text_str(t, fact[i].key);
        tdm_text_str(t, "=\"");
        tdm_text_escaped(t, fact[i].value, 1);
        tdm_text_str(t, "\"");
    }
    tdm_text_str(t, fact_cnt ? "} 1\n" : " 1\n");
}

tdm_status_t tdm_render_metrics(const tdm_snapshot_t *s, tdm_metrics_format_t format,
                                const tdm_fact_t *fact, uint32_t fact_cnt, char *buf, size_t cap,
                                size_t *sz) {
    tdm_text_t t = {buf, cap, 0};
    for (uint32_t m = 0; m < TDM_METRIC_CNT; m++) {
        const tdm_metric_row_t *row = &tdm_metric_row[m];
        family_head(&t, row, format);
        if (row->kind == TDM_METRIC_IS_INFO) info(&t, row, fact, fact_cnt);
        for (uint32_t i = 0; i < row->series_cnt; i++) {
            const uint64_t *w = &s->word[row->word_off + i * row->series_words];
            if (row->kind == TDM_METRIC_IS_HISTOGRAM)
                histogram(&t, row, w, i);
            else if (!tdm_metric_is_told(row))
                sample(&t, row, "", i, *w, tdm_metric_digits(row));
            else if (*w)
                sample(&t, row, "", i, *w - 1, tdm_metric_digits(row));
        }
    }
    if (format == TDM_METRICS_OPENMETRICS) tdm_text_str(&t, "# EOF\n");
    *sz = t.sz;
    return t.sz <= cap ? TDM_OK : TDM_ERR_LIMIT;
}

uint32_t tdm_metrics_series_cnt(void) {
    uint32_t n = 0;
    for (uint32_t m = 0; m < TDM_METRIC_CNT; m++) {
        const tdm_metric_row_t *row = &tdm_metric_row[m];
        if (row->kind == TDM_METRIC_IS_INFO)
            n += 1;
        else if (row->kind == TDM_METRIC_IS_HISTOGRAM)
            n += row->series_cnt * (row->bound_cnt + 3);
        else
            n += row->series_cnt;
    }
    return n;
}
