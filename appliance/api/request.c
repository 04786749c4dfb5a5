/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a POST becomes a request slot. */
#include "appliance/api/tile_private.h"

#include "appliance/base/clock.h"

#include <stdio.h>

/* draft is a request while its body is read; nothing of it outlives the
   body but what goes into a slot. */
typedef struct draft {
    tdm_api_tile_t *t;
    tdm_call_t *c;
    tdm_fields_t f;
    tdm_refusal_t refusal;
    uint32_t model;
    int is_chosen; /* the peer's word on its class of service counts */
} draft_t;

static uint32_t who_reads(tdm_endpoint_t endpoint) {
    switch (endpoint) {
    case TDM_ENDPOINT_COMPLETIONS: return TDM_FIELDS_COMPLETIONS;
    case TDM_ENDPOINT_CHAT: return TDM_FIELDS_CHAT;
    case TDM_ENDPOINT_TOKENIZE: return TDM_FIELDS_TOKENIZE;
    default: return TDM_FIELDS_DETOKENIZE;
    }
}

static int refuse_json(draft_t *d, const tdm_json_error_t *e) {
    int is_value = e->reason == TDM_REFUSE_bad_value;
    if (e->line)
        return tdm_refuse_text(&d->refusal, e->reason, "", "%s: line %u, column %u",
                               is_value ? "a number is out of range" : tdm_reason_text(e->reason),
                               e->line, e->column);
    if (is_value)
        return tdm_refuse_text(&d->refusal, e->reason, "",
                               "over %u keys in an object, or too many values",
                               d->t->config.json_key_max);
    if (e->reason == TDM_REFUSE_bad_type)
        return tdm_refuse_text(&d->refusal, e->reason, "", "the body must be a JSON object");
    return tdm_refuse(&d->refusal, e->reason, "");
}

static int read_model(draft_t *d) {
    const json_t *v = d->f.model;
    const tdm_api_config_t *c = &d->t->config;
    if (!v) return 1; /* not named: the one served here */
    if (!json_is_string(v)) return tdm_refuse(&d->refusal, TDM_REFUSE_bad_type, "model");
    for (uint32_t i = 0; i < c->model_name_cnt; i++) {
        if (strlen(c->model_name[i]) != json_string_length(v)) continue;
        if (memcmp(c->model_name[i], json_string_value(v), json_string_length(v)) != 0) continue;
        d->model = i;
        return 1;
    }
    return tdm_refuse(&d->refusal, TDM_REFUSE_model_not_found, "model");
}

static int read_stream_options(draft_t *d) {
    const json_t *v = d->f.stream_options;
    if (!v) return 1;
    if (!json_is_object(v)) return tdm_refuse(&d->refusal, TDM_REFUSE_bad_type, "stream_options");
    return tdm_fields_read(&d->f, v, TDM_FIELDS_STREAM, "stream_options.", &d->refusal);
}

static int read_prompt(draft_t *d) {
    tdm_prompt_t *p = &d->t->prompt;
    switch ((tdm_endpoint_t)d->c->endpoint) {
    case TDM_ENDPOINT_COMPLETIONS: return tdm_prompt_completion(p, &d->f, &d->refusal);
    case TDM_ENDPOINT_CHAT: return tdm_prompt_chat(p, &d->f, &d->refusal);
    case TDM_ENDPOINT_TOKENIZE:
        return d->f.messages ? tdm_prompt_chat(p, &d->f, &d->refusal)
                             : tdm_prompt_completion(p, &d->f, &d->refusal);
    default: break;
    }
    if (!d->f.tokens) return tdm_refuse(&d->refusal, TDM_REFUSE_missing_field, "tokens");
    if (!json_is_array(d->f.tokens)) return tdm_refuse(&d->refusal, TDM_REFUSE_bad_type, "tokens");
    return tdm_prompt_ids(p, d->f.tokens, "tokens", &d->refusal);
}

