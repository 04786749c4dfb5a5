/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_GGUF_BUILD_H
#define TDM_TESTS_GGUF_BUILD_H

/* Writes small GGUF files into memory, right ones and, by its raw calls,
   wrong ones.  Key-value pairs first, then tensors, then gguf_finish. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct gguf_build {
    uint8_t *bytes;
    uint64_t sz, room;
    uint64_t key_cnt, tensor_cnt;
    uint8_t *data; /* tensor contents, appended by gguf_finish */
    uint64_t data_sz, data_room;
} gguf_build_t;

static inline void gguf_raw(gguf_build_t *b, const void *p, uint64_t sz) {
    if (b->sz + sz > b->room) {
        b->room = 2 * (b->sz + sz);
        b->bytes = realloc(b->bytes, b->room);
        if (!b->bytes) abort();
    }
    if (sz) memcpy(b->bytes + b->sz, p, sz);
    b->sz += sz;
}

static inline void gguf_raw32(gguf_build_t *b, uint32_t v) {
    gguf_raw(b, &v, sizeof v);
}

static inline void gguf_raw64(gguf_build_t *b, uint64_t v) {
    gguf_raw(b, &v, sizeof v);
}

static inline void gguf_text(gguf_build_t *b, const char *s, uint64_t sz) {
    gguf_raw64(b, sz);
    gguf_raw(b, s, sz);
}

static inline void gguf_start(gguf_build_t *b) {
    memset(b, 0, sizeof *b);
    gguf_raw(b, "GGUF", 4);
    gguf_raw32(b, 3);
    gguf_raw64(b, 0); /* counts, set by gguf_finish */
    gguf_raw64(b, 0);
}

static inline void gguf_key(gguf_build_t *b, const char *key, uint32_t type) {
    gguf_text(b, key, strlen(key));
    gguf_raw32(b, type);
    b->key_cnt++;
}

static inline void gguf_key_u32(gguf_build_t *b, const char *key, uint32_t v) {
    gguf_key(b, key, 4);
    gguf_raw32(b, v);
}

static inline void gguf_key_f32(gguf_build_t *b, const char *key, float v) {
    gguf_key(b, key, 6);
    gguf_raw(b, &v, sizeof v);
}

static inline void gguf_key_bool(gguf_build_t *b, const char *key, uint8_t v) {
    gguf_key(b, key, 7);
    gguf_raw(b, &v, 1);
}

static inline void gguf_key_string(gguf_build_t *b, const char *key, const char *v) {
    gguf_key(b, key, 8);
    gguf_text(b, v, strlen(v));
}

/* gguf_key_array begins an array: cnt elements of that type follow raw. */
static inline void gguf_key_array(gguf_build_t *b, const char *key, uint32_t type, uint64_t cnt) {
    gguf_key(b, key, 9);
    gguf_raw32(b, type);
    gguf_raw64(b, cnt);
}

/* gguf_tensor_at writes an info that points where the caller says. */
static inline void gguf_tensor_at(gguf_build_t *b, const char *name, uint32_t dtype,
                                  uint32_t dim_cnt, const uint64_t *dim, uint64_t offset) {
    gguf_text(b, name, strlen(name));
    gguf_raw32(b, dim_cnt);
    for (uint32_t i = 0; i < dim_cnt; i++) gguf_raw64(b, dim[i]);
    gguf_raw32(b, dtype);
    gguf_raw64(b, offset);
    b->tensor_cnt++;
}

static inline void gguf_tensor(gguf_build_t *b, const char *name, uint32_t dtype, uint64_t cols,
                               uint64_t rows, const void *data, uint64_t sz) {
    uint64_t dim[2] = {cols, rows};
    uint64_t at = (b->data_sz + 31) & ~UINT64_C(31);
    gguf_tensor_at(b, name, dtype, rows ? 2 : 1, dim, at);
    if (at + sz > b->data_room) {
        b->data_room = 2 * (at + sz);
        b->data = realloc(b->data, b->data_room);
        if (!b->data) abort();
    }
    memset(b->data + b->data_sz, 0, at - b->data_sz);
    memcpy(b->data + at, data, sz);
    b->data_sz = at + sz;
}

static inline void gguf_finish(gguf_build_t *b) {
    memcpy(b->bytes + 8, &b->tensor_cnt, 8);
    memcpy(b->bytes + 16, &b->key_cnt, 8);
    static const uint8_t zero[32];
    gguf_raw(b, zero, ((b->sz + 31) & ~UINT64_C(31)) - b->sz);
    gguf_raw(b, b->data, b->data_sz);
}

static inline void gguf_drop(gguf_build_t *b) {
    free(b->bytes);
    free(b->data);
}

#endif /* TDM_TESTS_GGUF_BUILD_H */
