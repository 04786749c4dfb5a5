/* SPDX-License-Identifier: Apache-2.0 */
/* What one scrape costs without HTTP: a snapshot of as many blocks as the
   largest configuration has (every tile, door and page), every series of
   them moved and told, and both sets rendered, as text and as gzip.

     perf_render [COUNT]     wall time of each, microseconds */
#include "telemetry/read/render.h"
#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "telemetry/read/compat.h"
#include "telemetry/read/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 16u

static tdm_block_t block[BLOCKS];
static const tdm_block_t *blocks[BLOCKS];
static tdm_snapshot_t snap;
static char text[TDM_METRICS_TEXT_MAX], gz[TDM_METRICS_TEXT_MAX];

static void fill(void) {
    tdm_rng_t rng = {7};
    for (uint32_t b = 0; b < BLOCKS; b++) {
        blocks[b] = tdm_block_init(&block[b], "perf");
        for (uint32_t m = 0; m < TDM_METRIC_CNT; m++) {
            const tdm_metric_row_t *row = &tdm_metric_row[m];
            for (uint32_t i = 0; i < row->series_cnt; i++) {
                if (row->kind == TDM_METRIC_IS_HISTOGRAM)
                    for (int k = 0; k < 40; k++)
                        tdm_observe(&block[b], (tdm_metric_t)m, i,
                                    tdm_rng_next(&rng) % (row->bound[row->bound_cnt - 1] * 2));
                else
                    tdm_gauge_set(&block[b], (tdm_metric_t)m, i,
                                  tdm_rng_next(&rng) % UINT64_C(1000000000000));
            }
        }
    }
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void say(const char *name, int64_t *ns, uint32_t cnt, uint64_t sz) {
    qsort(ns, cnt, sizeof *ns, by_value);
    printf("%-9s p50 %7.1f us  p99 %7.1f us  max %7.1f us  %llu bytes\n", name,
           (double)ns[cnt / 2] / 1e3, (double)ns[cnt - 1 - cnt / 100] / 1e3,
           (double)ns[cnt - 1] / 1e3, (unsigned long long)sz);
}

int main(int argc, char **argv) {
    uint32_t cnt = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2000;
    int64_t *took = cnt ? calloc(cnt, sizeof *took) : NULL;
    const tdm_fact_t fact[] = {{"version", "0.1.0"}, {"model", "a model of some name"}};
    if (!took) return 1;
    fill();
    printf("%u series native, %u compatible, %u blocks of %zu bytes\n", tdm_metrics_series_cnt(),
           tdm_compat_series_cnt(), BLOCKS, sizeof(tdm_block_t));
    for (uint32_t i = 0; i < cnt; i++) {
        int64_t begin_ns = tdm_clock_now_ns();
        (void)tdm_snapshot_take(&snap, blocks, BLOCKS, begin_ns);
        took[i] = tdm_clock_now_ns() - begin_ns;
    }
    say("snapshot", took, cnt, sizeof snap);
    static const struct {
        const char *name, *accept, *encoding;
    } way[] = {{"text", "text/plain", ""},
               {"openmet.", "application/openmetrics-text", ""},
               {"gzip", "text/plain", "gzip"}};
    for (uint32_t w = 0; w < TDM_COUNT_OF(way); w++) {
        tdm_metrics_page_t page = {0};
        tdm_metrics_ask_t ask = {.query = "set=all",
                                 .accept = way[w].accept,
                                 .accept_encoding = way[w].encoding,
                                 .fact = fact,
                                 .fact_cnt = 2,
                                 .model_name = "a model of some name"};
        for (uint32_t i = 0; i < cnt; i++) {
            int64_t begin_ns = tdm_clock_now_ns();
            (void)tdm_snapshot_take(&snap, blocks, BLOCKS, begin_ns);
            if (tdm_metrics_page(&snap, &ask, text, sizeof text, gz, sizeof gz, &page) != TDM_OK)
                return 1;
            took[i] = tdm_clock_now_ns() - begin_ns;
        }
        say(way[w].name, took, cnt, page.sz);
    }
    free(took);
    return 0;
}
