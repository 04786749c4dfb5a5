/* SPDX-License-Identifier: Apache-2.0 */
/* The executor's defence: a plan is played forward on shadows of the
   slots, in the order of appliance/abi/plan.h, before anything changes.
   Each number is bounded before it is used as an index or added. */
#include "appliance/abi/reasons.h"
#include "kernels/engine/slots.h"
#include "kernels/engine/slots_private.h"
#include "kernels/sample/sample.h"

#define REFUSE(...) return tdm_error_set(err, TDM_ERR_CORRUPT, __VA_ARGS__)

static tdm_status_t check_counts(const tdm_slots_t *s, const tdm_plan_t *p, tdm_error_t *err) {
    const tdm_slots_config_t *c = &s->config;
    if (p->close_cnt > c->seq_max) REFUSE("plan: close_cnt %u", p->close_cnt);
    if (p->open_cnt > c->seq_max) REFUSE("plan: open_cnt %u", p->open_cnt);
    if (p->grant_cnt > c->seq_max) REFUSE("plan: grant_cnt %u", p->grant_cnt);
    if (p->decode_cnt > c->seq_max) REFUSE("plan: decode_cnt %u", p->decode_cnt);
    if (p->page_cnt > TDM_PLAN_PAGE_MAX) REFUSE("plan: page_cnt %u", p->page_cnt);
    if (p->slice_cnt > TDM_PLAN_SLICE_MAX) REFUSE("plan: slice_cnt %u", p->slice_cnt);
    if (p->token_cnt > c->token_max) REFUSE("plan: token_cnt %u", p->token_cnt);
    if (p->variant >= c->variant_cnt) REFUSE("plan: variant %u", p->variant);
    if (p->reason != 0 && (p->reason >= TDM_REASON_CNT ||
                           tdm_reason_group_of((tdm_reason_t)p->reason) != TDM_GROUP_FALLBACK))
        REFUSE("plan: reason %u is no fallback", p->reason);
    return TDM_OK;
}

static tdm_status_t check_route(const tdm_plan_t *p, tdm_error_t *err) {
    int has_prefill = p->slice_cnt > 0, has_decode = p->decode_cnt > 0;
    int is_fit = 0;
    switch (p->route) {
    case TDM_ROUTE_IDLE: is_fit = !has_prefill && !has_decode; break;
    case TDM_ROUTE_PREFILL_ONLY: is_fit = has_prefill && !has_decode; break;
    case TDM_ROUTE_DECODE_ONLY: is_fit = !has_prefill && has_decode; break;
    case TDM_ROUTE_FUSED:
    case TDM_ROUTE_STREAMS:
    case TDM_ROUTE_SERIAL: is_fit = has_prefill && has_decode; break;
    default: break;
    }
    if (!is_fit)
        REFUSE("plan: route %u with %u slices and %u decodes", p->route, p->slice_cnt,
               p->decode_cnt);
    return TDM_OK;
}

static void shadow_all(tdm_slots_t *s) {
    for (uint32_t i = 0; i < s->config.seq_max; i++) {
        const tdm_slot_t *t = &s->slot[i];
        s->shadow[i] = (slot_shadow_t){.is_open = t->is_open,
                                       .prompt_cnt = t->prompt_cnt,
                                       .page_cnt = t->page_cnt,
                                       .next_pos = t->next_pos,
                                       .due_cnt = t->due_cnt};
    }
}

static tdm_status_t check_close(tdm_slots_t *s, uint32_t slot, tdm_error_t *err) {
    if (slot >= s->config.seq_max || !s->shadow[slot].is_open)
        REFUSE("plan: closes slot %u, which is not open", slot);
    s->shadow[slot].is_open = 0;
    return TDM_OK;
}

static tdm_status_t check_open(tdm_slots_t *s, const tdm_plan_open_t *o, tdm_error_t *err) {
    if (o->slot >= s->config.seq_max || s->shadow[o->slot].is_open)
        REFUSE("plan: opens slot %u, which is not free", o->slot);
    if (s->slot[o->slot].busy_cnt)
        REFUSE("plan: opens slot %u, which an iteration under way runs", o->slot);
    if (o->prompt_cnt == 0 || o->prompt_cnt > s->config.context_max)
        REFUSE("plan: slot %u has a prompt of %u tokens", o->slot, o->prompt_cnt);
    if (o->filled_cnt % TDM_KV_PAGE_TOKENS != 0 || o->filled_cnt > s->config.context_max)
        REFUSE("plan: slot %u opens on %u filled tokens", o->slot, o->filled_cnt);
    const char *bad = tdm_sampling_check(&o->sampling, s->config.vocab);
    if (bad) REFUSE("plan: slot %u: sampling.%s is out of range", o->slot, bad);
    s->shadow[o->slot] = (slot_shadow_t){.is_open = 1,
                                         .prompt_cnt = o->prompt_cnt,
                                         .next_pos = o->filled_cnt,
                                         .due_cnt = o->filled_cnt};
    return TDM_OK;
}

