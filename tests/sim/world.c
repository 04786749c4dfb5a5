/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world.h"

#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "scheduler/step_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB 1000u

static void TDM_PRINTF(2, 3) wrong(const world_t *w, const char *fmt, ...) {
    char text[300];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fail_msg("seed %llu turn %llu: %s (replay: --seed %llu)", (unsigned long long)w->seed,
             (unsigned long long)w->turn, text, (unsigned long long)w->seed);
}

tdm_sched_sizes_t world_sizes(void) {
    return (tdm_sched_sizes_t){.seq_max = 8,
                               .waiting_max = 64,
                               .page_cnt = 64,
                               .context_max = 1024,
                               .vocab = VOCAB,
                               .api_cnt = 1,
                               .request_max = 128,
                               .depth = 2};
}

tdm_sched_live_t world_live(void) {
    tdm_sched_live_t live;
    tdm_sched_live_default(&live);
    live.token_max = 256;
    live.short_max = 128;
    live.floor_cnt = 32;
    for (uint32_t r = 0; r < TDM_ROUTE_CNT; r++)
        live.profile.row[r] =
            (tdm_profile_row_t){.fixed_ns = 5e6, .token_ns = 4e4, .pair_ns = 2.0, .kv_ns = 20.0};
    live.watchdog_min_ns = 100 * TDM_NS_PER_MS;
    live.watchdog_factor = 8.0;
    live.host_gap_ns = 0;
    return live;
}

void world_open(world_t *w, uint64_t seed, const tdm_sched_sizes_t *sizes,
                const tdm_sched_live_t *live) {
    memset(w, 0, sizeof *w);
    w->seed = seed;
    w->sizes = *sizes;
    w->live = *live;
    w->slow = 1.0;
    w->now_ns = TDM_NS_PER_S;
    size_t sz = tdm_sched_footprint(sizes);
    assert_true(sz > 0);
    w->mem = aligned_alloc(TDM_CACHE_LINE, sz);
    memset(w->mem, 0xa5, sz);
    tdm_error_t err = {0};
    if (tdm_sched_init(w->mem, sizes, live, &w->sched, &err) != TDM_OK) wrong(w, "%s", err.text);
    w->plan = malloc(sizeof *w->plan);
    w->client = calloc((size_t)sizes->api_cnt * sizes->request_max, sizeof *w->client);
    w->end = calloc(WORLD_REQUEST_MAX, sizeof *w->end);
    fake_open(&w->x, sizes->page_cnt, sizes->context_max, sizes->vocab);
    world_up(w);
}

void world_close(world_t *w) {
    for (uint32_t i = 0; i < w->sizes.api_cnt * w->sizes.request_max; i++)
        free(w->client[i].prompt);
    for (uint32_t i = 0; i < WORLD_TEXT_MAX; i++) free(w->text[i].token);
    fake_close(&w->x);
    free(w->client);
    free(w->end);
    free(w->plan);
    free(w->mem);
    memset(w, 0, sizeof *w);
}

void world_up(world_t *w) {
    fake_restart(&w->x, ++w->epoch);
    tdm_sched_executor_up(w->sched, w->now_ns, w->epoch);
    w->is_up = 1;
}

void world_kill(world_t *w) {
    w->x.flight_cnt = 0;
    tdm_sched_executor_down(w->sched, w->now_ns);
    w->is_up = 0;
    w->iteration_end_ns = -1;
    for (uint32_t i = 0; i < w->sizes.api_cnt * w->sizes.request_max; i++)
        w->client[i].last_iteration = 0;
    world_read(w);
}

void world_check(world_t *w) {
    const char *broken = tdm_sched_check(w->sched);
    if (broken) wrong(w, "%s", broken);
    broken = tdm_sched_check_some(w->sched, &w->looked, 7);
    if (broken) wrong(w, "some at a time: %s", broken);
}

const tdm_sched_stats_t *world_stats(world_t *w) {
    return tdm_sched_stats(w->sched);
}

/* --- clients ------------------------------------------------------------ */

