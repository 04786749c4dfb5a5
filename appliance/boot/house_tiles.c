/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/boot/house_private.h"

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "appliance/base/log.h"
#include "appliance/base/size.h"
#include "appliance/profile/file.h"
#include "appliance/profile/profile.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#define TOUCHED_MAX (UINT64_C(256) << 20) /* of the scheduler's tables, at start */

/* --- api tiles --------------------------------------------------------- */

static void api_config(tdm_house_t *h, uint32_t k, tdm_api_config_t *a, tdm_api_wires_t *w) {
    const tdm_config_t *c = h->config;
    tdm_api_config_default(a);
    a->api_idx = (uint16_t)k;
    a->request_max = (uint32_t)c->api_requests;
    a->context_max = h->sizing.context_max;
    a->output_default = (uint32_t)c->api_output_default;
    a->id_slab_sz = c->api_prompt_mib << 20;
    a->body_max = c->door_body_bytes;
    a->json_sz = c->api_json_mib << 20;
    a->model_name_cnt = 1;
    a->model_name[0] = h->model_name;
    a->version = h->version;
    a->chat_template = c->model_chat_template;
    a->class_cnt = TDM_SLO_CLASS_MAX;
    a->slo_from = c->api_slo_fields;
    a->may_hold = (uint32_t)c->api_warm_start;
    a->end_cnt = tdm_model_eos(h->model, &a->end_id);
    a->wall_offset_ns = tdm_clock_wall_s() * TDM_NS_PER_S - tdm_clock_now_ns();
    a->loaded_s = h->loaded_s;
    (void)!getrandom(&a->seed, sizeof a->seed, 0);
    *w = (tdm_api_wires_t){
        .arrivals = &h->wires.arrivals[k],
        .hangups = &h->wires.hangups[k],
        .events = &h->wires.events[k],
        .requests = &h->wires.requests,
        .controls = &h->wires.controls,
        .door_cnt = h->wires.door_cnt,
        .tokenizer = h->tokenizer,
        .scratch = h->scratch[k],
        .auth = &h->auth,
        .promises = &h->promises,
        .vitals = &h->vitals,
        .block = h->wires.block[TDM_BLOCK_API + k],
        .flight = tdm_house_flight_ring(h, 1u + k),
    };
    for (uint32_t d = 0; d < h->wires.door_cnt; d++)
        w->door[d] = (tdm_api_door_t){.egress = &h->wires.egress[d],
                                      .slot_cnt = (uint32_t)c->door_exchanges};
}

/* --- scheduler --------------------------------------------------------- */

static void sched_config(tdm_house_t *h, tdm_sched_sizes_t *sizes, tdm_sched_live_t *live,
                         tdm_sched_tile_wires_t *w) {
    const tdm_config_t *c = h->config;
    *sizes = (tdm_sched_sizes_t){
        .seq_max = h->sizing.seq_max,
        .waiting_max = (uint32_t)c->sched_waiting,
        .page_cnt = h->sizing.kv_page_cnt,
        .context_max = h->sizing.context_max,
        .vocab = tdm_model_shape(h->model)->vocab,
        .api_cnt = h->wires.api_cnt,
        .request_max = (uint32_t)c->api_requests,
        .depth = (uint32_t)c->sched_depth,
        .has_cache = (uint32_t)c->sched_prefix_cache,
    };
    (void)!getrandom(sizes->cache_key, sizeof sizes->cache_key, 0);
    tdm_live_make(c, live);
    tdm_profile_rates_t rates = h->sizing.backend == TDM_EXEC_BACKEND_CPU
                                    ? tdm_profile_cpu_rates(h->sizing.sm_cnt)
                                    : tdm_profile_gpu_rates(h->machine.device.sm_cnt);
    tdm_profile_guess(tdm_model_shape(h->model), &rates, &live->profile);
    *w = (tdm_sched_tile_wires_t){
        .requests = &h->wires.requests,
        .controls = &h->wires.controls,
        .life = &h->life,
        .plans = h->channel.plans,
        .results = h->channel.results,
        .exec_bell = &h->channel.exec_bell,
        .block = h->wires.block[TDM_BLOCK_SCHED],
        .flight = tdm_house_flight_ring(h, 0),
        .board = h->sizing.backend == TDM_EXEC_BACKEND_CPU ? NULL : &h->channel.head->board,
    };
    for (uint32_t k = 0; k < h->wires.api_cnt; k++) w->events[k] = &h->wires.events[k];
    for (uint32_t i = 0; i < TDM_CHANNEL_DEPTH; i++) {
        w->plan[i] = h->channel.plan[i];
        w->result[i] = h->channel.result[i];
    }
}

/* sched_profile reads the measured table, where one is named; the guess in
   live fills what it lacks. */
