/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/gpu/sampler.h"

#include "appliance/base/check.h"

#include <string.h>
#include <time.h>

#define XIDS_MAX 16u /* events taken in one look: more wait for the next */

/* is_ok notes what an answer says about the device itself. */
static int is_ok(tdm_sampler_t *s, int rc) {
    if (rc == TDM_NVML_ERROR_GPU_IS_LOST || rc == TDM_NVML_ERROR_RESET_REQUIRED) s->is_lost = 1;
    return rc == TDM_NVML_OK;
}

static void tell(tdm_sampler_t *s, tdm_board_word_t w, int is_told, uint64_t value) {
    if (is_told)
        tdm_board_put(s->board, w, value);
    else
        tdm_board_forget(s->board, w);
}

/* kept gives a counter that outlives the sampler. */
static uint64_t kept(const tdm_sampler_t *s, tdm_board_word_t w) {
    uint64_t raw = tdm_load_relaxed(&s->board->word[w]);
    return raw ? raw - 1 : 0;
}

/* --- power ------------------------------------------------------------ */

/* field asks for one value in milliwatts. */
static int field(tdm_sampler_t *s, uint32_t id, uint64_t *value) {
    tdm_nvml_field_t f = {.id = id};
    if (!s->nvml.fields || !is_ok(s, s->nvml.fields(s->nvml.device, 1, &f)) || !is_ok(s, f.status))
        return 0;
    *value = f.type == TDM_NVML_VALUE_U32 ? f.value.u32 : f.value.u64;
    return f.type == TDM_NVML_VALUE_U32 || f.type == TDM_NVML_VALUE_U64;
}

static void look_at_power(tdm_sampler_t *s, int64_t now_ns) {
    uint64_t mw = 0;
    int is_told = field(s, TDM_NVML_FIELD_POWER_INSTANT, &mw);
    tell(s, TDM_BOARD_POWER_MW, is_told, mw);
    if (!is_told) tdm_board_forget(s->board, TDM_BOARD_POWER_MAX_MW);
    if (now_ns - s->peak_from_ns >= TDM_NS_PER_S) {
        if (s->peak_from_ns && s->peak_mw)
            tdm_board_put(s->board, TDM_BOARD_POWER_MAX_MW, s->peak_mw);
        s->peak_from_ns = now_ns;
        s->peak_mw = 0;
    }
    if (is_told) s->peak_mw = TDM_MAX(s->peak_mw, mw);
}

/* Before Ampere the plain call is of the moment; from then on a mean over a
   second, which later drivers have as a field as well. */
static void look_at_mean_power(tdm_sampler_t *s) {
    uint64_t mw = 0;
    uint32_t plain = 0;
    int is_told = field(s, TDM_NVML_FIELD_POWER_AVERAGE, &mw);
    if (!is_told && s->nvml.power) {
        is_told = is_ok(s, s->nvml.power(s->nvml.device, &plain));
        mw = plain;
    }
    tell(s, TDM_BOARD_POWER_AVERAGE_MW, is_told, mw);
}

/* --- clocks ----------------------------------------------------------- */

static void look_at_clock(tdm_sampler_t *s, int domain, tdm_board_word_t w) {
    uint32_t mhz = 0;
    int is_told = s->nvml.clock && is_ok(s, s->nvml.clock(s->nvml.device, domain, &mhz));
    tell(s, w, is_told, mhz);
}

static uint64_t throttle_of(uint64_t reasons) {
    uint64_t t = 0;
    if (reasons & TDM_NVML_REASON_SW_POWER) t |= TDM_THROTTLE_POWER;
    if (reasons & (TDM_NVML_REASON_SW_THERMAL | TDM_NVML_REASON_HW_THERMAL))
        t |= TDM_THROTTLE_THERMAL;
    if (reasons & TDM_NVML_REASON_HW_BRAKE) t |= TDM_THROTTLE_HARDWARE;
    /* The general bit comes with one that says which, or alone. */
    if ((reasons & TDM_NVML_REASON_HW_SLOWDOWN) && !(reasons & TDM_NVML_REASON_HW_THERMAL))
        t |= TDM_THROTTLE_HARDWARE;
    if (reasons & TDM_NVML_REASON_SYNC_BOOST) t |= TDM_THROTTLE_SYNC;
    return t;
}

