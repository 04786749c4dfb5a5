/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a change is whole or refused with its reason, one that is not
   confirmed goes back by itself, and every revision can be told and had
   again.
   Method: the struct driven as the management thread would, with a clock
   of our own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "appliance/base/clock.h"
#include "appliance/control/audit.h"
#include "appliance/control/change.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static tdm_change_t change;
static tdm_change_ask_t ask;
static const tdm_config_t *in_force;
static tdm_config_t start, file;
static tdm_error_t err;
static int64_t now_ns;
static char text[65536];

static tdm_status_t read_file(void *ctx, tdm_config_t *config, tdm_error_t *e) {
    (void)ctx;
    (void)e;
    *config = file;
    return TDM_OK;
}

static int setup(void **state) {
    (void)state;
    memset(&change, 0, sizeof change);
    memset(&ask, 0, sizeof ask);
    tdm_config_default(&start);
    file = start;
    now_ns = 1000;
    tdm_change_init(&change, read_file, NULL, &start, 0);
    in_force = &start;
    return 0;
}

/* turn does what the management thread does; the status of the ask. */
static tdm_status_t turn(void) {
    const tdm_config_t *next;
    err = (tdm_error_t){0};
    const tdm_change_ask_t *a = tdm_change_take(&change, now_ns);
    if (!a) return TDM_ERR_EMPTY;
    tdm_status_t st = tdm_change_next(&change, a, &next, &err);
    in_force = tdm_change_done(&change, a, st, &err, now_ns, 7);
    return st;
}

static tdm_status_t parse(const char *candidate) {
    return tdm_change_parse(&change, candidate, strlen(candidate), &ask, &err);
}

static tdm_status_t post(tdm_change_kind_t kind) {
    uint32_t number = 0;
    ask.kind = kind;
    (void)snprintf(ask.actor.name, sizeof ask.actor.name, "uid 5");
    assert_int_equal(tdm_change_post(&change, &ask, &number, &err), TDM_OK);
    return turn();
}

static tdm_status_t apply(const char *candidate, uint32_t confirm_s) {
    assert_int_equal(parse(candidate), TDM_OK);
    ask.confirm_s = confirm_s;
    return post(TDM_CHANGE_APPLY);
}

static json_t *state_of(void) {
    size_t sz = tdm_change_state_text(&change, 0, now_ns, text, sizeof text);
    assert_true(sz < sizeof text);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    return root;
}

/* The executor's memory is for what it was started with: a plan of more would
   end it again and again. */
static void no_more_prefill_tokens_than_at_start(void **state) {
    (void)state;
    const uint64_t most = start.sched_prefill_tokens;
    assert_int_equal(apply("{\"sched\": {\"prefill_tokens\": 64}}", 0), TDM_OK);
    assert_int_equal(in_force->sched_prefill_tokens, 64);
    assert_int_equal(apply("{\"sched\": {\"prefill_tokens\": 512}}", 0), TDM_OK);
    assert_int_equal(in_force->sched_prefill_tokens, most);
    assert_int_equal(parse("{\"sched\": {\"prefill_tokens\": 513}}"), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "started for 512"));
    file = *in_force;
    file.sched_prefill_tokens = most + 1;
    assert_int_equal(post(TDM_CHANGE_RELOAD), TDM_ERR_INVAL);
    assert_int_equal(in_force->sched_prefill_tokens, most);
}

static void a_candidate_is_applied(void **state) {
    (void)state;
    assert_int_equal(turn(), TDM_ERR_EMPTY);
    assert_int_equal(apply("{\"sched\": {\"gap_ms\": 123}}", 0), TDM_OK);
    assert_int_equal(in_force->sched_gap_ms, 123);
    assert_int_equal(change.revision, 1);
    assert_int_equal(apply("{\"class1\": {\"weight\": 7}}", 0), TDM_OK);
    assert_int_equal(in_force->sched_gap_ms, 123);
    assert_int_equal(in_force->class1_weight, 7);
    json_t *root = state_of();
    const json_t *newest = json_array_get(json_object_get(root, "revisions"), 0);
    assert_string_equal(json_string_value(json_object_get(newest, "by")), "uid 5");
    const json_t *row = json_array_get(json_object_get(newest, "changes"), 0);
    assert_string_equal(json_string_value(json_object_get(row, "key")), "class1.weight");
    assert_string_equal(json_string_value(json_object_get(row, "from")), "100");
    assert_string_equal(json_string_value(json_object_get(row, "to")), "7");
    json_decref(root);
}

