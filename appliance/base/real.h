/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_REAL_H
#define TDM_BASE_REAL_H

/* What measured doubles want: an order for qsort, and bounds. */

/* tdm_ascending orders doubles for qsort; a NaN among them leaves the order
   open. */
static inline int tdm_ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* tdm_clamp gives x in [low, high], low for a NaN. */
static inline double tdm_clamp(double x, double low, double high) {
    if (!(x > low)) return low;
    return x < high ? x : high;
}

#endif /* TDM_BASE_REAL_H */
