/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_TOP_H
#define TDM_CTL_TOP_H

/* tandemctl top: the appliance on a whole terminal, drawn anew every
   second (--watch N) and when the terminal changes its size; the lane five
   times a second.  What is drawn: top_view.h.  Without a terminal it says
   so.  Exit status 0, 1 (no terminal), 4 (nobody answers at first; later
   it says so and goes on asking). */

#include "appliance/ctl/options.h"

int tdm_ctl_top(const tdm_ctl_options_t *o);

#endif /* TDM_CTL_TOP_H */
