/* SPDX-License-Identifier: Apache-2.0 */
/* The api tile's last answer to GET /health, kept for those who ask next.
   Probes come from many at once and all hear the same; a hop to the api
   tile for each would cost more than the rest of the request.  One probe
   in KEPT_FRESH_NS still goes there, so what is heard is never older than
   KEPT_STALE_NS, and an api tile that stands still is noticed as before:
   then every probe waits for it. */

#include "net/tile/tile_private.h"

#include <string.h>

/* Shorter asks the api tile more often than a person or a load balancer
   can tell apart; longer delays bad news.  A choice, not a measurement. */
#define KEPT_FRESH_NS (50 * TDM_NS_PER_MS)
#define KEPT_STALE_NS (2 * KEPT_FRESH_NS)

static int is_probe(const tdm_exchange_t *x) {
    return x->method == TDM_METHOD_GET && strcmp(x->path, "/health") == 0 && x->query[0] == '\0' &&
           x->refuse == 0 && !x->is_truncated;
}

int kept_answers(tdm_net_tile_t *t, tdm_exchange_t *x, int64_t now_ns) {
    kept_t *k = &t->kept;
    if (!is_probe(x)) return 0;
    int64_t age_ns = now_ns - k->asked_ns;
    if (k->sz == 0 || age_ns >= KEPT_STALE_NS) return 0;
    if (age_ns >= KEPT_FRESH_NS && now_ns - k->asking_ns >= KEPT_FRESH_NS) {
        k->asking_ns = now_ns;
        return 0;
    }
    if (!tdm_pipe_write(x->reply, k->body, k->sz, 0)) return 0;
    x->head = (tdm_reply_head_t){
        .status = 200, .content_type = k->content_type, .content_sz = (int64_t)k->sz};
    memcpy(x->head.request_id, x->request_id, sizeof x->head.request_id);
    t->n.responses[1]++;
    return 1;
}

void kept_note(tdm_net_tile_t *t, const tdm_exchange_t *x, uint32_t flags) {
    const uint32_t whole = TDM_EGRESS_HEAD | TDM_EGRESS_RECORD | TDM_EGRESS_END;
    kept_t *k = &t->kept;
    tdm_pipe_record_t rec;
    uint32_t cursor = tdm_pipe_begin();
    if (!is_probe(x) || (flags & TDM_EGRESS_HEAD) == 0) return;
    k->sz = 0;
    if (x->head.status != 200 || (flags & (whole | TDM_EGRESS_ABORT)) != whole) return;
    if (!tdm_pipe_peek(x->reply, &cursor, &rec) || rec.sz > KEPT_BODY_MAX ||
        x->head.content_sz != (int64_t)rec.sz)
        return;
    memcpy(k->body, rec.bytes, rec.sz);
    k->content_type = x->head.content_type;
    k->asked_ns = x->arrival_ns;
    k->sz = rec.sz;
}
