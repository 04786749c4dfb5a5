/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ring/slots.h"

#include "appliance/base/check.h"

void tdm_slots_clear(tdm_slots_t *s, tdm_slot_place_t *place, uint32_t cnt) {
    TDM_CHECK(cnt > 0 && cnt < TDM_SLOT_USED);
    for (uint32_t i = 0; i < cnt; i++)
        place[i] = (tdm_slot_place_t){.next_free = i + 1 < cnt ? i + 1 : TDM_SLOT_NONE};
    *s = (tdm_slots_t){.place = place, .cnt = cnt};
}

int tdm_slots_take(tdm_slots_t *s, uint32_t keep_cnt, tdm_handle_t *out) {
    uint32_t slot = s->free_head;
    if (slot == TDM_SLOT_NONE || s->cnt - s->used_cnt <= keep_cnt) return 0;
    tdm_slot_place_t *p = &s->place[slot];
    s->free_head = p->next_free;
    p->next_free = TDM_SLOT_USED;
    p->generation++;
    if (p->generation == 0) p->generation = 1;
    tdm_store_relaxed(&s->used_cnt, s->used_cnt + 1);
    *out = (tdm_handle_t){.slot = slot, .generation = p->generation};
    return 1;
}

void tdm_slots_give(tdm_slots_t *s, uint32_t slot) {
    TDM_CHECK(slot < s->cnt && tdm_slots_is_used(s, slot));
    s->place[slot].next_free = s->free_head;
    s->free_head = slot;
    tdm_store_relaxed(&s->used_cnt, s->used_cnt - 1);
}
