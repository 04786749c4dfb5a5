/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_PERF_ATTENTION_WAYS_H
#define TDM_TESTS_PERF_ATTENTION_WAYS_H

/* The ways to run one batch, as a table: a new kernel, policy or knob is a
   line here and nothing else.  The first WAY_MAIN_CNT are measured on every
   point; the rest, the ablations, differ from one of those in one thing. */

#include "kernels/include/pod.h"

/* How the batch is given to the planner. */
typedef enum way_seqs {
    SEQS_HYBRID,            /* the slice as prefill, the decodes as decode */
    SEQS_DECODE_AS_PREFILL, /* the decodes alone, in prefill tiles */
    SEQS_ALL_AS_PREFILL,    /* everything in prefill tiles: one mixed launch */
} way_seqs_t;

typedef struct way {
    const char *name;
    uint32_t way;       /* tdm_pod_way_t */
    uint32_t route;     /* that the plan is made for */
    uint32_t tile;      /* tdm_pod_tile_t */
    uint32_t policy;    /* tdm_pod_policy_t */
    uint32_t split_max; /* of prefill tiles; 0: the planner's */
    uint32_t share_p;   /* of CTAs, sticky; 0 and 0: 1 to 1 */
    uint32_t share_d;
    uint32_t seqs;        /* way_seqs_t */
    uint32_t decode_warp; /* warps of a CTA that draw decode items; 0: all */
    const char *against;  /* what an ablation is compared with */
    const char *what;
} way_t;

#define FUSED_   TDM_POD_WAY_FUSED, TDM_ROUTE_FUSED
#define SERIAL_  TDM_POD_WAY_SERIAL, TDM_ROUTE_SERIAL
#define PREFILL_ TDM_POD_WAY_PREFILL, TDM_ROUTE_SERIAL
#define AUTO_    TDM_POD_TILE_AUTO
#define STICKY_  TDM_POD_POLICY_STICKY

enum { PREFILL, DECODE, SERIAL, STREAMS_PD, STREAMS_DP, FUSED, WAY_MAIN_CNT };

static const way_t way_list[] = {
    {"prefill", PREFILL_, AUTO_, STICKY_, 0, 0, 0, 0, 0, "", "the slice alone"},
    {"decode", TDM_POD_WAY_DECODE, TDM_ROUTE_SERIAL, AUTO_, STICKY_, 0, 0, 0, 0, 0, "",
     "the decodes alone"},
    {"serial", SERIAL_, AUTO_, STICKY_, 0, 0, 0, 0, 0, "", "one after the other"},
    {"streams_pd", TDM_POD_WAY_STREAMS_PD, TDM_ROUTE_STREAMS, AUTO_, STICKY_, 0, 0, 0, 0, 0, "",
     "two streams, prefill issued first"},
    {"streams_dp", TDM_POD_WAY_STREAMS_DP, TDM_ROUTE_STREAMS, AUTO_, STICKY_, 0, 0, 0, 0, 0, "",
     "two streams, decode issued first"},
    {"fused", FUSED_, AUTO_, STICKY_, 0, 0, 0, 0, 0, "", "one launch, sticky roles 1 : 1"},

    {"fused_prop", FUSED_, AUTO_, TDM_POD_POLICY_PROPORTIONAL, 0, 0, 0, 0, 0, "fused",
     "a ticket each turn, in the ratio of the CTAs' work left"},
    {"fused_even", FUSED_, AUTO_, TDM_POD_POLICY_EVEN, 0, 0, 0, 0, 0, "fused",
     "a ticket each turn, 50 : 50"},
    {"fused_p2d1", FUSED_, AUTO_, STICKY_, 0, 2, 1, 0, 0, "fused", "sticky, finer ratio 2 : 1"},
    {"fused_p1d2", FUSED_, AUTO_, STICKY_, 0, 1, 2, 0, 0, "fused", "sticky, finer ratio 1 : 2"},
    {"fused_4cta", FUSED_, TDM_POD_TILE_SLIM, STICKY_, 0, 0, 0, 0, 0, "fused",
     "four CTAs an SM of 64 rows"},
    {"fused_1stage", FUSED_, TDM_POD_TILE_WIDE1, STICKY_, 0, 0, 0, 0, 0, "fused",
     "one stage of K and V instead of two"},
    {"fused_nosplit", FUSED_, AUTO_, STICKY_, 1, 0, 0, 0, 0, "fused", "prefill tiles whole"},
    {"fused_unbound", TDM_POD_WAY_FUSED, TDM_ROUTE_SERIAL, AUTO_, STICKY_, 0, 0, 0, 0, 0, "fused",
     "cuts as if each half were alone: no limit beside the other"},
    {"hfuse", TDM_POD_WAY_HFUSE, TDM_ROUTE_FUSED, AUTO_, STICKY_, 0, 0, 0, 0, 0, "fused",
     "roles fixed by CTA number, no stealing"},
    {"hfuse_warp", TDM_POD_WAY_HFUSE_WARP, TDM_ROUTE_FUSED, AUTO_, STICKY_, 0, 0, 0, 0, 0, "fused",
     "4 warps of each CTA prefill, 4 decode: fused horizontally"},
    {"intra", TDM_POD_WAY_INTRA, TDM_ROUTE_FUSED, TDM_POD_TILE_SLIM, STICKY_, 0, 0, 0, 0, 0,
     "fused", "each warp a prefill step and a decode step in turn (simple form)"},
    {"fused_novirtual", FUSED_, AUTO_, STICKY_, 0, 0, 0, 0, 1, "fused",
     "one decode item a CTA: no virtual CTAs"},
    {"mixed", PREFILL_, AUTO_, STICKY_, 0, 0, 0, SEQS_ALL_AS_PREFILL, 0, "fused",
     "decodes in the prefill kernel's 128-row tiles, one launch"},
    {"serial_4cta", SERIAL_, TDM_POD_TILE_SLIM, STICKY_, 0, 0, 0, 0, 0, "serial",
     "four CTAs an SM of 64 rows"},
    {"serial_1stage", SERIAL_, TDM_POD_TILE_WIDE1, STICKY_, 0, 0, 0, 0, 0, "serial",
     "one stage of K and V instead of two"},
    {"decode_tile64", PREFILL_, TDM_POD_TILE_SLIM, STICKY_, 0, 0, 0, SEQS_DECODE_AS_PREFILL, 0,
     "decode", "decode tile of 64 rows, not 16"},
    {"decode_tile128", PREFILL_, AUTO_, STICKY_, 0, 0, 0, SEQS_DECODE_AS_PREFILL, 0, "decode",
     "decode tile of 128 rows, not 16"},
};
#define WAY_CNT ((uint32_t)(sizeof way_list / sizeof way_list[0]))

#endif /* TDM_TESTS_PERF_ATTENTION_WAYS_H */
