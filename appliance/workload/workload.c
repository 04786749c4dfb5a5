/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/workload/workload.h"

#include "appliance/base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LENGTH_MAX (1u << 20)
#define LINE_MAX_  65536
#define SPAN_MAX_S 1e9 /* from the first arrival: times may count from 1970 */
#define NO_ROW     UINT64_MAX

typedef enum format { FORMAT_NONE, FORMAT_MOONCAKE, FORMAT_AZURE, FORMAT_COUNTS } format_t;

static format_t format_of(const char *line) {
    if (line[0] == '{') return FORMAT_MOONCAKE;
    if (strncmp(line, "TIMESTAMP,", 10) == 0) return FORMAT_AZURE;
    if (strncmp(line, "num_prefill_tokens,num_decode_tokens", 36) == 0) return FORMAT_COUNTS;
    return FORMAT_NONE;
}

/* field finds "key": and reads the number after it. */
static int field(const char *line, const char *key, double *out) {
    const char *at = strstr(line, key);
    char *end;
    if (!at) return 0;
    at += strlen(key);
    *out = strtod(at, &end);
    return end != at;
}

static int mooncake_read(const char *line, double *at_s, double *prompt, double *output) {
    if (!field(line, "\"timestamp\":", at_s) || !field(line, "\"input_length\":", prompt)) return 0;
    *at_s /= 1e3;
    return field(line, "\"output_length\":", output);
}

/* blocks_read adds the numbers of "hash_ids": [..] to the workload; a line
   without them has none.  0: they are no numbers, or too many. */
static int blocks_read(const char *line, tdm_workload_t *w, tdm_workload_row_t *row) {
    const char *at = strstr(line, "\"hash_ids\":");
    row->block_off = w->block_cnt;
    if (!at) return 1;
    at = strchr(at, '[');
    if (!at) return 0;
    for (at++; *at && *at != ']';) {
        char *end;
        unsigned long v = strtoul(at, &end, 10);
        if (end == at || v > UINT32_MAX || w->block_cnt == TDM_WORKLOAD_BLOCK_MAX) return 0;
        if ((w->block_cnt & (w->block_cnt - 1u)) == 0) { /* full at each power of two */
            uint32_t *grown = realloc(w->block, 2u * (w->block_cnt + 1u) * sizeof *grown);
            if (!grown) return 0;
            w->block = grown;
        }
        w->block[w->block_cnt++] = (uint32_t)v;
        row->block_cnt++;
        at = end + strspn(end, ", ");
    }
    return *at == ']';
}

/* origin is where the times of a file begin. */
typedef struct origin {
    double first_s;    /* of the first row, < 0 before it */
    int64_t month_day; /* Azure: its month's first day since 1970-01-01 */
} origin_t;

/* day_of gives the days from 1970-01-01 to the first of a month. */
static int64_t day_of(int year, int month) {
    struct tm first = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = 1};
    return timegm(&first) / 86400;
}

/* azure_read takes "2023-11-16 18:17:03.97,4808,10", as the traces of 2023
   are filed, and with "+00:00" behind the time, as those of 2024. */
static int azure_read(const char *line, origin_t *origin, double *at_s, double *prompt,
                      double *output) {
    int year, month, day, hour, minute, sz;
    double second;
    if (sscanf(line, "%4d-%2d-%2d %2d:%2d:%lf%n", &year, &month, &day, &hour, &minute, &second,
               &sz) != 6)
        return 0;
    int is_date = year >= 1970 && month >= 1 && month <= 12 && day >= 1 && day <= 31;
    int is_time = hour >= 0 && hour < 24 && minute >= 0 && minute < 60;
    if (!is_date || !is_time || !(second >= 0.0 && second < 61.0)) return 0;
    line += sz;
    if (strncmp(line, "+00:00", 6) == 0) line += 6;
    if (sscanf(line, ",%lf,%lf", prompt, output) != 2) return 0;
    if (origin->first_s < 0.0) origin->month_day = day_of(year, month);
    double days = (double)(day_of(year, month) - origin->month_day + day);
    *at_s = ((days * 24.0 + hour) * 60.0 + minute) * 60.0 + second;
    return 1;
}

static int counts_read(const char *line, double *prompt, double *output) {
    return sscanf(line, "%lf,%lf", prompt, output) == 2;
}

static uint32_t length_of(double x) {
    return x >= 1.0 ? (uint32_t)x : 1u;
}

/* row_read reads one line: ROW_OK, or what is wrong with it. */
typedef enum row_is { ROW_OK, ROW_UNKNOWN, ROW_TOO_LONG, ROW_TOO_FAR, ROW_GZIP } row_is_t;

static row_is_t row_read(format_t format, const char *line, origin_t *origin,
                         tdm_workload_row_t *row) {
    double at_s = 0.0, prompt = 0.0, output = 0.0;
    int ok = 0;
    if (format == FORMAT_MOONCAKE) ok = mooncake_read(line, &at_s, &prompt, &output);
    if (format == FORMAT_AZURE) ok = azure_read(line, origin, &at_s, &prompt, &output);
    if (format == FORMAT_COUNTS) ok = counts_read(line, &prompt, &output);
    if (!ok || !(prompt >= 0.0) || !(output >= 0.0) || !(at_s >= 0.0)) return ROW_UNKNOWN;
    if (prompt != floor(prompt) || output != floor(output)) return ROW_UNKNOWN;
    if (prompt > LENGTH_MAX || output > LENGTH_MAX) return ROW_TOO_LONG;
    if (origin->first_s < 0.0) origin->first_s = at_s;
    double since = at_s - origin->first_s; /* < 0: filed out of order; sort_rows */
    if (!(fabs(since) <= SPAN_MAX_S)) return ROW_TOO_FAR;
    *row = (tdm_workload_row_t){.at_ns = (int64_t)(since * 1e9),
                                .prompt_cnt = length_of(prompt),
                                .output_cnt = length_of(output)};
    return ROW_OK;
}

