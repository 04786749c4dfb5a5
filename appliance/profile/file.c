/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/profile/file_private.h"

#include "appliance/base/sum.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC    "TDMPROF3"
#define FILE_MAX (16u << 20) /* bytes; the largest set is 3 MiB compact, 6 MiB as JSON */

/* The compact file's first bytes.  No padding: 8 + 96 + 96 + 64 + 6 * 4 +
   8 + 16 bytes. */
typedef struct head {
    char magic[8];
    char device[96];
    char model[96];
    char build[64];
    uint32_t power_w;
    uint32_t split_max;
    uint32_t stair_from;
    uint32_t is_model;
    uint32_t point_cnt;
    uint32_t clock_khz;
    double fixed_ns;
    tdm_profile_check_t check;
} head_t;

/* is_share: a number that is not negative. */
static int is_share(float v) {
    return isfinite(v) && v >= 0.0f;
}

static int check_is_sound(const tdm_profile_check_t *c) {
    return is_share(c->p50_error) && is_share(c->p95_error) && is_share(c->worst_error);
}

static tdm_status_t from_compact(const char *path, const char *bytes, size_t sz,
                                 tdm_profile_set_t *set, tdm_error_t *err) {
    head_t h;
    uint64_t sum;
    if (sz < sizeof h + sizeof sum)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "%s: the file is cut short", path);
    memcpy(&h, bytes, sizeof h);
    size_t points_sz = (size_t)h.point_cnt * sizeof(tdm_profile_point_t);
    if (h.point_cnt > TDM_PROFILE_POINT_MAX || sz != sizeof h + points_sz + sizeof sum)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "%s: the size contradicts the head", path);
    memcpy(&sum, bytes + sizeof h + points_sz, sizeof sum);
    if (sum != tdm_sum_bytes(TDM_SUM_FIRST, bytes, sizeof h + points_sz))
        return tdm_error_set(err, TDM_ERR_CORRUPT, "%s: wrong checksum", path);
    if (!memchr(h.device, 0, sizeof h.device) || !memchr(h.model, 0, sizeof h.model) ||
        !memchr(h.build, 0, sizeof h.build) || !isfinite(h.fixed_ns) || h.fixed_ns < 0.0 ||
        !check_is_sound(&h.check))
        return tdm_error_set(err, TDM_ERR_CORRUPT, "%s: the head is malformed", path);
    *set = (tdm_profile_set_t){.power_w = h.power_w,
                               .clock_khz = h.clock_khz,
                               .split_max = h.split_max,
                               .stair_from = h.stair_from,
                               .is_model = h.is_model,
                               .fixed_ns = h.fixed_ns,
                               .check = h.check,
                               .point_cnt = h.point_cnt};
    memcpy(set->device, h.device, sizeof h.device);
    memcpy(set->model, h.model, sizeof h.model);
    memcpy(set->build, h.build, sizeof h.build);
    set->point = malloc(points_sz + 1u);
    if (!set->point) return tdm_error_set(err, TDM_ERR_NOMEM, "%s: no memory", path);
    memcpy(set->point, bytes + sizeof h, points_sz);
    return TDM_OK;
}

/* slurp reads the whole file; the caller frees. */
static tdm_status_t slurp(const char *path, char **bytes, size_t *sz, tdm_error_t *err) {
    FILE *f = fopen(path, "rb");
    if (!f)
        return tdm_error_set(err, errno == ENOENT ? TDM_ERR_NOT_FOUND : TDM_ERR_IO, "%s: %s", path,
                             strerror(errno));
    *bytes = malloc(FILE_MAX + 1u);
    *sz = *bytes ? fread(*bytes, 1, FILE_MAX + 1u, f) : 0;
    int is_read = *bytes && !ferror(f);
    (void)fclose(f);
    if (is_read && *sz <= FILE_MAX) return TDM_OK;
    free(*bytes);
    *bytes = NULL;
    return tdm_error_set(err, is_read ? TDM_ERR_LIMIT : TDM_ERR_IO, "%s: cannot be read whole",
                         path);
}

tdm_status_t tdm_profile_read(const char *path, const char *model, const char *device,
                              tdm_profile_set_t *set, tdm_error_t *err) {
    char *bytes = NULL;
    size_t sz = 0;
    tdm_profile_set_t next = {0};
    tdm_status_t st = slurp(path, &bytes, &sz, err);
    if (st != TDM_OK || !bytes) return st;
    if (sz >= 8 && memcmp(bytes, MAGIC, 8) == 0)
        st = from_compact(path, bytes, sz, &next, err);
    else
        st = tdm_profile_from_json(path, bytes, sz, &next, err);
    free(bytes);
    if (st == TDM_OK &&
        ((model && strcmp(model, next.model) != 0) || (device && strcmp(device, next.device) != 0)))
        st = tdm_error_set(err, TDM_ERR_INVAL, "%s: measured for model %s on %s, not for ours",
                           path, next.model, next.device);
    if (st == TDM_OK)
        *set = next;
    else
        tdm_profile_set_free(&next);
    return st;
}

int tdm_profile_tmp_name(const char *path, char *tmp, size_t sz) {
    int n = snprintf(tmp, sz, "%s.new", path);
    return n > 0 && (size_t)n < sz;
}

tdm_status_t tdm_profile_replace(const char *tmp, const char *path, int is_good, tdm_error_t *err) {
    if (is_good && rename(tmp, path) == 0) return TDM_OK;
    int why = errno;
    (void)remove(tmp);
    return tdm_error_set(err, TDM_ERR_IO, "%s: cannot be written: %s", path, strerror(why));
}

tdm_status_t tdm_profile_write_compact(const char *path, const tdm_profile_set_t *set,
                                       tdm_error_t *err) {
    head_t h = {.power_w = set->power_w,
                .clock_khz = set->clock_khz,
                .split_max = set->split_max,
                .stair_from = set->stair_from,
                .is_model = set->is_model,
                .point_cnt = set->point_cnt,
                .fixed_ns = set->fixed_ns,
                .check = set->check};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    memcpy(h.device, set->device, sizeof h.device);
    memcpy(h.model, set->model, sizeof h.model);
    memcpy(h.build, set->build, sizeof h.build);
    size_t points_sz = set->point_cnt * sizeof *set->point;
    uint64_t sum = tdm_sum_bytes(tdm_sum_bytes(TDM_SUM_FIRST, &h, sizeof h), set->point, points_sz);
    char tmp[1024];
    FILE *f = tdm_profile_tmp_name(path, tmp, sizeof tmp) ? fopen(tmp, "wb") : NULL;
    if (!f)
        return tdm_error_set(err, TDM_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    int ok = fwrite(&h, sizeof h, 1, f) == 1 &&
             (points_sz == 0 || fwrite(set->point, points_sz, 1, f) == 1) &&
             fwrite(&sum, sizeof sum, 1, f) == 1;
    ok = fclose(f) == 0 && ok;
    return tdm_profile_replace(tmp, path, ok, err);
}
