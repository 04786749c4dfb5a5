/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_PROCESS_H
#define TDM_TELEMETRY_PROCESS_H

/* The process_* metrics, read from getrusage and /proc/self: the one file
   of this room that asks the operating system. */

#include "telemetry/block/block.h"

TDM_BEGIN_DECLS

/* tdm_process_sample refreshes the process_* series of the caller's own
   block; what /proc does not tell keeps its last value.  Management
   thread, once per scrape. */
void tdm_process_sample(tdm_block_t *block);

TDM_END_DECLS

#endif /* TDM_TELEMETRY_PROCESS_H */
