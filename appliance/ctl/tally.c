/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/tally.h"

#include "appliance/base/clock.h"

#include <math.h>
#include <string.h>

static const double shares[3] = {0.5, 0.99, 0.999};

const char *tdm_outcome_name(tdm_outcome_t outcome) {
    static const char *const name[TDM_OUTCOME_CNT] = {"done",    "refused", "failed", "lost",
                                                      "timeout", "unsent",  "cut"};
    return outcome < TDM_OUTCOME_CNT ? name[outcome] : "unknown";
}

/* --- bins ----------------------------------------------------------------- */

static void put(tdm_tally_bins_t *b, int64_t ns) {
    double us = (double)ns / 1e3;
    double k = us > 1.0 ? ceil(log(us) / log(1.01)) : 0.0;
    b->bin[k < TDM_TALLY_BIN_CNT ? (uint32_t)k : TDM_TALLY_BIN_CNT - 1u]++;
    b->cnt++;
    b->max_ns = TDM_MAX(b->max_ns, ns);
}

int64_t tdm_tally_at(const tdm_tally_bins_t *b, double share) {
    double want = share * (double)b->cnt, seen = 0.0;
    for (uint32_t i = 0; i < TDM_TALLY_BIN_CNT; i++) {
        seen += (double)b->bin[i];
        if (seen >= want && seen > 0.0)
            return TDM_MIN(b->max_ns, (int64_t)(1e3 * pow(1.01, (double)i)));
    }
    return 0;
}

/* --- what comes in ---------------------------------------------------------- */

static const int64_t stall_ns[TDM_TALLY_STALLS] = {200 * TDM_NS_PER_MS, 500 * TDM_NS_PER_MS};

void tdm_tally_gap(tdm_tally_t *t, int64_t gap_ns) {
    put(&t->gap, gap_ns);
    t->over_cnt += gap_ns > t->gap_target_ns;
    t->over_twice_cnt += gap_ns > 2 * t->gap_target_ns;
    for (uint32_t i = 0; i < TDM_TALLY_STALLS; i++) t->stall_cnt[i] += gap_ns > stall_ns[i];
}

void tdm_tally_add_gaps(tdm_tally_t *t, const tdm_tally_t *from) {
    for (uint32_t i = 0; i < TDM_TALLY_BIN_CNT; i++) t->gap.bin[i] += from->gap.bin[i];
    t->gap.cnt += from->gap.cnt;
    t->gap.max_ns = TDM_MAX(t->gap.max_ns, from->gap.max_ns);
    t->over_cnt += from->over_cnt;
    t->over_twice_cnt += from->over_twice_cnt;
    for (uint32_t i = 0; i < TDM_TALLY_STALLS; i++) t->stall_cnt[i] += from->stall_cnt[i];
}

static void count_code(tdm_tally_t *t, const char *name) {
    uint32_t k = 0;
    while (k < t->code_cnt && strcmp(t->code[k].name, name) != 0) k++;
    if (k == TDM_TALLY_CODE_MAX) {
        k--;
        (void)snprintf(t->code[k].name, sizeof t->code[k].name, "others");
    } else if (k == t->code_cnt) {
        t->code_cnt++;
        (void)snprintf(t->code[k].name, sizeof t->code[k].name, "%s", name);
    }
    t->code[k].cnt++;
}

