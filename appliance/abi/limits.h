/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ABI_LIMITS_H
#define TDM_ABI_LIMITS_H

/* Compile-time bounds that shape the plain structs of this room.  What an
   operator may tune below them is a key of appliance/config/config.def. */

#define TDM_KV_PAGE_TOKENS 64 /* tokens of one KV page; native for every kernel form */

#define TDM_SEQ_MAX      256       /* sequences that hold KV pages at once */
#define TDM_CONTEXT_MAX  131072    /* tokens of one sequence, prompt and output */
#define TDM_VOCAB_MAX    (1 << 20) /* token ids are in [0, vocab) */
#define TDM_HEAD_DIM_MAX 256
#define TDM_LAYER_MAX    256

#define TDM_PLAN_SLICE_MAX 32   /* prefill slices of one iteration */
#define TDM_PLAN_TOKEN_MAX 8192 /* prefill tokens of one iteration */
#define TDM_PLAN_PAGE_MAX  8192 /* pages granted by one plan */

#define TDM_STOP_ID_MAX     16 /* stop_token_ids of one request, the model's own included */
#define TDM_STOP_STRING_MAX 16 /* stop strings of one request */
#define TDM_SLO_CLASS_MAX   4  /* classes of service */
#define TDM_TENANT_MAX      16 /* tenants with an own index; 0 is "open" */
#define TDM_API_TILE_MAX    8
#define TDM_DOOR_MAX        10 /* net tiles plus the HTTP/1.1 door */

#endif /* TDM_ABI_LIMITS_H */
