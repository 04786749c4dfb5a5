/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_APPLIANCE_H
#define TDM_CTL_APPLIANCE_H

/* tandemctl appliance VERB [--root DIR]: appliance.json, on the machine
   that it is for (appliance/setup/setup.h).

     help            its keys, a line each and what they mean
     check FILE      is it good?  Silent where it is
     kernel [FILE]   kernel arguments, one line; of what was accepted
                     where no file is named
     accept FOLDER   take appliance.json, certificate.pem and key.pem
     render          write what follows from the accepted file to /run

   accept and render are what tandem-first-boot.service calls; root.  Exit
   status 0, 1 refused or failed in one line, 2 usage, 3 accept: the folder
   has no appliance.json. */

int tdm_ctl_appliance(int argc, char **argv);

#endif /* TDM_CTL_APPLIANCE_H */
