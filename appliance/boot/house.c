/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/boot/house.h"

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "appliance/base/log.h"
#include "appliance/base/sum.h"
#include "appliance/boot/house_private.h"
#include "appliance/sizing/cpus.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

/* A tile that begins no turn for so long is stuck. */
#define TURN_MAX_NS (10 * TDM_NS_PER_S)
/* Taking everything apart after a drain takes less. */
#define STOP_MS 10000u
/* Time for those whose answers a drain ends to be told so. */
#define FAREWELL_NS TDM_NS_PER_S

static tdm_status_t open_model(tdm_house_t *h, tdm_error_t *err) {
    tdm_model_options_t options = {.flags = TDM_MODEL_SHAPE_ONLY};
    tdm_status_t st = tdm_model_open(h->config->model_path, &options, &h->model, err);
    if (st == TDM_OK) st = tdm_tokenizer_open(h->model, &h->tokenizer, err);
    if (st != TDM_OK) return st;
    h->loaded_s = tdm_clock_wall_s();
    const char *name = h->config->model_name;
    (void)snprintf(h->model_name, sizeof h->model_name, "%s",
                   name[0] ? name : tdm_model_name(h->model));
    tdm_machine_read(&h->machine);
    tdm_machine_ask(h->config, &h->machine);
    st = tdm_sizing_make(h->config, tdm_model_shape(h->model), &h->machine, &h->sizing, err);
    if (st != TDM_OK) return st;
    if (h->config->exec_backend != TDM_EXEC_BACKEND_CPU) {
        const tdm_device_t *d = &h->machine.device;
        tdm_log(TDM_LOG_INFO, "boot", "GPU: %s", d->is_there ? d->name : d->why);
    }
    tdm_log(TDM_LOG_INFO, "boot", "model %s, tokenizer %s, context %u, %u KV pages (%llu MiB)",
            h->model_name, tdm_tokenizer_name(h->tokenizer), h->sizing.context_max,
            h->sizing.kv_page_cnt,
            (unsigned long long)((h->sizing.kv_page_cnt * h->sizing.kv_page_bytes) >> 20));
    return TDM_OK;
}

static tdm_status_t open_keys(tdm_house_t *h, tdm_error_t *err) {
    tdm_auth_init(&h->auth);
    if (h->config->api_warm_start && h->config->api_keys_file[0])
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "api.warm_start shows what KV pages held before to whoever asks: not "
                             "together with api.keys_file");
    if (h->config->api_warm_start)
        tdm_log(TDM_LOG_WARN, "boot", "api.warm_start: a bench, not a service");
    if (h->config->api_keys_file[0]) return tdm_auth_load(&h->auth, h->config->api_keys_file, err);
    tdm_log(TDM_LOG_WARN, "boot",
            "no api.keys_file: open to this host and the TAP subnet, closed to all others");
    return TDM_OK;
}

static tdm_status_t open_channel(tdm_house_t *h, tdm_error_t *err) {
    const tdm_config_t *c = h->config;
    tdm_exec_spec_t spec;
    tdm_sizing_spec(c, &h->sizing, &spec);
    tdm_arena_kind_t kind = c->exec_huge_plans ? TDM_ARENA_SHARED_HUGE : TDM_ARENA_SHARED;
    tdm_status_t st = tdm_channel_open(&h->channel, kind, &spec, err);
    if (st != TDM_OK) return st;
    st = tdm_supervisor_program(h->exec_program, sizeof h->exec_program, err);
    if (st != TDM_OK) return st;
    tdm_supervisor_config_t sup = {
        .program = c->exec_mode == 0 ? h->exec_program : NULL,
        .thread_main = tdm_house_executor_thread,
        .restart_max = (uint32_t)c->exec_restarts,
        .restart_window_ns = 600 * TDM_NS_PER_S,
        .pause_ns = 50 * TDM_NS_PER_MS,
        .load_stall_ns = (int64_t)c->exec_load_stall_ms * TDM_NS_PER_MS,
    };
    tdm_supervisor_init(&h->supervisor, &sup, &h->channel, &h->life);
    return TDM_OK;
}