static tdm_status_t check_grant(tdm_slots_t *s, const tdm_plan_t *p, const tdm_plan_grant_t *g,
                                tdm_error_t *err) {
    if (g->slot >= s->config.seq_max || !s->shadow[g->slot].is_open)
        REFUSE("plan: grants pages to slot %u, which is not open", g->slot);
    if (g->page_off > p->page_cnt || g->page_cnt > p->page_cnt - g->page_off)
        REFUSE("plan: grant [%u, +%u) of %u pages", g->page_off, g->page_cnt, p->page_cnt);
    slot_shadow_t *t = &s->shadow[g->slot];
    if (g->page_cnt > s->stride - t->page_cnt)
        REFUSE("plan: slot %u would have %u pages over its %u", g->slot, g->page_cnt,
               s->stride - t->page_cnt);
    for (uint32_t i = 0; i < g->page_cnt; i++)
        if (p->page[g->page_off + i] >= s->config.kv_page_cnt)
            REFUSE("plan: page %u of a pool of %u", p->page[g->page_off + i],
                   s->config.kv_page_cnt);
    t->page_cnt += g->page_cnt;
    return TDM_OK;
}

/* check_inputs is common to slices and decodes: cnt inputs at pos. */
static tdm_status_t check_inputs(tdm_slots_t *s, uint32_t slot, uint32_t pos, uint32_t cnt,
                                 tdm_error_t *err) {
    if (slot >= s->config.seq_max || !s->shadow[slot].is_open)
        REFUSE("plan: runs slot %u, which is not open", slot);
    slot_shadow_t *t = &s->shadow[slot];
    if (t->is_used) REFUSE("plan: runs slot %u twice", slot);
    if (pos != t->next_pos)
        REFUSE("plan: slot %u at position %u, expected %u", slot, pos, t->next_pos);
    if (cnt > s->config.context_max - pos)
        REFUSE("plan: slot %u: position %u + %u is past the context", slot, pos, cnt);
    if ((uint64_t)pos + cnt > (uint64_t)t->page_cnt * TDM_KV_PAGE_TOKENS)
        REFUSE("plan: slot %u: position %u + %u is past its %u pages", slot, pos, cnt, t->page_cnt);
    t->is_used = 1;
    t->next_pos = pos + cnt;
    return TDM_OK;
}

static tdm_status_t check_slice(tdm_slots_t *s, const tdm_plan_t *p, const tdm_plan_slice_t *c,
                                tdm_error_t *err) {
    if (c->cnt == 0) REFUSE("plan: an empty slice of slot %u", c->slot);
    if (c->token_off > p->token_cnt || c->cnt > p->token_cnt - c->token_off)
        REFUSE("plan: slice [%u, +%u) of %u tokens", c->token_off, c->cnt, p->token_cnt);
    tdm_status_t st = check_inputs(s, c->slot, c->pos, c->cnt, err);
    if (st != TDM_OK) return st;
    if (c->is_last > 1 || (c->is_last && c->pos + c->cnt < s->shadow[c->slot].prompt_cnt))
        REFUSE("plan: slot %u ends its prompt at %u of %u", c->slot, c->pos + c->cnt,
               s->shadow[c->slot].prompt_cnt);
    for (uint32_t i = 0; i < c->cnt; i++) {
        int32_t token = p->token[c->token_off + i];
        if (token < 0 || (uint32_t)token >= s->config.vocab)
            REFUSE("plan: token %d of a vocabulary of %u", token, s->config.vocab);
    }
    return TDM_OK;
}

/* check_slices: two slices that name the same tokens are refused by the
   sum, since an iteration's rows have room for token_max of them. */
