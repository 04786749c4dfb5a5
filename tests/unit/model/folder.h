/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_MODEL_FOLDER_H
#define TDM_TESTS_MODEL_FOLDER_H

/* A temporary folder with a few files. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct folder {
    char path[64];
} folder_t;

static inline void folder_make(folder_t *f) {
    memset(f, 0, sizeof *f);
    strcpy(f->path, "/tmp/tdm-folder-XXXXXX");
    if (!mkdtemp(f->path)) abort();
}

static inline void folder_put(const folder_t *f, const char *name, const void *bytes, uint64_t sz) {
    char path[160];
    (void)snprintf(path, sizeof path, "%s/%s", f->path, name);
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(bytes, 1, sz, out) != sz || fclose(out) != 0) abort();
}

/* folder_drop removes the folder and the names that tests here use. */
static inline void folder_drop(const folder_t *f) {
    static const char *const name[] = {"model.safetensors",     "model.safetensors.index.json",
                                       "x-1.safetensors",       "x-2.safetensors",
                                       "config.json",           "generation_config.json",
                                       "tokenizer.json",        "model.gguf",
                                       "tokenizer_config.json", "chat_template.jinja"};
    char path[160];
    for (uint32_t i = 0; i < sizeof name / sizeof *name; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", f->path, name[i]);
        (void)unlink(path);
    }
    (void)rmdir(f->path);
}

#endif /* TDM_TESTS_MODEL_FOLDER_H */
