/* SPDX-License-Identifier: Apache-2.0 */
#include "net/port/tell.h"

#include <ctype.h>
#include <rte_telemetry.h>
#include <stdio.h>
#include <string.h>

struct tdm_told {
    struct rte_tel_data *data;
};

typedef struct row {
    const char *command;
    tdm_tell_fn *fn;
    void *ctx;
} row_t;

static row_t row[TDM_TELL_MAX];
static uint32_t row_cnt;

void tdm_told_u64(tdm_told_t *t, const char *key, uint64_t value) {
    char name[64]; /* RTE_TEL_MAX_STRING_LEN is twice that */
    (void)snprintf(name, sizeof name, "%s", key);
    for (char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_' && *p != '/') *p = '_';
    (void)rte_tel_data_add_dict_u64(t->data, name, value); /* full: left out */
}

static int answer(const char *command, const char *params, struct rte_tel_data *data) {
    (void)params;
    for (uint32_t i = 0; i < row_cnt; i++) {
        if (strcmp(command, row[i].command) != 0) continue;
        tdm_told_t t = {data};
        (void)rte_tel_data_start_dict(data);
        row[i].fn(row[i].ctx, &t);
        return 0;
    }
    return -1;
}

int tdm_port_tell(const char *command, const char *help, tdm_tell_fn *fn, void *ctx) {
    if (row_cnt == TDM_TELL_MAX) return 0;
    row[row_cnt] = (row_t){command, fn, ctx};
    if (rte_telemetry_register_cmd(command, answer, help) != 0) return 0;
    row_cnt++;
    return 1;
}
