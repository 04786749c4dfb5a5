/* SPDX-License-Identifier: Apache-2.0 */
#include "net/client/client_private.h"

static int check_h3(tdm_client_t *c, int64_t rv) {
    if (rv >= 0 || rv == NGHTTP3_ERR_STREAM_NOT_FOUND) return 0;
    c->h3_error = nghttp3_err_infer_quic_app_error_code((int)rv);
    return NGTCP2_ERR_CALLBACK_FAILURE;
}

static int on_handshake_completed(ngtcp2_conn *nc, void *user) {
    (void)nc;
    tdm_client_t *c = user;
    if (requests_open(c) != 0) return NGTCP2_ERR_CALLBACK_FAILURE;
    c->state = CLIENT_READY;
    return 0;
}

static int on_stream_data(ngtcp2_conn *nc, uint32_t flags, int64_t id, uint64_t offset,
                          const uint8_t *data, size_t sz, void *user, void *stream_user) {
    (void)offset;
    (void)stream_user;
    tdm_client_t *c = user;
    if (c->hc == NULL) return 0;
    nghttp3_ssize n =
        nghttp3_conn_read_stream(c->hc, id, data, sz, (flags & NGTCP2_STREAM_DATA_FLAG_FIN) != 0);
    if (n < 0) return check_h3(c, n);
    (void)ngtcp2_conn_extend_max_stream_offset(nc, id, (uint64_t)n);
    ngtcp2_conn_extend_max_offset(nc, (uint64_t)n);
    return 0;
}

static int on_acked(ngtcp2_conn *nc, int64_t id, uint64_t offset, uint64_t sz, void *user,
                    void *stream_user) {
    (void)nc;
    (void)offset;
    (void)stream_user;
    tdm_client_t *c = user;
    return c->hc == NULL ? 0 : check_h3(c, nghttp3_conn_add_ack_offset(c->hc, id, sz));
}

static int on_stream_close(ngtcp2_conn *nc, uint32_t flags, int64_t id, uint64_t error, void *user,
                           void *stream_user) {
    (void)nc;
    (void)stream_user;
    tdm_client_t *c = user;
    if (!(flags & NGTCP2_STREAM_CLOSE_FLAG_APP_ERROR_CODE_SET)) error = NGHTTP3_H3_NO_ERROR;
    return c->hc == NULL ? 0 : check_h3(c, nghttp3_conn_close_stream(c->hc, id, error));
}

static int on_stream_reset(ngtcp2_conn *nc, int64_t id, uint64_t final_sz, uint64_t error,
                           void *user, void *stream_user) {
    (void)nc;
    (void)final_sz;
    (void)stream_user;
    tdm_client_t *c = user;
    if (c->hc == NULL) return 0;
    (void)nghttp3_conn_shutdown_stream_read(c->hc, id);
    request_t *r = request_find(c, id);
    if (r != NULL) request_end(r, TDM_CLIENT_RESET, error);
    return 0;
}

/* The library ends the connection after this call. */
static int on_forgotten(ngtcp2_conn *nc, const ngtcp2_pkt_stateless_reset *sr, void *user) {
    (void)nc;
    (void)sr;
    tdm_client_t *c = user;
    c->is_forgotten = 1;
    return 0;
}

static int on_window(ngtcp2_conn *nc, int64_t id, uint64_t max, void *user, void *stream_user) {
    (void)nc;
    (void)max;
    (void)stream_user;
    tdm_client_t *c = user;
    return c->hc == NULL ? 0 : check_h3(c, nghttp3_conn_unblock_stream(c->hc, id));
}

static int on_new_cid(ngtcp2_conn *nc, ngtcp2_cid *cid, uint8_t *token, size_t cid_sz, void *user) {
    (void)nc;
    (void)user;
    cid->datalen = cid_sz;
    if (gnutls_rnd(GNUTLS_RND_NONCE, cid->data, cid_sz) != 0 ||
        gnutls_rnd(GNUTLS_RND_NONCE, token, NGTCP2_STATELESS_RESET_TOKENLEN) != 0) {
        return NGTCP2_ERR_CALLBACK_FAILURE;
    }
    return 0;
}

static void on_rand(uint8_t *dest, size_t sz, const ngtcp2_rand_ctx *ctx) {
    (void)ctx;
    (void)gnutls_rnd(GNUTLS_RND_NONCE, dest, sz);
}

const ngtcp2_callbacks client_callbacks = {
    .client_initial = ngtcp2_crypto_client_initial_cb,
    .recv_crypto_data = ngtcp2_crypto_recv_crypto_data_cb,
    .handshake_completed = on_handshake_completed,
    .encrypt = ngtcp2_crypto_encrypt_cb,
    .decrypt = ngtcp2_crypto_decrypt_cb,
    .hp_mask = ngtcp2_crypto_hp_mask_cb,
    .recv_stream_data = on_stream_data,
    .acked_stream_data_offset = on_acked,
    .stream_close = on_stream_close,
    .recv_retry = ngtcp2_crypto_recv_retry_cb,
    .rand = on_rand,
    .recv_stateless_reset = on_forgotten,
    .get_new_connection_id = on_new_cid,
    .update_key = ngtcp2_crypto_update_key_cb,
    .stream_reset = on_stream_reset,
    .extend_max_stream_data = on_window,
    .delete_crypto_aead_ctx = ngtcp2_crypto_delete_crypto_aead_ctx_cb,
    .delete_crypto_cipher_ctx = ngtcp2_crypto_delete_crypto_cipher_ctx_cb,
    .get_path_challenge_data = ngtcp2_crypto_get_path_challenge_data_cb,
    .version_negotiation = ngtcp2_crypto_version_negotiation_cb,
};
