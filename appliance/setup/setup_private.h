/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SETUP_SETUP_PRIVATE_H
#define TDM_SETUP_SETUP_PRIVATE_H

#include "appliance/setup/setup.h"

/* tdm_setup_kind_is says whether text is of a kind; the empty text is of
   each, for a key that is not given. */
int tdm_setup_kind_is(tdm_setup_kind_t kind, const char *text);

/* tdm_setup_kind_want: what a kind takes, for a sentence. */
const char *tdm_setup_kind_want(tdm_setup_kind_t kind);

/* tdm_setup_compose writes tandem.json into buf: serve, and what the other
   parts decide.  INVAL names a key of serve that is not serve's. */
TDM_MUST_USE tdm_status_t tdm_setup_compose(const tdm_setup_t *s, const tdm_setup_facts_t *facts,
                                            char *buf, size_t buf_sz, tdm_error_t *err);

#endif /* TDM_SETUP_SETUP_PRIVATE_H */
