/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_WIRE_H
#define TDM_CTL_WIRE_H

/* tdm_wire carries the requests of a replay to a server and their replies
   back to their jobs.  Two kinds: HTTP/3 (net/client, some connections
   with many requests each) and HTTP/1.1 or whatever an http:// or https://
   base leads to (libcurl, a connection for each open request).  One
   thread; jobs are told from inside step and begin. */

#include "appliance/ctl/job.h"
#include "appliance/ctl/options.h"

typedef struct tdm_wire tdm_wire_t;

struct tdm_wire {
    const char *name;
    /* begin sends a POST to /v1/completions.  FULL: no further request can
       be open now, try again after a step. */
    tdm_status_t (*begin)(tdm_wire_t *w, tdm_job_t *job, const char *body, size_t sz,
                          tdm_error_t *err);
    /* step waits for something to happen, until until_ns at most. */
    tdm_status_t (*step)(tdm_wire_t *w, int64_t until_ns, tdm_error_t *err);
    /* cancel gives a job up; its end is the caller's. */
    void (*cancel)(tdm_wire_t *w, tdm_job_t *job);
    /* get fetches a small page, NUL-terminated, before the replay. */
    tdm_status_t (*get)(tdm_wire_t *w, const char *path, char *buf, size_t sz, tdm_error_t *err);
    void (*close)(tdm_wire_t *w);
};

/* tdm_wire_h3 dials options' host over so many connections and waits until
   all have shaken hands; tdm_wire_http1 asks options' base URL, open_max
   requests at once.  *out is freed by its own close. */
TDM_MUST_USE tdm_status_t tdm_wire_h3(const tdm_ctl_options_t *options, uint32_t connections,
                                      tdm_wire_t **out, tdm_error_t *err);
TDM_MUST_USE tdm_status_t tdm_wire_http1(const tdm_ctl_options_t *options, uint32_t open_max,
                                         tdm_wire_t **out, tdm_error_t *err);

#endif /* TDM_CTL_WIRE_H */
