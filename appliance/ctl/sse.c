/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/sse.h"

#include <string.h>

void tdm_sse_init(tdm_sse_t *s, void (*data)(void *ctx, const char *line), void *ctx) {
    s->data = data;
    s->ctx = ctx;
    s->len = 0;
    s->is_over = 0;
    s->over_cnt = 0;
}

static void line_end(tdm_sse_t *s) {
    static const char prefix[] = "data:";
    if (s->len > 0 && s->line[s->len - 1] == '\r') s->len--;
    s->line[s->len] = 0;
    if (s->is_over) {
        s->over_cnt++;
    } else if (strncmp(s->line, prefix, sizeof prefix - 1) == 0) {
        const char *data = s->line + sizeof prefix - 1;
        s->data(s->ctx, *data == ' ' ? data + 1 : data);
    }
    s->len = 0;
    s->is_over = 0;
}

void tdm_sse_feed(tdm_sse_t *s, const uint8_t *bytes, uint64_t sz) {
    for (uint64_t i = 0; i < sz; i++) {
        if (bytes[i] == '\n')
            line_end(s);
        else if (s->len < TDM_SSE_LINE_MAX)
            s->line[s->len++] = (char)bytes[i];
        else
            s->is_over = 1;
    }
}
