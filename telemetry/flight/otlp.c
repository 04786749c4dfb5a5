/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/flight/trace.h"

#include "telemetry/flight/story_private.h"

#include <inttypes.h>
#include <stdlib.h>

/* Ids: OTLP wants 16 and 8 bytes that are not all zero.  They are made from
   who the span is, so that a file written twice has the same ones. */

typedef struct span {
    uint64_t trace; /* low half of the trace id */
    uint64_t id;
    uint64_t parent; /* 0: none */
    const char *name;
    int64_t begin_ns; /* since 1970 */
    int64_t end_ns;
    int is_error;
} span_t;

typedef struct file {
    FILE *f;
    const tdm_flight_head_t *h;
    int has_span;
    int has_attribute;
} file_t;

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 31) * UINT64_C(0x7fb5d329728ea185);
    x = (x ^ x >> 27) * UINT64_C(0x81dadef4bc2dd44d);
    return (x ^ x >> 33) | 1u;
}

static void open_span(file_t *o, const span_t *s) {
    (void)fprintf(o->f,
                  "%s{\"traceId\":\"%016" PRIx64 "%016" PRIx64 "\",\"spanId\":\"%016" PRIx64
                  "\",\"name\":\"%s\",\"kind\":1,",
                  o->has_span ? ",\n" : "\n", mix((uint64_t)o->h->start_ns), s->trace, s->id,
                  s->name);
    if (s->parent) (void)fprintf(o->f, "\"parentSpanId\":\"%016" PRIx64 "\",", s->parent);
    (void)fprintf(o->f,
                  "\"startTimeUnixNano\":\"%" PRId64 "\",\"endTimeUnixNano\":\"%" PRId64
                  "\",\"status\":{\"code\":%d},\"attributes\":[",
                  s->begin_ns, s->end_ns, s->is_error ? 2 : 0);
    o->has_span = 1;
    o->has_attribute = 0;
}

static void key(file_t *o, const char *name) {
    (void)fprintf(o->f, "%s{\"key\":\"%s\",\"value\":", o->has_attribute ? "," : "", name);
    o->has_attribute = 1;
}

static void text(file_t *o, const char *name, const char *value) {
    key(o, name);
    (void)fprintf(o->f, "{\"stringValue\":");
    tdm_put_json(o->f, value);
    (void)fprintf(o->f, "}}");
}

static void whole(file_t *o, const char *name, uint64_t value) {
    key(o, name);
    (void)fprintf(o->f, "{\"intValue\":\"%" PRIu64 "\"}}", value);
}

static void real(file_t *o, const char *name, double value) {
    key(o, name);
    (void)fprintf(o->f, "{\"doubleValue\":%.9g}}", value);
}

static void close_span(file_t *o) {
    (void)fprintf(o->f, "]}");
}

static void iteration(file_t *o, const tdm_flight_iteration_t *r) {
    int is_lost = (r->flags & TDM_FLIGHT_LOST) != 0;
    int64_t begin_ns = is_lost ? r->planned_ns : r->start_ns;
    span_t s = {.trace = mix(r->epoch),
                .id = mix(r->iteration << 1),
                .name = "iteration",
                .begin_ns = begin_ns + o->h->wall_offset_ns,
                .end_ns = (is_lost ? begin_ns : r->end_ns) + o->h->wall_offset_ns,
                .is_error = is_lost};
    open_span(o, &s);
    whole(o, "tandem.iteration", r->iteration);
    text(o, "tandem.path", is_lost ? "lost" : tdm_path_name(r->ran));
    text(o, "tandem.path.planned", tdm_path_name(r->route));
    text(o, "tandem.fallback", tdm_why_name(r->fallback));
    text(o, "tandem.prefill.ended_by", tdm_why_name(r->cap));
    text(o, "tandem.limit.class", tdm_class_name(r->limit_class));
    real(o, "tandem.limit.seconds", (double)r->limit_ns / 1e9);
    real(o, "tandem.predicted.seconds", (double)r->predicted_ns / 1e9);
    real(o, "tandem.quantile", (double)r->quantile_ppm / 1e6);
    whole(o, "tandem.prefill.tokens", r->prefill_cnt);
    whole(o, "tandem.decode.sequences", r->decode_cnt);
    whole(o, "tandem.vcta.prefill", r->vcta_executed[TDM_KIND_PREFILL]);
    whole(o, "tandem.vcta.decode", r->vcta_executed[TDM_KIND_DECODE]);
    whole(o, "tandem.splits", r->split_cnt);
    close_span(o);
}

