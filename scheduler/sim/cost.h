/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_SIM_COST_H
#define TDM_SCHEDULER_SIM_COST_H

/* tdm_cost is a machine that does not exist: how long each iteration
   really takes in the simulator.

     t = (fixed + linear(N) + attention(variant)) * bias(cell) * slow * noise
         + spike

   linear is the roofline of weights and arithmetic, in steps of 64 tokens.
   Attention: prefill by pairs, decode by KV tokens; serial is their sum,
   fused the larger and a quarter of the smaller, streams the larger and
   half of the smaller.  bias is hidden from the profile: each coarse cell
   of (pairs, KV), with borders that no one else knows, is off by its own
   factor.  A power cap makes everything
   slower by `slow` in every second window of slow_window_ns.

   A measured machine instead reads its profile.  At another SM clock than
   the profile's, stretch is the profile's over it: prefill's share of
   attention takes so many times as long, and so does what the rest takes
   beyond one token's, which is reading weights: memory keeps its clock.

   The profile that the scheduler gets is read off the same machine on a
   quiet day: no bias, no noise, at the table's entries only. */

#include "appliance/base/rng.h"
#include "appliance/profile/table.h"
#include "scheduler/table.h"

TDM_BEGIN_DECLS

typedef struct tdm_cost {
    const tdm_profile_table_t *table; /* a measured machine: instead of the five rates below */
    double stretch;                   /* of it; 0: 1 */
    double fixed_ns;
    double weights_ns; /* to read them once */
    double token_ns;   /* of arithmetic */
    double pair_ns;
    double kv_ns;
    double bias_low; /* factors of the cells are in [1 + bias_low, 1 + bias_high] */
    double bias_high;
    uint64_t bias_seed;
    double noise;       /* sigma of a log-normal factor */
    double spike_share; /* of iterations that one hits */
    double spike_low_ns;
    double spike_high_ns;
    double slow; /* 0.35: takes 35 % longer */
    int64_t slow_window_ns;
    int64_t host_ns; /* between two iterations */
} tdm_cost_t;

/* tdm_cost_llama8b is shaped like an 8B model on two A100: 5.3 ms of
   weights, 39 us a token, attention by arithmetic and bytes.  A model, not
   a measurement. */
void tdm_cost_llama8b(tdm_cost_t *cost);

/* tdm_cost_quiet_ns: without bias, noise, slow-down and spikes. */
double tdm_cost_quiet_ns(const tdm_cost_t *cost, uint32_t variant, const tdm_load_t *load);

/* tdm_cost_attention_ns: the part of it that is attention. */
double tdm_cost_attention_ns(const tdm_cost_t *cost, uint32_t variant, const tdm_load_t *load);

/* tdm_cost_bias gives the hidden factor of a load's cell. */
double tdm_cost_bias(const tdm_cost_t *cost, const tdm_load_t *load);

/* tdm_cost_slow gives the factor of the power cap at a time. */
double tdm_cost_slow(const tdm_cost_t *cost, int64_t now_ns);

/* tdm_cost_profile measures the machine into a set, marked as a model; the
   caller frees it.  TDM_ERR_NOMEM. */
TDM_MUST_USE tdm_status_t tdm_cost_profile(const tdm_cost_t *cost, tdm_profile_set_t *set,
                                           tdm_error_t *err);

/* tdm_cost_rows gives the linear guess with the machine's rates. */
void tdm_cost_rows(const tdm_cost_t *cost, tdm_profile_t *rows);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_SIM_COST_H */