/* may_choose says whether this peer's word on classes counts. */
static int may_choose(const draft_t *d) {
    uint32_t from = d->t->config.slo_from;
    if (from == TDM_API_SLO_NONE) return 0;
    return from == TDM_API_SLO_ALL || d->c->exchange->is_trusted_peer;
}

/* target_ms is what class i promises: time to the first token or between
   two; 0: nothing. */
static double target_ms(const draft_t *d, uint32_t i, int is_tpot) {
    const tdm_api_class_t *own = &d->t->config.slo[i], *all = &d->t->config.promise[i];
    int64_t ns = is_tpot ? own->tpot_ns : own->ttft_ns;
    if (ns <= 0) ns = is_tpot ? all->tpot_ns : all->ttft_ns;
    return (double)ns / TDM_NS_PER_MS;
}

static int keeps(const draft_t *d, uint32_t i, int is_tpot, double asked_ms) {
    double ms = target_ms(d, i, is_tpot);
    return asked_ms <= 0 || (ms > 0 && ms <= asked_ms);
}

/* loosest gives the class with the loosest targets of those that keep what
   is asked, class_cnt where none does. */
static uint16_t loosest(const draft_t *d, double ttft_ms, double tpot_ms) {
    uint16_t best = d->t->config.class_cnt;
    double most = -1;
    for (uint16_t i = 0; i < d->t->config.class_cnt; i++) {
        if (!keeps(d, i, 0, ttft_ms) || !keeps(d, i, 1, tpot_ms)) continue;
        double sum = target_ms(d, i, 0) + target_ms(d, i, 1);
        if (sum <= most) continue;
        most = sum;
        best = i;
    }
    return best;
}

/* read_slo chooses the class: the one that priority names, else the
   loosest that keeps the targets.  A first token may be asked for sooner
   than any class promises, it is a deadline of its own; a gap may not,
   as it is the class's. */
static int read_slo(draft_t *d) {
    const tdm_api_config_t *c = &d->t->config;
    const tdm_fields_t *f = &d->f;
    uint32_t field_cnt = (f->has_priority ? 1u : 0u) + (f->slo_ttft_ms > 0 ? 1u : 0u) +
                         (f->slo_tpot_ms > 0 ? 1u : 0u);
    d->c->slo_class = c->class_default;
    if (field_cnt == 0) return 1;
    if (!may_choose(d) || (f->has_priority && c->class_cnt == 1)) {
        d->f.known_ignored_cnt += field_cnt;
        return 1;
    }
    d->is_chosen = 1;
    if (f->has_priority) {
        if (f->priority < 0 || f->priority >= c->class_cnt)
            return tdm_refuse_text(&d->refusal, TDM_REFUSE_bad_value, "priority",
                                   "priority is a class of service, 0 to %u", c->class_cnt - 1u);
        d->c->slo_class = (uint16_t)f->priority;
        if (keeps(d, d->c->slo_class, 1, f->slo_tpot_ms)) return 1;
        return tdm_refuse(&d->refusal, TDM_REFUSE_slo_unsupported, "slo_tpot_ms");
    }
    uint16_t best = loosest(d, f->slo_ttft_ms, f->slo_tpot_ms);
    if (best == c->class_cnt && f->slo_tpot_ms > 0) best = loosest(d, 0, f->slo_tpot_ms);
    if (best == c->class_cnt && f->slo_tpot_ms > 0)
        return tdm_refuse(&d->refusal, TDM_REFUSE_slo_unsupported, "slo_tpot_ms");
    if (best < c->class_cnt) d->c->slo_class = best;
    return 1;
}

static int64_t deadline_of(const draft_t *d, int64_t arrival_ns) {
    int64_t ttft_ns = d->t->config.slo[d->c->slo_class].ttft_ns;
    if (d->f.slo_ttft_ms > 0 && d->is_chosen)
        ttft_ns = (int64_t)(d->f.slo_ttft_ms * (double)TDM_NS_PER_MS);
    return ttft_ns > 0 ? arrival_ns + ttft_ns : TDM_TIME_NEVER;
}

