/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CONTROL_CHANGE_H
#define TDM_CONTROL_CHANGE_H

/* tdm_change is what changes a running appliance: its live keys
   (tdm_config_is_live) and whether it takes requests.

     whoever asks (any thread)          management thread
     tdm_change_post    --- ask --->    tdm_change_take
     (one under way at a time)          tdm_change_next: the configuration
                                        that would be in force, or why not
     tdm_change_state   <-- said ---    tdm_change_done: it is, or is not

   RELOAD    the configuration read anew, as at start: defaults, file, --set
   APPLY     the one in force with a candidate's keys; with confirm_s it
             goes back by itself unless CONFIRM comes in time
   ROLLBACK  an earlier one; while one awaits its confirmation, that ends
   EXPIRE    made here when the confirmation did not come in time
   DRAIN     nothing new is taken; UNDRAIN: it is again

   A change is whole or refused with its reason: a bad value, a key that
   needs a restart, more prefill tokens an iteration than at start (the
   executor's memory is sized by them), a revision that is no longer the one
   in force.
   Revisions count from 0, the configuration at start; each change of keys
   makes one more, a rollback too.  Metrics and the scheduler's records
   carry the number.  The newest TDM_REVISION_KEPT are kept, until the
   process ends: a restart begins with the file again.

   Ownership: a member of the house.  Threads: hup also from a signal
   handler; post, parse and the texts from any; take, next and done from
   the management thread. */

#include "appliance/config/config.h"
#include "appliance/control/actor.h"

#include <pthread.h>

#define TDM_REVISION_KEPT 16u
#define TDM_CHANGE_WHY    160u /* bytes of a reason, the NUL included */
#define TDM_CONFIRM_MAX_S 86400u
#define TDM_ANSWER_KEPT   32u /* answers to asks; two askers do not read each other's */

typedef enum tdm_change_kind {
    TDM_CHANGE_NONE,
    TDM_CHANGE_RELOAD,
    TDM_CHANGE_APPLY,
    TDM_CHANGE_CONFIRM,
    TDM_CHANGE_ROLLBACK,
    TDM_CHANGE_EXPIRE,
    TDM_CHANGE_DRAIN,
    TDM_CHANGE_UNDRAIN,
    TDM_CHANGE_CNT
} tdm_change_kind_t;

typedef struct tdm_change_ask {
    tdm_change_kind_t kind;
    uint32_t confirm_s; /* APPLY: rolled back after so long; 0: not */
    uint32_t revision;  /* APPLY: it was made from; ROLLBACK: to go to */
    uint32_t is_named;  /* ROLLBACK: revision was named; 0: the one before */
    tdm_actor_t actor;
    char why[TDM_CHANGE_WHY];
    tdm_config_t config; /* APPLY */
} tdm_change_ask_t;

typedef struct tdm_revision {
    uint32_t number;
    tdm_change_kind_t kind; /* NONE: at start */
    int64_t at_s;           /* since 1970-01-01 UTC */
    char by[TDM_ACTOR_NAME_MAX];
    char why[TDM_CHANGE_WHY];
    tdm_config_t config;
} tdm_revision_t;

/* What came of one ask. */
typedef struct tdm_change_answer {
    uint32_t number; /* of the ask; 0: none */
    uint32_t is_refused;
    char said[320]; /* why */
} tdm_change_answer_t;

/* tdm_change_read_fn reads the configuration as at start. */
typedef tdm_status_t tdm_change_read_fn(void *ctx, tdm_config_t *config, tdm_error_t *err);

