/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_API_RIG_H
#define TDM_TESTS_API_RIG_H

/* rig stands around one api tile: two doors before it (0: HTTP/3 kind,
   1: HTTP/1.1 kind) and a scheduler behind it that says only what the
   test tells it to.  Text is bytes: token ids 0..255 are their bytes, so
   a prompt "ab" is {97, 98} and a token 'x' prints x. */

#include "appliance/abi/event.h"
#include "appliance/abi/exchange.h"
#include "appliance/abi/request.h"
#include "appliance/api/api_tile.h"
#include "appliance/api/auth.h"
#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "appliance/ring/pipe.h"
#include "appliance/ring/ring.h"
#include "appliance/tokenizer/tokenizer.h"
#include "telemetry/block/block.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHAT "/v1/chat/completions"
#define COMP "/v1/completions"

#define RIG_DOOR_CNT 2
#define RIG_SLOT_CNT 64 /* exchange slots of a door */
#define RIG_TEXT_MAX (1u << 20)

/* One exchange slot and what has come back through it. */
typedef struct rig_exchange {
    tdm_exchange_t x;
    tdm_pipe_t pipe;
    uint32_t cursor;
    int is_stuck;   /* the reader takes nothing */
    uint32_t words; /* egress words seen */
    uint32_t flags; /* their union */
    uint32_t end_cnt;
    uint32_t token_cnt;
    uint32_t record_cnt;
    uint32_t text_sz;
    char *text; /* NUL-terminated */
} rig_exchange_t;

typedef struct rig {
    tdm_api_config_t config;
    tdm_api_tile_t *tile;
    void *tile_mem;
    int64_t now_ns;
    tdm_vitals_t vitals;
    tdm_block_t *block;
    tdm_auth_t auth;
    tdm_model_t *model;
    tdm_tokenizer_t *tokenizer;
    tdm_encode_scratch_t *scratch;
    tdm_ring_t arrivals, hangups, events, requests, controls;
    tdm_ring_t egress[RIG_DOOR_CNT];
    void *lane_mem[16];
    uint32_t lane_cnt;
    rig_exchange_t *ex[RIG_DOOR_CNT]; /* [RIG_SLOT_CNT] */
    uint32_t next[RIG_DOOR_CNT];
    uint32_t event_depth;
    uint32_t request_depth;
    uint32_t egress_depth;
    uint32_t pipe_sz;
} rig_t;

/* rig_default fills a rig with small tables; a test may change config and
   depths before rig_start. */
void rig_default(rig_t *r);
void rig_start(rig_t *r);
void rig_stop(rig_t *r);

/* rig_exchange_fresh takes a free slot of a door: a POST from a trusted
   peer, to be changed and sent with rig_push. */
rig_exchange_t *rig_exchange_fresh(rig_t *r, uint32_t door);
void rig_body(rig_exchange_t *e, const void *body, uint64_t sz);
void rig_push(rig_t *r, rig_exchange_t *e);
void rig_hang_up(rig_t *r, const rig_exchange_t *e);

/* rig_post and rig_get send and poll once. */
rig_exchange_t *rig_post(rig_t *r, const char *path, const char *body);
rig_exchange_t *rig_get(rig_t *r, const char *path);

/* rig_poll polls the tile once, a microsecond later, and reads what it
   sent; rig_settle until nothing moves. */
uint32_t rig_poll(rig_t *r);
void rig_settle(rig_t *r);

/* rig_submit takes the next submit: the request, NULL if none; there must be
   one for rig_submitted. */
const tdm_request_t *rig_submit(rig_t *r);
const tdm_request_t *rig_submitted(rig_t *r);

/* The scheduler's words.  rig_end and rig_fail end after cnt tokens. */
void rig_event(rig_t *r, const tdm_request_t *q, tdm_event_t e);
void rig_accept(rig_t *r, const tdm_request_t *q);
void rig_refuse(rig_t *r, const tdm_request_t *q, tdm_reason_t reason, uint32_t retry_after_ms);
void rig_token(rig_t *r, const tdm_request_t *q, int32_t id, uint32_t index);
void rig_tokens(rig_t *r, const tdm_request_t *q, const char *text, uint32_t first);
void rig_end(rig_t *r, const tdm_request_t *q, tdm_finish_t finish, uint32_t cnt);
void rig_fail(rig_t *r, const tdm_request_t *q, tdm_reason_t reason, uint32_t cnt);
int rig_control(rig_t *r, tdm_control_t *c);

/* rig_check_controls reads all words to the scheduler: so many about q, and
   none else. */
void rig_check_controls(rig_t *r, const tdm_request_t *q, int stops, int cancels);

/* rig_serve plays a whole request: accept, the text's bytes, END. */
void rig_serve(rig_t *r, const tdm_request_t *q, const char *text, tdm_finish_t finish);

/* rig_count reads a counter of the tile's block; rig_outcomes how many
   requests of class 0 came to an outcome (labels of requests_total). */
uint64_t rig_count(const rig_t *r, tdm_metric_t metric, uint32_t idx);
uint64_t rig_outcomes(const rig_t *r, uint32_t api, uint32_t outcome);

/* rig_error_code gives the code in an error's body, good until the next call.
   rig_check_error: the whole answer is this reason's, about this param (NULL:
   none). */
const char *rig_error_code(const rig_exchange_t *e);
void rig_check_error(const rig_exchange_t *e, tdm_reason_t reason, const char *param);

#endif /* TDM_TESTS_API_RIG_H */
