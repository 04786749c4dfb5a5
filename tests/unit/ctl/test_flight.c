/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: --at takes the three ways of saying when, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "appliance/base/attr.h"
#include "appliance/ctl/flight.h"

#define S INT64_C(1000000000)

static void a_moment_is_said_in_four_ways(void **state) {
    (void)state;
    const int64_t day = 20000 * 86400 * S, now = day + 50000 * S;
    static const struct {
        const char *text;
        int64_t after_day_ns;
    } good[] = {{"00:00:00", 0},
                {"13:53:20", 50000 * S},
                {"13:53:19.25", 49999 * S + S / 4},
                {"13:53:21", 50001 * S - 86400 * S},
                {"23:59:59.5", -S / 2},
                {"-20", 49980 * S},
                {"-0.5", 50000 * S - S / 2},
                {"1728000000", 0},
                {"1728000001.5", S + S / 2},
                {"2024-10-04T00:00:01.5Z", S + S / 2},
                {"2024-10-03T23:59:59Z", -S}};
    for (size_t i = 0; i < TDM_COUNT_OF(good); i++) {
        int64_t out = 0;
        assert_int_equal(tdm_ctl_when(good[i].text, now, &out), TDM_OK);
        int64_t off = out - (day + good[i].after_day_ns);
        if (off < -1000 || off > 1000)
            fail_msg("%s is off by %lld ns", good[i].text, (long long)off);
    }
    static const char *const bad[] = {"",
                                      "now",
                                      "24:00:00",
                                      "12:60:00",
                                      "12:00:60",
                                      "12:00",
                                      "12:00:",
                                      "12:00:-1",
                                      "12:00:1x",
                                      "1e300",
                                      "nan",
                                      "-inf",
                                      "5s",
                                      "::",
                                      "12:00:00 ",
                                      "2024-10-04",
                                      "2024-10-04T",
                                      "2024-10-04TZ",
                                      "2024-10-04T00:00:01",
                                      "2024-13-04T00:00:01Z",
                                      "2024-10-04T24:00:00Z",
                                      "T00:00:01Z"};
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        int64_t out = 0;
        if (tdm_ctl_when(bad[i], now, &out) == TDM_OK) fail_msg("taken: \"%s\"", bad[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_moment_is_said_in_four_ways)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
