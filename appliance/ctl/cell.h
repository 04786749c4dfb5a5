/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_CELL_H
#define TDM_CTL_CELL_H

/* tdm_cell is one way to serve, of a bench: which attention path, which
   policy for prefill; and what one rate of it showed, as JSON:

     {"path", "policy", "rate", "kept", "missed": "gaps"|"ttft"|"queue"|"",
      or how requests went unserved (tally.h),
      "replay": {what tandemctl replay --json says},
      "iterations": {...}, "hybrid": {"fused", "fallback"}, "fallbacks": {},
      "vcta": {"planned": {...}, "executed": {...}},     of this window alone
      "attention_share", "attention_s", "iterations_s",
      "power": {"mean_w", "max_w", "sm_clock_mhz", "j_per_token", "held_share": of the time,
                that the power limit held clocks down; null: not told} or null,
      "ended": when, in UTC, by bench serve} */

#include "appliance/ctl/options.h"

#include <jansson.h>

typedef struct tdm_cell {
    char path[16];           /* "fused", "streams", "serial" */
    char policy[24];         /* "quantile", "margin", "static:512", "fifo:512" */
    uint32_t prefill_tokens; /* of static and fifo; 0: as the appliance is configured */
    uint32_t is_fifo;        /* 1: prompts in order of arrival */
} tdm_cell_t;

/* tdm_cell_read takes sz bytes of text such as "serial/static:512"; 0: they
   are none. */
int tdm_cell_read(const char *text, size_t sz, tdm_cell_t *cell);

#define TDM_CELL_WORD_MAX 4u
#define TDM_CELL_WORD_SZ  48u

/* tdm_cell_words writes the configuration under which an appliance serves so,
   "KEY=VALUE" each, and gives how many there are. */
uint32_t tdm_cell_words(const tdm_cell_t *cell, char word[TDM_CELL_WORD_MAX][TDM_CELL_WORD_SZ]);

typedef struct tdm_cell_window {
    double rate, epsilon;
    double seconds;
    uint32_t warm;      /* decodes that run when it begins; 0: as the words say */
    uint32_t text_seed; /* of prompt ids: no window finds in the prefix cache what another left */
    char *const *word;  /* [word_cnt] more for replay */
    uint32_t word_cnt;
} tdm_cell_window_t;

/* tdm_cell_begin gives the revision that is to be gone back to: the one in
   force; where a bench that is no more left its keys there, first back from
   them.  Refused while another bench runs, or while somebody's change awaits
   its confirmation. */
TDM_MUST_USE tdm_status_t tdm_cell_begin(const tdm_ctl_options_t *o, long long *base,
                                         tdm_error_t *err);

/* tdm_cell_back goes back to a revision, where it is not in force.  Going back
   is a revision of its own, of the same keys; *base becomes that one, as an
   appliance keeps its newest alone (control/change.h). */
TDM_MUST_USE tdm_status_t tdm_cell_back(const tdm_ctl_options_t *o, long long *base,
                                        tdm_error_t *err);

/* tdm_cell_apply makes the appliance serve so for a window of so many seconds:
   back to *base, then the cell's keys.  Nobody confirms them, so that the
   appliance goes back by itself, minutes after the window, where this program
   is not there to do it. */
TDM_MUST_USE tdm_status_t tdm_cell_apply(const tdm_ctl_options_t *o, const tdm_cell_t *cell,
                                         double seconds, long long *base, tdm_error_t *err);

/* tdm_cell_run waits until the appliance rests, runs one window, and gives
   the JSON above; the caller lets go of it.  NULL: err says why; a signal
   (leave.h) is one reason. */
json_t *tdm_cell_run(const tdm_ctl_options_t *o, const tdm_cell_t *cell,
                     const tdm_cell_window_t *window, tdm_error_t *err);

#endif /* TDM_CTL_CELL_H */
