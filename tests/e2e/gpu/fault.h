/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TEST_FAULT_H
#define TDM_TEST_FAULT_H

/* Faults of the current CUDA device, for faulty_exec.c. */

#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

/* fault_trap runs a kernel that ends in a trap and waits for it: every later
   call of this process fails.  0: it did; -1: no device of CUDA's here. */
int fault_trap(void);

/* fault_spin keeps every SM busy for ms milliseconds, by the device's own
   clock, and the caller with it.  0, or -1 likewise. */
int fault_spin(uint32_t ms);

TDM_END_DECLS

#endif /* TDM_TEST_FAULT_H */
