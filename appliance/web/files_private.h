/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_WEB_FILES_PRIVATE_H
#define TDM_WEB_FILES_PRIVATE_H

/* The files of the console; files.c is made by the build (embed.cmake). */

#include <stddef.h>

typedef struct tdm_web_file {
    const char *name; /* "index.html" */
    const unsigned char *data;
    size_t sz;
} tdm_web_file_t;

extern const tdm_web_file_t tdm_web_file[];
extern const size_t tdm_web_file_cnt;

#endif /* TDM_WEB_FILES_PRIVATE_H */
