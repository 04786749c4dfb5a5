/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_NUMERICS_ENGINE_CUDA_CEILING_H
#define TDM_TESTS_NUMERICS_ENGINE_CUDA_CEILING_H

/* What the device reaches at best, to set times against. */

#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

struct CUstream_st;

/* ceiling_read queues one pass over sz bytes of device memory. */
int ceiling_read(const void *p, uint64_t sz, uint32_t *out, struct CUstream_st *stream);

TDM_END_DECLS

#endif /* TDM_TESTS_NUMERICS_ENGINE_CUDA_CEILING_H */
