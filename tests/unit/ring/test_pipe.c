/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: reply bytes come out whole and in order whatever the record
   sizes, read-ahead and acknowledgement pattern.
   Method: seeded random writer, reader and releaser over small pipes,
   against a plain array. */
#include "appliance/base/rng.h"
#include "appliance/ring/pipe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STREAM = 20000 };

static void play(uint64_t seed, uint32_t capacity) {
    tdm_rng_t rng = {seed};
    uint8_t *buf = aligned_alloc(64, capacity);
    uint8_t sent[STREAM], got[STREAM];
    tdm_pipe_t p;
    assert_int_equal(tdm_pipe_init(&p, buf, capacity), TDM_OK);
    for (int i = 0; i < STREAM; i++) sent[i] = (uint8_t)tdm_rng_next(&rng);
    uint32_t cursor = tdm_pipe_begin(), in = 0, out = 0, acked = 0, tokens_in = 0, tokens_out = 0;
    while (acked < STREAM) {
        switch (tdm_rng_below(&rng, 3)) {
        case 0: {
            uint32_t sz = 1 + tdm_rng_below(&rng, TDM_PIPE_RECORD_MAX(capacity));
            if (sz > STREAM - in) sz = STREAM - in;
            uint32_t tokens = tdm_rng_below(&rng, 3);
            if (sz && tdm_pipe_write(&p, sent + in, sz, tokens)) {
                in += sz;
                tokens_in += tokens;
            }
            break;
        }
        case 1: {
            tdm_pipe_record_t rec;
            if (!tdm_pipe_peek(&p, &cursor, &rec)) break;
            assert_true(rec.bytes >= buf && rec.bytes + rec.sz <= buf + capacity);
            memcpy(got + out, rec.bytes, rec.sz);
            out += rec.sz;
            tokens_out += rec.token_cnt;
            break;
        }
        case 2: {
            uint32_t n = out - acked ? 1 + tdm_rng_below(&rng, out - acked) : 0;
            tdm_pipe_release(&p, n);
            acked += n;
            break;
        }
        }
        assert_true(tdm_pipe_used(&p) <= capacity);
    }
    if (memcmp(sent, got, STREAM) != 0) fail_msg("seed %llu", (unsigned long long)seed);
    assert_int_equal(tokens_in, tokens_out);
    free(buf);
}

static void bytes_survive_any_interleaving(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        for (uint32_t capacity = 64; capacity <= 4096; capacity *= 4) play(seed, capacity);
}

static void the_largest_record_always_fits_an_empty_pipe(void **state) {
    (void)state;
    enum { CAP = 256 };
    uint8_t buf[CAP] TDM_ALIGNED(64), bytes[CAP] = {7};
    tdm_pipe_t p;
    assert_int_equal(tdm_pipe_init(&p, buf, CAP), TDM_OK);
    uint32_t cursor = tdm_pipe_begin();
    for (uint32_t shift = 1; shift < 200; shift++) {
        uint32_t sz = 1 + shift % 40;
        tdm_pipe_record_t rec;
        assert_true(tdm_pipe_write(&p, bytes, sz, 1));
        assert_true(tdm_pipe_peek(&p, &cursor, &rec));
        tdm_pipe_release(&p, sz);
        assert_true(tdm_pipe_write(&p, bytes, TDM_PIPE_RECORD_MAX(CAP), 1));
        assert_true(tdm_pipe_peek(&p, &cursor, &rec));
        assert_int_equal(rec.sz, TDM_PIPE_RECORD_MAX(CAP));
        tdm_pipe_release(&p, rec.sz);
    }
    int fitted = 0;
    while (tdm_pipe_write(&p, bytes, TDM_PIPE_RECORD_MAX(CAP), 1)) fitted++;
    assert_in_range(fitted, 1, 2);
}

static void a_stamp_is_of_one_record(void **state) {
    (void)state;
    uint8_t buf[256] TDM_ALIGNED(64);
    tdm_pipe_t p;
    tdm_pipe_record_t rec;
    assert_int_equal(tdm_pipe_init(&p, buf, sizeof buf), TDM_OK);
    uint32_t cursor = tdm_pipe_begin();
    const int64_t stamp[] = {0, 123456789012345, 0, 77};
    for (uint32_t turn = 0; turn < 3; turn++) { /* over the end of the buffer */
        for (size_t i = 0; i < TDM_COUNT_OF(stamp); i++) {
            if (stamp[i]) tdm_pipe_stamp(&p, stamp[i]);
            assert_true(tdm_pipe_write(&p, "token", 5, 1));
        }
        for (size_t i = 0; i < TDM_COUNT_OF(stamp); i++) {
            assert_true(tdm_pipe_peek(&p, &cursor, &rec));
            assert_true(rec.made_ns == stamp[i]);
            tdm_pipe_release(&p, rec.sz);
        }
    }
    tdm_pipe_stamp(&p, 5); /* of a record that never came */
    tdm_pipe_reset(&p);
    cursor = tdm_pipe_begin();
    assert_true(tdm_pipe_write(&p, "token", 5, 1));
    assert_true(tdm_pipe_peek(&p, &cursor, &rec) && rec.made_ns == 0);
}

static void bad_memory_is_refused(void **state) {
    (void)state;
    uint8_t buf[64] TDM_ALIGNED(64);
    tdm_pipe_t p;
    assert_int_equal(tdm_pipe_init(&p, NULL, 64), TDM_ERR_INVAL);
    assert_int_equal(tdm_pipe_init(&p, buf, 32), TDM_ERR_INVAL);
    assert_int_equal(tdm_pipe_init(&p, buf, 65), TDM_ERR_INVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_survive_any_interleaving),
        cmocka_unit_test(the_largest_record_always_fits_an_empty_pipe),
        cmocka_unit_test(a_stamp_is_of_one_record),
        cmocka_unit_test(bad_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
