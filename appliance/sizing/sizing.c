/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/sizing/sizing.h"

#include "appliance/base/size.h"
#include "appliance/sizing/cpus.h"

#include <ctype.h>
#include <glob.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* named copies what follows the colon of the first line that begins with
   key; "" where the file has none. */
static void named(const char *path, const char *key, char *out, size_t out_sz) {
    char line[256];
    FILE *f = fopen(path, "re");
    out[0] = 0;
    while (f && !out[0] && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (!value || strncmp(line, key, strlen(key)) != 0) continue;
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, "\n")] = 0;
        for (char *p = value; *p; p++)
            if (!isprint((unsigned char)*p)) *p = '?';
        (void)snprintf(out, out_sz, "%s", value);
    }
    if (f) (void)fclose(f);
}

static void name_devices(tdm_machine_t *machine) {
    glob_t found = {0};
    named("/proc/cpuinfo", "model name", machine->cpu, sizeof machine->cpu);
    machine->gpu[0] = 0;
    if (glob("/proc/driver/nvidia/gpus/*/information", 0, NULL, &found) == 0)
        named(found.gl_pathv[0], "Model", machine->gpu, sizeof machine->gpu);
    globfree(&found);
}

void tdm_machine_read(tdm_machine_t *machine) {
    cpu_set_t set;
    name_devices(machine);
    machine->core_cnt = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0) machine->core_cnt = (uint32_t)CPU_COUNT(&set);
    uint32_t limit = tdm_cpus_limit("/proc/self/cgroup", "/sys/fs/cgroup");
    if (limit > 0) machine->core_cnt = TDM_MIN(machine->core_cnt, limit);
    machine->memory_free_sz = UINT64_C(1) << 30;
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    while (f && fgets(line, sizeof line, f)) {
        unsigned long long kib;
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) machine->memory_free_sz = kib * 1024;
    }
    if (f) (void)fclose(f);
}

/* Tiles that poll: net, scheduler, management and the api tiles. */
static uint32_t tile_cnt(const tdm_config_t *c) {
    return 3 + (uint32_t)c->tile_api;
}

/* With plenty of cores the tiles keep one each and the SM threads take the
   rest; with few, both share them all. */
static uint32_t sm_cnt(const tdm_config_t *c, uint32_t core_cnt) {
    uint32_t tiles = tile_cnt(c);
    if (c->exec_sms) return (uint32_t)c->exec_sms;
    return TDM_MIN(core_cnt >= 4 * tiles ? core_cnt - tiles : core_cnt, 64u);
}

static tdm_poll_mode_t poll_mode(const tdm_config_t *c, uint32_t core_cnt, uint32_t sms) {
    enum { AUTO, BUSY, ADAPTIVE };
    if (c->tile_poll == BUSY) return TDM_POLL_BUSY;
    if (c->tile_poll == ADAPTIVE) return TDM_POLL_ADAPTIVE;
    return core_cnt >= tile_cnt(c) + sms ? TDM_POLL_BUSY : TDM_POLL_ADAPTIVE;
}

tdm_status_t tdm_sizing_make(const tdm_config_t *c, const tdm_shape_t *shape,
                             const tdm_machine_t *machine, tdm_sizing_t *out, tdm_error_t *err) {
    enum { KV_F32 };
    uint32_t context = c->api_context ? (uint32_t)c->api_context : shape->context;
    if (context > shape->context)
        return tdm_error_set(err, TDM_ERR_LIMIT, "api.context: %u exceeds the model's %u", context,
                             shape->context);
    context = TDM_MIN(context, (uint32_t)TDM_CONTEXT_MAX);
    uint64_t elem_sz = c->exec_kv_dtype == KV_F32 ? 4 : 2;
    uint64_t page_sz = UINT64_C(2) * TDM_KV_PAGE_TOKENS * shape->layer_cnt * shape->nhead_kv *
                       shape->head_dim * elem_sz;
    uint64_t request_pages = tdm_ceil_div(context, TDM_KV_PAGE_TOKENS);
    uint64_t useful = request_pages * c->sched_sequences; /* more can never be held */
    uint64_t pages = c->exec_kv_pages ? c->exec_kv_pages
                                      : TDM_MIN(machine->memory_free_sz / 4 / page_sz, useful);
    if (pages < request_pages)
        return tdm_error_set(err, TDM_ERR_LIMIT,
                             "KV pool: have %llu pages, one request of %u tokens needs %llu (%llu "
                             "MiB); lower api.context or raise exec.kv_pages",
                             (unsigned long long)pages, context, (unsigned long long)request_pages,
                             (unsigned long long)((request_pages * page_sz) >> 20));
    uint32_t sms = sm_cnt(c, machine->core_cnt);
    *out = (tdm_sizing_t){
        .sm_cnt = sms,
        .context_max = context,
        .seq_max = (uint32_t)c->sched_sequences,
        .kv_page_cnt = (uint32_t)TDM_MIN(pages, UINT64_C(1) << 26),
        .kv_page_bytes = page_sz,
        .poll_mode = poll_mode(c, machine->core_cnt, sms),
    };
    return TDM_OK;
}

const char *tdm_sizing_device(const tdm_config_t *c, const tdm_machine_t *machine) {
    return c->exec_backend == TDM_EXEC_BACKEND_CPU ? machine->cpu : machine->gpu;
}

void tdm_sizing_spec(const tdm_config_t *c, const tdm_sizing_t *sizing, tdm_exec_spec_t *spec) {
    *spec = (tdm_exec_spec_t){
        .backend = c->exec_backend,
        .poll_mode = (uint32_t)sizing->poll_mode,
        .config =
            {
                .kv_page_cnt = sizing->kv_page_cnt,
                .kv_dtype = c->exec_kv_dtype,
                .seq_max = sizing->seq_max,
                .token_max = (uint32_t)c->sched_prefill_tokens,
                .context_max = sizing->context_max,
                .sm_cnt = sizing->sm_cnt,
                .cpu_isa = c->exec_isa,
            },
    };
    (void)snprintf(spec->model, sizeof spec->model, "%s", c->model_path);
}
