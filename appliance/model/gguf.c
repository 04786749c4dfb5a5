/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/model/gguf.h"

#include "appliance/base/check.h"
#include "appliance/model/gguf_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

tdm_gguf_string_t tdm_gguf_name_of_key(const tdm_gguf_t *g, uint32_t idx) {
    return g->value[idx].key;
}

tdm_gguf_string_t tdm_gguf_name_of_tensor(const tdm_gguf_t *g, uint32_t idx) {
    return g->tensor[idx].name;
}

tdm_status_t tdm_gguf_parse(const void *bytes, uint64_t sz, tdm_gguf_t **out, tdm_error_t *err) {
    *out = NULL;
    tdm_gguf_t *g = calloc(1, sizeof *g);
    if (!g) return tdm_error_set(err, TDM_ERR_NOMEM, "gguf: no memory");
    g->bytes = bytes;
    g->sz = sz;
    tdm_status_t st = tdm_gguf_read(g, err);
    if (st != TDM_OK) {
        tdm_gguf_close(g);
        return st;
    }
    *out = g;
    return TDM_OK;
}

tdm_status_t tdm_gguf_open(const char *path, tdm_gguf_t **out, tdm_error_t *err) {
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return tdm_error_set(err, errno == ENOENT ? TDM_ERR_NOT_FOUND : TDM_ERR_IO, "model %s: %s",
                             path, strerror(errno));
    struct stat sb;
    if (fstat(fd, &sb) != 0 || !S_ISREG(sb.st_mode) || sb.st_size == 0) {
        (void)close(fd);
        return tdm_error_set(err, TDM_ERR_CORRUPT, "model %s: empty, or no regular file", path);
    }
    uint64_t sz = (uint64_t)sb.st_size;
    void *bytes = mmap(NULL, sz, PROT_READ, MAP_PRIVATE, fd, 0);
    int why = errno;
    (void)close(fd);
    if (bytes == MAP_FAILED)
        return tdm_error_set(err, TDM_ERR_IO, "model %s: cannot be mapped: %s", path,
                             strerror(why));
    tdm_gguf_t *g = NULL;
    tdm_status_t st = tdm_gguf_parse(bytes, sz, &g, err);
    if (!g) {
        (void)munmap(bytes, sz);
        return st;
    }
    g->is_mapped = 1;
    *out = g;
    return TDM_OK;
}

void tdm_gguf_close(tdm_gguf_t *g) {
    if (!g) return;
    if (g->is_mapped) (void)munmap((void *)(uintptr_t)g->bytes, g->sz);
    free(g->key_index.slot);
    free(g->tensor_index.slot);
    free(g->value);
    free(g->tensor);
    free(g);
}

static const tdm_gguf_value_t *find(const tdm_gguf_t *g, const char *key) {
    uint32_t at = tdm_gguf_index_find(g, &g->key_index, tdm_gguf_name_of_key, key, strlen(key));
    uint32_t entry = g->key_index.slot[at];
    return entry ? &g->value[entry - 1] : NULL;
}

int tdm_gguf_has(const tdm_gguf_t *g, const char *key) {
    return find(g, key) != NULL;
}

static tdm_status_t absent(const char *key, tdm_error_t *err) {
    return tdm_error_set(err, TDM_ERR_NOT_FOUND, "gguf: key %s is missing", key);
}

static tdm_status_t wrong_type(const char *key, const char *want, tdm_error_t *err) {
    return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: key %s: not %s", key, want);
}

tdm_status_t tdm_gguf_u32(const tdm_gguf_t *g, const char *key, uint32_t *out, tdm_error_t *err) {
    const tdm_gguf_value_t *v = find(g, key);
    if (!v) return absent(key, err);
    uint64_t bits = 0;
    uint32_t sz = tdm_gguf_type_sz(v->type);
    if (sz) memcpy(&bits, v->bytes, sz);
    uint32_t unused = 64 - 8 * (sz ? sz : 8); /* high bits, filled with the sign */
    int64_t n;
    switch (v->type) {
    case TDM_GGUF_U8:
    case TDM_GGUF_U16:
    case TDM_GGUF_U32: n = (int64_t)bits; break;
    case TDM_GGUF_I8:
    case TDM_GGUF_I16:
    case TDM_GGUF_I32:
    case TDM_GGUF_I64: n = (int64_t)(bits << unused) >> unused; break;
    case TDM_GGUF_U64: n = bits > INT64_MAX ? -1 : (int64_t)bits; break;
    default: return wrong_type(key, "an integer", err);
    }
    if (n < 0 || n > UINT32_MAX) return wrong_type(key, "in [0, 4294967295]", err);
    *out = (uint32_t)n;
    return TDM_OK;
}

