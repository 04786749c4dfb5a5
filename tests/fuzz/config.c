/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files and --set assignments, and the keys file of the API.

   Input: one byte that chooses, then the text.  What is taken is printed
   and taken again, with the same outcome. */
#include "tests/fuzz/fuzz.h"

#include "appliance/api/auth.h"
#include "appliance/config/config.h"

FUZZ_UNIT("files")

static void file(const uint8_t *bytes, size_t sz) {
    static char text[65536];
    static tdm_config_t c, again;
    tdm_error_t err = {0};
    tdm_config_default(&c);
    again = c;
    char *copy = (char *)fuzz_copy(bytes, sz);
    tdm_status_t st = tdm_config_parse(&c, copy, sz, "fuzz", &err);
    free(copy);
    if (st != TDM_OK) {
        FUZZ_CHECK(err.text[0] != 0);
        FUZZ_CHECK(memcmp(&c, &again, sizeof c) == 0); /* nothing is half applied */
        return;
    }
    (void)!tdm_config_check(&c, &err);
    size_t printed = tdm_config_print(&c, text, sizeof text);
    FUZZ_CHECK(printed < sizeof text);
    FUZZ_CHECK(tdm_config_parse(&again, text, printed, "print", &err) == TDM_OK);
    FUZZ_CHECK(memcmp(&c, &again, sizeof c) == 0);
}

static void assignment(const uint8_t *bytes, size_t sz) {
    static tdm_config_t c;
    tdm_error_t err = {0};
    char *text = malloc(sz + 1);
    FUZZ_CHECK(text);
    if (sz) memcpy(text, bytes, sz);
    text[sz] = 0;
    tdm_config_default(&c);
    if (tdm_config_set(&c, text, &err) == TDM_OK)
        (void)!tdm_config_check(&c, &err);
    else
        FUZZ_CHECK(err.text[0] != 0);
    free(text);
}

static void keys(const uint8_t *bytes, size_t sz) {
    static tdm_auth_t a;
    tdm_error_t err = {0};
    char *copy = (char *)fuzz_copy(bytes, sz);
    tdm_auth_init(&a);
    if (tdm_auth_parse(&a, copy, sz, &err) != TDM_OK) FUZZ_CHECK(err.text[0] != 0);
    (void)tdm_auth_check(&a, "Bearer k", 0);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz) {
    fuzz_in_t in = {data, sz};
    switch (fuzz_u8(&in)) {
    case 's': assignment(in.at, in.left); break;
    case 'k': keys(in.at, in.left); break;
    default: file(in.at, in.left);
    }
    fuzz_cnt++;
    return 0;
}
