/* SPDX-License-Identifier: Apache-2.0 */
#include "net/quic/quic_private.h"

#include "appliance/base/clock.h"

/* A bucket is one time: when it will be full again.  Taking moves it one
   step later; where it would lie more than a whole depth ahead, there is
   nothing to take (the generic cell rate algorithm, ITU-T I.371). */
static int can_take(const bucket_t *b, int64_t step_ns, int64_t depth_ns, int64_t now_ns) {
    int64_t from = TDM_MAX(b->full_ns, now_ns);
    return from + step_ns - now_ns <= depth_ns;
}

static void take(bucket_t *b, int64_t step_ns, int64_t now_ns) {
    b->full_ns = TDM_MAX(b->full_ns, now_ns) + step_ns;
}

static void set_rate(int64_t *step_ns, int64_t *depth_ns, uint32_t per_s, uint32_t burst) {
    *step_ns = TDM_NS_PER_S / per_s;
    *depth_ns = *step_ns * (burst == 0 ? per_s : burst);
}

int bucket_take(bucket_t *b, int64_t step_ns, int64_t depth_ns, int64_t now_ns) {
    if (!can_take(b, step_ns, depth_ns, now_ns)) return 0;
    take(b, step_ns, now_ns);
    return 1;
}

void rate_init(rate_t *r, const tdm_quic_config_t *cfg) {
    set_rate(&r->step_ns, &r->depth_ns, cfg->handshake_per_s, cfg->handshake_burst);
    set_rate(&r->source_step_ns, &r->source_depth_ns, cfg->handshake_per_s_source,
             cfg->handshake_burst_source);
}

/* entry_of finds the source's bucket or takes the fullest one of its set:
   one that is full again carries no memory, so nothing is lost there. */
static rate_entry_t *entry_of(rate_t *r, const tdm_endpoint_t *remote) {
    uint64_t prefix[2] = {0, remote->version};
    memcpy(&prefix[0], remote->addr, remote->version == 4 ? 4u : 8u);
    uint64_t h = hash_bytes(&r->key, (const uint8_t *)prefix, sizeof prefix);
    rate_entry_t *set = r->entry[h % RATE_SET_CNT];
    rate_entry_t *victim = &set[0];
    for (uint32_t i = 0; i < RATE_WAY_CNT; i++) {
        if (memcmp(set[i].prefix, prefix, sizeof prefix) == 0) return &set[i];
        if (set[i].bucket.full_ns < victim->bucket.full_ns) victim = &set[i];
    }
    memcpy(victim->prefix, prefix, sizeof prefix);
    victim->bucket.full_ns = 0;
    return victim;
}

int rate_take(rate_t *r, const tdm_endpoint_t *remote, int64_t now_ns) {
    if (!can_take(&r->all, r->step_ns, r->depth_ns, now_ns)) return 0;
    rate_entry_t *e = entry_of(r, remote);
    if (!can_take(&e->bucket, r->source_step_ns, r->source_depth_ns, now_ns)) return 0;
    take(&r->all, r->step_ns, now_ns);
    take(&e->bucket, r->source_step_ns, now_ns);
    return 1;
}
