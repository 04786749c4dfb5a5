/* SPDX-License-Identifier: Apache-2.0 */
/* The management thread's part of a change (appliance/control/change.h):
   handing it to those who obey it, and recording it. */

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "appliance/base/log.h"
#include "appliance/boot/house_private.h"

#include <stdio.h>

void tdm_house_reload(tdm_house_t *h) {
    tdm_change_hup(&h->console.change);
    tdm_doorbell_ring(&h->wires.door_bell[h->wires.door_cnt - 1]);
}

/* hold takes nothing new, or does again; what runs goes on. */
static tdm_status_t hold(tdm_house_t *h, int is_held, tdm_error_t *err) {
    if (tdm_load_relaxed(&h->stop))
        return tdm_error_set(err, TDM_ERR_CLOSED, "the appliance is stopping");
    h->mgmt.is_held = (uint32_t)is_held;
    h->mgmt.watch_ns = 0;
    tdm_sched_tile_drain_set(h->sched, is_held);
    return TDM_OK;
}

/* enforce hands next over; FULL: the scheduler has not taken the change
   before, try again. */
static tdm_status_t enforce(tdm_house_t *h, const tdm_config_t *next, tdm_sched_live_t *live,
                            tdm_error_t *err) {
    *live = h->live;
    tdm_live_make(next, live);
    live->revision = h->console.change.revision + 1u;
    return tdm_sched_tile_live_set(h->sched, live, err);
}

static void in_force(tdm_house_t *h, const tdm_sched_live_t *live) {
    h->live = *live;
    h->mgmt.heartbeat.progress_max_ns = tdm_house_progress_max_ns(h->config);
    tdm_pages_config(&h->pages, h->config);
    tdm_log_set_level((tdm_log_level_t)h->config->log_level);
    tdm_house_promise(h, live);
    tdm_doorbell_ring(&h->channel.sched_bell);
}

static void record(tdm_house_t *h, const tdm_change_ask_t *ask, const char *name, tdm_status_t st,
                   const tdm_error_t *err) {
    char detail[64];
    (void)snprintf(detail, sizeof detail, "revision %u", h->console.change.revision);
    tdm_audit_entry_t entry = {.actor = &ask->actor,
                               .what = name,
                               .why = ask->why,
                               .result = st == TDM_OK ? "ok" : "refused",
                               .detail = st == TDM_OK ? detail : err->text};
    tdm_audit_write(&h->console.audit, tdm_clock_wall_s(), &entry);
    if (st == TDM_OK)
        tdm_log(TDM_LOG_INFO, "control", "%s by %s: %s is in force", name, ask->actor.name, detail);
    else
        tdm_log(TDM_LOG_ERROR, "control", "%s by %s refused: %s", name, ask->actor.name, err->text);
}

/* tell_manager: the service manager waits for both words of a reload. */
static void tell_manager(tdm_house_t *h, tdm_status_t st, const tdm_error_t *err) {
    if (!h->mgmt.was_ready) return;
    tdm_notify_say(&h->notify, "RELOADING=1\nMONOTONIC_USEC=%lld",
                   (long long)(tdm_clock_now_ns() / 1000));
    tdm_notify_say(&h->notify, "READY=1\nSTATUS=%s", st == TDM_OK ? "reloaded" : err->text);
}

void tdm_house_change(tdm_house_t *h, int64_t now_ns) {
    tdm_change_t *c = &h->console.change;
    tdm_block_t *b = h->wires.block[TDM_BLOCK_MGMT];
    const tdm_change_ask_t *ask = tdm_change_take(c, now_ns);
    int64_t due_ns = tdm_change_due_ns(c);
    tdm_gauge_set(b, TDM_METRIC_config_confirm_seconds, 0,
                  due_ns == TDM_TIME_NEVER ? 0 : (uint64_t)TDM_MAX(due_ns - now_ns, INT64_C(1)));
    if (!ask) return;
    const tdm_config_t *next = NULL;
    tdm_error_t err = {0};
    tdm_sched_live_t live;
    tdm_status_t st = tdm_change_next(c, ask, &next, &err);
    if (st == TDM_OK && next) st = enforce(h, next, &live, &err);
    if (st == TDM_ERR_FULL) return;
    if (st == TDM_OK && (ask->kind == TDM_CHANGE_DRAIN || ask->kind == TDM_CHANGE_UNDRAIN))
        st = hold(h, ask->kind == TDM_CHANGE_DRAIN, &err);
    const char *name = tdm_change_kind_name(ask->kind);
    uint32_t kind = (uint32_t)ask->kind - TDM_CHANGE_RELOAD;
    tdm_metric_t m = TDM_METRIC_control_changes_total;
    tdm_count(
        b, m,
        tdm_series2(m, kind, st == TDM_OK ? TDM_LABEL_RELOAD_applied : TDM_LABEL_RELOAD_refused),
        1);
    tdm_change_ask_t done = *ask; /* the ask's place is another's from then on */
    h->config = tdm_change_done(c, ask, st, &err, now_ns, tdm_clock_wall_s());
    if (st == TDM_OK && next) in_force(h, &live);
    tdm_gauge_set(b, TDM_METRIC_config_revision, 0, c->revision);
    record(h, &done, name, st, &err);
    if (done.kind == TDM_CHANGE_RELOAD) tell_manager(h, st, &err);
}
