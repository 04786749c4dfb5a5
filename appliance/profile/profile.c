/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/profile/profile.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const route_name[TDM_ROUTE_CNT] = {
    [TDM_ROUTE_IDLE] = "idle",
    [TDM_ROUTE_PREFILL_ONLY] = "prefill_only",
    [TDM_ROUTE_DECODE_ONLY] = "decode_only",
    [TDM_ROUTE_FUSED] = "fused",
    [TDM_ROUTE_STREAMS] = "streams",
    [TDM_ROUTE_SERIAL] = "serial",
};

tdm_profile_rates_t tdm_profile_cpu_rates(uint32_t sm_cnt) {
    return (tdm_profile_rates_t){
        .flops = 20e9 * sm_cnt,
        .bytes = 8e9 * sm_cnt,
        .fixed_ns = 200e3,
        .weight_elem = 2,
        .kv_elem = 4,
    };
}

/* elements of all weights that every row of input passes through */
static double linear_elems(const tdm_shape_t *s) {
    double attn = (double)s->hidden * s->head_dim * (2.0 * s->nhead_q + 2.0 * s->nhead_kv);
    return s->layer_cnt * (attn + 3.0 * s->hidden * s->ffn);
}

void tdm_profile_guess(const tdm_shape_t *shape, const tdm_profile_rates_t *r, tdm_profile_t *out) {
    double elems = linear_elems(shape);
    double head = (double)shape->vocab * shape->hidden;
    double weights_ns = (elems + head) * r->weight_elem / r->bytes * 1e9;
    double token_ns = 2.0 * (elems + head) / r->flops * 1e9;
    double heads = (double)shape->layer_cnt * shape->head_dim;
    double pair_ns = 4.0 * heads * shape->nhead_q / r->flops * 1e9;
    double kv_ns = 2.0 * heads * shape->nhead_kv * r->kv_elem / r->bytes * 1e9;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < TDM_ROUTE_CNT; i++)
        out->row[i] = (tdm_profile_row_t){r->fixed_ns + weights_ns, token_ns, pair_ns, kv_ns};
    out->row[TDM_ROUTE_IDLE] = (tdm_profile_row_t){.fixed_ns = r->fixed_ns};
}

static int row_read(const json_t *o, tdm_profile_row_t *row) {
    static const char *const key[4] = {"fixed_ns", "token_ns", "pair_ns", "kv_ns"};
    double *at[4] = {&row->fixed_ns, &row->token_ns, &row->pair_ns, &row->kv_ns};
    for (int i = 0; i < 4; i++) {
        const json_t *v = json_object_get(o, key[i]);
        double d = json_number_value(v);
        if (!json_is_number(v) || !isfinite(d) || d < 0 || d > 1e15) return 0;
        *at[i] = d;
    }
    return 1;
}

static tdm_status_t rows_read(const json_t *root, const char *path, tdm_profile_t *p,
                              tdm_error_t *err) {
    const char *name;
    json_t *o;
    json_object_foreach(json_object_get(root, "rows"), name, o) {
        int i = 0;
        while (i < TDM_ROUTE_CNT && strcmp(route_name[i], name) != 0) i++;
        if (i == TDM_ROUTE_CNT || !row_read(o, &p->row[i]))
            return tdm_error_set(err, TDM_ERR_CORRUPT, "%s: row \"%s\" is no profile row", path,
                                 name);
    }
    p->is_measured = 1;
    return TDM_OK;
}

static int says(const json_t *root, const char *key, const char *want) {
    const char *s = json_string_value(json_object_get(root, key));
    return s && strcmp(s, want) == 0;
}

tdm_status_t tdm_profile_load(const char *path, const char *model, const char *device,
                              tdm_profile_t *profile, tdm_error_t *err) {
    json_error_t je;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &je);
    if (!root) return tdm_error_set(err, TDM_ERR_CORRUPT, "%s line %d: %s", path, je.line, je.text);
    tdm_profile_t next = *profile;
    tdm_status_t st;
    if (json_integer_value(json_object_get(root, "tandem_profile")) != 1)
        st = tdm_error_set(err, TDM_ERR_UNSUPPORTED, "%s: no profile of version 1", path);
    else if (!says(root, "model", model) || !says(root, "device", device))
        st = tdm_error_set(err, TDM_ERR_INVAL, "%s: measured for another model or device", path);
    else
        st = rows_read(root, path, &next, err);
    json_decref(root);
    if (st == TDM_OK) *profile = next;
    return st;
}

tdm_status_t tdm_profile_save(const char *path, const char *model, const char *device,
                              const tdm_profile_t *profile, tdm_error_t *err) {
    json_t *rows = json_object();
    for (int i = 0; i < TDM_ROUTE_CNT; i++) {
        const tdm_profile_row_t *r = &profile->row[i];
        (void)json_object_set_new(rows, route_name[i],
                                  json_pack("{s:f, s:f, s:f, s:f}", "fixed_ns", r->fixed_ns,
                                            "token_ns", r->token_ns, "pair_ns", r->pair_ns, "kv_ns",
                                            r->kv_ns));
    }
    json_t *root = json_pack("{s:i, s:s, s:s, s:o}", "tandem_profile", 1, "model", model, "device",
                             device, "rows", rows);
    char tmp[1024];
    int n = snprintf(tmp, sizeof tmp, "%s.new", path);
    int ok = root && n > 0 && (size_t)n < sizeof tmp &&
             json_dump_file(root, tmp, JSON_INDENT(2)) == 0 && rename(tmp, path) == 0;
    json_decref(root);
    if (ok) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
}
