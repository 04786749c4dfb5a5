/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder of the house.  Without one the appliance serves all
   the same: what stands in its way is said in one line. */

#include "appliance/base/clock.h"
#include "appliance/base/log.h"
#include "appliance/boot/house_private.h"

#include <time.h>

static int64_t wall_ns(void) {
    struct timespec ts;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * TDM_NS_PER_S + ts.tv_nsec;
}

void tdm_house_open_flight(tdm_house_t *h) {
    const tdm_config_t *c = h->config;
    h->flight.fd = -1;
    if (!c->flight_path[0]) return;
    tdm_flight_sizes_t sizes = {.iteration_cnt = (uint32_t)c->flight_iterations,
                                .hop_cnt = (uint32_t)c->flight_hops,
                                .api_cnt = h->wires.api_cnt};
    tdm_error_t err = {0};
    if (tdm_flight_create(&h->flight, c->flight_path, &sizes, h->version, h->model_name,
                          h->start_ns, wall_ns() - tdm_clock_now_ns(), &err) != TDM_OK) {
        tdm_log(TDM_LOG_WARN, "flight", "no flight recorder: %s", err.text);
        return;
    }
    for (uint32_t i = 0; i < 1u + sizes.api_cnt; i++)
        h->flight_ring[i] = tdm_flight_writer(h->flight.mem, i);
    tdm_block_t *b = h->wires.block[TDM_BLOCK_MGMT];
    tdm_gauge_set(b, TDM_METRIC_flight_slots, TDM_LABEL_FLIGHT_iteration, sizes.iteration_cnt);
    tdm_gauge_set(b, TDM_METRIC_flight_slots, TDM_LABEL_FLIGHT_hop,
                  (uint64_t)sizes.hop_cnt * sizes.api_cnt);
    tdm_gauge_set(b, TDM_METRIC_arena_bytes, TDM_LABEL_ARENA_flight, h->flight.sz);
    tdm_gauge_set(b, TDM_METRIC_arena_page_bytes, TDM_LABEL_ARENA_flight, h->flight.page_sz);
}

tdm_flight_ring_t *tdm_house_flight_ring(tdm_house_t *h, uint32_t idx) {
    return h->flight.mem ? &h->flight_ring[idx] : NULL;
}
