/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/size.h"
#include "appliance/model/dequant.h"
#include "appliance/model/gguf_private.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC_LITTLE 0x46554747u /* "GGUF" */

/* A name of the file in an error sentence: cut, never terminated there. */
#define NAME_FMT       "%.*s"
#define NAME_ARG(name) (int)TDM_MIN((name).sz, (uint64_t)80), (name).bytes

/* cursor walks the head of the file; every read checks what is left. */
typedef struct cursor {
    const uint8_t *bytes;
    uint64_t sz;
    uint64_t at;
} cursor_t;

static const uint8_t *take(cursor_t *c, uint64_t sz) {
    if (sz > c->sz - c->at) return NULL;
    const uint8_t *p = c->bytes + c->at;
    c->at += sz;
    return p;
}

static int take_u32(cursor_t *c, uint32_t *out) {
    const uint8_t *p = take(c, sizeof *out);
    if (p) memcpy(out, p, sizeof *out);
    return p != NULL;
}

static int take_u64(cursor_t *c, uint64_t *out) {
    const uint8_t *p = take(c, sizeof *out);
    if (p) memcpy(out, p, sizeof *out);
    return p != NULL;
}

static tdm_status_t cut_short(tdm_error_t *err, const char *what) {
    return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: the file ends inside %s", what);
}

uint32_t tdm_gguf_type_sz(uint32_t type) {
    static const uint8_t sz[TDM_GGUF_TYPE_CNT] = {
        [TDM_GGUF_U8] = 1,  [TDM_GGUF_I8] = 1,  [TDM_GGUF_U16] = 2, [TDM_GGUF_I16] = 2,
        [TDM_GGUF_U32] = 4, [TDM_GGUF_I32] = 4, [TDM_GGUF_F32] = 4, [TDM_GGUF_BOOL] = 1,
        [TDM_GGUF_U64] = 8, [TDM_GGUF_I64] = 8, [TDM_GGUF_F64] = 8,
    };
    return type < TDM_GGUF_TYPE_CNT ? sz[type] : 0;
}

/* take_name reads the name of a key or tensor: short and without control
   bytes, so that it can be compared and printed. */
static tdm_status_t take_name(cursor_t *c, const char *what, uint32_t idx, tdm_gguf_string_t *out,
                              tdm_error_t *err) {
    if (!take_u64(c, &out->sz)) return cut_short(err, what);
    if (out->sz == 0)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: name of %s %u is empty", what, idx);
    if (out->sz > TDM_GGUF_NAME_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT, "gguf: name of %s %u has %llu bytes, at most %d",
                             what, idx, (unsigned long long)out->sz, TDM_GGUF_NAME_MAX);
    out->bytes = (const char *)take(c, out->sz);
    if (!out->bytes) return cut_short(err, what);
    for (uint64_t i = 0; i < out->sz; i++) {
        unsigned char b = (unsigned char)out->bytes[i];
        if (b < 0x20 || b == 0x7f)
            return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: name of %s %u has a control byte",
                                 what, idx);
    }
    return TDM_OK;
}

static tdm_status_t take_string(cursor_t *c, const tdm_gguf_string_t *key, tdm_gguf_string_t *out,
                                tdm_error_t *err) {
    if (!take_u64(c, &out->sz)) goto cut;
    if (out->sz > TDM_GGUF_STRING_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT,
                             "gguf: key " NAME_FMT ": a string of %llu bytes, at most %u",
                             NAME_ARG(*key), (unsigned long long)out->sz, TDM_GGUF_STRING_MAX);
    out->bytes = (const char *)take(c, out->sz);
    if (out->bytes) return TDM_OK;
cut:
    return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: the file ends inside key " NAME_FMT,
                         NAME_ARG(*key));
}

static tdm_status_t check_bools(const tdm_gguf_string_t *key, const uint8_t *p, uint64_t cnt,
                                tdm_error_t *err) {
    for (uint64_t i = 0; i < cnt; i++)
        if (p[i] > 1)
            return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: key " NAME_FMT ": a bool of %u",
                                 NAME_ARG(*key), p[i]);
    return TDM_OK;
}

