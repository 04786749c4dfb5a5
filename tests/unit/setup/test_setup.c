/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: appliance.json renders to what each part of a machine reads, and
   nothing that a stick could bring passes its check.
   Method: a whole file against the texts expected; a table of bad ones,
   each refused by the name of what is wrong; what was rendered is read
   back by the configuration's own reader. */
#include "appliance/config/config.h"
#include "appliance/setup/setup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the first two above */
#include <cmocka.h>

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static tdm_setup_t s;
static tdm_error_t err;
static const tdm_setup_facts_t facts = {.machine_id = "0011223344556677889900aabbccddee",
                                        .local_key = "local " HASH "\n"};

static tdm_status_t parse(const char *text) {
    memset(&err, 0, sizeof err);
    return tdm_setup_parse(&s, text, strlen(text), "appliance.json", &err);
}

/* --- what was rendered ---------------------------------------------------- */

#define FILE_CNT 32
static struct {
    char path[128], text[4096];
    int is_private;
} made[FILE_CNT];
static int made_cnt;

static tdm_status_t put(void *context, const char *path, int is_private, const char *text,
                        tdm_error_t *e) {
    (void)context;
    (void)e;
    assert_true(made_cnt < FILE_CNT);
    (void)snprintf(made[made_cnt].path, sizeof made[0].path, "%s", path);
    (void)snprintf(made[made_cnt].text, sizeof made[0].text, "%s", text);
    made[made_cnt++].is_private = is_private;
    return TDM_OK;
}

static void render(const char *text, const tdm_setup_facts_t *f) {
    made_cnt = 0;
    if (parse(text) != TDM_OK) fail_msg("%s", err.text);
    if (tdm_setup_render(&s, f, put, NULL, &err) != TDM_OK) fail_msg("%s", err.text);
}

/* of gives a rendered file; NULL where there is none. */
static const char *of(const char *path) {
    for (int i = 0; i < made_cnt; i++)
        if (strcmp(made[i].path, path) == 0) return made[i].text;
    return NULL;
}

static void has(const char *path, const char *want) {
    const char *text = of(path);
    if (!text || !strstr(text, want)) fail_msg("%s: %s\nhas no %s", path, text, want);
}

#define WHOLE                                                                                      \
    "{\"machine\": {\"hostname\": \"tandem-7\", \"iommu\": \"intel\", \"house_cpus\": \"0-1\","    \
    " \"tile_cpus\": \"2-4\", \"hugepages_2m\": 512, \"hugepages_1g\": 4},"                        \
    " \"management\": {\"nic\": \"0000:00:03.0\", \"address\": \"192.0.2.5/24\","                  \
    " \"gateway\": \"192.0.2.1\", \"dns\": \"192.0.2.2\"},"                                        \
    " \"data\": {\"nic\": \"0000:00:05.0\", \"ipv4\": \"198.51.100.10/24\","                       \
    " \"gateway4\": \"198.51.100.1\", \"ipv6\": \"2001:db8::10/64\", \"vlan\": 7},"                \
    " \"keys\": {\"api\": [\"chat " HASH "\"], \"admin\": [\"ops " HASH "\"]},"                    \
    " \"serve\": {\"model\": {\"path\": \"/srv/m.gguf\"}, \"class0\": {\"ttft_ms\": 900},"         \
    " \"quic\": {\"connections\": 64}}}"

