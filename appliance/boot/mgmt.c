/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/boot/mgmt.h"

#include "appliance/abi/reasons.h"
#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "appliance/base/log.h"

#define WATCH_NS   (5 * TDM_NS_PER_MS)
#define PUBLISH_NS (100 * TDM_NS_PER_MS)

int tdm_mgmt_is_failed(const tdm_mgmt_t *m) {
    return m->supervisor->state == TDM_SUPERVISOR_FAILED;
}

static void say_loading(tdm_mgmt_t *m) {
    uint32_t permille = tdm_load_relaxed(&m->supervisor->channel->head->progress_permille);
    if (permille < m->said_permille + 250) return;
    m->said_permille = permille;
    tdm_log(TDM_LOG_INFO, "exec", "loading the model, %u %%", permille / 10);
    tdm_notify_say(m->notify, "STATUS=loading the model, %u %%", permille / 10);
}

static void say_ready(tdm_mgmt_t *m) {
    const tdm_channel_head_t *h = m->supervisor->channel->head;
    tdm_log(TDM_LOG_INFO, "exec", "life %u serves: %u SM threads, %s, %llu MiB beside the weights",
            m->supervisor->epoch, h->sm_cnt, h->isa, (unsigned long long)(h->memory_bytes >> 20));
    tdm_notify_say(m->notify, "READY=1\nSTATUS=executor life %u serves", m->supervisor->epoch);
}

/* refusal is the word that /ready and every admission sees. */
static uint32_t refusal(const tdm_mgmt_t *m, tdm_supervisor_state_t state) {
    if (m->is_draining || m->is_held) return TDM_REFUSE_draining;
    if (tdm_supervisor_is_serving(m->supervisor)) return 0;
    if (state == TDM_SUPERVISOR_FAILED) return TDM_REFUSE_executor_failed;
    return m->was_ready ? TDM_REFUSE_executor_down : TDM_REFUSE_starting;
}

/* note_progress: an iteration that ended is progress for /ready, though it
   may have been one of many of a long prompt. */
static void note_progress(tdm_mgmt_t *m) {
    int64_t ns = tdm_sched_tile_progress_ns(m->sched);
    if (ns > tdm_load_relaxed(&m->vitals->progress_ns))
        tdm_store_relaxed(&m->vitals->progress_ns, ns);
}

static void watch(tdm_mgmt_t *m, int64_t now_ns) {
    tdm_supervisor_state_t before = m->supervisor->state;
    tdm_supervisor_state_t state = tdm_supervisor_poll(m->supervisor, now_ns);
    uint32_t word = refusal(m, state);
    /* who heard of it at /ready finds it in the metrics */
    if (word != tdm_load_relaxed(&m->vitals->refusal)) m->publish_ns = now_ns;
    tdm_store_relaxed(&m->vitals->refusal, word);
    note_progress(m);
    if (m->net)
        tdm_store_relaxed(&m->vitals->is_port_stuck, (uint32_t)tdm_net_tile_is_stuck(m->net));
    if (state == TDM_SUPERVISOR_LOADING) say_loading(m);
    if (state == before) return;
    m->said_permille = 0;
    if (state == TDM_SUPERVISOR_ENDING)
        tdm_notify_say(m->notify, "STATUS=the executor is down: %s", m->supervisor->last.text);
    if (state != TDM_SUPERVISOR_SERVING) return;
    say_ready(m);
    m->was_ready = 1;
}

/* is_pending: something is to move.  While the executor is down or loads,
   its supervisor bounds what is pending. */
static int is_pending(const tdm_mgmt_t *m) {
    uint32_t cnt = tdm_load_acquire(&m->vitals->pending_cnt); /* V1, as readiness in arrive.c */
    return cnt > 0 && m->supervisor->state == TDM_SUPERVISOR_SERVING;
}

/* stalled_ns: since when nothing moved that should. */
static uint64_t stalled_ns(const tdm_mgmt_t *m, int64_t now_ns) {
    if (!is_pending(m)) return 0;
    return (uint64_t)TDM_MAX(now_ns - tdm_load_relaxed(&m->vitals->progress_ns), INT64_C(0));
}

/* beat tells the service manager of forward progress, or why there is
   none. */
