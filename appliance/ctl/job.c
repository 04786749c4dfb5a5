/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/job.h"

#include "appliance/base/clock.h"
#include "appliance/base/rng.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- the reply ---------------------------------------------------------- */

static void take_code(tdm_job_t *job, const json_t *error) {
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *type = json_string_value(json_object_get(error, "type"));
    const char *name = code ? code : type ? type : "unnamed";
    (void)snprintf(job->seen.code, sizeof job->seen.code, "%s", name);
}

/* tokens_of counts what a choice brings: its ids where they are given,
   else one for any text. */
static uint32_t tokens_of(const json_t *choice) {
    const json_t *ids = json_object_get(choice, "token_ids");
    if (json_is_array(ids)) return (uint32_t)json_array_size(ids);
    const char *text = json_string_value(json_object_get(choice, "text"));
    if (!text)
        text = json_string_value(json_object_get(json_object_get(choice, "delta"), "content"));
    return text && text[0];
}

static void take_tokens(tdm_job_t *job, uint32_t cnt) {
    tdm_seen_t *s = &job->seen;
    for (uint32_t i = 0; i < cnt; i++) {
        if (job->last_ns == 0) {
            s->first_ns = job->now_ns - job->due_ns;
        } else {
            int64_t gap_ns = job->now_ns - job->last_ns;
            tdm_tally_gap(job->tally, gap_ns);
            s->gap_cnt++;
            s->over_cnt += gap_ns > job->tally->gap_target_ns;
            s->gap_max_ns = TDM_MAX(s->gap_max_ns, gap_ns);
        }
        job->last_ns = job->now_ns;
        s->last_ns = job->now_ns - job->due_ns;
        s->token_cnt++;
    }
}

static void take_usage(tdm_job_t *job, const json_t *usage) {
    const json_t *details = json_object_get(usage, "prompt_tokens_details");
    json_int_t cached = json_integer_value(json_object_get(details, "cached_tokens"));
    if (cached > 0 && cached < UINT32_MAX) job->seen.cached_cnt = (uint32_t)cached;
}

static void on_event(void *ctx, const char *line) {
    tdm_job_t *job = ctx;
    if (strcmp(line, "[DONE]") == 0) {
        job->is_whole = 1;
        return;
    }
    json_t *event = json_loads(line, 0, NULL);
    const json_t *error = json_object_get(event, "error");
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *usage = json_object_get(event, "usage");
    if (json_is_object(error)) {
        job->is_failed = 1;
        take_code(job, error);
    }
    if (choice) take_tokens(job, tokens_of(choice));
    if (json_is_object(usage)) take_usage(job, usage);
    json_decref(event);
}

/* job_row gives a row as it is asked for. */
static tdm_workload_row_t job_row(const tdm_job_form_t *form, const tdm_workload_row_t *listed) {
    tdm_workload_row_t row = *listed;
    if (form->context > 0) tdm_workload_row_fit(&row, form->context);
    return row;
}

tdm_seen_t tdm_job_unseen(const tdm_job_form_t *form, uint32_t row,
                          const tdm_workload_row_t *listed) {
    tdm_workload_row_t sent = job_row(form, listed);
    return (tdm_seen_t){.row = row,
                        .prompt_cnt = sent.prompt_cnt,
                        .output_max = sent.output_cnt,
                        .prompt_cut = listed->prompt_cnt - sent.prompt_cnt,
                        .output_cut = listed->output_cnt - sent.output_cnt,
                        .at_ns = listed->at_ns,
                        .late_ns = -1,
                        .first_ns = -1,
                        .last_ns = -1,
                        .end_ns = -1,
                        .retry_ms = -1};
}

void tdm_job_init(tdm_job_t *job, tdm_tally_t *tally, void (*ended)(tdm_job_t *job), uint32_t row,
                  const tdm_workload_row_t *listed, const tdm_job_form_t *form, int64_t due_ns,
                  int64_t now_ns) {
    job->seen = tdm_job_unseen(form, row, listed);
    job->seen.late_ns = now_ns - due_ns;
    job->tally = tally;
    job->ended = ended;
    job->due_ns = due_ns;
    job->last_ns = 0;
    job->is_open = 1;
    job->is_failed = job->is_whole = 0;
    job->text_sz = 0;
    tdm_sse_init(&job->sse, on_event, job);
}

