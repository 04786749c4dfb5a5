/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/flight/trace.h"

#include "telemetry/flight/story_private.h"

#include <inttypes.h>
#include <stdlib.h>

/* Threads of the picture. */
enum { TID_ITERATIONS = 1, TID_REQUESTS };

static double us(int64_t ns) {
    return (double)ns / 1000.0;
}

static void head(const tdm_flight_head_t *h, FILE *f) {
    (void)fprintf(f, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"version\":");
    tdm_put_json(f, h->version);
    (void)fprintf(f, ",\"model\":");
    tdm_put_json(f, h->model);
    (void)fprintf(f,
                  ",\"wall_offset_ns\":\"%" PRId64 "\"},\"traceEvents\":[\n"
                  "{\"ph\":\"M\",\"pid\":%" PRIu32 ",\"name\":\"process_name\",\"args\":{\"name\":"
                  "\"tandemd\"}},\n"
                  "{\"ph\":\"M\",\"pid\":%" PRIu32 ",\"tid\":%d,\"name\":\"thread_name\",\"args\":"
                  "{\"name\":\"iterations\"}},\n"
                  "{\"ph\":\"M\",\"pid\":%" PRIu32 ",\"tid\":%d,\"name\":\"thread_name\",\"args\":"
                  "{\"name\":\"requests\"}}",
                  h->wall_offset_ns, h->pid, h->pid, TID_ITERATIONS, h->pid, TID_REQUESTS);
}

/* iteration is a slice, or an instant where the executor died under it. */
static void iteration(const tdm_flight_head_t *h, const tdm_flight_iteration_t *r, FILE *f) {
    int is_lost = (r->flags & TDM_FLIGHT_LOST) != 0;
    int64_t at_ns = is_lost ? r->planned_ns : r->start_ns;
    (void)fprintf(f,
                  ",\n{\"ph\":\"%s\",\"cat\":\"iteration\",\"name\":\"%s\",\"pid\":%" PRIu32
                  ",\"tid\":%d,\"ts\":%.3f",
                  is_lost ? "i" : "X", is_lost ? "lost" : tdm_path_name(r->ran), h->pid,
                  TID_ITERATIONS, us(at_ns));
    if (is_lost)
        (void)fprintf(f, ",\"s\":\"t\"");
    else
        (void)fprintf(f, ",\"dur\":%.3f", us(r->end_ns - r->start_ns));
    (void)fprintf(f,
                  ",\"args\":{\"iteration\":%" PRIu64 ",\"life\":%" PRIu32 ",\"planned\":\"%s\","
                  "\"fallback\":\"%s\",\"prefill_ended_by\":\"%s\",\"limit_class\":\"%s\","
                  "\"limit_ms\":%.6f,\"predicted_ms\":%.6f,\"profile_ms\":%.6f,"
                  "\"quantile\":%.6f,",
                  r->iteration, r->epoch, tdm_path_name(r->route), tdm_why_name(r->fallback),
                  tdm_why_name(r->cap), tdm_class_name(r->limit_class), (double)r->limit_ns / 1e6,
                  (double)r->predicted_ns / 1e6, (double)r->profile_ns / 1e6,
                  (double)r->quantile_ppm / 1e6);
    (void)fprintf(f,
                  "\"prefill_tokens\":%" PRIu32 ",\"slices\":%" PRIu32 ",\"decodes\":%" PRIu32
                  ",\"kv_tokens\":%" PRIu64 ",\"pairs\":%" PRIu64 ",\"variant\":%" PRIu32
                  ",\"tile\":[%u,%u],\"splits\":%" PRIu32 ",\"merges\":%" PRIu32 ",\"sms\":%" PRIu32
                  ",",
                  r->prefill_cnt, r->slice_cnt, r->decode_cnt, r->kv_cnt, r->pair_cnt, r->variant,
                  r->tile_row, r->tile_key, r->split_cnt, r->merge_cnt, r->sm_cnt);
    (void)fprintf(f,
                  "\"vcta_planned\":[%" PRIu64 ",%" PRIu64 "],\"vcta_executed\":[%" PRIu64
                  ",%" PRIu64 "],\"attention_ms\":%.6f,\"sampling_ms\":%.6f,\"colocated_ms\":%.6f,"
                  "\"vcta_ms\":[%.6f,%.6f],"
                  "\"late_decodes\":%" PRIu32 ",\"forced\":%u,\"outside_profile\":%u,"
                  "\"clock_mhz\":%" PRIu32 ",\"energy_uj\":%" PRIu64 "}}",
                  r->vcta_planned[0], r->vcta_planned[1], r->vcta_executed[0], r->vcta_executed[1],
                  (double)r->attention_ns / 1e6, (double)r->sample_ns / 1e6,
                  (double)r->colocated_ns / 1e6, (double)r->vcta_ns[0] / 1e6,
                  (double)r->vcta_ns[1] / 1e6, r->over_cnt, r->flags & TDM_FLIGHT_FORCED,
                  (r->flags & TDM_FLIGHT_OUTSIDE) / TDM_FLIGHT_OUTSIDE, r->clock_mhz, r->energy_uj);
    if (is_lost) return;
    (void)fprintf(f,
                  ",\n{\"ph\":\"C\",\"name\":\"virtual CTAs\",\"pid\":%" PRIu32 ",\"ts\":%.3f,"
                  "\"args\":{\"prefill\":%" PRIu64 ",\"decode\":%" PRIu64 "}}",
                  h->pid, us(at_ns), r->vcta_executed[0], r->vcta_executed[1]);
    (void)fprintf(f,
                  ",\n{\"ph\":\"C\",\"name\":\"requests\",\"pid\":%" PRIu32 ",\"ts\":%.3f,"
                  "\"args\":{\"running\":%" PRIu32 ",\"waiting\":%" PRIu32 "}}",
                  h->pid, us(at_ns), r->running_cnt, r->waiting_cnt);
}