static void beat(tdm_mgmt_t *m, int64_t now_ns) {
    char why[96];
    int said = tdm_heartbeat_poll(&m->heartbeat, now_ns, is_pending(m),
                                  tdm_load_relaxed(&m->vitals->progress_ns), why, sizeof why);
    if (said > 0) tdm_notify_say(m->notify, "WATCHDOG=1");
    if (said < 0 && !m->is_withheld) {
        tdm_log(TDM_LOG_ERROR, "boot", "watchdog not fed: %s", why);
        tdm_notify_say(m->notify, "STATUS=watchdog not fed: %s", why);
    }
    if (said) m->is_withheld = said < 0;
}

/* publish_board copies what the driver tells of the GPU: words that it
   does not tell, or told too long ago, are absent. */
static void publish_board(tdm_block_t *b, const tdm_board_t *board, int64_t now_ns) {
    static const struct {
        tdm_metric_t metric;
        uint32_t idx;
        tdm_board_word_t word;
    } row[] = {
        {TDM_METRIC_gpu_sm_active_ratio, 0, TDM_BOARD_SM_ACTIVE_PPM},
        {TDM_METRIC_gpu_sm_occupancy_ratio, 0, TDM_BOARD_OCCUPANCY_PPM},
        {TDM_METRIC_gpu_tensor_active_ratio, 0, TDM_BOARD_TENSOR_PPM},
        {TDM_METRIC_gpu_dram_bandwidth_ratio, 0, TDM_BOARD_DRAM_PPM},
        {TDM_METRIC_gpu_power_watts, TDM_LABEL_POWER_instant_max, TDM_BOARD_POWER_MAX_MW},
        {TDM_METRIC_gpu_power_watts, TDM_LABEL_POWER_average, TDM_BOARD_POWER_AVERAGE_MW},
        {TDM_METRIC_gpu_power_limit_watts, 0, TDM_BOARD_POWER_LIMIT_MW},
        {TDM_METRIC_gpu_energy_joules_total, 0, TDM_BOARD_ENERGY_MJ},
        {TDM_METRIC_gpu_throttle_seconds_total, TDM_LABEL_THROTTLE_power,
         TDM_BOARD_THROTTLE_POWER_NS},
        {TDM_METRIC_gpu_throttle_seconds_total, TDM_LABEL_THROTTLE_thermal,
         TDM_BOARD_THROTTLE_THERMAL_NS},
        {TDM_METRIC_gpu_throttle_seconds_total, TDM_LABEL_THROTTLE_hardware,
         TDM_BOARD_THROTTLE_HARDWARE_NS},
        {TDM_METRIC_gpu_throttle_seconds_total, TDM_LABEL_THROTTLE_sync,
         TDM_BOARD_THROTTLE_SYNC_NS},
        {TDM_METRIC_gpu_temperature_celsius, 0, TDM_BOARD_TEMPERATURE_C},
        {TDM_METRIC_gpu_memory_bytes, TDM_LABEL_DEVICE_MEMORY_total, TDM_BOARD_MEMORY_TOTAL_SZ},
        {TDM_METRIC_gpu_memory_bytes, TDM_LABEL_DEVICE_MEMORY_used, TDM_BOARD_MEMORY_USED_SZ},
        {TDM_METRIC_gpu_memory_bytes, TDM_LABEL_DEVICE_MEMORY_free, TDM_BOARD_MEMORY_FREE_SZ},
        {TDM_METRIC_gpu_ecc_errors_total, TDM_LABEL_ECC_corrected, TDM_BOARD_ECC_CORRECTED},
        {TDM_METRIC_gpu_ecc_errors_total, TDM_LABEL_ECC_uncorrected, TDM_BOARD_ECC_UNCORRECTED},
        {TDM_METRIC_gpu_xid_errors_total, 0, TDM_BOARD_XID_CNT},
        {TDM_METRIC_gpu_xid_last, 0, TDM_BOARD_XID_LAST},
        {TDM_METRIC_gpu_lost, 0, TDM_BOARD_LOST},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++)
        tdm_tell(b, row[i].metric, row[i].idx, tdm_board_raw(board, row[i].word, now_ns));
    static const tdm_board_word_t clock[TDM_LABEL_CNT_CLOCK] = {TDM_BOARD_SM_CLOCK_MHZ,
                                                                TDM_BOARD_MEMORY_CLOCK_MHZ};
    for (uint32_t i = 0; i < TDM_LABEL_CNT_CLOCK; i++) {
        uint64_t mhz;
        int is_told = tdm_board_get(board, clock[i], now_ns, &mhz);
        tdm_tell(b, TDM_METRIC_gpu_clock_hertz, i, is_told ? mhz * 1000000u + 1u : 0u);
    }
}