static tdm_status_t sched_profile(tdm_house_t *h, tdm_sched_live_t *live, tdm_error_t *err) {
    const char *path = h->config->sched_profile;
    tdm_profile_set_t set = {0};
    char of[sizeof set.model];
    if (path[0] == 0) return TDM_OK;
    h->profile = malloc(sizeof *h->profile);
    if (!h->profile) return tdm_error_set(err, TDM_ERR_NOMEM, "%s: no memory", path);
    const char *device = tdm_sizing_device(&h->sizing, &h->machine);
    tdm_sizing_profile_name(h->config, &h->sizing, h->model_name, of, sizeof of);
    tdm_status_t st = tdm_profile_read(path, of, device[0] ? device : NULL, &set, err);
    if (st == TDM_OK) st = tdm_profile_build(&set, &live->profile, h->profile, err);
    live->profile.table = h->profile;
    live->profile.is_measured = !set.is_model;
    if (st == TDM_OK)
        tdm_log(TDM_LOG_INFO, "sched", "profile of %s, build %s, %u W, %u points%s", set.device,
                set.build, set.power_w, set.point_cnt, set.is_model ? ", a model" : "");
    tdm_profile_set_free(&set);
    return st;
}

/* --- polls, as boot/tile.h wants them ---------------------------------- */

static uint32_t poll_net(void *ctx, int64_t now_ns) {
    return tdm_net_tile_poll(ctx, now_ns);
}
static int64_t next_net(void *ctx, int64_t now_ns) {
    (void)now_ns;
    return tdm_net_tile_next_ns(ctx);
}
static uint32_t poll_api(void *ctx, int64_t now_ns) {
    return tdm_api_tile_poll(ctx, now_ns);
}
static int64_t next_api(void *ctx, int64_t now_ns) {
    return tdm_api_tile_next_ns(ctx, now_ns);
}
static uint32_t poll_sched(void *ctx, int64_t now_ns) {
    return tdm_sched_tile_poll(ctx, now_ns);
}
static int64_t next_sched(void *ctx, int64_t now_ns) {
    (void)now_ns;
    return tdm_sched_tile_next_ns(ctx);
}

/* --- all of them ------------------------------------------------------- */

/* What each tile needs, filled before anything is allocated. */
typedef struct plans {
    tdm_sched_sizes_t sizes;
    tdm_sched_live_t live;
    tdm_sched_tile_wires_t sched;
    tdm_api_config_t api[TDM_API_TILE_MAX];
    tdm_api_wires_t api_wires[TDM_API_TILE_MAX];
    tdm_net_tile_config_t net;
} plans_t;

static tdm_status_t open_tables(tdm_house_t *h, const plans_t *p, tdm_error_t *err) {
    uint64_t sched_sz = tdm_sched_tile_footprint(&p->sizes), sz = 0;
    if (sched_sz == 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "the scheduler's sizes are out of range");
    sz += tdm_size_align(sched_sz, 4096);
    for (uint32_t k = 0; k < h->wires.api_cnt; k++) {
        uint64_t api_sz = tdm_api_tile_footprint(&p->api[k], &p->api_wires[k]);
        if (api_sz == 0) return tdm_error_set(err, TDM_ERR_INVAL, "api.* is out of range");
        sz += tdm_size_align(api_sz, 4096);
    }
    if (h->port) {
        uint64_t net_sz = tdm_net_tile_footprint(&p->net);
        if (net_sz == 0)
            return tdm_error_set(err, TDM_ERR_INVAL, "door.* or quic.* is out of range");
        sz += tdm_size_align(net_sz, 4096);
    }
    return tdm_arena_open(&h->tables, TDM_ARENA_PLAIN, sz, err);
}

static tdm_status_t make_tiles(tdm_house_t *h, const plans_t *p, tdm_error_t *err) {
    tdm_arena_t *a = &h->tables;
    void *mem = tdm_arena_take(a, tdm_sched_tile_footprint(&p->sizes), 4096);
    /* Its decisions walk a few lines of many pages: fewer translations. */
    (void)madvise(mem, tdm_sched_tile_footprint(&p->sizes), MADV_HUGEPAGE);
    /* Its pages are there before a request; of a pool of millions of KV pages, which
       an executor may yet refuse, the first. */
    memset(mem, 0, TDM_MIN(tdm_sched_tile_footprint(&p->sizes), TOUCHED_MAX));
    tdm_status_t st = tdm_sched_tile_create(mem, &p->sizes, &p->live, &p->sched, &h->sched, err);
    if (st != TDM_OK) return st;
    h->sched_thread = (tdm_tile_t){.name = "sched",
                                   .ctx = h->sched,
                                   .poll = poll_sched,
                                   .next_ns = next_sched,
                                   .block = h->wires.block[TDM_BLOCK_SCHED],
                                   .label = TDM_LABEL_TILE_sched};
    for (uint32_t k = 0; k < h->wires.api_cnt; k++) {
        mem = tdm_arena_take(a, tdm_api_tile_footprint(&p->api[k], &p->api_wires[k]), 4096);
        st = tdm_api_tile_init(mem, &p->api[k], &p->api_wires[k], &h->api[k], err);
        if (st != TDM_OK) return st;
        h->api_thread[k] = (tdm_tile_t){.name = "api",
                                        .ctx = h->api[k],
                                        .poll = poll_api,
                                        .next_ns = next_api,
                                        .block = h->wires.block[TDM_BLOCK_API + k],
                                        .label = TDM_LABEL_TILE_api};
    }
    if (!h->port) return TDM_OK;
    mem = tdm_arena_take(a, tdm_net_tile_footprint(&p->net), 4096);
    st = tdm_net_tile_create(mem, &p->net, h->start_ns, &h->net, err);
    if (st != TDM_OK) return st;
    h->net_thread = (tdm_tile_t){.name = "net",
                                 .ctx = h->net,
                                 .poll = poll_net,
                                 .next_ns = next_net,
                                 .block = h->wires.block[TDM_BLOCK_NET],
                                 .label = TDM_LABEL_TILE_net};
    tdm_house_say_port(h);
    return TDM_OK;
}

