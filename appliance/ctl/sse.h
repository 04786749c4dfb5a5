/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_SSE_H
#define TDM_CTL_SSE_H

/* tdm_sse cuts a byte stream into the data lines of server-sent events
   (WHATWG HTML, section 9.2), whatever way the bytes are split.  Only what
   an OpenAI-style stream uses: "data: " lines; comments and other fields
   are skipped. */

#include "appliance/base/status.h"

#define TDM_SSE_LINE_MAX 65536u

typedef struct tdm_sse {
    void (*data)(void *ctx, const char *line); /* one event's data, NUL-terminated */
    void *ctx;
    uint32_t len;
    uint32_t is_over; /* the line was longer than TDM_SSE_LINE_MAX and was dropped */
    uint32_t over_cnt;
    char line[TDM_SSE_LINE_MAX + 1];
} tdm_sse_t;

/* tdm_sse_init prepares a parser in the caller's memory. */
void tdm_sse_init(tdm_sse_t *s, void (*data)(void *ctx, const char *line), void *ctx);

/* tdm_sse_feed takes the next bytes and calls data for each whole line. */
void tdm_sse_feed(tdm_sse_t *s, const uint8_t *bytes, uint64_t sz);

#endif /* TDM_CTL_SSE_H */
