/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/api/route.h"

#include <string.h>

typedef struct route_row {
    const char *path;
    tdm_endpoint_t endpoint;
    uint16_t allow;
    uint16_t needs_key;
} route_row_t;

static const route_row_t row[] = {
    {"/v1/chat/completions", TDM_ENDPOINT_CHAT, TDM_ALLOW_POST, 1},
    {"/v1/completions", TDM_ENDPOINT_COMPLETIONS, TDM_ALLOW_POST, 1},
    {"/v1/models", TDM_ENDPOINT_MODELS, TDM_ALLOW_GET, 1},
    {"/health", TDM_ENDPOINT_HEALTH, TDM_ALLOW_GET, 0},
    {"/ready", TDM_ENDPOINT_READY, TDM_ALLOW_GET, 0},
    {"/version", TDM_ENDPOINT_VERSION, TDM_ALLOW_GET, 0},
    {"/tokenize", TDM_ENDPOINT_TOKENIZE, TDM_ALLOW_POST, 1},
    {"/detokenize", TDM_ENDPOINT_DETOKENIZE, TDM_ALLOW_POST, 1},
};

/* Paths of clients whose base URL lacks /v1. */
static const char *const hint[] = {"/v1/chat/completions", "/v1/completions", "/v1/models"};

static const char model_prefix[] = "/v1/models/";

tdm_route_match_t tdm_route_find(const char *path) {
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
        if (strcmp(path, row[i].path) != 0) continue;
        return (tdm_route_match_t){
            .endpoint = row[i].endpoint, .allow = row[i].allow, .needs_key = row[i].needs_key};
    }
    if (strncmp(path, model_prefix, sizeof model_prefix - 1) == 0 && path[sizeof model_prefix - 1])
        return (tdm_route_match_t){.endpoint = TDM_ENDPOINT_MODEL,
                                   .allow = TDM_ALLOW_GET,
                                   .needs_key = 1,
                                   .tail = path + sizeof model_prefix - 1};
    tdm_route_match_t m = {.endpoint = TDM_ENDPOINT_NONE};
    for (uint32_t i = 0; i < TDM_COUNT_OF(hint); i++)
        if (strcmp(path, hint[i] + 3) == 0) m.hint = hint[i];
    return m;
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

int32_t tdm_percent_decode(const char *in, char *out, uint32_t max) {
    uint32_t at = 0;
    for (; *in; in++) {
        int c = (unsigned char)*in;
        if (c == '%') {
            int hi = hex_value(in[1]);
            int lo = hi < 0 ? -1 : hex_value(in[2]);
            if (lo < 0 || (c = hi * 16 + lo) == 0) return -1;
            in += 2;
        }
        if (at + 1 >= max) return -1;
        out[at++] = (char)c;
    }
    out[at] = 0;
    return (int32_t)at;
}
