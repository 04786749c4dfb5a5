/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/read/page.h"

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

tdm_status_t tdm_metrics_page(const tdm_snapshot_t *s, const tdm_fact_t *fact, uint32_t fact_cnt,
                              const char *accept, const char *accept_encoding, char *buf,
                              size_t cap, char *gz, size_t gz_cap, tdm_metrics_page_t *page) {
    memset(page, 0, sizeof *page);
    page->format = tdm_accept_metrics(accept);
    tdm_status_t st = tdm_render_metrics(s, page->format, fact, fact_cnt, buf, cap, &page->sz);
    if (st != TDM_OK) return st;
    page->data = buf;
    size_t packed = gz && tdm_accept_gzip(accept_encoding) ? gzip(gz, gz_cap, buf, page->sz) : 0;
    if (packed) {
        page->is_gzip = 1;
        page->data = gz;
        page->sz = packed;
    }
    return TDM_OK;
}
