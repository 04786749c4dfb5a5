// SPDX-License-Identifier: Apache-2.0
// perf_attention [--set named|peers|grid|small|wide|ablate|steady|ncu] [--points A:B] [--ways
// A,B,...]
//                [--rounds LEAST:MOST] [--within SHARE] [--steady SECONDS] [--profile] [--sweep
//                PIECES]
//                [--layer SECONDS] [--batch N]
//                [--pool GB] [--variant N] [--knob KEY=VALUE]... [--out FILE]
//
// Measures hybrid batches (points.h) by every way to run them (ways.h) and
// writes one JSON object a line (rows.h); run.py calls it and report.py
// makes tables of what it wrote.
//
//   --set      named: the points peers were measured on, and more; peers:
//              the 31 that every peer was; grid: models x chunks x contexts
//              x batches; small: little work; wide: many query heads of a KV head; ablate, steady,
//              ncu: the named points so marked, ablate with all ways
//   --ways     these only, by name
//   --steady   besides, serial, streams_dp and fused for so many seconds each
//   --layer    besides, the same between a layer's products (layer.h)
//   --batch    decodes, in place of the point's
//   --sweep    besides, the fused way by every share of SMs and up to so many
//              pieces of a tile (sweep.h)
//   --profile  no timing: each way once between cudaProfilerStart and
//              cudaProfilerStop, for ncu
//   --variant  the best kernels to take (tdm_pod_variant_t); 2, the portable
//              ones, unless said

#include <cuda_profiler_api.h>
#include <stdlib.h>
#include <string.h>

#include "tests/perf/attention/layer.h"
#include "tests/perf/attention/rows.h"
#include "tests/perf/attention/sweep.h"

typedef struct args {
    const char *set;
    const char *ways;
    unsigned first;
    unsigned last;
    unsigned pool_gb;
    double steady_s;
    double layer_s;
    unsigned batch;
    int is_profile;
    unsigned sweep;
    rounds_t rounds;
    tdm_pod_config_t knob;
    FILE *out;
} args_t;

static void set_knob(tdm_pod_config_t *c, const char *kv) {
    const char *eq = strchr(kv, '=');
    uint32_t v = eq ? (uint32_t)strtoul(eq + 1, nullptr, 10) : 0;
    if (!strncmp(kv, "tile=", 5))
        c->tile = v;
    else if (!strncmp(kv, "decode_split=", 13))
        c->decode_split_tok = v;
    else if (!strncmp(kv, "prefill_split=", 14))
        c->prefill_split_max = v;
    else if (!strncmp(kv, "prefill_row=", 12))
        c->prefill_row = v;
    else if (!strncmp(kv, "dependent=", 10))
        c->is_dependent = v;
    else {
        fprintf(stderr, "unknown knob %s\n", kv);
        exit(2);
    }
}

static void parse(int argc, char **argv, args_t *a) {
    a->set = "named";
    a->last = 1000;
    a->pool_gb = 20;
    a->rounds.least = 2;
    a->rounds.most = 4;
    a->rounds.within = 0.01f;
    a->knob.tile = TDM_POD_TILE_AUTO;
    a->knob.part_float_max = 96u << 20;
    a->knob.variant = TDM_POD_VARIANT_PORTABLE;
    a->out = stdout;
    for (int i = 1; i < argc; i++) {
        const char *v = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--profile")) {
            a->is_profile = 1;
            continue;
        }
        i++;
        if (!strcmp(argv[i - 1], "--set"))
            a->set = v;
        else if (!strcmp(argv[i - 1], "--ways"))
            a->ways = v;
        else if (!strcmp(argv[i - 1], "--points"))
            sscanf(v, "%u:%u", &a->first, &a->last);
        else if (!strcmp(argv[i - 1], "--rounds"))
            sscanf(v, "%u:%u", &a->rounds.least, &a->rounds.most);
        else if (!strcmp(argv[i - 1], "--within"))
            a->rounds.within = (float)atof(v);
        else if (!strcmp(argv[i - 1], "--steady"))
            a->steady_s = atof(v);
        else if (!strcmp(argv[i - 1], "--layer"))
            a->layer_s = atof(v);
        else if (!strcmp(argv[i - 1], "--batch"))
            a->batch = (unsigned)atoi(v);
        else if (!strcmp(argv[i - 1], "--sweep"))
            a->sweep = (unsigned)atoi(v);
        else if (!strcmp(argv[i - 1], "--pool"))
            a->pool_gb = (unsigned)atoi(v);
        else if (!strcmp(argv[i - 1], "--variant"))
            a->knob.variant = (uint32_t)atoi(v);
        else if (!strcmp(argv[i - 1], "--knob"))
            set_knob(&a->knob, v);
        else if (!strcmp(argv[i - 1], "--out"))
            a->out = fopen(v, "w");
        else
            i = argc + 1;
        if (i > argc || !a->out) {
            fprintf(stderr, "usage: see the head of main.cu\n");
            exit(2);
        }
    }
}

