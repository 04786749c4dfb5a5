/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes into the HTTP/1.1 door, over a loopback connection of their own:
   the library parses, our callbacks see what it lets through.

   Input: one flag byte, then the bytes of a connection.  Flags: 1 sent in
   two pieces, 2 the client waits for an answer before it leaves, 4 it
   leaves with a reset.  After each connection no exchange may stay open,
   and the heap stays small. */
#include "tests/fuzz/fuzz.h"
#include "tests/unit/net_http1/rig.h"

#include "appliance/base/check.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

FUZZ_UNIT("connections")

#define HEAP_MAX (UINT64_C(192) << 20) /* libFuzzer's corpus included */

size_t __sanitizer_get_current_allocated_bytes(void);

static rig_t *rig;
static uint64_t source;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    tdm_http1_config_t c = rig_config();
    c.header_ms = 2000;
    c.body_ms = 2000;
    rig = rig_open(&c);
    return 0;
}

/* dial connects from one of many loopback addresses: the ports of one
   would be used up by closed connections within a minute. */
static int dial(void) {
    source++;
    struct sockaddr_in us = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl((uint32_t)(0x7f000001 + source % 60000 * 2))};
    struct sockaddr_in door = {.sin_family = AF_INET,
                               .sin_port = htons(tdm_http1_port(rig_door(rig))),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    FUZZ_CHECK(fd >= 0);
    (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    FUZZ_CHECK(bind(fd, (const struct sockaddr *)&us, sizeof us) == 0);
    FUZZ_CHECK(connect(fd, (const struct sockaddr *)&door, sizeof door) == 0);
    return fd;
}

/* read_all reads until the door closes, or nothing comes for wait_ms. */
static void read_all(int fd, int wait_ms) {
    static char sink[65536];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, wait_ms) > 0)
        if (recv(fd, sink, sizeof sink, 0) <= 0) return;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz) {
    fuzz_in_t in = {data, sz};
    uint32_t flags = fuzz_u8(&in);
    int fd = dial();
    size_t cut = flags & 1 ? in.left / 2 : in.left;
    client_send_bytes(fd, in.at, cut);
    if (flags & 1) client_send_bytes(fd, in.at + cut, in.left - cut);
    if (flags & 2) read_all(fd, 2);
    if (flags & 4) {
        struct linger now = {.l_onoff = 1};
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    } else {
        (void)shutdown(fd, SHUT_WR);
        read_all(fd, 3000);
    }
    (void)close(fd);
    if (fuzz_cnt++ % 256 == 0) FUZZ_CHECK(__sanitizer_get_current_allocated_bytes() < HEAP_MAX);
    if (!(flags & 4)) FUZZ_CHECK(rig_wait_idle(rig));
    return 0;
}
