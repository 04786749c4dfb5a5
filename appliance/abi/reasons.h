/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ABI_REASONS_H
#define TDM_ABI_REASONS_H

/* Enums, names and sentences of reasons.def.  One flat enum, grouped:
   tdm_reason_t values of a group are consecutive, so that a counter array
   per group is indexed by reason - first of the group. */

#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

typedef enum tdm_reason_group {
    TDM_GROUP_DROP,
    TDM_GROUP_REFUSE,
    TDM_GROUP_CAP,
    TDM_GROUP_FALLBACK,
    TDM_GROUP_FAULT,
    TDM_GROUP_CNT
} tdm_reason_group_t;

#define TDM_DROP(n, t)      TDM_DROP_##n,
#define TDM_REFUSE(n, h, t) TDM_REFUSE_##n,
#define TDM_CAP(n, t)       TDM_CAP_##n,
#define TDM_FALLBACK(n, t)  TDM_FALLBACK_##n,
#define TDM_FAULT(n, t)     TDM_FAULT_##n,
typedef enum tdm_reason {
    TDM_REASON_NONE = 0,
#include "appliance/abi/reasons.def"
    TDM_REASON_CNT
} tdm_reason_t;
#undef TDM_DROP
#undef TDM_REFUSE
#undef TDM_CAP
#undef TDM_FALLBACK
#undef TDM_FAULT

/* tdm_reason_name gives the label, "none" for 0; never NULL. */
const char *tdm_reason_name(tdm_reason_t reason);

/* tdm_reason_text gives the sentence without a full stop; never NULL. */
const char *tdm_reason_text(tdm_reason_t reason);

/* tdm_reason_http gives the status of a refusal, 0 for other groups. */
int tdm_reason_http(tdm_reason_t reason);

/* tdm_reason_group_of: the group of a reason other than NONE. */
tdm_reason_group_t tdm_reason_group_of(tdm_reason_t reason);

/* tdm_reason_group_name: "drop", "refuse", "cap", "fallback", "fault". */
const char *tdm_reason_group_name(tdm_reason_group_t group);

/* tdm_reason_first and tdm_reason_cnt delimit a group. */
tdm_reason_t tdm_reason_first(tdm_reason_group_t group);
uint32_t tdm_reason_cnt(tdm_reason_group_t group);

TDM_END_DECLS

#endif /* TDM_ABI_REASONS_H */
