/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/api/frame.h"

#include <string.h>

static void write_usage(tdm_writer_t *w, const tdm_usage_t *u) {
    tdm_write_lit(w, "{\"prompt_tokens\":");
    tdm_write_u64(w, u->prompt_cnt);
    tdm_write_lit(w, ",\"completion_tokens\":");
    tdm_write_u64(w, u->output_cnt);
    tdm_write_lit(w, ",\"total_tokens\":");
    tdm_write_u64(w, (uint64_t)u->prompt_cnt + u->output_cnt);
    tdm_write_lit(w, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    tdm_write_u64(w, u->cached_cnt);
    tdm_write_lit(w, "}}");
}

/* write_head writes the members that a chunk and a body share, up to the
   choices. */
static void write_head(tdm_writer_t *w, const tdm_frame_t *f, const char *object) {
    tdm_write_lit(w, "{\"id\":\"");
    tdm_write_str(w, f->id);
    tdm_write_lit(w, "\",\"object\":\"");
    tdm_write_str(w, object);
    tdm_write_lit(w, "\",\"created\":");
    tdm_write_i64(w, f->created_s);
    tdm_write_lit(w, ",\"model\":");
    tdm_write_string(w, f->model);
    tdm_write_lit(w, ",\"choices\":[");
}

static const char *chunk_object(const tdm_frame_t *f) {
    return f->is_chat ? "chat.completion.chunk" : "text_completion";
}

static void write_finish(tdm_writer_t *w, const char *finish) {
    tdm_write_lit(w, ",\"logprobs\":null,\"finish_reason\":");
    if (finish)
        tdm_write_string(w, finish);
    else
        tdm_write_lit(w, "null");
}

static void write_choice(tdm_writer_t *w, const tdm_frame_t *f, const tdm_chunk_t *c) {
    tdm_write_lit(w, "{\"index\":0,");
    if (!f->is_chat)
        tdm_write_lit(w, "\"text\":\"");
    else if (c->is_first)
        tdm_write_lit(w, "\"delta\":{\"role\":\"assistant\",\"content\":\"");
    else
        tdm_write_lit(w, "\"delta\":{\"content\":\"");
    tdm_write_escaped(w, c->text, c->text_sz);
    tdm_write_lit(w, "\"");
    if (f->is_chat) tdm_write_lit(w, "}");
    write_finish(w, c->finish);
    if (c->ids) {
        tdm_write_lit(w, ",\"token_ids\":[");
        tdm_frame_ids(w, c->ids, c->id_cnt, 1);
        tdm_write_lit(w, "]");
    }
    tdm_write_lit(w, "}");
}

void tdm_frame_chunk(tdm_writer_t *w, const tdm_frame_t *f, const tdm_chunk_t *c) {
    tdm_write_lit(w, "data: ");
    write_head(w, f, chunk_object(f));
    write_choice(w, f, c);
    tdm_write_lit(w, "]");
    if (c->usage_kind == TDM_FRAME_USAGE_NULL) tdm_write_lit(w, ",\"usage\":null");
    if (c->usage_kind == TDM_FRAME_USAGE_VALUE) {
        tdm_write_lit(w, ",\"usage\":");
        write_usage(w, &c->usage);
    }
    tdm_write_lit(w, "}\n\n");
}

void tdm_frame_usage_chunk(tdm_writer_t *w, const tdm_frame_t *f, const tdm_usage_t *usage) {
    tdm_write_lit(w, "data: ");
    write_head(w, f, chunk_object(f));
    tdm_write_lit(w, "],\"usage\":");
    write_usage(w, usage);
    tdm_write_lit(w, "}\n\n");
}

void tdm_frame_error_event(tdm_writer_t *w, const tdm_refusal_t *r) {
    tdm_write_lit(w, "data: ");
    tdm_frame_error(w, r);
    tdm_write_lit(w, "\n\n");
}

void tdm_frame_done(tdm_writer_t *w) {
    tdm_write_lit(w, "data: [DONE]\n\n");
}

void tdm_frame_body_open(tdm_writer_t *w, const tdm_frame_t *f) {
    write_head(w, f, f->is_chat ? "chat.completion" : "text_completion");
    tdm_write_lit(w, "{\"index\":0,");
    if (f->is_chat)
        tdm_write_lit(w, "\"message\":{\"role\":\"assistant\",\"content\":\"");
    else
        tdm_write_lit(w, "\"text\":\"");
}

void tdm_frame_body_finish(tdm_writer_t *w, const tdm_frame_t *f, const char *finish) {
    tdm_write_lit(w, "\"");
    if (f->is_chat) tdm_write_lit(w, "}");
    write_finish(w, finish);
}

void tdm_frame_body_ids_open(tdm_writer_t *w) {
    tdm_write_lit(w, ",\"token_ids\":[");
}

void tdm_frame_body_ids_close(tdm_writer_t *w) {
    tdm_write_lit(w, "]");
}

void tdm_frame_body_close(tdm_writer_t *w, const tdm_usage_t *usage) {
    tdm_write_lit(w, "}],\"usage\":");
    write_usage(w, usage);
    tdm_write_lit(w, "}");
}

void tdm_frame_ids(tdm_writer_t *w, const int32_t *ids, uint32_t cnt, int is_first) {
    for (uint32_t i = 0; i < cnt; i++) {
        if (i > 0 || !is_first) tdm_write_lit(w, ",");
        tdm_write_i64(w, ids[i]);
    }
}

/* error_type gives the family that SDKs turn into an exception class. */
static const char *error_type(int http) {
    if (http == 401) return "authentication_error";
    if (http == 404) return "not_found_error";
    if (http == 429) return "rate_limit_error";
    return http >= 500 ? "server_error" : "invalid_request_error";
}

/* write_message: many clients show the message alone, so it names the
   field at fault too. */
static void write_message(tdm_writer_t *w, const tdm_refusal_t *r) {
    const char *text = r->text[0] ? r->text : tdm_reason_text(r->reason);
    tdm_write_lit(w, "\"");
    if (r->param[0] && !strstr(text, r->param)) {
        tdm_write_escaped(w, r->param, (uint32_t)strlen(r->param));
        tdm_write_lit(w, ": ");
    }
    tdm_write_escaped(w, text, (uint32_t)strlen(text));
    tdm_write_lit(w, "\"");
}

void tdm_frame_error(tdm_writer_t *w, const tdm_refusal_t *r) {
    tdm_write_lit(w, "{\"error\":{\"message\":");
    write_message(w, r);
    tdm_write_lit(w, ",\"type\":");
    tdm_write_string(w, error_type(tdm_reason_http(r->reason)));
    tdm_write_lit(w, ",\"param\":");
    if (r->param[0])
        tdm_write_string(w, r->param);
    else
        tdm_write_lit(w, "null");
    tdm_write_lit(w, ",\"code\":");
    tdm_write_string(w, tdm_reason_name(r->reason));
    tdm_write_lit(w, "}}");
}

void tdm_frame_model(tdm_writer_t *w, const char *name, int64_t created_s, uint32_t context_max) {
    tdm_write_lit(w, "{\"id\":");
    tdm_write_string(w, name);
    tdm_write_lit(w, ",\"object\":\"model\",\"created\":");
    tdm_write_i64(w, created_s);
    tdm_write_lit(w, ",\"owned_by\":\"tandem\",\"max_model_len\":");
    tdm_write_u64(w, context_max);
    tdm_write_lit(w, "}");
}

void tdm_frame_models(tdm_writer_t *w, const char *const *name, uint32_t name_cnt,
                      int64_t created_s, uint32_t context_max) {
    tdm_write_lit(w, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < name_cnt; i++) {
        if (i > 0) tdm_write_lit(w, ",");
        tdm_frame_model(w, name[i], created_s, context_max);
    }
    tdm_write_lit(w, "]}");
}
