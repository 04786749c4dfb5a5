/* SPDX-License-Identifier: Apache-2.0 */
/* An executor that plays a recorded run of a GPU: tandem-exec as it ships,
   whose call of tdm_worker_run the linker leads here (--wrap).  Tokens are
   the CPU's; what an iteration took, its virtual CTAs, tiles and clocks are
   the next ones of its route that recording.tsv has, and the board's words
   are the recording's at that second, through the fake libnvidia-ml.  Both
   files lie beside the program; recording.tsv is read anew when it changes.

   recording.tsv (record.py writes it), a word and numbers on each line:

     iteration route took_ns attention_ns sample_ns vcta_prefill vcta_decode
               vcta_prefill_ns vcta_decode_ns colocated_ns splits merges
               tile_row tile_key sms sm_mhz
     board     average_mw instant_mw limit_mw energy_mj sm_mhz memory_mhz
               reasons celsius sm_active occupancy tensor dram (per cent)
               memory_total memory_used (bytes), one line a second, again
               from the first after the last */

#include "appliance/abi/plan.h"
#include "appliance/base/clock.h"
#include "appliance/exec/worker.h"
#include "telemetry/gpu/sampler.h"
#include "tests/unit/telemetry_gpu/fake_nvml.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ITERATION_MAX 4096u
#define BOARD_MAX     600u

tdm_status_t __real_tdm_worker_run(tdm_channel_t *c, tdm_backend_t *backend, tdm_poll_mode_t mode,
                                   const uint32_t *stop, tdm_error_t *err);
tdm_status_t __wrap_tdm_worker_run(tdm_channel_t *c, tdm_backend_t *backend, tdm_poll_mode_t mode,
                                   const uint32_t *stop, tdm_error_t *err);

typedef struct player {
    char folder[400];
    tdm_result_t iteration[ITERATION_MAX]; /* samples unused */
    fake_nvml_t board[BOARD_MAX];
    uint32_t iteration_cnt, board_cnt;
    uint32_t at[TDM_ROUTE_CNT];              /* next of each route */
    tdm_result_t *result[TDM_CHANNEL_DEPTH]; /* of what is under way */
    uint64_t start_cnt, finish_cnt;
    struct timespec changed; /* of the file */
    int64_t begin_ns;
    fake_nvml_t *driver; /* NULL: none */
    uint64_t energy_mj;  /* of the turns before this one */
} player_t;

static player_t player;
static tdm_sampler_t sampler;
static const tdm_backend_ops_t *real_ops;

static void read_iteration(const char *line) {
    tdm_result_t *r = &player.iteration[player.iteration_cnt];
    uint64_t took, clock_mhz;
    memset(r, 0, offsetof(tdm_result_t, sample));
    int n =
        sscanf(line,
               "iteration %u %" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNu64 " %" SCNu64 " %" SCNu64
               " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %hu %hu %u "
               "%" SCNu64,
               &r->route, &took, &r->attention_ns, &r->sample_ns, &r->vcta_planned[0],
               &r->vcta_planned[1], &r->vcta_ns[0], &r->vcta_ns[1], &r->colocated_ns, &r->split_cnt,
               &r->merge_cnt, &r->tile_row, &r->tile_key, &r->sm_cnt, &clock_mhz);
    if (n != 15 || r->route >= TDM_ROUTE_CNT) return;
    r->end_ns = (int64_t)took;
    r->sm_clock_khz = (uint32_t)(1000 * clock_mhz);
    player.iteration_cnt++;
}

static void read_board(const char *line) {
    fake_nvml_t *b = &player.board[player.board_cnt];
    memset(b, 0, sizeof *b);
    int n = sscanf(line,
                   "board %u %u %u %" SCNu64 " %u %u %" SCNu64 " %u %lf %lf %lf %lf %" SCNu64
                   " %" SCNu64,
                   &b->average_mw, &b->instant_mw, &b->limit_mw, &b->energy_mj, &b->sm_mhz,
                   &b->memory_mhz, &b->reasons, &b->celsius, &b->gpm[0], &b->gpm[1], &b->gpm[2],
                   &b->gpm[3], &b->memory_sz[0], &b->memory_sz[2]);
    if (n != 14) return;
    b->memory_sz[1] = b->memory_sz[0] - b->memory_sz[2];
    player.board_cnt++;
}

/* read_again reads the recording where it has changed. */
static void read_again(void) {
    char path[420], line[512];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/recording.tsv", player.folder);
    if (stat(path, &st) != 0 || (st.st_mtim.tv_sec == player.changed.tv_sec &&
                                 st.st_mtim.tv_nsec == player.changed.tv_nsec))
        return;
    FILE *f = fopen(path, "re");
    if (!f) return;
    player.changed = st.st_mtim;
    player.iteration_cnt = player.board_cnt = 0;
    player.begin_ns = tdm_clock_now_ns();
    while (fgets(line, sizeof line, f)) {
        if (line[0] == 'i' && player.iteration_cnt < ITERATION_MAX) read_iteration(line);
        if (line[0] == 'b' && player.board_cnt < BOARD_MAX) read_board(line);
    }
    (void)fclose(f);
}

