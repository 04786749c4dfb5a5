/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/fake_executor.h"

#include "appliance/base/rng.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int TDM_PRINTF(2, 3) refuse(fake_executor_t *x, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(x->wrong, sizeof x->wrong, fmt, args);
    va_end(args);
    return 0;
}

uint64_t fake_hash(uint64_t hash, int32_t token) {
    return tdm_rng_mix(hash * 31u + (uint32_t)token + 1u);
}

uint64_t fake_root(uint64_t seed) {
    return tdm_rng_mix((seed >> FAKE_SEED_TENANT_LG & 15u) + 1u);
}

int32_t fake_prompt(uint64_t identity, uint32_t i, uint32_t vocab) {
    return (int32_t)(tdm_rng_at(identity, i) % vocab);
}

int32_t fake_token(uint64_t hash, uint64_t seed, uint32_t vocab, uint32_t index,
                   uint32_t min_tokens, uint32_t flags, uint32_t *sample_flags) {
    uint64_t draw = tdm_rng_mix(hash ^ seed);
    *sample_flags = 0;
    if ((seed & FAKE_SEED_NAN) && index == 2) {
        *sample_flags = TDM_SAMPLE_NAN;
        return -1;
    }
    int is_stop = (seed & FAKE_SEED_STOP) && (draw >> 40) % 8u == 0;
    if (is_stop && index >= min_tokens && !(flags & TDM_SAMPLING_IGNORE_EOS))
        *sample_flags = TDM_SAMPLE_STOP_ID;
    return (int32_t)(draw % vocab);
}

void fake_open(fake_executor_t *x, uint32_t page_cnt, uint32_t context, uint32_t vocab) {
    memset(x, 0, sizeof *x);
    x->page_cnt = page_cnt;
    x->context = context;
    x->vocab = vocab;
    x->table_max = context / TDM_KV_PAGE_TOKENS + 1u;
    x->page_ref = calloc(page_cnt, sizeof *x->page_ref);
    x->page_fill = calloc(page_cnt, sizeof *x->page_fill);
    x->page_bad = calloc(page_cnt, sizeof *x->page_bad);
    x->page_token = calloc((size_t)page_cnt * TDM_KV_PAGE_TOKENS, sizeof *x->page_token);
    x->page_tag = calloc(page_cnt, sizeof *x->page_tag);
    x->page_last_use = calloc(page_cnt, sizeof *x->page_last_use);
}

static void slot_forget(fake_executor_t *x, fake_slot_t *t) {
    for (uint32_t i = 0; i < t->page_cnt; i++) x->page_ref[t->page[i]]--;
    t->is_open = 0;
    t->page_cnt = t->pos = t->known_cnt = 0;
}

void fake_close(fake_executor_t *x) {
    for (uint32_t i = 0; i < TDM_SEQ_MAX; i++) {
        free(x->slot[i].page);
        free(x->slot[i].hash);
        free(x->slot[i].token);
    }
    free(x->page_ref);
    free(x->page_fill);
    free(x->page_bad);
    free(x->page_token);
    free(x->page_tag);
    free(x->page_last_use);
}

void fake_restart(fake_executor_t *x, uint32_t epoch) {
    for (uint32_t i = 0; i < TDM_SEQ_MAX; i++) slot_forget(x, &x->slot[i]);
    for (uint32_t i = 0; i < x->page_cnt; i++) {
        x->page_fill[i] = 0;
        x->page_bad[i] = 0;
        x->page_tag[i] = 0;
        x->page_last_use[i] = 0;
    }
    x->flight_cnt = 0;
    x->done_iteration = x->last_iteration;
    x->epoch = epoch;
    x->is_fresh = 1;
}

/* check_reads: all pages before tok hold what this sequence's tokens
   yield. */
static int check_reads(fake_executor_t *x, const fake_slot_t *t, uint32_t slot, uint32_t tok,
                       uint64_t iteration) {
    if (tok > t->page_cnt * TDM_KV_PAGE_TOKENS)
        return refuse(x, "slot %u: %u tokens in %u pages", slot, tok, t->page_cnt);
    for (uint32_t i = 0; i * TDM_KV_PAGE_TOKENS < tok; i++) {
        uint32_t end = TDM_MIN((i + 1u) * TDM_KV_PAGE_TOKENS, tok);
        if (x->page_tag[t->page[i]] != t->hash[end])
            return refuse(x, "slot %u: page %u holds foreign contents", slot, t->page[i]);
        x->page_last_use[t->page[i]] = iteration;
    }
    return 1;
}

