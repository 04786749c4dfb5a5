/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/api/media.h"

#include <string.h>
#include <strings.h>

static const char blank[] = " \t";

int tdm_media_is_json(const char *content_type) {
    static const char json[] = "application/json";
    content_type += strspn(content_type, blank);
    if (!*content_type) return 1;
    if (strncasecmp(content_type, json, sizeof json - 1) != 0) return 0;
    char next = content_type[sizeof json - 1];
    return next == 0 || next == ';' || next == ' ' || next == '\t';
}

int tdm_media_is_plain(const char *content_encoding) {
    static const char none[] = "identity", between[] = " \t,";
    const char *at = content_encoding + strspn(content_encoding, between);
    while (*at) {
        size_t sz = strcspn(at, between);
        if (sz != sizeof none - 1 || strncasecmp(at, none, sz) != 0) return 0;
        at += sz;
        at += strspn(at, between);
    }
    return 1;
}
