/* SPDX-License-Identifier: Apache-2.0 */
/* A slot's life, and the control words of its request. */
#include "appliance/api/tile_private.h"

#include <string.h>

tdm_slot_t *tdm_slot_take(tdm_api_tile_t *t) {
    uint32_t idx;
    if (!tdm_queue_pop(&t->free_slots, &idx)) return NULL;
    tdm_slot_t *s = &t->slot[idx];
    tdm_handle_t handle = s->request.handle;
    uint16_t is_ready = s->is_ready; /* a visit of its last use may still be queued */
    memset(s, 0, sizeof *s);
    s->request.handle = handle;
    s->call = TDM_NONE;
    s->cut_cnt = TDM_NONE;
    s->is_ready = is_ready;
    tdm_store_relaxed(&t->stats.slot_cnt, t->stats.slot_cnt + 1);
    return s;
}

void tdm_slot_free(tdm_api_tile_t *t, tdm_slot_t *s) {
    if (s->ids) tdm_slab_give(&t->slab, s->ids, s->id_cap);
    s->ids = NULL;
    s->state = TDM_SLOT_FREE;
    s->call = TDM_NONE;
    if (++s->request.handle.generation == 0) s->request.handle.generation = 1;
    tdm_queue_push(&t->free_slots, s->request.handle.slot);
    tdm_store_relaxed(&t->stats.slot_cnt, t->stats.slot_cnt - 1);
}

void tdm_slot_ready(tdm_api_tile_t *t, tdm_slot_t *s) {
    if (s->is_ready) return;
    s->is_ready = 1;
    tdm_queue_push(&t->ready, s->request.handle.slot);
}

void tdm_slot_control(tdm_api_tile_t *t, tdm_slot_t *s, tdm_control_kind_t kind) {
    uint32_t bit = 1u << kind;
    if ((s->control_due | s->control_sent) & bit) return;
    s->control_due |= bit;
    if (!tdm_slot_push_controls(t, s)) tdm_slot_ready(t, s);
}

/* A control word may overtake its submit, which travels in another lane,
   and would then be dropped as stale: words wait for the verdict. */
int tdm_slot_push_controls(tdm_api_tile_t *t, tdm_slot_t *s) {
    if (s->state != TDM_SLOT_RUNNING) return 1;
    for (uint32_t kind = 0; s->control_due >> kind; kind++) {
        if (!((s->control_due >> kind) & 1)) continue;
        tdm_control_t word = {
            .handle = s->request.handle, .api = t->config.api_idx, .kind = (uint16_t)kind};
        if (!tdm_ring_push(t->wires.controls, t->config.api_idx, &word)) return 0;
        s->control_due &= ~(1u << kind);
        s->control_sent |= 1u << kind;
    }
    return 1;
}
