/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/boot/house_private.h"

#include "appliance/base/atomic.h"
#include "appliance/base/check.h"
#include "appliance/base/cidr.h"
#include "appliance/base/clock.h"
#include "appliance/base/log.h"
#include "appliance/base/size.h"
#include "appliance/profile/file.h"
#include "appliance/profile/profile.h"
#include "net/quic/cert.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#define NEIGHBOURS     256u
#define REPLIES_PER_S  1000u
#define SOLICITS_PER_S 50u
#define TOUCHED_MAX    (UINT64_C(256) << 20) /* of the scheduler's tables, at start */

/* address_of copies what stands before the slash, or all. */
static void address_of(const char *cidr, char *out, size_t out_sz) {
    (void)snprintf(out, out_sz, "%.*s", (int)strcspn(cidr, "/"), cidr);
}

/* --- certificate ----------------------------------------------------- */

static tdm_status_t open_certificate(tdm_house_t *h, tdm_error_t *err) {
    const tdm_config_t *c = h->config;
    if (c->quic_certificate[0]) {
        (void)snprintf(h->cert_file, sizeof h->cert_file, "%s", c->quic_certificate);
        (void)snprintf(h->key_file, sizeof h->key_file, "%s", c->quic_key);
    } else {
        if (mkdir(c->state_dir, 0755) != 0 && errno != EEXIST)
            return tdm_error_set(err, TDM_ERR_IO, "state.dir %s: %s", c->state_dir,
                                 strerror(errno));
        (void)snprintf(h->cert_file, sizeof h->cert_file, "%s/certificate.pem", c->state_dir);
        (void)snprintf(h->key_file, sizeof h->key_file, "%s/key.pem", c->state_dir);
    }
    char ipv4[32], ipv6[64];
    address_of(c->port_ipv4, ipv4, sizeof ipv4);
    address_of(c->port_ipv6, ipv6, sizeof ipv6);
    tdm_cert_config_t cert = {
        .cert_file = h->cert_file,
        .key_file = h->key_file,
        .name = {c->quic_host},
        .name_cnt = 1,
        .wall_s = tdm_clock_wall_s(),
    };
    if (ipv4[0]) cert.name[cert.name_cnt++] = ipv4;
    if (ipv6[0]) cert.name[cert.name_cnt++] = ipv6;
    int is_made = 0;
    tdm_status_t st = tdm_cert_ensure(&cert, &is_made, err);
    if (st == TDM_OK && is_made)
        tdm_log(TDM_LOG_INFO, "boot", "made a self-signed certificate: %s", h->cert_file);
    return st;
}

/* --- port and net tile ------------------------------------------------ */

static tdm_port_kind_t port_kind(const tdm_config_t *c) {
    switch (c->port_kind) {
    case TDM_HOUSE_PORT_AF_PACKET: return TDM_PORT_AF_PACKET;
    case TDM_HOUSE_PORT_AF_XDP: return TDM_PORT_AF_XDP;
    case TDM_HOUSE_PORT_PCI: return TDM_PORT_PCI;
    default: return TDM_PORT_TAP;
    }
}

/* open_exception makes the TAP of the kernel, with the data port's station
   address. */
static tdm_status_t open_exception(tdm_house_t *h, tdm_port_config_t port, tdm_error_t *err) {
    const tdm_config_t *c = h->config;
    if (c->port_exception[0] == 0) return TDM_OK;
    if (port.kind == TDM_PORT_TAP)
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "port.exception: a TAP port is the kernel's already");
    port.kind = TDM_PORT_TAP;
    port.rx_queues = 1;
    (void)snprintf(port.tap_name, sizeof port.tap_name, "%s", c->port_exception);
    (void)snprintf(port.tap_ipv4, sizeof port.tap_ipv4, "%s", c->port_exception_ipv4);
    port.tap_ipv6[0] = 0;
    tdm_port_mac(h->port, port.tap_mac);
    return tdm_port_open(&port, &h->exception, err);
}

