/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/kv.h"

#include "appliance/base/check.h"

static uint32_t *table_of(const tdm_kv_t *kv, uint32_t slot) {
    return kv->table + (size_t)slot * kv->table_max;
}

void tdm_kv_init(tdm_kv_t *kv) {
    kv->free_cnt = kv->page_cnt;
    kv->slot_free_cnt = kv->slot_cnt;
    kv->promised_cnt = 0;
    kv->fenced_cnt = 0;
    kv->done_iteration = 0;
    kv->released_cnt = 0;
    kv->close_cnt = 0;
    for (uint32_t i = 0; i < kv->page_cnt; i++) {
        kv->free[i] = kv->page_cnt - 1u - i;
        kv->owner[i] = TDM_KV_NONE;
    }
    for (uint32_t i = 0; i < kv->slot_cnt; i++) {
        kv->slot_free[i] = kv->slot_cnt - 1u - i;
        kv->slot[i] = (tdm_kv_slot_t){.state = TDM_KV_SLOT_FREE};
    }
}

int tdm_kv_can_open(const tdm_kv_t *kv, uint32_t page_cnt) {
    return kv->slot_free_cnt > 0 && page_cnt <= kv->free_cnt - kv->promised_cnt;
}

uint32_t tdm_kv_open(tdm_kv_t *kv, uint32_t page_cnt) {
    TDM_CHECK(tdm_kv_can_open(kv, page_cnt) && page_cnt <= kv->table_max);
    uint32_t slot = kv->slot_free[--kv->slot_free_cnt];
    tdm_kv_slot_t *t = &kv->slot[slot];
    TDM_CHECK(t->state == TDM_KV_SLOT_FREE && t->owned_cnt == 0);
    t->state = TDM_KV_SLOT_HELD;
    t->promised_cnt = page_cnt;
    t->granted_cnt = 0;
    t->is_open = 0;
    t->last_iteration = 0;
    kv->promised_cnt += page_cnt;
    return slot;
}

void tdm_kv_cover(tdm_kv_t *kv, uint32_t slot, uint32_t tok) {
    tdm_kv_slot_t *t = &kv->slot[slot];
    uint32_t *table = table_of(kv, slot);
    TDM_CHECK(t->state == TDM_KV_SLOT_HELD);
    while (t->owned_cnt < tdm_kv_pages(tok)) {
        TDM_CHECK(t->promised_cnt > 0 && kv->free_cnt > 0);
        uint32_t page = kv->free[--kv->free_cnt];
        TDM_CHECK(kv->owner[page] == TDM_KV_NONE);
        kv->owner[page] = slot;
        table[t->owned_cnt++] = page;
        t->tail = page;
        t->promised_cnt--;
        kv->promised_cnt--;
    }
}

/* slot_release gives the pages and the slot back. */
static void slot_release(tdm_kv_t *kv, uint32_t slot) {
    tdm_kv_slot_t *t = &kv->slot[slot];
    const uint32_t *table = table_of(kv, slot);
    for (uint32_t i = 0; i < t->owned_cnt; i++) {
        TDM_CHECK(kv->owner[table[i]] == slot);
        kv->owner[table[i]] = TDM_KV_NONE;
        kv->free[kv->free_cnt++] = table[i];
    }
    TDM_CHECK(kv->free_cnt <= kv->page_cnt);
    kv->released_cnt += t->owned_cnt;
    t->owned_cnt = 0;
    t->granted_cnt = 0;
    t->state = TDM_KV_SLOT_FREE;
    kv->slot_free[kv->slot_free_cnt++] = slot;
}

void tdm_kv_retire(tdm_kv_t *kv, uint32_t slot) {
    tdm_kv_slot_t *t = &kv->slot[slot];
    TDM_CHECK(t->state == TDM_KV_SLOT_HELD);
    kv->promised_cnt -= t->promised_cnt;
    kv->released_cnt += t->promised_cnt;
    t->promised_cnt = 0;
    if (t->is_open) {
        TDM_CHECK(!t->must_close);
        t->must_close = 1;
        kv->close_cnt++;
    }
    t->is_open = 0;
    if (t->last_iteration > kv->done_iteration) {
        t->state = TDM_KV_SLOT_FENCED;
        kv->fenced_cnt += t->owned_cnt;
        return;
    }
    slot_release(kv, slot);
}

static void fences_fall(tdm_kv_t *kv) {
    for (uint32_t i = 0; i < kv->slot_cnt; i++) {
        tdm_kv_slot_t *t = &kv->slot[i];
        if (t->state != TDM_KV_SLOT_FENCED || t->last_iteration > kv->done_iteration) continue;
        kv->fenced_cnt -= t->owned_cnt;
        slot_release(kv, i);
    }
}

