/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/flight/explain.h"

#include "appliance/abi/reasons.h"
#include "appliance/base/print.h"
#include "telemetry/block/labels.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

static double ms(int64_t ns) {
    return (double)ns / 1e6;
}

/* name_of gives a label's word, or "7" for a number outside its set. */
static const char *name_of(tdm_label_set_t set, uint32_t idx, char *spare, size_t cap) {
    if (idx < tdm_label_cnt(set)) return tdm_label_value(set, idx);
    (void)snprintf(spare, cap, "%" PRIu32, idx);
    return spare;
}

/* say_reason writes "text (name)". */
static void say_reason(tdm_print_t *p, uint32_t reason, tdm_reason_group_t group) {
    if (reason == 0 || reason >= TDM_REASON_CNT ||
        tdm_reason_group_of((tdm_reason_t)reason) != group)
        tdm_print(p, "reason %" PRIu32, reason);
    else
        tdm_print(p, "%s (%s)", tdm_reason_text((tdm_reason_t)reason),
                  tdm_reason_name((tdm_reason_t)reason));
}

static void say_head(tdm_print_t *p, const tdm_flight_iteration_t *r, int64_t wall_offset_ns) {
    char spare[16], text[32] = "?";
    int64_t at_ns = (r->start_ns ? r->start_ns : r->planned_ns) + wall_offset_ns;
    time_t at_s = (time_t)(at_ns / 1000000000);
    struct tm tm;
    if (gmtime_r(&at_s, &tm)) (void)strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &tm);
    tdm_print(p, "iteration %" PRIu64 " of life %" PRIu32 ", %s.%06d UTC: ", r->iteration, r->epoch,
              text, (int)(at_ns % 1000000000 / 1000));
    if (r->flags & TDM_FLIGHT_LOST)
        tdm_print(p, "planned %s, lost: the executor ended before it did\n",
                  name_of(TDM_SET_PATH, r->route, spare, sizeof spare));
    else
        tdm_print(p, "%s, %.3f ms\n", name_of(TDM_SET_PATH, r->ran, spare, sizeof spare),
                  ms(r->end_ns - r->start_ns));
    tdm_print(p,
              "load        %" PRIu32 " decodes over %" PRIu64 " KV tokens, %" PRIu32
              " prefill tokens in %" PRIu32 " slices; %" PRIu32 " waiting, %" PRIu32
              " running, %" PRIu32 " KV pages free\n",
              r->decode_cnt, r->kv_cnt, r->prefill_cnt, r->slice_cnt, r->waiting_cnt,
              r->running_cnt, r->page_free_cnt);
}

/* say_limit: whose promise, and what of it prefill could use. */
static void say_limit(tdm_print_t *p, const tdm_flight_iteration_t *r) {
    char spare[16];
    double quantile = (double)r->quantile_ppm / 1e6;
    tdm_print(p, "limit       %.3f ms, ", ms(r->limit_ns));
    if (r->limit_class < TDM_SLO_CLASS_MAX)
        tdm_print(p, "the gap promised to class %s",
                  name_of(TDM_SET_SLO_CLASS, r->limit_class, spare, sizeof spare));
    else
        tdm_print(p, "the bound of an iteration without decodes");
    if (r->decode_cnt > 0 && quantile > 0)
        tdm_print(
            p,
            "; iterations take up to %.3f times their prediction (the tracked quantile), so %.3f "
            "ms may be planned",
            quantile, ms((int64_t)((double)r->limit_ns / quantile)));
    tdm_print(p, "\nprefill     ended by: ");
    say_reason(p, r->cap, TDM_GROUP_CAP);
    if (r->flags & TDM_FLIGHT_FORCED)
        tdm_print(p, "; it went over the limit so that prompts still move");
    tdm_print(p, "\n");
}

static void say_route(tdm_print_t *p, const tdm_flight_iteration_t *r) {
    char spare[16];
    tdm_print(p, "route       ");
    if (r->prefill_cnt == 0 || r->decode_cnt == 0) {
        tdm_print(p, "there was one kind of work only: nothing to fuse\n");
        return;
    }
    if (r->ran == TDM_ROUTE_FUSED) {
        tdm_print(p, "fused: prefill and decode shared one attention launch per layer\n");
        return;
    }
    if (r->flags & TDM_FLIGHT_LOST) {
        tdm_print(p, "%s was planned\n", name_of(TDM_SET_PATH, r->route, spare, sizeof spare));
        return;
    }
    tdm_print(p, "%s instead of fused: ", name_of(TDM_SET_PATH, r->ran, spare, sizeof spare));
    say_reason(p, r->fallback, TDM_GROUP_FALLBACK);
    tdm_print(p, "\n");
}

