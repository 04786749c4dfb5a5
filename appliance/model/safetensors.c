/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/model/checkpoint_private.h"
#include "appliance/model/safetensors_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME  "model.safetensors.index.json"
#define INDEX_MAX   (UINT64_C(8) << 20) /* bytes of the index */

/* --- names ---------------------------------------------------------------- */

static int compare_names(const char *a, uint32_t a_sz, const char *b, uint32_t b_sz) {
    int c = memcmp(a, b, TDM_MIN(a_sz, b_sz));
    return c ? c : (a_sz > b_sz) - (a_sz < b_sz);
}

static int by_name(const void *a, const void *b) {
    const tdm_safetensor_t *x = a, *y = b;
    return compare_names(x->name, x->name_sz, y->name, y->name_sz);
}

/* sort_names brings the table into the order that lookups want, and
   refuses a name that comes twice. */
static tdm_status_t sort_names(tdm_safetensors_t *s, tdm_error_t *err) {
    if (s->cnt == 0) return tdm_error_set(err, TDM_ERR_CORRUPT, "safetensors: no tensor at all");
    qsort(s->tensor, s->cnt, sizeof *s->tensor, by_name);
    for (uint32_t i = 1; i < s->cnt; i++)
        if (by_name(&s->tensor[i - 1], &s->tensor[i]) == 0)
            return tdm_error_set(err, TDM_ERR_CORRUPT, "safetensors: tensor %.*s comes twice",
                                 (int)TDM_MIN(s->tensor[i].name_sz, 80u), s->tensor[i].name);
    return TDM_OK;
}

const tdm_safetensor_t *tdm_safetensors_find(const tdm_safetensors_t *s, const char *name) {
    size_t name_sz = strlen(name);
    if (name_sz >= TDM_SAFETENSORS_NAME_MAX) return NULL;
    uint32_t low = 0, high = s->cnt;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        const tdm_safetensor_t *t = &s->tensor[mid];
        int c = compare_names(t->name, t->name_sz, name, (uint32_t)name_sz);
        if (c == 0) return t;
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

const tdm_safetensor_t *tdm_safetensors_at(const tdm_safetensors_t *s, uint32_t idx) {
    return &s->tensor[idx];
}

uint32_t tdm_safetensors_cnt(const tdm_safetensors_t *s) {
    return s->cnt;
}

/* --- files ------------------------------------------------------------------ */

static tdm_safetensors_t *make(uint32_t shard_cnt) {
    tdm_safetensors_t *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->shard = calloc(shard_cnt, sizeof *s->shard);
    s->shard_cnt = shard_cnt;
    if (s->shard) return s;
    free(s);
    return NULL;
}

void tdm_safetensors_close(tdm_safetensors_t *s) {
    if (!s) return;
    for (uint32_t i = 0; i < s->shard_cnt; i++) {
        const tdm_shard_t *f = &s->shard[i];
        if (f->is_mapped) (void)munmap((void *)(uintptr_t)f->bytes, f->sz);
    }
    free(s->shard);
    free(s->tensor);
    free(s);
}

static tdm_status_t map_shard(const char *folder, tdm_shard_t *f, tdm_error_t *err) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, f->name) >= (int)sizeof path)
        return tdm_error_set(err, TDM_ERR_LIMIT, "model %.80s: the path is too long", folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tdm_error_set(err, errno == ENOENT ? TDM_ERR_NOT_FOUND : TDM_ERR_IO, "model %s: %s",
                             path, strerror(errno));
    struct stat sb;
    if (fstat(fd, &sb) != 0 || !S_ISREG(sb.st_mode) || sb.st_size == 0) {
        (void)close(fd);
        return tdm_error_set(err, TDM_ERR_CORRUPT, "model %s: empty, or no regular file", path);
    }
    void *bytes = mmap(NULL, (size_t)sb.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    int why = errno;
    (void)close(fd);
    if (bytes == MAP_FAILED)
        return tdm_error_set(err, TDM_ERR_IO, "model %s: cannot be mapped: %s", path,
                             strerror(why));
    f->bytes = bytes;
    f->sz = (uint64_t)sb.st_size;
    f->is_mapped = 1;
    return TDM_OK;
}

/* --- the index ---------------------------------------------------------------- */

/* is_plain_name: a file of the folder itself, whatever the index says. */
static int is_plain_name(const char *name) {
    size_t sz = strlen(name), tail = strlen(".safetensors");
    return sz > tail && sz < TDM_SAFETENSORS_NAME_MAX && !strchr(name, '/') && name[0] != '.' &&
           strcmp(name + sz - tail, ".safetensors") == 0;
}

/* list_shards gathers the distinct file names of the map. */
static tdm_status_t list_shards(const json_t *map, tdm_shard_t *shard, uint32_t *cnt,
                                tdm_error_t *err) {
    const char *key;
    json_t *value;
    *cnt = 0;
    json_object_foreach((json_t *)(uintptr_t)map, key, value) {
        const char *name = json_string_value(value);
        if (!name || !is_plain_name(name))
            return tdm_error_set(err, TDM_ERR_CORRUPT,
                                 "model: " INDEX_NAME ": tensor %.80s lies in no plain file", key);
        uint32_t i = 0;
        while (i < *cnt && strcmp(shard[i].name, name) != 0) i++;
        if (i < *cnt) continue;
        if (*cnt == TDM_SAFETENSORS_SHARD_MAX)
            return tdm_error_set(err, TDM_ERR_LIMIT, "model: " INDEX_NAME ": more than %u files",
                                 TDM_SAFETENSORS_SHARD_MAX);
        (void)snprintf(shard[(*cnt)++].name, TDM_SAFETENSORS_NAME_MAX, "%s", name);
    }
    if (*cnt == 0)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "model: " INDEX_NAME " names no tensor");
    return TDM_OK;
}