/* keep_text lets later prompts go on where this one ended. */
static void keep_text(world_t *w, const world_client_t *c) {
    world_text_t *t = &w->text[w->text_next++ % WORLD_TEXT_MAX];
    t->cnt = c->request.prompt_cnt + c->out_cnt;
    t->tenant = c->request.tenant;
    t->token = realloc(t->token, t->cnt * sizeof *t->token);
    memcpy(t->token, c->prompt, t->cnt * sizeof *t->token);
}

static void close_client(world_t *w, world_client_t *c, const tdm_event_t *e) {
    world_end_t *end = &w->end[c->id];
    if (end->kind != 0) wrong(w, "request %u ends twice", c->id);
    *end = (world_end_t){.kind = e->kind,
                         .finish = e->finish,
                         .reason = e->reason,
                         .out_cnt = c->out_cnt,
                         .retry_ms = e->retry_after_ms,
                         .tokens_hash = c->hash,
                         .ttft_ns = c->first_ns ? c->first_ns - c->request.arrival_ns : 0,
                         .gap_ns = c->gap_ns,
                         .end_ns = w->now_ns};
    c->state = WORLD_IDLE;
    w->live_cnt--;
}

static void see_token(world_t *w, world_client_t *c, const tdm_event_t *e) {
    const tdm_sampling_t *s = &c->request.sampling;
    uint32_t flags = 0;
    int32_t token =
        fake_token(c->hash, s->seed, VOCAB, c->out_cnt, s->min_tokens, s->flags, &flags);
    if (e->index != c->out_cnt) wrong(w, "request %u: token %u out of order", c->id, e->index);
    if (e->token != token) wrong(w, "request %u: token %u is not its own", c->id, e->index);
    if (((e->flags & TDM_EVENT_FLAG_STOP_ID) != 0) != ((flags & TDM_SAMPLE_STOP_ID) != 0))
        wrong(w, "request %u: stop flag lost", c->id);
    if (e->index > 0 ? e->start_ns != 0
                     : e->start_ns < c->request.arrival_ns || e->start_ns >= e->iteration_ns)
        wrong(w, "request %u: token %u before its request began", c->id, e->index);
    if (c->first_ns == 0) c->first_ns = w->now_ns;
    if (c->out_cnt > 0) c->gap_ns = TDM_MAX(c->gap_ns, w->now_ns - c->last_ns);
    c->last_ns = w->now_ns;
    c->prompt[c->request.prompt_cnt + c->out_cnt] = token;
    if (e->cached_cnt > 0 && (e->index > 0 || e->cached_cnt >= c->request.prompt_cnt))
        wrong(w, "request %u: %u cached tokens at token %u", c->id, e->cached_cnt, e->index);
    w->cached_cnt += e->cached_cnt;
    if (e->iteration_ns == w->iteration_end_ns) c->last_iteration = w->iteration;
    c->hash = fake_hash(c->hash, token);
    c->out_cnt++;
    w->token_cnt++;
}

static void see_end(world_t *w, world_client_t *c, const tdm_event_t *e) {
    const tdm_sampling_t *s = &c->request.sampling;
    if (e->index != c->out_cnt) wrong(w, "request %u: END counts %u tokens", c->id, e->index);
    if (e->finish == TDM_FINISH_LENGTH && c->out_cnt != c->request.output_max)
        wrong(w, "request %u: length after %u tokens", c->id, c->out_cnt);
    if (e->finish == TDM_FINISH_CANCELLED && !c->is_cancelled)
        wrong(w, "request %u: cancelled by nobody", c->id);
    if (e->finish == TDM_FINISH_STOP && !c->is_stop_hit && !(s->seed & FAKE_SEED_STOP))
        wrong(w, "request %u: stopped by nobody", c->id);
    if (e->finish == TDM_FINISH_NONE || (e->finish == TDM_FINISH_ERROR) != (e->reason != 0))
        wrong(w, "request %u: finish %u with reason %u", c->id, e->finish, e->reason);
    if (w->sizes.has_cache && e->finish != TDM_FINISH_ERROR) keep_text(w, c);
    close_client(w, c, e);
}

