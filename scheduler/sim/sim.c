/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/sim.h"

#include "appliance/base/check.h"
#include "appliance/base/clock.h"
#include "appliance/base/real.h"
#include "scheduler/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH     2u
#define SERIAL    (TDM_ROUTE_SERIAL - TDM_ROUTE_FUSED) /* as a variant of the profile */
#define CHECK_CNT 4096u /* iterations between two walks over all invariants */

/* What one client saw. */
typedef struct client {
    tdm_request_t request;
    uint32_t is_open;
    uint32_t token_cnt;
    int64_t first_ns;
    int64_t last_ns;
    uint32_t gap_cnt;
    uint32_t over_cnt;
} client_t;

typedef struct flight {
    tdm_result_t *result;
    double cost_ns;
    int64_t start_ns; /* 0: behind another */
} flight_t;

typedef struct sim {
    const tdm_sim_ask_t *ask;
    tdm_sim_result_t *out;
    tdm_sched_live_t live;
    tdm_sched_t *sched;
    void *mem;
    tdm_plan_t *plan;
    flight_t flight[DEPTH];
    uint32_t flight_cnt;
    int64_t now_ns;
    int64_t free_ns; /* when the executor finished last */
    tdm_rng_t rng;
    double factor; /* drawn for the next iteration */
    double spike_ns;
    client_t *client;
    int32_t *prompt; /* one list of ids for everybody */
    uint32_t next;   /* row to arrive */
    uint32_t open_cnt;
    uint32_t waiting_cnt; /* of them, without a token */
    double *ttft, *e2e;
    uint32_t ttft_cnt, e2e_cnt, good_cnt;
    uint64_t chunk_tok, bound_tok;
} sim_t;

/* --- the machine ---------------------------------------------------------- */

