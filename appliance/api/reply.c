/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens become bytes, as far as the pipe takes them.

     stream   a chunk per token that makes text visible, or per token where
              the client asked for ids: a character of two tokens must not
              hold the first one back; then the finish
     whole    the same text inside one JSON body, once the last token came
     native   ids or text of /tokenize and /detokenize

   A slot is visited while it is in the ready queue; a visit is short, so
   that one long backlog cannot delay the others. */
#include "appliance/api/tile_private.h"

#define VISITS_PER_POLL   1024u
#define CHUNKS_PER_VISIT  32u
#define RECORDS_PER_VISIT 4u
#define RECORD_TARGET     4096u /* a whole body goes out in records of about this size */

_Static_assert(TDM_REPLY_MERGE_MAX + TDM_TEXT_FINISH_MAX <= TDM_REPLY_TEXT_MAX &&
                   TDM_TEXT_PIECE_MAX <= TDM_REPLY_TEXT_MAX,
               "a piece holds the last text and what was held back");

/* --- what a slot has to say ------------------------------------------- */

static int is_native(const tdm_slot_t *s) {
    return s->state == TDM_SLOT_NATIVE;
}

static const int32_t *reply_ids(const tdm_slot_t *s) {
    return is_native(s) ? s->ids : s->ids + s->request.prompt_cnt;
}

static uint32_t reply_cnt(const tdm_slot_t *s) {
    if (is_native(s)) return s->request.prompt_cnt;
    return TDM_MIN(s->out_cnt, s->cut_cnt);
}

/* finish_of gives the word clients know, NULL for a failure.  A stop
   string that hit makes the reply complete whatever came later. */
static const char *finish_of(const tdm_slot_t *s) {
    if (s->cut_cnt != TDM_NONE || s->finish == TDM_FINISH_STOP) return "stop";
    return s->finish == TDM_FINISH_LENGTH ? "length" : NULL;
}

/* failure_of: who is told of a CANCELLED one did not cancel it, we did. */
static tdm_refusal_t failure_of(const tdm_slot_t *s) {
    int is_refusal = s->reason < TDM_REASON_CNT && tdm_reason_http((tdm_reason_t)s->reason) >= 400;
    tdm_refusal_t r;
    if (s->finish == TDM_FINISH_CANCELLED)
        tdm_refuse_text(&r, TDM_REFUSE_draining, "",
                        "this appliance is stopping: the answer was not done in time");
    else
        tdm_refuse(&r, is_refusal ? (tdm_reason_t)s->reason : TDM_REFUSE_internal, "");
    return r;
}

static tdm_frame_t frame_of(const tdm_api_tile_t *t, const tdm_slot_t *s) {
    return (tdm_frame_t){.is_chat = s->endpoint == TDM_ENDPOINT_CHAT,
                         .id = s->id,
                         .model = t->config.model_name[s->model],
                         .created_s = s->created_s};
}

static tdm_usage_t usage_of(const tdm_slot_t *s, uint32_t output_cnt) {
    return (tdm_usage_t){
        .prompt_cnt = s->request.prompt_cnt, .output_cnt = output_cnt, .cached_cnt = s->cached_cnt};
}

/* next_text feeds the next id and gives the bytes that became visible. */
static uint32_t next_text(tdm_api_tile_t *t, tdm_slot_t *s) {
    int is_hit = 0;
    int is_hidden = s->has_stop_id && s->read_cnt + 1 == s->out_cnt;
    int32_t id = reply_ids(s)[s->read_cnt++];
    uint32_t sz = is_hidden ? 0 : tdm_text_push(&s->text, id, t->piece, &is_hit);
    if (is_hit && s->cut_cnt == TDM_NONE) {
        s->cut_cnt = s->read_cnt;
        tdm_count(t->wires.block, TDM_METRIC_tokens_discarded_total, TDM_LABEL_DISCARD_stop,
                  s->out_cnt - s->cut_cnt);
        tdm_slot_control(t, s, TDM_CONTROL_STOP_HIT);
    }
    return sz;
}

/* --- records ---------------------------------------------------------- */

