/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: no sequence of arrivals, cancels, slow iterations, executor deaths
   and deaf api tiles breaks a promise of scheduler/step.h.
   Method: many seeds, each a random configuration and some hundred random
   acts on tests/sim/world.h, which checks every plan, event and invariant;
   then calm, and everything must have ended and every page be back.
   --seed N replays one seed, --seeds N and --steps N set the amount. */

#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "tests/sim/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t first_seed = 1;
static uint32_t seed_cnt = 2000;
static uint32_t step_cnt = 200;

static uint32_t between(tdm_rng_t *r, uint32_t low, uint32_t high) {
    return low + tdm_rng_below(r, high - low + 1u);
}

static int chance(tdm_rng_t *r, uint32_t percent) {
    return tdm_rng_below(r, 100) < percent;
}

static tdm_sched_sizes_t random_sizes(tdm_rng_t *r) {
    tdm_sched_sizes_t s = world_sizes();
    s.seq_max = between(r, 1, 8);
    s.waiting_max = between(r, 1, 16);
    s.page_cnt = chance(r, 50) ? between(r, 1, 8) : between(r, 8, 40);
    s.context_max = between(r, 2, 640);
    s.api_cnt = between(r, 1, 2);
    s.request_max = between(r, 1, 24);
    s.depth = between(r, 1, 2);
    s.has_cache = chance(r, 60) ? 1u : 0u;
    s.cache_key[0] = tdm_rng_next(r);
    s.cache_key[1] = tdm_rng_next(r);
    return s;
}

static void random_live(tdm_rng_t *r, tdm_sched_live_t *live) {
    live->revision++;
    live->route = (uint32_t)TDM_ROUTE_FUSED + tdm_rng_below(r, 3);
    live->token_max = chance(r, 20) ? between(r, 1, 16) : between(r, 16, 400);
    live->slice_max = between(r, 1, 6);
    live->floor_cnt = between(r, 1, live->token_max);
    live->short_max = between(r, 0, 200);
    live->waiting_tokens_max = between(r, 1, 4000);
    live->prefill_limit_ns = between(r, 1, 50) * TDM_NS_PER_MS;
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++)
        live->class_of[k].gap_ns = between(r, 1, 40) * TDM_NS_PER_MS;
    live->starve_ns = between(r, 0, 500) * TDM_NS_PER_MS;
    live->bypass_ns = between(r, 0, 2000) * TDM_NS_PER_MS;
    live->death_max = between(r, 1, 4);
    live->evict_max = chance(r, 30) ? 0u : between(r, 1, WORLD_EVICT_MAX);
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++)
        live->class_of[k].ttft_ns = between(r, 1, 4000) * TDM_NS_PER_MS;
    live->decode_guard = chance(r, 10) ? 1u : 0u;
    live->ttft_guard = chance(r, 10) ? 1u : 0u;
    live->policy = chance(r, 70) ? (uint32_t)TDM_POLICY_QUANTILE : between(r, 1, 3);
    live->grid_tok = chance(r, 50) ? 1u : between(r, 1, 64);
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++)
        live->class_of[k].burst_ns = chance(r, 20) ? between(r, 1, 100) * TDM_NS_PER_MS : 0;
    for (uint32_t k = 0; k < TDM_TENANT_MAX; k++)
        live->tenant[k] =
            (tdm_sched_tenant_t){.weight = between(r, 1, 4),
                                 .token_per_s = chance(r, 5) ? between(r, 1, 5000) : 0,
                                 .token_burst = between(r, 1, 2000)};
    live->down_max_ns = between(r, 10, 3000) * TDM_NS_PER_MS;
}