/* play_board shows the driver the second of the recording that it is.
   Energy goes on over the turns. */
static void play_board(void) {
    if (!player.driver || player.board_cnt == 0) return;
    uint64_t second = (uint64_t)(tdm_clock_now_ns() - player.begin_ns) / TDM_NS_PER_S;
    const fake_nvml_t *b = &player.board[second % player.board_cnt];
    uint64_t span_mj = player.board[player.board_cnt - 1].energy_mj - player.board[0].energy_mj;
    fake_nvml_t *d = player.driver;
    d->average_mw = b->average_mw;
    d->instant_mw = b->instant_mw;
    d->limit_mw = b->limit_mw;
    d->energy_mj = b->energy_mj + second / player.board_cnt * span_mj;
    d->sm_mhz = b->sm_mhz;
    d->memory_mhz = b->memory_mhz;
    d->reasons = b->reasons;
    d->celsius = b->celsius;
    memcpy(d->gpm, b->gpm, sizeof d->gpm);
    memcpy(d->memory_sz, b->memory_sz, sizeof d->memory_sz);
}

/* next_of gives the next recorded iteration of a route, NULL: none. */
static const tdm_result_t *next_of(uint32_t route) {
    for (uint32_t n = 0; n < player.iteration_cnt; n++) {
        const tdm_result_t *r = &player.iteration[player.at[route]++ % player.iteration_cnt];
        if (r->route == route) return r;
    }
    return NULL;
}

static void wait_until(int64_t at_ns) {
    struct timespec ts = {.tv_sec = at_ns / TDM_NS_PER_S, .tv_nsec = at_ns % TDM_NS_PER_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) != 0) {
    }
}

static tdm_status_t start(tdm_backend_t *b, const tdm_plan_t *plan, tdm_result_t *out,
                          tdm_error_t *err) {
    read_again();
    play_board();
    tdm_status_t st = real_ops->start(b, plan, out, err);
    if (st == TDM_OK) player.result[player.start_cnt++ % TDM_CHANNEL_DEPTH] = out;
    return st;
}

static tdm_status_t finish(tdm_backend_t *b, tdm_error_t *err) {
    tdm_result_t *out = player.result[player.finish_cnt++ % TDM_CHANNEL_DEPTH];
    tdm_status_t st = real_ops->finish(b, err);
    const tdm_result_t *r = st == TDM_OK && out->route < TDM_ROUTE_CNT ? next_of(out->route) : NULL;
    if (!r) return st;
    wait_until(out->start_ns + r->end_ns);
    out->end_ns = TDM_MAX(out->end_ns, out->start_ns + r->end_ns);
    out->attention_ns = r->attention_ns;
    out->sample_ns = r->sample_ns;
    for (uint32_t k = 0; k < TDM_KIND_CNT; k++) {
        out->vcta_planned[k] = out->vcta_executed[k] = r->vcta_planned[k];
        out->vcta_ns[k] = r->vcta_ns[k];
    }
    out->colocated_ns = r->colocated_ns;
    out->split_cnt = r->split_cnt;
    out->merge_cnt = r->merge_cnt;
    out->tile_row = r->tile_row;
    out->tile_key = r->tile_key;
    out->sm_clock_khz = r->sm_clock_khz;
    out->sm_cnt = r->sm_cnt;
    return TDM_OK;
}

static void open_board(tdm_channel_t *c) {
    char path[440];
    tdm_error_t err = {0};
    (void)snprintf(path, sizeof path, "%s/libfake_nvml.so", player.folder);
    void *library = dlopen(path, RTLD_NOW);
    if (!library) return;
    player.driver = dlsym(library, "fake_nvml");
    play_board();
    if (tdm_sampler_open(&sampler, &c->head->board, path, "0000:1b:00.0", tdm_clock_now_ns(),
                         &err) != TDM_OK ||
        tdm_sampler_start(&sampler, &err) != TDM_OK)
        (void)fprintf(stderr, "the recorded board: %s\n", err.text);
}

tdm_status_t __wrap_tdm_worker_run(tdm_channel_t *c, tdm_backend_t *backend, tdm_poll_mode_t mode,
                                   const uint32_t *stop, tdm_error_t *err) {
    ssize_t n = readlink("/proc/self/exe", player.folder, sizeof player.folder - 1);
    player.folder[n > 0 ? n : 0] = 0;
    char *slash = strrchr(player.folder, '/');
    if (slash) *slash = 0;
    read_again();
    open_board(c);
    real_ops = backend->ops;
    tdm_backend_ops_t played_ops = *real_ops;
    played_ops.start = start;
    played_ops.finish = finish;
    backend->ops = &played_ops;
    tdm_status_t st = __real_tdm_worker_run(c, backend, mode, stop, err);
    backend->ops = real_ops;
    tdm_sampler_close(&sampler);
    return st;
}
