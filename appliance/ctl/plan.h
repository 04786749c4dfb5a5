/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_PLAN_H
#define TDM_CTL_PLAN_H

/* tandemctl plan: the capacity planner (scheduler/sim/planner.h).  It asks
   no appliance: profile and trace in, curves out.

     tandemctl plan --profile FILE|example --trace FILE|NAME
                    [--requests N] [--ttft-ms N] [--gap-ms N] [--epsilon X]
                    [--appliances N] [--kv-pages N] [--noise X] [--seed N]
                    [--rates R[@WARM],R,...] [--window S] [--scale X] [--cv X]
                    [--policies P,P,...]
                    [--link-gbit X,X,... [--kv-bytes N] [--link-us X]]
                    [--sequences N] [--context N] [--prefill-tokens N]
                    [--grid N] [--floor N] [--starve-ms N] [--clock MHZ]
                    [--measured FILE] [--json | --html FILE]

   --rates looks at those rates alone: with the trace, seed and --scale of a
   tandemctl replay it is the same list of arrivals.  --window S makes each rate
   what bench serve measures: the arrivals of S seconds beside WARM decodes that
   run already, then cut; with the replay's --requests (bench serve: 100000) it
   is the same list again.  --sequences to
   --starve-ms say how the appliance is configured; the defaults suit a GPU.
   --clock asks what another SM clock than the profile's makes of it, as under
   a lower power limit: arithmetic goes by it, memory does not (cost.h).
   --policies compares ways to size prefill: quantile (Tandem's), mean,
   margin:X, static:N, and fifo:N, the same in order of arrival.
   --link-gbit weighs a pool of prefill and a pool of decode appliances against
   as many that do both, over each network named, and says from which on they
   carry more; a prompt's keys and values, --kv-bytes a token, travel over it
   (131072: an 8B model's).
   --measured names what bench serve --planned or bench merge --plan wrote: by
   how much plans erred there stands in the answer (measured.h).  Where it is not
   named, a list beside the profile tells, as one does of a kept profile; where
   neither is, the answer says that nobody told.
   --requests counts for one appliance.  example is the model of an 8B model on two A100 and says
   so; a trace NAME is a log-normal fit of appliance/workload/workload.h. */

/* tdm_ctl_plan reads argv[2..) and gives the exit status: 0, 1 failed, 2
   usage. */
int tdm_ctl_plan(int argc, char **argv);

#endif /* TDM_CTL_PLAN_H */