void tdm_kv_done(tdm_kv_t *kv, uint64_t iteration) {
    TDM_CHECK(iteration > kv->done_iteration);
    kv->done_iteration = iteration;
    fences_fall(kv);
}

void tdm_kv_epoch_end(tdm_kv_t *kv, uint64_t iteration) {
    TDM_CHECK(iteration >= kv->done_iteration);
    kv->done_iteration = iteration;
    fences_fall(kv);
    kv->close_cnt = 0;
    for (uint32_t i = 0; i < kv->slot_cnt; i++) {
        kv->slot[i].is_open = 0;
        kv->slot[i].must_close = 0;
        kv->slot[i].granted_cnt = 0;
    }
}

uint32_t tdm_kv_page(const tdm_kv_t *kv, uint32_t slot, uint32_t pos) {
    TDM_CHECK(pos / TDM_KV_PAGE_TOKENS < kv->slot[slot].owned_cnt);
    if (pos / TDM_KV_PAGE_TOKENS + 1u == kv->slot[slot].owned_cnt) return kv->slot[slot].tail;
    return table_of(kv, slot)[pos / TDM_KV_PAGE_TOKENS];
}

void tdm_kv_remember(tdm_kv_t *kv, uint32_t slot, uint32_t pos, int32_t token) {
    size_t page = tdm_kv_page(kv, slot, pos);
    kv->mirror[page * TDM_KV_PAGE_TOKENS + pos % TDM_KV_PAGE_TOKENS] = token;
}

int32_t tdm_kv_recall(const tdm_kv_t *kv, uint32_t slot, uint32_t pos) {
    size_t page = tdm_kv_page(kv, slot, pos);
    return kv->mirror[page * TDM_KV_PAGE_TOKENS + pos % TDM_KV_PAGE_TOKENS];
}

/* slot_check walks one table; adds its pages and promise to the sums. */
static const char *slot_check(const tdm_kv_t *kv, uint32_t slot, uint32_t *owned, uint32_t *fenced,
                              uint32_t *promised) {
    const tdm_kv_slot_t *t = &kv->slot[slot];
    if (t->owned_cnt > kv->table_max) return "a page table is over its length";
    if (t->granted_cnt > t->owned_cnt) return "more pages granted than owned";
    if (t->state == TDM_KV_SLOT_FREE && t->owned_cnt != 0) return "a free slot owns pages";
    if (t->state != TDM_KV_SLOT_HELD && t->promised_cnt != 0) return "a promise outlived its slot";
    if (t->state == TDM_KV_SLOT_FENCED && t->last_iteration <= kv->done_iteration)
        return "a fence outlived its iteration";
    for (uint32_t i = 0; i < t->owned_cnt; i++) {
        uint32_t page = table_of(kv, slot)[i];
        if (page >= kv->page_cnt) return "a page number is outside the pool";
        if (kv->owner[page] != slot) return "a page is in a table that is not its owner's";
    }
    if (t->owned_cnt > 0 && table_of(kv, slot)[t->owned_cnt - 1u] != t->tail)
        return "a slot's last page is not the last of its table";
    *owned += t->owned_cnt;
    *promised += t->promised_cnt;
    if (t->state == TDM_KV_SLOT_FENCED) *fenced += t->owned_cnt;
    return NULL;
}

const char *tdm_kv_check(const tdm_kv_t *kv) {
    uint32_t owned = 0, fenced = 0, promised = 0, has_owner = 0, slots = 0, closes = 0;
    for (uint32_t i = 0; i < kv->slot_cnt; i++) {
        const char *wrong = slot_check(kv, i, &owned, &fenced, &promised);
        if (wrong) return wrong;
        slots += kv->slot[i].state == TDM_KV_SLOT_FREE;
        closes += kv->slot[i].must_close;
    }
    for (uint32_t i = 0; i < kv->page_cnt; i++) has_owner += kv->owner[i] != TDM_KV_NONE;
    for (uint32_t i = 0; i < kv->free_cnt; i++)
        if (kv->owner[kv->free[i]] != TDM_KV_NONE) return "a free page has an owner";
    if (has_owner != owned) return "a page has an owner whose table lacks it";
    if (owned + kv->free_cnt != kv->page_cnt) return "pages are not conserved";
    if (fenced != kv->fenced_cnt) return "the fenced count is wrong";
    if (promised != kv->promised_cnt) return "the promised count is wrong";
    if (kv->promised_cnt > kv->free_cnt) return "more pages promised than free";
    if (closes != kv->close_cnt) return "the slots to close are miscounted";
    if (slots != kv->slot_free_cnt) return "slots are not conserved";
    return NULL;
}
