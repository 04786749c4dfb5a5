/* SPDX-License-Identifier: Apache-2.0 */
/* The chaos kind: a seeded weather around another kind.

     under --> fate --+--> ready --> caller
                      +--> held until its call --> ready
                      +--> freed */

#include "net/port/port_private.h"

#include "appliance/base/rng.h"

#include <stdlib.h>
#include <string.h>

#define HELD_MAX    64u
#define READY_MAX   256u /* a power of two */
#define REORDER_MAX 6u   /* calls */
#define DELAY_MAX   400u
#define PPM         1000000u

typedef struct held {
    struct rte_mbuf *m;
    uint64_t due; /* call */
} held_t;

/* One direction. */
typedef struct lane {
    held_t held[HELD_MAX];
    uint32_t held_cnt;
    uint32_t head, tail; /* of ready; head - tail wait */
    struct rte_mbuf *ready[READY_MAX];
} lane_t;

struct chaos {
    tdm_rng_t rng;
    uint64_t call;
    lane_t lane[2]; /* received, sent */
    tdm_port_chaos_stats_t n;
};

static int draw(chaos_t *c, uint32_t ppm) {
    return tdm_rng_below(&c->rng, PPM) < ppm;
}

static void ready_put(lane_t *l, struct rte_mbuf *m) {
    l->ready[l->head++ % READY_MAX] = m;
}

/* --- one frame ------------------------------------------------------ */

/* checksum_off takes the UDP checksum off an IPv4 frame without a VLAN
   tag and answers where the payload begins; 0: it is no such frame. */
static uint32_t checksum_off(uint8_t *f, uint32_t sz) {
    if (sz < 43 || f[12] != 8 || f[13] != 0 || f[14] != 0x45 || f[23] != 17) return 0;
    f[40] = f[41] = 0;
    return 42;
}

static void corrupt(chaos_t *c, struct rte_mbuf *m) {
    uint8_t *f = rte_pktmbuf_mtod(m, uint8_t *);
    uint32_t sz = rte_pktmbuf_data_len(m);
    uint32_t from = draw(c, PPM / 2) ? checksum_off(f, sz) : 0;
    if (sz <= from) return;
    for (uint32_t k = 1 + tdm_rng_below(&c->rng, 4); k > 0; k--) {
        uint32_t at = from + tdm_rng_below(&c->rng, sz - from);
        f[at] = (uint8_t)(f[at] ^ (1u + tdm_rng_below(&c->rng, 255)));
    }
}

/* hold keeps a frame back for 1..calls calls; where there is no room it
   goes straight on. */
static void hold(chaos_t *c, lane_t *l, struct rte_mbuf *m, uint32_t calls, uint64_t *late) {
    if (l->held_cnt == HELD_MAX) {
        ready_put(l, m);
        return;
    }
    l->held[l->held_cnt++] = (held_t){m, c->call + 1 + tdm_rng_below(&c->rng, calls)};
    ++*late;
}

static void fate(tdm_port_t *p, uint32_t way, struct rte_mbuf *m) {
    chaos_t *c = p->chaos;
    const tdm_port_chaos_t *w = &p->c.chaos;
    lane_t *l = &c->lane[way];
    c->n.in[way]++;
    if (draw(c, w->drop_ppm)) {
        c->n.dropped[way]++;
        rte_pktmbuf_free(m);
        return;
    }
    if (draw(c, w->double_ppm)) {
        struct rte_mbuf *twin = rte_pktmbuf_copy(m, p->pool, 0, UINT32_MAX);
        if (twin != NULL) {
            c->n.doubled[way]++;
            ready_put(l, twin);
        }
    }
    if (draw(c, w->corrupt_ppm)) {
        c->n.corrupted[way]++;
        corrupt(c, m);
    }
    if (draw(c, w->reorder_ppm))
        hold(c, l, m, REORDER_MAX, &c->n.late[way]);
    else if (draw(c, w->delay_ppm))
        hold(c, l, m, DELAY_MAX, &c->n.late[way]);
    else
        ready_put(l, m);
}

