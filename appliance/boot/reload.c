/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/boot/reload.h"

#include "appliance/base/atomic.h"

#include <stdio.h>

void tdm_reload_init(tdm_reload_t *r, tdm_reload_read_fn *read, void *ctx) {
    r->read = read;
    r->ctx = ctx;
    (void)pthread_mutex_init(&r->lock, NULL);
}

void tdm_reload_ask(tdm_reload_t *r) {
    (void)tdm_add_relaxed(&r->asked, 1u);
}

int tdm_reload_is_due(const tdm_reload_t *r) {
    return tdm_load_relaxed(&r->asked) != r->done;
}

tdm_status_t tdm_reload_next(tdm_reload_t *r, const tdm_config_t *now, const tdm_config_t **next,
                             tdm_error_t *err) {
    tdm_config_t *c = &r->config[r->which ^ 1u];
    if (!r->read) return tdm_error_set(err, TDM_ERR_INVAL, "there is no configuration to read");
    tdm_status_t st = r->read(r->ctx, c, err);
    if (st != TDM_OK) return st;
    const char *fixed = tdm_config_fixed(now, c);
    if (fixed) return tdm_error_set(err, TDM_ERR_INVAL, "%s: a change needs a restart", fixed);
    *next = c;
    return TDM_OK;
}

void tdm_reload_answer(tdm_reload_t *r, tdm_status_t status, const tdm_error_t *err) {
    r->done = tdm_load_relaxed(&r->asked);
    if (status == TDM_OK) {
        r->which ^= 1u;
        r->revision++;
    }
    (void)pthread_mutex_lock(&r->lock);
    r->said_done = r->done;
    r->is_refused = status != TDM_OK;
    (void)snprintf(r->said, sizeof r->said, "%s", status == TDM_OK ? "" : err->text);
    (void)pthread_mutex_unlock(&r->lock);
}

/* escape copies text as the inside of a JSON string; an error's text is
   printable (base/status.h). */
static void escape(const char *text, char *out, size_t out_sz) {
    size_t n = 0;
    for (; *text && n + 3 < out_sz; text++) {
        if (*text == '"' || *text == '\\') out[n++] = '\\';
        out[n++] = *text;
    }
    out[n] = 0;
}

size_t tdm_reload_text(tdm_reload_t *r, char *buf, size_t buf_sz) {
    char said[2 * sizeof r->said];
    (void)pthread_mutex_lock(&r->lock);
    escape(r->said, said, sizeof said);
    const char *result = r->said_done == 0 ? "none" : r->is_refused ? "refused" : "ok";
    int n = snprintf(buf, buf_sz,
                     "{\"asked\": %u, \"done\": %u, \"revision\": %u, \"result\": \"%s\", "
                     "\"message\": \"%s\"}\n",
                     tdm_load_relaxed(&r->asked), r->said_done, r->revision, result, said);
    (void)pthread_mutex_unlock(&r->lock);
    return n > 0 ? (size_t)n : 0;
}
