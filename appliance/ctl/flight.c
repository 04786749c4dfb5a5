/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/flight.h"

#include "appliance/abi/reasons.h"
#include "appliance/base/clock.h"
#include "appliance/ctl/options.h"
#include "telemetry/flight/explain.h"
#include "telemetry/flight/file.h"
#include "telemetry/flight/trace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DAY_S       86400
#define SECONDS_MAX 1000000u                 /* of a trace: more than any recorder holds */
#define FLIGHT_PATH "/dev/shm/tandem.flight" /* the default of flight.path */

typedef struct ask {
    const char *path;
    const char *format;
    const char *at;
    const char *fallback;
    uint64_t iteration; /* 0: none named */
    uint64_t seconds;   /* 0: all that is there */
    int is_slowest;
} ask_t;

static int64_t wall_ns(void) {
    struct timespec ts;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * TDM_NS_PER_S + ts.tv_nsec;
}

/* clock_time reads "HH:MM:SS[.fraction]" into nanoseconds of a day. */
static int clock_time(const char *text, int64_t *out) {
    unsigned h, m;
    int used = 0;
    if (sscanf(text, "%2u:%2u:%n", &h, &m, &used) != 2 || used == 0 || h > 23 || m > 59) return 0;
    char *end;
    errno = 0;
    double s = strtod(text + used, &end);
    int is_digit = text[used] >= '0' && text[used] <= '9';
    if (errno || *end || !is_digit || !(s >= 0 && s < 60)) return 0;
    *out = ((int64_t)h * 3600 + (int64_t)m * 60) * TDM_NS_PER_S + (int64_t)(s * 1e9);
    return 1;
}

/* date_time reads "2026-12-01T11:08:49.755Z", as tables tell times, into
   nanoseconds since 1970. */
