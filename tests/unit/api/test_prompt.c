/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the chat template is the operator's, else the model's, and never a
   guess; a sequence ends at every token that model or tokenizer names.
   Method: small tokenizers of folders with and without templates. */
#include "appliance/api/prompt.h"
#include "tests/unit/api/rig.h"
#include "tests/unit/model/folder.h"

static const char tokenizer_json[] =
    "{\"added_tokens\":[{\"id\":2,\"content\":\"<|x|>\",\"special\":true}],"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
    "\"decoder\":{\"type\":\"ByteLevel\"},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}";

static tdm_tokenizer_t *tokenizer_with(const char *config) {
    folder_t f;
    tdm_tokenizer_t *t;
    tdm_error_t err = {0};
    folder_make(&f);
    folder_put(&f, "tokenizer.json", tokenizer_json, sizeof tokenizer_json - 1);
    folder_put(&f, "tokenizer_config.json", config, strlen(config));
    if (tdm_tokenizer_open_folder(f.path, 8, &t, &err) != TDM_OK) fail_msg("%s", err.text);
    folder_drop(&f);
    return t;
}

static void a_template_is_never_guessed(void **state) {
    (void)state;
    tdm_chat_kind_t kind;
    tdm_error_t err = {0};
    tdm_tokenizer_t *none = tokenizer_with("{}");
    tdm_tokenizer_t *known = tokenizer_with("{\"chat_template\":\"<|im_start|>\"}");
    tdm_tokenizer_t *odd = tokenizer_with("{\"chat_template\":\"{{ messages }}\"}");
    assert_int_equal(tdm_prompt_chat_kind("auto", none, &kind, &err), TDM_OK);
    assert_int_equal(kind, TDM_CHAT_NONE);
    assert_int_equal(tdm_prompt_chat_kind("auto", known, &kind, &err), TDM_OK);
    assert_int_equal(kind, TDM_CHAT_CHATML);
    assert_int_equal(tdm_prompt_chat_kind("auto", odd, &kind, &err), TDM_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "model.chat_template"));
    for (int k = 0; k < TDM_CHAT_KIND_CNT; k++) { /* every name of the set overrides, and is told */
        const char *name = tdm_chat_kind_name((tdm_chat_kind_t)k);
        assert_non_null(strstr(err.text, name));
        assert_int_equal(tdm_prompt_chat_kind(name, odd, &kind, NULL), TDM_OK);
        assert_int_equal(kind, k);
    }
    assert_int_equal(tdm_prompt_chat_kind("unknown", known, &kind, &err), TDM_ERR_UNSUPPORTED);
    tdm_tokenizer_close(none);
    tdm_tokenizer_close(known);
    tdm_tokenizer_close(odd);
}

static void every_named_end_ends(void **state) {
    (void)state;
    static tdm_prompt_t p;
    tdm_tokenizer_t *t = tokenizer_with("{\"eos_token\":\"<|x|>\"}");
    p.tokenizer = t;
    p.vocab = 8;
    tdm_prompt_end_ids(&p, (const int32_t[]){5, 6, 5}, 3);
    assert_int_equal(p.end_cnt, 3);
    assert_int_equal(p.end_id[0], 5);
    assert_int_equal(p.end_id[1], 6);
    assert_int_equal(p.end_id[2], 2); /* the tokenizer's */
    tdm_prompt_end_ids(&p, NULL, 0);
    assert_int_equal(p.end_cnt, 1);
    assert_int_equal(p.end_id[0], 2);
    tdm_tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_template_is_never_guessed),
        cmocka_unit_test(every_named_end_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
