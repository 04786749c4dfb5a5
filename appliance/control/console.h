/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CONTROL_CONSOLE_H
#define TDM_CONTROL_CONSOLE_H

/* tdm_console is the one API by which operators look and change, the same
   over the Unix socket (tandemctl) and over TCP (the web console):

     GET  /api/v1/session          who you are, what you may, the CSRF token
     GET  /api/v1/changes          tdm_change_state_text; ?asked=N: of ask N
     GET  /api/v1/audit            tdm_audit_text
     POST /api/v1/config/diff      what a candidate would change
     POST /api/v1/config/apply     {"config": {...}, "confirm_s": 10, "why": "...",
                                    "revision": 3}
     POST /api/v1/config/confirm   {"why": "..."}
     POST /api/v1/config/rollback  {"revision": 3, "why": "..."}
     POST /api/v1/drain, undrain   {"why": "..."}
     POST /api/v1/reload, /reload  GET /reload: tdm_change_answer_text

   A POST is answered 202 with its number ("asked"); GET
   /api/v1/changes?asked=N has "done" at that number when it has happened,
   or was refused with its "message".  Who applies and names the revision
   that he looked at hears 409 conflict where another one is in force; 409
   busy: another change is under way.  Errors are those of the API: {"error": {...}}.

   Who may.  Over the Unix socket: actor.h.  Over TCP: whoever may read the
   other pages looks; changes need a key of control.admin_keys_file as
   bearer, the CSRF token of the session, JSON, and no sign of another
   origin.  /reload alone is open to this machine without a key, as it can
   only make the file count.  Who is not allowed is counted (auth) and
   audited.

   Threads: answer on the door's library thread; the rest of the struct
   from the management thread, as change.h and audit.h say. */

#include "appliance/api/auth.h"
#include "appliance/control/audit.h"
#include "appliance/control/change.h"
#include "net/http1/http1.h"
#include "telemetry/block/block.h"

#define TDM_CONSOLE_TEXT_MAX (256u * 1024u)

typedef struct tdm_console {
    tdm_role_groups_t groups;
    const tdm_auth_t *auth; /* of the API: who may look over TCP */
    tdm_auth_t admin;       /* key_cnt 0: nobody changes anything over TCP */
    tdm_change_t change;
    tdm_audit_t audit;
    char csrf[33];           /* of this process */
    void (*wake)(void *ctx); /* the management thread, after a post */
    void *wake_ctx;
    tdm_block_t *block;   /* of whoever answers pages */
    tdm_change_ask_t ask; /* being made; library thread's */
    char *text;           /* [TDM_CONSOLE_TEXT_MAX] */
} tdm_console_t;

/* tdm_console_open reads groups and keys; change is initialised by the
   caller.  Boot time only. */
TDM_MUST_USE tdm_status_t tdm_console_open(tdm_console_t *c, const tdm_config_t *config,
                                           const tdm_auth_t *auth, tdm_error_t *err);
void tdm_console_close(tdm_console_t *c);

/* tdm_console_actor says who asks; role NONE: may not even look. */
void tdm_console_actor(const tdm_console_t *c, const tdm_http1_ask_t *ask, tdm_actor_t *out);

/* tdm_console_answer is a tdm_http1_page_fn of the paths above; ctx is the
   tdm_console_t. */
int tdm_console_answer(void *ctx, const tdm_http1_ask_t *ask, tdm_http1_page_t *page);

/* tdm_console_turn_away fills page with why an asker of role NONE may not
   look. */
void tdm_console_turn_away(tdm_console_t *c, const tdm_http1_ask_t *ask, tdm_http1_page_t *page);

#endif /* TDM_CONTROL_CONSOLE_H */
