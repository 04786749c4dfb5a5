/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/scheduler/rig.h"

world_t w;

int rig_setup(void **state) {
    (void)state;
    tdm_sched_sizes_t sizes = world_sizes();
    tdm_sched_live_t live = world_live();
    world_open(&w, 3, &sizes, &live);
    return 0;
}

int rig_teardown(void **state) {
    (void)state;
    world_close(&w);
    return 0;
}

uint32_t rig_ask(uint32_t prompt_cnt, uint32_t output_max, uint32_t slo_class) {
    world_ask_t a = {.prompt_cnt = prompt_cnt, .output_max = output_max, .slo_class = slo_class};
    return world_submit(&w, &a);
}
