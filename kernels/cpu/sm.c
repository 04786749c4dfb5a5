/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/sm.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "appliance/base/atomic.h"
#include "appliance/base/check.h"
#include "appliance/base/clock.h"
#include "appliance/base/size.h"

/* A gate is a word that one side moves from epoch to epoch and the other
   waits for: epoch << 1, with bit 0 set by a waiter that is going to
   sleep.  The mover exchanges the word, so it learns in the same access
   whether somebody must be woken: no fence, and no lost wake-up, because
   a sleeper's futex call compares the word it marked. */
#define GATE_SLEEPS  1u
#define GATE_WORD(e) ((uint32_t)((e) << 1))

typedef struct TDM_ALIGNED(TDM_CACHE_LINE) gate {
    uint32_t word;
} gate_t;

typedef struct sm_thread {
    pthread_t thread;
    tdm_sm_pool_t *pool;
    uint32_t sm;
} sm_thread_t;

struct tdm_sm_pool {
    gate_t go;       /* moved by the caller, waited for by the SMs */
    gate_t done;     /* moved by the last SM, waited for by the caller */
    gate_t left;     /* word: SMs still running the job */
    tdm_sm_fn_t *fn; /* NULL ends the threads */
    void *ctx;
    uint32_t epoch; /* the caller's own */
    uint32_t sm_cnt;
    int64_t spin_ns;
    sm_thread_t thread[]; /* [sm_cnt], [0] unused: the caller */
};

