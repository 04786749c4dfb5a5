/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/engine/engine.h"

#include "appliance/abi/reasons.h"
#include "appliance/base/check.h"
#include "appliance/base/clock.h"
#include "appliance/base/size.h"

#include <string.h>

/* One iteration from its start to its finish. */
typedef struct turn {
    tdm_worklist_t *list;    /* NULL where ops->begin plans */
    tdm_attn_seq_t *seq;     /* [slice max + seq_max], the list's where there is one */
    tdm_engine_row_t *row;   /* [token_max + seq_max] */
    uint32_t *wanted;        /* [slice max + seq_max] rows that sample, plan order */
    tdm_sample_in_t *in;     /* as wanted */
    tdm_sample_out_t *drawn; /* as wanted */
    tdm_engine_iter_t it;
    uint32_t seq_cnt;
    uint32_t is_idle; /* table changes only */
    tdm_attn_stats_t stats;
    int64_t sample_ns;
    int64_t end_ns; /* of the compute, at depth 2 */
    tdm_result_t *result;
} turn_t;

struct tdm_engine {
    tdm_engine_config_t config;
    tdm_slots_t *slots;
    turn_t turn[TDM_BACKEND_DEPTH_MAX];
    uint64_t started; /* iterations, as their turns go round */
    uint64_t finished;
    int64_t end_ns; /* of the last one finished */
    /* whoever computes */
    uint64_t computed TDM_ALIGNED(TDM_CACHE_LINE);
    int64_t computed_ns; /* the end of the last one */
};

typedef struct layout {
    uint64_t slots, turn, list, row, wanted, in, drawn, end;
} layout_t;

/* What plans the attention: the work list, or room for its sequences. */
static uint64_t list_sz(const tdm_engine_config_t *c) {
    if (!c->ops->begin) return tdm_worklist_footprint(&c->worklist);
    return ((uint64_t)TDM_PLAN_SLICE_MAX + c->slots.seq_max) * sizeof(tdm_attn_seq_t);
}

/* lay_out: list to drawn lie in a turn's memory, end is the turn's; the
   turns lie one after the other behind the slots. */
static layout_t lay_out(const tdm_engine_config_t *c) {
    layout_t l = {.list = 0};
    uint64_t row_max = (uint64_t)c->slots.token_max + c->slots.seq_max;
    uint64_t wanted_max = (uint64_t)TDM_PLAN_SLICE_MAX + c->slots.seq_max;
    l.slots = tdm_size_align(sizeof(tdm_engine_t), TDM_CACHE_LINE);
    l.turn = tdm_size_align(l.slots + tdm_slots_footprint(&c->slots), TDM_CACHE_LINE);
    l.row = tdm_size_align(list_sz(c), TDM_CACHE_LINE);
    l.wanted = tdm_size_align(l.row + row_max * sizeof(tdm_engine_row_t), TDM_CACHE_LINE);
    l.in = tdm_size_align(l.wanted + wanted_max * sizeof(uint32_t), TDM_CACHE_LINE);
    l.drawn = tdm_size_align(l.in + wanted_max * sizeof(tdm_sample_in_t), TDM_CACHE_LINE);
    l.end = tdm_size_align(l.drawn + wanted_max * sizeof(tdm_sample_out_t), TDM_CACHE_LINE);
    return l;
}

uint64_t tdm_engine_footprint(const tdm_engine_config_t *config) {
    layout_t l = lay_out(config);
    return l.turn + config->depth * l.end;
}

static void turn_init(turn_t *t, uint8_t *base, const layout_t *l, const tdm_engine_config_t *c) {
    if (c->ops->begin) {
        t->seq = (tdm_attn_seq_t *)(void *)(base + l->list);
    } else {
        t->list = tdm_worklist_init(base + l->list, &c->worklist);
        t->seq = tdm_worklist_seq(t->list);
    }
    t->row = (tdm_engine_row_t *)(void *)(base + l->row);
    t->wanted = (uint32_t *)(void *)(base + l->wanted);
    t->in = (tdm_sample_in_t *)(void *)(base + l->in);
    t->drawn = (tdm_sample_out_t *)(void *)(base + l->drawn);
}

