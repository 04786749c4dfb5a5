/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_WORKLOAD_WORKLOAD_H
#define TDM_WORKLOAD_WORKLOAD_H

/* tdm_workload is a list of requests by arrival: how many tokens come in
   and go out, and when.  No text.  Three public formats are read, known by
   their first line:

     Mooncake JSONL   {"timestamp": ms, "input_length": n, "output_length": n,
                       "hash_ids": [h, ...]}    one hash per 512 prompt tokens
     Azure CSV        TIMESTAMP,ContextTokens,GeneratedTokens, the traces
                      of 2023 and 2024
     counts CSV       num_prefill_tokens,num_decode_tokens,...   (no arrivals)

   Generators with log-normal fits stand in where the files are absent:
   arxiv_sample, arxiv_long, azure_code, azure_conv, mooncake.

   Host code: allocates.  Files come from outside: a line that is not what
   it should be ends the reading with its number. */

#include "appliance/base/status.h"

TDM_BEGIN_DECLS

typedef struct tdm_workload_row {
    int64_t at_ns; /* since the first */
    uint32_t prompt_cnt;
    uint32_t output_cnt;
    uint32_t held_cnt;  /* prompt tokens whose keys and values come with the request */
    uint32_t block_off; /* into block[] */
    uint32_t block_cnt; /* equal numbers are equal prompt text; 0: nothing is known */
} tdm_workload_row_t;

#define TDM_WORKLOAD_BLOCK_TOK 512u       /* prompt tokens of one block */
#define TDM_WORKLOAD_BLOCK_MAX (1u << 24) /* of one file */

typedef struct tdm_workload {
    tdm_workload_row_t *row; /* [row_cnt] by at_ns, from malloc */
    uint32_t row_cnt;
    uint32_t has_arrivals; /* the file told them */
    uint32_t *block;       /* [block_cnt] hash ids, from malloc; NULL: the format has none */
    uint32_t block_cnt;
} tdm_workload_t;

#define TDM_WORKLOAD_ROW_MAX (1u << 20)

/* tdm_workload_read takes the first row_max rows of a file, or of a pipe.  A
   length of 0 is taken as 1; one over 2^20, or with a fraction, is refused, by
   its line.  Blank lines are none. */
TDM_MUST_USE tdm_status_t tdm_workload_read(const char *path, uint32_t row_max, tdm_workload_t *w,
                                            tdm_error_t *err);

/* tdm_workload_generate draws row_cnt rows of a named fit, without
   arrivals.  TDM_ERR_NOT_FOUND where there is no such name. */
TDM_MUST_USE tdm_status_t tdm_workload_generate(const char *name, uint32_t row_cnt, uint64_t seed,
                                                tdm_workload_t *w, tdm_error_t *err);

/* tdm_workload_rotate shifts the rows' lengths by a random amount, so
   that seeds differ where the file is always the same. */
void tdm_workload_rotate(tdm_workload_t *w, uint64_t seed);

/* tdm_workload_scale multiplies all lengths by factor, each at least 1 then: a
   trace's shape for a machine that is smaller.  TDM_ERR_INVAL, and nothing is
   changed, where a length would be over 2^20; err names it. */
TDM_MUST_USE tdm_status_t tdm_workload_scale(tdm_workload_t *w, double factor, tdm_error_t *err);

/* tdm_workload_row_fit cuts a row to a context of so many tokens: an output to
   half of it, then the prompt to what is left. */
static inline void tdm_workload_row_fit(tdm_workload_row_t *row, uint32_t context) {
    row->output_cnt = TDM_MIN(row->output_cnt, context / 2u);
    row->prompt_cnt = TDM_MIN(row->prompt_cnt, context - row->output_cnt);
    row->held_cnt = TDM_MIN(row->held_cnt, row->prompt_cnt);
}

/* What of a list does not fit a context. */
typedef struct tdm_workload_over {
    uint32_t row_cnt;                /* rows that are cut */
    uint64_t prompt_cnt, output_cnt; /* tokens of theirs that nobody sends */
} tdm_workload_over_t;

/* tdm_workload_over counts what tdm_workload_row_fit would cut off. */
tdm_workload_over_t tdm_workload_over(const tdm_workload_t *w, uint32_t context);

/* tdm_workload_spread takes the steps out of arrivals that were filed in steps
   (Mooncake's: 3 s): rows of one moment are spread evenly to the next. */
void tdm_workload_spread(tdm_workload_t *w);

/* tdm_workload_rate gives the requests a second that the arrivals have on
   average; 0: fewer than two, or all at once. */
double tdm_workload_rate(const tdm_workload_t *w);

/* tdm_workload_pace gives the list `rate` requests a second on average:
   known arrivals are stretched evenly, others drawn with Gamma gaps of
   coefficient of variation cv (1 = Poisson). */
void tdm_workload_pace(tdm_workload_t *w, double rate, double cv, uint64_t seed);

/* tdm_workload_warm draws the decodes that would be running at a moment of
   a long day of w: each row as often as its output is long, at a place in
   its output that is uniform; what came before is its prompt, all of it
   held, what is left its output.  All arrive at once; no row where w has
   no output.  cnt at most TDM_WORKLOAD_ROW_MAX.  TDM_ERR_NOMEM. */
TDM_MUST_USE tdm_status_t tdm_workload_warm(const tdm_workload_t *w, uint32_t cnt, uint64_t seed,
                                            tdm_workload_t *out, tdm_error_t *err);

/* tdm_workload_free frees rows and blocks; a zeroed workload is allowed. */
void tdm_workload_free(tdm_workload_t *w);

TDM_END_DECLS

#endif /* TDM_WORKLOAD_WORKLOAD_H */
