/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_MEASURE_GRID_H
#define TDM_MEASURE_GRID_H

/* tdm_grid says which shapes are worth a measurement on an executor of
   given limits.  A stage is a set of shapes that share one population of
   decodes (so many sequences, so deep) and one depth of prefill:

     population      prefill depth    shapes
     shallow         0, 1024, 4096    prefill alone, lin[N] (at 0), decodes
                                      alone (once), hybrids; S = 0
     1024 deep       0, 1024          decodes alone, hybrids; S = b * 1024
     256 deep        0, 1024          S = b * 256
     4096 deep ...   0, 1024          S = b * 4096

   Every coordinate is an entry of its axis, so b is a power of two where
   S counts, and S is left at 0 for the shallow one, which may be of 192.  On
   a slow machine, where a long slice takes a second, there are fewer: what
   lies between follows the law of the rest (appliance/profile/fit.h).  Where slots open
   at any depth (is_filled of the limits) a population costs nothing, and
   there are as many decodes as fit, up to a million tokens of KV.  Pure. */

#include "appliance/measure/measure.h"

TDM_BEGIN_DECLS

#define TDM_GRID_STAGE_MAX 32u
#define TDM_GRID_SHAPE_MAX 256u

typedef struct tdm_grid_shape {
    uint32_t chunk, depth, batch, kv; /* nominal */
    uint32_t variant;                 /* TDM_ROUTE_FUSED + variant is asked for */
} tdm_grid_shape_t;

typedef struct tdm_grid_stage {
    char name[48];
    uint32_t pop_cnt;   /* decodes that must be there */
    uint32_t pop_depth; /* tokens of each, nominal; 0: a prompt of a few */
    uint32_t depth;     /* of the prefill slot */
    uint32_t shape_cnt;
    tdm_grid_shape_t shape[TDM_GRID_SHAPE_MAX];
} tdm_grid_stage_t;

/* tdm_grid_stage writes stage k and returns 1; 0: there is none. */
int tdm_grid_stage(const tdm_measure_limits_t *limits, int is_slow, uint32_t k,
                   tdm_grid_stage_t *stage);

/* tdm_grid_pop gives how many decodes of a depth there may be beside the
   prefill slot, for tdm_grid_stage at most. */
uint32_t tdm_grid_pop(const tdm_measure_limits_t *limits, uint32_t pop_depth, uint32_t depth);

/* tdm_grid_page_tok gives how deep a sequence of a population may get. */
uint32_t tdm_grid_page_tok(const tdm_measure_limits_t *limits, uint32_t pop_depth);

/* tdm_grid_drift gives how far a population that is opened where it shall
   be begins below its depth, and may grow above it. */
uint32_t tdm_grid_drift(uint32_t pop_depth);

/* tdm_grid_between gives the entry of the chunk axis in the middle between
   two, 0 where they are neighbours. */
uint32_t tdm_grid_between(uint32_t low, uint32_t high);

TDM_END_DECLS

#endif /* TDM_MEASURE_GRID_H */
