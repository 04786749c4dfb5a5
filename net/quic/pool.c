/* SPDX-License-Identifier: Apache-2.0 */
#include "net/quic/pool.h"

#include "appliance/base/check.h"
#include "appliance/base/size.h"

#include <string.h>

/* Sizes and positions are counted in units of 16 bytes, so that 31 bits
   reach 32 GiB.  Position 0 is never a block: it stands for "none". */
#define UNIT       16u
#define CLASS_CNT  256u
#define WORD_CNT   (CLASS_CNT / 64u)
#define EXACT_CNT  8u /* sizes below it have a class of their own */
#define BELOW_MASK 0x7fffffffu

typedef struct block {
    uint32_t size;        /* units, this header included */
    uint32_t below : 31;  /* units of the block before in memory; 0: the first */
    uint32_t is_used : 1; /* by an account */
    uint32_t next;        /* free: of the class; used: of the account */
    uint32_t prev;
} block_t;

struct tdm_pool {
    block_t *unit; /* the region as units; unit[1] is the first block */
    uint32_t unit_cnt;
    uint32_t reserved;
    tdm_pool_stat_t stat;
    uint64_t word[WORD_CNT]; /* bit per class with a free block */
    uint32_t head[CLASS_CNT];
};

static uint32_t log2_floor(uint32_t n) {
    return 31u - (uint32_t)__builtin_clz(n);
}

/* class_of is where a free block of n units is kept. */
static uint32_t class_of(uint32_t n) {
    if (n < EXACT_CNT) return n;
    uint32_t lg = log2_floor(n);
    return (lg - 2u) * 8u + ((n >> (lg - 3u)) & 7u);
}

/* class_for is the first class whose every block has n units or more. */
static uint32_t class_for(uint32_t n) {
    if (n < EXACT_CNT) return n;
    return class_of(n + (1u << (log2_floor(n) - 3u)) - 1u);
}

static uint32_t pos_of(const tdm_pool_t *p, const block_t *b) {
    return (uint32_t)(b - p->unit);
}

static block_t *above(tdm_pool_t *p, block_t *b) {
    return &p->unit[pos_of(p, b) + b->size];
}

static void list_add(tdm_pool_t *p, block_t *b) {
    uint32_t c = class_of(b->size);
    b->prev = 0;
    b->next = p->head[c];
    if (b->next != 0) p->unit[b->next].prev = pos_of(p, b);
    p->head[c] = pos_of(p, b);
    p->word[c / 64u] |= UINT64_C(1) << (c % 64u);
}

static void list_remove(tdm_pool_t *p, block_t *b) {
    uint32_t c = class_of(b->size);
    if (b->next != 0) p->unit[b->next].prev = b->prev;
    if (b->prev != 0) {
        p->unit[b->prev].next = b->next;
        return;
    }
    p->head[c] = b->next;
    if (b->next == 0) p->word[c / 64u] &= ~(UINT64_C(1) << (c % 64u));
}

static block_t *find(tdm_pool_t *p, uint32_t n) {
    /* The block freed last of n's own class often fits exactly. */
    uint32_t own = p->head[class_of(n)];
    if (own != 0 && p->unit[own].size >= n) return &p->unit[own];
    uint32_t c = class_for(n);
    if (c >= CLASS_CNT) return NULL;
    uint64_t bits = p->word[c / 64u] & (~UINT64_C(0) << (c % 64u));
    for (uint32_t w = c / 64u;;) {
        if (bits != 0) return &p->unit[p->head[w * 64u + (uint32_t)__builtin_ctzll(bits)]];
        if (++w == WORD_CNT) return NULL;
        bits = p->word[w];
    }
}

/* split keeps n units in b and frees the rest of it. */
static void split(tdm_pool_t *p, block_t *b, uint32_t n) {
    if (b->size < n + 2u) return;
    block_t *rest = b + n;
    rest->size = b->size - n;
    rest->below = n & BELOW_MASK;
    rest->is_used = 0;
    b->size = n;
    above(p, rest)->below = rest->size & BELOW_MASK;
    list_add(p, rest);
}

uint64_t tdm_pool_footprint(uint64_t payload_sz) {
    uint64_t sz;
    if (!tdm_size_add(payload_sz, sizeof(tdm_pool_t) + 4u * UNIT, &sz)) return 0;
    return tdm_size_align(sz, UNIT);
}

tdm_status_t tdm_pool_init(void *mem, uint64_t mem_sz, tdm_pool_t **out) {
    uint64_t head_sz = tdm_size_align(sizeof(tdm_pool_t), UNIT);
    if (mem == NULL || (uintptr_t)mem % UNIT != 0 || mem_sz < head_sz + 1024u) {
        return TDM_ERR_INVAL;
    }
    uint64_t unit_cnt = (mem_sz - head_sz) / UNIT;
    if (unit_cnt > BELOW_MASK) return TDM_ERR_LIMIT;

    tdm_pool_t *p = mem;
    memset(p, 0, sizeof *p);
    p->unit = (block_t *)(void *)((uint8_t *)mem + head_sz);
    p->unit_cnt = (uint32_t)unit_cnt;
    block_t *first = &p->unit[1];
    block_t *end = &p->unit[p->unit_cnt - 1u];
    first->size = p->unit_cnt - 2u;
    first->below = 0;
    first->is_used = 0;
    end->size = 0;
    end->below = first->size & BELOW_MASK;
    end->is_used = 1;
    end->next = 0;
    end->prev = 0;
    list_add(p, first);
    p->stat.sz = (uint64_t)first->size * UNIT;
    *out = p;
    return TDM_OK;
}

