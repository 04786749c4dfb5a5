/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http1/http1_private.h"

#include <stdlib.h>
#include <string.h>

/* A feed is an answer without an end: a page's more() is asked for the
   next piece each time its period has passed; in between the connection
   is suspended, and tdm_http1_feed_poll resumes it.  Lock: is_suspended
   and due_ns; the rest is the library thread's alone. */

feed_t *tdm_http1_feed_open(tdm_http1_t *d, request_t *r, const tdm_http1_page_t *page) {
    feed_t *f = NULL;
    (void)pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < FEED_MAX && !f; i++)
        if (!d->feed[i].request) f = &d->feed[i];
    if (f) *f = (feed_t){.request = r, .more = page->more, .ctx = page->more_ctx};
    (void)pthread_mutex_unlock(&d->lock);
    if (!f) return NULL;
    f->period_ns = (int64_t)page->more_ms * TDM_NS_PER_MS;
    f->text = malloc(TDM_HTTP1_FEED_MAX);
    if (!f->text) {
        tdm_http1_feed_close(d, f);
        return NULL;
    }
    if (r->link) r->link->has_feed = 1;
    return f;
}

void tdm_http1_feed_close(tdm_http1_t *d, feed_t *f) {
    free(f->text);
    f->text = NULL;
    if (f->request->link) f->request->link->has_feed = 0;
    (void)pthread_mutex_lock(&d->lock);
    f->request = NULL;
    (void)pthread_mutex_unlock(&d->lock);
}

/* rest suspends the connection until the next piece is due and gives 0, or
   what to tell the library where there will be none.  A client that left
   is told of as in next_record of reply.c: one byte into a socket that
   takes none. */
static ssize_t rest(tdm_http1_t *d, feed_t *f) {
    ssize_t end = 0;
    (void)pthread_mutex_lock(&d->lock);
    const link_t *l = f->request->link;
    if (d->is_closing || !l) {
        end = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (l->has_left) {
        (void)shutdown(l->fd, SHUT_RDWR);
        end = 1;
    } else {
        f->is_suspended = 1;
        MHD_suspend_connection(f->request->conn);
    }
    (void)pthread_mutex_unlock(&d->lock);
    return end;
}

ssize_t tdm_http1_feed_read(void *cls, uint64_t pos, char *buf, size_t max) {
    feed_t *f = cls;
    tdm_http1_t *d = f->request->door;
    (void)pos;
    if (f->off == f->sz) {
        int64_t now_ns = tdm_clock_now_ns();
        f->off = f->sz = 0;
        if (now_ns >= f->due_ns) {
            f->sz = f->more(f->ctx, &f->cursor, now_ns, f->text, TDM_HTTP1_FEED_MAX);
            f->due_ns = now_ns + f->period_ns;
        }
        if (f->sz == 0) {
            ssize_t end = rest(d, f);
            if (end == 1) buf[0] = '\n';
            return end;
        }
    }
    size_t n = TDM_MIN(f->sz - f->off, max);
    memcpy(buf, f->text + f->off, n);
    f->off += n;
    return (ssize_t)n;
}

void tdm_http1_feed_resume_locked(tdm_http1_t *d, int64_t now_ns) {
    for (uint32_t i = 0; i < FEED_MAX; i++) {
        feed_t *f = &d->feed[i];
        if (!f->request || !f->is_suspended) continue;
        const link_t *l = f->request->link;
        if (f->due_ns > now_ns && !d->is_closing && !(l && l->has_left)) continue;
        f->is_suspended = 0;
        MHD_resume_connection(f->request->conn);
    }
}

int64_t tdm_http1_feed_next_locked(const tdm_http1_t *d) {
    int64_t next_ns = TDM_TIME_NEVER;
    for (uint32_t i = 0; i < FEED_MAX; i++)
        if (d->feed[i].request && d->feed[i].is_suspended)
            next_ns = TDM_MIN(next_ns, d->feed[i].due_ns);
    return next_ns;
}
