/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_ASK_H
#define TDM_CTL_ASK_H

/* Asking the appliance for tokens over HTTP/3, and printing them as they
   come. */

#include "appliance/ctl/options.h"

typedef enum tdm_ask_kind {
    TDM_ASK_COMPLETION, /* /v1/completions, word[0] is the prompt */
    TDM_ASK_CHAT,       /* /v1/chat/completions, word[0] is the user's message */
} tdm_ask_kind_t;

/* tdm_ask connects, finds the model, streams the answer to stdout and a
   short account of it to stderr.  Returns the exit status of tandemctl. */
int tdm_ask(tdm_ask_kind_t kind, const tdm_ctl_options_t *options);

#endif /* TDM_CTL_ASK_H */
