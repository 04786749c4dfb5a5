/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/control/change.h"

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tdm_change_init(tdm_change_t *c, tdm_change_read_fn *read, void *ctx,
                     const tdm_config_t *config, int64_t wall_s) {
    c->read = read;
    c->ctx = ctx;
    c->prefill_tokens = config->sched_prefill_tokens;
    (void)pthread_mutex_init(&c->lock, NULL);
    c->kept[0] = (tdm_revision_t){.at_s = wall_s, .config = *config};
    (void)snprintf(c->kept[0].by, sizeof c->kept[0].by, "start");
}

void tdm_change_hup(tdm_change_t *c) {
    (void)tdm_add_relaxed(&c->hup, 1u);
}

static tdm_revision_t *revision_at(tdm_change_t *c, uint32_t number) {
    return &c->kept[number % TDM_REVISION_KEPT];
}

/* --- asking ------------------------------------------------------------- */

tdm_status_t tdm_change_post(tdm_change_t *c, const tdm_change_ask_t *ask, uint32_t *number,
                             tdm_error_t *err) {
    (void)pthread_mutex_lock(&c->lock);
    int is_free = c->ask.kind == TDM_CHANGE_NONE;
    if (is_free) {
        c->ask = *ask;
        *number = ++c->asked;
    }
    (void)pthread_mutex_unlock(&c->lock);
    if (is_free) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_FULL, "another change is under way: ask again");
}

/* may_live refuses what only a restart can bring. */
static tdm_status_t may_live(const tdm_change_t *c, const tdm_config_t *now,
                             const tdm_config_t *next, tdm_error_t *err) {
    const char *fixed = tdm_config_fixed(now, next);
    if (fixed) return tdm_error_set(err, TDM_ERR_INVAL, "%s: a change needs a restart", fixed);
    if (next->sched_prefill_tokens <= c->prefill_tokens) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_INVAL,
                         "sched.prefill_tokens = %llu: the executor was started for %llu, "
                         "more needs a restart",
                         (unsigned long long)next->sched_prefill_tokens,
                         (unsigned long long)c->prefill_tokens);
}

tdm_status_t tdm_change_parse(tdm_change_t *c, const char *text, uint64_t sz, tdm_change_ask_t *ask,
                              tdm_error_t *err) {
    (void)pthread_mutex_lock(&c->lock);
    ask->revision = c->revision;
    ask->config = revision_at(c, c->revision)->config;
    (void)pthread_mutex_unlock(&c->lock);
    const tdm_config_t now = ask->config;
    tdm_status_t st = tdm_config_parse(&ask->config, text, sz, "the candidate", err);
    if (st == TDM_OK) st = tdm_config_check(&ask->config, err);
    return st == TDM_OK ? may_live(c, &now, &ask->config, err) : st;
}

/* --- doing ---------------------------------------------------------------- */

/* own_ask makes an ask of the appliance's own. */
static const tdm_change_ask_t *own_ask(tdm_change_t *c, tdm_change_kind_t kind, const char *who,
                                       const char *why) {
    c->own.kind = kind;
    c->own.actor.role = TDM_ROLE_ADMIN;
    (void)snprintf(c->own.actor.name, sizeof c->own.actor.name, "%s", who);
    (void)snprintf(c->own.why, sizeof c->own.why, "%s", why);
    return &c->own;
}

const tdm_change_ask_t *tdm_change_take(tdm_change_t *c, int64_t now_ns) {
    (void)pthread_mutex_lock(&c->lock);
    int is_posted = c->ask.kind != TDM_CHANGE_NONE;
    int is_late = c->pending && now_ns >= c->due_ns;
    (void)pthread_mutex_unlock(&c->lock);
    /* A posted ask stays as it is until done: no lock is needed to read it. */
    if (is_posted) return &c->ask;
    if (is_late) return own_ask(c, TDM_CHANGE_EXPIRE, "the appliance", "not confirmed in time");
    if (tdm_load_relaxed(&c->hup) != c->hup_done)
        return own_ask(c, TDM_CHANGE_RELOAD, "SIGHUP", "");
    return NULL;
}

