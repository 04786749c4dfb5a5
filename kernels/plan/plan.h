/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_PLAN_PLAN_H
#define TDM_KERNELS_PLAN_PLAN_H

/* The planner of the GPU's attention: from the sequences of one iteration
   to a blob of virtual CTAs.  Pure host C: no clock, no allocation, no
   CUDA; the same input gives the same blob.

     gate     is there a kernel for this device and shape?  A reason if not
     tile     the widest that leaves two CTAs an SM (smem, registers,
              threads of the description; no device is built in)
     decode   the longest sequence in so many pieces that the rounds of
              items on all warps take the least time
     prefill  tiles of packed rows, cut over keys into the number of pieces
              whose makespan is the least: beside decode half of the CTAs
              begin at once and half when decode is done
     route    where the caller leaves it open (TDM_POD_ROUTE_AUTO): fused,
              unless two streams or serial are predicted to be faster
     hopper   of that variant shares of SMs, whole tiles and pieces come
              from a played launch instead (hopper.h)
     order    longest first, per kind, by counting sort

   Splits depend on the shapes of the batch and on the device's size alone,
   so equal batches have equal bits on equal devices.

   Ownership: blob is the caller's, tdm_pod_blob_max bytes; the plan points
   nowhere. */

#include "kernels/include/pod.h"

TDM_BEGIN_DECLS

/* tdm_pod_config_fill gives zero bounds their defaults. */
void tdm_pod_config_fill(tdm_pod_config_t *config);

/* tdm_pod_gate: the first TDM_FALLBACK_* that forbids a fused launch of
   this shape on this device, in the order of reasons.def, or
   TDM_REASON_NONE.  *variant_out is the best variant that runs the halves,
   TDM_POD_VARIANT_NONE where none does. */
uint32_t tdm_pod_gate(const tdm_pod_config_t *config, uint32_t *variant_out);

/* tdm_pod_variant_gate: the first reason that this variant cannot run the
   shape on the device at all, or TDM_REASON_NONE. */
uint32_t tdm_pod_variant_gate(const tdm_pod_config_t *config, uint32_t variant);

/* tdm_pod_layer_gate: the reason that a layer's tensors give
   (TDM_FALLBACK_alignment: one is not 16-byte aligned), or
   TDM_REASON_NONE. */
uint32_t tdm_pod_layer_gate(const tdm_pod_layer_t *layer);

/* tdm_pod_tile_fit: CTAs of the tile that an SM holds; 0: none. */
uint32_t tdm_pod_tile_fit(const tdm_gpu_t *gpu, uint32_t tile, uint32_t head_dim);

/* tdm_pod_plain_fit: the same of the plain variant's CTAs. */
uint32_t tdm_pod_plain_fit(const tdm_gpu_t *gpu, uint32_t head_dim);

/* tdm_pod_blob_max: the most bytes of a blob under this config. */
uint64_t tdm_pod_blob_max(const tdm_pod_config_t *config);

/* tdm_pod_merge_max: the most merges of a plan under this config. */
uint32_t tdm_pod_merge_max(const tdm_pod_config_t *config);

/* tdm_pod_plan_build plans seq[0, prefill_cnt) as prefill and the next
   decode_cnt as decode (cnt 1 each).  route is the wanted tdm_route_t, or
   TDM_POD_ROUTE_AUTO.
   Always fills *plan; where plan->route is TDM_ROUTE_IDLE though there are
   sequences, nothing may be launched and plan->reason says why. */
void tdm_pod_plan_build(const tdm_pod_config_t *config, const tdm_attn_seq_t *seq,
                        uint32_t prefill_cnt, uint32_t decode_cnt, uint32_t route, void *blob,
                        tdm_pod_plan_t *plan);

TDM_END_DECLS

#endif /* TDM_KERNELS_PLAN_PLAN_H */
