/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_BENCH_H
#define TDM_CTL_BENCH_H

/* tandemctl bench serve: the curve of promises kept over load, of a running
   appliance, for several ways to serve; one arrival list for all.

     tandemctl bench serve --out BASE --trace FILE|NAME --rates R[@WARM],R,...
                           [--cells PATH/POLICY,...] [--window S] [--warm N]
                           [--planned FILE] [--only PATH/POLICY[@RATE],...]
                           [--seconds N] [--note KEY=VALUE ..]
                           [options of replay but those below]
     tandemctl bench merge --out BASE [--plan FILE] [--keep PATH/POLICY,...]
                           [--note KEY=VALUE ..] FILE...

     --cells     fused, streams or serial / quantile, margin, static:N or fifo:N
                                          fused/quantile,serial/quantile
     --rates     @WARM: so many decodes run when the window begins, as --warm
     --window    seconds of each rate                                 75
     --planned   what tandemctl plan --json --rates R,... said: drawn
                 beside what is measured, with its error
     --only      of the windows, these
     --seconds   no window begins that would end later; the rest is left
     --first     seconds of a window before all others, which touches memory
                 and is not kept; 0: none        an eighth of --window
     --note      what each window then says it ran under, beside the build

   For each cell the live keys sched.route, sched.policy and, for static:N and
   fifo:N, sched.prefill_tokens are applied, for fifo:N sched.patience=0 too: as
   many tokens, in order of arrival; each rate is a tandemctl replay with
   --cut, in a process of its own, which ends with this one; between two the
   appliance comes to rest.  The replay's rate, window, text seed and output are
   the bench's: --rate, --load, --capacity, --duration, --cut, --text-seed,
   --records, --quiet and --json have no use here.
   In the end the revision that was in force is back.

   BASE.json holds all, BASE.html draws it and needs nothing else.  Both are
   written after each window, and a later call goes on with what BASE.json
   lacks: rates in the order in which they are named, at each all cells.  A
   file of another build, model, trace or promise is refused (bench_file.h).

   merge puts sittings of one build together, as from two GPUs of a host; of a
   file of another build than the first it takes the cells of --keep, named
   before it, which what changed between them must not touch: each window says
   its build.  --note says of all windows what they do not: device, driver,
   commit, date, command.  A plan fills cells that nobody measured, and each of them says so.

   A rate is kept where no request is refused or lost, at most epsilon of all
   gaps are over --gap-ms, the first token of nine in ten comes within
   --ttft-ms, and the queue of the window's last quarter is not longer than
   that of the first by more than one request or a tenth.  A cell carries the highest rate below
   which all are kept.

   Attention's share is of the iterations' time, as the executor counts it.
   How much faster attention runs fused than serial is taken in place: the
   seconds of both over one list of arrivals, at the highest rate that both
   keep. */

/* tdm_ctl_bench reads argv[2..) and gives the exit status: 0, 1 failed, 2
   usage, 4 unreachable. */
int tdm_ctl_bench(int argc, char **argv);

#endif /* TDM_CTL_BENCH_H */
