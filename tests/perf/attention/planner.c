/* SPDX-License-Identifier: Apache-2.0 */
/* perf_planner: what a plan of 256 sequences costs one core.

   Per route and variant: 5 rounds in turn of 400 builds; a sample is the thread's own
   CPU time of one build, and one during which the thread was switched out
   against its will is left out and counted.  The figure is the best round's
   median.  Prints one JSON object a line (rows.h of the GPU program reads
   alike). */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "kernels/plan/device.h"
#include "kernels/plan/plan.h"

#define ROUNDS  5
#define SAMPLES 400

static const struct {
    const char *name;
    uint32_t route;
    uint32_t variant; /* the best to take */
} route_list[] = {
    {"auto", TDM_POD_ROUTE_AUTO, TDM_POD_VARIANT_PORTABLE},
    {"fused", TDM_ROUTE_FUSED, TDM_POD_VARIANT_PORTABLE},
    {"serial", TDM_ROUTE_SERIAL, TDM_POD_VARIANT_PORTABLE},
    {"auto", TDM_POD_ROUTE_AUTO, TDM_POD_VARIANT_HOPPER},
};
#define ROUTE_CNT (sizeof route_list / sizeof route_list[0])

static double cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static long switched(void) {
    struct rusage r;
    getrusage(RUSAGE_THREAD, &r);
    return r.ru_nivcsw;
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a;
    float y = *(const float *)b;
    return x < y ? -1 : x > y;
}

typedef struct rig {
    tdm_pod_config_t config;
    tdm_attn_seq_t seq[256];
    tdm_pod_plan_t plan;
    void *blob;
} rig_t;

/* Median of the samples that count, or 0; adds to *out_cnt those that do
   not. */
static float one_round(rig_t *r, uint32_t route, uint32_t *out_cnt) {
    static float us[SAMPLES];
    uint32_t cnt = 0;
    for (uint32_t i = 0; i < SAMPLES; i++) {
        long before = switched();
        double begin = cpu_us();
        tdm_pod_plan_build(&r->config, r->seq, 1, 255, route, r->blob, &r->plan);
        double end = cpu_us();
        if (switched() == before)
            us[cnt++] = (float)(end - begin);
        else
            *out_cnt += 1;
    }
    qsort(us, cnt, sizeof us[0], by_value);
    return cnt ? us[cnt / 2] : 0.0f;
}

int main(void) {
    static rig_t r;
    r.config.gpu = *tdm_gpu_known("h200");
    r.config.shape = (tdm_pod_shape_t){32, 8, 128, TDM_POD_BF16, TDM_POD_BF16, 64, 0};
    r.config.tile = TDM_POD_TILE_AUTO;
    r.config.part_float_max = 96u << 20;
    tdm_pod_config_fill(&r.config);
    r.blob = malloc(tdm_pod_blob_max(&r.config));
    if (!r.blob) return 1;
    for (uint32_t s = 0; s < 256; s++) {
        r.seq[s] = (tdm_attn_seq_t){s, s ? 2000 + 37 * s : 8192, s ? 1u : 1024u, s ? 1023 + s : 0};
    }
    float best[ROUTE_CNT] = {0};
    uint32_t items[ROUTE_CNT] = {0};
    uint32_t left_out[ROUTE_CNT] = {0};
    for (uint32_t k = 0; k < ROUNDS; k++) {
        for (uint32_t i = 0; i < ROUTE_CNT; i++) {
            r.config.variant = route_list[i].variant;
            float us = one_round(&r, route_list[i].route, &left_out[i]);
            if (us > 0.0f && (best[i] == 0.0f || us < best[i])) best[i] = us;
            if (r.plan.variant != route_list[i].variant) best[i] = 0.0f; /* not in this build */
            items[i] = r.plan.item_cnt[0] + r.plan.item_cnt[1];
        }
    }
    for (uint32_t i = 0; i < ROUTE_CNT; i++) {
        if (best[i] == 0.0f) continue;
        printf(
            "{\"row\": \"planner\", \"route\": \"%s\", \"variant\": %u, \"p50_us\": %.2f, \"items\": %u, "
            "\"samples\": %d, \"left_out\": %u}\n",
            route_list[i].name, route_list[i].variant, best[i], items[i], ROUNDS * SAMPLES,
            left_out[i]);
    }
    free(r.blob);
    return 0;
}
