/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_ATTR_H
#define TDM_BASE_ATTR_H

/* Compiler attributes and small macros that every room uses.  This
   header also compiles as CUDA C++, so no C-only keyword appears here. */

#include <stddef.h>
#include <stdint.h>

#define TDM_MUST_USE          __attribute__((warn_unused_result))
#define TDM_NORETURN          __attribute__((noreturn))
#define TDM_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define TDM_ALIGNED(n)        __attribute__((aligned(n)))
#define TDM_LIKELY(x)         __builtin_expect(!!(x), 1)
#define TDM_UNLIKELY(x)       __builtin_expect(!!(x), 0)

/* Bytes that two writers must not share.  128: adjacent-line prefetch on
   x86 pairs 64-byte lines. */
#define TDM_CACHE_LINE 128

#define TDM_COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))
#define TDM_MIN(a, b)   ((a) < (b) ? (a) : (b))
#define TDM_MAX(a, b)   ((a) > (b) ? (a) : (b))

/* TDM_INLINE_BOTH: a small function of a header that runs on the host and, in
   CUDA C++, on the device too. */
#ifdef __CUDACC__
#define TDM_INLINE_BOTH static __host__ __device__ inline
#else
#define TDM_INLINE_BOTH static inline
#endif

/* TDM_BEGIN_DECLS / TDM_END_DECLS surround declarations that CUDA C++
   translation units include. */
#ifdef __cplusplus
#define TDM_BEGIN_DECLS extern "C" {
#define TDM_END_DECLS   }
#else
#define TDM_BEGIN_DECLS
#define TDM_END_DECLS
#endif

#endif /* TDM_BASE_ATTR_H */