static void futex_wait(uint32_t *word, uint32_t expected) {
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(uint32_t *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* The clock is read once per this many looks at the word, about every
   microsecond. */
#define LOOKS_PER_CLOCK 32

/* gate_spin looks for up to spin_ns; 1 once the gate left `epoch`. */
static int gate_spin(gate_t *g, uint32_t epoch, int64_t spin_ns) {
    int64_t until_ns = spin_ns > 0 ? tdm_clock_now_ns() + spin_ns : 0;
    do {
        for (int i = 0; i < LOOKS_PER_CLOCK; i++) {
            if (tdm_load_acquire(&g->word) >> 1 != GATE_WORD(epoch) >> 1) return 1;
            tdm_cpu_relax();
        }
    } while (spin_ns > 0 && tdm_clock_now_ns() < until_ns);
    return 0;
}

/* gate_wait returns once the gate left `epoch`: R1/A1 or R2/A2. */
static void gate_wait(gate_t *g, uint32_t epoch, int64_t spin_ns) {
    if (gate_spin(g, epoch, spin_ns)) return;
    for (;;) {
        uint32_t word = tdm_load_acquire(&g->word);
        if (word >> 1 != GATE_WORD(epoch) >> 1) return;
        if (!(word & GATE_SLEEPS)) {
            if (!tdm_cas_acq_rel(&g->word, &word, word | GATE_SLEEPS)) continue;
            word |= GATE_SLEEPS;
        }
        futex_wait(&g->word, word);
    }
}

/* gate_move opens the gate to `epoch` and wakes whoever sleeps at it. */
static void gate_move(gate_t *g, uint32_t epoch) {
    if (tdm_swap_acq_rel(&g->word, GATE_WORD(epoch)) & GATE_SLEEPS) futex_wake(&g->word);
}

static void *sm_main(void *arg) {
    sm_thread_t *t = arg;
    tdm_sm_pool_t *pool = t->pool;
    for (uint32_t epoch = 0;; epoch++) {
        gate_wait(&pool->go, epoch, pool->spin_ns); /* A1: pairs with R1 in launch */
        tdm_sm_fn_t *fn = pool->fn;
        if (!fn) return NULL;
        fn(pool->ctx, t->sm);
        /* R2: each arrival releases, the last acquires all and moves the
           gate; pairs with A2 in launch. */
        if (tdm_add_acq_rel(&pool->left.word, UINT32_MAX) == 1) gate_move(&pool->done, epoch + 1);
    }
}

uint64_t tdm_sm_pool_footprint(uint32_t sm_cnt) {
    if (sm_cnt == 0 || sm_cnt > TDM_SM_MAX) return 0;
    return tdm_size_align(sizeof(tdm_sm_pool_t) + sm_cnt * sizeof(sm_thread_t), TDM_CACHE_LINE);
}

static void pin(pthread_t thread, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((unsigned)cpu, &set);
    /* A core that is not ours to use leaves the thread where it is. */
    (void)pthread_setaffinity_np(thread, sizeof set, &set);
}

tdm_status_t tdm_sm_pool_open(void *mem, const tdm_sm_config_t *config, tdm_sm_pool_t **pool_out,
                              tdm_error_t *err) {
    *pool_out = NULL;
    if (tdm_sm_pool_footprint(config->sm_cnt) == 0) {
        return tdm_error_set(err, TDM_ERR_LIMIT, "%u SM threads, need 1 to %d", config->sm_cnt,
                             TDM_SM_MAX);
    }
    tdm_sm_pool_t *pool = mem;
    memset(pool, 0, tdm_sm_pool_footprint(config->sm_cnt));
    pool->spin_ns = config->spin_us * TDM_NS_PER_US;
    pool->sm_cnt = 1;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the main thread's */
    for (uint32_t sm = 1; sm < config->sm_cnt; sm++) {
        sm_thread_t *t = &pool->thread[sm];
        t->pool = pool;
        t->sm = sm;
        int rc = pthread_create(&t->thread, NULL, sm_main, t);
        if (rc) {
            pthread_sigmask(SIG_SETMASK, &before, NULL);
            tdm_sm_pool_close(pool);
            return tdm_error_set(err, TDM_ERR_NOMEM, "SM thread %u of %u: %s", sm, config->sm_cnt,
                                 strerror(rc));
        }
        pool->sm_cnt = sm + 1;
        if (config->cpu && config->cpu[sm] >= 0) pin(t->thread, config->cpu[sm]);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    *pool_out = pool;
    return TDM_OK;
}

/* Publishes a job to all SM threads. */
static void launch(tdm_sm_pool_t *pool, tdm_sm_fn_t *fn, void *ctx) {
    pool->fn = fn;
    pool->ctx = ctx;
    tdm_store_relaxed(&pool->left.word, pool->sm_cnt - 1);
    gate_move(&pool->go, ++pool->epoch); /* R1: pairs with A1 in sm_main */
}

void tdm_sm_pool_close(tdm_sm_pool_t *pool) {
    if (!pool) return;
    launch(pool, NULL, NULL);
    for (uint32_t sm = 1; sm < pool->sm_cnt; sm++) pthread_join(pool->thread[sm].thread, NULL);
    pool->sm_cnt = 0;
}

uint32_t tdm_sm_pool_cnt(const tdm_sm_pool_t *pool) {
    return pool->sm_cnt;
}

void tdm_sm_run(tdm_sm_pool_t *pool, tdm_sm_fn_t *fn, void *ctx) {
    if (pool->sm_cnt == 1) {
        fn(ctx, 0);
        return;
    }
    launch(pool, fn, ctx);
    fn(ctx, 0);
    gate_wait(&pool->done, pool->epoch - 1, pool->spin_ns); /* A2: pairs with R2 in sm_main */
}

typedef struct parallel_for {
    tdm_sm_range_fn_t *fn;
    void *ctx;
    uint64_t cnt;
    uint64_t grain;
    uint32_t sm_cnt;
} parallel_for_t;

/* The part of one SM: grains [sm * n / sm_cnt, (sm + 1) * n / sm_cnt). */
static void part_run(void *ctx, uint32_t sm) {
    const parallel_for_t *f = ctx;
    uint64_t grains = tdm_ceil_div(f->cnt, f->grain);
    uint64_t begin = grains * sm / f->sm_cnt * f->grain;
    uint64_t end = TDM_MIN(grains * (sm + 1) / f->sm_cnt * f->grain, f->cnt);
    if (begin < end) f->fn(f->ctx, begin, end, sm);
}

void tdm_sm_parallel_for(tdm_sm_pool_t *pool, uint64_t cnt, uint64_t grain, tdm_sm_range_fn_t *fn,
                         void *ctx) {
    TDM_DCHECK(grain >= 1);
    if (cnt == 0) return;
    if (pool->sm_cnt == 1 || cnt <= grain) {
        fn(ctx, 0, cnt, 0);
        return;
    }
    parallel_for_t f = {.fn = fn, .ctx = ctx, .cnt = cnt, .grain = grain, .sm_cnt = pool->sm_cnt};
    tdm_sm_run(pool, part_run, &f);
}
