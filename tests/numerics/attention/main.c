/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the error of CPU attention against the double-precision
   reference, over random shapes, as a table; and proof that it stays
   under the tolerance.
   Method: `numerics_attention COUNT [SEED]` draws COUNT batches: up to 3
   prefill slices and 6 decodes (either may be absent), kv 0..2048, page
   and range edges favoured, groups 1 2 3 4 7 8 24 71, head_dim 64 96 128 256,
   float32, bf16 and fp8 KV, every route and instruction set, 1 to 5 SMs.
   The reference reads the same rounded pool.  Pages are shuffled,
   everything unwritten is NaN.

   Tolerance, float32 arithmetic on V of standard deviation 1: an output
   is a weighted mean of up to 2048 values of about 1; score errors of
   about 2e-7 * |score| (|score| up to about 20 here) move weights by
   that, rounding of the sums adds sqrt(2048) * 6e-8.  1e-5 absolute holds
   both with room; lse 2e-5 + 1e-6 * |lse|. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "appliance/base/check.h"
#include "appliance/base/rng.h"
#include "kernels/cpu/isa.h"
#include "kernels/ref/attention_ref.h"
#include "tests/numerics/attention/batch.h"

#define OUT_MAX_ERR 1e-5
#define LSE_MAX_ERR 2e-5
#define KV_MAX      2048
#define SM_MAX      5
#define ROW_BUDGET  48

static const uint32_t group_list[] = {1, 2, 3, 4, 7, 8, 24, 71};
static const uint32_t dim_list[] = {64, 96, 128, 256};
static const uint32_t edge_list[] = {0,   1,   2,   15,  16,  17,   63,   64,   65,   127,
                                     128, 129, 511, 512, 513, 1023, 1024, 1025, 2047, 2048};

typedef struct cell {
    uint64_t shape_cnt;
    uint64_t row_cnt; /* (row, head) pairs */
    uint64_t empty_cnt;
    double max_err;
    double sum_sq;
    uint64_t element_cnt;
    double max_lse;
} cell_t;

static uint32_t draw_kv(tdm_rng_t *rng) {
    if (tdm_rng_below(rng, 3) == 0) return edge_list[tdm_rng_below(rng, TDM_COUNT_OF(edge_list))];
    uint32_t bits = 1 + tdm_rng_below(rng, 11); /* log-uniform */
    return tdm_rng_below(rng, (1u << bits) + 1);
}

/* Fills seq[] and returns how many; at least one of the kinds. */
static uint32_t draw_seqs(tdm_rng_t *rng, uint32_t budget, batch_seq_t *seq,
                          uint32_t *prefill_out) {
    uint32_t which = tdm_rng_below(rng, 5); /* 0: no prefill, 1: no decode */
    uint32_t prefill = which == 0 ? 0 : 1 + tdm_rng_below(rng, 3);
    uint32_t decode = which == 1 ? 0 : 1 + tdm_rng_below(rng, 6);
    for (uint32_t s = 0; s < prefill; s++) {
        uint32_t kv = TDM_MAX(draw_kv(rng), 1);
        uint32_t cnt = 1 + tdm_rng_below(rng, TDM_MIN(kv, budget / (prefill - s)));
        budget -= cnt;
        seq[s] = (batch_seq_t){.stream = tdm_rng_next(rng), .kv_cnt = kv, .cnt = cnt};
        /* Now and then a slice that begins before position 0. */
        if (tdm_rng_below(rng, 16) == 0) seq[s].kv_cnt = tdm_rng_below(rng, cnt);
    }
    for (uint32_t s = prefill; s < prefill + decode; s++) {
        seq[s] = (batch_seq_t){.stream = tdm_rng_next(rng), .kv_cnt = draw_kv(rng), .cnt = 1};
    }
    *prefill_out = prefill;
    return prefill + decode;
}

static int compare(const batch_t *b, cell_t *cell) {
    static double score[KV_MAX];
    uint64_t rows = (uint64_t)b->row_cnt * b->shape.nhead_q;
    uint64_t dim = b->shape.head_dim;
    double *out = malloc(rows * dim * sizeof *out);
    double *lse = malloc(rows * sizeof *lse);
    TDM_CHECK(out && lse);
    tdm_attn_plan_t plan = {.seq = b->seq, .seq_cnt = b->prefill_cnt + b->decode_cnt};
    tdm_attn_launch_t launch = batch_launch(b);
    launch.plan = &plan;
    tdm_attn_ref(&launch, &b->kv, b->shape.nhead_q, score, out, lse);
    int ok = 1;
    for (uint64_t r = 0; r < rows; r++) {
        int is_empty = lse[r] == -INFINITY;
        double lse_err = is_empty ? (b->lse[r] == -INFINITY ? 0 : INFINITY)
                                  : fabs((double)b->lse[r] - lse[r]) / (1 + 0.05 * fabs(lse[r]));
        cell->empty_cnt += (uint64_t)is_empty;
        cell->max_lse = fmax(cell->max_lse, lse_err);
        ok &= lse_err <= LSE_MAX_ERR; /* false for NaN too */
        for (uint64_t d = 0; d < dim; d++) {
            double err = fabs((double)b->out[r * dim + d] - out[r * dim + d]);
            ok &= is_empty ? err == 0 : err <= OUT_MAX_ERR;
            cell->max_err = fmax(cell->max_err, err);
            cell->sum_sq += err * err;
        }
    }
    cell->row_cnt += rows;
    cell->element_cnt += rows * dim;
    cell->shape_cnt++;
    free(out);
    free(lse);
    return ok;
}

