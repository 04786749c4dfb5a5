/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/read/page.h"

#include "telemetry/read/compat.h"

#include <string.h>
#include <zlib.h>

/* gzip compresses src into dst; 0 where it does not fit or zlib has no
   memory: the page then goes out as it is. */
static size_t gzip(char *dst, size_t cap, const char *src, size_t sz) {
    z_stream z;
    memset(&z, 0, sizeof z);
    if (cap > UINT32_MAX || sz > UINT32_MAX) return 0;
    /* 15 + 16: the largest window, with a gzip head (zlib.h). */
    if (deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return 0;
    z.next_in = (z_const Bytef *)(uintptr_t)src;
    z.avail_in = (uInt)sz;
    z.next_out = (Bytef *)dst;
    z.avail_out = (uInt)cap;
    int rc = deflate(&z, Z_FINISH);
    size_t out = rc == Z_STREAM_END ? cap - z.avail_out : 0;
    (void)deflateEnd(&z);
    return out;
}

/* render writes the sets asked for, one after the other; only the last
   one's "# EOF" stays. */
static tdm_status_t render(const tdm_snapshot_t *s, const tdm_metrics_ask_t *ask, uint32_t sets,
                           char *buf, size_t cap, tdm_metrics_page_t *page) {
    size_t sz = 0, more = 0;
    tdm_status_t st = TDM_OK;
    if (sets & TDM_METRICS_NATIVE)
        st = tdm_render_metrics(s, page->format, ask->fact, ask->fact_cnt, buf, cap, &sz);
    if (st != TDM_OK || !(sets & TDM_METRICS_COMPAT)) {
        page->sz = sz;
        return st;
    }
    if (sz && page->format == TDM_METRICS_OPENMETRICS) sz -= strlen("# EOF\n");
    st = tdm_render_compat(s, page->format, ask->model_name, buf + sz, cap - sz, &more);
    page->sz = sz + more;
    return st;
}

tdm_status_t tdm_metrics_page(const tdm_snapshot_t *s, const tdm_metrics_ask_t *ask, char *buf,
                              size_t cap, char *gz, size_t gz_cap, tdm_metrics_page_t *page) {
    memset(page, 0, sizeof *page);
    page->format = tdm_accept_metrics(ask->accept);
    uint32_t sets = tdm_accept_set(ask->query);
    if (sets == 0) return TDM_ERR_INVAL;
    tdm_status_t st = render(s, ask, sets, buf, cap, page);
    if (st != TDM_OK) return st;
    page->data = buf;
    int is_welcome = gz && tdm_accept_gzip(ask->accept_encoding);
    size_t packed = is_welcome ? gzip(gz, gz_cap, buf, page->sz) : 0;
    if (packed) {
        page->is_gzip = 1;
        page->data = gz;
        page->sz = packed;
    }
    return TDM_OK;
}
