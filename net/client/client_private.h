/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_CLIENT_PRIVATE_H
#define TDM_NET_CLIENT_PRIVATE_H

/* The inside of net/client: one file per noun.

     client.c   life, datagrams in and out, the end
     events.c   what ngtcp2 tells the client
     request.c  requests and what nghttp3 tells about their replies
     trust.c    TLS session and how far the server is believed
     socket.c   the form over a kernel UDP socket */

#include "net/client/client.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <nghttp3/nghttp3.h>
#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>
#include <sys/socket.h>

#define HOST_MAX 256u

typedef enum client_state {
    CLIENT_HANDSHAKE,
    CLIENT_READY,
    CLIENT_CLOSED,
} client_state_t;

typedef struct request {
    struct request *next;
    struct request *prev;
    tdm_client_t *client;
    tdm_client_sink_t sink;
    int64_t id;
    uint8_t *body; /* own copy, until the stream is closed */
    uint64_t body_sz;
    int status;
    int is_head_told;
    int is_ended; /* end was called */
} request_t;

struct tdm_client {
    tdm_client_config_t cfg;
    char host[HOST_MAX];
    char authority[HOST_MAX + 16];
    client_state_t state;
    int is_close_due; /* CONNECTION_CLOSE waits for output */
    int64_t now_ns;
    tdm_error_t error;
    ngtcp2_conn *nc;
    nghttp3_conn *hc;
    gnutls_session_t tls;
    gnutls_certificate_credentials_t cred;
    ngtcp2_crypto_conn_ref ref;
    ngtcp2_connection_close_error close_error;
    uint64_t h3_error; /* 0: none */
    int is_forgotten;  /* a stateless reset came: RFC 9000, 10.3 */
    uint8_t peer_pin[TDM_CLIENT_PIN_SZ];
    int has_peer_pin;
    request_t *first;
    uint32_t open_cnt;
    int fd; /* -1: in memory */
    struct sockaddr_storage local;
    struct sockaddr_storage remote;
    socklen_t local_sz;
    socklen_t remote_sz;
};

/* client.c */
tdm_status_t client_start(tdm_client_t *c, int64_t now_ns, tdm_error_t *err);
tdm_status_t client_make(const tdm_client_config_t *cfg, tdm_client_t **out, tdm_error_t *err);
/* client_keep sets how soon silence brings a PING, by open_cnt. */
void client_keep(tdm_client_t *c);
/* client_host takes the brackets off an IPv6 address. */
tdm_status_t client_host(char out[HOST_MAX], const char *host, tdm_error_t *err);
/* client_lost ends everything with one sentence. */
void client_lost(tdm_client_t *c, tdm_status_t status, const char *text);

/* events.c */
extern const ngtcp2_callbacks client_callbacks;

/* request.c */
int requests_open(tdm_client_t *c); /* after the handshake: 0, or -1 */
void request_end(request_t *r, tdm_client_outcome_t outcome, uint64_t error);
request_t *request_find(tdm_client_t *c, int64_t id);
void requests_free(tdm_client_t *c);

/* trust.c */
tdm_status_t trust_open(tdm_client_t *c, tdm_error_t *err);
void trust_close(tdm_client_t *c);

#endif /* TDM_NET_CLIENT_PRIVATE_H */