static int date_time(const char *text, int64_t *out) {
    char clock[32];
    struct tm tm = {0};
    int used = 0;
    if (sscanf(text, "%4d-%2d-%2dT%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &used) != 3 || !used)
        return 0;
    size_t sz = strlen(text + used);
    if (sz < 2 || sz >= sizeof clock || text[(size_t)used + sz - 1] != 'Z') return 0;
    (void)snprintf(clock, sizeof clock, "%.*s", (int)(sz - 1), text + used);
    int64_t ns;
    if (tm.tm_mon < 1 || tm.tm_mon > 12 || tm.tm_mday < 1 || tm.tm_mday > 31) return 0;
    if (tm.tm_year < 1970 || !clock_time(clock, &ns)) return 0;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    *out = (int64_t)timegm(&tm) * TDM_NS_PER_S + ns;
    return 1;
}

tdm_status_t tdm_ctl_when(const char *text, int64_t now_ns, int64_t *out) {
    int64_t ns;
    if (strchr(text, 'T')) return date_time(text, out) ? TDM_OK : TDM_ERR_INVAL;
    if (strchr(text, ':')) {
        if (!clock_time(text, &ns)) return TDM_ERR_INVAL;
        int64_t day_ns = (int64_t)DAY_S * TDM_NS_PER_S;
        *out = now_ns / day_ns * day_ns + ns;
        if (*out > now_ns) *out -= day_ns;
        return TDM_OK;
    }
    char *end;
    errno = 0;
    double s = strtod(text, &end);
    if (errno || end == text || *end || !isfinite(s) || fabs(s) > 1e10) return TDM_ERR_INVAL;
    *out = text[0] == '-' ? now_ns + (int64_t)(s * 1e9) : (int64_t)(s * 1e9);
    return TDM_OK;
}

/* --- arguments -------------------------------------------------------- */

static int whole(const char *text, uint64_t most, uint64_t *out) {
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && !errno && !*end && *out > 0 && *out <= most;
}

/* What a command takes of it. */
typedef struct option {
    const char *name;
    const char **text; /* where its value goes as it is; NULL: ... */
    uint64_t *number;  /* ... as a number; NULL: it has none */
    uint64_t most;     /* of it */
} option_t;

static tdm_status_t parse(int argc, char **argv, const option_t *option, size_t cnt, ask_t *a,
                          tdm_error_t *err) {
    for (int i = 2; i < argc; i++) {
        size_t k = 0;
        while (k < cnt && strcmp(argv[i], option[k].name) != 0) k++;
        if (k == cnt) return tdm_ctl_no_use(argv[i], err);
        if (!option[k].text && !option[k].number) {
            a->is_slowest = 1;
            continue;
        }
        if (i + 1 == argc) return tdm_error_set(err, TDM_ERR_INVAL, "%s takes a value", argv[i]);
        if (option[k].text)
            *option[k].text = argv[i + 1];
        else if (!whole(argv[i + 1], option[k].most, option[k].number))
            return tdm_error_set(err, TDM_ERR_INVAL,
                                 "%s takes a whole number from 1 to %llu, not \"%.40s\"", argv[i],
                                 (unsigned long long)option[k].most, argv[i + 1]);
        i++;
    }
    return TDM_OK;
}

static int open_file(const ask_t *a, const char *version, tdm_flight_file_t *f) {
    tdm_error_t err = {0};
    if (tdm_flight_open(f, a->path, version, &err) == TDM_OK) return 1;
    fprintf(stderr, "tandemctl: %s\n", err.text);
    return 0;
}

/* --- trace ------------------------------------------------------------ */

int tdm_ctl_trace(int argc, char **argv, const char *version) {
    ask_t a = {.path = FLIGHT_PATH, .format = "chrome"};
    const option_t option[] = {{"--flight", &a.path, NULL, 0},
                               {"--format", &a.format, NULL, 0},
                               {"--seconds", NULL, &a.seconds, SECONDS_MAX}};
    tdm_error_t err = {0};
    if (parse(argc, argv, option, TDM_COUNT_OF(option), &a, &err) != TDM_OK)
        return tdm_ctl_usage("trace", &err);
    int is_otlp = strcmp(a.format, "otlp") == 0;
    if (!is_otlp && strcmp(a.format, "chrome") != 0) {
        fprintf(stderr, "tandemctl: --format takes chrome or otlp\n");
        return TDM_EXIT_USAGE;
    }
    tdm_flight_file_t f;
    if (!open_file(&a, version, &f)) return TDM_EXIT_FAILED;
    tdm_trace_span_t span = {.from_ns = 0, .to_ns = INT64_MAX};
    if (a.seconds) span.from_ns = tdm_clock_now_ns() - (int64_t)a.seconds * TDM_NS_PER_S;
    tdm_status_t st =
        is_otlp ? tdm_trace_otlp(f.mem, &span, stdout) : tdm_trace_chrome(f.mem, &span, stdout);
    tdm_flight_close(&f);
    if (st != TDM_OK) fprintf(stderr, "tandemctl: the trace could not be written\n");
    return st == TDM_OK ? 0 : TDM_EXIT_FAILED;
}

/* --- explain ---------------------------------------------------------- */

/* fallback_of gives the reason of a name, TDM_REASON_NONE: none. */
static uint32_t fallback_of(const char *name) {
    for (uint32_t r = 1; r < TDM_REASON_CNT; r++)
        if (tdm_reason_group_of((tdm_reason_t)r) == TDM_GROUP_FALLBACK &&
            strcmp(tdm_reason_name((tdm_reason_t)r), name) == 0)
            return r;
    return TDM_REASON_NONE;
}

/* choose finds the iteration that was asked for; -1: usage. */
static int choose(const ask_t *a, const void *mem, tdm_flight_iteration_t *r) {
    const tdm_flight_head_t *h = mem;
    int64_t at_ns = 0;
    if (a->iteration) return tdm_explain_number(mem, a->iteration, r);
    if (a->fallback) {
        uint32_t reason = fallback_of(a->fallback);
        if (reason == TDM_REASON_NONE) {
            fprintf(stderr, "tandemctl: %s is no fallback reason\n", a->fallback);
            return -1;
        }
        return tdm_explain_slowest(mem, reason, r);
    }
    if (a->is_slowest) return tdm_explain_slowest(mem, 0, r);
    if (!a->at) return tdm_explain_find(mem, 0, r);
    if (tdm_ctl_when(a->at, wall_ns(), &at_ns) != TDM_OK) {
        fprintf(
            stderr,
            "tandemctl: --at takes HH:MM:SS (UTC), YYYY-MM-DDTHH:MM:SSZ, seconds since 1970, or "
            "-SECONDS\n");
        return -1;
    }
    return tdm_explain_find(mem, at_ns - h->wall_offset_ns, r);
}

int tdm_ctl_explain(int argc, char **argv, const char *version) {
    ask_t a = {.path = FLIGHT_PATH};
    const option_t option[] = {{"--flight", &a.path, NULL, 0},
                               {"--at", &a.at, NULL, 0},
                               {"--fallback", &a.fallback, NULL, 0},
                               {"--iteration", NULL, &a.iteration, UINT64_MAX},
                               {"--slowest", NULL, NULL, 0}};
    tdm_error_t err = {0};
    if (parse(argc, argv, option, TDM_COUNT_OF(option), &a, &err) != TDM_OK)
        return tdm_ctl_usage("explain", &err);
    if ((a.iteration > 0) + (a.at != NULL) + (a.fallback || a.is_slowest) > 1) {
        (void)tdm_error_set(&err, TDM_ERR_INVAL,
                            "one of --at, --iteration, --slowest and --fallback");
        return tdm_ctl_usage("explain", &err);
    }
    tdm_flight_file_t f;
    if (!open_file(&a, version, &f)) return TDM_EXIT_FAILED;
    tdm_flight_iteration_t r;
    char text[2048];
    int is_found = choose(&a, f.mem, &r);
    if (is_found == 1) {
        (void)tdm_explain(&r, ((const tdm_flight_head_t *)f.mem)->wall_offset_ns, text,
                          sizeof text);
        fputs(text, stdout);
    } else if (is_found == 0) {
        fprintf(stderr, "tandemctl: no such iteration in %s\n", a.path);
    }
    tdm_flight_close(&f);
    return is_found == 1 ? 0 : is_found == 0 ? TDM_EXIT_FAILED : TDM_EXIT_USAGE;
}
