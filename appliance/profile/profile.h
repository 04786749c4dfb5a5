/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_PROFILE_PROFILE_H
#define TDM_PROFILE_PROFILE_H

/* The first guess of how long an iteration takes, from a model's shape
   and a machine's rates: what the scheduler starts from where nothing was
   measured (table.h, file.h), and the shape of the curve between points
   that were. */

#include "appliance/abi/model.h"
#include "appliance/abi/profile.h"

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

/* tdm_profile_gpu_rates: a cautious SM of a data-centre GPU, sm_cnt times: half
   of what an H200's reach in long matrix products and reads (5.9 TFLOP/s
   and 33 GB/s each). */
tdm_profile_rates_t tdm_profile_gpu_rates(uint32_t sm_cnt);

/* tdm_profile_guess fills every row by a roofline: a hybrid row takes the
   weights once, a decode-only row is bound by bytes. */
void tdm_profile_guess(const tdm_shape_t *shape, const tdm_profile_rates_t *rates,
                       tdm_profile_t *out);

#endif /* TDM_PROFILE_PROFILE_H */
