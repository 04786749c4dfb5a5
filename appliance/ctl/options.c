/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/options.h"

#include "appliance/abi/limits.h"
#include "appliance/base/attr.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "  --host H            address of the HTTP/3 door            10.88.0.2\n"
    "  --port N            its UDP port                          4433\n"
    "  --certificate FILE  PEM to trust; without it, or with     \n"
    "  --insecure          any certificate is taken\n"
    "  --socket PATH       management port as a Unix socket      /run/tandem/ctl.sock\n"
    "  --http URL          management port over TCP              http://127.0.0.1:8080\n"
    "  --key K             bearer key\n"
    "  --model M           served model; doctor: its path        the first listed\n"
    "  --max-tokens N      output tokens                         the server's default\n"
    "  --temperature T     0 is greedy                           the server's default\n"
    "  --seed N            of sampling\n"
    "  --ids               print token ids, not text\n"
    "  --json, -o json     print what the server said; doctor: as JSON\n"
    "  -o yaml, -o prom    show: as YAML, or the metrics that say it\n"
    "  --since T           show: counted over the last T, at most 1h   since start\n"
    "  --watch N           show: again every N seconds (also 2s, 1m)\n"
    "  --slowest N         show requests: those that took longest\n"
    "  --confirm T         config apply: back by itself after T (10s, 5m)\n"
    "  --revision N        config apply: only while N is in force\n"
    "  --why TEXT          of a change: the reason, for the audit; also --reason\n"
    "  --out FILE          support bundle                        tandem-support.tar.gz\n"
    "  --seconds N         patience                              60; show: 5\n"
    "  --pid P             wait: give up when this process ends\n"
    "An option that a command has no use for is refused.\n";

static const char *const name_of[TDM_CTL_OPTION_CNT] = {[TDM_CTL_HOST] = "--host",
                                                        [TDM_CTL_PORT] = "--port",
                                                        [TDM_CTL_CERTIFICATE] = "--certificate",
                                                        [TDM_CTL_INSECURE] = "--insecure",
                                                        [TDM_CTL_SOCKET] = "--socket",
                                                        [TDM_CTL_HTTP] = "--http",
                                                        [TDM_CTL_KEY] = "--key",
                                                        [TDM_CTL_MODEL] = "--model",
                                                        [TDM_CTL_MAX_TOKENS] = "--max-tokens",
                                                        [TDM_CTL_TEMPERATURE] = "--temperature",
                                                        [TDM_CTL_SEED] = "--seed",
                                                        [TDM_CTL_IDS] = "--ids",
                                                        [TDM_CTL_JSON] = "--json",
                                                        [TDM_CTL_FORMS] = "-o yaml",
                                                        [TDM_CTL_SINCE] = "--since",
                                                        [TDM_CTL_WATCH] = "--watch",
                                                        [TDM_CTL_SLOWEST] = "--slowest",
                                                        [TDM_CTL_CONFIRM] = "--confirm",
                                                        [TDM_CTL_REVISION] = "--revision",
                                                        [TDM_CTL_WHY] = "--why",
                                                        [TDM_CTL_OUT] = "--out",
                                                        [TDM_CTL_SECONDS] = "--seconds",
                                                        [TDM_CTL_PID] = "--pid"};

const char *tdm_ctl_option_name(tdm_ctl_option_t option) {
    return name_of[option];
}

/* option_of gives the option of a word with dashes, TDM_CTL_OPTION_CNT: none. */
static tdm_ctl_option_t option_of(const char *word) {
    uint32_t i = 0;
    if (strcmp(word, "--reason") == 0) return TDM_CTL_WHY;
    while (i < TDM_CTL_OPTION_CNT && strcmp(word, name_of[i]) != 0) i++;
    return (tdm_ctl_option_t)i;
}

const char *tdm_ctl_options_help(void) {
    return help;
}

#define WANTS_SZ 96 /* what an option takes, in words */

static int whole(const char *s, int64_t min, int64_t max, int64_t *out, char *wants) {
    char *end;
    (void)snprintf(wants, WANTS_SZ, "a whole number from %lld to %lld", (long long)min,
                   (long long)max);
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || end == s || *end || v < min || v > max) return 0;
    *out = v;
    return 1;
}

/* duration reads "10", "10s", "5m" or "1h" into seconds, [1, max]. */
static int duration(const char *s, uint32_t max, uint32_t *out, char *wants) {
    char *end;
    (void)snprintf(wants, WANTS_SZ, "a duration as 10s, 5m or 1h, at most %uh", max / 3600);
    errno = 0;
    long long v = strtoll(s, &end, 10);
    long long unit = *end == 'm' ? 60 : *end == 'h' ? 3600 : 1;
    if (errno || end == s || v < 1 || v > 86400 || (*end && !strchr("smh", *end))) return 0;
    if ((*end && end[1]) || v * unit > max) return 0;
    *out = (uint32_t)(v * unit);
    return 1;
}

