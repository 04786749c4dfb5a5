/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_PROFILE_SURFACE_H
#define TDM_PROFILE_SURFACE_H

/* tdm_profile_surface draws how far measured iterations lie off a first
   account of them (parts.h) over all shapes of one variant, those between
   the points too: a Gaussian process over the share

     y = measured / told - 1,  both of a whole iteration

   along the logarithms of chunk, depth, batch and KV (Rasmussen and
   Williams, "Gaussian Processes for Machine Learning", MIT Press 2006,
   algorithm 2.1).  Its covariance falls as exp(-distance) along each axis, so
   that between two points it is close to a straight line, and far from all
   points y is 0.  A point counts as much as its samples agree.

   Shares of whole iterations: where attention is a small part of one, its
   remainder is mostly noise, and as a share of attention it would be
   multiplied into shapes where attention is the larger part. */

#include "appliance/profile/table.h"

#define TDM_PROFILE_SURFACE_MAX 1024u /* points of one variant; with more nothing is drawn */

/* tdm_profile_surface_put moves the attention of a variant, which is the first
   account, onto the points of set: those of prefill alone and of decodes
   alone, which are every variant's, and those of the variant with both.  table
   has its axes and lin.  0: too many points or no memory, nothing changed. */
int tdm_profile_surface_put(const tdm_profile_set_t *set, uint32_t variant,
                            tdm_profile_table_t *table);

#endif /* TDM_PROFILE_SURFACE_H */
