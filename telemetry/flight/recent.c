/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/flight/recent.h"

#include "telemetry/flight/story_private.h"

#include <inttypes.h>

static double ms(int64_t ns) {
    return (double)ns / 1e6;
}

/* wall_s gives seconds since 1970. */
static double wall_s(const tdm_flight_head_t *h, int64_t at_ns) {
    return (double)(at_ns + h->wall_offset_ns) / 1e9;
}

static void iteration(const tdm_flight_head_t *h, const tdm_flight_iteration_t *r, uint64_t n,
                      FILE *f) {
    int is_lost = (r->flags & TDM_FLIGHT_LOST) != 0;
    (void)fprintf(f,
                  "{\"n\":%" PRIu64
                  ",\"at_s\":%.3f,\"ms\":%.3f,\"path\":\"%s\",\"fallback\":\"%s\","
                  "\"cap\":\"%s\",\"class\":\"%s\",\"limit_ms\":%.3f,\"predicted_ms\":%.3f,",
                  n, wall_s(h, is_lost ? r->planned_ns : r->end_ns),
                  is_lost ? 0.0 : ms(r->end_ns - r->start_ns), tdm_path_name(r->ran),
                  tdm_why_name(r->fallback), tdm_why_name(r->cap), tdm_class_name(r->limit_class),
                  ms(r->limit_ns), ms(r->predicted_ns));
    (void)fprintf(f,
                  "\"prefill\":%" PRIu32 ",\"decode\":%" PRIu32 ",\"vcta\":[%" PRIu64 ",%" PRIu64
                  "],\"tile\":[%u,%u],\"splits\":%" PRIu32 ",\"variant\":%" PRIu32
                  ",\"sms\":%" PRIu32 ",\"attention_ms\":%.3f,\"late\":%" PRIu32
                  ",\"lost\":%d,\"revision\":%" PRIu32 "}",
                  r->prefill_cnt, r->decode_cnt, r->vcta_executed[TDM_KIND_PREFILL],
                  r->vcta_executed[TDM_KIND_DECODE], r->tile_row, r->tile_key, r->split_cnt,
                  r->variant, r->sm_cnt, ms(r->attention_ns), r->over_cnt, is_lost, r->revision);
}

uint64_t tdm_recent_iterations(const void *mem, uint64_t from, uint32_t max, FILE *f) {
    uint64_t newest = mem ? tdm_flight_newest(mem, 0) : 0, n = from;
    (void)fputc('[', f);
    if (n > newest) n = 0;
    if (mem) n = TDM_MAX(n, tdm_flight_oldest(mem, 0));
    if (newest > max) n = TDM_MAX(n, newest - max);
    int has_before = 0;
    for (; n < newest; n++) {
        tdm_flight_iteration_t r;
        if (!tdm_flight_get(mem, 0, n, &r)) continue;
        if (has_before) (void)fputc(',', f);
        has_before = 1;
        iteration(mem, &r, n, f);
    }
    (void)fputc(']', f);
    return newest;
}

static int64_t took(const tdm_story_t *s) {
    int64_t begin_ns, end_ns;
    tdm_story_span(s, &begin_ns, &end_ns);
    return end_ns - begin_ns;
}

/* slowest brings the max slowest of s[cnt] to its front, the slowest first,
   and gives how many there are; the rest is lost. */
static size_t slowest(tdm_story_t *s, size_t cnt, uint32_t max) {
    size_t n = 0;
    for (size_t i = 0; i < cnt && max > 0; i++) {
        tdm_story_t x = s[i];
        if (n == max && took(&x) <= took(&s[n - 1])) continue;
        size_t at = n < max ? n++ : n - 1;
        for (; at > 0 && took(&s[at - 1]) < took(&x); at--) s[at] = s[at - 1];
        s[at] = x;
    }
    return n;
}

static void story(const tdm_flight_head_t *h, const tdm_story_t *s, FILE *f) {
    int64_t begin_ns, end_ns;
    tdm_story_span(s, &begin_ns, &end_ns);
    (void)fprintf(f,
                  "{\"id\":\"%u.%" PRIu32 ".%" PRIu32 "\",\"class\":\"%s\",\"ending\":\"%s\","
                  "\"at_s\":%.3f,\"total_ms\":%.3f,\"prompt\":%" PRIu32 ",\"output\":%" PRIu32
                  ",\"phases\":{",
                  s->last.api, s->last.handle.slot, s->last.handle.generation,
                  tdm_class_name(s->last.slo_class), tdm_story_ending(s), wall_s(h, begin_ns),
                  ms(end_ns - begin_ns), s->prompt_cnt, s->output_cnt);
    int has_before = 0;
    for (uint32_t i = 0; i < TDM_PHASE_CNT; i++) {
        int64_t from_ns = s->at[tdm_phase[i].from], to_ns = s->at[tdm_phase[i].to];
        if (from_ns == 0 || to_ns < from_ns) continue;
        (void)fprintf(f, "%s\"%s\":%.3f", has_before ? "," : "", tdm_phase[i].name,
                      ms(to_ns - from_ns));
        has_before = 1;
    }
    (void)fprintf(f, "}}");
}

uint64_t tdm_recent_footprint(const void *mem) {
    return mem ? tdm_stories_footprint(mem) : 0;
}

void tdm_recent_slowest(const void *mem, void *room, uint32_t max, FILE *f) {
    tdm_story_t *s = room;
    size_t cnt = mem ? slowest(s, tdm_stories(mem, s), max) : 0;
    (void)fputc('[', f);
    for (size_t i = 0; i < cnt; i++) {
        if (i) (void)fputc(',', f);
        story(mem, &s[i], f);
    }
    (void)fputc(']', f);
}
