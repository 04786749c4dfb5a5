/* SPDX-License-Identifier: Apache-2.0 */
/* The neighbour table: sets of NEIGHBOUR_WAYS entries chosen by a seeded
   hash, and a short list of questions under way. */

#include "net/link/link_private.h"

#include "appliance/base/rng.h"

static neighbour_t *set_of(tdm_link_t *l, const uint8_t *addr) {
    uint64_t lo, hi;
    memcpy(&lo, addr, 8);
    memcpy(&hi, addr + 8, 8);
    uint64_t h = tdm_rng_mix(tdm_rng_mix(lo ^ l->c.seed) ^ hi);
    return &l->neighbour[(h & l->set_mask) * NEIGHBOUR_WAYS];
}

static int is_same(const uint8_t *a, uint32_t a_version, const uint8_t *b, uint32_t b_version) {
    return a_version == b_version && memcmp(a, b, 16) == 0;
}

/* addr16_of gives the table's form of an address: sixteen bytes, zeros
   behind an IPv4 one. */
static void addr16_of(uint8_t out[16], const uint8_t *addr, uint32_t version) {
    memset(out, 0, 16);
    memcpy(out, addr, version == 4 ? 4 : 16);
}

static neighbour_t *find(tdm_link_t *l, const uint8_t addr[16], uint32_t version) {
    neighbour_t *set = set_of(l, addr);
    for (uint32_t i = 0; i < NEIGHBOUR_WAYS; i++)
        if (set[i].version != 0 && is_same(set[i].addr, set[i].version, addr, version))
            return &set[i];
    return NULL;
}

/* victim_of: a free entry, else the oldest that never carried a datagram,
   else the oldest. */
static neighbour_t *victim_of(tdm_link_t *l, const uint8_t addr[16]) {
    neighbour_t *set = set_of(l, addr), *victim = &set[0];
    for (uint32_t i = 0; i < NEIGHBOUR_WAYS; i++) {
        neighbour_t *e = &set[i];
        if (e->version == 0) return e;
        int is_idler = e->is_used < victim->is_used;
        int is_older = e->is_used == victim->is_used && e->confirmed_ns < victim->confirmed_ns;
        if (is_idler || is_older) victim = e;
    }
    return victim;
}

static int is_gateway(const tdm_link_t *l, const uint8_t *addr, uint32_t version) {
    if (version == 4) return l->has_gateway4 && memcmp(addr, l->c.gateway4, 4) == 0;
    return l->has_gateway6 && memcmp(addr, l->c.gateway6, 16) == 0;
}

void neighbour_learn(tdm_link_t *l, const uint8_t *addr, uint32_t version, const uint8_t *mac,
                     int is_asked, int64_t now_ns) {
    uint8_t addr16[16];
    if (is_gateway(l, addr, version) && (l->has_gateway_mac || !is_asked)) return;
    addr16_of(addr16, addr, version);
    neighbour_t *e = find(l, addr16, version);
    if (e == NULL) {
        e = victim_of(l, addr16);
        if (e->version != 0)
            l->n.neighbour_evicted++;
        else
            l->n.neighbours++;
        memcpy(e->addr, addr16, 16);
        e->version = (uint8_t)version;
        e->is_used = 0;
    }
    memcpy(e->mac, mac, 6);
    e->confirmed_ns = now_ns;
}

/* --- questions ------------------------------------------------------ */

static pending_t *pending_find(tdm_link_t *l, const uint8_t addr[16], uint32_t version) {
    for (uint32_t i = 0; i < TDM_LINK_PENDING_MAX; i++) {
        pending_t *p = &l->pending[i];
        if (p->version != 0 && is_same(p->addr, p->version, addr, version)) return p;
    }
    return NULL;
}

/* ask notes the wish to know addr; a list full of younger questions
   ignores it, and the sender's next try asks again. */
static void ask(tdm_link_t *l, const uint8_t addr[16], uint32_t version, int64_t now_ns) {
    pending_t *p = pending_find(l, addr, version);
    if (p != NULL) {
        if (!p->is_due && now_ns - p->asked_ns >= SOLICIT_PAUSE_NS) p->is_due = 1;
        return;
    }
    for (uint32_t i = 0; i < TDM_LINK_PENDING_MAX; i++) {
        p = &l->pending[i];
        if (p->version != 0 && now_ns - p->asked_ns < SOLICIT_WINDOW_NS) continue;
        memcpy(p->addr, addr, 16);
        p->version = (uint8_t)version;
        p->is_due = 1;
        p->asked_ns = now_ns;
        return;
    }
}

int neighbour_take_answer(tdm_link_t *l, const uint8_t *addr, uint32_t version, int64_t now_ns) {
    uint8_t addr16[16];
    addr16_of(addr16, addr, version);
    pending_t *p = pending_find(l, addr16, version);
    if (p == NULL || now_ns - p->asked_ns > SOLICIT_WINDOW_NS) return 0;
    p->version = 0;
    return 1;
}

uint32_t tdm_link_solicit(tdm_link_t *l, uint8_t *frame, uint32_t cap, int64_t now_ns) {
    if (cap < TDM_LINK_SOLICIT_MAX) return 0;
    for (uint32_t i = 0; i < TDM_LINK_PENDING_MAX; i++) {
        pending_t *p = &l->pending[i];
        if (p->version == 0 || !p->is_due) continue;
        if (!bucket_take(&l->solicit_bucket, now_ns)) return 0;
        p->is_due = 0;
        p->asked_ns = now_ns;
        l->n.solicits++;
        return p->version == 4 ? arp_request_put(l, p->addr, frame)
                               : nd_solicit_put(l, p->addr, frame);
    }
    return 0;
}

/* --- the way to a peer ---------------------------------------------- */

/* next_hop: the peer itself on our subnet, else the gateway of its
   version, else nobody. */
static int next_hop(const tdm_link_t *l, const tdm_endpoint_t *remote, uint8_t addr16[16]) {
    uint32_t version = remote->version;
    if (version != 4 && version != 6) return 0;
    if (addr_is_onlink(l, remote->addr, version)) {
        addr16_of(addr16, remote->addr, version);
        return 1;
    }
    if (version == 4 ? !l->has_gateway4 : !l->has_gateway6) return 0;
    addr16_of(addr16, version == 4 ? l->c.gateway4 : l->c.gateway6, version);
    return 1;
}

const uint8_t *neighbour_known(tdm_link_t *l, const uint8_t hop[16], uint32_t version,
                               int64_t now_ns) {
    if (l->has_gateway_mac && is_gateway(l, hop, version)) return l->c.gateway_mac;
    neighbour_t *e = find(l, hop, version);
    if (e == NULL || now_ns - e->confirmed_ns >= NEIGHBOUR_DEAD_NS) return NULL;
    e->is_used = 1;
    return e->mac;
}

const uint8_t *neighbour_resolve(tdm_link_t *l, const tdm_endpoint_t *remote, int64_t now_ns,
                                 uint8_t hop[16], int *has_hop) {
    *has_hop = next_hop(l, remote, hop);
    if (!*has_hop) return NULL;
    if (l->has_gateway_mac && is_gateway(l, hop, remote->version)) return l->c.gateway_mac;
    neighbour_t *e = find(l, hop, remote->version);
    int64_t age_ns = e == NULL ? NEIGHBOUR_DEAD_NS : now_ns - e->confirmed_ns;
    if (age_ns >= NEIGHBOUR_STALE_NS) ask(l, hop, remote->version, now_ns);
    if (age_ns >= NEIGHBOUR_DEAD_NS) return NULL;
    e->is_used = 1;
    return e->mac;
}
