/* SPDX-License-Identifier: Apache-2.0 */
#include "net/quic/quic_private.h"

#include "appliance/base/rng.h"

#define APP(c) ((c)->q->cfg.app)

static int answer(int rv) {
    return rv == 0 ? 0 : NGTCP2_ERR_CALLBACK_FAILURE;
}

/* --- packet numbers --------------------------------------------------- */

static _Thread_local tdm_quic_conn_t *reader;

void reader_set(tdm_quic_conn_t *c) {
    reader = c;
}

/* on_decrypt sees the header in the clear: a 1-RTT packet's ends with its
   number (RFC 9000, 17.3.1). */
static int on_decrypt(uint8_t *dest, const ngtcp2_crypto_aead *aead,
                      const ngtcp2_crypto_aead_ctx *ctx, const uint8_t *sealed, size_t sealed_sz,
                      const uint8_t *nonce, size_t nonce_sz, const uint8_t *head, size_t head_sz) {
    int rv = ngtcp2_crypto_decrypt_cb(dest, aead, ctx, sealed, sealed_sz, nonce, nonce_sz, head,
                                      head_sz);
    if (rv != 0 || reader == NULL || head_sz < 5 || (head[0] & 0x80u) != 0) return rv;
    uint32_t pn_sz = (head[0] & 3u) + 1u;
    uint64_t pn = 0;
    for (uint32_t i = 0; i < pn_sz; i++) pn = pn << 8 | head[head_sz - pn_sz + i];
    reader->q->counters.packet_gaps += gap_note(&reader->gap, pn, 8u * pn_sz);
    return rv;
}

/* --- the handshake ---------------------------------------------------- */

/* Who sends TLS bytes of the Handshake level has read ours: the address is
   the peer's own (RFC 9000, 8.1). */
static int on_crypto(ngtcp2_conn *nc, ngtcp2_crypto_level level, uint64_t offset,
                     const uint8_t *data, size_t sz, void *user) {
    tdm_quic_conn_t *c = user;
    if (level == NGTCP2_CRYPTO_LEVEL_HANDSHAKE) c->is_proved = 1;
    return ngtcp2_crypto_recv_crypto_data_cb(nc, level, offset, data, sz, user);
}

static int on_handshake_completed(ngtcp2_conn *nc, void *user) {
    (void)nc;
    tdm_quic_conn_t *c = user;
    c->state = CONN_OPEN;
    c->is_begun = 0;
    c->q->counters.half_open_cnt--;
    c->q->counters.handshakes_done++;
    c->is_app_open = 1;
    c->quiet_ns = c->q->now_ns;
    return answer(APP(c).conn_open(APP(c).ctx, c, c->q->now_ns));
}

static int on_key_update(ngtcp2_conn *nc, uint8_t *rx_secret, uint8_t *tx_secret,
                         ngtcp2_crypto_aead_ctx *rx_ctx, uint8_t *rx_iv,
                         ngtcp2_crypto_aead_ctx *tx_ctx, uint8_t *tx_iv, const uint8_t *rx_before,
                         const uint8_t *tx_before, size_t secret_sz, void *user) {
    tdm_quic_conn_t *c = user;
    /* The first call prepares for an update, before anybody asked. */
    c->q->counters.key_updates += c->has_next_key;
    c->has_next_key = 1;
    return ngtcp2_crypto_update_key_cb(nc, rx_secret, tx_secret, rx_ctx, rx_iv, tx_ctx, tx_iv,
                                       rx_before, tx_before, secret_sz, user);
}

/* --- streams ---------------------------------------------------------- */

static int on_stream_data(ngtcp2_conn *nc, uint32_t flags, int64_t id, uint64_t offset,
                          const uint8_t *data, size_t sz, void *user, void *stream_user) {
    (void)nc;
    (void)offset;
    (void)stream_user;
    tdm_quic_conn_t *c = user;
    int is_fin = (flags & NGTCP2_STREAM_DATA_FLAG_FIN) != 0;
    return answer(APP(c).stream_data(APP(c).ctx, c, id, data, sz, is_fin, c->q->now_ns));
}

static int on_acked(ngtcp2_conn *nc, int64_t id, uint64_t offset, uint64_t sz, void *user,
                    void *stream_user) {
    (void)nc;
    (void)offset;
    (void)stream_user;
    tdm_quic_conn_t *c = user;
    return answer(APP(c).stream_acked(APP(c).ctx, c, id, sz));
}

