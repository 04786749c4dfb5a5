/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/doctor_private.h"

#include "appliance/setup/store.h"

#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a TAP port and the tiny model take, with room for a small NIC. */
#define HUGE_MB_DEFAULT 256u
/* DPDK and the CUDA driver pin what they map; 8 MiB is Debian's default. */
#define MEMLOCK_MIN (UINT64_C(1) << 30)
/* net, api, scheduler and executor: a core each where tiles spin. */
#define CPU_MIN 4u

/* --- reading -------------------------------------------------------------- */

static int path_of(const tdm_doctor_t *d, char out[PATH_MAX], const char *fmt, va_list args) {
    int used = snprintf(out, PATH_MAX, "%s", d->ask->root);
    if (used < 0 || used >= PATH_MAX) return 0;
    int n = vsnprintf(out + used, (size_t)(PATH_MAX - used), fmt, args);
    return n >= 0 && n < PATH_MAX - used;
}

int tdm_doctor_read(const tdm_doctor_t *d, char *out, size_t cap, const char *fmt, ...) {
    char path[PATH_MAX];
    va_list args;
    va_start(args, fmt);
    int is_path = path_of(d, path, fmt, args);
    va_end(args);
    out[0] = 0;
    FILE *f = is_path ? fopen(path, "re") : NULL;
    if (!f) return 0;
    int is_read = fgets(out, (int)cap, f) != NULL;
    (void)fclose(f);
    out[strcspn(out, "\n")] = 0;
    return is_read;
}

