/* SPDX-License-Identifier: Apache-2.0 */
/* One shard's header, byte by byte.  The grammar is a fixed, two-level
   part of JSON, so a cursor and a few takers do; nothing nests. */
#include "appliance/model/safetensors_private.h"

#include "appliance/base/size.h"
#include "appliance/model/dequant.h"

#include <stdlib.h>
#include <string.h>

typedef struct text {
    const char *bytes;
    uint64_t sz;
} text_t;

/* A cursor in the header; once it fails it takes nothing more. */
typedef struct scan {
    const char *begin;
    const char *at;
    const char *end;
    int has_failed;
} scan_t;

static void skip_space(scan_t *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
        s->at++;
}

/* is_next takes c where it is next. */
static int is_next(scan_t *s, char c) {
    skip_space(s);
    if (s->has_failed || s->at == s->end || *s->at != c) return 0;
    s->at++;
    return 1;
}

static void take(scan_t *s, char c) {
    if (!is_next(s, c)) s->has_failed = 1;
}

/* take_string gives the raw bytes between the quotes, escapes unresolved. */
static text_t take_string(scan_t *s) {
    take(s, '"');
    const char *from = s->at;
    while (!s->has_failed) {
        s->has_failed = s->at == s->end || (unsigned char)*s->at < ' ' ||
                        (*s->at == '\\' && s->end - s->at < 2);
        if (s->has_failed) break;
        if (*s->at == '"') return (text_t){from, (uint64_t)(s->at++ - from)};
        s->at += *s->at == '\\' ? 2 : 1;
    }
    return (text_t){"", 0};
}

/* take_number reads digits that fit 64 bits; no sign, fraction, exponent
   or leading zero. */
static uint64_t take_number(scan_t *s) {
    uint64_t v = 0;
    skip_space(s);
    const char *from = s->at;
    while (!s->has_failed && s->at < s->end && *s->at >= '0' && *s->at <= '9') {
        uint64_t digit = (uint64_t)(*s->at++ - '0');
        if (!tdm_size_mul(v, 10, &v) || !tdm_size_add(v, digit, &v)) s->has_failed = 1;
    }
    if (s->at == from || (*from == '0' && s->at - from > 1)) s->has_failed = 1;
    return v;
}

static int is_text(text_t t, const char *want) {
    return t.sz == strlen(want) && memcmp(t.bytes, want, t.sz) == 0;
}

static int shown(text_t t) {
    return (int)TDM_MIN(t.sz, (uint64_t)80);
}

/* --- one entry ---------------------------------------------------------- */

typedef struct entry {
    text_t name;
    text_t dtype;
    uint32_t dim_cnt;
    uint64_t dim[TDM_SAFETENSORS_DIM_MAX];
    uint64_t begin, end;
    uint32_t seen; /* bits of the fields below */
} entry_t;

enum { SEEN_DTYPE = 1, SEEN_SHAPE = 2, SEEN_OFFSETS = 4, SEEN_ALL = 7 };

static void take_shape(scan_t *s, entry_t *e) {
    take(s, '[');
    if (is_next(s, ']')) return;
    do {
        uint64_t dim = take_number(s);
        if (e->dim_cnt < TDM_SAFETENSORS_DIM_MAX) e->dim[e->dim_cnt] = dim;
        e->dim_cnt++; /* beyond the bound: refused with its name */
    } while (is_next(s, ','));
    take(s, ']');
}

static void take_offsets(scan_t *s, entry_t *e) {
    take(s, '[');
    e->begin = take_number(s);
    take(s, ',');
    e->end = take_number(s);
    take(s, ']');
}

static void take_entry(scan_t *s, entry_t *e) {
    take(s, '{');
    do {
        text_t field = take_string(s);
        uint32_t bit = is_text(field, "dtype")          ? SEEN_DTYPE
                       : is_text(field, "shape")        ? SEEN_SHAPE
                       : is_text(field, "data_offsets") ? SEEN_OFFSETS
                                                        : 0;
        if (bit == 0 || (e->seen & bit)) s->has_failed = 1;
        e->seen |= bit;
        take(s, ':');
        if (bit == SEEN_DTYPE) e->dtype = take_string(s);
        if (bit == SEEN_SHAPE) take_shape(s, e);
        if (bit == SEEN_OFFSETS) take_offsets(s, e);
    } while (is_next(s, ','));
    take(s, '}');
    if (e->seen != SEEN_ALL) s->has_failed = 1;
}

