/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the batch that tries kernels at start passes an attention that is
   right and fails each one that has a fault.
   Method: an attention in C that reads the trial's pools, tables and parts as
   a device does, written apart from the reference; then the same with one
   fault planted at a time, over shapes of every element type and page size. */
#include "kernels/ref/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "kernels/ref/e4m3.h"

typedef enum fault {
    NONE,
    /* of both */
    WRONG_PAGE,      /* the table's first entry stands for all */
    WRONG_HEAD,      /* K of the next KV head */
    SHORT,           /* the last key is left out */
    NO_SCALE,        /* of the scores */
    UNWRITTEN,       /* one element of out stays as it was */
    BOTH_CNT,        /* --- */
    SEES_AHEAD,      /* a slice's row sees one key too many */
    WHOLE_CNT,       /* --- */
    LOST_PART,       /* the last partial sum is not added */
    NOT_TURNED,      /* q is not rotated */
    TURNED_BACK,     /* k is rotated the other way */
    TURNED_LATE,     /* k by the angle of the next position */
    NO_APPEND,       /* K is attended to but not kept */
    APPEND_TOO_MUCH, /* V is kept, and in the next row too */
    FAULT_CNT
} fault_t;

typedef struct model {
    tdm_trial_t t;
    fault_t fault;
    double *q; /* [row][nhead_q][head_dim] */
} model_t;

static double elem(const void *from, uint64_t i, uint32_t dtype) {
    if (dtype == TDM_POD_E4M3) return (double)tdm_e4m3_to_float(((const uint8_t *)from)[i]);
    uint32_t h = ((const uint16_t *)from)[i];
    if (dtype == TDM_POD_BF16) {
        uint32_t bits = h << 16;
        float v;
        memcpy(&v, &bits, sizeof v);
        return (double)v;
    }
    double v = ldexp((double)((h & 0x3ff) | (h & 0x7c00 ? 0x400 : 0)),
                     (h & 0x7c00 ? (int)(h >> 10 & 31) : 1) - 25);
    return h & 0x8000 ? -v : v;
}

/* A double to the nearest bf16 or half, for results of any ordinary size. */
static uint16_t rounded(double v, uint32_t dtype) {
    if (v == 0.0) return signbit(v) ? 0x8000u : 0u; /* a zero keeps its sign, as in a device */
    int exponent, bits = dtype == TDM_POD_BF16 ? 8 : 11, bias = dtype == TDM_POD_BF16 ? 127 : 15;
    double m = frexp(fabs(v), &exponent);             /* m in [1/2, 1) */
    uint32_t q = (uint32_t)nearbyint(ldexp(m, bits)); /* with the leading one */
    if (exponent + bias - 1 <= 0) return 0;           /* too small to tell */
    uint32_t h = ((uint32_t)(exponent + bias - 1) << (bits - 1)) + q - (1u << (bits - 1));
    return (uint16_t)(h | (v < 0.0 ? 0x8000u : 0u));
}

static uint64_t pool_at(const model_t *m, uint32_t s, uint32_t tok, uint32_t h) {
    const tdm_pod_shape_t *p = m->t.shape;
    uint32_t nth = m->fault == WRONG_PAGE ? 0 : tok / p->page_tok;
    uint64_t page = m->t.table[s * m->t.table_stride + nth];
    return ((page * p->nhead_kv + h) * p->page_tok + tok % p->page_tok) * p->head_dim;
}

static double part_sum(const model_t *m, uint64_t at) {
    double sum = 0.0;
    for (uint32_t p = 0; p < TDM_TRIAL_PART - (m->fault == LOST_PART); p++)
        sum += (double)m->t.qkv[p * m->t.part_stride + at];
    return sum;
}

/* A head of a product, added up and, with a position, rotated. */
static void head_of(const model_t *m, uint64_t at, int pos, double sign, double *out) {
    uint32_t half = m->t.shape->head_dim / 2;
    for (uint32_t d = 0; d < half; d++) {
        double x = part_sum(m, at + d), y = part_sum(m, at + half + d), c = 1.0, s = 0.0;
        if (pos >= 0) {
            c = (double)m->t.turn[(uint64_t)pos * 2 * half + d];
            s = sign * (double)m->t.turn[(uint64_t)pos * 2 * half + half + d];
        }
        out[d] = x * c - y * s;
        out[half + d] = y * c + x * s;
    }
}

static void append(model_t *m, uint32_t s) {
    const tdm_pod_shape_t *p = m->t.shape;
    uint32_t pos = m->t.seq[s].kv_cnt - 1, row = m->t.seq[s].row;
    uint64_t width = p->nhead_q + 2 * p->nhead_kv;
    double head[256];
    for (uint32_t h = 0; h < p->nhead_q; h++) {
        head_of(m, (row * width + h) * p->head_dim, m->fault == NOT_TURNED ? -1 : (int)pos, 1.0,
                head);
        memcpy(m->q + ((uint64_t)row * p->nhead_q + h) * p->head_dim, head,
               p->head_dim * sizeof *head);
    }
    for (uint32_t h = 0; h < 2 * p->nhead_kv; h++) {
        int is_v = h >= p->nhead_kv;
        uint32_t late = m->fault == TURNED_LATE && pos + 1 < TDM_TRIAL_KV_MAX;
        head_of(m, (row * width + p->nhead_q + h) * p->head_dim, is_v ? -1 : (int)(pos + late),
                m->fault == TURNED_BACK ? -1.0 : 1.0, head);
        uint16_t *to =
            (uint16_t *)(void *)m->t.kv[is_v] + pool_at(m, s, pos, is_v ? h - p->nhead_kv : h);
        for (uint32_t d = 0; d < p->head_dim; d++) {
            to[d] = rounded(head[d], TDM_POD_BF16);
            if (m->fault == APPEND_TOO_MUCH && is_v && (pos + 1) % p->page_tok)
                to[p->head_dim + d] = to[d];
        }
    }
}