static tdm_status_t open_wires(tdm_house_t *h, tdm_error_t *err) {
    const tdm_config_t *c = h->config;
    tdm_wires_config_t wires = {
        .door_cnt = c->port_kind == TDM_HOUSE_PORT_NONE ? 1 : 2,
        .api_cnt = (uint32_t)c->tile_api,
        .exchange_max = (uint32_t)c->door_exchanges,
        .request_max = (uint32_t)c->api_requests,
        .request_depth = (uint32_t)c->sched_ring,
        .kind = c->exec_huge_plans ? TDM_ARENA_HUGE : TDM_ARENA_PLAIN,
        .sched_bell = &h->channel.sched_bell,
    };
    h->vitals.refusal = TDM_REFUSE_starting;
    return tdm_wires_open(&h->wires, &wires, err);
}

/* build_sum tells what serves: this program, and the executor's where it is one
   of its own. */
static void build_sum(tdm_house_t *h) {
    uint64_t sum = tdm_sum_file(TDM_SUM_FIRST, "/proc/self/exe");
    if (h->config->exec_mode == 0) sum = tdm_sum_file(sum, h->exec_program);
    (void)snprintf(h->build, sizeof h->build, "%016llx", (unsigned long long)sum);
}

static void facts(tdm_house_t *h) {
    h->pages.model_name = h->model_name;
    tdm_pages_fact(&h->pages, "version", h->version);
    build_sum(h);
    tdm_pages_fact(&h->pages, "build", h->build);
    tdm_pages_fact(&h->pages, "model", h->model_name);
    tdm_pages_fact(&h->pages, "backend",
                   h->sizing.backend == TDM_EXEC_BACKEND_CPU ? "cpu" : "cuda");
    tdm_pages_fact(&h->pages, "device",
                   h->sizing.backend == TDM_EXEC_BACKEND_CPU ? "CPU" : h->machine.device.name);
    tdm_pages_fact(&h->pages, "poll", h->sizing.poll_mode == TDM_POLL_BUSY ? "busy" : "adaptive");
    static const char *const port[] = {"tap", "none", "af_packet", "af_xdp", "pci"};
    tdm_pages_fact(&h->pages, "port", port[h->config->port_kind]);
    tdm_block_t *b = h->wires.block[TDM_BLOCK_MGMT];
    tdm_gauge_set(b, TDM_METRIC_start_time_seconds, 0, (uint64_t)tdm_clock_wall_s());
    tdm_gauge_set(b, TDM_METRIC_arena_bytes, TDM_LABEL_ARENA_tables,
                  h->tables.sz + h->wires.arena.sz);
    tdm_gauge_set(b, TDM_METRIC_arena_page_bytes, TDM_LABEL_ARENA_tables,
                  TDM_MIN(h->tables.page_sz, h->wires.arena.page_sz));
    tdm_gauge_set(b, TDM_METRIC_arena_page_bytes, TDM_LABEL_ARENA_executor,
                  h->channel.arena.page_sz);
}

static void wake(void *ctx) {
    tdm_house_t *h = ctx;
    tdm_doorbell_ring(&h->wires.door_bell[h->wires.door_cnt - 1]);
}

/* open_console: without its socket the appliance serves all the same. */
static tdm_status_t open_console(tdm_house_t *h, tdm_error_t *err) {
    h->console.wake = wake;
    h->console.wake_ctx = h;
    h->console.block = h->wires.block[TDM_BLOCK_PAGE];
    return tdm_console_open(&h->console, h->config, &h->auth, err);
}

static void open_socket(tdm_house_t *h) {
    tdm_error_t why = {0};
    const char *path = h->config->control_socket;
    if (path[0] && tdm_http1_unix_open(h->http1, path, &why) != TDM_OK)
        tdm_log(TDM_LOG_WARN, "control", "no control socket: %s", why.text);
}

