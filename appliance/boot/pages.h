/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BOOT_PAGES_H
#define TDM_BOOT_PAGES_H

/* The pages that the management port answers by itself, made from a
   snapshot of all blocks:

     /metrics   Prometheus text or OpenMetrics, gzip where welcome;
                ?set=native, compat (vLLM's names) or all
     /status    everything an operator asks, JSON; ?since=N: counted over the
                last N seconds, at most an hour
     /journey   the way of a request through the house, text
     /config    the effective configuration, JSON

   each but /metrics also below /api/v1, beside those of
   appliance/control/console.h, which says who may look, and

     /api/v1/iterations   ?from=N: the flight recorder's newest from number N
                          on (telemetry/flight/recent.h), and what to ask next
     /api/v1/requests     ?slowest=N: the requests that took longest
     /api/v1/stream       server-sent events: "lane", new iterations, five
                          times a second; "status", "requests" and "changes"
                          once a second
   Runs on the library thread of the HTTP/1.1 door, one call at a time. */

#include "appliance/boot/wires.h"
#include "appliance/config/config.h"
#include "appliance/control/console.h"
#include "appliance/web/web.h"
#include "net/http1/http1.h"
#include "telemetry/read/history.h"
#include "telemetry/read/render.h"

#include <pthread.h>

#define TDM_PAGES_FACT_MAX 8
/* Of one answer. */
#define TDM_PAGES_LANE_MAX     400u
#define TDM_PAGES_REQUESTS_MAX 100u

/* Snapshots of the past, one each second whoever asks: /status tells what is
   wrong over the time since the oldest of them that is at most WINDOW_S
   old. */
#define TDM_PAGES_PAST     16u
#define TDM_PAGES_WINDOW_S 15

typedef struct tdm_pages {
    const tdm_wires_t *wires;
    const tdm_config_t *config;
    tdm_console_t *console; /* who may, and its own pages */
    tdm_web_t web;          /* /ui: open to whoever reaches the door, it holds no data */
    const char *model_name; /* served */
    const void *flight;     /* the recorder's memory; NULL: none */
    void *stories;          /* room for its requests; NULL: no recorder */
    int64_t start_ns;
    tdm_fact_t fact[TDM_PAGES_FACT_MAX];
    uint32_t fact_cnt;
    tdm_snapshot_t *past; /* [TDM_PAGES_PAST] one each second, a circle */
    uint64_t past_cnt;    /* ever taken */
    pthread_mutex_t lock; /* of past and history */
    tdm_history_t *history;
    char *text; /* [cap] */
    char *gz;   /* [cap] */
    size_t cap;
} tdm_pages_t;

/* tdm_pages_open takes the buffers, those for the recorder's requests too;
   the pointers outlive it.  flight NULL: no recorder. */
TDM_MUST_USE tdm_status_t tdm_pages_open(tdm_pages_t *p, const tdm_wires_t *wires,
                                         const tdm_config_t *config, tdm_console_t *console,
                                         const void *flight, int64_t start_ns, tdm_error_t *err);

/* tdm_pages_fact adds a label of build_info; kept by pointer.  Before the
   door opens. */
void tdm_pages_fact(tdm_pages_t *p, const char *key, const char *value);

/* tdm_pages_config shows another configuration from now on; the one before
   must stay for as long as a page takes.  Management thread. */
void tdm_pages_config(tdm_pages_t *p, const tdm_config_t *config);

/* tdm_pages_remember keeps a snapshot where one is due.  Management
   thread. */
void tdm_pages_remember(tdm_pages_t *p, int64_t now_ns);

/* tdm_pages_answer is the tdm_http1_page_fn; ctx is the tdm_pages_t. */
int tdm_pages_answer(void *ctx, const tdm_http1_ask_t *ask, tdm_http1_page_t *page);

/* tdm_pages_close frees the buffers; after the door is closed. */
void tdm_pages_close(tdm_pages_t *p);

#endif /* TDM_BOOT_PAGES_H */
