/* SPDX-License-Identifier: Apache-2.0 */
/* Request bodies into an api tile, and what it accepts is served.

   Input: one flag byte (path in the low bits, 8 the HTTP/1.1 door, 16 the
   client leaves half way, 32 the scheduler refuses, 128 the first line of
   the bytes is the path), then the body.  Each exchange ends exactly once
   and leaves nothing behind. */
#include "tests/fuzz/fuzz.h"
#include "tests/unit/api/rig.h"

FUZZ_UNIT("bodies")

static rig_t r;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    rig_default(&r);
    rig_start(&r);
    return 0;
}

static void serve(const rig_exchange_t *e, const tdm_request_t *q, uint32_t flags) {
    FUZZ_CHECK(q->prompt_cnt >= 1 && q->output_max >= 1);
    FUZZ_CHECK(q->prompt_cnt + q->output_max <= r.config.context_max);
    if (flags & 32) {
        rig_refuse(&r, q, TDM_REFUSE_kv_full, 0);
        return;
    }
    rig_accept(&r, q);
    uint32_t cnt = TDM_MIN(q->output_max, 6u);
    for (uint32_t i = 0; i < cnt; i++) {
        if (i == 3 && flags & 16) rig_hang_up(&r, e);
        rig_token(&r, q, (int32_t)("a}\xe2\x82\xac\n"[i]) & 0xff, i);
    }
    rig_end(&r, q, TDM_FINISH_LENGTH, cnt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz) {
    static const char *const path[] = {
        "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize",
        "/v1/embeddings",  "/v1/models",           "/health",   "/"};
    fuzz_in_t in = {data, TDM_MIN(sz, (size_t)60000)};
    uint32_t flags = fuzz_u8(&in);
    rig_exchange_t *e = rig_exchange_fresh(&r, flags >> 3 & 1);
    (void)snprintf(e->x.path, sizeof e->x.path, "%s", path[flags & 7]);
    if (flags & 128) {
        size_t line_sz;
        const uint8_t *end = in.left ? memchr(in.at, '\n', in.left) : NULL;
        const uint8_t *line = fuzz_take(&in, end ? (size_t)(end - in.at) : in.left, &line_sz);
        line_sz = TDM_MIN(line_sz, sizeof e->x.path - 1);
        memcpy(e->x.path, line, line_sz);
        e->x.path[line_sz] = 0;
        e->x.method = (uint16_t)(flags & 1 ? TDM_METHOD_GET : TDM_METHOD_POST);
    }
    rig_body(e, in.at, in.left);
    rig_push(&r, e);
    rig_poll(&r);
    const tdm_request_t *q = rig_submit(&r);
    if (q) serve(e, q, flags);
    rig_settle(&r);
    tdm_control_t c;
    while (rig_control(&r, &c)) continue;
    fuzz_cnt++;
    FUZZ_CHECK(e->end_cnt == 1);
    FUZZ_CHECK(tdm_api_tile_open_cnt(r.tile) == 0);
    FUZZ_CHECK(rig_count(&r, TDM_METRIC_api_prompt_bytes, 0) == 0);
    FUZZ_CHECK(r.vitals.pending_cnt == 0);
    return 0;
}