static tdm_status_t open_http1(tdm_house_t *h, tdm_error_t *err) {
    const tdm_config_t *c = h->config;
    uint32_t door = h->wires.door_cnt - 1;
    tdm_http1_config_t config;
    tdm_http1_config_default(&config);
    config.address = c->http_address;
    config.port = (uint16_t)c->http_port;
    config.hosts = c->http_hosts;
    config.door = (uint16_t)door;
    config.slot_cnt = (uint32_t)c->door_exchanges;
    config.conn_max = (uint32_t)c->http_connections;
    config.conn_per_address_max = (uint32_t)c->http_address_connections;
    config.pipe_sz = (uint32_t)c->door_reply_bytes;
    config.idle_s = (uint32_t)c->http_idle_s;
    config.body_max = c->door_body_bytes;
    config.body_total_max = c->door_body_bytes * 64;
    tdm_http1_wires_t wires = {
        .api_cnt = h->wires.api_cnt,
        .egress = &h->wires.egress[door],
        .block = h->wires.block[TDM_BLOCK_HTTP1],
        .poll_block = h->wires.block[TDM_BLOCK_MGMT],
        .page = tdm_pages_answer,
        .page_ctx = &h->pages,
    };
    for (uint32_t k = 0; k < h->wires.api_cnt; k++) {
        wires.arrivals[k] = &h->wires.arrivals[k];
        wires.hangups[k] = &h->wires.hangups[k];
    }
    tdm_status_t st =
        tdm_pages_open(&h->pages, &h->wires, c, &h->console, h->flight.mem, h->start_ns, err);
    if (st == TDM_OK) st = open_console(h, err);
    if (st != TDM_OK) return st;
    facts(h);
    st = tdm_http1_open(&config, &wires, &h->http1, err);
    if (st == TDM_OK)
        tdm_log(TDM_LOG_INFO, "http1", "http://%s:%u/v1", c->http_address,
                tdm_http1_port(h->http1));
    if (st == TDM_OK) open_socket(h);
    return st;
}

/* An iteration may always take sched.watchdog_ms, so pending
   work that did not move for twice that long does not wait for the executor,
   which is killed by then. */
int64_t tdm_house_progress_max_ns(const tdm_config_t *c) {
    return 2 * (int64_t)c->sched_watchdog_ms * TDM_NS_PER_MS;
}

static void heartbeat_set(tdm_house_t *h) {
    tdm_heartbeat_t *b = &h->mgmt.heartbeat;
    b->period_ns = h->notify.watchdog_ns / 4;
    b->turn_max_ns = TURN_MAX_NS;
    b->progress_max_ns = tdm_house_progress_max_ns(h->config);
    b->next_ns = tdm_clock_now_ns() + b->period_ns;
    tdm_heartbeat_watch(b, h->sched_thread.name, &h->sched_thread.account.begin_ns);
    for (uint32_t k = 0; k < h->wires.api_cnt; k++)
        tdm_heartbeat_watch(b, h->api_thread[k].name, &h->api_thread[k].account.begin_ns);
    if (h->net) tdm_heartbeat_watch(b, h->net_thread.name, &h->net_thread.account.begin_ns);
}

static void tile_set(tdm_house_t *h, tdm_tile_t *t, tdm_doorbell_t *bell, int extra_fd) {
    tdm_poller_init(&t->poller, h->sizing.poll_mode, bell, extra_fd, h->start_ns);
}

/* heard: all that this tile waits for rings its bell, so it need not look
   every 200 us while something is under way: that was 5,000 wake-ups a
   second for nothing.  Not the net tile: a device may take frames late,
   and an af_xdp socket in copy mode sends them when it is asked again. */
static void heard(tdm_tile_t *t) {
    t->poller.sleep_ns = t->poller.quiet_ns;
}

/* pin_tiles deals the processors of tile.cpus out, the net tile first; with
   fewer than tiles they are shared in turn. */
static tdm_status_t pin_tiles(tdm_house_t *h, tdm_error_t *err) {
    tdm_cpus_t cpus;
    tdm_status_t st = tdm_cpus_parse(h->config->tile_cpus, &cpus, err);
    if (st != TDM_OK || cpus.cnt == 0) return st;
    uint32_t at = 0;
    if (h->net) h->net_thread.pin = 1u + cpus.cpu[at++ % cpus.cnt];
    h->sched_thread.pin = 1u + cpus.cpu[at++ % cpus.cnt];
    for (uint32_t k = 0; k < h->wires.api_cnt; k++)
        h->api_thread[k].pin = 1u + cpus.cpu[at++ % cpus.cnt];
    return TDM_OK;
}

