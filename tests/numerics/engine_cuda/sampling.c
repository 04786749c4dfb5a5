/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the device's sampler is the C one.  Method: rows of logits of many
   kinds under random settings, histories behind page tables; the token and
   its flags must be those of kernels/sample, the logprob to 2e-5; and the
   same bits again with the batch turned round. */
#include "kernels/cuda/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/sample/sample.h"
#include "tests/numerics/engine_cuda/bench.h"

#define ROWS   24u
#define STRIDE 4u /* pages of a slot: 256 tokens */

static int32_t page_token[ROWS * STRIDE][64];
static uint32_t table[ROWS * STRIDE];
static int32_t history[ROWS][STRIDE * 64];

/* The kinds of rows: smooth, peaked, flat, with many equal values, with
   masks, and not sound. */
static void make_logits(float *x, uint32_t vocab, uint32_t kind, tdm_rng_t *rng) {
    for (uint32_t i = 0; i < vocab; i++) {
        float v = bench_draw(rng);
        switch (kind % 8) {
        case 0: x[i] = 3.0f * v; break;
        case 1: x[i] = v * v * v; break;
        case 2: x[i] = 0.25f; break;
        case 3: x[i] = floorf(2.0f * v); break;
        case 4: x[i] = tdm_rng_below(rng, 3) ? -INFINITY : v; break;
        case 5: x[i] = v == floorf(v) ? 0.0f : -0.0f; break;
        default: x[i] = 8.0f * v; break;
        }
    }
    if (kind % 8 == 4) x[tdm_rng_below(rng, vocab)] = 1.0f;
    if (kind == 14) x[tdm_rng_below(rng, vocab)] = NAN;
    if (kind == 22) x[tdm_rng_below(rng, vocab)] = INFINITY;
    if (kind == 15)
        for (uint32_t i = 0; i < vocab; i++) x[i] = -INFINITY;
}

static float pick(tdm_rng_t *rng, float off, const float *of, uint32_t cnt) {
    return tdm_rng_below(rng, 2) ? off : of[tdm_rng_below(rng, cnt)];
}

static void make_sampling(tdm_sampling_t *s, uint32_t vocab, tdm_rng_t *rng) {
    const float t[] = {0.01f, 0.5f, 1.0f, 2.0f}, p[] = {0.01f, 0.5f, 0.9f, 0.999f};
    const float m[] = {0.001f, 0.1f, 1.0f}, r[] = {0.5f, 1.2f, 2.0f}, f[] = {-1.0f, 0.3f, 2.0f};
    memset(s, 0, sizeof *s);
    s->seed = tdm_rng_next(rng);
    s->temperature = tdm_rng_below(rng, 5) ? t[tdm_rng_below(rng, 4)] : 0.0f;
    s->top_p = pick(rng, 1.0f, p, 4);
    s->min_p = pick(rng, 0.0f, m, 3);
    s->repetition_penalty = pick(rng, 1.0f, r, 3);
    s->presence_penalty = pick(rng, 0.0f, f, 3);
    s->frequency_penalty = pick(rng, 0.0f, f, 3);
    if (tdm_rng_below(rng, 2)) s->top_k = 1 + (int32_t)tdm_rng_below(rng, TDM_MIN(vocab, 100u));
    if (tdm_rng_below(rng, 8) == 0) s->top_k = (int32_t)vocab;
    s->min_tokens = tdm_rng_below(rng, 2) ? tdm_rng_below(rng, 300) : 0;
    s->stop_cnt = tdm_rng_below(rng, TDM_STOP_ID_MAX + 1);
    for (uint32_t i = 0; i < s->stop_cnt; i++) s->stop_id[i] = (int32_t)tdm_rng_below(rng, vocab);
    s->flags = tdm_rng_below(rng, 4) ? 0 : TDM_SAMPLING_IGNORE_EOS;
}

static void make_history(uint32_t slot, uint32_t cnt, uint32_t vocab, tdm_rng_t *rng) {
    for (uint32_t i = 0; i < cnt; i++) {
        history[slot][i] = (int32_t)tdm_rng_below(rng, TDM_MIN(vocab, 50u));
        page_token[table[slot * STRIDE + i / 64]][i % 64] = history[slot][i];
    }
}

