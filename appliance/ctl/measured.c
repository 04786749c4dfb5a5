/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/measured.h"

#include "appliance/base/attr.h"
#include "appliance/ctl/bench_private.h"

#include <errno.h>

void tdm_measured_beside(const char *profile, char *out, size_t sz) {
    const char *slash = strrchr(profile, '/'), *dot = strrchr(slash ? slash : profile, '.');
    size_t stem = dot ? (size_t)(dot - profile) : strlen(profile);
    (void)snprintf(out, sz, "%.*s.measured.json", (int)stem, profile);
}

/* see takes one error in. */
static void see(tdm_trust_row_t *row, tdm_trust_key_t key, double error) {
    int is_first = row->cnt[key]++ == 0;
    if (is_first || error < row->low[key]) row->low[key] = error;
    if (is_first || error > row->high[key]) row->high[key] = error;
}

/* see_way takes in what was told of one way to serve, up to what it carries. */
static void see_way(tdm_trust_row_t *row, const json_t *way, const json_t *errors) {
    static const char *const key[] = {"gap_p50", "gap_p99", "ttft_p50", "ttft_p90"};
    double rate = bench_number(way, "rate", NULL, NULL);
    uint32_t cnt = 0;
    for (size_t i = 0; i < json_array_size(errors); i++) {
        const json_t *e = json_array_get(errors, i);
        if (!bench_is_like(e, way)) continue;
        cnt++;
        for (uint32_t k = 0; k < TDM_COUNT_OF(key); k++)
            if (bench_number(e, "rate", NULL, NULL) <= 1.001 * rate &&
                json_is_number(json_object_get(e, key[k])))
                see(row, k, bench_number(e, key[k], NULL, NULL));
    }
    if (cnt > 0 && rate > 0.0 && json_is_false(json_object_get(way, "is_open")) &&
        json_is_true(json_object_get(way, "is_seen")))
        see(row, TDM_TRUST_CAPACITY, bench_number(way, "planned", NULL, NULL) / rate - 1.0);
}

/* is_of says whether a bench is of the model and device of a profile; a bench
   that does not tell its device is of any. */
static tdm_status_t is_of(const json_t *bench, const char *model, const tdm_trust_t *trust,
                          tdm_error_t *err) {
    const json_t *appliance = json_object_get(bench, "appliance");
    const json_t *device = json_object_get(appliance, "device");
    if (strcmp(bench_text(appliance, "model"), model) != 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "windows of %s, and a profile of %s",
                             bench_text(appliance, "model"), model);
    if (json_is_string(device) &&
        strncmp(json_string_value(device), trust->device, strlen(trust->device)) != 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "windows of %s, and a profile of %s",
                             json_string_value(device), trust->device);
    return TDM_OK;
}

static tdm_status_t add(const json_t *bench, const char *model, tdm_trust_t *trust,
                        tdm_error_t *err) {
    const json_t *errors = json_object_get(bench, "errors"),
                 *ways = json_object_get(bench, "carries");
    if (json_array_size(errors) == 0 || !json_is_array(ways))
        return tdm_error_set(err, TDM_ERR_CORRUPT,
                             "no bench with a plan's errors (bench merge --plan)");
    if (trust->row_cnt == TDM_TRUST_ROW_MAX)
        return tdm_error_set(err, TDM_ERR_INVAL, "more than %u benches", TDM_TRUST_ROW_MAX);
    tdm_status_t st = is_of(bench, model, trust, err);
    if (st != TDM_OK) return st;
    tdm_trust_row_t *row = &trust->row[trust->row_cnt++];
    *row = (tdm_trust_row_t){.gap_ms = bench_number(bench, "planned", "gap_ms", NULL)};
    (void)snprintf(row->trace, sizeof row->trace, "%s", bench_text(bench, "trace"));
    for (size_t i = 0; i < json_array_size(ways); i++)
        see_way(row, json_array_get(ways, i), errors);
    return TDM_OK;
}

tdm_status_t tdm_measured_read(const char *path, const char *model, tdm_trust_t *trust,
                               tdm_error_t *err) {
    json_error_t je;
    FILE *f = fopen(path, "re");
    if (!f)
        return tdm_error_set(err, errno == ENOENT ? TDM_ERR_NOT_FOUND : TDM_ERR_IO, "%s: %s", path,
                             strerror(errno));
    json_t *all = json_loadf(f, 0, &je);
    (void)fclose(f);
    if (!all) return tdm_error_set(err, TDM_ERR_CORRUPT, "%s: %s", path, je.text);
    tdm_error_t why = {0};
    tdm_status_t st = TDM_OK;
    if (!json_is_array(all)) st = add(all, model, trust, &why);
    for (size_t i = 0; i < json_array_size(all) && st == TDM_OK; i++)
        st = add(json_array_get(all, i), model, trust, &why);
    json_decref(all);
    if (st != TDM_OK) return tdm_error_set(err, st, "%s: %s", path, why.text);
    const char *slash = strrchr(path, '/');
    (void)snprintf(trust->windows, sizeof trust->windows, "%s", slash ? slash + 1 : path);
    return TDM_OK;
}
