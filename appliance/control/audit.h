/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CONTROL_AUDIT_H
#define TDM_CONTROL_AUDIT_H

/* tdm_audit is the record of who changed what, when and why, and of who was
   not allowed to: a line of JSON each,

     {"at": "2026-09-21T14:13:20Z", "who": "uid 0", "role": "admin",
      "what": "apply", "why": "...", "result": "ok", "detail": "..."}

   appended to a file, and the newest TDM_AUDIT_KEPT in memory.  The file
   is moved to FILE.1 at TDM_AUDIT_FILE_MAX bytes.  A file that cannot be
   written is said in the log, once until it can again, and each line that it
   lacks is counted; what is asked happens all the same.
   Anybody who reaches a door may be denied something, and must not push out
   what others did: of those, TDM_AUDIT_DENIED_MAX of one minute have a line,
   and the first of a later one says how many had none.
   Threads: any; a mutex guards it.  Not for a polling tile. */

#include "appliance/base/status.h"
#include "appliance/control/actor.h"

#include <pthread.h>

#define TDM_AUDIT_KEPT       64u
#define TDM_AUDIT_LINE_MAX   2048u
#define TDM_AUDIT_FILE_MAX   (1u << 20)
#define TDM_AUDIT_DENIED_MAX 32u /* at most half of what is in memory */

typedef struct tdm_audit_entry {
    const tdm_actor_t *actor;
    const char *what;
    const char *why;
    const char *result; /* "ok", "refused", "denied" */
    const char *detail; /* the reason of a refusal, or what it made */
} tdm_audit_entry_t;

typedef struct tdm_audit {
    char path[320]; /* empty: memory only */
    uint32_t was_said;
    uint64_t cnt;        /* ever written */
    uint64_t lost_cnt;   /* of them those that the file lacks */
    int64_t minute;      /* of the last denied one */
    uint32_t denied_cnt; /* of that minute, with a line */
    uint32_t left_out;   /* denied ones without, since the last that had one */
    pthread_mutex_t lock;
    char line[TDM_AUDIT_KEPT][TDM_AUDIT_LINE_MAX]; /* a circle */
} tdm_audit_t;

/* tdm_audit_open takes the file FOLDER/audit.jsonl; folder "": none. */
void tdm_audit_open(tdm_audit_t *a, const char *folder);

/* tdm_audit_write adds an entry; texts are cut to what a line holds. */
void tdm_audit_write(tdm_audit_t *a, int64_t wall_s, const tdm_audit_entry_t *entry);

/* tdm_audit_lost_cnt: lines that the file lacks, from any thread. */
uint64_t tdm_audit_lost_cnt(const tdm_audit_t *a);

/* tdm_audit_text writes {"entries": [...]}, the newest first, as snprintf
   does. */
size_t tdm_audit_text(tdm_audit_t *a, char *buf, size_t cap);

#endif /* TDM_CONTROL_AUDIT_H */
