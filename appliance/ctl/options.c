/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/options.h"

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
    "  --why TEXT          drain, config: the reason, for the audit; also --reason\n"
    "  --out FILE          support bundle                        tandem-support.tar.gz\n"
    "  --seconds N         patience                              60\n"
    "  --pid P             wait: give up when this process ends\n";

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

/* take stores the value of option name; 0: wrong value, wants says what a
   right one is; -1: no such name. */
static int take(tdm_ctl_options_t *o, const char *name, const char *value, char *wants) {
    int64_t v = 0;
    int ok = 1;
    if (strcmp(name, "--host") == 0) {
        o->host = value;
    } else if (strcmp(name, "--http") == 0) {
        o->http = value;
        o->is_http_named = 1;
    } else if (strcmp(name, "--socket") == 0) {
        o->socket = value;
    } else if (strcmp(name, "--why") == 0 || strcmp(name, "--reason") == 0) {
        o->why = value;
    } else if (strcmp(name, "--out") == 0) {
        o->out = value;
    } else if (strcmp(name, "--confirm") == 0) {
        ok = duration(value, 86400, &o->confirm_s, wants);
    } else if (strcmp(name, "--revision") == 0) {
        ok = whole(value, 0, INT32_MAX, &v, wants);
        o->revision = (uint32_t)v;
        o->has_revision = 1;
    } else if (strcmp(name, "--slowest") == 0) {
        ok = whole(value, 1, 100, &v, wants);
        o->slowest = (uint32_t)v;
    } else if (strcmp(name, "--certificate") == 0) {
        o->certificate = value;
    } else if (strcmp(name, "--key") == 0) {
        o->key = value;
    } else if (strcmp(name, "--model") == 0) {
        o->model = value;
    } else if (strcmp(name, "--port") == 0) {
        ok = whole(value, 1, 65535, &v, wants);
        o->port = (uint16_t)v;
    } else if (strcmp(name, "--max-tokens") == 0) {
        ok = whole(value, 1, INT32_MAX, &v, wants);
        o->max_tokens = (uint32_t)v;
    } else if (strcmp(name, "--seed") == 0) {
        ok = whole(value, 0, INT64_MAX, &o->seed, wants);
    } else if (strcmp(name, "--seconds") == 0) {
        ok = whole(value, 1, 86400, &v, wants);
        o->seconds = (uint32_t)v;
    } else if (strcmp(name, "--since") == 0) {
        ok = duration(value, 3600, &o->since_s, wants);
    } else if (strcmp(name, "--watch") == 0) {
        ok = duration(value, 3600, &o->watch_s, wants);
    } else if (strcmp(name, "--pid") == 0) {
        ok = whole(value, 1, INT32_MAX, &o->pid, wants);
    } else if (strcmp(name, "--temperature") == 0) {
        char *end;
        (void)snprintf(wants, WANTS_SZ, "a number from 0 on");
        o->temperature = strtod(value, &end);
        ok = end != value && *end == 0 && isfinite(o->temperature) && o->temperature >= 0;
    } else {
        return -1;
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

tdm_status_t tdm_ctl_options_parse(int argc, char **argv, int from, tdm_ctl_options_t *out,
                                   tdm_error_t *err) {
    *out = (tdm_ctl_options_t){.host = "10.88.0.2",
                               .port = 4433,
                               .http = "http://127.0.0.1:8080",
                               .why = "",
                               .out = "tandem-support.tar.gz",
                               .temperature = -1,
                               .seed = -1,
                               .seconds = 60};
    for (int i = from; i < argc; i++) {
        const char *a = argv[i];
        if (strcmp(a, "-o") == 0) {
            if (!take_form(out, i + 1 < argc ? argv[++i] : ""))
                return tdm_error_set(err, TDM_ERR_INVAL, "-o takes table, json, yaml or prom");
        } else if (strcmp(a, "--json") == 0) {
            (void)take_form(out, "json");
        } else if (strcmp(a, "--ids") == 0) {
            out->is_ids = 1;
        } else if (strcmp(a, "--insecure") == 0) {
            out->is_insecure = 1;
        } else if (a[0] == '-' && a[1] == '-' && a[2]) {
            if (i + 1 == argc) return tdm_error_set(err, TDM_ERR_INVAL, "%s takes a value", a);
            char wants[WANTS_SZ] = "";
            int r = take(out, a, argv[++i], wants);
            if (r < 0) return tdm_error_set(err, TDM_ERR_INVAL, "%s: no such option", a);
            if (r == 0)
                return tdm_error_set(err, TDM_ERR_INVAL, "%s: takes %s, not \"%s\"", a, wants,
                                     argv[i]);
        } else {
            if (out->word_cnt == TDM_COUNT_OF(out->word))
                return tdm_error_set(err, TDM_ERR_INVAL, "\"%s\" is one word too many", a);
            out->word[out->word_cnt++] = a;
        }
    }
    /* what was said now goes before what the environment says */
    if (!out->socket && !out->is_http_named) out->socket = getenv("TANDEM_SOCKET");
    return TDM_OK;
}

int tdm_ctl_number_read(const tdm_ctl_number_t *n, const char *text) {
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !(v >= n->low && v <= n->high)) return 0;
    *n->at = v;
    return 1;
}
