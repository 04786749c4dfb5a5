/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: doctor sees each thing that is wrong with a machine, names it and
   says what to type; a good machine has no complaint.
   Method: a tree of files like those of a good server below a temporary
   folder, then one of them changed. */
#include "appliance/ctl/doctor.h"
#include "appliance/setup/store.h"
#include "tests/unit/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka wants the first two above */
#include <cmocka.h>

static char root[64];

static void put(const char *path, const char *text) {
    char full[512];
    (void)snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        (void)mkdir(full, 0755);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
}

static void drop(const char *path) {
    assert_int_equal(shell("rm -rf '%s%s'", root, path), 0);
}

static void lead(const char *path, const char *to) {
    char full[512];
    (void)snprintf(full, sizeof full, "%s%s", root, path);
    (void)unlink(full);
    assert_int_equal(symlink(to, full), 0);
}

#define NODE  "/sys/devices/system/node/node"
#define CPU   "/sys/devices/system/cpu/"
#define CLOCK "/sys/devices/system/clocksource/clocksource0/current_clocksource"
#define PCI   "/sys/bus/pci/devices/0000:65:00.0/"

static void put_limits(const char *soft) {
    char text[256];
    (void)snprintf(text, sizeof text,
                   "Limit                     Soft Limit           Hard Limit           Units\n"
                   "Max processes             99                   99                   processes\n"
                   "Max locked memory         %-20s unlimited            bytes\n",
                   soft);
    put("/proc/self/limits", text);
}

static int setup(void **state) {
    (void)state;
    strcpy(root, "/tmp/tdm-doctor-XXXXXX");
    if (!mkdtemp(root)) return -1;
    put(NODE "0/hugepages/hugepages-2048kB/nr_hugepages", "512\n");
    put(NODE "0/hugepages/hugepages-2048kB/free_hugepages", "512\n");
    put(NODE "1/hugepages/hugepages-1048576kB/nr_hugepages", "4\n");
    put(NODE "1/hugepages/hugepages-1048576kB/free_hugepages", "3\n");
    put_limits("unlimited");
    for (int i = 0; i < 4; i++) {
        char path[96];
        (void)snprintf(path, sizeof path, CPU "cpu%d/cpufreq/scaling_governor", i);
        put(path, "performance\n");
    }
    put(CPU "isolated", "2-3\n");
    put(CPU "nohz_full", "2-3\n");
    put(CLOCK, "tsc\n");
    put("/sys/class/iommu/dmar0/x", "");
    put("/sys/kernel/iommu_groups/7/x", "");
    put(PCI "numa_node", "1\n");
    lead(PCI "driver", "../../../../bus/pci/drivers/vfio-pci");
    put("/sys/class/net/eth0/device/numa_node", "-1\n");
    lead("/sys/class/net/eth0/device/driver", "../../drivers/virtio_net");
    put("/dev/net/tun", "");
    put("/models/a.gguf", "GGUF....");
    put("/models/b.gguf", "PK......");
    put("/models/hf/config.json", "{}");
    put("/models/empty/x", "");
    return 0;
}

static int teardown(void **state) {
    (void)state;
    drop("");
    return 0;
}

static tdm_doctor_line_t line[TDM_DOCTOR_LINE_MAX];
static uint32_t cnt;

static void check(const char *nic, const char *model) {
    tdm_doctor_ask_t ask = {.root = root, .nic = nic, .model = model, .huge_mb = 256};
    cnt = tdm_doctor_check(&ask, line);
}

static const tdm_doctor_line_t *of(const char *what) {
    for (uint32_t i = 0; i < cnt; i++)
        if (strcmp(line[i].what, what) == 0) return &line[i];
    fail_msg("no line about %s", what);
    return NULL;
}

static void is_state(const char *what, tdm_doctor_state_t want, const char *found,
                     const char *fix) {
    const tdm_doctor_line_t *l = of(what);
    if (l->state != want || !strstr(l->found, found) || !strstr(l->fix, fix))
        fail_msg("%s: %s, \"%s\", fix \"%s\"", what, tdm_doctor_state_name(l->state), l->found,
                 l->fix);
    assert_true((l->state == TDM_DOCTOR_DEGRADED || l->state == TDM_DOCTOR_MISSING) ? l->fix[0] != 0
                                                                                    : 1);
}