static tdm_status_t roll_back(tdm_change_t *c, const tdm_change_ask_t *ask, tdm_error_t *err) {
    uint32_t to = ask->is_named ? ask->revision : c->pending ? c->back : c->revision - 1u;
    if (!ask->is_named && c->revision == 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "revision 0 is in force: there is none before");
    if (to >= c->revision)
        return tdm_error_set(err, TDM_ERR_INVAL, "revision %u is in force, %u is not before it",
                             c->revision, to);
    if (revision_at(c, to)->number != to)
        return tdm_error_set(err, TDM_ERR_NOT_FOUND, "revision %u is not kept any more", to);
    c->next = revision_at(c, to)->config;
    return TDM_OK;
}

/* is_awaiting refuses what cannot be while one awaits its confirmation. */
static tdm_status_t not_awaiting(const tdm_change_t *c, tdm_error_t *err) {
    if (!c->pending) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_INVAL,
                         "revision %u awaits its confirmation: confirm it or roll it back first",
                         c->pending);
}

static tdm_status_t next_locked(tdm_change_t *c, const tdm_change_ask_t *ask,
                                const tdm_config_t **next, tdm_error_t *err) {
    const tdm_config_t *now = &revision_at(c, c->revision)->config;
    tdm_status_t st = TDM_OK;
    switch (ask->kind) {
    case TDM_CHANGE_RELOAD:
        st = not_awaiting(c, err);
        if (st == TDM_OK && !c->read)
            st = tdm_error_set(err, TDM_ERR_INVAL, "there is no configuration to read");
        if (st == TDM_OK) st = c->read(c->ctx, &c->next, err);
        if (st == TDM_OK) st = may_live(c, now, &c->next, err);
        break;
    case TDM_CHANGE_APPLY:
        st = not_awaiting(c, err);
        if (st == TDM_OK && ask->revision != c->revision)
            st = tdm_error_set(err, TDM_ERR_INVAL,
                               "made from revision %u, but %u is in force: look again",
                               ask->revision, c->revision);
        c->next = ask->config;
        break;
    case TDM_CHANGE_ROLLBACK: st = roll_back(c, ask, err); break;
    case TDM_CHANGE_EXPIRE: c->next = revision_at(c, c->back)->config; break;
    case TDM_CHANGE_CONFIRM:
        if (!c->pending) return tdm_error_set(err, TDM_ERR_INVAL, "nothing awaits confirmation");
        return TDM_OK;
    default: return TDM_OK;
    }
    if (st == TDM_OK) *next = &c->next;
    return st;
}

tdm_status_t tdm_change_next(tdm_change_t *c, const tdm_change_ask_t *ask,
                             const tdm_config_t **next, tdm_error_t *err) {
    *next = NULL;
    (void)pthread_mutex_lock(&c->lock);
    tdm_status_t st = next_locked(c, ask, next, err);
    (void)pthread_mutex_unlock(&c->lock);
    return st;
}

/* enter makes c->next one more revision. */
static void enter(tdm_change_t *c, const tdm_change_ask_t *ask, int64_t now_ns, int64_t wall_s) {
    uint32_t before = c->revision++;
    tdm_revision_t *r = revision_at(c, c->revision);
    *r = (tdm_revision_t){
        .number = c->revision, .kind = ask->kind, .at_s = wall_s, .config = c->next};
    (void)snprintf(r->by, sizeof r->by, "%s", ask->actor.name);
    (void)snprintf(r->why, sizeof r->why, "%s", ask->why);
    c->pending = 0;
    if (ask->kind != TDM_CHANGE_APPLY || ask->confirm_s == 0) return;
    c->pending = c->revision;
    c->back = before;
    c->due_ns = now_ns + (int64_t)ask->confirm_s * TDM_NS_PER_S;
}

