/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kernels_engine/queue.h"

#include "appliance/abi/reasons.h"

#include <string.h>

queue_t queue;

static void apply(void *ctx, const tdm_plan_t *p) {
    (void)ctx;
    queue.applied_cnt += 1 + p->page_cnt;
    rig_write_down("apply");
}

static void begin(void *ctx, tdm_engine_iter_t *it) {
    assert_ptr_equal(ctx, &rig);
    assert_null(it->attn);
    for (uint32_t i = 0; i < it->wanted_cnt; i++) { /* known before anything runs */
        assert_int_equal(it->in[i].pos, it->row[it->wanted[i]].pos + 1);
        assert_non_null(it->in[i].sampling);
    }
    assert_int_equal(it->seq[0].slot, it->row[0].slot);
    rig_note_rows(it);
    queue.iteration = it->plan->iteration;
    it->route = TDM_ROUTE_SERIAL;
    it->reason = TDM_FALLBACK_kernel_error;
    it->is_replayed = queue.is_replay;
    rig_write_down("begin");
}

static void attention(void *ctx, const tdm_engine_iter_t *it, uint32_t layer,
                      tdm_attn_stats_t *stats) {
    (void)ctx;
    (void)it;
    (void)layer;
    (void)stats;
    rig_write_down("att");
}

static void post(void *ctx, const tdm_engine_iter_t *it) {
    (void)ctx;
    (void)it;
    rig_write_down("post");
}

static tdm_status_t finish(void *ctx, const tdm_engine_iter_t *it, tdm_sample_out_t *out,
                           tdm_attn_stats_t *stats, tdm_error_t *err) {
    (void)ctx;
    rig_write_down("finish");
    memcpy(out, rig.queued, it->wanted_cnt * sizeof *out);
    stats->kv_read_bytes = 44;
    return queue.is_failing ? tdm_error_set(err, TDM_ERR_INTERNAL, "broken for the test") : TDM_OK;
}

const tdm_engine_ops_t *queue_ops(void) {
    static tdm_engine_ops_t ops;
    memset(&queue, 0, sizeof queue);
    ops = rig_ops;
    ops.apply = apply;
    ops.begin = begin;
    ops.attention = attention;
    ops.post = post;
    ops.finish = finish;
    return &ops;
}
