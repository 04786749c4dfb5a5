/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_DOCTOR_PRIVATE_H
#define TDM_CTL_DOCTOR_PRIVATE_H

/* What the checks of doctor have in common. */

#include "appliance/ctl/doctor.h"

typedef struct tdm_doctor {
    const tdm_doctor_ask_t *ask;
    tdm_doctor_line_t *line;
    uint32_t cnt;
    const char *nic;    /* that is checked; NULL: none */
    uint32_t huge_mb;   /* hugepages wanted free */
    uint32_t has_setup; /* an appliance.json was accepted */
    char setup_nic[32]; /* its data NIC */
} tdm_doctor_t;

/* tdm_doctor_read reads the first line of a file below the root; 0, and
   out empty, where there is none. */
int tdm_doctor_read(const tdm_doctor_t *d, char *out, size_t cap, const char *fmt, ...)
    TDM_PRINTF(4, 5);

/* tdm_doctor_tell adds a line. */
void tdm_doctor_tell(tdm_doctor_t *d, const char *what, tdm_doctor_state_t state, const char *fix,
                     const char *fmt, ...) TDM_PRINTF(5, 6);

/* tdm_doctor_check_setup holds the machine against appliance.json, where
   one was accepted, and sets what the other checks take from it. */
void tdm_doctor_check_setup(tdm_doctor_t *d);

#endif /* TDM_CTL_DOCTOR_PRIVATE_H */
