/* SPDX-License-Identifier: Apache-2.0 */
/* The tile's accounts: copied to its telemetry block, and checked. */

#include "net/tile/tile_private.h"

#include "appliance/base/probe.h"
/* drop_total adds up one reason over port, link, QUIC and rings: each
   event is counted in exactly one of them. */
static uint64_t drop_total(tdm_net_tile_t *t, const tdm_port_stats_t *p, uint32_t reason) {
    const tdm_link_counters_t *l = tdm_link_counters(t->link);
    uint64_t n = l->rx_drop[reason] + l->tx_drop[reason] + tdm_quic_counters(t->quic)->drop[reason];
    switch (reason) {
    case TDM_DROP_nic_missed: return n + p->nic_missed;
    case TDM_DROP_nic_error: return n + p->nic_error;
    case TDM_DROP_no_mbuf: return n + p->no_mbuf + p->tx_no_mbuf;
    case TDM_DROP_tx_full: return n + p->tx_full + t->n.exception_full;
    case TDM_DROP_stale_handle: return n + t->n.stale;
    default: return n;
    }
}

/* publish_fates: what became of each received frame, from accounts that
   are kept apart from the count of frames. */
static void publish_fates(tdm_net_tile_t *t) {
    const tdm_link_counters_t *l = tdm_link_counters(t->link);
    uint64_t dropped = t->n.exception_full + t->n.quic_dropped;
    for (uint32_t r = 0; r < TDM_REASON_CNT; r++) dropped += l->rx_drop[r];
    const uint64_t fate[TDM_LABEL_CNT_FATE] = {
        [TDM_LABEL_FATE_datagram] = t->n.quic_taken, [TDM_LABEL_FATE_answered] = l->replies,
        [TDM_LABEL_FATE_consumed] = l->consumed,     [TDM_LABEL_FATE_kernel] = t->n.exception_out,
        [TDM_LABEL_FATE_dropped] = dropped,
    };
    for (uint32_t i = 0; i < TDM_LABEL_CNT_FATE; i++)
        tdm_count_to(t->c.block, TDM_METRIC_net_received_total, i, fate[i]);
}

static void publish_net(tdm_net_tile_t *t) {
    tdm_block_t *b = t->c.block;
    tdm_port_stats_t p;
    tdm_port_stats_read(t->c.port, &p);
    tdm_count_to(b, TDM_METRIC_net_packets_total, TDM_LABEL_DIRECTION_rx, p.rx_frames);
    tdm_count_to(b, TDM_METRIC_net_packets_total, TDM_LABEL_DIRECTION_tx, p.tx_frames);
    tdm_count_to(b, TDM_METRIC_net_bytes_total, TDM_LABEL_DIRECTION_rx, p.rx_bytes);
    tdm_count_to(b, TDM_METRIC_net_bytes_total, TDM_LABEL_DIRECTION_tx, p.tx_bytes);
    tdm_count_to(b, TDM_METRIC_net_exception_packets_total, TDM_LABEL_DIRECTION_rx,
                 t->n.exception_out);
    tdm_count_to(b, TDM_METRIC_net_exception_packets_total, TDM_LABEL_DIRECTION_tx,
                 t->n.exception_in);
    tdm_gauge_set(b, TDM_METRIC_net_pool_buffers, TDM_LABEL_POOL_total, p.mbuf_cnt);
    tdm_gauge_set(b, TDM_METRIC_net_pool_buffers, TDM_LABEL_POOL_used, p.mbuf_used);
    publish_fates(t);
    const tdm_link_counters_t *l = tdm_link_counters(t->link);
    tdm_gauge_set(b, TDM_METRIC_net_neighbours, 0, l->neighbours);
    tdm_gauge_set(b, TDM_METRIC_net_held_datagrams, 0, l->held);
    tdm_count_to(b, TDM_METRIC_net_released_datagrams_total, 0, l->released);
    uint32_t first = tdm_reason_first(TDM_GROUP_DROP), cnt = TDM_LABEL_REASONS_DROP;
    for (uint32_t r = first; r < first + cnt; r++) {
        uint64_t now = drop_total(t, &p, r);
        uint64_t before = *tdm_block_word(b, TDM_METRIC_net_drops_total, tdm_label_reason(r));
        if (now > before) TDM_PROBE2(drop, r, now - before);
        tdm_count_to(b, TDM_METRIC_net_drops_total, tdm_label_reason(r), now);
    }
}