static void async(const tdm_flight_head_t *h, const tdm_story_t *s, const char *name, char ph,
                  int64_t at_ns, FILE *f) {
    (void)fprintf(f,
                  ",\n{\"ph\":\"%c\",\"cat\":\"request\",\"name\":\"%s\",\"id\":\"%u.%" PRIu32
                  ".%" PRIu32 "\",\"pid\":%" PRIu32 ",\"tid\":%d,\"ts\":%.3f",
                  ph, name, s->last.api, s->last.handle.slot, s->last.handle.generation, h->pid,
                  TID_REQUESTS, us(at_ns));
}

static void request(const tdm_flight_head_t *h, const tdm_story_t *s, FILE *f) {
    int64_t begin_ns, end_ns;
    tdm_story_span(s, &begin_ns, &end_ns);
    async(h, s, "request", 'b', begin_ns, f);
    (void)fprintf(f,
                  ",\"args\":{\"class\":\"%s\",\"ending\":\"%s\",\"prompt_tokens\":%" PRIu32
                  ",\"output_tokens\":%" PRIu32 "}}",
                  tdm_class_name(s->last.slo_class), tdm_story_ending(s), s->prompt_cnt,
                  s->output_cnt);
    for (uint32_t i = 0; i < TDM_PHASE_CNT; i++) {
        int64_t from_ns = s->at[tdm_phase[i].from], to_ns = s->at[tdm_phase[i].to];
        if (from_ns == 0 || to_ns < from_ns) continue;
        async(h, s, tdm_phase[i].name, 'b', from_ns, f);
        (void)fprintf(f, "}");
        async(h, s, tdm_phase[i].name, 'e', to_ns, f);
        (void)fprintf(f, "}");
    }
    async(h, s, "request", 'e', end_ns, f);
    (void)fprintf(f, "}");
}

tdm_status_t tdm_trace_chrome(const void *mem, const tdm_trace_span_t *span, FILE *f) {
    const tdm_flight_head_t *h = mem;
    tdm_story_t *story = malloc(tdm_stories_footprint(mem));
    if (!story) return TDM_ERR_NOMEM;
    size_t story_cnt = tdm_stories(mem, story);
    head(h, f);
    uint64_t newest = tdm_flight_newest(mem, 0);
    for (uint64_t n = tdm_flight_oldest(mem, 0); n < newest; n++) {
        tdm_flight_iteration_t r;
        if (!tdm_flight_get(mem, 0, n, &r)) continue;
        if (r.planned_ns <= span->to_ns && TDM_MAX(r.end_ns, r.planned_ns) >= span->from_ns)
            iteration(h, &r, f);
    }
    for (size_t i = 0; i < story_cnt; i++) {
        int64_t begin_ns, end_ns;
        tdm_story_span(&story[i], &begin_ns, &end_ns);
        if (begin_ns <= span->to_ns && end_ns >= span->from_ns) request(h, &story[i], f);
    }
    (void)fprintf(f, "\n]}\n");
    free(story);
    return fflush(f) == 0 && !ferror(f) ? TDM_OK : TDM_ERR_IO;
}
