/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SCHEDULER_RIG_H
#define TDM_TESTS_SCHEDULER_RIG_H

/* The one world of the fact under way, and what most facts ask of it. */

#include "tests/sim/world.h"

extern world_t w;

/* rig_setup opens the small configuration as it is; rig_teardown closes
   whatever is open. */
int rig_setup(void **state);
int rig_teardown(void **state);

/* rig_ask submits a request of one class; world_submit's answer. */
uint32_t rig_ask(uint32_t prompt_cnt, uint32_t output_max, uint32_t slo_class);

#endif /* TDM_TESTS_SCHEDULER_RIG_H */