/* skip_metadata passes over "__metadata__", a flat map of strings. */
static void skip_metadata(scan_t *s) {
    take(s, '{');
    if (is_next(s, '}')) return;
    do {
        (void)take_string(s);
        take(s, ':');
        (void)take_string(s);
    } while (is_next(s, ','));
    take(s, '}');
}

/* --- what an entry must satisfy ------------------------------------------- */

static const struct {
    const char *name;
    uint32_t dtype;
    uint32_t elem_sz;
} known_type[] = {
    {"F32", TDM_DTYPE_F32, 4},
    {"F16", TDM_DTYPE_F16, 2},
    {"BF16", TDM_DTYPE_BF16, 2},
    {"F8_E4M3", TDM_SAFETENSORS_F8, 1},
};

static tdm_status_t check_entry(const entry_t *e, uint64_t data_sz, uint32_t *dtype,
                                tdm_error_t *err) {
    if (e->name.sz == 0 || e->name.sz >= TDM_SAFETENSORS_NAME_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT,
                             "safetensors: a name of %llu bytes, at most %u are read",
                             (unsigned long long)e->name.sz, TDM_SAFETENSORS_NAME_MAX - 1);
    if (memchr(e->name.bytes, '\\', e->name.sz))
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "safetensors: tensor %.*s: an escape in a name is not implemented",
                             shown(e->name), e->name.bytes);
    uint64_t elem_sz = 0;
    for (uint32_t i = 0; i < TDM_COUNT_OF(known_type); i++) {
        if (!is_text(e->dtype, known_type[i].name)) continue;
        elem_sz = known_type[i].elem_sz;
        *dtype = known_type[i].dtype;
    }
    if (elem_sz == 0)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "safetensors: tensor %.*s: type '%.*s' is not implemented, only F32, "
                             "F16, BF16 and F8_E4M3",
                             shown(e->name), e->name.bytes, shown(e->dtype), e->dtype.bytes);
    if (e->dim_cnt > TDM_SAFETENSORS_DIM_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT,
                             "safetensors: tensor %.*s has %u dimensions, at most %u are read",
                             shown(e->name), e->name.bytes, e->dim_cnt, TDM_SAFETENSORS_DIM_MAX);
    uint64_t sz = elem_sz;
    int is_sound = e->begin <= e->end && e->end <= data_sz && e->begin % elem_sz == 0;
    for (uint32_t i = 0; is_sound && i < e->dim_cnt; i++)
        is_sound = tdm_size_mul(sz, e->dim[i], &sz);
    if (!is_sound || sz == 0 || sz != e->end - e->begin)
        return tdm_error_set(err, TDM_ERR_CORRUPT,
                             "safetensors: tensor %.*s: bytes %llu to %llu of %llu do not hold its "
                             "shape",
                             shown(e->name), e->name.bytes, (unsigned long long)e->begin,
                             (unsigned long long)e->end, (unsigned long long)data_sz);
    return TDM_OK;
}

static tdm_status_t append(tdm_safetensors_t *s, const tdm_safetensor_t *t, tdm_error_t *err) {
    if (s->cnt == TDM_SAFETENSORS_TENSOR_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT, "safetensors: more than %u tensors",
                             TDM_SAFETENSORS_TENSOR_MAX);
    if (s->cnt == s->room) {
        uint32_t room = s->room ? 2 * s->room : 256;
        tdm_safetensor_t *more = realloc(s->tensor, room * sizeof *more);
        if (!more) return tdm_error_set(err, TDM_ERR_NOMEM, "safetensors: no memory");
        s->tensor = more;
        s->room = room;
    }
    s->tensor[s->cnt++] = *t;
    return TDM_OK;
}

/* --- the shard ------------------------------------------------------------ */