void tdm_job_head(tdm_job_t *job, int status) {
    job->seen.status = status;
}

void tdm_job_header(tdm_job_t *job, const char *name, const char *value) {
    if (strcasecmp(name, "retry-after") != 0) return;
    double s = strtod(value, NULL);
    if (s >= 0.0 && s < 1e6) job->seen.retry_ms = (int64_t)(s * 1e3);
}

void tdm_job_body(tdm_job_t *job, const uint8_t *bytes, uint64_t sz, int64_t now_ns) {
    job->now_ns = now_ns;
    if (job->seen.status == 200) {
        tdm_sse_feed(&job->sse, bytes, sz);
        return;
    }
    sz = TDM_MIN(sz, (uint64_t)(TDM_JOB_TEXT_MAX - job->text_sz));
    memcpy(job->text + job->text_sz, bytes, sz);
    job->text_sz += (uint32_t)sz;
}

void tdm_job_end(tdm_job_t *job, tdm_outcome_t outcome, int64_t now_ns) {
    tdm_seen_t *s = &job->seen;
    if (!job->is_open) return;
    job->is_open = 0;
    s->end_ns = now_ns - job->due_ns;
    if (outcome == TDM_OUTCOME_DONE && s->status != 200) {
        job->text[job->text_sz] = 0;
        json_t *root = json_loads(job->text, 0, NULL);
        take_code(job, json_object_get(root, "error"));
        json_decref(root);
        outcome = TDM_OUTCOME_REFUSED;
    } else if (outcome == TDM_OUTCOME_DONE && job->is_failed) {
        outcome = TDM_OUTCOME_FAILED;
    } else if (outcome == TDM_OUTCOME_DONE && !job->is_whole) {
        outcome = TDM_OUTCOME_LOST;
    }
    s->outcome = outcome;
    tdm_tally_end(job->tally, s);
    job->ended(job);
}

/* --- the request ---------------------------------------------------------- */

int32_t tdm_job_token(const tdm_job_form_t *form, const tdm_workload_t *list, uint32_t row,
                      uint32_t i) {
    const tdm_workload_row_t *r = &list->row[row];
    uint32_t k = i / form->block_tok;
    uint64_t own = tdm_rng_mix(form->seed), seed = own ^ UINT64_C(0x5eed) << 32 ^ row, at = i;
    if (k < r->block_cnt) {
        seed = own ^ UINT64_C(0xb10c) << 40 ^ list->block[r->block_off + k];
        at = i % form->block_tok;
    }
    return (int32_t)(tdm_rng_at(seed, at) % form->vocab);
}

#define WORDS_MAX 512u /* everything but model and ids */

size_t tdm_job_text_max(const tdm_job_form_t *form, const tdm_workload_row_t *row) {
    return WORDS_MAX + 2u * strlen(form->model) + (size_t)job_row(form, row).prompt_cnt * 8u;
}

size_t tdm_job_text(const tdm_job_form_t *form, const tdm_workload_t *list, uint32_t row, char *buf,
                    size_t sz) {
    const tdm_workload_row_t sent = job_row(form, &list->row[row]), *r = &sent;
    if (sz < tdm_job_text_max(form, r)) return 0;
    char *p = buf + snprintf(buf, sz, "{\"model\":\"%s\",\"prompt\":[", form->model);
    for (uint32_t i = 0; i < r->prompt_cnt; i++)
        p += snprintf(p, 9, i ? ",%d" : "%d", tdm_job_token(form, list, row, i));
    if (r->held_cnt > 0)
        p += snprintf(p, 40, "],\"held_tokens\":%u", r->held_cnt);
    else
        *p++ = ']';
    p += snprintf(p, 256, ",\"max_tokens\":%u,\"temperature\":0,\"stream\":true%s}", r->output_cnt,
                  form->is_plain ? ""
                                 : ",\"ignore_eos\":true,\"return_token_ids\":true,"
                                   "\"stream_options\":{\"include_usage\":true}");
    return (size_t)(p - buf);
}
