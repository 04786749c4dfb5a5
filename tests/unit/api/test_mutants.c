/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever a body holds, it is answered exactly once, nothing
   crashes and nothing stays behind.
   Method: good bodies, mutated a few times at random places: bits, bytes,
   cuts, repeats, words of JSON, pieces of other bodies.  What is accepted
   is served by a scheduler that draws its words, its tokens, and the
   client's leaving too.  Seeded; the seed is printed on failure. */
#include "tests/unit/api/rig.h"

#include <jansson.h>

#define BODY_MAX 4096
#define RUNS     6000

static const char *const path[] = {"/v1/completions", "/v1/chat/completions", "/tokenize",
                                   "/detokenize"};

static const char *const good[] = {
    "{\"model\":\"tiny\",\"prompt\":\"hello\",\"max_tokens\":8,\"stream\":true,\"stop\":[\"a\","
    "\"bc\"],\"temperature\":0.5,\"stream_options\":{\"include_usage\":true,"
    "\"continuous_usage_stats\":true}}",
    "{\"prompt\":[1,2,3],\"max_tokens\":3,\"min_tokens\":1,\"stop_token_ids\":[7],\"ignore_eos\":"
    "true,\"return_token_ids\":true,\"seed\":9,\"top_k\":4,\"top_p\":0.9}",
    "{\"messages\":[{\"role\":\"system\",\"content\":\"be \\u00e9\"},{\"role\":\"user\","
    "\"content\":[{\"type\":\"text\",\"text\":\"hi\"},{\"type\":\"text\",\"text\":\"\xe2\x82\xac\""
    "}]}],\"max_completion_tokens\":5,\"n\":1,\"logprobs\":false,\"tools\":[],\"user\":\"u\"}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream\":true,\"stop\":\"x\","
    "\"include_stop_str_in_output\":true,\"presence_penalty\":-1,\"metadata\":{\"a\":{\"b\":[]}}}",
    "{\"tokens\":[104,105,256,300]}",
};

static const char *const word[] = {"null",
                                   "true",
                                   "false",
                                   "0",
                                   "-1",
                                   "1e999",
                                   "99999999999999999999",
                                   "1.5",
                                   "\"\"",
                                   "[]",
                                   "{}",
                                   "[[[[",
                                   "{\"a\":",
                                   "\"\\ud800\"",
                                   "\"\\u0000\"",
                                   "\xff",
                                   "\xc3",
                                   "\\",
                                   "\"",
                                   ",",
                                   ":",
                                   "}",
                                   "]",
                                   "\"prompt\":",
                                   "\"messages\":",
                                   "\"stream\":true",
                                   "\"n\":2",
                                   "\"model\":\"x\"",
                                   "NaN"};

typedef struct body {
    char text[BODY_MAX];
    uint32_t sz;
} body_t;

static void splice(body_t *b, uint32_t at, uint32_t cut, const char *in, uint32_t in_sz) {
    if (cut > b->sz - at) cut = b->sz - at;
    if (b->sz - cut + in_sz > BODY_MAX) return;
    memmove(b->text + at + in_sz, b->text + at + cut, b->sz - at - cut);
    memcpy(b->text + at, in, in_sz);
    b->sz = b->sz - cut + in_sz;
}

static void mutate(tdm_rng_t *rng, body_t *b) {
    uint32_t at = b->sz ? tdm_rng_below(rng, b->sz) : 0;
    char copy[64];
    uint32_t copy_sz;
    const char *w;
    switch (tdm_rng_below(rng, 8)) {
    case 0:
        if (b->sz) b->text[at] = (char)(b->text[at] ^ (1 << tdm_rng_below(rng, 8)));
        break;
    case 1:
        if (b->sz) b->text[at] = (char)tdm_rng_below(rng, 256);
        break;
    case 2: splice(b, at, 1 + tdm_rng_below(rng, 8), "", 0); break;
    case 3:
        copy_sz = TDM_MIN(1 + tdm_rng_below(rng, 40), b->sz - at);
        memcpy(copy, b->text + at, copy_sz);
        splice(b, at, 0, copy, copy_sz);
        break;
    case 4:
    case 5:
        w = word[tdm_rng_below(rng, TDM_COUNT_OF(word))];
        splice(b, at, tdm_rng_below(rng, 6), w, (uint32_t)strlen(w));
        break;
    case 6:
        w = good[tdm_rng_below(rng, TDM_COUNT_OF(good))];
        splice(b, at, 0, w, (uint32_t)strlen(w) / 2);
        break;
    default: b->sz = at; break;
    }
}

