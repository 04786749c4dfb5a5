/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_ENGINE_SLOTS_H
#define TDM_KERNELS_ENGINE_SLOTS_H

/* tdm_slots is what a backend remembers between plans: per slot the page
   table, the tokens at every position, and the sampling parameters.

     plan --> tdm_slots_check   reads only; every number of the plan
          --> tdm_slots_apply   deltas, and prefill tokens into histories
          --> (layers run)
          --> tdm_slots_draw    the new token enters the history
          --> tdm_slots_sampled and is known
          --> tdm_slots_done    the iteration is over for its slots

   A slot's `next_pos` is the position its next input must have: inputs
   are contiguous from 0, or from filled_cnt where a slot opens on pages
   that others have filled; their tokens are kept by page, so that such a
   slot's history is whole.  The token there is due after a row that
   samples was applied, known once it was sampled, and neither after a
   slice that was not the last.

   The next plan may be checked and applied while one is under way: its
   decodes run on tokens that are due.  A slot that an iteration under way
   runs may be closed, and is not opened again before that is done.

   Ownership: caller's memory.  Nothing here allocates or can fail after
   check said yes.
   Threads: one, but for tdm_slots_draw and reads of a history, which
   belong to whoever computes the iteration: apply never writes what an
   iteration under way reads or draws. */

#include "appliance/abi/plan.h"
#include "appliance/base/status.h"

TDM_BEGIN_DECLS

typedef struct tdm_slots_config {
    uint32_t seq_max;
    uint32_t token_max;   /* prefill tokens of one plan */
    uint32_t context_max; /* input positions of one slot */
    uint32_t kv_page_cnt;
    uint32_t vocab;
    uint32_t variant_cnt;
} tdm_slots_config_t;

typedef struct tdm_slot {
    uint32_t is_open;
    uint32_t is_poisoned; /* a sample was NaN: later ones are too */
    uint32_t prompt_cnt;
    uint32_t page_cnt;
    uint32_t filled_cnt; /* tokens computed before it was opened */
    uint32_t next_pos;
    uint32_t token_cnt; /* known tokens */
    uint32_t
        due_cnt; /* of them or being computed: next_pos, or one more after a row that samples */
    uint32_t busy_cnt; /* iterations under way that run it */
    tdm_sampling_t sampling;
} tdm_slot_t;

typedef struct tdm_slots tdm_slots_t;

/* tdm_slots_footprint: bytes; the config's numbers are in range. */
uint64_t tdm_slots_footprint(const tdm_slots_config_t *config);

/* tdm_slots_init formats mem (footprint bytes, zeroed, 64-byte aligned):
   all slots closed. */
tdm_slots_t *tdm_slots_init(void *mem, const tdm_slots_config_t *config);

/* tdm_slots_check answers TDM_ERR_CORRUPT with the first contradiction of
   the plan against itself, the config or the slots; the slots stay as
   they are.  Two slots may share pages to read, but no page may be
   written by two slots in one plan. */
TDM_MUST_USE tdm_status_t tdm_slots_check(tdm_slots_t *s, const tdm_plan_t *plan, tdm_error_t *err);

/* tdm_slots_apply changes the slots as a checked plan says.  next_pos of
   every slice and decode is moved past its inputs. */
void tdm_slots_apply(tdm_slots_t *s, const tdm_plan_t *plan);

/* tdm_slots_draw writes the token drawn for position pos into the slot's
   history. */
void tdm_slots_draw(tdm_slots_t *s, uint32_t slot, uint32_t pos, int32_t token);

/* tdm_slots_sampled: the token at pos, drawn before, is known; -1 poisons
   the slot. */
void tdm_slots_sampled(tdm_slots_t *s, uint32_t slot, uint32_t pos, int32_t token);

/* tdm_slots_done ends an iteration for one slot that it ran, after all its
   samples: [pos, pos + cnt) were the inputs, whose tokens are known by now. */
void tdm_slots_done(tdm_slots_t *s, uint32_t slot, uint32_t pos, uint32_t cnt);

const tdm_slot_t *tdm_slots_at(const tdm_slots_t *s, uint32_t slot);

/* tdm_slots_history: [context_max + 1] tokens of a slot. */
const int32_t *tdm_slots_history(const tdm_slots_t *s, uint32_t slot);

/* tdm_slots_pages: the page tables, [seq_max][tdm_slots_stride]. */
const uint32_t *tdm_slots_pages(const tdm_slots_t *s);
uint32_t tdm_slots_stride(const tdm_slots_t *s);

TDM_END_DECLS

#endif /* TDM_KERNELS_ENGINE_SLOTS_H */