/* feed makes a token known and writes its KV. */
static int feed(fake_executor_t *x, fake_slot_t *t, uint32_t slot, int32_t token) {
    if (t->pos >= x->context) return refuse(x, "slot %u: over the context", slot);
    if (t->pos >= t->page_cnt * TDM_KV_PAGE_TOKENS) return refuse(x, "slot %u: no page", slot);
    if ((uint32_t)token >= x->vocab) return refuse(x, "slot %u: token %d", slot, token);
    uint32_t page = t->page[t->pos / TDM_KV_PAGE_TOKENS], row = t->pos % TDM_KV_PAGE_TOKENS;
    if (x->page_ref[page] != 1) return refuse(x, "slot %u: writes page %u, shared", slot, page);
    t->token[t->pos] = token;
    t->hash[t->pos + 1] = fake_hash(t->hash[t->pos], token);
    t->pos++;
    x->page_tag[page] = t->hash[t->pos];
    x->page_token[(size_t)page * TDM_KV_PAGE_TOKENS + row] = token;
    x->page_fill[page] = row + 1u;
    if (t->known_cnt < t->pos) t->known_cnt = t->pos;
    return 1;
}

static void sample(fake_executor_t *x, fake_slot_t *t, uint32_t slot, tdm_result_t *r) {
    tdm_result_sample_t *s = &r->sample[r->sample_cnt++];
    uint32_t flags = 0;
    int32_t token = fake_token(t->hash[t->pos], t->seed, x->vocab, t->pos - t->prompt_cnt,
                               t->min_tokens, t->flags, &flags);
    *s = (tdm_result_sample_t){.slot = slot, .pos = t->pos, .token = token, .flags = flags};
    if (t->pos < x->context) t->token[t->pos] = token < 0 ? 0 : token;
    t->known_cnt = t->pos + 1u;
}

static int do_closes(fake_executor_t *x, const tdm_plan_t *plan) {
    for (uint32_t i = 0; i < plan->close_cnt; i++) {
        uint32_t slot = plan->close[i];
        if (slot >= TDM_SEQ_MAX || !x->slot[slot].is_open)
            return refuse(x, "close of slot %u, which is not open", slot);
        slot_forget(x, &x->slot[slot]);
    }
    return 1;
}

static int do_opens(fake_executor_t *x, const tdm_plan_t *plan) {
    for (uint32_t i = 0; i < plan->open_cnt; i++) {
        const tdm_plan_open_t *o = &plan->open[i];
        if (o->slot >= TDM_SEQ_MAX || x->slot[o->slot].is_open)
            return refuse(x, "open of slot %u, which is open", o->slot);
        fake_slot_t *t = &x->slot[o->slot];
        if (!t->page) t->page = calloc(x->table_max, sizeof *t->page);
        if (!t->hash) t->hash = calloc(x->context + 1u, sizeof *t->hash);
        if (!t->token) t->token = calloc(x->context + 1u, sizeof *t->token);
        t->is_open = 1;
        t->seed = o->sampling.seed;
        t->min_tokens = o->sampling.min_tokens;
        t->flags = o->sampling.flags;
        t->prompt_cnt = o->prompt_cnt;
        t->filled_cnt = o->filled_cnt;
        t->page_cnt = t->pos = t->known_cnt = 0;
        t->hash[0] = fake_root(t->seed);
        if (t->filled_cnt % TDM_KV_PAGE_TOKENS != 0 || t->filled_cnt >= x->context)
            return refuse(x, "slot %u: %u tokens filled", o->slot, t->filled_cnt);
    }
    return 1;
}

/* own takes a page to write. */
static int own(fake_executor_t *x, uint32_t page) {
    if (x->page_ref[page] != 0)
        return refuse(x, "page %u is in %u tables", page, x->page_ref[page]);
    if (x->page_last_use[page] > x->done_iteration)
        return refuse(x, "page %u granted before its fence", page);
    x->page_tag[page] = 0;
    x->page_fill[page] = 0;
    x->page_bad[page] = 0;
    return 1;
}

/* holds_prompt: the page has what comes next in the slot's plain prompt,
   computed here. */
static int holds_prompt(const fake_executor_t *x, const fake_slot_t *t, uint32_t page) {
    uint64_t hash = t->hash[t->pos];
    for (uint32_t i = 0; i < TDM_KV_PAGE_TOKENS; i++)
        hash = fake_hash(hash, fake_prompt(t->seed & FAKE_SEED_MASK, t->pos + i, x->vocab));
    return x->page_fill[page] == TDM_KV_PAGE_TOKENS && x->page_tag[page] == hash &&
           !x->page_bad[page];
}

/* deliver fills a page of nobody with it, as another machine would, and
   marks it as none that others may have. */
