/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/setup/setup_private.h"

#include "appliance/config/config.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define HUGEPAGES_DEFAULT 96u /* what the smallest configuration takes */

void tdm_setup_hostname(const tdm_setup_t *s, const tdm_setup_facts_t *facts, char out[64]) {
    if (s->machine_hostname[0])
        (void)snprintf(out, 64, "%s", s->machine_hostname);
    else
        (void)snprintf(out, 64, "tandem-%.8s", facts->machine_id);
}

/* --- tandem.json ----------------------------------------------------------- */

/* claim sets section.key of the configuration; INVAL where serve has it. */
static tdm_status_t claim(json_t *root, const char *section, const char *key, json_t *value,
                          tdm_error_t *err) {
    json_t *object = json_object_get(root, section);
    if (object && json_object_get(object, key)) {
        json_decref(value);
        return tdm_error_set(err, TDM_ERR_INVAL, "serve: %s.%s is decided by another part", section,
                             key);
    }
    if (!object) {
        object = json_object();
        (void)json_object_set_new(root, section, object);
    }
    if (json_object_set_new(object, key, value) == 0) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_NOMEM, "no memory for %s.%s", section, key);
}

static tdm_status_t claim_all(json_t *root, const tdm_setup_t *s, const tdm_setup_facts_t *facts,
                              tdm_error_t *err) {
    int is_pci = s->data_nic[0] != 0;
    char host[64];
    tdm_setup_hostname(s, facts, host);
    const char *certificate = facts->is_certificate ? TDM_SETUP_STATE "/accepted/" : "";
    char pem[2][128];
    (void)snprintf(pem[0], sizeof pem[0], "%s%s", certificate,
                   certificate[0] ? "certificate.pem" : "");
    (void)snprintf(pem[1], sizeof pem[1], "%s%s", certificate, certificate[0] ? "key.pem" : "");
    const struct {
        const char *section, *key, *text;
    } text[] = {
        {"tile", "cpus", s->machine_tile_cpus},
        {"port", "kind", is_pci ? "pci" : "none"},
        {"port", "device", s->data_nic},
        {"port", "ipv4", s->data_ipv4},
        {"port", "gateway4", s->data_gateway4},
        {"port", "ipv6", s->data_ipv6},
        {"port", "gateway6", s->data_gateway6},
        {"api", "keys_file", TDM_SETUP_RUN "/api.keys"},
        {"control", "admin_keys_file", s->keys_admin[0] ? TDM_SETUP_RUN "/admin.keys" : ""},
        {"quic", "certificate", pem[0]},
        {"quic", "key", pem[1]},
        {"quic", "host", host},
    };
    for (size_t i = 0; i < TDM_COUNT_OF(text); i++) {
        tdm_status_t st = claim(root, text[i].section, text[i].key, json_string(text[i].text), err);
        if (st != TDM_OK) return st;
    }
    return claim(root, "port", "vlan", json_integer((json_int_t)s->data_vlan), err);
}

tdm_status_t tdm_setup_compose(const tdm_setup_t *s, const tdm_setup_facts_t *facts, char *buf,
                               size_t buf_sz, tdm_error_t *err) {
    static tdm_config_t config;
    json_error_t where;
    tdm_error_t cause = {0};
    json_t *root = json_loads(s->serve, 0, &where);
    const char *section;
    json_t *object;
    if (!root) return tdm_error_set(err, TDM_ERR_NOMEM, "serve: no memory");
    tdm_status_t st = TDM_OK;
    json_object_foreach(root, section, object) if (!json_is_object(object)) st =
        tdm_error_set(err, TDM_ERR_INVAL, "serve: %.64s: want an object of keys", section);
    /* Who brings a stick with an old version may bring this file as well. */
    if (st == TDM_OK && json_object_get(root, "update"))
        st = tdm_error_set(err, TDM_ERR_INVAL,
                           "serve: update.older is asked of a running appliance");
    if (st == TDM_OK) st = claim_all(root, s, facts, err);
    size_t n = 0;
    if (st == TDM_OK) n = json_dumpb(root, buf, buf_sz - 2, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(root);
    if (st != TDM_OK) return st;
    if (n == 0 || n > buf_sz - 2)
        return tdm_error_set(err, TDM_ERR_LIMIT, "serve: over %zu bytes", buf_sz - 2);
    buf[n] = '\n';
    buf[n + 1] = 0;
    tdm_config_default(&config);
    st = tdm_config_parse(&config, buf, n + 1, "serve", &cause);
    if (st == TDM_OK) st = tdm_config_check(&config, &cause);
    return st == TDM_OK ? st : tdm_error_set(err, st, "%s", cause.text);
}

/* --- the other files ---------------------------------------------------------- */

typedef struct out {
    tdm_setup_put_t put;
    void *context;
    tdm_error_t *err;
    tdm_status_t st; /* of the first that failed */
} out_t;

static void put(out_t *o, const char *path, int is_private, const char *fmt, ...) TDM_PRINTF(4, 5);
static void put(out_t *o, const char *path, int is_private, const char *fmt, ...) {
    static char text[TDM_SETUP_RENDER_SZ];
    va_list args;
    if (o->st != TDM_OK) return;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text)
        o->st = tdm_error_set(o->err, TDM_ERR_LIMIT, "%s: over %zu bytes", path, sizeof text);
    else
        o->st = o->put(o->context, path, is_private, text, o->err);
}

