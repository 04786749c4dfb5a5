/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/tokenizer/tokenizer_private.h"

#include <stdlib.h>
#include <string.h>

static uint32_t hash_bytes(const char *bytes, uint64_t sz) {
    uint64_t h = sz * UINT64_C(0x9e3779b97f4a7c15);
    while (sz >= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        h = (h ^ word) * UINT64_C(0xd6e8feb86659fd93);
        h ^= h >> 32;
        bytes += 8;
        sz -= 8;
    }
    uint64_t tail = 0;
    memcpy(&tail, bytes, sz);
    h = (h ^ tail) * UINT64_C(0xd6e8feb86659fd93);
    return (uint32_t)(h >> 32);
}

tdm_status_t tdm_vocab_open(tdm_vocab_t *v, uint32_t cap, uint64_t bytes_hint, tdm_error_t *err) {
    if (cap == 0 || cap > TDM_VOCAB_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT, "tokenizer: a vocabulary of %u tokens", cap);
    v->cap = cap;
    v->room = TDM_MAX(bytes_hint, (uint64_t)64);
    v->token = calloc(cap, sizeof *v->token);
    v->bytes = malloc(v->room);
    if (!v->token || !v->bytes)
        return tdm_error_set(err, TDM_ERR_NOMEM, "tokenizer: no memory for %u tokens", cap);
    return TDM_OK;
}

tdm_status_t tdm_vocab_add(tdm_vocab_t *v, const char *bytes, uint64_t sz, tdm_token_kind_t kind,
                           tdm_error_t *err) {
    if (v->cnt == v->cap)
        return tdm_error_set(err, TDM_ERR_LIMIT, "tokenizer: more than %u tokens", v->cap);
    if (sz > TDM_PIECE_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT, "tokenizer: token %u has %llu bytes, at most %d",
                             v->cnt, (unsigned long long)sz, TDM_PIECE_MAX);
    if (v->used + sz > v->room) {
        uint64_t room = 2 * (v->used + sz);
        char *p = realloc(v->bytes, room);
        if (!p) return tdm_error_set(err, TDM_ERR_NOMEM, "tokenizer: no memory for token bytes");
        v->bytes = p;
        v->room = room;
    }
    tdm_token_t *t = &v->token[v->cnt++];
    t->at = (uint32_t)v->used;
    t->sz = (uint16_t)sz;
    t->kind = (uint8_t)kind;
    memcpy(v->bytes + v->used, bytes, sz);
    v->used += sz;
    return TDM_OK;
}

static uint32_t find_slot(const tdm_vocab_t *v, const char *bytes, uint64_t sz) {
    uint32_t at = hash_bytes(bytes, sz) & v->mask;
    while (v->slot[at]) {
        const tdm_token_t *t = &v->token[v->slot[at] - 1];
        if (t->sz == sz && memcmp(v->bytes + t->at, bytes, sz) == 0) break;
        at = (at + 1) & v->mask;
    }
    return at;
}

int32_t tdm_vocab_find(const tdm_vocab_t *v, const char *bytes, uint64_t sz) {
    if (sz > v->sz_max) return -1;
    return (int32_t)v->slot[find_slot(v, bytes, sz)] - 1;
}

static int is_special(const tdm_token_t *t) {
    return t->sz && (t->kind == TDM_TOKEN_CONTROL || t->kind == TDM_TOKEN_USER);
}

/* The order in which specials are tried: first byte, then longest first. */
static int by_first_then_longest(const void *a, const void *b, void *ctx) {
    const tdm_vocab_t *v = ctx;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    int fx = (uint8_t)tdm_vocab_bytes(v, x)[0], fy = (uint8_t)tdm_vocab_bytes(v, y)[0];
    if (fx != fy) return fx - fy;
    if (v->token[x].sz != v->token[y].sz) return (int)v->token[y].sz - (int)v->token[x].sz;
    return (x > y) - (x < y);
}

static tdm_status_t seal_specials(tdm_vocab_t *v, tdm_error_t *err) {
    for (uint32_t id = 0; id < v->cnt; id++) v->special_cnt += (uint32_t)is_special(&v->token[id]);
    if (v->special_cnt > TDM_SPECIAL_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT, "tokenizer: %u special tokens, at most %d",
                             v->special_cnt, TDM_SPECIAL_MAX);
    v->special = malloc(((uint64_t)v->special_cnt + 1) * sizeof *v->special);
    if (!v->special) return tdm_error_set(err, TDM_ERR_NOMEM, "tokenizer: no memory");
    uint32_t n = 0;
    for (uint32_t id = 0; id < v->cnt; id++)
        if (is_special(&v->token[id])) v->special[n++] = (int32_t)id;
    qsort_r(v->special, n, sizeof *v->special, by_first_then_longest, v);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t b = (uint8_t)tdm_vocab_bytes(v, v->special[i])[0];
        v->first[b + 1] = i + 1;
        if (v->token[v->special[i]].kind == TDM_TOKEN_USER) {
            v->has_user[b] = 1;
            v->has_any_user = 1;
        }
    }
    for (uint32_t b = 0; b < 256; b++)
        if (v->first[b + 1] < v->first[b]) v->first[b + 1] = v->first[b];
    return TDM_OK;
}

tdm_status_t tdm_vocab_seal(tdm_vocab_t *v, tdm_error_t *err) {
    uint32_t slots = 4;
    while (slots < 2 * v->cnt) slots *= 2;
    v->slot = calloc(slots, sizeof *v->slot);
    if (!v->slot) return tdm_error_set(err, TDM_ERR_NOMEM, "tokenizer: no memory for the index");
    v->mask = slots - 1;
    for (uint32_t id = 0; id < v->cnt; id++) {
        const tdm_token_t *t = &v->token[id];
        if (t->kind != TDM_TOKEN_NORMAL) continue;
        if (t->sz == 0)
            return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: token %u is empty", id);
        uint32_t at = find_slot(v, v->bytes + t->at, t->sz);
        if (v->slot[at])
            return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: tokens %u and %u are the same",
                                 v->slot[at] - 1, id);
        v->slot[at] = id + 1;
        v->sz_max = TDM_MAX(v->sz_max, (uint32_t)t->sz);
    }
    return seal_specials(v, err);
}

void tdm_vocab_close(tdm_vocab_t *v) {
    free(v->token);
    free(v->bytes);
    free(v->slot);
    free(v->special);
    memset(v, 0, sizeof *v);
}
