/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/sample/sample.h"

#include "appliance/abi/limits.h"
#include "appliance/base/rng.h"
#include "appliance/base/size.h"
#include "kernels/sample/exp.h"
#include "kernels/sample/select.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* How many candidates top_p sorts at first, and by what it grows when
   their share does not reach top_p. */
#define NUCLEUS_FIRST  256u
#define NUCLEUS_GROWTH 8u

#define SUM_LANES 8

struct tdm_sampler {
    uint32_t vocab;
    float *logit;    /* [vocab] masked, penalised, divided by temperature */
    float *weight;   /* [vocab] exp(logit - max) */
    uint32_t *count; /* [vocab] zero between rows: occurrences of a token */
    uint64_t *cand;  /* [vocab] */
};

#define COUNT_IN_PROMPT UINT32_C(0x80000000) /* the lower bits count outputs */

static uint64_t array_sz(uint32_t vocab, uint64_t elem_sz) {
    return tdm_size_align((uint64_t)vocab * elem_sz, 64);
}

uint64_t tdm_sampler_footprint(uint32_t vocab) {
    if (vocab == 0 || vocab > TDM_VOCAB_MAX) return 0;
    return tdm_size_align(sizeof(tdm_sampler_t), 64) + 3 * array_sz(vocab, 4) + array_sz(vocab, 8);
}

tdm_sampler_t *tdm_sampler_init(void *mem, uint32_t vocab) {
    uint8_t *p = (uint8_t *)mem;
    tdm_sampler_t *s = (tdm_sampler_t *)mem;
    p += tdm_size_align(sizeof *s, 64);
    s->vocab = vocab;
    s->logit = (float *)(void *)p;
    p += array_sz(vocab, 4);
    s->weight = (float *)(void *)p;
    p += array_sz(vocab, 4);
    s->count = (uint32_t *)(void *)p;
    p += array_sz(vocab, 4);
    s->cand = (uint64_t *)(void *)p;
    memset(s->count, 0, (uint64_t)vocab * sizeof *s->count);
    return s;
}

/* --- sums ----------------------------------------------------------- */

/* is_sound looks for NaN and +inf; -inf is a mask and allowed. */
static int is_sound(const float *x, uint32_t cnt) {
    uint32_t bad = 0;
    for (uint32_t i = 0; i < cnt; i++) bad |= x[i] < INFINITY ? 0u : 1u;
    return bad == 0;
}

static float highest(const float *x, uint32_t cnt) {
    float lane[SUM_LANES];
    for (int l = 0; l < SUM_LANES; l++) lane[l] = -INFINITY;
    uint32_t i = 0;
    for (; i + SUM_LANES <= cnt; i += SUM_LANES)
        for (uint32_t l = 0; l < SUM_LANES; l++) lane[l] = lane[l] > x[i + l] ? lane[l] : x[i + l];
    for (; i < cnt; i++) lane[0] = lane[0] > x[i] ? lane[0] : x[i];
    for (int l = 1; l < SUM_LANES; l++) lane[0] = lane[0] > lane[l] ? lane[0] : lane[l];
    return lane[0];
}

static void weigh(const float *x, uint32_t cnt, float top, float *w) {
    for (uint32_t i = 0; i < cnt; i++) w[i] = tdm_exp_f32(x[i] - top);
}

/* total adds in lanes: element i to lane i % SUM_LANES, lanes in order. */
static double total(const float *w, uint32_t cnt) {
    double lane[SUM_LANES] = {0};
    uint32_t i = 0;
    for (; i + SUM_LANES <= cnt; i += SUM_LANES)
        for (uint32_t l = 0; l < SUM_LANES; l++) lane[l] += (double)w[i + l];
    for (; i < cnt; i++) lane[i % SUM_LANES] += (double)w[i];
    for (int l = 1; l < SUM_LANES; l++) lane[0] += lane[l];
    return lane[0];
}

/* --- units ----------------------------------------------------------- */

/* What decides a draw is counted in whole units, 2^-40 of the most likely
   token: no order of adding shows, here or on a GPU. */
#define UNIT 0x1p40f

static uint64_t units_of(float w) {
    return (uint64_t)llrintf(w * UNIT);
}

/* past: what a part in [0, 1) of sum comes to, at least 1, at most sum. */
static uint64_t past(double part, uint64_t sum) {
    uint64_t goal = (uint64_t)(part * (double)sum) + 1;
    return TDM_MIN(goal, sum);
}

