/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_JSON_PRIVATE_H
#define TDM_TELEMETRY_JSON_PRIVATE_H

/* tdm_json writes one JSON document to a caller's buffer and sets the
   commas.  key NULL: an element of an array, or the document itself.
   Numbers are exact decimals made from integers. */

#include "telemetry/read/text_private.h"

typedef struct tdm_json {
    tdm_text_t text;
    int has_before; /* something stands before in this object or array */
} tdm_json_t;

/* tdm_json_open and _close: an object or array; they nest as they are called. */
void tdm_json_open(tdm_json_t *j, const char *key, const char *bracket); /* "{" or "[" */
void tdm_json_close(tdm_json_t *j, const char *bracket);                 /* "}" or "]" */
void tdm_json_u64(tdm_json_t *j, const char *key, uint64_t v);

/* tdm_json_fixed writes v / 10^digits. */
void tdm_json_fixed(tdm_json_t *j, const char *key, uint64_t v, uint32_t digits);
void tdm_json_text(tdm_json_t *j, const char *key, const char *v);

/* tdm_json_raw writes v, a JSON value already. */
void tdm_json_raw(tdm_json_t *j, const char *key, const char *v);

#endif /* TDM_TELEMETRY_JSON_PRIVATE_H */