static void attend(model_t *m, uint32_t s, uint32_t tok, uint32_t head, double scale) {
    tdm_trial_t *t = &m->t;
    const tdm_pod_shape_t *p = t->shape;
    const tdm_attn_seq_t *seq = &t->seq[s];
    uint32_t kv = head / (p->nhead_q / p->nhead_kv), row = seq->row + tok;
    uint32_t k_head = m->fault == WRONG_HEAD ? (kv + 1) % p->nhead_kv : kv;
    uint32_t keys = seq->kv_cnt - seq->cnt + tok + 1;
    if (m->fault == SHORT && keys > 1) keys--;
    if (m->fault == SEES_AHEAD && tok + 1 < seq->cnt) keys++;
    uint64_t at = ((uint64_t)row * p->nhead_q + head) * p->head_dim;
    double top = -INFINITY, sum = 0.0, score[TDM_TRIAL_KV_MAX], out[256] = {0};
    for (uint32_t i = 0; i < keys; i++) {
        double dot = 0.0;
        uint64_t k = pool_at(m, s, i, k_head);
        for (uint32_t d = 0; d < p->head_dim; d++)
            dot += m->q[at + d] * elem(t->kv[0], k + d, p->kv_dtype) * (double)t->scale[kv];
        score[i] = dot * (m->fault == NO_SCALE ? 1.0 : scale);
        top = fmax(top, score[i]);
    }
    for (uint32_t i = 0; i < keys; i++) {
        double w = exp(score[i] - top);
        uint64_t v = pool_at(m, s, i, kv);
        sum += w;
        for (uint32_t d = 0; d < p->head_dim; d++)
            out[d] += w * elem(t->kv[1], v + d, p->kv_dtype) * (double)t->scale[p->nhead_kv + kv];
    }
    for (uint32_t d = 0; d < p->head_dim; d++) t->out[at + d] = rounded(out[d] / sum, p->dtype);
    t->lse[(uint64_t)row * p->nhead_q + head] = (float)(top + log(sum));
}

static float judged(const tdm_pod_shape_t *shape, int is_fresh, fault_t fault) {
    static model_t m;
    memset(&m, 0, sizeof m);
    m.fault = fault;
    assert_true(tdm_trial_open(&m.t, shape, is_fresh));
    double scale = 1.0 / sqrt((double)shape->head_dim);
    m.q = calloc(m.t.q_cnt, sizeof *m.q);
    assert_non_null(m.q);
    memset(m.t.out, 0xff, m.t.q_cnt * sizeof *m.t.out);
    for (uint64_t i = 0; i < m.t.q_cnt && !is_fresh; i++) m.q[i] = elem(m.t.q, i, shape->dtype);
    for (uint32_t s = 0; s < m.t.prefill_cnt + m.t.decode_cnt; s++) {
        if (is_fresh) append(&m, s);
        for (uint32_t tok = 0; tok < m.t.seq[s].cnt; tok++)
            for (uint32_t h = 0; h < shape->nhead_q; h++) attend(&m, s, tok, h, scale);
        if (fault == NO_APPEND)
            memset(m.t.kv[0] + 2 * pool_at(&m, s, m.t.seq[s].kv_cnt - 1, 0), 0xff, 2);
    }
    if (fault == UNWRITTEN) m.t.out[m.t.q_cnt - 1] = 0xffff;
    float worst = tdm_trial_judge(&m.t, (float)scale);
    tdm_trial_close(&m.t);
    free(m.q);
    return worst;
}

static const tdm_pod_shape_t shapes[] = {
    {32, 8, 128, TDM_POD_BF16, TDM_POD_BF16, 64, 0}, {9, 3, 64, TDM_POD_BF16, TDM_POD_BF16, 16, 0},
    {8, 2, 64, TDM_POD_F16, TDM_POD_F16, 32, 0},     {8, 2, 96, TDM_POD_BF16, TDM_POD_E4M3, 64, 0},
    {4, 2, 256, TDM_POD_F16, TDM_POD_F16, 128, 0},
};

static void try_faults(int is_fresh, fault_t begin, fault_t end) {
    for (size_t i = 0; i < TDM_COUNT_OF(shapes); i++) {
        const tdm_pod_shape_t *s = &shapes[i];
        if (is_fresh && (s->dtype != TDM_POD_BF16 || s->kv_dtype != TDM_POD_BF16)) continue;
        float worst = judged(s, is_fresh, NONE);
        printf("  shape %zu: %.3f of what is allowed\n", i, (double)worst);
        assert_true(worst <= 1.0f);
        for (fault_t f = begin; f < end; f++) {
            worst = judged(s, is_fresh, f);
            if (f == BOTH_CNT || f == WHOLE_CNT) continue;
            if (!(worst > 1.5f)) fail_msg("shape %zu, fault %d passes: %g", i, f, (double)worst);
        }
    }
}

static void a_whole_batch_shows_faults(void **state) {
    (void)state;
    try_faults(0, WRONG_PAGE, WHOLE_CNT);
}

static void fresh_rows_show_faults(void **state) {
    (void)state;
    try_faults(1, WRONG_PAGE, BOTH_CNT);
    try_faults(1, LOST_PART, FAULT_CNT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_batch_shows_faults),
        cmocka_unit_test(fresh_rows_show_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
