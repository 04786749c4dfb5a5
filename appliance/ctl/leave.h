/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_LEAVE_H
#define TDM_CTL_LEAVE_H

/* tdm_leave: a signal that ends the program waits until what the program does
   to an appliance is undone.  Of one thread; there is one such state in a
   process. */

/* tdm_leave_heed makes SIGINT, SIGTERM, SIGHUP and SIGPIPE wait from here on;
   one that is ignored stays so. */
void tdm_leave_heed(void);

/* tdm_leave_by gives the signal that came; 0: none did. */
int tdm_leave_by(void);

/* tdm_leave ends the program by the signal that came; returns where none
   did. */
void tdm_leave(void);

#endif /* TDM_CTL_LEAVE_H */