/* release moves what is due, in the order it was held, while there is room. */
static void release(chaos_t *c, lane_t *l) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->held_cnt; i++) {
        if (l->held[i].due <= c->call && l->head - l->tail < READY_MAX)
            ready_put(l, l->held[i].m);
        else
            l->held[kept++] = l->held[i];
    }
    l->held_cnt = kept;
}

/* room: frames that may meet their fate now; each may become two. */
static uint32_t room(const lane_t *l) {
    return (READY_MAX - (l->head - l->tail)) / 2;
}

/* --- the kind ------------------------------------------------------- */

tdm_status_t chaos_open(tdm_port_t *p, tdm_error_t *err) {
    p->chaos = calloc(1, sizeof *p->chaos);
    if (p->chaos == NULL) return tdm_error_set(err, TDM_ERR_NOMEM, "port: out of memory");
    p->chaos->rng.state = p->c.chaos.seed;
    return p->under->open(p, err);
}

void chaos_close(tdm_port_t *p) {
    chaos_t *c = p->chaos;
    if (c == NULL) return;
    for (uint32_t way = 0; way < 2; way++) {
        lane_t *l = &c->lane[way];
        for (; l->tail != l->head; l->tail++) rte_pktmbuf_free(l->ready[l->tail % READY_MAX]);
        for (uint32_t i = 0; i < l->held_cnt; i++) rte_pktmbuf_free(l->held[i].m);
    }
    p->under->close(p);
    free(c);
    p->chaos = NULL;
}

/* flush offers what is ready to the device below. */
static void flush(tdm_port_t *p) {
    chaos_t *c = p->chaos;
    lane_t *l = &c->lane[1];
    while (l->tail != l->head) {
        uint32_t at = l->tail % READY_MAX;
        uint32_t cnt = TDM_MIN(l->head - l->tail, TDM_MIN(READY_MAX - at, TDM_PORT_BURST_MAX));
        uint32_t sent = p->under->tx(p, &l->ready[at], cnt);
        c->n.out[1] += sent;
        l->tail += sent;
        if (sent < cnt) return;
    }
}

uint32_t chaos_rx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt) {
    chaos_t *c = p->chaos;
    lane_t *l = &c->lane[0];
    struct rte_mbuf *in[TDM_PORT_BURST_MAX];
    c->call++;
    release(c, &c->lane[1]);
    flush(p);
    release(c, l);
    uint32_t in_cnt = p->under->rx(p, in, TDM_MIN(room(l), TDM_MIN(cnt, TDM_PORT_BURST_MAX)));
    for (uint32_t i = 0; i < in_cnt; i++) fate(p, 0, in[i]);
    uint32_t got = 0;
    while (got < cnt && l->tail != l->head) m[got++] = l->ready[l->tail++ % READY_MAX];
    c->n.out[0] += got;
    return got;
}

uint32_t chaos_tx(tdm_port_t *p, struct rte_mbuf **m, uint32_t cnt) {
    lane_t *l = &p->chaos->lane[1];
    uint32_t taken = TDM_MIN(cnt, room(l));
    for (uint32_t i = 0; i < taken; i++) fate(p, 1, m[i]);
    flush(p);
    return taken;
}

void chaos_stats(tdm_port_t *p, tdm_port_stats_t *out) {
    p->under->stats(p, out);
}

void tdm_port_chaos_read(const tdm_port_t *p, tdm_port_chaos_stats_t *out) {
    *out = p->chaos->n;
    for (uint32_t way = 0; way < 2; way++) {
        const lane_t *l = &p->chaos->lane[way];
        out->held[way] = l->held_cnt + (l->head - l->tail);
    }
}

void tdm_port_chaos_calm(tdm_port_t *p) {
    tdm_port_chaos_t *w = &p->c.chaos;
    w->drop_ppm = w->double_ppm = w->reorder_ppm = w->delay_ppm = w->corrupt_ppm = 0;
}
