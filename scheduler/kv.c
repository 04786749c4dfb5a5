/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/kv.h"

#include "appliance/base/check.h"
#include "appliance/base/rng.h"

static uint32_t *table_of(const tdm_kv_t *kv, uint32_t slot) {
    return kv->table + (size_t)slot * kv->table_max;
}

void tdm_kv_init(tdm_kv_t *kv, const uint64_t key[2]) {
    kv->free_cnt = kv->page_cnt;
    kv->slot_free_cnt = kv->slot_cnt;
    kv->promised_cnt = 0;
    kv->fenced_cnt = 0;
    kv->cached_cnt = 0;
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
        kv->chain[i] = (tdm_kv_chain_t){0};
    }
    tdm_prefix_init(&kv->prefix, key);
}

int tdm_kv_can_open(const tdm_kv_t *kv, uint32_t page_cnt) {
    return kv->slot_free_cnt > 0 && page_cnt <= tdm_kv_spare(kv);
}

uint32_t tdm_kv_open(tdm_kv_t *kv, uint32_t page_cnt) {
    TDM_CHECK(tdm_kv_can_open(kv, page_cnt) && page_cnt <= kv->table_max);
    uint32_t slot = kv->slot_free[--kv->slot_free_cnt];
    tdm_kv_slot_t *t = &kv->slot[slot];
    TDM_CHECK(t->state == TDM_KV_SLOT_FREE && t->owned_cnt == 0);
    t->state = TDM_KV_SLOT_HELD;
    t->promised_cnt = page_cnt;
    t->granted_cnt = 0;
    t->filled_cnt = 0;
    t->is_open = 0;
    t->is_foreign = 0;
    t->last_iteration = 0;
    kv->chain[slot] = (tdm_kv_chain_t){0};
    kv->promised_cnt += page_cnt;
    return slot;
}

static void page_free(tdm_kv_t *kv, uint32_t page) {
    kv->owner[page] = TDM_KV_NONE;
    kv->free[kv->free_cnt++] = page;
}

/* page_take gives a free page; where there is none, the idle one whose use
   is longest ago. */
static uint32_t page_take(tdm_kv_t *kv) {
    if (kv->free_cnt == 0) {
        page_free(kv, tdm_prefix_evict(&kv->prefix));
        kv->cached_cnt--;
    }
    return kv->free[--kv->free_cnt];
}

int tdm_kv_match(tdm_kv_t *kv, uint32_t slot, uint32_t tenant,
                 const int32_t token[TDM_KV_PAGE_TOKENS]) {
    tdm_kv_slot_t *t = &kv->slot[slot];
    tdm_kv_chain_t *c = &kv->chain[slot];
    TDM_CHECK(t->state == TDM_KV_SLOT_HELD && t->owned_cnt == t->filled_cnt);
    if (kv->prefix.bucket_cnt == 0 || t->promised_cnt == 0) return 0;
    uint32_t page = tdm_prefix_find(&kv->prefix, tenant, c->serial, token);
    if (page == TDM_PREFIX_NONE) return 0;
    tdm_prefix_hold(&kv->prefix, page);
    table_of(kv, slot)[t->owned_cnt++] = page;
    t->shared_cnt++;
    t->filled_cnt++;
    t->promised_cnt--;
    kv->promised_cnt--;
    c->serial = kv->prefix.page[page].serial;
    c->cnt++;
    return 1;
}

void tdm_kv_list(tdm_kv_t *kv, uint32_t slot, uint32_t tenant,
                 const int32_t token[TDM_KV_PAGE_TOKENS]) {
    tdm_kv_slot_t *t = &kv->slot[slot];
    tdm_kv_chain_t *c = &kv->chain[slot];
    TDM_CHECK(t->state == TDM_KV_SLOT_HELD && c->cnt < t->owned_cnt && !t->is_foreign);
    uint32_t like = tdm_prefix_find(&kv->prefix, tenant, c->serial, token);
    if (like == TDM_PREFIX_NONE) {
        like = table_of(kv, slot)[c->cnt];
        TDM_CHECK(kv->owner[like] == slot);
        tdm_prefix_insert(&kv->prefix, like, tenant, c->serial, token);
        kv->owner[like] = TDM_KV_SHARED;
        kv->cached_cnt++;
        t->shared_cnt++;
    }
    c->serial = kv->prefix.page[like].serial;
    c->cnt++;
}

void tdm_kv_doubt(tdm_kv_t *kv, uint32_t slot) {
    for (uint32_t i = 0; i < kv->slot[slot].owned_cnt; i++) {
        uint32_t page = table_of(kv, slot)[i];
        if (kv->owner[page] != TDM_KV_SHARED) continue;
        int is_free = tdm_prefix_forget(&kv->prefix, page);
        TDM_CHECK(!is_free);
    }
}

