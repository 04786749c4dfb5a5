/* SPDX-License-Identifier: Apache-2.0 */
/* The wire kind: two queues of real mbufs instead of a device, so that a
   test is both ends of the cable. */

#include "net/port/port_private.h"

#include <string.h>

static int fifo_put(wire_fifo_t *f, struct rte_mbuf *m) {
    if (f->head - f->tail == WIRE_DEPTH) return 0;
    f->m[f->head++ % WIRE_DEPTH] = m;
    return 1;
}

static struct rte_mbuf *fifo_get(wire_fifo_t *f) {
    if (f->head == f->tail) return NULL;
    return f->m[f->tail++ % WIRE_DEPTH];
}

tdm_status_t wire_open(tdm_port_t *p, tdm_error_t *err) {
    static const uint8_t mac[6] = {0x02, 't', 'd', 'm', 0, 2};
    (void)err;
    memcpy(p->mac, mac, 6);
    return TDM_OK;
}

void wire_close(tdm_port_t *p) {
    struct rte_mbuf *m;
    while ((m = fifo_get(&p->to_port)) != NULL) rte_pktmbuf_free(m);
    while ((m = fifo_get(&p->from_port)) != NULL) rte_pktmbuf_free(m);
}

uint32_t wire_rx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt) {
    uint32_t got = 0;
    while (got < cnt && (m[got] = fifo_get(&p->to_port)) != NULL) got++;
    return got;
}

uint32_t wire_tx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt) {
    uint32_t sent = 0;
    while (sent < cnt && fifo_put(&p->from_port, m[sent])) sent++;
    return sent;
}

void wire_stats(tdm_port_t *p, tdm_port_stats_t *out) {
    (void)p;
    (void)out; /* tdm_port_wire_put counts as it goes */
}

int tdm_port_wire_put(tdm_port_t *p, const uint8_t *frame, uint32_t sz) {
    struct rte_mbuf *m = rte_pktmbuf_alloc(p->pool);
    if (m == NULL) {
        p->n.no_mbuf++;
        return 0;
    }
    char *data = sz <= UINT16_MAX ? rte_pktmbuf_append(m, (uint16_t)sz) : NULL;
    if (data == NULL || !fifo_put(&p->to_port, m)) {
        rte_pktmbuf_free(m);
        if (data == NULL)
            p->n.nic_error++; /* longer than a buffer, as a device would mark it */
        else
            p->n.nic_missed++;
        return 0;
    }
    memcpy(data, frame, sz);
    return 1;
}

uint32_t tdm_port_wire_get(tdm_port_t *p, uint8_t *frame, uint32_t cap) {
    struct rte_mbuf *m = fifo_get(&p->from_port);
    if (m == NULL) return 0;
    uint32_t sz = TDM_MIN(rte_pktmbuf_data_len(m), cap);
    memcpy(frame, rte_pktmbuf_mtod(m, const uint8_t *), sz);
    rte_pktmbuf_free(m);
    return sz;
}