static void look_at_throttle(tdm_sampler_t *s, int64_t past_ns) {
    static const tdm_board_word_t word[] = {
        TDM_BOARD_THROTTLE_POWER_NS, TDM_BOARD_THROTTLE_THERMAL_NS, TDM_BOARD_THROTTLE_HARDWARE_NS,
        TDM_BOARD_THROTTLE_SYNC_NS};
    uint64_t reasons = 0;
    int (*ask)(tdm_nvml_device_t *, uint64_t *) =
        s->nvml.reasons ? s->nvml.reasons : s->nvml.reasons_old;
    int is_told = ask && is_ok(s, ask(s->nvml.device, &reasons));
    uint64_t throttle = is_told ? throttle_of(reasons) : 0;
    tell(s, TDM_BOARD_THROTTLE, is_told, throttle);
    for (uint32_t i = 0; is_told && i < TDM_COUNT_OF(word); i++)
        tdm_board_put(s->board, word[i],
                      kept(s, word[i]) + (throttle >> i & 1u ? (uint64_t)past_ns : 0));
}

static void look_at_clocks(tdm_sampler_t *s, int64_t past_ns) {
    uint64_t mj = 0;
    uint32_t mw = 0;
    look_at_clock(s, TDM_NVML_CLOCK_SM, TDM_BOARD_SM_CLOCK_MHZ);
    look_at_clock(s, TDM_NVML_CLOCK_MEM, TDM_BOARD_MEMORY_CLOCK_MHZ);
    look_at_throttle(s, past_ns);
    int has_limit = s->nvml.limit && is_ok(s, s->nvml.limit(s->nvml.device, &mw));
    tell(s, TDM_BOARD_POWER_LIMIT_MW, has_limit, mw);
    int has_energy = s->nvml.energy && is_ok(s, s->nvml.energy(s->nvml.device, &mj));
    tell(s, TDM_BOARD_ENERGY_MJ, has_energy, mj);
}

/* --- the rest ---------------------------------------------------------- */

static const struct {
    uint32_t id;
    tdm_board_word_t word;
} gpm_row[] = {{TDM_NVML_GPM_SM_ACTIVE, TDM_BOARD_SM_ACTIVE_PPM},
               {TDM_NVML_GPM_OCCUPANCY, TDM_BOARD_OCCUPANCY_PPM},
               {TDM_NVML_GPM_TENSOR, TDM_BOARD_TENSOR_PPM},
               {TDM_NVML_GPM_DRAM, TDM_BOARD_DRAM_PPM}};

/* ask_gpm takes the difference of the last two samples. */
static int ask_gpm(tdm_sampler_t *s) {
    tdm_nvml_gpm_question_t *q = &s->question;
    *q = (tdm_nvml_gpm_question_t){.version = TDM_NVML_GPM_VERSION,
                                   .metric_cnt = TDM_COUNT_OF(gpm_row),
                                   .before = s->gpm[s->gpm_turn % 2],
                                   .after = s->gpm[(s->gpm_turn + 1) % 2]};
    for (uint32_t i = 0; i < TDM_COUNT_OF(gpm_row); i++) q->metric[i].id = gpm_row[i].id;
    return is_ok(s, s->nvml.gpm_ask(q));
}

