/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/sizing/sizing.h"

#include "appliance/base/size.h"
#include "appliance/exec/supervisor.h"
#include "appliance/sizing/cpus.h"

#include <ctype.h>
#include <glob.h>
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
    name_devices(machine);
    machine->core_cnt = 1;
    CPU_ZERO(&machine->affinity);
    if (sched_getaffinity(0, sizeof machine->affinity, &machine->affinity) == 0)
        machine->core_cnt = (uint32_t)CPU_COUNT(&machine->affinity);
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

void tdm_machine_ask(const tdm_config_t *c, tdm_machine_t *machine) {
    char program[512];
    tdm_error_t err = {0};
    memset(&machine->device, 0, sizeof machine->device);
    if (c->exec_backend == TDM_EXEC_BACKEND_CPU) return;
    if (tdm_supervisor_program(program, sizeof program, &err) != TDM_OK)
        (void)snprintf(machine->device.why, sizeof machine->device.why, "%.150s", err.text);
    else
        tdm_device_ask(program, &machine->device);
}

/* tile_cnt: the tiles that poll, net, scheduler, management and the api
   tiles, on cores that SM threads could have.  One that tile.cpus puts
   outside of the affinity (isolcpus=) takes none of those, unless a control
   group bounds the time of all together. */
static tdm_status_t tile_cnt(const tdm_config_t *c, const tdm_machine_t *machine, uint32_t *out,
                             tdm_error_t *err) {
    tdm_cpus_t cpus;
    tdm_status_t st = tdm_cpus_parse(c->tile_cpus, &cpus, err);
    *out = 3 + (uint32_t)c->tile_api;
    if (st != TDM_OK || cpus.cnt == 0) return st;
    if (machine->core_cnt < (uint32_t)CPU_COUNT(&machine->affinity)) return st;
    for (uint32_t i = 0; i < 2 + (uint32_t)c->tile_api; i++) /* management is not pinned */
        if (!CPU_ISSET(cpus.cpu[i % cpus.cnt], &machine->affinity)) (*out)--;
    return TDM_OK;
}

/* With plenty of cores the tiles keep one each and the SM threads take the
   rest; with few, both share them all. */
static uint32_t sm_cnt(const tdm_config_t *c, uint32_t core_cnt, uint32_t tiles) {
    if (c->exec_sms) return (uint32_t)c->exec_sms;
    return TDM_MIN(core_cnt >= 4 * tiles ? core_cnt - tiles : core_cnt, 64u);
}

static tdm_poll_mode_t poll_mode(const tdm_config_t *c, uint32_t core_cnt, uint32_t busy) {
    enum { AUTO, BUSY, ADAPTIVE };
    if (c->tile_poll == BUSY) return TDM_POLL_BUSY;
    if (c->tile_poll == ADAPTIVE) return TDM_POLL_ADAPTIVE;
    return core_cnt >= busy ? TDM_POLL_BUSY : TDM_POLL_ADAPTIVE;
}

/* pick_backend turns "auto" into one or the other. */
static tdm_status_t pick_backend(const tdm_config_t *c, const tdm_machine_t *machine, uint32_t *out,
                                 tdm_error_t *err) {
    *out = TDM_EXEC_BACKEND_CPU;
    if (c->exec_backend == TDM_EXEC_BACKEND_CPU) return TDM_OK;
    if (machine->device.is_there) {
        *out = TDM_EXEC_BACKEND_CUDA;
    } else if (c->exec_backend == TDM_EXEC_BACKEND_CUDA) {
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "exec.backend=cuda: %s",
                             machine->device.why);
    }
    return TDM_OK;
}

/* pick_ahead: "auto" is what was measured faster on each backend
   (tests/perf/results/engine_cuda.md, perf_exec_ahead). */
static tdm_status_t pick_ahead(const tdm_config_t *c, uint32_t backend, uint32_t *out,
                               tdm_error_t *err) {
    enum { AUTO, ON };
    if (c->exec_ahead == ON && c->sched_depth < 2)
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "exec.ahead=on begins the second of two plans in flight, and "
                             "sched.depth=1 allows one");
    *out = c->exec_ahead == ON ||
           (c->exec_ahead == AUTO && backend == TDM_EXEC_BACKEND_CUDA && c->sched_depth > 1);
    return TDM_OK;
}

static uint32_t pick_kv_dtype(const tdm_config_t *c, uint32_t backend) {
    enum { AUTO, F32, BF16, FP8 };
    if (c->exec_kv_dtype == FP8) return TDM_KV_E4M3;
    if (c->exec_kv_dtype == F32) return TDM_KV_F32;
    if (c->exec_kv_dtype == BF16) return TDM_KV_BF16;
    return backend == TDM_EXEC_BACKEND_CUDA ? TDM_KV_BF16 : TDM_KV_F32;
}

/* What a GPU keeps besides weights and KV pages: activations, logits,
   plans, code.  An 8B model with 8,192 prefill tokens takes 2.6 GiB; the
   executor checks its exact budget. */
#define GPU_WORK_SZ (UINT64_C(4) << 30)