static void see(world_t *w, uint32_t api, const tdm_event_t *e) {
    if (e->handle.slot >= w->sizes.request_max) wrong(w, "an event for no slot");
    world_client_t *c = &w->client[(size_t)api * w->sizes.request_max + e->handle.slot];
    if (c->state == WORLD_IDLE || e->handle.generation != c->request.handle.generation)
        wrong(w, "an event for a request that is over");
    if (c->state == WORLD_ASKED && e->kind == TDM_EVENT_ACCEPTED)
        c->state = WORLD_ACCEPTED;
    else if (c->state == WORLD_ASKED && e->kind == TDM_EVENT_REFUSED)
        close_client(w, c, e);
    else if (c->state == WORLD_ACCEPTED && e->kind == TDM_EVENT_TOKEN)
        see_token(w, c, e);
    else if (c->state == WORLD_ACCEPTED && e->kind == TDM_EVENT_END)
        see_end(w, c, e);
    else
        wrong(w, "request %u: event %u in state %d", c->id, e->kind, (int)c->state);
}

void world_read(world_t *w) {
    for (uint32_t api = 0; api < w->sizes.api_cnt; api++) {
        if (w->is_deaf[api]) continue;
        const tdm_event_t *e;
        while ((e = tdm_sched_event_peek(w->sched, api)) != NULL) {
            tdm_event_t copy = *e;
            tdm_sched_event_drop(w->sched, api);
            see(w, api, &copy);
        }
    }
}

static world_client_t *idle_client(world_t *w, uint32_t api, uint32_t *slot) {
    for (uint32_t i = 0; i < w->sizes.request_max; i++) {
        world_client_t *c = &w->client[(size_t)api * w->sizes.request_max + i];
        if (c->state != WORLD_IDLE) continue;
        *slot = i;
        return c;
    }
    return NULL;
}

static void fill_prompt(const world_t *w, world_client_t *c, const world_ask_t *ask,
                        uint64_t identity) {
    uint32_t most = c->request.prompt_cnt + c->request.output_max;
    const world_text_t *text = ask->follow ? &w->text[ask->follow - 1u] : NULL;
    if (c->prompt_cap < most) {
        free(c->prompt);
        c->prompt_cap = most;
        c->prompt = malloc(c->prompt_cap * sizeof *c->prompt);
    }
    c->hash = fake_root(c->request.sampling.seed);
    for (uint32_t i = 0; i < c->request.prompt_cnt; i++) {
        uint64_t seed = i < ask->prefix_cnt ? ask->prefix : identity;
        c->prompt[i] = fake_prompt(seed, i, VOCAB);
        if (ask->blocks) {
            uint64_t which = tdm_rng_at(seed, i / TDM_KV_PAGE_TOKENS) & 1u;
            c->prompt[i] =
                (int32_t)(tdm_rng_at(ask->blocks + which, i % TDM_KV_PAGE_TOKENS) % VOCAB);
        }
        if (text && i < text->cnt) c->prompt[i] = text->token[i];
        c->hash = fake_hash(c->hash, c->prompt[i]);
    }
    c->request.prompt = c->prompt;
}