static tdm_status_t take_array(cursor_t *c, const tdm_gguf_string_t *key, tdm_gguf_array_t *a,
                               tdm_error_t *err) {
    uint32_t type;
    if (!take_u32(c, &type) || !take_u64(c, &a->cnt)) goto cut;
    if (type == TDM_GGUF_ARRAY)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "gguf: key " NAME_FMT ": an array of arrays",
                             NAME_ARG(*key));
    if (type >= TDM_GGUF_TYPE_CNT)
        return tdm_error_set(err, TDM_ERR_CORRUPT,
                             "gguf: key " NAME_FMT ": unknown element type %u", NAME_ARG(*key),
                             type);
    if (a->cnt > TDM_GGUF_ELEMENT_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT,
                             "gguf: key " NAME_FMT ": an array of %llu elements, at most %u",
                             NAME_ARG(*key), (unsigned long long)a->cnt, TDM_GGUF_ELEMENT_MAX);
    a->type = (tdm_gguf_type_t)type;
    if (type != TDM_GGUF_STRING) {
        a->sz = a->cnt * tdm_gguf_type_sz(type);
        a->bytes = take(c, a->sz);
        if (!a->bytes) goto cut;
        return type == TDM_GGUF_BOOL ? check_bools(key, a->bytes, a->cnt, err) : TDM_OK;
    }
    uint64_t start = c->at;
    for (uint64_t i = 0; i < a->cnt; i++) {
        tdm_gguf_string_t s;
        tdm_status_t st = take_string(c, key, &s, err);
        if (st != TDM_OK) return st;
    }
    a->bytes = c->bytes + start;
    a->sz = c->at - start;
    return TDM_OK;
cut:
    return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: the file ends inside key " NAME_FMT,
                         NAME_ARG(*key));
}

static tdm_status_t take_value(cursor_t *c, uint32_t idx, tdm_gguf_value_t *v, tdm_error_t *err) {
    tdm_status_t st = take_name(c, "key", idx, &v->key, err);
    if (st != TDM_OK) return st;
    uint32_t type;
    if (!take_u32(c, &type)) return cut_short(err, "a key's type");
    if (type >= TDM_GGUF_TYPE_CNT)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: key " NAME_FMT ": unknown type %u",
                             NAME_ARG(v->key), type);
    v->type = (tdm_gguf_type_t)type;
    if (type == TDM_GGUF_ARRAY) return take_array(c, &v->key, &v->array, err);
    if (type == TDM_GGUF_STRING) {
        tdm_gguf_string_t s = {0};
        st = take_string(c, &v->key, &s, err);
        if (st != TDM_OK) return st;
        v->bytes = (const uint8_t *)s.bytes;
        v->sz = s.sz;
        return TDM_OK;
    }
    v->sz = tdm_gguf_type_sz(type);
    v->bytes = take(c, v->sz);
    if (!v->bytes)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: the file ends inside key " NAME_FMT,
                             NAME_ARG(v->key));
    return type == TDM_GGUF_BOOL ? check_bools(&v->key, v->bytes, 1, err) : TDM_OK;
}

/* tensor_sz gives the bytes of a tensor whose rows are whole blocks. */
static tdm_status_t tensor_sz(tdm_gguf_tensor_t *t, tdm_error_t *err) {
    uint32_t elem_cnt, block_sz;
    if (!tdm_dtype_block(t->dtype, &elem_cnt, &block_sz)) {
        const char *name = tdm_dtype_name(t->dtype);
        if (!name)
            return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: tensor " NAME_FMT ": unknown type %u",
                                 NAME_ARG(t->name), t->dtype);
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "gguf: tensor " NAME_FMT ": type %s is not implemented",
                             NAME_ARG(t->name), name);
    }
    if (t->dim[0] % elem_cnt != 0)
        return tdm_error_set(err, TDM_ERR_CORRUPT,
                             "gguf: tensor " NAME_FMT ": rows of %llu, not a multiple of %u",
                             NAME_ARG(t->name), (unsigned long long)t->dim[0], elem_cnt);
    uint64_t cnt = 1;
    for (uint32_t d = 0; d < t->dim_cnt; d++)
        if (t->dim[d] == 0 || !tdm_size_mul(cnt, t->dim[d], &cnt))
            return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: tensor " NAME_FMT ": dimension %u",
                                 NAME_ARG(t->name), d);
    if (!tdm_size_mul(cnt / elem_cnt, block_sz, &t->sz))
        return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: tensor " NAME_FMT ": too large",
                             NAME_ARG(t->name));
    return TDM_OK;
}