static void drain(tdm_change_t *c, const tdm_change_ask_t *ask) {
    c->is_drained = ask->kind == TDM_CHANGE_DRAIN;
    (void)snprintf(c->drained_by, sizeof c->drained_by, "%s", ask->actor.name);
    (void)snprintf(c->drained_why, sizeof c->drained_why, "%s", ask->why);
}

const tdm_config_t *tdm_change_done(tdm_change_t *c, const tdm_change_ask_t *ask,
                                    tdm_status_t status, const tdm_error_t *err, int64_t now_ns,
                                    int64_t wall_s) {
    (void)pthread_mutex_lock(&c->lock);
    switch (status == TDM_OK ? ask->kind : TDM_CHANGE_NONE) {
    case TDM_CHANGE_RELOAD:
    case TDM_CHANGE_APPLY:
    case TDM_CHANGE_ROLLBACK:
    case TDM_CHANGE_EXPIRE: enter(c, ask, now_ns, wall_s); break;
    case TDM_CHANGE_CONFIRM: c->pending = 0; break;
    case TDM_CHANGE_DRAIN:
    case TDM_CHANGE_UNDRAIN: drain(c, ask); break;
    default: break;
    }
    /* Without a way back in force, the wait goes on for a second more. */
    if (status != TDM_OK && ask->kind == TDM_CHANGE_EXPIRE) c->due_ns = now_ns + TDM_NS_PER_S;
    c->newest.number = ask == &c->ask ? c->asked : 0;
    c->newest.is_refused = status != TDM_OK;
    (void)snprintf(c->newest.said, sizeof c->newest.said, "%s", status == TDM_OK ? "" : err->text);
    if (ask == &c->ask) {
        c->done = c->asked;
        c->answer[c->asked % TDM_ANSWER_KEPT] = c->newest;
        c->ask.kind = TDM_CHANGE_NONE;
    } else if (ask->kind == TDM_CHANGE_RELOAD) {
        c->hup_done = tdm_load_relaxed(&c->hup);
    }
    const tdm_config_t *config = &revision_at(c, c->revision)->config;
    (void)pthread_mutex_unlock(&c->lock);
    return config;
}

int64_t tdm_change_due_ns(tdm_change_t *c) {
    (void)pthread_mutex_lock(&c->lock);
    int64_t due_ns = c->pending ? c->due_ns : TDM_TIME_NEVER;
    (void)pthread_mutex_unlock(&c->lock);
    return due_ns;
}

/* --- telling -------------------------------------------------------------- */

const char *tdm_change_kind_name(tdm_change_kind_t kind) {
    static const char *const name[TDM_CHANGE_CNT] = {"start",    "reload", "apply", "confirm",
                                                     "rollback", "expire", "drain", "undrain"};
    return kind < TDM_CHANGE_CNT ? name[kind] : "?";
}

/* put writes v as snprintf would and lets go of it. */
static size_t put(json_t *v, char *buf, size_t cap) {
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    int n = snprintf(buf, cap, "%s\n", text ? text : "{}");
    free(text);
    return n > 0 ? (size_t)n : 0;
}

static json_t *diff(const tdm_config_t *a, const tdm_config_t *b) {
    tdm_config_change_t change[TDM_CONFIG_KEY_MAX];
    json_t *list = json_array();
    size_t cnt = tdm_config_diff(a, b, change, TDM_COUNT_OF(change));
    for (size_t i = 0; list && i < cnt; i++) {
        json_t *row = json_object();
        (void)json_object_set_new(row, "key", json_string(change[i].key));
        (void)json_object_set_new(row, "from", json_string(change[i].from));
        (void)json_object_set_new(row, "to", json_string(change[i].to));
        (void)json_array_append_new(list, row);
    }
    return list;
}

