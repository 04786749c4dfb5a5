/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/ask.h"

#include "appliance/base/clock.h"
#include "appliance/ctl/leave.h"
#include "appliance/ctl/sse.h"
#include "net/client/client.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_UNREACHABLE = 4 };

#define REPLY_MAX (1u << 20)
#define LOOK_NS   (100 * TDM_NS_PER_MS) /* a signal may come just before a wait */

/* One exchange and what came back. */
typedef struct reply {
    const tdm_ctl_options_t *options;
    tdm_ask_kind_t kind;
    int status;
    int is_stream; /* the 200 of a streaming request */
    int is_failed; /* an error object came inside the stream */
    tdm_client_outcome_t outcome;
    int64_t sent_ns, first_ns, last_ns, gap_max_ns;
    uint64_t token_cnt;
    char *text; /* body that is no stream, NUL-terminated */
    uint64_t text_sz;
    tdm_sse_t sse;
} reply_t;

static void on_head(void *ctx, int64_t id, int status) {
    (void)id;
    ((reply_t *)ctx)->status = status;
}

static void on_body(void *ctx, int64_t id, const uint8_t *bytes, uint64_t sz) {
    (void)id;
    reply_t *r = ctx;
    if (r->is_stream && r->status == 200) {
        if (r->options->is_json) (void)fwrite(bytes, 1, sz, stdout);
        tdm_sse_feed(&r->sse, bytes, sz);
        return;
    }
    if (sz > REPLY_MAX - r->text_sz) sz = REPLY_MAX - r->text_sz;
    memcpy(r->text + r->text_sz, bytes, sz);
    r->text_sz += sz;
    r->text[r->text_sz] = 0;
}

static void on_end(void *ctx, int64_t id, tdm_client_outcome_t outcome, uint64_t error) {
    (void)id;
    (void)error;
    ((reply_t *)ctx)->outcome = outcome;
}

static void print_error(const json_t *error) {
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *code = json_string_value(json_object_get(error, "code"));
    fprintf(stderr, "tandemctl: %s (%s)\n", message ? message : "an error without a message",
            code ? code : "no code");
}

static void print_choice(const reply_t *r, const json_t *choice) {
    if (r->options->is_json) return;
    if (r->options->is_ids) {
        const json_t *ids = json_object_get(choice, "token_ids");
        for (size_t i = 0; i < json_array_size(ids); i++)
            printf("%lld ", (long long)json_integer_value(json_array_get(ids, i)));
    } else {
        const json_t *holder = r->kind == TDM_ASK_CHAT ? json_object_get(choice, "delta") : choice;
        const char *key = r->kind == TDM_ASK_CHAT ? "content" : "text";
        const char *text = json_string_value(json_object_get(holder, key));
        if (text) fputs(text, stdout);
    }
    (void)fflush(stdout);
}

static void on_event(void *ctx, const char *line) {
    reply_t *r = ctx;
    if (strcmp(line, "[DONE]") == 0) return;
    json_t *event = json_loads(line, 0, NULL);
    const json_t *error = json_object_get(event, "error");
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *usage = json_object_get(event, "usage");
    if (json_is_object(error)) {
        print_error(error);
        r->is_failed = 1;
    } else if (choice) {
        int64_t now_ns = tdm_clock_now_ns();
        if (!r->first_ns)
            r->first_ns = now_ns;
        else if (now_ns - r->last_ns > r->gap_max_ns)
            r->gap_max_ns = now_ns - r->last_ns;
        r->last_ns = now_ns;
        print_choice(r, choice);
    }
    if (json_is_object(usage))
        r->token_cnt = (uint64_t)json_integer_value(json_object_get(usage, "completion_tokens"));
    json_decref(event);
}

/* wait_end steps until the one open request has ended, or a signal came. */
static tdm_status_t wait_end(tdm_client_t *c, int64_t until_ns, tdm_error_t *err) {
    while (tdm_client_open_cnt(c) > 0) {
        int64_t left_ns = until_ns - tdm_clock_now_ns();
        if (tdm_leave_by()) return tdm_error_set(err, TDM_ERR_CLOSED, "interrupted");
        if (left_ns <= 0) return tdm_error_set(err, TDM_ERR_TIMEOUT, "no reply in time");
        tdm_status_t st = tdm_client_step(c, TDM_MIN(left_ns, LOOK_NS), err);
        if (st != TDM_OK) return st;
    }
    return TDM_OK;
}

/* exchange runs one request to its end. */
static tdm_status_t exchange(tdm_client_t *c, const char *method, const char *path,
                             const char *body, reply_t *r, tdm_error_t *err) {
    char auth[600];
    tdm_client_header_t header[3] = {{"content-type", "application/json"},
                                     {"user-agent", "tandemctl"}};
    uint32_t header_cnt = 2;
    if (r->options->key) {
        (void)snprintf(auth, sizeof auth, "Bearer %s", r->options->key);
        header[header_cnt++] = (tdm_client_header_t){"authorization", auth};
    }
    tdm_client_request_t req = {.method = method,
                                .path = path,
                                .header = header,
                                .header_cnt = header_cnt,
                                .body = (const uint8_t *)body,
                                .body_sz = body ? strlen(body) : 0};
    tdm_client_sink_t sink = {.ctx = r, .head = on_head, .body = on_body, .end = on_end};
    int64_t id;
    r->sent_ns = tdm_clock_now_ns();
    tdm_status_t st = tdm_client_request(c, &req, &sink, &id, err);
    if (st == TDM_OK)
        st = wait_end(c, r->sent_ns + (int64_t)r->options->seconds * TDM_NS_PER_S, err);
    if (st == TDM_OK && r->outcome != TDM_CLIENT_DONE)
        return tdm_error_set(err, TDM_ERR_CLOSED, "the server cut the reply off");
    return st;
}

