/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_TALLY_H
#define TDM_CTL_TALLY_H

/* tdm_tally adds up what the requests of a replay met with.  Times are
   kept in bins that grow by 1 %, so a percentile is at most 1 % too high
   and memory does not grow with the trace. */

#include "appliance/base/status.h"

#include <stdio.h>

#define TDM_TALLY_BIN_CNT  2400u /* from 1 us, by 1 % each: beyond 6 hours */
#define TDM_TALLY_STALLS   2u
#define TDM_TALLY_CODE_MAX 32u /* names of refusals told apart */

/* How a request ended, for the client. */
typedef enum tdm_outcome {
    TDM_OUTCOME_DONE,    /* the stream came whole */
    TDM_OUTCOME_REFUSED, /* an HTTP status that is not 200 */
    TDM_OUTCOME_FAILED,  /* an error inside the stream */
    TDM_OUTCOME_LOST,    /* the connection or the stream broke */
    TDM_OUTCOME_TIMEOUT, /* the client's patience ended */
    TDM_OUTCOME_UNSENT,  /* too many were open at the client */
    TDM_OUTCOME_CUT,     /* the window ended before it did */
    TDM_OUTCOME_CNT
} tdm_outcome_t;

/* tdm_outcome_name: "done", "refused", ...; "unknown" for any other. */
const char *tdm_outcome_name(tdm_outcome_t outcome);

/* What one request met with; times in ns, -1 where there was none.  All
   latencies count from the scheduled arrival, not from the sending: a
   client that comes late must not hide what it caused. */
typedef struct tdm_seen {
    uint32_t row;
    uint32_t prompt_cnt;
    uint32_t output_max;
    uint32_t prompt_cut, output_cut; /* tokens of the list's row that were not asked for */
    int64_t at_ns;                   /* scheduled, since the beginning */
    int64_t late_ns;                 /* sent after that */
    int64_t first_ns;                /* latency of the first token */
    int64_t last_ns;                 /* and of the last */
    int64_t end_ns;                  /* and of the end of the reply */
    tdm_outcome_t outcome;
    int status;          /* HTTP; 0: none came */
    int64_t retry_ms;    /* Retry-After of a refusal */
    char code[48];       /* of the error; "" */
    uint32_t token_cnt;  /* that came */
    uint32_t cached_cnt; /* prompt tokens from the prefix cache, as told */
    uint32_t gap_cnt;
    uint32_t over_cnt; /* gaps over the target */
    int64_t gap_max_ns;
} tdm_seen_t;

typedef struct tdm_tally_bins {
    uint64_t bin[TDM_TALLY_BIN_CNT];
    uint64_t cnt;
    int64_t max_ns;
} tdm_tally_bins_t;

/* The caller zeroes it, and sets the targets. */
typedef struct tdm_tally {
    int64_t ttft_target_ns, gap_target_ns;
    double epsilon; /* share of a request's gaps that may be over, for it to be good */
    tdm_tally_bins_t ttft, gap, e2e, late;
    tdm_tally_bins_t tpot; /* a request's mean gap, of those that came whole */
    uint64_t outcome[TDM_OUTCOME_CNT];
    uint64_t row_cnt, good_cnt, over_cnt, over_twice_cnt, ttft_over_cnt;
    uint64_t short_cnt;                   /* came whole, with fewer tokens than were asked for */
    uint64_t stall_cnt[TDM_TALLY_STALLS]; /* gaps over 200 and 500 ms */
    uint64_t token_cnt, good_token_cnt, prompt_cnt, cached_cnt;
    struct {
        char name[48];
        uint64_t cnt;
    } code[TDM_TALLY_CODE_MAX]; /* the last takes what has no place */
    uint32_t code_cnt;
    int64_t end_ns; /* when the last reply ended, since the beginning */
} tdm_tally_t;

/* tdm_tally_gap takes one gap, as it comes; tdm_tally_end one request. */
void tdm_tally_gap(tdm_tally_t *t, int64_t gap_ns);
void tdm_tally_end(tdm_tally_t *t, const tdm_seen_t *seen);

/* tdm_tally_add_gaps adds the gaps of another tally with the same targets. */
void tdm_tally_add_gaps(tdm_tally_t *t, const tdm_tally_t *from);

/* tdm_tally_unanswered counts the requests that had no whole answer: lost,
   given up, or ended by an error.  A refusal is an answer; what the client
   did not send, or cut, is its own. */
uint64_t tdm_tally_unanswered(const tdm_tally_t *t);

/* tdm_tally_at gives the time that a share of all do not exceed, 0 where
   there are none. */
int64_t tdm_tally_at(const tdm_tally_bins_t *bins, double share);

/* tdm_tally_record writes one line of JSON about a request. */
void tdm_tally_record(FILE *f, const tdm_seen_t *seen);

/* Who said how many tokens a request may have, prompt and output. */
typedef enum tdm_tally_context {
    TDM_CONTEXT_UNKNOWN, /* nobody: rows were sent as they are listed */
    TDM_CONTEXT_SERVER,
    TDM_CONTEXT_OPTION,
} tdm_tally_context_t;

/* What a summary says beside the tally: how the requests were sent.  Two
   servers were asked for the same where cut_* and the list are the same. */
typedef struct tdm_tally_frame {
    tdm_tally_context_t context_from;
    uint32_t context;                        /* rows were cut to; 0: nobody said */
    uint32_t list_cnt;                       /* rows of the list, sent or not */
    uint32_t cut_cnt;                        /* of them were cut */
    uint32_t warm_cut_cnt;                   /* of the decodes that ran before */
    uint64_t cut_prompt_cnt, cut_output_cnt; /* tokens that were cut off */
    int is_drawn;                            /* the arrivals were, and stretched by nothing */
    const char *door;                        /* tdm_wire_t's name */
    double offered;                          /* requests a second */
    double factor;                           /* what the list's arrivals were stretched by */
    double span_s;                           /* first to last scheduled arrival, or the window */
    uint32_t warm_cnt; /* decodes that ran before the first; their gaps count */
    uint32_t is_cut;   /* the window ends the replay */
    double waiting[2]; /* requests without a token on average, in the first and the last quarter */
} tdm_tally_frame_t;

/* tdm_tally_text writes the summary for people, tdm_tally_json as one line of
   JSON. */
void tdm_tally_text(FILE *f, const tdm_tally_t *t, const tdm_tally_frame_t *frame);
void tdm_tally_json(FILE *f, const tdm_tally_t *t, const tdm_tally_frame_t *frame);

#endif /* TDM_CTL_TALLY_H */
