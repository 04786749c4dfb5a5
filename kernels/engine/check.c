/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/engine/check.h"

/* Widths past this are no model; it keeps every product below 2^63. */
#define WIDTH_MAX (1u << 22)
#define HEAD_MAX  (1u << 14)

static tdm_status_t check_config(const tdm_backend_config_t *c, tdm_error_t *err) {
    if (c->kv_page_cnt == 0 || c->kv_page_cnt == UINT32_MAX)
        return tdm_error_set(err, TDM_ERR_INVAL, "kv_page_cnt %u", c->kv_page_cnt);
    if (c->kv_dtype >= TDM_KV_DTYPE_CNT)
        return tdm_error_set(err, TDM_ERR_INVAL, "kv_dtype %u", c->kv_dtype);
    if (c->seq_max == 0 || c->seq_max > TDM_SEQ_MAX)
        return tdm_error_set(err, TDM_ERR_INVAL, "seq_max %u, limit %d", c->seq_max, TDM_SEQ_MAX);
    if (c->token_max == 0 || c->token_max > TDM_PLAN_TOKEN_MAX)
        return tdm_error_set(err, TDM_ERR_INVAL, "token_max %u, limit %d", c->token_max,
                             TDM_PLAN_TOKEN_MAX);
    if (c->context_max == 0 || c->context_max > TDM_CONTEXT_MAX)
        return tdm_error_set(err, TDM_ERR_INVAL, "context_max %u, limit %d", c->context_max,
                             TDM_CONTEXT_MAX);
    if (c->is_ahead > 1) return tdm_error_set(err, TDM_ERR_INVAL, "is_ahead %u", c->is_ahead);
    return TDM_OK;
}

static tdm_status_t check_shape(const tdm_shape_t *s, tdm_error_t *err) {
    if (s->layer_cnt == 0 || s->layer_cnt > TDM_LAYER_MAX)
        return tdm_error_set(err, TDM_ERR_INVAL, "model: %u layers", s->layer_cnt);
    if (s->hidden == 0 || s->hidden > WIDTH_MAX || s->ffn == 0 || s->ffn > WIDTH_MAX)
        return tdm_error_set(err, TDM_ERR_INVAL, "model: hidden %u, ffn %u", s->hidden, s->ffn);
    if (s->vocab == 0 || s->vocab > TDM_VOCAB_MAX)
        return tdm_error_set(err, TDM_ERR_INVAL, "model: vocabulary of %u", s->vocab);
    if (s->nhead_kv == 0 || s->nhead_q > HEAD_MAX || s->nhead_q == 0 ||
        s->nhead_q % s->nhead_kv != 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "model: %u heads over %u KV heads", s->nhead_q,
                             s->nhead_kv);
    if (s->head_dim == 0 || s->head_dim % 2 != 0 || s->head_dim > TDM_HEAD_DIM_MAX)
        return tdm_error_set(err, TDM_ERR_INVAL, "model: head_dim %u", s->head_dim);
    if (s->rope_kind > TDM_ROPE_LLAMA3)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "model: rope_kind %u", s->rope_kind);
    if (!(s->rms_eps >= 0.0f) || !(s->rope_theta > 0.0f))
        return tdm_error_set(err, TDM_ERR_INVAL, "model: rms_eps or rope_theta");
    if (s->rope_kind != TDM_ROPE_PLAIN && !(s->rope_factor > 0.0f))
        return tdm_error_set(err, TDM_ERR_INVAL, "model: rope_factor");
    if (s->rope_kind == TDM_ROPE_LLAMA3 && !(s->rope_high_freq_factor > s->rope_low_freq_factor))
        return tdm_error_set(err, TDM_ERR_INVAL, "model: rope frequency factors");
    return TDM_OK;
}

tdm_status_t tdm_engine_check(const tdm_shape_t *shape, const tdm_backend_config_t *config,
                              tdm_error_t *err) {
    tdm_status_t st = check_config(config, err);
    return st == TDM_OK ? check_shape(shape, err) : st;
}
