/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/check.h"
#include "appliance/tokenizer/tokenizer_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

tdm_status_t tdm_pairs_open(tdm_pairs_t *p, uint32_t cnt_max, tdm_error_t *err) {
    uint64_t slots = 4;
    while (slots < 2 * (uint64_t)cnt_max + 2) slots *= 2;
    p->slot = malloc(slots * sizeof *p->slot);
    if (!p->slot)
        return tdm_error_set(err, TDM_ERR_NOMEM, "tokenizer: no memory for %u merges", cnt_max);
    for (uint64_t i = 0; i < slots; i++) p->slot[i].key = UINT64_MAX;
    p->mask = (uint32_t)(slots - 1);
    p->cnt = 0;
    p->cnt_max = cnt_max;
    return TDM_OK;
}

int tdm_pairs_add(tdm_pairs_t *p, int32_t left, int32_t right, uint32_t rank, int32_t id) {
    TDM_CHECK(p->cnt < p->cnt_max);
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t at = (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & p->mask;
    for (; p->slot[at].key != UINT64_MAX; at = (at + 1) & p->mask)
        if (p->slot[at].key == key) return 0;
    p->slot[at] = (tdm_pair_t){.key = key, .rank = rank, .id = id};
    p->cnt++;
    return 1;
}

void tdm_pairs_close(tdm_pairs_t *p) {
    free(p->slot);
    memset(p, 0, sizeof *p);
}

static int by_score(const void *a, const void *b, void *ctx) {
    const float *score = ctx;
    float x = score[*(const uint32_t *)a], y = score[*(const uint32_t *)b];
    return (x < y) - (x > y);
}

/* ranks numbers the tokens by score, best 0; equal scores share a rank, so
   that the leftmost of equals merges first. */
static tdm_status_t ranks(const tdm_vocab_t *v, const float *score, uint32_t *rank,
                          tdm_error_t *err) {
    uint32_t *order = calloc((uint64_t)v->cnt + 1, sizeof *order);
    if (!order) return tdm_error_set(err, TDM_ERR_NOMEM, "tokenizer: no memory for scores");
    for (uint32_t i = 0; i < v->cnt; i++) order[i] = i;
    qsort_r(order, v->cnt, sizeof *order, by_score, (void *)(uintptr_t)score);
    uint32_t r = 0;
    for (uint32_t i = 0; i < v->cnt; i++) {
        if (i > 0 && score[order[i]] < score[order[i - 1]]) r++;
        rank[order[i]] = r;
    }
    free(order);
    return TDM_OK;
}

/* splits calls add for every way to cut token id into two tokens, or only
   counts them where p is NULL. */
static uint32_t splits(tdm_pairs_t *p, const tdm_vocab_t *v, uint32_t id, uint32_t rank) {
    const tdm_token_t *t = &v->token[id];
    const char *bytes = v->bytes + t->at;
    uint32_t cnt = 0;
    for (uint32_t k = 1; k < t->sz; k++) {
        if (((uint8_t)bytes[k] & 0xc0) == 0x80) continue; /* inside a character */
        int32_t left = tdm_vocab_find(v, bytes, k);
        int32_t right = left < 0 ? -1 : tdm_vocab_find(v, bytes + k, t->sz - k);
        if (right < 0) continue;
        cnt++;
        if (p) {
            int is_new = tdm_pairs_add(p, left, right, rank, (int32_t)id);
            TDM_CHECK(is_new); /* tokens are distinct, so is their concatenation */
        }
    }
    return cnt;
}

tdm_status_t tdm_pairs_from_scores(tdm_pairs_t *p, const tdm_vocab_t *v, const float *score,
                                   tdm_error_t *err) {
    for (uint32_t i = 0; i < v->cnt; i++)
        if (!isfinite(score[i]))
            return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: score of token %u", i);
    uint64_t cnt = 0;
    for (uint32_t i = 0; i < v->cnt; i++)
        if (v->token[i].kind == TDM_TOKEN_NORMAL) cnt += splits(NULL, v, i, 0);
    if (cnt > TDM_GGUF_ELEMENT_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT, "tokenizer: %llu merges, at most %u",
                             (unsigned long long)cnt, TDM_GGUF_ELEMENT_MAX);
    uint32_t *rank = calloc((uint64_t)v->cnt + 1, sizeof *rank);
    if (!rank) return tdm_error_set(err, TDM_ERR_NOMEM, "tokenizer: no memory for scores");
    tdm_status_t st = ranks(v, score, rank, err);
    if (st == TDM_OK) st = tdm_pairs_open(p, (uint32_t)cnt, err);
    for (uint32_t i = 0; st == TDM_OK && i < v->cnt; i++)
        if (v->token[i].kind == TDM_TOKEN_NORMAL) (void)splits(p, v, i, rank[i]);
    free(rank);
    return st;
}
