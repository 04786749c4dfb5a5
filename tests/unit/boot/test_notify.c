/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the service manager gets exactly the datagrams of sd_notify(3), and
   WATCHDOG=1 only while there is forward progress.
   Method: a datagram socket plays the manager; the heartbeat gets a clock
   of the test's own. */
#include "appliance/base/clock.h"
#include "appliance/boot/notify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define S TDM_NS_PER_S

/* listen_at makes the manager's socket: at a path, or abstract with '@'. */
static int listen_at(const char *name) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)snprintf(at.sun_path, sizeof at.sun_path, "%s", name);
    size_t sz = offsetof(struct sockaddr_un, sun_path) + strlen(name);
    if (name[0] == '@') at.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, (socklen_t)sz), 0);
    return fd;
}

static void hears(int fd, const char *want) {
    char got[TDM_NOTIFY_SZ + 1];
    ssize_t sz = recv(fd, got, sizeof got - 1, 0);
    if (!want) {
        assert_true(sz < 0);
        return;
    }
    assert_true(sz >= 0);
    got[sz] = 0;
    assert_string_equal(got, want);
}

static void says_to(const char *name) {
    int fd = listen_at(name);
    tdm_notify_t n;
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    tdm_notify_open(&n);
    assert_true(n.fd >= 0);
    assert_null(getenv("NOTIFY_SOCKET")); /* no child speaks in our name */
    hears(fd, NULL);
    tdm_notify_say(&n, "READY=1\nSTATUS=life %u", 3u);
    hears(fd, "READY=1\nSTATUS=life 3");
    char longer[2 * TDM_NOTIFY_SZ], cut[TDM_NOTIFY_SZ];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    memset(cut, 'x', sizeof cut);
    cut[sizeof cut - 1] = 0;
    tdm_notify_say(&n, "%s", longer);
    hears(fd, cut);
    assert_int_equal(n.lost_cnt, 0);
    (void)close(fd);
    tdm_notify_say(&n, "READY=1"); /* the manager is gone: counted, no signal */
    assert_int_equal(n.lost_cnt, 1);
    tdm_notify_close(&n);
}

static void a_path_and_an_abstract_name_are_told(void **state) {
    (void)state;
    char folder[] = "/tmp/tandem-notify-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/socket", folder);
    says_to(path);
    (void)unlink(path);
    (void)rmdir(folder);
    (void)snprintf(path, sizeof path, "@tandem-notify-%d", (int)getpid());
    says_to(path);
}

static void a_full_manager_is_not_waited_for(void **state) {
    (void)state;
    char name[64];
    (void)snprintf(name, sizeof name, "@tandem-full-%d", (int)getpid());
    int fd = listen_at(name);
    tdm_notify_t n;
    (void)setenv("NOTIFY_SOCKET", name, 1);
    tdm_notify_open(&n);
    for (int i = 0; i < 100000 && n.lost_cnt == 0; i++) tdm_notify_say(&n, "WATCHDOG=1");
    assert_int_equal(n.lost_cnt, 1);
    tdm_notify_close(&n);
    (void)close(fd);
}

static void without_a_manager_nothing_is_said(void **state) {
    (void)state;
    static const char *const bad[] = {"", "@", "relative", "/nobody/listens/here", NULL};
    tdm_notify_t n;
    (void)unsetenv("NOTIFY_SOCKET");
    (void)setenv("WATCHDOG_USEC", "1000000", 1);
    tdm_notify_open(&n);
    assert_int_equal(n.fd, -1);
    assert_int_equal(n.watchdog_ns, 0);
    tdm_notify_say(&n, "READY=1");
    for (int i = 0; bad[i]; i++) {
        (void)setenv("NOTIFY_SOCKET", bad[i], 1);
        tdm_notify_open(&n);
        assert_int_equal(n.fd, -1);
        tdm_notify_say(&n, "READY=1");
    }
    tdm_notify_close(&n);
}

