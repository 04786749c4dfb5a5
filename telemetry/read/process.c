/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/read/process.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t ns_of(const struct timeval *tv) {
    return (uint64_t)tv->tv_sec * 1000000000u + (uint64_t)tv->tv_usec * 1000u;
}

static uint64_t open_fds(void) {
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) return 0;
    uint64_t n = 0;
    while (readdir(dir)) n++;
    (void)closedir(dir);
    return n > 3 ? n - 3 : 0; /* ".", ".." and the directory itself */
}

/* boot_time_s is btime of /proc/stat (proc(5)), 0 if unknown. */
static uint64_t boot_time_s(void) {
    FILE *f = fopen("/proc/stat", "re");
    if (!f) return 0;
    char line[256];
    unsigned long long v = 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "btime %llu", &v) == 1) break;
    (void)fclose(f);
    return v;
}

/* stat_fields reads num_threads and starttime of /proc/self/stat; the
   second field may hold spaces, so counting begins behind its ")". */
static int stat_fields(uint64_t *threads, uint64_t *start_ticks) {
    char text[1024];
    FILE *f = fopen("/proc/self/stat", "re");
    if (!f) return 0;
    size_t sz = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[sz] = '\0';
    const char *p = strrchr(text, ')');
    unsigned long long n = 0, start = 0;
    if (!p || sscanf(p + 1,
                     " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %llu "
                     "%*d %llu",
                     &n, &start) != 2)
        return 0;
    *threads = n;
    *start_ticks = start;
    return 1;
}

void tdm_process_sample(tdm_block_t *block) {
    struct rusage ru;
    if (getrusage(RUSAGE_SELF, &ru) == 0)
        tdm_count_to(block, TDM_METRIC_process_cpu_seconds_total, 0,
                     ns_of(&ru.ru_utime) + ns_of(&ru.ru_stime));
    struct rlimit rl;
    if (getrlimit(RLIMIT_NOFILE, &rl) == 0)
        tdm_gauge_set(block, TDM_METRIC_process_max_fds, 0, rl.rlim_cur);
    tdm_gauge_set(block, TDM_METRIC_process_open_fds, 0, open_fds());
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long long pages = 0, resident = 0;
    uint64_t page_sz = (uint64_t)sysconf(_SC_PAGESIZE);
    if (f && fscanf(f, "%llu %llu", &pages, &resident) == 2) {
        tdm_gauge_set(block, TDM_METRIC_process_virtual_memory_bytes, 0, pages * page_sz);
        tdm_gauge_set(block, TDM_METRIC_process_resident_memory_bytes, 0, resident * page_sz);
    }
    if (f) (void)fclose(f);
    uint64_t threads, start;
    if (!stat_fields(&threads, &start)) return;
    tdm_gauge_set(block, TDM_METRIC_process_threads, 0, threads);
    long hz = sysconf(_SC_CLK_TCK);
    if (hz > 0)
        tdm_gauge_set(block, TDM_METRIC_process_start_time_seconds, 0,
                      boot_time_s() + start / (uint64_t)hz);
}
