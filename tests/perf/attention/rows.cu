// SPDX-License-Identifier: Apache-2.0
#include "tests/perf/attention/rows.h"

void row_machine(FILE *f, const bench_t *b, const ceilings_t *c) {
    cudaDeviceProp prop;
    int driver = 0;
    OK(cudaGetDeviceProperties(&prop, 0));
    OK(cudaDriverGetVersion(&driver));
    fprintf(f,
            "{\"row\": \"machine\", \"device\": \"%s\", \"cuda\": %d, \"sm_cnt\": %d, "
            "\"l2_mb\": %d, \"read_gbs\": %.0f, \"gemm_tflops\": %.0f, \"pool_gb\": %llu, "
            "\"plan_hbm_gbs\": %.0f, \"plan_mma_tflops\": %.0f}\n",
            prop.name, driver, prop.multiProcessorCount, prop.l2CacheSize >> 20, c->read_gbs,
            c->gemm_tflops, (unsigned long long)(b->pool_sz >> 30), b->gpu.hbm_gbs,
            b->gpu.mma_tflops);
}

void row_resources(FILE *f, const bench_t *b, uint32_t i) {
    uint32_t reg, cta, local;
    const tdm_pod_plan_t *p = &b->plan[i];
    OK(tdm_pod_occupancy(b->pod[i], p, &reg, &cta, &local));
    fprintf(f,
            "{\"row\": \"resources\", \"way\": \"%s\", \"variant\": %u, \"tile\": %u, "
            "\"registers\": %u, \"local\": %u, \"smem\": %u, \"cta_sm\": %u, \"plan_cta_sm\": %u, "
            "\"grid\": %u, \"against\": \"%s\", \"what\": \"%s\"}\n",
            way_list[i].name, p->variant, p->tile, reg, local, p->smem_sz, cta, p->cta_sm, p->grid,
            way_list[i].against, way_list[i].what);
}

static void put_way(FILE *f, const bench_t *b, uint32_t i, const timing_t *t,
                    const tdm_pod_counters_t *c) {
    const tdm_pod_plan_t *p = &b->plan[i];
    double wall = (double)c->wall_ns + 1;
    double sm = (double)c->wall_ns * c->sm_used + 1;
    fprintf(
        f,
        "\"%s\": {\"us\": %.1f, \"lo\": %.1f, \"hi\": %.1f, \"n\": %u, \"items\": [%u, %u], "
        "\"merges\": %u, \"waves\": [%.2f, %.2f], \"colocated\": %.3f, \"overlap\": %.3f, "
        "\"tail\": %.3f, \"switches\": %u, \"stalls\": %llu, \"ghz\": %.3f, \"decode_split\": %u, \"share\": [%u, %u], "
        "\"key\": \"%016llx\"}",
        way_list[i].name, t->us, t->lo, t->hi, t->cnt, p->item_cnt[0], p->item_cnt[1], p->merge_cnt,
        p->wave[0], p->wave[1], (double)c->colocated_ns / sm, (double)c->overlap_ns / wall, c->tail,
        c->switch_cnt, (unsigned long long)c->ring_stall_cnt, c->clock_ghz, p->decode_split_tok,
        p->share[0], p->share[1], (unsigned long long)p->key);
}

// What the planner would take, and whether the way that was measured for it
// has the same plan.
static void put_choice(FILE *f, bench_t *b) {
    tdm_pod_plan_t p;
    bench_choose(b, &p);
    uint32_t i = p.way == TDM_POD_WAY_FUSED    ? FUSED
                 : p.way == TDM_POD_WAY_SERIAL ? SERIAL
                                               : STREAMS_DP;
    fprintf(f,
            "\"choice\": {\"way\": \"%s\", \"reason\": \"%s\", \"fused_us\": %.1f, "
            "\"serial_us\": %.1f, \"is_same_plan\": %s}, ",
            way_list[i].name, p.reason ? tdm_reason_name((tdm_reason_t)p.reason) : "", p.fused_us,
            p.serial_us, p.key == b->plan[i].key ? "true" : "false");
}

int row_point(FILE *f, bench_t *b, const point_t *p, const char *set, const uint32_t *list,
              uint32_t cnt, const timing_t *t) {
    int is_right = 1;
    const tdm_pod_plan_t *any = &b->plan[SERIAL];
    fprintf(f,
            "{\"row\": \"point\", \"set\": \"%s\", \"model\": \"%s\", \"ctx\": %u, \"chunk\": %u, "
            "\"batch\": %u, \"decode_ctx\": %u, \"flops\": [%.6g, %.6g], \"bytes\": [%.6g, %.6g], "
            "\"pred_us\": [%.1f, %.1f], \"sets\": %u, \"ref\": {\"fi_serial\": %.0f, "
            "\"fi_pod\": %.0f, \"fa3_serial\": %.0f, \"split\": %.0f, \"vattn_pod\": %.0f}, ",
            set, p->model, p->ctx, p->chunk, p->batch, p->decode_ctx ? p->decode_ctx : p->ctx,
            (double)any->kind_flops[0], (double)any->kind_flops[1], (double)any->kind_bytes[0],
            (double)any->kind_bytes[1], any->pred_us[0], any->pred_us[1], b->set_cnt,
            p->fi_serial_us, p->fi_pod_us, p->fa3_us, p->split_us, p->vattn_us);
    if (b->pod[SERIAL] && b->pod[FUSED]) put_choice(f, b);
    fprintf(f, "\"ways\": {");
    for (uint32_t k = 0; k < cnt; k++) {
        tdm_pod_counters_t c;
        uint32_t i = list[k];
        is_right &= bench_counters(b, i, &c);
        fprintf(f, "%s", k ? ", " : "");
        put_way(f, b, i, &t[i], &c);
    }
    fprintf(f, "}, \"counters_equal_plan\": %s}\n", is_right ? "true" : "false");
    fflush(f);
    return is_right;
}

void row_sweep(FILE *f, const point_t *p, const sweep_t *s) {
    fprintf(f,
            "{\"row\": \"sweep\", \"model\": \"%s\", \"ctx\": %u, \"chunk\": %u, "
            "\"batch\": %u, \"cuts\": [",
            p->model, p->ctx, p->chunk, p->batch);
    for (uint32_t i = 0; i < s->cnt; i++) {
        fprintf(f, "%s[%u, %u, %.1f]", i ? ", " : "", s->cut[i].decode_sm, s->cut[i].piece,
                s->cut[i].us);
    }
    fprintf(f, "]}\n");
    fflush(f);
}

void row_steady(FILE *f, const point_t *p, const char *what, const char *way, uint32_t dependent,
                const steady_t *s) {
    fprintf(
        f,
        "{\"row\": \"%s\", \"model\": \"%s\", \"ctx\": %u, \"chunk\": %u, \"batch\": %u, "
        "\"way\": \"%s\", \"dependent\": %u, \"us\": %.1f, \"joule\": %.4f, \"watt_mean\": %.0f, "
        "\"watt_most\": %.0f, \"seconds\": %.2f, \"ghz\": %.3f}\n",
        what, p->model, p->ctx, p->chunk, p->batch, way, dependent, s->us, s->joule, s->watt_mean,
        s->watt_most, s->seconds, s->clock_ghz);
    fflush(f);
}
