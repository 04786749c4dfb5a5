/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_JOB_H
#define TDM_CTL_JOB_H

/* tdm_job is one request of a replay while it is open: it takes what a
   wire hears (wire.h) and says at the end what the request met with. */

#include "appliance/ctl/sse.h"
#include "appliance/ctl/tally.h"
#include "appliance/workload/workload.h"

#define TDM_JOB_TEXT_MAX 4096u /* of a reply that is no stream */

/* How requests are written. */
typedef struct tdm_job_form {
    const char *model;
    uint32_t vocab; /* prompt ids are in [0, vocab) */
    uint64_t seed;
    uint32_t block_tok; /* prompt tokens of one block of the list */
    uint32_t context;   /* tokens that a row is cut to (tdm_workload_row_fit); 0: to none */
    int is_plain;       /* 1: no field that only this appliance and vLLM know */
} tdm_job_form_t;

typedef struct tdm_job {
    tdm_seen_t seen;
    tdm_tally_t *tally;
    void (*ended)(struct tdm_job *job); /* once */
    int64_t due_ns;                     /* the scheduled arrival, absolute */
    int64_t last_ns;                    /* of the last token, absolute; 0: none */
    int64_t now_ns;                     /* of what is being read */
    int is_open;
    int is_failed; /* an error came inside the stream */
    int is_whole;  /* its [DONE] came */
    void *wire;    /* the wire's own */
    int64_t id;
    uint32_t text_sz;
    char text[TDM_JOB_TEXT_MAX + 1];
    tdm_sse_t sse;
} tdm_job_t;

/* tdm_job_init starts a job: row `row` of a list, what the list says of it,
   due at due_ns. */
void tdm_job_init(tdm_job_t *job, tdm_tally_t *tally, void (*ended)(tdm_job_t *job), uint32_t row,
                  const tdm_workload_row_t *listed, const tdm_job_form_t *form, int64_t due_ns,
                  int64_t now_ns);

/* tdm_job_unseen is what is known of a row before it is sent. */
tdm_seen_t tdm_job_unseen(const tdm_job_form_t *form, uint32_t row,
                          const tdm_workload_row_t *listed);

/* What a wire tells, in this order; end exactly once. */
void tdm_job_head(tdm_job_t *job, int status);
void tdm_job_header(tdm_job_t *job, const char *name, const char *value);
void tdm_job_body(tdm_job_t *job, const uint8_t *bytes, uint64_t sz, int64_t now_ns);
void tdm_job_end(tdm_job_t *job, tdm_outcome_t outcome, int64_t now_ns);

/* tdm_job_token gives prompt token i of a row: equal blocks are equal
   tokens, everything else is the row's own. */
int32_t tdm_job_token(const tdm_job_form_t *form, const tdm_workload_t *list, uint32_t row,
                      uint32_t i);

/* tdm_job_text writes the JSON body into buf and gives its length; 0: it
   does not fit.  tdm_job_text_max is enough for a row. */
size_t tdm_job_text_max(const tdm_job_form_t *form, const tdm_workload_row_t *row);
size_t tdm_job_text(const tdm_job_form_t *form, const tdm_workload_t *list, uint32_t row, char *buf,
                    size_t sz);

#endif /* TDM_CTL_JOB_H */
