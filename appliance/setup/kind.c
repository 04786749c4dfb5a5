/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/setup/setup_private.h"

#include "appliance/base/cidr.h"
#include "appliance/sizing/cpus.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* is_net: an address with its prefix; is_address: one without. */
static int is_net(int family, const char *text) {
    uint8_t addr[16], prefix;
    return tdm_cidr_read("", text, family, addr, &prefix, NULL) == TDM_OK && prefix > 0;
}

static int is_address(int family, const char *text) {
    uint8_t addr[16], prefix;
    return tdm_cidr_read("", text, family, addr, &prefix, NULL) == TDM_OK && prefix == 0;
}

static int is_host(const char *text) {
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && (text[i] != '-' || i == 0 || i == len - 1))
            return 0;
    return len <= 63;
}

/* matches: x stands for a lower-case hexadecimal digit, 7 for one under 8,
   1 for 0 or 1. */
static int matches(const char *text, const char *pattern) {
    if (strlen(text) != strlen(pattern)) return 0;
    for (; *text; text++, pattern++) {
        int is_hex = isdigit((unsigned char)*text) || (*text >= 'a' && *text <= 'f');
        int is_good = *pattern == 'x'   ? is_hex
                      : *pattern == '7' ? *text >= '0' && *text <= '7'
                      : *pattern == '1' ? *text == '0' || *text == '1'
                                        : *text == *pattern;
        if (!is_good) return 0;
    }
    return 1;
}

static int is_pci(const char *text) {
    return matches(text, "xxxx:xx:1x.7");
}

/* The kernel takes other bytes too (net/core/dev.c, dev_valid_name); a
   name with them would need quoting in what is rendered. */
static int is_interface(const char *text) {
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && (i == 0 || !strchr("_-.", text[i]))) return 0;
    return len < 16;
}

static int is_cpus(const char *text) {
    tdm_cpus_t cpus;
    return tdm_cpus_parse(text, &cpus, NULL) == TDM_OK;
}

int tdm_setup_kind_is(tdm_setup_kind_t kind, const char *text) {
    if (!text[0]) return 1;
    switch (kind) {
    case TDM_SETUP_HOST: return is_host(text);
    case TDM_SETUP_CPUS: return is_cpus(text);
    case TDM_SETUP_NIC:
        return is_interface(text) || is_pci(text) || matches(text, "xx:xx:xx:xx:xx:xx");
    case TDM_SETUP_PCI: return is_pci(text);
    case TDM_SETUP_NET: return is_net(AF_INET, text) || is_net(AF_INET6, text);
    case TDM_SETUP_NET4: return is_net(AF_INET, text);
    case TDM_SETUP_NET6: return is_net(AF_INET6, text);
    case TDM_SETUP_ADDRESS: return is_address(AF_INET, text) || is_address(AF_INET6, text);
    case TDM_SETUP_ADDRESS4: return is_address(AF_INET, text);
    case TDM_SETUP_ADDRESS6: return is_address(AF_INET6, text);
    case TDM_SETUP_KIND_CNT: break;
    }
    return 0;
}

const char *tdm_setup_kind_want(tdm_setup_kind_t kind) {
    static const char *const want[] = {
        "letters, digits and inner dashes, at most 63",
        "a list of processors, as 0-1,4",
        "an interface, a PCI or a MAC address, in lower case",
        "a PCI address, as 0000:05:00.0",
        "an address with its prefix, as 192.0.2.5/24",
        "an IPv4 address with its prefix, as 192.0.2.5/24",
        "an IPv6 address with its prefix, as 2001:db8::5/64",
        "an address",
        "an IPv4 address",
        "an IPv6 address",
    };
    return kind < TDM_SETUP_KIND_CNT ? want[kind] : "nothing";
}
