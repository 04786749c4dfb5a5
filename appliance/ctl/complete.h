/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_COMPLETE_H
#define TDM_CTL_COMPLETE_H

/* tandemctl completion bash: a script for bash's complete(1), made from the
   same table that main dispatches by, so that it never lags behind.

     source <(tandemctl completion bash) */

#include "appliance/ctl/options.h"

#include <stdio.h>

/* A command as the table of main knows it. */
typedef struct tdm_ctl_command {
    const char *name;
    int (*run)(int argc, char **argv);      /* reads its own words; NULL: ... */
    int (*ask)(const tdm_ctl_options_t *o); /* ... this runs */
    tdm_ctl_uses_t uses;                    /* its options */
    uint32_t word_max;                      /* words that are none, at most */
    const char *verbs; /* words that may follow, blanks between; "": none, "show": those of
                          tdm_show_word */
    const char *help;  /* lines of usage, the name first */
} tdm_ctl_command_t;

/* tdm_ctl_complete writes the script for command[cnt]. */
void tdm_ctl_complete(const tdm_ctl_command_t *command, size_t cnt, FILE *f);

#endif /* TDM_CTL_COMPLETE_H */
