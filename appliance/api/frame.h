/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_API_FRAME_H
#define TDM_API_FRAME_H

/* The bytes of every body this room sends, and nothing else: pure writers
   over tdm_writer_t.  What clients rely on, kept here and in the goldens
   of tests/unit/api:

     an event is "data: " + one line of JSON + two newlines
     a chat's first chunk carries the role and the first content together
     content is never null; finish_reason is stop, length or null
     the usage chunk has "choices":[]; other chunks have "usage":null
       where a usage chunk was asked for
     the stream ends with "data: [DONE]" */

#include "appliance/api/refusal.h"
#include "appliance/api/writer.h"

typedef struct tdm_usage {
    uint32_t prompt_cnt;
    uint32_t output_cnt;
    uint32_t cached_cnt;
} tdm_usage_t;

/* What every chunk and body of one reply repeats. */
typedef struct tdm_frame {
    int is_chat;
    const char *id;
    const char *model;
    int64_t created_s;
} tdm_frame_t;

typedef enum tdm_frame_usage {
    TDM_FRAME_USAGE_ABSENT,
    TDM_FRAME_USAGE_NULL,
    TDM_FRAME_USAGE_VALUE,
} tdm_frame_usage_t;

typedef struct tdm_chunk {
    const char *text;
    uint32_t text_sz;
    int is_first;       /* chat: carries the role */
    const char *finish; /* "stop", "length" or NULL */
    const int32_t *ids; /* [id_cnt] token ids of this chunk; NULL: not asked for */
    uint32_t id_cnt;
    tdm_frame_usage_t usage_kind;
    tdm_usage_t usage;
} tdm_chunk_t;

/* Streams: one event each. */
void tdm_frame_chunk(tdm_writer_t *w, const tdm_frame_t *f, const tdm_chunk_t *c);
void tdm_frame_usage_chunk(tdm_writer_t *w, const tdm_frame_t *f, const tdm_usage_t *usage);
void tdm_frame_error_event(tdm_writer_t *w, const tdm_refusal_t *r);
void tdm_frame_done(tdm_writer_t *w);

/* A whole body in pieces: open, escaped text, then either close or ids
   (tdm_frame_ids), then close.  finish as above. */
void tdm_frame_body_open(tdm_writer_t *w, const tdm_frame_t *f);
void tdm_frame_body_finish(tdm_writer_t *w, const tdm_frame_t *f, const char *finish);
void tdm_frame_body_ids_open(tdm_writer_t *w);
void tdm_frame_body_ids_close(tdm_writer_t *w);
void tdm_frame_body_close(tdm_writer_t *w, const tdm_usage_t *usage);

/* tdm_frame_ids writes ids separated by commas; is_first: no comma before
   the first. */
void tdm_frame_ids(tdm_writer_t *w, const int32_t *ids, uint32_t cnt, int is_first);

/* tdm_frame_error writes the error object, {"error":{...}}; its message names
   the field at fault as param does. */
void tdm_frame_error(tdm_writer_t *w, const tdm_refusal_t *r);

/* tdm_frame_model writes one entry of the model list. */
void tdm_frame_model(tdm_writer_t *w, const char *name, int64_t created_s, uint32_t context_max);

/* tdm_frame_models writes the model list. */
void tdm_frame_models(tdm_writer_t *w, const char *const *name, uint32_t name_cnt,
                      int64_t created_s, uint32_t context_max);

#endif /* TDM_API_FRAME_H */
