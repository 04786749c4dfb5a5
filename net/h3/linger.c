/* SPDX-License-Identifier: Apache-2.0 */
#include "net/h3/h3_private.h"

#include "appliance/base/clock.h"
#include "appliance/ring/pipe.h"

/* LOOK_NS: between two looks, LOOK_MAX streams each.  SHORT_NS: how long a
   client may rest while places are short; longer than a lost datagram takes
   to come again.  SHORT_FOR_NS: how long they count as short after a request
   found none.  Estimates, not measured. */
#define LOOK_NS      (250 * TDM_NS_PER_MS)
#define LOOK_MAX     1024u
#define SHORT_NS     (2 * TDM_NS_PER_S)
#define SHORT_FOR_NS (5 * TDM_NS_PER_S)

void give_back_taken(stream_t *st) {
    if (st->is_end_seen && st->is_end_sent && st->owed_sz == 0) exchange_give_back(st);
}

/* is_clients_turn: it is not we who keep this stream open. */
static int is_clients_turn(const stream_t *st) {
    tdm_pipe_record_t rec;
    uint32_t cursor = st->cursor;
    if (st->is_gone || st->is_end_seen || st->own_body != NULL || st->owed_sz > 0) return 1;
    return st->x != NULL && tdm_pipe_peek(st->x->reply, &cursor, &rec);
}

/* end_lingering resets a stream, whose bytes are QUIC's until the client
   knows; one that does not want to know costs its connection. */
static void end_lingering(stream_t *st) {
    session_t *s = st->session;
    s->h->counters.lingered++;
    st->moved_ns = s->h->now_ns;
    if (st->has_lingered || st->is_gone) {
        tdm_quic_conn_fail(s->c, NGHTTP3_H3_EXCESSIVE_LOAD);
        return;
    }
    st->has_lingered = 1;
    client_left(st);
    (void)nghttp3_conn_shutdown_stream_read(s->nc, st->id);
    nghttp3_conn_shutdown_stream_write(s->nc, st->id);
    tdm_quic_conn_reset(s->c, st->id, NGHTTP3_H3_REQUEST_CANCELLED);
}

uint32_t linger_look(tdm_h3_t *h) {
    uint32_t done = 0;
    int64_t patience_ns = h->now_ns - h->short_ns < SHORT_FOR_NS ? SHORT_NS : h->cfg.linger_ns;
    h->linger_ns = h->now_ns + LOOK_NS;
    for (uint32_t i = TDM_MIN(LOOK_MAX, h->cfg.stream_max); i > 0; i--) {
        stream_t *st = &h->stream[h->linger_cursor];
        h->linger_cursor = (h->linger_cursor + 1u) % h->cfg.stream_max;
        if (!st->is_used || !is_clients_turn(st)) continue;
        if (h->now_ns - st->moved_ns < patience_ns) continue;
        end_lingering(st);
        done++;
    }
    return done;
}

int64_t linger_next_ns(const tdm_h3_t *h) {
    return h->free_cnt < h->cfg.stream_max ? h->linger_ns : TDM_TIME_NEVER;
}
