/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http1/http1_private.h"

#include "appliance/base/clock.h"

#include <sys/epoll.h>

#define EVENT_BATCH 64
#define SCAN_NS     (250 * TDM_NS_PER_MS) /* a slow request is cut at most this much late */

static void on_word_locked(tdm_http1_t *d, const tdm_egress_t *word) {
    if (!tdm_slots_is_live(&d->slots, word->handle)) {
        tdm_count(d->wires.poll_block, TDM_METRIC_net_drops_total,
                  tdm_label_reason(TDM_DROP_stale_handle), 1);
        return;
    }
    slot_t *s = &d->slot[word->handle.slot];
    s->egress |= word->flags;
    tdm_http1_slot_resume_locked(s);
    tdm_http1_slot_release_locked(d, s);
}

static uint32_t take_words(tdm_http1_t *d) {
    tdm_egress_t word;
    uint32_t n = 0;
    (void)pthread_mutex_lock(&d->lock);
    while (n < d->config.egress_batch && tdm_ring_pop(d->wires.egress, &word)) {
        on_word_locked(d, &word);
        n++;
    }
    (void)pthread_mutex_unlock(&d->lock);
    return n;
}

/* on_leaver: a client with an exchange under way is told to api; an idle
   one's socket is shut, which the library then sees. */
static void on_leaver_locked(tdm_http1_t *d, link_t *l) {
    l->has_left = 1;
    slot_t *s = l->slot;
    if (!s) {
        (void)shutdown(l->fd, SHUT_RDWR);
        return;
    }
    tdm_http1_slot_gone_locked(d, s);
    tdm_http1_slot_resume_locked(s);
}

static uint32_t take_leavers(tdm_http1_t *d, int64_t now_ns) {
    struct epoll_event ev[EVENT_BATCH];
    int n = epoll_wait(d->watch_fd, ev, EVENT_BATCH, 0);
    if (n <= 0) return 0;
    (void)pthread_mutex_lock(&d->lock);
    for (int i = 0; i < n; i++) {
        if (ev[i].data.u64 == UNIX_MARK) continue;
        link_t *l = &d->link[(uint32_t)ev[i].data.u64];
        uint32_t generation = (uint32_t)(ev[i].data.u64 >> 32);
        if (l->is_used && l->generation == generation && !l->has_left) on_leaver_locked(d, l);
    }
    (void)pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < n; i++)
        if (ev[i].data.u64 == UNIX_MARK) tdm_http1_unix_accept(d, now_ns);
    return (uint32_t)n;
}

/* pay_hangups tries again what a full hangup lane did not take. */
static uint32_t pay_hangups(tdm_http1_t *d) {
    uint32_t n = 0;
    (void)pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < d->config.slot_cnt && d->owed_cnt; i++) {
        slot_t *s = &d->slot[i];
        if (tdm_slots_is_used(&d->slots, i) && s->owes_hangup)
            n += (uint32_t)tdm_http1_slot_hangup_locked(d, s);
    }
    (void)pthread_mutex_unlock(&d->lock);
    return n;
}

/* cut_overdue shuts the sockets of requests that drip in too slowly. */
static void cut_overdue(tdm_http1_t *d, int64_t now_ns) {
    if (now_ns < d->scan_ns) return;
    d->scan_ns = now_ns + SCAN_NS;
    (void)pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; d->link_cnt && i < LINK_MAX(&d->config); i++) {
        link_t *l = &d->link[i];
        if (!l->is_used || l->has_left || tdm_load_relaxed(&l->due_ns) > now_ns) continue;
        l->has_left = 1;
        (void)shutdown(l->fd, SHUT_RDWR);
        tdm_count(d->wires.poll_block, TDM_METRIC_refusals_total,
                  tdm_label_reason(TDM_REFUSE_request_timeout), 1);
    }
    (void)pthread_mutex_unlock(&d->lock);
}

uint32_t tdm_http1_poll(tdm_http1_t *d, int64_t now_ns) {
    cut_overdue(d, now_ns);
    uint32_t used = tdm_http1_open_cnt(d);
    tdm_gauge_set(d->wires.poll_block, TDM_METRIC_exchanges_open, TDM_LABEL_DOOR_http1, used);
    tdm_gauge_set(d->wires.poll_block, TDM_METRIC_exchange_slots, TDM_LABEL_DOOR_http1,
                  d->config.slot_cnt);
    tdm_http1_unix_retry(d, now_ns);
    uint32_t work = take_leavers(d, now_ns);
    (void)pthread_mutex_lock(&d->lock);
    tdm_http1_feed_resume_locked(d, now_ns);
    (void)pthread_mutex_unlock(&d->lock);
    return used ? work + take_words(d) + pay_hangups(d) : work;
}

int64_t tdm_http1_next_ns(tdm_http1_t *d, int64_t now_ns) {
    (void)pthread_mutex_lock(&d->lock);
    uint32_t owed = d->owed_cnt, links = d->link_cnt;
    int64_t feed_ns = tdm_http1_feed_next_locked(d);
    (void)pthread_mutex_unlock(&d->lock);
    if (owed) return now_ns + TDM_NS_PER_MS;
    int64_t unix_ns = d->unix_fd >= 0 ? d->unix_ns : TDM_TIME_NEVER;
    return TDM_MIN(TDM_MIN(feed_ns, unix_ns), links ? d->scan_ns : TDM_TIME_NEVER);
}

int tdm_http1_fd(const tdm_http1_t *d) {
    return d->watch_fd;
}

uint32_t tdm_http1_open_cnt(tdm_http1_t *d) {
    return tdm_slots_used_cnt(&d->slots);
}

uint32_t tdm_http1_conn_cnt(tdm_http1_t *d) {
    (void)pthread_mutex_lock(&d->lock);
    uint32_t n = d->link_cnt;
    (void)pthread_mutex_unlock(&d->lock);
    return n;
}