void tdm_kv_cover(tdm_kv_t *kv, uint32_t slot, uint32_t tok) {
    tdm_kv_slot_t *t = &kv->slot[slot];
    uint32_t *table = table_of(kv, slot);
    TDM_CHECK(t->state == TDM_KV_SLOT_HELD);
    while (t->owned_cnt < tdm_kv_pages(tok)) {
        TDM_CHECK(t->promised_cnt > 0);
        uint32_t page = page_take(kv);
        TDM_CHECK(kv->owner[page] == TDM_KV_NONE);
        kv->owner[page] = slot;
        table[t->owned_cnt++] = page;
        t->promised_cnt--;
        kv->promised_cnt--;
    }
}

void tdm_kv_hold(tdm_kv_t *kv, uint32_t slot, uint32_t page_cnt) {
    tdm_kv_slot_t *t = &kv->slot[slot];
    TDM_CHECK(t->state == TDM_KV_SLOT_HELD && t->owned_cnt == 0);
    tdm_kv_cover(kv, slot, page_cnt * TDM_KV_PAGE_TOKENS);
    t->filled_cnt = page_cnt;
    t->is_foreign = 1;
}

/* shared_release: one table less holds the page. */
static void shared_release(tdm_kv_t *kv, uint32_t page) {
    if (tdm_prefix_drop(&kv->prefix, page)) {
        kv->cached_cnt--;
        page_free(kv, page);
    }
    kv->released_cnt += kv->prefix.page[page].ref == 0;
}

/* slot_release gives the pages and the slot back, the end of its table
   first: among idle pages a prefix is younger than what follows it. */
static void slot_release(tdm_kv_t *kv, uint32_t slot) {
    tdm_kv_slot_t *t = &kv->slot[slot];
    const uint32_t *table = table_of(kv, slot);
    for (uint32_t i = t->owned_cnt; i-- > 0;) {
        if (kv->owner[table[i]] == TDM_KV_SHARED) {
            shared_release(kv, table[i]);
            continue;
        }
        TDM_CHECK(kv->owner[table[i]] == slot);
        page_free(kv, table[i]);
        kv->released_cnt++;
    }
    TDM_CHECK(kv->free_cnt <= kv->page_cnt);
    t->owned_cnt = 0;
    t->shared_cnt = 0;
    t->granted_cnt = 0;
    t->filled_cnt = 0;
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
        kv->fenced_cnt += t->owned_cnt - t->shared_cnt;
        return;
    }
    slot_release(kv, slot);
}

static void fences_fall(tdm_kv_t *kv) {
    for (uint32_t i = 0; i < kv->slot_cnt; i++) {
        tdm_kv_slot_t *t = &kv->slot[i];
        if (t->state != TDM_KV_SLOT_FENCED || t->last_iteration > kv->done_iteration) continue;
        kv->fenced_cnt -= t->owned_cnt - t->shared_cnt;
        slot_release(kv, i);
    }
}

void tdm_kv_done(tdm_kv_t *kv, uint64_t iteration) {
    TDM_CHECK(iteration > kv->done_iteration);
    kv->done_iteration = iteration;
    fences_fall(kv);
}

/* flush forgets all that is cached. */
static void flush(tdm_kv_t *kv) {
    if (kv->prefix.bucket_cnt == 0) return;
    for (uint32_t i = 0; i < kv->page_cnt; i++) {
        if (!tdm_prefix_forget(&kv->prefix, i)) continue;
        kv->cached_cnt--;
        page_free(kv, i);
    }
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
    flush(kv);
}

uint32_t tdm_kv_page(const tdm_kv_t *kv, uint32_t slot, uint32_t idx) {
    TDM_CHECK(idx < kv->slot[slot].owned_cnt);
    return table_of(kv, slot)[idx];
}

/* Sums over all slots. */
typedef struct sums {
    uint32_t own, fenced, promised, free_cnt, close_cnt;
    uint64_t shared; /* of mixed page numbers, one for each table that holds one */
} sums_t;

/* slot_check looks at what a slot says of itself, and adds it to the sums. */
static const char *slot_check(const tdm_kv_t *kv, uint32_t slot, sums_t *sum) {
    const tdm_kv_slot_t *t = &kv->slot[slot];
    if (t->owned_cnt > kv->table_max) return "a page table is over its length";
    if (t->granted_cnt > t->owned_cnt) return "more pages granted than owned";
    if (t->shared_cnt > t->owned_cnt) return "a slot's shared pages are miscounted";
    if (t->state == TDM_KV_SLOT_FREE && t->owned_cnt != 0) return "a free slot owns pages";
    if (t->state != TDM_KV_SLOT_HELD && t->promised_cnt != 0) return "a promise outlived its slot";
    if (t->state == TDM_KV_SLOT_FENCED && t->last_iteration <= kv->done_iteration)
        return "a fence outlived its iteration";
    sum->own += t->owned_cnt - t->shared_cnt;
    sum->promised += t->promised_cnt;
    if (t->state == TDM_KV_SLOT_FENCED) sum->fenced += t->owned_cnt - t->shared_cnt;
    sum->free_cnt += t->state == TDM_KV_SLOT_FREE;
    sum->close_cnt += t->must_close;
    return NULL;
}

/* entry_check looks at one entry of a slot's table. */
static const char *entry_check(const tdm_kv_t *kv, uint32_t slot, uint32_t entry) {
    uint32_t page = table_of(kv, slot)[entry];
    if (page >= kv->page_cnt) return "a page number is outside the pool";
    if (kv->owner[page] != TDM_KV_SHARED && kv->owner[page] != slot)
        return "a page is in a table that is not its owner's";
    return NULL;
}