static void a_whole_file_is_rendered(void **state) {
    (void)state;
    tdm_config_t config;
    char kernel[512];
    render(WHOLE, &facts);
    assert_true(tdm_setup_kernel(&s, kernel, sizeof kernel) < sizeof kernel);
    assert_string_equal(kernel,
                        "intel_iommu=on iommu=pt isolcpus=managed_irq,domain,2-4 nohz_full=2-4 "
                        "rcu_nocbs=2-4 irqaffinity=0-1 hugepagesz=1G hugepages=4");
    const char *json = of(TDM_SETUP_RUN "/tandem.json");
    assert_non_null(json);
    tdm_config_default(&config);
    assert_int_equal(tdm_config_parse(&config, json, strlen(json), "x", &err), TDM_OK);
    assert_string_equal(config.model_path, "/srv/m.gguf");
    assert_string_equal(config.tile_cpus, "2-4");
    assert_string_equal(config.port_device, "0000:00:05.0");
    assert_string_equal(config.port_ipv4, "198.51.100.10/24");
    assert_string_equal(config.port_ipv6, "2001:db8::10/64");
    assert_string_equal(config.port_gateway6, "");
    assert_string_equal(config.api_keys_file, TDM_SETUP_RUN "/api.keys");
    assert_string_equal(config.control_admin_keys_file, TDM_SETUP_RUN "/admin.keys");
    assert_string_equal(config.quic_certificate, "");
    assert_string_equal(config.quic_host, "tandem-7");
    assert_int_equal(config.quic_connections, 64);
    assert_int_equal(config.port_vlan, 7);
    assert_int_equal(config.class0_ttft_ms, 900);
    assert_string_equal(of(TDM_SETUP_RUN "/api.keys"), "chat " HASH "\nlocal " HASH "\n");
    assert_string_equal(of(TDM_SETUP_RUN "/units"), "tandem-nic@0000:00:05.0.service\n");
    has("/run/systemd/system/tandemd.service.d/appliance.conf",
        "Requires=tandem-nic@0000:00:05.0.service\nAfter=tandem-nic@0000:00:05.0.service\n");
    has("/run/systemd/system/tandemd.service.d/appliance.conf",
        "ExecStart=\nExecStart=/usr/sbin/tandemd --config /run/tandem-appliance/tandem.json\n");
    has("/run/systemd/system/system.slice.d/appliance.conf", "[Slice]\nAllowedCPUs=0-1\n");
    has("/run/systemd/system/init.scope.d/appliance.conf", "[Scope]\nAllowedCPUs=0-1\n");
    has(TDM_SETUP_RUN "/environment", "TANDEM_HUGEPAGES=512\nTANDEM_MANAGEMENT=0000:00:03.0\n");
    has("/run/systemd/network/05-tandem-data.network", "Path=pci-0000:00:05.0 ");
    has("/run/systemd/network/05-tandem-data.network", "Unmanaged=yes");
    has("/run/systemd/network/10-tandem-management.network",
        "Path=pci-0000:00:03.0 pci-0000:00:03.0-*\n\n[Network]\nAddress=192.0.2.5/24\n"
        "Gateway=192.0.2.1\nDNS=192.0.2.2\nDHCP=no\n");
    has("/run/udev/rules.d/70-tandem-data.rules",
        "KERNEL==\"0000:00:05.0\", ATTR{driver_override}=\"vfio-pci\"");
    assert_string_equal(of(TDM_SETUP_RUN "/hostname"), "tandem-7\n");
    for (int i = 0; i < made_cnt; i++)
        assert_int_equal(made[i].is_private, strstr(made[i].path, "keys") != NULL ||
                                                 strstr(made[i].path, "tandem.json") != NULL);
}

static void an_empty_file_serves_as_well(void **state) {
    (void)state;
    tdm_setup_facts_t f = facts;
    char kernel[512];
    f.is_certificate = 1;
    strcpy(f.made_key, "first " HASH "\n");
    render("{}", &f);
    (void)tdm_setup_kernel(&s, kernel, sizeof kernel);
    assert_string_equal(kernel, "intel_iommu=on iommu=pt");
    has(TDM_SETUP_RUN "/tandem.json", "\"kind\": \"none\"");
    has(TDM_SETUP_RUN "/tandem.json", "\"keys_file\": \"/run/tandem-appliance/api.keys\"");
    assert_string_equal(of(TDM_SETUP_RUN "/api.keys"), "first " HASH "\nlocal " HASH "\n");
    assert_string_equal(of(TDM_SETUP_RUN "/units"), "");
    has(TDM_SETUP_RUN "/tandem.json", "tandem-appliance/accepted/certificate.pem");
    assert_string_equal(of(TDM_SETUP_RUN "/hostname"), "tandem-00112233\n");
    has(TDM_SETUP_RUN "/environment", "TANDEM_HUGEPAGES=96\n");
    assert_null(of("/run/systemd/system/system.slice.d/appliance.conf"));
    assert_null(of("/run/systemd/network/10-tandem-management.network"));
    assert_null(of("/run/udev/rules.d/70-tandem-data.rules"));
}

static void a_management_nic_is_found_by_any_name(void **state) {
    (void)state;
    render("{\"management\": {\"nic\": \"eth0\"}}", &facts);
    has("/run/systemd/network/10-tandem-management.network", "Name=eth0\n\n[Network]\nDHCP=yes\n");
    render("{\"management\": {\"nic\": \"52:54:00:12:34:56\", \"address\": \"2001:db8::5/64\"}}",
           &facts);
    has("/run/systemd/network/10-tandem-management.network",
        "PermanentMACAddress=52:54:00:12:34:56\n\n[Network]\nAddress=2001:db8::5/64\nDHCP=no\n");
}

