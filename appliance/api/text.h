/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_API_TEXT_H
#define TDM_API_TEXT_H

/* tdm_text is the way from output ids to the text a client may see:

     id --> detokeniser (whole characters) --> stop strings --> piece
                                                  hit: the text ends there

   A stop string is not part of the text, unless is_stop_visible.
   Ownership: a member of a request slot; the tokenizer outlives it. */

#include "appliance/tokenizer/detok.h"
#include "appliance/tokenizer/stop.h"

/* Bytes that one push can make visible; finish gives fewer. */
#define TDM_TEXT_PIECE_MAX  (TDM_DETOK_OUT_MAX + TDM_STOP_BYTES_MAX)
#define TDM_TEXT_FINISH_MAX (TDM_STOP_BYTES_MAX + 4u)

typedef struct tdm_text {
    const tdm_tokenizer_t *tokenizer;
    tdm_detok_t detok;
    tdm_stop_t stop;
    int is_stop_visible;
} tdm_text_t;

/* tdm_text_init starts a text without stop strings. */
void tdm_text_init(tdm_text_t *x, const tdm_tokenizer_t *tokenizer, int is_stop_visible);

/* tdm_text_restart forgets what was pushed and keeps the stop strings. */
void tdm_text_restart(tdm_text_t *x);

/* tdm_text_push feeds one id and writes what became visible to piece
   (TDM_TEXT_PIECE_MAX bytes): how many bytes.  *is_hit is set where a stop
   string was completed; nothing may be pushed after it. */
uint32_t tdm_text_push(tdm_text_t *x, int32_t id, char *piece, int *is_hit);

/* tdm_text_finish writes what was still held back (TDM_TEXT_FINISH_MAX
   bytes): an unfinished character as U+FFFD, the beginning of a stop
   string that never came.  After a hit it gives nothing. */
uint32_t tdm_text_finish(tdm_text_t *x, char *piece);

#endif /* TDM_API_TEXT_H */
