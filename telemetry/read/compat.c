/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/read/compat.h"

#include "telemetry/read/text_private.h"

#include <string.h>

/* One sample of a counter or gauge: the sum of a native metric's series
   whose index in `set` is in `mask`; a histogram: the sum of all series. */
typedef struct row {
    const char *name; /* without "vllm:"; NULL: one more sample of the family above */
    const char *help;
    const char *key; /* label beside the common ones, NULL: none */
    const char *value;
    uint64_t mask; /* bit per index of set */
    tdm_metric_t metric;
    tdm_label_set_t set;
    uint32_t kind; /* tdm_metric_kind_t */
} row_t;

#define ONE(set, value) (UINT64_C(1) << TDM_LABEL_##set##_##value)
#define REFUSED(reason) (UINT64_C(1) << (TDM_REFUSE_##reason - TDM_LABEL_FIRST_REFUSE))
#define HISTOGRAM(n, m, h)                                                                         \
    { n, h, NULL, NULL, 0, TDM_METRIC_##m, TDM_SET_NONE, TDM_METRIC_IS_HISTOGRAM }
#define C    TDM_METRIC_IS_COUNTER
#define G    TDM_METRIC_IS_GAUGE
#define MORE NULL, NULL

static const row_t table[] = {
    {"num_requests_running", "Requests that hold a slot.", NULL, NULL, ONE(QUEUE, running),
     TDM_METRIC_queue_requests, TDM_SET_QUEUE, G},
    {"num_requests_waiting", "Requests that wait for a slot.", NULL, NULL, ONE(QUEUE, waiting),
     TDM_METRIC_queue_requests, TDM_SET_QUEUE, G},
    {"num_requests_waiting_by_reason", "Requests that wait, by why.", "reason", "capacity",
     ONE(QUEUE, waiting), TDM_METRIC_queue_requests, TDM_SET_QUEUE, G},
    {MORE, "reason", "deferred", 0, TDM_METRIC_queue_requests, TDM_SET_QUEUE, G},
    {"kv_cache_usage_perc", "Share of the KV pages in use; 1 is all.", NULL, NULL, 1,
     TDM_METRIC_kv_usage_ratio, TDM_SET_NONE, G},
    {"num_preemptions_total", "Running requests that had to wait again for a more urgent one.",
     NULL, NULL, 1, TDM_METRIC_sched_places_yielded_total, TDM_SET_NONE, C},
    {"prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", NULL, NULL,
     ONE(TOKEN, prompt), TDM_METRIC_tokens_total, TDM_SET_TOKEN, C},
    {"prefix_cache_hits_total", "Prompt tokens found there.", NULL, NULL, ONE(TOKEN, cached),
     TDM_METRIC_tokens_total, TDM_SET_TOKEN, C},
    {"prompt_tokens_total", "Prompt tokens of accepted requests.", NULL, NULL, ONE(TOKEN, prompt),
     TDM_METRIC_tokens_total, TDM_SET_TOKEN, C},
    {"prompt_tokens_cached_total", "Of them, found in the prefix cache.", NULL, NULL,
     ONE(TOKEN, cached), TDM_METRIC_tokens_total, TDM_SET_TOKEN, C},
    {"generation_tokens_total", "Output tokens handed to a door.", NULL, NULL, ONE(TOKEN, output),
     TDM_METRIC_tokens_total, TDM_SET_TOKEN, C},
    {"request_success_total", "Requests that ended, by how.", "finished_reason", "stop",
     ONE(OUTCOME, stop), TDM_METRIC_requests_total, TDM_SET_OUTCOME, C},
    {MORE, "finished_reason", "length", ONE(OUTCOME, length), TDM_METRIC_requests_total,
     TDM_SET_OUTCOME, C},
    {MORE, "finished_reason", "abort", ONE(OUTCOME, cancelled), TDM_METRIC_requests_total,
     TDM_SET_OUTCOME, C},
    {MORE, "finished_reason", "error", ONE(OUTCOME, error), TDM_METRIC_requests_total,
     TDM_SET_OUTCOME, C},
    {MORE, "finished_reason", "repetition", 0, TDM_METRIC_requests_total, TDM_SET_OUTCOME, C},
    {"admission_rejections_total", "Requests refused for want of room, by bound.", "reason",
     "max_num_queued_reqs",
     REFUSED(request_slots) | REFUSED(queue_full) | REFUSED(waiting_full) | REFUSED(exchange_limit),
     TDM_METRIC_refusals_total, TDM_SET_REFUSE, C},
    {MORE, "reason", "max_num_queued_tokens", REFUSED(prompt_memory) | REFUSED(kv_full),
     TDM_METRIC_refusals_total, TDM_SET_REFUSE, C},
    {"corrupted_requests_total", "Requests ended by logits that were not finite.", NULL, NULL,
     REFUSED(nan_logits), TDM_METRIC_refusals_total, TDM_SET_REFUSE, C},
    HISTOGRAM("time_to_first_token_seconds", ttft_seconds, "Time to the first token."),
    HISTOGRAM("inter_token_latency_seconds", itl_seconds, "Gap between tokens of a stream."),
    HISTOGRAM("request_time_per_output_token_seconds", tpot_seconds,
              "Mean gap between tokens of a request."),
    HISTOGRAM("e2e_request_latency_seconds", e2e_seconds, "Arrival to the end of the answer."),
    HISTOGRAM("request_queue_time_seconds", queue_seconds, "Time in the waiting queue."),
    HISTOGRAM("request_prefill_time_seconds", prefill_seconds, "Scheduled to the first token."),
    HISTOGRAM("request_decode_time_seconds", decode_seconds, "First to last token."),
    HISTOGRAM("request_inference_time_seconds", inference_seconds, "Scheduled to the last token."),
    HISTOGRAM("request_prompt_tokens", request_prompt_tokens, "Prompt tokens of a request."),
    HISTOGRAM("request_generation_tokens", request_output_tokens, "Output tokens of a request."),
    HISTOGRAM("iteration_tokens_total", iteration_tokens, "Tokens of an iteration."),
};

static uint32_t digits_of(tdm_metric_t metric) {
    return tdm_metric_digits(&tdm_metric_row[metric]);
}

/* sum_of adds the series of a metric whose index in set is in mask. */
static uint64_t sum_of(const tdm_snapshot_t *s, const row_t *r) {
    const tdm_metric_row_t *row = &tdm_metric_row[r->metric];
    uint64_t sum = 0;
    for (uint32_t i = 0; i < row->series_cnt; i++) {
        uint32_t left = i, idx = 0;
        for (int k = 2; k >= 0; k--) {
            uint32_t cnt = tdm_label_cnt((tdm_label_set_t)row->set[k]);
            if (row->set[k] == r->set) idx = left % cnt;
            left /= cnt;
        }
        if (r->mask >> idx & 1u) sum += s->word[row->word_off + i];
    }
    return sum;
}

/* --- text ------------------------------------------------------------- */

typedef struct page {
    tdm_text_t t;
    tdm_metrics_format_t format;
    const char *model;
} page_t;

static void meta(page_t *p, const char *what, const row_t *r, const char *value) {
    size_t sz = strlen(r->name), total = strlen("_total");
    if (p->format == TDM_METRICS_OPENMETRICS && r->kind == TDM_METRIC_IS_COUNTER) sz -= total;
    tdm_text_str(&p->t, "# ");
    tdm_text_str(&p->t, what);
    tdm_text_str(&p->t, " vllm:");
    tdm_text_bytes(&p->t, r->name, sz);
    tdm_text_str(&p->t, " ");
    tdm_text_escaped(&p->t, value, 0);
    tdm_text_str(&p->t, "\n");
}

/* open_sample writes "vllm:name_suffix{model_name="m",engine="0"". */
static void open_sample(page_t *p, const char *name, const char *suffix) {
    tdm_text_str(&p->t, "vllm:");
    tdm_text_str(&p->t, name);
    tdm_text_str(&p->t, suffix);
    tdm_text_str(&p->t, "{model_name=\"");
    tdm_text_escaped(&p->t, p->model, 1);
    tdm_text_str(&p->t, "\",engine=\"0\"");
}

static void label(page_t *p, const char *key, const char *value) {
    tdm_text_str(&p->t, ",");
    tdm_text_str(&p->t, key);
    tdm_text_str(&p->t, "=\"");
    tdm_text_str(&p->t, value);
    tdm_text_str(&p->t, "\"");
}

static void close_sample(page_t *p, uint64_t v, uint32_t digits) {
    tdm_text_str(&p->t, "} ");
    tdm_text_fixed(&p->t, v, digits, 0);
    tdm_text_str(&p->t, "\n");
}

static void histogram(page_t *p, const tdm_snapshot_t *s, const row_t *r) {
    tdm_histogram_t h;
    tdm_histogram_between(&h, NULL, s, r->metric);
    uint64_t cnt = 0;
    for (uint32_t b = 0; b <= h.bound_cnt; b++) {
        cnt += h.bucket[b];
        open_sample(p, r->name, "_bucket");
        tdm_text_str(&p->t, ",le=\"");
        if (b < h.bound_cnt)
            tdm_text_fixed(&p->t, h.bound[b], digits_of(r->metric), 1);
        else
            tdm_text_str(&p->t, "+Inf");
        tdm_text_str(&p->t, "\"");
        close_sample(p, cnt, 0);
    }
    open_sample(p, r->name, "_sum");
    close_sample(p, h.sum, digits_of(r->metric));
    open_sample(p, r->name, "_count");
    close_sample(p, cnt, 0);
}

/* cache_config: what a router asks of the KV cache, as labels. */
static void cache_config(page_t *p, const tdm_snapshot_t *s) {
    int is_open = p->format == TDM_METRICS_OPENMETRICS;
    tdm_text_str(&p->t, is_open ? "# HELP vllm:cache_config The KV cache; always 1.\n"
                                  "# TYPE vllm:cache_config info\n"
                                : "# HELP vllm:cache_config_info The KV cache; always 1.\n"
                                  "# TYPE vllm:cache_config_info gauge\n");
    char text[24];
    tdm_text_t number = {text, sizeof text, 0};
    tdm_text_u64(&number, tdm_snapshot_value(s, TDM_METRIC_kv_pages, TDM_LABEL_KV_total));
    text[TDM_MIN(number.sz, sizeof text - 1)] = 0;
    open_sample(p, "cache_config_info", "");
    label(p, "block_size", "64");
    label(p, "num_gpu_blocks", text);
    close_sample(p, 1, 0);
}

tdm_status_t tdm_render_compat(const tdm_snapshot_t *s, tdm_metrics_format_t format,
                               const char *model_name, char *buf, size_t cap, size_t *sz) {
    static const char *const type[] = {"counter", "gauge", "histogram", "info"};
    page_t p = {.t = {buf, cap, 0}, .format = format, .model = model_name};
    const char *name = NULL;
    for (uint32_t i = 0; i < TDM_COUNT_OF(table); i++) {
        const row_t *r = &table[i];
        if (r->name) {
            name = r->name;
            meta(&p, "HELP", r, r->help);
            meta(&p, "TYPE", r, type[r->kind]);
        }
        if (r->kind == TDM_METRIC_IS_HISTOGRAM) {
            histogram(&p, s, r);
            continue;
        }
        open_sample(&p, name, "");
        if (r->key) label(&p, r->key, r->value);
        close_sample(&p, sum_of(s, r), digits_of(r->metric));
    }
    cache_config(&p, s);
    if (format == TDM_METRICS_OPENMETRICS) tdm_text_str(&p.t, "# EOF\n");
    *sz = p.t.sz;
    return p.t.sz <= cap ? TDM_OK : TDM_ERR_LIMIT;
}

uint32_t tdm_compat_series_cnt(void) {
    uint32_t n = 1; /* cache_config_info */
    for (uint32_t i = 0; i < TDM_COUNT_OF(table); i++) {
        int is_histogram = table[i].kind == TDM_METRIC_IS_HISTOGRAM;
        n += is_histogram ? tdm_metric_row[table[i].metric].bound_cnt + 3 : 1;
    }
    return n;
}
