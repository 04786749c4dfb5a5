/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/prefix.h"

#include "appliance/base/check.h"
#include "appliance/base/sip.h"

#include <string.h>

#define ROUNDS     1u
#define END_ROUNDS 3u
#define WORDS      (TDM_KV_PAGE_TOKENS / 2)
#define BUCKET_MAX (1u << 26)

uint32_t tdm_prefix_buckets(uint32_t page_cnt) {
    uint32_t cnt = 1;
    while (cnt < page_cnt && cnt < BUCKET_MAX) cnt *= 2u;
    return cnt;
}

void tdm_prefix_init(tdm_prefix_t *x, const uint64_t key[2]) {
    x->serial = TDM_PREFIX_ROOT;
    x->listed_cnt = x->idle_cnt = 0;
    x->oldest = x->newest = TDM_PREFIX_NONE;
    x->evicted_cnt = x->flushed_cnt = 0;
    for (uint32_t i = 0; i < x->bucket_cnt; i++) x->bucket[i] = TDM_PREFIX_NONE;
    if (x->bucket_cnt > 0) memset(x->page, 0, x->page_cnt * sizeof *x->page);
    for (uint64_t i = 0; i < TDM_TENANT_MAX; i++)
        for (uint64_t k = 0; k < 2; k++) {
            tdm_sip_t s = tdm_sip_begin(key);
            x->key[i][k] = tdm_sip_end(&s, 2u * i + k, 2, 4);
        }
}

static uint64_t hash_of(const tdm_prefix_t *x, uint32_t tenant, uint64_t parent,
                        const int32_t *token) {
    tdm_sip_t s = tdm_sip_begin(x->key[tenant]);
    tdm_sip_word(&s, parent, ROUNDS);
    for (uint32_t i = 0; i + 1 < WORDS; i++) {
        uint64_t word;
        memcpy(&word, token + 2u * i, sizeof word);
        tdm_sip_word(&s, word, ROUNDS);
    }
    uint64_t last;
    memcpy(&last, token + 2u * (WORDS - 1u), sizeof last);
    return tdm_sip_end(&s, last, ROUNDS, END_ROUNDS);
}

static int32_t *token_of(const tdm_prefix_t *x, uint32_t page) {
    return x->token + (size_t)page * TDM_KV_PAGE_TOKENS;
}

static uint32_t *bucket_of(const tdm_prefix_t *x, uint64_t hash) {
    return &x->bucket[hash & (x->bucket_cnt - 1u)];
}

uint32_t tdm_prefix_find(const tdm_prefix_t *x, uint32_t tenant, uint64_t parent,
                         const int32_t token[TDM_KV_PAGE_TOKENS]) {
    uint64_t hash = hash_of(x, tenant, parent, token);
    for (uint32_t at = *bucket_of(x, hash); at != TDM_PREFIX_NONE; at = x->page[at].next) {
        const tdm_prefix_page_t *p = &x->page[at];
        if (p->hash != hash || p->tenant != tenant || p->parent != parent) continue;
        if (memcmp(token_of(x, at), token, TDM_KV_PAGE_TOKENS * sizeof *token) == 0) return at;
    }
    return TDM_PREFIX_NONE;
}

void tdm_prefix_insert(tdm_prefix_t *x, uint32_t page, uint32_t tenant, uint64_t parent,
                       const int32_t token[TDM_KV_PAGE_TOKENS]) {
    tdm_prefix_page_t *p = &x->page[page];
    TDM_CHECK(p->serial == 0 && p->ref == 0 && !p->is_idle);
    uint64_t hash = hash_of(x, tenant, parent, token);
    uint32_t *bucket = bucket_of(x, hash);
    *p = (tdm_prefix_page_t){.serial = ++x->serial,
                             .parent = parent,
                             .hash = hash,
                             .ref = 1,
                             .tenant = tenant,
                             .next = *bucket,
                             .older = TDM_PREFIX_NONE,
                             .newer = TDM_PREFIX_NONE};
    *bucket = page;
    memcpy(token_of(x, page), token, TDM_KV_PAGE_TOKENS * sizeof *token);
    x->listed_cnt++;
}

static void idle_add(tdm_prefix_t *x, uint32_t page) {
    tdm_prefix_page_t *p = &x->page[page];
    p->is_idle = 1;
    p->older = x->newest;
    p->newer = TDM_PREFIX_NONE;
    if (x->newest == TDM_PREFIX_NONE)
        x->oldest = page;
    else
        x->page[x->newest].newer = page;
    x->newest = page;
    x->idle_cnt++;
}

static void idle_remove(tdm_prefix_t *x, uint32_t page) {
    tdm_prefix_page_t *p = &x->page[page];
    if (p->older == TDM_PREFIX_NONE)
        x->oldest = p->newer;
    else
        x->page[p->older].newer = p->newer;
    if (p->newer == TDM_PREFIX_NONE)
        x->newest = p->older;
    else
        x->page[p->newer].older = p->older;
    p->is_idle = 0;
    x->idle_cnt--;
}

