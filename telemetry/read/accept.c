/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/read/accept.h"

#include <string.h>
#include <strings.h>

/* A span of the header; both headers are lists of items split by commas,
   an item is a name and parameters split by semicolons. */
typedef struct span {
    const char *at;
    size_t sz;
} span_t;

static span_t trim(span_t s) {
    while (s.sz && (*s.at == ' ' || *s.at == '\t')) {
        s.at++;
        s.sz--;
    }
    while (s.sz && (s.at[s.sz - 1] == ' ' || s.at[s.sz - 1] == '\t')) s.sz--;
    return s;
}

/* cut takes the text before the next `sep` that is outside quotes, and
   moves *rest behind it; 0 when nothing is left. */
static int cut(span_t *rest, char sep, span_t *item) {
    if (!rest->at) return 0;
    size_t i = 0;
    int is_quoted = 0;
    for (; i < rest->sz; i++) {
        char c = rest->at[i];
        if (c == '\\' && is_quoted && i + 1 < rest->sz)
            i++;
        else if (c == '"')
            is_quoted = !is_quoted;
        else if (c == sep && !is_quoted)
            break;
    }
    *item = trim((span_t){rest->at, i});
    if (i < rest->sz)
        *rest = (span_t){rest->at + i + 1, rest->sz - i - 1};
    else
        rest->at = NULL;
    return 1;
}

static int is_word(span_t s, const char *word) {
    return s.sz == strlen(word) && strncasecmp(s.at, word, s.sz) == 0;
}

/* q_of reads a weight as thousandths: "0", "1", "0.5", "1.000"; -1 for
   anything else. */
static int q_of(span_t s) {
    if (s.sz == 0 || s.sz > 5 || (s.at[0] != '0' && s.at[0] != '1')) return -1;
    int q = (s.at[0] - '0') * 1000, unit = 100;
    if (s.sz > 1 && s.at[1] != '.') return -1;
    for (size_t i = 2; i < s.sz; i++, unit /= 10) {
        if (s.at[i] < '0' || s.at[i] > '9') return -1;
        q += (s.at[i] - '0') * unit;
    }
    return q <= 1000 ? q : -1;
}

typedef struct item {
    span_t name;
    span_t version; /* sz 0 where absent */
    int q;          /* thousandths; -1: the item is malformed */
} item_t;

static int next_item(span_t *rest, item_t *out) {
    span_t text, part;
    if (!cut(rest, ',', &text)) return 0;
    span_t params = text;
    *out = (item_t){.q = 1000};
    if (!cut(&params, ';', &out->name)) return 1;
    while (cut(&params, ';', &part)) {
        const char *eq = part.sz ? memchr(part.at, '=', part.sz) : NULL;
        if (!eq) continue;
        span_t key = trim((span_t){part.at, (size_t)(eq - part.at)});
        span_t value = trim((span_t){eq + 1, part.sz - (size_t)(eq + 1 - part.at)});
        if (value.sz >= 2 && value.at[0] == '"' && value.at[value.sz - 1] == '"')
            value = (span_t){value.at + 1, value.sz - 2};
        if (is_word(key, "q"))
            out->q = q_of(value);
        else if (is_word(key, "version"))
            out->version = value;
    }
    return 1;
}

/* format_of names the format of an item, -1 for one we do not speak. */
static int format_of(const item_t *item) {
    int has_version = item->version.sz != 0;
    if (is_word(item->name, "application/openmetrics-text")) {
        return !has_version || is_word(item->version, "1.0.0") ? TDM_METRICS_OPENMETRICS : -1;
    }
    if (is_word(item->name, "text/plain"))
        return !has_version || is_word(item->version, "0.0.4") ? TDM_METRICS_PROMETHEUS : -1;
    if (is_word(item->name, "text/*") || is_word(item->name, "*/*")) return TDM_METRICS_PROMETHEUS;
    return -1;
}

tdm_metrics_format_t tdm_accept_metrics(const char *accept) {
    int best = TDM_METRICS_PROMETHEUS, best_q = 0;
    span_t rest = {accept, accept ? strlen(accept) : 0};
    item_t item;
    while (next_item(&rest, &item)) {
        int format = format_of(&item);
        if (format < 0 || item.q <= best_q) continue;
        best = format;
        best_q = item.q;
    }
    return (tdm_metrics_format_t)best;
}

uint32_t tdm_accept_set(const char *query) {
    static const struct {
        const char *word;
        uint32_t sets;
    } row[] = {
        {"native", TDM_METRICS_NATIVE}, {"compat", TDM_METRICS_COMPAT}, {"all", TDM_METRICS_ALL}};
    for (const char *p = query; p && *p;) {
        size_t sz = strcspn(p, "&");
        if (sz >= 4 && strncmp(p, "set=", 4) == 0) {
            for (size_t i = 0; i < TDM_COUNT_OF(row); i++)
                if (strlen(row[i].word) == sz - 4 && strncmp(p + 4, row[i].word, sz - 4) == 0)
                    return row[i].sets;
            return 0;
        }
        p += sz + (p[sz] == '&');
    }
    return TDM_METRICS_ALL;
}

int tdm_accept_gzip(const char *accept_encoding) {
    int gzip_q = -1, any_q = -1;
    span_t rest = {accept_encoding, accept_encoding ? strlen(accept_encoding) : 0};
    item_t item;
    while (next_item(&rest, &item)) {
        if (is_word(item.name, "gzip") || is_word(item.name, "x-gzip"))
            gzip_q = item.q;
        else if (is_word(item.name, "*"))
            any_q = item.q;
    }
    return gzip_q >= 0 ? gzip_q > 0 : any_q > 0;
}