static void look_at_gpm(tdm_sampler_t *s) {
    int is_told = 0;
    if (!s->gpm[0]) return;
    if (!is_ok(s, s->nvml.gpm_take(s->nvml.device, s->gpm[s->gpm_turn % 2])))
        s->gpm_turn = 0; /* a gap: the next two samples span a known time again */
    else
        is_told = ++s->gpm_turn >= 2 && ask_gpm(s);
    for (uint32_t i = 0; i < TDM_COUNT_OF(gpm_row); i++) {
        const tdm_nvml_gpm_metric_t *m = &s->question.metric[i];
        int is_valid = is_told && m->status == TDM_NVML_OK && m->value >= 0.0 && m->value <= 100.0;
        tell(s, gpm_row[i].word, is_valid, is_valid ? (uint64_t)(m->value * 1e4) : 0);
    }
}

static void look_at_ecc(tdm_sampler_t *s, int kind, tdm_board_word_t w) {
    uint64_t cnt = 0;
    int is_told =
        s->nvml.ecc && is_ok(s, s->nvml.ecc(s->nvml.device, kind, TDM_NVML_ECC_VOLATILE, &cnt));
    tell(s, w, is_told, cnt);
}

static void look_at_xids(tdm_sampler_t *s) {
    if (!s->events) return;
    uint64_t xids = kept(s, TDM_BOARD_XID_CNT);
    tdm_nvml_event_t e = {0};
    for (uint32_t i = 0; i < XIDS_MAX && s->nvml.events_wait(s->events, &e, 0) == TDM_NVML_OK;
         i++) {
        if (e.type != TDM_NVML_EVENT_XID) continue;
        xids++;
        tdm_board_put(s->board, TDM_BOARD_XID_LAST, e.data);
    }
    tdm_board_put(s->board, TDM_BOARD_XID_CNT, xids);
}

static void look_slowly(tdm_sampler_t *s) {
    uint32_t celsius = 0;
    tdm_nvml_memory_t m = {0};
    look_at_mean_power(s);
    int has_sensor = s->nvml.temperature &&
                     is_ok(s, s->nvml.temperature(s->nvml.device, TDM_NVML_SENSOR_GPU, &celsius));
    tell(s, TDM_BOARD_TEMPERATURE_C, has_sensor, celsius);
    int has_memory = s->nvml.memory && is_ok(s, s->nvml.memory(s->nvml.device, &m));
    tell(s, TDM_BOARD_MEMORY_TOTAL_SZ, has_memory, m.total_sz);
    tell(s, TDM_BOARD_MEMORY_USED_SZ, has_memory, m.used_sz);
    tell(s, TDM_BOARD_MEMORY_FREE_SZ, has_memory, m.free_sz);
    look_at_gpm(s);
    look_at_ecc(s, TDM_NVML_ECC_CORRECTED, TDM_BOARD_ECC_CORRECTED);
    look_at_ecc(s, TDM_NVML_ECC_UNCORRECTED, TDM_BOARD_ECC_UNCORRECTED);
    look_at_xids(s);
}

void tdm_sampler_look(tdm_sampler_t *s, int64_t now_ns) {
    if (!s->nvml.device) return;
    look_at_power(s, now_ns);
    if (now_ns - s->clock_ns >= TDM_SAMPLER_CLOCK_NS) {
        look_at_clocks(s, s->clock_ns ? now_ns - s->clock_ns : 0);
        s->clock_ns = now_ns;
    }
    if (now_ns - s->slow_ns >= TDM_SAMPLER_SLOW_NS) {
        look_slowly(s);
        s->slow_ns = now_ns;
    }
    tdm_board_put(s->board, TDM_BOARD_LOST, s->is_lost);
    tdm_store_relaxed(&s->board->look_ns, (uint64_t)now_ns);
}

int tdm_sampler_is_lost(const tdm_sampler_t *s) {
    return (int)s->is_lost;
}

/* --- life --------------------------------------------------------------- */

