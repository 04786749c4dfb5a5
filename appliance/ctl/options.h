/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_OPTIONS_H
#define TDM_CTL_OPTIONS_H

/* The words after a command of tandemctl, for all commands alike.  A
   command says which options it has a use for; any other is refused by its
   name, so that nobody takes for done what nobody read. */

#include "appliance/base/status.h"

#define TDM_CTL_SOCKET_PATH "/run/tandem/ctl.sock" /* the default of control.socket */
#define TDM_CTL_WORD_MAX    32u
#define TDM_CTL_ANSWER_S    5u
#define TDM_CTL_KEY_MAX     512u /* bytes of --key; each header that holds one has room for it */
#define TDM_CTL_URL_MAX     384u /* of --http, before a path */

/* The options, in the order of the help. */
typedef enum tdm_ctl_option {
    TDM_CTL_HOST,
    TDM_CTL_PORT,
    TDM_CTL_CERTIFICATE,
    TDM_CTL_INSECURE,
    TDM_CTL_SOCKET,
    TDM_CTL_HTTP,
    TDM_CTL_KEY,
    TDM_CTL_MODEL,
    TDM_CTL_MAX_TOKENS,
    TDM_CTL_TEMPERATURE,
    TDM_CTL_SEED,
    TDM_CTL_IDS,
    TDM_CTL_JSON,  /* and -o json, -o table */
    TDM_CTL_FORMS, /* -o yaml, -o prom */
    TDM_CTL_SINCE,
    TDM_CTL_WATCH,
    TDM_CTL_SLOWEST,
    TDM_CTL_CONFIRM,
    TDM_CTL_REVISION,
    TDM_CTL_WHY,
    TDM_CTL_OUT,
    TDM_CTL_SECONDS,
    TDM_CTL_PID,
    TDM_CTL_OPTION_CNT
} tdm_ctl_option_t;

/* A set of options: 1 << TDM_CTL_*. */
typedef uint32_t tdm_ctl_uses_t;
#define TDM_CTL_USE(x) (1u << TDM_CTL_##x)

/* What asks the management port takes these. */
#define TDM_CTL_USE_PAGE (TDM_CTL_USE(SOCKET) | TDM_CTL_USE(HTTP) | TDM_CTL_USE(KEY))

/* What a command gives.  HELP is no exit status: main prints the command's
   lines of help and gives USAGE. */
enum {
    TDM_EXIT_FAILED = 1,
    TDM_EXIT_USAGE,
    TDM_EXIT_DEGRADED,
    TDM_EXIT_UNREACHABLE,
    TDM_EXIT_HELP = 64
};

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
    const char *socket; /* its Unix socket, also by TANDEM_SOCKET; NULL: TDM_CTL_SOCKET_PATH
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
    uint32_t is_patient;     /* with one answer too, which else has at most TDM_CTL_ANSWER_S */
    uint32_t watch_s;        /* show: again after so many seconds; 0: once */
    uint32_t since_s;        /* show: counted over the last so many; 0: since start */
    int64_t pid;             /* wait: give up when this process is gone; 0: none */
    uint32_t is_ids;         /* print token ids instead of text */
    uint32_t is_insecure;
    const char *given[TDM_CTL_OPTION_CNT]; /* as it was typed; NULL: it was not */
    const char *word[TDM_CTL_WORD_MAX];    /* what is no option */
    uint32_t word_cnt;
} tdm_ctl_options_t;

/* An option whose value is a number from low to high. */
typedef struct tdm_ctl_number {
    const char *name; /* with its dashes */
    double *at;       /* where the value goes */
    double low, high;
    int is_whole; /* 1: of things that are counted, none with a fraction */
} tdm_ctl_number_t;

/* tdm_ctl_number_read stores the number that all of text is.  What is none
   (NULL: no value was typed), or outside the range, or has a fraction where
   none may be, is TDM_ERR_INVAL with the option's name and what it takes, and
   nothing is stored: what was asked for is done as asked, or refused. */
TDM_MUST_USE tdm_status_t tdm_ctl_number_read(const tdm_ctl_number_t *n, const char *text,
                                              tdm_error_t *err);

/* tdm_ctl_count_read reads the digits that text begins with, at most `most`,
   and gives what is behind them; NULL, and nothing stored, where there are
   none or they are more. */
const char *tdm_ctl_count_read(const char *text, uint32_t most, uint32_t *out);

/* tdm_ctl_rate_read reads the RATE[@WARM] that text begins with, requests a
   second above 0 and below 1e6 and at most TDM_SEQ_MAX decodes (0 where none
   are named), and gives what is behind it, the end or a comma; NULL, where
   there is none such. */
const char *tdm_ctl_rate_read(const char *text, double *rate, uint32_t *warm);

/* tdm_ctl_options_parse reads argv[from..) for a command that uses `uses`.
   A missing or wrong value, or a word too many, is TDM_ERR_INVAL with a
   sentence; an option that the command has no use for, or that is none,
   TDM_ERR_UNSUPPORTED. */
TDM_MUST_USE tdm_status_t tdm_ctl_options_parse(int argc, char **argv, int from,
                                                tdm_ctl_uses_t uses, tdm_ctl_options_t *out,
                                                tdm_error_t *err);

/* tdm_ctl_options_fit: 0 where all that was given is of use to `what`, one of
   a command's verbs; else it has said which is not, and is TDM_EXIT_HELP. */
int tdm_ctl_options_fit(const tdm_ctl_options_t *o, const char *what, tdm_ctl_uses_t uses);

/* tdm_ctl_usage prints err and gives the exit status: TDM_EXIT_HELP where it
   is TDM_ERR_UNSUPPORTED, else that of wrong use. */
int tdm_ctl_usage(const char *command, const tdm_error_t *err);

/* tdm_ctl_no_use is the sentence about a word that a command does not take:
   an option or not, it is named. */
TDM_MUST_USE tdm_status_t tdm_ctl_no_use(const char *word, tdm_error_t *err);

/* tdm_ctl_option_name: "--host"; of FORMS "-o yaml". */
const char *tdm_ctl_option_name(tdm_ctl_option_t option);

/* tdm_ctl_options_help: a line per option. */
const char *tdm_ctl_options_help(void);

#endif /* TDM_CTL_OPTIONS_H */
