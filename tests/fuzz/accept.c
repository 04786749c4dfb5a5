/* SPDX-License-Identifier: Apache-2.0 */
/* Accept and Accept-Encoding of a scrape.  Input: the header's value; a
   format always comes out. */
#include "tests/fuzz/fuzz.h"

#include "telemetry/read/accept.h"

FUZZ_UNIT("headers")

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz) {
    char *text = malloc(sz + 1);
    FUZZ_CHECK(text);
    if (sz) memcpy(text, data, sz);
    text[sz] = 0;
    tdm_metrics_format_t f = tdm_accept_metrics(text);
    int is_gzip = tdm_accept_gzip(text);
    FUZZ_CHECK(f == TDM_METRICS_PROMETHEUS || f == TDM_METRICS_OPENMETRICS);
    FUZZ_CHECK(is_gzip == 0 || is_gzip == 1);
    free(text);
    fuzz_cnt++;
    return 0;
}
