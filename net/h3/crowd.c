/* SPDX-License-Identifier: Apache-2.0 */
#include "net/h3/h3_private.h"

#include "appliance/base/clock.h"
#include "appliance/base/sip.h"

/* Streams that are looked at for one that makes way: whoever crowds the table
   is among them, and a newcomer costs a few microseconds at most.  YIELD_NS:
   after so long a request makes way for one whose source has as many; longer
   than a body takes that flows.  Estimates, not measured. */
#define VISIT_MAX 64u
#define YIELD_NS  TDM_NS_PER_S

uint32_t source_of(const tdm_h3_t *h, const tdm_endpoint_t *remote) {
    const uint64_t key[2] = {h->cfg.seed, ~h->cfg.seed};
    uint64_t prefix = 0;
    memcpy(&prefix, remote->addr, remote->version == 4 ? 4u : 8u);
    tdm_sip_t s = tdm_sip_begin(key);
    tdm_sip_word(&s, prefix, 1);
    return (uint32_t)(tdm_sip_end(&s, remote->version, 1, 3) % SOURCE_CNT);
}

void reject(session_t *s, int64_t id) {
    s->h->counters.rejected++;
    s->h->short_ns = s->h->now_ns;
    (void)nghttp3_conn_shutdown_stream_read(s->nc, id);
    tdm_quic_conn_reset(s->c, id, NGHTTP3_H3_REQUEST_REJECTED);
}

/* is_before: a makes way before b, NULL: nobody. */
static int is_before(const tdm_h3_t *h, const stream_t *a, const stream_t *b) {
    if (b == NULL) return 1;
    uint32_t a_cnt = h->source_cnt[a->source], b_cnt = h->source_cnt[b->source];
    return a_cnt != b_cnt ? a_cnt > b_cnt : a->begin_ns < b->begin_ns;
}

int crowd_yields(tdm_h3_t *h, uint32_t source, uint32_t own_cnt, int has_exchange) {
    stream_t *first = NULL;
    for (uint32_t i = TDM_MIN(VISIT_MAX, h->cfg.stream_max); i > 0; i--) {
        stream_t *st = &h->stream[h->crowd_cursor];
        h->crowd_cursor = (h->crowd_cursor + 1u) % h->cfg.stream_max;
        if (!st->is_late_listed || st->is_delivered || st->is_gone) continue;
        if (has_exchange && !st->is_unfinished) continue;
        uint32_t cnt = st->source == source ? own_cnt : h->source_cnt[st->source];
        int is_old = h->now_ns - st->begin_ns >= YIELD_NS;
        if (cnt < own_cnt || (cnt == own_cnt && !is_old)) continue;
        if (is_before(h, st, first)) first = st;
    }
    if (first == NULL) return 0;
    (void)nghttp3_conn_set_stream_user_data(first->session->nc, first->id, NULL);
    reject(first->session, first->id);
    stream_free(first);
    return 1;
}