/* --- what is refused ---------------------------------------------------------- */

static void bad_files_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *text, *named;
    } bad[] = {
        {"", "line 1"},
        {"[]", "an object of sections"},
        {"{\"machine\": 1}", "machine: want an object"},
        {"{\"machine\": {}, \"machine\": {}}", "duplicate"},
        {"{\"mashine\": {\"x\": 1}}", "\"mashine.x\""},
        {"{\"machine\": {\"host\": \"a\"}}", "\"machine.host\""},
        {"{\"machine\": {\"hostname\": \"a b\"}}", "machine.hostname"},
        {"{\"machine\": {\"hostname\": \"-a\"}}", "machine.hostname"},
        {"{\"machine\": {\"hostname\": \"a\\nb\"}}", "machine.hostname"},
        {"{\"machine\": {\"hostname\": 7}}", "machine.hostname"},
        {"{\"machine\": {\"hostname\": \"a\\u0000b\"}}", "appliance.json: line"},
        {"{\"machine\": {\"iommu\": \"on\"}}", "machine.iommu: want one of intel|amd|none"},
        {"{\"machine\": {\"house_cpus\": \"0-1 init=/bin/sh\"}}", "machine.house_cpus"},
        {"{\"machine\": {\"house_cpus\": \"1-0\"}}", "machine.house_cpus"},
        {"{\"machine\": {\"tile_cpus\": \"2\"}}", "needs machine.house_cpus"},
        {"{\"machine\": {\"tile_cpus\": \"2-4\", \"house_cpus\": \"0-2\"}}", "has a processor of"},
        {"{\"machine\": {\"hugepages_2m\": -1}}", "machine.hugepages_2m"},
        {"{\"machine\": {\"hugepages_2m\": 1e9}}", "machine.hugepages_2m"},
        {"{\"machine\": {\"hugepages_1g\": 4097}}", "up to 4096"},
        {"{\"management\": {\"nic\": \"eth0\\n[Network]\"}}", "management.nic"},
        {"{\"management\": {\"nic\": \"../../x\"}}", "management.nic"},
        {"{\"management\": {\"nic\": \"0000:00:03.8\"}}", "management.nic"},
        {"{\"management\": {\"nic\": \"eth0 eth1\"}}", "management.nic"},
        {"{\"management\": {\"address\": \"192.0.2.5/24\"}}", "which is to have the address"},
        {"{\"management\": {\"nic\": \"eth0\", \"address\": \"192.0.2.5\"}}", "management.address"},
        {"{\"management\": {\"nic\": \"eth0\", \"address\": \"192.0.2.5/33\"}}",
         "management.address"},
        {"{\"management\": {\"nic\": \"eth0\", \"address\": \"192.0.2.5/24x\"}}",
         "management.address"},
        {"{\"management\": {\"nic\": \"eth0\", \"gateway\": \"192.0.2.1\"}}", "DHCP says it"},
        {"{\"management\": {\"nic\": \"eth0\", \"address\": \"192.0.2.5/24\", \"gateway\": "
         "\"2001:db8::1\"}}",
         "another family"},
        {"{\"data\": {\"nic\": \"eth1\"}}", "data.nic"},
        {"{\"data\": {\"nic\": \"0000:00:05.0\"}}", "needs data.ipv4 or data.ipv6"},
        {"{\"data\": {\"ipv4\": \"192.0.2.5/24\"}}", "which is to have the address"},
        {"{\"data\": {\"nic\": \"0000:00:05.0\", \"ipv4\": \"2001:db8::5/64\"}}", "data.ipv4"},
        {"{\"data\": {\"nic\": \"0000:00:05.0\", \"ipv4\": \"192.0.2.5/24\"}, \"management\": "
         "{\"nic\": \"0000:00:05.0\"}}",
         "is the management's"},
        {"{\"data\": {\"nic\": \"0000:00:05.0\", \"ipv4\": \"192.0.2.5/24\"}, \"machine\": "
         "{\"iommu\": \"none\"}}",
         "may write anywhere"},
        {"{\"keys\": {\"api\": []}}", "keys.api"},
        {"{\"keys\": {\"api\": [\"chat abc\"]}}", "keys.api: keys file line 1"},
        {"{\"keys\": {\"api\": [\"# chat\"]}}", "entry 1"},
        {"{\"keys\": {\"admin\": [\"a " HASH "\\nb " HASH "\"]}}", "entry 1"},
        {"{\"keys\": {\"root\": []}}", "\"keys.root\""},
        {"{\"serve\": []}", "serve: want an object"},
        {"{\"serve\": {\"model\": 1}}", "model"},
        {"{\"serve\": {\"modle\": {\"path\": \"x\"}}}", "modle"},
        {"{\"serve\": {\"sched\": {\"gap_ms\": 0}}}", "sched.gap_ms"},
        {"{\"serve\": {\"port\": {\"kind\": \"tap\"}}}", "port.kind is decided by another part"},
        {"{\"serve\": {\"update\": {\"older\": \"1\"}}}", "update.older is asked of a running"},
        {"{\"serve\": {\"api\": {\"keys_file\": \"\"}}}", "api.keys_file is decided"},
        {"{\"serve\": {\"quic\": {\"key\": \"/etc/shadow\"}}}", "quic.key is decided"},
        {"{\"serve\": {\"tile\": {\"cpus\": \"0\"}}}", "tile.cpus is decided"},
    };
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++)
        if (parse(bad[i].text) == TDM_OK || !strstr(err.text, bad[i].named))
            fail_msg("%s: \"%s\" does not name \"%s\"", bad[i].text, err.text, bad[i].named);
}