static tdm_status_t check_slices(tdm_slots_t *s, const tdm_plan_t *p, tdm_error_t *err) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < p->slice_cnt; i++) {
        const tdm_plan_slice_t *c = &p->slice[i];
        tdm_status_t st = check_slice(s, p, c, err);
        if (st != TDM_OK) return st;
        if (c->cnt > p->token_cnt - sum)
            REFUSE("plan: slices of more than its %u tokens", p->token_cnt);
        sum += c->cnt;
    }
    return TDM_OK;
}

static tdm_status_t check_decode(tdm_slots_t *s, const tdm_plan_decode_t *d, tdm_error_t *err) {
    tdm_status_t st = check_inputs(s, d->slot, d->pos, 1, err);
    if (st != TDM_OK) return st;
    if (s->shadow[d->slot].due_cnt <= d->pos)
        REFUSE("plan: slot %u decodes position %u, whose token is unknown", d->slot, d->pos);
    return TDM_OK;
}

/* page_of reads a slot's table as it will be after this plan's grants. */
static uint32_t page_of(const tdm_slots_t *s, const tdm_plan_t *p, uint32_t slot, uint32_t idx) {
    const tdm_slot_t *t = &s->slot[slot];
    uint32_t base = t->page_cnt;
    for (uint32_t i = 0; i < p->open_cnt; i++)
        if (p->open[i].slot == slot) base = 0;
    if (idx < base) return s->page[(uint64_t)slot * s->stride + idx];
    for (uint32_t i = 0; i < p->grant_cnt; i++) {
        const tdm_plan_grant_t *g = &p->grant[i];
        if (g->slot != slot) continue;
        if (idx - base < g->page_cnt) return p->page[g->page_off + (idx - base)];
        base += g->page_cnt;
    }
    return UINT32_MAX; /* check_inputs counted the pages: not reached */
}

/* check_writes stamps every page that the inputs will be written to.  A
   page that has this check's stamp already is another slot's too, or is
   in this slot's table twice. */
static tdm_status_t check_writes(tdm_slots_t *s, const tdm_plan_t *p, uint32_t slot, uint32_t pos,
                                 uint32_t cnt, tdm_error_t *err) {
    uint32_t last = (pos + cnt - 1) / TDM_KV_PAGE_TOKENS;
    for (uint32_t idx = pos / TDM_KV_PAGE_TOKENS; idx <= last; idx++) {
        uint32_t page = page_of(s, p, slot, idx);
        if (page >= s->config.kv_page_cnt || s->stamp[page] == s->check_cnt)
            REFUSE("plan: page %u would be written twice, by slot %u too", page, slot);
        s->stamp[page] = s->check_cnt;
    }
    return TDM_OK;
}

static tdm_status_t check_all_writes(tdm_slots_t *s, const tdm_plan_t *p, tdm_error_t *err) {
    tdm_status_t st = TDM_OK;
    s->check_cnt++;
    if (s->check_cnt == 0) { /* after 2^32 plans: old stamps must not look new */
        for (uint32_t i = 0; i < s->config.kv_page_cnt; i++) s->stamp[i] = 0;
        s->check_cnt = 1;
    }
    for (uint32_t i = 0; st == TDM_OK && i < p->slice_cnt; i++)
        st = check_writes(s, p, p->slice[i].slot, p->slice[i].pos, p->slice[i].cnt, err);
    for (uint32_t i = 0; st == TDM_OK && i < p->decode_cnt; i++)
        st = check_writes(s, p, p->decode[i].slot, p->decode[i].pos, 1, err);
    return st;
}

tdm_status_t tdm_slots_check(tdm_slots_t *s, const tdm_plan_t *p, tdm_error_t *err) {
    tdm_status_t st = check_counts(s, p, err);
    if (st == TDM_OK) st = check_route(p, err);
    if (st != TDM_OK) return st;
    shadow_all(s);
    for (uint32_t i = 0; st == TDM_OK && i < p->close_cnt; i++)
        st = check_close(s, p->close[i], err);
    for (uint32_t i = 0; st == TDM_OK && i < p->open_cnt; i++) st = check_open(s, &p->open[i], err);
    for (uint32_t i = 0; st == TDM_OK && i < p->grant_cnt; i++)
        st = check_grant(s, p, &p->grant[i], err);
    if (st == TDM_OK) st = check_slices(s, p, err);
    for (uint32_t i = 0; st == TDM_OK && i < p->decode_cnt; i++)
        st = check_decode(s, &p->decode[i], err);
    if (st != TDM_OK) return st;
    return check_all_writes(s, p, err);
}