static int deliver(fake_executor_t *x, const fake_slot_t *t, uint32_t page) {
    uint64_t hash = t->hash[t->pos];
    uint64_t *last = &x->delivered[tdm_rng_mix(t->seed) % FAKE_DELIVERY_CNT];
    if (t->pos == 0 && *last == t->seed) return refuse(x, "a slot opens on pages that are lost");
    *last = t->seed;
    if (!own(x, page)) return 0;
    for (uint32_t i = 0; i < TDM_KV_PAGE_TOKENS; i++) {
        int32_t token = fake_prompt(t->seed & FAKE_SEED_MASK, t->pos + i, x->vocab);
        x->page_token[(size_t)page * TDM_KV_PAGE_TOKENS + i] = token;
        hash = fake_hash(hash, token);
    }
    x->page_fill[page] = TDM_KV_PAGE_TOKENS;
    x->page_tag[page] = hash;
    x->page_bad[page] = 1;
    return 1;
}

/* adopt takes a page that others have filled. */
static int adopt(fake_executor_t *x, fake_slot_t *t, uint32_t slot, uint32_t page) {
    int is_held = (t->seed & FAKE_SEED_HELD) && t->pos + TDM_KV_PAGE_TOKENS <= t->prompt_cnt &&
                  !holds_prompt(x, t, page);
    if (is_held && !deliver(x, t, page)) return 0;
    if (x->page_fill[page] != TDM_KV_PAGE_TOKENS)
        return refuse(x, "slot %u: page %u has only %u rows", slot, page, x->page_fill[page]);
    if (x->page_bad[page] && !is_held)
        return refuse(x, "slot %u: page %u led to NaN, or came from elsewhere", slot, page);
    for (uint32_t i = 0; i < TDM_KV_PAGE_TOKENS; i++) {
        t->token[t->pos] = x->page_token[(size_t)page * TDM_KV_PAGE_TOKENS + i];
        t->hash[t->pos + 1] = fake_hash(t->hash[t->pos], t->token[t->pos]);
        t->pos++;
    }
    t->known_cnt = t->pos;
    if (x->page_tag[page] != t->hash[t->pos])
        return refuse(x, "slot %u: page %u follows other tokens", slot, page);
    return 1;
}

static int do_grants(fake_executor_t *x, const tdm_plan_t *plan) {
    uint32_t off = 0;
    for (uint32_t i = 0; i < plan->grant_cnt; i++) {
        const tdm_plan_grant_t *g = &plan->grant[i];
        if (g->slot >= TDM_SEQ_MAX || !x->slot[g->slot].is_open)
            return refuse(x, "grant to slot %u, which is not open", g->slot);
        if (g->page_off != off || g->page_cnt == 0 || g->page_cnt > plan->page_cnt - off)
            return refuse(x, "grant %u is outside the page list", i);
        fake_slot_t *t = &x->slot[g->slot];
        for (uint32_t k = 0; k < g->page_cnt; k++) {
            uint32_t page = plan->page[off + k];
            if (page >= x->page_cnt) return refuse(x, "page %u is outside the pool", page);
            if (t->page_cnt >= x->table_max) return refuse(x, "slot %u: table full", g->slot);
            int is_filled = t->page_cnt * TDM_KV_PAGE_TOKENS < t->filled_cnt;
            if (!(is_filled ? adopt(x, t, g->slot, page) : own(x, page))) return 0;
            x->page_ref[page]++;
            t->page[t->page_cnt++] = page;
        }
        off += g->page_cnt;
    }
    return off == plan->page_cnt ? 1 : refuse(x, "%u pages without a grant", plan->page_cnt - off);
}

static int do_slices(fake_executor_t *x, const tdm_plan_t *plan, uint8_t *seen, tdm_result_t *r) {
    uint32_t off = 0;
    for (uint32_t i = 0; i < plan->slice_cnt; i++) {
        const tdm_plan_slice_t *c = &plan->slice[i];
        if (c->slot >= TDM_SEQ_MAX || !x->slot[c->slot].is_open || seen[c->slot]++)
            return refuse(x, "slice for slot %u, closed or twice", c->slot);
        fake_slot_t *t = &x->slot[c->slot];
        if (c->pos != t->pos) return refuse(x, "slot %u: at %u, not %u", c->slot, t->pos, c->pos);
        if (c->cnt == 0 || c->token_off != off || c->cnt > plan->token_cnt - off)
            return refuse(x, "slice %u is outside the token list", i);
        if (!check_reads(x, t, c->slot, t->pos, plan->iteration)) return 0;
        for (uint32_t k = 0; k < c->cnt; k++)
            if (!feed(x, t, c->slot, plan->token[off + k])) return 0;
        if (!check_reads(x, t, c->slot, t->pos, plan->iteration)) return 0;
        off += c->cnt;
        if (c->is_last && t->pos < t->prompt_cnt)
            return refuse(x, "slot %u: last slice inside the prompt", c->slot);
        if (c->is_last) sample(x, t, c->slot, r);
    }
    return off == plan->token_cnt ? 1 : refuse(x, "tokens without a slice");
}

