/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_API_JSON_H
#define TDM_API_JSON_H

/* tdm_json reads one request body at a time with jansson, inside bounds
   that hold before jansson sees the first byte.

     body --> scan: depth, keys per object, values in all
          --> jansson, whose allocator is a region of the api tile
          --> json_t tree, good until tdm_json_end

   The region is a bump pointer: nothing is freed one by one, the tree
   needs no json_decref, and the end of a body is one store.  A thread
   outside tdm_json_begin/end gets plain malloc, so that config and
   tokenizer may use jansson as ever. */

#include "appliance/abi/reasons.h"
#include "appliance/base/attr.h"

#include <jansson.h>

#define TDM_JSON_DEPTH_MAX 256u /* what the scan's stack holds */

typedef struct tdm_json_limits {
    uint32_t depth_max; /* in [1, TDM_JSON_DEPTH_MAX] */
    uint32_t key_max;   /* of one object */
    uint32_t value_max; /* commas outside strings, in all */
} tdm_json_limits_t;

typedef struct tdm_json {
    uint8_t *region;
    uint64_t region_sz;
    uint64_t used;
    uint64_t high; /* most bytes of one body */
    tdm_json_limits_t limits;
    int is_full; /* the region refused an allocation of this body */
} tdm_json_t;

/* tdm_json_error_t says what was wrong; line and column are 0 where the
   reason is not about a place. */
typedef struct tdm_json_error {
    tdm_reason_t reason;
    uint32_t line;
    uint32_t column;
} tdm_json_error_t;

/* tdm_json_install points jansson at the region allocator.  Once or more,
   at boot. */
void tdm_json_install(void);

/* tdm_json_scan checks the limits without reading values: TDM_REASON_NONE,
   json_depth or bad_value.  What is not JSON passes: jansson will say so. */
tdm_reason_t tdm_json_scan(const uint8_t *body, uint64_t sz, const tdm_json_limits_t *limits);

/* tdm_json_begin opens the region for this thread; every jansson call up
   to tdm_json_end takes its memory there. */
void tdm_json_begin(tdm_json_t *j);
void tdm_json_end(tdm_json_t *j);

/* tdm_json_load scans and parses between begin and end: an object, or
   NULL and the error.  Strings in the tree are valid UTF-8 and may hold
   NUL, so their length counts. */
json_t *tdm_json_load(tdm_json_t *j, const uint8_t *body, uint64_t sz, tdm_json_error_t *err);

/* tdm_json_take lends sz bytes of the region until tdm_json_end, NULL
   where it is full. */
void *tdm_json_take(tdm_json_t *j, uint64_t sz);

#endif /* TDM_API_JSON_H */
