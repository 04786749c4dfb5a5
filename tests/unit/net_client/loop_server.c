/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/net_client/loop_server.h"

#include "appliance/base/atomic.h"
#include "appliance/base/check.h"
#include "appliance/base/clock.h"
#include "appliance/base/sum.h"
#include "appliance/ring/pipe.h"
#include "net/h3/h3.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define SLOT_MAX 128u
#define BODY_MAX (1u << 20)
#define PIPE_SZ  (64u << 10)

typedef struct slot {
    tdm_exchange_t x;
    tdm_pipe_t pipe;
    uint8_t *body;
    uint8_t *pipe_buf;
    int is_used;
    int is_ready;
    int is_streaming;
    uint32_t record_no;
    uint32_t record_cnt;
} slot_t;

struct loop_server {
    pthread_t thread;
    int fd;
    uint16_t port;
    int is_stopping;
    uint64_t answered;
    tdm_quic_t *quic;
    tdm_h3_t *h3;
    void *quic_mem;
    void *h3_mem;
    slot_t slot[SLOT_MAX];
};

/* --- the tile's calls ------------------------------------------------- */

static slot_t *slot_of(tdm_exchange_t *x) {
    return (slot_t *)((uint8_t *)x - offsetof(slot_t, x));
}

static tdm_exchange_t *on_open(void *ctx, const tdm_endpoint_t *remote, int is_vital) {
    loop_server_t *s = ctx;
    (void)remote;
    (void)is_vital;
    for (uint32_t i = 0; i < SLOT_MAX; i++) {
        slot_t *t = &s->slot[i];
        if (t->is_used) continue;
        uint32_t generation = t->x.handle.generation + 1u;
        memset(&t->x, 0, sizeof t->x);
        t->x.handle = (tdm_handle_t){i, generation};
        t->x.body = t->body;
        t->x.reply = &t->pipe;
        tdm_pipe_reset(&t->pipe);
        t->is_used = 1;
        t->is_ready = 0;
        t->is_streaming = 0;
        return &t->x;
    }
    return NULL;
}

static tdm_reason_t on_ready(void *ctx, tdm_exchange_t *x, int64_t now_ns) {
    (void)ctx;
    (void)now_ns;
    slot_of(x)->is_ready = 1;
    return TDM_REASON_NONE;
}

static void on_gone(void *ctx, tdm_exchange_t *x, int64_t now_ns) {
    (void)ctx;
    (void)now_ns;
    slot_of(x)->is_streaming = 0;
    slot_of(x)->is_ready = 0;
}

static void on_closed(void *ctx, tdm_exchange_t *x, int64_t now_ns) {
    (void)ctx;
    (void)now_ns;
    slot_of(x)->is_used = 0;
    slot_of(x)->is_streaming = 0;
}

static void on_sent(void *ctx, tdm_exchange_t *x, uint32_t token_cnt, int64_t made_ns,
                    int64_t now_ns) {
    (void)made_ns;
    (void)ctx;
    (void)x;
    (void)token_cnt;
    (void)now_ns;
}

/* --- answers ----------------------------------------------------------- */

static void answer(loop_server_t *s, slot_t *t, int64_t now_ns) {
    tdm_exchange_t *x = &t->x;
    char text[128] = "{\"status\":\"ok\"}";
    uint32_t flags = TDM_EGRESS_HEAD;
    t->is_ready = 0;
    s->answered++;
    x->head = (tdm_reply_head_t){.status = 200, .content_type = TDM_CONTENT_JSON};
    if (x->refuse != 0) x->head.status = (uint16_t)tdm_reason_http((tdm_reason_t)x->refuse);
    if (strcmp(x->path, "/stream") == 0) {
        x->head.content_type = TDM_CONTENT_EVENT_STREAM;
        x->head.content_sz = -1;
        x->head.is_stream = 1;
        t->is_streaming = 1;
        t->record_no = 0;
        t->record_cnt = (uint32_t)atoi(x->query);
        tdm_h3_reply(s->h3, x, flags, now_ns);
        return;
    }
    if (x->method == TDM_METHOD_POST) {
        uint64_t hash = tdm_sum_bytes(TDM_SUM_FIRST, x->body, x->body_sz);
        snprintf(text, sizeof text, "{\"body\":%llu,\"hash\":\"%016llx\"}",
                 (unsigned long long)x->body_sz, (unsigned long long)hash);
    }
    x->head.content_sz = (int64_t)strlen(text);
    TDM_CHECK(tdm_pipe_write(&t->pipe, text, (uint32_t)strlen(text), 0));
    tdm_h3_reply(s->h3, x, flags | TDM_EGRESS_RECORD | TDM_EGRESS_END, now_ns);
}

