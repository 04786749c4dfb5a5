/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/api/tile_private.h"

#include "appliance/base/carve.h"
#include "appliance/base/clock.h"
#include "appliance/base/size.h"

#include <string.h>

/* What a waiting pipe or lane costs at most: its reader rings no bell. */
#define RETRY_NS (1 * TDM_NS_PER_MS)

/* Of the region for bodies' values: what a prompt of some 40,000 ids takes. */
#define JSON_TOUCHED (UINT64_C(2) << 20)

/* --- memory ----------------------------------------------------------- */

void tdm_api_config_default(tdm_api_config_t *config) {
    *config = (tdm_api_config_t){
        .class_cnt = 1,
        .model_name_cnt = 1,
        .request_max = 1024,
        .context_max = 32768,
        .id_slab_sz = 64u << 20,
        .body_max = 1u << 20,
        .json_sz = 32u << 20,
        .json_depth_max = 32,
        .json_key_max = 64,
        .arrival_batch = 4,
        .event_batch = 256,
        .retry_after_ms = 1000,
        .stall_max_ns = 10 * TDM_NS_PER_S,
        .version = "0.0.0",
        .chat_template = "auto",
        .model_name = {"tandem"},
    };
}

static int is_config_good(const tdm_api_config_t *c, const tdm_api_wires_t *w) {
    if (c->api_idx >= TDM_API_TILE_MAX || c->class_cnt < 1 || c->class_cnt > TDM_SLO_CLASS_MAX)
        return 0;
    if (c->class_default >= c->class_cnt || c->model_name_cnt < 1) return 0;
    if (c->model_name_cnt > TDM_API_MODEL_NAME_MAX) return 0;
    for (uint32_t i = 0; i < c->model_name_cnt; i++) {
        const char *name = c->model_name[i];
        if (!name || !name[0] || strnlen(name, TDM_API_MODEL_NAME_SZ) == TDM_API_MODEL_NAME_SZ)
            return 0;
    }
    if (c->request_max < 1 || c->request_max > 65536) return 0;
    if (c->context_max < 2 || c->context_max > TDM_CONTEXT_MAX) return 0;
    if (c->id_slab_sz < 4 * (uint64_t)c->context_max || c->id_slab_sz > UINT64_C(1) << 40) return 0;
    if (c->json_depth_max < 4 || c->json_depth_max > TDM_JSON_DEPTH_MAX) return 0;
    if (c->json_sz < 4096 || c->json_sz > UINT64_C(1) << 40) return 0;
    if (c->arrival_batch < 1 || c->event_batch < 1 || !c->version || !c->chat_template) return 0;
    if (c->end_cnt > TDM_END_ID_MAX || (c->end_cnt > 0 && !c->end_id)) return 0;
    if (w->door_cnt < 1 || w->door_cnt > TDM_DOOR_MAX) return 0;
    for (uint32_t d = 0; d < w->door_cnt; d++)
        if (w->door[d].slot_cnt < 1 || w->door[d].slot_cnt > 1u << 20) return 0;
    return 1;
}

static uint32_t chunks_of(const tdm_api_config_t *c) {
    return (uint32_t)tdm_ceil_div(c->id_slab_sz, 4 * TDM_SLAB_CHUNK);
}

static uint32_t calls_of(const tdm_api_wires_t *w) {
    uint32_t cnt = 0;
    for (uint32_t d = 0; d < w->door_cnt; d++) cnt += w->door[d].slot_cnt;
    return cnt;
}

static tdm_queue_t queue_of(tdm_carve_t *m, uint32_t max) {
    return (tdm_queue_t){.item = tdm_carve_take(m, max, 4), .max = max};
}

typedef struct layout {
    tdm_call_t *call;
    tdm_slot_t *slot;
    tdm_queue_t free_slots;
    tdm_queue_t ready;
    tdm_queue_t egress;
    int32_t *slab;
    uint64_t *slab_used;
    int32_t *prompt;
    uint8_t *json;
} layout_t;

