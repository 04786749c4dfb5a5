/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/control/actor.h"

#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GROUP_MAX 1024u /* of a peer; of one in more, its own group alone counts (ERANGE) */

static gid_t group_of(const char *name) {
    const struct group *g = name[0] ? getgrnam(name) : NULL;
    return g ? g->gr_gid : TDM_GROUP_NONE;
}

void tdm_role_groups_find(tdm_role_groups_t *g, const char *admin, const char *operator_,
                          const char *viewer) {
    *g = (tdm_role_groups_t){.own = geteuid()};
    g->gid[TDM_ROLE_NONE] = TDM_GROUP_NONE;
    g->gid[TDM_ROLE_VIEWER] = group_of(viewer);
    g->gid[TDM_ROLE_OPERATOR] = group_of(operator_);
    g->gid[TDM_ROLE_ADMIN] = group_of(admin);
}

tdm_role_t tdm_role_of(const tdm_role_groups_t *g, uid_t uid, const gid_t *gid, size_t gid_cnt) {
    if (uid == 0 || uid == g->own) return TDM_ROLE_ADMIN;
    for (int role = TDM_ROLE_ADMIN; role > TDM_ROLE_NONE; role--)
        for (size_t i = 0; g->gid[role] != TDM_GROUP_NONE && i < gid_cnt; i++)
            if (gid[i] == g->gid[role]) return (tdm_role_t)role;
    return TDM_ROLE_NONE;
}

void tdm_actor_of_peer(const tdm_role_groups_t *g, int fd, tdm_actor_t *out) {
    struct ucred who;
    gid_t gid[1 + GROUP_MAX];
    socklen_t who_sz = sizeof who, gid_sz = GROUP_MAX * sizeof gid[0];
    *out = (tdm_actor_t){.role = TDM_ROLE_NONE};
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &who_sz) != 0 || who_sz != sizeof who) {
        (void)snprintf(out->name, sizeof out->name, "somebody unknown");
        return;
    }
    gid[0] = who.gid;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, &gid[1], &gid_sz) != 0) gid_sz = 0;
    out->role = tdm_role_of(g, who.uid, gid, 1u + gid_sz / sizeof gid[0]);
    (void)snprintf(out->name, sizeof out->name, "uid %u", (unsigned)who.uid);
}

const char *tdm_role_name(tdm_role_t role) {
    static const char *const name[TDM_ROLE_CNT] = {"none", "viewer", "operator", "admin"};
    return role < TDM_ROLE_CNT ? name[role] : "none";
}
