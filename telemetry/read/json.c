/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/read/json_private.h"

static void begin(tdm_json_t *j, const char *key) {
    if (j->has_before) tdm_text_str(&j->text, ",");
    j->has_before = 1;
    if (!key) return;
    tdm_text_json(&j->text, key);
    tdm_text_str(&j->text, ":");
}

void tdm_json_open(tdm_json_t *j, const char *key, const char *bracket) {
    begin(j, key);
    tdm_text_str(&j->text, bracket);
    j->has_before = 0;
}

void tdm_json_close(tdm_json_t *j, const char *bracket) {
    tdm_text_str(&j->text, bracket);
    j->has_before = 1;
}

void tdm_json_u64(tdm_json_t *j, const char *key, uint64_t v) {
    begin(j, key);
    tdm_text_u64(&j->text, v);
}

void tdm_json_fixed(tdm_json_t *j, const char *key, uint64_t v, uint32_t digits) {
    begin(j, key);
    tdm_text_fixed(&j->text, v, digits, 0);
}

void tdm_json_text(tdm_json_t *j, const char *key, const char *v) {
    begin(j, key);
    tdm_text_json(&j->text, v);
}

void tdm_json_raw(tdm_json_t *j, const char *key, const char *v) {
    begin(j, key);
    tdm_text_str(&j->text, v);
}