typedef struct tdm_change {
    tdm_change_read_fn *read; /* NULL: nothing to read from, every reload is refused */
    void *ctx;
    uint64_t prefill_tokens; /* at start, the most that may be asked for */
    uint32_t hup;            /* atomic: signals */
    uint32_t hup_done;       /* management thread's, as the next two */
    tdm_config_t next;       /* being put in force */
    tdm_change_ask_t own;    /* a change that nobody posted */
    pthread_mutex_t lock;    /* of all below */
    uint32_t asked;          /* by post, counted from 1 */
    uint32_t done;           /* of them answered */
    tdm_change_answer_t newest;
    tdm_change_answer_t answer[TDM_ANSWER_KEPT]; /* [number % KEPT] of what was posted */
    tdm_change_ask_t ask;                        /* kind NONE: none under way */
    uint32_t revision;                           /* in force */
    tdm_revision_t kept[TDM_REVISION_KEPT];      /* [number % KEPT] */
    uint32_t pending;                            /* revision that awaits confirmation; 0: none */
    uint32_t back;                               /* and the one before it */
    int64_t due_ns;                              /* until then */
    uint32_t is_drained;
    char drained_by[TDM_ACTOR_NAME_MAX];
    char drained_why[TDM_CHANGE_WHY];
} tdm_change_t;

/* tdm_change_init makes config revision 0. */
void tdm_change_init(tdm_change_t *c, tdm_change_read_fn *read, void *ctx,
                     const tdm_config_t *config, int64_t wall_s);

/* tdm_change_hup asks for a reload; safe in a signal handler. */
void tdm_change_hup(tdm_change_t *c);

/* --- any thread ------------------------------------------------------- */

/* tdm_change_post hands an ask over and gives its number; TDM_ERR_FULL:
   another one is under way. */
TDM_MUST_USE tdm_status_t tdm_change_post(tdm_change_t *c, const tdm_change_ask_t *ask,
                                          uint32_t *number, tdm_error_t *err);

/* tdm_change_parse fills ask->config, the configuration in force with the
   keys of a JSON text, and ask->revision; checked as at start, and a key
   that needs a restart is refused. */
TDM_MUST_USE tdm_status_t tdm_change_parse(tdm_change_t *c, const char *text, uint64_t sz,
                                           tdm_change_ask_t *ask, tdm_error_t *err);

/* tdm_change_diff_text writes the keys that ask->config would change as
   JSON, as snprintf does. */
size_t tdm_change_diff_text(tdm_change_t *c, const tdm_change_ask_t *ask, char *buf, size_t cap);

/* tdm_change_answer_text writes how the newest went: {"asked", "done",
   "revision", "result", "message"}; result is none, ok or refused. */
size_t tdm_change_answer_text(tdm_change_t *c, char *buf, size_t cap);

/* tdm_change_state_text writes the same of ask `number` (0: of the newest)
   and the rest: what awaits its confirmation, whether and why it is
   drained, and the revisions kept with the keys that each changed; cut to
   the newest that fit.  result is forgotten where KEPT later asks were
   answered meanwhile. */
size_t tdm_change_state_text(tdm_change_t *c, uint32_t number, int64_t now_ns, char *buf,
                             size_t cap);

/* --- management thread ------------------------------------------------ */

/* tdm_change_take gives what is to be done now, NULL: nothing.  It is given
   again until done. */
const tdm_change_ask_t *tdm_change_take(tdm_change_t *c, int64_t now_ns);

/* tdm_change_next gives the configuration that ask asks for, in *next;
   NULL: it changes none. */
TDM_MUST_USE tdm_status_t tdm_change_next(tdm_change_t *c, const tdm_change_ask_t *ask,
                                          const tdm_config_t **next, tdm_error_t *err);

/* tdm_change_done ends an ask: what tdm_change_next gave is in force (OK),
   or err says why not.  Gives the configuration in force from now on; the
   one before stays for TDM_REVISION_KEPT - 1 further changes. */
const tdm_config_t *tdm_change_done(tdm_change_t *c, const tdm_change_ask_t *ask,
                                    tdm_status_t status, const tdm_error_t *err, int64_t now_ns,
                                    int64_t wall_s);

/* tdm_change_due_ns: when a confirmation runs out; TDM_TIME_NEVER: none is
   awaited. */
int64_t tdm_change_due_ns(tdm_change_t *c);

/* tdm_change_kind_name: "reload", "apply", "confirm", "rollback",
   "expire", "drain", "undrain". */
const char *tdm_change_kind_name(tdm_change_kind_t kind);

#endif /* TDM_CONTROL_CHANGE_H */