static void open_gpm(tdm_sampler_t *s) {
    const tdm_nvml_t *n = &s->nvml;
    tdm_nvml_gpm_support_t support = {.version = TDM_NVML_GPM_VERSION};
    if (!n->gpm_support || !n->gpm_alloc || !n->gpm_free || !n->gpm_take || !n->gpm_ask) return;
    if (!is_ok(s, n->gpm_support(n->device, &support)) || !support.is_supported) return;
    for (uint32_t i = 0; i < 2; i++)
        if (n->gpm_alloc(&s->gpm[i]) != TDM_NVML_OK) s->gpm[i] = NULL;
    if (s->gpm[0] && s->gpm[1]) return;
    for (uint32_t i = 0; i < 2; i++) {
        if (s->gpm[i]) (void)n->gpm_free(s->gpm[i]);
        s->gpm[i] = NULL;
    }
}

static void open_events(tdm_sampler_t *s) {
    const tdm_nvml_t *n = &s->nvml;
    if (!n->events_create || !n->events_free || !n->events_ask || !n->events_wait) return;
    if (n->events_create(&s->events) != TDM_NVML_OK) {
        s->events = NULL;
        return;
    }
    if (n->events_ask(n->device, TDM_NVML_EVENT_XID, s->events) == TDM_NVML_OK) return;
    (void)n->events_free(s->events);
    s->events = NULL;
}

tdm_status_t tdm_sampler_open(tdm_sampler_t *s, tdm_board_t *board, const char *library,
                              const char *bus, int64_t now_ns, tdm_error_t *err) {
    int is_lost = 0;
    memset(s, 0, sizeof *s);
    s->board = board;
    tdm_status_t st = tdm_nvml_open(&s->nvml, library, bus, &is_lost, err);
    s->is_lost = (uint32_t)is_lost;
    if (st != TDM_OK) return st;
    open_gpm(s);
    open_events(s);
    tdm_sampler_look(s, now_ns);
    return TDM_OK;
}

static void *thread_main(void *arg) {
    tdm_sampler_t *s = arg;
    (void)pthread_mutex_lock(&s->lock);
    while (!s->is_stopping) {
        int64_t until_ns = tdm_clock_now_ns() + TDM_SAMPLER_LOOK_NS;
        struct timespec until = {.tv_sec = until_ns / TDM_NS_PER_S,
                                 .tv_nsec = until_ns % TDM_NS_PER_S};
        (void)pthread_cond_timedwait(&s->wake, &s->lock, &until);
        if (s->is_stopping) break;
        (void)pthread_mutex_unlock(&s->lock);
        tdm_sampler_look(s, tdm_clock_now_ns());
        (void)pthread_mutex_lock(&s->lock);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

tdm_status_t tdm_sampler_start(tdm_sampler_t *s, tdm_error_t *err) {
    pthread_condattr_t attr;
    if (!s->nvml.device) return TDM_OK;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->wake, &attr);
    (void)pthread_condattr_destroy(&attr);
    int rc = pthread_create(&s->thread, NULL, thread_main, s);
    if (rc != 0) return tdm_error_set(err, TDM_ERR_IO, "the sampler's thread: %s", strerror(rc));
    s->is_running = 1;
    return TDM_OK;
}

void tdm_sampler_stop(tdm_sampler_t *s) {
    if (!s->is_running) return;
    (void)pthread_mutex_lock(&s->lock);
    s->is_stopping = 1;
    (void)pthread_cond_signal(&s->wake);
    (void)pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
    s->is_running = 0;
    s->slow_ns = 0;
    tdm_sampler_look(s, tdm_clock_now_ns());
}

void tdm_sampler_close(tdm_sampler_t *s) {
    const tdm_nvml_t *n = &s->nvml;
    if (!n->device) return;
    tdm_sampler_stop(s);
    for (uint32_t i = 0; i < 2; i++)
        if (s->gpm[i]) (void)n->gpm_free(s->gpm[i]);
    if (s->events) (void)n->events_free(s->events);
    tdm_nvml_close(&s->nvml);
}
