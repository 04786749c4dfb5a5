/* SPDX-License-Identifier: Apache-2.0 */
/* The exception port: what is not ours goes to the kernel, what the kernel
   sends goes out.  Frames are moved, not copied; each pool gets its own
   buffers back from whichever driver sent them. */

#include "net/tile/tile_private.h"

int exception_takes(tdm_net_tile_t *t, tdm_reason_t reason) {
    if (t->c.exception == NULL || !tdm_link_is_foreign(reason)) return 0;
    tdm_link_rx_pass(t->link, reason);
    return 1;
}

void exception_out(tdm_net_tile_t *t, struct rte_mbuf **m, uint32_t cnt) {
    uint32_t taken = tdm_port_tx(t->c.exception, m, cnt);
    t->n.exception_out += taken;
    t->n.exception_full += cnt - taken;
}

uint32_t exception_in(tdm_net_tile_t *t, int64_t now_ns) {
    struct rte_mbuf *m[TDM_PORT_BURST_MAX];
    uint32_t cnt = tdm_port_rx(t->c.exception, m, TDM_PORT_BURST_MAX);
    if (cnt > 0) t->n.exception_in += frames_send(t, m, cnt, now_ns);
    return cnt;
}
