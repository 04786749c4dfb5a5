/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/operate.h"

#include "appliance/base/clock.h"
#include "appliance/config/config.h"
#include "appliance/ctl/page.h"
#include "appliance/ctl/show.h"
#include "appliance/ctl/table.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long long number(const json_t *root, const char *key) {
    return (long long)json_integer_value(json_object_get(root, key));
}

/* say prints what came of an ask. */
static int say(const json_t *state) {
    const char *result = json_string_value(json_object_get(state, "result"));
    const char *message = json_string_value(json_object_get(state, "message"));
    if (!result || strcmp(result, "ok") != 0) {
        fprintf(stderr, "tandemctl: %s: %s\n", result ? result : "?", message ? message : "?");
        return TDM_EXIT_FAILED;
    }
    const json_t *pending = json_object_get(state, "pending");
    printf("revision %lld is in force", number(state, "revision"));
    if (json_is_object(pending))
        printf("; back to %lld in %.0f s unless confirmed", number(pending, "back_to"),
               json_number_value(json_object_get(pending, "left_s")));
    if (json_is_object(json_object_get(state, "drained")))
        printf("; drained: nothing new is taken");
    printf("\n");
    return 0;
}

/* settle waits until ask number asked has its answer. */
static int settle(const tdm_ctl_options_t *o, long long asked) {
    int64_t give_up_ns = tdm_clock_now_ns() + (int64_t)o->seconds * TDM_NS_PER_S;
    tdm_page_t page;
    tdm_error_t err = {0};
    char path[48];
    (void)snprintf(path, sizeof path, "/api/v1/changes?asked=%lld", asked);
    while (tdm_clock_now_ns() < give_up_ns) {
        if (tdm_page_get(o, path, &page, &err) != TDM_OK) {
            fprintf(stderr, "tandemctl: %s\n", err.text);
            return TDM_EXIT_UNREACHABLE;
        }
        json_t *state = page.text ? json_loads(page.text, 0, NULL) : NULL;
        int is_done = state && number(state, "done") >= asked;
        int rc = is_done ? say(state) : TDM_EXIT_FAILED;
        json_decref(state);
        free(page.text);
        if (is_done) return rc;
        (void)usleep(10000);
    }
    fprintf(stderr, "tandemctl: no answer within %u s\n", o->seconds);
    return TDM_EXIT_FAILED;
}

/* act posts body and waits for what comes of it; lets go of body. */
static int act(const tdm_ctl_options_t *o, const char *path, json_t *body) {
    tdm_page_t page;
    tdm_error_t err = {0};
    if (o->why[0]) (void)json_object_set_new(body, "why", json_string(o->why));
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    tdm_status_t st = tdm_page_post(o, path, text ? text : "{}", &page, &err);
    free(text);
    if (st != TDM_OK) {
        fprintf(stderr, "tandemctl: %s\n", err.text);
        return TDM_EXIT_UNREACHABLE;
    }
    json_t *reply = page.text ? json_loads(page.text, 0, NULL) : NULL;
    long long asked = page.status == 202 ? number(reply, "asked") : 0;
    json_decref(reply);
    if (asked <= 0) tdm_page_say(&page);
    free(page.text);
    return asked > 0 ? settle(o, asked) : TDM_EXIT_FAILED;
}

/* --- candidates ------------------------------------------------------------ */

/* value_of: digits are a number, but where the key is known to take text: a
   version may be all digits. */
static json_t *value_of(const char *text, int is_number) {
    size_t sz = strspn(text, "0123456789");
    errno = 0;
    long long v = strtoll(text, NULL, 10);
    int is_digits = sz > 0 && text[sz] == '\0' && errno == 0;
    return is_digits && is_number != 0 ? json_integer(v) : json_string(text);
}

/* assign adds section.key=value to root; 0: it is none. */
static int assign(json_t *root, const char *text) {
    const char *dot = strchr(text, '.'), *eq = strchr(text, '=');
    char name[64];
    if (!dot || !eq || dot > eq) return 0;
    (void)snprintf(name, sizeof name, "%.*s", (int)TDM_MIN(eq - text, INT_MAX), text);
    json_t *section = json_object_getn(root, text, (size_t)(dot - text));
    if (!section) {
        section = json_object();
        (void)json_object_setn_new(root, text, (size_t)(dot - text), section);
    }
    return json_object_setn_new(section, dot + 1, (size_t)(eq - dot - 1),
                                value_of(eq + 1, tdm_config_is_number(name))) == 0;
}

