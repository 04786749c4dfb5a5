/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_PORT_TELL_H
#define TDM_PORT_TELL_H

/* What dpdk-telemetry.py is told beside DPDK's own commands
   (rte_telemetry.h): read-only commands under /tandem/, each a dictionary
   of numbers.  They are answered on threads of DPDK's, one for
   each client.

   Limits: at most TDM_TELL_MAX commands; a dictionary has room for 256
   names of 63 bytes, an answer for 16 KiB: more is left out. */

#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

#define TDM_TELL_MAX 8u

typedef struct tdm_told tdm_told_t; /* an answer being made */

/* tdm_told_u64 adds one number; bytes of key outside [A-Za-z0-9_/] become
   '_', as DPDK asks. */
void tdm_told_u64(tdm_told_t *t, const char *key, uint64_t value);

typedef void tdm_tell_fn(void *ctx, tdm_told_t *t);

/* tdm_port_tell registers a command, kept by pointer; 1 where it is one
   from now on, 0 where there is no room or DPDK refuses it.  After
   tdm_port_env_start, boot time only. */
int tdm_port_tell(const char *command, const char *help, tdm_tell_fn *fn, void *ctx);

TDM_END_DECLS

#endif /* TDM_PORT_TELL_H */