uint32_t world_submit(world_t *w, const world_ask_t *ask) {
    uint32_t slot = 0;
    world_client_t *c = idle_client(w, ask->api, &slot);
    if (!c || w->next_id >= WORLD_REQUEST_MAX) return UINT32_MAX;
    c->id = w->next_id++;
    uint64_t identity = ask->identity ? ask->identity : tdm_rng_at(w->seed, c->id);
    identity &= FAKE_SEED_MASK;
    c->request = (tdm_request_t){
        .handle = {.slot = slot, .generation = ++w->generation},
        .api = (uint16_t)ask->api,
        .slo_class = (uint16_t)ask->slo_class,
        .tenant = (uint16_t)ask->tenant,
        .arrival_ns = w->now_ns,
        .deadline_ns = ask->deadline_ns ? ask->deadline_ns : TDM_TIME_NEVER,
        .prompt_cnt = ask->prompt_cnt ? ask->prompt_cnt : 10u,
        .output_max = ask->output_max ? ask->output_max : 10u,
        .held_cnt = ask->held_cnt,
        .sampling = {.seed = identity | ask->seed_flags | (ask->held_cnt ? FAKE_SEED_HELD : 0u) |
                             (uint64_t)(ask->tenant & 15u) << FAKE_SEED_TENANT_LG,
                     .min_tokens = ask->min_tokens,
                     .flags = ask->flags}};
    fill_prompt(w, c, ask, identity);
    c->state = WORLD_ASKED;
    c->out_cnt = 0;
    c->is_cancelled = c->is_stop_hit = 0;
    c->first_ns = c->last_ns = c->gap_ns = 0;
    c->last_iteration = 0;
    c->skip_cnt = 0;
    w->live_cnt++;
    tdm_submit_t submit = {.request = &c->request, .generation = c->request.handle.generation};
    tdm_sched_submit(w->sched, w->now_ns, &submit);
    world_read(w);
    if (!w->is_deaf[ask->api] && c->state == WORLD_ASKED && c->id + 1u == w->next_id)
        wrong(w, "request %u got no answer", c->id);
    return c->id;
}

void world_control(world_t *w, uint32_t id, tdm_control_kind_t kind) {
    tdm_control_t word = {.kind = (uint16_t)kind};
    word.handle.generation = w->generation + 1u;
    for (uint32_t i = 0; i < w->sizes.api_cnt * w->sizes.request_max; i++) {
        world_client_t *c = &w->client[i];
        if (c->id != id || c->state == WORLD_IDLE) continue;
        word.handle = c->request.handle;
        word.api = c->request.api;
        if (kind == TDM_CONTROL_CANCEL) c->is_cancelled = 1;
        if (kind == TDM_CONTROL_STOP_HIT) c->is_stop_hit = 1;
    }
    tdm_sched_control(w->sched, w->now_ns, &word);
    world_read(w);
}

/* --- executor ------------------------------------------------------------ */

static int64_t cost_of(const world_t *w, const tdm_plan_t *plan) {
    const tdm_profile_row_t *row = &w->live.profile.row[plan->route];
    double ns = row->fixed_ns + row->token_ns * (plan->token_cnt + plan->decode_cnt);
    for (uint32_t i = 0; i < plan->slice_cnt; i++) {
        double c = plan->slice[i].cnt, p = plan->slice[i].pos;
        ns += row->pair_ns * (c * p + c * (c + 1.0) / 2.0);
    }
    for (uint32_t i = 0; i < plan->decode_cnt; i++) ns += row->kv_ns * (plan->decode[i].pos + 1.0);
    return (int64_t)(ns * w->slow) + 1;
}

/* check_bounds: the plan is what the live configuration allows. */
static void check_bounds(const world_t *w, uint64_t forced_cnt) {
    const tdm_plan_t *p = w->plan;
    int is_forced = tdm_sched_stats(w->sched)->forced_cnt > forced_cnt;
    if (p->token_cnt > w->live.token_max) wrong(w, "a plan of %u tokens", p->token_cnt);
    if (p->slice_cnt > w->live.slice_max) wrong(w, "a plan of %u slices", p->slice_cnt);
    if (w->live.policy == TDM_POLICY_STATIC || p->token_cnt == 0 || is_forced) return;
    if (p->predicted_ns > p->limit_ns) wrong(w, "a plan over its own limit");
}

/* check_left_out: a stream may miss an iteration while it is computed again
   after it gave its place up, or sits a turn out for a tighter promise. */
static void check_left_out(const world_t *w, world_client_t *c, uint32_t api) {
    const tdm_sched_t *s = w->sched;
    uint32_t idx = s->by_request[(size_t)api * w->sizes.request_max + c->request.handle.slot];
    const tdm_seq_t *q = &s->seq[idx];
    if (q->evict_cnt > WORLD_EVICT_MAX)
        wrong(w, "request %u gave up %u times", c->id, q->evict_cnt);
    if (q->evict_cnt > 0 && q->state != TDM_SEQ_DECODE) {
        c->last_iteration = 0;
        return;
    }
    if (c->skip_cnt++ < q->skip_cnt) return;
    wrong(w, "request %u (%u tokens, last at %llu) is left out of iteration %llu", c->id,
          c->out_cnt, (unsigned long long)c->last_iteration, (unsigned long long)w->iteration);
}