/* read_link gives the last part of where a link leads. */
static int read_link(const tdm_doctor_t *d, char *out, size_t cap, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static int read_link(const tdm_doctor_t *d, char *out, size_t cap, const char *fmt, ...) {
    char path[PATH_MAX], to[PATH_MAX];
    va_list args;
    va_start(args, fmt);
    int is_path = path_of(d, path, fmt, args);
    va_end(args);
    ssize_t n = is_path ? readlink(path, to, sizeof to - 1) : -1;
    if (n < 0) return 0;
    to[n] = 0;
    const char *slash = strrchr(to, '/');
    const char *last = slash ? slash + 1 : to;
    size_t last_sz = TDM_MIN(strlen(last), cap - 1);
    memcpy(out, last, last_sz);
    out[last_sz] = 0;
    return 1;
}

static int is_there(const tdm_doctor_t *d, struct stat *sb, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int is_there(const tdm_doctor_t *d, struct stat *sb, const char *fmt, ...) {
    char path[PATH_MAX];
    va_list args;
    va_start(args, fmt);
    int is_path = path_of(d, path, fmt, args);
    va_end(args);
    return is_path && stat(path, sb) == 0;
}

/* count_entries counts what a folder holds that begins with prefix. */
static uint32_t count_entries(const tdm_doctor_t *d, const char *folder, const char *prefix) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s", d->ask->root, folder) >= (int)sizeof path) return 0;
    DIR *dir = opendir(path);
    uint32_t cnt = 0;
    if (!dir) return 0;
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
        cnt += e->d_name[0] != '.' && strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    (void)closedir(dir);
    return cnt;
}

static uint64_t read_u64(const tdm_doctor_t *d, const char *folder, const char *name) {
    char text[64];
    return tdm_doctor_read(d, text, sizeof text, "%s/%s", folder, name) ? strtoull(text, NULL, 10)
                                                                        : 0;
}

/* --- telling ---------------------------------------------------------------- */

void tdm_doctor_tell(tdm_doctor_t *d, const char *what, tdm_doctor_state_t state, const char *fix,
                     const char *fmt, ...) {
    static tdm_doctor_line_t lost;
    tdm_doctor_line_t *l = d->cnt < TDM_DOCTOR_LINE_MAX ? &d->line[d->cnt++] : &lost;
    va_list args;
    memset(l, 0, sizeof *l);
    l->state = state;
    (void)snprintf(l->what, sizeof l->what, "%s", what);
    (void)snprintf(l->fix, sizeof l->fix, "%s", state == TDM_DOCTOR_OK ? "" : fix);
    va_start(args, fmt);
    (void)vsnprintf(l->found, sizeof l->found, fmt, args);
    va_end(args);
}

/* --- memory ------------------------------------------------------------------- */

/* Each node is told; what decides is the machine's sum, for a house on one
   node needs pages there alone. */
static void check_hugepages(tdm_doctor_t *d) {
    static const struct {
        const char *folder;
        uint64_t kb;
    } page[] = {{"hugepages-2048kB", 2048}, {"hugepages-1048576kB", 1048576}};
    uint64_t free_mb[64] = {0}, total_mb[64] = {0}, sum_mb = 0;
    uint32_t node_cnt = count_entries(d, "/sys/devices/system/node", "node");
    if (node_cnt > TDM_COUNT_OF(free_mb)) node_cnt = TDM_COUNT_OF(free_mb);
    for (uint32_t n = 0; n < node_cnt; n++) {
        for (uint32_t i = 0; i < TDM_COUNT_OF(page); i++) {
            char folder[128];
            (void)snprintf(folder, sizeof folder, "/sys/devices/system/node/node%u/hugepages/%s", n,
                           page[i].folder);
            free_mb[n] += read_u64(d, folder, "free_hugepages") * page[i].kb / 1024;
            total_mb[n] += read_u64(d, folder, "nr_hugepages") * page[i].kb / 1024;
        }
        /* An appliance that serves has taken its own already. */
        sum_mb += d->has_setup ? total_mb[n] : free_mb[n];
    }
    tdm_doctor_state_t state = sum_mb >= d->huge_mb ? TDM_DOCTOR_OK
                               : sum_mb             ? TDM_DOCTOR_DEGRADED
                                                    : TDM_DOCTOR_MISSING;
    char fix[128];
    (void)snprintf(fix, sizeof fix,
                   d->has_setup ? "machine.hugepages_2m of appliance.json: %u"
                                : "TANDEM_HUGEPAGES=%u in /etc/default/tandem, then systemctl "
                                  "restart tandem-hugepages",
                   d->huge_mb / 2);
    for (uint32_t n = 0; n < node_cnt; n++) {
        char what[32];
        (void)snprintf(what, sizeof what, "hugepages node%u", n);
        tdm_doctor_tell(d, what, state, fix,
                        "%" PRIu64 " of %" PRIu64 " MiB free, %u wanted in all", free_mb[n],
                        total_mb[n], d->huge_mb);
    }
    if (node_cnt == 0)
        tdm_doctor_tell(d, "hugepages", TDM_DOCTOR_MISSING,
                        "a kernel with CONFIG_HUGETLBFS and sysfs", "no memory node is listed");
}

static void check_memlock(tdm_doctor_t *d) {
    static const char fix[] = "LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited";
    char path[PATH_MAX], line[256], soft[32] = "";
    FILE *f = NULL;
    if (snprintf(path, sizeof path, "%s/proc/self/limits", d->ask->root) < (int)sizeof path)
        f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Max locked memory %31s", soft) == 1) break;
    if (f) (void)fclose(f);
    if (!soft[0]) {
        tdm_doctor_tell(d, "memory lock", TDM_DOCTOR_ABSENT, "", "no limit is told");
        return;
    }
    int is_enough = strcmp(soft, "unlimited") == 0 || strtoull(soft, NULL, 10) >= MEMLOCK_MIN;
    tdm_doctor_tell(d, "memory lock", is_enough ? TDM_DOCTOR_OK : TDM_DOCTOR_DEGRADED, fix,
                    "limit %s bytes", soft);
}

/* --- processors --------------------------------------------------------------- */

static void check_cpus(tdm_doctor_t *d) {
    char isolated[128], nohz[128], clock[64];
    uint32_t cnt = 0;
    for (char path[64]; cnt < 4096; cnt++) {
        struct stat sb;
        (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u", cnt);
        if (!is_there(d, &sb, "%s", path)) break;
    }
    tdm_doctor_tell(d, "processors", cnt >= CPU_MIN ? TDM_DOCTOR_OK : TDM_DOCTOR_DEGRADED,
                    "tile.poll=adaptive (tiles share cores), or a larger machine",
                    "%u, a tile each wants %u", cnt, CPU_MIN);
    (void)tdm_doctor_read(d, isolated, sizeof isolated, "/sys/devices/system/cpu/isolated");
    (void)tdm_doctor_read(d, nohz, sizeof nohz, "/sys/devices/system/cpu/nohz_full");
    int is_nohz = nohz[0] && strcmp(nohz, "(null)") != 0;
    tdm_doctor_tell(
        d, "cpu isolation", isolated[0] && is_nohz ? TDM_DOCTOR_OK : TDM_DOCTOR_DEGRADED,
        "kernel command line: isolcpus=managed_irq,domain,N-M nohz_full=N-M rcu_nocbs=N-M "
        "(tandemctl appliance kernel)",
        "isolated \"%s\", nohz_full \"%s\"", isolated, is_nohz ? nohz : "");
    if (!tdm_doctor_read(d, clock, sizeof clock,
                         "/sys/devices/system/clocksource/clocksource0/current_clocksource")) {
        tdm_doctor_tell(d, "clock source", TDM_DOCTOR_ABSENT, "", "none is told");
        return;
    }
    int is_tsc = strcmp(clock, "tsc") == 0 || strcmp(clock, "arch_sys_counter") == 0;
    tdm_doctor_tell(d, "clock source", is_tsc ? TDM_DOCTOR_OK : TDM_DOCTOR_DEGRADED,
                    "kernel command line: tsc=reliable clocksource=tsc", "%s", clock);
}

static void check_governor(tdm_doctor_t *d) {
    uint32_t slow_cnt = 0, cnt = 0;
    char governor[64], other[64] = "";
    for (uint32_t i = 0; i < 4096; i++) {
        struct stat sb;
        if (!is_there(d, &sb, "/sys/devices/system/cpu/cpu%u", i)) break;
        if (!tdm_doctor_read(d, governor, sizeof governor,
                             "/sys/devices/system/cpu/cpu%u/cpufreq/scaling_governor", i))
            continue;
        cnt++;
        if (strcmp(governor, "performance") == 0) continue;
        if (slow_cnt++ == 0) memcpy(other, governor, sizeof other);
    }
    if (cnt == 0)
        tdm_doctor_tell(d, "governor", TDM_DOCTOR_ABSENT, "", "no frequency control here");
    else if (slow_cnt == 0)
        tdm_doctor_tell(d, "governor", TDM_DOCTOR_OK, "", "performance on %u processors", cnt);
    else
        tdm_doctor_tell(d, "governor", TDM_DOCTOR_DEGRADED, "cpupower frequency-set -g performance",
                        "%.48s on %u of %u processors", other, slow_cnt, cnt);
}

/* --- devices -------------------------------------------------------------------- */

static void check_iommu(tdm_doctor_t *d) {
    char unsafe[16];
    uint32_t unit_cnt = count_entries(d, "/sys/class/iommu", "");
    uint32_t group_cnt = count_entries(d, "/sys/kernel/iommu_groups", "");
    (void)tdm_doctor_read(d, unsafe, sizeof unsafe,
                          "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode");
    if (unsafe[0] == 'Y' || unsafe[0] == '1')
        tdm_doctor_tell(d, "iommu", TDM_DOCTOR_DEGRADED,
                        "turn VT-d or AMD-Vi on in the firmware, then enable_unsafe_noiommu_mode=N",
                        "vfio runs without one: a NIC may write anywhere");
    else if (unit_cnt && group_cnt)
        tdm_doctor_tell(d, "iommu", TDM_DOCTOR_OK, "", "%u units, %u groups", unit_cnt, group_cnt);
    else
        tdm_doctor_tell(
            d, "iommu", TDM_DOCTOR_DEGRADED,
            "VT-d or AMD-Vi in the firmware; kernel command line: intel_iommu=on iommu=pt",
            "none; a TAP or af_packet port needs none, a PCI NIC does");
}

/* check_nic takes an interface name or a PCI address (with a colon). */
static void check_nic(tdm_doctor_t *d) {
    const char *nic = d->nic;
    char folder[256], driver[64] = "none", node[16] = "-1";
    struct stat sb;
    if (!nic) {
        tdm_doctor_tell(d, "nic", TDM_DOCTOR_ABSENT, "tandemctl doctor NIC checks one",
                        d->has_setup ? "none: HTTP/1.1 alone"
                                     : "none named; a TAP port needs none");
        return;
    }
    int is_pci = strchr(nic, ':') != NULL;
    if (strchr(nic, '/') || strlen(nic) > 64 ||
        snprintf(folder, sizeof folder, is_pci ? "/sys/bus/pci/devices/%s" : "/sys/class/net/%s",
                 nic) >= (int)sizeof folder ||
        !is_there(d, &sb, "%s", folder)) {
        tdm_doctor_tell(d, "nic", TDM_DOCTOR_MISSING, "ls /sys/class/net /sys/bus/pci/devices",
                        "%.64s: no such interface or PCI device", nic);
        return;
    }
    const char *device = is_pci ? "" : "/device";
    (void)read_link(d, driver, sizeof driver, "%s%s/driver", folder, device);
    (void)tdm_doctor_read(d, node, sizeof node, "%s%s/numa_node", folder, device);
    int is_user = strcmp(driver, "vfio-pci") == 0 || strcmp(driver, "uio_pci_generic") == 0;
    char fix[128];
    (void)snprintf(fix, sizeof fix, "systemctl enable --now tandem-nic@%.64s.service", nic);
    tdm_doctor_tell(d, "nic driver", is_user || !is_pci ? TDM_DOCTOR_OK : TDM_DOCTOR_DEGRADED, fix,
                    "%.64s: %s%s", nic, driver,
                    is_user ? "" : ", the kernel's: af_packet and af_xdp ports work");
    if (node[0] == '-')
        tdm_doctor_tell(d, "nic node", TDM_DOCTOR_ABSENT, "", "the device tells no memory node");
    else
        tdm_doctor_tell(d, "nic node", TDM_DOCTOR_OK, "",
                        "node %s: pin the net tile and its pages there", node);
}

static void check_tun(tdm_doctor_t *d) {
    struct stat sb;
    int is_found = is_there(d, &sb, "/dev/net/tun");
    tdm_doctor_tell(d, "tun device", is_found ? TDM_DOCTOR_OK : TDM_DOCTOR_MISSING,
                    "modprobe tun; in a container: --device /dev/net/tun --cap-add NET_ADMIN",
                    is_found ? "/dev/net/tun" : "no /dev/net/tun: no TAP port");
}

/* --- the model -------------------------------------------------------------------- */

static void check_model(tdm_doctor_t *d) {
    static const char fix[] =
        "model.path: a .gguf file, a folder of safetensors, or dummy:tiny for random weights";
    const char *model = d->ask->model;
    struct stat sb;
    if (!model) {
        tdm_doctor_tell(d, "model", TDM_DOCTOR_ABSENT, "tandemctl doctor --model PATH checks one",
                        "none named");
    } else if (strncmp(model, "dummy:", 6) == 0) {
        tdm_doctor_tell(d, "model", TDM_DOCTOR_OK, "", "%.64s: random weights, no file", model);
    } else if (!is_there(d, &sb, "%s%s", model[0] == '/' ? "" : "/", model)) {
        tdm_doctor_tell(d, "model", TDM_DOCTOR_MISSING, fix, "%.100s: no such file", model);
    } else if (S_ISDIR(sb.st_mode)) {
        struct stat config;
        int is_model = is_there(d, &config, "%s/config.json", model);
        tdm_doctor_tell(d, "model", is_model ? TDM_DOCTOR_OK : TDM_DOCTOR_MISSING, fix,
                        "%.100s: %s", model,
                        is_model ? "a folder with config.json" : "a folder without config.json");
    } else {
        char magic[5];
        int is_model =
            tdm_doctor_read(d, magic, sizeof magic, "%s", model) && !strcmp(magic, "GGUF");
        tdm_doctor_tell(d, "model", is_model ? TDM_DOCTOR_OK : TDM_DOCTOR_MISSING, fix,
                        "%.100s: %s, %lld MiB", model, is_model ? "GGUF" : "no GGUF file",
                        (long long)(sb.st_size >> 20));
    }
}

/* --- all of it ---------------------------------------------------------------------- */

uint32_t tdm_doctor_check(const tdm_doctor_ask_t *ask, tdm_doctor_line_t *line) {
    tdm_doctor_t d = {.ask = ask, .line = line, .nic = ask->nic, .huge_mb = ask->huge_mb};
    tdm_doctor_check_setup(&d);
    check_hugepages(&d);
    if (!d.has_setup) check_memlock(&d); /* its unit has no limit */
    check_cpus(&d);
    check_governor(&d);
    check_iommu(&d);
    check_nic(&d);
    if (!d.has_setup) check_tun(&d); /* it has a NIC, or HTTP/1.1 alone */
    check_model(&d);
    return d.cnt;
}

const char *tdm_doctor_state_name(tdm_doctor_state_t state) {
    static const char *const name[] = {"ok", "degraded", "missing", "absent"};
    return state < TDM_DOCTOR_STATE_CNT ? name[state] : "unknown";
}

static int print_json(const tdm_doctor_line_t *line, uint32_t cnt) {
    json_t *all = json_array();
    for (uint32_t i = 0; i < cnt; i++)
        (void)json_array_append_new(all, json_pack("{ssssssss}", "check", line[i].what, "state",
                                                   tdm_doctor_state_name(line[i].state), "found",
                                                   line[i].found, "fix", line[i].fix));
    char *text = json_dumps(all, JSON_INDENT(1));
    json_decref(all);
    if (!text) return 0;
    (void)puts(text);
    free(text);
    return 1;
}

int tdm_doctor(const tdm_ctl_options_t *options) {
    tdm_doctor_line_t line[TDM_DOCTOR_LINE_MAX];
    char model[PATH_MAX];
    tdm_doctor_ask_t ask = {.root = "",
                            .nic = options->word_cnt ? options->word[0] : NULL,
                            .model = options->model,
                            .huge_mb = HUGE_MB_DEFAULT};
    if (ask.model && strncmp(ask.model, "dummy:", 6) != 0 && realpath(ask.model, model))
        ask.model = model;
    uint32_t cnt = tdm_doctor_check(&ask, line), bad_cnt = 0;
    for (uint32_t i = 0; i < cnt; i++)
        bad_cnt += line[i].state == TDM_DOCTOR_DEGRADED || line[i].state == TDM_DOCTOR_MISSING;
    if (options->is_json) return print_json(line, cnt) ? (bad_cnt ? 3 : 0) : 1;
    for (uint32_t i = 0; i < cnt; i++) {
        printf("%-9s %-17s %s\n", tdm_doctor_state_name(line[i].state), line[i].what,
               line[i].found);
        if (line[i].fix[0]) printf("%-9s %-17s fix: %s\n", "", "", line[i].fix);
    }
    return bad_cnt ? 3 : 0;
}
