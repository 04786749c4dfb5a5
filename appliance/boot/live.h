/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BOOT_LIVE_H
#define TDM_BOOT_LIVE_H

/* The keys of the configuration that may change while the appliance runs,
   in the words of those who obey them.  Pure: used at start and by every
   reload alike. */

#include "appliance/api/api_tile.h"
#include "appliance/config/config.h"
#include "scheduler/config.h"

/* tdm_live_make fills live from config; the profile is left as it is. */
void tdm_live_make(const tdm_config_t *config, tdm_sched_live_t *live);

/* tdm_live_promises gives what each class promises. */
void tdm_live_promises(const tdm_sched_live_t *live, tdm_api_class_t promise[TDM_SLO_CLASS_MAX]);

#endif /* TDM_BOOT_LIVE_H */
