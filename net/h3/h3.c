/* SPDX-License-Identifier: Apache-2.0 */
#include "net/h3/h3_private.h"

#include "appliance/base/carve.h"
#include "appliance/base/check.h"
#include "appliance/base/clock.h"
#include "appliance/ring/pipe.h"

/* Late requests of one poll, and connections told to go away in one. */
#define LATE_PER_POLL  16u
#define DRAIN_PER_POLL 16u

/* --- life ------------------------------------------------------------- */

static int is_config_good(const tdm_h3_config_t *cfg) {
    return cfg->connection_max >= 1 && cfg->connection_max <= TDM_QUIC_CONNECTION_MAX &&
           cfg->stream_max >= 1 && cfg->stream_max <= (1u << 24) && cfg->exchange_max >= 1 &&
           cfg->exchange_max <= (1u << 24) && cfg->tile.exchange_open != NULL &&
           cfg->tile.exchange_ready != NULL && cfg->tile.exchange_gone != NULL &&
           cfg->tile.exchange_closed != NULL && cfg->tile.record_sent != NULL;
}

static tdm_h3_t *lay_out(tdm_carve_t *l, const tdm_h3_config_t *cfg) {
    tdm_h3_t *h = tdm_carve_take(l, 1, sizeof *h);
    void *session = tdm_carve_take(l, cfg->connection_max, sizeof(session_t));
    void *stream = tdm_carve_take(l, cfg->stream_max, sizeof(stream_t));
    void *free_idx = tdm_carve_take(l, cfg->stream_max, sizeof(uint32_t));
    void *by_slot = tdm_carve_take(l, cfg->exchange_max, sizeof(uint32_t));
    if (h == NULL) return NULL;
    memset(l->base, 0, l->used);
    h->session = session;
    h->stream = stream;
    h->free_idx = free_idx;
    h->by_slot = by_slot;
    return h;
}

uint64_t tdm_h3_footprint(const tdm_h3_config_t *cfg) {
    if (!is_config_good(cfg)) return 0;
    tdm_carve_t l = {0};
    (void)lay_out(&l, cfg);
    return tdm_carve_sz(&l);
}

tdm_status_t tdm_h3_create(void *mem, const tdm_h3_config_t *cfg, tdm_h3_t **out,
                           tdm_error_t *err) {
    if (mem == NULL || (uintptr_t)mem % 64u != 0 || !is_config_good(cfg)) {
        return tdm_error_set(err, TDM_ERR_INVAL, "h3: a configured value is out of range");
    }
    tdm_carve_t l = {.base = mem};
    tdm_h3_t *h = lay_out(&l, cfg);
    h->cfg = *cfg;
    if (h->cfg.discard_max == 0) h->cfg.discard_max = 1u << 20;
    if (h->cfg.header_max == 0) h->cfg.header_max = 16u << 10;
    if (h->cfg.request_timeout_ns == 0) h->cfg.request_timeout_ns = 30 * TDM_NS_PER_S;
    if (h->cfg.unfinished_max == 0)
        h->cfg.unfinished_max = cfg->exchange_max - cfg->exchange_max / 8u;
    if (h->cfg.linger_ns == 0) h->cfg.linger_ns = 30 * TDM_NS_PER_S;
    h->short_ns = INT64_MIN / 2;
    h->late_head = NONE_IDX;
    h->late_tail = NONE_IDX;
    h->drain_ns = TDM_TIME_NEVER;
    for (uint32_t i = 0; i < cfg->stream_max; i++) {
        h->free_idx[h->free_cnt++] = cfg->stream_max - 1u - i;
    }
    for (uint32_t i = 0; i < cfg->exchange_max; i++) h->by_slot[i] = NONE_IDX;
    refusal_init(h);
    *out = h;
    return TDM_OK;
}

tdm_quic_app_t tdm_h3_app(tdm_h3_t *h) {
    tdm_quic_app_t app = session_calls;
    app.ctx = h;
    return app;
}

void tdm_h3_attach(tdm_h3_t *h, tdm_quic_t *q) {
    h->q = q;
}

const tdm_h3_counters_t *tdm_h3_counters(tdm_h3_t *h) {
    h->counters.stream_cnt = h->cfg.stream_max - h->free_cnt;
    return &h->counters;
}

/* --- streams and exchanges -------------------------------------------- */

static uint32_t idx_of(const stream_t *st) {
    return (uint32_t)(st - st->session->h->stream);
}