static tdm_status_t open_port(tdm_house_t *h, tdm_error_t *err) {
    const tdm_config_t *c = h->config;
    uint32_t memory_mb = tdm_port_memory_mb((uint32_t)c->port_mbufs, (uint16_t)c->port_mtu_bytes);
    tdm_port_env_config_t env = {
        .memory_mb = c->port_exception[0] ? 2 * memory_mb : memory_mb,
        .pci = c->port_kind == TDM_HOUSE_PORT_PCI ? c->port_device : NULL,
        .is_no_huge = (uint8_t)c->port_no_huge,
        .drivers = c->port_drivers[0] ? c->port_drivers : NULL,
        .is_debug = c->log_level == TDM_LOG_DEBUG,
        .is_told = (uint8_t)c->port_telemetry,
    };
    tdm_status_t st = tdm_port_env_start(&env, err);
    if (st != TDM_OK) return st;
    h->has_env = 1;
    tdm_port_config_t port = {.kind = port_kind(c),
                              .mtu = (uint16_t)c->port_mtu_bytes,
                              .rx_desc = 512,
                              .tx_desc = 512,
                              .rx_queues = (uint16_t)c->port_rx_queues,
                              .mbuf_cnt = (uint32_t)c->port_mbufs};
    (void)snprintf(port.tap_name, sizeof port.tap_name, "%s", c->port_tap_name);
    (void)snprintf(port.tap_ipv4, sizeof port.tap_ipv4, "%s", c->port_tap_ipv4);
    (void)snprintf(port.tap_ipv6, sizeof port.tap_ipv6, "%s", c->port_tap_ipv6);
    (void)snprintf(port.device, sizeof port.device, "%s", c->port_device);
    st = tdm_port_open(&port, &h->port, err);
    return st == TDM_OK ? open_exception(h, port, err) : st;
}

static tdm_status_t prefix_check(const tdm_link_config_t *l, tdm_error_t *err) {
    if (l->has_ipv4 && l->ipv4_prefix == 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "port.ipv4: needs its /prefix on this port.kind");
    if (l->has_ipv6 && l->ipv6_prefix == 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "port.ipv6: needs its /prefix on this port.kind");
    return TDM_OK;
}

/* side_check: behind a TAP our address is another one of the subnet that
   the kernel's side, cidr, names; any other would be reached by nobody. */
static tdm_status_t side_check(const char *key, const char *cidr, int family, const uint8_t *own,
                               uint8_t *prefix, tdm_error_t *err) {
    uint8_t kernel[16] = {0};
    uint32_t bits = family == AF_INET ? 32 : 128, same = 0;
    tdm_status_t st = tdm_cidr_read("port", cidr, family, kernel, prefix, err);
    if (st != TDM_OK) return st;
    while (same < bits && !((kernel[same / 8] ^ own[same / 8]) >> (7 - same % 8) & 1)) same++;
    if (same >= *prefix && same < bits) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_INVAL, "%s: not another address of the kernel's side, %s",
                         key, cidr);
}

static tdm_status_t link_config(tdm_house_t *h, tdm_link_config_t *l, uint64_t seed,
                                tdm_error_t *err) {
    const tdm_config_t *c = h->config;
    int is_tap = c->port_kind == TDM_HOUSE_PORT_TAP;
    const char *net4 = is_tap ? c->port_tap_ipv4 : c->port_ipv4;
    const char *net6 = is_tap ? c->port_tap_ipv6 : c->port_ipv6;
    *l = (tdm_link_config_t){
        .mtu = (uint16_t)c->port_mtu_bytes,
        .vlan = (uint16_t)c->port_vlan,
        .udp_port = (uint16_t)c->port_udp,
        .has_ipv4 = net4[0] != 0,
        .has_ipv6 = net6[0] != 0,
        .neighbour_max = NEIGHBOURS,
        .reply_per_s = REPLIES_PER_S,
        .solicit_per_s = SOLICITS_PER_S,
        .seed = seed,
    };
    tdm_port_mac(h->port, l->mac);
    uint8_t none;
    tdm_status_t st =
        tdm_cidr_read("port.ipv4", c->port_ipv4, AF_INET, l->ipv4, &l->ipv4_prefix, err);
    if (st == TDM_OK)
        st = tdm_cidr_read("port.ipv6", c->port_ipv6, AF_INET6, l->ipv6, &l->ipv6_prefix, err);
    if (st == TDM_OK)
        st = tdm_cidr_read("port.gateway4", c->port_gateway4, AF_INET, l->gateway4, &none, err);
    if (st == TDM_OK)
        st = tdm_cidr_read("port.gateway6", c->port_gateway6, AF_INET6, l->gateway6, &none, err);
    if (st == TDM_OK && is_tap && l->has_ipv4)
        st = side_check("port.ipv4", net4, AF_INET, l->ipv4, &l->ipv4_prefix, err);
    if (st == TDM_OK && is_tap && l->has_ipv6)
        st = side_check("port.ipv6", net6, AF_INET6, l->ipv6, &l->ipv6_prefix, err);
    return st == TDM_OK ? prefix_check(l, err) : st;
}

