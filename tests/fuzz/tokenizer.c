/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json files, and a text through whatever is read.
   Input: the file. */
#include "tests/fuzz/fuzz.h"

#include "appliance/tokenizer/chat.h"
#include "appliance/tokenizer/detok.h"

FUZZ_UNIT("files")

#define VOCAB 600u /* of the model; no seed needs more */

static void use(const tdm_tokenizer_t *t) {
    static const char text[] = "Hello, w\xc3\xb6rld 12345 <s><|im_end|>\n\xf0\x9f\x98\x80";
    tdm_encode_scratch_t *s;
    tdm_error_t err = {0};
    int32_t ids[256];
    uint32_t cnt = 0;
    char out[4 * TDM_PIECE_MAX];
    if (tdm_encode_scratch_create(t, 256, &s, &err) != TDM_OK) return;
    tdm_encode_t e =
        tdm_tokenizer_encode(t, s, text, sizeof text - 1,
                             TDM_ENCODE_ADD_SPECIAL | TDM_ENCODE_PARSE_SPECIAL, ids, 256, &cnt);
    tdm_detok_t d;
    tdm_detok_init(&d, 0);
    for (uint32_t i = 0; e == TDM_ENCODE_OK && i < cnt; i++) {
        FUZZ_CHECK(ids[i] >= 0 && (uint32_t)ids[i] < tdm_tokenizer_vocab(t));
        (void)tdm_detok_push(&d, t, ids[i], out);
    }
    (void)tdm_detok_flush(&d, out);
    (void)tdm_chat_of(t);
    (void)tdm_tokenizer_name(t);
    tdm_encode_scratch_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz) {
    tdm_tokenizer_t *t;
    tdm_error_t err = {0};
    fuzz_cnt++;
    char *copy = (char *)fuzz_copy(data, sz);
    tdm_status_t st = tdm_tokenizer_parse_json(copy, sz, "fuzz", VOCAB, &t, &err);
    free(copy);
    if (st != TDM_OK) {
        FUZZ_CHECK(err.text[0] != 0);
        return 0;
    }
    use(t);
    tdm_tokenizer_close(t);
    return 0;
}