static world_ask_t random_ask(tdm_rng_t *r, const world_t *w) {
    world_ask_t a = {.api = tdm_rng_below(r, w->sizes.api_cnt),
                     .slo_class = tdm_rng_below(r, TDM_SLO_CLASS_MAX),
                     .tenant = chance(r, 50) ? 0u : tdm_rng_below(r, TDM_TENANT_MAX)};
    uint32_t most = w->sizes.context_max;
    a.prompt_cnt = chance(r, 5) ? between(r, 1, 2 * most) : between(r, 1, most);
    a.output_max = chance(r, 60) ? between(r, 1, 12) : between(r, 1, 80);
    if (chance(r, 90) && a.prompt_cnt + a.output_max > most)
        a.prompt_cnt = most > a.output_max ? most - a.output_max : 1u;
    if (chance(r, 30)) a.seed_flags |= FAKE_SEED_STOP;
    if (chance(r, 5)) a.seed_flags |= FAKE_SEED_NAN;
    if (chance(r, 10)) a.min_tokens = between(r, 1, 6);
    if (chance(r, 10)) a.flags = TDM_SAMPLING_IGNORE_EOS;
    if (chance(r, 10)) a.deadline_ns = w->now_ns + between(r, 0, 500) * TDM_NS_PER_MS;
    if (chance(r, 50)) {
        a.prefix = 1u + tdm_rng_below(r, 2);
        a.prefix_cnt = chance(r, 50) ? a.prompt_cnt : between(r, 0, a.prompt_cnt);
    }
    if (chance(r, 20)) a.blocks = 99;
    if (w->text_next >= WORLD_TEXT_MAX && chance(r, 25)) {
        a.follow = 1u + tdm_rng_below(r, WORLD_TEXT_MAX);
        if (chance(r, 80)) a.tenant = w->text[a.follow - 1u].tenant;
    }
    /* luck of its own, so that a seed without it stays what it was */
    tdm_rng_t luck = {.state = tdm_rng_mix(w->seed << 20 ^ w->next_id)};
    if (chance(&luck, 6)) {
        a.prefix_cnt = a.follow = 0;
        a.blocks = 0;
        if (chance(&luck, 30)) a.prompt_cnt = TDM_MAX(a.prompt_cnt / 64u * 64u, 1u);
        a.held_cnt = chance(&luck, 50) ? a.prompt_cnt : between(&luck, 0, a.prompt_cnt + 1u);
    }
    return a;
}

/* revive ends a spell without an executor. */
static void revive(world_t *w, tdm_rng_t *r) {
    w->now_ns += between(r, 0, 1500) * TDM_NS_PER_MS;
    world_watch(w, w->now_ns);
    world_up(w);
}

/* The network between clients and api tiles. */
#define NIC_MAX 24u
static struct {
    uint32_t cut_cnt; /* acts until it is back, 0: it works */
    uint32_t ask_cnt;
    world_ask_t ask[NIC_MAX]; /* that wait for it */
} nic;

/* nic_back: all that waited arrives at once, and of the clients that saw
   nothing for so long some have left. */
static void nic_back(world_t *w, tdm_rng_t *r) {
    for (uint32_t i = 0; i < nic.ask_cnt; i++) world_submit(w, &nic.ask[i]);
    nic.ask_cnt = nic.cut_cnt = 0;
    for (uint32_t id = w->next_id > 40u ? w->next_id - 40u : 0u; id < w->next_id; id++)
        if (chance(r, 30)) world_control(w, id, TDM_CONTROL_CANCEL);
}

/* submit sends a request, or lets it wait for the network. */
static void submit(world_t *w, const world_ask_t *ask) {
    if (nic.cut_cnt == 0)
        world_submit(w, ask);
    else if (nic.ask_cnt < NIC_MAX)
        nic.ask[nic.ask_cnt++] = *ask;
}

/* trouble is what a quiet day does not have. */
static void trouble(world_t *w, tdm_rng_t *r) {
    switch (tdm_rng_below(r, 8)) {
    case 0:
    case 1:
        if (w->is_up) world_kill(w);
        break;
    case 2: w->slow = chance(r, 50) ? 1.0 : 0.1 * between(r, 1, 60); break;
    case 3: w->is_deaf[tdm_rng_below(r, w->sizes.api_cnt)] = chance(r, 50); break;
    case 4: world_watch(w, w->now_ns + between(r, 0, 2000) * TDM_NS_PER_MS); break;
    case 5: tdm_sched_drain_set(w->sched, chance(r, 15)); break;
    case 6:
        if (nic.cut_cnt == 0) nic.cut_cnt = between(r, 2, 40);
        break;
    default:
        random_live(r, &w->live);
        tdm_sched_live_set(w->sched, &w->live);
        break;
    }
}

