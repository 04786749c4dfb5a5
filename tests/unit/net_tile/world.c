/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "appliance/ring/pipe.h"
#include "net/quic/cert.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SERVER_PORT 8443u
#define CLIENT_PORT 50000u
static const uint8_t server4[4] = {10, 88, 0, 2}, client4[4] = {10, 88, 0, 1};
static const uint8_t client_mac[6] = {2, 't', 'd', 'm', 0, 1};

/* --- opening -------------------------------------------------------- */

static char cert_file[64], key_file[64];

static void cert_remove(void) {
    unlink(cert_file);
    unlink(key_file);
}

static void cert_make(void) {
    int is_made;
    tdm_error_t err = {0};
    if (cert_file[0] != '\0') return;
    snprintf(cert_file, sizeof cert_file, "/tmp/tdm-test-tile-%ld.crt", (long)getpid());
    snprintf(key_file, sizeof key_file, "/tmp/tdm-test-tile-%ld.key", (long)getpid());
    cert_remove();
    tdm_cert_config_t c = {.cert_file = cert_file,
                           .key_file = key_file,
                           .name = {"localhost"},
                           .name_cnt = 1,
                           .wall_s = tdm_clock_wall_s()};
    assert_int_equal(tdm_cert_ensure(&c, &is_made, &err), TDM_OK);
    atexit(cert_remove);
}

static tdm_lane_t *lane_make(void **mem, uint32_t depth, uint32_t elem_sz) {
    tdm_lane_t *lane = NULL;
    *mem = aligned_alloc(TDM_CACHE_LINE, tdm_lane_footprint(depth, elem_sz));
    assert_non_null(*mem);
    assert_int_equal(tdm_lane_init(*mem, depth, elem_sz, &lane), TDM_OK);
    return lane;
}

static tdm_link_config_t station(const uint8_t *mac, const uint8_t *addr, uint16_t port) {
    tdm_link_config_t c = {.mtu = 1500,
                           .udp_port = port,
                           .has_ipv4 = 1,
                           .ipv4_prefix = 24,
                           .neighbour_max = 16,
                           .reply_per_s = 1000,
                           .solicit_per_s = 100};
    memcpy(c.mac, mac, 6);
    memcpy(c.ipv4, addr, 4);
    return c;
}

static tdm_net_tile_config_t tile_config(world_t *w) {
    uint8_t mac[6];
    tdm_port_mac(w->port, mac);
    tdm_net_tile_config_t c = {
        .api_cnt = 1,
        .is_subnet_trusted = 1,
        .exchange_max = WORLD_SLOT_CNT,
        .reserve_cnt = WORLD_RESERVE,
        .pipe_sz = WORLD_PIPE_SZ,
        .body_max = WORLD_BODY_MAX,
        .port = w->port,
        .exception = w->exception,
        .link = station(mac, server4, SERVER_PORT),
        .quic = {.connection_max = 4,
                 .stream_max = 32,
                 .pool_sz = 8u << 20,
                 .connection_pool_sz = 2u << 20,
                 .handshake_per_s = 100,
                 .handshake_per_s_source = 100,
                 .idle_timeout_ns = 30 * TDM_NS_PER_S,
                 .datagram_max = 1200,
                 .cert_file = cert_file,
                 .key_file = key_file},
        .h3 = {.stream_max = 64},
        .arrivals = {&w->arrivals},
        .hangups = {&w->hangups},
        .egress = &w->egress,
        .block = w->block,
    };
    return c;
}

static void open_all(world_t *w, uint32_t arrival_depth, const tdm_port_chaos_t *weather);

void world_open(world_t *w, uint32_t arrival_depth) {
    world_open_chaos(w, arrival_depth, NULL);
}

void world_open_chaos(world_t *w, uint32_t arrival_depth, const tdm_port_chaos_t *weather) {
    memset(w, 0, sizeof *w);
    open_all(w, arrival_depth, weather);
}

void world_open_exception(world_t *w) {
    tdm_error_t err = {0};
    memset(w, 0, sizeof *w);
    tdm_port_config_t pc = {
        .kind = TDM_PORT_WIRE, .mtu = 1500, .rx_desc = 64, .tx_desc = 64, .mbuf_cnt = 384};
    assert_int_equal(tdm_port_open(&pc, &w->exception, &err), TDM_OK);
    open_all(w, 64, NULL);
}

void world_open_unasked(world_t *w) {
    memset(w, 0, sizeof *w);
    w->is_server_known = 1;
    open_all(w, 64, NULL);
}