void tdm_tally_end(tdm_tally_t *t, const tdm_seen_t *s) {
    t->row_cnt++;
    t->outcome[s->outcome]++;
    t->token_cnt += s->token_cnt;
    if (s->late_ns >= 0) put(&t->late, s->late_ns);
    if (s->end_ns >= 0) t->end_ns = TDM_MAX(t->end_ns, s->at_ns + s->end_ns);
    if (s->first_ns >= 0) {
        put(&t->ttft, s->first_ns);
        t->ttft_over_cnt += s->first_ns > t->ttft_target_ns;
    } else if (s->outcome == TDM_OUTCOME_TIMEOUT && s->end_ns >= 0) {
        put(&t->ttft, s->end_ns); /* at least: who was given up is no quick one */
        t->ttft_over_cnt += s->end_ns > t->ttft_target_ns;
    }
    if (s->outcome == TDM_OUTCOME_CUT) return; /* nothing is wrong with it */
    if (s->outcome != TDM_OUTCOME_DONE) {
        count_code(t, s->code[0] ? s->code : tdm_outcome_name(s->outcome));
        return;
    }
    t->prompt_cnt += s->prompt_cnt;
    t->cached_cnt += s->cached_cnt;
    t->short_cnt += s->token_cnt < s->output_max;
    put(&t->e2e, s->end_ns);
    if (s->gap_cnt > 0) put(&t->tpot, (s->last_ns - s->first_ns) / s->gap_cnt);
    if (s->first_ns < 0 || s->first_ns > t->ttft_target_ns ||
        (double)s->over_cnt > t->epsilon * (double)s->gap_cnt)
        return;
    t->good_cnt++;
    t->good_token_cnt += s->token_cnt;
}

uint64_t tdm_tally_unanswered(const tdm_tally_t *t) {
    return t->outcome[TDM_OUTCOME_LOST] + t->outcome[TDM_OUTCOME_TIMEOUT] +
           t->outcome[TDM_OUTCOME_FAILED];
}

/* --- what goes out ------------------------------------------------------------ */

static double ms(int64_t ns) {
    return ns < 0 ? -1.0 : (double)ns / 1e6;
}

/* quoted writes a string that came from outside. */
static void quoted(FILE *f, const char *s) {
    fputc('"', f);
    for (; *s; s++)
        if (*s != '"' && *s != '\\' && (unsigned char)*s >= 32 && (unsigned char)*s < 127)
            fputc(*s, f);
    fputc('"', f);
}

void tdm_tally_record(FILE *f, const tdm_seen_t *s) {
    fprintf(f,
            "{\"row\": %u, \"at_ms\": %.3f, \"late_ms\": %.3f, \"prompt\": %u, \"output_max\": %u, "
            "\"prompt_cut\": %u, \"output_cut\": %u, \"outcome\": \"%s\", \"status\": %d, "
            "\"code\": ",
            s->row, ms(s->at_ns), ms(s->late_ns), s->prompt_cnt, s->output_max, s->prompt_cut,
            s->output_cut, tdm_outcome_name(s->outcome), s->status);
    quoted(f, s->code);
    fprintf(f,
            ", \"retry_ms\": %lld, \"ttft_ms\": %.3f, \"last_ms\": %.3f, \"end_ms\": %.3f, "
            "\"tokens\": %u, \"cached\": %u, \"gaps\": %u, \"over\": %u, \"gap_max_ms\": %.3f}\n",
            (long long)s->retry_ms, ms(s->first_ns), ms(s->last_ns), ms(s->end_ns), s->token_cnt,
            s->cached_cnt, s->gap_cnt, s->over_cnt, ms(s->gap_max_ns));
}

static double over(double a, double b) {
    return b > 0.0 ? a / b : 0.0;
}

static double span_s(const tdm_tally_t *t, const tdm_tally_frame_t *frame) {
    if (frame->is_cut) return frame->span_s;
    return fmax(frame->span_s, (double)t->end_ns / 1e9);
}

static void text_row(FILE *f, const char *name, const tdm_tally_bins_t *b, const char *note) {
    fprintf(f, "  %-8s", name);
    for (uint32_t i = 0; i < 3; i++) fprintf(f, " %10.1f", ms(tdm_tally_at(b, shares[i])));
    fprintf(f, " %10.1f  %s\n", ms(b->max_ns), note);
}

/* text_context says what of the list was not asked for. */
static void text_context(FILE *f, const tdm_tally_frame_t *frame) {
    if (frame->context == 0) {
        fprintf(f, "  context told by nobody (--context): no request cut\n");
        return;
    }
    fprintf(f, "  context %u tokens, as %s: ", frame->context,
            frame->context_from == TDM_CONTEXT_OPTION ? "--context says" : "the server says");
    if (frame->cut_cnt)
        fprintf(f, "%u of %u requests cut, by %llu prompt and %llu output tokens\n", frame->cut_cnt,
                frame->list_cnt, (unsigned long long)frame->cut_prompt_cnt,
                (unsigned long long)frame->cut_output_cnt);
    else
        fprintf(f, "no request cut\n");
    if (frame->warm_cut_cnt)
        fprintf(f, "  %u of the decodes that ran before were cut too\n", frame->warm_cut_cnt);
}

