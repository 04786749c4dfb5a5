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
     requests, flight     that part of it; lists as tables
     journey, metrics, config, models, version   that page

   again every --watch seconds, as JSON with -o json.  Returns the exit
   status of tandemctl. */
int tdm_show(const tdm_ctl_options_t *options);

/* tdm_wait_ready polls /ready until it answers 200, --seconds have passed,
   or process --pid is gone; what the server says meanwhile goes to
   stderr.  Exit status 0, 1 (gone, or it answers but is not ready), 4 (no answer). */
int tdm_wait_ready(const tdm_ctl_options_t *options);

/* tdm_ctl_reload asks the appliance to read its live keys anew and waits
   for what comes of it.  Exit status 0, 1 (refused, with the reason), 4
   (no answer). */
int tdm_ctl_reload(const tdm_ctl_options_t *options);

#endif /* TDM_CTL_SHOW_H */