static void long_and_deep_files_are_refused(void **state) {
    (void)state;
    size_t sz = TDM_SETUP_FILE_MAX + 1;
    char *text = malloc(sz + 1);
    assert_non_null(text);
    memset(text, ' ', sz);
    text[0] = '{';
    text[sz - 1] = '}';
    text[sz] = 0;
    assert_int_equal(parse(text), TDM_ERR_LIMIT);
    memset(text, '[', sz);
    assert_int_equal(tdm_setup_parse(&s, text, TDM_SETUP_FILE_MAX, "x", &err), TDM_ERR_INVAL);
    (void)snprintf(text, sz, "{\"serve\": {\"model\": {\"path\": \"%0*d\"}}}",
                   (int)TDM_SETUP_SERVE_SZ, 0);
    assert_int_equal(parse(text), TDM_ERR_INVAL);
    free(text);
}

/* Whatever is flipped in a good file, it is refused with a sentence or what
   it renders has no line that the file did not write. */
static void flipped_bytes_do_no_harm(void **state) {
    (void)state;
    char text[sizeof WHOLE];
    int good_cnt = 0;
    for (size_t at = 0; at < sizeof WHOLE - 1; at++) {
        for (int bit = 0; bit < 8; bit++) {
            memcpy(text, WHOLE, sizeof text);
            text[at] = (char)(text[at] ^ (1 << bit));
            made_cnt = 0;
            memset(&err, 0, sizeof err);
            if (tdm_setup_parse(&s, text, sizeof text - 1, "x", &err) != TDM_OK) {
                assert_true(err.text[0] != 0);
                continue;
            }
            good_cnt++;
            assert_int_equal(tdm_setup_render(&s, &facts, put, NULL, &err), TDM_OK);
            for (int i = 0; i < made_cnt; i++)
                for (const char *p = made[i].text; *p; p++)
                    assert_true(*p == '\n' || (unsigned char)*p >= 32);
            for (int i = 0; i < made_cnt; i++) /* which a JSON string may have */
                if (!strstr(made[i].path, ".json")) assert_null(strchr(made[i].text, 127));
        }
    }
    assert_true(good_cnt > 100); /* digits of addresses, letters of names */
}

static void the_help_has_every_part(void **state) {
    (void)state;
    char text[8192];
    assert_true(tdm_setup_help(text, sizeof text) < sizeof text);
    static const char *const want[] = {"machine.hostname letters", "machine.iommu intel|amd|none",
                                       "data.vlan 0..4094", "keys.api", "serve {"};
    for (size_t i = 0; i < TDM_COUNT_OF(want); i++) assert_non_null(strstr(text, want[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_file_is_rendered),
        cmocka_unit_test(an_empty_file_serves_as_well),
        cmocka_unit_test(a_management_nic_is_found_by_any_name),
        cmocka_unit_test(bad_files_are_refused_by_name),
        cmocka_unit_test(long_and_deep_files_are_refused),
        cmocka_unit_test(flipped_bytes_do_no_harm),
        cmocka_unit_test(the_help_has_every_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
