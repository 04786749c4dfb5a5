/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_FUZZ_FUZZ_H
#define TDM_TESTS_FUZZ_FUZZ_H

/* What the targets share: a cursor over the input, copies of exact size,
   an arena on the heap, and a count of what was really tried (an input of the
   link target holds many frames).

   A target defines LLVMFuzzerTestOneInput and FUZZ_UNIT("frames"); the
   count is printed when the process ends, where tests/fuzz/run reads it.
   A rig of tests/unit may stand behind a target: a failed cmocka assertion
   ends the process, and libFuzzer reports that as a crash. */

#include "appliance/base/arena.h"
#include "appliance/base/attr.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz);

/* Read by the runtime of the sanitizer before main: freed memory is kept
   from reuse for 16 MiB and not for 256, which stay in no cache. */
__attribute__((used, visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "quarantine_size_mb=16:malloc_context_size=12";
}

static uint64_t fuzz_cnt;
static const char *fuzz_unit;

static inline void fuzz_say(void) {
    (void)fprintf(stderr, "fuzz: %llu %s\n", (unsigned long long)fuzz_cnt, fuzz_unit);
}

/* FUZZ_UNIT names what fuzz_cnt counts. */
#define FUZZ_UNIT(name)                                                                            \
    __attribute__((constructor)) static void fuzz_unit_set(void) {                                 \
        fuzz_unit = name;                                                                          \
        (void)atexit(fuzz_say);                                                                    \
    }

/* FUZZ_CHECK ends the process where a fact does not hold. */
#define FUZZ_CHECK(fact)                                                                           \
    do {                                                                                           \
        if (!(fact)) {                                                                             \
            (void)fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #fact);               \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

typedef struct fuzz_in {
    const uint8_t *at;
    size_t left;
} fuzz_in_t;

/* fuzz_u8 takes a byte, 0 at the end. */
static inline uint32_t fuzz_u8(fuzz_in_t *in) {
    if (in->left == 0) return 0;
    in->left--;
    return *in->at++;
}

static inline uint32_t fuzz_u16(fuzz_in_t *in) {
    uint32_t low = fuzz_u8(in);
    return low | fuzz_u8(in) << 8;
}

/* fuzz_take gives the next bytes, at most max and at most what is left. */
static inline const uint8_t *fuzz_take(fuzz_in_t *in, size_t max, size_t *sz) {
    const uint8_t *p = in->at;
    *sz = TDM_MIN(max, in->left);
    in->at += *sz;
    in->left -= *sz;
    return p;
}

/* fuzz_copy puts bytes into a heap block of exactly their size, so that
   one byte too far is seen; the caller frees. */
static inline uint8_t *fuzz_copy(const void *bytes, size_t sz) {
    uint8_t *p = malloc(sz ? sz : 1);
    FUZZ_CHECK(p);
    if (sz) memcpy(p, bytes, sz);
    return p;
}

/* fuzz_arena is an arena over a heap block of exactly sz zeroed bytes; the
   caller frees its base.  A mapped one reads /proc for its page size, which
   takes longer than a whole file. */
static inline tdm_arena_t fuzz_arena(uint64_t sz) {
    void *p = NULL;
    FUZZ_CHECK(posix_memalign(&p, 4096, sz ? sz : 1) == 0);
    memset(p, 0, sz);
    return (tdm_arena_t){.base = p, .sz = sz, .page_sz = 4096, .fd = -1};
}

#endif /* TDM_TESTS_FUZZ_FUZZ_H */