// The points of a set, in order; 0 past the end.
static int point_at(const char *set, unsigned idx, point_t *out) {
    if (!strcmp(set, "grid")) {
        if (idx >= POINT_GRID_CNT) return 0;
        *out = point_grid(idx);
        return 1;
    }
    if (!strcmp(set, "small")) {
        if (idx >= POINT_SMALL_CNT) return 0;
        *out = point_small(idx);
        return 1;
    }
    if (!strcmp(set, "wide")) {
        if (idx >= POINT_WIDE_CNT) return 0;
        *out = point_wide[idx];
        return 1;
    }
    for (unsigned i = 0; i < POINT_NAMED_CNT; i++) {
        const point_t *p = &point_named[i];
        if (!strcmp(set, "peers") && p->split_us == 0.0f) continue;
        if (!strcmp(set, "ablate") && !p->is_ablated) continue;
        if (!strcmp(set, "steady") && !p->is_steady) continue;
        if (!strcmp(set, "ncu") && !p->is_ncu) continue;
        if (idx--) continue;
        *out = *p;
        return 1;
    }
    return 0;
}

static int is_named(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != nullptr; at += n) {
        int is_begin = at == list || at[-1] == ',';
        if (is_begin && (at[n] == ',' || at[n] == 0)) return 1;
    }
    return 0;
}

// The ways to measure.
static uint32_t choose_ways(const args_t *a, uint32_t *list) {
    uint32_t cnt = 0;
    uint32_t most = !strcmp(a->set, "ablate") || a->ways ? WAY_CNT : (uint32_t)WAY_MAIN_CNT;
    for (uint32_t i = 0; i < most; i++) {
        if (!a->ways || is_named(a->ways, way_list[i].name)) list[cnt++] = i;
    }
    return cnt;
}

static void profile(bench_t *b, const point_t *p, const uint32_t *list, uint32_t cnt) {
    for (uint32_t k = 0; k < cnt; k++) {
        bench_launch(b, list[k]);
        OK(cudaStreamSynchronize(b->stream));
        printf("profile %s %u %u %u %s\n", p->model, p->ctx, p->chunk, p->batch,
               way_list[list[k]].name);
        OK(cudaProfilerStart());
        bench_launch(b, list[k]);
        OK(cudaStreamSynchronize(b->stream));
        OK(cudaProfilerStop());
    }
}

// Seconds of load: attention alone, and between a layer's products.
static void load(bench_t *b, const args_t *a, const point_t *p, const uint32_t *list,
                 uint32_t cnt) {
    steady_t s;
    const uint32_t dependent = a->knob.is_dependent;
    int is_layer = a->layer_s > 0 && layer_open(b);
    for (uint32_t k = 0; k < cnt; k++) {
        const char *name = way_list[list[k]].name;
        if (list[k] != SERIAL && list[k] != STREAMS_DP && list[k] != FUSED) continue;
        if (a->steady_s > 0 && steady_run(b, bench_launch, list[k], a->steady_s, &s))
            row_steady(a->out, p, "steady", name, dependent, &s);
        if (is_layer && steady_run(b, layer_run, list[k], a->layer_s, &s))
            row_steady(a->out, p, "layer", name, dependent, &s);
    }
    if (is_layer && cnt && steady_run(b, layer_products_run, list[0], a->layer_s, &s))
        row_steady(a->out, p, "layer", "products", dependent, &s);
}

int main(int argc, char **argv) {
    static bench_t b;
    static args_t a;
    parse(argc, argv, &a);
    setvbuf(stdout, nullptr, _IOLBF, 0);
    int device_cnt = 0;
    if (cudaGetDeviceCount(&device_cnt) != cudaSuccess || device_cnt == 0) {
        printf("no CUDA device\n");
        return 77;
    }
    bench_open(&b, (uint64_t)a.pool_gb << 30, &a.knob);
    int is_right = 1;
    point_t p;
    for (unsigned i = a.first; i < a.last && point_at(a.set, i, &p); i++) {
        static timing_t t[WAY_CNT];
        if (a.batch) p.batch = a.batch;
        bench_point(&b, &p);
        uint32_t list[WAY_CNT];
        uint32_t all = choose_ways(&a, list);
        uint32_t cnt = 0;
        for (uint32_t k = 0; k < all; k++) {
            if (bench_way(&b, &p, list[k]))
                list[cnt++] = list[k];
            else
                printf("%s is not taken\n", way_list[list[k]].name);
        }
        if (a.is_profile) {
            profile(&b, &p, list, cnt);
            continue;
        }
        if (i == a.first) {
            ceilings_t c = burst_ceilings(&b);
            row_machine(a.out, &b, &c);
            for (uint32_t k = 0; k < cnt; k++) row_resources(a.out, &b, list[k]);
        }
        memset(t, 0, sizeof t);
        burst_measure(&b, list, cnt, &a.rounds, i, t);
        is_right &= row_point(a.out, &b, &p, a.set, list, cnt, t);
        printf("%s %u/%u/%u: prefill %.0f decode %.0f serial %.0f streams %.0f %.0f fused %.0f\n",
               p.model, p.ctx, p.chunk, p.batch, t[PREFILL].us, t[DECODE].us, t[SERIAL].us,
               t[STREAMS_PD].us, t[STREAMS_DP].us, t[FUSED].us);
        if (a.sweep) {
            static sweep_t s;
            sweep_run(&b, &p, a.sweep, &s);
            row_sweep(a.out, &p, &s);
        }
        load(&b, &a, &p, list, cnt);
    }
    if (!is_right) printf("COUNTERS DIFFER FROM A PLAN\n");
    return is_right ? 0 : 1;
}
