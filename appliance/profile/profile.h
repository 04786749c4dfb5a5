/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_PROFILE_PROFILE_H
#define TDM_PROFILE_PROFILE_H

/* The latency table between kernels and scheduler (appliance/abi/
   profile.h): guessed from a model's shape and a machine's rates, or read
   from a file that a measurement wrote.

   File, JSON:
     {"tandem_profile": 1, "model": "...", "device": "...",
      "rows": {"decode_only": {"fixed_ns": .., "token_ns": ..,
                               "pair_ns": .., "kv_ns": ..}, ...}}
   A route without a row keeps its guess.  A file made for another model or
   device is refused: its numbers would be wrong in silence. */

#include "appliance/abi/model.h"
#include "appliance/abi/profile.h"
#include "appliance/base/status.h"

/* Rates of a machine, for the guess. */
typedef struct tdm_profile_rates {
    double flops;       /* multiply-add pairs count two; all SM threads together, per second */
    double bytes;       /* weights and KV read, per second */
    double fixed_ns;    /* host and barriers of one iteration */
    double weight_elem; /* bytes per weight element read by the kernels */
    double kv_elem;     /* bytes per KV element */
} tdm_profile_rates_t;

/* tdm_profile_cpu_rates: a cautious core of an x86 server, sm_cnt times. */
tdm_profile_rates_t tdm_profile_cpu_rates(uint32_t sm_cnt);

/* tdm_profile_guess fills every row by a roofline: a hybrid row takes the
   weights once, a decode-only row is bound by bytes. */
void tdm_profile_guess(const tdm_shape_t *shape, const tdm_profile_rates_t *rates,
                       tdm_profile_t *out);

/* tdm_profile_load replaces the rows that the file has; profile is
   unchanged on an error. */
TDM_MUST_USE tdm_status_t tdm_profile_load(const char *path, const char *model, const char *device,
                                           tdm_profile_t *profile, tdm_error_t *err);

/* tdm_profile_save writes all rows, through a temporary file beside it. */
TDM_MUST_USE tdm_status_t tdm_profile_save(const char *path, const char *model, const char *device,
                                           const tdm_profile_t *profile, tdm_error_t *err);

#endif /* TDM_PROFILE_PROFILE_H */
