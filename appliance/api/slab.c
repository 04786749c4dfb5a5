/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/api/slab.h"

#include "appliance/base/check.h"
#include "appliance/base/size.h"

static int is_used(const tdm_slab_t *s, uint32_t chunk) {
    return (s->used[chunk >> 6] >> (chunk & 63)) & 1;
}

static void mark(tdm_slab_t *s, uint32_t first, uint32_t cnt) {
    for (uint32_t c = first; c < first + cnt; c++) s->used[c >> 6] ^= UINT64_C(1) << (c & 63);
}

void tdm_slab_init(tdm_slab_t *s, int32_t *ids, uint64_t *used, uint32_t chunk_cnt) {
    *s = (tdm_slab_t){.ids = ids, .used = used, .chunk_cnt = chunk_cnt};
}

/* search finds cnt free chunks in a row in [from, to); to if none. */
static uint32_t search(const tdm_slab_t *s, uint32_t from, uint32_t to, uint32_t cnt) {
    uint32_t run = 0;
    for (uint32_t c = from; c < to; c++) {
        if ((c & 63) == 0 && s->used[c >> 6] == UINT64_MAX) {
            run = 0;
            c += 63;
            continue;
        }
        run = is_used(s, c) ? 0 : run + 1;
        if (run == cnt) return c + 1 - cnt;
    }
    return to;
}

int32_t *tdm_slab_take(tdm_slab_t *s, uint64_t id_cnt) {
    uint64_t need = tdm_ceil_div(id_cnt, TDM_SLAB_CHUNK);
    if (need == 0 || need > s->chunk_cnt - s->used_cnt) return NULL;
    uint32_t cnt = (uint32_t)need;
    uint32_t at = search(s, s->next, s->chunk_cnt, cnt);
    if (at == s->chunk_cnt) at = search(s, 0, s->chunk_cnt, cnt);
    if (at == s->chunk_cnt) return NULL;
    mark(s, at, cnt);
    s->used_cnt += cnt;
    s->next = at + cnt == s->chunk_cnt ? 0 : at + cnt;
    return s->ids + (uint64_t)at * TDM_SLAB_CHUNK;
}

void tdm_slab_give(tdm_slab_t *s, const int32_t *ids, uint64_t id_cnt) {
    uint32_t cnt = (uint32_t)tdm_ceil_div(id_cnt, TDM_SLAB_CHUNK);
    uint32_t at = (uint32_t)((uint64_t)(ids - s->ids) / TDM_SLAB_CHUNK);
    TDM_CHECK(at + cnt <= s->chunk_cnt && is_used(s, at));
    mark(s, at, cnt);
    s->used_cnt -= cnt;
}
