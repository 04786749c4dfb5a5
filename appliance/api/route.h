/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_API_ROUTE_H
#define TDM_API_ROUTE_H

/* One table of paths: who answers, by which methods, behind a key or not. */

#include "appliance/abi/exchange.h"

typedef enum tdm_endpoint {
    TDM_ENDPOINT_NONE,
    TDM_ENDPOINT_COMPLETIONS,
    TDM_ENDPOINT_CHAT,
    TDM_ENDPOINT_MODELS,
    TDM_ENDPOINT_MODEL, /* /v1/models/{id} */
    TDM_ENDPOINT_HEALTH,
    TDM_ENDPOINT_READY,
    TDM_ENDPOINT_VERSION,
    TDM_ENDPOINT_TOKENIZE,
    TDM_ENDPOINT_DETOKENIZE,
    TDM_ENDPOINT_CNT
} tdm_endpoint_t;

typedef struct tdm_route_match {
    tdm_endpoint_t endpoint;
    uint16_t allow;     /* bit per tdm_method_t */
    uint16_t needs_key; /* 1: a bearer key where keys are configured */
    const char *tail;   /* ENDPOINT_MODEL: the id, still percent-encoded */
    const char *hint;   /* ENDPOINT_NONE: the path that was meant, or NULL */
} tdm_route_match_t;

/* tdm_route_find matches a path without its query. */
tdm_route_match_t tdm_route_find(const char *path);

/* tdm_percent_decode decodes %XX of in into out (NUL-terminated, max
   bytes with the NUL): the length, or -1 where it is malformed, holds NUL
   or does not fit. */
int32_t tdm_percent_decode(const char *in, char *out, uint32_t max);

/* Method bits of the two families. */
#define TDM_ALLOW(m) ((uint16_t)(1u << (m)))
#define TDM_ALLOW_GET                                                                              \
    (TDM_ALLOW(TDM_METHOD_GET) | TDM_ALLOW(TDM_METHOD_HEAD) | TDM_ALLOW(TDM_METHOD_OPTIONS))
#define TDM_ALLOW_POST (TDM_ALLOW(TDM_METHOD_POST) | TDM_ALLOW(TDM_METHOD_OPTIONS))

#endif /* TDM_API_ROUTE_H */