/* take_slot gives a slot with room for the prompt and output_max ids. */
static tdm_slot_t *take_slot(draft_t *d, uint32_t output_max) {
    tdm_api_tile_t *t = d->t;
    tdm_slot_t *s = tdm_slot_take(t);
    if (!s) {
        tdm_refuse(&d->refusal, TDM_REFUSE_request_slots, "");
        return NULL;
    }
    uint32_t prompt_cnt = t->prompt.id_cnt;
    s->id_cap = (uint64_t)prompt_cnt + output_max;
    s->ids = tdm_slab_take(&t->slab, s->id_cap);
    if (!s->ids) {
        tdm_slot_free(t, s);
        tdm_refuse(&d->refusal, TDM_REFUSE_prompt_memory, "");
        return NULL;
    }
    memcpy(s->ids, t->prompt.ids, 4 * (uint64_t)prompt_cnt);
    s->request.prompt = s->ids;
    s->request.prompt_cnt = prompt_cnt;
    s->request.output_max = output_max;
    s->endpoint = d->c->endpoint;
    s->model = (uint16_t)d->model;
    s->created_s = (t->now_ns + t->config.wall_offset_ns) / TDM_NS_PER_S;
    return s;
}

static void tie(draft_t *d, tdm_slot_t *s) {
    s->call = (uint32_t)(d->c - d->t->call);
    d->c->slot = s->request.handle.slot;
}

static int start_native(draft_t *d) {
    tdm_slot_t *s = take_slot(d, 0);
    if (!s) return 0;
    s->state = TDM_SLOT_NATIVE;
    tdm_text_init(&s->text, d->t->prompt.tokenizer, 0);
    tie(d, s);
    tdm_slot_ready(d->t, s);
    return 1;
}

static void fill_options(draft_t *d, tdm_slot_t *s) {
    const tdm_fields_t *f = &d->f;
    int is_chat = d->c->endpoint == TDM_ENDPOINT_CHAT;
    s->is_stream = (uint16_t)f->is_stream;
    s->include_usage = (uint16_t)f->include_usage;
    s->continuous_usage = (uint16_t)f->continuous_usage_stats;
    s->has_ids = (uint16_t)f->return_token_ids;
    (void)snprintf(s->id, sizeof s->id, "%s-%016llx", is_chat ? "chatcmpl" : "cmpl",
                   (unsigned long long)tdm_rng_next(&d->t->rng));
}

static int submit(draft_t *d, tdm_slot_t *s) {
    tdm_api_tile_t *t = d->t;
    tdm_exchange_t *x = d->c->exchange;
    x->promise_ttft_ns = t->config.promise[d->c->slo_class].ttft_ns;
    x->promise_gap_ns = t->config.promise[d->c->slo_class].tpot_ns;
    s->request.api = t->config.api_idx;
    s->request.slo_class = d->c->slo_class;
    s->request.arrival_ns = x->arrival_ns;
    s->request.deadline_ns = deadline_of(d, x->arrival_ns);
    s->state = TDM_SLOT_SUBMITTED;
    tdm_submit_t word = {.request = &s->request, .generation = s->request.handle.generation};
    if (!tdm_ring_push(t->wires.requests, t->config.api_idx, &word)) {
        tdm_slot_free(t, s);
        return tdm_refuse(&d->refusal, TDM_REFUSE_queue_full, "");
    }
    tie(d, s);
    s->door_kind = x->door_kind;
    tdm_slot_hop(t, s, TDM_HOP_ARRIVED, x->first_byte_ns, NULL);
    /* What came while the turn was under way is younger than the turn. */
    int64_t submitted_ns = TDM_MAX(t->now_ns, x->arrival_ns);
    tdm_slot_hop(t, s, TDM_HOP_SUBMITTED, submitted_ns, NULL);
    tdm_store_relaxed(&t->stats.submit_cnt, t->stats.submit_cnt + 1);
    tdm_observe_ns(t->wires.block, TDM_METRIC_ingest_seconds,
                   tdm_label_of_api((tdm_endpoint_t)d->c->endpoint),
                   submitted_ns - x->first_byte_ns);
    tdm_call_send(t, d->c, TDM_EGRESS_BODY_DONE);
    return 1;
}

