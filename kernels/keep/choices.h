/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_KEEP_CHOICES_H
#define TDM_KERNELS_KEEP_CHOICES_H

/* Reading and writing the block of kernels/include/choices.h. */

#include "kernels/include/choices.h"

TDM_BEGIN_DECLS

/* tdm_choices_keep writes cnt choices, at most TDM_CHOICES_MAX of them, under
   key.  Whoever is ended in between leaves a block that nobody takes. */
void tdm_choices_keep(tdm_choices_t *c, const tdm_choices_key_t *key, const tdm_choice_t *choice,
                      uint32_t cnt);

/* tdm_choices_take copies what is kept under exactly this key to out
   [TDM_CHOICES_MAX], then checks the copy, and returns how many there are; 0
   where nothing is kept or anything is off, and *why says which.  c may be
   hostile memory. */
uint32_t tdm_choices_take(const tdm_choices_t *c, const tdm_choices_key_t *key, tdm_choice_t *out,
                          const char **why);

/* tdm_choices_find: the choice for a product, or NULL. */
const tdm_choice_t *tdm_choices_find(const tdm_choice_t *choice, uint32_t cnt,
                                     const uint32_t shape[TDM_CHOICE_SHAPE_WORD]);

TDM_END_DECLS

#endif /* TDM_KERNELS_KEEP_CHOICES_H */