/* --- what changes logits -------------------------------------------- */

static void mask_stop_ids(tdm_sampler_t *s, const tdm_sample_in_t *in) {
    const tdm_sampling_t *p = in->sampling;
    uint32_t out_cnt = in->pos - TDM_MIN(in->pos, in->prompt_cnt);
    if (out_cnt >= p->min_tokens) return;
    for (uint32_t i = 0; i < p->stop_cnt; i++)
        if ((uint32_t)p->stop_id[i] < s->vocab) s->logit[p->stop_id[i]] = -INFINITY;
}

static int has_penalty(const tdm_sampling_t *p) {
    return p->repetition_penalty != 1.0f || p->presence_penalty != 0.0f ||
           p->frequency_penalty != 0.0f;
}

/* penalise counts the history, then visits each distinct token once and
   leaves its counter zero again. */
static void penalise(tdm_sampler_t *s, const tdm_sample_in_t *in) {
    const tdm_sampling_t *p = in->sampling;
    for (uint32_t i = 0; i < in->pos; i++) {
        uint32_t id = (uint32_t)in->history[i];
        if (id >= s->vocab) continue;
        if (i < in->prompt_cnt) {
            s->count[id] |= COUNT_IN_PROMPT;
        } else {
            s->count[id]++;
        }
    }
    for (uint32_t i = 0; i < in->pos; i++) {
        uint32_t id = (uint32_t)in->history[i];
        if (id >= s->vocab || s->count[id] == 0) continue;
        uint32_t out_cnt = s->count[id] & ~COUNT_IN_PROMPT;
        s->count[id] = 0;
        float x = s->logit[id];
        x = x > 0.0f ? x / p->repetition_penalty : x * p->repetition_penalty;
        if (out_cnt > 0) x -= p->presence_penalty + p->frequency_penalty * (float)out_cnt;
        s->logit[id] = x > FLT_MAX ? FLT_MAX : x; /* +inf would make a NaN below */
    }
}

/* --- the draw ------------------------------------------------------- */

static int32_t first_equal(const float *x, uint32_t cnt, float v) {
    for (uint32_t i = 0; i < cnt; i++)
        if (x[i] == v) return (int32_t)i;
    return -1;
}

static int32_t draw_by_id(const tdm_sampler_t *s, float min_weight, double u) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->vocab; i++)
        if (s->weight[i] >= min_weight) sum += units_of(s->weight[i]);
    uint64_t goal = past(u, sum), walked = 0;
    uint32_t i = 0;
    for (; i + 1 < s->vocab; i++) {
        if (s->weight[i] >= min_weight) walked += units_of(s->weight[i]);
        if (walked >= goal) break;
    }
    return (int32_t)i;
}

/* nucleus sorts as few candidates as top_p needs and says how many of
   them, highest first, it keeps.  cand[0, cnt) holds what top_k left. */
static uint32_t nucleus(tdm_sampler_t *s, uint32_t cnt, uint64_t sum, float top_p) {
    if (top_p >= 1.0f) {
        tdm_candidate_sort(s->cand, cnt);
        return cnt;
    }
    uint64_t goal = (uint64_t)ceil((double)sum * (double)top_p);
    goal = TDM_MIN(TDM_MAX(goal, 1u), sum);
    for (uint64_t want = NUCLEUS_FIRST;; want *= NUCLEUS_GROWTH) {
        uint32_t some = (uint32_t)TDM_MIN(want, (uint64_t)cnt);
        if (some < cnt) tdm_candidate_front(s->cand, cnt, some);
        tdm_candidate_sort(s->cand, some);
        uint64_t walked = 0;
        for (uint32_t i = 0; i < some; i++) {
            walked += units_of(s->weight[tdm_candidate_id(s->cand[i])]);
            if (walked >= goal) return i + 1;
        }
        if (some == cnt) return cnt;
    }
}

