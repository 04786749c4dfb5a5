/* SPDX-License-Identifier: Apache-2.0 */
/* Many streaming completions over one HTTP/3 connection, a share of them
   cancelled at a random moment: before the head, or after some pieces.

   usage: h3_storm HOST PORT REQUESTS CANCEL_PERCENT SEED KEY
   Prints "done D cancelled C"; exit 1 where one ended otherwise. */
#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "net/client/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLIGHT 16u /* requests at once */

typedef struct call {
    tdm_client_t *client;
    int64_t id; /* -1: free */
    int status;
    uint32_t pieces;
    uint32_t cancel_at;   /* pieces after which the client leaves; UINT32_MAX: it stays */
    int64_t cancel_at_ns; /* or the moment, where the first piece is not waited for */
} call_t;

static uint32_t done_cnt, cancelled_cnt, wrong_cnt;

static void on_head(void *ctx, int64_t id, int status) {
    (void)id;
    ((call_t *)ctx)->status = status;
}

static void on_body(void *ctx, int64_t id, const uint8_t *bytes, uint64_t sz) {
    (void)id;
    (void)bytes;
    ((call_t *)ctx)->pieces += sz > 0;
}

static void on_end(void *ctx, int64_t id, tdm_client_outcome_t outcome, uint64_t error) {
    call_t *c = ctx;
    (void)error;
    if (outcome == TDM_CLIENT_DONE && c->status == 200) {
        done_cnt++;
    } else if (outcome == TDM_CLIENT_CANCELLED) {
        cancelled_cnt++;
    } else {
        wrong_cnt++;
        (void)fprintf(stderr, "h3_storm: stream %lld ended with %d, status %d\n", (long long)id,
                      (int)outcome, c->status);
    }
    c->id = -1;
}

static int start(call_t *c, tdm_rng_t *rng, uint32_t cancel_percent, const char *key) {
    char body[256], bearer[128];
    int sz = snprintf(body, sizeof body,
                      "{\"prompt\":\"storm %u\",\"max_tokens\":%u,\"stream\":true,"
                      "\"temperature\":0,\"ignore_eos\":true}",
                      tdm_rng_below(rng, 1000), 1 + tdm_rng_below(rng, 8));
    (void)snprintf(bearer, sizeof bearer, "Bearer %s", key);
    const tdm_client_header_t header[] = {{"content-type", "application/json"},
                                          {"authorization", bearer}};
    tdm_client_request_t req = {.method = "POST",
                                .path = "/v1/completions",
                                .header = header,
                                .header_cnt = 2,
                                .body = (const uint8_t *)body,
                                .body_sz = (uint64_t)sz};
    tdm_client_sink_t sink = {.ctx = c, .head = on_head, .body = on_body, .end = on_end};
    tdm_client_t *client = c->client;
    *c = (call_t){.client = client, .cancel_at = UINT32_MAX, .cancel_at_ns = TDM_TIME_NEVER};
    if (tdm_rng_below(rng, 100) < cancel_percent) {
        c->cancel_at = 1 + tdm_rng_below(rng, 6);
        if (tdm_rng_below(rng, 2))
            c->cancel_at_ns = tdm_clock_now_ns() + (int64_t)tdm_rng_below(rng, 3000000);
    }
    if (tdm_client_request(client, &req, &sink, &c->id, NULL) == TDM_OK) return 1;
    c->id = -1;
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 7) {
        (void)fprintf(stderr, "usage: h3_storm HOST PORT REQUESTS CANCEL_PERCENT SEED KEY\n");
        return 2;
    }
    static call_t call[FLIGHT];
    uint32_t left = (uint32_t)atoi(argv[3]), percent = (uint32_t)atoi(argv[4]);
    tdm_rng_t rng = {.state = (uint64_t)atoll(argv[5])};
    tdm_client_config_t cfg = {.host = argv[1], .port = (uint16_t)atoi(argv[2])};
    tdm_client_t *client = NULL;
    tdm_error_t err = {0};
    if (tdm_client_connect(&cfg, &client, &err) != TDM_OK) {
        (void)fprintf(stderr, "h3_storm: %s\n", err.text);
        return 1;
    }
    for (uint32_t i = 0; i < FLIGHT; i++) call[i] = (call_t){.client = client, .id = -1};
    while (left > 0 || tdm_client_open_cnt(client) > 0) {
        for (uint32_t i = 0; i < FLIGHT; i++) {
            call_t *c = &call[i];
            if (c->id >= 0 && (c->pieces >= c->cancel_at || tdm_clock_now_ns() >= c->cancel_at_ns))
                tdm_client_cancel(client, c->id);
            if (c->id < 0 && left > 0) left -= (uint32_t)start(c, &rng, percent, argv[6]);
        }
        if (tdm_client_step(client, TDM_NS_PER_MS, &err) != TDM_OK) {
            (void)fprintf(stderr, "h3_storm: %s\n", err.text);
            return 1;
        }
    }
    tdm_client_close(client);
    printf("done %u cancelled %u\n", done_cnt, cancelled_cnt);
    return wrong_cnt != 0;
}
