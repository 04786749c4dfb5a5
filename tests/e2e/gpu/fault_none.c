/* SPDX-License-Identifier: Apache-2.0 */
/* A build without CUDA has no device that could fail. */
#include "tests/e2e/gpu/fault.h"

int fault_trap(void) {
    return -1;
}

int fault_spin(uint32_t ms) {
    (void)ms;
    return -1;
}
