/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include "appliance/base/clock.h"
#include "appliance/base/size.h"
#include "appliance/ring/pipe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { API_CNT = 2, CALL_MAX = 256, DEPTH = 64 };

#define DRIVEN_MAX 100000ull /* bytes or records of one answer */

typedef struct call {
    tdm_exchange_t *x; /* NULL: free */
    uint32_t generation;
    uint32_t api;
    uint64_t at;    /* bytes or records written */
    uint64_t total; /* of them */
    int64_t gap_ns;
    int64_t next_ns;
    int is_stream, is_never, is_ended, is_headed, is_bytes;
    uint32_t owed; /* egress flags not yet pushed */
    char text[4096];
    const uint8_t *bytes;
} call_t;

struct rig {
    tdm_http1_t *door;
    tdm_ring_t arrivals[API_CNT], hangups[API_CNT], egress;
    void *memory[8];
    uint32_t memory_cnt;
    tdm_doorbell_t bell;
    uint32_t asleep;
    tdm_block_t block, poll_block;
    pthread_t api, mgmt;
    uint32_t stop_api, stop_mgmt, is_held;
    int is_v6;
    uint32_t is_driven;
    uint32_t live_cnt; /* calls in use, the played api's alone */
    uint64_t arrival_cnt, hangup_cnt;
    int64_t hangup_ns;
    call_t call[CALL_MAX];
};

void sleep_us(int64_t us) {
    struct timespec ts = {us / 1000000, us % 1000000 * 1000};
    (void)nanosleep(&ts, NULL);
}

/* --- the played api ---------------------------------------------------- */

static void head(call_t *c, uint16_t status, uint16_t type, int64_t content_sz) {
    tdm_reply_head_t *h = &c->x->head;
    h->status = status;
    h->content_type = type;
    h->content_sz = content_sz;
    h->is_stream = type == TDM_CONTENT_EVENT_STREAM;
    (void)snprintf(h->request_id, sizeof h->request_id, "%s", c->x->request_id);
    c->owed |= TDM_EGRESS_HEAD;
    c->is_headed = 1;
}

static void end(call_t *c, uint32_t flags) {
    if (c->is_ended) return;
    c->is_ended = 1;
    c->owed |= TDM_EGRESS_END | flags;
}

static void answer_bytes(call_t *c, const void *bytes, uint64_t sz) {
    c->bytes = bytes;
    c->total = sz;
    c->is_bytes = 1;
}

static void begin(const rig_t *rig, call_t *c) {
    tdm_exchange_t *x = c->x;
    unsigned long long n = 0, gap = 0;
    (void)sscanf(x->query, "%llu,%llu", &n, &gap);
    if (rig->is_driven) { /* ends in a few turns */
        n = TDM_MIN(n, DRIVEN_MAX);
        gap = 0;
    }
    if (strcmp(x->path, "/echo") == 0) {
        head(c, 200, TDM_CONTENT_TEXT, (int64_t)x->body_sz);
        answer_bytes(c, x->body, x->body_sz);
    } else if (strcmp(x->path, "/stream") == 0) {
        head(c, 200, TDM_CONTENT_EVENT_STREAM, -1);
        c->is_stream = 1;
        c->total = n;
        c->gap_ns = (int64_t)gap * 1000;
        c->owed |= TDM_EGRESS_BODY_DONE;
    } else if (strcmp(x->path, "/big") == 0) {
        head(c, 200, TDM_CONTENT_TEXT, (int64_t)n);
        for (size_t i = 0; i < sizeof c->text; i++) c->text[i] = (char)('a' + i % 26);
        answer_bytes(c, NULL, n);
    } else if (strcmp(x->path, "/never") == 0) {
        c->is_never = 1;
    } else if (strcmp(x->path, "/limited") == 0) {
        x->head.retry_after_ms = 1500;
        x->head.processing_ms = 7;
        head(c, 429, TDM_CONTENT_JSON, 2);
        answer_bytes(c, "{}", 2);
    } else if (strcmp(x->path, "/coded") == 0) {
        x->head.is_coded = 1;
        head(c, 415, TDM_CONTENT_JSON, 2);
        answer_bytes(c, "{}", 2);
    } else if (strcmp(x->path, "/allow") == 0) {
        x->head.allow = 1u << TDM_METHOD_GET | 1u << TDM_METHOD_POST | 1u << TDM_METHOD_OPTIONS;
        head(c, 204, TDM_CONTENT_NONE, 0);
        end(c, 0);
    } else if (strcmp(x->path, "/abort") == 0) {
        head(c, 200, TDM_CONTENT_EVENT_STREAM, -1);
        int is_written = tdm_pipe_write(x->reply, "data: 0\n\n", 9, 1);
        end(c, TDM_EGRESS_ABORT | (is_written ? TDM_EGRESS_RECORD : 0u));
    } else if (strcmp(x->path, "/headless") == 0) {
        end(c, TDM_EGRESS_ABORT);
    } else {
        int sz = snprintf(
            c->text, sizeof c->text,
            "method %u\npath %s\nquery %s\nauthorization %s\ncontent-type %s\n"
            "content-coding [%s]\nrequest-id %s\ntrusted %u\ntruncated %u\nbody %llu\nordered %d\n",
            x->method, x->path, x->query, x->authorization, x->content_type, x->content_coding,
            x->request_id, x->is_trusted_peer, x->is_truncated, (unsigned long long)x->body_sz,
            x->first_byte_ns <= x->arrival_ns);
        head(c, 200, TDM_CONTENT_TEXT, sz);
        answer_bytes(c, c->text, (uint64_t)sz);
    }
}

