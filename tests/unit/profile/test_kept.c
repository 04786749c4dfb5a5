/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the measured profiles that this tree keeps (deploy/profiles) load, for
   their model on their device alone, know the shapes that are served by them,
   say of them what was measured, and tell their own points by the others.
   Method: points of the files; a tenth of them, or an axis' last entry, left out. */
#include "appliance/base/real.h"
#include "appliance/base/size.h"
#include "appliance/profile/file.h"
#include "appliance/profile/parts.h"
#include "scheduler/table.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TENTHS 10u

typedef struct kept {
    const char *file, *model;
    uint32_t point_cnt;
    double alone_ms; /* 2,048 prompt tokens from position 0 */
} kept_t;

static const kept_t kept[] = {
    {"h200_llama-3-8b.json", "dummy:llama-3-8b@131072", 790, 50.2},
    {"h200_llama-2-7b.json", "dummy:llama-2-7b@131072", 501, 47.4},
    {"h200_yi-6b.json", "dummy:yi-6b@131072", 792, 39.8},
};

static tdm_profile_table_t table;

static tdm_load_t load_of(uint32_t c, uint32_t h, uint32_t b, uint64_t kv) {
    return (tdm_load_t){.prefill_cnt = c,
                        .decode_cnt = b,
                        .pair_cnt = (uint64_t)c * h + (uint64_t)c * (c + 1u) / 2u,
                        .kv_cnt = kv};
}

static void build(const tdm_profile_set_t *s) {
    tdm_error_t err = {0};
    tdm_profile_t rows = {0};
    for (uint32_t r = 0; r < TDM_ROUTE_CNT; r++)
        rows.row[r] = (tdm_profile_row_t){4e6, 2e4, 0.1, 0.03};
    if (tdm_profile_build(s, &rows, &table, &err) != TDM_OK) fail_msg("%s", err.text);
}

static tdm_profile_set_t read_kept(const kept_t *k) {
    char path[512];
    tdm_profile_set_t s = {0};
    tdm_error_t err = {0};
    (void)snprintf(path, sizeof path, TDM_SOURCE_DIR "/deploy/profiles/%s", k->file);
    assert_int_equal(tdm_profile_read(path, "dummy:other", "NVIDIA H200", &s, &err), TDM_ERR_INVAL);
    if (tdm_profile_read(path, k->model, "NVIDIA H200", &s, &err) != TDM_OK)
        fail_msg("%s: %s", k->file, err.text);
    return s;
}

/* Fused is the quicker, and a chunk costs what it cost. */
static void each_says_what_was_measured(void **state) {
    (void)state;
    for (size_t i = 0; i < TDM_COUNT_OF(kept); i++) {
        const kept_t *k = &kept[i];
        tdm_profile_set_t s = read_kept(k);
        assert_int_equal(s.point_cnt, k->point_cnt);
        assert_int_equal(s.power_w, 700);
        assert_int_equal(s.stair_from, 1);
        assert_int_equal(s.is_model, 0);
        build(&s);
        assert_true(tdm_profile_is_monotone(&table));
        tdm_load_t at = load_of(1024, 8192, 16, 131072), alone = load_of(2048, 0, 0, 0);
        assert_int_equal(tdm_table_is_outside(&table, 0, &at), 0);
        assert_true(tdm_table_ns(&table, 0, &at) < tdm_table_ns(&table, 2, &at));
        double ms = tdm_table_ns(&table, 0, &alone) * 1e-6;
        if (ms < 0.97 * k->alone_ms || ms > 1.03 * k->alone_ms)
            fail_msg("%s: 2,048 tokens take %.2f ms", k->file, ms);
        tdm_profile_set_free(&s);
    }
}

/* told_over gives what the table tells at a point of attention over what was measured, less 1. */
static double told_over(const tdm_profile_point_t *p, double fixed_ns) {
    tdm_load_t load = load_of(p->chunk, p->depth, p->batch, p->kv);
    double rest = (double)tdm_profile_lin_ns(&table, (float)(p->chunk + p->batch)) + fixed_ns;
    double told = tdm_table_ns(&table, p->kind - TDM_PROFILE_FUSED, &load);
    return told / (rest + (double)p->ns) - 1.0;
}

/* misses tells tenth `tenth` of the points by the others and appends what they
   err by; all is the set whole.  The linear part stays: attention is on trial. */
