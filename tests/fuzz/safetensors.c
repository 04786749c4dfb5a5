/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors files and config.json: parser, every view, match, weights.
   Input: one byte that chooses ('c' the configuration), then the file.
   Tensors are matched with the shape of the seed. */
#include "tests/fuzz/fuzz.h"

#include "appliance/model/checkpoint.h"
#include "appliance/model/weights.h"

FUZZ_UNIT("files")

static const tdm_shape_t seed_shape = {.layer_cnt = 1,
                                       .hidden = 8,
                                       .nhead_q = 2,
                                       .nhead_kv = 1,
                                       .head_dim = 4,
                                       .ffn = 4,
                                       .vocab = 6,
                                       .context = 64,
                                       .is_tied = 1,
                                       .rms_eps = 1e-5f,
                                       .rope_theta = 10000,
                                       .rope_factor = 1};

static uint64_t sum; /* of all bytes looked at */

static void load(const tdm_safetensors_t *s) {
    static tdm_weights_t w;
    tdm_error_t err = {0};
    if (tdm_checkpoint_match(s, &seed_shape, &err) != TDM_OK) {
        FUZZ_CHECK(err.text[0] != 0);
        return;
    }
    tdm_arena_t arena = fuzz_arena(tdm_weights_sz(&seed_shape, TDM_WEIGHT_BF16));
    (void)!tdm_weights_load_checkpoint(s, &seed_shape, TDM_WEIGHT_BF16, &arena, NULL, NULL, &w,
                                       &err);
    free(arena.base);
}

static void file(const uint8_t *bytes, size_t sz) {
    tdm_safetensors_t *s;
    tdm_error_t err = {0};
    uint8_t *copy = fuzz_copy(bytes, sz);
    if (tdm_safetensors_parse(copy, sz, &s, &err) == TDM_OK) {
        uint64_t data_sz = 0;
        for (uint32_t i = 0; i < tdm_safetensors_cnt(s); i++) {
            const tdm_safetensor_t *t = tdm_safetensors_at(s, i);
            char name[TDM_SAFETENSORS_NAME_MAX];
            FUZZ_CHECK(t->name_sz < sizeof name);
            memcpy(name, t->name, t->name_sz);
            name[t->name_sz] = 0;
            if (!memchr(name, 0, t->name_sz)) FUZZ_CHECK(tdm_safetensors_find(s, name) == t);
            for (uint64_t k = 0; k < t->sz; k++) sum += t->bytes[k];
            data_sz += t->sz;
        }
        FUZZ_CHECK(data_sz < sz);
        load(s);
        tdm_safetensors_close(s);
    } else {
        FUZZ_CHECK(err.text[0] != 0);
    }
    free(copy);
}

static void config(const uint8_t *bytes, size_t sz) {
    tdm_checkpoint_t c;
    tdm_error_t err = {0};
    char *copy = (char *)fuzz_copy(bytes, sz);
    if (tdm_checkpoint_parse(copy, sz, &c, &err) == TDM_OK)
        FUZZ_CHECK(tdm_shape_check(&c.shape, &err) == TDM_OK);
    else
        FUZZ_CHECK(err.text[0] != 0);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz) {
    fuzz_in_t in = {data, sz};
    if (fuzz_u8(&in) == 'c')
        config(in.at, in.left);
    else
        file(in.at, in.left);
    fuzz_cnt++;
    return 0;
}
