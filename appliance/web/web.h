/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_WEB_WEB_H
#define TDM_WEB_WEB_H

/* tdm_web is the web console's static side: the files of this folder, put
   into the program by the build, and Chart.js, read once from where the
   distribution's package keeps it.  Everything else a browser gets from
   /api/v1 (appliance/control/console.h, appliance/boot/pages.h).

     /ui            -> /ui/
     /ui/           the page
     /ui/console.css, console.js, draw.js, operate.js
     /ui/chart.js   empty where the package is not there: tables and
                    pictures go on without curves

   The policy that goes with the page allows a browser this origin's files
   and requests and nothing else: no inline script or style, no other host,
   no frame.  Threads: answer on the door's library thread. */

#include "net/http1/http1.h"

typedef struct tdm_web {
    char *chart; /* NULL: none */
    uint64_t chart_sz;
} tdm_web_t;

/* tdm_web_open reads Chart.js, at most 4 MiB; a file that is not there is
   said in the log.  Boot time only. */
void tdm_web_open(tdm_web_t *w, const char *chart_path);
void tdm_web_close(tdm_web_t *w);

/* tdm_web_answer is a tdm_http1_page_fn of the paths above; ctx is the
   tdm_web_t. */
int tdm_web_answer(void *ctx, const tdm_http1_ask_t *ask, tdm_http1_page_t *page);

#endif /* TDM_WEB_WEB_H */