tdm_engine_t *tdm_engine_init(void *mem, const tdm_engine_config_t *config) {
    layout_t l = lay_out(config);
    uint8_t *base = (uint8_t *)mem;
    tdm_engine_t *e = (tdm_engine_t *)mem;
    e->config = *config;
    e->slots = tdm_slots_init(base + l.slots, &config->slots);
    for (uint32_t i = 0; i < config->depth; i++)
        turn_init(&e->turn[i], base + l.turn + i * l.end, &l, config);
    return e;
}

static turn_t *turn_of(tdm_engine_t *e, uint64_t iteration) {
    return &e->turn[iteration % e->config.depth];
}

/* --- start: the host's work before the device's ------------------------- */

static tdm_sample_in_t question(const tdm_engine_t *e, const tdm_engine_row_t *row) {
    const tdm_slot_t *slot = tdm_slots_at(e->slots, row->slot);
    return (tdm_sample_in_t){.sampling = &slot->sampling,
                             .history = tdm_slots_history(e->slots, row->slot),
                             .pos = slot->next_pos,
                             .prompt_cnt = slot->prompt_cnt};
}

/* input_of gives a decode's token.  A poisoned slot still runs, on any
   token: its sequence ends by the scheduler's word, one iteration later. */
static int32_t input_of(const tdm_engine_t *e, const tdm_plan_decode_t *d) {
    if (tdm_slots_at(e->slots, d->slot)->token_cnt <= d->pos) return TDM_ROW_DRAWN;
    return TDM_MAX(tdm_slots_history(e->slots, d->slot)[d->pos], 0);
}

/* gather turns slices and decodes into rows and attention sequences, and
   notes which rows sample.  The slots have been moved past the inputs. */
static void gather(tdm_engine_t *e, turn_t *t, const tdm_plan_t *plan) {
    uint32_t row = 0, wanted_cnt = 0, seq_cnt = 0;
    for (uint32_t i = 0; i < plan->slice_cnt; i++) {
        const tdm_plan_slice_t *c = &plan->slice[i];
        t->seq[seq_cnt++] =
            (tdm_attn_seq_t){.slot = c->slot, .kv_cnt = c->pos + c->cnt, .cnt = c->cnt, .row = row};
        for (uint32_t k = 0; k < c->cnt; k++)
            t->row[row++] = (tdm_engine_row_t){
                .token = plan->token[c->token_off + k], .slot = c->slot, .pos = c->pos + k};
        if (c->is_last) t->wanted[wanted_cnt++] = row - 1;
    }
    for (uint32_t i = 0; i < plan->decode_cnt; i++) {
        const tdm_plan_decode_t *d = &plan->decode[i];
        t->seq[seq_cnt++] =
            (tdm_attn_seq_t){.slot = d->slot, .kv_cnt = d->pos + 1, .cnt = 1, .row = row};
        t->row[row] = (tdm_engine_row_t){.token = input_of(e, d), .slot = d->slot, .pos = d->pos};
        t->wanted[wanted_cnt++] = row++;
    }
    for (uint32_t i = 0; i < wanted_cnt; i++) t->in[i] = question(e, &t->row[t->wanted[i]]);
    t->seq_cnt = seq_cnt;
    t->it = (tdm_engine_iter_t){.turn = (uint32_t)(t - e->turn),
                                .plan = plan,
                                .row_cnt = row,
                                .row = t->row,
                                .seq = t->seq,
                                .wanted_cnt = wanted_cnt,
                                .wanted = t->wanted,
                                .in = t->in,
                                .page_table = tdm_slots_pages(e->slots),
                                .table_stride = tdm_slots_stride(e->slots)};
}