static void open_all(world_t *w, uint32_t arrival_depth, const tdm_port_chaos_t *weather) {
    tdm_error_t err = {0};
    cert_make();
    w->now_ns = 1000 * TDM_NS_PER_S;
    w->rng = 42;
    w->health_status = 200;
    tdm_port_config_t pc = {.kind = TDM_PORT_WIRE,
                            .mtu = 1500,
                            .rx_desc = 64,
                            .tx_desc = 64,
                            .mbuf_cnt = WORLD_MBUF_CNT};
    if (weather != NULL) {
        pc.kind = TDM_PORT_CHAOS;
        pc.chaos = *weather;
    }
    assert_int_equal(tdm_port_open(&pc, &w->port, &err), TDM_OK);
    w->arrival_lane = lane_make(&w->lane_mem[0], arrival_depth, sizeof(tdm_arrival_t));
    w->hangup_lane = lane_make(&w->lane_mem[1], 2 * WORLD_EXCHANGE_MAX, sizeof(tdm_hangup_t));
    w->egress_lane = lane_make(&w->lane_mem[2], 1024, sizeof(tdm_egress_t));
    tdm_ring_init(&w->arrivals, &w->arrival_lane, 1, NULL);
    tdm_ring_init(&w->hangups, &w->hangup_lane, 1, NULL);
    tdm_ring_init(&w->egress, &w->egress_lane, 1, NULL);
    w->block_mem = aligned_alloc(TDM_CACHE_LINE, tdm_block_footprint());
    w->block = tdm_block_init(w->block_mem, "net0");

    tdm_net_tile_config_t c = tile_config(w);
    uint64_t sz = tdm_net_tile_footprint(&c);
    assert_int_not_equal(sz, 0);
    w->tile_mem = aligned_alloc(TDM_CACHE_LINE, sz);
    memset(w->tile_mem, 0, sz);
    if (tdm_net_tile_create(w->tile_mem, &c, w->now_ns, &w->tile, &err) != TDM_OK)
        fail_msg("%s", err.text);

    tdm_link_config_t lc = station(client_mac, client4, CLIENT_PORT);
    if (w->is_server_known) {
        memcpy(lc.gateway4, server4, 4);
        tdm_port_mac(w->port, lc.gateway_mac);
    }
    w->link_mem = aligned_alloc(TDM_CACHE_LINE, tdm_link_footprint(lc.neighbour_max));
    assert_int_equal(tdm_link_init(w->link_mem, &lc, w->now_ns, &w->link, &err), TDM_OK);
}

void world_close(world_t *w) {
    tdm_client_close(w->client);
    assert_true(tdm_net_tile_is_conserved(w->tile));
    tdm_net_tile_destroy(w->tile);
    assert_int_equal(tdm_port_close(w->port), 0);
    assert_int_equal(tdm_port_close(w->exception), 0);
    free(w->tile_mem);
    free(w->block_mem);
    free(w->link_mem);
    for (uint32_t i = 0; i < 3; i++) free(w->lane_mem[i]);
}

/* --- the fake api --------------------------------------------------- */

static void egress_push(world_t *w, const tdm_exchange_t *x, uint32_t flags) {
    tdm_egress_t e = {.handle = x->handle, .flags = flags};
    assert_int_equal(tdm_ring_push(&w->egress, 0, &e), 1);
}

static void job_start(world_t *w, const tdm_arrival_t *a) {
    api_job_t *j = w->job;
    while (j->x != NULL) j++;
    tdm_exchange_t *x = a->exchange;
    *j = (api_job_t){.x = x, .generation = a->generation, .is_head_due = 1};
    assert_int_equal(x->handle.generation, a->generation);
    assert_int_equal(x->is_trusted_peer, 1);
    x->head.status = x->refuse != 0 ? (uint16_t)tdm_reason_http(x->refuse) : 200;
    x->head.content_type = TDM_CONTENT_TEXT;
    x->head.content_sz = -1;
    if (x->refuse != 0) return;
    if (strcmp(x->path, "/stream") == 0) {
        char digits[12] = {0};
        memcpy(digits, x->body, TDM_MIN(x->body_sz, sizeof digits - 1));
        j->left = (uint32_t)strtoul(digits, NULL, 10);
        x->head.is_stream = 1;
    } else if (strcmp(x->path, "/health") == 0) {
        char text[32];
        int n = snprintf(text, sizeof text, "{\"n\":%u}", w->health_cnt++);
        x->head.status = w->health_status;
        x->head.content_type = TDM_CONTENT_JSON;
        x->head.content_sz = n;
        if (x->method != TDM_METHOD_HEAD)
            assert_int_equal(tdm_pipe_write(x->reply, text, (uint32_t)n, 0), 1);
    } else if (strcmp(x->path, "/hang") == 0) {
        j->is_hanging = 1;
    } else if (x->body_sz > 0) {
        assert_int_equal(tdm_pipe_write(x->reply, x->body, (uint32_t)x->body_sz, 1), 1);
    }
}

