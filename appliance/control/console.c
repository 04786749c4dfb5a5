/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/control/console.h"

#include "appliance/abi/exchange.h"
#include "appliance/abi/reasons.h"
#include "appliance/api/media.h"
#include "appliance/base/clock.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

tdm_status_t tdm_console_open(tdm_console_t *c, const tdm_config_t *config, const tdm_auth_t *auth,
                              tdm_error_t *err) {
    uint8_t token[16];
    c->auth = auth;
    tdm_role_groups_find(&c->groups, config->control_admin_group, config->control_operator_group,
                         config->control_viewer_group);
    tdm_audit_open(&c->audit, config->state_dir);
    if (getrandom(token, sizeof token, 0) != (ssize_t)sizeof token)
        return tdm_error_set(err, TDM_ERR_IO, "the kernel gives no random bytes");
    for (size_t i = 0; i < sizeof token; i++)
        (void)snprintf(c->csrf + 2 * i, sizeof c->csrf - 2 * i, "%02x", token[i]);
    c->text = malloc(TDM_CONSOLE_TEXT_MAX);
    if (!c->text) return tdm_error_set(err, TDM_ERR_NOMEM, "no memory for the control API");
    tdm_auth_init(&c->admin);
    if (!config->control_admin_keys_file[0]) return TDM_OK;
    return tdm_auth_load(&c->admin, config->control_admin_keys_file, err);
}

void tdm_console_close(tdm_console_t *c) {
    free(c->text);
    c->text = NULL;
}

void tdm_console_actor(const tdm_console_t *c, const tdm_http1_ask_t *ask, tdm_actor_t *out) {
    if (ask->peer_fd >= 0) {
        tdm_actor_of_peer(&c->groups, ask->peer_fd, out);
        return;
    }
    *out = (tdm_actor_t){.role = TDM_ROLE_NONE};
    int key = c->admin.key_cnt ? tdm_auth_check(&c->admin, ask->authorization, 0) : -1;
    if (key >= 0) {
        out->role = TDM_ROLE_ADMIN;
        (void)snprintf(out->name, sizeof out->name, "key %s", c->admin.tenant_name[key]);
        return;
    }
    if (tdm_auth_check(c->auth, ask->authorization, ask->is_trusted) >= 0)
        out->role = TDM_ROLE_VIEWER;
    (void)snprintf(out->name, sizeof out->name, "%s",
                   ask->is_trusted    ? "this machine"
                   : ask->is_misnamed ? "a page of another in a browser here"
                                      : "over TCP");
}

/* --- answers -------------------------------------------------------------- */

/* refuse fills page with an error of the API. */
static void refuse(tdm_console_t *c, tdm_http1_page_t *page, uint16_t status, const char *code,
                   const char *message) {
    const char *type = status >= 500   ? "server_error"
                       : status == 403 ? "permission_error"
                       : status == 401 ? "authentication_error"
                                       : "invalid_request_error";
    json_t *text = json_string(message);
    char *quoted = json_dumps(text, JSON_ENCODE_ANY);
    int n =
        snprintf(c->text, TDM_CONSOLE_TEXT_MAX,
                 "{\"error\":{\"message\":%s,\"type\":\"%s\",\"param\":null,\"code\":\"%s\"}}\n",
                 quoted ? quoted : "\"?\"", type, code);
    free(quoted);
    json_decref(text);
    *page = (tdm_http1_page_t){.status = status,
                               .content_type = TDM_CONTENT_JSON,
                               .data = c->text,
                               .sz = n > 0 ? (uint64_t)n : 0};
}

static void say(tdm_console_t *c, tdm_http1_page_t *page, uint16_t status, size_t sz) {
    if (sz >= TDM_CONSOLE_TEXT_MAX) {
        refuse(c, page, 500, "internal", "the answer does not fit its buffer");
        return;
    }
    *page = (tdm_http1_page_t){
        .status = status, .content_type = TDM_CONTENT_JSON, .data = c->text, .sz = sz};
}