/* write_tokens writes one record and says how many tokens it completes. */
static void write_tokens(tdm_api_tile_t *t, tdm_call_t *c, tdm_slot_t *s, const tdm_writer_t *w) {
    uint32_t token_cnt = is_native(s) ? 0 : TDM_MIN(s->read_cnt - s->sent_cnt, 65535u);
    /* Of a backlog only the newest token's time is known. */
    if (s->is_stream && token_cnt > 0 && s->read_cnt == s->out_cnt)
        tdm_pipe_stamp(c->exchange->reply, s->last_ns);
    tdm_call_write(t, c, w, token_cnt);
    s->sent_cnt += token_cnt;
    tdm_count(t->wires.block, TDM_METRIC_tokens_total, TDM_LABEL_TOKEN_output, token_cnt);
}

static int wait_for_room(tdm_api_tile_t *t) {
    tdm_store_relaxed(&t->stats.pipe_full_cnt, t->stats.pipe_full_cnt + 1);
    return 1;
}

/* count_whole observes what only a whole answer tells. */
static void count_whole(tdm_api_tile_t *t, const tdm_slot_t *s) {
    tdm_block_t *b = t->wires.block;
    uint32_t slo_class = s->request.slo_class;
    tdm_observe(b, TDM_METRIC_request_output_tokens, slo_class, reply_cnt(s));
    if (s->first_ns == 0) return;
    tdm_observe_ns(b, TDM_METRIC_decode_seconds, slo_class, s->last_ns - s->first_ns);
    tdm_observe_ns(b, TDM_METRIC_inference_seconds, slo_class, s->last_ns - s->start_ns);
}

/* done ends the call and gives the slot back. */
static int done(tdm_api_tile_t *t, tdm_call_t *c, tdm_slot_t *s) {
    const char *finish = is_native(s) ? "stop" : finish_of(s);
    uint32_t outcome = TDM_LABEL_OUTCOME_error;
    if (finish) outcome = finish[0] == 's' ? TDM_LABEL_OUTCOME_stop : TDM_LABEL_OUTCOME_length;
    tdm_call_outcome(t, c, outcome);
    tdm_call_send(t, c, finish ? TDM_EGRESS_END : TDM_EGRESS_END | TDM_EGRESS_FAILED);
    if (finish && !is_native(s)) count_whole(t, s);
    c->slot = TDM_NONE;
    tdm_slot_free(t, s);
    return 0;
}

/* --- streams ---------------------------------------------------------- */

static void write_chunk(tdm_api_tile_t *t, tdm_call_t *c, tdm_slot_t *s, uint32_t text_sz,
                        const char *finish) {
    tdm_frame_t f = frame_of(t, s);
    tdm_chunk_t chunk = {
        .text = t->piece, .text_sz = text_sz, .is_first = !s->is_first_sent, .finish = finish};
    if (s->has_ids) {
        chunk.ids = reply_ids(s) + s->list_cnt;
        chunk.id_cnt = s->read_cnt - s->list_cnt; /* 1, or 0 with the finish alone */
    }
    if (s->include_usage) chunk.usage_kind = TDM_FRAME_USAGE_NULL;
    if (s->continuous_usage) chunk.usage_kind = TDM_FRAME_USAGE_VALUE;
    chunk.usage = usage_of(s, s->read_cnt);
    tdm_writer_t w;
    tdm_writer_init(&w, t->scratch, sizeof t->scratch);
    tdm_frame_chunk(&w, &f, &chunk);
    s->is_first_sent = 1;
    s->list_cnt = s->read_cnt;
    write_tokens(t, c, s, &w);
}

/* stream_text prints one token, or the finish; the pipe has room.  The
   last token and the finish share a chunk where both are there, because
   benchmarks count chunks as tokens. */
static void stream_text(tdm_api_tile_t *t, tdm_call_t *c, tdm_slot_t *s) {
    uint32_t sz = s->read_cnt < reply_cnt(s) ? next_text(t, s) : 0;
    int is_over = s->state == TDM_SLOT_ENDED && s->read_cnt == reply_cnt(s);
    const char *finish = is_over && sz <= TDM_REPLY_MERGE_MAX ? finish_of(s) : NULL;
    if (finish) sz += tdm_text_finish(&s->text, t->piece + sz);
    int has_id = s->has_ids && s->read_cnt > s->list_cnt;
    if (sz > 0 || finish || has_id) write_chunk(t, c, s, sz, finish);
    if (finish) s->stage = TDM_STAGE_FINISH;
}

