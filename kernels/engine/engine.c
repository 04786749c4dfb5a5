/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/engine/engine.h"

#include "appliance/abi/reasons.h"
#include "appliance/base/clock.h"
#include "appliance/base/size.h"

#include <string.h>

struct tdm_engine {
    tdm_engine_config_t config;
    tdm_slots_t *slots;
    tdm_worklist_t *list;    /* NULL where ops->begin plans */
    tdm_attn_seq_t *seq;     /* [slice max + seq_max], the list's where there is one */
    tdm_engine_row_t *row;   /* [token_max + seq_max] */
    uint32_t *wanted;        /* [slice max + seq_max] rows that sample, plan order */
    tdm_sample_in_t *in;     /* as wanted */
    tdm_sample_out_t *drawn; /* [logits_max] */
    tdm_engine_iter_t it;
};

typedef struct layout {
    uint64_t slots, list, row, wanted, in, drawn, end;
} layout_t;

/* What plans the attention: the work list, or room for its sequences. */
static uint64_t list_sz(const tdm_engine_config_t *c) {
    if (!c->ops->begin) return tdm_worklist_footprint(&c->worklist);
    return ((uint64_t)TDM_PLAN_SLICE_MAX + c->slots.seq_max) * sizeof(tdm_attn_seq_t);
}

static layout_t lay_out(const tdm_engine_config_t *c) {
    layout_t l;
    uint64_t row_max = (uint64_t)c->slots.token_max + c->slots.seq_max;
    uint64_t wanted_max = (uint64_t)TDM_PLAN_SLICE_MAX + c->slots.seq_max;
    l.slots = tdm_size_align(sizeof(tdm_engine_t), TDM_CACHE_LINE);
    l.list = tdm_size_align(l.slots + tdm_slots_footprint(&c->slots), TDM_CACHE_LINE);
    l.row = tdm_size_align(l.list + list_sz(c), TDM_CACHE_LINE);
    l.wanted = tdm_size_align(l.row + row_max * sizeof(tdm_engine_row_t), TDM_CACHE_LINE);
    l.in = tdm_size_align(l.wanted + wanted_max * sizeof(uint32_t), TDM_CACHE_LINE);
    l.drawn = tdm_size_align(l.in + wanted_max * sizeof(tdm_sample_in_t), TDM_CACHE_LINE);
    l.end = tdm_size_align(l.drawn + c->logits_max * sizeof(tdm_sample_out_t), TDM_CACHE_LINE);
    return l;
}

uint64_t tdm_engine_footprint(const tdm_engine_config_t *config) {
    return lay_out(config).end;
}

tdm_engine_t *tdm_engine_init(void *mem, const tdm_engine_config_t *config) {
    layout_t l = lay_out(config);
    uint8_t *base = (uint8_t *)mem;
    tdm_engine_t *e = (tdm_engine_t *)mem;
    e->config = *config;
    e->slots = tdm_slots_init(base + l.slots, &config->slots);
    if (config->ops->begin) {
        e->seq = (tdm_attn_seq_t *)(void *)(base + l.list);
    } else {
        e->list = tdm_worklist_init(base + l.list, &config->worklist);
        e->seq = tdm_worklist_seq(e->list);
    }
    e->row = (tdm_engine_row_t *)(void *)(base + l.row);
    e->wanted = (uint32_t *)(void *)(base + l.wanted);
    e->in = (tdm_sample_in_t *)(void *)(base + l.in);
    e->drawn = (tdm_sample_out_t *)(void *)(base + l.drawn);
    return e;
}

static tdm_sample_in_t question(const tdm_engine_t *e, uint32_t row) {
    const tdm_slot_t *slot = tdm_slots_at(e->slots, e->row[row].slot);
    return (tdm_sample_in_t){.sampling = &slot->sampling,
                             .history = tdm_slots_history(e->slots, e->row[row].slot),
                             .pos = slot->next_pos,
                             .prompt_cnt = slot->prompt_cnt};
}

/* gather turns slices and decodes into rows and attention sequences, and
   notes which rows sample.  The slots have been moved past the inputs. */