void tdm_tally_text(FILE *f, const tdm_tally_t *t, const tdm_tally_frame_t *frame) {
    double span = span_s(t, frame);
    fprintf(f, "%s: %llu requests in %.1f s, offered %.3f/s (arrivals ", frame->door,
            (unsigned long long)t->row_cnt, span, frame->offered);
    if (frame->is_drawn)
        fprintf(f, "drawn)\n");
    else
        fprintf(f, "stretched by %.3f)\n", frame->factor);
    text_context(f, frame);
    fprintf(f, "  %-8s %10s %10s %10s %10s  ms\n", "", "p50", "p99", "p99.9", "max");
    text_row(f, "TTFT", &t->ttft, "from the scheduled arrival");
    text_row(f, "TBT", &t->gap, "all gaps between tokens");
    text_row(f, "TPOT", &t->tpot, "mean gap of a request that came whole");
    text_row(f, "e2e", &t->e2e, "of requests that came whole");
    text_row(f, "sent", &t->late, "after the scheduled arrival");
    fprintf(f, "  gaps over %.0f ms: %.3f %% of %llu, over twice that: %.3f %%\n",
            ms(t->gap_target_ns), 100.0 * over((double)t->over_cnt, (double)t->gap.cnt),
            (unsigned long long)t->gap.cnt,
            100.0 * over((double)t->over_twice_cnt, (double)t->gap.cnt));
    fprintf(f, "  stalls over 200 ms: %.3f %% of them, over 500 ms: %.3f %%\n",
            100.0 * over((double)t->stall_cnt[0], (double)t->gap.cnt),
            100.0 * over((double)t->stall_cnt[1], (double)t->gap.cnt));
    if (t->short_cnt)
        fprintf(f, "  %llu that came whole had fewer tokens than were asked for\n",
                (unsigned long long)t->short_cnt);
    if (t->ttft.cnt < t->row_cnt)
        fprintf(f, "  TTFT is of %llu requests: of %llu nothing was heard\n",
                (unsigned long long)t->ttft.cnt, (unsigned long long)(t->row_cnt - t->ttft.cnt));
    if (frame->warm_cnt)
        fprintf(f, "  %u decodes ran before the first arrival; their gaps count\n",
                frame->warm_cnt);
    if (frame->is_cut)
        fprintf(f, "  waiting for a first token: %.1f in the first quarter, %.1f in the last\n",
                frame->waiting[0], frame->waiting[1]);
    fprintf(f, "  goodput %.3f requests/s, %.1f tokens/s; all that came %.1f tokens/s\n",
            over((double)t->good_cnt, span), over((double)t->good_token_cnt, span),
            over((double)t->token_cnt, span));
    if (t->cached_cnt)
        fprintf(f, "  prompt tokens from the prefix cache: %.1f %%\n",
                100.0 * over((double)t->cached_cnt, (double)t->prompt_cnt));
    for (uint32_t i = 0; i < TDM_OUTCOME_CNT; i++)
        if (t->outcome[i])
            fprintf(f, "  %s %llu", tdm_outcome_name(i), (unsigned long long)t->outcome[i]);
    for (uint32_t i = 0; i < t->code_cnt; i++)
        fprintf(f, "%s%s %llu", i ? ", " : "\n    ", t->code[i].name,
                (unsigned long long)t->code[i].cnt);
    fprintf(f, "\n");
}

static void json_row(FILE *f, const char *name, const tdm_tally_bins_t *b) {
    fprintf(f, "\"%s_ms\": {\"p50\": %.3f, \"p90\": %.3f, \"p99\": %.3f, \"p999\": %.3f, ", name,
            ms(tdm_tally_at(b, 0.5)), ms(tdm_tally_at(b, 0.9)), ms(tdm_tally_at(b, 0.99)),
            ms(tdm_tally_at(b, 0.999)));
    fprintf(f, "\"max\": %.3f, \"count\": %llu}, ", ms(b->max_ns), (unsigned long long)b->cnt);
}

