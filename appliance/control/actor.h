/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CONTROL_ACTOR_H
#define TDM_CONTROL_ACTOR_H

/* tdm_actor is somebody who asks the appliance to show or to change
   something, and what they may.

     viewer    sees status, configuration and audit
     operator  drains, takes support bundles
     admin     changes the configuration as well

   Over the Unix socket the kernel says who is there (SO_PEERCRED,
   SO_PEERGROUPS; unix(7)): root and the appliance's own user are admins,
   others have the role of the highest group that they are in. */

#include "appliance/base/status.h"

#include <sys/types.h>

typedef enum tdm_role {
    TDM_ROLE_NONE,
    TDM_ROLE_VIEWER,
    TDM_ROLE_OPERATOR,
    TDM_ROLE_ADMIN,
    TDM_ROLE_CNT
} tdm_role_t;

#define TDM_ACTOR_NAME_MAX 64u

typedef struct tdm_actor {
    tdm_role_t role;
    char name[TDM_ACTOR_NAME_MAX]; /* "uid 0", "key ann", "SIGHUP", ...: printable */
} tdm_actor_t;

#define TDM_GROUP_NONE ((gid_t)-1)

/* The group of each role; TDM_GROUP_NONE: nobody by group. */
typedef struct tdm_role_groups {
    gid_t gid[TDM_ROLE_CNT];
    uid_t own; /* of the appliance */
} tdm_role_groups_t;

/* tdm_role_groups_find looks the names up; one that is empty or not there
   is TDM_GROUP_NONE.  Boot time only. */
void tdm_role_groups_find(tdm_role_groups_t *g, const char *admin, const char *operator_,
                          const char *viewer);

/* tdm_role_of gives the role of a user in gid[0..gid_cnt). */
tdm_role_t tdm_role_of(const tdm_role_groups_t *g, uid_t uid, const gid_t *gid, size_t gid_cnt);

/* tdm_actor_of_peer asks the kernel who is at the other end of a connected
   Unix socket; where it does not say, the role is none. */
void tdm_actor_of_peer(const tdm_role_groups_t *g, int fd, tdm_actor_t *out);

/* tdm_role_name: "none", "viewer", "operator", "admin". */
const char *tdm_role_name(tdm_role_t role);

#endif /* TDM_CONTROL_ACTOR_H */