static void request(file_t *o, const tdm_story_t *story, int64_t begin_ns, int64_t end_ns) {
    const tdm_flight_hop_t *who = &story->last;
    uint64_t id = mix((uint64_t)who->handle.generation << 32 | (uint64_t)who->api << 24 |
                      (uint64_t)who->handle.slot << 1 | 1u);
    int64_t wall_ns = o->h->wall_offset_ns;
    const char *ending = tdm_story_ending(story);
    int is_error = who->kind == TDM_HOP_REFUSED || (who->kind == TDM_HOP_ENDED && who->reason != 0);
    span_t s = {.trace = id,
                .id = id,
                .name = "request",
                .begin_ns = begin_ns + wall_ns,
                .end_ns = end_ns + wall_ns,
                .is_error = is_error};
    open_span(o, &s);
    text(o, "tandem.slo_class", tdm_class_name(who->slo_class));
    text(o, "tandem.ending", ending);
    whole(o, "gen_ai.usage.input_tokens", story->prompt_cnt);
    whole(o, "gen_ai.usage.output_tokens", story->output_cnt);
    close_span(o);
    for (uint32_t i = 0; i < TDM_PHASE_CNT; i++) {
        int64_t from_ns = story->at[tdm_phase[i].from], to_ns = story->at[tdm_phase[i].to];
        if (from_ns == 0 || to_ns < from_ns) continue;
        span_t phase = {.trace = id,
                        .id = mix(id + i + 1u),
                        .parent = id,
                        .name = tdm_phase[i].name,
                        .begin_ns = from_ns + wall_ns,
                        .end_ns = to_ns + wall_ns};
        open_span(o, &phase);
        close_span(o);
    }
}

tdm_status_t tdm_trace_otlp(const void *mem, const tdm_trace_span_t *span, FILE *f) {
    file_t o = {.f = f, .h = mem};
    tdm_story_t *story = malloc(tdm_stories_footprint(mem));
    if (!story) return TDM_ERR_NOMEM;
    size_t story_cnt = tdm_stories(mem, story);
    (void)fprintf(f, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    text(&o, "service.name", "tandem");
    text(&o, "service.version", o.h->version);
    text(&o, "gen_ai.request.model", o.h->model);
    (void)fprintf(f, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"tandem.flight\"},\"spans\":[");
    uint64_t newest = tdm_flight_newest(mem, 0);
    for (uint64_t n = tdm_flight_oldest(mem, 0); n < newest; n++) {
        tdm_flight_iteration_t r;
        if (!tdm_flight_get(mem, 0, n, &r)) continue;
        if (r.planned_ns <= span->to_ns && TDM_MAX(r.end_ns, r.planned_ns) >= span->from_ns)
            iteration(&o, &r);
    }
    for (size_t i = 0; i < story_cnt; i++) {
        int64_t begin_ns, end_ns;
        tdm_story_span(&story[i], &begin_ns, &end_ns);
        if (begin_ns <= span->to_ns && end_ns >= span->from_ns)
            request(&o, &story[i], begin_ns, end_ns);
    }
    (void)fprintf(f, "\n]}]}]}\n");
    free(story);
    return fflush(f) == 0 && !ferror(f) ? TDM_OK : TDM_ERR_IO;
}
