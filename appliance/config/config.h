/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CONFIG_CONFIG_H
#define TDM_CONFIG_CONFIG_H

/* tdm_config_t is the whole effective configuration: built-in defaults,
   then a JSON file, then --set section.key=value, each checked against
   config.def.  An unknown key, a wrong type or a number out of range
   refuses the start and names the key; nothing is half applied.  boot
   hands each module its own struct made from this one; no other room but
   the programs includes it. */

#include "appliance/base/status.h"

#define TDM_U64(section, key, def, min, max, help) uint64_t section##_##key;
#define TDM_STR(section, key, def, bytes, help)    char section##_##key[bytes];
#define TDM_ENUM(section, key, def, values, help)  uint32_t section##_##key;
typedef struct tdm_config {
#include "appliance/config/config.def"
} tdm_config_t;
#undef TDM_U64
#undef TDM_STR
#undef TDM_ENUM

/* tdm_config_default fills in the built-in values. */
void tdm_config_default(tdm_config_t *config);

/* tdm_config_load merges a JSON file, at most 1 MiB, into config.  On an
   error config is unchanged; the sentence has the line, or the key and
   what it takes. */
TDM_MUST_USE tdm_status_t tdm_config_load(tdm_config_t *config, const char *path, tdm_error_t *err);

/* tdm_config_parse does so with the text of a file, which needs no zero;
   name stands in the sentence of an error. */
TDM_MUST_USE tdm_status_t tdm_config_parse(tdm_config_t *config, const char *text, uint64_t sz,
                                           const char *name, tdm_error_t *err);

/* tdm_config_set merges one "section.key=value". */
TDM_MUST_USE tdm_status_t tdm_config_set(tdm_config_t *config, const char *assignment,
                                         tdm_error_t *err);

/* tdm_config_check refuses what single keys cannot show: powers of two,
   limits that exceed one another. */
TDM_MUST_USE tdm_status_t tdm_config_check(const tdm_config_t *config, tdm_error_t *err);

/* tdm_config_is_live says whether section.key may change without a
   restart. */
int tdm_config_is_live(const char *name);

/* tdm_config_fixed gives the first key that differs between two configs
   and is not live, NULL where there is none. */
const char *tdm_config_fixed(const tdm_config_t *a, const tdm_config_t *b);

/* tdm_config_change is a key whose values differ, as text that is cut to
   what it holds. */
#define TDM_CONFIG_KEY_MAX 192u
typedef struct tdm_config_change {
    const char *key; /* section.key */
    char from[64];
    char to[64];
} tdm_config_change_t;

/* tdm_config_diff fills out[cap] with the keys that differ between a and b,
   in the order of config.def, and says how many it put there. */
size_t tdm_config_diff(const tdm_config_t *a, const tdm_config_t *b, tdm_config_change_t *out,
                       size_t cap);

/* tdm_config_print writes every key with its value as JSON into buf and
   returns the bytes needed, as snprintf does. */
size_t tdm_config_print(const tdm_config_t *config, char *buf, size_t buf_sz);

/* tdm_config_help writes a line per key: name, default, range, help. */
size_t tdm_config_help(char *buf, size_t buf_sz);

/* tdm_config_is_number: 1 where section.key takes a whole number, 0 where it
   takes text or one of some words, -1 where there is no such key. */
int tdm_config_is_number(const char *name);

#endif /* TDM_CONFIG_CONFIG_H */