/* run samples the wants on the device. */
static void run(const tdm_step_want_t *want, const float *logits, uint32_t vocab,
                tdm_step_drawn_t *out) {
    struct {
        tdm_step_head_t head;
        tdm_step_want_t want[ROWS];
    } step = {.head = {.want_cnt = ROWS,
                       .want_off = sizeof(tdm_step_head_t),
                       .want_sz = sizeof(tdm_step_want_t)}};
    memcpy(step.want, want, sizeof step.want);
    uint64_t sz = (uint64_t)ROWS * vocab * 4;
    tdm_sample_args_t a = {
        .step = bench_put(&step, sizeof step),
        .logits = bench_put(logits, sz),
        .changed = bench_put(NULL, sz),
        .weight = bench_put(NULL, sz),
        .part = bench_put(NULL, (uint64_t)ROWS * TDM_SAMPLE_PART * sizeof(tdm_sample_part_t)),
        .table = bench_put(table, sizeof table),
        .token = bench_put(page_token, sizeof page_token),
        .drawn = bench_put(NULL, ROWS * sizeof *out),
        .table_stride = STRIDE,
        .vocab = vocab};
    bench_cuda(tdm_sample_rows(&a, ROWS + 3, NULL), "sample");
    bench_get(out, a.drawn, ROWS * sizeof *out);
    float *again = bench_alloc(sz);
    bench_get(again, a.logits, sz);
    bench_ok(memcmp(again, logits, sz) == 0, "the logits were changed");
    free(again);
    const void *all[] = {a.step, a.logits, a.changed, a.weight, a.part, a.table, a.token, a.drawn};
    for (size_t i = 0; i < TDM_COUNT_OF(all); i++) bench_free((void *)(uintptr_t)all[i]);
}

static void compare(uint32_t row, const tdm_step_want_t *want, const tdm_step_drawn_t *got,
                    const tdm_sample_out_t *ref) {
    const tdm_sampling_t *p = &want->sampling;
    bench_ok(got->token == ref->token && got->flags == ref->flags,
             "row %u: token %d flags %u, C %d %u (t %g k %d p %g m %g pos %u)", row, got->token,
             got->flags, ref->token, ref->flags, (double)p->temperature, p->top_k, (double)p->top_p,
             (double)p->min_p, want->pos);
    if (got->token != ref->token || ref->token < 0) return;
    bench_ok(!(fabsf(got->logprob - ref->logprob) > 2e-5f * (1.0f + fabsf(ref->logprob))),
             "row %u: logprob %.9g, C %.9g", row, (double)got->logprob, (double)ref->logprob);
}

static void try_vocab(uint32_t vocab, tdm_rng_t *rng) {
    tdm_step_want_t want[ROWS], turned[ROWS];
    tdm_step_drawn_t got[ROWS], again[ROWS];
    memset(want, 0, sizeof want);
    float *logits = bench_alloc((uint64_t)ROWS * vocab * 4);
    float *round = bench_alloc((uint64_t)ROWS * vocab * 4);
    void *mem = aligned_alloc(64, (tdm_sampler_footprint(vocab) + 63) / 64 * 64);
    tdm_sampler_t *sampler = tdm_sampler_init(mem, vocab);
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t cnt = 1 + tdm_rng_below(rng, STRIDE * 64 - 1);
        make_logits(logits + (uint64_t)i * vocab, vocab, i, rng);
        make_history(i, cnt, vocab, rng);
        want[i].slot = i;
        want[i].pos = cnt;
        want[i].prompt_cnt = tdm_rng_below(rng, cnt + 1);
        make_sampling(&want[i].sampling, vocab, rng);
    }
    run(want, logits, vocab, got);
    for (uint32_t i = 0; i < ROWS; i++) {
        tdm_sample_in_t in = {.logits = logits + (uint64_t)i * vocab,
                              .sampling = &want[i].sampling,
                              .history = history[i],
                              .pos = want[i].pos,
                              .prompt_cnt = want[i].prompt_cnt};
        tdm_sample_out_t ref;
        tdm_sample_row(sampler, &in, &ref);
        compare(i, &want[i], &got[i], &ref);
        uint32_t to = ROWS - 1 - i;
        turned[to] = want[i];
        memcpy(round + (uint64_t)to * vocab, in.logits, vocab * sizeof *round);
    }
    run(turned, round, vocab, again);
    for (uint32_t i = 0; i < ROWS; i++)
        bench_ok(memcmp(&got[i], &again[ROWS - 1 - i], sizeof got[i]) == 0,
                 "row %u of %u ids depends on its place", i, vocab);
    free(logits);
    free(round);
    free(mem);
}

int part_sample(uint32_t rounds) {
    tdm_rng_t rng = {2};
    const uint32_t vocab[] = {1, 2, 31, 33, 307, 1024, 1025, 5000, 49152, 128256};
    for (uint32_t i = 0; i < ROWS * STRIDE; i++) table[i] = (i * 7 + 5) % (ROWS * STRIDE);
    for (uint32_t n = 0; n < rounds; n++)
        for (size_t i = 0; i < TDM_COUNT_OF(vocab); i++)
            if (vocab[i] < 10000 || n % 4 == 0) try_vocab(vocab[i], &rng);
    return bench_end("sample");
}
