// SPDX-License-Identifier: Apache-2.0
// A small batch whose every value all element types hold exactly
// (kernels/ref/trial.h), through one variant or the shell of few decodes, and
// against the C reference.
#include <math.h>
#include <string.h>

#include "kernels/attention/portable/context.h"
#include "kernels/plan/health.h"
#include "kernels/plan/plan.h"
#include "kernels/ref/trial.h"

#define SPLIT_TOK 64u  // so that results are merged
#define WHOLE_TOK 256u // so that an item has more keys than its rings hold

// The trial's copy on the device.
typedef struct copy {
    uint8_t *device;
    uint64_t off;
    tdm_pod_layer_t layer;
    void *out;
    void *kv[2];
    tdm_pod_fresh_t fresh;
} copy_t;

// Copies sz bytes behind the others and says where they are.
static cudaError_t put(copy_t *c, const void *from, uint64_t sz, void **at) {
    *at = c->device + c->off;
    c->off += (sz + 255) / 256 * 256;
    return cudaMemcpy(*at, from, sz, cudaMemcpyHostToDevice);
}

static cudaError_t upload(copy_t *c, tdm_trial_t *t) {
    const tdm_pod_shape_t *m = t->shape;
    uint64_t cell_sz = static_cast<uint64_t>(t->row_cnt) * m->nhead_q * 4;
    uint64_t table_sz = static_cast<uint64_t>(t->prefill_cnt + t->decode_cnt) * t->table_stride * 4;
    uint64_t qkv_sz = t->qkv ? TDM_TRIAL_PART * t->part_stride * 4 : 0;
    void *q, *lse, *table, *scale, *qkv = nullptr, *turn = nullptr;
    cudaError_t e =
        cudaMalloc(&c->device, 4 * t->q_cnt + cell_sz + 2 * t->kv_sz + table_sz +
                                   2ull * m->nhead_kv * 4 + qkv_sz + t->turn_cnt * 4 + 9 * 256);
    memset(t->out, 0xff, t->q_cnt * 2);
    memset(t->lse, 0xff, cell_sz);
    if (e == cudaSuccess) e = put(c, t->q, t->q_cnt * 2, &q);
    if (e == cudaSuccess) e = put(c, t->out, t->q_cnt * 2, &c->out);
    if (e == cudaSuccess) e = put(c, t->lse, cell_sz, &lse);
    if (e == cudaSuccess) e = put(c, t->kv[0], t->kv_sz, &c->kv[0]);
    if (e == cudaSuccess) e = put(c, t->kv[1], t->kv_sz, &c->kv[1]);
    if (e == cudaSuccess) e = put(c, t->table, table_sz, &table);
    if (e == cudaSuccess) e = put(c, t->scale, 2ull * m->nhead_kv * 4, &scale);
    if (e == cudaSuccess && t->qkv) e = put(c, t->qkv, qkv_sz, &qkv);
    if (e == cudaSuccess && t->qkv) e = put(c, t->turn, t->turn_cnt * 4, &turn);
    if (e != cudaSuccess) return e;
    c->layer = tdm_pod_layer_t();
    c->layer.q = q;
    c->layer.out = c->out;
    c->layer.lse = static_cast<float *>(lse);
    c->layer.k_pool = c->kv[0];
    c->layer.v_pool = c->kv[1];
    c->layer.page_table = static_cast<const uint32_t *>(table);
    c->layer.table_stride = t->table_stride;
    c->layer.scale = 1.0f / sqrtf(static_cast<float>(m->head_dim));
    c->layer.k_scale = static_cast<const float *>(scale);
    c->layer.v_scale = c->layer.k_scale + m->nhead_kv;
    c->fresh.qkv = static_cast<const float *>(qkv);
    c->fresh.part_stride = t->part_stride;
    c->fresh.part_cnt = TDM_TRIAL_PART;
    c->fresh.turn = static_cast<const float *>(turn);
    return cudaSuccess;
}

static cudaError_t download(const copy_t *c, tdm_trial_t *t) {
    cudaError_t e = cudaMemcpy(t->out, c->out, t->q_cnt * 2, cudaMemcpyDeviceToHost);
    if (e == cudaSuccess) {
        e = cudaMemcpy(t->lse, c->layer.lse,
                       static_cast<uint64_t>(t->row_cnt) * t->shape->nhead_q * 4,
                       cudaMemcpyDeviceToHost);
    }
    for (int i = 0; i < 2 && t->qkv && e == cudaSuccess; i++) {
        e = cudaMemcpy(t->kv[i], c->kv[i], t->kv_sz, cudaMemcpyDeviceToHost);
    }
    return e;
}

