/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_PROFILE_FILE_H
#define TDM_PROFILE_FILE_H

/* A measurement on disk, in two forms that say the same.

   JSON, to read and to keep in a repository:
     {"tandem_profile": 3, "device": "...", "model": "...", "build": "...",
      "power_w": 0, "clock_khz": 0, "fixed_ns": .., "split_max": 1, "stair_from": 0,
      "is_model": 0, "check": [shapes, p50, p95, worst],
      "lin":   [[tokens, ns, spread, samples], ...],
      "fused": [[chunk, depth, batch, kv, ns, spread, samples], ...],
      "streams": [...], "serial": [...]}

   Compact, to load at start: "TDMPROF3", a header of fixed size, the
   points as they lie in memory (little endian), and a checksum over both.

   A file made for another model or device is refused: its numbers would be
   wrong in silence.  Build and power cap are told, and the caller decides.
   Files come from outside: every number is checked, nothing is trusted,
   point_cnt stays below TDM_PROFILE_POINT_MAX. */

#include "appliance/profile/table.h"

/* tdm_profile_read takes either form.  model and device NULL: any. */
TDM_MUST_USE tdm_status_t tdm_profile_read(const char *path, const char *model, const char *device,
                                           tdm_profile_set_t *set, tdm_error_t *err);

/* tdm_profile_write_json and tdm_profile_write_compact write through a
   temporary file beside path. */
TDM_MUST_USE tdm_status_t tdm_profile_write_json(const char *path, const tdm_profile_set_t *set,
                                                 tdm_error_t *err);
TDM_MUST_USE tdm_status_t tdm_profile_write_compact(const char *path, const tdm_profile_set_t *set,
                                                    tdm_error_t *err);

#endif /* TDM_PROFILE_FILE_H */