/* watchdog gives what tdm_notify_open makes of the two variables. */
static int64_t watchdog(const char *usec, const char *pid) {
    char name[64];
    (void)snprintf(name, sizeof name, "@tandem-watchdog-%d", (int)getpid());
    int fd = listen_at(name);
    tdm_notify_t n;
    (void)setenv("NOTIFY_SOCKET", name, 1);
    (void)setenv("WATCHDOG_USEC", usec, 1);
    if (pid) (void)setenv("WATCHDOG_PID", pid, 1);
    tdm_notify_open(&n);
    assert_null(getenv("WATCHDOG_USEC"));
    assert_null(getenv("WATCHDOG_PID"));
    tdm_notify_close(&n);
    (void)close(fd);
    return n.watchdog_ns;
}

static void a_watchdog_is_of_this_process_and_a_time(void **state) {
    (void)state;
    char own[16];
    (void)snprintf(own, sizeof own, "%d", (int)getpid());
    assert_int_equal(watchdog("60000000", NULL), 60 * S);
    assert_int_equal(watchdog("60000000", own), 60 * S);
    assert_int_equal(watchdog("60000000", "1"), 0);
    assert_int_equal(watchdog("0", NULL), 0);
    assert_int_equal(watchdog("-5", NULL), 0);
    assert_int_equal(watchdog("5s", NULL), 0);
    assert_int_equal(watchdog("99999999999999999999999", NULL), 0);
}

static void a_heart_beats_only_with_progress(void **state) {
    (void)state;
    int64_t net = 100 * S, api = 100 * S;
    char why[96] = "";
    tdm_heartbeat_t b = {
        .period_ns = 15 * S, .turn_max_ns = 10 * S, .progress_max_ns = 40 * S, .next_ns = 100 * S};
    tdm_heartbeat_watch(&b, "net", &net);
    tdm_heartbeat_watch(&b, "api", &api);
    assert_int_equal(tdm_heartbeat_poll(&b, 99 * S, 0, 0, why, sizeof why), 0);
    /* an idle appliance that last moved long ago is well */
    assert_int_equal(tdm_heartbeat_poll(&b, 100 * S, 0, 0, why, sizeof why), 1);
    assert_int_equal(tdm_heartbeat_poll(&b, 101 * S, 0, 0, why, sizeof why), 0);
    /* a tile that hangs */
    net = api = 115 * S;
    api -= 10 * S + 1;
    assert_int_equal(tdm_heartbeat_poll(&b, 115 * S, 0, 0, why, sizeof why), -1);
    assert_string_equal(why, "tile api has begun no turn for 10000 ms");
    assert_int_equal(b.withheld_cnt, 1);
    assert_int_equal(tdm_heartbeat_poll(&b, 115 * S + 1, 0, 0, why, sizeof why), 0);
    /* is looked at again after a second, and may be well by then */
    api = net = 116 * S;
    assert_int_equal(tdm_heartbeat_poll(&b, 116 * S, 0, 0, why, sizeof why), 1);
    /* pending work must move */
    api = net = 131 * S;
    assert_int_equal(tdm_heartbeat_poll(&b, 131 * S, 1, 91 * S, why, sizeof why), 1);
    api = net = 146 * S;
    assert_int_equal(tdm_heartbeat_poll(&b, 146 * S, 1, 106 * S - 1, why, sizeof why), -1);
    assert_non_null(strstr(why, "nothing moved for 40000 ms"));
    assert_int_equal(b.withheld_cnt, 2);
}

static void no_watchdog_no_heartbeat(void **state) {
    (void)state;
    char why[96];
    tdm_heartbeat_t b = {.turn_max_ns = S, .progress_max_ns = S};
    assert_int_equal(tdm_heartbeat_poll(&b, 1000 * S, 1, 0, why, sizeof why), 0);
    assert_int_equal(b.withheld_cnt, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_and_an_abstract_name_are_told),
        cmocka_unit_test(a_full_manager_is_not_waited_for),
        cmocka_unit_test(without_a_manager_nothing_is_said),
        cmocka_unit_test(a_watchdog_is_of_this_process_and_a_time),
        cmocka_unit_test(a_heart_beats_only_with_progress),
        cmocka_unit_test(no_watchdog_no_heartbeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
