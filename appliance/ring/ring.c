/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ring/ring.h"

#include "appliance/base/check.h"

#include <string.h>

void tdm_ring_init(tdm_ring_t *r, tdm_lane_t *const *lane, uint32_t lane_cnt,
                   tdm_doorbell_t *bell) {
    TDM_CHECK(lane_cnt >= 1 && lane_cnt <= TDM_RING_LANE_MAX);
    memset(r, 0, sizeof *r);
    for (uint32_t i = 0; i < lane_cnt; i++) r->lane[i] = lane[i];
    r->lane_cnt = lane_cnt;
    r->bell = bell;
}

int tdm_ring_push(tdm_ring_t *r, uint32_t producer, const void *elem) {
    TDM_DCHECK(producer < r->lane_cnt);
    if (!tdm_lane_push(r->lane[producer], elem)) return 0;
    if (r->bell) tdm_doorbell_ring(r->bell);
    return 1;
}

int tdm_ring_pop(tdm_ring_t *r, void *elem) {
    uint32_t turn = r->turn;
    for (uint32_t i = 0; i < r->lane_cnt; i++) {
        uint32_t k = turn + i < r->lane_cnt ? turn + i : turn + i - r->lane_cnt;
        if (!tdm_lane_pop(r->lane[k], elem)) continue;
        r->turn = k + 1 < r->lane_cnt ? k + 1 : 0;
        return 1;
    }
    return 0;
}

uint32_t tdm_ring_cnt(const tdm_ring_t *r) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->lane_cnt; i++) n += tdm_lane_cnt(r->lane[i]);
    return n;
}

uint32_t tdm_ring_capacity(const tdm_ring_t *r) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->lane_cnt; i++) n += tdm_lane_depth(r->lane[i]);
    return n;
}

uint32_t tdm_ring_high_water(const tdm_ring_t *r) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->lane_cnt; i++) n = TDM_MAX(n, tdm_lane_high_water(r->lane[i]));
    return n;
}

uint64_t tdm_ring_full_cnt(const tdm_ring_t *r) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < r->lane_cnt; i++) n += tdm_lane_full_cnt(r->lane[i]);
    return n;
}
