/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RING_PIPE_H
#define TDM_RING_PIPE_H

/* tdm_pipe carries the body of one HTTP reply from the api tile to a
   door, as records of contiguous bytes.  The door may look far ahead of
   what it gives back: QUIC keeps bytes until the peer acknowledged them.

     api                    door
     write(bytes) --------> peek(cursor) ... bytes handed to the peer
       head                    cursor
                            release(n)   ... bytes acknowledged
                               tail
       [tail ..... cursor ..... head)  of a power-of-two buffer

     R1/A1  head: a record is whole before the door can see it.
     R2/A2  tail: bytes were let go before api may overwrite them.

   A record never wraps: where the end of the buffer is too near, a gap
   record skips it.  So a record of sz bytes, sz rounded up to a multiple
   of TDM_PIPE_RECORD_HEADER, needs at most 2 * (TDM_PIPE_RECORD_HEADER +
   sz) free bytes, and the largest one that always fits an empty pipe is
   TDM_PIPE_RECORD_MAX of its capacity.

   Ownership: the memory is the door's; one writer, one reader; reset by
   the door between two exchanges.  Full is ordinary: api keeps the token
   and tries again, so a slow reader costs one pipe and no more. */

#include "appliance/base/status.h"

TDM_BEGIN_DECLS

#define TDM_PIPE_RECORD_HEADER        16u
#define TDM_PIPE_RECORD_MAX(capacity) ((capacity) / 2u - TDM_PIPE_RECORD_HEADER)

typedef struct tdm_pipe {
    uint8_t *buf;
    uint32_t capacity;                         /* power of two */
    uint32_t head TDM_ALIGNED(TDM_CACHE_LINE); /* written by api */
    int64_t made_ns;                           /* api: of the records to come */
    uint32_t tail TDM_ALIGNED(TDM_CACHE_LINE); /* written by the door */
    uint32_t partial; /* door: payload bytes of the record at tail already released */
} tdm_pipe_t;

typedef struct tdm_pipe_record {
    const uint8_t *bytes;
    uint32_t sz;
    uint32_t token_cnt; /* output tokens this record completes */
    int64_t made_ns;    /* when the newest of them was made; 0: not told */
} tdm_pipe_record_t;

/* tdm_pipe_init takes capacity bytes (a power of two in [64, 2^30]) at
   buf, 8-byte aligned. */
TDM_MUST_USE tdm_status_t tdm_pipe_init(tdm_pipe_t *p, void *buf, uint32_t capacity);

/* tdm_pipe_reset empties it.  Neither side may be inside a call. */
void tdm_pipe_reset(tdm_pipe_t *p);

/* tdm_pipe_write appends one record: 1, or 0 where it does not fit now.
   sz in [1, TDM_PIPE_RECORD_MAX(capacity)], token_cnt < 65536.  api only. */
TDM_MUST_USE int tdm_pipe_write(tdm_pipe_t *p, const void *bytes, uint32_t sz, uint32_t token_cnt);

/* tdm_pipe_stamp tells when the tokens of the next record were made; 0, as
   after a reset: not told.  api only. */
static inline void tdm_pipe_stamp(tdm_pipe_t *p, int64_t made_ns) {
    p->made_ns = made_ns;
}

/* tdm_pipe_begin gives the reader's first cursor after a reset, 0. */
static inline uint32_t tdm_pipe_begin(void) {
    return 0;
}

/* tdm_pipe_peek gives the record at *cursor and moves the cursor past it:
   1, or 0 where there is none yet.  The bytes stay until released.  Door
   only. */
TDM_MUST_USE int tdm_pipe_peek(tdm_pipe_t *p, uint32_t *cursor, tdm_pipe_record_t *rec);

/* tdm_pipe_release gives back the next sz payload bytes, oldest first,
   all of them peeked before.  Door only. */
void tdm_pipe_release(tdm_pipe_t *p, uint64_t sz);

/* tdm_pipe_used gives the bytes in use, headers and gaps included. */
uint32_t tdm_pipe_used(const tdm_pipe_t *p);

TDM_END_DECLS

#endif /* TDM_RING_PIPE_H */
