/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SIZING_CPUS_H
#define TDM_SIZING_CPUS_H

/* Which processors are ours: those an operator names for the tiles, and
   how many a control group lets this process use. */

#include "appliance/base/status.h"

#define TDM_CPU_MAX 1024u /* CPU_SETSIZE of the C library */

typedef struct tdm_cpus {
    uint32_t cnt; /* 0: none were named */
    uint16_t cpu[TDM_CPU_MAX];
} tdm_cpus_t;

/* tdm_cpus_parse reads a list as taskset(1) takes it, "2,4-6", in the order
   of the text.  INVAL for what is no list, a number of TDM_CPU_MAX or
   more, a range that runs backwards, or a processor named twice. */
TDM_MUST_USE tdm_status_t tdm_cpus_parse(const char *text, tdm_cpus_t *out, tdm_error_t *err);

/* tdm_cpus_limit: how many processors' worth of time the groups of
   proc_cgroup, a copy of /proc/self/cgroup, allow, rounded up; 0: any.
   Both hierarchies below root, "/sys/fs/cgroup": cpu.max of version 2 and
   cpu.cfs_quota_us of version 1, of the group and of all above it
   (Documentation/admin-guide/cgroup-v2.rst, scheduler/sched-bwc.rst). */
uint32_t tdm_cpus_limit(const char *proc_cgroup, const char *root);

#endif /* TDM_SIZING_CPUS_H */
