/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/engine/slots.h"

#include "appliance/base/size.h"
#include "kernels/engine/slots_private.h"

#include <string.h>

static uint32_t table_stride(const tdm_slots_config_t *c) {
    return (uint32_t)tdm_ceil_div(c->context_max, TDM_KV_PAGE_TOKENS);
}

static uint64_t history_stride(const tdm_slots_config_t *c) {
    return (uint64_t)c->context_max + 1; /* the token sampled after the last input */
}

/* layout_t: offsets of the arrays behind the struct. */
typedef struct layout {
    uint64_t slot, shadow, page, history, page_token, stamp, end;
} layout_t;

static layout_t lay_out(const tdm_slots_config_t *c) {
    layout_t l;
    uint64_t n = c->seq_max;
    l.slot = tdm_size_align(sizeof(tdm_slots_t), 64);
    l.shadow = tdm_size_align(l.slot + n * sizeof(tdm_slot_t), 64);
    l.page = tdm_size_align(l.shadow + n * sizeof(slot_shadow_t), 64);
    l.history = tdm_size_align(l.page + n * table_stride(c) * sizeof(uint32_t), 64);
    l.page_token = tdm_size_align(l.history + n * history_stride(c) * sizeof(int32_t), 64);
    l.stamp = tdm_size_align(
        l.page_token + (uint64_t)c->kv_page_cnt * TDM_KV_PAGE_TOKENS * sizeof(int32_t), 64);
    l.end = tdm_size_align(l.stamp + (uint64_t)c->kv_page_cnt * sizeof(uint32_t), 64);
    return l;
}

uint64_t tdm_slots_footprint(const tdm_slots_config_t *config) {
    return lay_out(config).end;
}

tdm_slots_t *tdm_slots_init(void *mem, const tdm_slots_config_t *config) {
    layout_t l = lay_out(config);
    uint8_t *base = (uint8_t *)mem;
    tdm_slots_t *s = (tdm_slots_t *)mem;
    s->config = *config;
    s->stride = table_stride(config);
    s->slot = (tdm_slot_t *)(void *)(base + l.slot);
    s->shadow = (slot_shadow_t *)(void *)(base + l.shadow);
    s->page = (uint32_t *)(void *)(base + l.page);
    s->history = (int32_t *)(void *)(base + l.history);
    s->page_token = (int32_t *)(void *)(base + l.page_token);
    s->stamp = (uint32_t *)(void *)(base + l.stamp);
    return s;
}

static int32_t *history_of(tdm_slots_t *s, uint32_t slot) {
    return s->history + slot * history_stride(&s->config);
}

static void open_one(tdm_slots_t *s, const tdm_plan_open_t *o) {
    tdm_slot_t *t = &s->slot[o->slot];
    memset(t, 0, sizeof *t);
    t->is_open = 1;
    t->prompt_cnt = o->prompt_cnt;
    t->filled_cnt = o->filled_cnt;
    t->next_pos = t->token_cnt = t->due_cnt = o->filled_cnt;
    t->sampling = o->sampling;
}

static void grant_one(tdm_slots_t *s, const tdm_plan_t *plan, const tdm_plan_grant_t *g) {
    tdm_slot_t *t = &s->slot[g->slot];
    uint32_t *table = s->page + (uint64_t)g->slot * s->stride + t->page_cnt;
    memcpy(table, plan->page + g->page_off, (uint64_t)g->page_cnt * sizeof *table);
    for (uint32_t i = 0; i < g->page_cnt; i++) {
        uint32_t pos = (t->page_cnt + i) * TDM_KV_PAGE_TOKENS;
        if (pos >= t->filled_cnt) break;
        memcpy(history_of(s, g->slot) + pos,
               s->page_token + (uint64_t)table[i] * TDM_KV_PAGE_TOKENS,
               TDM_KV_PAGE_TOKENS * sizeof(int32_t));
    }
    t->page_cnt += g->page_cnt;
}

/* note_input keeps a token with the page its KV goes to. */
static void note_input(tdm_slots_t *s, uint32_t slot, uint32_t pos, int32_t token) {
    uint64_t page = s->page[(uint64_t)slot * s->stride + pos / TDM_KV_PAGE_TOKENS];
    s->page_token[page * TDM_KV_PAGE_TOKENS + pos % TDM_KV_PAGE_TOKENS] = token;
}

static void slice_one(tdm_slots_t *s, const tdm_plan_t *plan, const tdm_plan_slice_t *c) {
    tdm_slot_t *t = &s->slot[c->slot];
    memcpy(history_of(s, c->slot) + c->pos, plan->token + c->token_off,
           (uint64_t)c->cnt * sizeof(int32_t));
    t->next_pos = t->token_cnt = c->pos + c->cnt;
    t->due_cnt = t->next_pos + c->is_last;
    t->busy_cnt++;
}

void tdm_slots_apply(tdm_slots_t *s, const tdm_plan_t *plan) {
    for (uint32_t i = 0; i < plan->close_cnt; i++) s->slot[plan->close[i]].is_open = 0;
    for (uint32_t i = 0; i < plan->open_cnt; i++) open_one(s, &plan->open[i]);
    for (uint32_t i = 0; i < plan->grant_cnt; i++) grant_one(s, plan, &plan->grant[i]);
    for (uint32_t i = 0; i < plan->slice_cnt; i++) slice_one(s, plan, &plan->slice[i]);
    for (uint32_t i = 0; i < plan->decode_cnt; i++) {
        tdm_slot_t *t = &s->slot[plan->decode[i].slot];
        t->next_pos++;
        t->due_cnt = t->next_pos + 1;
        t->busy_cnt++;
    }
}

void tdm_slots_draw(tdm_slots_t *s, uint32_t slot, uint32_t pos, int32_t token) {
    history_of(s, slot)[pos] = token;
}

void tdm_slots_sampled(tdm_slots_t *s, uint32_t slot, uint32_t pos, int32_t token) {
    tdm_slot_t *t = &s->slot[slot];
    if (token < 0) t->is_poisoned = 1;
    t->token_cnt = pos + 1;
}

void tdm_slots_done(tdm_slots_t *s, uint32_t slot, uint32_t pos, uint32_t cnt) {
    for (uint32_t i = pos; i < pos + cnt; i++) note_input(s, slot, i, history_of(s, slot)[i]);
    s->slot[slot].busy_cnt--;
}

const tdm_slot_t *tdm_slots_at(const tdm_slots_t *s, uint32_t slot) {
    return &s->slot[slot];
}

const int32_t *tdm_slots_history(const tdm_slots_t *s, uint32_t slot) {
    return s->history + slot * history_stride(&s->config);
}

const uint32_t *tdm_slots_pages(const tdm_slots_t *s) {
    return s->page;
}

uint32_t tdm_slots_stride(const tdm_slots_t *s) {
    return s->stride;
}
