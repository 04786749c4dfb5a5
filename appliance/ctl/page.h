/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_PAGE_H
#define TDM_CTL_PAGE_H

/* tdm_page is one answer of the management port, over the Unix socket where
   the appliance has one here, else over TCP (--http, --socket). */

#include "appliance/ctl/options.h"

#define TDM_PAGE_MAX_SZ (4u << 20)

typedef struct tdm_page {
    long status; /* of HTTP */
    size_t sz;
    char *text; /* NUL-terminated, the caller's to free; NULL: empty */
} tdm_page_t;

/* tdm_page_get fetches a path; CLOSED where nobody answers. */
TDM_MUST_USE tdm_status_t tdm_page_get(const tdm_ctl_options_t *o, const char *path,
                                       tdm_page_t *page, tdm_error_t *err);

/* tdm_page_post sends a JSON body ("" for none); over TCP with the session's
   CSRF token, which --key opens. */
TDM_MUST_USE tdm_status_t tdm_page_post(const tdm_ctl_options_t *o, const char *path,
                                        const char *body, tdm_page_t *page, tdm_error_t *err);

/* tdm_page_say prints an answer that is no success to stderr: the message
   of its error, or all of it. */
void tdm_page_say(const tdm_page_t *page);

#endif /* TDM_CTL_PAGE_H */
