/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/profile/file_private.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_name[TDM_PROFILE_KIND_CNT] = {"lin", "fused", "streams", "serial"};

#define NS_MAX    1e15
#define ERROR_MAX 1e9 /* of a check: predicted over measured */

/* number reads element i of an array, a number in [0, most]. */
static int number(const json_t *array, size_t i, double most, double *out) {
    const json_t *v = json_array_get(array, i);
    *out = json_number_value(v);
    return json_is_number(v) && isfinite(*out) && *out >= 0.0 && *out <= most;
}

static int count(const json_t *array, size_t i, uint32_t *out) {
    double d;
    if (!json_is_integer(json_array_get(array, i)) || !number(array, i, UINT32_MAX, &d)) return 0;
    *out = (uint32_t)d;
    return 1;
}

/* point_read takes [chunk, (depth, batch, kv,) ns, spread, samples]. */
static int point_read(const json_t *row, uint32_t kind, tdm_profile_point_t *p) {
    size_t coords = kind == TDM_PROFILE_LIN ? 1 : 4;
    double ns, spread;
    *p = (tdm_profile_point_t){.kind = kind};
    uint32_t *const at[4] = {&p->chunk, &p->depth, &p->batch, &p->kv};
    if (!json_is_array(row) || json_array_size(row) != coords + 3) return 0;
    for (size_t i = 0; i < coords; i++)
        if (!count(row, i, at[i])) return 0;
    if (!number(row, coords, NS_MAX, &ns) || !number(row, coords + 1, 1e6, &spread) ||
        !count(row, coords + 2, &p->cnt))
        return 0;
    p->ns = (float)ns;
    p->spread = (float)spread;
    return p->cnt > 0 && spread >= 1.0;
}

static int points_read(const json_t *root, tdm_profile_set_t *set) {
    size_t total = 0;
    for (uint32_t k = 0; k < TDM_PROFILE_KIND_CNT; k++)
        total += json_array_size(json_object_get(root, kind_name[k]));
    if (total > TDM_PROFILE_POINT_MAX) return 0;
    set->point = malloc(total * sizeof *set->point + 1u);
    if (!set->point) return 0;
    for (uint32_t k = 0; k < TDM_PROFILE_KIND_CNT; k++) {
        const json_t *list = json_object_get(root, kind_name[k]);
        if (list && !json_is_array(list)) return 0;
        for (size_t i = 0; i < json_array_size(list); i++)
            if (!point_read(json_array_get(list, i), k, &set->point[set->point_cnt++])) return 0;
    }
    return 1;
}

static int text_read(const json_t *root, const char *key, char *out, size_t sz) {
    const char *s = json_string_value(json_object_get(root, key));
    if (!s || strlen(s) >= sz) return 0;
    memcpy(out, s, strlen(s) + 1u);
    return 1;
}

static int word_read(const json_t *root, const char *key, uint32_t *out) {
    const json_t *v = json_object_get(root, key);
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < 0 || n > UINT32_MAX) return 0;
    *out = (uint32_t)n;
    return 1;
}

/* check_read takes [shapes, p50, p95, worst]. */
static int check_read(const json_t *root, tdm_profile_check_t *check) {
    const json_t *list = json_object_get(root, "check");
    double error[3];
    if (!json_is_array(list) || json_array_size(list) != 4 || !count(list, 0, &check->shape_cnt))
        return 0;
    for (size_t i = 0; i < 3; i++)
        if (!number(list, i + 1u, ERROR_MAX, &error[i])) return 0;
    check->p50_error = (float)error[0];
    check->p95_error = (float)error[1];
    check->worst_error = (float)error[2];
    return 1;
}

