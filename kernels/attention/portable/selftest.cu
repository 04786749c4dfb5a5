// SPDX-License-Identifier: Apache-2.0
// A small batch whose every value all element types hold exactly, through
// one variant, and against the C reference.
#include <cuda_fp16.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attention/portable/context.h"
#include "kernels/plan/health.h"
#include "kernels/plan/plan.h"
#include "kernels/ref/attention_ref.h"
#include "kernels/ref/e4m3.h"

#define SEQ_CNT   5u
#define KV_MAX    200u
#define PAGE_MAX  ((KV_MAX + 15) / 16) // of one sequence, at 16 tokens
#define REF_PAGE  ((KV_MAX + 63) / 64)
#define SPLIT_TOK 64u // so that results are merged

// Two slices, one of them from position 0, and three decodes.
static const tdm_attn_seq_t seq[SEQ_CNT] = {
    {0, 150, 9, 0}, {1, 5, 5, 9}, {2, 1, 1, 14}, {3, 65, 1, 15}, {4, KV_MAX, 1, 16}};
#define PREFILL_CNT 2u
#define ROW_CNT     17u

// Eighths within [-1, 1].
static float value_at(uint64_t n) {
    n = (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
    n = (n ^ (n >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (static_cast<float>(n >> 40 & 15) - 7.0f) * 0.125f;
}

static void store(void *to, uint64_t i, uint32_t dtype, float v) {
    if (dtype == TDM_POD_E4M3) {
        static_cast<uint8_t *>(to)[i] = tdm_e4m3_from_float(v);
    } else if (dtype == TDM_POD_F16) {
        static_cast<__half *>(to)[i] = __float2half(v);
    } else {
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        static_cast<uint16_t *>(to)[i] = static_cast<uint16_t>(bits >> 16);
    }
}

static float load(const uint16_t *from, uint64_t i, uint32_t dtype) {
    if (dtype == TDM_POD_F16) return __half2float(reinterpret_cast<const __half *>(from)[i]);
    uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

// Host memory of the test, and its copy on the device.
typedef struct trial {
    const tdm_pod_shape_t *shape;
    uint64_t q_cnt;  // elements of q and out
    uint64_t kv_cnt; // of a device pool
    uint64_t ref_cnt;
    uint16_t *q, *out;
    float *lse;
    uint8_t *kv[2];
    uint32_t table[SEQ_CNT * PAGE_MAX];
    float *scale; // [2][nhead_kv]
    float *ref_q, *ref_kv[2];
    double *want, *want_lse;
    uint8_t *device;
} trial_t;

static uint64_t elem_sz(const trial_t *t) {
    return t->shape->kv_dtype == TDM_POD_E4M3 ? 1 : 2;
}

static void fill_kv(trial_t *t, int is_v) {
    const tdm_pod_shape_t *m = t->shape;
    for (uint32_t s = 0; s < SEQ_CNT; s++) {
        for (uint32_t tok = 0; tok < seq[s].kv_cnt; tok++) {
            uint64_t page = t->table[s * PAGE_MAX + tok / m->page_tok];
            for (uint32_t h = 0; h < m->nhead_kv; h++) {
                uint64_t to =
                    ((page * m->nhead_kv + h) * m->page_tok + tok % m->page_tok) * m->head_dim;
                uint64_t ref =
                    ((static_cast<uint64_t>(s * REF_PAGE + tok / 64) * m->nhead_kv + h) * 64 +
                     tok % 64) *
                    m->head_dim;
                for (uint32_t d = 0; d < m->head_dim; d++) {
                    float v = value_at(2 * (ref + d) + static_cast<uint64_t>(is_v) + (1u << 30));
                    store(t->kv[is_v], to + d, m->kv_dtype, v);
                    t->ref_kv[is_v][ref + d] = v * t->scale[is_v ? m->nhead_kv + h : h];
                }
            }
        }
    }
}

static int trial_open(trial_t *t, const tdm_pod_shape_t *m) {
    memset(t, 0, sizeof *t);
    t->shape = m;
    t->q_cnt = static_cast<uint64_t>(ROW_CNT) * m->nhead_q * m->head_dim;
    t->kv_cnt = static_cast<uint64_t>(SEQ_CNT * PAGE_MAX) * m->nhead_kv * m->page_tok * m->head_dim;
    t->ref_cnt = static_cast<uint64_t>(SEQ_CNT * REF_PAGE) * m->nhead_kv * 64 * m->head_dim;
    uint64_t cell = static_cast<uint64_t>(ROW_CNT) * m->nhead_q;
    t->q = static_cast<uint16_t *>(calloc(t->q_cnt, 2));
    t->out = static_cast<uint16_t *>(calloc(t->q_cnt, 2));
    t->lse = static_cast<float *>(calloc(cell, 4));
    t->scale = static_cast<float *>(calloc(2ull * m->nhead_kv, 4));
    t->ref_q = static_cast<float *>(calloc(t->q_cnt, 4));
    t->want = static_cast<double *>(calloc(t->q_cnt, 8));
    t->want_lse = static_cast<double *>(calloc(cell, 8));
    int is_there = t->q && t->out && t->lse && t->scale && t->ref_q && t->want && t->want_lse;
    for (int i = 0; i < 2; i++) {
        t->kv[i] = static_cast<uint8_t *>(calloc(t->kv_cnt, elem_sz(t)));
        t->ref_kv[i] = static_cast<float *>(calloc(t->ref_cnt, 4));
        is_there = is_there && t->kv[i] && t->ref_kv[i];
    }
    if (!is_there) return 0;
    for (uint32_t i = 0; i < 2 * m->nhead_kv; i++) {
        t->scale[i] = m->kv_dtype == TDM_POD_E4M3 ? 0.5f + 0.25f * static_cast<float>(i % 3) : 1.0f;
    }
    for (uint32_t i = 0; i < SEQ_CNT * PAGE_MAX; i++) t->table[i] = SEQ_CNT * PAGE_MAX - 1 - i;
    for (uint64_t i = 0; i < t->q_cnt; i++) {
        t->ref_q[i] = value_at(i);
        store(t->q, i, m->dtype, t->ref_q[i]);
    }
    fill_kv(t, 0);
    fill_kv(t, 1);
    return 1;
}

static void trial_close(trial_t *t) {
    void *all[] = {t->q,        t->out,   t->lse,   t->scale,     t->ref_q,    t->want,
                   t->want_lse, t->kv[0], t->kv[1], t->ref_kv[0], t->ref_kv[1]};
    for (void *p : all) free(p);
    (void)cudaFree(t->device);
}

// Copies sz bytes behind *off and says where they are.
static cudaError_t put(trial_t *t, uint64_t *off, const void *from, uint64_t sz, void **at) {
    *at = t->device + *off;
    *off += (sz + 255) / 256 * 256;
    return cudaMemcpy(*at, from, sz, cudaMemcpyHostToDevice);
}

static cudaError_t trial_upload(trial_t *t, tdm_pod_layer_t *layer) {
    const tdm_pod_shape_t *m = t->shape;
    uint64_t kv_sz = t->kv_cnt * elem_sz(t);
    uint64_t cell_sz = static_cast<uint64_t>(ROW_CNT) * m->nhead_q * 4;
    uint64_t off = 0;
    void *at[7];
    cudaError_t e = cudaMalloc(&t->device, 4 * t->q_cnt + cell_sz + 2 * kv_sz + sizeof t->table +
                                               2ull * m->nhead_kv * 4 + 7 * 256);
    if (e == cudaSuccess) e = put(t, &off, t->q, t->q_cnt * 2, &at[0]);
    memset(t->out, 0xff, t->q_cnt * 2);
    if (e == cudaSuccess) e = put(t, &off, t->out, t->q_cnt * 2, &at[1]);
    if (e == cudaSuccess) e = put(t, &off, t->lse, cell_sz, &at[2]);
    if (e == cudaSuccess) e = put(t, &off, t->kv[0], kv_sz, &at[3]);
    if (e == cudaSuccess) e = put(t, &off, t->kv[1], kv_sz, &at[4]);
    if (e == cudaSuccess) e = put(t, &off, t->table, sizeof t->table, &at[5]);
    if (e == cudaSuccess) e = put(t, &off, t->scale, 2ull * m->nhead_kv * 4, &at[6]);
    if (e != cudaSuccess) return e;
    *layer = tdm_pod_layer_t();
    layer->q = at[0];
    layer->out = at[1];
    layer->lse = static_cast<float *>(at[2]);
    layer->k_pool = at[3];
    layer->v_pool = at[4];
    layer->page_table = static_cast<const uint32_t *>(at[5]);
    layer->table_stride = PAGE_MAX;
    layer->scale = 1.0f / sqrtf(static_cast<float>(m->head_dim));
    layer->k_scale = static_cast<const float *>(at[6]);
    layer->v_scale = layer->k_scale + m->nhead_kv;
    return cudaSuccess;
}

// The largest error in parts of what is allowed: an output may be off by
// the type's step of the largest |V| and 1e-3, an lse by 1e-3.
static float trial_judge(trial_t *t, float scale) {
    const tdm_pod_shape_t *m = t->shape;
    uint32_t table[SEQ_CNT * REF_PAGE];
    double score[KV_MAX];
    for (uint32_t i = 0; i < SEQ_CNT * REF_PAGE; i++) table[i] = i;
    tdm_attn_plan_t plan = tdm_attn_plan_t();
    plan.seq = seq;
    plan.seq_cnt = SEQ_CNT;
    tdm_attn_launch_t l = tdm_attn_launch_t();
    l.plan = &plan;
    l.q = t->ref_q;
    l.k_pool = t->ref_kv[0];
    l.v_pool = t->ref_kv[1];
    l.page_table = table;
    l.table_stride = REF_PAGE;
    l.scale = scale;
    tdm_kv_layout_t layout = {SEQ_CNT * REF_PAGE, m->nhead_kv, m->head_dim, TDM_KV_F32};
    tdm_attn_ref(&l, &layout, m->nhead_q, score, t->want, t->want_lse);
    double step = m->dtype == TDM_POD_BF16 ? 1.0 / 256 : 1.0 / 2048;
    double worst = 0;
    for (uint64_t i = 0; i < t->q_cnt; i++) {
        double d = fabs(static_cast<double>(load(t->out, i, m->dtype)) - t->want[i]);
        if (!(d <= worst * (step + 1e-3))) worst = isnan(d) ? INFINITY : d / (step + 1e-3);
    }
    for (uint64_t i = 0; i < static_cast<uint64_t>(ROW_CNT) * m->nhead_q; i++) {
        double d = fabs(static_cast<double>(t->lse[i]) - t->want_lse[i]) / 1e-3;
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
    }
    return static_cast<float>(worst);
}

// Runs the trial; *event_out is what it says of the variant.
static cudaError_t trial_run(tdm_pod_t *pod, uint32_t variant, trial_t *t, uint32_t *event_out,
                             float *worst) {
    tdm_pod_config_t c = pod->config;
    tdm_pod_plan_t plan;
    tdm_pod_layer_t layer;
    tdm_pod_counters_t count;
    c.variant = variant;
    c.state = tdm_pod_state_t();
    c.is_off = 0;
    c.decode_split_tok = SPLIT_TOK;
    tdm_pod_plan_build(&c, seq, PREFILL_CNT, SEQ_CNT - PREFILL_CNT, TDM_ROUTE_FUSED, pod->host_blob,
                       &plan);
    if (plan.route == TDM_ROUTE_IDLE || plan.variant != variant) return cudaErrorNotSupported;
    cudaError_t e = trial_upload(t, &layer);
    if (e == cudaSuccess) e = static_cast<cudaError_t>(tdm_pod_upload(pod, &plan, nullptr));
    if (e == cudaSuccess) e = cudaDeviceSynchronize();
    if (e != cudaSuccess) return e;
    uint32_t way = variant == TDM_POD_VARIANT_PLAIN ? TDM_POD_WAY_SERIAL : TDM_POD_WAY_FUSED;
    *event_out = TDM_POD_EVENT_KERNEL_ERROR;
    if (tdm_pod_launch(pod, &plan, &layer, way, 0, nullptr) != 0) return cudaSuccess;
    e = static_cast<cudaError_t>(tdm_pod_read(pod, &plan, &count));
    if (e != cudaSuccess) return e; // the device context is gone
    if (e == cudaSuccess) e = cudaMemcpy(t->out, layer.out, t->q_cnt * 2, cudaMemcpyDeviceToHost);
    if (e == cudaSuccess) {
        e = cudaMemcpy(t->lse, layer.lse, static_cast<uint64_t>(ROW_CNT) * c.shape.nhead_q * 4,
                       cudaMemcpyDeviceToHost);
    }
    if (e != cudaSuccess) return e;
    *worst = trial_judge(t, layer.scale);
    int is_count = count.merge_cnt == plan.merge_cnt;
    for (int kind = 0; kind < TDM_KIND_CNT; kind++) {
        is_count = is_count && count.vcta_executed[kind] == plan.item_cnt[kind];
    }
    *event_out =
        *worst <= 1.0f && is_count ? TDM_POD_EVENT_SELF_TEST_OK : TDM_POD_EVENT_SELF_TEST_FAILED;
    return cudaSuccess;
}

int tdm_pod_self_test(tdm_pod_t *pod, uint32_t variant, tdm_pod_state_t *state, uint64_t it,
                      float *worst_out) {
    trial_t t;
    uint32_t event = TDM_POD_EVENT_CNT;
    float worst = INFINITY;
    cudaError_t e = cudaErrorMemoryAllocation;
    if (trial_open(&t, &pod->config.shape)) e = trial_run(pod, variant, &t, &event, &worst);
    trial_close(&t);
    if (e == cudaSuccess) tdm_pod_health_tell(state, variant, event, it);
    if (worst_out) *worst_out = worst;
    return e;
}
