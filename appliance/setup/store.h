/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SETUP_STORE_H
#define TDM_SETUP_STORE_H

/* Where appliance.json and what belongs to it are kept, below a root
   folder ("" for this machine; a test has one of its own):

     TDM_SETUP_STATE/accepted/   appliance.json, certificate.pem, key.pem
                     former/     what was accepted before
                     machine-id  made once
                     api.keys    the hash of the key that first boot made
     TDM_SETUP_RUN/manifest      the files that were rendered
                   local.key     this boot's key, for root: the machine asks
                                 itself for tokens before an update is good

   Folders change place in one rename, files too, each after its bytes are
   on the disk: a power cut leaves the former state or the new one.  Doing
   a thing twice is doing it once.

   Called by root, from tandemctl appliance. */

#include "appliance/setup/setup.h"

#define TDM_SETUP_PEM_MAX 65536u /* bytes of certificate.pem or key.pem */

/* tdm_setup_accept takes appliance.json, and certificate.pem with key.pem
   where they are there, from a folder.  NOT_FOUND: no appliance.json there.
   Anything else that is no TDM_OK: refused, in a sentence, and what was
   accepted before stays.  Links are not followed; what is no regular file
   or too long is refused; certificate and key must belong to each other.
   is_new (NULL is allowed): it differs from what was accepted before. */
TDM_MUST_USE tdm_status_t tdm_setup_accept(const char *root, const char *folder, int *is_new,
                                           tdm_error_t *err);

/* tdm_setup_accepted reads the file accepted last and the facts.  Without
   one: an empty object, and TDM_OK.  One that this version does not take,
   after a step back to an older one, gives way to the former with the
   sentence in warning. */
TDM_MUST_USE tdm_status_t tdm_setup_accepted(const char *root, tdm_setup_t *s,
                                             tdm_setup_facts_t *facts, tdm_error_t *warning,
                                             tdm_error_t *err);

/* tdm_setup_write makes what is made once (machine id; a key where none is
   given, its text in made_key, empty otherwise; the local key of this boot)
   and renders every file below root.  Files of an earlier rendering that are no longer wanted go.
 */
TDM_MUST_USE tdm_status_t tdm_setup_write(const char *root, char made_key[64], tdm_error_t *warning,
                                          tdm_error_t *err);

/* tdm_setup_held holds the rendered files against the disk: how many there
   should be, and how many differ or lack, the first of them in first. */
TDM_MUST_USE tdm_status_t tdm_setup_held(const char *root, uint32_t *cnt, uint32_t *bad_cnt,
                                         char first[128], tdm_error_t *err);

#endif /* TDM_SETUP_STORE_H */
