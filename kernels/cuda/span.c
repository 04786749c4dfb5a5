/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/span.h"

#include "appliance/abi/limits.h"
#include "appliance/base/size.h"
#include "kernels/include/pod.h"

static uint64_t pages_of(const tdm_attn_seq_t *s) {
    return tdm_ceil_div(s->kv_cnt, TDM_KV_PAGE_TOKENS);
}

static uint64_t items(const tdm_attn_seq_t *seq, uint32_t cnt, uint32_t span) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < cnt; i++) sum += tdm_ceil_div(pages_of(&seq[i]), span);
    return sum;
}

uint32_t tdm_fresh_span(const tdm_attn_seq_t *seq, uint32_t cnt, uint32_t nhead_kv,
                        uint32_t item_max) {
    uint32_t most = 0, room = item_max / nhead_kv;
    if (cnt > room) return 0;
    for (uint32_t i = 0; i < cnt; i++) most = TDM_MAX(most, (uint32_t)pages_of(&seq[i]));
    uint32_t low = TDM_MIN(TDM_POD_FRESH_TOK / TDM_KV_PAGE_TOKENS, most);
    uint32_t high = most; /* each sequence is one item: they fit */
    while (low < high) {
        uint32_t span = (low + high) / 2;
        if (items(seq, cnt, span) <= room)
            high = span;
        else
            low = span + 1;
    }
    return high;
}
