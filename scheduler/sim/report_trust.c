/* SPDX-License-Identifier: Apache-2.0 */
/* How far a plan may be believed, for people and programs. */
#include "scheduler/sim/chart.h"
#include "scheduler/sim/report_private.h"

#include <math.h>

static const char *const key_name[TDM_TRUST_KEY_CNT] = {"gap_p50", "gap_p99", "ttft_p50",
                                                        "ttft_p90", "capacity"};

static int has_rows(const tdm_trust_t *trust) {
    return trust && trust->row_cnt > 0;
}

void report_profile_error(FILE *f, const tdm_trust_t *trust) {
    if (trust && trust->shape_cnt > 0)
        fprintf(f,
                ", off by %.1f %% at p50, %.1f %% at p95 and %.1f %% at worst of %u shapes beside "
                "its points",
                100.0 * trust->p50, 100.0 * trust->p95, 100.0 * trust->worst, trust->shape_cnt);
    else
        fprintf(f, ", by how much off beside its points nobody told");
}

double report_capacity_error(const tdm_trust_t *trust) {
    double most = 0.0;
    for (uint32_t i = 0; has_rows(trust) && i < trust->row_cnt; i++) {
        const tdm_trust_row_t *r = &trust->row[i];
        if (r->cnt[TDM_TRUST_CAPACITY] > 0)
            most = fmax(most, fmax(r->high[TDM_TRUST_CAPACITY], -r->low[TDM_TRUST_CAPACITY]));
    }
    return most;
}

/* span_of says between what errors lie: "-13.1 to +8.8 %". */
static const char *span_of(const tdm_trust_row_t *r, tdm_trust_key_t key, char buf[32]) {
    if (r->cnt[key] == 0)
        (void)snprintf(buf, 32, "-");
    else
        (void)snprintf(buf, 32, "%+.1f to %+.1f %%", 100.0 * r->low[key], 100.0 * r->high[key]);
    return buf;
}

/* --- text ------------------------------------------------------------------ */

void report_trust_text(FILE *f, const tdm_trust_t *trust) {
    if (!has_rows(trust)) {
        fprintf(f, "by how much plans of windows erred beside measured ones nobody told "
                   "(--measured)\n");
        return;
    }
    fprintf(f,
            "by how much plans of windows erred on %s, told over seen of the same arrivals where "
            "the promise was kept (%s):\n%-44s %9s %17s %17s %17s %17s %17s\n",
            trust->device, trust->windows, "trace, gap", "windows", "gap p50", "gap p99",
            "TTFT p50", "TTFT p90", "capacity");
    for (uint32_t i = 0; i < trust->row_cnt; i++) {
        const tdm_trust_row_t *r = &trust->row[i];
        char name[96], span[32];
        (void)snprintf(name, sizeof name, "%s, %.4g ms", r->trace, r->gap_ms);
        fprintf(f, "%-44s %9u", name, r->cnt[TDM_TRUST_GAP_P50]);
        for (uint32_t k = 0; k < TDM_TRUST_KEY_CNT; k++) fprintf(f, " %17s", span_of(r, k, span));
        fputc('\n', f);
    }
}

/* --- JSON -------------------------------------------------------------------- */

void report_trust_json(FILE *f, const tdm_trust_t *trust) {
    fprintf(f, ", \"profile_error\": ");
    if (trust && trust->shape_cnt > 0)
        fprintf(f, "{\"shapes\": %u, \"p50\": %.4f, \"p95\": %.4f, \"worst\": %.4f}",
                trust->shape_cnt, trust->p50, trust->p95, trust->worst);
    else
        fprintf(f, "null");
    fprintf(f, ", \"erred\": ");
    if (!has_rows(trust)) {
        fprintf(f, "null");
        return;
    }
    fprintf(f, "{\"measured\": ");
    report_string(f, trust->windows);
    fprintf(f, ", \"device\": ");
    report_string(f, trust->device);
    fprintf(f, ", \"rows\": [");
    for (uint32_t i = 0; i < trust->row_cnt; i++) {
        const tdm_trust_row_t *r = &trust->row[i];
        fprintf(f, "%s{\"trace\": ", i ? ", " : "");
        report_string(f, r->trace);
        fprintf(f, ", \"gap_ms\": %.1f", r->gap_ms);
        for (uint32_t k = 0; k < TDM_TRUST_KEY_CNT; k++)
            if (r->cnt[k] > 0)
                fprintf(f, ", \"%s\": {\"cnt\": %u, \"low\": %.4f, \"high\": %.4f}", key_name[k],
                        r->cnt[k], r->low[k], r->high[k]);
        fputc('}', f);
    }
    fprintf(f, "]}");
}

/* --- HTML --------------------------------------------------------------------- */

void report_trust_html(FILE *f, const tdm_trust_t *trust) {
    if (!has_rows(trust)) {
        fprintf(f, "<p>By how much plans of windows erred beside measured ones nobody told.</p>\n");
        return;
    }
    fprintf(f, "<p>By how much plans of windows erred on ");
    tdm_chart_text(f, trust->device);
    fprintf(f, ", told over seen of the same arrivals where the promise was kept (");
    tdm_chart_text(f, trust->windows);
    fprintf(f, "):</p>\n<div class=\"wide\"><table><thead><tr><th>trace</th><th>gap, ms</th>"
               "<th>windows</th><th>gap p50</th><th>gap p99</th><th>first token p50</th>"
               "<th>first token p90</th><th>capacity</th></tr></thead><tbody>\n");
    for (uint32_t i = 0; i < trust->row_cnt; i++) {
        const tdm_trust_row_t *r = &trust->row[i];
        char span[32];
        fprintf(f, "<tr><td>");
        tdm_chart_text(f, r->trace);
        fprintf(f, "</td><td>%.4g</td><td>%u</td>", r->gap_ms, r->cnt[TDM_TRUST_GAP_P50]);
        for (uint32_t k = 0; k < TDM_TRUST_KEY_CNT; k++)
            fprintf(f, "<td>%s</td>", span_of(r, k, span));
        fprintf(f, "</tr>\n");
    }
    fprintf(f, "</tbody></table></div>\n");
}
