/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_PROFILE_FIT_H
#define TDM_PROFILE_FIT_H

/* tdm_profile_fit is the smooth law under the points of prefill alone and
   of decodes alone,

     att = chunk * c + pair * P       nanoseconds, b = 0
     att = batch * b + kv * S         c = 0

   with coefficients that are not negative, by weighted least squares: a
   small time counts as much as a large one.  It gives the shape of what
   was not measured; the points give the height. */

#include "appliance/profile/table.h"

#define TDM_PROFILE_FIT_MIN 3u /* points of each; with fewer the guess is kept */

enum { TDM_FIT_CHUNK, TDM_FIT_PAIR, TDM_FIT_BATCH, TDM_FIT_KV, TDM_FIT_CNT };

typedef struct tdm_profile_fit {
    double at[TDM_FIT_CNT];
} tdm_profile_fit_t;

/* tdm_profile_fit_points fits the points of kind that are of prefill alone or
   of decodes alone; 0: too few, or all say nothing, and fit is left as it was. */
int tdm_profile_fit_points(const tdm_profile_set_t *set, uint32_t kind, tdm_profile_fit_t *fit);

/* tdm_profile_fit_ns gives the law's time of a shape: both laws
   where both kinds are there. */
double tdm_profile_fit_ns(const tdm_profile_fit_t *fit, double chunk, double depth, double batch,
                          double kv);

#endif /* TDM_PROFILE_FIT_H */