/* take stores the value of an option that has one; 0: wrong value, wants says
   what a right one is. */
static int take(tdm_ctl_options_t *o, tdm_ctl_option_t option, const char *value, char *wants) {
    int64_t v = 0;
    int ok = 1;
    char *end;
    switch (option) {
    case TDM_CTL_HOST: o->host = value; break;
    case TDM_CTL_HTTP:
        (void)snprintf(wants, WANTS_SZ, "a URL of at most %u bytes", TDM_CTL_URL_MAX);
        ok = strlen(value) <= TDM_CTL_URL_MAX;
        o->http = value;
        o->is_http_named = 1;
        break;
    case TDM_CTL_SOCKET: o->socket = value; break;
    case TDM_CTL_WHY: o->why = value; break;
    case TDM_CTL_OUT: o->out = value; break;
    case TDM_CTL_CERTIFICATE: o->certificate = value; break;
    case TDM_CTL_KEY:
        (void)snprintf(wants, WANTS_SZ, "a key of at most %u bytes", TDM_CTL_KEY_MAX);
        ok = strlen(value) <= TDM_CTL_KEY_MAX;
        o->key = value;
        break;
    case TDM_CTL_MODEL: o->model = value; break;
    case TDM_CTL_CONFIRM: return duration(value, 86400, &o->confirm_s, wants);
    case TDM_CTL_SINCE: return duration(value, 3600, &o->since_s, wants);
    case TDM_CTL_WATCH: return duration(value, 3600, &o->watch_s, wants);
    case TDM_CTL_SEED: return whole(value, 0, INT64_MAX, &o->seed, wants);
    case TDM_CTL_PID: return whole(value, 1, INT32_MAX, &o->pid, wants);
    case TDM_CTL_REVISION:
        ok = whole(value, 0, INT32_MAX, &v, wants);
        o->revision = (uint32_t)v;
        o->has_revision = 1;
        break;
    case TDM_CTL_SLOWEST:
        ok = whole(value, 1, 100, &v, wants);
        o->slowest = (uint32_t)v;
        break;
    case TDM_CTL_PORT:
        ok = whole(value, 1, 65535, &v, wants);
        o->port = (uint16_t)v;
        break;
    case TDM_CTL_MAX_TOKENS:
        ok = whole(value, 1, INT32_MAX, &v, wants);
        o->max_tokens = (uint32_t)v;
        break;
    case TDM_CTL_SECONDS:
        ok = whole(value, 1, 86400, &v, wants);
        o->seconds = (uint32_t)v;
        break;
    case TDM_CTL_TEMPERATURE:
        (void)snprintf(wants, WANTS_SZ, "a number from 0 on");
        o->temperature = strtod(value, &end);
        ok = end != value && *end == 0 && isfinite(o->temperature) && o->temperature >= 0;
        break;
    case TDM_CTL_INSECURE:
    case TDM_CTL_IDS:
    case TDM_CTL_JSON:
    case TDM_CTL_FORMS:
    case TDM_CTL_OPTION_CNT: break; /* these have none */
    }
    return ok;
}

static int take_form(tdm_ctl_options_t *o, const char *name) {
    static const char *const form[] = {[TDM_FORM_TABLE] = "table",
                                       [TDM_FORM_JSON] = "json",
                                       [TDM_FORM_YAML] = "yaml",
                                       [TDM_FORM_PROM] = "prom"};
    size_t i = 0;
    while (i < TDM_COUNT_OF(form) && strcmp(name, form[i]) != 0) i++;
    if (i == TDM_COUNT_OF(form) && strcmp(name, "text") == 0) i = TDM_FORM_TABLE;
    if (i == TDM_COUNT_OF(form)) return 0;
    o->form = (tdm_ctl_form_t)i;
    o->is_json = o->form == TDM_FORM_JSON;
    return 1;
}

tdm_status_t tdm_ctl_no_use(const char *word, tdm_error_t *err) {
    return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                         word[0] == '-' ? "no use for %s" : "no use for \"%s\"", word);
}

