/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ring/pipe.h"

#include "appliance/base/atomic.h"
#include "appliance/base/check.h"

#include <string.h>

#define KIND_RECORD 1u
#define KIND_GAP    2u

typedef struct record_header {
    uint32_t sz; /* payload bytes, or bytes skipped after the header */
    uint16_t token_cnt;
    uint16_t kind;
    int64_t made_ns;
} record_header_t;

/* A gap is at least a header: records are padded to whole ones. */
_Static_assert(sizeof(record_header_t) == TDM_PIPE_RECORD_HEADER, "the header is its size");

static uint32_t padded(uint32_t sz) {
    return (sz + TDM_PIPE_RECORD_HEADER - 1u) & ~(TDM_PIPE_RECORD_HEADER - 1u);
}

static record_header_t header_at(const tdm_pipe_t *p, uint32_t at) {
    record_header_t h;
    memcpy(&h, p->buf + (at & (p->capacity - 1)), sizeof h);
    return h;
}

static void put_header(tdm_pipe_t *p, uint32_t at, record_header_t h) {
    memcpy(p->buf + (at & (p->capacity - 1)), &h, sizeof h);
}

tdm_status_t tdm_pipe_init(tdm_pipe_t *p, void *buf, uint32_t capacity) {
    if (!buf || capacity < 64 || capacity > (1u << 30) || (capacity & (capacity - 1)))
        return TDM_ERR_INVAL;
    *p = (tdm_pipe_t){.buf = buf, .capacity = capacity};
    return TDM_OK;
}

void tdm_pipe_reset(tdm_pipe_t *p) {
    tdm_store_relaxed(&p->head, 0u);
    tdm_store_relaxed(&p->tail, 0u);
    p->partial = 0;
    p->made_ns = 0;
}

int tdm_pipe_write(tdm_pipe_t *p, const void *bytes, uint32_t sz, uint32_t token_cnt) {
    TDM_CHECK(sz >= 1 && sz <= TDM_PIPE_RECORD_MAX(p->capacity) && token_cnt < 65536);
    uint32_t need = TDM_PIPE_RECORD_HEADER + padded(sz);
    uint32_t head = p->head;
    uint32_t free_sz = p->capacity - (head - tdm_load_acquire(&p->tail)); /* A2 */
    uint32_t to_end = p->capacity - (head & (p->capacity - 1));
    uint32_t gap = to_end < need ? to_end : 0;
    if (free_sz < need + gap) return 0;
    if (gap) {
        put_header(p, head,
                   (record_header_t){.sz = gap - TDM_PIPE_RECORD_HEADER, .kind = KIND_GAP});
        head += gap;
    }
    put_header(p, head,
               (record_header_t){.sz = sz,
                                 .token_cnt = (uint16_t)token_cnt,
                                 .kind = KIND_RECORD,
                                 .made_ns = p->made_ns});
    p->made_ns = 0;
    memcpy(p->buf + (head & (p->capacity - 1)) + TDM_PIPE_RECORD_HEADER, bytes, sz);
    tdm_store_release(&p->head, head + need); /* R1: pairs with A1 in tdm_pipe_peek */
    return 1;
}

int tdm_pipe_peek(tdm_pipe_t *p, uint32_t *cursor, tdm_pipe_record_t *rec) {
    uint32_t head = tdm_load_acquire(&p->head); /* A1: pairs with R1 in tdm_pipe_write */
    if (*cursor == head) return 0;
    record_header_t h = header_at(p, *cursor);
    if (h.kind == KIND_GAP) {
        *cursor += TDM_PIPE_RECORD_HEADER + h.sz;
        h = header_at(p, *cursor); /* a gap is published together with its record */
    }
    TDM_CHECK(h.kind == KIND_RECORD && h.sz <= p->capacity);
    rec->bytes = p->buf + (*cursor & (p->capacity - 1)) + TDM_PIPE_RECORD_HEADER;
    rec->sz = h.sz;
    rec->token_cnt = h.token_cnt;
    rec->made_ns = h.made_ns;
    *cursor += TDM_PIPE_RECORD_HEADER + padded(h.sz);
    return 1;
}

void tdm_pipe_release(tdm_pipe_t *p, uint64_t sz) {
    uint32_t tail = p->tail;
    while (sz > 0) {
        TDM_CHECK(tail != tdm_load_relaxed(&p->head));
        record_header_t h = header_at(p, tail);
        if (h.kind == KIND_GAP) {
            tail += TDM_PIPE_RECORD_HEADER + h.sz;
            continue;
        }
        uint32_t left = h.sz - p->partial;
        if (sz < left) {
            p->partial += (uint32_t)sz;
            break;
        }
        sz -= left;
        p->partial = 0;
        tail += TDM_PIPE_RECORD_HEADER + padded(h.sz);
    }
    tdm_store_release(&p->tail, tail); /* R2: pairs with A2 in tdm_pipe_write */
}

uint32_t tdm_pipe_used(const tdm_pipe_t *p) {
    uint32_t used = tdm_load_relaxed(&p->head) - tdm_load_relaxed(&p->tail);
    return used > p->capacity ? p->capacity : used;
}
