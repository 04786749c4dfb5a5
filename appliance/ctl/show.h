/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_SHOW_H
#define TDM_CTL_SHOW_H

/* Reading the management port. */

#include "appliance/ctl/options.h"

/* tdm_show prints word[0]:

     status               what is wrong in plain words, then everything
     health               the same words alone; exit status 3 where somebody
                          suffers
     slo, scheduler, attention, fallbacks, drops, rings, tiles, kv,
     requests, flight,
     gpu, power           that part of it; lists as tables; requests with
                          --slowest N: those that took longest, by phase
     changes, audit       what is in force since when and by whom, what awaits
                          its confirmation; who changed what
     journey, metrics, config, models, version   that page

   again every --watch seconds, as JSON or YAML with -o json or -o yaml, as
   the metrics that say it with -o prom; counts over the last --since T
   instead of since start.  Returns the exit
   status of tandemctl. */
int tdm_show(const tdm_ctl_options_t *options);

/* tdm_wait_ready polls /ready until it answers 200, --seconds have passed,
   or process --pid is gone; what the server says meanwhile goes to
   stderr.  Exit status 0, 1 (gone, or it answers but is not ready), 4 (no answer). */
int tdm_wait_ready(const tdm_ctl_options_t *options);

/* tdm_show_word gives word number i that show knows, NULL past the last. */
const char *tdm_show_word(size_t i);

#endif /* TDM_CTL_SHOW_H */