/* read_held: what a bench says of its prompt's keys and values. */
static int read_held(draft_t *d, uint32_t *held) {
    int64_t asked = d->f.held_tokens;
    *held = (uint32_t)asked;
    if (asked == 0) return 1;
    if (!d->t->config.may_hold)
        return tdm_refuse_text(&d->refusal, TDM_REFUSE_unsupported_parameter, "held_tokens",
                               "held_tokens is for measurements: api.warm_start is off");
    if (asked > d->t->prompt.id_cnt)
        return tdm_refuse_text(&d->refusal, TDM_REFUSE_bad_value, "held_tokens",
                               "the prompt has %u tokens", d->t->prompt.id_cnt);
    return 1;
}

static int start_generation(draft_t *d, int tenant) {
    tdm_prompt_t *p = &d->t->prompt;
    tdm_sampling_t sampling;
    uint64_t seed = tdm_rng_next(&d->t->rng);
    uint32_t held;
    uint32_t output_max = tdm_prompt_output(p, &d->f, &d->refusal);
    if (output_max == 0 || !read_held(d, &held)) return 0;
    if (!tdm_prompt_sampling(p, &d->f, seed, &sampling, &d->refusal)) return 0;
    tdm_stop_t stop;
    if (!tdm_prompt_stops(&d->f, &stop, &d->refusal)) return 0;
    tdm_slot_t *s = take_slot(d, output_max);
    if (!s) return 0;
    s->request.tenant = (uint16_t)tenant;
    s->request.sampling = sampling;
    s->request.held_cnt = held;
    tdm_text_init(&s->text, p->tokenizer, d->f.include_stop_str_in_output);
    s->text.stop = stop;
    fill_options(d, s);
    return submit(d, s);
}

/* A request that could only be refused for want of a slot costs no
   tokenising; starting and draining refuse everything. */
static int is_open(draft_t *d) {
    uint32_t refusal = tdm_load_relaxed(&d->t->wires.vitals->refusal);
    if (refusal == TDM_REFUSE_starting || refusal == TDM_REFUSE_draining)
        return tdm_refuse(&d->refusal, (tdm_reason_t)refusal, "");
    if (d->t->free_slots.cnt == 0) return tdm_refuse(&d->refusal, TDM_REFUSE_request_slots, "");
    return 1;
}

static int read_body(draft_t *d, int tenant) {
    const tdm_exchange_t *x = d->c->exchange;
    tdm_json_error_t e;
    const json_t *root = tdm_json_load(&d->t->json, x->body, x->body_sz, &e);
    if (!root) return refuse_json(d, &e);
    uint32_t who = who_reads((tdm_endpoint_t)d->c->endpoint);
    if (!tdm_fields_read(&d->f, root, who, "", &d->refusal)) return 0;
    if (!read_model(d) || !read_stream_options(d) || !read_slo(d)) return 0;
    if (!is_open(d) || !read_prompt(d)) return 0;
    return who & (TDM_FIELDS_COMPLETIONS | TDM_FIELDS_CHAT) ? start_generation(d, tenant)
                                                            : start_native(d);
}

void tdm_request_start(tdm_api_tile_t *t, tdm_call_t *c, int tenant) {
    draft_t d = {.t = t, .c = c};
    tdm_fields_default(&d.f);
    tdm_json_begin(&t->json);
    int is_started = read_body(&d, tenant);
    tdm_json_end(&t->json);
    tdm_count(t->wires.block, TDM_METRIC_fields_ignored_total, TDM_LABEL_FIELD_known,
              d.f.known_ignored_cnt);
    tdm_count(t->wires.block, TDM_METRIC_fields_ignored_total, TDM_LABEL_FIELD_unknown,
              d.f.unknown_cnt);
    if (!is_started) tdm_call_refuse(t, c, &d.refusal);
}