static void gather(tdm_engine_t *e, const tdm_plan_t *plan) {
    tdm_attn_seq_t *seq = e->seq;
    uint32_t row = 0, wanted_cnt = 0;
    for (uint32_t i = 0; i < plan->slice_cnt; i++) {
        const tdm_plan_slice_t *c = &plan->slice[i];
        seq[i] =
            (tdm_attn_seq_t){.slot = c->slot, .kv_cnt = c->pos + c->cnt, .cnt = c->cnt, .row = row};
        for (uint32_t t = 0; t < c->cnt; t++)
            e->row[row++] = (tdm_engine_row_t){
                .token = plan->token[c->token_off + t], .slot = c->slot, .pos = c->pos + t};
        if (c->is_last) e->wanted[wanted_cnt++] = row - 1;
    }
    for (uint32_t i = 0; i < plan->decode_cnt; i++) {
        const tdm_plan_decode_t *d = &plan->decode[i];
        int32_t token = tdm_slots_history(e->slots, d->slot)[d->pos];
        seq[plan->slice_cnt + i] =
            (tdm_attn_seq_t){.slot = d->slot, .kv_cnt = d->pos + 1, .cnt = 1, .row = row};
        /* A poisoned slot still runs, on any token: its sequence ends by
           the scheduler's word, one iteration later. */
        e->row[row] =
            (tdm_engine_row_t){.token = token < 0 ? 0 : token, .slot = d->slot, .pos = d->pos};
        e->wanted[wanted_cnt++] = row++;
    }
    for (uint32_t i = 0; i < wanted_cnt; i++) e->in[i] = question(e, e->wanted[i]);
    e->it = (tdm_engine_iter_t){.plan = plan,
                                .row_cnt = row,
                                .row = e->row,
                                .seq = seq,
                                .wanted_cnt = wanted_cnt,
                                .wanted = e->wanted,
                                .in = e->in,
                                .page_table = tdm_slots_pages(e->slots),
                                .table_stride = tdm_slots_stride(e->slots)};
}

static void plan_attention(tdm_engine_t *e) {
    tdm_engine_iter_t *it = &e->it;
    if (e->config.ops->begin) {
        e->config.ops->begin(e->config.ctx, it);
        return;
    }
    it->attn =
        tdm_worklist_build(e->list, it->plan->slice_cnt, it->plan->decode_cnt, it->plan->route);
    it->route = it->attn->route;
    it->reason = it->attn->reason;
}

static void walk(tdm_engine_t *e, tdm_attn_stats_t *stats) {
    const tdm_engine_ops_t *ops = e->config.ops;
    void *ctx = e->config.ctx;
    if (e->it.is_replayed) return;
    ops->embed(ctx, &e->it);
    for (uint32_t layer = 0; layer < e->config.layer_cnt; layer++) {
        ops->qkv(ctx, &e->it, layer);
        ops->rope_append(ctx, &e->it, layer);
        ops->attention(ctx, &e->it, layer, stats);
        ops->attn_out(ctx, &e->it, layer);
        ops->ffn(ctx, &e->it, layer);
    }
}

static void answer(tdm_engine_t *e, uint32_t row, const tdm_sample_out_t *drawn,
                   tdm_result_sample_t *out) {
    uint32_t slot = e->row[row].slot;
    tdm_sample_out_t d = *drawn;
    if (tdm_slots_at(e->slots, slot)->is_poisoned)
        d = (tdm_sample_out_t){.token = -1, .flags = TDM_SAMPLE_NAN};
    tdm_slots_sampled(e->slots, slot, d.token);
    *out = (tdm_result_sample_t){.slot = slot,
                                 .pos = tdm_slots_at(e->slots, slot)->next_pos,
                                 .token = d.token,
                                 .flags = d.flags,
                                 .logprob = d.logprob};
}