#define MADE    "# Made of appliance.json at each boot: change that instead.\n"
#define UNITS   "/run/systemd/system/"
#define NETWORK "/run/systemd/network/"

static void put_units(out_t *o, const tdm_setup_t *s) {
    char nic[192] = "";
    if (s->data_nic[0])
        (void)snprintf(nic, sizeof nic,
                       "[Unit]\nRequires=tandem-nic@%s.service\nAfter=tandem-nic@%s.service\n\n",
                       s->data_nic, s->data_nic);
    /* A slice of its own: the other slices keep to the house's processors. */
    put(o, UNITS "tandemd.service.d/appliance.conf", 0,
        MADE "%s[Service]\nSlice=tandem.slice\nExecStart=\n"
             "ExecStart=/usr/sbin/tandemd --config " TDM_SETUP_RUN "/tandem.json\n",
        nic);
    put(o, UNITS "tandem-hugepages.service.d/appliance.conf", 0,
        MADE "[Service]\nEnvironmentFile=" TDM_SETUP_RUN "/environment\n");
    put(o, UNITS "tandem-nic@.service.d/appliance.conf", 0,
        MADE "[Service]\nEnvironmentFile=" TDM_SETUP_RUN "/environment\n");
    put(o, TDM_SETUP_RUN "/environment", 0, MADE "TANDEM_HUGEPAGES=%llu\n%s%s%s",
        (unsigned long long)(s->machine_hugepages_2m ? s->machine_hugepages_2m : HUGEPAGES_DEFAULT),
        s->management_nic[0] ? "TANDEM_MANAGEMENT=" : "", s->management_nic,
        s->management_nic[0] ? "\n" : "");
    if (!s->machine_house_cpus[0]) return;
    static const char *const group[] = {"system.slice", "user.slice", "init.scope"};
    for (size_t i = 0; i < TDM_COUNT_OF(group); i++) {
        char path[96];
        (void)snprintf(path, sizeof path, UNITS "%s.d/appliance.conf", group[i]);
        put(o, path, 0, MADE "[%s]\nAllowedCPUs=%s\n", i == 2 ? "Scope" : "Slice",
            s->machine_house_cpus);
    }
}

static void put_network(out_t *o, const tdm_setup_t *s) {
    if (s->data_nic[0]) {
        put(o, NETWORK "05-tandem-data.network", 0,
            MADE "[Match]\nPath=pci-%s pci-%s-*\n\n[Link]\nUnmanaged=yes\n", s->data_nic,
            s->data_nic);
        /* A NIC that comes again (hotplug, rescan) goes where it was. */
        put(o, "/run/udev/rules.d/70-tandem-data.rules", 0,
            MADE "ACTION==\"add\", SUBSYSTEM==\"pci\", KERNEL==\"%s\", "
                 "ATTR{driver_override}=\"vfio-pci\"\n",
            s->data_nic);
    }
    if (!s->management_nic[0]) return;
    char match[96];
    const char *nic = s->management_nic;
    if (!strchr(nic, ':'))
        (void)snprintf(match, sizeof match, "Name=%s", nic);
    else if (strchr(nic, '.'))
        (void)snprintf(match, sizeof match, "Path=pci-%s pci-%s-*", nic, nic);
    else
        (void)snprintf(match, sizeof match, "PermanentMACAddress=%s", nic);
    const char *address = s->management_address, *gateway = s->management_gateway;
    put(o, NETWORK "10-tandem-management.network", 0,
        MADE "[Match]\n%s\n\n[Network]\n%s%s%s%s%s%s%s\n", match,
        address[0] ? "Address=" : "DHCP=yes", address, gateway[0] ? "\nGateway=" : "", gateway,
        s->management_dns[0] ? "\nDNS=" : "", s->management_dns, address[0] ? "\nDHCP=no" : "");
}

tdm_status_t tdm_setup_render(const tdm_setup_t *s, const tdm_setup_facts_t *facts,
                              tdm_setup_put_t give, void *context, tdm_error_t *err) {
    static char json[TDM_SETUP_RENDER_SZ];
    out_t o = {.put = give, .context = context, .err = err, .st = TDM_OK};
    o.st = tdm_setup_compose(s, facts, json, sizeof json - 2, err);
    put(&o, TDM_SETUP_RUN "/tandem.json", 1, "%s", json);
    put(&o, TDM_SETUP_RUN "/api.keys", 1, "%s%s%s", s->keys_api, facts->made_key, facts->local_key);
    if (s->keys_admin[0]) put(&o, TDM_SETUP_RUN "/admin.keys", 1, "%s", s->keys_admin);
    char host[64];
    tdm_setup_hostname(s, facts, host);
    put(&o, TDM_SETUP_RUN "/hostname", 0, "%s\n", host);
    put(&o, TDM_SETUP_RUN "/units", 0, "%s%s%s", s->data_nic[0] ? "tandem-nic@" : "", s->data_nic,
        s->data_nic[0] ? ".service\n" : "");
    put_units(&o, s);
    put_network(&o, s);
    return o.st;
}