static void json_context(FILE *f, const tdm_tally_frame_t *frame) {
    static const char *const from[] = {[TDM_CONTEXT_UNKNOWN] = "null",
                                       [TDM_CONTEXT_SERVER] = "\"server\"",
                                       [TDM_CONTEXT_OPTION] = "\"option\""};
    fprintf(f, ", \"listed\": %u, \"context\": ", frame->list_cnt);
    if (frame->context)
        fprintf(f, "%u", frame->context);
    else
        fprintf(f, "null");
    fprintf(f,
            ", \"context_from\": %s, \"requests_cut\": %u, \"prompt_tokens_cut\": %llu, "
            "\"output_tokens_cut\": %llu, \"warm_cut\": %u",
            from[frame->context_from], frame->cut_cnt, (unsigned long long)frame->cut_prompt_cnt,
            (unsigned long long)frame->cut_output_cnt, frame->warm_cut_cnt);
}

void tdm_tally_json(FILE *f, const tdm_tally_t *t, const tdm_tally_frame_t *frame) {
    double span = span_s(t, frame);
    fprintf(f, "{\"door\": ");
    quoted(f, frame->door);
    json_context(f, frame);
    fprintf(f,
            ", \"requests\": %llu, \"seconds\": %.3f, \"offered_per_s\": %.6f, "
            "\"arrival_factor\": %.6f, \"arrivals\": \"%s\", \"short\": %llu, \"warm\": %u, "
            "\"waiting_first\": %.3f, \"waiting_last\": %.3f, ",
            (unsigned long long)t->row_cnt, span, frame->offered, frame->factor,
            frame->is_drawn ? "drawn" : "listed", (unsigned long long)t->short_cnt, frame->warm_cnt,
            frame->waiting[0], frame->waiting[1]);
    json_row(f, "ttft", &t->ttft);
    json_row(f, "tbt", &t->gap);
    json_row(f, "tpot", &t->tpot);
    json_row(f, "e2e", &t->e2e);
    json_row(f, "late", &t->late);
    fprintf(f,
            "\"gap_target_ms\": %.3f, \"share_over\": %.6f, \"share_over_twice\": %.6f, "
            "\"stall200_share\": %.6f, \"stall500_share\": %.6f, "
            "\"ttft_target_ms\": %.3f, \"ttft_over\": %llu, \"good\": %llu, "
            "\"goodput_per_s\": %.6f, \"good_tokens_per_s\": %.3f, \"tokens\": %llu, "
            "\"tokens_per_s\": %.3f, \"prompt_tokens\": %llu, \"cached_tokens\": %llu, ",
            ms(t->gap_target_ns), over((double)t->over_cnt, (double)t->gap.cnt),
            over((double)t->over_twice_cnt, (double)t->gap.cnt),
            over((double)t->stall_cnt[0], (double)t->gap.cnt),
            over((double)t->stall_cnt[1], (double)t->gap.cnt), ms(t->ttft_target_ns),
            (unsigned long long)t->ttft_over_cnt, (unsigned long long)t->good_cnt,
            over((double)t->good_cnt, span), over((double)t->good_token_cnt, span),
            (unsigned long long)t->token_cnt, over((double)t->token_cnt, span),
            (unsigned long long)t->prompt_cnt, (unsigned long long)t->cached_cnt);
    for (uint32_t i = 0; i < TDM_OUTCOME_CNT; i++)
        fprintf(f, "\"%s\": %llu, ", tdm_outcome_name(i), (unsigned long long)t->outcome[i]);
    fprintf(f, "\"reasons\": {");
    for (uint32_t i = 0; i < t->code_cnt; i++) {
        if (i) fprintf(f, ", ");
        quoted(f, t->code[i].name);
        fprintf(f, ": %llu", (unsigned long long)t->code[i].cnt);
    }
    fprintf(f, "}}\n");
}