static void sample(tdm_engine_t *e, tdm_result_t *result) {
    const tdm_engine_ops_t *ops = e->config.ops;
    void *ctx = e->config.ctx;
    for (uint32_t done = 0; done < e->it.wanted_cnt;) {
        uint32_t cnt = TDM_MIN(e->it.wanted_cnt - done, e->config.logits_max);
        ops->logits(ctx, e->wanted + done, cnt);
        int64_t start_ns = tdm_clock_now_ns();
        ops->sample(ctx, e->in + done, cnt, e->drawn);
        for (uint32_t i = 0; i < cnt; i++)
            answer(e, e->wanted[done + i], &e->drawn[i], &result->sample[done + i]);
        /* A device with a queue is waited for here: that is no time of sampling. */
        if (!ops->finish) result->sample_ns += tdm_clock_now_ns() - start_ns;
        done += cnt;
    }
    result->sample_cnt = e->it.wanted_cnt;
}

/* why_not_fused: a hybrid iteration on another route has a reason, found
   here or brought by the plan. */
static uint32_t why_not_fused(const tdm_engine_iter_t *it) {
    if (it->route != TDM_ROUTE_STREAMS && it->route != TDM_ROUTE_SERIAL) return 0;
    return it->reason ? it->reason : it->plan->reason;
}

static void fill(tdm_result_t *r, const tdm_attn_stats_t *s) {
    for (int kind = 0; kind < TDM_KIND_CNT; kind++) {
        r->vcta_planned[kind] = s->vcta_planned[kind];
        r->vcta_executed[kind] = s->vcta_executed[kind];
        r->vcta_ns[kind] = s->vcta_ns[kind];
    }
    r->colocated_ns = s->colocated_ns;
    r->split_cnt = s->split_cnt;
    r->merge_cnt = s->merge_cnt;
    r->kv_read_bytes = s->kv_read_bytes;
    r->attention_flops = s->flops;
    r->attention_ns = (int64_t)s->wall_ns;
    r->overlap_ns = s->overlap_ns;
    r->tail_ns = s->tail_ns;
    r->role_switch_cnt = s->role_switch_cnt;
    r->ring_stall_cnt = s->ring_stall_cnt;
    r->sm_clock_khz = s->sm_clock_khz;
    if (s->slot_cnt) r->slot_cnt = s->slot_cnt;
    memcpy(r->stage_ns, s->stage_ns, sizeof r->stage_ns);
    r->tile_row = (uint16_t)s->tile_row;
    r->tile_key = (uint16_t)s->tile_key;
}

static tdm_status_t iterate(tdm_engine_t *e, const tdm_plan_t *plan, tdm_result_t *result,
                            tdm_error_t *err) {
    tdm_attn_stats_t stats = {0};
    const tdm_engine_ops_t *ops = e->config.ops;
    gather(e, plan);
    plan_attention(e);
    walk(e, &stats);
    sample(e, result);
    tdm_status_t st = ops->finish ? ops->finish(e->config.ctx, &e->it, &stats, err) : TDM_OK;
    if (st != TDM_OK) {
        result->sample_cnt = 0;
        return st;
    }
    fill(result, &stats);
    result->route = e->it.route;
    result->reason = why_not_fused(&e->it);
    return TDM_OK;
}

tdm_status_t tdm_engine_run(tdm_engine_t *e, const tdm_plan_t *plan, tdm_result_t *result,
                            tdm_error_t *err) {
    memset(result, 0, offsetof(tdm_result_t, sample));
    result->start_ns = tdm_clock_now_ns();
    result->iteration = plan->iteration;
    result->epoch = plan->epoch;
    result->route = TDM_ROUTE_IDLE;
    result->sm_cnt = result->slot_cnt = e->config.worklist.sm_cnt;
    result->launch_cnt = e->config.layer_cnt;
    tdm_status_t st = tdm_slots_check(e->slots, plan, err);
    if (st != TDM_OK) {
        result->fault = TDM_FAULT_executor_protocol;
        result->end_ns = tdm_clock_now_ns();
        return st;
    }
    tdm_slots_apply(e->slots, plan);
    if (e->config.ops->apply) e->config.ops->apply(e->config.ctx, plan);
    if (plan->route != TDM_ROUTE_IDLE) st = iterate(e, plan, result, err);
    result->end_ns = tdm_clock_now_ns();
    return st;
}