void tdm_pool_account_init(tdm_pool_account_t *a, tdm_pool_t *pool, uint64_t quota_sz) {
    *a = (tdm_pool_account_t){.pool = pool, .quota_sz = quota_sz};
}

static void own_add(tdm_pool_account_t *a, block_t *b) {
    tdm_pool_t *p = a->pool;
    b->prev = 0;
    b->next = a->first;
    if (b->next != 0) p->unit[b->next].prev = pos_of(p, b);
    a->first = pos_of(p, b);
}

static void own_remove(tdm_pool_account_t *a, block_t *b) {
    tdm_pool_t *p = a->pool;
    if (b->next != 0) p->unit[b->next].prev = b->prev;
    if (b->prev != 0) {
        p->unit[b->prev].next = b->next;
    } else {
        TDM_CHECK(a->first == pos_of(p, b)); /* another account's block */
        a->first = b->next;
    }
}

void tdm_pool_account_close(tdm_pool_account_t *a) {
    while (a->first != 0) {
        a->pool->stat.left_cnt++;
        tdm_pool_free(a, &a->pool->unit[a->first] + 1);
    }
}

static void *refuse(tdm_pool_account_t *a) {
    a->fail_cnt++;
    a->pool->stat.fail_cnt++;
    return NULL;
}

void *tdm_pool_alloc(tdm_pool_account_t *a, uint64_t sz) {
    tdm_pool_t *p = a->pool;
    if (sz > p->stat.sz) return refuse(a);
    uint32_t n = (uint32_t)tdm_ceil_div(sz, UNIT) + 1u;
    uint64_t charge = (uint64_t)n * UNIT;
    if (a->used_sz + charge > a->quota_sz) return refuse(a);
    block_t *b = find(p, n);
    if (b == NULL) return refuse(a);

    list_remove(p, b);
    split(p, b, n);
    b->is_used = 1;
    own_add(a, b);
    charge = (uint64_t)b->size * UNIT;
    a->used_sz += charge;
    a->high_sz = TDM_MAX(a->high_sz, a->used_sz);
    p->stat.used_sz += charge;
    p->stat.high_sz = TDM_MAX(p->stat.high_sz, p->stat.used_sz);
    p->stat.block_cnt++;
    return b + 1;
}

void *tdm_pool_calloc(tdm_pool_account_t *a, uint64_t cnt, uint64_t sz) {
    uint64_t total;
    if (!tdm_size_mul(cnt, sz, &total)) return refuse(a);
    void *mem = tdm_pool_alloc(a, total);
    if (mem != NULL) memset(mem, 0, total);
    return mem;
}

void tdm_pool_free(tdm_pool_account_t *a, void *mem) {
    if (mem == NULL) return;
    tdm_pool_t *p = a->pool;
    block_t *b = (block_t *)mem - 1;
    TDM_CHECK(b > p->unit && b < p->unit + p->unit_cnt && b->is_used);
    uint64_t charge = (uint64_t)b->size * UNIT;
    TDM_CHECK(a->used_sz >= charge);
    own_remove(a, b);
    b->is_used = 0;
    a->used_sz -= charge;
    p->stat.used_sz -= charge;
    p->stat.block_cnt--;

    block_t *up = above(p, b);
    if (!up->is_used) {
        list_remove(p, up);
        b->size += up->size;
    }
    if (b->below != 0 && !(b - b->below)->is_used) {
        block_t *down = b - b->below;
        list_remove(p, down);
        down->size += b->size;
        b = down;
    }
    above(p, b)->below = b->size & BELOW_MASK;
    list_add(p, b);
}

void *tdm_pool_realloc(tdm_pool_account_t *a, void *mem, uint64_t sz) {
    if (mem == NULL) return tdm_pool_alloc(a, sz);
    block_t *b = (block_t *)mem - 1;
    uint64_t have = (uint64_t)(b->size - 1u) * UNIT;
    if (sz <= have) return mem;
    void *fresh = tdm_pool_alloc(a, sz);
    if (fresh == NULL) return NULL;
    memcpy(fresh, mem, have);
    tdm_pool_free(a, mem);
    return fresh;
}

void tdm_pool_stat(const tdm_pool_t *pool, tdm_pool_stat_t *out) {
    *out = pool->stat;
}

int tdm_pool_is_sound(const tdm_pool_t *p) {
    uint64_t used = 0;
    uint64_t free_cnt = 0;
    uint64_t listed = 0;
    uint32_t below = 0;
    const block_t *end = &p->unit[p->unit_cnt - 1u];
    for (const block_t *b = &p->unit[1]; b != end; b += b->size) {
        if (b > end || b->size == 0 || b->below != below) return 0;
        if (!b->is_used) {
            free_cnt++;
            if (!(b + b->size)->is_used) return 0;
        } else {
            used += (uint64_t)b->size * UNIT;
        }
        below = b->size;
    }
    for (uint32_t c = 0; c < CLASS_CNT; c++) {
        int has_bit = (p->word[c / 64u] >> (c % 64u)) & 1;
        if (has_bit != (p->head[c] != 0)) return 0;
        for (uint32_t i = p->head[c]; i != 0; i = p->unit[i].next) {
            if (class_of(p->unit[i].size) != c) return 0;
            listed++;
        }
    }
    return used == p->stat.used_sz && listed == free_cnt && end->below == below;
}
