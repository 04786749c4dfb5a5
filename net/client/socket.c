/* SPDX-License-Identifier: Apache-2.0 */
#include "net/client/client_private.h"

#include "appliance/base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECEIVE_PER_STEP 256
#define SOCKET_BUF_SZ    (1 << 20)

static tdm_status_t open_socket(tdm_client_t *c, const struct addrinfo *a, tdm_error_t *err) {
    const int sz = SOCKET_BUF_SZ;
    c->fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    c->local_sz = sizeof c->local;
    if (c->fd < 0 || connect(c->fd, a->ai_addr, a->ai_addrlen) != 0 ||
        getsockname(c->fd, (struct sockaddr *)&c->local, &c->local_sz) != 0) {
        return tdm_error_set(err, TDM_ERR_IO, "client: no way to %s: %m", c->host);
    }
    memcpy(&c->remote, a->ai_addr, a->ai_addrlen);
    c->remote_sz = a->ai_addrlen;
    (void)setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &sz, sizeof sz);
    return TDM_OK;
}

/* flush sends what is due.  A full socket buffer is a lost datagram: QUIC
   repeats it. */
static void flush(tdm_client_t *c) {
    uint8_t buf[1500];
    uint32_t sz;
    while ((sz = tdm_client_output(c, buf, sizeof buf, tdm_clock_now_ns())) > 0) {
        ssize_t n = send(c->fd, buf, sz, 0);
        if (n < 0 && errno == ECONNREFUSED) {
            client_lost(c, TDM_ERR_CLOSED, "nothing listens on that UDP port");
            return;
        }
    }
}

static void receive(tdm_client_t *c) {
    uint8_t buf[65536];
    for (int i = 0; i < RECEIVE_PER_STEP && c->state != CLIENT_CLOSED; i++) {
        ssize_t n = recv(c->fd, buf, sizeof buf, 0);
        if (n < 0 && errno == ECONNREFUSED) {
            client_lost(c, TDM_ERR_CLOSED, "nothing listens on that UDP port");
        }
        if (n < 0) return;
        if (n > 0) tdm_client_input(c, buf, (uint64_t)n, tdm_clock_now_ns());
    }
}

static int wait_ms(const tdm_client_t *c, int64_t until_ns) {
    int64_t now_ns = tdm_clock_now_ns();
    int64_t due_ns = TDM_MIN(tdm_client_next_ns(c), until_ns);
    if (due_ns <= now_ns) return 0;
    int64_t ms = (due_ns - now_ns + TDM_NS_PER_MS - 1) / TDM_NS_PER_MS;
    return (int)TDM_MIN(ms, 1000);
}

tdm_status_t tdm_client_step(tdm_client_t *c, int64_t timeout_ns, tdm_error_t *err) {
    if (c->fd < 0) return tdm_error_set(err, TDM_ERR_INVAL, "client: no socket");
    flush(c);
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    if (c->state != CLIENT_CLOSED && poll(&p, 1, wait_ms(c, tdm_clock_now_ns() + timeout_ns)) > 0) {
        receive(c);
    }
    flush(c);
    if (c->state != CLIENT_CLOSED) return TDM_OK;
    return tdm_error_set(err, c->error.status, "client: %s", c->error.text);
}

tdm_status_t tdm_client_wait(tdm_client_t *c, int64_t id, int64_t timeout_ns, tdm_error_t *err) {
    int64_t until_ns = tdm_clock_now_ns() + timeout_ns;
    for (;;) {
        request_t *r = id < 0 ? NULL : request_find(c, id);
        if (id < 0 ? c->open_cnt == 0 : r == NULL || r->is_ended) return TDM_OK;
        int64_t left_ns = until_ns - tdm_clock_now_ns();
        if (left_ns <= 0) return tdm_error_set(err, TDM_ERR_TIMEOUT, "client: no reply in time");
        tdm_status_t s = tdm_client_step(c, left_ns, err);
        if (s != TDM_OK) return s;
    }
}

/* try_address goes through one handshake with one address of the host. */
static tdm_status_t try_address(const tdm_client_config_t *cfg, const struct addrinfo *a,
                                tdm_client_t **out, tdm_error_t *err) {
    tdm_client_t *c;
    tdm_status_t s = client_make(cfg, &c, err);
    if (s != TDM_OK) return s;
    s = open_socket(c, a, err);
    if (s == TDM_OK) s = client_start(c, tdm_clock_now_ns(), err);
    int64_t until_ns = tdm_clock_now_ns() + c->cfg.connect_timeout_ns;
    while (s == TDM_OK && c->state == CLIENT_HANDSHAKE) {
        int64_t left_ns = until_ns - tdm_clock_now_ns();
        s = left_ns <= 0 ? tdm_error_set(err, TDM_ERR_TIMEOUT, "client: %s:%u does not answer",
                                         c->host, c->cfg.port)
                         : tdm_client_step(c, left_ns, err);
    }
    if (s != TDM_OK) {
        tdm_client_close(c);
        return s;
    }
    *out = c;
    return TDM_OK;
}

tdm_status_t tdm_client_connect(const tdm_client_config_t *cfg, tdm_client_t **out,
                                tdm_error_t *err) {
    char host[HOST_MAX];
    char port[8];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
    struct addrinfo *list = NULL;
    tdm_status_t s = client_host(host, cfg->host, err);
    if (s != TDM_OK) return s;
    snprintf(port, sizeof port, "%u", cfg->port);
    int rv = getaddrinfo(host, port, &hints, &list);
    if (rv != 0) {
        return tdm_error_set(err, TDM_ERR_NOT_FOUND, "client: %s: %s", host, gai_strerror(rv));
    }
    /* A refused certificate is final; a dead address is not. */
    s = TDM_ERR_NOT_FOUND;
    for (const struct addrinfo *a = list; a != NULL && s != TDM_OK && s != TDM_ERR_PERM;
         a = a->ai_next) {
        s = try_address(cfg, a, out, err);
    }
    freeaddrinfo(list);
    return s;
}

void tdm_client_close(tdm_client_t *c) {
    if (c == NULL) return;
    if (c->nc != NULL) tdm_client_shutdown(c);
    if (c->fd >= 0) {
        if (c->nc != NULL) flush(c);
        close(c->fd);
    }
    requests_free(c);
    if (c->hc != NULL) nghttp3_conn_del(c->hc);
    if (c->nc != NULL) ngtcp2_conn_del(c->nc);
    trust_close(c);
    free(c);
}
