/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/sizing/cpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- lists ------------------------------------------------------------ */

static int number(const char **at, uint32_t *out) {
    char *end;
    if (**at < '0' || **at > '9') return 0;
    unsigned long n = strtoul(*at, &end, 10);
    *at = end;
    *out = (uint32_t)n;
    return n < TDM_CPU_MAX;
}

static int add(tdm_cpus_t *c, uint32_t cpu) {
    for (uint32_t i = 0; i < c->cnt; i++)
        if (c->cpu[i] == cpu) return 0;
    c->cpu[c->cnt++] = (uint16_t)cpu;
    return 1;
}

tdm_status_t tdm_cpus_parse(const char *text, tdm_cpus_t *out, tdm_error_t *err) {
    const char *at = text;
    out->cnt = 0;
    while (*at) {
        uint32_t from, to;
        int is_good = number(&at, &from);
        to = from;
        if (is_good && *at == '-') is_good = (at++, number(&at, &to)) && from <= to;
        for (uint32_t cpu = from; is_good && cpu <= to; cpu++) is_good = add(out, cpu);
        if (is_good && *at == ',')
            is_good = at[1] != 0 ? (at++, 1) : 0;
        else
            is_good = is_good && *at == 0;
        if (is_good) continue;
        out->cnt = 0;
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "tile.cpus: \"%s\" is no list of processors under %u, as 2,4-6", text,
                             TDM_CPU_MAX);
    }
    return TDM_OK;
}

/* --- control groups ---------------------------------------------------- */

static uint32_t cores(long long quota, long long period) {
    if (quota <= 0 || period <= 0) return 0;
    long long n = (quota - 1) / period + 1;
    return n < (long long)TDM_CPU_MAX ? (uint32_t)n : TDM_CPU_MAX;
}

/* word_of reads the first line of dir/name. */
static int word_of(const char *dir, const char *name, char *out, size_t out_sz) {
    char path[1024];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path) return 0;
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    int is_read = fgets(out, (int)out_sz, f) != NULL;
    (void)fclose(f);
    return is_read;
}

/* limit_of: of one group's folder, whichever version it is. */
static uint32_t limit_of(const char *dir) {
    char line[64], period[64];
    long long quota, us;
    if (word_of(dir, "cpu.max", line, sizeof line))
        return sscanf(line, "%lld %lld", &quota, &us) == 2 ? cores(quota, us) : 0; /* "max" */
    if (!word_of(dir, "cpu.cfs_quota_us", line, sizeof line) ||
        !word_of(dir, "cpu.cfs_period_us", period, sizeof period))
        return 0;
    return cores(atoll(line), atoll(period)); /* -1: none */
}

static uint32_t least(uint32_t a, uint32_t b) {
    if (a == 0 || b == 0) return a + b;
    return a < b ? a : b;
}

/* limit_up: of the group and of all above it, up to the mount point. */
static uint32_t limit_up(const char *mount, const char *group) {
    char dir[1024];
    int n = snprintf(dir, sizeof dir, "%s%s", mount, group);
    if (n < 0 || n >= (int)sizeof dir) return 0;
    uint32_t found = 0;
    size_t root_sz = strlen(mount);
    for (;;) { /* one turn for each slash of a path of bounded length */
        found = least(found, limit_of(dir));
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < root_sz) return found;
        *slash = 0;
    }
}

/* has_cpu: the controllers of a line of version 1, "cpu,cpuacct". */
static int has_cpu(const char *list) {
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == ',' || at[3] == 0)) return 1;
    }
    return 0;
}

uint32_t tdm_cpus_limit(const char *proc_cgroup, const char *root) {
    char line[1024], mount[1024];
    uint32_t found = 0;
    FILE *f = fopen(proc_cgroup, "re");
    while (f && fgets(line, sizeof line, f)) { /* hierarchy:controllers:path */
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':');
        char *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        list++;
        if (strcmp(group, "/") == 0) group = "";
        if (list[0] == 0)
            (void)snprintf(mount, sizeof mount, "%.900s", root);
        else if (has_cpu(list))
            (void)snprintf(mount, sizeof mount, "%.500s/%.500s", root, list);
        else
            continue;
        found = least(found, limit_up(mount, group));
    }
    if (f) (void)fclose(f);
    return found;
}