/* check_streams: whoever streamed before the iteration got a token of it. */
static void check_streams(world_t *w) {
    for (uint32_t i = 0; i < w->sizes.api_cnt * w->sizes.request_max; i++) {
        world_client_t *c = &w->client[i];
        uint32_t api = i / w->sizes.request_max;
        if (w->is_deaf[api] || c->state != WORLD_ACCEPTED) continue;
        if (c->last_iteration != 0 && c->last_iteration < w->iteration) check_left_out(w, c, api);
    }
}

uint32_t world_plan(world_t *w) {
    uint64_t forced_cnt = world_stats(w)->forced_cnt;
    uint32_t cnt = 0;
    while (tdm_sched_plan(w->sched, w->now_ns, w->plan)) {
        if (!w->is_up) wrong(w, "a plan without an executor");
        check_bounds(w, forced_cnt);
        forced_cnt = world_stats(w)->forced_cnt;
        if (!fake_take(&w->x, w->plan, cost_of(w, w->plan))) wrong(w, "plan: %s", w->x.wrong);
        if (w->x.flight_cnt == 1) w->busy_ns = w->now_ns;
        w->plan_cnt++;
        cnt++;
    }
    world_check(w);
    return cnt;
}

int world_finish(world_t *w) {
    if (!w->is_up || w->x.flight_cnt == 0) return 0;
    int64_t start = w->busy_ns, end = start + w->x.flight[0].cost_ns;
    if (w->now_ns < end) w->now_ns = end;
    w->gap_cnt += w->x.flight[0].decode_cnt;
    w->iteration = w->x.flight[0].iteration;
    w->iteration_end_ns = end;
    const tdm_result_t *r = fake_finish(&w->x, start, end);
    w->busy_ns = w->now_ns;
    tdm_sched_result(w->sched, w->now_ns, r);
    while (tdm_sched_record_pop(w->sched, &w->record)) {
    }
    world_read(w);
    world_check(w);
    check_streams(w);
    if (world_stats(w)->gap_cnt != w->gap_cnt) wrong(w, "the ledger of gaps does not add up");
    return 1;
}

int world_turn(world_t *w) {
    w->turn++;
    uint32_t cnt = world_plan(w);
    return world_finish(w) || cnt > 0;
}

tdm_reason_t world_watch(world_t *w, int64_t now_ns) {
    if (now_ns > w->now_ns) w->now_ns = now_ns;
    tdm_reason_t verdict = tdm_sched_watch(w->sched, w->now_ns);
    if (verdict != TDM_REASON_NONE) {
        world_kill(w);
        world_up(w);
    }
    world_read(w);
    world_check(w);
    return verdict;
}

int world_run(world_t *w, uint32_t turn_max) {
    for (uint32_t i = 0; i < turn_max && w->live_cnt > 0; i++)
        if (!world_turn(w) && w->live_cnt > 0)
            wrong(w, "%u requests wait and nothing runs", w->live_cnt);
    return w->live_cnt == 0;
}

void world_settled(world_t *w) {
    const tdm_sched_stats_t *t = world_stats(w);
    world_check(w);
    if (w->live_cnt != 0) wrong(w, "%u requests never ended", w->live_cnt);
    if (t->waiting_cnt || t->running_cnt) wrong(w, "a sequence is left");
    while (world_finish(w)) {
    }
    t = world_stats(w);
    if (t->page_free + t->page_idle != t->page_cnt || t->page_promised) wrong(w, "pages are left");
    if (t->page_cached != t->page_idle) wrong(w, "cached pages are held by nobody's table");
    if (w->cached_cnt > t->cache_saved_tokens) wrong(w, "more tokens saved than were");
    if (t->backlog_tokens || t->waiting_tokens) wrong(w, "a backlog is left");
    for (uint32_t i = 0; i < w->next_id; i++)
        if (w->end[i].kind == 0) wrong(w, "request %u has no end", i);
}