static void bad_candidates_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *text, *word;
    } bad[] = {{"{", "line 1"},
               {"{\"sched\": {\"gap_ms\": 0}}", "sched.gap_ms"},
               {"{\"sched\": {\"gap_ms\": \"x\"}}", "sched.gap_ms"},
               {"{\"sched\": {\"nothing\": 1}}", "sched.nothing"},
               {"{\"sched\": {\"sequences\": 9}}", "sched.sequences: a change needs a restart"},
               {"{\"sched\": {\"ring\": 17}}", "sched.ring"}};
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        assert_int_not_equal(parse(bad[i].text), TDM_OK);
        if (!strstr(err.text, bad[i].word)) fail_msg("%s: %s", bad[i].word, err.text);
    }
    assert_int_equal(change.revision, 0);
}

static void one_that_is_not_confirmed_goes_back(void **state) {
    (void)state;
    assert_int_equal(apply("{\"sched\": {\"gap_ms\": 123}}", 10), TDM_OK);
    assert_int_equal(tdm_change_due_ns(&change), 1000 + 10 * TDM_NS_PER_S);
    json_t *root = state_of();
    assert_true(json_real_value(json_object_get(json_object_get(root, "pending"), "left_s")) ==
                10.0);
    json_decref(root);
    now_ns += 10 * TDM_NS_PER_S - 1;
    assert_int_equal(turn(), TDM_ERR_EMPTY);
    now_ns++;
    assert_int_equal(turn(), TDM_OK);
    assert_int_equal(in_force->sched_gap_ms, start.sched_gap_ms);
    assert_int_equal(change.revision, 2);
    assert_int_equal(tdm_change_due_ns(&change), TDM_TIME_NEVER);
    now_ns += 100 * TDM_NS_PER_S;
    assert_int_equal(turn(), TDM_ERR_EMPTY);
}

static void one_that_is_confirmed_stays(void **state) {
    (void)state;
    assert_int_equal(post(TDM_CHANGE_CONFIRM), TDM_ERR_INVAL);
    assert_int_equal(apply("{\"sched\": {\"gap_ms\": 123}}", 10), TDM_OK);
    assert_int_equal(post(TDM_CHANGE_CONFIRM), TDM_OK);
    now_ns += 100 * TDM_NS_PER_S;
    assert_int_equal(turn(), TDM_ERR_EMPTY);
    assert_int_equal(in_force->sched_gap_ms, 123);
    assert_int_equal(change.revision, 1);
}

/* A confirmation that came before the management thread looked counts. */
static void a_late_look_takes_the_confirmation_first(void **state) {
    (void)state;
    assert_int_equal(apply("{\"sched\": {\"gap_ms\": 123}}", 1), TDM_OK);
    now_ns += 5 * TDM_NS_PER_S;
    assert_int_equal(post(TDM_CHANGE_CONFIRM), TDM_OK);
    assert_int_equal(turn(), TDM_ERR_EMPTY);
    assert_int_equal(in_force->sched_gap_ms, 123);
}

static void while_one_awaits_nothing_else_is_put_on_top(void **state) {
    (void)state;
    assert_int_equal(apply("{\"sched\": {\"gap_ms\": 123}}", 10), TDM_OK);
    assert_int_equal(apply("{\"sched\": {\"gap_ms\": 99}}", 0), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "revision 1 awaits its confirmation"));
    tdm_change_hup(&change);
    assert_int_equal(turn(), TDM_ERR_INVAL);
    assert_int_equal(turn(), TDM_ERR_EMPTY); /* told once */
    assert_int_equal(in_force->sched_gap_ms, 123);
    ask.is_named = 0;
    assert_int_equal(post(TDM_CHANGE_ROLLBACK), TDM_OK);
    assert_int_equal(in_force->sched_gap_ms, start.sched_gap_ms);
    now_ns += 100 * TDM_NS_PER_S;
    assert_int_equal(turn(), TDM_ERR_EMPTY);
}

static void a_candidate_of_an_old_revision_is_refused(void **state) {
    (void)state;
    assert_int_equal(parse("{\"sched\": {\"gap_ms\": 50}}"), TDM_OK);
    tdm_change_ask_t old = ask;
    assert_int_equal(apply("{\"sched\": {\"gap_ms\": 123}}", 0), TDM_OK);
    ask = old;
    assert_int_equal(post(TDM_CHANGE_APPLY), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "made from revision 0, but 1 is in force"));
    assert_int_equal(in_force->sched_gap_ms, 123);
}