static int by_arrival(const void *a, const void *b) {
    const tdm_workload_row_t *x = a, *y = b;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

/* sort_rows leaves rows of one moment as they are filed where the file is in
   order, which a sort need not (qsort(3)); times begin with the earliest. */
static void sort_rows(tdm_workload_t *w) {
    uint32_t i = 1;
    while (i < w->row_cnt && w->row[i].at_ns >= w->row[i - 1].at_ns) i++;
    if (i < w->row_cnt) qsort(w->row, w->row_cnt, sizeof *w->row, by_arrival);
    int64_t first_ns = w->row[0].at_ns;
    for (i = 0; i < w->row_cnt; i++) w->row[i].at_ns -= first_ns;
}

/* lines_read reads rows until the end; the number of a bad line, NO_ROW where
   there is none at all, or 0.  *is says what is bad. */
static uint64_t lines_read(FILE *f, char *line, uint32_t row_max, tdm_workload_t *w, row_is_t *is) {
    format_t format = FORMAT_NONE;
    origin_t origin = {.first_s = -1.0};
    for (uint64_t n = 1; w->row_cnt < row_max && fgets(line, LINE_MAX_, f); n++) {
        if (n == 1 && memcmp(line, "\xef\xbb\xbf", 3) == 0) memmove(line, line + 3, LINE_MAX_ - 3);
        *is = n == 1 && memcmp(line, "\x1f\x8b", 2) == 0 ? ROW_GZIP : ROW_UNKNOWN;
        if (n == 1 && (format = format_of(line)) == FORMAT_NONE) return 1;
        if (n == 1 && format != FORMAT_MOONCAKE) continue;
        if (line[strspn(line, " \t\r\n")] == 0) continue;
        *is = row_read(format, line, &origin, &w->row[w->row_cnt]);
        if (*is != ROW_OK) return n;
        *is = ROW_UNKNOWN;
        if (format == FORMAT_MOONCAKE && !blocks_read(line, w, &w->row[w->row_cnt])) return n;
        w->row_cnt++;
    }
    w->has_arrivals = format == FORMAT_MOONCAKE || format == FORMAT_AZURE;
    return w->row_cnt == 0 ? NO_ROW : 0;
}

static tdm_status_t bad_line(const char *path, uint64_t n, row_is_t is, tdm_error_t *err) {
    unsigned long long line = n;
    if (is == ROW_TOO_LONG)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "%s: line %llu has a length over %u tokens",
                             path, line, LENGTH_MAX);
    if (is == ROW_TOO_FAR)
        return tdm_error_set(err, TDM_ERR_CORRUPT,
                             "%s: line %llu arrives more than %.0e s from the first", path, line,
                             SPAN_MAX_S);
    if (is == ROW_GZIP)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "%s: compressed by gzip: gunzip it first", path);
    if (n == 1)
        return tdm_error_set(
            err, TDM_ERR_CORRUPT,
            "%s: line 1 is no request of a known format, nor a heading: Mooncake's "
            "{\"timestamp\": .., Azure's TIMESTAMP,.. or num_prefill_tokens,"
            "num_decode_tokens",
            path);
    return tdm_error_set(err, TDM_ERR_CORRUPT, "%s: line %llu is no request of a known format",
                         path, line);
}

tdm_status_t tdm_workload_read(const char *path, uint32_t row_max, tdm_workload_t *w,
                               tdm_error_t *err) {
    FILE *f = fopen(path, "r");
    if (!f)
        return tdm_error_set(err, errno == ENOENT ? TDM_ERR_NOT_FOUND : TDM_ERR_IO, "%s: %s", path,
                             strerror(errno));
    row_max = TDM_MIN(row_max, TDM_WORKLOAD_ROW_MAX);
    *w = (tdm_workload_t){.row = malloc(((size_t)row_max + 1u) * sizeof *w->row)};
    char *line = malloc(LINE_MAX_);
    row_is_t is = ROW_OK;
    int is_memory = w->row && line, first = fgetc(f), is_empty = first == EOF;
    (void)ungetc(first, f); /* a pipe has no way back */
    uint64_t bad = is_memory ? lines_read(f, line, row_max, w, &is) : 1;
    free(line);
    (void)fclose(f);
    if (!is_memory || is_empty) {
        tdm_workload_free(w);
        return is_empty ? tdm_error_set(err, TDM_ERR_CORRUPT, "%s: empty, or no file", path)
                        : tdm_error_set(err, TDM_ERR_NOMEM, "%s: no memory", path);
    }
    if (bad == NO_ROW) {
        tdm_workload_free(w);
        return tdm_error_set(err, TDM_ERR_CORRUPT, "%s: no request behind its heading", path);
    }
    if (bad > 0) {
        tdm_workload_free(w);
        return bad_line(path, bad, is, err);
    }
    sort_rows(w);
    return TDM_OK;
}

void tdm_workload_free(tdm_workload_t *w) {
    free(w->row);
    free(w->block);
    *w = (tdm_workload_t){0};
}