static void publish(tdm_mgmt_t *m, int64_t now_ns) {
    tdm_block_t *b = m->wires->block[TDM_BLOCK_MGMT];
    uint32_t refused = tdm_load_relaxed(&m->vitals->refusal);
    tdm_block_begin(b);
    uint32_t state = refused == 0                            ? TDM_LABEL_STATE_ready
                     : refused == TDM_REFUSE_draining        ? TDM_LABEL_STATE_draining
                     : refused == TDM_REFUSE_executor_failed ? TDM_LABEL_STATE_failed
                                                             : TDM_LABEL_STATE_starting;
    for (uint32_t i = 0; i < TDM_LABEL_CNT_STATE; i++)
        tdm_gauge_set(b, TDM_METRIC_state, i, i == state);
    tdm_gauge_set(b, TDM_METRIC_executor_epoch, 0, m->supervisor->epoch);
    const tdm_channel_t *channel = m->supervisor->channel;
    tdm_gauge_set(b, TDM_METRIC_executor_sms, 0, channel->head->sm_cnt);
    tdm_gauge_set(b, TDM_METRIC_arena_bytes, TDM_LABEL_ARENA_executor,
                  channel->arena.sz + channel->head->memory_bytes);
    tdm_count_to(b, TDM_METRIC_faults_total, tdm_label_reason(TDM_FAULT_executor_exit),
                 m->supervisor->exit_cnt);
    tdm_count_to(b, TDM_METRIC_executor_load_stalls_total, 0, m->supervisor->load_stall_cnt);
    tdm_count_to(b, TDM_METRIC_log_lines_lost_total, 0, tdm_log_lost_cnt());
    tdm_count_to(b, TDM_METRIC_audit_lines_lost_total, 0, tdm_audit_lost_cnt(m->audit));
    tdm_gauge_set(b, TDM_METRIC_stalled_seconds, 0, stalled_ns(m, now_ns));
    tdm_count_to(b, TDM_METRIC_watchdog_withheld_total, 0, m->heartbeat.withheld_cnt);
    if (m->port) tdm_gauge_set(b, TDM_METRIC_net_link_up, 0, (uint64_t)tdm_port_is_up(m->port));
    tdm_gauge_set(b, TDM_METRIC_net_tx_stuck, 0, tdm_load_relaxed(&m->vitals->is_port_stuck));
    uint64_t page_sz, total, avail;
    tdm_hugepages_read(&page_sz, &total, &avail);
    tdm_gauge_set(b, TDM_METRIC_hugepages, TDM_LABEL_HUGEPAGE_total, total);
    tdm_gauge_set(b, TDM_METRIC_hugepages, TDM_LABEL_HUGEPAGE_free, avail);
    const tdm_channel_t *c = m->supervisor->channel;
    publish_board(b, &c->head->board, now_ns);
    tdm_wires_publish(m->wires, c->plans, c->results);
    tdm_block_end(b);
}

uint32_t tdm_mgmt_poll(void *ctx, int64_t now_ns) {
    tdm_mgmt_t *m = ctx;
    uint32_t work = m->http1 ? tdm_http1_poll(m->http1, now_ns) : 0;
    if (now_ns >= m->watch_ns) {
        m->watch_ns = now_ns + WATCH_NS;
        watch(m, now_ns);
        beat(m, now_ns);
    }
    if (now_ns >= m->publish_ns) {
        m->publish_ns = now_ns + PUBLISH_NS;
        publish(m, now_ns);
    }
    return work;
}

int64_t tdm_mgmt_next_ns(void *ctx, int64_t now_ns) {
    tdm_mgmt_t *m = ctx;
    int64_t next_ns = TDM_MIN(m->watch_ns, m->publish_ns);
    int64_t http1_ns = m->http1 ? tdm_http1_next_ns(m->http1, now_ns) : TDM_TIME_NEVER;
    return TDM_MIN(next_ns, http1_ns);
}
