/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a life makes its products as the one before it did, with the same
   tokens; and chooses anew from a block that is damaged, another device's, or
   names algorithms that cuBLASLt does not take.
   Method: Llama-3-8B's widths, two layers, created again and again with one
   block of choices, the block spoilt in between.  The milliseconds of each
   create are printed: the second's are what a restart saves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "appliance/base/clock.h"
#include "appliance/model/dummy.h"
#include "kernels/cuda/peek.h"
#include "kernels/keep/choices.h"
#include "tests/numerics/engine_cuda/bench.h"
#include "tests/numerics/model/rig.h"

#define STREAMS 6u

typedef struct life {
    uint32_t all, recalled;
    double ms;
    rig_stream_t stream[STREAMS];
} life_t;

static void live(life_t *l, tdm_choices_t *choices) {
    static tdm_weights_t w;
    const tdm_backend_config_t config = {.kv_page_cnt = 512,
                                         .kv_dtype = TDM_KV_BF16,
                                         .seq_max = 256,
                                         .token_max = 1024,
                                         .context_max = 512,
                                         .dummy_seed = TDM_DUMMY_SEED};
    tdm_error_t err = {0};
    tdm_backend_t *b = NULL;
    tdm_rng_t rng = {11};
    if (tdm_dummy_shape("llama-3-8b", &w.shape, &err) != TDM_OK) exit(2);
    w.shape.layer_cnt = 2;
    w.shape.vocab = 8192;
    int64_t start_ns = tdm_clock_now_ns();
    if (tdm_backend_cuda_create(&w, &config, choices, NULL, NULL, &b, &err) != TDM_OK) {
        printf("%s\n", err.text);
        exit(2);
    }
    l->ms = (double)(tdm_clock_now_ns() - start_ns) * 1e-6;
    tdm_cuda_products(b, &l->all, &l->recalled);
    for (uint32_t i = 0; i < STREAMS; i++)
        rig_stream_make(&l->stream[i], 20 + 70 * i, 8, w.shape.vocab, i % 2 == 0, &rng);
    rig_drive(b, &config, l->stream, STREAMS, NULL, NULL);
    tdm_backend_destroy(b);
}

static int is_same(const life_t *a, const life_t *b) {
    for (uint32_t i = 0; i < STREAMS; i++)
        if (memcmp(a->stream[i].token, b->stream[i].token, sizeof a->stream[i].token) != 0 ||
            memcmp(a->stream[i].logprob, b->stream[i].logprob, sizeof a->stream[i].logprob) != 0)
            return 0;
    return 1;
}

/* A whole block whose first products are made by algorithms of noise. */
static void plant_noise(tdm_choices_t *choices, uint32_t cnt) {
    static tdm_choice_t all[TDM_CHOICES_MAX];
    const tdm_choices_key_t key = choices->key;
    const char *why;
    tdm_rng_t rng = {12};
    uint32_t n = tdm_choices_take(choices, &key, all, &why);
    for (uint32_t i = 0, done = 0; i < n && done < cnt; i++) {
        if (all[i].way != 0) continue; /* not cuBLASLt's */
        for (uint32_t k = 0; k < TDM_CHOICE_ALGO_WORD; k++) all[i].algo[k] = tdm_rng_next(&rng);
        done++;
    }
    all[n - 1].way = 77;
    tdm_choices_keep(choices, &key, all, n);
}

int part_kept(void) {
    tdm_choices_t *choices = bench_alloc(sizeof *choices);
    life_t *l = bench_alloc(6 * sizeof *l);
    live(&l[0], choices); /* loads the library and its kernels: its time says nothing */
    memset(choices, 0, sizeof *choices);
    live(&l[1], choices);
    bench_ok(l[1].recalled == 0 && l[1].all > 100, "an empty block gave %u of %u products",
             l[1].recalled, l[1].all);
    live(&l[2], choices);
    bench_ok(l[2].recalled == l[2].all, "%u of %u products as before", l[2].recalled, l[2].all);
    bench_ok(is_same(&l[1], &l[2]), "other tokens than the life before");
    ((uint8_t *)choices->choice)[5] ^= 1;
    live(&l[3], choices);
    bench_ok(l[3].recalled == 0, "a damaged block gave %u products", l[3].recalled);
    plant_noise(choices, 8);
    live(&l[4], choices);
    bench_ok(l[4].recalled > 0 && l[4].recalled + 9 == l[4].all,
             "algorithms of noise: %u of %u products as before", l[4].recalled, l[4].all);
    choices->key.driver++;
    tdm_choices_key_t other = choices->key;
    static tdm_choice_t none[1];
    tdm_choices_keep(choices, &other, none, 1);
    live(&l[5], choices);
    bench_ok(l[5].recalled == 0, "another driver's block gave %u products", l[5].recalled);
    printf("  create: chosen anew %.0f ms, as before %.0f ms, of a damaged block %.0f ms\n",
           l[1].ms, l[2].ms, l[3].ms);
    free(choices);
    free(l);
    return bench_end("kept");
}