static void write_bytes(call_t *c) {
    while (c->at < c->total) {
        uint32_t n = (uint32_t)TDM_MIN(c->total - c->at, 1024u);
        const void *p = c->bytes ? c->bytes + c->at : (const uint8_t *)c->text + c->at % 26;
        if (!tdm_pipe_write(c->x->reply, p, n, 0)) return;
        c->owed |= TDM_EGRESS_RECORD;
        c->at += n;
    }
    end(c, 0);
}

static void write_stream(call_t *c, int64_t now) {
    while (c->at < c->total && now >= c->next_ns) {
        char text[64];
        int n = snprintf(text, sizeof text, "data: %llu\n\n", (unsigned long long)c->at);
        if (!tdm_pipe_write(c->x->reply, text, (uint32_t)n, 1)) return;
        c->owed |= TDM_EGRESS_RECORD;
        c->at++;
        c->next_ns = now + c->gap_ns;
        if (c->gap_ns) break;
    }
    if (c->at == c->total) end(c, 0);
}

/* flush pushes what is owed: END last and alone with what came before. */
static void flush(rig_t *rig, call_t *c) {
    if (!c->owed) return;
    tdm_egress_t word = {{c->x->handle.slot, c->generation}, c->owed, 0};
    if (!tdm_ring_push(&rig->egress, c->api, &word)) return;
    c->owed = 0;
    if (!c->is_ended) return;
    c->x = NULL;
    rig->live_cnt--;
}

static void take_arrivals(rig_t *rig, uint32_t api) {
    tdm_arrival_t a;
    while (tdm_ring_pop(&rig->arrivals[api], &a)) {
        (void)tdm_add_relaxed(&rig->arrival_cnt, 1u);
        call_t *c = NULL;
        for (uint32_t i = 0; i < CALL_MAX && !c; i++)
            if (!rig->call[i].x) c = &rig->call[i];
        TDM_CHECK(c);
        memset(c, 0, sizeof *c);
        c->x = a.exchange;
        c->generation = a.generation;
        c->api = api;
        rig->live_cnt++;
        begin(rig, c);
    }
}

static void take_hangups(rig_t *rig, uint32_t api) {
    tdm_hangup_t h;
    while (!tdm_load_relaxed(&rig->is_held) && tdm_ring_pop(&rig->hangups[api], &h)) {
        tdm_store_relaxed(&rig->hangup_ns, tdm_clock_now_ns());
        (void)tdm_add_relaxed(&rig->hangup_cnt, 1u);
        for (uint32_t i = 0; i < CALL_MAX; i++) {
            call_t *c = &rig->call[i];
            if (c->x == h.exchange && c->generation == h.generation) end(c, TDM_EGRESS_ABORT);
        }
    }
}

static void api_turn(rig_t *rig) {
    int64_t now = tdm_clock_now_ns();
    for (uint32_t a = 0; a < API_CNT; a++) {
        take_arrivals(rig, a);
        take_hangups(rig, a);
    }
    uint32_t live = rig->live_cnt;
    for (uint32_t i = 0; i < CALL_MAX && live > 0; i++) {
        call_t *c = &rig->call[i];
        if (!c->x) continue;
        live--;
        if (!c->is_ended && c->is_bytes) write_bytes(c);
        if (!c->is_ended && c->is_stream) write_stream(c, now);
        flush(rig, c);
    }
}