/* serve plays a random life for an accepted request. */
static void serve(rig_t *r, tdm_rng_t *rng, const rig_exchange_t *e, const tdm_request_t *q) {
    assert_true(q->prompt_cnt >= 1 && q->output_max >= 1);
    assert_true(q->prompt_cnt + q->output_max <= r->config.context_max);
    for (uint32_t i = 0; i < q->prompt_cnt; i++)
        assert_true(q->prompt[i] >= 0 && q->prompt[i] < 512);
    if (tdm_rng_below(rng, 8) == 0) {
        rig_refuse(r, q, TDM_REFUSE_kv_full, 0);
        return;
    }
    rig_accept(r, q);
    uint32_t cnt = tdm_rng_below(rng, TDM_MIN(q->output_max, 40u) + 1);
    uint32_t leave = tdm_rng_below(rng, 4) == 0 ? tdm_rng_below(rng, cnt + 1) : UINT32_MAX;
    for (uint32_t i = 0; i < cnt; i++) {
        if (i == leave) rig_hang_up(r, e);
        rig_token(r, q, (int32_t)tdm_rng_below(rng, 512), i);
        if (tdm_rng_below(rng, 4) == 0) rig_poll(r);
    }
    rig_end(r, q, (tdm_finish_t)(1 + tdm_rng_below(rng, 4)), cnt);
}

/* check_text: a whole JSON body, or events that end in [DONE]. */
static int is_well_formed(const rig_exchange_t *e) {
    if (!(e->flags & TDM_EGRESS_HEAD) || (e->flags & TDM_EGRESS_ABORT)) return 1;
    if (e->x.head.content_type == TDM_CONTENT_EVENT_STREAM) {
        const char *at = e->text;
        while (strncmp(at, "data: [DONE]\n\n", 14) != 0) {
            const char *end = strstr(at, "\n\n");
            if (!end || strncmp(at, "data: ", 6) != 0) return 0;
            json_t *v = json_loadb(at + 6, (size_t)(end - at) - 6, JSON_ALLOW_NUL, NULL);
            if (!v) return 0;
            json_decref(v);
            at = end + 2;
        }
        return at[14] == 0;
    }
    json_t *v = json_loadb(e->text, e->text_sz, JSON_ALLOW_NUL, NULL);
    int is_good = v != NULL && json_is_object(v);
    json_decref(v);
    return is_good;
}

static void mutated_bodies_are_answered_once(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    uint32_t accepted_cnt = 0, refused_cnt = 0;
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        tdm_rng_t rng = {.state = seed};
        body_t b;
        const char *base = good[tdm_rng_below(&rng, TDM_COUNT_OF(good))];
        b.sz = (uint32_t)strlen(base);
        memcpy(b.text, base, b.sz);
        for (uint32_t n = tdm_rng_below(&rng, 5); n > 0; n--) mutate(&rng, &b);
        rig_exchange_t *e = rig_exchange_fresh(&r, tdm_rng_below(&rng, RIG_DOOR_CNT));
        int is_chat = strstr(base, "\"messages\"") != NULL,
            is_det = strstr(base, "\"tokens\"") != NULL;
        strcpy(e->x.path,
               tdm_rng_below(&rng, 4) ? path[is_det ? 3 : is_chat] : path[tdm_rng_below(&rng, 4)]);
        rig_body(e, b.text, b.sz);
        rig_push(&r, e);
        rig_poll(&r);
        const tdm_request_t *q = rig_submit(&r);
        if (q) serve(&r, &rng, e, q);
        rig_settle(&r);
        tdm_control_t c;
        while (rig_control(&r, &c)) continue;
        accepted_cnt += q != NULL;
        refused_cnt += !q && e->x.head.status >= 400;
        if (e->end_cnt != 1 || tdm_api_tile_open_cnt(r.tile) != 0 || !is_well_formed(e))
            fail_msg("seed %llu: %u ends, %u open, status %u, \"%s\"", (unsigned long long)seed,
                     e->end_cnt, tdm_api_tile_open_cnt(r.tile), e->x.head.status, e->text);
    }
    /* the mutations neither spoil everything nor nothing */
    assert_true(accepted_cnt > RUNS / 10);
    assert_true(refused_cnt > RUNS / 10);
    const tdm_api_stats_t *s = tdm_api_tile_stats(r.tile);
    assert_int_equal(s->exchange_cnt, RUNS);
    assert_int_equal(s->exchange_end_cnt, RUNS);
    assert_int_equal(rig_count(&r, TDM_METRIC_api_prompt_bytes, 0), 0);
    assert_int_equal(r.vitals.pending_cnt, 0);
    rig_stop(&r);
}

