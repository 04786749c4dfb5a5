/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "appliance/base/size.h"
#include "kernels/ref/attention_ref.h"
#include "kernels/ref/e4m3.h"

#define KV_MAX   TDM_TRIAL_KV_MAX
#define REF_PAGE ((KV_MAX + 63) / 64)
#define SEQ_MAX  5u

static const tdm_attn_seq_t whole_seq[SEQ_MAX] = {
    {0, 150, 9, 0}, {1, 5, 5, 9}, {2, 1, 1, 14}, {3, 65, 1, 15}, {4, KV_MAX, 1, 16}};
/* The newest token alone, last of a page, first of the next, and past a ring. */
static const tdm_attn_seq_t fresh_seq[] = {
    {0, 1, 1, 0}, {1, 64, 1, 1}, {2, 65, 1, 2}, {3, KV_MAX, 1, 3}};

/* Eighths within [-1, 1]. */
static float value_at(uint64_t n) {
    n = (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
    n = (n ^ (n >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return ((float)(n >> 40 & 15) - 7.0f) * 0.125f;
}

/* Every value is 0 or an eighth within [-1, 1]: no half but an ordinary one. */
static uint16_t half_of(uint32_t bits) {
    if ((bits & 0x7fffffffu) == 0) return (uint16_t)(bits >> 16);
    return (uint16_t)((bits >> 16 & 0x8000u) | ((bits >> 23 & 0xffu) - 112u) << 10 |
                      (bits >> 13 & 0x3ffu));
}

static float half_value(uint16_t h) {
    int exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    float v = exponent == 31 ? (mantissa ? NAN : INFINITY)
              : exponent     ? ldexpf((float)(1024 + mantissa), exponent - 25)
                             : ldexpf((float)mantissa, -24);
    return h & 0x8000 ? -v : v;
}

static void store(void *to, uint64_t i, uint32_t dtype, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (dtype == TDM_POD_E4M3)
        ((uint8_t *)to)[i] = tdm_e4m3_from_float(v);
    else
        ((uint16_t *)to)[i] = dtype == TDM_POD_F16 ? half_of(bits) : (uint16_t)(bits >> 16);
}

static float load(const uint16_t *from, uint64_t i, uint32_t dtype) {
    if (dtype == TDM_POD_F16) return half_value(from[i]);
    uint32_t bits = (uint32_t)from[i] << 16;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* --- K, V and q as the reference reads them, and as a device does ------------ */

static uint32_t seq_cnt(const tdm_trial_t *t) {
    return t->prefill_cnt + t->decode_cnt;
}

/* Of token tok of sequence s, KV head h: its first element in a pool. */
static uint64_t pool_at(const tdm_trial_t *t, uint32_t s, uint32_t tok, uint32_t h) {
    const tdm_pod_shape_t *m = t->shape;
    uint64_t page = t->table[s * t->table_stride + tok / m->page_tok];
    return ((page * m->nhead_kv + h) * m->page_tok + tok % m->page_tok) * m->head_dim;
}

static uint64_t ref_at(const tdm_trial_t *t, uint32_t s, uint32_t tok, uint32_t h) {
    const tdm_pod_shape_t *m = t->shape;
    uint64_t page = s * REF_PAGE + tok / 64;
    return ((page * m->nhead_kv + h) * 64 + tok % 64) * m->head_dim;
}

static void fill_kv(tdm_trial_t *t, int is_v) {
    const tdm_pod_shape_t *m = t->shape;
    for (uint32_t s = 0; s < seq_cnt(t); s++)
        for (uint32_t tok = 0; tok < t->seq[s].kv_cnt; tok++)
            for (uint32_t h = 0; h < m->nhead_kv; h++) {
                uint64_t to = pool_at(t, s, tok, h), ref = ref_at(t, s, tok, h);
                for (uint32_t d = 0; d < m->head_dim; d++) {
                    float v = value_at(2 * (ref + d) + (uint64_t)is_v + (1u << 30));
                    store(t->kv[is_v], to + d, m->kv_dtype, v);
                    t->ref_kv[is_v][ref + d] = v * t->scale[is_v ? m->nhead_kv + h : h];
                }
            }
}

/* --- a fresh one --------------------------------------------------------------- */

/* Dimension d of the first half turns by so many quarters at a position. */
static uint32_t quarters(uint32_t pos, uint32_t d) {
    return (7 * pos + 3 * d + (pos >> 3)) & 3;
}

static void fill_turn(tdm_trial_t *t) {
    static const float cosine[4] = {1.0f, 0.0f, -1.0f, 0.0f}, sine[4] = {0.0f, 1.0f, 0.0f, -1.0f};
    uint32_t dim = t->shape->head_dim;
    for (uint32_t pos = 0; pos < KV_MAX; pos++)
        for (uint32_t d = 0; d < dim / 2; d++) {
            t->turn[(uint64_t)pos * dim + d] = cosine[quarters(pos, d)];
            t->turn[(uint64_t)pos * dim + dim / 2 + d] = sine[quarters(pos, d)];
        }
}

/* put leaves one value in its parts. */
static void put(tdm_trial_t *t, uint64_t at, float v) {
    for (uint32_t p = 1; p < TDM_TRIAL_PART; p++) {
        float part = value_at(at * TDM_TRIAL_PART + p + (UINT64_C(1) << 40));
        t->qkv[p * t->part_stride + at] = part;
        v -= part;
    }
    t->qkv[at] = v;
}

/* put_head turns a head back to where its product left it. */
static void put_head(tdm_trial_t *t, uint64_t at, const float *head, uint32_t pos, int is_turned) {
    uint32_t half = t->shape->head_dim / 2;
    const float *turn = t->turn + (uint64_t)pos * 2 * half;
    for (uint32_t d = 0; d < half; d++) {
        float x = head[d], y = head[half + d], c = turn[d], s = turn[half + d];
        put(t, at + d, is_turned ? x * c + y * s : x);
        put(t, at + half + d, is_turned ? y * c - x * s : y);
    }
}

/* fill_fresh moves what the product of the newest tokens yields out of q and
   the pools. */
static void fill_fresh(tdm_trial_t *t) {
    const tdm_pod_shape_t *m = t->shape;
    uint32_t width = m->nhead_q + 2 * m->nhead_kv;
    fill_turn(t);
    for (int i = 0; i < 2; i++) memcpy(t->kv_want[i], t->kv[i], t->kv_sz);
    for (uint32_t s = 0; s < seq_cnt(t); s++) {
        uint32_t pos = t->seq[s].kv_cnt - 1, row = t->seq[s].row;
        for (uint32_t h = 0; h < m->nhead_q; h++)
            put_head(t, ((uint64_t)row * width + h) * m->head_dim,
                     t->ref_q + ((uint64_t)row * m->nhead_q + h) * m->head_dim, pos, 1);
        for (uint32_t h = 0; h < 2 * m->nhead_kv; h++) {
            int is_v = h >= m->nhead_kv;
            uint32_t head = is_v ? h - m->nhead_kv : h;
            put_head(t, ((uint64_t)row * width + m->nhead_q + h) * m->head_dim,
                     t->ref_kv[is_v] + ref_at(t, s, pos, head), pos, !is_v);
            memset(t->kv[is_v] + pool_at(t, s, pos, head) * 2, 0xff, (uint64_t)m->head_dim * 2);
        }
    }
    memset(t->q, 0xff, t->q_cnt * 2);
}

/* --- life ---------------------------------------------------------------------- */

static int take_fresh(tdm_trial_t *t) {
    const tdm_pod_shape_t *m = t->shape;
    t->part_stride = (uint64_t)t->row_cnt * (m->nhead_q + 2 * m->nhead_kv) * m->head_dim;
    t->turn_cnt = (uint64_t)KV_MAX * m->head_dim;
    t->qkv = calloc(TDM_TRIAL_PART * t->part_stride, sizeof *t->qkv);
    t->turn = calloc(t->turn_cnt, sizeof *t->turn);
    for (int i = 0; i < 2; i++) t->kv_want[i] = malloc(t->kv_sz);
    return t->qkv && t->turn && t->kv_want[0] && t->kv_want[1];
}

static int take(tdm_trial_t *t, int is_fresh) {
    const tdm_pod_shape_t *m = t->shape;
    uint64_t page_cnt = (uint64_t)seq_cnt(t) * t->table_stride;
    uint64_t cell_cnt = (uint64_t)t->row_cnt * m->nhead_q;
    t->q_cnt = cell_cnt * m->head_dim;
    t->kv_sz =
        page_cnt * m->nhead_kv * m->page_tok * m->head_dim * (m->kv_dtype == TDM_POD_E4M3 ? 1 : 2);
    t->ref_cnt = (uint64_t)seq_cnt(t) * REF_PAGE * m->nhead_kv * 64 * m->head_dim;
    t->q = calloc(t->q_cnt, sizeof *t->q);
    t->out = calloc(t->q_cnt, sizeof *t->out);
    t->lse = calloc(cell_cnt, sizeof *t->lse);
    t->table = calloc(page_cnt, sizeof *t->table);
    t->scale = calloc(2 * (uint64_t)m->nhead_kv, sizeof *t->scale);
    t->ref_q = calloc(t->q_cnt, sizeof *t->ref_q);
    t->want = calloc(t->q_cnt, sizeof *t->want);
    t->want_lse = calloc(cell_cnt, sizeof *t->want_lse);
    int is_there =
        t->q && t->out && t->lse && t->table && t->scale && t->ref_q && t->want && t->want_lse;
    for (int i = 0; i < 2; i++) {
        t->kv[i] = calloc(1, t->kv_sz);
        t->ref_kv[i] = calloc(t->ref_cnt, sizeof *t->ref_kv[i]);
        is_there = is_there && t->kv[i] && t->ref_kv[i];
    }
    return is_there && (!is_fresh || take_fresh(t));
}

int tdm_trial_open(tdm_trial_t *t, const tdm_pod_shape_t *m, int is_fresh) {
    memset(t, 0, sizeof *t);
    t->shape = m;
    t->seq = is_fresh ? fresh_seq : whole_seq;
    t->prefill_cnt = is_fresh ? 0 : 2;
    t->decode_cnt = is_fresh ? (uint32_t)TDM_COUNT_OF(fresh_seq) : 3;
    const tdm_attn_seq_t *last = &t->seq[seq_cnt(t) - 1];
    t->row_cnt = last->row + last->cnt;
    t->table_stride = (uint32_t)tdm_ceil_div(KV_MAX, m->page_tok);
    if (!take(t, is_fresh)) return 0;
    for (uint32_t i = 0; i < 2 * m->nhead_kv; i++)
        t->scale[i] = m->kv_dtype == TDM_POD_E4M3 ? 0.5f + 0.25f * (float)(i % 3) : 1.0f;
    uint32_t page_cnt = seq_cnt(t) * t->table_stride;
    for (uint32_t i = 0; i < page_cnt; i++) t->table[i] = page_cnt - 1 - i;
    for (uint64_t i = 0; i < t->q_cnt; i++) {
        t->ref_q[i] = value_at(i);
        store(t->q, i, m->dtype, t->ref_q[i]);
    }
    fill_kv(t, 0);
    fill_kv(t, 1);
    if (is_fresh) fill_fresh(t);
    return 1;
}

void tdm_trial_close(tdm_trial_t *t) {
    void *all[] = {t->q,         t->out,       t->lse,        t->table,     t->scale, t->ref_q,
                   t->want,      t->qkv,       t->want_lse,   t->turn,      t->kv[0], t->kv[1],
                   t->ref_kv[0], t->ref_kv[1], t->kv_want[0], t->kv_want[1]};
    for (size_t i = 0; i < TDM_COUNT_OF(all); i++) free(all[i]);
    memset(t, 0, sizeof *t);
}

/* --- the judge ------------------------------------------------------------------ */

static void ask_reference(tdm_trial_t *t, float scale) {
    uint32_t table[SEQ_MAX * REF_PAGE];
    double score[KV_MAX];
    for (uint32_t i = 0; i < SEQ_MAX * REF_PAGE; i++) table[i] = i;
    const tdm_attn_plan_t plan = {.seq = t->seq, .seq_cnt = seq_cnt(t)};
    const tdm_attn_launch_t launch = {.plan = &plan,
                                      .q = t->ref_q,
                                      .k_pool = t->ref_kv[0],
                                      .v_pool = t->ref_kv[1],
                                      .page_table = table,
                                      .table_stride = REF_PAGE,
                                      .scale = scale};
    const tdm_kv_layout_t layout = {SEQ_MAX * REF_PAGE, t->shape->nhead_kv, t->shape->head_dim,
                                    TDM_KV_F32};
    tdm_attn_ref(&launch, &layout, t->shape->nhead_q, score, t->want, t->want_lse);
}

/* Whether a bf16 pool is as wanted.  Zeros of either sign are one: where a
   rotation by half a circle meets a zero it leaves a minus zero. */
static int is_kept(const uint8_t *got, const uint8_t *want, uint64_t sz) {
    for (uint64_t i = 0; i < sz; i += 2) {
        uint16_t g, w;
        memcpy(&g, got + i, sizeof g);
        memcpy(&w, want + i, sizeof w);
        if (g != w && ((g | w) & 0x7fff) != 0) return 0;
    }
    return 1;
}

float tdm_trial_judge(tdm_trial_t *t, float scale) {
    uint32_t dtype = t->shape->dtype;
    double step = (dtype == TDM_POD_BF16 ? 1.0 / 256 : 1.0 / 2048) + 1e-3, worst = 0.0;
    ask_reference(t, scale);
    for (uint64_t i = 0; i < t->q_cnt; i++) {
        double d = fabs((double)load(t->out, i, dtype) - t->want[i]) / step;
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
    }
    for (uint64_t i = 0; i < (uint64_t)t->row_cnt * t->shape->nhead_q; i++) {
        double d = fabs((double)t->lse[i] - t->want_lse[i]) / 1e-3;
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
    }
    for (int i = 0; i < 2 && t->kv_want[i]; i++)
        if (!is_kept(t->kv[i], t->kv_want[i], t->kv_sz)) worst = INFINITY;
    return (float)worst;
}