static double normal(tdm_rng_t *r) {
    double u = 1.0 - tdm_rng_unit(tdm_rng_next(r)), v = tdm_rng_unit(tdm_rng_next(r));
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

/* draw decides the luck of the next iteration; an oracle is told. */
static void draw(sim_t *s) {
    const tdm_cost_t *c = s->ask->cost;
    s->factor = exp(c->noise * normal(&s->rng));
    double u = tdm_rng_unit(tdm_rng_next(&s->rng)), v = tdm_rng_unit(tdm_rng_next(&s->rng));
    s->spike_ns =
        u < c->spike_share ? c->spike_low_ns + v * (c->spike_high_ns - c->spike_low_ns) : 0.0;
    if (!s->ask->is_oracle) return;
    double bias = 1.0 + (c->bias_low + c->bias_high) / 2.0;
    s->live.policy = TDM_POLICY_MARGIN;
    s->live.margin = s->factor * bias * tdm_cost_slow(c, s->now_ns);
    s->live.host_gap_ns = c->host_ns + (int64_t)s->spike_ns;
    tdm_sched_live_set(s->sched, &s->live);
}

static tdm_load_t load_of(const tdm_plan_t *plan) {
    tdm_load_t load = {.prefill_cnt = plan->token_cnt, .decode_cnt = plan->decode_cnt};
    for (uint32_t i = 0; i < plan->slice_cnt; i++) {
        uint64_t c = plan->slice[i].cnt;
        load.pair_cnt += c * plan->slice[i].pos + c * (c + 1u) / 2u;
    }
    for (uint32_t i = 0; i < plan->decode_cnt; i++) {
        uint64_t kv = (uint64_t)plan->decode[i].pos + 1u;
        load.kv_cnt += kv;
        load.kv_max = TDM_MAX(load.kv_max, kv);
    }
    return load;
}

static double cost_of(sim_t *s, const tdm_plan_t *plan) {
    const tdm_cost_t *c = s->ask->cost;
    tdm_load_t load = load_of(plan);
    uint32_t variant = plan->route < TDM_ROUTE_FUSED ? 0u : plan->route - TDM_ROUTE_FUSED;
    double bias =
        s->ask->is_oracle ? 1.0 + (c->bias_low + c->bias_high) / 2.0 : tdm_cost_bias(c, &load);
    double quiet = tdm_cost_quiet_ns(c, variant, &load);
    double attention = tdm_cost_attention_ns(c, variant, &load);
    s->out->busy_ns += quiet;
    if (plan->reason != TDM_REASON_NONE) {
        s->out->ran_ns[plan->reason] += quiet;
        s->out->lost_ns[plan->reason] += TDM_MAX(quiet - tdm_cost_quiet_ns(c, 0, &load), 0.0);
    }
    s->out->attention_ns += attention;
    s->out->serial_attention_ns +=
        plan->route < TDM_ROUTE_FUSED ? attention : tdm_cost_attention_ns(c, SERIAL, &load);
    return quiet * bias * tdm_cost_slow(c, s->now_ns) * s->factor + s->spike_ns;
}

/* answer fills the result of a plan: every sampled token is id 0. */
static void answer(const tdm_plan_t *plan, tdm_result_t *r) {
    memset(r, 0, offsetof(tdm_result_t, sample));
    r->iteration = plan->iteration;
    r->epoch = plan->epoch;
    r->route = plan->route;
    r->reason = plan->reason;
    for (uint32_t i = 0; i < plan->slice_cnt; i++)
        if (plan->slice[i].is_last)
            r->sample[r->sample_cnt++] = (tdm_result_sample_t){
                .slot = plan->slice[i].slot, .pos = plan->slice[i].pos + plan->slice[i].cnt};
    for (uint32_t i = 0; i < plan->decode_cnt; i++)
        r->sample[r->sample_cnt++] =
            (tdm_result_sample_t){.slot = plan->decode[i].slot, .pos = plan->decode[i].pos + 1u};
}

static int64_t end_ns(const flight_t *f) {
    return f->start_ns + (int64_t)f->cost_ns + 1;
}

static void begin(sim_t *s) {
    s->flight[0].start_ns = TDM_MAX(s->now_ns, s->free_ns) + s->ask->cost->host_ns;
}

static void plan_all(sim_t *s) {
    while (s->flight_cnt < DEPTH) {
        if (!tdm_sched_plan(s->sched, s->now_ns, s->plan)) return;
        flight_t *f = &s->flight[s->flight_cnt++];
        answer(s->plan, f->result);
        f->cost_ns = cost_of(s, s->plan);
        f->start_ns = 0;
        if (s->flight_cnt == 1) begin(s);
        draw(s);
    }
}

/* --- clients --------------------------------------------------------------- */

static void see_gap(sim_t *s, client_t *c, int64_t at_ns) {
    double gap = (double)(at_ns - c->last_ns);
    if (at_ns - TDM_NS_PER_S < s->ask->from_ns) return;
    double bin = gap / TDM_SIM_BIN_NS;
    s->out->bin[bin < TDM_SIM_BIN_CNT ? (uint32_t)bin : TDM_SIM_BIN_CNT]++;
    c->gap_cnt++;
    c->over_cnt += gap > (double)s->ask->gap_ns;
    s->out->gap_cnt++;
    s->out->gap_sum_ns += gap;
    s->out->over_share += gap > (double)s->ask->gap_ns;
    s->out->stall200_share += gap > 200e6;
    s->out->stall500_share += gap > 500e6;
}

/* close_client tells whoever asked how it went. */
static void close_client(sim_t *s, client_t *c, tdm_reason_t refused, uint32_t is_cut) {
    s->open_cnt--;
    s->waiting_cnt -= c->token_cnt == 0;
    c->is_open = 0;
    if (!s->ask->seen) return;
    tdm_sim_request_t r = {.row = c->request.handle.slot,
                           .refused = refused,
                           .is_cut = is_cut,
                           .token_cnt = c->token_cnt,
                           .arrival_ns = c->request.arrival_ns - TDM_NS_PER_S,
                           .first_ns = c->first_ns - TDM_NS_PER_S,
                           .last_ns = c->last_ns - TDM_NS_PER_S,
                           .gap_cnt = c->gap_cnt,
                           .over_cnt = c->over_cnt};
    s->ask->seen(s->ask->ctx, &r);
}

static void see_end(sim_t *s, client_t *c) {
    const tdm_request_t *r = &c->request;
    close_client(s, c, TDM_REASON_NONE, 0);
    s->out->finished++;
    s->e2e[s->e2e_cnt++] = (double)(c->last_ns - r->arrival_ns);
    int is_met = c->first_ns - r->arrival_ns <= s->ask->ttft_ns;
    s->good_cnt += is_met && (double)c->over_cnt <= 0.01 * (double)c->gap_cnt;
}

static void read_events(sim_t *s, int64_t at_ns) {
    const tdm_event_t *e;
    while ((e = tdm_sched_event_peek(s->sched, 0)) != NULL) {
        client_t *c = &s->client[e->handle.slot];
        if (e->kind == TDM_EVENT_REFUSED) {
            close_client(s, c, (tdm_reason_t)e->reason, 0);
            s->out->refused++;
        } else if (e->kind == TDM_EVENT_TOKEN) {
            if (c->token_cnt++ == 0) s->waiting_cnt--;
            if (e->index == 0) {
                c->first_ns = at_ns;
                s->ttft[s->ttft_cnt++] = (double)(at_ns - c->request.arrival_ns);
            } else {
                see_gap(s, c, at_ns);
            }
            c->last_ns = at_ns;
        } else if (e->kind == TDM_EVENT_END) {
            see_end(s, c);
        }
        tdm_sched_event_drop(s->sched, 0);
    }
}

static void arrive(sim_t *s) {
    const tdm_workload_row_t *row = &s->ask->workload->row[s->next];
    client_t *c = &s->client[s->next];
    uint32_t most = s->ask->sizes.context_max;
    uint32_t output = TDM_MIN(row->output_cnt, most / 2u);
    c->request = (tdm_request_t){.handle = {.slot = s->next, .generation = 1},
                                 .arrival_ns = s->now_ns,
                                 .deadline_ns = TDM_TIME_NEVER,
                                 .prompt_cnt = TDM_MIN(row->prompt_cnt, most - output),
                                 .output_max = output,
                                 .prompt = s->prompt};
    c->request.held_cnt = TDM_MIN(row->held_cnt, c->request.prompt_cnt);
    tdm_submit_t word = {.request = &c->request, .generation = 1};
    c->is_open = 1;
    s->open_cnt++;
    s->waiting_cnt++;
    s->next++;
    tdm_sched_submit(s->sched, s->now_ns, &word);
    read_events(s, s->now_ns);
}

/* --- the run ------------------------------------------------------------------ */

static void see_record(sim_t *s, const tdm_sched_record_t *r) {
    s->out->iteration_cnt++;
    s->out->fallback[r->fallback]++;
    if (r->prefill_cnt == 0 || r->decode_cnt == 0) return;
    s->out->both_cnt++;
    s->chunk_tok += r->prefill_cnt;
    s->out->fused_cnt += r->ran == TDM_ROUTE_FUSED;
    if (r->cap != TDM_CAP_time_limit || r->is_thrifty) return;
    s->out->bound_cnt++;
    s->bound_tok += r->prefill_cnt;
}

static void finish(sim_t *s) {
    flight_t first = s->flight[0];
    s->now_ns = end_ns(&first);
    first.result->start_ns = first.start_ns;
    first.result->end_ns = s->now_ns;
    tdm_sched_result(s->sched, s->now_ns, first.result);
    s->free_ns = s->now_ns;
    s->flight[0] = s->flight[1];
    s->flight[1] = first;
    if (--s->flight_cnt > 0) begin(s);
    tdm_sched_record_t record;
    while (tdm_sched_record_pop(s->sched, &record)) see_record(s, &record);
    read_events(s, s->now_ns);
    if (s->out->iteration_cnt % CHECK_CNT == 0) TDM_CHECK(tdm_sched_check(s->sched) == NULL);
}

static int is_over(const sim_t *s) {
    return s->next == s->ask->workload->row_cnt && s->open_cnt == 0;
}

static int64_t arrival_ns(const tdm_sim_ask_t *a, int64_t at_ns) {
    int64_t back_ns = a->cut_ns + a->cut_for_ns;
    return at_ns >= a->cut_ns && at_ns < back_ns ? back_ns : at_ns;
}

/* wait_to lets time pass for those who wait. */
static void wait_to(sim_t *s, int64_t to_ns) {
    int64_t quarter_ns = (s->ask->until_ns - s->ask->from_ns) / 4;
    for (int64_t k = 0; k < 2 && quarter_ns > 0; k++) {
        int64_t begin_ns = s->ask->from_ns + 3 * k * quarter_ns + TDM_NS_PER_S;
        int64_t ns = TDM_MIN(to_ns, begin_ns + quarter_ns) - TDM_MAX(s->now_ns, begin_ns);
        if (ns > 0) s->out->waiting[k] += (double)s->waiting_cnt * (double)ns / (double)quarter_ns;
    }
}

/* cut ends the run at its window's end. */
static void cut(sim_t *s) {
    for (uint32_t i = 0; i < s->next; i++)
        if (s->client[i].is_open) close_client(s, &s->client[i], TDM_REASON_NONE, 1);
    s->next = s->ask->workload->row_cnt;
}

/* turn lets time pass to the next thing that happens; 0: nothing will. */
static int turn(sim_t *s) {
    plan_all(s);
    int64_t arrival = TDM_TIME_NEVER, end = TDM_TIME_NEVER;
    if (s->next < s->ask->workload->row_cnt)
        arrival = arrival_ns(s->ask, s->ask->workload->row[s->next].at_ns) + TDM_NS_PER_S;
    if (s->flight_cnt > 0) end = end_ns(&s->flight[0]);
    if (arrival == TDM_TIME_NEVER && end == TDM_TIME_NEVER) return 0;
    int64_t until_ns = s->ask->until_ns > 0 ? s->ask->until_ns + TDM_NS_PER_S : TDM_TIME_NEVER;
    wait_to(s, TDM_MIN(TDM_MIN(arrival, end), until_ns));
    if (TDM_MIN(arrival, end) > until_ns) {
        s->now_ns = until_ns;
        cut(s);
    } else if (arrival <= end) {
        s->now_ns = TDM_MAX(s->now_ns, arrival);
        arrive(s);
    } else {
        finish(s);
    }
    return 1;
}

static double at_share(double *v, uint32_t cnt, double share) {
    if (cnt == 0) return 0.0;
    qsort(v, cnt, sizeof *v, tdm_ascending);
    return v[(uint32_t)(share * (double)(cnt - 1u))];
}

double tdm_sim_gap_ns(const tdm_sim_result_t *r, double share) {
    double want = share * (double)r->gap_cnt, seen = 0.0;
    for (uint32_t i = 0; i <= TDM_SIM_BIN_CNT; i++) {
        seen += (double)r->bin[i];
        if (seen >= want && seen > 0.0) return (i + 1.0) * TDM_SIM_BIN_NS;
    }
    return 0.0;
}

static double over(double a, double b) {
    return b > 0.0 ? a / b : 0.0;
}

static void sum_up(sim_t *s) {
    tdm_sim_result_t *r = s->out;
    double gaps = (double)r->gap_cnt;
    r->over_share = over(r->over_share, gaps);
    r->stall200_share = over(r->stall200_share, gaps);
    r->stall500_share = over(r->stall500_share, gaps);
    r->gap_p50_ns = tdm_sim_gap_ns(r, 0.5);
    r->gap_p99_ns = tdm_sim_gap_ns(r, 0.99);
    r->gap_p999_ns = tdm_sim_gap_ns(r, 0.999);
    r->ttft_p50_ns = at_share(s->ttft, s->ttft_cnt, 0.5);
    r->ttft_p99_ns = at_share(s->ttft, s->ttft_cnt, 0.99);
    r->e2e_p50_ns = at_share(s->e2e, s->e2e_cnt, 0.5);
    r->e2e_p99_ns = at_share(s->e2e, s->e2e_cnt, 0.99);
    r->span_s = (double)(s->now_ns - TDM_NS_PER_S) / 1e9;
    r->goodput = over(s->good_cnt, r->span_s);
    r->chunk_bound = over((double)s->bound_tok, (double)r->bound_cnt);
    r->chunk_mean = over((double)s->chunk_tok, (double)r->both_cnt);
    r->fused_share = over((double)r->fused_cnt, (double)r->both_cnt);
    const tdm_sched_stats_t *t = tdm_sched_stats(s->sched);
    r->quantile = t->cap_quantile;
    r->alpha = t->cap_alpha;
}

static int reserve(sim_t *s, const tdm_sched_sizes_t *sizes) {
    uint32_t rows = s->ask->workload->row_cnt;
    s->mem = aligned_alloc(TDM_CACHE_LINE, tdm_sched_footprint(sizes));
    s->plan = malloc(sizeof *s->plan);
    s->client = calloc(rows, sizeof *s->client);
    s->prompt = calloc(sizes->context_max, sizeof *s->prompt);
    s->ttft = calloc(rows, sizeof *s->ttft);
    s->e2e = calloc(rows, sizeof *s->e2e);
    int ok = s->mem && s->plan && s->client && s->prompt && s->ttft && s->e2e;
    for (uint32_t i = 0; i < DEPTH; i++) {
        s->flight[i].result = malloc(sizeof *s->flight[i].result);
        ok = ok && s->flight[i].result;
    }
    return ok;
}

static void release(sim_t *s) {
    for (uint32_t i = 0; i < DEPTH; i++) free(s->flight[i].result);
    free(s->mem);
    free(s->plan);
    free(s->client);
    free(s->prompt);
    free(s->ttft);
    free(s->e2e);
}

tdm_status_t tdm_sim_run(const tdm_sim_ask_t *ask, tdm_sim_result_t *result, tdm_error_t *err) {
    tdm_sched_sizes_t sizes = ask->sizes;
    sizes.api_cnt = 1;
    sizes.request_max = ask->workload->row_cnt;
    sizes.depth = DEPTH;
    sim_t s = {.ask = ask, .out = result, .live = ask->live, .rng = {.state = ask->seed}};
    memset(result, 0, sizeof *result);
    s.live.profile.table = ask->table;
    s.live.profile.is_measured = ask->table != NULL;
    tdm_status_t st = tdm_sched_sizes_check(&sizes, err);
    if (st != TDM_OK) return st;
    if (!reserve(&s, &sizes)) st = tdm_error_set(err, TDM_ERR_NOMEM, "sim: no memory");
    if (st == TDM_OK) st = tdm_sched_init(s.mem, &sizes, &s.live, &s.sched, err);
    if (st == TDM_OK) {
        s.now_ns = TDM_NS_PER_S;
        tdm_sched_executor_up(s.sched, s.now_ns, 1);
        draw(&s);
        while (!is_over(&s))
            if (!turn(&s)) {
                st = tdm_error_set(err, TDM_ERR_INTERNAL, "sim: %u requests wait and nothing runs",
                                   s.open_cnt);
                break;
            }
        sum_up(&s);
    }
    release(&s);
    return st;
}