static void quic_config(tdm_house_t *h, tdm_quic_config_t *q, uint64_t seed) {
    const tdm_config_t *c = h->config;
    uint64_t pool_sz = c->quic_pool_mib << 20;
    *q = (tdm_quic_config_t){
        .connection_max = (uint32_t)c->quic_connections,
        .stream_max = (uint32_t)c->quic_streams,
        .pool_sz = pool_sz,
        .connection_pool_sz =
            TDM_MIN(pool_sz / 4, (UINT64_C(256) + UINT64_C(32) * c->quic_streams) << 10),
        .datagram_max = (uint16_t)TDM_MIN(c->port_mtu_bytes - 48, (uint64_t)TDM_QUIC_DATAGRAM_MAX),
        .handshake_per_s = (uint32_t)c->quic_handshakes_per_s,
        .handshake_per_s_source = (uint32_t)c->quic_source_handshakes_per_s,
        .half_open_max = (uint32_t)c->quic_half_open,
        .is_retry_always = c->quic_retry == TDM_HOUSE_RETRY_ALWAYS,
        .handshake_timeout_ns = (int64_t)c->quic_handshake_ms * TDM_NS_PER_MS,
        .idle_timeout_ns = (int64_t)c->quic_idle_ms * TDM_NS_PER_MS,
        .cert_file = h->cert_file,
        .key_file = h->key_file,
        .seed = seed,
    };
    if (c->quic_retry == TDM_HOUSE_RETRY_NEVER) return;
    q->retry_half_open = (uint32_t)c->quic_retry_half_open;
    q->retry_per_s = (uint32_t)c->quic_retry_per_s;
}

static tdm_status_t net_config(tdm_house_t *h, tdm_net_tile_config_t *n, tdm_error_t *err) {
    const tdm_config_t *c = h->config;
    uint64_t seed[2] = {1, 2};
    (void)!getrandom(seed, sizeof seed, 0);
    *n = (tdm_net_tile_config_t){
        .door = 0,
        .api_cnt = (uint16_t)h->wires.api_cnt,
        /* A TAP's subnet is this machine; a real one is anybody. */
        .is_subnet_trusted = c->port_kind == TDM_HOUSE_PORT_TAP,
        .exchange_max = (uint32_t)c->door_exchanges,
        .pipe_sz = (uint32_t)c->door_reply_bytes,
        .body_max = c->door_body_bytes,
        .port = h->port,
        .exception = h->exception,
        .h3 = {.stream_max =
                   (uint32_t)TDM_MIN(c->quic_connections * c->quic_streams, 2 * c->door_exchanges),
               .server = h->server},
        .egress = &h->wires.egress[0],
        .block = h->wires.block[TDM_BLOCK_NET],
    };
    for (uint32_t k = 0; k < h->wires.api_cnt; k++) {
        n->arrivals[k] = &h->wires.arrivals[k];
        n->hangups[k] = &h->wires.hangups[k];
    }
    quic_config(h, &n->quic, seed[0]);
    return link_config(h, &n->link, seed[1], err);
}

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
    a->wall_offset_ns = tdm_clock_wall_s() * TDM_NS_PER_S - h->start_ns;
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
    int is_tap = h->config->port_kind == TDM_HOUSE_PORT_TAP;
    char ipv4[32];
    address_of(h->config->port_ipv4, ipv4, sizeof ipv4);
    tdm_log(TDM_LOG_INFO, "port", "%s %s: https://%s:%llu over HTTP/3",
            tdm_port_kind_name(port_kind(h->config)),
            is_tap ? h->config->port_tap_name : h->config->port_device, ipv4,
            (unsigned long long)h->config->port_udp);
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
    if (h->config->port_kind != TDM_HOUSE_PORT_NONE) {
        st = open_certificate(h, err);
        if (st == TDM_OK) st = open_port(h, err);
        if (st == TDM_OK) st = net_config(h, &p->net, err);
    }
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
    tdm_net_tile_destroy(h->net);
    if (h->port && tdm_port_close(h->port) != 0)
        tdm_log(TDM_LOG_WARN, "port", "packet buffers were not all given back");
    if (tdm_port_close(h->exception) != 0)
        tdm_log(TDM_LOG_WARN, "port", "the kernel's packet buffers were not all given back");
    if (h->has_env) tdm_port_env_stop();
    for (uint32_t k = 0; k < h->wires.api_cnt; k++) tdm_encode_scratch_destroy(h->scratch[k]);
    tdm_arena_close(&h->tables);
    free(h->profile);
}