void tdm_console_turn_away(tdm_console_t *c, const tdm_http1_ask_t *ask, tdm_http1_page_t *page) {
    if (ask->peer_fd >= 0)
        refuse(c, page, 403, "auth", "this needs the role viewer");
    else
        refuse(c, page, 401, "auth",
               ask->is_misnamed && c->auth->key_cnt == 0
                   ? "Host or Origin name another machine than this one: ask by "
                     "address, by localhost or by a name of http.hosts"
                   : "a valid bearer key is required");
}

static void count(tdm_console_t *c, tdm_reason_t reason) {
    tdm_count(c->block, TDM_METRIC_refusals_total, tdm_label_reason(reason), 1);
}

static void record(tdm_console_t *c, const tdm_actor_t *actor, const char *what, const char *why,
                   const char *result, const char *detail) {
    tdm_audit_entry_t entry = {
        .actor = actor, .what = what, .why = why, .result = result, .detail = detail};
    tdm_audit_write(&c->audit, tdm_clock_wall_s(), &entry);
}

/* deny tells and records that somebody may not do something. */
static void deny(tdm_console_t *c, const tdm_actor_t *actor, const char *what,
                 tdm_http1_page_t *page, const char *message) {
    record(c, actor, what, "", "denied", message);
    count(c, TDM_REFUSE_auth);
    refuse(c, page, 403, "auth", message);
}

static void bad(tdm_console_t *c, tdm_http1_page_t *page, const char *message) {
    count(c, TDM_REFUSE_bad_value);
    refuse(c, page, 400, "bad_value", message);
}

/* --- what is asked ---------------------------------------------------------- */

/* is_foreign: a browser says that a page of another origin sent this. */
static int is_foreign(const tdm_http1_ask_t *ask) {
    if (ask->fetch_site[0] && strcmp(ask->fetch_site, "same-origin") != 0 &&
        strcmp(ask->fetch_site, "none") != 0)
        return 1;
    if (!ask->origin[0]) return 0;
    const char *mark = strstr(ask->origin, "://");
    return !mark || strcasecmp(mark + 3, ask->host) != 0;
}

/* is_equal compares in a time that tells nothing of where they differ; how
   long the secret is, sz, is no secret. */
static int is_equal(const char *a, const char *b, size_t sz) {
    uint8_t differs = 0;
    if (strlen(a) != sz) return 0;
    for (size_t i = 0; i < sz; i++) differs |= (uint8_t)(a[i] ^ b[i]);
    return !differs;
}

/* why_not says what forbids a change; NULL: nothing does. */
static const char *why_not(const tdm_console_t *c, const tdm_http1_ask_t *ask,
                           const tdm_actor_t *actor, tdm_role_t needed, int is_open) {
    static const char *const role[] = {NULL, "this needs the role viewer",
                                       "this needs the role operator", "this needs the role admin"};
    int is_tcp = ask->peer_fd < 0;
    if (is_tcp && is_foreign(ask)) return "a page of another origin may not ask for this";
    if (is_open && ask->is_trusted && (is_tcp || actor->role >= needed)) return NULL;
    if (is_tcp && is_open && actor->role < needed) return "only this machine may ask for a reload";
    if (is_tcp && c->admin.key_cnt == 0)
        return "read-only: no control.admin_keys_file is configured";
    if (actor->role < needed) return role[needed];
    if (is_tcp && !is_equal(ask->csrf, c->csrf, sizeof c->csrf - 1))
        return "the CSRF token is missing or of another session";
    return NULL;
}

/* read_body fills c->ask from a JSON body; NULL: done, else what is wrong. */
static const char *read_body(tdm_console_t *c, const tdm_http1_ask_t *ask, json_t **config) {
    *config = NULL;
    c->ask.why[0] = '\0';
    c->ask.confirm_s = c->ask.revision = c->ask.is_named = 0;
    if (ask->body_sz == 0) return NULL;
    json_t *root = json_loadb(ask->body, ask->body_sz, JSON_REJECT_DUPLICATES, NULL);
    const char *wrong = NULL, *key;
    json_t *v;
    if (!json_is_object(root)) wrong = "the body is no JSON object";
    json_object_foreach(root, key, v) {
        int64_t n = json_is_integer(v) ? json_integer_value(v) : -1;
        if (strcmp(key, "why") == 0 && json_is_string(v)) {
            (void)snprintf(c->ask.why, sizeof c->ask.why, "%s", json_string_value(v));
        } else if (strcmp(key, "confirm_s") == 0 && n >= 0 && n <= TDM_CONFIRM_MAX_S) {
            c->ask.confirm_s = (uint32_t)n;
        } else if (strcmp(key, "revision") == 0 && n >= 0 && n < UINT32_MAX) {
            c->ask.revision = (uint32_t)n;
            c->ask.is_named = 1;
        } else if (strcmp(key, "config") == 0 && json_is_object(v)) {
            *config = json_incref(v);
        } else {
            wrong = "takes why (text), confirm_s (0 to 86400), revision and config (an object)";
        }
    }
    json_decref(root);
    if (!wrong) return NULL;
    json_decref(*config);
    *config = NULL;
    return wrong;
}

