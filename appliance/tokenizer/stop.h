/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TOKENIZER_STOP_H
#define TDM_TOKENIZER_STOP_H

/* tdm_stop_t finds the first stop string in a text that arrives in parts,
   wherever the parts are cut.  Text that could still become the beginning
   of a stop string is held back; text that cannot is let through at once.

     in  "...Hello \nUs"   stop "\nUser:"   out "...Hello "   held "\nUs"
     in  "ed by"                            out "\nUsed by"

   The held bytes are a prefix of a stop string, so they are not stored.
   A stop string itself is never given out.  Where two end at the same
   byte, the one that begins first counts.
   Limits: TDM_STOP_STRING_MAX strings, TDM_STOP_BYTES_MAX bytes together;
   the state lies in a request slot, nothing is allocated. */

#include "appliance/abi/limits.h"
#include "appliance/base/status.h"

TDM_BEGIN_DECLS

#define TDM_STOP_BYTES_MAX 1024u

typedef struct tdm_stop {
    uint32_t cnt;
    uint32_t used; /* bytes of text[] */
    int is_matched;
    struct {
        uint16_t at;  /* in text[] and back[] */
        uint16_t len; /* bytes, >= 1 */
        uint16_t got; /* bytes matched so far, < len */
    } string[TDM_STOP_STRING_MAX];
    char text[TDM_STOP_BYTES_MAX];
    uint16_t back[TDM_STOP_BYTES_MAX]; /* longest border of each prefix (Knuth, Morris, Pratt) */
} tdm_stop_t;

/* tdm_stop_init empties the set. */
void tdm_stop_init(tdm_stop_t *s);

/* tdm_stop_add copies one string of sz >= 1 bytes, before the first push.
   INVAL for an empty one, LIMIT for one too many or too long. */
TDM_MUST_USE tdm_status_t tdm_stop_add(tdm_stop_t *s, const char *bytes, uint64_t sz);

/* tdm_stop_push takes sz bytes and writes what may be shown to out, at
   most sz + TDM_STOP_BYTES_MAX bytes; *out_sz receives their number.
   Returns 1 where a stop string is complete: the text ends there, the
   rest is dropped, and later pushes give nothing. */
int tdm_stop_push(tdm_stop_t *s, const char *bytes, uint32_t sz, char *out, uint32_t *out_sz);

/* tdm_stop_flush writes what was held back when the text ends without a
   stop string, at most TDM_STOP_BYTES_MAX bytes; gives their number. */
uint32_t tdm_stop_flush(tdm_stop_t *s, char *out);

TDM_END_DECLS

#endif /* TDM_TOKENIZER_STOP_H */
