/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_PROFILE_H
#define TDM_CTL_PROFILE_H

/* tandemctl profile: measures the scheduler's latency table on the
   backend that tandemd would use (appliance/measure), with an executor of
   its own: stop the appliance first, or the two share the machine.

     tandemctl profile --out BASE [--config FILE] [--set section.key=value]...
                       [--budget SECONDS] [--power-w N] [--json]

   The configuration is tandemd's: model, backend, SM threads, KV pages,
   prefill tokens.  Writes BASE.json to read and BASE.bin to load
   (sched.profile takes either), keyed by device, model, kernel build and
   the power cap that --power-w names (0: none).  --json prints the account
   for machines. */

/* tdm_ctl_profile reads argv[2..) and gives the exit status: 0, 1 failed,
   2 usage.  version is this build's. */
int tdm_ctl_profile(int argc, char **argv, const char *version);

#endif /* TDM_CTL_PROFILE_H */