// Plans the trial for one variant; is it one that this variant takes?
static bool plan_of(tdm_pod_t *pod, const tdm_trial_t *t, uint32_t variant, uint32_t split_tok,
                    tdm_pod_plan_t *plan) {
    tdm_pod_config_t c = pod->config;
    c.variant = variant;
    c.state = tdm_pod_state_t();
    c.is_off = 0;
    c.decode_split_tok = split_tok;
    tdm_pod_plan_build(&c, t->seq, t->prefill_cnt, t->decode_cnt,
                       t->prefill_cnt ? TDM_ROUTE_FUSED : TDM_ROUTE_DECODE_ONLY, tdm_pod_blob(pod),
                       plan);
    return plan->route != TDM_ROUTE_IDLE && plan->variant == variant;
}

// Judges what a launch left; *event_out is what it says.
static cudaError_t judge(tdm_pod_t *pod, const tdm_pod_plan_t *plan, const copy_t *c,
                         tdm_trial_t *t, uint32_t *event_out, float *worst) {
    tdm_pod_counters_t count;
    cudaError_t e = static_cast<cudaError_t>(tdm_pod_read(pod, plan, &count));
    if (e == cudaSuccess) e = download(c, t);
    if (e != cudaSuccess) return e; // the device context is gone
    *worst = tdm_trial_judge(t, c->layer.scale);
    int is_count = count.merge_cnt == plan->merge_cnt;
    for (int kind = 0; kind < TDM_KIND_CNT; kind++) {
        is_count = is_count && count.vcta_executed[kind] == plan->item_cnt[kind];
    }
    *event_out =
        *worst <= 1.0f && is_count ? TDM_POD_EVENT_SELF_TEST_OK : TDM_POD_EVENT_SELF_TEST_FAILED;
    return cudaSuccess;
}

// Runs the trial through a variant, or with grid > 0 through the shell of few
// decodes; *event_out is what it says.
static cudaError_t run(tdm_pod_t *pod, uint32_t variant, uint32_t grid, uint32_t split_tok,
                       tdm_trial_t *t, uint32_t *event_out, float *worst) {
    tdm_pod_plan_t plan;
    copy_t c = copy_t();
    if (!plan_of(pod, t, variant, split_tok, &plan)) return cudaErrorNotSupported;
    cudaError_t e = upload(&c, t);
    if (e == cudaSuccess) e = static_cast<cudaError_t>(tdm_pod_upload(pod, &plan, nullptr));
    if (e == cudaSuccess) e = cudaDeviceSynchronize();
    if (e == cudaSuccess) {
        uint32_t way = variant == TDM_POD_VARIANT_PLAIN ? TDM_POD_WAY_SERIAL : TDM_POD_WAY_FUSED;
        int refused = grid ? tdm_pod_launch_fresh(pod, &plan, &c.layer, &c.fresh, grid, nullptr)
                           : tdm_pod_launch(pod, &plan, &c.layer, way, 0, nullptr);
        *event_out = TDM_POD_EVENT_KERNEL_ERROR;
        if (!refused) e = judge(pod, &plan, &c, t, event_out, worst);
    }
    (void)cudaFree(c.device);
    return e;
}

int tdm_pod_self_test(tdm_pod_t *pod, uint32_t variant, tdm_pod_state_t *state, uint64_t it,
                      float *worst_out) {
    tdm_trial_t t;
    uint32_t event = TDM_POD_EVENT_CNT;
    float worst = INFINITY;
    cudaError_t e = cudaErrorMemoryAllocation;
    if (tdm_trial_open(&t, &pod->config.shape, 0)) {
        e = run(pod, variant, 0, SPLIT_TOK, &t, &event, &worst);
    }
    tdm_trial_close(&t);
    if (e == cudaSuccess) tdm_pod_health_tell(state, variant, event, it);
    if (worst_out) *worst_out = worst;
    return e;
}

int tdm_pod_self_test_fresh(tdm_pod_t *pod, uint32_t grid, int *is_right_out, float *worst_out) {
    static const uint32_t split[] = {SPLIT_TOK, WHOLE_TOK};
    cudaError_t e = cudaSuccess;
    uint32_t right_cnt = 0, run_cnt = 0;
    *worst_out = 0.0f;
    for (uint32_t tok : split) {
        tdm_trial_t t;
        tdm_pod_plan_t plan;
        uint32_t event = TDM_POD_EVENT_CNT;
        float worst = INFINITY;
        if (e != cudaSuccess) break;
        e = cudaErrorMemoryAllocation;
        if (tdm_trial_open(&t, &pod->config.shape, 1)) {
            e = cudaSuccess;
            if (plan_of(pod, &t, TDM_POD_VARIANT_PORTABLE, tok, &plan) &&
                plan.item_cnt[TDM_KIND_DECODE] <= grid) {
                e = run(pod, TDM_POD_VARIANT_PORTABLE, grid, tok, &t, &event, &worst);
                run_cnt++;
                right_cnt += event == TDM_POD_EVENT_SELF_TEST_OK;
                *worst_out = fmaxf(*worst_out, worst);
            }
        }
        tdm_trial_close(&t);
    }
    *is_right_out = run_cnt > 0 && right_cnt == run_cnt;
    return e;
}