static void stream_on(loop_server_t *s, slot_t *t, int64_t now_ns) {
    char text[64];
    uint32_t flags = 0;
    while (t->record_no <= t->record_cnt) {
        int is_last = t->record_no == t->record_cnt;
        snprintf(text, sizeof text, is_last ? "data: [DONE]\n\n" : "data: {\"token\":%u}\n\n",
                 t->record_no);
        if (!tdm_pipe_write(&t->pipe, text, (uint32_t)strlen(text), is_last ? 0 : 1)) break;
        t->record_no++;
        flags |= TDM_EGRESS_RECORD;
        if (is_last) {
            flags |= TDM_EGRESS_END;
            t->is_streaming = 0;
        }
    }
    if (flags != 0) tdm_h3_reply(s->h3, &t->x, flags, now_ns);
}

/* --- the loop ---------------------------------------------------------- */

static void endpoint_of(tdm_endpoint_t *e, const struct sockaddr_in *a) {
    memset(e, 0, sizeof *e);
    e->version = 4;
    e->port = ntohs(a->sin_port);
    memcpy(e->addr, &a->sin_addr, 4);
}

static void receive(loop_server_t *s, int64_t now_ns) {
    uint8_t buf[2048];
    struct sockaddr_in from;
    for (int i = 0; i < 32; i++) {
        socklen_t from_sz = sizeof from;
        ssize_t n =
            recvfrom(s->fd, buf, sizeof buf, MSG_DONTWAIT, (struct sockaddr *)&from, &from_sz);
        if (n <= 0) return;
        tdm_datagram_t dg = {.payload = buf, .payload_sz = (uint32_t)n};
        endpoint_of(&dg.remote, &from);
        dg.local = (tdm_endpoint_t){.addr = {127, 0, 0, 1}, .port = s->port, .version = 4};
        (void)tdm_quic_input(s->quic, &dg, now_ns);
    }
}

static void transmit(loop_server_t *s, int64_t now_ns) {
    uint8_t buf[2048];
    tdm_datagram_t dg;
    for (int i = 0; i < 64; i++) {
        uint32_t sz = tdm_quic_output(s->quic, buf, sizeof buf, &dg, now_ns);
        if (sz == 0) return;
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(dg.remote.port)};
        memcpy(&to.sin_addr, dg.remote.addr, 4);
        (void)sendto(s->fd, buf, sz, 0, (struct sockaddr *)&to, sizeof to);
    }
}

static int wait_ms(const loop_server_t *s) {
    int64_t due_ns = TDM_MIN(tdm_quic_next_ns(s->quic), tdm_h3_next_ns(s->h3));
    int64_t now_ns = tdm_clock_now_ns();
    if (due_ns <= now_ns) return 0;
    return (int)TDM_MIN((due_ns - now_ns) / TDM_NS_PER_MS + 1, 20);
}

