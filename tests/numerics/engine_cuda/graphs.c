/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an iteration that is replayed from a captured graph gives the bits that
   it gives when its launches are queued one by one, whatever it holds; graphs
   are captured of what comes again, keep to their bound, and serve.
   Method: random batchings on a backend without other graphs than those of
   decodes, and on one with, first missing, then captured, then replayed; small
   models and Llama-3-8B's widths; a table so small that graphs give way; the
   same with sampling parameters that lie on the device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "appliance/base/clock.h"
#include "appliance/model/dummy.h"
#include "kernels/cuda/peek.h"
#include "tests/numerics/engine_cuda/bench.h"
#include "tests/numerics/model/rig.h"

#define STREAMS 9u
#define SEEDS   4u
#define ROUNDS  3u /* missed, missed again, replayed */

static void drive(tdm_backend_t *b, const tdm_backend_config_t *config, uint32_t vocab,
                  uint64_t seed, rig_stream_t *s) {
    tdm_rng_t rng = {seed};
    for (uint32_t i = 0; i < STREAMS; i++)
        rig_stream_make(&s[i], 1 + tdm_rng_below(&rng, i == 0 ? 400 : 140),
                        1 + tdm_rng_below(&rng, 16), vocab, i % 2, &rng);
    rig_drive(b, config, s, STREAMS, &rng, NULL);
}

/* Idle until nothing is asked for: the milliseconds of a capture, at most. */
static double rest(tdm_backend_t *b) {
    double most = 0.0;
    for (;;) {
        int64_t start_ns = tdm_clock_now_ns();
        if (!tdm_backend_idle(b)) return most;
        double ms = (double)(tdm_clock_now_ns() - start_ns) * 1e-6;
        if (ms > most) most = ms;
    }
}

static void try_model(const char *name, const tdm_weights_t *w, tdm_backend_config_t config,
                      uint32_t graph_max) {
    uint32_t vocab = w->shape.vocab;
    rig_stream_t *want = bench_alloc(SEEDS * STREAMS * sizeof *want);
    rig_stream_t *got = bench_alloc(STREAMS * sizeof *got);
    uint64_t hit[ROUNDS + 1] = {0}, miss = 0, put = 0, first_put;
    double most_ms = 0.0;
    uint32_t is_resident = config.is_resident;
    config.is_resident = 0;
    tdm_backend_t *b = bench_backend(w, &config);
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        drive(b, &config, vocab, seed + 1, want + seed * STREAMS);
    tdm_backend_destroy(b);
    config.is_resident = is_resident;
    config.graph_max = graph_max;
    config.graph_sz = UINT64_C(256) << 20;
    b = bench_backend(w, &config);
    tdm_cuda_graphs(b, &hit[0], &miss, &first_put);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            drive(b, &config, vocab, seed + 1, got);
            for (uint32_t i = 0; i < STREAMS; i++) {
                const rig_stream_t *a = &want[seed * STREAMS + i];
                bench_ok(memcmp(a->token, got[i].token, sizeof a->token) == 0 &&
                             memcmp(a->logprob, got[i].logprob, sizeof a->logprob) == 0,
                         "%s: stream %u of seed %u, round %u: other bits than without graphs", name,
                         i, (unsigned)seed, round);
            }
            double ms = rest(b);
            if (ms > most_ms) most_ms = ms;
        }
        tdm_cuda_graphs(b, &hit[round + 1], &miss, &put);
    }
    /* The same iterations each round: what the last replays beyond the first was
       captured in between. */
    uint64_t first = hit[1] - hit[0], last = hit[ROUNDS] - hit[ROUNDS - 1];
    bench_ok(put > first_put && (last > first || (graph_max < 10 && last == first)),
             "%s: %llu graphs captured, %llu, then %llu replayed", name,
             (unsigned long long)(put - first_put), (unsigned long long)first,
             (unsigned long long)last);
    printf(
        "  %s, at most %u graphs: %llu captured, at most %.2f ms each; %llu iterations replayed, "
        "%llu missed\n",
        name, graph_max, (unsigned long long)(put - first_put), most_ms,
        (unsigned long long)(hit[ROUNDS] - hit[0]), (unsigned long long)miss);
    tdm_backend_destroy(b);
    free(want);
    free(got);
}

int part_graphs(void) {
    static const uint32_t heads[][3] = {{2, 2, 64}, {8, 2, 128}, {4, 2, 96}}; /* q, kv, dim */
    tdm_backend_config_t config = {.kv_page_cnt = 48,
                                   .kv_dtype = TDM_KV_BF16,
                                   .seq_max = 6,
                                   .token_max = 160,
                                   .context_max = 448};
    for (size_t i = 0; i < TDM_COUNT_OF(heads); i++) {
        char name[32];
        tdm_shape_t shape = bench_shape(heads[i]);
        tdm_weights_t *w = rig_weights_make(&shape, i + 1);
        (void)snprintf(name, sizeof name, "%u heads over %u of %u", shape.nhead_q, shape.nhead_kv,
                       shape.head_dim);
        try_model(name, w, config, 400);
        try_model(name, w, config, 3); /* they give way */
        rig_weights_free(w);
    }
    tdm_error_t err = {0};
    static tdm_weights_t llama;
    if (tdm_dummy_shape("llama-3-8b", &llama.shape, &err) != TDM_OK) exit(2);
    llama.shape.layer_cnt = 2;
    llama.shape.vocab = 8192;
    config.dummy_seed = TDM_DUMMY_SEED;
    try_model("Llama-3-8B's widths", &llama, config, 400);
    config.is_resident = 1;
    try_model("Llama-3-8B's widths, resident", &llama, config, 400);
    config.is_deterministic = 1;
    try_model("Llama-3-8B's widths, deterministic", &llama, config, 400);
    return bench_end("graphs");
}
