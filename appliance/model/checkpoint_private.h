/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_MODEL_CHECKPOINT_PRIVATE_H
#define TDM_MODEL_CHECKPOINT_PRIVATE_H

#include "appliance/base/status.h"

#include <jansson.h>

/* tdm_checkpoint_json reads folder/name, at most max bytes, as one JSON
   object without duplicate keys; the caller drops *out.  NOT_FOUND where
   there is no such file. */
TDM_MUST_USE tdm_status_t tdm_checkpoint_json(const char *folder, const char *name, uint64_t max,
                                              json_t **out, tdm_error_t *err);

#endif /* TDM_MODEL_CHECKPOINT_PRIVATE_H */
