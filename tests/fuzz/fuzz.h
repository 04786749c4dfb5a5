/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_FUZZ_FUZZ_H
#define TDM_TESTS_FUZZ_FUZZ_H

/* What the targets share: a cursor over the input, copies of exact size,
   a file in memory, and a count of what was really tried (an input of the
   link target holds many frames).

   A target defines LLVMFuzzerTestOneInput and FUZZ_UNIT("frames"); the
   count is printed when the process ends, where tests/fuzz/run reads it.
   A rig of tests/unit may stand behind a target: a failed cmocka assertion
   ends the process, and libFuzzer reports that as a crash. */

#include "appliance/base/attr.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz);

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

/* fuzz_file holds bytes in one file of memory and gives its path, for
   readers that want one. */
static inline const char *fuzz_file(const void *bytes, size_t sz) {
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        FUZZ_CHECK(fd >= 0);
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    FUZZ_CHECK(ftruncate(fd, 0) == 0);
    FUZZ_CHECK(pwrite(fd, bytes, sz, 0) == (ssize_t)sz);
    return path;
}

#endif /* TDM_TESTS_FUZZ_FUZZ_H */