/* check_map holds the shards to the index, both ways. */
static tdm_status_t check_map(const tdm_safetensors_t *s, const json_t *map, tdm_error_t *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, key, value) {
        const tdm_safetensor_t *t = tdm_safetensors_find(s, key);
        if (!t || strcmp(s->shard[t->shard].name, json_string_value(value)) != 0)
            return tdm_error_set(err, TDM_ERR_CORRUPT,
                                 "model: " INDEX_NAME ": tensor %.80s is not in %s", key,
                                 json_string_value(value));
    }
    if (json_object_size(map) != s->cnt)
        return tdm_error_set(err, TDM_ERR_CORRUPT,
                             "model: " INDEX_NAME " names %zu tensors, the files hold %u",
                             json_object_size(map), s->cnt);
    return TDM_OK;
}

/* --- opening -------------------------------------------------------------------- */

tdm_status_t tdm_safetensors_parse(const void *bytes, uint64_t sz, tdm_safetensors_t **out,
                                   tdm_error_t *err) {
    *out = NULL;
    tdm_safetensors_t *s = make(1);
    if (!s) return tdm_error_set(err, TDM_ERR_NOMEM, "safetensors: no memory");
    s->shard[0].bytes = bytes;
    s->shard[0].sz = sz;
    tdm_status_t st = tdm_safetensors_read(s, 0, err);
    if (st == TDM_OK) st = sort_names(s, err);
    if (st == TDM_OK)
        *out = s;
    else
        tdm_safetensors_close(s);
    return st;
}

/* read_all maps and reads every shard that has a name; map NULL: no index. */
static tdm_status_t read_all(const char *folder, tdm_safetensors_t *s, const json_t *map,
                             tdm_error_t *err) {
    tdm_status_t st = TDM_OK;
    for (uint32_t i = 0; st == TDM_OK && i < s->shard_cnt; i++) {
        st = map_shard(folder, &s->shard[i], err);
        if (st == TDM_OK) st = tdm_safetensors_read(s, i, err);
    }
    if (st == TDM_OK) st = sort_names(s, err);
    return st == TDM_OK && map ? check_map(s, map, err) : st;
}

tdm_status_t tdm_safetensors_open(const char *folder, tdm_safetensors_t **out, tdm_error_t *err) {
    *out = NULL;
    json_t *index = NULL;
    const json_t *map = NULL;
    tdm_status_t st = tdm_checkpoint_json(folder, INDEX_NAME, INDEX_MAX, &index, err);
    if (st != TDM_OK && st != TDM_ERR_NOT_FOUND) return st;
    tdm_safetensors_t *s = make(index ? TDM_SAFETENSORS_SHARD_MAX : 1);
    if (!s) {
        json_decref(index);
        return tdm_error_set(err, TDM_ERR_NOMEM, "safetensors: no memory");
    }
    st = TDM_OK;
    if (index) {
        map = json_object_get(index, "weight_map");
        if (!json_is_object(map))
            st = tdm_error_set(err, TDM_ERR_CORRUPT, "model: " INDEX_NAME " has no weight_map");
        else
            st = list_shards(map, s->shard, &s->shard_cnt, err);
    } else {
        (void)snprintf(s->shard[0].name, sizeof s->shard[0].name, SINGLE_NAME);
    }
    if (st == TDM_OK) st = read_all(folder, s, map, err);
    json_decref(index);
    if (st == TDM_OK)
        *out = s;
    else
        tdm_safetensors_close(s);
    return st;
}
