/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/abi/reasons.h"

typedef struct reason_row {
    const char *name;
    const char *text;
    int http;
    tdm_reason_group_t group;
} reason_row_t;

#define TDM_DROP(n, t)      {#n, t, 0, TDM_GROUP_DROP},
#define TDM_REFUSE(n, h, t) {#n, t, h, TDM_GROUP_REFUSE},
#define TDM_CAP(n, t)       {#n, t, 0, TDM_GROUP_CAP},
#define TDM_FALLBACK(n, t)  {#n, t, 0, TDM_GROUP_FALLBACK},
#define TDM_FAULT(n, t)     {#n, t, 0, TDM_GROUP_FAULT},
static const reason_row_t reason_row[TDM_REASON_CNT] = {
    {"none", "nothing", 0, TDM_GROUP_CNT},
#include "appliance/abi/reasons.def"
};

static const reason_row_t *row_of(tdm_reason_t reason) {
    return &reason_row[(unsigned)reason < TDM_REASON_CNT ? reason : TDM_REASON_NONE];
}

const char *tdm_reason_name(tdm_reason_t reason) {
    return row_of(reason)->name;
}

const char *tdm_reason_text(tdm_reason_t reason) {
    return row_of(reason)->text;
}

int tdm_reason_http(tdm_reason_t reason) {
    return row_of(reason)->http;
}

tdm_reason_group_t tdm_reason_group_of(tdm_reason_t reason) {
    return row_of(reason)->group;
}

const char *tdm_reason_group_name(tdm_reason_group_t group) {
    static const char *const name[TDM_GROUP_CNT] = {"drop", "refuse", "cap", "fallback", "fault"};
    return (unsigned)group < TDM_GROUP_CNT ? name[group] : "none";
}

tdm_reason_t tdm_reason_first(tdm_reason_group_t group) {
    for (unsigned i = 1; i < TDM_REASON_CNT; i++)
        if (reason_row[i].group == group) return (tdm_reason_t)i;
    return TDM_REASON_NONE;
}

uint32_t tdm_reason_cnt(tdm_reason_group_t group) {
    uint32_t n = 0;
    for (unsigned i = 1; i < TDM_REASON_CNT; i++) n += reason_row[i].group == group;
    return n;
}