static void late_add(stream_t *st) {
    tdm_h3_t *h = st->session->h;
    uint32_t idx = idx_of(st);
    st->is_late_listed = 1;
    h->source_cnt[st->source]++;
    st->late_next = NONE_IDX;
    st->late_prev = h->late_tail;
    if (h->late_tail == NONE_IDX) {
        h->late_head = idx;
    } else {
        h->stream[h->late_tail].late_next = idx;
    }
    h->late_tail = idx;
}

void late_remove(stream_t *st) {
    tdm_h3_t *h = st->session->h;
    if (!st->is_late_listed) return;
    st->is_late_listed = 0;
    h->source_cnt[st->source]--;
    if (st->late_prev == NONE_IDX) {
        h->late_head = st->late_next;
    } else {
        h->stream[st->late_prev].late_next = st->late_next;
    }
    if (st->late_next == NONE_IDX) {
        h->late_tail = st->late_prev;
    } else {
        h->stream[st->late_next].late_prev = st->late_prev;
    }
}

stream_t *stream_open(session_t *s, int64_t id) {
    tdm_h3_t *h = s->h;
    uint32_t source = source_of(h, tdm_quic_conn_remote(s->c));
    if (h->free_cnt == 0 && !crowd_yields(h, source, h->source_cnt[source], 0)) return NULL;
    draft_t *draft = tdm_quic_conn_alloc(s->c, sizeof *draft);
    if (draft == NULL) return NULL;
    memset(draft, 0, sizeof *draft);
    uint32_t idx = h->free_idx[--h->free_cnt];
    stream_t *st = &h->stream[idx];
    *st = (stream_t){
        .session = s,
        .is_used = 1,
        .draft = draft,
        .id = id,
        .source = source,
        .begin_ns = h->now_ns,
        .first_byte_ns = h->now_ns,
        .moved_ns = h->now_ns,
        .method = TDM_METHOD_OTHER,
        .cursor = tdm_pipe_begin(),
        .prev = NONE_IDX,
        .next = s->first,
    };
    if (s->first != NONE_IDX) h->stream[s->first].prev = idx;
    s->first = idx;
    s->stream_cnt++;
    tdm_quic_conn_keep(s->c, 1);
    late_add(st);
    return st;
}

void draft_free(stream_t *st) {
    tdm_quic_conn_free(st->session->c, st->draft);
    st->draft = NULL;
}

static void fill(tdm_exchange_t *x, const draft_t *d) {
    memcpy(x->path, d->path, sizeof x->path);
    memcpy(x->query, d->query, sizeof x->query);
    memcpy(x->authorization, d->authorization, sizeof x->authorization);
    memcpy(x->content_type, d->content_type, sizeof x->content_type);
    memcpy(x->content_coding, d->content_coding, sizeof x->content_coding);
    memcpy(x->request_id, d->request_id, sizeof x->request_id);
    x->is_truncated = d->is_truncated;
}

static tdm_exchange_t *exchange_find(stream_t *st, int is_whole) {
    tdm_h3_t *h = st->session->h;
    if (!is_whole && h->counters.unfinished_cnt >= h->cfg.unfinished_max) return NULL;
    return h->cfg.tile.exchange_open(h->cfg.tile.ctx, tdm_quic_conn_remote(st->session->c),
                                     st->is_vital);
}

/* is_vital: what a full house still answers. */
static int is_vital(const stream_t *st) {
    if (st->method != TDM_METHOD_GET && st->method != TDM_METHOD_HEAD) return 0;
    return strcmp(st->draft->path, "/health") == 0 || strcmp(st->draft->path, "/ready") == 0;
}

void exchange_take(stream_t *st, int is_whole) {
    tdm_h3_t *h = st->session->h;
    st->is_vital = (uint8_t)(st->refuse == 0 && is_vital(st));
    is_whole |= st->is_vital;
    tdm_exchange_t *x = exchange_find(st, is_whole);
    if (x == NULL && crowd_yields(h, st->source, h->source_cnt[st->source] - 1u, 1))
        x = exchange_find(st, is_whole);
    if (x != NULL) {
        TDM_CHECK(x->handle.slot < h->cfg.exchange_max);
        st->x = x;
        st->generation = x->handle.generation;
        st->is_unfinished = !is_whole;
        h->counters.unfinished_cnt += st->is_unfinished;
        h->by_slot[x->handle.slot] = idx_of(st);
        x->method = st->method;
        fill(x, st->draft);
    }
    draft_free(st);
}

void finished(stream_t *st) {
    st->session->h->counters.unfinished_cnt -= st->is_unfinished;
    st->is_unfinished = 0;
}

