/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_EXEC_SANDBOX_H
#define TDM_EXEC_SANDBOX_H

/* tdm_sandbox is what tandem-exec may no longer do once it begins to read a
   model: a file or a driver that turns it against us finds no way out but
   plans, results and the device.

     files      Landlock: what programs and drivers are made of (/usr, /opt,
                /proc, /sys, the folders of LD_LIBRARY_PATH, the program's
                own) and the model can be read; /proc/self and the nodes of
                /dev that give nothing, zeros and random bytes written.
                Nothing else is there: not the keys, not the TLS key, not
                the audit, not the flight recorder, not another's home, not
                the NIC.  It also keeps this process from looking into any
                outside it (ptrace, /proc/PID/mem).
     calls      seccomp: no socket of the net, no way to another's socket
                nor from it (a local one with connections may be made, and
                neither connects, nor has a name, nor accepts), no program,
                no signal to another process, no mount, namespace, key ring,
                tracing, io_uring or kernel part.  They fail with EPERM,
                which a driver that tries one without need can bear.

   With a GPU the nodes /dev/nvidia* that are there at entry are written as
   well: nvidiactl, the GPUs, nvidia-uvm and -uvm-tools, nvidia-modeset and
   the folders of capabilities.  What CUDA's driver asks beyond device nodes
   lies below /proc, /sys, /usr and /etc/nvidia (NVIDIA's Container Device
   Interface names nodes and libraries, snapd's interface opengl what is
   read, gVisor's nvproxy the nodes that compute needs; so did the trace
   below).  What it does without, there: nvidia-modprobe (nodes must exist:
   nvidia-persistenced or the image's tandem-gpu.service), MPS, the daemons'
   sockets, memory shared by CUDA IPC, a cache of compiled code below $HOME.

   With a GPU bind and listen are not refused.  libcuda 580.159.04, traced on
   H200s from cuInit to a kernel's end, gives a socket the abstract name
   cuda-uvmfd-<PID namespace>-<pid>; without bind or without listen cuInit
   gives 304 (CUDA_ERROR_OPERATING_SYSTEM), whatever errno they fail with.
   With these two and all else refused, of calls and files, it worked:
   context, device and pinned memory, a kernel, NVML.  Who connects to such a
   name gets no answer and is not read, for accept is refused; a name that is
   a file is Landlock's to refuse.  What is left is the name itself: about a
   hundred bytes that other processes of this network namespace can see, and
   a name that one of them might have wanted.

   It is entered before the driver is loaded and not after cuInit: Landlock
   holds the thread that asks and those that it starts later, and a driver's
   own threads are there after cuInit.

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
   not exist; has_gpu: CUDA's driver is to work inside.  One thread only,
   before the model is opened and the driver loaded.  An error means that the
   kernel took a part and not the whole: end the process.  What the kernel
   does not have at all is no error and is 0 in out. */
TDM_MUST_USE tdm_status_t tdm_sandbox_enter(const char *model, int has_gpu, tdm_sandbox_t *out,
                                            tdm_error_t *err);

#endif /* TDM_EXEC_SANDBOX_H */
