/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http1/http1_private.h"

#include "appliance/base/size.h"

#include <stdlib.h>
#include <string.h>

void tdm_http1_slots_init(tdm_http1_t *d, tdm_slot_place_t *places, uint8_t *pipes) {
    tdm_slots_clear(&d->slots, places, d->config.slot_cnt);
    for (uint32_t i = 0; i < d->config.slot_cnt; i++) {
        tdm_status_t st = tdm_pipe_init(&d->slot[i].pipe, pipes + (size_t)i * d->config.pipe_sz,
                                        d->config.pipe_sz);
        TDM_CHECK(st == TDM_OK);
    }
}

slot_t *tdm_http1_slot_take(tdm_http1_t *d, int is_vital) {
    tdm_handle_t h;
    slot_t *s = NULL;
    (void)pthread_mutex_lock(&d->lock);
    int is_taken = !d->is_closing && tdm_slots_take(&d->slots, d->config.reserve_cnt, &h);
    if (!is_taken && is_vital && !d->is_closing && tdm_slots_take(&d->slots, 0, &h)) {
        is_taken = 1;
        tdm_count(d->wires.block, TDM_METRIC_exchanges_reserved_total, TDM_LABEL_DOOR_http1, 1);
    }
    if (is_taken) {
        s = &d->slot[h.slot];
        memset(&s->exchange, 0, sizeof s->exchange);
        s->exchange.handle = h;
        s->exchange.door = d->config.door;
        s->exchange.door_kind = TDM_DOOR_HTTP1;
        s->exchange.reply = &s->pipe;
        tdm_pipe_reset(&s->pipe);
        s->egress = 0;
        s->is_suspended = s->is_gone = s->owes_hangup = 0;
        s->cursor = tdm_pipe_begin();
        s->rec = (tdm_pipe_record_t){0};
        s->rec_off = 0;
        s->stream = (tdm_stream_t){0};
    }
    (void)pthread_mutex_unlock(&d->lock);
    return s;
}

/* give_back_if_done frees the slot once both sides are done with it. */
static void give_back_if_done(tdm_http1_t *d, slot_t *s) {
    if (!tdm_slots_is_used(&d->slots, s->exchange.handle.slot) || s->conn ||
        !(s->egress & TDM_EGRESS_END))
        return;
    if (s->owes_hangup) {
        s->owes_hangup = 0; /* api ended by itself: nothing to tell */
        d->owed_cnt--;
    }
    tdm_slots_give(&d->slots, s->exchange.handle.slot);
}

static void drop_body_locked(tdm_http1_t *d, slot_t *s) {
    if (!s->exchange.body) return;
    d->body_total -= s->body_cap;
    free(s->exchange.body);
    s->exchange.body = NULL;
}

/* drain throws away records that nobody will send, so that api's writes
   never wait for a reader that left. */
static void drain(slot_t *s) {
    tdm_pipe_record_t rec;
    if (s->rec.sz > s->rec_off) tdm_pipe_release(&s->pipe, s->rec.sz - s->rec_off);
    s->rec = (tdm_pipe_record_t){0};
    s->rec_off = 0;
    while (tdm_pipe_peek(&s->pipe, &s->cursor, &rec)) tdm_pipe_release(&s->pipe, rec.sz);
}

void tdm_http1_slot_release_locked(tdm_http1_t *d, slot_t *s) {
    if (s->egress & (TDM_EGRESS_BODY_DONE | TDM_EGRESS_END)) drop_body_locked(d, s);
    if (!s->conn) drain(s);
    give_back_if_done(d, s);
}

int tdm_http1_slot_hangup_locked(tdm_http1_t *d, slot_t *s) {
    tdm_hangup_t h = {&s->exchange, s->exchange.handle.generation, s->exchange.handle.slot};
    int is_pushed = tdm_ring_push(d->wires.hangups[s->api], d->config.door, &h);
    if (!is_pushed && !s->owes_hangup) d->owed_cnt++;
    if (is_pushed && s->owes_hangup) d->owed_cnt--;
    s->owes_hangup = !is_pushed;
    return is_pushed;
}

void tdm_http1_slot_gone_locked(tdm_http1_t *d, slot_t *s) {
    if (s->is_gone) return;
    s->is_gone = 1;
    if (!(s->egress & TDM_EGRESS_END)) (void)tdm_http1_slot_hangup_locked(d, s);
}

void tdm_http1_slot_resume_locked(slot_t *s) {
    if (!s->is_suspended) return;
    s->is_suspended = 0;
    MHD_resume_connection(s->conn);
}

void tdm_http1_slot_detach(tdm_http1_t *d, slot_t *s, int is_cut, int is_head) {
    (void)pthread_mutex_lock(&d->lock);
    s->conn = NULL;
    s->link->slot = NULL;
    s->link = NULL;
    s->is_suspended = 0;
    /* Seen to leave with the answer whole: that was no early end. */
    if (is_cut && s->is_gone)
        tdm_count(d->wires.block, TDM_METRIC_disconnects_total, TDM_LABEL_DOOR_http1, 1);
    if (is_cut || is_head) tdm_http1_slot_gone_locked(d, s);
    tdm_http1_slot_release_locked(d, s);
    (void)pthread_mutex_unlock(&d->lock);
}

tdm_stream_end_t tdm_http1_slot_end(tdm_http1_t *d, const slot_t *s) {
    (void)pthread_mutex_lock(&d->lock);
    int is_broken = (s->egress & TDM_EGRESS_FAILED) != 0;
    (void)pthread_mutex_unlock(&d->lock);
    return is_broken ? TDM_STREAM_BROKEN : TDM_STREAM_WHOLE;
}

/* Bodies grow by doubling from 4 KiB, so a body of n bytes costs at most
   2n and is copied at most twice on average. */
int tdm_http1_body_grow(tdm_http1_t *d, request_t *r, uint64_t sz) {
    uint64_t need;
    if (!tdm_size_add(r->body_sz, sz, &need)) return 0;
    if (need <= r->body_cap) return 1;
    uint64_t cap = r->body_cap ? r->body_cap : 4096;
    while (cap < need) cap *= 2;
    uint64_t more = cap - r->body_cap;
    (void)pthread_mutex_lock(&d->lock);
    int is_in_bound = more <= d->config.body_total_max - d->body_total;
    if (is_in_bound) d->body_total += more;
    (void)pthread_mutex_unlock(&d->lock);
    if (!is_in_bound) return 0;
    uint8_t *body = realloc(r->body, cap);
    if (!body) {
        tdm_http1_body_drop(d, NULL, more);
        return 0;
    }
    r->body = body;
    r->body_cap = cap;
    return 1;
}

void tdm_http1_body_drop(tdm_http1_t *d, uint8_t *body, uint64_t cap) {
    (void)pthread_mutex_lock(&d->lock);
    d->body_total -= cap;
    (void)pthread_mutex_unlock(&d->lock);
    free(body);
}