/* The same with many at once, out of step, and readers that stall. */
static void a_crowd_is_answered_once_each(void **state) {
    (void)state;
    enum { CROWD = 40, TURNS = 4000 };
    for (uint64_t seed = 1; seed <= 6; seed++) {
        rig_t r;
        rig_default(&r);
        r.config.request_max = 16;
        r.egress_depth = 4;
        rig_start(&r);
        tdm_rng_t rng = {.state = seed};
        rig_exchange_t *open[CROWD] = {0};
        struct {
            const tdm_request_t *q;
            uint32_t sent;
        } live[16] = {{0}};
        for (uint32_t turn = 0; turn < TURNS; turn++) {
            uint32_t i = tdm_rng_below(&rng, CROWD);
            if (open[i] && open[i]->end_cnt) open[i] = NULL;
            if (!open[i] && turn < TURNS - 500) {
                rig_exchange_t *e = rig_exchange_fresh(&r, tdm_rng_below(&rng, RIG_DOOR_CNT));
                const char *base = good[tdm_rng_below(&rng, TDM_COUNT_OF(good))];
                strcpy(e->x.path, path[strstr(base, "\"messages\"") ? 1 : 0]);
                rig_body(e, base, strlen(base));
                e->is_stuck = tdm_rng_below(&rng, 4) == 0;
                rig_push(&r, e);
                open[i] = e;
            } else if (open[i] && tdm_rng_below(&rng, 20) == 0) {
                rig_hang_up(&r, open[i]);
            } else if (open[i]) {
                open[i]->is_stuck = turn < TURNS - 500 && tdm_rng_below(&rng, 4) == 0;
            }
            const tdm_request_t *q = rig_submit(&r);
            if (q) {
                assert_null(live[q->handle.slot].q); /* the slot was given back before */
                live[q->handle.slot].q = q;
                live[q->handle.slot].sent = 0;
                rig_accept(&r, q);
            }
            uint32_t k = tdm_rng_below(&rng, 16);
            if (live[k].q && live[k].sent < TDM_MIN(live[k].q->output_max, 60u)) {
                rig_token(&r, live[k].q, (int32_t)tdm_rng_below(&rng, 512), live[k].sent++);
            } else if (live[k].q) {
                rig_end(&r, live[k].q, TDM_FINISH_LENGTH, live[k].sent);
                live[k].q = NULL;
            }
            tdm_control_t c;
            while (rig_control(&r, &c)) {
                if (c.kind != TDM_CONTROL_CANCEL || !live[c.handle.slot].q) continue;
                if (live[c.handle.slot].q->handle.generation != c.handle.generation) continue;
                rig_end(&r, live[c.handle.slot].q, TDM_FINISH_CANCELLED, live[c.handle.slot].sent);
                live[c.handle.slot].q = NULL;
            }
            rig_poll(&r);
        }
        for (uint32_t d = 0; d < RIG_DOOR_CNT; d++)
            for (uint32_t i = 0; i < RIG_SLOT_CNT; i++) r.ex[d][i].is_stuck = 0;
        for (uint32_t k = 0; k < 16; k++)
            if (live[k].q) rig_end(&r, live[k].q, TDM_FINISH_STOP, live[k].sent);
        rig_settle(&r);
        const tdm_api_stats_t *s = tdm_api_tile_stats(r.tile);
        if (s->exchange_cnt != s->exchange_end_cnt || tdm_api_tile_open_cnt(r.tile) != 0 ||
            rig_count(&r, TDM_METRIC_api_prompt_bytes, 0) != 0 || r.vitals.pending_cnt != 0)
            fail_msg("seed %llu: %llu arrived, %llu ended, %u open", (unsigned long long)seed,
                     (unsigned long long)s->exchange_cnt, (unsigned long long)s->exchange_end_cnt,
                     tdm_api_tile_open_cnt(r.tile));
        assert_true(s->exchange_cnt > 300);
        rig_stop(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutated_bodies_are_answered_once),
        cmocka_unit_test(a_crowd_is_answered_once_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