static void rollback_goes_to_any_that_is_kept(void **state) {
    (void)state;
    ask.is_named = 0;
    assert_int_equal(post(TDM_CHANGE_ROLLBACK), TDM_ERR_INVAL); /* none before */
    for (uint32_t i = 1; i <= 20; i++) {
        char candidate[64];
        (void)snprintf(candidate, sizeof candidate, "{\"sched\": {\"gap_ms\": %u}}", 100 + i);
        assert_int_equal(apply(candidate, 0), TDM_OK);
    }
    ask.is_named = 1;
    ask.revision = 12;
    assert_int_equal(post(TDM_CHANGE_ROLLBACK), TDM_OK);
    assert_int_equal(in_force->sched_gap_ms, 112);
    assert_int_equal(change.revision, 21);
    ask.revision = 3;
    assert_int_equal(post(TDM_CHANGE_ROLLBACK), TDM_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "not kept"));
    ask.revision = 21;
    assert_int_equal(post(TDM_CHANGE_ROLLBACK), TDM_ERR_INVAL);
    ask.is_named = 0;
    assert_int_equal(post(TDM_CHANGE_ROLLBACK), TDM_OK);
    assert_int_equal(in_force->sched_gap_ms, 120);
    json_t *root = state_of();
    assert_int_equal(json_array_size(json_object_get(root, "revisions")), TDM_REVISION_KEPT);
    json_decref(root);
}

static void a_reload_takes_the_file_or_says_why_not(void **state) {
    (void)state;
    file.sched_gap_ms = 77;
    tdm_change_hup(&change);
    assert_int_equal(turn(), TDM_OK);
    assert_int_equal(in_force->sched_gap_ms, 77);
    file.sched_sequences++;
    assert_int_equal(post(TDM_CHANGE_RELOAD), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "sched.sequences"));
    assert_true(tdm_change_answer_text(&change, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "\"result\":\"refused\""));
    change.read = NULL;
    assert_int_equal(post(TDM_CHANGE_RELOAD), TDM_ERR_INVAL);
}

static void one_at_a_time(void **state) {
    (void)state;
    uint32_t number;
    ask.kind = TDM_CHANGE_DRAIN;
    assert_int_equal(tdm_change_post(&change, &ask, &number, &err), TDM_OK);
    assert_int_equal(tdm_change_post(&change, &ask, &number, &err), TDM_ERR_FULL);
    assert_int_equal(turn(), TDM_OK);
    assert_int_equal(change.is_drained, 1);
    assert_int_equal(post(TDM_CHANGE_UNDRAIN), TDM_OK);
    assert_int_equal(change.is_drained, 0);
    assert_int_equal(change.revision, 0);
}

/* Two askers, the first of whom looks only after the second was answered. */
static void each_asker_reads_his_own_answer(void **state) {
    (void)state;
    assert_int_equal(apply("{\"sched\": {\"gap_ms\": 123}}", 10), TDM_OK);
    assert_int_equal(apply("{\"sched\": {\"gap_ms\": 99}}", 0), TDM_ERR_INVAL);
    static const char *const want[] = {"none", "ok", "refused", "none"};
    for (uint32_t number = 1; number < 4; number++) {
        (void)tdm_change_state_text(&change, number, now_ns, text, sizeof text);
        json_t *root = json_loads(text, 0, NULL);
        assert_string_equal(json_string_value(json_object_get(root, "result")), want[number]);
        const char *message = json_string_value(json_object_get(root, "message"));
        assert_int_equal(strstr(message, "awaits its confirmation") != NULL, number == 2);
        json_decref(root);
    }
    assert_int_equal(post(TDM_CHANGE_CONFIRM), TDM_OK);
    for (uint32_t i = 0; i < TDM_ANSWER_KEPT; i++)
        assert_int_equal(post(i % 2 ? TDM_CHANGE_UNDRAIN : TDM_CHANGE_DRAIN), TDM_OK);
    (void)tdm_change_state_text(&change, 2, now_ns, text, sizeof text);
    assert_non_null(strstr(text, "\"result\":\"forgotten\""));
}

static void texts_hold_their_bounds(void **state) {
    (void)state;
    assert_int_equal(apply("{\"sched\": {\"gap_ms\": 123}}", 0), TDM_OK);
    size_t sz = tdm_change_state_text(&change, 0, now_ns, text, sizeof text);
    for (size_t cap = 1; cap < 60; cap++) {
        char *own = malloc(cap);
        assert_non_null(own);
        assert_int_equal(tdm_change_state_text(&change, 0, now_ns, own, cap), sz);
        assert_true(strlen(own) < cap);
        free(own);
    }
}

