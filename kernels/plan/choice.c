/* SPDX-License-Identifier: Apache-2.0 */
/* Which route a hybrid batch takes: fused, two streams or serial, whichever
   is predicted to be the fastest.  The rule was measured on an H200
   (tests/perf/results/attention_portable.md). */
#include "kernels/plan/plan_private.h"

/* Two streams with half of the slots each beat one launch by 2 to 8 % where
   decode is the longer half and its items fill its half of the warps less
   than twice: nothing is left that prefill's CTAs could take evenly when
   they are done.  Their two launches and events cost some 10 us more, so
   shorter decodes are not worth it. */
#define STREAMS_PREFILL_SHARE 0.9f
#define STREAMS_ROUND_MAX     2u
#define STREAMS_DECODE_US     150.0f

/* Where the two are predicted within 3 % of each other fused measured faster
   at every point. */
#define SERIAL_GAIN 1.03f

/* Of Hopper's launches those with little to decode gain least, and what is left
   of their last round is foreseen worst: 32K/1024/3 of 4 KV heads was to take
   0.95 of serial and took 1.04.  Below a twelfth a predicted gain must be sure. */
#define LITTLE_DECODE (1.0f / 12.0f)
#define SURE_GAIN     0.94f

static int is_better_on_streams(const work_t *w) {
    float decode_us;
    uint64_t item = 0;
    uint32_t len = tdm_pod_decode_cut(w, TDM_ROUTE_STREAMS, &decode_us);
    if (decode_us < STREAMS_DECODE_US) return 0;
    if (w->plan->pred_us[TDM_KIND_PREFILL] > STREAMS_PREFILL_SHARE * decode_us) return 0;
    for (uint32_t i = 0; i < w->try_cnt; i++) {
        if (w->decode_try[i].len == len) item = w->decode_try[i].item_cnt;
    }
    item *= w->config->shape.nhead_kv;
    return item && item <= STREAMS_ROUND_MAX * (uint64_t)(w->plan->grid * TDM_POD_PACK / 2);
}

uint32_t tdm_pod_choose(const work_t *w) {
    tdm_pod_plan_t *p = w->plan;
    float prefill_us;
    float decode_us;
    if (p->variant == TDM_POD_VARIANT_HOPPER) { /* its survey has predicted both */
        int is_little = p->pred_us[TDM_KIND_DECODE] < LITTLE_DECODE * p->serial_us;
        float most = (is_little ? SURE_GAIN : 1.0f) * p->serial_us;
        return p->fused_us > most ? TDM_ROUTE_SERIAL : TDM_ROUTE_FUSED;
    }
    if (p->variant != TDM_POD_VARIANT_PORTABLE) return TDM_ROUTE_FUSED;
    (void)tdm_pod_decode_cut(w, TDM_ROUTE_SERIAL, &decode_us);
    (void)tdm_pod_prefill_cut(w, TDM_ROUTE_SERIAL, 0.0f, &prefill_us);
    p->serial_us = prefill_us + decode_us;
    (void)tdm_pod_decode_cut(w, TDM_ROUTE_FUSED, &decode_us);
    (void)tdm_pod_prefill_cut(w, TDM_ROUTE_FUSED, decode_us, &p->fused_us);
    if (is_better_on_streams(w)) return TDM_ROUTE_STREAMS;
    return p->fused_us > SERIAL_GAIN * p->serial_us ? TDM_ROUTE_SERIAL : TDM_ROUTE_FUSED;
}