static void report_refusal(const reply_t *r) {
    json_t *root = json_loads(r->text, 0, NULL);
    const json_t *error = json_object_get(root, "error");
    if (error)
        print_error(error);
    else
        fprintf(stderr, "tandemctl: the server answered %d\n", r->status);
    json_decref(root);
}

/* model_name asks for the list of models; the caller frees. */
static char *model_name(tdm_client_t *c, reply_t *r, tdm_error_t *err) {
    if (r->options->model) return strdup(r->options->model);
    if (exchange(c, "GET", "/v1/models", NULL, r, err) != TDM_OK) return NULL;
    if (r->status != 200) {
        report_refusal(r);
        return NULL;
    }
    json_t *root = json_loads(r->text, 0, NULL);
    const json_t *first = json_array_get(json_object_get(root, "data"), 0);
    const char *id = json_string_value(json_object_get(first, "id"));
    char *name = id ? strdup(id) : NULL;
    json_decref(root);
    if (!name) (void)tdm_error_set(err, TDM_ERR_CORRUPT, "the server lists no model");
    return name;
}

/* body_text is the request; the caller frees. */
static char *body_text(tdm_ask_kind_t kind, const tdm_ctl_options_t *o, const char *model) {
    json_t *b = json_pack("{s:s, s:b, s:{s:b}}", "model", model, "stream", 1, "stream_options",
                          "include_usage", 1);
    if (kind == TDM_ASK_CHAT)
        (void)json_object_set_new(b, "messages",
                                  json_pack("[{s:s, s:s}]", "role", "user", "content", o->word[0]));
    else
        (void)json_object_set_new(b, "prompt", json_string(o->word[0]));
    if (o->max_tokens) (void)json_object_set_new(b, "max_tokens", json_integer(o->max_tokens));
    if (o->temperature >= 0) (void)json_object_set_new(b, "temperature", json_real(o->temperature));
    if (o->seed >= 0) (void)json_object_set_new(b, "seed", json_integer(o->seed));
    if (o->is_ids) (void)json_object_set_new(b, "return_token_ids", json_true());
    char *text = json_dumps(b, 0);
    json_decref(b);
    return text;
}

static void account(const reply_t *r) {
    if (r->options->is_json || r->options->is_ids || !r->first_ns) return;
    double ttft = (double)(r->first_ns - r->sent_ns) / 1e6;
    double span = (double)(r->last_ns - r->first_ns) / 1e9;
    fprintf(stderr, "\n[%llu tokens; first after %.1f ms; %.1f tokens/s; longest gap %.1f ms]\n",
            (unsigned long long)r->token_cnt, ttft,
            span > 0 && r->token_cnt > 1 ? (double)(r->token_cnt - 1) / span : 0.0,
            (double)r->gap_max_ns / 1e6);
}

/* converse does both exchanges over a live connection. */
static int converse(tdm_client_t *c, reply_t *r, tdm_error_t *err) {
    char *model = model_name(c, r, err);
    if (!model) return EXIT_FAILED;
    char *body = body_text(r->kind, r->options, model);
    free(model);
    r->is_stream = 1;
    r->text_sz = 0;
    const char *path = r->kind == TDM_ASK_CHAT ? "/v1/chat/completions" : "/v1/completions";
    tdm_status_t st = body ? exchange(c, "POST", path, body, r, err)
                           : tdm_error_set(err, TDM_ERR_INVAL, "the prompt is not UTF-8");
    free(body);
    if (st != TDM_OK) return EXIT_FAILED;
    if (r->status != 200) {
        report_refusal(r);
        return EXIT_FAILED;
    }
    if (!r->options->is_json) putchar('\n');
    account(r);
    return r->is_failed ? EXIT_FAILED : 0;
}

int tdm_ask(tdm_ask_kind_t kind, const tdm_ctl_options_t *o) {
    if (o->word_cnt != 1) {
        fprintf(stderr, "tandemctl: give one prompt\n");
        return EXIT_USAGE;
    }
    if (!o->certificate && !o->is_insecure)
        fprintf(stderr, "tandemctl: any certificate is taken; name one with --certificate\n");
    tdm_error_t err = {0};
    tdm_client_t *c = NULL;
    tdm_client_config_t config = {
        .host = o->host,
        .port = o->port,
        .verify =
            o->certificate && !o->is_insecure ? TDM_CLIENT_VERIFY_CA : TDM_CLIENT_VERIFY_INSECURE,
        .ca_file = o->certificate,
    };
    if (tdm_client_connect(&config, &c, &err) != TDM_OK) {
        fprintf(stderr, "tandemctl: %s\n", err.text);
        return EXIT_UNREACHABLE;
    }
    reply_t *r = calloc(1, sizeof *r);
    int rc = EXIT_FAILED;
    if (r) r->text = calloc(1, REPLY_MAX + 1);
    if (r && r->text) {
        r->options = o;
        r->kind = kind;
        tdm_sse_init(&r->sse, on_event, r);
        tdm_leave_heed(); /* the appliance would go on for as long as silence is allowed */
        rc = converse(c, r, &err);
        if (err.status != TDM_OK) fprintf(stderr, "tandemctl: %s\n", err.text);
    }
    tdm_client_close(c);
    if (r) free(r->text);
    free(r);
    tdm_leave();
    return rc;
}