static tdm_status_t start_tiles(tdm_house_t *h, tdm_error_t *err) {
    tdm_status_t st = pin_tiles(h, err);
    if (st != TDM_OK) return st;
    tile_set(h, &h->sched_thread, &h->channel.sched_bell, -1);
    heard(&h->sched_thread);
    st = tdm_tile_start(&h->sched_thread, err);
    for (uint32_t k = 0; st == TDM_OK && k < h->wires.api_cnt; k++) {
        tile_set(h, &h->api_thread[k], &h->wires.api_bell[k], -1);
        heard(&h->api_thread[k]);
        st = tdm_tile_start(&h->api_thread[k], err);
    }
    if (st == TDM_OK && h->net) {
        int fd = tdm_port_rx_fd(h->port);
        tile_set(h, &h->net_thread, &h->wires.door_bell[0], fd);
        /* Without a descriptor nothing wakes a sleeper: it looks often. */
        if (fd < 0) h->net_thread.poller.quiet_ns = TDM_NS_PER_MS;
        st = tdm_tile_start(&h->net_thread, err);
    }
    return st;
}

/* keep_memory lets what is freed from now on stay with the process.  A page
   given back to the kernel is a fault for whoever needs it next, and an
   interrupt for every tile, whose memory it was too.  How much is in use at
   most is the configuration's to say; each of malloc's arenas keeps up to
   64 MiB beyond what is in use, of blocks up to 32 MiB (glibc's bound). */
