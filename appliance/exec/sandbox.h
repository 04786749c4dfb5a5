/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_EXEC_SANDBOX_H
#define TDM_EXEC_SANDBOX_H

/* tdm_sandbox is what tandem-exec may no longer do once it begins to read a
   model: a file or a driver that turns it against us finds no way out but
   plans, results and the device.

     files      Landlock: what programs and drivers are made of (/usr, /opt,
                /proc, /sys, the folders of LD_LIBRARY_PATH, the program's
                own) and the model can be read; /dev and /proc/self written.
                Nothing else is there: not the keys, not the TLS key, not
                the audit, not another's home.  It also keeps this process
                from looking into any outside it (ptrace, /proc/PID/mem).
     calls      seccomp: no socket of the net, no way to another's socket,
                no program, no signal to another process, no mount, namespace, key ring, tracing,
   io_uring or kernel part.  They fail with EPERM, which a driver that tries one without need can
   bear.

   Both hold for all threads started later and cannot be undone.  They come
   on top of the unit's own sandbox, and hold as well where tandemd was
   started by hand.  Outside facts: Documentation/userspace-api/
   landlock.rst, seccomp_filter.rst, no_new_privs.rst of the kernel. */

#include "appliance/base/status.h"

/* What is in force, for one line of the log. */
typedef struct tdm_sandbox {
    uint32_t is_files; /* 0: this kernel has no Landlock, or it is off */
    uint32_t is_calls;
} tdm_sandbox_t;

/* tdm_sandbox_enter: model is a path as tdm_model_open takes it, which need
   not exist.  One thread only, before the model is opened.  An error means
   that the kernel took a part and not the whole: end the process.  What the
   kernel does not have at all is no error and is 0 in out. */
TDM_MUST_USE tdm_status_t tdm_sandbox_enter(const char *model, tdm_sandbox_t *out,
                                            tdm_error_t *err);

#endif /* TDM_EXEC_SANDBOX_H */
