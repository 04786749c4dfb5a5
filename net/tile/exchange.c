/* SPDX-License-Identifier: Apache-2.0 */
/* Slots: from HEADERS to the end of both owners, and the rings to and
   from the api tiles. */

#include "net/tile/tile_private.h"

#include <string.h>

/* --- slots ---------------------------------------------------------- */

tdm_status_t exchange_init(tdm_net_tile_t *t, tdm_slot_place_t *places, uint8_t *pipes,
                           tdm_error_t *err) {
    tdm_slots_clear(&t->slots, places, t->c.exchange_max);
    for (uint32_t i = 0; i < t->c.exchange_max; i++) {
        slot_t *s = &t->slot[i];
        if (tdm_pipe_init(&s->pipe, pipes + i * PIPE_STRIDE(&t->c), t->c.pipe_sz) != TDM_OK)
            return tdm_error_set(err, TDM_ERR_INVAL, "net tile: a pipe of %u bytes", t->c.pipe_sz);
        t->exchange[i].handle = (tdm_handle_t){.slot = i};
    }
    return TDM_OK;
}

static slot_t *slot_of(tdm_net_tile_t *t, const tdm_exchange_t *x) {
    TDM_DCHECK(x->handle.slot < t->c.exchange_max);
    return &t->slot[x->handle.slot];
}

/* owner_leave takes one owner's bit; the last one out frees the slot. */
static void owner_leave(tdm_net_tile_t *t, uint32_t idx, uint32_t owner) {
    slot_t *s = &t->slot[idx];
    if ((s->owners & owner) == 0) return;
    s->owners &= ~owner;
    if (s->owners != 0) return;
    if (s->is_hangup_due) {
        s->is_hangup_due = 0; /* END came first: there is nothing left to cancel */
        t->hangup_due_cnt--;
    }
    tdm_slots_give(&t->slots, idx);
}

static tdm_exchange_t *exchange_open(void *ctx, const tdm_endpoint_t *remote, int is_vital) {
    tdm_net_tile_t *t = ctx;
    tdm_handle_t h;
    if (!tdm_slots_take(&t->slots, t->c.reserve_cnt, &h)) {
        if (!is_vital || !tdm_slots_take(&t->slots, 0, &h)) return NULL;
        t->n.reserved++;
    }
    slot_t *s = &t->slot[h.slot];
    tdm_exchange_t *x = &t->exchange[h.slot];
    s->owners = OWNER_H3;
    s->end_flags = 0;
    s->stream = (tdm_stream_t){0};
    tdm_pipe_reset(&s->pipe);

    memset(x, 0, sizeof *x);
    x->handle = h;
    x->door = t->c.door;
    x->door_kind = TDM_DOOR_H3;
    x->is_trusted_peer = t->c.is_subnet_trusted && tdm_link_is_onlink(t->link, remote);
    x->body = t->body + (uint64_t)h.slot * t->c.body_max;
    x->reply = &s->pipe;
    return x;
}

static int exchange_answer(void *ctx, tdm_exchange_t *x, int64_t now_ns) {
    return kept_answers(ctx, x, now_ns);
}

static tdm_reason_t exchange_ready(void *ctx, tdm_exchange_t *x, int64_t now_ns) {
    tdm_net_tile_t *t = ctx;
    tdm_arrival_t arrival = {.exchange = x, .generation = x->handle.generation};
    (void)now_ns;
    for (uint32_t i = 0; i < t->c.api_cnt; i++) {
        uint32_t api = t->api_turn;
        t->api_turn = (t->api_turn + 1) % t->c.api_cnt;
        if (!tdm_ring_push(t->c.arrivals[api], t->c.door, &arrival)) continue;
        slot_of(t, x)->api = (uint16_t)api;
        slot_of(t, x)->owners |= OWNER_API;
        t->n.exchanges++;
        return TDM_REASON_NONE;
    }
    return TDM_REFUSE_queue_full;
}

/* hangup_push: the lane is as deep as the table, so it is full only while
   an api tile is several cancels of one slot behind. */
static int hangup_push(tdm_net_tile_t *t, tdm_exchange_t *x) {
    tdm_hangup_t hangup = {
        .exchange = x, .generation = x->handle.generation, .slot = x->handle.slot};
    return tdm_ring_push(t->c.hangups[slot_of(t, x)->api], t->c.door, &hangup);
}

