/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_EXEC_DEVICE_H
#define TDM_EXEC_DEVICE_H

/* What GPU an executor of this build would find.  tandemd links no CUDA and
   touches no driver: it asks the executor program (tandem-exec --device),
   which answers in one line:

     cuda <arch> <SMs> <bytes free> <name>
     none <why>  */

#include "appliance/base/attr.h"

typedef struct tdm_device {
    uint32_t is_there;
    uint32_t sm_cnt;
    uint64_t free_sz; /* bytes of device memory that nobody has */
    char arch[16];    /* "sm_90" */
    char name[96];
    char why[160]; /* where there is none */
} tdm_device_t;

/* tdm_device_ask runs program, for at most 30 s, and reads its answer;
   what goes wrong is in *out too. */
void tdm_device_ask(const char *program, tdm_device_t *out);

/* tdm_device_read takes the line apart. */
void tdm_device_read(const char *line, tdm_device_t *out);

#endif /* TDM_EXEC_DEVICE_H */