static void keep_memory(void) {
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

tdm_status_t tdm_house_open(tdm_house_t *h, const tdm_config_t *config, tdm_change_read_fn *read,
                            void *read_ctx, const char *version, tdm_error_t *err) {
    memset(h, 0, sizeof *h);
    tdm_notify_open(&h->notify);
    tdm_change_init(&h->console.change, read, read_ctx, config, tdm_clock_wall_s());
    h->config = config;
    h->version = version;
    h->start_ns = tdm_clock_now_ns();
    h->channel.exec_bell.fd = h->channel.sched_bell.fd = h->flight.fd = -1;
    tdm_status_t st = open_model(h, err);
    if (st == TDM_OK) st = open_keys(h, err);
    if (st == TDM_OK) st = open_channel(h, err);
    if (st == TDM_OK) st = open_wires(h, err);
    if (st == TDM_OK) tdm_house_open_flight(h);
    if (st == TDM_OK) st = tdm_house_open_tiles(h, err);
    if (st == TDM_OK) tdm_house_tell(h);
    if (st == TDM_OK) st = open_http1(h, err);
    if (st == TDM_OK) st = start_tiles(h, err);
    if (st != TDM_OK) {
        tdm_house_close(h);
        return st;
    }
    h->mgmt = (tdm_mgmt_t){.wires = &h->wires,
                           .supervisor = &h->supervisor,
                           .sched = h->sched,
                           .http1 = h->http1,
                           .port = h->port,
                           .net = h->net,
                           .notify = &h->notify,
                           .audit = &h->console.audit,
                           .vitals = &h->vitals};
    keep_memory();
    heartbeat_set(h);
    h->mgmt_loop = (tdm_tile_t){.block = h->wires.block[TDM_BLOCK_MGMT],
                                .label = TDM_LABEL_TILE_mgmt,
                                .name = "mgmt",
                                .ctx = &h->mgmt,
                                .poll = tdm_mgmt_poll,
                                .next_ns = tdm_mgmt_next_ns};
    tdm_poller_init(&h->mgmt_loop.poller, TDM_POLL_ADAPTIVE,
                    &h->wires.door_bell[h->wires.door_cnt - 1], tdm_http1_fd(h->http1),
                    h->start_ns);
    heard(&h->mgmt_loop);
    tdm_log(TDM_LOG_INFO, "boot", "poll %s, %u cores: %u api tile%s, scheduler%s, %u SM threads",
            h->sizing.poll_mode == TDM_POLL_BUSY ? "busy" : "adaptive", h->machine.core_cnt,
            h->wires.api_cnt, h->wires.api_cnt > 1 ? "s" : "", h->net ? ", net tile" : "",
            h->sizing.sm_cnt);
    return TDM_OK;
}

void tdm_house_stop(tdm_house_t *h) {
    (void)tdm_add_relaxed(&h->stop, 1u);
    tdm_doorbell_ring(&h->wires.door_bell[h->wires.door_cnt - 1]);
}

static int is_drained(tdm_house_t *h) {
    if (tdm_http1_open_cnt(h->http1)) return 0;
    return !h->net || tdm_net_tile_exchange_cnt(h->net) == 0;
}

/* end_all has api tiles end what a drain was too short for. */
static void end_all(tdm_house_t *h) {
    tdm_store_relaxed(&h->vitals.is_over, 1u);
    for (uint32_t k = 0; k < h->wires.api_cnt; k++) tdm_doorbell_ring(&h->wires.api_bell[k]);
}

/* gone says why the executor does not come back. */
static tdm_status_t gone(const tdm_house_t *h, tdm_error_t *err) {
    const tdm_supervisor_t *s = &h->supervisor;
    if (s->window_deaths <= s->config.restart_max) /* it cannot load */
        return tdm_error_set(err, h->mgmt.was_ready ? TDM_ERR_CLOSED : TDM_ERR_INVAL, "%s",
                             s->last.text);
    return tdm_error_set(err, h->mgmt.was_ready ? TDM_ERR_CLOSED : TDM_ERR_INVAL,
                         "the executor ended %u times in ten minutes, exec.restarts is %u: %s",
                         s->window_deaths, s->config.restart_max, s->last.text);
}

tdm_status_t tdm_house_run(tdm_house_t *h, tdm_error_t *err) {
    int64_t give_up_ns = TDM_TIME_NEVER;
    for (;;) {
        int64_t now_ns = tdm_clock_now_ns();
        uint32_t stop = tdm_load_relaxed(&h->stop);
        if (stop && give_up_ns == TDM_TIME_NEVER) {
            give_up_ns = now_ns + (int64_t)h->config->sched_drain_ms * TDM_NS_PER_MS;
            h->mgmt.is_draining = 1;
            tdm_store_relaxed(&h->vitals.refusal, (uint32_t)TDM_REFUSE_draining);
            tdm_house_drain_tiles(h);
            tdm_notify_say(&h->notify, "STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=%llu",
                           (unsigned long long)(h->config->sched_drain_ms + STOP_MS) * 1000u);
            tdm_log(TDM_LOG_INFO, "boot", "draining, at most %llu ms",
                    (unsigned long long)h->config->sched_drain_ms);
        }
        tdm_house_change(h, now_ns);
        tdm_pages_remember(&h->pages, now_ns);
        if (stop > 1 || (stop && is_drained(h))) return TDM_OK;
        if (now_ns >= give_up_ns) {
            if (h->vitals.is_over) return TDM_OK;
            end_all(h);
            give_up_ns = now_ns + FAREWELL_NS;
        }
        if (tdm_mgmt_is_failed(&h->mgmt)) return gone(h, err);
        tdm_tile_account(&h->mgmt_loop, now_ns);
        h->mgmt_loop.account.was_busy = tdm_mgmt_poll(&h->mgmt, now_ns);
        tdm_poller_t *p = &h->mgmt_loop.poller;
        if (!tdm_poller_may_sleep(p, h->mgmt_loop.account.was_busy, now_ns)) continue;
        if (tdm_mgmt_poll(&h->mgmt, now_ns) || tdm_load_relaxed(&h->stop) != stop) {
            tdm_poller_stay(p);
            continue;
        }
        tdm_poller_sleep(p, tdm_mgmt_next_ns(&h->mgmt, now_ns), now_ns);
        h->mgmt_loop.account.has_slept = 1;
    }
}

void tdm_house_close(tdm_house_t *h) {
    tdm_tile_stop(&h->net_thread);
    if (h->net) tdm_net_tile_farewell(h->net, tdm_clock_now_ns());
    for (uint32_t k = 0; k < TDM_API_TILE_MAX; k++) tdm_tile_stop(&h->api_thread[k]);
    tdm_tile_stop(&h->sched_thread);
    if (h->supervisor.channel) tdm_supervisor_stop(&h->supervisor);
    if (h->http1) tdm_http1_close(h->http1);
    tdm_pages_close(&h->pages);
    tdm_console_close(&h->console);
    tdm_house_close_tiles(h);
    tdm_flight_close(&h->flight);
    tdm_wires_close(&h->wires);
    tdm_channel_close(&h->channel);
    tdm_tokenizer_close(h->tokenizer);
    tdm_model_close(h->model);
    tdm_notify_close(&h->notify);
}