tdm_status_t tdm_gguf_f32(const tdm_gguf_t *g, const char *key, float *out, tdm_error_t *err) {
    const tdm_gguf_value_t *v = find(g, key);
    if (!v) return absent(key, err);
    if (v->type == TDM_GGUF_F32) {
        memcpy(out, v->bytes, sizeof *out);
        return TDM_OK;
    }
    if (v->type != TDM_GGUF_F64) return wrong_type(key, "a float", err);
    double d;
    memcpy(&d, v->bytes, sizeof d);
    if (!(d >= -3e38 && d <= 3e38)) return wrong_type(key, "a float of 32 bits", err);
    *out = (float)d;
    return TDM_OK;
}

tdm_status_t tdm_gguf_bool(const tdm_gguf_t *g, const char *key, int *out, tdm_error_t *err) {
    const tdm_gguf_value_t *v = find(g, key);
    if (!v) return absent(key, err);
    if (v->type != TDM_GGUF_BOOL) return wrong_type(key, "a bool", err);
    *out = v->bytes[0];
    return TDM_OK;
}

tdm_status_t tdm_gguf_string(const tdm_gguf_t *g, const char *key, tdm_gguf_string_t *out,
                             tdm_error_t *err) {
    const tdm_gguf_value_t *v = find(g, key);
    if (!v) return absent(key, err);
    if (v->type != TDM_GGUF_STRING) return wrong_type(key, "a string", err);
    out->bytes = (const char *)v->bytes;
    out->sz = v->sz;
    return TDM_OK;
}

tdm_status_t tdm_gguf_array(const tdm_gguf_t *g, const char *key, tdm_gguf_type_t type,
                            tdm_gguf_array_t *out, tdm_error_t *err) {
    const tdm_gguf_value_t *v = find(g, key);
    if (!v) return absent(key, err);
    if (v->type != TDM_GGUF_ARRAY || v->array.type != type)
        return wrong_type(key, "an array of the right type", err);
    *out = v->array;
    return TDM_OK;
}

int tdm_gguf_array_string(const tdm_gguf_array_t *a, uint64_t *cursor, tdm_gguf_string_t *out) {
    if (*cursor >= a->sz) return 0;
    memcpy(&out->sz, a->bytes + *cursor, sizeof out->sz);
    out->bytes = (const char *)a->bytes + *cursor + sizeof out->sz;
    *cursor += sizeof out->sz + out->sz;
    return 1;
}

uint32_t tdm_gguf_array_u32(const tdm_gguf_array_t *a, uint64_t idx) {
    TDM_CHECK(idx < a->cnt && (a->type == TDM_GGUF_U32 || a->type == TDM_GGUF_I32));
    uint32_t v;
    memcpy(&v, a->bytes + idx * sizeof v, sizeof v);
    return v;
}

float tdm_gguf_array_f32(const tdm_gguf_array_t *a, uint64_t idx) {
    TDM_CHECK(idx < a->cnt && a->type == TDM_GGUF_F32);
    float v;
    memcpy(&v, a->bytes + idx * sizeof v, sizeof v);
    return v;
}

uint32_t tdm_gguf_key_cnt(const tdm_gguf_t *g) {
    return g->key_cnt;
}

tdm_gguf_string_t tdm_gguf_key(const tdm_gguf_t *g, uint32_t idx) {
    return g->value[idx].key;
}

const tdm_gguf_tensor_t *tdm_gguf_tensor(const tdm_gguf_t *g, const char *name) {
    uint32_t at =
        tdm_gguf_index_find(g, &g->tensor_index, tdm_gguf_name_of_tensor, name, strlen(name));
    uint32_t entry = g->tensor_index.slot[at];
    return entry ? &g->tensor[entry - 1] : NULL;
}

const tdm_gguf_tensor_t *tdm_gguf_tensor_at(const tdm_gguf_t *g, uint32_t idx) {
    return idx < g->tensor_cnt ? &g->tensor[idx] : NULL;
}

uint32_t tdm_gguf_tensor_cnt(const tdm_gguf_t *g) {
    return g->tensor_cnt;
}

int tdm_gguf_equals(tdm_gguf_string_t s, const char *text) {
    return s.sz == strlen(text) && memcmp(s.bytes, text, s.sz) == 0;
}