static void a_good_machine_has_no_complaint(void **state) {
    (void)state;
    check("0000:65:00.0", "/models/a.gguf");
    for (uint32_t i = 0; i < cnt; i++) {
        if (line[i].state != TDM_DOCTOR_OK) fail_msg("%s: %s", line[i].what, line[i].found);
        assert_string_equal(line[i].fix, "");
    }
    assert_int_equal(cnt, 12);
    is_state("hugepages node0", TDM_DOCTOR_OK, "1024 of 1024 MiB", "");
    is_state("hugepages node1", TDM_DOCTOR_OK, "3072 of 4096 MiB", "");
    is_state("nic node", TDM_DOCTOR_OK, "node 1", "");
}

static void missing_hugepages_are_told(void **state) {
    (void)state;
    put(NODE "1/hugepages/hugepages-1048576kB/free_hugepages", "0\n");
    put(NODE "0/hugepages/hugepages-2048kB/free_hugepages", "100\n");
    check(NULL, NULL);
    is_state("hugepages node0", TDM_DOCTOR_DEGRADED, "200 of 1024", "TANDEM_HUGEPAGES=128");
    put(NODE "0/hugepages/hugepages-2048kB/free_hugepages", "0\n");
    check(NULL, NULL);
    is_state("hugepages node1", TDM_DOCTOR_MISSING, "0 of 4096", "restart tandem-hugepages");
    drop("/sys/devices/system/node");
    check(NULL, NULL);
    is_state("hugepages", TDM_DOCTOR_MISSING, "no memory node", "");
}

static void processors_are_judged(void **state) {
    (void)state;
    put(CPU "cpu2/cpufreq/scaling_governor", "powersave\n");
    put(CPU "isolated", "\n");
    put(CLOCK, "hpet\n");
    drop(CPU "cpu3");
    check(NULL, NULL);
    is_state("processors", TDM_DOCTOR_DEGRADED, "3,", "adaptive");
    is_state("governor", TDM_DOCTOR_DEGRADED, "powersave on 1 of 3", "cpupower");
    is_state("cpu isolation", TDM_DOCTOR_DEGRADED, "nohz_full \"2-3\"", "isolcpus");
    is_state("clock source", TDM_DOCTOR_DEGRADED, "hpet", "clocksource=tsc");
    put(CPU "isolated", "1\n");
    put(CPU "nohz_full", "(null)\n"); /* so the kernel says none */
    for (int i = 0; i < 3; i++) {
        char path[96];
        (void)snprintf(path, sizeof path, CPU "cpu%d/cpufreq", i);
        drop(path);
    }
    drop("/sys/devices/system/clocksource");
    check(NULL, NULL);
    is_state("cpu isolation", TDM_DOCTOR_DEGRADED, "nohz_full \"\"", "nohz_full");
    is_state("governor", TDM_DOCTOR_ABSENT, "no frequency control", "");
    is_state("clock source", TDM_DOCTOR_ABSENT, "", "");
}