/* table_check walks one table and adds it to the sums. */
static const char *table_check(const tdm_kv_t *kv, uint32_t slot, sums_t *sum) {
    const tdm_kv_slot_t *t = &kv->slot[slot];
    const char *wrong = slot_check(kv, slot, sum);
    uint32_t shared = 0;
    for (uint32_t i = 0; !wrong && i < t->owned_cnt; i++) {
        if ((wrong = entry_check(kv, slot, i))) return wrong;
        uint32_t page = table_of(kv, slot)[i];
        if (kv->owner[page] != TDM_KV_SHARED) continue;
        shared++;
        sum->shared += tdm_rng_mix(page + 1u);
    }
    if (!wrong && shared != t->shared_cnt) return "a slot's shared pages are miscounted";
    return wrong;
}

/* page_check looks at what is said of one page. */
static const char *page_check(const tdm_kv_t *kv, uint32_t page) {
    uint32_t owner = kv->owner[page], is_shared = owner == TDM_KV_SHARED;
    if (owner != TDM_KV_NONE && !is_shared &&
        (owner >= kv->slot_cnt || kv->slot[owner].state == TDM_KV_SLOT_FREE))
        return "a page is owned by nobody";
    if (page < kv->free_cnt &&
        (kv->free[page] >= kv->page_cnt || kv->owner[kv->free[page]] != TDM_KV_NONE))
        return "a free page has an owner";
    if (kv->prefix.bucket_cnt == 0) return NULL;
    const tdm_prefix_page_t *p = &kv->prefix.page[page];
    return is_shared == (uint32_t)(p->ref > 0 || p->serial != 0) ? NULL
                                                                 : "a page is shared by nobody";
}

/* pages_check holds every page against the sums: a shared one has as many
   tables as it counts. */
static const char *pages_check(const tdm_kv_t *kv, const sums_t *sum) {
    uint32_t own = 0, cached = 0;
    uint64_t shared = 0;
    const char *wrong = NULL;
    for (uint32_t i = 0; i < kv->page_cnt; i++) {
        uint32_t is_shared = kv->owner[i] == TDM_KV_SHARED;
        if ((wrong = page_check(kv, i))) return wrong;
        own += kv->owner[i] != TDM_KV_NONE && !is_shared;
        cached += is_shared;
        if (kv->prefix.bucket_cnt) shared += kv->prefix.page[i].ref * tdm_rng_mix(i + 1u);
    }
    if (own != sum->own) return "a page has an owner whose table lacks it";
    if (shared != sum->shared) return "a shared page is not counted by as many as hold it";
    if (cached != kv->cached_cnt) return "the cached pages are miscounted";
    return NULL;
}

/* sums_check holds the counts against the sums of the slots. */
static const char *sums_check(const tdm_kv_t *kv, const sums_t *sum) {
    if (sum->own + kv->cached_cnt + kv->free_cnt != kv->page_cnt) return "pages are not conserved";
    if (sum->fenced != kv->fenced_cnt) return "the fenced count is wrong";
    if (sum->promised != kv->promised_cnt) return "the promised count is wrong";
    if (kv->promised_cnt > kv->free_cnt + kv->prefix.idle_cnt)
        return "more pages promised than free";
    if (sum->close_cnt != kv->close_cnt) return "the slots to close are miscounted";
    if (sum->free_cnt != kv->slot_free_cnt) return "slots are not conserved";
    return NULL;
}

const char *tdm_kv_check_some(const tdm_kv_t *kv, tdm_kv_cursor_t *at, uint32_t cnt) {
    sums_t sum = {0};
    const char *wrong = NULL;
    for (uint32_t i = 0; !wrong && i < kv->slot_cnt; i++) wrong = slot_check(kv, i, &sum);
    if (!wrong) wrong = sums_check(kv, &sum);
    for (uint32_t i = 0; !wrong && i < cnt; i++) {
        wrong = page_check(kv, at->page);
        if (!wrong && kv->prefix.bucket_cnt) wrong = tdm_prefix_page_check(&kv->prefix, at->page);
        at->page = at->page + 1u < kv->page_cnt ? at->page + 1u : 0u;
    }
    for (uint32_t i = 0; !wrong && i < cnt; i++) {
        if (at->entry < kv->slot[at->slot].owned_cnt) {
            wrong = entry_check(kv, at->slot, at->entry++);
        } else {
            at->entry = 0;
            at->slot = at->slot + 1u < kv->slot_cnt ? at->slot + 1u : 0u;
        }
    }
    return wrong;
}

const char *tdm_kv_check(const tdm_kv_t *kv) {
    sums_t sum = {0};
    const char *wrong = tdm_prefix_check(&kv->prefix);
    for (uint32_t i = 0; !wrong && i < kv->slot_cnt; i++) wrong = table_check(kv, i, &sum);
    if (!wrong) wrong = pages_check(kv, &sum);
    return wrong ? wrong : sums_check(kv, &sum);
}
