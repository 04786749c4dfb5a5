/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_STORY_PRIVATE_H
#define TDM_TELEMETRY_STORY_PRIVATE_H

/* tdm_story is one request, put together from its hops. */

#include "telemetry/flight/flight.h"

#include <stdio.h>

typedef struct tdm_story {
    tdm_flight_hop_t last;   /* its newest hop: who it is, how it ended */
    int64_t at[TDM_HOP_CNT]; /* when each hop was; 0: not there */
    uint32_t prompt_cnt;
    uint32_t output_cnt;
} tdm_story_t;

/* A phase of a request: between two of its hops. */
typedef struct tdm_phase {
    const char *name;
    tdm_flight_hop_kind_t from, to;
} tdm_phase_t;

#define TDM_PHASE_CNT 4
extern const tdm_phase_t tdm_phase[TDM_PHASE_CNT];

/* tdm_stories_footprint: bytes of the table that tdm_stories fills, the
   same for as long as mem is mapped. */
uint64_t tdm_stories_footprint(const void *mem);

/* tdm_stories reads all hops that are there into table, aligned to 8 and
   tdm_stories_footprint bytes long, and gives how many stories they make;
   in no order.  Allocates nothing. */
size_t tdm_stories(const void *mem, tdm_story_t *table);

/* tdm_story_span gives its first and last known moment. */
void tdm_story_span(const tdm_story_t *s, int64_t *begin_ns, int64_t *end_ns);

/* tdm_story_ending: "stop", "cancelled", a refusal's name, or "open". */
const char *tdm_story_ending(const tdm_story_t *s);

/* tdm_put_json writes s as a JSON string. */
void tdm_put_json(FILE *f, const char *s);

/* tdm_path_name and tdm_class_name: the labels' words, "?" outside. */
const char *tdm_path_name(uint32_t route);
const char *tdm_class_name(uint32_t slo_class);
const char *tdm_why_name(uint32_t reason);

#endif /* TDM_TELEMETRY_STORY_PRIVATE_H */
