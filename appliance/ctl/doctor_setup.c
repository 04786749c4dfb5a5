/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/doctor_private.h"

#include "appliance/setup/store.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AGAIN "systemctl restart tandem-first-boot"

static void check_files(tdm_doctor_t *d, const tdm_error_t *warning) {
    uint32_t cnt = 0, bad_cnt = 0;
    char first[128] = "", refused[160];
    tdm_error_t err = {0};
    if (tdm_doctor_read(d, refused, sizeof refused, TDM_SETUP_RUN "/refused"))
        tdm_doctor_tell(d, "appliance.json", TDM_DOCTOR_DEGRADED,
                        "mend the file on the partition TANDEM-CONF, then " AGAIN, "refused: %s",
                        refused);
    else if (warning->status != TDM_OK)
        tdm_doctor_tell(d, "appliance.json", TDM_DOCTOR_MISSING,
                        "a file that this version takes: tandemctl appliance accept FOLDER",
                        "not used: %.140s", warning->text);
    else
        tdm_doctor_tell(d, "appliance.json", TDM_DOCTOR_OK, "", "accepted");
    if (tdm_setup_held(d->ask->root, &cnt, &bad_cnt, first, &err) != TDM_OK)
        tdm_doctor_tell(d, "rendered files", TDM_DOCTOR_MISSING, AGAIN, "%.150s", err.text);
    else if (bad_cnt)
        tdm_doctor_tell(d, "rendered files", TDM_DOCTOR_MISSING, AGAIN, "%u of %u differ: %.100s",
                        bad_cnt, cnt, first);
    else
        tdm_doctor_tell(d, "rendered files", TDM_DOCTOR_OK, "", "%u, as appliance.json says", cnt);
}

static void check_name(tdm_doctor_t *d, const tdm_setup_t *s, const tdm_setup_facts_t *facts) {
    char want[64], now[80];
    tdm_setup_hostname(s, facts, want);
    (void)tdm_doctor_read(d, now, sizeof now, "/proc/sys/kernel/hostname");
    tdm_doctor_tell(d, "hostname", strcmp(want, now) == 0 ? TDM_DOCTOR_OK : TDM_DOCTOR_DEGRADED,
                    AGAIN, "%s, wanted %s", now, want);
}

/* Each argument is a line of its own: one may be there and another not. */
static void check_arguments(tdm_doctor_t *d, const tdm_setup_t *s) {
    static const char fix[] = "into the kernel command line: tandemctl appliance kernel, and "
                              "appliance.md, Kernel arguments";
    char want[1024], have[4096], what[32], *rest = NULL;
    char line[4000];
    (void)tdm_doctor_read(d, line, sizeof line, "/proc/cmdline");
    (void)snprintf(have, sizeof have, " %s ", line);
    if (tdm_setup_kernel(s, want, sizeof want) >= sizeof want) return;
    for (char *word = strtok_r(want, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char bounded[600];
        (void)snprintf(bounded, sizeof bounded, " %s ", word);
        int is_there = strstr(have, bounded) != NULL;
        (void)snprintf(what, sizeof what, "kernel %.*s", (int)strcspn(word, "="), word);
        tdm_doctor_tell(d, what, is_there ? TDM_DOCTOR_OK : TDM_DOCTOR_DEGRADED, fix, "%s%.100s",
                        is_there ? "" : "not booted with ", word);
    }
}

static void check_house(tdm_doctor_t *d, const tdm_setup_t *s) {
    char now[128];
    if (!s->machine_house_cpus[0]) return;
    if (!tdm_doctor_read(d, now, sizeof now, "/sys/fs/cgroup/system.slice/cpuset.cpus")) {
        tdm_doctor_tell(d, "house processors", TDM_DOCTOR_DEGRADED,
                        "systemd with the cpuset controller of control groups 2",
                        "system.slice has no cpuset");
        return;
    }
    int is_same = strcmp(now, s->machine_house_cpus) == 0;
    tdm_doctor_tell(d, "house processors", is_same ? TDM_DOCTOR_OK : TDM_DOCTOR_DEGRADED, AGAIN,
                    "system.slice on %.60s, wanted %.60s", now, s->machine_house_cpus);
}

/* is_here looks for an address among the machine's own: of IPv4 in
   /proc/net/fib_trie ("|-- ADDRESS" before "/32 host LOCAL"), of IPv6 in
   /proc/net/if_inet6 (32 hexadecimal digits first). */
static int is_here(const tdm_doctor_t *d, const char *address) {
    unsigned char bytes[16];
    char path[PATH_MAX], line[256], want[80] = "", last[256] = "";
    int is_v6 = strchr(address, ':') != NULL, is_found = 0;
    if (inet_pton(is_v6 ? AF_INET6 : AF_INET, address, bytes) != 1) return 0;
    if (is_v6)
        for (size_t i = 0; i < sizeof bytes; i++)
            (void)snprintf(want + 2 * i, sizeof want - 2 * i, "%02x", bytes[i]);
    else
        (void)snprintf(want, sizeof want, "|-- %s\n", address);
    if (snprintf(path, sizeof path, "%s/proc/net/%s", d->ask->root,
                 is_v6 ? "if_inet6" : "fib_trie") >= (int)sizeof path)
        return 0;
    FILE *f = fopen(path, "re");
    while (f && !is_found && fgets(line, sizeof line, f)) {
        is_found = is_v6 ? strncmp(line, want, 32) == 0
                         : strstr(line, "/32 host LOCAL") && strstr(last, want);
        memcpy(last, line, sizeof last);
    }
    if (f) (void)fclose(f);
    return is_found;
}

static void check_management(tdm_doctor_t *d, const tdm_setup_t *s) {
    char address[64];
    if (!s->management_address[0]) return;
    (void)snprintf(address, sizeof address, "%.*s", (int)strcspn(s->management_address, "/"),
                   s->management_address);
    int has_it = is_here(d, address);
    tdm_doctor_tell(d, "management address", has_it ? TDM_DOCTOR_OK : TDM_DOCTOR_DEGRADED,
                    "networkctl status; management.nic of appliance.json", "%s%s", address,
                    has_it ? "" : " is on no interface");
}

void tdm_doctor_check_setup(tdm_doctor_t *d) {
    tdm_setup_facts_t facts;
    tdm_error_t warning = {0}, err = {0};
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s" TDM_SETUP_STATE "/accepted", d->ask->root);
    if (n >= (int)sizeof path || access(path, F_OK) != 0) return;
    tdm_setup_t *s = malloc(sizeof *s);
    if (!s) return;
    d->has_setup = 1;
    if (tdm_setup_accepted(d->ask->root, s, &facts, &warning, &err) != TDM_OK) {
        tdm_doctor_tell(d, "appliance.json", TDM_DOCTOR_MISSING,
                        "as root; or tandemctl appliance accept FOLDER", "%.150s", err.text);
    } else {
        check_files(d, &warning);
        check_name(d, s, &facts);
        check_arguments(d, s);
        check_house(d, s);
        check_management(d, s);
        if (s->machine_hugepages_2m || s->machine_hugepages_1g)
            d->huge_mb = (uint32_t)(s->machine_hugepages_2m * 2 + s->machine_hugepages_1g * 1024);
        memcpy(d->setup_nic, s->data_nic, sizeof d->setup_nic);
        if (!d->nic && d->setup_nic[0]) d->nic = d->setup_nic;
    }
    free(s);
}
