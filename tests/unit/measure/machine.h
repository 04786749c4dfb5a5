/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_MEASURE_MACHINE_H
#define TDM_TESTS_MEASURE_MACHINE_H

/* An executor's books without the executor: every plan is held against the
   executor's own check, and what it asks to compute is added up.  What that
   costs, a test's own law says. */

#include "appliance/measure/measure.h"
#include "kernels/engine/slots.h"

typedef struct machine {
    tdm_slots_t *slots;
    void *mem;
} machine_t;

/* What one plan computes. */
typedef struct machine_load {
    double prefill; /* tokens */
    double decodes;
    double pairs; /* of a prefilled token and one before it, or itself */
    double kv;    /* tokens that the decodes read */
} machine_load_t;

/* machine_open takes memory for limits; machine_close frees it. */
void machine_open(machine_t *m, const tdm_measure_limits_t *limits);
void machine_close(machine_t *m);

/* machine_take applies the plan as if it had run; what the executor would
   refuse is refused, with the reason in err. */
tdm_status_t machine_take(machine_t *m, const tdm_plan_t *plan, machine_load_t *load,
                          tdm_error_t *err);

#endif /* TDM_TESTS_MEASURE_MACHINE_H */