static void *api_main(void *arg) {
    rig_t *rig = arg;
    while (!tdm_load_relaxed(&rig->stop_api)) {
        api_turn(rig);
        sleep_us(100);
    }
    return NULL;
}

static void *mgmt_main(void *arg) {
    rig_t *rig = arg;
    while (!tdm_load_relaxed(&rig->stop_mgmt)) {
        if (tdm_http1_poll(rig->door, tdm_clock_now_ns())) continue;
        tdm_doorbell_arm(&rig->bell);
        if (tdm_http1_poll(rig->door, tdm_clock_now_ns()))
            tdm_doorbell_disarm(&rig->bell);
        else
            (void)tdm_doorbell_sleep(&rig->bell, tdm_http1_fd(rig->door), 20 * TDM_NS_PER_MS);
    }
    return NULL;
}

/* --- life cycle --------------------------------------------------------- */

static tdm_lane_t *lane(rig_t *rig, uint32_t depth, uint32_t elem_sz) {
    size_t sz = tdm_lane_footprint(depth, elem_sz);
    void *mem = aligned_alloc(TDM_CACHE_LINE, sz);
    TDM_CHECK(mem && rig->memory_cnt < TDM_COUNT_OF(rig->memory));
    rig->memory[rig->memory_cnt++] = mem;
    tdm_lane_t *l = NULL;
    TDM_CHECK(tdm_lane_init(mem, depth, elem_sz, &l) == TDM_OK);
    return l;
}

tdm_http1_config_t rig_config(void) {
    tdm_http1_config_t c;
    tdm_http1_config_default(&c);
    c.port = 0;
    c.slot_cnt = 16;
    c.reserve_cnt = 0;
    c.conn_max = 40;
    c.conn_per_address_max = 40;
    c.pipe_sz = 16384;
    c.body_max = 65536;
    c.body_total_max = 1 << 20;
    c.header_max = 4096;
    return c;
}

static rig_t *open_rig(const tdm_http1_config_t *config, tdm_http1_page_fn *page) {
    tdm_http1_config_t c = config ? *config : rig_config();
    rig_t *rig = aligned_alloc(TDM_CACHE_LINE, tdm_size_align(sizeof *rig, TDM_CACHE_LINE));
    TDM_CHECK(rig);
    memset(rig, 0, sizeof *rig);
    TDM_CHECK(tdm_doorbell_open(&rig->bell, &rig->asleep, NULL) == TDM_OK);
    tdm_http1_wires_t w = {.api_cnt = API_CNT,
                           .egress = &rig->egress,
                           .page = page,
                           .block = tdm_block_init(&rig->block, "http1"),
                           .poll_block = tdm_block_init(&rig->poll_block, "mgmt")};
    tdm_lane_t *egress[API_CNT];
    for (uint32_t a = 0; a < API_CNT; a++) {
        tdm_lane_t *in = lane(rig, DEPTH, sizeof(tdm_arrival_t));
        tdm_lane_t *gone = lane(rig, 2, sizeof(tdm_hangup_t)); /* small on purpose */
        egress[a] = lane(rig, DEPTH, sizeof(tdm_egress_t));
        tdm_ring_init(&rig->arrivals[a], &in, 1, NULL);
        tdm_ring_init(&rig->hangups[a], &gone, 1, NULL);
        w.arrivals[a] = &rig->arrivals[a];
        w.hangups[a] = &rig->hangups[a];
    }
    tdm_ring_init(&rig->egress, egress, API_CNT, &rig->bell);
    tdm_error_t err = {0};
    rig->is_v6 = strchr(c.address, ':') != NULL;
    if (tdm_http1_open(&c, &w, &rig->door, &err) != TDM_OK) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    rig->is_driven = c.is_driven;
    if (rig->is_driven) return rig;
    TDM_CHECK(pthread_create(&rig->api, NULL, api_main, rig) == 0);
    TDM_CHECK(pthread_create(&rig->mgmt, NULL, mgmt_main, rig) == 0);
    return rig;
}

rig_t *rig_open(const tdm_http1_config_t *config) {
    return open_rig(config, NULL);
}

rig_t *rig_open_with_page(const tdm_http1_config_t *config, tdm_http1_page_fn *page) {
    return open_rig(config, page);
}

static void stop_threads(rig_t *rig) {
    if (rig->is_driven) return;
    tdm_store_relaxed(&rig->stop_api, 1u);
    (void)pthread_join(rig->api, NULL);
    tdm_store_relaxed(&rig->stop_mgmt, 1u);
    (void)pthread_join(rig->mgmt, NULL);
}