/* job_step writes at most one record. */
static void job_step(world_t *w, api_job_t *j) {
    uint32_t flags = j->is_head_due ? TDM_EGRESS_HEAD | TDM_EGRESS_BODY_DONE : 0;
    if (j->left > 0) {
        char text[16];
        int n = snprintf(text, sizeof text, "t%u ", j->next);
        if (tdm_pipe_write(j->x->reply, text, (uint32_t)n, 1)) {
            j->next++;
            j->left--;
            flags |= TDM_EGRESS_RECORD;
        }
    } else if (j->is_head_due && !j->is_hanging) {
        flags |= TDM_EGRESS_RECORD;
    }
    int is_end = j->left == 0 && !j->is_hanging;
    if (is_end) flags |= TDM_EGRESS_END;
    j->is_head_due = 0;
    if (flags != 0) egress_push(w, j->x, flags);
    if (is_end) j->x = NULL;
}

static void api_turn(world_t *w) {
    tdm_arrival_t a;
    tdm_hangup_t h;
    if (w->is_api_asleep) return;
    while (tdm_ring_pop(&w->arrivals, &a)) job_start(w, &a);
    while (tdm_ring_pop(&w->hangups, &h)) {
        api_job_t *j = w->job;
        while (j < w->job + WORLD_SLOT_CNT && (j->x != h.exchange || j->generation != h.generation))
            j++;
        w->hangup_cnt++;
        if (j == w->job + WORLD_SLOT_CNT) {
            w->stale_hangup_cnt++; /* our END was already on its way */
            continue;
        }
        assert_int_equal(h.slot, j->x->handle.slot);
        egress_push(w, j->x, TDM_EGRESS_END | TDM_EGRESS_ABORT);
        j->x = NULL;
    }
    for (uint32_t i = 0; i < WORLD_SLOT_CNT; i++)
        if (w->job[i].x != NULL) job_step(w, &w->job[i]);
}

/* --- the cable and the client --------------------------------------- */

static void cable_put(world_t *w, const uint8_t *frame, uint32_t sz) {
    tdm_rng_t rng = {.state = w->rng};
    uint32_t draw = tdm_rng_below(&rng, 1000000);
    w->rng = rng.state;
    if (draw >= w->loss_ppm) (void)tdm_port_wire_put(w->port, frame, sz);
}

static void client_out(world_t *w) {
    static uint8_t buf[TDM_LINK_HEADER_MAX + 2048];
    uint8_t *payload = buf + TDM_LINK_HEADER_MAX;
    tdm_endpoint_t to = {.port = SERVER_PORT, .version = 4};
    uint32_t sz, header_sz;
    memcpy(to.addr, server4, 4);
    while (w->client != NULL && (sz = tdm_client_output(w->client, payload, 1452, w->now_ns)) > 0)
        if (tdm_link_udp_wrap(w->link, &to, CLIENT_PORT, 0, payload, sz, w->now_ns, &header_sz) ==
                TDM_REASON_NONE &&
            header_sz > 0)
            cable_put(w, payload - header_sz, header_sz + sz);
    while ((sz = tdm_link_release(w->link, buf, sizeof buf, w->now_ns)) > 0) cable_put(w, buf, sz);
    while ((sz = tdm_link_solicit(w->link, buf, sizeof buf, w->now_ns)) > 0) cable_put(w, buf, sz);
}

static void client_in(world_t *w) {
    static uint8_t frame[2048], reply[2048];
    uint32_t sz;
    while (!w->is_cut && (sz = tdm_port_wire_get(w->port, frame, sizeof frame)) > 0) {
        tdm_rng_t rng = {.state = w->rng};
        uint32_t draw = tdm_rng_below(&rng, 1000000);
        w->rng = rng.state;
        if (draw < w->loss_ppm) continue;
        tdm_link_verdict_t v = tdm_link_rx(w->link, frame, sz, reply, sizeof reply, w->now_ns);
        if (v.kind == TDM_LINK_REPLY) cable_put(w, reply, v.reply_sz);
        if (v.kind == TDM_LINK_DATAGRAM && w->client != NULL)
            tdm_client_input(w->client, v.datagram.payload, v.datagram.payload_sz, w->now_ns);
    }
}

