/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_PROBE_H
#define TDM_BASE_PROBE_H

/* Static tracepoints (USDT, sys/sdt.h of systemtap-sdt-dev): one no-op
   instruction each until a tracer puts a breakpoint there, and a note in
   the program that says where and with which arguments.  Without the
   header they are nothing.

     tandem:req_admit    api tile, request slot, reason (0: accepted)
     tandem:iter_begin   iteration, decodes, prefill tokens of the plan
     tandem:iter_end     iteration, path that ran, nanoseconds
     tandem:fallback     iteration, reason, nanoseconds
     tandem:drop         reason, packets or messages, as of the last 50 ms

   Reasons are numbers of appliance/abi/reasons.def (tdm_reason_t), paths
   of tdm_route_t.

     bpftrace -e 'usdt:./tandemd:tandem:iter_end { @ns[arg1] = hist(arg2); }' */

#if defined(__has_include)
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#endif
#endif

#ifdef DTRACE_PROBE2
#define TDM_PROBE2(name, a, b)    DTRACE_PROBE2(tandem, name, a, b)
#define TDM_PROBE3(name, a, b, c) DTRACE_PROBE3(tandem, name, a, b, c)
#else
#define TDM_PROBE2(name, a, b)    ((void)(a), (void)(b))
#define TDM_PROBE3(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#endif

#endif /* TDM_BASE_PROBE_H */