/* candidate reads what APPLY and a diff carry; the reason it is refused
   goes into err. */
static tdm_status_t candidate(tdm_console_t *c, json_t *config, tdm_error_t *err) {
    if (!config) return tdm_error_set(err, TDM_ERR_INVAL, "config: the candidate is missing");
    char *text = json_dumps(config, 0);
    tdm_status_t st = TDM_ERR_NOMEM;
    if (text) st = tdm_change_parse(&c->change, text, strlen(text), &c->ask, err);
    free(text);
    return st;
}

typedef struct action {
    const char *path;
    tdm_change_kind_t kind; /* NONE: tells what it would change */
    tdm_role_t role;
    int is_open; /* to this machine, without a key */
} action_t;

static const action_t action[] = {
    {"/reload", TDM_CHANGE_RELOAD, TDM_ROLE_VIEWER, 1},
    {"/api/v1/reload", TDM_CHANGE_RELOAD, TDM_ROLE_ADMIN, 0},
    {"/api/v1/config/diff", TDM_CHANGE_NONE, TDM_ROLE_VIEWER, 1},
    {"/api/v1/config/apply", TDM_CHANGE_APPLY, TDM_ROLE_ADMIN, 0},
    {"/api/v1/config/confirm", TDM_CHANGE_CONFIRM, TDM_ROLE_ADMIN, 0},
    {"/api/v1/config/rollback", TDM_CHANGE_ROLLBACK, TDM_ROLE_ADMIN, 0},
    {"/api/v1/drain", TDM_CHANGE_DRAIN, TDM_ROLE_OPERATOR, 0},
    {"/api/v1/undrain", TDM_CHANGE_UNDRAIN, TDM_ROLE_OPERATOR, 0},
};

/* conflict: the asker looked at revision base, and another one is in force
   by now. */
static void conflict(tdm_console_t *c, const tdm_actor_t *actor, uint32_t base,
                     tdm_http1_page_t *page) {
    char text[128];
    (void)snprintf(text, sizeof text, "made from revision %u, but %u is in force: look again", base,
                   c->ask.revision);
    record(c, actor, tdm_change_kind_name(TDM_CHANGE_APPLY), c->ask.why, "refused", text);
    refuse(c, page, 409, "conflict", text);
}

/* act does what an allowed POST asks. */
static void act(tdm_console_t *c, const tdm_http1_ask_t *ask, const tdm_actor_t *actor,
                const action_t *a, tdm_http1_page_t *page) {
    json_t *config = NULL;
    tdm_error_t err = {0};
    uint32_t number = 0;
    const char *wrong = read_body(c, ask, &config);
    uint32_t base = c->ask.revision; /* a candidate's is the one in force from here on */
    c->ask.kind = a->kind;
    c->ask.actor = *actor;
    tdm_status_t st = TDM_OK;
    if (!wrong && (a->kind == TDM_CHANGE_NONE || a->kind == TDM_CHANGE_APPLY))
        st = candidate(c, config, &err);
    json_decref(config);
    if (!wrong && st == TDM_OK && a->kind == TDM_CHANGE_APPLY && c->ask.is_named &&
        base != c->ask.revision) {
        conflict(c, actor, base, page);
        return;
    }
    if (wrong || st != TDM_OK) {
        if (a->kind != TDM_CHANGE_NONE)
            record(c, actor, tdm_change_kind_name(a->kind), c->ask.why, "refused",
                   wrong ? wrong : err.text);
        bad(c, page, wrong ? wrong : err.text);
    } else if (a->kind == TDM_CHANGE_NONE) {
        say(c, page, 200, tdm_change_diff_text(&c->change, &c->ask, c->text, TDM_CONSOLE_TEXT_MAX));
    } else if (tdm_change_post(&c->change, &c->ask, &number, &err) != TDM_OK) {
        refuse(c, page, 409, "busy", err.text);
    } else {
        c->wake(c->wake_ctx);
        int n = snprintf(c->text, TDM_CONSOLE_TEXT_MAX, "{\"asked\": %u}\n", number);
        say(c, page, 202, (size_t)TDM_MAX(n, 0));
    }
}

