/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams that wait until their next hop has answered: one short list,
   searched only while somebody waits. */

#include "net/link/link_private.h"

/* held_drop gives one up. */
static void held_drop(tdm_link_t *l, held_t *h) {
    h->version = 0;
    l->n.held--;
    l->n.tx_drop[TDM_DROP_neighbour_unknown]++;
}

static int is_late(const held_t *h, int64_t now_ns) {
    return now_ns - h->since_ns > TDM_LINK_HELD_NS;
}

/* place_for: a free place, else that of one that waited too long; where
   hop has its share, that of its oldest; NULL: the list is full of
   others. */
static held_t *place_for(tdm_link_t *l, const uint8_t hop[16], uint32_t version, int64_t now_ns) {
    held_t *vacant = NULL, *oldest = NULL;
    uint32_t cnt = 0;
    for (uint32_t i = 0; i < TDM_LINK_HELD_MAX; i++) {
        held_t *h = &l->held[i];
        if (h->version != 0 && is_late(h, now_ns)) held_drop(l, h);
        if (h->version == 0) {
            vacant = vacant == NULL ? h : vacant;
        } else if (h->version == version && memcmp(h->hop, hop, 16) == 0) {
            cnt++;
            oldest = oldest == NULL || h->order < oldest->order ? h : oldest;
        }
    }
    if (cnt < TDM_LINK_HELD_HOP_MAX) return vacant;
    held_drop(l, oldest);
    return oldest;
}

int held_put(tdm_link_t *l, const uint8_t hop[16], const tdm_endpoint_t *remote,
             uint16_t local_port, uint32_t ecn, const uint8_t *payload, uint32_t payload_sz,
             int64_t now_ns) {
    if (payload_sz > TDM_LINK_HELD_PAYLOAD_MAX) return 0;
    held_t *h = place_for(l, hop, remote->version, now_ns);
    if (h == NULL) return 0;
    memcpy(h->hop, hop, 16);
    h->version = (uint8_t)remote->version;
    h->ecn = (uint8_t)(ecn & 3u);
    h->local_port = local_port;
    h->payload_sz = payload_sz;
    h->since_ns = now_ns;
    h->order = l->held_order++;
    h->remote = *remote;
    memcpy(h->payload, payload, payload_sz);
    l->n.held++;
    return 1;
}

uint32_t tdm_link_release(tdm_link_t *l, uint8_t *frame, uint32_t cap, int64_t now_ns) {
    if (l->n.held == 0 || cap < TDM_LINK_HEADER_MAX + TDM_LINK_HELD_PAYLOAD_MAX) return 0;
    held_t *next = NULL;
    const uint8_t *next_mac = NULL;
    for (uint32_t i = 0; i < TDM_LINK_HELD_MAX; i++) {
        held_t *h = &l->held[i];
        if (h->version == 0) continue;
        if (is_late(h, now_ns)) {
            held_drop(l, h);
            continue;
        }
        const uint8_t *mac = neighbour_known(l, h->hop, h->version, now_ns);
        if (mac == NULL || (next != NULL && next->order < h->order)) continue;
        next = h;
        next_mac = mac;
    }
    if (next == NULL) return 0;
    uint32_t ip_sz = next->version == 4 ? IPV4_SZ : IPV6_SZ;
    uint8_t *payload = frame + eth_sz(l) + ip_sz + UDP_SZ;
    memcpy(payload, next->payload, next->payload_sz);
    uint32_t sz = next->payload_sz + udp_frame(l, next_mac, &next->remote, next->local_port,
                                               next->ecn, payload, next->payload_sz);
    next->version = 0;
    l->n.held--;
    l->n.released++;
    l->n.tx_datagrams++;
    return sz;
}