/* V2: the words of a promise are there before their number is. */
void tdm_house_promise(tdm_house_t *h, const tdm_sched_live_t *live) {
    tdm_block_t *b = h->wires.block[TDM_BLOCK_MGMT];
    tdm_api_class_t promise[TDM_SLO_CLASS_MAX];
    tdm_live_promises(live, promise);
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++) {
        uint32_t ttft = tdm_series2(TDM_METRIC_slo_target_seconds, k, TDM_LABEL_TARGET_ttft);
        uint32_t tpot = tdm_series2(TDM_METRIC_slo_target_seconds, k, TDM_LABEL_TARGET_tpot);
        tdm_gauge_set(b, TDM_METRIC_slo_target_seconds, ttft, (uint64_t)promise[k].ttft_ns);
        tdm_gauge_set(b, TDM_METRIC_slo_target_seconds, tpot, (uint64_t)promise[k].tpot_ns);
        tdm_store_relaxed(&h->promises.ttft_ns[k], promise[k].ttft_ns);
        tdm_store_relaxed(&h->promises.tpot_ns[k], promise[k].tpot_ns);
    }
    tdm_store_release(&h->promises.cnt, tdm_load_relaxed(&h->promises.cnt) + 1u);
}

/* fit_promises makes every promise at start a bucket bound.  One that a
   reload brings is judged as exactly, but falls between two bounds. */
static tdm_status_t fit_promises(const tdm_sched_live_t *live, tdm_error_t *err) {
    tdm_status_t st = TDM_OK;
    for (uint32_t k = 0; st == TDM_OK && k < TDM_SLO_CLASS_MAX; k++) {
        st = tdm_bounds_fit(TDM_METRIC_ttft_seconds, live->class_of[k].ttft_ns);
        if (st == TDM_OK) st = tdm_bounds_fit(TDM_METRIC_itl_seconds, live->class_of[k].gap_ns);
    }
    if (st == TDM_OK) return st;
    return tdm_error_set(err, st, "the promises of the classes are too many to be bucket bounds");
}

tdm_status_t tdm_house_open_tiles(tdm_house_t *h, tdm_error_t *err) {
    tdm_status_t st = TDM_OK;
    plans_t *p = calloc(1, sizeof *p);
    if (!p) return tdm_error_set(err, TDM_ERR_NOMEM, "no memory to start");
    if (h->config->port_kind != TDM_HOUSE_PORT_NONE) st = tdm_house_open_net(h, &p->net, err);
    for (uint32_t k = 0; st == TDM_OK && k < h->wires.api_cnt; k++) {
        st = tdm_encode_scratch_create(h->tokenizer, (uint32_t)h->config->door_body_bytes,
                                       &h->scratch[k], err);
        api_config(h, k, &p->api[k], &p->api_wires[k]);
    }
    sched_config(h, &p->sizes, &p->live, &p->sched);
    if (st == TDM_OK) st = sched_profile(h, &p->live, err);
    if (st == TDM_OK) st = fit_promises(&p->live, err);
    if (st == TDM_OK) tdm_house_promise(h, &p->live);
    h->live = p->live;
    if (st == TDM_OK) st = open_tables(h, p, err);
    if (st == TDM_OK) st = make_tiles(h, p, err);
    tdm_arena_seal(&h->tables);
    free(p);
    return st;
}

/* The management port goes on listening: whoever watches must see the
   drain, and a new request hears "draining" and when to come again. */
void tdm_house_drain_tiles(tdm_house_t *h) {
    tdm_sched_tile_drain_set(h->sched, 1);
    if (h->net) tdm_net_tile_drain(h->net);
}

void tdm_house_close_tiles(tdm_house_t *h) {
    tdm_house_close_net(h);
    for (uint32_t k = 0; k < h->wires.api_cnt; k++) tdm_encode_scratch_destroy(h->scratch[k]);
    tdm_arena_close(&h->tables);
    free(h->profile);
}
