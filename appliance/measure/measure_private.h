/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_MEASURE_PRIVATE_H
#define TDM_MEASURE_PRIVATE_H

/* One measurement while it goes on: measure.c takes samples, points.c makes
   the profile's points of them. */

#include "appliance/base/rng.h"
#include "appliance/measure/grid.h"
#include "appliance/measure/measure.h"
#include "appliance/measure/rig.h"
#include "scheduler/table.h"

#define CLOCK_MAX     4096u /* samples: of these the median clock */
#define CHECK_CNT     4u    /* of a stage, where a depth has to be computed */
#define POP_CNT       8u    /* populations drawn for the check, where it does not */
#define POP_CHECK_CNT 12u   /* shapes beside each */
#define CHECK_MAX     TDM_MAX(CHECK_CNT *TDM_GRID_STAGE_MAX, POP_CNT *POP_CHECK_CNT)

/* All samples of one shape. */
typedef struct raw {
    tdm_grid_shape_t shape;
    double total[TDM_MEASURE_ROUND_MAX];
    double attention[TDM_MEASURE_ROUND_MAX];
    double depth_sum, kv_sum;
    uint32_t cnt;
} raw_t;

/* A shape that the table is not made from. */
typedef struct check {
    tdm_load_t load;
    tdm_profile_miss_t is; /* but for what the table tells */
    tdm_profile_way_t way;
} check_t;

/* What was measured goes so far. */
typedef struct reach {
    uint32_t depth, batch, kv, pop_depth;
} reach_t;

typedef struct measure {
    const tdm_measure_ask_t *ask;
    tdm_rig_t rig;
    tdm_grid_stage_t stage;
    uint32_t stage_cnt;
    int is_slow;
    uint32_t pop_depth; /* of the population that stands */
    uint32_t pop_cnt;
    raw_t *raw; /* [raw_cnt] */
    uint32_t raw_cnt;
    uint32_t coarse_cnt; /* points of all stages before any is added */
    reach_t reach;
    check_t check[CHECK_MAX];
    uint32_t check_cnt;
    tdm_rng_t rng;               /* of what is drawn, the same in every run */
    double clock_khz[CLOCK_MAX]; /* of the latest samples that told it */
    uint32_t clock_cnt;
    tdm_profile_table_t table;
} measure_t;

/* tdm_measure_median gives the median of v [cnt] and leaves v ascending; 0
   of none. */
double tdm_measure_median(double *v, uint32_t cnt);

/* tdm_measure_point_cnt gives how many points a shape becomes: 0 to 2. */
uint32_t tdm_measure_point_cnt(const measure_t *m, const tdm_grid_shape_t *shape);

/* tdm_measure_points fills set's points, its errors at the shapes of m's
   check, which it sorts worst first, and the median clock; m's table is
   the profile's then.  On an error set is freed. */
TDM_MUST_USE tdm_status_t tdm_measure_points(measure_t *m, tdm_profile_set_t *set,
                                             tdm_error_t *err);

#endif /* TDM_MEASURE_PRIVATE_H */
