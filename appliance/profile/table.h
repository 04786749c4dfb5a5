/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_PROFILE_TABLE_H
#define TDM_PROFILE_TABLE_H

/* From measured points to the table that the scheduler reads
   (appliance/abi/profile.h).

     points (some thousand) --+
                              +--> fill --> make monotone --> table
     rows (guess, all shapes)-+

   Fill: where there are points of prefill alone and of decodes alone, what
   they say and how far both overlap (parts.h) is the base of every variant,
   and how far its points lie off that is drawn over it (surface.h).  With too few
   for that an entry is the guess times the ratio of measured to guessed time
   at the nearest measured entry, nearest in steps along the axes: so the
   guess gives the shape of the curve and the points its height.  lin is
   straight between its points.
   Points of prefill alone and of decodes alone are fused's and tell of all variants.
   Monotone: a whole iteration at an entry takes no less than at its
   neighbour with less work; noise in a point can then never make more work
   look cheaper.  Where points contradict that, each side gives half.  lin
   alone does not fall either; what stands for attention may, where products
   take a step.  The box of a variant is what its points span; beyond it the
   scheduler knows that it extrapolates.

   Host code: allocates, never called by a tile. */

#include "appliance/abi/profile.h"
#include "appliance/base/status.h"

/* What a point measured. */
typedef enum tdm_profile_kind {
    TDM_PROFILE_LIN,     /* everything but attention, by tokens */
    TDM_PROFILE_FUSED,   /* attention of variant 0, 1, 2 */
    TDM_PROFILE_STREAMS, /* kind - TDM_PROFILE_FUSED is the variant */
    TDM_PROFILE_SERIAL,
    TDM_PROFILE_KIND_CNT
} tdm_profile_kind_t;

/* One measured shape.  LIN uses chunk alone, as the tokens of the
   iteration.  Coordinates are entries of the table's axes. */
typedef struct tdm_profile_point {
    uint32_t kind;  /* tdm_profile_kind_t */
    uint32_t chunk; /* prefill tokens */
    uint32_t depth; /* keys before them */
    uint32_t batch; /* decodes */
    uint32_t kv;    /* KV tokens of all decodes */
    uint32_t cnt;   /* samples, >= 1 */
    float ns;       /* their median */
    float spread;   /* their p99 over their median, >= 1 */
} tdm_profile_point_t;

#define TDM_PROFILE_POINT_MAX 65536u

#define TDM_PROFILE_MISS_MAX 8u

/* A shape beside the points: prefill tokens at a depth beside decodes over kv tokens. */
typedef struct tdm_profile_miss {
    uint32_t chunk, depth, batch, kv;
    uint32_t variant; /* TDM_PROFILE_FUSED + variant is the kind */
    double told_ns;   /* by the table */
    double ns;        /* measured */
} tdm_profile_miss_t;

/* How well the finished table tells shapes that it was not made from:
   |told / measured - 1| over shape_cnt of them. */
typedef struct tdm_profile_check {
    uint32_t shape_cnt; /* 0: nobody looked */
    float p50_error;
    float p95_error;
    float worst_error;
} tdm_profile_check_t;

/* The ways that a check tells apart. */
typedef enum tdm_profile_way {
    TDM_PROFILE_WAY_FUSED, /* both kinds, by variant */
    TDM_PROFILE_WAY_STREAMS,
    TDM_PROFILE_WAY_SERIAL,
    TDM_PROFILE_WAY_DECODES,
    TDM_PROFILE_WAY_PREFILL,
    TDM_PROFILE_WAY_CNT
} tdm_profile_way_t;

/* A measurement as it is filed. */
typedef struct tdm_profile_set {
    char device[96];    /* what computed: name of the GPU or CPU */
    char model[96];     /* what was computed */
    char build[64];     /* of the kernels */
    uint32_t power_w;   /* power cap while measuring, 0: none */
    uint32_t clock_khz; /* SM clock in attention meanwhile, the median; 0: not told */
    uint32_t split_max;
    uint32_t stair_from; /* from so many tokens on lin goes up in steps to its entries; 0: never */
    uint32_t is_model;   /* 1: computed from a model of a machine, not measured */
    double fixed_ns;
    tdm_profile_check_t check;
    tdm_profile_check_t way[TDM_PROFILE_WAY_CNT];  /* the check by way; not filed */
    uint32_t miss_cnt;                             /* not filed */
    tdm_profile_miss_t miss[TDM_PROFILE_MISS_MAX]; /* of the check, worst first */
    uint32_t point_cnt;
    tdm_profile_point_t *point; /* [point_cnt], from malloc */
} tdm_profile_set_t;

/* tdm_profile_axes fills the axes of an otherwise empty table: tokens in the
   steps that products of rows take on a GPU (tdm_gemm_rows of kernels/cuda),
   powers of two for depth and KV. */
void tdm_profile_axes(tdm_profile_table_t *table);

/* tdm_profile_from_rows fills the table from rows alone; its box is empty,
   so every shape is extrapolated. */
void tdm_profile_from_rows(const tdm_profile_t *rows, tdm_profile_table_t *table);

/* tdm_profile_build makes the table of a set over the guess in rows.
   TDM_ERR_INVAL where a point is on no entry of an axis, or no number. */
TDM_MUST_USE tdm_status_t tdm_profile_build(const tdm_profile_set_t *set, const tdm_profile_t *rows,
                                            tdm_profile_table_t *table, tdm_error_t *err);

/* tdm_profile_is_monotone says whether no iteration takes less at an entry
   than at its neighbour with less work, but for rounding. */
int tdm_profile_is_monotone(const tdm_profile_table_t *table);

/* tdm_profile_noise gives sigma of the log-normal factor that repetitions
   of one shape differ by: the median over the points of ln(spread) over
   what the largest of cnt normal samples is expected to be (Blom, 1958).
   A set without a point of three samples, a model's, gives fallback. */
double tdm_profile_noise(const tdm_profile_set_t *set, double fallback);

/* tdm_profile_set_free frees the points. */
void tdm_profile_set_free(tdm_profile_set_t *set);

#endif /* TDM_PROFILE_TABLE_H */