/* --- who ------------------------------------------------------------------ */

static void roles_are_by_group(void **state) {
    (void)state;
    tdm_role_groups_t g = {.gid = {TDM_GROUP_NONE, 10, 20, 30}, .own = 99};
    const gid_t many[] = {7, 10, 20}, admin[] = {30}, other[] = {8};
    assert_int_equal(tdm_role_of(&g, 0, other, 1), TDM_ROLE_ADMIN);
    assert_int_equal(tdm_role_of(&g, 99, NULL, 0), TDM_ROLE_ADMIN);
    assert_int_equal(tdm_role_of(&g, 5, many, 3), TDM_ROLE_OPERATOR);
    assert_int_equal(tdm_role_of(&g, 5, many, 2), TDM_ROLE_VIEWER);
    assert_int_equal(tdm_role_of(&g, 5, admin, 1), TDM_ROLE_ADMIN);
    assert_int_equal(tdm_role_of(&g, 5, other, 1), TDM_ROLE_NONE);
    /* A group that is not there is nobody's, also not of gid -1. */
    tdm_role_groups_find(&g, "", "there is no such group", "");
    const gid_t odd[] = {TDM_GROUP_NONE};
    g.own = 99;
    assert_int_equal(tdm_role_of(&g, 5, odd, 1), TDM_ROLE_NONE);
}

/* --- the audit ------------------------------------------------------------ */

static void the_audit_keeps_the_newest_and_writes_all(void **state) {
    (void)state;
    static tdm_audit_t audit;
    char folder[] = "/tmp/tdm-audit-XXXXXX", path[64], hostile[2048];
    assert_non_null(mkdtemp(folder));
    tdm_audit_open(&audit, folder);
    memset(hostile, '"', sizeof hostile);
    hostile[0] = '\n';
    hostile[sizeof hostile - 1] = '\0';
    tdm_actor_t actor = {.role = TDM_ROLE_ADMIN, .name = "uid 5"};
    for (uint32_t i = 0; i < 100; i++) {
        char why[32];
        (void)snprintf(why, sizeof why, "reason %u", i);
        tdm_audit_entry_t e = {.actor = &actor,
                               .what = "apply",
                               .why = i == 99 ? hostile : why,
                               .result = "ok",
                               .detail = i == 99 ? hostile : ""};
        tdm_audit_write(&audit, 1790000000, &e);
    }
    assert_true(tdm_audit_text(&audit, text, sizeof text) < sizeof text);
    json_t *root = json_loads(text, 0, NULL);
    const json_t *list = json_object_get(root, "entries");
    assert_int_equal(json_array_size(list), TDM_AUDIT_KEPT);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "why")),
                        "reason 98");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "at")),
                        "2026-09-21T14:13:20Z");
    assert_int_equal(json_string_value(json_object_get(json_array_get(list, 0), "why"))[0], '?');
    json_decref(root);
    (void)snprintf(path, sizeof path, "%s/audit.jsonl", folder);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    uint32_t lines = 0;
    while (fgets(text, sizeof text, f)) lines++;
    (void)fclose(f);
    assert_int_equal(lines, 100);
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

/* Whoever may do nothing may still ask, as often as it likes. */
static void the_denied_push_out_nobody(void **state) {
    (void)state;
    static tdm_audit_t audit;
    tdm_audit_open(&audit, "");
    tdm_actor_t admin = {.role = TDM_ROLE_ADMIN, .name = "uid 5"}, other = {.name = "over TCP"};
    tdm_audit_entry_t did = {
        .actor = &admin, .what = "apply", .why = "", .result = "ok", .detail = "revision 7"};
    tdm_audit_entry_t denied = {
        .actor = &other, .what = "/api/v1/drain", .why = "", .result = "denied", .detail = "role"};
    const int64_t minute[] = {1790000000, 1790000060, 1790003600, 1790000000};
    for (size_t k = 0; k < TDM_COUNT_OF(minute); k++) { /* the last is a step back */
        audit.cnt = 0;
        tdm_audit_write(&audit, minute[k], &did);
        for (uint32_t i = 0; i < 1000; i++) tdm_audit_write(&audit, minute[k] + i % 20, &denied);
        assert_int_equal(audit.cnt, 1 + TDM_AUDIT_DENIED_MAX);
        assert_true(tdm_audit_text(&audit, text, sizeof text) < sizeof text);
        assert_non_null(strstr(text, "revision 7"));
        char told[64];
        (void)snprintf(told, sizeof told, "%u more were denied before; role",
                       1000 - TDM_AUDIT_DENIED_MAX);
        assert_int_equal(strstr(text, told) != NULL, k > 0);
    }
    /* the others are never counted among them */
    audit.cnt = 0;
    for (uint32_t i = 0; i < 60; i++) tdm_audit_write(&audit, minute[3], &did);
    assert_int_equal(audit.cnt, 60);
}

