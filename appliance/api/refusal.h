/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_API_REFUSAL_H
#define TDM_API_REFUSAL_H

/* tdm_refusal is why an exchange is answered with an error, from where it
   was found to the one writer of error bodies.  Its text is ours alone:
   no byte of a request is ever repeated in it. */

#include "appliance/abi/reasons.h"
#include "appliance/base/attr.h"

typedef struct tdm_refusal {
    tdm_reason_t reason;     /* TDM_REFUSE_*, NONE where there is none */
    uint32_t retry_after_ms; /* hint, 0: the configured one where the status wants one */
    char param[64];          /* the field at fault, "" for none */
    char text[160];          /* "" for the reason's own sentence */
} tdm_refusal_t;

/* tdm_refuse fills r and returns 0, so that a guard is one line. */
int tdm_refuse(tdm_refusal_t *r, tdm_reason_t reason, const char *param);

/* tdm_refuse_text adds a sentence of our own. */
int tdm_refuse_text(tdm_refusal_t *r, tdm_reason_t reason, const char *param, const char *fmt, ...)
    TDM_PRINTF(4, 5);

#endif /* TDM_API_REFUSAL_H */