static void act(world_t *w, tdm_rng_t *r) {
    uint32_t what = tdm_rng_below(r, 100);
    w->turn++;
    if (nic.cut_cnt > 0 && --nic.cut_cnt == 0) nic_back(w, r);
    if (nic.cut_cnt > 0 && what >= 30 && what < 40) what = 50; /* no cancel comes through */
    if (what < 30) {
        world_ask_t ask = random_ask(r, w);
        submit(w, &ask);
    } else if (what < 38 && w->next_id > 0) {
        world_control(w, tdm_rng_below(r, w->next_id), TDM_CONTROL_CANCEL);
    } else if (what < 40 && w->next_id > 0) {
        world_control(w, w->next_id - 1u, TDM_CONTROL_STOP_HIT);
    } else if (what < 60) {
        world_plan(w);
    } else if (what < 92) {
        if (w->is_up || chance(r, 80))
            world_turn(w);
        else
            revive(w, r);
    } else if (what < 93) {
        w->now_ns += between(r, 0, 100) * TDM_NS_PER_MS;
    } else {
        trouble(w, r);
    }
    world_check(w);
}

/* calm: everyone reads, the executor stays, nothing more is asked. */
static void calm(world_t *w) {
    memset(w->is_deaf, 0, sizeof w->is_deaf);
    w->slow = 1.0;
    world_read(w);
    if (!w->is_up) world_up(w);
    world_watch(w, w->now_ns);
    if (!world_run(w, 20000)) fail_msg("seed %llu: no end in sight", (unsigned long long)w->seed);
    world_settled(w);
}

typedef struct total {
    uint64_t plans, tokens, requests, restarts, refused, cached, held, evicted, yielded, skipped;
} total_t;

static void one_seed(uint64_t seed, total_t *sum) {
    static world_t w;
    tdm_rng_t r = {.state = seed};
    tdm_sched_sizes_t sizes = random_sizes(&r);
    tdm_sched_live_t live = world_live();
    random_live(&r, &live);
    world_open(&w, seed, &sizes, &live);
    nic.cut_cnt = nic.ask_cnt = 0;
    for (uint32_t i = 0; i < step_cnt; i++) act(&w, &r);
    nic_back(&w, &r);
    calm(&w);
    const tdm_sched_stats_t *t = world_stats(&w);
    sum->plans += w.plan_cnt;
    sum->tokens += w.token_cnt;
    sum->requests += t->received;
    sum->restarts += t->restart_cnt;
    sum->refused += t->refused;
    sum->cached += t->cache_saved_tokens;
    sum->held += t->held_tokens;
    sum->evicted += t->cache_evict_cnt;
    sum->yielded += t->evict_cnt;
    sum->skipped += t->skip_cnt;
    world_close(&w);
}

static void no_seed_breaks_a_promise(void **state) {
    (void)state;
    total_t sum = {0};
    for (uint64_t i = 0; i < seed_cnt; i++) one_seed(first_seed + i, &sum);
    printf("%u seeds from %llu, %u acts: %llu requests (%llu refused), %llu plans, %llu tokens, "
           "%llu restarts, %llu tokens from the cache, %llu pages taken from it\n",
           seed_cnt, (unsigned long long)first_seed, step_cnt, (unsigned long long)sum.requests,
           (unsigned long long)sum.refused, (unsigned long long)sum.plans,
           (unsigned long long)sum.tokens, (unsigned long long)sum.restarts,
           (unsigned long long)sum.cached, (unsigned long long)sum.evicted);
    printf("%llu places given up, %llu turns sat out, %llu tokens came computed\n",
           (unsigned long long)sum.yielded, (unsigned long long)sum.skipped,
           (unsigned long long)sum.held);
    /* what a run of any length must have seen, an act */
    uint64_t acts = (uint64_t)seed_cnt * step_cnt;
    if (acts < 20000) return;
    assert_true(sum.tokens > acts / 20 && sum.restarts > acts / 200 && sum.refused > acts / 100);
    assert_true(sum.cached > acts / 100 && sum.evicted > acts / 1000 && sum.held > acts / 100);
    assert_true(sum.yielded > acts / 2000 && sum.skipped > acts / 500);
}

int main(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        unsigned long long v = strtoull(argv[i + 1], NULL, 0);
        if (!strcmp(argv[i], "--seed")) {
            first_seed = v;
            seed_cnt = 1;
        } else if (!strcmp(argv[i], "--seeds")) {
            seed_cnt = (uint32_t)v;
        } else if (!strcmp(argv[i], "--steps")) {
            step_cnt = (uint32_t)v;
        }
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_seed_breaks_a_promise)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