/* A disk that is full for a while: each line is whole or not there. */
static void a_line_is_whole_or_not_there(void **state) {
    (void)state;
    static tdm_audit_t audit;
    char folder[] = "/tmp/tdm-audit-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    tdm_audit_open(&audit, folder);
    (void)snprintf(path, sizeof path, "%s/audit.jsonl", folder);
    tdm_actor_t actor = {.role = TDM_ROLE_ADMIN, .name = "uid 5"};
    tdm_audit_entry_t e = {.actor = &actor, .what = "w", .why = "", .result = "ok", .detail = ""};
    tdm_audit_write(&audit, 1, &e);
    struct stat first, st;
    assert_int_equal(stat(path, &first), 0);
    struct rlimit was, now;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    now = was;
    (void)signal(SIGXFSZ, SIG_IGN);
    for (off_t room = 0; room <= first.st_size; room++) {
        now.rlim_cur = (rlim_t)(first.st_size + room);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
        tdm_audit_write(&audit, 1, &e);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
        assert_int_equal(stat(path, &st), 0);
        int is_room = room == first.st_size;
        assert_int_equal(st.st_size, is_room ? 2 * first.st_size : first.st_size);
        assert_int_equal(audit.was_said, !is_room);
    }
    assert_int_equal(tdm_audit_lost_cnt(&audit), first.st_size);
    tdm_audit_write(&audit, 1, &e);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    uint32_t lines = 0;
    for (json_t *row; (row = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)); lines++)
        json_decref(row);
    (void)fclose(f);
    assert_int_equal(lines, 3);
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

static void a_long_audit_is_moved_aside_once(void **state) {
    (void)state;
    static tdm_audit_t audit;
    char folder[] = "/tmp/tdm-audit-XXXXXX", path[64], old[72];
    assert_non_null(mkdtemp(folder));
    tdm_audit_open(&audit, folder);
    (void)snprintf(path, sizeof path, "%s/audit.jsonl", folder);
    (void)snprintf(old, sizeof old, "%s.1", path);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    for (uint32_t i = 0; i <= TDM_AUDIT_FILE_MAX; i++) (void)fputc('x', f);
    (void)fclose(f);
    tdm_actor_t actor = {.role = TDM_ROLE_ADMIN, .name = "uid 5"};
    tdm_audit_entry_t e = {.actor = &actor, .what = "w", .why = "", .result = "ok", .detail = ""};
    tdm_audit_write(&audit, 1, &e);
    struct stat st;
    assert_int_equal(stat(old, &st), 0);
    assert_int_equal(st.st_size, TDM_AUDIT_FILE_MAX + 1);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size < 300);
    (void)unlink(path);
    (void)unlink(old);
    assert_int_equal(rmdir(folder), 0);
}

int main(void) {
#define T(f) cmocka_unit_test_setup(f, setup)
    const struct CMUnitTest tests[] = {
        T(a_candidate_is_applied),
        T(no_more_prefill_tokens_than_at_start),
        T(bad_candidates_are_refused_by_name),
        T(one_that_is_not_confirmed_goes_back),
        T(one_that_is_confirmed_stays),
        T(a_late_look_takes_the_confirmation_first),
        T(while_one_awaits_nothing_else_is_put_on_top),
        T(a_candidate_of_an_old_revision_is_refused),
        T(rollback_goes_to_any_that_is_kept),
        T(a_reload_takes_the_file_or_says_why_not),
        T(one_at_a_time),
        T(each_asker_reads_his_own_answer),
        T(texts_hold_their_bounds),
        T(roles_are_by_group),
        T(the_audit_keeps_the_newest_and_writes_all),
        T(the_denied_push_out_nobody),
        T(a_line_is_whole_or_not_there),
        T(a_long_audit_is_moved_aside_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
