/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CPU_GATE_PRIVATE_H
#define TDM_KERNELS_CPU_GATE_PRIVATE_H

/* A gate is a word that one side moves from epoch to epoch and the other
   waits for: epoch << 1, with bit 0 set by a waiter that is going to
   sleep.  The mover exchanges the word, so it learns in the same access
   whether somebody must be woken: no fence, and no lost wake-up, because
   a sleeper's futex call compares the word it marked. */

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"

#define GATE_SLEEPS     1u
#define GATE_WORD(e)    ((uint32_t)((e) << 1))
#define GATE_EPOCH_MASK (UINT32_MAX >> 1)

typedef struct TDM_ALIGNED(TDM_CACHE_LINE) gate {
    uint32_t word;
} gate_t;

static inline void futex_wait(uint32_t *word, uint32_t expected) {
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static inline void futex_wake(uint32_t *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* The clock is read once per this many looks at the word, about every
   microsecond. */
#define LOOKS_PER_CLOCK 32

/* gate_spin looks for up to spin_ns; 1 once the gate left `epoch`. */
static inline int gate_spin(gate_t *g, uint32_t epoch, int64_t spin_ns) {
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
static inline void gate_wait(gate_t *g, uint32_t epoch, int64_t spin_ns) {
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
static inline void gate_move(gate_t *g, uint32_t epoch) {
    if (tdm_swap_acq_rel(&g->word, GATE_WORD(epoch)) & GATE_SLEEPS) futex_wake(&g->word);
}

/* gate_epoch gives where the gate stands. */
static inline uint32_t gate_epoch(const gate_t *g) {
    return tdm_load_acquire(&g->word) >> 1;
}

#endif /* TDM_KERNELS_CPU_GATE_PRIVATE_H */