void rig_turn(rig_t *rig) {
    tdm_http1_turn(rig->door);
    api_turn(rig);
    (void)tdm_http1_poll(rig->door, tdm_clock_now_ns());
}

void rig_close(rig_t *rig) {
    stop_threads(rig);
    tdm_http1_close(rig->door);
    tdm_doorbell_close(&rig->bell);
    for (uint32_t i = 0; i < rig->memory_cnt; i++) free(rig->memory[i]);
    free(rig);
}

tdm_http1_t *rig_door(rig_t *rig) {
    return rig->door;
}

uint64_t rig_arrivals(rig_t *rig) {
    return tdm_load_relaxed(&rig->arrival_cnt);
}

uint64_t rig_hangups(rig_t *rig) {
    return tdm_load_relaxed(&rig->hangup_cnt);
}

int64_t rig_hangup_ns(rig_t *rig) {
    return tdm_load_relaxed(&rig->hangup_ns);
}

void rig_hold_hangups(rig_t *rig, int is_held) {
    tdm_store_relaxed(&rig->is_held, (uint32_t)is_held);
}

int rig_push_word(rig_t *rig, tdm_egress_t word) {
    return tdm_ring_push(&rig->egress, 0, &word);
}

int rig_wait_idle(rig_t *rig) {
    for (int i = 0; i < 2000; i++) {
        if (tdm_http1_open_cnt(rig->door) == 0) return 1;
        sleep_us(1000);
    }
    return 0;
}

static void snapshot(rig_t *rig, tdm_snapshot_t *s) {
    const tdm_block_t *const blocks[] = {&rig->block, &rig->poll_block};
    tdm_snapshot_take(s, blocks, 2, tdm_clock_now_ns());
}

uint64_t rig_counter(rig_t *rig, tdm_metric_t metric, uint32_t idx) {
    static tdm_snapshot_t s;
    snapshot(rig, &s);
    return tdm_snapshot_value(&s, metric, idx);
}

uint64_t rig_observations(rig_t *rig, tdm_metric_t metric) {
    static tdm_snapshot_t s;
    snapshot(rig, &s);
    return tdm_snapshot_total(&s, metric);
}

/* --- client ------------------------------------------------------------- */

int client_connect(rig_t *rig) {
    uint16_t port = htons(tdm_http1_port(rig->door));
    struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 in6 = {
        .sin6_family = AF_INET6, .sin6_port = port, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(rig->is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TDM_CHECK(fd >= 0);
    const struct sockaddr *addr = rig->is_v6 ? (const void *)&in6 : (const void *)&in;
    TDM_CHECK(connect(fd, addr, rig->is_v6 ? sizeof in6 : sizeof in) == 0);
    return fd;
}

int client_connect_from(rig_t *rig, uint32_t last) {
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000u + last)};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(tdm_http1_port(rig->door)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TDM_CHECK(fd >= 0 && bind(fd, (const void *)&from, sizeof from) == 0);
    TDM_CHECK(connect(fd, (const void *)&to, sizeof to) == 0);
    return fd;
}

void client_send_bytes(int fd, const void *bytes, size_t sz) {
    const char *p = bytes;
    while (sz) {
        ssize_t n = send(fd, p, sz, MSG_NOSIGNAL);
        if (n <= 0) return; /* the peer closed: what it said is read next */
        p += n;
        sz -= (size_t)n;
    }
}

void client_send(int fd, const char *text) {
    client_send_bytes(fd, text, strlen(text));
}

const char *client_read(int fd, const char *mark, size_t *sz) {
    static char buf[1 << 20];
    size_t got = 0;
    int64_t until = tdm_clock_now_ns() + 30 * TDM_NS_PER_S;
    buf[0] = '\0';
    while (got < sizeof buf - 1 && tdm_clock_now_ns() < until) {
        if (mark && strstr(buf, mark)) break;
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, 100) <= 0) continue;
        ssize_t n = recv(fd, buf + got, sizeof buf - 1 - got, 0);
        if (n <= 0) break;
        got += (size_t)n;
        buf[got] = '\0';
    }
    if (sz) *sz = got;
    return buf;
}

const char *client_ask(rig_t *rig, const char *request) {
    int fd = client_connect(rig);
    client_send(fd, request);
    const char *answer = client_read(fd, NULL, NULL);
    (void)close(fd);
    return answer;
}