static void plan_attention(tdm_engine_t *e, turn_t *t) {
    tdm_engine_iter_t *it = &t->it;
    if (e->config.ops->begin) {
        e->config.ops->begin(e->config.ctx, it);
        return;
    }
    it->attn =
        tdm_worklist_build(t->list, it->plan->slice_cnt, it->plan->decode_cnt, it->plan->route);
    it->route = it->attn->route;
    it->reason = it->attn->reason;
}

tdm_status_t tdm_engine_start(tdm_engine_t *e, const tdm_plan_t *plan, tdm_result_t *result,
                              tdm_error_t *err) {
    memset(result, 0, offsetof(tdm_result_t, sample));
    result->start_ns = tdm_clock_now_ns();
    result->iteration = plan->iteration;
    result->epoch = plan->epoch;
    result->route = TDM_ROUTE_IDLE;
    result->sm_cnt = result->slot_cnt = e->config.worklist.sm_cnt;
    result->launch_cnt = e->config.layer_cnt;
    TDM_CHECK(e->started - e->finished < e->config.depth);
    tdm_status_t st = tdm_slots_check(e->slots, plan, err);
    if (st != TDM_OK) {
        result->fault = TDM_FAULT_executor_protocol;
        result->end_ns = tdm_clock_now_ns();
        return st;
    }
    turn_t *t = turn_of(e, e->started);
    t->result = result;
    t->stats = (tdm_attn_stats_t){0};
    t->sample_ns = 0;
    t->is_idle = plan->route == TDM_ROUTE_IDLE;
    tdm_slots_apply(e->slots, plan);
    if (e->config.ops->apply) e->config.ops->apply(e->config.ctx, plan);
    if (!t->is_idle) {
        gather(e, t, plan);
        plan_attention(e, t);
    }
    e->started++;
    return TDM_OK;
}

/* --- compute: the device's work ----------------------------------------- */

/* settle puts in the tokens that the iteration before has drawn. */
static void settle(const tdm_engine_t *e, turn_t *t) {
    for (uint32_t i = t->it.plan->slice_cnt; i < t->seq_cnt; i++) {
        tdm_engine_row_t *row = &t->row[t->seq[i].row];
        if (row->token == TDM_ROW_DRAWN)
            row->token = TDM_MAX(tdm_slots_history(e->slots, row->slot)[row->pos], 0);
    }
}

static void walk(const tdm_engine_t *e, turn_t *t) {
    const tdm_engine_ops_t *ops = e->config.ops;
    void *ctx = e->config.ctx;
    if (t->it.is_replayed) return;
    ops->embed(ctx, &t->it);
    for (uint32_t layer = 0; layer < e->config.layer_cnt; layer++) {
        ops->qkv(ctx, &t->it, layer);
        ops->rope_append(ctx, &t->it, layer);
        ops->attention(ctx, &t->it, layer, &t->stats);
        ops->attn_out(ctx, &t->it, layer);
        ops->ffn(ctx, &t->it, layer);
    }
}

/* draw samples the wanted rows in groups. */
static void draw(const tdm_engine_t *e, turn_t *t) {
    const tdm_engine_ops_t *ops = e->config.ops;
    void *ctx = e->config.ctx;
    for (uint32_t done = 0; done < t->it.wanted_cnt;) {
        uint32_t cnt = TDM_MIN(t->it.wanted_cnt - done, e->config.logits_max);
        ops->logits(ctx, t->wanted + done, cnt);
        int64_t start_ns = tdm_clock_now_ns();
        ops->sample(ctx, t->in + done, cnt, ops->finish ? NULL : t->drawn + done);
        if (!ops->finish) t->sample_ns += tdm_clock_now_ns() - start_ns;
        done += cnt;
    }
}

