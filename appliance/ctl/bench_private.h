/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_BENCH_PRIVATE_H
#define TDM_CTL_BENCH_PRIVATE_H

/* How bench_file.c, bench_report.c and bench_page.c read a bench's JSON
   (bench_file.h).  A cell is one window of one way to serve at one rate. */

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* bench_get walks up to three keys. */
static inline const json_t *bench_get(const json_t *j, const char *a, const char *b,
                                      const char *c) {
    j = json_object_get(j, a);
    if (b) j = json_object_get(j, b);
    return c ? json_object_get(j, c) : j;
}

static inline double bench_number(const json_t *j, const char *a, const char *b, const char *c) {
    return json_number_value(bench_get(j, a, b, c));
}

static inline const char *bench_text(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "?";
}

static inline int bench_is_like(const json_t *a, const json_t *b) {
    return strcmp(bench_text(a, "path"), bench_text(b, "path")) == 0 &&
           strcmp(bench_text(a, "policy"), bench_text(b, "policy")) == 0;
}

/* bench_is_simulated: nobody measured this cell. */
static inline int bench_is_simulated(const json_t *cell) {
    return json_is_object(json_object_get(cell, "simulated"));
}

/* bench_planned finds what was planned for a window; NULL: nothing.  A plan
   of one policy alone does not name it: it is the appliance's own. */
const json_t *bench_planned(const json_t *planned, const json_t *cell);

/* bench_count counts the cells of a way to serve (like NULL: of all) that
   were measured, or simulated. */
uint32_t bench_count(const json_t *cells, const json_t *like, int is_sim);

/* bench_put_tables writes a row for each window, measured ones first; with
   fallbacks, and what they cost by the plan. */
void bench_put_tables(FILE *f, const json_t *all);

/* bench_bound gives the rate to show of a row and the word before it: "at least "
   the rate, where none was missed, "less than " the one missed, where none was
   kept, or "".  bench_put_gain writes what it gains over serial, and what
   attention allows. */
const char *bench_bound(const json_t *row, double *rate);
void bench_put_gain(FILE *f, const json_t *row);

#endif /* TDM_CTL_BENCH_PRIVATE_H */