static int head_read(const json_t *root, tdm_profile_set_t *set) {
    const json_t *fixed = json_object_get(root, "fixed_ns");
    set->fixed_ns = json_number_value(fixed);
    return json_is_number(fixed) && set->fixed_ns >= 0.0 && set->fixed_ns <= NS_MAX &&
           text_read(root, "device", set->device, sizeof set->device) &&
           text_read(root, "model", set->model, sizeof set->model) &&
           text_read(root, "build", set->build, sizeof set->build) &&
           word_read(root, "power_w", &set->power_w) &&
           word_read(root, "clock_khz", &set->clock_khz) &&
           word_read(root, "split_max", &set->split_max) &&
           word_read(root, "stair_from", &set->stair_from) &&
           word_read(root, "is_model", &set->is_model) && check_read(root, &set->check);
}

tdm_status_t tdm_profile_from_json(const char *path, const char *text, size_t len,
                                   tdm_profile_set_t *set, tdm_error_t *err) {
    json_error_t je;
    tdm_status_t st = TDM_OK;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (!root) return tdm_error_set(err, TDM_ERR_CORRUPT, "%s line %d: %s", path, je.line, je.text);
    if (json_integer_value(json_object_get(root, "tandem_profile")) != 3)
        st = tdm_error_set(err, TDM_ERR_UNSUPPORTED, "%s: no profile of version 3", path);
    else if (!head_read(root, set))
        st = tdm_error_set(err, TDM_ERR_CORRUPT, "%s: the head is malformed", path);
    else if (!points_read(root, set))
        st = tdm_error_set(err, TDM_ERR_CORRUPT, "%s: point %u is malformed", path, set->point_cnt);
    json_decref(root);
    return st;
}

static json_t *point_json(const tdm_profile_point_t *p) {
    if (p->kind == TDM_PROFILE_LIN)
        return json_pack("[I, f, f, I]", (json_int_t)p->chunk, (double)p->ns, (double)p->spread,
                         (json_int_t)p->cnt);
    return json_pack("[I, I, I, I, f, f, I]", (json_int_t)p->chunk, (json_int_t)p->depth,
                     (json_int_t)p->batch, (json_int_t)p->kv, (double)p->ns, (double)p->spread,
                     (json_int_t)p->cnt);
}

static int points_write(json_t *root, const tdm_profile_set_t *set) {
    int ok = 1;
    for (uint32_t k = 0; k < TDM_PROFILE_KIND_CNT; k++) {
        json_t *list = json_array();
        for (uint32_t i = 0; i < set->point_cnt; i++)
            if (set->point[i].kind == k)
                ok &= json_array_append_new(list, point_json(&set->point[i])) == 0;
        ok &= json_object_set_new(root, kind_name[k], list) == 0;
    }
    return ok;
}

tdm_status_t tdm_profile_write_json(const char *path, const tdm_profile_set_t *set,
                                    tdm_error_t *err) {
    char tmp[1024];
    json_t *root = json_pack("{s:i, s:s, s:s, s:s, s:I, s:I, s:f, s:I, s:I, s:I, s:[I, f, f, f]}",
                             "tandem_profile", 3, "device", set->device, "model", set->model,
                             "build", set->build, "power_w", (json_int_t)set->power_w, "clock_khz",
                             (json_int_t)set->clock_khz, "fixed_ns", set->fixed_ns, "split_max",
                             (json_int_t)set->split_max, "stair_from", (json_int_t)set->stair_from,
                             "is_model", (json_int_t)set->is_model, "check",
                             (json_int_t)set->check.shape_cnt, (double)set->check.p50_error,
                             (double)set->check.p95_error, (double)set->check.worst_error);
    int ok = root && points_write(root, set) && tdm_profile_tmp_name(path, tmp, sizeof tmp);
    if (!ok) {
        json_decref(root);
        return tdm_error_set(err, TDM_ERR_INVAL, "%s: the set cannot be written as JSON", path);
    }
    ok = json_dump_file(root, tmp, JSON_REAL_PRECISION(9)) == 0;
    json_decref(root);
    return tdm_profile_replace(tmp, path, ok, err);
}