/* free_for_kv: bytes that the KV pool may take. */
static uint64_t free_for_kv(const tdm_config_t *c, const tdm_shape_t *s,
                            const tdm_machine_t *machine, uint32_t backend) {
    if (backend == TDM_EXEC_BACKEND_CPU) return machine->memory_free_sz / 4;
    uint64_t q = (uint64_t)s->nhead_q * s->head_dim, kv = (uint64_t)s->nhead_kv * s->head_dim;
    uint64_t layer = (2 * q + 2 * kv + 3 * (uint64_t)s->ffn) * s->hidden;
    uint64_t head = (uint64_t)s->vocab * s->hidden * (s->is_tied ? 1 : 2);
    /* The deterministic mode keeps partial sums and items of every row. */
    uint64_t work = c->exec_deterministic ? 2 * GPU_WORK_SZ : GPU_WORK_SZ;
    uint64_t elem_sz = tdm_weight_dtype_sz((uint32_t)c->exec_weight_dtype);
    uint64_t graphs = c->exec_graphs ? c->exec_graph_mib << 20 : 0;
    uint64_t taken = elem_sz * layer * s->layer_cnt + 2 * head + work + graphs;
    uint64_t usable = machine->device.free_sz / 20 * 19;
    return usable > taken ? usable - taken : 0;
}

tdm_status_t tdm_sizing_make(const tdm_config_t *c, const tdm_shape_t *shape,
                             const tdm_machine_t *machine, tdm_sizing_t *out, tdm_error_t *err) {
    uint32_t backend;
    tdm_status_t st = pick_backend(c, machine, &backend, err);
    if (st != TDM_OK) return st;
    uint32_t is_ahead = 0;
    st = pick_ahead(c, backend, &is_ahead, err);
    if (st != TDM_OK) return st;
    uint32_t kv_dtype = pick_kv_dtype(c, backend);
    uint32_t context = c->api_context ? (uint32_t)c->api_context : shape->context;
    if (context > shape->context)
        return tdm_error_set(err, TDM_ERR_LIMIT, "api.context: %u exceeds the model's %u", context,
                             shape->context);
    context = TDM_MIN(context, (uint32_t)TDM_CONTEXT_MAX);
    uint64_t elem_sz = tdm_kv_dtype_sz(kv_dtype);
    uint64_t page_sz = UINT64_C(2) * TDM_KV_PAGE_TOKENS * shape->layer_cnt * shape->nhead_kv *
                       shape->head_dim * elem_sz;
    uint64_t request_pages = tdm_ceil_div(context, TDM_KV_PAGE_TOKENS);
    uint64_t useful = request_pages * c->sched_sequences; /* more can never be held */
    uint64_t pages = c->exec_kv_pages
                         ? c->exec_kv_pages
                         : TDM_MIN(free_for_kv(c, shape, machine, backend) / page_sz, useful);
    if (pages < request_pages)
        return tdm_error_set(err, TDM_ERR_LIMIT,
                             "KV pool: have %llu pages, one request of %u tokens needs %llu (%llu "
                             "MiB); lower api.context or raise exec.kv_pages",
                             (unsigned long long)pages, context, (unsigned long long)request_pages,
                             (unsigned long long)((request_pages * page_sz) >> 20));
    uint32_t tiles;
    st = tile_cnt(c, machine, &tiles, err);
    if (st != TDM_OK) return st;
    uint32_t sms = sm_cnt(c, machine->core_cnt, tiles);
    *out = (tdm_sizing_t){
        .backend = backend,
        .kv_dtype = kv_dtype,
        .sm_cnt = sms,
        .context_max = context,
        .seq_max = (uint32_t)c->sched_sequences,
        .kv_page_cnt = (uint32_t)TDM_MIN(pages, UINT64_C(1) << 26),
        .kv_page_bytes = page_sz,
        .poll_mode = poll_mode(c, machine->core_cnt, tiles + sms),
        .is_ahead = is_ahead,
    };
    return TDM_OK;
}

const char *tdm_sizing_device(const tdm_sizing_t *sizing, const tdm_machine_t *machine) {
    return sizing->backend == TDM_EXEC_BACKEND_CPU ? machine->cpu : machine->device.name;
}

void tdm_sizing_profile_name(const tdm_config_t *c, const tdm_sizing_t *sizing, const char *model,
                             char *out, size_t sz) {
    int is_fixed = c->exec_deterministic && sizing->backend == TDM_EXEC_BACKEND_CUDA;
    (void)snprintf(out, sz, "%s%s%s%s", model, sizing->kv_dtype == TDM_KV_E4M3 ? ", fp8 pages" : "",
                   c->exec_weight_dtype == TDM_WEIGHT_FP8 ? ", fp8 weights" : "",
                   is_fixed ? ", deterministic" : "");
}

void tdm_sizing_spec(const tdm_config_t *c, const tdm_sizing_t *sizing, tdm_exec_spec_t *spec) {
    *spec = (tdm_exec_spec_t){
        .backend = sizing->backend,
        .poll_mode = (uint32_t)sizing->poll_mode,
        .is_sandboxed = c->exec_sandbox != 2, /* auto and on */
        .weight_dtype = (uint32_t)c->exec_weight_dtype,
        .config =
            {
                .kv_page_cnt = sizing->kv_page_cnt,
                .kv_dtype = sizing->kv_dtype,
                .seq_max = sizing->seq_max,
                .token_max = (uint32_t)c->sched_prefill_tokens,
                .context_max = sizing->context_max,
                .sm_cnt = sizing->sm_cnt,
                .cpu_isa = c->exec_isa,
                .is_deterministic = (uint32_t)c->exec_deterministic,
                .is_ahead = sizing->is_ahead,
                .is_resident = (uint32_t)c->exec_resident,
                .graph_max = c->exec_graphs ? (uint32_t)c->exec_graph_max : 0,
                .graph_sz = c->exec_graphs ? c->exec_graph_mib << 20 : 0,
            },
    };
    (void)snprintf(spec->model, sizeof spec->model, "%s", c->model_path);
}
