/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_ATOMIC_H
#define TDM_BASE_ATOMIC_H

/* The only way to touch memory that another thread or process writes.
   The builtins work on plain integers (no _Atomic), so the structs of
   appliance/abi stay plain data in C and CUDA, and ThreadSanitizer sees
   every access.  C11 section 5.1.2.4 gives the meaning of the orders.
   Each release or acquire in the house names its partner in a comment;
   deploy/docs/memory-order.md lists the pairs. */

#define tdm_load_relaxed(p)     __atomic_load_n((p), __ATOMIC_RELAXED)
#define tdm_load_acquire(p)     __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define tdm_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define tdm_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define tdm_add_relaxed(p, v)   __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define tdm_add_acq_rel(p, v)   __atomic_fetch_add((p), (v), __ATOMIC_ACQ_REL)
#define tdm_swap_acq_rel(p, v)  __atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)

/* tdm_cas_acq_rel stores v where *p equals *expected and says whether it
   did; on failure *expected receives what was found. */
#define tdm_cas_acq_rel(p, expected, v)                                                            \
    __atomic_compare_exchange_n((p), (expected), (v), 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

#if defined(__x86_64__) || defined(__i386__)
#define tdm_cpu_relax() __builtin_ia32_pause()
#else
#define tdm_cpu_relax() __asm__ __volatile__("yield" ::: "memory")
#endif

#endif /* TDM_BASE_ATOMIC_H */