/* step reads argv[*i] and what belongs to it. */
static tdm_status_t step(int argc, char **argv, int *i, tdm_ctl_uses_t uses, tdm_ctl_options_t *out,
                         tdm_error_t *err) {
    const char *a = argv[*i], *value = *i + 1 < argc ? argv[*i + 1] : NULL;
    int is_form = strcmp(a, "-o") == 0;
    if (!is_form && (a[0] != '-' || a[1] != '-' || !a[2])) {
        if (out->word_cnt == TDM_COUNT_OF(out->word))
            return tdm_error_set(err, TDM_ERR_INVAL, "\"%s\" is one word too many", a);
        out->word[out->word_cnt++] = a;
        return TDM_OK;
    }
    tdm_ctl_option_t option = option_of(a);
    if (is_form) {
        if (!take_form(out, value ? value : ""))
            return tdm_error_set(err, TDM_ERR_INVAL, "-o takes table, json, yaml or prom");
        option = out->form > TDM_FORM_JSON ? TDM_CTL_FORMS : TDM_CTL_JSON;
    }
    if (option == TDM_CTL_OPTION_CNT || !(uses >> option & 1u)) return tdm_ctl_no_use(a, err);
    out->given[option] = a;
    if (option == TDM_CTL_JSON && !is_form) (void)take_form(out, "json");
    if (option == TDM_CTL_IDS) out->is_ids = 1;
    if (option == TDM_CTL_INSECURE) out->is_insecure = 1;
    if (!is_form && (option == TDM_CTL_JSON || option == TDM_CTL_IDS || option == TDM_CTL_INSECURE))
        return TDM_OK;
    (*i)++;
    if (is_form) return TDM_OK;
    if (!value) return tdm_error_set(err, TDM_ERR_INVAL, "%s takes a value", a);
    char wants[WANTS_SZ] = "";
    if (take(out, option, value, wants)) return TDM_OK;
    if (option == TDM_CTL_KEY) /* a secret is not said again */
        return tdm_error_set(err, TDM_ERR_INVAL, "%s: takes %s", a, wants);
    return tdm_error_set(err, TDM_ERR_INVAL, "%s: takes %s, not \"%.60s\"", a, wants, value);
}

tdm_status_t tdm_ctl_options_parse(int argc, char **argv, int from, tdm_ctl_uses_t uses,
                                   tdm_ctl_options_t *out, tdm_error_t *err) {
    *out = (tdm_ctl_options_t){.host = "10.88.0.2",
                               .port = 4433,
                               .http = "http://127.0.0.1:8080",
                               .why = "",
                               .out = "tandem-support.tar.gz",
                               .temperature = -1,
                               .seed = -1,
                               .seconds = 60};
    for (int i = from; i < argc; i++) {
        tdm_status_t st = step(argc, argv, &i, uses, out, err);
        if (st != TDM_OK) return st;
    }
    /* what was said now goes before what the environment says */
    if (!out->socket && !out->is_http_named) out->socket = getenv("TANDEM_SOCKET");
    return TDM_OK;
}

int tdm_ctl_options_fit(const tdm_ctl_options_t *o, const char *what, tdm_ctl_uses_t uses) {
    for (uint32_t i = 0; i < TDM_CTL_OPTION_CNT; i++) {
        if (!o->given[i] || uses >> i & 1u) continue;
        fprintf(stderr, "tandemctl: %s: no use for %s\n", what, o->given[i]);
        return TDM_EXIT_HELP;
    }
    return 0;
}

int tdm_ctl_usage(const char *command, const tdm_error_t *err) {
    int has_help = err->status == TDM_ERR_UNSUPPORTED;
    fprintf(stderr, "tandemctl: %s: %s\n", command, err->text);
    return has_help ? TDM_EXIT_HELP : TDM_EXIT_USAGE;
}

tdm_status_t tdm_ctl_number_read(const tdm_ctl_number_t *n, const char *text, tdm_error_t *err) {
    char *end;
    if (!text) return tdm_error_set(err, TDM_ERR_INVAL, "%s takes a value", n->name);
    double v = strtod(text, &end);
    if (end == text || *end || !(v >= n->low && v <= n->high) || (n->is_whole && v != floor(v)))
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "%s takes a %snumber from %.16g to %.16g, not \"%.40s\"", n->name,
                             n->is_whole ? "whole " : "", n->low, n->high, text);
    *n->at = v;
    return TDM_OK;
}

const char *tdm_ctl_count_read(const char *text, uint32_t most, uint32_t *out) {
    uint64_t v = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && v <= most; at++) v = 10u * v + (uint64_t)(*at - '0');
    if (at == text || v > most) return NULL;
    *out = (uint32_t)v;
    return at;
}

const char *tdm_ctl_rate_read(const char *text, double *rate, uint32_t *warm) {
    char *number;
    double v = strtod(text, &number);
    if (number == text || !(v > 0.0 && v < 1e6)) return NULL;
    *rate = v;
    *warm = 0;
    const char *end = *number == '@' ? tdm_ctl_count_read(number + 1, TDM_SEQ_MAX, warm) : number;
    return end && (*end == 0 || *end == ',') ? end : NULL;
}
