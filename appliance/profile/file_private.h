/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_PROFILE_FILE_PRIVATE_H
#define TDM_PROFILE_FILE_PRIVATE_H

#include "appliance/profile/file.h"

#include <stdio.h>

/* from_json reads text of len bytes into an empty set. */
tdm_status_t tdm_profile_from_json(const char *path, const char *text, size_t len,
                                   tdm_profile_set_t *set, tdm_error_t *err);

/* replace moves the finished temporary file over path, or removes it where
   is_good is 0. */
tdm_status_t tdm_profile_replace(const char *tmp, const char *path, int is_good, tdm_error_t *err);

/* tmp_name gives path with ".new" added, 0 where it does not fit. */
int tdm_profile_tmp_name(const char *path, char *tmp, size_t sz);

#endif /* TDM_PROFILE_FILE_PRIVATE_H */
