/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the CPU backend alone: one sequence, greedy, through the
   backend's door with no scheduler, ring or network around it.

     perf_decode_cpu MODEL [--threads N] [--prefill N] [--tokens N]
                           [--isa NAME] [--kv f32|bf16|fp8]

   MODEL is a GGUF file or dummy:<name>.  Prints one JSON object on one
   line: prefill and decode tokens per second, and the bytes of weights
   per second that the decode rate means. */
#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "appliance/model/model.h"
#include "kernels/include/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    const char *model;
    uint32_t thread_cnt;
    uint32_t prefill_cnt;
    uint32_t token_cnt;
    uint32_t isa;
    uint32_t kv_dtype;
} options_t;

static int usage(void) {
    (void)fprintf(stderr, "usage: perf_decode_cpu MODEL [--threads N] [--prefill N] [--tokens N]"
                          " [--isa auto|scalar|avx2|avx512] [--kv f32|bf16|fp8]\n");
    return 2;
}

static int name_index(const char *const *names, uint32_t cnt, const char *name, uint32_t *out) {
    for (uint32_t i = 0; i < cnt; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *out = i;
        return 1;
    }
    return 0;
}

static int number(const char *text, uint32_t max, uint32_t *out) {
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    if (end == text || *end != '\0' || v == 0 || v > max) return 0;
    *out = (uint32_t)v;
    return 1;
}

static const char *const dtypes[TDM_KV_DTYPE_CNT] = {"f32", "bf16", "fp8"};

static int parse(int argc, char **argv, options_t *o) {
    static const char *const isas[] = {"auto", "scalar", "avx2", "avx512"};
    *o =
        (options_t){.thread_cnt = 2, .prefill_cnt = 512, .token_cnt = 128, .kv_dtype = TDM_KV_BF16};
    if (argc < 2) return 0;
    o->model = argv[1];
    for (int i = 2; i + 1 < argc; i += 2) {
        const char *key = argv[i], *value = argv[i + 1];
        int ok = 0;
        if (strcmp(key, "--threads") == 0) ok = number(value, TDM_SM_MAX, &o->thread_cnt);
        if (strcmp(key, "--prefill") == 0) ok = number(value, 4096, &o->prefill_cnt);
        if (strcmp(key, "--tokens") == 0) ok = number(value, 4096, &o->token_cnt);
        if (strcmp(key, "--isa") == 0) ok = name_index(isas, 4, value, &o->isa);
        if (strcmp(key, "--kv") == 0) ok = name_index(dtypes, 3, value, &o->kv_dtype);
        if (!ok) return 0;
    }
    return argc % 2 == 0;
}

static void must(tdm_status_t st, const tdm_error_t *err) {
    if (st == TDM_OK) return;
    (void)fprintf(stderr, "perf_decode_cpu: %s: %s\n", tdm_status_name(st), err->text);
    exit(1);
}

static int64_t iterate(tdm_backend_t *b, const tdm_plan_t *plan, tdm_result_t *result) {
    tdm_error_t err = {0};
    must(tdm_backend_run(b, plan, result, &err), &err);
    return result->end_ns - result->start_ns;
}

/* prefill opens slot 0, grants all its pages and runs the prompt. */
static int64_t prefill(tdm_backend_t *b, const options_t *o, uint32_t vocab, tdm_plan_t *plan,
                       tdm_result_t *result) {
    tdm_rng_t rng = {1};
    uint32_t page_cnt = b->info.kv_page_cnt;
    memset(plan, 0, sizeof *plan);
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    plan->open_cnt = plan->grant_cnt = plan->slice_cnt = 1;
    plan->open[0].prompt_cnt = o->prefill_cnt;
    plan->open[0].sampling.top_p = 1.0f;
    plan->open[0].sampling.repetition_penalty = 1.0f;
    plan->page_cnt = plan->grant[0].page_cnt = page_cnt;
    for (uint32_t i = 0; i < page_cnt; i++) plan->page[i] = page_cnt - 1 - i;
    plan->token_cnt = plan->slice[0].cnt = o->prefill_cnt;
    plan->slice[0].is_last = 1;
    for (uint32_t i = 0; i < o->prefill_cnt; i++)
        plan->token[i] = (int32_t)tdm_rng_below(&rng, vocab);
    return iterate(b, plan, result);
}

static int64_t decode(tdm_backend_t *b, const options_t *o, tdm_plan_t *plan, tdm_result_t *result,
                      int64_t *attention_ns, int64_t *sample_ns) {
    memset(plan, 0, sizeof *plan);
    plan->route = TDM_ROUTE_DECODE_ONLY;
    plan->decode_cnt = 1;
    int64_t start_ns = tdm_clock_now_ns();
    for (uint32_t i = 0; i < o->token_cnt; i++) {
        plan->decode[0].pos = o->prefill_cnt + i;
        (void)iterate(b, plan, result);
        *attention_ns += result->attention_ns;
        *sample_ns += result->sample_ns;
    }
    return tdm_clock_now_ns() - start_ns;
}

int main(int argc, char **argv) {
    options_t o;
    tdm_error_t err = {0};
    tdm_model_t *model;
    tdm_backend_t *b;
    if (!parse(argc, argv, &o)) return usage();
    must(tdm_model_open(o.model, NULL, &model, &err), &err);
    const tdm_weights_t *w = tdm_model_weights(model);
    uint32_t context = o.prefill_cnt + o.token_cnt;
    tdm_backend_config_t config = {.kv_page_cnt = context / TDM_KV_PAGE_TOKENS + 1,
                                   .kv_dtype = o.kv_dtype,
                                   .seq_max = 1,
                                   .token_max = o.prefill_cnt,
                                   .context_max = context,
                                   .sm_cnt = o.thread_cnt,
                                   .cpu_isa = o.isa};
    if (context % TDM_KV_PAGE_TOKENS == 0) config.kv_page_cnt--;
    must(tdm_backend_cpu_create(w, &config, NULL, &b, &err), &err);
    tdm_plan_t *plan = malloc(sizeof *plan);
    tdm_result_t *result = malloc(sizeof *result);
    if (!plan || !result) return 1;
    int64_t attention_ns = 0, sample_ns = 0;
    int64_t prefill_ns = prefill(b, &o, w->shape.vocab, plan, result);
    int64_t decode_ns = decode(b, &o, plan, result, &attention_ns, &sample_ns);
    double rate = (double)o.token_cnt / ((double)decode_ns * 1e-9);
    printf("{\"bench\":\"decode_cpu\",\"model\":\"%s\",\"isa\":\"%s\",\"threads\":%u,\"kv\":\"%s\","
           "\"prefill_tokens\":%u,\"prefill_tok_s\":%.1f,\"decode_tokens\":%u,"
           "\"decode_tok_s\":%.2f,\"weights_gb_s\":%.2f,\"attention_share\":%.3f,"
           "\"sample_share\":%.3f,\"memory_bytes\":%llu}\n",
           tdm_model_name(model), b->info.isa, o.thread_cnt, dtypes[o.kv_dtype], o.prefill_cnt,
           (double)o.prefill_cnt / ((double)prefill_ns * 1e-9), o.token_cnt, rate,
           rate * (double)b->info.weight_bytes * 1e-9, (double)attention_ns / (double)decode_ns,
           (double)sample_ns / (double)decode_ns, (unsigned long long)b->info.memory_bytes);
    free(plan);
    free(result);
    tdm_backend_destroy(b);
    tdm_model_close(model);
    return 0;
}