static layout_t lay_out(tdm_carve_t *m, const tdm_api_config_t *c, const tdm_api_wires_t *w) {
    uint32_t chunk_cnt = chunks_of(c), call_cnt = calls_of(w);
    layout_t l;
    (void)tdm_carve_take(m, 1, sizeof(tdm_api_tile_t));
    l.call = tdm_carve_take(m, call_cnt, sizeof(tdm_call_t));
    l.slot = tdm_carve_take(m, c->request_max, sizeof(tdm_slot_t));
    l.free_slots = queue_of(m, c->request_max);
    l.ready = queue_of(m, c->request_max);
    l.egress = queue_of(m, call_cnt);
    l.slab = tdm_carve_take(m, (uint64_t)chunk_cnt * TDM_SLAB_CHUNK, 4);
    l.slab_used = tdm_carve_take(m, ((uint64_t)chunk_cnt + 63) / 64, 8);
    l.prompt = tdm_carve_take(m, c->context_max, 4);
    l.json = tdm_carve_take(m, 1, c->json_sz);
    return l;
}

uint64_t tdm_api_tile_footprint(const tdm_api_config_t *config, const tdm_api_wires_t *wires) {
    if (!is_config_good(config, wires)) return 0;
    tdm_carve_t m = {0};
    (void)lay_out(&m, config, wires);
    return tdm_carve_sz(&m);
}

static void fill_tables(tdm_api_tile_t *t, const layout_t *l) {
    const tdm_api_config_t *c = &t->config;
    t->call = l->call;
    t->slot = l->slot;
    t->free_slots = l->free_slots;
    t->ready = l->ready;
    t->egress = l->egress;
    t->call_cnt = calls_of(&t->wires);
    tdm_slab_init(&t->slab, l->slab, l->slab_used, chunks_of(c));
    for (uint32_t d = 1; d < t->wires.door_cnt; d++)
        t->call_base[d] = t->call_base[d - 1] + t->wires.door[d - 1].slot_cnt;
    for (uint32_t i = 0; i < t->call_cnt; i++) t->call[i].slot = TDM_NONE;
    for (uint32_t i = 0; i < c->request_max; i++) {
        t->slot[i].request.handle = (tdm_handle_t){.slot = i, .generation = 1};
        t->slot[i].call = TDM_NONE;
        tdm_queue_push(&t->free_slots, i);
    }
    t->json.region = l->json;
    t->json.region_sz = c->json_sz;
    t->json.limits = (tdm_json_limits_t){.depth_max = c->json_depth_max,
                                         .key_max = c->json_key_max,
                                         .value_max = 2 * c->context_max + 4096};
}

tdm_status_t tdm_api_tile_init(void *mem, const tdm_api_config_t *config,
                               const tdm_api_wires_t *wires, tdm_api_tile_t **out,
                               tdm_error_t *err) {
    if (!is_config_good(config, wires))
        return tdm_error_set(err, TDM_ERR_INVAL, "api tile: a bound is out of range");
    if (!wires->arrivals || !wires->hangups || !wires->events || !wires->requests ||
        !wires->controls || !wires->tokenizer || !wires->scratch || !wires->vitals || !wires->block)
        return tdm_error_set(err, TDM_ERR_INVAL, "api tile: a wire is missing");
    if (wires->hangups->lane_cnt < wires->door_cnt)
        return tdm_error_set(err, TDM_ERR_INVAL, "api tile: a door has no hang-up lane");
    tdm_chat_kind_t chat;
    tdm_status_t st = tdm_prompt_chat_kind(config->chat_template, wires->tokenizer, &chat, err);
    if (st != TDM_OK) return st;
    tdm_carve_t m = {.base = mem};
    layout_t l = lay_out(&m, config, wires);
    tdm_api_tile_t *t = mem;
    /* Every page that requests walk through in turn is there before the first. */
    memset(mem, 0, (uint64_t)(l.json - (uint8_t *)mem) + TDM_MIN(config->json_sz, JSON_TOUCHED));
    t->config = *config;
    t->wires = *wires;
    t->rng.state = config->seed;
    fill_tables(t, &l);
    t->prompt.tokenizer = wires->tokenizer;
    t->prompt.scratch = wires->scratch;
    t->prompt.json = &t->json;
    t->prompt.chat = chat;
    t->prompt.ids = l.prompt;
    t->prompt.id_max = config->context_max;
    t->prompt.output_default = config->output_default;
    t->prompt.vocab = tdm_tokenizer_vocab(wires->tokenizer);
    tdm_prompt_end_ids(&t->prompt, config->end_id, config->end_cnt);
    tdm_json_install();
    *out = t;
    return TDM_OK;
}