static int do_decodes(fake_executor_t *x, const tdm_plan_t *plan, uint8_t *seen, tdm_result_t *r) {
    for (uint32_t i = 0; i < plan->decode_cnt; i++) {
        const tdm_plan_decode_t *c = &plan->decode[i];
        if (c->slot >= TDM_SEQ_MAX || !x->slot[c->slot].is_open || seen[c->slot]++)
            return refuse(x, "decode for slot %u, closed or twice", c->slot);
        fake_slot_t *t = &x->slot[c->slot];
        if (c->pos != t->pos || t->known_cnt != t->pos + 1u)
            return refuse(x, "slot %u: decode at %u, %u known", c->slot, c->pos, t->known_cnt);
        if (!feed(x, t, c->slot, t->token[c->pos])) return 0;
        if (!check_reads(x, t, c->slot, t->pos, plan->iteration)) return 0;
        sample(x, t, c->slot, r);
    }
    return 1;
}

static int check_head(fake_executor_t *x, const tdm_plan_t *plan) {
    if (plan->epoch != x->epoch) return refuse(x, "epoch %u", plan->epoch);
    if (x->is_fresh ? plan->iteration <= x->last_iteration
                    : plan->iteration != x->last_iteration + 1u)
        return refuse(x, "an iteration is skipped");
    if (x->flight_cnt >= FAKE_DEPTH) return refuse(x, "too many plans");
    if (plan->slice_cnt > TDM_PLAN_SLICE_MAX || plan->token_cnt > TDM_PLAN_TOKEN_MAX ||
        plan->decode_cnt > TDM_SEQ_MAX || plan->page_cnt > TDM_PLAN_PAGE_MAX)
        return refuse(x, "a count is over its bound");
    int is_both = plan->slice_cnt && plan->decode_cnt;
    if ((plan->route == TDM_ROUTE_PREFILL_ONLY) != (plan->slice_cnt && !plan->decode_cnt) ||
        (plan->route == TDM_ROUTE_DECODE_ONLY) != (plan->decode_cnt && !plan->slice_cnt) ||
        (plan->route >= TDM_ROUTE_FUSED) != is_both)
        return refuse(x, "route %u does not fit the plan", plan->route);
    return 1;
}

/* note_nans remembers whose samples are not finite, until it is told. */
static void note_nans(const fake_executor_t *x, fake_flight_t *f) {
    f->nan_cnt = 0;
    for (uint32_t i = 0; i < f->result.sample_cnt; i++) {
        if (!(f->result.sample[i].flags & TDM_SAMPLE_NAN)) continue;
        f->nan_slot[f->nan_cnt] = f->result.sample[i].slot;
        f->nan_seed[f->nan_cnt++] = x->slot[f->result.sample[i].slot].seed;
    }
}

static void tell_nans(fake_executor_t *x, const fake_flight_t *f) {
    for (uint32_t i = 0; i < f->nan_cnt; i++) {
        const fake_slot_t *t = &x->slot[f->nan_slot[i]];
        if (!t->is_open || t->seed != f->nan_seed[i]) continue;
        for (uint32_t k = 0; k < t->page_cnt; k++) x->page_bad[t->page[k]] = 1;
    }
}

int fake_take(fake_executor_t *x, const tdm_plan_t *plan, int64_t cost_ns) {
    uint8_t seen[TDM_SEQ_MAX] = {0};
    if (!check_head(x, plan)) return 0;
    fake_flight_t *f = &x->flight[x->flight_cnt];
    memset(&f->result, 0, offsetof(tdm_result_t, sample));
    f->result.iteration = f->iteration = plan->iteration;
    f->result.epoch = plan->epoch;
    f->result.route = plan->route;
    f->cost_ns = cost_ns;
    f->decode_cnt = plan->decode_cnt;
    if (!do_closes(x, plan) || !do_opens(x, plan) || !do_grants(x, plan) ||
        !do_slices(x, plan, seen, &f->result) || !do_decodes(x, plan, seen, &f->result))
        return 0;
    note_nans(x, f);
    x->last_iteration = plan->iteration;
    x->is_fresh = 0;
    x->flight_cnt++;
    return 1;
}

const tdm_result_t *fake_finish(fake_executor_t *x, int64_t start_ns, int64_t end_ns) {
    static tdm_result_t out;
    tell_nans(x, &x->flight[0]);
    out = x->flight[0].result;
    out.start_ns = start_ns;
    out.end_ns = end_ns;
    out.sm_clock_khz = x->sm_clock_khz;
    x->done_iteration = out.iteration;
    if (--x->flight_cnt > 0) x->flight[0] = x->flight[1];
    return &out;
}
