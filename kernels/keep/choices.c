/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/keep/choices.h"

#include <string.h>

#include "appliance/base/sip.h"

#define MAGIC UINT64_C(0x74646d2d63686f73)

_Static_assert(sizeof(tdm_choices_key_t) == 72, "keys are compared as bytes");
_Static_assert(sizeof(tdm_choice_t) % 8 == 0, "choices are summed up word by word");

static void add(tdm_sip_t *s, const void *from, uint64_t sz) {
    const uint8_t *at = from;
    for (uint64_t i = 0; i < sz; i += 8) {
        uint64_t word;
        memcpy(&word, at + i, sizeof word);
        tdm_sip_word(s, word, 1);
    }
}

/* Against an accident, not an enemy, who could write the sum too. */
static uint64_t sum_of(const tdm_choices_key_t *key, const tdm_choice_t *choice, uint64_t cnt) {
    const uint64_t fixed[2] = {MAGIC, sizeof(tdm_choices_t)};
    tdm_sip_t s = tdm_sip_begin(fixed);
    add(&s, key, sizeof *key);
    add(&s, choice, cnt * sizeof *choice);
    return tdm_sip_end(&s, cnt, 1, 3);
}

void tdm_choices_keep(tdm_choices_t *c, const tdm_choices_key_t *key, const tdm_choice_t *choice,
                      uint32_t cnt) {
    cnt = TDM_MIN(cnt, TDM_CHOICES_MAX);
    tdm_choices_forget(c);
    c->key = *key;
    memcpy(c->choice, choice, cnt * sizeof *choice);
    c->cnt = cnt;
    c->sum = sum_of(key, choice, cnt);
    c->magic = MAGIC;
}

uint32_t tdm_choices_take(const tdm_choices_t *c, const tdm_choices_key_t *key, tdm_choice_t *out,
                          const char **why) {
    tdm_choices_key_t kept = c->key;
    uint64_t cnt = c->cnt, sum = c->sum;
    *why = "nothing is kept";
    if (c->magic != MAGIC) return 0;
    *why = "what was kept is not whole";
    if (cnt > TDM_CHOICES_MAX) return 0;
    memcpy(out, c->choice, cnt * sizeof *out);
    if (sum_of(&kept, out, cnt) != sum) return 0;
    *why = "what was kept is another device's, driver's, library's or program's";
    if (memcmp(&kept, key, sizeof kept) != 0) return 0;
    *why = "";
    return (uint32_t)cnt;
}

const tdm_choice_t *tdm_choices_find(const tdm_choice_t *choice, uint32_t cnt,
                                     const uint32_t shape[TDM_CHOICE_SHAPE_WORD]) {
    for (uint32_t i = 0; i < cnt; i++)
        if (memcmp(choice[i].shape, shape, sizeof choice[i].shape) == 0) return &choice[i];
    return NULL;
}
