/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_REPLAY_H
#define TDM_CTL_REPLAY_H

/* tandemctl replay: sends a workload to a server as it arrives, whatever
   the server makes of it, and says what the requests met with.

     tandemctl replay --trace FILE|NAME [options]

     --door h3|http1    HTTP/3 at --host and --port (default), or any
                        OpenAI-compatible server at --http
     --requests N       at most so many rows                       500
     --duration S       and only those that arrive within          all
     --rate R           requests a second on average; or
     --load S --capacity C   S * C; without either the trace's own
     --cv X             of drawn gaps, for rows without arrivals   1 (Poisson)
     --scale X          lengths times X, none over 2^20 then       1
     --context N        tokens of a request, prompt and output: longer ones
                        are cut to it            the server's max_model_len
     --vocab N          prompt ids are below it                    256
     --connections N    of HTTP/3                                  8
     --open-max N       requests open at once; more are counted as unsent
     --warm N           decodes that run already when the first request
                        arrives, drawn from the list; their KV is taken
                        as computed, which api.warm_start allows    0
     --text-seed N      of prompt ids: another one finds nothing in a prefix
                        cache that the same list has filled         --seed
     --cut              the window, --duration long, ends the replay; a list
                        that ends long before it is refused.  What is
                        open then is given up, and a first token that is
                        overdue has missed its target
     --ttft-ms --gap-ms --epsilon    the targets that are judged
     --records FILE     one line of JSON a request
     --plain            only fields that every server knows
     --quiet            no line of progress; and those of TDM_CTL_REPLAY_USES

   Open loop: a request is due when the trace says so, and every latency
   counts from there; nobody waits for a reply to send the next.  Prompts
   are token ids: equal block hashes of a Mooncake trace are equal blocks
   of tokens, so a prefix cache finds what it would find in service.
   --scale shrinks the blocks with the prompts.

   What is cut off is told, of each request in its record, of all in the
   summary, with who said the context.  Where nobody did, nothing is cut: what
   such a server cannot take it refuses, by its own name.  Two servers were
   asked for the same where requests_cut, prompt_tokens_cut and
   output_tokens_cut are.

   Progress goes to stderr: a line that is written over on a terminal, a new
   one each 10 s elsewhere, none with --quiet.

   Memory: one slot for each open request, bins for times; nothing grows
   with the length of the replay but the list itself. */

#include "appliance/ctl/options.h"

/* What it takes of the options that commands share. */
#define TDM_CTL_REPLAY_USES                                                                        \
    (TDM_CTL_USE(HOST) | TDM_CTL_USE(PORT) | TDM_CTL_USE(CERTIFICATE) | TDM_CTL_USE(INSECURE) |    \
     TDM_CTL_USE(HTTP) | TDM_CTL_USE(KEY) | TDM_CTL_USE(MODEL) | TDM_CTL_USE(SEED) |               \
     TDM_CTL_USE(JSON) | TDM_CTL_USE(SECONDS))

/* tdm_ctl_replay_fit refuses what tdm_ctl_replay would of the same words. */
TDM_MUST_USE tdm_status_t tdm_ctl_replay_fit(int argc, char **argv, tdm_error_t *err);

/* tdm_ctl_replay reads argv[2..) and gives the exit status: 0, 1 failed,
   2 usage, 3 the replay went to its end and its summary is whole, but
   requests had no whole answer (tdm_tally_unanswered; stderr says how
   many), 4 unreachable. */
int tdm_ctl_replay(int argc, char **argv);

#endif /* TDM_CTL_REPLAY_H */
