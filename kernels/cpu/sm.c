/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/sm.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#include "appliance/base/atomic.h"
#include "appliance/base/check.h"
#include "appliance/base/clock.h"
#include "appliance/base/size.h"
#include "kernels/cpu/gate_private.h"

/* The door of a job says who takes part: epoch << 32, the flags, how many
   SMs came and how many are owed.  A job for all is shut from the start
   with every SM owed.  A drawn job starts open with none: an SM that comes
   in time is owed until it leaves; one that finds the door shut, or of
   another epoch, goes back to wait. */
#define DOOR_SHUT       (UINT64_C(1) << 31)
#define DOOR_DRAWN      (UINT64_C(1) << 30)
#define DOOR_CAME       (UINT64_C(1) << 15) /* one of the 15-bit count */
#define DOOR_OWED       (DOOR_CAME - 1)     /* mask; both counts hold TDM_SM_MAX */
#define DOOR_CAME_OF(w) ((uint32_t)((w) / DOOR_CAME) & (uint32_t)DOOR_OWED)

typedef struct TDM_ALIGNED(TDM_CACHE_LINE) door {
    uint64_t word;
} door_t;

typedef struct sm_thread {
    pthread_t thread;
    tdm_sm_pool_t *pool;
    uint32_t sm;
} sm_thread_t;

struct tdm_sm_pool {
    gate_t go;   /* moved by the caller, waited for by the SMs */
    gate_t done; /* moved by the last SM, waited for by the caller */
    door_t door;
    tdm_sm_fn_t *fn; /* NULL ends the threads */
    void *ctx;
    uint32_t epoch; /* the caller's own, in [0, GATE_EPOCH_MASK] */
    uint32_t sm_cnt;
    int64_t spin_ns;
    sm_thread_t thread[]; /* [sm_cnt], [0] unused: the caller */
};

/* door_enter says whether the calling SM takes part in job `epoch`. */
static int door_enter(door_t *door, uint32_t epoch) {
    uint64_t word = tdm_load_acquire(&door->word);
    for (;;) {
        if (word >> 32 != epoch) return 0;
        if (!(word & DOOR_DRAWN)) return 1;
        if (word & DOOR_SHUT) return 0;
        if (tdm_cas_acq_rel(&door->word, &word, word + DOOR_CAME + 1)) return 1;
    }
}

static void *sm_main(void *arg) {
    sm_thread_t *t = arg;
    tdm_sm_pool_t *pool = t->pool;
    uint32_t epoch = 0;
    for (;;) {
        gate_wait(&pool->go, epoch, pool->spin_ns); /* A1: pairs with R1 in launch */
        epoch = gate_epoch(&pool->go);
        if (!door_enter(&pool->door, epoch)) continue;
        tdm_sm_fn_t *fn = pool->fn;
        if (!fn) return NULL;
        fn(pool->ctx, t->sm);
        /* R2: each leaving releases, the last acquires all and moves the
           gate; pairs with A2 in await, or with the shutting of the door. */
        uint64_t word = tdm_add_acq_rel(&pool->door.word, UINT64_MAX);
        if ((word & DOOR_SHUT) && (word & DOOR_OWED) == 1) gate_move(&pool->done, epoch);
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

/* Publishes a job to all SM threads; door is its flags and SMs owed. */
static void launch(tdm_sm_pool_t *pool, tdm_sm_fn_t *fn, void *ctx, uint64_t door) {
    pool->fn = fn;
    pool->ctx = ctx;
    /* Nobody else looks at `done` now: all that were owed have left. */
    tdm_store_relaxed(&pool->done.word, GATE_WORD(pool->epoch));
    pool->epoch = (pool->epoch + 1) & GATE_EPOCH_MASK;
    tdm_store_release(&pool->door.word, (uint64_t)pool->epoch << 32 | door);
    gate_move(&pool->go, pool->epoch); /* R1: pairs with A1 in sm_main */
}

static void launch_all(tdm_sm_pool_t *pool, tdm_sm_fn_t *fn, void *ctx) {
    launch(pool, fn, ctx, DOOR_SHUT | (pool->sm_cnt - 1));
}

/* await returns when all that are owed have left. */
static void await(tdm_sm_pool_t *pool) {
    uint32_t before = (pool->epoch - 1) & GATE_EPOCH_MASK;
    gate_wait(&pool->done, before, pool->spin_ns); /* A2: pairs with R2 in sm_main */
}

void tdm_sm_pool_close(tdm_sm_pool_t *pool) {
    if (!pool) return;
    launch_all(pool, NULL, NULL);
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
    launch_all(pool, fn, ctx);
    fn(ctx, 0);
    await(pool);
}

uint32_t tdm_sm_draw(tdm_sm_pool_t *pool, tdm_sm_fn_t *fn, void *ctx) {
    if (pool->sm_cnt == 1) {
        fn(ctx, 0);
        return 1;
    }
    launch(pool, fn, ctx, DOOR_DRAWN);
    fn(ctx, 0);
    uint64_t word = tdm_add_acq_rel(&pool->door.word, DOOR_SHUT);
    if (word & DOOR_OWED) await(pool);
    return 1 + DOOR_CAME_OF(word);
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