/* take_tensor reads one info; *offset counts from the start of the data. */
static tdm_status_t take_tensor(cursor_t *c, uint32_t idx, tdm_gguf_tensor_t *t, uint64_t *offset,
                                tdm_error_t *err) {
    tdm_status_t st = take_name(c, "tensor", idx, &t->name, err);
    if (st != TDM_OK) return st;
    if (!take_u32(c, &t->dim_cnt)) return cut_short(err, "the tensor list");
    if (t->dim_cnt == 0 || t->dim_cnt > TDM_GGUF_DIM_MAX)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: tensor " NAME_FMT ": %u dimensions",
                             NAME_ARG(t->name), t->dim_cnt);
    for (uint32_t d = 0; d < TDM_GGUF_DIM_MAX; d++) {
        t->dim[d] = 1;
        if (d < t->dim_cnt && !take_u64(c, &t->dim[d])) return cut_short(err, "the tensor list");
    }
    if (!take_u32(c, &t->dtype) || !take_u64(c, offset)) return cut_short(err, "the tensor list");
    return tensor_sz(t, err);
}

static uint64_t hash_name(const char *name, uint64_t sz) {
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (uint64_t i = 0; i < sz; i++) h = (h ^ (uint8_t)name[i]) * UINT64_C(0x100000001b3);
    return h ^ (h >> 32);
}

uint32_t tdm_gguf_index_find(const tdm_gguf_t *g, const tdm_gguf_index_t *index,
                             tdm_gguf_name_fn name_of, const char *name, uint64_t sz) {
    uint32_t at = (uint32_t)hash_name(name, sz) & index->mask;
    while (index->slot[at]) {
        tdm_gguf_string_t have = name_of(g, index->slot[at] - 1);
        if (have.sz == sz && memcmp(have.bytes, name, sz) == 0) break;
        at = (at + 1) & index->mask;
    }
    return at;
}

static tdm_status_t index_build(tdm_gguf_t *g, tdm_gguf_index_t *index, uint32_t cnt,
                                tdm_gguf_name_fn name_of, const char *what, tdm_error_t *err) {
    uint32_t slots = 4;
    while (slots < 2 * cnt + 2) slots *= 2;
    index->slot = calloc(slots, sizeof *index->slot);
    if (!index->slot) return tdm_error_set(err, TDM_ERR_NOMEM, "gguf: no memory for the index");
    index->mask = slots - 1;
    for (uint32_t i = 0; i < cnt; i++) {
        tdm_gguf_string_t name = name_of(g, i);
        uint32_t at = tdm_gguf_index_find(g, index, name_of, name.bytes, name.sz);
        if (index->slot[at])
            return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: %s " NAME_FMT " appears twice", what,
                                 NAME_ARG(name));
        index->slot[at] = i + 1;
    }
    return TDM_OK;
}

static int by_start(const void *a, const void *b, void *ctx) {
    const tdm_gguf_t *g = ctx;
    const uint8_t *x = g->tensor[*(const uint32_t *)a].bytes;
    const uint8_t *y = g->tensor[*(const uint32_t *)b].bytes;
    return (x > y) - (x < y);
}

static tdm_status_t check_overlap(tdm_gguf_t *g, tdm_error_t *err) {
    uint32_t *order = calloc((size_t)g->tensor_cnt + 1, sizeof *order);
    if (!order) return tdm_error_set(err, TDM_ERR_NOMEM, "gguf: no memory for the tensor list");
    for (uint32_t i = 0; i < g->tensor_cnt; i++) order[i] = i;
    qsort_r(order, g->tensor_cnt, sizeof *order, by_start, g);
    tdm_status_t st = TDM_OK;
    for (uint32_t i = 1; st == TDM_OK && i < g->tensor_cnt; i++) {
        const tdm_gguf_tensor_t *a = &g->tensor[order[i - 1]], *b = &g->tensor[order[i]];
        if (a->bytes + a->sz > b->bytes)
            st = tdm_error_set(err, TDM_ERR_CORRUPT,
                               "gguf: tensors " NAME_FMT " and " NAME_FMT " overlap",
                               NAME_ARG(a->name), NAME_ARG(b->name));
    }
    free(order);
    return st;
}

/* place turns a tensor's offset into a view of the data section. */
static tdm_status_t place(tdm_gguf_t *g, tdm_gguf_tensor_t *t, uint64_t data, uint64_t offset,
                          tdm_error_t *err) {
    if (offset % g->alignment != 0)
        return tdm_error_set(
            err, TDM_ERR_CORRUPT, "gguf: tensor " NAME_FMT ": offset %llu is not aligned to %llu",
            NAME_ARG(t->name), (unsigned long long)offset, (unsigned long long)g->alignment);
    uint64_t end;
    if (data > g->sz || !tdm_size_add(offset, t->sz, &end) || end > g->sz - data)
        return tdm_error_set(err, TDM_ERR_CORRUPT,
                             "gguf: tensor " NAME_FMT " lies outside the file", NAME_ARG(t->name));
    t->bytes = g->bytes + data + offset;
    return TDM_OK;
}