void tdm_prefix_hold(tdm_prefix_t *x, uint32_t page) {
    tdm_prefix_page_t *p = &x->page[page];
    TDM_CHECK(p->serial != 0 && p->is_idle == (p->ref == 0));
    if (p->is_idle) idle_remove(x, page);
    p->ref++;
}

int tdm_prefix_drop(tdm_prefix_t *x, uint32_t page) {
    tdm_prefix_page_t *p = &x->page[page];
    TDM_CHECK(p->ref > 0);
    if (--p->ref > 0) return 0;
    if (p->serial == 0) return 1;
    idle_add(x, page);
    return 0;
}

static void unlist(tdm_prefix_t *x, uint32_t page) {
    tdm_prefix_page_t *p = &x->page[page];
    uint32_t *link = bucket_of(x, p->hash);
    while (*link != page) {
        TDM_CHECK(*link != TDM_PREFIX_NONE);
        link = &x->page[*link].next;
    }
    *link = p->next;
    if (p->is_idle) idle_remove(x, page);
    p->serial = 0;
    x->listed_cnt--;
}

int tdm_prefix_forget(tdm_prefix_t *x, uint32_t page) {
    if (x->page[page].serial == 0) return 0;
    unlist(x, page);
    x->flushed_cnt++;
    return x->page[page].ref == 0;
}

uint32_t tdm_prefix_evict(tdm_prefix_t *x) {
    uint32_t page = x->oldest;
    TDM_CHECK(page != TDM_PREFIX_NONE);
    unlist(x, page);
    x->evicted_cnt++;
    return page;
}

/* is_linked: both neighbours among the idle know the page. */
static int is_linked(const tdm_prefix_t *x, uint32_t page) {
    const tdm_prefix_page_t *p = &x->page[page];
    if (p->older != TDM_PREFIX_NONE && p->older >= x->page_cnt) return 0;
    if (p->newer != TDM_PREFIX_NONE && p->newer >= x->page_cnt) return 0;
    uint32_t from = p->older == TDM_PREFIX_NONE ? x->oldest : x->page[p->older].newer;
    uint32_t to = p->newer == TDM_PREFIX_NONE ? x->newest : x->page[p->newer].older;
    return from == page && to == page;
}

const char *tdm_prefix_page_check(const tdm_prefix_t *x, uint32_t page) {
    const tdm_prefix_page_t *p = &x->page[page];
    if (p->serial > x->serial) return "a serial was given twice";
    if (p->is_idle != (uint32_t)(p->ref == 0 && p->serial != 0))
        return "a page in no table is not idle";
    if (p->is_idle && !is_linked(x, page)) return "the idle pages are no list";
    if (p->serial == 0) return NULL;
    uint32_t at = *bucket_of(x, p->hash);
    for (uint32_t cnt = 0; at != page && at < x->page_cnt && cnt < x->listed_cnt; cnt++)
        at = x->page[at].next;
    return at == page ? NULL : "a page is in a wrong bucket";
}

/* idle_check walks the idle from the oldest. */
static const char *idle_check(const tdm_prefix_t *x) {
    uint32_t cnt = 0, before = TDM_PREFIX_NONE;
    for (uint32_t at = x->oldest; at != TDM_PREFIX_NONE; at = x->page[at].newer) {
        const tdm_prefix_page_t *p = &x->page[at];
        if (at >= x->page_cnt || cnt++ >= x->page_cnt || p->older != before)
            return "the idle pages are no list";
        if (!p->is_idle || p->ref != 0 || p->serial == 0) return "an idle page is in use";
        before = at;
    }
    if (x->newest != before || x->idle_cnt != cnt) return "the idle pages are miscounted";
    return NULL;
}

const char *tdm_prefix_check(const tdm_prefix_t *x) {
    uint32_t listed = 0, linked = 0, idle = 0;
    if (x->bucket_cnt == 0) return x->listed_cnt || x->idle_cnt ? "pages are cached nowhere" : NULL;
    for (uint32_t i = 0; i < x->page_cnt; i++) {
        listed += x->page[i].serial != 0;
        idle += x->page[i].is_idle;
        if (x->page[i].serial > x->serial) return "a serial was given twice";
        if (x->page[i].is_idle != (uint32_t)(x->page[i].ref == 0 && x->page[i].serial != 0))
            return "a page in no table is not idle";
    }
    for (uint32_t i = 0; i < x->bucket_cnt; i++)
        for (uint32_t at = x->bucket[i]; at != TDM_PREFIX_NONE; at = x->page[at].next) {
            if (at >= x->page_cnt || linked++ >= x->page_cnt) return "a bucket has no end";
            if (x->page[at].serial == 0 || bucket_of(x, x->page[at].hash) != &x->bucket[i])
                return "a page is in a wrong bucket";
        }
    if (listed != x->listed_cnt || linked != listed) return "the cached pages are miscounted";
    if (idle != x->idle_cnt) return "the idle pages are miscounted";
    return idle_check(x);
}
