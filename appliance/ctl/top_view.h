/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_TOP_VIEW_H
#define TDM_CTL_TOP_VIEW_H

/* tdm_top_view is the full-screen console without a terminal: what the
   appliance said (the JSON of /api/v1) drawn into a grid of cells.  Pure,
   so that tests look at every cell.

     header      state, model, uptime, revision, load
     verdict     the gravest findings, in words; where nobody answers, for
                 how long, and all below is dim
     promises    a row per class of service with traffic, or all with view 2
     lane        a column per iteration, newest right: its letter says the
                 path, its height the time, '=' the time limit
     attention   virtual CTAs prefill : decode, fused share, fallbacks, the
                 CTA tiles that ran
     tiles, rings and drops, device with power and load of the board
     events      the newest of the audit
     keys

   Every colour repeats what a letter, a word or a number says. */

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tdm_style {
    TDM_STYLE_PLAIN,
    TDM_STYLE_BOLD,
    TDM_STYLE_DIM,
    TDM_STYLE_GOOD,
    TDM_STYLE_WARN,
    TDM_STYLE_BAD,
    TDM_STYLE_FUSED,
    TDM_STYLE_UNFUSED,
    TDM_STYLE_PREFILL,
    TDM_STYLE_DECODE,
    TDM_STYLE_CNT
} tdm_style_t;

#define TDM_TOP_COL_MAX 400
#define TDM_TOP_ROW_MAX 160
#define TDM_TOP_LANE    512u /* iterations remembered */

/* Cells are ASCII, so that any terminal and any locale shows them. */
typedef struct tdm_grid {
    int cols, rows; /* at most the bounds above */
    char ch[TDM_TOP_ROW_MAX][TDM_TOP_COL_MAX];
    uint8_t style[TDM_TOP_ROW_MAX][TDM_TOP_COL_MAX]; /* tdm_style_t */
} tdm_grid_t;

typedef struct tdm_top_iteration {
    char path; /* F fused, 2 streams, S serial, p prefill only, d decode only, X lost */
    double ms, limit_ms;
    int is_late; /* a decode came later than promised */
} tdm_top_iteration_t;

typedef enum tdm_top_page {
    TDM_TOP_ALL = 1,
    TDM_TOP_PROMISES,
    TDM_TOP_LANE_PAGE,
    TDM_TOP_RINGS,
    TDM_TOP_REQUESTS,
    TDM_TOP_EVENTS,
    TDM_TOP_HELP
} tdm_top_page_t;

typedef struct tdm_top_view {
    json_t *status, *before;                /* of /api/v1/status, now and a tick ago; NULL: none */
    json_t *changes;                        /* of /api/v1/changes */
    json_t *audit;                          /* of /api/v1/audit */
    json_t *requests;                       /* of /api/v1/requests */
    tdm_top_iteration_t lane[TDM_TOP_LANE]; /* a circle */
    uint64_t lane_cnt;                      /* ever */
    uint64_t lane_next;                     /* number to ask from */
    tdm_top_page_t page;
    int is_paused;
    int is_gone;        /* the appliance does not answer */
    double silent_s;    /* since when, where is_gone */
    char question[128]; /* asked in the last line instead of the keys; "": none */
    char said[160];     /* what came of it */
} tdm_top_view_t;

/* tdm_top_take takes one answer over and lets go of the one before;
   iterations are added to the lane.  A status of a shorter uptime is of
   another life: nothing is kept of the one before. */
void tdm_top_take_status(tdm_top_view_t *v, json_t *status);
void tdm_top_take_iterations(tdm_top_view_t *v, const json_t *page);

/* tdm_top_draw fills g, of its cols and rows; at 80x24 everything has its
   place, smaller ones are cut. */
void tdm_top_draw(const tdm_top_view_t *v, tdm_grid_t *g);

/* tdm_top_forget lets go of all JSON. */
void tdm_top_forget(tdm_top_view_t *v);

#endif /* TDM_CTL_TOP_VIEW_H */
