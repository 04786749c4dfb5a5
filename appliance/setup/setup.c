/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/setup/setup_private.h"

#include "appliance/api/auth.h"
#include "appliance/base/print.h"
#include "appliance/sizing/cpus.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum row_type { ROW_STR, ROW_U64, ROW_ENUM } row_type_t;

typedef struct row {
    const char *name; /* section.key */
    row_type_t type;
    size_t offset;
    uint64_t max; /* STR: bytes of the buffer */
    tdm_setup_kind_t kind;
    const char *values; /* ENUM: a|b|c */
    const char *help;
} row_t;

#define OFFSET(section, key) offsetof(tdm_setup_t, section##_##key)
#define TDM_SETUP_STR(section, key, bytes, kind, help)                                             \
    {#section "." #key, ROW_STR, OFFSET(section, key), bytes, TDM_SETUP_##kind, NULL, help},
#define TDM_SETUP_U64(section, key, max, help)                                                     \
    {#section "." #key, ROW_U64, OFFSET(section, key), max, TDM_SETUP_KIND_CNT, NULL, help},
#define TDM_SETUP_ENUM(section, key, values, help)                                                 \
    {#section "." #key, ROW_ENUM, OFFSET(section, key), 0, TDM_SETUP_KIND_CNT, values, help},
static const row_t row[] = {
#include "appliance/setup/setup.def"
};

/* --- reading ------------------------------------------------------------ */

static const row_t *row_of(const char *section, const char *key) {
    size_t len = strlen(section);
    for (size_t i = 0; i < TDM_COUNT_OF(row); i++)
        if (strncmp(row[i].name, section, len) == 0 && row[i].name[len] == '.' &&
            strcmp(row[i].name + len + 1, key) == 0)
            return &row[i];
    return NULL;
}

static int word_index(const char *values, const char *word) {
    int idx = 0;
    for (const char *p = values; *p; idx++) {
        size_t n = strcspn(p, "|");
        if (n == strlen(word) && memcmp(p, word, n) == 0) return idx;
        p += n + (p[n] == '|');
    }
    return -1;
}

static tdm_status_t read_row(tdm_setup_t *s, const row_t *r, const json_t *value,
                             tdm_error_t *err) {
    char *at = (char *)s + r->offset;
    if (r->type == ROW_U64) {
        json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
        if (n < 0 || (uint64_t)n > r->max)
            return tdm_error_set(err, TDM_ERR_INVAL, "%s: want a whole number up to %llu", r->name,
                                 (unsigned long long)r->max);
        *(uint64_t *)(void *)at = (uint64_t)n;
        return TDM_OK;
    }
    const char *text = json_string_value(value);
    if (r->type == ROW_ENUM) {
        int idx = text ? word_index(r->values, text) : -1;
        if (idx < 0)
            return tdm_error_set(err, TDM_ERR_INVAL, "%s: want one of %s", r->name, r->values);
        *(uint32_t *)(void *)at = (uint32_t)idx;
        return TDM_OK;
    }
    if (!text || strlen(text) >= r->max || !tdm_setup_kind_is(r->kind, text))
        return tdm_error_set(err, TDM_ERR_INVAL, "%s: want %s", r->name,
                             tdm_setup_kind_want(r->kind));
    memcpy(at, text, strlen(text) + 1);
    return TDM_OK;
}

/* read_keys joins an array of lines and has the reader of keys files judge
   them. */
static tdm_status_t read_keys(const char *name, const json_t *value, char *out, tdm_error_t *err) {
    static tdm_auth_t auth;
    tdm_error_t cause = {0};
    size_t used = 0, i;
    json_t *line;
    if (!json_is_array(value) || json_array_size(value) == 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "%s: want a list of \"<name> <sha256>\"", name);
    json_array_foreach(value, i, line) {
        const char *text = json_string_value(line);
        size_t len = text ? strlen(text) : 0;
        if (!text || strpbrk(text, "\n#\x7f") || used + len + 2 > TDM_SETUP_KEYS_SZ)
            return tdm_error_set(err, TDM_ERR_INVAL, "%s: entry %zu is no \"<name> <sha256>\"",
                                 name, i + 1);
        memcpy(out + used, text, len);
        used += len;
        out[used++] = '\n';
    }
    out[used] = 0;
    if (tdm_auth_parse(&auth, out, used, &cause) != TDM_OK)
        return tdm_error_set(err, TDM_ERR_INVAL, "%s: %s", name, cause.text);
    if (auth.key_cnt + TDM_SETUP_OWN > TDM_AUTH_KEY_MAX ||
        auth.tenant_cnt + TDM_SETUP_OWN > TDM_TENANT_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT, "%s: over %u keys or %u names", name,
                             TDM_AUTH_KEY_MAX - TDM_SETUP_OWN, TDM_TENANT_MAX - 1 - TDM_SETUP_OWN);
    return TDM_OK;
}

static tdm_status_t read_section(tdm_setup_t *s, const char *section, json_t *object,
                                 tdm_error_t *err) {
    const char *key;
    json_t *value;
    if (strcmp(section, "serve") == 0) {
        size_t n = json_is_object(object)
                       ? json_dumpb(object, s->serve, sizeof s->serve - 1, JSON_COMPACT)
                       : 0;
        if (n == 0 || n >= sizeof s->serve)
            return tdm_error_set(err, TDM_ERR_INVAL, "serve: want an object under %zu bytes",
                                 sizeof s->serve);
        s->serve[n] = 0;
        return TDM_OK;
    }
    if (!json_is_object(object))
        return tdm_error_set(err, TDM_ERR_INVAL, "%.64s: want an object of keys", section);
    json_object_foreach(object, key, value) {
        const row_t *r = row_of(section, key);
        tdm_status_t st = TDM_OK;
        if (r)
            st = read_row(s, r, value, err);
        else if (strcmp(section, "keys") == 0 && strcmp(key, "api") == 0)
            st = read_keys("keys.api", value, s->keys_api, err);
        else if (strcmp(section, "keys") == 0 && strcmp(key, "admin") == 0)
            st = read_keys("keys.admin", value, s->keys_admin, err);
        else
            st = tdm_error_set(err, TDM_ERR_INVAL, "unknown key \"%.64s.%.64s\"", section, key);
        if (st != TDM_OK) return st;
    }
    return TDM_OK;
}

/* --- what single keys cannot show ---------------------------------------- */

static int is_shared(const char *a, const char *b) {
    static tdm_cpus_t of_a, of_b;
    if (tdm_cpus_parse(a, &of_a, NULL) != TDM_OK || tdm_cpus_parse(b, &of_b, NULL) != TDM_OK)
        return 1;
    for (uint32_t i = 0; i < of_a.cnt; i++)
        for (uint32_t j = 0; j < of_b.cnt; j++)
            if (of_a.cpu[i] == of_b.cpu[j]) return 1;
    return 0;
}

static tdm_status_t check(const tdm_setup_t *s, tdm_error_t *err) {
    const char *why = NULL;
    if (s->machine_tile_cpus[0] && !s->machine_house_cpus[0])
        why = "machine.tile_cpus: needs machine.house_cpus, for everything else";
    else if (s->machine_tile_cpus[0] && is_shared(s->machine_tile_cpus, s->machine_house_cpus))
        why = "machine.tile_cpus: has a processor of machine.house_cpus";
    else if (!s->management_nic[0] &&
             (s->management_address[0] || s->management_gateway[0] || s->management_dns[0]))
        why = "management.nic: which is to have the address?";
    else if (s->management_gateway[0] && !s->management_address[0])
        why = "management.gateway: without management.address DHCP says it";
    else if (s->management_gateway[0] &&
             !strchr(s->management_gateway, ':') != !strchr(s->management_address, ':'))
        why = "management.gateway: is of another family than management.address";
    else if (s->data_nic[0] && strcmp(s->data_nic, s->management_nic) == 0)
        why = "data.nic: is the management's";
    else if (s->data_nic[0] && !s->data_ipv4[0] && !s->data_ipv6[0])
        why = "data.nic: needs data.ipv4 or data.ipv6";
    else if (s->data_nic[0] && s->machine_iommu == 2)
        why = "data.nic: needs machine.iommu: without one the NIC may write anywhere";
    else if (!s->data_nic[0] && (s->data_ipv4[0] || s->data_ipv6[0] || s->data_gateway4[0] ||
                                 s->data_gateway6[0] || s->data_vlan))
        why = "data.nic: which is to have the address?";
    return why ? tdm_error_set(err, TDM_ERR_INVAL, "%s", why) : TDM_OK;
}

tdm_status_t tdm_setup_parse(tdm_setup_t *out, const char *text, uint64_t sz, const char *name,
                             tdm_error_t *err) {
    static char composed[TDM_SETUP_RENDER_SZ];
    static const tdm_setup_facts_t all = {.is_certificate = 1};
    tdm_error_t cause = {0};
    tdm_status_t st = TDM_OK;
    json_error_t where;
    const char *section;
    json_t *object;
    memset(out, 0, sizeof *out);
    memcpy(out->serve, "{}", 3);
    if (sz > TDM_SETUP_FILE_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT, "%s: over %u bytes", name, TDM_SETUP_FILE_MAX);
    json_t *root = json_loadb(text, sz, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return tdm_error_set(err, TDM_ERR_INVAL, "%s: line %d: %.120s", name, where.line,
                             where.text);
    if (!json_is_object(root))
        st = tdm_error_set(&cause, TDM_ERR_INVAL, "want an object of sections");
    else
        json_object_foreach(root, section, object) {
            st = read_section(out, section, object, &cause);
            if (st != TDM_OK) break;
        }
    json_decref(root);
    if (st == TDM_OK) st = check(out, &cause);
    if (st == TDM_OK) st = tdm_setup_compose(out, &all, composed, sizeof composed, &cause);
    return st == TDM_OK ? st : tdm_error_set(err, st, "%s: %s", name, cause.text);
}

/* --- telling ------------------------------------------------------------- */

size_t tdm_setup_help(char *buf, size_t buf_sz) {
    tdm_print_t p = {buf, buf_sz, 0};
    for (size_t i = 0; i < TDM_COUNT_OF(row); i++) {
        const row_t *r = &row[i];
        if (r->type == ROW_STR)
            tdm_print(&p, "%s %s\n    %s\n", r->name, tdm_setup_kind_want(r->kind), r->help);
        else if (r->type == ROW_U64)
            tdm_print(&p, "%s 0..%llu\n    %s\n", r->name, (unsigned long long)r->max, r->help);
        else
            tdm_print(&p, "%s %s\n    %s\n", r->name, r->values, r->help);
    }
    tdm_print(&p,
              "keys.api [\"<tenant> <sha256 of the key>\", ...]\n"
              "    who may ask; not given: a key is made at first boot and shown on the console\n"
              "keys.admin [\"<name> <sha256 of the key>\", ...]\n"
              "    who may change things over TCP; not given: nobody\n"
              "serve {\"section\": {\"key\": value}}\n"
              "    keys of tandem.json (model, promises, classes, bounds) that no part above "
              "decides\n");
    return p.sz;
}

/* --- kernel arguments ------------------------------------------------------ */

size_t tdm_setup_kernel(const tdm_setup_t *s, char *buf, size_t buf_sz) {
    /* amd_iommu is on unless turned off (Documentation/admin-guide/
       kernel-parameters.txt); pt: identity for the kernel's own devices. */
    static const char *const iommu[] = {"intel_iommu=on iommu=pt", "iommu=pt", ""};
    tdm_print_t p = {buf, buf_sz, 0};
    tdm_print(&p, "%s", iommu[s->machine_iommu]);
    if (s->machine_tile_cpus[0])
        tdm_print(&p, "%sisolcpus=managed_irq,domain,%s nohz_full=%s rcu_nocbs=%s irqaffinity=%s",
                  p.sz ? " " : "", s->machine_tile_cpus, s->machine_tile_cpus, s->machine_tile_cpus,
                  s->machine_house_cpus);
    /* Gigabyte pages are found whole at boot only; those of 2 MiB
       tandem-hugepages.service gets as well. */
    if (s->machine_hugepages_1g)
        tdm_print(&p, "%shugepagesz=1G hugepages=%llu", p.sz ? " " : "",
                  (unsigned long long)s->machine_hugepages_1g);
    return p.sz;
}