static void stream_failure(tdm_api_tile_t *t, tdm_call_t *c, tdm_slot_t *s) {
    tdm_refusal_t r = failure_of(s);
    tdm_writer_t w;
    tdm_writer_init(&w, t->scratch, sizeof t->scratch);
    tdm_frame_error_event(&w, &r);
    tdm_refusal_count(t, r.reason);
    write_tokens(t, c, s, &w);
    s->stage = TDM_STAGE_CLOSE;
}

static void stream_usage(tdm_api_tile_t *t, tdm_call_t *c, tdm_slot_t *s) {
    s->stage = TDM_STAGE_CLOSE;
    if (!s->include_usage) return;
    tdm_frame_t f = frame_of(t, s);
    tdm_usage_t usage = usage_of(s, reply_cnt(s));
    tdm_writer_t w;
    tdm_writer_init(&w, t->scratch, sizeof t->scratch);
    tdm_frame_usage_chunk(&w, &f, &usage);
    write_tokens(t, c, s, &w);
}

static void stream_done(tdm_api_tile_t *t, tdm_call_t *c, tdm_slot_t *s) {
    tdm_writer_t w;
    tdm_writer_init(&w, t->scratch, sizeof t->scratch);
    tdm_frame_done(&w);
    write_tokens(t, c, s, &w);
    s->stage = TDM_STAGE_DONE;
}

/* stream visits a stream; 1 where it wants another visit. */
static int stream(tdm_api_tile_t *t, tdm_call_t *c, tdm_slot_t *s, uint32_t *work) {
    for (uint32_t i = 0; i < CHUNKS_PER_VISIT; i++) {
        int is_ended = s->state == TDM_SLOT_ENDED;
        int is_dry = s->read_cnt == reply_cnt(s);
        if (is_dry && !is_ended) return 0;
        if (!tdm_call_has_room(c)) return wait_for_room(t);
        (*work)++;
        switch (s->stage) {
        case TDM_STAGE_FINISH: stream_usage(t, c, s); break;
        case TDM_STAGE_CLOSE: stream_done(t, c, s); break;
        default:
            if (is_dry && !finish_of(s))
                stream_failure(t, c, s);
            else
                stream_text(t, c, s);
        }
        if (s->stage == TDM_STAGE_DONE) return done(t, c, s);
    }
    return 1;
}

/* --- bodies ----------------------------------------------------------- */

static void open_body(tdm_api_tile_t *t, tdm_slot_t *s, tdm_writer_t *w) {
    tdm_frame_t f = frame_of(t, s);
    s->stage = TDM_STAGE_TEXT;
    if (s->endpoint == TDM_ENDPOINT_TOKENIZE) {
        tdm_write_lit(w, "{\"count\":");
        tdm_write_u64(w, reply_cnt(s));
        tdm_write_lit(w, ",\"max_model_len\":");
        tdm_write_u64(w, t->config.context_max);
        tdm_write_lit(w, ",\"tokens\":[");
        s->stage = TDM_STAGE_IDS;
    } else if (s->endpoint == TDM_ENDPOINT_DETOKENIZE) {
        tdm_write_lit(w, "{\"prompt\":\"");
    } else {
        tdm_frame_body_open(w, &f);
    }
}

static void fill_text(tdm_api_tile_t *t, tdm_slot_t *s, tdm_writer_t *w) {
    while (s->read_cnt < reply_cnt(s)) {
        if (w->sz >= RECORD_TARGET) return;
        tdm_write_escaped(w, t->piece, next_text(t, s));
    }
    if (w->sz >= RECORD_TARGET) return;
    tdm_write_escaped(w, t->piece, tdm_text_finish(&s->text, t->piece));
    s->stage = TDM_STAGE_FINISH;
}

