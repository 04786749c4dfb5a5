/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_OPTIONS_H
#define TDM_CTL_OPTIONS_H

/* The words after a command of tandemctl, for all commands alike. */

#include "appliance/base/status.h"

#define TDM_CTL_SOCKET   "/run/tandem/ctl.sock" /* the default of control.socket */
#define TDM_CTL_WORD_MAX 32u

typedef enum tdm_ctl_form {
    TDM_FORM_TABLE,
    TDM_FORM_JSON, /* as the server said it */
    TDM_FORM_YAML, /* show: the same */
    TDM_FORM_PROM, /* show: the metrics that say it, in Prometheus' text format */
} tdm_ctl_form_t;

typedef struct tdm_ctl_options {
    const char *host; /* of the HTTP/3 door */
    uint16_t port;
    uint16_t is_json; /* form is JSON */
    tdm_ctl_form_t form;
    const char *http;   /* base URL of the management port */
    const char *socket; /* its Unix socket, also by TANDEM_SOCKET; NULL: TDM_CTL_SOCKET
                           where somebody is there and no --http was named */
    uint32_t is_http_named;
    uint32_t confirm_s;    /* config apply; 0: for good */
    uint32_t has_revision; /* config apply: only where `revision` is in force */
    uint32_t revision;
    uint32_t slowest;        /* show requests; 0: counts */
    const char *why;         /* "" where none was given */
    const char *out;         /* file to write */
    const char *certificate; /* PEM to trust; NULL: do not verify, and say so */
    const char *key;         /* bearer key, NULL: none */
    const char *model;       /* NULL: the first that the server lists */
    double temperature;      /* < 0: the server's default */
    int64_t seed;            /* < 0: none */
    uint32_t max_tokens;     /* 0: the server's default */
    uint32_t seconds;        /* patience */
    uint32_t watch_s;        /* show: again after so many seconds; 0: once */
    uint32_t since_s;        /* show: counted over the last so many; 0: since start */
    int64_t pid;             /* wait: give up when this process is gone; 0: none */
    uint32_t is_ids;         /* print token ids instead of text */
    uint32_t is_insecure;
    const char *word[TDM_CTL_WORD_MAX]; /* what is no option */
    uint32_t word_cnt;
} tdm_ctl_options_t;

/* An option whose value is a number from low to high. */
typedef struct tdm_ctl_number {
    const char *name; /* with its dashes */
    double *at;       /* where the value goes */
    double low, high;
} tdm_ctl_number_t;

/* tdm_ctl_number_read stores the number that text is, whole; 0, and nothing
   stored, where it is none or outside the range (NaN is). */
int tdm_ctl_number_read(const tdm_ctl_number_t *n, const char *text);

/* tdm_ctl_options_parse reads argv[from..); an unknown option, a missing
   or wrong value, or a word too many is TDM_ERR_INVAL with a sentence. */
TDM_MUST_USE tdm_status_t tdm_ctl_options_parse(int argc, char **argv, int from,
                                                tdm_ctl_options_t *out, tdm_error_t *err);

/* tdm_ctl_options_help: a line per option. */
const char *tdm_ctl_options_help(void);

#endif /* TDM_CTL_OPTIONS_H */