static void say_work(tdm_print_t *p, const tdm_flight_iteration_t *r) {
    const uint64_t *plan = r->vcta_planned, *ran = r->vcta_executed;
    tdm_print(p, "virtual CTA %" PRIu64 " prefill and %" PRIu64 " decode planned, ",
              plan[TDM_KIND_PREFILL], plan[TDM_KIND_DECODE]);
    if (plan[0] == ran[0] && plan[1] == ran[1])
        tdm_print(p, "all executed");
    else
        tdm_print(p, "%" PRIu64 " and %" PRIu64 " executed: a fault", ran[TDM_KIND_PREFILL],
                  ran[TDM_KIND_DECODE]);
    if (ran[TDM_KIND_PREFILL] && ran[TDM_KIND_DECODE])
        tdm_print(p, ", %.2f prefill per decode",
                  (double)ran[TDM_KIND_PREFILL] / (double)ran[TDM_KIND_DECODE]);
    if (r->tile_row) tdm_print(p, "; prefill tiles of %u rows x %u keys", r->tile_row, r->tile_key);
    if (r->miss_us) tdm_print(p, "; no captured graph fitted: queued in %u us", r->miss_us);
    tdm_print(p, "; %" PRIu32 " splits, %" PRIu32 " merges on %" PRIu32 " SMs", r->split_cnt,
              r->merge_cnt, r->sm_cnt);
    uint64_t busy_ns = r->vcta_ns[0] + r->vcta_ns[1];
    if (busy_ns > 0 && r->ran == TDM_ROUTE_FUSED)
        tdm_print(p, ", both kinds at once for %.0f %% of their time",
                  100.0 * (double)r->colocated_ns / (double)busy_ns);
    tdm_print(p, "\n");
}

static void say_time(tdm_print_t *p, const tdm_flight_iteration_t *r) {
    int64_t took_ns = r->end_ns - r->start_ns;
    tdm_print(p, "time        predicted %.3f ms", ms(r->predicted_ns));
    if (r->predicted_ns > 0)
        tdm_print(p, ", took %.2f times that", (double)took_ns / (double)r->predicted_ns);
    if (r->profile_ns > 0) tdm_print(p, ", by the profile alone %.3f ms", ms(r->profile_ns));
    if (took_ns > 0)
        tdm_print(p, "; attention %.0f %%", 100.0 * (double)r->attention_ns / (double)took_ns);
    if (took_ns > 0 && r->sample_ns > 0) /* a GPU does not tell it */
        tdm_print(p, ", sampling %.0f %%", 100.0 * (double)r->sample_ns / (double)took_ns);
    if (r->flags & TDM_FLIGHT_OUTSIDE)
        tdm_print(p, "; the shape lies outside the measured profile");
    tdm_print(p, "\nverdict     ");
    if (took_ns <= r->limit_ns)
        tdm_print(p, "within its limit");
    else
        tdm_print(p, "%.3f ms over its limit", ms(took_ns - r->limit_ns));
    tdm_print(p, ", %" PRIu32 " of %" PRIu32 " decodes came later than promised\n", r->over_cnt,
              r->decode_cnt);
    if (r->clock_mhz || r->energy_uj)
        tdm_print(p, "device      %" PRIu32 " MHz, %.3f J\n", r->clock_mhz,
                  (double)r->energy_uj / 1e6);
}

size_t tdm_explain(const tdm_flight_iteration_t *r, int64_t wall_offset_ns, char *buf, size_t cap) {
    tdm_print_t p = {buf, cap, 0};
    if (cap) buf[0] = 0;
    say_head(&p, r, wall_offset_ns);
    say_limit(&p, r);
    say_route(&p, r);
    if (r->flags & TDM_FLIGHT_LOST) return p.sz;
    say_work(&p, r);
    say_time(&p, r);
    return p.sz;
}

/* --- which one -------------------------------------------------------- */

int tdm_explain_find(const void *mem, int64_t at_ns, tdm_flight_iteration_t *out) {
    tdm_flight_iteration_t r;
    int is_found = 0;
    for (uint64_t n = tdm_flight_newest(mem, 0); n > tdm_flight_oldest(mem, 0);) {
        if (!tdm_flight_get(mem, 0, --n, &r)) continue;
        int64_t begin_ns = r.start_ns ? r.start_ns : r.planned_ns;
        if (at_ns != 0 && begin_ns > at_ns) continue;
        *out = r;
        is_found = 1;
        break;
    }
    return is_found;
}

int tdm_explain_number(const void *mem, uint64_t iteration, tdm_flight_iteration_t *out) {
    for (uint64_t n = tdm_flight_newest(mem, 0); n > tdm_flight_oldest(mem, 0);)
        if (tdm_flight_get(mem, 0, --n, out) && out->iteration == iteration) return 1;
    return 0;
}

int tdm_explain_slowest(const void *mem, uint32_t fallback, tdm_flight_iteration_t *out) {
    tdm_flight_iteration_t r;
    int is_found = 0;
    for (uint64_t n = tdm_flight_newest(mem, 0); n > tdm_flight_oldest(mem, 0);) {
        if (!tdm_flight_get(mem, 0, --n, &r) || r.flags & TDM_FLIGHT_LOST) continue;
        if (fallback && r.fallback != fallback) continue;
        if (is_found && r.end_ns - r.start_ns <= out->end_ns - out->start_ns) continue;
        *out = r;
        is_found = 1;
    }
    return is_found;
}
