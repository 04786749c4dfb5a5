/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_PROFILE_PARTS_H
#define TDM_PROFILE_PARTS_H

/* tdm_profile_parts is what the points say about shapes beside them:

     att = P[h][c] + D[S][b] - overlap[variant] * min(P, D)

   P is attention of prefill alone, D that of decodes alone: each has its
   points, and between them the law of these (fit.h) times their ratio to
   it, drawn along the axes.  overlap is the median, over the points with
   both, of what the two saved beside each other, as a share of the smaller:
   0 where one runs after the other, 1 where the smaller costs nothing. */

#include "appliance/profile/table.h"

typedef struct tdm_profile_parts {
    float prefill[TDM_PROFILE_DEPTH_CNT][TDM_PROFILE_CHUNK_CNT]; /* ns */
    float decode[TDM_PROFILE_KV_CNT][TDM_PROFILE_BATCH_CNT];     /* ns */
    float overlap[TDM_PROFILE_VARIANT_CNT]; /* in [-1, 0.95]; too few points: fused's, or 0 */
} tdm_profile_parts_t;

/* tdm_profile_parts_find reads them off the fused points of set, whose
   coordinates are entries of the axes.  table has its axes and lin.  0: there
   are too few points of either kind alone. */
int tdm_profile_parts_find(const tdm_profile_set_t *set, const tdm_profile_table_t *table,
                           tdm_profile_parts_t *parts);

/* tdm_profile_parts_put fills the attention of one variant. */
void tdm_profile_parts_put(const tdm_profile_parts_t *parts, uint32_t variant,
                           tdm_profile_table_t *table);

/* tdm_profile_is_of says whether a point tells of a variant: with prefill
   alone and with decodes alone fused's tell of all. */
int tdm_profile_is_of(const tdm_profile_point_t *point, uint32_t variant);

/* tdm_profile_index gives the entry of an axis with value x, cnt where none. */
uint32_t tdm_profile_index(const float *axis, uint32_t cnt, uint32_t x);

/* tdm_profile_lin_ns gives what so many tokens cost apart from attention, as
   the scheduler reads it. */
float tdm_profile_lin_ns(const tdm_profile_table_t *table, float tok);

#endif /* TDM_PROFILE_PARTS_H */
