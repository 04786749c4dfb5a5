/* SPDX-License-Identifier: Apache-2.0 */
#include "net/h3/h3_private.h"

#include <stdio.h>

/* A client that is told to come back should not do so at once. */
#define RETRY_AFTER_MS 1000u

static const char *type_of(int status) {
    if (status == 401) return "authentication_error";
    if (status == 404) return "not_found_error";
    if (status == 429) return "rate_limit_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

void refusal_init(tdm_h3_t *h) {
    tdm_reason_t first = tdm_reason_first(TDM_GROUP_REFUSE);
    for (uint32_t i = 0; i < tdm_reason_cnt(TDM_GROUP_REFUSE); i++) {
        tdm_reason_t r = first + i;
        snprintf(h->refusal[r], REFUSAL_BODY_MAX,
                 "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":\"%s\"}}",
                 tdm_reason_text(r), type_of(tdm_reason_http(r)), tdm_reason_name(r));
    }
}

void refusal_answer(stream_t *st, tdm_reason_t reason) {
    tdm_h3_t *h = st->session->h;
    tdm_reply_head_t head = {.content_type = TDM_CONTENT_JSON};
    if (st->x != NULL) memcpy(head.request_id, st->x->request_id, sizeof head.request_id);
    exchange_give_back(st);
    h->counters.refused[reason]++;
    st->own_body = h->refusal[reason];
    st->own_sz = (uint32_t)strlen(st->own_body);
    int status = tdm_reason_http(reason);
    head.status = (uint16_t)status;
    head.content_sz = st->own_sz;
    if (status == 429 || status == 503) head.retry_after_ms = RETRY_AFTER_MS;
    reply_head(st, &head);
}