static void exchange_gone(void *ctx, tdm_exchange_t *x, int64_t now_ns) {
    tdm_net_tile_t *t = ctx;
    slot_t *s = slot_of(t, x);
    (void)now_ns;
    t->n.disconnects++;
    if ((s->owners & OWNER_API) == 0 || s->is_hangup_due || hangup_push(t, x)) return;
    s->is_hangup_due = 1;
    t->hangup_due_cnt++;
}

uint32_t hangup_retry(tdm_net_tile_t *t) {
    uint32_t pushed = 0;
    for (uint32_t i = 0; t->hangup_due_cnt > 0 && i < t->c.exchange_max; i++) {
        if (!t->slot[i].is_hangup_due || !hangup_push(t, &t->exchange[i])) continue;
        t->slot[i].is_hangup_due = 0;
        t->hangup_due_cnt--;
        pushed++;
    }
    return pushed;
}

static void exchange_closed(void *ctx, tdm_exchange_t *x, int64_t now_ns) {
    tdm_net_tile_t *t = ctx;
    slot_t *s = slot_of(t, x);
    (void)now_ns;
    int is_left = (s->owners & OWNER_API) != 0 || (s->end_flags & TDM_EGRESS_ABORT) != 0;
    int is_broken = (s->end_flags & TDM_EGRESS_FAILED) != 0;
    tdm_stream_ended(&s->stream, t->c.block, x,
                     is_left     ? TDM_STREAM_LEFT
                     : is_broken ? TDM_STREAM_BROKEN
                                 : TDM_STREAM_WHOLE);
    owner_leave(t, x->handle.slot, OWNER_H3);
}

static void record_sent(void *ctx, tdm_exchange_t *x, uint32_t token_cnt, int64_t made_ns,
                        int64_t now_ns) {
    tdm_net_tile_t *t = ctx;
    if (made_ns != 0 && t->made_cnt < MADE_MAX) t->made_ns[t->made_cnt++] = made_ns;
    tdm_stream_sent(&slot_of(t, x)->stream, t->c.block, x, token_cnt, now_ns);
}

tdm_h3_tile_t exchange_calls(tdm_net_tile_t *t) {
    return (tdm_h3_tile_t){.ctx = t,
                           .exchange_open = exchange_open,
                           .exchange_answer = exchange_answer,
                           .exchange_ready = exchange_ready,
                           .exchange_gone = exchange_gone,
                           .exchange_closed = exchange_closed,
                           .record_sent = record_sent};
}

/* --- egress --------------------------------------------------------- */

/* word_take acts on one word.  The bodies are the slots' own, so
   BODY_DONE frees nothing here. */
static void word_take(tdm_net_tile_t *t, const tdm_egress_t *w, int64_t now_ns) {
    uint32_t idx = w->handle.slot;
    if (!tdm_slots_is_live(&t->slots, w->handle) || (t->slot[idx].owners & OWNER_API) == 0) {
        t->n.stale++;
        return;
    }
    tdm_exchange_t *x = &t->exchange[idx];
    uint32_t flags = w->flags & ~TDM_EGRESS_BODY_DONE;
    int is_end = (flags & TDM_EGRESS_END) != 0;
    if ((t->slot[idx].owners & OWNER_H3) != 0 && flags != 0) {
        if ((flags & TDM_EGRESS_HEAD) != 0 && x->head.status >= 100 && x->head.status < 600)
            t->n.responses[x->head.status / 100 - 1]++;
        kept_note(t, x, flags);
        /* h3 may close the exchange inside the call, so the api tile's
           side ends first and the slot is then h3's to end. */
        if (is_end) {
            t->slot[idx].owners &= ~OWNER_API;
            t->slot[idx].end_flags = flags;
        }
        tdm_h3_reply(t->h3, x, flags & ~TDM_EGRESS_FAILED, now_ns);
        return;
    }
    if (is_end) owner_leave(t, idx, OWNER_API);
}

uint32_t egress_drain(tdm_net_tile_t *t, int64_t now_ns) {
    uint32_t cnt = 0;
    tdm_egress_t w;
    while (cnt < EGRESS_PER_TURN && tdm_ring_pop(t->c.egress, &w)) {
        word_take(t, &w, now_ns);
        cnt++;
    }
    return cnt;
}
