/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: conversations come out byte for byte as the template engine of
   transformers writes them, and only the template's own bytes are trusted.
   Method: tests/numerics/golden/chat.json. */
#include "appliance/tokenizer/chat.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#define TEXT_MAX 8192

static json_t *golden;
static tdm_chat_text_t out;
static char text[TEXT_MAX];

static int open_golden(void **state) {
    (void)state;
    json_error_t where;
    golden = json_load_file(TDM_SOURCE_DIR "/tests/numerics/golden/chat.json", 0, &where);
    out.text = text;
    out.text_max = TEXT_MAX;
    return golden ? 0 : -1;
}

static int close_golden(void **state) {
    (void)state;
    json_decref(golden);
    return 0;
}

static uint32_t messages_of(const json_t *c, tdm_chat_message_t *m) {
    const json_t *list = json_object_get(c, "messages"), *v;
    size_t i;
    json_array_foreach(list, i, v) {
        const json_t *role = json_object_get(v, "role"), *content = json_object_get(v, "content");
        int r = tdm_chat_role_from_name(json_string_value(role), json_string_length(role));
        assert_true(r >= 0);
        m[i] = (tdm_chat_message_t){(tdm_chat_role_t)r, json_string_value(content),
                                    json_string_length(content)};
    }
    return (uint32_t)json_array_size(list);
}

static void conversations_match_the_template_engine(void **state) {
    (void)state;
    const json_t *c;
    size_t i;
    uint32_t refused = 0, written = 0;
    json_array_foreach(json_object_get(golden, "cases"), i, c) {
        tdm_chat_message_t m[8];
        uint32_t cnt = messages_of(c, m);
        int kind = tdm_chat_kind_from_name(json_string_value(json_object_get(c, "kind")));
        const json_t *want = json_object_get(c, "text");
        assert_true(kind > TDM_CHAT_NONE);
        tdm_chat_t rc = tdm_chat_render((tdm_chat_kind_t)kind, m, cnt,
                                        json_is_true(json_object_get(c, "due")), &out);
        if (json_is_null(want)) {
            assert_int_equal(rc, TDM_CHAT_ROLE_ORDER);
            refused++;
            continue;
        }
        assert_int_equal(rc, TDM_CHAT_OK);
        if (out.sz != json_string_length(want) ||
            memcmp(text, json_string_value(want), out.sz) != 0)
            fail_msg("case %zu (%s):\n%.*s\nexpected\n%s", i,
                     tdm_chat_kind_name((tdm_chat_kind_t)kind), (int)out.sz, text,
                     json_string_value(want));
        written++;
    }
    assert_true(written >= 150 && refused >= 10);
}

/* Whatever a client writes, no byte of it lies in a trusted span: content
   of '#' alone must be exactly the untrusted bytes. */
static void what_clients_write_is_never_trusted(void **state) {
    (void)state;
    const tdm_chat_message_t m[] = {
        {TDM_CHAT_SYSTEM, "###", 3}, {TDM_CHAT_USER, "#####", 5},     {TDM_CHAT_ASSISTANT, "#", 1},
        {TDM_CHAT_USER, "##", 2},    {TDM_CHAT_ASSISTANT, "####", 4},
    };
    for (int kind = 0; kind < TDM_CHAT_KIND_CNT; kind++) {
        assert_int_equal(tdm_chat_render((tdm_chat_kind_t)kind, m, 5, 1, &out), TDM_CHAT_OK);
        uint32_t content = 0, k = 0;
        for (uint32_t at = 0; at < out.sz; at++) {
            while (k < out.span_cnt && out.span[k].end <= at) k++;
            int is_trusted = k < out.span_cnt && out.span[k].start <= at;
            assert_int_equal(is_trusted, text[at] != '#');
            content += text[at] == '#';
        }
        assert_int_equal(content, 15);
    }
}

static void templates_are_recognised_by_their_source(void **state) {
    (void)state;
    const char *name;
    json_t *source;
    uint32_t n = 0;
    json_object_foreach(json_object_get(golden, "templates"), name, source) {
        tdm_chat_kind_t kind =
            tdm_chat_detect(json_string_value(source), json_string_length(source));
        assert_string_equal(tdm_chat_kind_name(kind), name);
        n++;
    }
    assert_int_equal(n, TDM_CHAT_KIND_CNT - 1);
    assert_int_equal(tdm_chat_detect("{{ messages }}", 14), TDM_CHAT_UNKNOWN);
    assert_string_equal(tdm_chat_kind_name(TDM_CHAT_UNKNOWN), "unknown");
    assert_int_equal(tdm_chat_kind_from_name("unknown"), -1);
    assert_int_equal(tdm_chat_detect("", 0), TDM_CHAT_NONE);
}

static void bounds_are_kept(void **state) {
    (void)state;
    static tdm_chat_message_t many[TDM_CHAT_MESSAGE_MAX + 1];
    tdm_chat_text_t *small = malloc(sizeof *small);
    assert_non_null(small);
    for (uint32_t i = 0; i <= TDM_CHAT_MESSAGE_MAX; i++)
        many[i] = (tdm_chat_message_t){i % 2 ? TDM_CHAT_ASSISTANT : TDM_CHAT_USER, "x", 1};
    assert_int_equal(tdm_chat_render(TDM_CHAT_CHATML, many, 0, 1, &out), TDM_CHAT_EMPTY);
    assert_int_equal(tdm_chat_render(TDM_CHAT_CHATML, many, TDM_CHAT_MESSAGE_MAX + 1, 1, &out),
                     TDM_CHAT_TOO_MANY);
    for (int kind = 0; kind < TDM_CHAT_KIND_CNT; kind++) {
        assert_int_equal(tdm_chat_render((tdm_chat_kind_t)kind, many, 3, 1, &out), TDM_CHAT_OK);
        uint64_t whole = out.sz;
        for (uint64_t max = 0; max < whole; max++) {
            small->text = malloc(max ? max : 1);
            small->text_max = max;
            assert_non_null(small->text);
            assert_int_equal(tdm_chat_render((tdm_chat_kind_t)kind, many, 3, 1, small),
                             TDM_CHAT_TOO_LONG);
            assert_true(small->sz <= max);
            free(small->text);
        }
    }
    small->text_max = 1u << 20;
    small->text = malloc(small->text_max);
    assert_non_null(small->text);
    assert_int_equal(tdm_chat_render(TDM_CHAT_CHATML, many, TDM_CHAT_MESSAGE_MAX, 1, small),
                     TDM_CHAT_OK);
    assert_int_equal(small->span_cnt, TDM_CHAT_MESSAGE_MAX + 1);
    free(small->text);
    free(small);
}

static void names_go_both_ways(void **state) {
    (void)state;
    for (int k = 0; k < TDM_CHAT_KIND_CNT; k++)
        assert_int_equal(tdm_chat_kind_from_name(tdm_chat_kind_name((tdm_chat_kind_t)k)), k);
    assert_int_equal(tdm_chat_kind_from_name("vicuna"), -1);
    assert_int_equal(tdm_chat_role_from_name("developer", 9), TDM_CHAT_SYSTEM);
    assert_int_equal(tdm_chat_role_from_name("tool", 4), -1);
    assert_int_equal(tdm_chat_role_from_name("use", 3), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_match_the_template_engine),
        cmocka_unit_test(what_clients_write_is_never_trusted),
        cmocka_unit_test(templates_are_recognised_by_their_source),
        cmocka_unit_test(bounds_are_kept),
        cmocka_unit_test(names_go_both_ways),
    };
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}
