// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_HOPPER_CONFIG_H
#define TDM_KERNELS_ATTENTION_HOPPER_CONFIG_H

// The tunables of the Hopper kernel, each with its reason.  What follows
// from them is in traits.cuh; figures are from NOTES.md.

#define HOP_THREAD  512 // four warpgroups: one fetches, three compute
#define HOP_ROW     192 // packed rows of a prefill tile: 3 x 64 share each K and V block
#define HOP_KEY     80  // keys of a block: of 64, the reads of Q would fill shared memory's band
#define HOP_BOX_MAX 64  // keys of one copy of a block

// Registers of the fetching and the computing warpgroups: 128 * 56 + 384 *
// 152 is the whole file.
#define HOP_REG_FETCH   56
#define HOP_REG_COMPUTE 152

// A row keeps the maximum that its weights are relative to until a score
// passes it by this factor (base-2 logarithm): sums are then seldom scaled
// anew, and weights stay below 2^8.
#define HOP_RISE_MAX 8.0f

#define HOP_SMEM_SZ    231424 // all that a CTA may take, less 1 KiB
#define HOP_CONTROL_SZ 1024
#ifndef HOP_STAGE_MAX // a test is built with the least, 2
#define HOP_STAGE_MAX 5
#endif
#define HOP_PART_FIELD 10 // bits of a warpgroup's count of splits
#define HOP_TURN       4  // prefill items known at one time: written, in hand, at its end

#define HOP_STEP_SZ  8192 // bytes of K that a decode warp asks for at once
#define HOP_WARP_MAX 12   // decode warps; 192 KiB in flight saturate the memory from 40 SMs
#define HOP_SLOT     4    // decode items known ahead
#define HOP_MERGER   3    // warps that fold what the twelve leave

// Pages of a decode item: their numbers lie in shared memory
// (TDM_HOPPER_ITEM_PAGE).
#define HOP_PAGE_MAX 128

#endif // TDM_KERNELS_ATTENTION_HOPPER_CONFIG_H