size_t tdm_change_diff_text(tdm_change_t *c, const tdm_change_ask_t *ask, char *buf, size_t cap) {
    json_t *root = json_object();
    (void)pthread_mutex_lock(&c->lock);
    (void)json_object_set_new(root, "revision", json_integer(c->revision));
    (void)json_object_set_new(root, "changes",
                              diff(&revision_at(c, c->revision)->config, &ask->config));
    (void)pthread_mutex_unlock(&c->lock);
    return put(root, buf, cap);
}

/* answer_locked: of ask `number`, 0: of the newest. */
static json_t *answer_locked(const tdm_change_t *c, uint32_t number) {
    const tdm_change_answer_t *a = number ? &c->answer[number % TDM_ANSWER_KEPT] : &c->newest;
    int is_known = number ? a->number == number : c->done > 0 || a->said[0];
    const char *result = !is_known && number && number <= c->done ? "forgotten"
                         : !is_known                              ? "none"
                         : a->is_refused                          ? "refused"
                                                                  : "ok";
    json_t *root = json_object();
    (void)json_object_set_new(root, "asked", json_integer(c->asked));
    (void)json_object_set_new(root, "done", json_integer(c->done));
    (void)json_object_set_new(root, "revision", json_integer(c->revision));
    (void)json_object_set_new(root, "result", json_string(result));
    (void)json_object_set_new(root, "message", json_string(is_known ? a->said : ""));
    return root;
}

size_t tdm_change_answer_text(tdm_change_t *c, char *buf, size_t cap) {
    (void)pthread_mutex_lock(&c->lock);
    json_t *root = answer_locked(c, 0);
    (void)pthread_mutex_unlock(&c->lock);
    return put(root, buf, cap);
}

static json_t *revisions_locked(tdm_change_t *c) {
    json_t *list = json_array();
    for (uint32_t k = 0; k < TDM_REVISION_KEPT && k <= c->revision; k++) {
        const tdm_revision_t *r = revision_at(c, c->revision - k);
        json_t *row = json_object();
        (void)json_object_set_new(row, "revision", json_integer(r->number));
        (void)json_object_set_new(row, "at_s", json_integer((json_int_t)r->at_s));
        (void)json_object_set_new(row, "what", json_string(tdm_change_kind_name(r->kind)));
        (void)json_object_set_new(row, "by", json_string(r->by));
        (void)json_object_set_new(row, "why", json_string(r->why));
        int has_before = r->number > 0 && k + 1 < TDM_REVISION_KEPT;
        const tdm_config_t *before = has_before ? &revision_at(c, r->number - 1u)->config : NULL;
        (void)json_object_set_new(row, "changes", before ? diff(before, &r->config) : json_array());
        (void)json_array_append_new(list, row);
    }
    return list;
}

size_t tdm_change_state_text(tdm_change_t *c, uint32_t number, int64_t now_ns, char *buf,
                             size_t cap) {
    (void)pthread_mutex_lock(&c->lock);
    json_t *root = answer_locked(c, number), *pending = json_null(), *drained = json_null();
    if (c->pending) {
        double left_s = (double)TDM_MAX(c->due_ns - now_ns, 0) / 1e9;
        pending = json_object();
        (void)json_object_set_new(pending, "revision", json_integer(c->pending));
        (void)json_object_set_new(pending, "back_to", json_integer(c->back));
        (void)json_object_set_new(pending, "left_s", json_real(left_s));
    }
    if (c->is_drained) {
        drained = json_object();
        (void)json_object_set_new(drained, "by", json_string(c->drained_by));
        (void)json_object_set_new(drained, "why", json_string(c->drained_why));
    }
    (void)json_object_set_new(root, "pending", pending);
    (void)json_object_set_new(root, "drained", drained);
    (void)json_object_set_new(root, "revisions", revisions_locked(c));
    (void)pthread_mutex_unlock(&c->lock);
    return put(root, buf, cap);
}
