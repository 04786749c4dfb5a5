/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_SORT_H
#define TDM_BASE_SORT_H

/* What qsort asks of whoever takes a median or a percentile. */

/* tdm_ascending orders doubles; a NaN among them leaves the order open. */
static inline int tdm_ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#endif /* TDM_BASE_SORT_H */
