/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_OPERATE_H
#define TDM_CTL_OPERATE_H

/* Changing a running appliance (appliance/control/console.h).  Each waits
   for what comes of it, --seconds at most.  Exit status 0, 1 (refused or
   not allowed, with the reason), 2 (usage), 4 (no answer). */

#include "appliance/ctl/options.h"

/* tdm_ctl_config: word[0] is

     show                       what is in force
     diff CANDIDATE             what would change
     apply CANDIDATE            do so; with --confirm T it goes back by itself
     confirm                    ... unless this comes in time
     rollback [REVISION]        an earlier one, or the one before

   CANDIDATE is a file, or keys as section.key=value ... */
int tdm_ctl_config(const tdm_ctl_options_t *o);

/* tdm_ctl_reload has the file read anew. */
int tdm_ctl_reload(const tdm_ctl_options_t *o);

/* tdm_ctl_drain refuses what is new; what runs goes on.  undrain: no more. */
int tdm_ctl_drain(const tdm_ctl_options_t *o);
int tdm_ctl_undrain(const tdm_ctl_options_t *o);

#endif /* TDM_CTL_OPERATE_H */
