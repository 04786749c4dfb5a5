/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SIZING_SIZING_H
#define TDM_SIZING_SIZING_H

/* What "0" and "auto" in the configuration come to on this machine with
   this model.  Pure: the machine's numbers are arguments. */

#include "appliance/abi/model.h"
#include "appliance/config/config.h"
#include "appliance/exec/channel.h"
#include "appliance/exec/device.h"
#include "appliance/ring/poll.h"

#include <sched.h>

typedef struct tdm_machine {
    uint32_t core_cnt;       /* usable by this process: affinity and control groups */
    cpu_set_t affinity;      /* of this process; tile.cpus may name others, which isolcpus= kept */
    uint64_t memory_free_sz; /* bytes that can be had without swapping */
    char cpu[96];            /* model name of the processor */
    char gpu[96];            /* of the first GPU; empty: the driver shows none */
    tdm_device_t device;     /* what an executor would find; zero: not asked */
} tdm_machine_t;

typedef struct tdm_sizing {
    uint32_t backend;       /* tdm_exec_backend_t: never "auto" */
    uint32_t kv_dtype;      /* tdm_kv_dtype_t */
    uint32_t sm_cnt;        /* SM threads of the CPU backend */
    uint32_t context_max;   /* tokens of one request */
    uint32_t seq_max;       /* sequences with pages at once */
    uint32_t kv_page_cnt;   /* pages of the pool */
    uint64_t kv_page_bytes; /* one page, all layers, K and V */
    tdm_poll_mode_t poll_mode;
    uint32_t is_ahead; /* exec.ahead: never "auto" */
} tdm_sizing_t;

/* tdm_machine_read asks the kernel: affinity, control group, MemAvailable, and the names
   of processor and GPU (/proc/cpuinfo, /proc/driver/nvidia). */
void tdm_machine_read(tdm_machine_t *machine);

/* tdm_machine_ask asks the executor program for its GPU where exec.backend
   is not cpu. */
void tdm_machine_ask(const tdm_config_t *config, tdm_machine_t *machine);

/* tdm_sizing_make: UNSUPPORTED where exec.backend=cuda finds no GPU; LIMIT where the KV pool, asked
   for or found, does not hold one request of the context; the sentence has both numbers. INVAL
   where exec.ahead=on has no second plan in flight. */
TDM_MUST_USE tdm_status_t tdm_sizing_make(const tdm_config_t *config, const tdm_shape_t *shape,
                                          const tdm_machine_t *machine, tdm_sizing_t *out,
                                          tdm_error_t *err);

/* tdm_sizing_device names what computes, as a latency profile is keyed:
   the processor or the GPU. */
const char *tdm_sizing_device(const tdm_sizing_t *sizing, const tdm_machine_t *machine);

/* tdm_sizing_profile_name names what a latency profile is of, in sz bytes: the
   model, and what of the settings makes other times of it (", fp8 pages",
   ", fp8 weights", ", deterministic"); cut where it is longer. */
void tdm_sizing_profile_name(const tdm_config_t *config, const tdm_sizing_t *sizing,
                             const char *model, char *out, size_t sz);

/* tdm_sizing_spec fills what the executor process is told. */
void tdm_sizing_spec(const tdm_config_t *config, const tdm_sizing_t *sizing, tdm_exec_spec_t *spec);

#endif /* TDM_SIZING_SIZING_H */