/* candidate makes the JSON of word[1..); NULL: said what is wrong. */
static json_t *candidate(const tdm_ctl_options_t *o) {
    json_error_t je;
    if (o->word_cnt == 2 && !strchr(o->word[1], '=')) {
        json_t *root = json_load_file(o->word[1], JSON_REJECT_DUPLICATES, &je);
        if (!root && je.line < 0)
            fprintf(stderr, "tandemctl: %s\n", je.text);
        else if (!root)
            fprintf(stderr, "tandemctl: %s line %d: %s\n", o->word[1], je.line, je.text);
        return root;
    }
    json_t *root = json_object();
    for (uint32_t i = 1; i < o->word_cnt; i++) {
        if (assign(root, o->word[i])) continue;
        fprintf(stderr, "tandemctl: \"%s\" is not section.key=value\n", o->word[i]);
        json_decref(root);
        return NULL;
    }
    return root;
}

static int diff(const tdm_ctl_options_t *o, json_t *body) {
    tdm_page_t page;
    tdm_error_t err = {0};
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    tdm_status_t st = tdm_page_post(o, "/api/v1/config/diff", text ? text : "{}", &page, &err);
    free(text);
    if (st != TDM_OK) {
        fprintf(stderr, "tandemctl: %s\n", err.text);
        return TDM_EXIT_UNREACHABLE;
    }
    json_t *root = page.status == 200 ? json_loads(page.text, 0, NULL) : NULL;
    const json_t *list = json_object_get(root, "changes");
    if (!root)
        tdm_page_say(&page);
    else if (o->is_json)
        fputs(page.text, stdout);
    else if (json_array_size(list) == 0)
        printf("nothing would change\n");
    if (root && !o->is_json) printf("against revision %lld\n", number(root, "revision"));
    for (size_t i = 0; !o->is_json && i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        printf("%-28s %s -> %s\n", json_string_value(json_object_get(row, "key")),
               json_string_value(json_object_get(row, "from")),
               json_string_value(json_object_get(row, "to")));
    }
    int rc = root ? 0 : TDM_EXIT_FAILED;
    json_decref(root);
    free(page.text);
    return rc;
}

/* uses gives the options of a verb of config, beside the page's own. */
static tdm_ctl_uses_t uses_of(const char *verb) {
    tdm_ctl_uses_t change = TDM_CTL_USE(WHY) | TDM_CTL_USE(SECONDS);
    if (strcmp(verb, "show") == 0)
        return TDM_CTL_USE(JSON) | TDM_CTL_USE(FORMS) | TDM_CTL_USE(WATCH) | TDM_CTL_USE(SECONDS);
    if (strcmp(verb, "diff") == 0) return TDM_CTL_USE(JSON);
    if (strcmp(verb, "apply") == 0) change |= TDM_CTL_USE(CONFIRM) | TDM_CTL_USE(REVISION);
    return change;
}

int tdm_ctl_config(const tdm_ctl_options_t *o) {
    const char *verb = o->word_cnt ? o->word[0] : "";
    char name[32];
    (void)snprintf(name, sizeof name, "config %.20s", verb);
    if (tdm_ctl_options_fit(o, name, TDM_CTL_USE_PAGE | uses_of(verb))) return TDM_EXIT_HELP;
    if (strcmp(verb, "show") == 0 && o->word_cnt == 1) {
        tdm_ctl_options_t show = *o;
        show.word[0] = "config";
        return tdm_show(&show);
    }
    if (strcmp(verb, "confirm") == 0 && o->word_cnt == 1)
        return act(o, "/api/v1/config/confirm", json_object());
    if (strcmp(verb, "rollback") == 0 && o->word_cnt <= 2) {
        json_t *to = o->word_cnt == 2 ? value_of(o->word[1], 1) : NULL;
        if (to && !json_is_integer(to)) {
            fprintf(stderr, "tandemctl: \"%s\" is no revision; tandemctl show changes lists them\n",
                    o->word[1]);
            json_decref(to);
            return TDM_EXIT_USAGE;
        }
        json_t *body = json_object();
        if (to) (void)json_object_set_new(body, "revision", to);
        return act(o, "/api/v1/config/rollback", body);
    }
    int is_apply = strcmp(verb, "apply") == 0;
    if ((!is_apply && strcmp(verb, "diff") != 0) || o->word_cnt < 2) {
        fprintf(stderr, "tandemctl: config: show, diff, apply, confirm or rollback\n");
        return TDM_EXIT_HELP;
    }
    json_t *keys = candidate(o);
    if (!keys) return TDM_EXIT_USAGE;
    json_t *body = json_object();
    (void)json_object_set_new(body, "config", keys);
    if (!is_apply) return diff(o, body);
    if (o->has_revision)
        (void)json_object_set_new(body, "revision", json_integer((json_int_t)o->revision));
    if (o->confirm_s) (void)json_object_set_new(body, "confirm_s", json_integer(o->confirm_s));
    return act(o, "/api/v1/config/apply", body);
}

int tdm_ctl_reload(const tdm_ctl_options_t *o) {
    return act(o, "/reload", json_object());
}

int tdm_ctl_drain(const tdm_ctl_options_t *o) {
    return act(o, "/api/v1/drain", json_object());
}

int tdm_ctl_undrain(const tdm_ctl_options_t *o) {
    return act(o, "/api/v1/undrain", json_object());
}
