/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/flight/story_private.h"

#include "appliance/abi/event.h"
#include "appliance/abi/reasons.h"
#include "telemetry/block/labels.h"

#include <string.h>

const tdm_phase_t tdm_phase[TDM_PHASE_CNT] = {
    {"ingest", TDM_HOP_ARRIVED, TDM_HOP_SUBMITTED},
    {"queue", TDM_HOP_SUBMITTED, TDM_HOP_STARTED},
    {"prefill", TDM_HOP_STARTED, TDM_HOP_FIRST},
    {"decode", TDM_HOP_FIRST, TDM_HOP_LAST},
};

static uint64_t key_of(const tdm_flight_hop_t *h) {
    return (uint64_t)h->handle.generation << 32 | (uint64_t)h->api << 24 | h->handle.slot;
}

/* place finds the story of a hop, or the free place for it, in a table of
   a power of two that is never full. */
static tdm_story_t *place(tdm_story_t *table, uint64_t mask, const tdm_flight_hop_t *h) {
    uint64_t i = key_of(h) * UINT64_C(0x9e3779b97f4a7c15) >> 20;
    for (;; i++) {
        tdm_story_t *s = &table[i & mask];
        if (s->last.handle.generation == 0) return s;
        if (s->last.api == h->api && s->last.handle.slot == h->handle.slot &&
            s->last.handle.generation == h->handle.generation)
            return s;
    }
}

static void tell(tdm_story_t *s, const tdm_flight_hop_t *h) {
    s->last = *h;
    s->at[h->kind] = h->at_ns;
    s->prompt_cnt = TDM_MAX(s->prompt_cnt, h->prompt_cnt);
    s->output_cnt = TDM_MAX(s->output_cnt, h->output_cnt);
}

/* place_cnt is a power of two, and at least twice as many as there are hops. */
static uint64_t place_cnt(const tdm_flight_head_t *head) {
    uint64_t hops = 0, cnt = 2;
    for (uint32_t i = 1; i < head->ring_cnt; i++) hops += head->ring[i].slot_cnt;
    while (cnt < 2 * hops) cnt *= 2;
    return cnt;
}

uint64_t tdm_stories_footprint(const void *mem) {
    return place_cnt(mem) * sizeof(tdm_story_t);
}

size_t tdm_stories(const void *mem, tdm_story_t *table) {
    const tdm_flight_head_t *head = mem;
    uint64_t size = place_cnt(head);
    size_t cnt = 0;
    memset(table, 0, size * sizeof *table);
    for (uint32_t i = 1; i < head->ring_cnt; i++) {
        uint64_t newest = tdm_flight_newest(mem, i);
        for (uint64_t n = tdm_flight_oldest(mem, i); n < newest; n++) {
            tdm_flight_hop_t h;
            if (!tdm_flight_get(mem, i, n, &h)) continue;
            if (h.kind >= TDM_HOP_CNT || h.handle.generation == 0) continue;
            tell(place(table, size - 1, &h), &h);
        }
    }
    for (uint64_t i = 0; i < size; i++)
        if (table[i].last.handle.generation != 0) table[cnt++] = table[i];
    return cnt;
}

void tdm_story_span(const tdm_story_t *s, int64_t *begin_ns, int64_t *end_ns) {
    *begin_ns = INT64_MAX;
    *end_ns = 0;
    for (uint32_t k = 0; k < TDM_HOP_CNT; k++) {
        if (s->at[k] == 0) continue;
        *begin_ns = TDM_MIN(*begin_ns, s->at[k]);
        *end_ns = TDM_MAX(*end_ns, s->at[k]);
    }
}

const char *tdm_story_ending(const tdm_story_t *s) {
    if (s->last.kind == TDM_HOP_REFUSED) return tdm_why_name(s->last.reason);
    if (s->last.kind != TDM_HOP_ENDED) return "open";
    if (s->last.finish == TDM_FINISH_ERROR && s->last.reason) return tdm_why_name(s->last.reason);
    if (s->last.finish == TDM_FINISH_NONE || s->last.finish >= TDM_FINISH_CNT) return "?";
    return tdm_label_value(TDM_SET_FINISH, s->last.finish - 1u);
}

void tdm_put_json(FILE *f, const char *s) {
    (void)fputc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            (void)fprintf(f, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            (void)fprintf(f, "\\u%04x", c);
        else
            (void)fputc(c, f);
    }
    (void)fputc('"', f);
}

const char *tdm_path_name(uint32_t route) {
    return route < TDM_ROUTE_CNT ? tdm_label_value(TDM_SET_PATH, route) : "?";
}

const char *tdm_class_name(uint32_t slo_class) {
    return slo_class < TDM_SLO_CLASS_MAX ? tdm_label_value(TDM_SET_SLO_CLASS, slo_class) : "none";
}

const char *tdm_why_name(uint32_t reason) {
    if (reason == 0) return "none";
    return reason < TDM_REASON_CNT ? tdm_reason_name((tdm_reason_t)reason) : "?";
}
