// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_HOPPER_CONFIG_H
#define TDM_KERNELS_ATTENTION_HOPPER_CONFIG_H

// The tunables of the Hopper kernel, each with its reason.  What follows
// from them is in traits.cuh; figures are from NOTES.md.

#define HOP_THREAD 512 // four warpgroups: one fetches, three compute
#define HOP_ROW    192 // packed rows of a prefill tile: 3 x 64 share each K and V block
#define HOP_KEY    64  // keys of a block: a page of 64 brings it in one copy

// Registers of the fetching and the computing warpgroups: 128 * 32 + 384 *
// 160 is the whole file.
#define HOP_REG_FETCH   32
#define HOP_REG_COMPUTE 160

#define HOP_SMEM_SZ    231424 // all that a CTA may take, less 1 KiB
#define HOP_CONTROL_SZ 1024
#define HOP_STAGE_MAX  5
#define HOP_TURN       4 // prefill items known at one time: written, in hand, at its end

#define HOP_STEP_SZ  8192 // bytes of K that a decode warp asks for at once
#define HOP_WARP_MAX 12   // decode warps; 192 KiB in flight saturate the memory from 40 SMs
#define HOP_SLOT     4    // decode items known ahead
#define HOP_MERGER   3    // warps that fold what the twelve leave

// Keys of a decode item: its page numbers lie in shared memory.
#define HOP_ITEM_TOK_MAX 2048
#define HOP_PAGE_MAX     (HOP_ITEM_TOK_MAX / 16)

#endif // TDM_KERNELS_ATTENTION_HOPPER_CONFIG_H
