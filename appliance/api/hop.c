/* SPDX-License-Identifier: Apache-2.0 */
/* The api tile's part of the flight recorder: hops of requests that have a
   slot. */
#include "appliance/api/tile_private.h"

void tdm_slot_hop(tdm_api_tile_t *t, const tdm_slot_t *s, tdm_flight_hop_kind_t kind, int64_t at_ns,
                  const tdm_event_t *e) {
    tdm_flight_ring_t *ring = t->wires.flight;
    if (!ring) return;
    tdm_flight_hop_t hop = {.at_ns = at_ns,
                            .handle = s->request.handle,
                            .api = t->config.api_idx,
                            .kind = (uint16_t)kind,
                            .slo_class = s->request.slo_class,
                            .tenant = s->request.tenant,
                            .door = s->door_kind,
                            .finish = e ? e->finish : 0,
                            .reason = e ? e->reason : 0,
                            .prompt_cnt = s->request.prompt_cnt,
                            .output_cnt = s->seen_cnt};
    tdm_flight_put(ring, &hop);
    tdm_count_to(t->wires.block, TDM_METRIC_flight_records_total, TDM_LABEL_FLIGHT_hop, ring->next);
}
