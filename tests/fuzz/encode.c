/* SPDX-License-Identifier: Apache-2.0 */
/* Texts through three tokenizers of Hugging Face form: ids lie inside the
   vocabulary, and detokenising gives the text back.
   Input: one byte (modulo 3 the tokenizer; 128: special tokens count),
   then the text. */
#include "tests/fuzz/fuzz.h"

#include "appliance/tokenizer/chat.h"
#include "appliance/tokenizer/detok.h"

FUZZ_UNIT("texts")

#define TEXT_MAX      65536u
#define TOKENIZER_CNT 3u

static tdm_tokenizer_t *tokenizer[TOKENIZER_CNT];
static tdm_encode_scratch_t *scratch[TOKENIZER_CNT];

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    static const char *const name[] = {"gpt2", "llama3", "smollm"};
    for (uint32_t i = 0; i < TOKENIZER_CNT; i++) {
        char path[512];
        tdm_error_t err = {0};
        (void)snprintf(path, sizeof path, "%s/tests/numerics/golden/small_%s.json", TDM_SOURCE_DIR,
                       name[i]);
        if (tdm_tokenizer_open_json(path, 4096, &tokenizer[i], &err) != TDM_OK ||
            tdm_encode_scratch_create(tokenizer[i], TEXT_MAX, &scratch[i], &err) != TDM_OK) {
            (void)fprintf(stderr, "%s\n", err.text);
            abort();
        }
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz) {
    static int32_t ids[TEXT_MAX];
    static char back[TEXT_MAX + 4 * TDM_PIECE_MAX];
    fuzz_in_t in = {data, TDM_MIN(sz, (size_t)4096)};
    uint32_t flags = fuzz_u8(&in), cnt = 0, back_sz = 0;
    const tdm_tokenizer_t *t = tokenizer[flags % TOKENIZER_CNT];
    char *text = (char *)fuzz_copy(in.at, in.left);
    tdm_encode_t e =
        tdm_tokenizer_encode(t, scratch[flags % TOKENIZER_CNT], text, in.left,
                             flags & 128 ? TDM_ENCODE_PARSE_SPECIAL : 0, ids, TEXT_MAX, &cnt);
    FUZZ_CHECK(e == TDM_ENCODE_OK || e == TDM_ENCODE_BAD_UTF8 || e == TDM_ENCODE_FAILED);
    tdm_detok_t d;
    tdm_detok_init(&d, 0);
    int has_special = 0;
    for (uint32_t i = 0; e == TDM_ENCODE_OK && i < cnt; i++) {
        FUZZ_CHECK(ids[i] >= 0 && (uint32_t)ids[i] < tdm_tokenizer_vocab(t));
        has_special |= tdm_tokenizer_is_control(t, ids[i]);
        back_sz += tdm_detok_push(&d, t, ids[i], back + back_sz);
        FUZZ_CHECK(back_sz <= TEXT_MAX);
    }
    back_sz += tdm_detok_flush(&d, back + back_sz);
    if (e == TDM_ENCODE_OK && !has_special)
        FUZZ_CHECK(back_sz == in.left && memcmp(back, text, back_sz) == 0);
    (void)tdm_chat_detect(text, in.left);
    free(text);
    fuzz_cnt++;
    return 0;
}
