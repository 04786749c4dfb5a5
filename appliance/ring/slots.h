/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RING_SLOTS_H
#define TDM_RING_SLOTS_H

/* tdm_slots says which slots of a table are free and which life each is in:
   a list of free places, and a generation for each, so that a message about
   an earlier owner is known to be stale (appliance/abi/handle.h).

     take --> {slot, generation} --- messages carry it ---> is_live?
     give <-- the last owner is done

   Ownership: the caller gives the places and keeps what lies in the slots.
   Limits: one caller at a time; every call takes the same short time;
   tdm_slots_used_cnt may be read by any thread. */

#include "appliance/abi/handle.h"
#include "appliance/base/atomic.h"

TDM_BEGIN_DECLS

/* One place of the table; next_free is TDM_SLOT_USED while it is taken. */
typedef struct tdm_slot_place {
    uint32_t generation; /* of the present life, or of the last */
    uint32_t next_free;
} tdm_slot_place_t;

#define TDM_SLOT_NONE UINT32_MAX        /* the end of the list */
#define TDM_SLOT_USED (UINT32_MAX - 1u) /* not in the list */

typedef struct tdm_slots {
    tdm_slot_place_t *place; /* [cnt] */
    uint32_t cnt;
    uint32_t free_head;
    uint32_t used_cnt; /* written by the one caller, read by anyone */
} tdm_slots_t;

/* tdm_slots_clear makes cnt places free; cnt in [1, TDM_SLOT_USED). */
void tdm_slots_clear(tdm_slots_t *s, tdm_slot_place_t *place, uint32_t cnt);

/* tdm_slots_take gives the place freed last, in a new life; 0 where no more
   than keep_cnt places are free. */
int tdm_slots_take(tdm_slots_t *s, uint32_t keep_cnt, tdm_handle_t *out);

/* tdm_slots_give frees a taken place. */
void tdm_slots_give(tdm_slots_t *s, uint32_t slot);

/* tdm_slots_is_used: the place is taken; slot below cnt. */
static inline int tdm_slots_is_used(const tdm_slots_t *s, uint32_t slot) {
    return s->place[slot].next_free == TDM_SLOT_USED;
}

/* tdm_slots_is_live: the handle means the present owner; any bits are
   allowed in it. */
static inline int tdm_slots_is_live(const tdm_slots_t *s, tdm_handle_t h) {
    return h.slot < s->cnt && tdm_slots_is_used(s, h.slot) &&
           s->place[h.slot].generation == h.generation;
}

/* tdm_slots_used_cnt: places taken; any thread. */
static inline uint32_t tdm_slots_used_cnt(const tdm_slots_t *s) {
    return tdm_load_relaxed(&s->used_cnt); /* a count to look at, nothing hangs on it */
}

TDM_END_DECLS

#endif /* TDM_RING_SLOTS_H */