static void devices_are_judged(void **state) {
    (void)state;
    lead(PCI "driver", "../../../../bus/pci/drivers/mlx5_core");
    check("0000:65:00.0", NULL);
    is_state("nic driver", TDM_DOCTOR_DEGRADED, "mlx5_core",
             "enable --now tandem-nic@0000:65:00.0.service");
    check("eth0", NULL);
    is_state("nic driver", TDM_DOCTOR_OK, "virtio_net", "");
    is_state("nic node", TDM_DOCTOR_ABSENT, "", "");
    check("eth9", NULL);
    is_state("nic", TDM_DOCTOR_MISSING, "eth9", "/sys/class/net");
    check("../../../etc", NULL);
    is_state("nic", TDM_DOCTOR_MISSING, "no such", "");
    check(NULL, NULL);
    is_state("nic", TDM_DOCTOR_ABSENT, "none named", "");
    put("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
    check(NULL, NULL);
    is_state("iommu", TDM_DOCTOR_DEGRADED, "without one", "noiommu_mode=N");
    put("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n");
    drop("/sys/class/iommu");
    check(NULL, NULL);
    is_state("iommu", TDM_DOCTOR_DEGRADED, "none", "intel_iommu=on");
    drop("/dev/net/tun");
    check(NULL, NULL);
    is_state("tun device", TDM_DOCTOR_MISSING, "no TAP port", "modprobe tun");
}

static void memory_lock_is_judged(void **state) {
    (void)state;
    put_limits("8388608");
    check(NULL, NULL);
    is_state("memory lock", TDM_DOCTOR_DEGRADED, "8388608", "LimitMEMLOCK");
    put_limits("2147483648");
    check(NULL, NULL);
    is_state("memory lock", TDM_DOCTOR_OK, "2147483648", "");
    put("/proc/self/limits", "nonsense\n");
    check(NULL, NULL);
    is_state("memory lock", TDM_DOCTOR_ABSENT, "", "");
}

static void models_are_judged(void **state) {
    (void)state;
    check(NULL, "dummy:tiny");
    is_state("model", TDM_DOCTOR_OK, "random weights", "");
    check(NULL, "/models/hf");
    is_state("model", TDM_DOCTOR_OK, "config.json", "");
    check(NULL, "/models/empty");
    is_state("model", TDM_DOCTOR_MISSING, "without config.json", "model.path");
    check(NULL, "/models/b.gguf");
    is_state("model", TDM_DOCTOR_MISSING, "no GGUF file", "model.path");
    check(NULL, "/models/none.gguf");
    is_state("model", TDM_DOCTOR_MISSING, "no such file", "model.path");
    check(NULL, NULL);
    is_state("model", TDM_DOCTOR_ABSENT, "none named", "");
}

static void an_empty_tree_does_no_harm(void **state) {
    (void)state;
    drop("/sys");
    drop("/proc");
    drop("/dev");
    check("eth0", "/models/a.gguf");
    for (uint32_t i = 0; i < cnt; i++) assert_true(line[i].found[0] != 0);
    is_state("processors", TDM_DOCTOR_DEGRADED, "0,", "");
}

/* A machine that is what its appliance.json says, and then is not. */
static void appliance_json_is_held_against_the_machine(void **state) {
    (void)state;
    char offer[96], key[64];
    tdm_error_t err = {0}, warning = {0};
    put("/offer/appliance.json",
        "{\"machine\": {\"hostname\": \"tandem-7\", \"house_cpus\": \"0-1\", \"tile_cpus\": "
        "\"2-3\", \"hugepages_2m\": 2000}, \"management\": {\"nic\": \"eth0\", \"address\": "
        "\"192.0.2.5/24\"}, \"data\": {\"nic\": \"0000:65:00.0\", \"ipv6\": "
        "\"2001:db8::9/64\"}}");
    (void)snprintf(offer, sizeof offer, "%s/offer", root);
    assert_int_equal(tdm_setup_accept(root, offer, NULL, &err), TDM_OK);
    assert_int_equal(tdm_setup_write(root, key, &warning, &err), TDM_OK);
    put("/proc/sys/kernel/hostname", "tandem-7\n");
    put("/proc/cmdline", "ro quiet intel_iommu=on iommu=pt isolcpus=managed_irq,domain,2-3 "
                         "nohz_full=2-3 rcu_nocbs=2-3 irqaffinity=0-1\n");
    put("/sys/fs/cgroup/system.slice/cpuset.cpus", "0-1\n");
    put("/proc/net/fib_trie", "  |-- 192.0.2.5\n     /32 host LOCAL\n");
    check(NULL, "dummy:tiny");
    for (uint32_t i = 0; i < cnt; i++)
        if (line[i].state != TDM_DOCTOR_OK) fail_msg("%s: %s", line[i].what, line[i].found);
    is_state("nic driver", TDM_DOCTOR_OK, "0000:65:00.0", "");
    is_state("hugepages node0", TDM_DOCTOR_OK, "4000 wanted", "");
    put(NODE "0/hugepages/hugepages-2048kB/free_hugepages", "0\n"); /* its own, in use */
    check(NULL, "dummy:tiny");
    is_state("hugepages node0", TDM_DOCTOR_OK, "0 of 1024 MiB free", "");
    put(NODE "0/hugepages/hugepages-2048kB/nr_hugepages", "400\n");
    put(NODE "1/hugepages/hugepages-1048576kB/nr_hugepages", "3\n");
    check(NULL, "dummy:tiny");
    is_state("hugepages node0", TDM_DOCTOR_DEGRADED, "4000 wanted", "machine.hugepages_2m");
    is_state("rendered files", TDM_DOCTOR_OK, "as appliance.json says", "");

    put("/proc/cmdline", "ro intel_iommu=on iommu=pt isolcpus=managed_irq,domain,2-33\n");
    put("/proc/sys/kernel/hostname", "debian\n");
    put("/sys/fs/cgroup/system.slice/cpuset.cpus", "0-3\n");
    put("/proc/net/fib_trie", "  |-- 192.0.2.50\n     /32 host LOCAL\n  |-- 192.0.2.5\n  |-- x\n");
    put("/run/udev/rules.d/70-tandem-data.rules", "\n");
    put(TDM_SETUP_RUN "/refused", "appliance.json: machine.iommu: want one of\n");
    lead(PCI "driver", "../../../../bus/pci/drivers/mlx5_core");
    check(NULL, "dummy:tiny");
    is_state("appliance.json", TDM_DOCTOR_DEGRADED, "machine.iommu", "TANDEM-CONF");
    is_state("rendered files", TDM_DOCTOR_MISSING, "1 of", "restart tandem-first-boot");
    is_state("rendered files", TDM_DOCTOR_MISSING, "70-tandem-data.rules", "");
    is_state("hostname", TDM_DOCTOR_DEGRADED, "debian, wanted tandem-7", "");
    is_state("kernel intel_iommu", TDM_DOCTOR_OK, "intel_iommu=on", "");
    is_state("kernel isolcpus", TDM_DOCTOR_DEGRADED, "not booted with", "appliance kernel");
    is_state("kernel irqaffinity", TDM_DOCTOR_DEGRADED, "irqaffinity=0-1", "");
    is_state("house processors", TDM_DOCTOR_DEGRADED, "on 0-3, wanted 0-1", "");
    is_state("management address", TDM_DOCTOR_DEGRADED, "192.0.2.5 is on no", "networkctl");
    is_state("nic driver", TDM_DOCTOR_DEGRADED, "mlx5_core", "tandem-nic@");
    drop(TDM_SETUP_RUN "/refused");
    put(TDM_SETUP_STATE "/accepted/appliance.json", "{");
    check(NULL, NULL);
    is_state("appliance.json", TDM_DOCTOR_MISSING, "line 1", "appliance accept");
}

static void options_choose_the_form(void **state) {
    (void)state;
    tdm_ctl_options_t o;
    tdm_error_t err = {0};
    char *json[] = {"tandemctl", "doctor", "eth0", "-o", "json"};
    char *text[] = {"tandemctl", "doctor", "-o", "text"};
    char *none[] = {"tandemctl", "doctor", "-o"};
    char *other[] = {"tandemctl", "doctor", "-o", "xml"};
    assert_int_equal(tdm_ctl_options_parse(5, json, 2, UINT32_MAX, &o, &err), TDM_OK);
    assert_true(o.is_json && o.word_cnt == 1);
    assert_string_equal(o.word[0], "eth0");
    assert_int_equal(tdm_ctl_options_parse(4, text, 2, UINT32_MAX, &o, &err), TDM_OK);
    assert_false(o.is_json);
    assert_int_equal(tdm_ctl_options_parse(3, none, 2, UINT32_MAX, &o, &err), TDM_ERR_INVAL);
    assert_int_equal(tdm_ctl_options_parse(4, other, 2, UINT32_MAX, &o, &err), TDM_ERR_INVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_good_machine_has_no_complaint, setup, teardown),
        cmocka_unit_test_setup_teardown(missing_hugepages_are_told, setup, teardown),
        cmocka_unit_test_setup_teardown(processors_are_judged, setup, teardown),
        cmocka_unit_test_setup_teardown(devices_are_judged, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_lock_is_judged, setup, teardown),
        cmocka_unit_test_setup_teardown(models_are_judged, setup, teardown),
        cmocka_unit_test_setup_teardown(an_empty_tree_does_no_harm, setup, teardown),
        cmocka_unit_test_setup_teardown(appliance_json_is_held_against_the_machine, setup,
                                        teardown),
        cmocka_unit_test(options_choose_the_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