static void *loop(void *arg) {
    loop_server_t *s = arg;
    while (!tdm_load_relaxed(&s->is_stopping)) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        (void)poll(&p, 1, wait_ms(s));
        int64_t now_ns = tdm_clock_now_ns();
        receive(s, now_ns);
        (void)tdm_quic_poll(s->quic, now_ns);
        (void)tdm_h3_poll(s->h3, now_ns);
        for (uint32_t i = 0; i < SLOT_MAX; i++) {
            slot_t *t = &s->slot[i];
            if (t->is_used && t->is_ready) answer(s, t, now_ns);
            if (t->is_used && t->is_streaming) stream_on(s, t, now_ns);
        }
        transmit(s, now_ns);
    }
    return NULL;
}

/* --- life -------------------------------------------------------------- */

static void *take(uint64_t sz) {
    void *p = NULL;
    TDM_CHECK(sz > 0 && posix_memalign(&p, 64, sz) == 0);
    return p;
}

static void open_socket(loop_server_t *s, uint16_t port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t at_sz = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    TDM_CHECK(s->fd >= 0 && bind(s->fd, (struct sockaddr *)&at, sizeof at) == 0);
    TDM_CHECK(getsockname(s->fd, (struct sockaddr *)&at, &at_sz) == 0);
    s->port = ntohs(at.sin_port);
}

loop_server_t *loop_server_start(uint16_t port, const char *cert_file, const char *key_file) {
    tdm_error_t err = {0};
    loop_server_t *s = calloc(1, sizeof *s);
    TDM_CHECK(s != NULL);
    open_socket(s, port);
    for (uint32_t i = 0; i < SLOT_MAX; i++) {
        s->slot[i].body = take(BODY_MAX);
        s->slot[i].pipe_buf = take(PIPE_SZ);
        TDM_CHECK(tdm_pipe_init(&s->slot[i].pipe, s->slot[i].pipe_buf, PIPE_SZ) == TDM_OK);
    }
    tdm_h3_config_t h3_cfg = {.connection_max = 64,
                              .stream_max = 1024,
                              .exchange_max = SLOT_MAX,
                              .body_max = BODY_MAX,
                              .tile = {.ctx = s,
                                       .exchange_open = on_open,
                                       .exchange_ready = on_ready,
                                       .exchange_gone = on_gone,
                                       .exchange_closed = on_closed,
                                       .record_sent = on_sent}};
    s->h3_mem = take(tdm_h3_footprint(&h3_cfg));
    TDM_CHECK(tdm_h3_create(s->h3_mem, &h3_cfg, &s->h3, &err) == TDM_OK);
    tdm_quic_config_t quic_cfg = {.connection_max = 64,
                                  .stream_max = 100,
                                  .pool_sz = 64u << 20,
                                  .connection_pool_sz = 2u << 20,
                                  .handshake_per_s = 1000,
                                  .handshake_per_s_source = 1000,
                                  .idle_timeout_ns = 30 * TDM_NS_PER_S,
                                  .datagram_max = TDM_QUIC_DATAGRAM_MAX,
                                  .cert_file = cert_file,
                                  .key_file = key_file,
                                  .seed = 1,
                                  .app = tdm_h3_app(s->h3)};
    s->quic_mem = take(tdm_quic_footprint(&quic_cfg));
    TDM_CHECK(tdm_quic_create(s->quic_mem, &quic_cfg, &s->quic, &err) == TDM_OK);
    tdm_h3_attach(s->h3, s->quic);
    TDM_CHECK(pthread_create(&s->thread, NULL, loop, s) == 0);
    return s;
}

uint16_t loop_server_port(const loop_server_t *s) {
    return s->port;
}

uint64_t loop_server_stop(loop_server_t *s) {
    tdm_store_relaxed(&s->is_stopping, 1);
    TDM_CHECK(pthread_join(s->thread, NULL) == 0);
    uint64_t answered = s->answered;
    tdm_quic_destroy(s->quic);
    close(s->fd);
    for (uint32_t i = 0; i < SLOT_MAX; i++) {
        free(s->slot[i].body);
        free(s->slot[i].pipe_buf);
    }
    free(s->quic_mem);
    free(s->h3_mem);
    free(s);
    return answered;
}
