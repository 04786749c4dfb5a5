/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_DOCTOR_H
#define TDM_CTL_DOCTOR_H

/* tandemctl doctor: is this machine fit for the job, and if not, what to
   type.  Each check reads a few files of sysfs, procfs or /dev and gives
   one line: what, state, what was found, the fix.

     ok        as it should be
     degraded  works, but slower or less safely than promised
     missing   the part of the house that needs it will not start
     absent    there is nothing to check (a virtual machine without
               frequency control, no NIC named)

   Where the machine has accepted an appliance.json (appliance/setup), it is
   held against that, item by item: the rendered files, each kernel
   argument, name, address, the house's processors; its data NIC is checked
   unless another is named, and its hugepages are those wanted.

   The checks read below a root folder and nothing else, so a test gives
   them a tree of its own.  They change nothing. */

#include "appliance/ctl/options.h"

#define TDM_DOCTOR_LINE_MAX 64u

typedef enum tdm_doctor_state {
    TDM_DOCTOR_OK,
    TDM_DOCTOR_DEGRADED,
    TDM_DOCTOR_MISSING,
    TDM_DOCTOR_ABSENT,
    TDM_DOCTOR_STATE_CNT
} tdm_doctor_state_t;

typedef struct tdm_doctor_line {
    char what[32]; /* "hugepages node0" */
    tdm_doctor_state_t state;
    char found[160];
    char fix[256]; /* empty where nothing is wrong */
} tdm_doctor_line_t;

typedef struct tdm_doctor_ask {
    const char *root;  /* "" for this machine */
    const char *nic;   /* interface name or PCI address; NULL: none named */
    const char *model; /* path or dummy:<name>; NULL: none named */
    uint32_t huge_mb;  /* hugepages wanted free, per machine, unless appliance.json says */
} tdm_doctor_ask_t;

/* tdm_doctor_check fills at most TDM_DOCTOR_LINE_MAX lines and returns how
   many. */
uint32_t tdm_doctor_check(const tdm_doctor_ask_t *ask, tdm_doctor_line_t *line);

/* tdm_doctor_state_name: "ok", ... */
const char *tdm_doctor_state_name(tdm_doctor_state_t state);

/* tdm_doctor prints the lines of this machine, as JSON with is_json;
   word[0] is the NIC, --model the model.  Exit status 0, or 3 where a line
   is degraded or missing. */
int tdm_doctor(const tdm_ctl_options_t *options);

#endif /* TDM_CTL_DOCTOR_H */