/* enter writes the drawn tokens into the histories. */
static void enter(const tdm_engine_t *e, turn_t *t) {
    for (uint32_t i = 0; i < t->it.wanted_cnt; i++)
        tdm_slots_draw(e->slots, t->row[t->wanted[i]].slot, t->in[i].pos, t->drawn[i].token);
}

void tdm_engine_compute(tdm_engine_t *e) {
    const tdm_engine_ops_t *ops = e->config.ops;
    turn_t *t = turn_of(e, e->computed++);
    int64_t begin_ns = tdm_clock_now_ns();
    if (!t->is_idle) {
        if (!ops->finish) settle(e, t);
        walk(e, t);
        draw(e, t);
        if (ops->finish)
            ops->post(e->config.ctx, &t->it);
        else
            enter(e, t); /* at once: the next iteration runs on them */
    }
    if (ops->finish) return; /* what is queued takes no time here */
    if (e->computed_ns) t->stats.idle_ns = (uint64_t)(begin_ns - e->computed_ns);
    t->end_ns = e->computed_ns = tdm_clock_now_ns();
}

/* --- finish: the host's work after the device's ------------------------- */

static void answer(tdm_engine_t *e, turn_t *t, uint32_t i) {
    uint32_t slot = t->row[t->wanted[i]].slot;
    tdm_sample_out_t d = t->drawn[i];
    if (tdm_slots_at(e->slots, slot)->is_poisoned)
        d = (tdm_sample_out_t){.token = -1, .flags = TDM_SAMPLE_NAN};
    tdm_slots_sampled(e->slots, slot, t->in[i].pos, d.token);
    t->result->sample[i] = (tdm_result_sample_t){.slot = slot,
                                                 .pos = t->in[i].pos,
                                                 .token = d.token,
                                                 .flags = d.flags,
                                                 .logprob = d.logprob};
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
    r->idle_ns = s->idle_ns;
    r->queue_ns = s->queue_ns;
    r->upload_bytes = s->upload_bytes;
    r->graph_bytes = s->graph_bytes;
    r->graph_cnt = s->graph_cnt;
    r->graph = s->graph;
    r->tile_row = (uint16_t)s->tile_row;
    r->tile_key = (uint16_t)s->tile_key;
}

/* close_turn hands out what the device left. */
static tdm_status_t close_turn(tdm_engine_t *e, turn_t *t, tdm_error_t *err) {
    const tdm_engine_ops_t *ops = e->config.ops;
    if (ops->finish) {
        tdm_status_t st = ops->finish(e->config.ctx, &t->it, t->drawn, &t->stats, err);
        if (st != TDM_OK) return st;
        enter(e, t);
    }
    for (uint32_t i = 0; i < t->it.wanted_cnt; i++) answer(e, t, i);
    for (uint32_t i = 0; i < t->seq_cnt; i++)
        tdm_slots_done(e->slots, t->seq[i].slot, t->seq[i].kv_cnt - t->seq[i].cnt, t->seq[i].cnt);
    t->result->sample_cnt = t->it.wanted_cnt;
    t->result->sample_ns = t->sample_ns;
    fill(t->result, &t->stats);
    t->result->route = t->it.route;
    t->result->reason = why_not_fused(&t->it);
    return TDM_OK;
}

tdm_status_t tdm_engine_finish(tdm_engine_t *e, tdm_error_t *err) {
    TDM_CHECK(e->started > e->finished);
    turn_t *t = turn_of(e, e->finished++);
    tdm_result_t *r = t->result;
    tdm_status_t st = t->is_idle ? TDM_OK : close_turn(e, t, err);
    /* Of two under way the second begins where the first ends. */
    r->start_ns = TDM_MAX(r->start_ns, e->end_ns);
    r->end_ns = tdm_clock_now_ns();
    if (e->config.depth > 1 && !e->config.ops->finish) r->end_ns = t->end_ns;
    e->end_ns = r->end_ns;
    return st;
}