static uint32_t misses(const tdm_profile_point_t *all, uint32_t cnt, uint32_t tenth,
                       tdm_profile_set_t *s, double *error) {
    uint32_t n = 0;
    s->point_cnt = 0;
    for (uint32_t i = 0; i < cnt; i++)
        if (all[i].kind < TDM_PROFILE_FUSED || i % TENTHS != tenth)
            s->point[s->point_cnt++] = all[i];
    build(s);
    for (uint32_t i = tenth; i < cnt; i += TENTHS)
        if (all[i].kind >= TDM_PROFILE_FUSED) error[n++] = fabs(told_over(&all[i], s->fixed_ns));
    return n;
}

static void each_tells_its_points_by_the_others(void **state) {
    (void)state;
    for (size_t i = 0; i < TDM_COUNT_OF(kept); i++) {
        tdm_profile_set_t s = read_kept(&kept[i]);
        uint32_t cnt = s.point_cnt, n = 0;
        tdm_profile_point_t *all = malloc(cnt * sizeof *all);
        double *error = malloc(cnt * sizeof *error);
        assert_non_null(all);
        assert_non_null(error);
        memcpy(all, s.point, cnt * sizeof *all);
        for (uint32_t k = 0; k < TENTHS; k++) n += misses(all, cnt, k, &s, error + n);
        qsort(error, n, sizeof *error, tdm_ascending);
        print_message("%s: %u points, p50 %.1f %%, p95 %.1f %%, worst %.1f %%\n", kept[i].file, n,
                      100 * error[n / 2], 100 * error[n * 95 / 100], 100 * error[n - 1]);
        assert_true(n > 400 && error[n / 2] <= 0.05 && error[n * 95 / 100] <= 0.12);
        free(all);
        free(error);
        tdm_profile_set_free(&s);
    }
}

/* beyond tells fused's points at the last entry of an axis by those before it: what the
   table says over what was measured, ascending.  Gives their number. */
static uint32_t beyond(const tdm_profile_point_t *all, uint32_t cnt, int is_kv,
                       tdm_profile_set_t *s, double *over) {
    uint32_t last = 0, n = 0;
    for (uint32_t i = 0; i < cnt; i++)
        if (all[i].kind >= TDM_PROFILE_FUSED)
            last = TDM_MAX(last, is_kv ? all[i].kv : all[i].depth);
    s->point_cnt = 0;
    for (uint32_t i = 0; i < cnt; i++)
        if (all[i].kind < TDM_PROFILE_FUSED || (is_kv ? all[i].kv : all[i].depth) < last)
            s->point[s->point_cnt++] = all[i];
    build(s);
    for (uint32_t i = 0; i < cnt; i++)
        if (all[i].kind == TDM_PROFILE_FUSED && (is_kv ? all[i].kv : all[i].depth) == last)
            over[n++] = told_over(&all[i], s->fixed_ns);
    qsort(over, n, sizeof *over, tdm_ascending);
    return n;
}

/* Why an octave beyond the points counts as known along depth and KV
   (scheduler/table.h).  What breaks a promise is an iteration that is told too
   short; the last step of the depths is two octaves. */
static void an_octave_beyond_its_points_is_hardly_told_too_short(void **state) {
    (void)state;
    for (size_t i = 0; i < TDM_COUNT_OF(kept); i++)
        for (int is_kv = 0; is_kv < 2; is_kv++) {
            tdm_profile_set_t s = read_kept(&kept[i]);
            uint32_t cnt = s.point_cnt;
            tdm_profile_point_t *all = malloc(cnt * sizeof *all);
            double *over = malloc(cnt * sizeof *over);
            assert_non_null(all);
            assert_non_null(over);
            memcpy(all, s.point, cnt * sizeof *all);
            uint32_t n = beyond(all, cnt, is_kv, &s, over);
            assert_true(n >= 16);
            print_message("%s, past %s: %u points, %+.1f, %+.1f, %+.1f %%\n", kept[i].file,
                          is_kv ? "KV" : "depth", n, 100 * over[0], 100 * over[n / 2],
                          100 * over[n - 1]);
            assert_true(over[0] >= (is_kv ? -0.02 : -0.08) && over[n - 1] <= 0.25);
            free(all);
            free(over);
            tdm_profile_set_free(&s);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_says_what_was_measured),
        cmocka_unit_test(each_tells_its_points_by_the_others),
        cmocka_unit_test(an_octave_beyond_its_points_is_hardly_told_too_short)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