/* --- the turn --------------------------------------------------------- */

/* take_promises: a request is judged by the promises at its submit. */
static void take_promises(tdm_api_tile_t *t) {
    const tdm_api_promises_t *p = t->wires.promises;
    if (!p) return;
    uint32_t cnt = tdm_load_acquire(&p->cnt); /* V2: pairs with boot's release */
    if (cnt == t->promise_cnt) return;
    t->promise_cnt = cnt;
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++)
        t->config.promise[k] = (tdm_api_class_t){.ttft_ns = tdm_load_relaxed(&p->ttft_ns[k]),
                                                 .tpot_ns = tdm_load_relaxed(&p->tpot_ns[k])};
}

/* take_end cancels what still runs, once: each END comes back to a client
   that is still there, and is told as draining. */
static void take_end(tdm_api_tile_t *t) {
    if (t->is_over || !tdm_load_relaxed(&t->wires.vitals->is_over)) return;
    t->is_over = 1;
    for (uint32_t i = 0; i < t->config.request_max; i++) {
        tdm_slot_t *s = &t->slot[i];
        if (s->state == TDM_SLOT_SUBMITTED || s->state == TDM_SLOT_RUNNING)
            tdm_slot_control(t, s, TDM_CONTROL_CANCEL);
    }
}

/* tell_room: what prompts and JSON take of what there is for them. */
static void tell_room(tdm_api_tile_t *t) {
    uint64_t prompt_sz = (uint64_t)t->slab.used_cnt * TDM_SLAB_CHUNK * 4;
    if (prompt_sz == t->prompt_sz && t->json.high == t->json_high) return;
    t->prompt_sz = prompt_sz;
    t->json_high = t->json.high;
    tdm_block_begin(t->wires.block);
    tdm_gauge_set(t->wires.block, TDM_METRIC_api_prompt_bytes, 0, t->prompt_sz);
    tdm_gauge_set(t->wires.block, TDM_METRIC_api_json_bytes, 0, t->json_high);
    tdm_block_end(t->wires.block);
}

/* Events first: they give slots back and feed streams that are under way;
   then those who left, then newcomers. */
uint32_t tdm_api_tile_poll(tdm_api_tile_t *t, int64_t now_ns) {
    t->now_ns = now_ns;
    t->has_progress = 0;
    take_promises(t);
    take_end(t);
    uint32_t work = tdm_poll_events(t);
    work += tdm_poll_hangups(t);
    work += tdm_poll_arrivals(t);
    work += tdm_poll_ready(t);
    work += tdm_poll_egress(t);
    if (t->has_progress) tdm_store_relaxed(&t->wires.vitals->progress_ns, now_ns);
    tell_room(t);
    return work;
}

int64_t tdm_api_tile_next_ns(const tdm_api_tile_t *t, int64_t now_ns) {
    if (t->ready.cnt == 0 && t->egress.cnt == 0) return TDM_TIME_NEVER;
    return now_ns + RETRY_NS;
}

const tdm_api_stats_t *tdm_api_tile_stats(const tdm_api_tile_t *t) {
    return &t->stats;
}

uint32_t tdm_api_tile_open_cnt(const tdm_api_tile_t *t) {
    return t->open_call_cnt + (t->config.request_max - t->free_slots.cnt);
}
