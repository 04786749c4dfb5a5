/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_NET_PORT_ENV_H
#define TDM_TESTS_NET_PORT_ENV_H

#include "net/port/port.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* env_begin starts DPDK's environment without huge pages, with memory for
   mbuf_cnt mbufs of Ethernet's MTU; 1 where it did not start, which is told
   on stderr.  Once a process, before the first port; tdm_port_env_stop ends
   it. */
static inline int env_begin(uint32_t mbuf_cnt) {
    tdm_port_env_config_t env = {.memory_mb = tdm_port_memory_mb(mbuf_cnt, 1500), .is_no_huge = 1};
    tdm_error_t err = {0};
    if (tdm_port_env_start(&env, &err) == TDM_OK) return 0;
    fprintf(stderr, "%s\n", err.text);
    return 1;
}

/* env_own_net gives the process a network of its own, where it may make TAP
   interfaces; 0 where it may not, which is told on stderr as skipped.  Before
   any thread is there. */
static inline int env_own_net(void) {
    if (geteuid() != 0 || access("/dev/net/tun", R_OK | W_OK) != 0) {
        fprintf(stderr, "skipped: needs root and /dev/net/tun\n");
        return 0;
    }
    if (unshare(CLONE_NEWNET) == 0) return 1;
    fprintf(stderr, "skipped: no network namespace: %s\n", strerror(errno));
    return 0;
}

#endif /* TDM_TESTS_NET_PORT_ENV_H */
