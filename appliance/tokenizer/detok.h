/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TOKENIZER_DETOK_H
#define TDM_TOKENIZER_DETOK_H

/* tdm_detok_t turns one sequence's ids into text, token by token.  What it
   gives out is always whole, valid UTF-8: a character whose bytes come in
   several tokens is held back until it is complete, and bytes that can
   never become a character come out as U+FFFD, one for each maximal
   broken part (Unicode 14, section 3.9).

     ids ->  bytes of the piece -> | held <= 3 bytes | -> whole characters

   Control tokens give no text.  The state is a few bytes in the request
   slot of an api tile; nothing is allocated. */

#include "appliance/tokenizer/tokenizer.h"

TDM_BEGIN_DECLS

#define TDM_DETOK_STRIP_FIRST 1u /* drop one leading space of the whole text */

/* Bytes that one push may give. */
#define TDM_DETOK_OUT_MAX (3u * (TDM_PIECE_MAX + 4u))

typedef struct tdm_detok {
    uint8_t held[4];
    uint8_t held_cnt;
    uint8_t is_strip_due;
} tdm_detok_t;

/* tdm_detok_init starts a text; flags are TDM_DETOK_*. */
void tdm_detok_init(tdm_detok_t *d, uint32_t flags);

/* tdm_detok_push writes the text that id completes, at most
   TDM_DETOK_OUT_MAX bytes, and gives their number. */
uint32_t tdm_detok_push(tdm_detok_t *d, const tdm_tokenizer_t *t, int32_t id, char *out);

/* tdm_detok_flush ends the text: a held, incomplete character becomes one
   U+FFFD (3 bytes), nothing held gives 0. */
uint32_t tdm_detok_flush(tdm_detok_t *d, char *out);

TDM_END_DECLS

#endif /* TDM_TOKENIZER_DETOK_H */