static int post(tdm_console_t *c, const tdm_http1_ask_t *ask, tdm_http1_page_t *page) {
    const action_t *a = NULL;
    for (size_t i = 0; i < TDM_COUNT_OF(action); i++)
        if (strcmp(ask->path, action[i].path) == 0) a = &action[i];
    if (!a) return 0;
    tdm_actor_t actor;
    tdm_console_actor(c, ask, &actor);
    const char *no = why_not(c, ask, &actor, a->role, a->is_open);
    int has_body = ask->body_sz > 0, has_type = ask->content_type[0] != '\0';
    if (no) {
        deny(c, &actor, a->path, page, no);
    } else if (has_body && (!has_type || !tdm_media_is_json(ask->content_type))) {
        refuse(c, page, 415, "unsupported_media_type", "the body must be application/json");
    } else if (has_body && !tdm_media_is_plain(ask->content_coding)) {
        refuse(c, page, 415, "unsupported_media_type", TDM_MEDIA_CODED);
        page->is_coded = 1;
    } else {
        act(c, ask, &actor, a, page);
    }
    return 1;
}

/* session: the name of a key is whatever its file says. */
static size_t session(tdm_console_t *c, const tdm_http1_ask_t *ask, const tdm_actor_t *actor) {
    int may_ever = ask->peer_fd >= 0 || c->admin.key_cnt != 0;
    json_t *name = json_string(actor->name); /* NULL: no UTF-8 */
    char *who = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
    int n = snprintf(c->text, TDM_CONSOLE_TEXT_MAX,
                     "{\"who\":%s,\"role\":\"%s\",\"can_change\":%s,\"csrf\":\"%s\"}\n",
                     who ? who : "\"?\"", tdm_role_name(actor->role), may_ever ? "true" : "false",
                     may_ever ? c->csrf : "");
    free(who);
    json_decref(name);
    return n > 0 ? (size_t)n : 0;
}

/* asked_of reads "asked=N" of a query; 0: not there. */
static uint32_t asked_of(const char *query) {
    const char *at = query ? strstr(query, "asked=") : NULL;
    return at ? (uint32_t)strtoul(at + 6, NULL, 10) : 0;
}

int tdm_console_answer(void *ctx, const tdm_http1_ask_t *ask, tdm_http1_page_t *page) {
    tdm_console_t *c = ctx;
    static const char *const path[] = {"/api/v1/session", "/api/v1/changes", "/api/v1/audit",
                                       "/reload"};
    if (ask->method == TDM_METHOD_POST) return post(c, ask, page);
    size_t which = 0;
    while (which < TDM_COUNT_OF(path) && strcmp(ask->path, path[which]) != 0) which++;
    if (which == TDM_COUNT_OF(path)) return 0;
    tdm_actor_t actor;
    tdm_console_actor(c, ask, &actor);
    if (actor.role < TDM_ROLE_VIEWER) {
        if (ask->peer_fd >= 0)
            deny(c, &actor, ask->path, page, "this needs the role viewer");
        else
            tdm_console_turn_away(c, ask, page);
        return 1;
    }
    size_t sz = 0, cap = TDM_CONSOLE_TEXT_MAX;
    switch (which) {
    case 0: sz = session(c, ask, &actor); break;
    case 1:
        sz = tdm_change_state_text(&c->change, asked_of(ask->query), tdm_clock_now_ns(), c->text,
                                   cap);
        break;
    case 2: sz = tdm_audit_text(&c->audit, c->text, cap); break;
    default: sz = tdm_change_answer_text(&c->change, c->text, cap); break;
    }
    say(c, page, 200, sz);
    return 1;
}
