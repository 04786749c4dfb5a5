/* SPDX-License-Identifier: Apache-2.0 */
/* A crowd of HTTP/3 requests, some of them cancelled at random moments or
   left unread.

     h3_load HOST PORT CONNECTIONS REQUESTS CANCEL_PERCENT TOKENS SEED KEY MODEL

   Keeps four requests open on each connection until REQUESTS were begun, or
   SIGTERM came, and prints one line: done, cancelled, refused, lost, the
   longest time between two pieces of one answer.  Exit 0 where every request
   ended. */

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "net/client/client.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECTION_MAX 64u
#define OPEN_MAX       4u

typedef struct job {
    int64_t id;
    int64_t cancel_ns; /* TDM_TIME_NEVER: none */
    int64_t last_ns;   /* of the last piece; 0: none yet */
    int is_open;
    int is_cancelled;
    int status;
} job_t;

static uint32_t is_told_to_end;

static void on_term(int number) {
    (void)number;
    tdm_store_relaxed(&is_told_to_end, 1u);
}

static struct {
    uint64_t done, cancelled, refused, lost;
    int64_t gap_ns;
} n;

static void on_head(void *ctx, int64_t id, int status) {
    (void)id;
    ((job_t *)ctx)->status = status;
}

static void on_body(void *ctx, int64_t id, const uint8_t *bytes, uint64_t sz) {
    job_t *j = ctx;
    int64_t now = tdm_clock_now_ns();
    (void)id;
    (void)bytes;
    (void)sz;
    if (j->last_ns != 0) n.gap_ns = TDM_MAX(n.gap_ns, now - j->last_ns);
    j->last_ns = now;
}

static void on_end(void *ctx, int64_t id, tdm_client_outcome_t outcome, uint64_t error) {
    job_t *j = ctx;
    (void)id;
    (void)error;
    j->is_open = 0;
    if (outcome == TDM_CLIENT_DONE && j->status == 200)
        n.done++;
    else if (j->is_cancelled)
        n.cancelled++;
    else if (outcome == TDM_CLIENT_DONE)
        n.refused++;
    else
        n.lost++;
}

static int begin(tdm_client_t *c, job_t *j, tdm_rng_t *rng, uint32_t percent, uint32_t tokens,
                 const char *key, const char *model) {
    char body[160], bearer[96];
    tdm_error_t err = {0};
    snprintf(bearer, sizeof bearer, "Bearer %s", key);
    snprintf(body, sizeof body,
             "{\"model\":\"%s\",\"prompt\":\"load\",\"max_tokens\":%u,\"stream\":true,"
             "\"ignore_eos\":true}",
             model, tokens);
    tdm_client_header_t h[] = {{"content-type", "application/json"}, {"authorization", bearer}};
    tdm_client_request_t r = {.method = "POST",
                              .path = "/v1/completions",
                              .header = h,
                              .header_cnt = 2,
                              .body = (const uint8_t *)body,
                              .body_sz = strlen(body)};
    tdm_client_sink_t sink = {.ctx = j, .head = on_head, .body = on_body, .end = on_end};
    *j = (job_t){.is_open = 1, .cancel_ns = TDM_TIME_NEVER};
    if (tdm_rng_below(rng, 100) < percent)
        j->cancel_ns = tdm_clock_now_ns() + (int64_t)tdm_rng_below(rng, 30000) * TDM_NS_PER_US;
    if (tdm_client_request(c, &r, &sink, &j->id, &err) == TDM_OK) return 1;
    j->is_open = 0;
    return 0;
}

/* dial tries for a while: the server may be starting. */
static int dial(const tdm_client_config_t *cfg, tdm_client_t **out) {
    tdm_error_t err = {0};
    for (uint32_t i = 0; i < 8; i++)
        if (tdm_client_connect(cfg, out, &err) == TDM_OK) return 1;
    fprintf(stderr, "%s\n", err.text);
    return 0;
}

int main(int argc, char **argv) {
    static job_t job[CONNECTION_MAX][OPEN_MAX];
    static tdm_client_t *client[CONNECTION_MAX];
    if (argc != 10) return 2;
    uint32_t cnt = TDM_MIN((uint32_t)atoi(argv[3]), CONNECTION_MAX), left = (uint32_t)atoi(argv[4]);
    uint32_t percent = (uint32_t)atoi(argv[5]), tokens = (uint32_t)atoi(argv[6]), open_cnt = 1;
    tdm_rng_t rng = {.state = strtoull(argv[7], NULL, 10)};
    tdm_client_config_t cfg = {
        .host = argv[1], .port = (uint16_t)atoi(argv[2]), .verify = TDM_CLIENT_VERIFY_INSECURE};
    tdm_error_t err = {0};
    uint32_t total = 0;
    (void)signal(SIGTERM, on_term);
    for (uint32_t i = 0; i < cnt; i++)
        if (!dial(&cfg, &client[i])) return 1;
    while (left > 0 || open_cnt > 0) {
        open_cnt = 0;
        if (tdm_load_relaxed(&is_told_to_end)) left = 0;
        for (uint32_t i = 0; i < cnt; i++) {
            if (tdm_client_step(client[i], TDM_NS_PER_MS / 4, &err) != TDM_OK) {
                tdm_client_close(client[i]);
                client[i] = NULL;
                if (!dial(&cfg, &client[i])) return 1;
            }
            for (uint32_t k = 0; k < OPEN_MAX; k++) {
                job_t *j = &job[i][k];
                if (j->is_open && tdm_clock_now_ns() >= j->cancel_ns) {
                    j->cancel_ns = TDM_TIME_NEVER;
                    j->is_cancelled = 1;
                    tdm_client_cancel(client[i], j->id);
                }
                if (!j->is_open && left > 0 &&
                    begin(client[i], j, &rng, percent, tokens, argv[8], argv[9])) {
                    left--;
                    total++;
                }
                open_cnt += (uint32_t)j->is_open;
            }
        }
    }
    for (uint32_t i = 0; i < cnt; i++) tdm_client_close(client[i]);
    printf("done %" PRIu64 " cancelled %" PRIu64 " refused %" PRIu64 " lost %" PRIu64
           " gap_ms %.1f\n",
           n.done, n.cancelled, n.refused, n.lost, (double)n.gap_ns / 1e6);
    return n.done + n.cancelled + n.refused + n.lost == total ? 0 : 1;
}
