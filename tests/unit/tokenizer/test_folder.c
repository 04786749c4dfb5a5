/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a checkpoint's tokenizer_config.json gives begin and end tokens and
   the chat template, and what in it is wrong is refused by name.
   Method: a folder with a small tokenizer.json and one such file per case. */
#include "appliance/tokenizer/chat.h"
#include "tests/unit/model/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the four above first */
#include <cmocka.h>

static const char words[] =
    "{\"normalizer\":null,"
    "\"added_tokens\":[{\"id\":2,\"content\":\"<|im_end|>\",\"special\":true},"
    "{\"id\":3,\"content\":\"<|end|>\",\"special\":true},"
    "{\"id\":4,\"content\":\"##\",\"special\":false}],"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
    "{\"type\":\"Digits\",\"individual_digits\":true},"
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}]},"
    "\"post_processor\":POST,\"decoder\":{\"type\":\"ByteLevel\"},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"byte_fallback\":false,"
    "\"ignore_merges\":false,\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}";

#define NO_POST "null"
#define ADDS_END                                                                                   \
    "{\"type\":\"TemplateProcessing\",\"single\":["                                                \
    "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"<|end|>\"}}]}"

/* open_with opens a folder with that post-processor and these two files,
   NULL where there is none. */
static tdm_status_t open_with(const char *post, const char *config, const char *jinja,
                              tdm_tokenizer_t **t, tdm_error_t *err) {
    folder_t f;
    char text[2048];
    const char *at = strstr(words, "POST");
    int sz = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - words), words, post, at + 4);
    folder_make(&f);
    folder_put(&f, "tokenizer.json", text, (uint64_t)sz);
    if (config) folder_put(&f, "tokenizer_config.json", config, strlen(config));
    if (jinja) folder_put(&f, "chat_template.jinja", jinja, strlen(jinja));
    tdm_status_t st = tdm_tokenizer_open_folder(f.path, 8, t, err);
    folder_drop(&f);
    return st;
}

typedef struct row {
    const char *post, *config, *jinja;
    int32_t bos, eos;
    tdm_chat_kind_t chat;
} row_t;

static void what_is_there_is_taken(void **state) {
    (void)state;
    static const row_t row[] = {
        {NO_POST, NULL, NULL, -1, -1, TDM_CHAT_NONE},
        {NO_POST, "{}", NULL, -1, -1, TDM_CHAT_NONE},
        {NO_POST, "{\"eos_token\":null,\"chat_template\":null}", NULL, -1, -1, TDM_CHAT_NONE},
        {NO_POST, "{\"eos_token\":\"<|im_end|>\"}", NULL, -1, 2, TDM_CHAT_NONE},
        {NO_POST, "{\"bos_token\":{\"content\":\"<|end|>\"},\"eos_token\":\"<|im_end|>\"}", NULL, 3,
         2, TDM_CHAT_NONE},
        /* the post-processor's own end token stays */
        {ADDS_END, "{\"eos_token\":\"<|im_end|>\"}", NULL, -1, 3, TDM_CHAT_NONE},
        {NO_POST, "{\"chat_template\":\"x <|im_start|> y\"}", NULL, -1, -1, TDM_CHAT_CHATML},
        {NO_POST, "{\"chat_template\":\"{{ m }}\"}", NULL, -1, -1, TDM_CHAT_UNKNOWN},
        {NO_POST,
         "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"<<SYS>>\"},"
         "{\"name\":\"default\",\"template\":\"<|start_header_id|>\"}]}",
         NULL, -1, -1, TDM_CHAT_LLAMA3},
        {NO_POST, "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"<<SYS>>\"}]}", NULL, -1, -1,
         TDM_CHAT_UNKNOWN},
        {NO_POST, NULL, "<<SYS>>", -1, -1, TDM_CHAT_LLAMA2},
        {NO_POST, "{\"chat_template\":\"<|im_start|>\"}", "<<SYS>>", -1, -1, TDM_CHAT_LLAMA2},
        {NO_POST, NULL, "{{ m }}", -1, -1, TDM_CHAT_UNKNOWN},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
        tdm_tokenizer_t *t;
        tdm_error_t err = {0};
        if (open_with(row[i].post, row[i].config, row[i].jinja, &t, &err) != TDM_OK)
            fail_msg("%s", err.text);
        assert_int_equal(tdm_tokenizer_bos(t), row[i].bos);
        assert_int_equal(tdm_tokenizer_eos(t), row[i].eos);
        assert_int_equal(tdm_chat_of(t), row[i].chat);
        tdm_tokenizer_close(t);
    }
}

static void what_is_wrong_is_named(void **state) {
    (void)state;
    static const struct {
        const char *config, *word;
    } row[] = {
        {"[]", "the file"},
        {"{\"eos_token\":", "line"},
        {"{\"eos_token\":\"x\",\"eos_token\":\"x\"}", "line"},
        {"{\"eos_token\":7}", "eos_token is malformed"},
        {"{\"eos_token\":{\"text\":\"<|end|>\"}}", "eos_token is malformed"},
        {"{\"eos_token\":\"</s>\"}", "eos_token '</s>'"},
        {"{\"bos_token\":\"##\"}", "bos_token '##'"},
        {"{\"chat_template\":true}", "chat_template"},
        {"{\"chat_template\":[{\"name\":\"default\"}]}", "chat_template"},
        {"{\"chat_template\":[\"<|im_start|>\"]}", "chat_template"},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
        tdm_tokenizer_t *t;
        tdm_error_t err = {0};
        assert_int_equal(open_with(NO_POST, row[i].config, NULL, &t, &err), TDM_ERR_CORRUPT);
        assert_null(t);
        if (!strstr(err.text, row[i].word)) fail_msg("%s", err.text);
    }
}

static void a_folder_without_a_tokenizer_is_named(void **state) {
    (void)state;
    folder_t f;
    tdm_tokenizer_t *t;
    tdm_error_t err = {0};
    folder_make(&f);
    assert_int_equal(tdm_tokenizer_open_folder(f.path, 8, &t, &err), TDM_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, f.path));
    folder_drop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_there_is_taken),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(a_folder_without_a_tokenizer_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