void exchange_give_back(stream_t *st) {
    tdm_h3_t *h = st->session->h;
    if (st->x == NULL) return;
    tdm_exchange_t *x = st->x;
    st->x = NULL;
    finished(st);
    h->by_slot[x->handle.slot] = NONE_IDX;
    h->cfg.tile.exchange_closed(h->cfg.tile.ctx, x, h->now_ns);
}

void stream_free(stream_t *st) {
    session_t *s = st->session;
    tdm_h3_t *h = s->h;
    client_left(st);
    exchange_give_back(st);
    draft_free(st);
    tdm_quic_conn_free(s->c, st->own_copy);
    if (st->prev == NONE_IDX) {
        s->first = st->next;
    } else {
        h->stream[st->prev].next = st->next;
    }
    if (st->next != NONE_IDX) h->stream[st->next].prev = st->prev;
    st->is_used = 0;
    tdm_quic_conn_keep(s->c, --s->stream_cnt > 0);
    h->free_idx[h->free_cnt++] = idx_of(st);
}

void tdm_h3_reply(tdm_h3_t *h, tdm_exchange_t *x, uint32_t flags, int64_t now_ns) {
    h->now_ns = now_ns;
    uint32_t idx = x->handle.slot < h->cfg.exchange_max ? h->by_slot[x->handle.slot] : NONE_IDX;
    stream_t *st = idx == NONE_IDX ? NULL : &h->stream[idx];
    if (st == NULL || st->x != x || st->generation != x->handle.generation) {
        h->counters.stale++;
        return;
    }
    if (st->owed_sz == 0) st->moved_ns = now_ns; /* now it is the client's turn */
    if (flags & TDM_EGRESS_END) st->is_end_seen = 1;
    if (st->is_gone) return;
    int is_cut = (flags & TDM_EGRESS_ABORT) != 0;
    if ((flags & TDM_EGRESS_HEAD) && !st->is_head_sent) {
        tdm_reply_head_t head = x->head;
        int is_taken = (flags & TDM_EGRESS_END) && !is_cut && own_take(st);
        reply_head(st, &head);
        if (is_taken) return;
    }
    if ((flags & TDM_EGRESS_END) && (is_cut || !st->is_head_sent)) {
        reply_cut(st, NGHTTP3_H3_INTERNAL_ERROR);
        return;
    }
    if (flags & (TDM_EGRESS_RECORD | TDM_EGRESS_END)) reply_more(st);
    give_back_taken(st);
}

/* --- deadlines and drain ---------------------------------------------- */

static void end_late(stream_t *st) {
    late_remove(st);
    if (!st->is_delivered) {
        st->refuse = TDM_REFUSE_request_timeout;
        deliver(st);
    }
    /* NO_ERROR: the reply still counts (RFC 9114, 4.1). */
    stop_read(st, NGHTTP3_H3_NO_ERROR);
}

static void drain_visit(void *arg, tdm_quic_conn_t *c) {
    (void)arg;
    session_drain(tdm_quic_conn_user(c));
}

uint32_t tdm_h3_poll(tdm_h3_t *h, int64_t now_ns) {
    h->now_ns = now_ns;
    uint32_t done = 0;
    while (done < LATE_PER_POLL && h->late_head != NONE_IDX &&
           now_ns - h->stream[h->late_head].begin_ns >= h->cfg.request_timeout_ns) {
        end_late(&h->stream[h->late_head]);
        done++;
    }
    if (now_ns >= linger_next_ns(h)) done += linger_look(h);
    if (now_ns >= h->drain_ns) {
        done += tdm_quic_conn_walk(h->q, &h->drain_cursor, DRAIN_PER_POLL, drain_visit, h);
        h->drain_ns = now_ns + TDM_NS_PER_MS;
    }
    return done;
}

int64_t tdm_h3_next_ns(const tdm_h3_t *h) {
    int64_t late_ns = TDM_TIME_NEVER;
    if (h->late_head != NONE_IDX) {
        late_ns = h->stream[h->late_head].begin_ns + h->cfg.request_timeout_ns;
    }
    return TDM_MIN(TDM_MIN(late_ns, h->drain_ns), linger_next_ns(h));
}

void tdm_h3_drain(tdm_h3_t *h) {
    if (h->drain_ns == TDM_TIME_NEVER) h->drain_ns = 0;
}

static void cut_visit(void *arg, tdm_quic_conn_t *c) {
    (void)arg;
    tdm_quic_conn_fail(c, NGHTTP3_H3_NO_ERROR);
}

void tdm_h3_cut(tdm_h3_t *h) {
    uint32_t cursor = 0;
    (void)tdm_quic_conn_walk(h->q, &cursor, h->cfg.connection_max, cut_visit, NULL);
}