static void finish_text(tdm_api_tile_t *t, tdm_slot_t *s, tdm_writer_t *w) {
    tdm_frame_t f = frame_of(t, s);
    s->stage = TDM_STAGE_CLOSE;
    if (is_native(s)) {
        tdm_write_lit(w, "\"");
        return;
    }
    tdm_frame_body_finish(w, &f, finish_of(s));
    if (!s->has_ids) return;
    tdm_frame_body_ids_open(w);
    s->stage = TDM_STAGE_IDS;
}

static void fill_ids(tdm_slot_t *s, tdm_writer_t *w) {
    while (s->list_cnt < reply_cnt(s)) {
        if (w->sz >= RECORD_TARGET) return;
        tdm_frame_ids(w, reply_ids(s) + s->list_cnt, 1, s->list_cnt == 0);
        s->list_cnt++;
    }
    tdm_frame_body_ids_close(w);
    s->stage = TDM_STAGE_CLOSE;
}

static void close_body(tdm_slot_t *s, tdm_writer_t *w) {
    tdm_usage_t usage = usage_of(s, reply_cnt(s));
    if (is_native(s))
        tdm_write_lit(w, "}");
    else
        tdm_frame_body_close(w, &usage);
    s->stage = TDM_STAGE_DONE;
}

static void fill_record(tdm_api_tile_t *t, tdm_slot_t *s, tdm_writer_t *w) {
    while (s->stage != TDM_STAGE_DONE && w->sz < RECORD_TARGET) {
        switch (s->stage) {
        case TDM_STAGE_OPEN: open_body(t, s, w); break;
        case TDM_STAGE_TEXT: fill_text(t, s, w); break;
        case TDM_STAGE_FINISH: finish_text(t, s, w); break;
        case TDM_STAGE_IDS: fill_ids(s, w); break;
        default: close_body(s, w); break;
        }
    }
}

static int refuse_whole(tdm_api_tile_t *t, tdm_call_t *c, tdm_slot_t *s) {
    tdm_refusal_t r = failure_of(s);
    c->slot = TDM_NONE;
    tdm_slot_free(t, s);
    tdm_call_refuse(t, c, &r);
    return 0;
}

/* whole visits a reply that is printed in one body, after its last token;
   1 where it wants another visit.  A body of one record has its length in
   the head, a longer one streams. */
static int whole(tdm_api_tile_t *t, tdm_call_t *c, tdm_slot_t *s, uint32_t *work) {
    if (!is_native(s)) {
        if (s->state != TDM_SLOT_ENDED) return 0;
        if (!finish_of(s)) return refuse_whole(t, c, s);
    }
    for (uint32_t i = 0; i < RECORDS_PER_VISIT; i++) {
        if (!tdm_call_has_room(c)) return wait_for_room(t);
        tdm_writer_t w;
        tdm_writer_init(&w, t->scratch, sizeof t->scratch);
        int is_first = s->stage == TDM_STAGE_OPEN;
        fill_record(t, s, &w);
        int64_t content_sz = s->stage == TDM_STAGE_DONE ? (int64_t)w.sz : -1;
        if (is_first) tdm_call_head(t, c, 200, TDM_CONTENT_JSON, content_sz);
        write_tokens(t, c, s, &w);
        (*work)++;
        if (s->stage == TDM_STAGE_DONE) return done(t, c, s);
    }
    return 1;
}

/* --- the ready queue -------------------------------------------------- */

static int visit(tdm_api_tile_t *t, tdm_slot_t *s, uint32_t *work) {
    if (s->state == TDM_SLOT_FREE) return 0; /* queued by an earlier use */
    int has_words = !tdm_slot_push_controls(t, s);
    if (s->call == TDM_NONE) return has_words;
    tdm_call_t *c = &t->call[s->call];
    int wants_more = s->is_stream ? stream(t, c, s, work) : whole(t, c, s, work);
    return wants_more || has_words;
}

uint32_t tdm_poll_ready(tdm_api_tile_t *t) {
    uint32_t work = 0;
    for (uint32_t left = TDM_MIN(t->ready.cnt, VISITS_PER_POLL); left > 0; left--) {
        uint32_t idx = 0;
        (void)tdm_queue_pop(&t->ready, &idx);
        tdm_slot_t *s = &t->slot[idx];
        s->is_ready = 0;
        if (visit(t, s, &work)) tdm_slot_ready(t, s);
    }
    return work;
}