static void publish_quic(tdm_net_tile_t *t) {
    tdm_block_t *b = t->c.block;
    const tdm_quic_counters_t *q = tdm_quic_counters(t->quic);
    uint64_t limited = q->drop[TDM_DROP_quic_handshake_rate] + q->drop[TDM_DROP_quic_half_open];
    tdm_gauge_set(b, TDM_METRIC_connections, TDM_LABEL_DOOR_h3, q->connection_cnt);
    tdm_count_to(b, TDM_METRIC_net_handshakes_total, TDM_LABEL_HANDSHAKE_completed,
                 q->handshakes_done);
    tdm_count_to(b, TDM_METRIC_net_handshakes_total, TDM_LABEL_HANDSHAKE_failed,
                 q->handshakes_failed);
    tdm_count_to(b, TDM_METRIC_net_handshakes_total, TDM_LABEL_HANDSHAKE_limited, limited);
    tdm_count_to(b, TDM_METRIC_connections_refused_total, TDM_LABEL_DOOR_h3,
                 q->drop[TDM_DROP_quic_connection_limit] + limited);
    tdm_gauge_set(b, TDM_METRIC_quic_handshakes_open, 0, q->half_open_cnt);
    tdm_gauge_set(b, TDM_METRIC_quic_retry_on, 0, q->is_retry_on);
    tdm_count_to(b, TDM_METRIC_quic_answers_total, TDM_LABEL_ANSWER_retry, q->retries);
    tdm_count_to(b, TDM_METRIC_quic_answers_total, TDM_LABEL_ANSWER_reset, q->resets);
    tdm_count_to(b, TDM_METRIC_quic_answers_total, TDM_LABEL_ANSWER_version, q->version_answers);
    tdm_count_to(b, TDM_METRIC_quic_unproved_bytes_total, TDM_LABEL_DIRECTION_rx,
                 q->unproved_rx_sz);
    tdm_count_to(b, TDM_METRIC_quic_unproved_bytes_total, TDM_LABEL_DIRECTION_tx,
                 q->unproved_tx_sz);
    tdm_count_to(b, TDM_METRIC_quic_path_changes_total, 0, q->path_changes);
    tdm_count_to(b, TDM_METRIC_quic_key_updates_total, 0, q->key_updates);
    tdm_count_to(b, TDM_METRIC_quic_packet_gaps_total, 0, q->packet_gaps);
    tdm_count_to(b, TDM_METRIC_quic_left_blocks_total, 0, q->left_blocks);
    tdm_gauge_set(b, TDM_METRIC_quic_pool_bytes, 0, q->pool_used_sz);
}

/* publish_http counts the heads that api tiles made and those that h3
   made by itself together. */
static void publish_http(tdm_net_tile_t *t) {
    tdm_block_t *b = t->c.block;
    const tdm_h3_counters_t *h = tdm_h3_counters(t->h3);
    uint64_t responses[TDM_LABEL_CNT_CODE];
    for (uint32_t i = 0; i < TDM_LABEL_CNT_CODE; i++) responses[i] = t->n.responses[i];
    uint32_t first = tdm_reason_first(TDM_GROUP_REFUSE), cnt = TDM_LABEL_REASONS_REFUSE;
    for (uint32_t r = first; r < first + cnt; r++) {
        responses[tdm_label_code((uint32_t)tdm_reason_http((tdm_reason_t)r))] += h->refused[r];
        uint64_t rejected = r == TDM_REFUSE_exchange_limit ? h->rejected : 0;
        tdm_count_to(b, TDM_METRIC_refusals_total, tdm_label_reason(r), h->refused[r] + rejected);
    }
    for (uint32_t i = 0; i < TDM_LABEL_CNT_CODE; i++)
        tdm_count_to(b, TDM_METRIC_http_responses_total,
                     tdm_series2(TDM_METRIC_http_responses_total, TDM_LABEL_DOOR_h3, i),
                     responses[i]);
    tdm_gauge_set(b, TDM_METRIC_exchanges_open, TDM_LABEL_DOOR_h3, tdm_slots_used_cnt(&t->slots));
    tdm_gauge_set(b, TDM_METRIC_exchange_slots, TDM_LABEL_DOOR_h3, t->c.exchange_max);
    tdm_gauge_set(b, TDM_METRIC_exchanges_unfinished, 0, h->unfinished_cnt);
    tdm_count_to(b, TDM_METRIC_http_lingerers_ended_total, 0, h->lingered);
    tdm_count_to(b, TDM_METRIC_http_requests_rejected_total, 0, h->rejected);
    tdm_count_to(b, TDM_METRIC_exchanges_total, TDM_LABEL_DOOR_h3, t->n.exchanges);
    tdm_count_to(b, TDM_METRIC_exchanges_reserved_total, TDM_LABEL_DOOR_h3, t->n.reserved);
    tdm_count_to(b, TDM_METRIC_disconnects_total, TDM_LABEL_DOOR_h3, t->n.disconnects);
}

void tdm_net_tile_publish(tdm_net_tile_t *t) {
    tdm_block_begin(t->c.block);
    publish_net(t);
    publish_quic(t);
    publish_http(t);
    tdm_block_end(t->c.block);
}

int tdm_net_tile_is_conserved(tdm_net_tile_t *t) {
    tdm_port_stats_t p;
    tdm_port_stats_read(t->c.port, &p);
    const tdm_link_counters_t *l = tdm_link_counters(t->link);
    return p.rx_frames == l->rx_frames && l->passed == t->n.exception_out + t->n.exception_full &&
           l->datagrams == t->n.quic_taken + t->n.quic_dropped && tdm_link_is_conserved(t->link);
}

const tdm_link_counters_t *tdm_net_tile_link_counters(const tdm_net_tile_t *t) {
    return tdm_link_counters(t->link);
}

const tdm_quic_counters_t *tdm_net_tile_quic_counters(tdm_net_tile_t *t) {
    return tdm_quic_counters(t->quic);
}
