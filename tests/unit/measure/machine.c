/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/measure/machine.h"

#include "scheduler/predict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void machine_open(machine_t *m, const tdm_measure_limits_t *limits) {
    tdm_slots_config_t c = {.seq_max = limits->seq_max,
                            .token_max = limits->token_max,
                            .context_max = limits->context_max,
                            .kv_page_cnt = limits->kv_page_cnt,
                            .vocab = limits->vocab,
                            .variant_cnt = 1};
    size_t sz = (size_t)tdm_slots_footprint(&c);
    m->mem = aligned_alloc(64, sz);
    assert_non_null(m->mem);
    memset(m->mem, 0, sz);
    m->slots = tdm_slots_init(m->mem, &c);
}

void machine_close(machine_t *m) {
    free(m->mem);
    *m = (machine_t){0};
}

/* computed is cnt tokens of the slot from pos on; a last one is sampled. */
static void computed(machine_t *m, uint32_t slot, uint32_t pos, uint32_t cnt, int is_last) {
    if (is_last) {
        tdm_slots_draw(m->slots, slot, pos + cnt, 1);
        tdm_slots_sampled(m->slots, slot, pos + cnt, 1);
    }
    tdm_slots_done(m->slots, slot, pos, cnt);
}

tdm_status_t machine_take(machine_t *m, const tdm_plan_t *plan, machine_load_t *load,
                          tdm_error_t *err) {
    tdm_status_t st = tdm_slots_check(m->slots, plan, err);
    if (st != TDM_OK) return st;
    tdm_slots_apply(m->slots, plan);
    *load = (machine_load_t){.prefill = plan->token_cnt, .decodes = plan->decode_cnt};
    for (uint32_t i = 0; i < plan->slice_cnt; i++) {
        const tdm_plan_slice_t *s = &plan->slice[i];
        load->pairs += (double)tdm_predict_pairs(s->pos, s->cnt);
        computed(m, s->slot, s->pos, s->cnt, s->is_last != 0);
    }
    for (uint32_t i = 0; i < plan->decode_cnt; i++) {
        const tdm_plan_decode_t *d = &plan->decode[i];
        load->kv += d->pos + 1.0;
        computed(m, d->slot, d->pos, 1, 1);
    }
    return TDM_OK;
}