static const char *const type_name[TDM_KV_DTYPE_CNT] = {"f32", "bf16", "fp8"};

static void print_table(
    cell_t cell[TDM_KV_DTYPE_CNT][TDM_COUNT_OF(group_list)][TDM_COUNT_OF(dim_list)]) {
    printf("%-5s %5s %4s %7s %9s %7s %10s %10s %10s\n", "kv", "group", "dim", "shapes", "rows",
           "empty", "max_abs", "rms", "max_lse");
    for (uint32_t t = 0; t < TDM_KV_DTYPE_CNT; t++) {
        for (uint32_t g = 0; g < TDM_COUNT_OF(group_list); g++) {
            for (uint32_t d = 0; d < TDM_COUNT_OF(dim_list); d++) {
                const cell_t *c = &cell[t][g][d];
                if (!c->shape_cnt) continue;
                printf("%-5s %5u %4u %7llu %9llu %7llu %10.2e %10.2e %10.2e\n", type_name[t],
                       group_list[g], dim_list[d], (unsigned long long)c->shape_cnt,
                       (unsigned long long)c->row_cnt, (unsigned long long)c->empty_cnt, c->max_err,
                       sqrt(c->sum_sq / (double)c->element_cnt), c->max_lse);
            }
        }
    }
}

int main(int argc, char **argv) {
    static cell_t cell[TDM_KV_DTYPE_CNT][TDM_COUNT_OF(group_list)][TDM_COUNT_OF(dim_list)];
    static batch_t b;
    uint64_t cnt = argc > 1 ? strtoull(argv[1], NULL, 10) : 200;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    static const uint32_t route_list[] = {TDM_ROUTE_FUSED, TDM_ROUTE_SERIAL, TDM_ROUTE_STREAMS};
    uint32_t best_isa = TDM_CPU_ISA_SCALAR;
    tdm_error_t err = {0};
    TDM_CHECK(tdm_cpu_isa_resolve(TDM_CPU_ISA_AUTO, &best_isa, &err) == TDM_OK);
    tdm_sm_pool_t *pool[SM_MAX + 1] = {0};
    for (uint32_t n = 1; n <= SM_MAX; n++) pool[n] = batch_pool(n);

    uint64_t fail_cnt = 0;
    for (uint64_t i = 0; i < cnt; i++) {
        tdm_rng_t rng = {tdm_rng_at(seed, i)};
        uint32_t g = (uint32_t)(i % TDM_COUNT_OF(group_list));
        uint32_t d = (uint32_t)(i / TDM_COUNT_OF(group_list) % TDM_COUNT_OF(dim_list));
        static const uint32_t type_list[] = {TDM_KV_BF16, TDM_KV_E4M3, TDM_KV_F32, TDM_KV_F32};
        uint32_t t = type_list[tdm_rng_below(&rng, 4)];
        uint32_t most = group_list[g] > 8 ? 1 : group_list[g] > 4 ? 2 : 4;
        uint32_t nhead_kv = 1 + tdm_rng_below(&rng, most);
        batch_shape_t shape = {.nhead_q = nhead_kv * group_list[g],
                               .nhead_kv = nhead_kv,
                               .head_dim = dim_list[d],
                               .dtype = t,
                               .q_scale = 1.0f + (float)tdm_rng_below(&rng, 3)};
        batch_seq_t seq[TDM_ATTN_SEQ_MAX];
        uint32_t prefill;
        uint32_t seq_cnt =
            draw_seqs(&rng, group_list[g] > 8 ? ROW_BUDGET / 6 : ROW_BUDGET, seq, &prefill);
        batch_open(&b, &shape, seq, prefill, seq_cnt - prefill, tdm_rng_next(&rng));
        batch_how_t how = {.pool = pool[1 + tdm_rng_below(&rng, SM_MAX)],
                           .isa = TDM_CPU_ISA_SCALAR +
                                  tdm_rng_below(&rng, best_isa - TDM_CPU_ISA_SCALAR + 1),
                           .route = route_list[tdm_rng_below(&rng, 3)],
                           .plan_sm_cnt = 1 + tdm_rng_below(&rng, 8)};
        batch_run(&b, &how, NULL, NULL);
        if (!compare(&b, &cell[t][g][d])) {
            fail_cnt++;
            fprintf(stderr, "shape %llu of seed %llu is over the tolerance (%s)\n",
                    (unsigned long long)i, (unsigned long long)seed, tdm_cpu_isa_name(how.isa));
        }
        batch_close(&b);
    }
    for (uint32_t n = 1; n <= SM_MAX; n++) batch_pool_free(pool[n]);
    print_table(cell);
    printf("tolerance: out %.0e absolute, lse %.0e * (1 + |lse| / 20); isa up to %s; seed %llu\n",
           OUT_MAX_ERR, LSE_MAX_ERR, tdm_cpu_isa_name(best_isa), (unsigned long long)seed);
    printf("%llu shapes, %llu over the tolerance\n", (unsigned long long)cnt,
           (unsigned long long)fail_cnt);
    return fail_cnt != 0;
}
