/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_BUNDLE_H
#define TDM_CTL_BUNDLE_H

/* tandemctl support bundle: one .tar.gz with all that the appliance tells
   of itself, for somebody who cannot look themselves:

     MANIFEST.json      what is in it, and what could not be had
     status.json        tandemctl show status
     config.json        the effective configuration
     changes.json       revisions and what awaits its confirmation
     audit.json         who changed what
     requests.json      the slowest requests by phase
     iterations.json    the newest iterations
     metrics.txt        every series
     journey.txt        tandemctl show journey
     doctor.json        this machine

   None of the sources ever holds a prompt, an answer, a token or a key:
   the pages count and time, the flight recorder keeps lengths.  The
   reasons that operators gave are in the audit as they wrote them. */

#include "appliance/ctl/options.h"

/* tdm_ctl_support is the command; word[0] must be "bundle".  Exit status 0,
   1 (the file cannot be written), 2, 4 (the appliance does not answer). */
int tdm_ctl_support(const tdm_ctl_options_t *o, const char *version);

#endif /* TDM_CTL_BUNDLE_H */
