/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes into the HTTP/1.1 door, each input a connection of its own: the
   library parses, our callbacks see what it lets through.  Door, played
   api and client run in turn on this one thread, over a pair of sockets,
   so that an input always does the same.

   Input: one flag byte, then the bytes of a connection.  Flags: 1 sent in
   two pieces, 2 the client stays for a few turns before it leaves, 4 it
   leaves at once and reads nothing, 8 it comes from another machine.
   After each connection no exchange and no connection may stay open, and
   the heap stays small. */
#include "tests/fuzz/fuzz.h"
#include "tests/unit/net_http1/rig.h"

#include "appliance/base/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

FUZZ_UNIT("connections")

#define HEAP_MAX (UINT64_C(192) << 20) /* libFuzzer's corpus included */
#define STAY_MAX 6u                    /* turns that a client with flag 2 stays */
#define TURN_MAX 4096u                 /* and the door has to close after it left */

size_t __sanitizer_get_current_allocated_bytes(void);

static rig_t *rig;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    tdm_http1_config_t c = rig_config();
    c.header_ms = 0; /* time is no part of an input */
    c.body_ms = 0;
    c.idle_s = 0;
    c.is_driven = 1;
    c.pipe_sz = 4096; /* filling larger ones would be all that is done here */
    rig = rig_open(&c);
    return 0;
}

static int dial(uint32_t flags) {
    struct sockaddr_in us = {.sin_family = AF_INET,
                             .sin_port = htons(4000),
                             .sin_addr.s_addr = htonl(flags & 8 ? 0x0a000002 : 0x7f000001)};
    int pair[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    FUZZ_CHECK(tdm_http1_adopt(rig_door(rig), pair[0], (const struct sockaddr *)&us, sizeof us));
    return pair[1];
}

/* listen_to takes turns and reads; 1 once the door has closed. */
static int listen_to(int fd, uint32_t turn_cnt) {
    static char sink[65536];
    for (uint32_t i = 0; i < turn_cnt; i++) {
        rig_turn(rig);
        ssize_t got = recv(fd, sink, sizeof sink, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN)) return 1;
    }
    return 0;
}

/* send_all gives up where the door has closed or takes nothing more. */
static void send_all(int fd, const uint8_t *bytes, size_t sz) {
    for (uint32_t i = 0; sz > 0 && i < TURN_MAX; i++) {
        ssize_t put = send(fd, bytes, sz, MSG_NOSIGNAL);
        if (put < 0 && (errno != EAGAIN || listen_to(fd, 1))) return;
        bytes += put > 0 ? put : 0;
        sz -= put > 0 ? (size_t)put : 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz) {
    fuzz_in_t in = {data, sz};
    uint32_t flags = fuzz_u8(&in);
    int fd = dial(flags);
    size_t cut = flags & 1 ? in.left / 2 : in.left;
    send_all(fd, in.at, cut);
    if (flags & 1) {
        rig_turn(rig);
        send_all(fd, in.at + cut, in.left - cut);
    }
    if (flags & 2) (void)listen_to(fd, STAY_MAX);
    if (!(flags & 4)) {
        (void)shutdown(fd, SHUT_WR);
        FUZZ_CHECK(listen_to(fd, TURN_MAX));
    }
    (void)close(fd);
    for (uint32_t i = 0; i < TURN_MAX; i++) {
        if (tdm_http1_open_cnt(rig_door(rig)) == 0 && tdm_http1_conn_cnt(rig_door(rig)) == 0) break;
        rig_turn(rig);
    }
    FUZZ_CHECK(tdm_http1_open_cnt(rig_door(rig)) == 0);
    FUZZ_CHECK(tdm_http1_conn_cnt(rig_door(rig)) == 0);
    if (fuzz_cnt++ % 256 == 0) FUZZ_CHECK(__sanitizer_get_current_allocated_bytes() < HEAP_MAX);
    return 0;
}