static int32_t draw_filtered(tdm_sampler_t *s, const tdm_sampling_t *p, double u) {
    uint32_t cnt = 0;
    for (uint32_t i = 0; i < s->vocab; i++)
        if (s->weight[i] > 0.0f) s->cand[cnt++] = tdm_candidate_make(s->logit[i], i);
    if (p->top_k > 0 && (uint32_t)p->top_k < cnt) {
        tdm_candidate_front(s->cand, cnt, (uint32_t)p->top_k);
        cnt = (uint32_t)p->top_k;
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < cnt; i++) sum += units_of(s->weight[tdm_candidate_id(s->cand[i])]);
    cnt = nucleus(s, cnt, sum, p->top_p);
    uint64_t kept = 0;
    for (uint32_t i = 0; i < cnt; i++) {
        float w = s->weight[tdm_candidate_id(s->cand[i])];
        if (w < p->min_p)
            cnt = i; /* the most likely weighs 1, so i > 0 */
        else
            kept += units_of(w);
    }
    uint64_t goal = past(u, kept), walked = 0;
    uint32_t i = 0;
    for (; i + 1 < cnt; i++) {
        walked += units_of(s->weight[tdm_candidate_id(s->cand[i])]);
        if (walked >= goal) break;
    }
    return (int32_t)tdm_candidate_id(s->cand[i]);
}

static int32_t draw(tdm_sampler_t *s, const tdm_sample_in_t *in, float top) {
    const tdm_sampling_t *p = in->sampling;
    if (p->temperature == 0.0f) return first_equal(s->logit, s->vocab, top);
    /* The maximum goes first: a tiny temperature then yields -inf, not NaN. */
    for (uint32_t i = 0; i < s->vocab; i++) s->logit[i] = (s->logit[i] - top) / p->temperature;
    weigh(s->logit, s->vocab, 0.0f, s->weight);
    double u = tdm_rng_unit(tdm_rng_at(p->seed, in->pos));
    if (p->top_k == 0 && p->top_p >= 1.0f) return draw_by_id(s, p->min_p, u);
    return draw_filtered(s, p, u);
}

void tdm_sample_row(tdm_sampler_t *s, const tdm_sample_in_t *in, tdm_sample_out_t *out) {
    const tdm_sampling_t *p = in->sampling;
    *out = (tdm_sample_out_t){.token = -1, .flags = TDM_SAMPLE_NAN};
    if (!is_sound(in->logits, s->vocab)) return;
    float raw_top = highest(in->logits, s->vocab);
    if (!(raw_top > -INFINITY)) return;

    weigh(in->logits, s->vocab, raw_top, s->weight);
    double log_sum = log(total(s->weight, s->vocab));
    memcpy(s->logit, in->logits, (uint64_t)s->vocab * sizeof *s->logit);
    mask_stop_ids(s, in);
    if (has_penalty(p)) penalise(s, in);
    float top = highest(s->logit, s->vocab);
    if (!(top > -INFINITY)) return;

    int32_t token = draw(s, in, top);
    out->token = token;
    out->logprob = (float)((double)in->logits[token] - (double)raw_top - log_sum);
    out->flags = 0;
    if (p->flags & TDM_SAMPLING_IGNORE_EOS) return;
    for (uint32_t i = 0; i < p->stop_cnt; i++)
        if (p->stop_id[i] == token) out->flags = TDM_SAMPLE_STOP_ID;
}

/* --- ranges --------------------------------------------------------- */

static int is_within(float v, float lo, float hi) {
    return v >= lo && v <= hi; /* a NaN is not */
}

const char *tdm_sampling_check(const tdm_sampling_t *p, uint32_t vocab) {
    if (!is_within(p->temperature, 0.0f, 2.0f)) return "temperature";
    if (!is_within(p->top_p, 0.0f, 1.0f) || p->top_p == 0.0f) return "top_p";
    if (!is_within(p->min_p, 0.0f, 1.0f)) return "min_p";
    if (!is_within(p->repetition_penalty, 0.0f, 2.0f) || p->repetition_penalty == 0.0f)
        return "repetition_penalty";
    if (!is_within(p->presence_penalty, -2.0f, 2.0f)) return "presence_penalty";
    if (!is_within(p->frequency_penalty, -2.0f, 2.0f)) return "frequency_penalty";
    if (p->top_k < 0 || (uint32_t)p->top_k > vocab) return "top_k";
    if (p->flags & ~TDM_SAMPLING_IGNORE_EOS) return "flags";
    if (p->stop_cnt > TDM_STOP_ID_MAX) return "stop_cnt";
    for (uint32_t i = 0; i < p->stop_cnt; i++)
        if (p->stop_id[i] < 0 || (uint32_t)p->stop_id[i] >= vocab) return "stop_id";
    return NULL;
}