static int is_request(ngtcp2_conn *nc, int64_t id) {
    return ngtcp2_is_bidi_stream(id) && !ngtcp2_conn_is_local_stream(nc, id);
}

static int on_stream_open(ngtcp2_conn *nc, int64_t id, void *user) {
    tdm_quic_conn_t *c = user;
    if (is_request(nc, id)) c->request_cnt++;
    return 0;
}

static int on_stream_close(ngtcp2_conn *nc, uint32_t flags, int64_t id, uint64_t error, void *user,
                           void *stream_user) {
    (void)stream_user;
    tdm_quic_conn_t *c = user;
    if (!(flags & NGTCP2_STREAM_CLOSE_FLAG_APP_ERROR_CODE_SET)) error = 0x100; /* H3_NO_ERROR */
    int rv;
    if (!is_request(nc, id)) return answer(APP(c).stream_close(APP(c).ctx, c, id, error));
    c->closed_cnt++;
    if (--c->request_cnt == 0) c->quiet_ns = c->q->now_ns;
    rv = APP(c).stream_close(APP(c).ctx, c, id, error);
    ngtcp2_conn_extend_max_streams_bidi(nc, 1);
    return answer(rv);
}

static int on_stream_reset(ngtcp2_conn *nc, int64_t id, uint64_t final_sz, uint64_t error,
                           void *user, void *stream_user) {
    (void)nc;
    (void)final_sz;
    (void)stream_user;
    tdm_quic_conn_t *c = user;
    return answer(APP(c).stream_reset(APP(c).ctx, c, id, error));
}

static int on_window(ngtcp2_conn *nc, int64_t id, uint64_t max, void *user, void *stream_user) {
    (void)nc;
    (void)max;
    (void)stream_user;
    tdm_quic_conn_t *c = user;
    return answer(APP(c).send_writable(APP(c).ctx, c, id));
}

static int on_new_cid(ngtcp2_conn *nc, ngtcp2_cid *cid, uint8_t *token, size_t cid_sz, void *user) {
    (void)nc;
    tdm_quic_conn_t *c = user;
    if (cid_sz != CID_SZ) return NGTCP2_ERR_CALLBACK_FAILURE;
    cid->datalen = CID_SZ;
    cid_make(c->q, cid->data);
    if (ngtcp2_crypto_generate_stateless_reset_token(token, c->q->reset_secret,
                                                     sizeof c->q->reset_secret, cid) != 0 ||
        !conn_add_cid(c, cid->data, cid->datalen)) {
        return NGTCP2_ERR_CALLBACK_FAILURE;
    }
    return 0;
}

static int on_old_cid(ngtcp2_conn *nc, const ngtcp2_cid *cid, void *user) {
    (void)nc;
    conn_remove_cid(user, cid->data, cid->datalen);
    return 0;
}

/* Padding and probe timing only; ids and challenges come from GnuTLS. */
static void on_rand(uint8_t *dest, size_t sz, const ngtcp2_rand_ctx *ctx) {
    for (size_t i = 0; i < sz; i++) dest[i] = (uint8_t)tdm_rng_next(ctx->native_handle);
}

const ngtcp2_callbacks conn_callbacks = {
    .recv_client_initial = ngtcp2_crypto_recv_client_initial_cb,
    .recv_crypto_data = on_crypto,
    .handshake_completed = on_handshake_completed,
    .encrypt = ngtcp2_crypto_encrypt_cb,
    .decrypt = on_decrypt,
    .hp_mask = ngtcp2_crypto_hp_mask_cb,
    .recv_stream_data = on_stream_data,
    .acked_stream_data_offset = on_acked,
    .stream_open = on_stream_open,
    .stream_close = on_stream_close,
    .rand = on_rand,
    .get_new_connection_id = on_new_cid,
    .remove_connection_id = on_old_cid,
    .update_key = on_key_update,
    .stream_reset = on_stream_reset,
    .extend_max_stream_data = on_window,
    .delete_crypto_aead_ctx = ngtcp2_crypto_delete_crypto_aead_ctx_cb,
    .delete_crypto_cipher_ctx = ngtcp2_crypto_delete_crypto_cipher_ctx_cb,
    .get_path_challenge_data = ngtcp2_crypto_get_path_challenge_data_cb,
    .version_negotiation = ngtcp2_crypto_version_negotiation_cb,
};