static int by_place(const void *a, const void *b) {
    const tdm_safetensor_t *x = a, *y = b;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* check_tiling sorts the shard's tensors by place: each begins where the
   one before ends, and the last ends with the file. */
static tdm_status_t check_tiling(tdm_safetensors_t *s, uint32_t first, const uint8_t *data,
                                 const uint8_t *end, tdm_error_t *err) {
    if (s->cnt > first) qsort(s->tensor + first, s->cnt - first, sizeof *s->tensor, by_place);
    for (uint32_t i = first; i < s->cnt; i++) {
        const tdm_safetensor_t *t = &s->tensor[i];
        if (t->bytes != data)
            return tdm_error_set(err, TDM_ERR_CORRUPT, "safetensors: %s before tensor %.*s",
                                 t->bytes > data ? "bytes of no tensor" : "an overlap",
                                 (int)TDM_MIN(t->name_sz, 80u), t->name);
        data += t->sz;
    }
    if (data != end)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "safetensors: %llu bytes after the last tensor",
                             (unsigned long long)(end - data));
    return TDM_OK;
}

static tdm_status_t read_entries(tdm_safetensors_t *s, uint32_t shard, scan_t *scan,
                                 const uint8_t *data, uint64_t data_sz, tdm_error_t *err) {
    int has_metadata = 0;
    take(scan, '{');
    if (is_next(scan, '}')) return TDM_OK;
    do {
        entry_t e = {.name = take_string(scan)};
        take(scan, ':');
        if (is_text(e.name, "__metadata__")) {
            if (has_metadata) scan->has_failed = 1;
            has_metadata = 1;
            skip_metadata(scan);
            continue;
        }
        take_entry(scan, &e);
        if (scan->has_failed) break;
        uint32_t dtype = 0;
        tdm_status_t st = check_entry(&e, data_sz, &dtype, err);
        if (st != TDM_OK) return st;
        tdm_safetensor_t t = {.name = e.name.bytes,
                              .name_sz = (uint32_t)e.name.sz,
                              .shard = shard,
                              .dtype = dtype,
                              .dim_cnt = e.dim_cnt,
                              .bytes = data + e.begin,
                              .sz = e.end - e.begin};
        memcpy(t.dim, e.dim, sizeof t.dim);
        st = append(s, &t, err);
        if (st != TDM_OK) return st;
    } while (is_next(scan, ','));
    take(scan, '}');
    return TDM_OK;
}

tdm_status_t tdm_safetensors_read(tdm_safetensors_t *s, uint32_t shard, tdm_error_t *err) {
    const tdm_shard_t *f = &s->shard[shard];
    uint64_t header_sz = 0;
    if (f->sz < 8)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "safetensors: %llu bytes are no file",
                             (unsigned long long)f->sz);
    for (uint32_t i = 0; i < 8; i++) header_sz |= (uint64_t)f->bytes[i] << (8 * i);
    if (header_sz > f->sz - 8)
        return tdm_error_set(err, TDM_ERR_CORRUPT,
                             "safetensors: a header of %llu bytes in a file of %llu",
                             (unsigned long long)header_sz, (unsigned long long)f->sz);
    if (header_sz > TDM_SAFETENSORS_HEADER_MAX)
        return tdm_error_set(
            err, TDM_ERR_LIMIT, "safetensors: a header of %llu bytes, at most %llu are read",
            (unsigned long long)header_sz, (unsigned long long)TDM_SAFETENSORS_HEADER_MAX);
    const char *begin = (const char *)f->bytes + 8;
    scan_t scan = {.begin = begin, .at = begin, .end = begin + header_sz};
    uint32_t first = s->cnt;
    const uint8_t *data = f->bytes + 8 + header_sz;
    tdm_status_t st = read_entries(s, shard, &scan, data, f->sz - 8 - header_sz, err);
    if (st != TDM_OK) return st;
    skip_space(&scan);
    if (scan.has_failed || scan.at != scan.end)
        return tdm_error_set(err, TDM_ERR_CORRUPT,
                             "safetensors: the header is malformed at byte %llu",
                             (unsigned long long)(scan.at - scan.begin));
    return check_tiling(s, first, data, f->bytes + f->sz, err);
}
