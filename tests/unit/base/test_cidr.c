/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an address is read as it stands or refused with its key; no prefix
   is cut to one that would fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "appliance/base/cidr.h"

#include <arpa/inet.h>
#include <string.h>

static void addresses_are_read_with_and_without_a_prefix(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int family;
        uint8_t first, last, prefix;
    } row[] = {{"192.0.2.10/24", AF_INET, 192, 10, 24}, {"192.0.2.10", AF_INET, 192, 10, 0},
               {"192.0.2.10/1", AF_INET, 192, 10, 1},   {"192.0.2.10/32", AF_INET, 192, 10, 32},
               {"fd00::7/128", AF_INET6, 0xfd, 7, 128}, {"fd00::7/064", AF_INET6, 0xfd, 7, 64}};
    for (size_t i = 0; i < TDM_COUNT_OF(row); i++) {
        uint8_t addr[16] = {0}, prefix = 77;
        assert_int_equal(tdm_cidr_read("k", row[i].text, row[i].family, addr, &prefix, NULL),
                         TDM_OK);
        assert_int_equal(addr[0], row[i].first);
        assert_int_equal(addr[row[i].family == AF_INET ? 3 : 15], row[i].last);
        assert_int_equal(prefix, row[i].prefix);
    }
    uint8_t addr[16] = {9}, prefix = 77;
    assert_int_equal(tdm_cidr_read("k", "", AF_INET, addr, &prefix, NULL), TDM_OK);
    assert_int_equal(addr[0], 9);
    assert_int_equal(prefix, 0);
}

static void what_is_no_address_is_refused_by_its_key(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int family;
    } row[] = {
        {"192.0.2.10/280", AF_INET},
        {"192.0.2.10/33", AF_INET},
        {"192.0.2.10/0", AF_INET},
        {"192.0.2.10/", AF_INET},
        {"192.0.2.10/-8", AF_INET},
        {"192.0.2.10/ 24", AF_INET},
        {"192.0.2.10/24x", AF_INET},
        {"192.0.2.10/0024", AF_INET},
        {"192.0.2.10/24/8", AF_INET},
        {"192.0.2", AF_INET},
        {"fd00::7/64", AF_INET},
        {"192.0.2.10/24", AF_INET6},
        {"fd00::7/129", AF_INET6},
        {"fd00::7/320", AF_INET6},
        {"/64", AF_INET6},
        {"1111111111111111111111111111111111111111111111111111111111111111111::1", AF_INET6}};
    for (size_t i = 0; i < TDM_COUNT_OF(row); i++) {
        uint8_t addr[16], prefix;
        tdm_error_t err = {0};
        tdm_status_t st =
            tdm_cidr_read("port.ipv4", row[i].text, row[i].family, addr, &prefix, &err);
        if (st != TDM_ERR_INVAL) fail_msg("%s was taken", row[i].text);
        assert_non_null(strstr(err.text, "port.ipv4: "));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_read_with_and_without_a_prefix),
        cmocka_unit_test(what_is_no_address_is_refused_by_its_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