static uint32_t turn(world_t *w) {
    client_out(w);
    uint32_t work = tdm_net_tile_poll(w->tile, w->now_ns);
    api_turn(w);
    client_in(w);
    w->now_ns += WORLD_TURN_NS;
    return work;
}

void world_turn(world_t *w) {
    (void)turn(w);
}

void world_hurry(world_t *w) {
    if (turn(w) > 0) return;
    int64_t next_ns = tdm_net_tile_next_ns(w->tile);
    if (w->client != NULL) next_ns = TDM_MIN(next_ns, tdm_client_next_ns(w->client));
    next_ns = TDM_MIN(next_ns, w->now_ns + 2 * TDM_NS_PER_MS);
    w->now_ns = TDM_MAX(w->now_ns, next_ns);
}

int world_until(world_t *w, const int *flag, uint32_t max) {
    for (uint32_t i = 0; i < max && !*flag; i++) world_turn(w);
    return *flag;
}

int world_is_connected(world_t *w) {
    tdm_error_t err = {0};
    tdm_client_config_t c = {.host = "localhost",
                             .port = SERVER_PORT,
                             .verify = TDM_CLIENT_VERIFY_INSECURE,
                             .connect_timeout_ns = 20 * TDM_NS_PER_S};
    assert_int_equal(tdm_client_open(&c, w->now_ns, &w->client, &err), TDM_OK);
    for (uint32_t i = 0; i < 200000 && !tdm_client_is_ready(w->client); i++) {
        if (tdm_client_is_closed(w->client, &err)) return 0;
        world_hurry(w);
    }
    return tdm_client_is_ready(w->client);
}

void world_connect(world_t *w) {
    tdm_error_t err = {0};
    if (!world_is_connected(w)) {
        (void)tdm_client_is_closed(w->client, &err);
        fail_msg("no connection: %s", err.text);
    }
}

/* --- requests ------------------------------------------------------- */

static void on_head(void *ctx, int64_t id, int status) {
    (void)id;
    ((answer_t *)ctx)->status = status;
}
static void on_body(void *ctx, int64_t id, const uint8_t *bytes, uint64_t sz) {
    answer_t *a = ctx;
    (void)id;
    for (uint64_t i = 0; i < sz && a->sz + i < sizeof a->text - 1; i++)
        a->text[a->sz + i] = (char)bytes[i];
    a->sz += sz;
    a->hash = tdm_sum_bytes(a->hash, bytes, sz);
}
static void on_end(void *ctx, int64_t id, tdm_client_outcome_t outcome, uint64_t error) {
    answer_t *a = ctx;
    (void)id;
    (void)error;
    a->outcome = outcome;
    a->is_ended = 1;
}

int64_t world_request(world_t *w, const char *method, const char *path, const void *body,
                      uint64_t sz, answer_t *a) {
    int64_t id = -1;
    tdm_error_t err = {0};
    tdm_client_sink_t sink = {.ctx = a, .head = on_head, .body = on_body, .end = on_end};
    tdm_client_request_t r = {.method = method, .path = path, .body = body, .body_sz = sz};
    *a = (answer_t){.hash = TDM_SUM_FIRST};
    tdm_status_t st = TDM_ERR_FULL; /* while the last streams' credit is on its way */
    for (uint32_t i = 0; i < 20000 && st == TDM_ERR_FULL; i++) {
        st = tdm_client_request(w->client, &r, &sink, &id, &err);
        if (st == TDM_ERR_FULL) world_turn(w);
    }
    if (st != TDM_OK) fail_msg("%s", err.text);
    return id;
}

void world_settle(world_t *w) {
    for (uint32_t i = 0; i < 100000 && tdm_net_tile_exchange_cnt(w->tile) > 0; i++) world_turn(w);
    assert_int_equal(tdm_net_tile_exchange_cnt(w->tile), 0);
}

uint64_t world_counted(world_t *w, tdm_metric_t metric, uint32_t idx) {
    tdm_net_tile_publish(w->tile);
    return *tdm_block_word(w->block, metric, idx);
}

uint64_t world_drops(world_t *w, tdm_reason_t reason) {
    return world_counted(w, TDM_METRIC_net_drops_total, tdm_label_reason(reason));
}