static tdm_status_t read_head(cursor_t *c, tdm_gguf_t *g, tdm_error_t *err) {
    uint32_t magic;
    uint64_t tensor_cnt, key_cnt;
    if (!take_u32(c, &magic) || magic != MAGIC_LITTLE)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: not a GGUF file (wrong magic)");
    if (!take_u32(c, &g->version)) return cut_short(err, "its head");
    if (g->version == __builtin_bswap32(2) || g->version == __builtin_bswap32(3))
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "gguf: a big-endian file");
    if (g->version != 2 && g->version != 3)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "gguf: version %u, implemented are 2 and 3",
                             g->version);
    if (!take_u64(c, &tensor_cnt) || !take_u64(c, &key_cnt)) return cut_short(err, "its head");
    if (tensor_cnt > TDM_GGUF_TENSOR_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT, "gguf: %llu tensors, at most %d",
                             (unsigned long long)tensor_cnt, TDM_GGUF_TENSOR_MAX);
    if (key_cnt > TDM_GGUF_KEY_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT, "gguf: %llu keys, at most %d",
                             (unsigned long long)key_cnt, TDM_GGUF_KEY_MAX);
    g->tensor_cnt = (uint32_t)tensor_cnt;
    g->key_cnt = (uint32_t)key_cnt;
    return TDM_OK;
}

static tdm_status_t read_alignment(tdm_gguf_t *g, tdm_error_t *err) {
    uint32_t v = 32; /* where the file says nothing */
    if (tdm_gguf_has(g, "general.alignment")) {
        tdm_status_t st = tdm_gguf_u32(g, "general.alignment", &v, err);
        if (st != TDM_OK) return st;
    }
    if (v < 8 || v > 65536 || (v & (v - 1)) != 0)
        return tdm_error_set(err, TDM_ERR_CORRUPT,
                             "gguf: key general.alignment: %u is no power of two in [8, 65536]", v);
    g->alignment = v;
    return TDM_OK;
}

static tdm_status_t read_tensors(cursor_t *c, tdm_gguf_t *g, uint64_t *offset, tdm_error_t *err) {
    tdm_status_t st;
    for (uint32_t i = 0; i < g->tensor_cnt; i++) {
        st = take_tensor(c, i, &g->tensor[i], &offset[i], err);
        if (st != TDM_OK) return st;
    }
    uint64_t data = tdm_size_align(c->at, g->alignment);
    for (uint32_t i = 0; i < g->tensor_cnt; i++) {
        st = place(g, &g->tensor[i], data, offset[i], err);
        if (st != TDM_OK) return st;
    }
    return TDM_OK;
}

tdm_status_t tdm_gguf_read(tdm_gguf_t *g, tdm_error_t *err) {
    cursor_t c = {.bytes = g->bytes, .sz = g->sz};
    tdm_status_t st = read_head(&c, g, err);
    if (st != TDM_OK) return st;

    uint64_t *offset = calloc((size_t)g->tensor_cnt + 1, sizeof *offset);
    g->value = calloc((size_t)g->key_cnt + 1, sizeof *g->value);
    g->tensor = calloc((size_t)g->tensor_cnt + 1, sizeof *g->tensor);
    if (!offset || !g->value || !g->tensor) {
        st = tdm_error_set(err, TDM_ERR_NOMEM, "gguf: no memory for %u keys and %u tensors",
                           g->key_cnt, g->tensor_cnt);
        goto done;
    }
    for (uint32_t i = 0; st == TDM_OK && i < g->key_cnt; i++)
        st = take_value(&c, i, &g->value[i], err);
    if (st == TDM_OK)
        st = index_build(g, &g->key_index, g->key_cnt, tdm_gguf_name_of_key, "key", err);
    if (st == TDM_OK) st = read_alignment(g, err);
    if (st == TDM_OK) st = read_tensors(&c, g, offset, err);
    if (st == TDM_OK)
        st =
            index_build(g, &g->tensor_index, g->tensor_cnt, tdm_gguf_name_of_tensor, "tensor", err);
    if (st == TDM_OK) st = check_overlap(g, err);
done:
    free(offset);
    return st;
}
