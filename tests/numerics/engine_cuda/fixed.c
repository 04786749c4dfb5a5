/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: in deterministic mode a request's tokens and logprobs are the same
   bits alone and in any batch, however its prompt is cut, by whatever route;
   and a request that goes on from the tokens of another goes on as that one
   did.  Method: a few requests alone; the same among others in 50 random
   batchings, and in 15 whose every plan is begun while the one before runs;
   each cut after some of its tokens and begun anew. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "appliance/model/dummy.h"
#include "tests/numerics/engine_cuda/bench.h"
#include "tests/numerics/model/rig.h"

#define OURS      5u
#define OTHERS    5u
#define BATCHINGS 50u
#define AHEAD     15u /* of them with exec.ahead */

/* The last one is as long as the context allows. */
static const uint32_t prompt_cnt[OURS] = {1, 64, 130, 333, 0};

/* Output tokens and logprobs from position `from` on. */
static int is_same(const rig_stream_t *a, const rig_stream_t *b, uint32_t from) {
    uint32_t end = a->prompt_cnt + a->out_cnt;
    if (end != b->prompt_cnt + b->out_cnt) return 0;
    return memcmp(a->token + from, b->token + from, (end - from) * sizeof *a->token) == 0 &&
           memcmp(a->logprob + from, b->logprob + from, (end - from) * sizeof *a->logprob) == 0;
}

static void go_on(tdm_backend_t *b, const tdm_backend_config_t *config, const rig_stream_t *alone,
                  const char *name, uint32_t i) {
    rig_stream_t *s = bench_alloc(sizeof *s);
    uint32_t said = 1 + i;
    s->sampling = alone->sampling;
    s->prompt_cnt = alone->prompt_cnt + said;
    s->out_max = alone->out_max - said;
    memcpy(s->token, alone->token, s->prompt_cnt * sizeof *s->token);
    rig_drive(b, config, s, 1, NULL, NULL);
    bench_ok(is_same(alone, s, s->prompt_cnt), "%s: request %u goes on otherwise after %u tokens",
             name, i, said);
    free(s);
}

/* try_batchings holds our requests s in cnt batchings to what they are alone. */
static void try_batchings(const char *name, tdm_backend_t *b, const tdm_backend_config_t *config,
                          const rig_stream_t *alone, const rig_stream_t *s, uint32_t vocab,
                          uint32_t cnt, rig_total_t *total) {
    tdm_rng_t rng = {cnt};
    for (uint32_t n = 0; n < cnt; n++) {
        rig_stream_t *batch = bench_alloc((OURS + OTHERS) * sizeof *batch);
        memcpy(batch, s, OURS * sizeof *batch);
        for (uint32_t i = OURS; i < OURS + OTHERS; i++)
            rig_stream_make(&batch[i], 1 + tdm_rng_below(&rng, 140), 1 + tdm_rng_below(&rng, 20),
                            vocab, i % 2, &rng);
        rig_drive(b, config, batch, OURS + OTHERS, &rng, total);
        for (uint32_t i = 0; i < OURS; i++)
            bench_ok(is_same(&alone[i], &batch[i], alone[i].prompt_cnt),
                     "%s: request %u in batching %u is not as alone%s", name, i, n,
                     config->is_ahead ? ", begun ahead" : "");
        free(batch);
    }
}

static void try_model(const char *name, const tdm_weights_t *w,
                      const tdm_backend_config_t *config) {
    tdm_backend_t *b = bench_backend(w, config);
    uint32_t vocab = w->shape.vocab;
    rig_stream_t *alone = bench_alloc(OURS * sizeof *alone);
    rig_stream_t *s = bench_alloc((OURS + OTHERS) * sizeof *s);
    rig_total_t total = {.iteration_cnt = 0};
    tdm_rng_t rng = {5};
    for (uint32_t i = 0; i < OURS; i++) {
        rig_stream_make(&alone[i], prompt_cnt[i] ? prompt_cnt[i] : config->context_max - 40, 12,
                        vocab, i % 2 == 0, &rng);
        s[i] = alone[i];
        rig_drive(b, config, &alone[i], 1, NULL, NULL);
        if (i % 2 == 0) go_on(b, config, &alone[i], name, i);
    }
    try_batchings(name, b, config, alone, s, vocab, BATCHINGS, &total);
    printf("  %s: routes of %u batchings: prefill %llu, decode %llu, fused %llu, streams %llu, "
           "serial %llu\n",
           name, BATCHINGS, (unsigned long long)total.route_cnt[TDM_ROUTE_PREFILL_ONLY],
           (unsigned long long)total.route_cnt[TDM_ROUTE_DECODE_ONLY],
           (unsigned long long)total.route_cnt[TDM_ROUTE_FUSED],
           (unsigned long long)total.route_cnt[TDM_ROUTE_STREAMS],
           (unsigned long long)total.route_cnt[TDM_ROUTE_SERIAL]);
    tdm_backend_destroy(b);
    tdm_backend_config_t ahead = *config;
    ahead.is_ahead = 1;
    b = bench_backend(w, &ahead);
    try_batchings(name, b, &ahead, alone, s, vocab, AHEAD, &total);
    bench_ok(total.past_cnt > 0, "%s: nothing was begun ahead", name);
    tdm_backend_destroy(b);
    free(alone);
    free(s);
}

int part_fixed(void) {
    static const uint32_t heads[][3] = {{2, 2, 64}, {9, 3, 64}, {8, 2, 128}}; /* q, kv, dim */
    tdm_backend_config_t config = {.kv_page_cnt = 48,
                                   .kv_dtype = TDM_KV_BF16,
                                   .seq_max = 6,
                                   .token_max = 160,
                                   .context_max = 448,
                                   .is_deterministic = 1};
    for (size_t i = 0; i < TDM_COUNT_OF(heads); i++) {
        char name[48];
        tdm_shape_t shape = bench_shape(heads[i]);
        tdm_weights_t *w = rig_weights_make(&shape, i + 1);
        (void)snprintf(name, sizeof name, "%u heads over %u", shape.nhead_q, shape.nhead_kv);
        config.kv_dtype = TDM_KV_BF16;
        try_model(name, w, &config);
        config.kv_dtype = TDM_KV_E4M3;
        (void)snprintf(name, sizeof name, "%u heads over %u, fp8", shape.nhead_q, shape.nhead_kv);
        try_model(name, w, &config);
        rig_weights_free(w);
    }
    tdm_error_t err = {0};
    static tdm_weights_t llama;
    if (tdm_dummy_shape("llama-3-8b", &llama.shape, &err) != TDM_OK) exit(2);
    llama.shape.layer_cnt = 2;
    llama.shape.vocab = 8192;
    config.kv_dtype = TDM_KV_BF16;
    config.dummy_seed = TDM_DUMMY_SEED;
    /* Past 512 keys an item ends: room for two prompts of other requests. */
    config.context_max = 1024;
    config.kv_page_cnt = 96;
    config.seq_max = 8;
    config.token_max = 512;
    try_model("Llama-3-8B's widths", &llama, &config);
    return bench_end("fixed");
}
