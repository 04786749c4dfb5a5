/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_INCLUDE_POD_H
#define TDM_KERNELS_INCLUDE_POD_H

/* The GPU's door to the attention of one hybrid batch.  Plain data and
   plain C: the planner and its users build without a CUDA toolkit.

     device, shape, knobs     seq[]: slices, then decodes
               \                 /
            tdm_pod_plan_build (kernels/plan, pure host C)
                      |  one blob: head, seq[], merge[], item[], longest first
            tdm_pod_upload    once per iteration
                      |
            tdm_pod_launch    once per layer: fused, streams or serial
                      |  each CTA reads its SM's id and draws a ticket
            tdm_pod_read      counters, and the log of what ran where

   Words.  A virtual CTA is one work item drawn by ticket: a prefill item
   (a tile of query rows of one KV head, over a range of keys) fills a CTA,
   a decode item (one sequence, one KV head, a range of keys) fills one
   warp, so a CTA that turns to decode holds TDM_POD_PACK of them.
   Rows are packed: row p of a tile is query token p / group, head p %
   group.

   Same plan, same bits: an item's arithmetic depends on its descriptor and
   the data alone, and partials are folded in split order by whichever CTA
   finishes last.  Grid size, SM and time do not enter.

   Variants.  Several kernels stand behind the door; plan->variant is the
   one that a plan is for.  PORTABLE and HOPPER fuse; PLAIN runs the halves
   apart, slowly, on what the others do not take (fp8 KV, head_dim 96 and
   256, large groups, very long contexts).

   Unsupported is a value: plan->reason holds the first TDM_FALLBACK_* that
   forbids the fused kernel, and plan->route and plan->variant what can run
   instead (TDM_ROUTE_IDLE where no kernel takes the shape at all). */

#include "kernels/include/attention.h"

TDM_BEGIN_DECLS

/* tdm_gpu_t describes a device to the planner: a whole GPU, a MIG slice or
   a green context (sm_cnt is what this process may use). */
typedef struct tdm_gpu {
    uint32_t arch;      /* 90 for compute capability 9.0 */
    uint32_t sm_cnt;    /* SMs */
    uint32_t smid_cnt;  /* %nsmid: SM ids are below it, and may have holes */
    uint32_t smem_sm;   /* bytes of shared memory of one SM */
    uint32_t smem_cta;  /* most that one CTA may take */
    uint32_t reg_sm;    /* 32-bit registers of one SM */
    uint32_t thread_sm; /* resident threads of one SM */
    float hbm_gbs;      /* GB/s that a reader reaches */
    float mma_tflops;   /* TFLOP/s that mma.sync attention reaches */
} tdm_gpu_t;

typedef enum tdm_pod_dtype {
    TDM_POD_BF16, /* q, out, K and V */
    TDM_POD_F16,
    TDM_POD_DTYPE_CNT,
    TDM_POD_E4M3 = TDM_POD_DTYPE_CNT /* K and V alone: fp8, one scale per layer and KV head */
} tdm_pod_dtype_t;

/* tdm_pod_variant_t: the kernels behind the door, the best last. */
typedef enum tdm_pod_variant {
    TDM_POD_VARIANT_NONE,     /* nothing takes it */
    TDM_POD_VARIANT_PLAIN,    /* kernels/attention/plain: the halves apart, anything */
    TDM_POD_VARIANT_PORTABLE, /* kernels/attention/portable: mma.sync, sm_80 and later */
    TDM_POD_VARIANT_HOPPER,   /* kernels/attention/hopper: wgmma and TMA, sm_90 */
    TDM_POD_VARIANT_CNT
} tdm_pod_variant_t;

/* tdm_pod_shape_t is what all layers of a model share. */
typedef struct tdm_pod_shape {
    uint32_t nhead_q;
    uint32_t nhead_kv;
    uint32_t head_dim;
    uint32_t dtype;    /* tdm_pod_dtype_t */
    uint32_t kv_dtype; /* tdm_pod_dtype_t; equal to dtype, or TDM_POD_E4M3 */
    uint32_t page_tok; /* tokens of a KV page: 16, 32, 64 or 128 */
    uint32_t feature;  /* sliding window, soft cap, ...: none is taken, so 0 */
} tdm_pod_shape_t;

#define TDM_POD_PACK 4u /* decode virtual CTAs of one CTA: its warps */

/* How a CTA is cut.  Shared memory is Q, and `stage` tiles of K and V. */
typedef enum tdm_pod_tile {
    TDM_POD_TILE_WIDE2, /* 128 rows, 64 keys, 2 stages, 2 CTAs per SM */
    TDM_POD_TILE_WIDE1, /* 128 rows, 64 keys, 1 stage, 2 CTAs per SM */
    TDM_POD_TILE_SLIM,  /* 64 rows, 32 keys, 2 stages, 4 CTAs per SM where they fit */
    TDM_POD_TILE_CNT,
    TDM_POD_TILE_AUTO = TDM_POD_TILE_CNT /* the planner's choice */
} tdm_pod_tile_t;

typedef struct tdm_pod_tile_info {
    uint32_t row; /* packed query rows */
    uint32_t key;
    uint32_t stage;
    uint32_t cta_sm; /* CTAs of one SM that the registers are bounded for */
} tdm_pod_tile_info_t;

/* tdm_pod_tile_info: the table of tiles. */
static inline tdm_pod_tile_info_t tdm_pod_tile_info(uint32_t tile) {
    const tdm_pod_tile_info_t wide2 = {128, 64, 2, 2};
    const tdm_pod_tile_info_t wide1 = {128, 64, 1, 2};
    const tdm_pod_tile_info_t slim = {64, 32, 2, 4};
    return tile == TDM_POD_TILE_WIDE2 ? wide2 : tile == TDM_POD_TILE_WIDE1 ? wide1 : slim;
}

/* tdm_pod_tile_smem: bytes of shared memory of one CTA. */
static inline uint32_t tdm_pod_tile_smem(uint32_t tile, uint32_t head_dim) {
    tdm_pod_tile_info_t t = tdm_pod_tile_info(tile);
    return (t.row + 2 * t.stage * t.key) * head_dim * 2;
}

/* The plain kernels' tile: 64 rows, 32 keys, one stage. */
#define TDM_POD_PLAIN_ROW         64u
#define TDM_POD_PLAIN_KEY         32u
#define TDM_POD_PLAIN_CONTEXT_MAX (1u << 22) /* tokens of a sequence */

/* tdm_pod_plain_smem: bytes of shared memory of one of their CTAs; rows of
   96 elements lie 128 apart. */
static inline uint32_t tdm_pod_plain_smem(uint32_t head_dim) {
    uint32_t dim = head_dim == 96 ? 128 : head_dim;
    return (TDM_POD_PLAIN_ROW + 2 * TDM_POD_PLAIN_KEY) * dim * 2;
}

typedef enum tdm_pod_policy {
    TDM_POD_POLICY_STICKY,       /* roles kept until a kind runs out */
    TDM_POD_POLICY_PROPORTIONAL, /* turns in the ratio of the CTAs' work left */
    TDM_POD_POLICY_EVEN,         /* turns one to one */
} tdm_pod_policy_t;

/* tdm_pod_state_t is what a running system has learnt about its kernels
   (kernels/plan/health.h keeps it); all zero: nothing bad. */
typedef struct tdm_pod_state {
    uint32_t driver;                        /* cudaDriverGetVersion; 0: not asked, new enough */
    uint32_t is_graph_missing;              /* launches are replays, and none fits this batch */
    uint32_t unfit[TDM_POD_VARIANT_CNT];    /* TDM_FALLBACK_self_test_failed, _quarantined,
                                               _kernel_error or _watchdog; 0: fit */
    uint32_t strike[TDM_POD_VARIANT_CNT];   /* how often it was paused */
    uint64_t until_it[TDM_POD_VARIANT_CNT]; /* iteration that ends a pause */
} tdm_pod_state_t;

/* tdm_pod_config_t: bounds, and the knobs of a plan.  A zero knob means
   the planner's choice. */
typedef struct tdm_pod_config {
    tdm_gpu_t gpu;
    tdm_pod_shape_t shape;
    uint32_t seq_max;             /* sequences of one plan */
    uint32_t item_max;            /* items of both kinds */
    uint64_t part_float_max;      /* floats of partials */
    uint32_t tile;                /* tdm_pod_tile_t, or AUTO */
    uint32_t policy;              /* tdm_pod_policy_t */
    uint32_t share[TDM_KIND_CNT]; /* of CTAs under the sticky policy; 0: 1 to 1 */
    uint32_t decode_split_tok;    /* keys of a full decode item, a multiple of 64 */
    uint32_t prefill_split_max;   /* most splits of a prefill tile; 1: none */
    uint32_t prefill_split;       /* into exactly so many, whatever they cost: to measure with */
    uint32_t decode_warp;         /* warps of a CTA that draw decode items: to measure with */
    uint32_t is_off;              /* the operator wants no fused launches */
    uint32_t variant;             /* the best tdm_pod_variant_t to take; 0: any */
    uint32_t is_dependent;        /* HOPPER: a launch may begin, and wait, before the kernel before
                                     it on the stream has ended */
    uint32_t prefill_row;         /* HOPPER: rows of a prefill tile, 192 or 128: to measure with */
    uint32_t box_cnt;             /* blobs and logs on the host, for one plan that is made while
                                     another runs: 1 or 2; 0: 1 */
    tdm_pod_state_t state;        /* may change between builds */
} tdm_pod_config_t;

#define TDM_POD_ITEM_DEFAULT       65536u
#define TDM_POD_PART_FLOAT_DEFAULT (UINT64_C(32) << 20)

#define TDM_POD_TOKEN_MAX 32768u /* prefill tokens of one plan */

#define TDM_POD_NO_MERGE UINT32_MAX

/* tdm_pod_item_t is one virtual CTA: keys [kv_begin, kv_end) for packed
   rows [row, row + row_cnt) of seq and KV head.  kv_begin is a multiple of
   64.  Of split > 0 or merge != NO_MERGE the results are partials. */
typedef struct tdm_pod_item {
    uint32_t seq;
    uint32_t row;
    uint32_t row_cnt;
    uint32_t head_kv;
    uint32_t kv_begin;
    uint32_t kv_end;
    uint32_t merge; /* into merge[], or TDM_POD_NO_MERGE */
    uint32_t split; /* this item's number within its merge */
} tdm_pod_item_t;

/* tdm_pod_merge_t: the partials of one tile, at part_off floats:
   O [split_cnt][row_cnt][head_dim], then m [split_cnt][row_cnt] (base-2
   logarithm units), then l [split_cnt][row_cnt].  A prefill tile of HOPPER
   keeps them as its threads hold them (hop_part), TDM_HOPPER_PART floats a
   split. */
typedef struct tdm_pod_merge {
    uint64_t part_off;
    uint32_t split_cnt;
    uint32_t row_cnt;
} tdm_pod_merge_t;

/* tdm_pod_head_t begins the blob.  Offsets are bytes from its start. */
typedef struct tdm_pod_head {
    uint32_t item_cnt[TDM_KIND_CNT];
    uint32_t merge_cnt;
    uint32_t seq_cnt;
    uint32_t seq_off;                /* tdm_attn_seq_t [seq_cnt] */
    uint32_t merge_off;              /* tdm_pod_merge_t [merge_cnt] */
    uint32_t item_off[TDM_KIND_CNT]; /* tdm_pod_item_t [item_cnt[kind]] */
    uint32_t group;
    uint32_t group_magic;         /* p / group == p * magic >> 32 for p < 2^24 */
    uint32_t policy;              /* tdm_ticket_policy_t (kernels/ticket) */
    uint32_t share[TDM_KIND_CNT]; /* of CTAs, under the sticky policy */
    uint32_t decode_warp;         /* warps of a CTA that draw decode items, sticky; 0: all */
    uint32_t decode_row;          /* packed rows of the tallest decode item */
    uint32_t reserved;
} tdm_pod_head_t;

/* The route that leaves it to the planner: fused, unless another is
   predicted to be faster (TDM_FALLBACK_not_profitable). */
#define TDM_POD_ROUTE_AUTO TDM_ROUTE_CNT

/* tdm_pod_plan_t is what a build says besides the blob. */
typedef struct tdm_pod_plan {
    uint32_t route;               /* tdm_route_t to run */
    uint32_t way;                 /* tdm_pod_way_t that runs it best */
    uint32_t reason;              /* TDM_FALLBACK_* where a hybrid batch is not fused, else 0 */
    uint32_t variant;             /* tdm_pod_variant_t */
    uint32_t tile;                /* tdm_pod_tile_t, of the portable variant */
    uint32_t tile_row;            /* packed rows of a full prefill item */
    uint32_t cta_sm;              /* CTAs that an SM holds at once */
    uint32_t grid;                /* CTAs of a launch */
    uint32_t share[TDM_KIND_CNT]; /* HOPPER: SMs that begin with a kind */
    uint32_t smem_sz;
    uint32_t item_cnt[TDM_KIND_CNT];
    uint32_t merge_cnt;
    uint32_t split_cnt;        /* items beyond one per tile */
    uint32_t decode_split_tok; /* as used */
    uint32_t row_cnt;          /* rows of q and out */
    uint64_t blob_sz;          /* bytes to upload */
    uint64_t part_float_cnt;
    uint64_t flops; /* 4 * head_dim per (row, visible key), all kinds */
    uint64_t kind_flops[TDM_KIND_CNT];
    uint64_t kind_bytes[TDM_KIND_CNT]; /* distinct K and V bytes */
    float wave[TDM_KIND_CNT];          /* virtual waves: items / role slots of the device */
    float pred_us[TDM_KIND_CNT];       /* at the device's rates: a floor */
    float fused_us;                    /* predicted, of a hybrid batch that AUTO looked at */
    float serial_us;
    uint64_t key; /* hash of all that decides bits */
} tdm_pod_plan_t;

/* --- the launch side (kernels/attention) ---------------------------- */

typedef struct tdm_pod tdm_pod_t; /* a device context: workspace, counters */
struct CUstream_st;

/* tdm_pod_layer_t names the tensors of one layer, in device memory. */
typedef struct tdm_pod_layer {
    const void *q;              /* [row_cnt][nhead_q][head_dim] */
    void *out;                  /* [row_cnt][nhead_q][head_dim] */
    float *lse;                 /* [row_cnt][nhead_q] natural log, or NULL */
    const void *k_pool;         /* [page][nhead_kv][page_tok][head_dim] of kv_dtype */
    const void *v_pool;         /* [page][nhead_kv][page_tok][head_dim] of kv_dtype */
    const uint32_t *page_table; /* [slot][table_stride] */
    uint32_t table_stride;
    float scale;
    const float *k_scale; /* [nhead_kv] of TDM_POD_E4M3: a key is its code times this */
    const float *v_scale; /* [nhead_kv] likewise; else NULL */
} tdm_pod_layer_t;

/* How the two halves of one launch meet. */
typedef enum tdm_pod_way {
    TDM_POD_WAY_SERIAL,     /* prefill, then decode */
    TDM_POD_WAY_STREAMS_PD, /* two launches side by side, prefill issued first */
    TDM_POD_WAY_STREAMS_DP, /* ... decode issued first */
    TDM_POD_WAY_FUSED,      /* one launch, ticket per SM */
    TDM_POD_WAY_HFUSE,      /* one launch, roles fixed by CTA number, no stealing */
    TDM_POD_WAY_PREFILL,    /* the prefill half alone */
    TDM_POD_WAY_DECODE,     /* the decode half alone */
    TDM_POD_WAY_HFUSE_WARP, /* one launch, 4 warps of each CTA prefill and 4 decode: for comparison
                             */
    TDM_POD_WAY_INTRA,      /* one launch, each warp a prefill step and a decode step in turn:
                               simple form, for comparison; plans of TDM_POD_TILE_SLIM */
    TDM_POD_WAY_CNT
} tdm_pod_way_t;

/* tdm_pod_span_t is one line of the log: what ran where, when. */
typedef struct tdm_pod_span {
    uint64_t start_ns; /* %globaltimer */
    uint64_t end_ns;
    uint32_t clock_cnt; /* SM cycles between them */
    uint32_t sm;
    uint32_t kind;
    uint32_t warp_cnt; /* warps of it: TDM_POD_PACK, or 1 of decode */
} tdm_pod_span_t;

/* tdm_pod_counters_t: sums since the last read, and what the log of the
   last launch says. */
typedef struct tdm_pod_counters {
    uint64_t vcta_executed[TDM_KIND_CNT];
    uint64_t merge_cnt;           /* merges folded */
    uint64_t ring_stall_cnt;      /* HOPPER: times that a prefill warpgroup or a decode warp found
                                     the keys or values that it needed next not there yet */
    uint64_t sm_ns[TDM_KIND_CNT]; /* SM-time inside items: CTA time / CTAs per SM */
    uint64_t colocated_ns;        /* SM-time with both kinds resident on the SM */
    uint64_t overlap_ns;          /* time with both kinds running anywhere */
    uint64_t wall_ns;             /* first start to last end */
    float tail;                   /* 1 - mean(end of SM) / last end */
    float clock_ghz;
    uint32_t span_cnt;
    uint32_t sm_used;
    uint32_t switch_cnt; /* HOPPER: times that an SM turned to the other kind */
} tdm_pod_counters_t;

/* tdm_pod_need: bytes of device memory that tdm_pod_create will take for
   a config whose gpu is filled in; zero bounds count as their defaults. */
uint64_t tdm_pod_need(const tdm_pod_config_t *config);

/* tdm_pod_create takes device memory for a config whose zero bounds it
   fills, and asks the current device for config->gpu where sm_cnt is 0. */
TDM_MUST_USE int tdm_pod_create(tdm_pod_config_t *config, tdm_pod_t **out, const char **why);
void tdm_pod_destroy(tdm_pod_t *pod);

/* tdm_pod_box says whose host memory, in [0, box_cnt), the calls below mean:
   the blob of a plan and its counters and log; 0 until it is called.  The
   device's own memory is one: uploads and launches follow each other on
   their stream. */
void tdm_pod_box(tdm_pod_t *pod, uint32_t box);

/* tdm_pod_blob is the pinned host memory for tdm_pod_plan_build. */
void *tdm_pod_blob(tdm_pod_t *pod);

/* tdm_pod_upload copies the blob on the stream; the blob must stay as it
   is until the copy is done.  Calls return 0 or a cudaError_t. */
TDM_MUST_USE int tdm_pod_upload(tdm_pod_t *pod, const tdm_pod_plan_t *plan,
                                struct CUstream_st *stream);

/* tdm_pod_launch runs one layer.  grid 0 means plan->grid; any other grid
   gives the same bits.  The second stream is used by STREAMS only, which
   fork from and join to the first by events, so all can be captured.
   cudaErrorNotSupported: this way does not take this plan on this device
   (PLAIN takes SERIAL, PREFILL and DECODE). */
TDM_MUST_USE int tdm_pod_launch(tdm_pod_t *pod, const tdm_pod_plan_t *plan,
                                const tdm_pod_layer_t *layer, uint32_t way, uint32_t grid,
                                struct CUstream_st *stream);

#define TDM_POD_FRESH_PART_MAX 8u
#define TDM_POD_FRESH_TOK      192u /* keys that an item's rings hold: fewer save no time */

/* tdm_pod_fresh_t: the rows of an iteration as their product left them, in
   device memory: 1 to TDM_POD_FRESH_PART_MAX partial sums [row][nhead_q + 2 nhead_kv]
   [head_dim] float32, not rotated. */
typedef struct tdm_pod_fresh {
    const float *qkv;
    uint64_t part_stride; /* elements from one part to the next */
    uint32_t part_cnt;
    const float *turn; /* [position][head_dim]: cosines, then sines */
} tdm_pod_fresh_t;

/* tdm_pod_launch_fresh runs one layer of a decode plan from there: adds the
   parts up, rotates queries and keys, appends keys and values to the pages
   (k_pool and v_pool are written) and attends; layer->q is not read.  bf16
   alone.  grid is at least the plan's items, at most tdm_pod_fresh_max: what
   the device holds at once, 0 where this does not run.  A captured launch
   serves every plan of no more items.  Counts and logs as tdm_pod_launch. */
uint32_t tdm_pod_fresh_max(const tdm_pod_t *pod);
TDM_MUST_USE int tdm_pod_launch_fresh(tdm_pod_t *pod, const tdm_pod_plan_t *plan,
                                      const tdm_pod_layer_t *layer, const tdm_pod_fresh_t *fresh,
                                      uint32_t grid, struct CUstream_st *stream);

/* tdm_pod_read waits for the device, adds up the counters and clears
   them. */
TDM_MUST_USE int tdm_pod_read(tdm_pod_t *pod, const tdm_pod_plan_t *plan, tdm_pod_counters_t *out);

/* The same for who writes the host's memory from a kernel: what a launch
   leaves on the device and where the host looks for it.  The kernel copies
   count_cnt counters and the log of the blob's items, and clears the
   counters; then tdm_pod_logged says that they are there, and
   tdm_pod_counted adds them up.  The host's are box 0's; those of box i lie
   i times count_cnt and span_max elements behind. */
typedef struct tdm_pod_log {
    const void *blob; /* tdm_pod_head_t */
    const tdm_pod_span_t *span;
    tdm_pod_span_t *host_span;
    unsigned long long *count;
    unsigned long long *host_count;
    uint32_t count_cnt;
    uint32_t span_max;
} tdm_pod_log_t;
void tdm_pod_log(const tdm_pod_t *pod, tdm_pod_log_t *out);
void tdm_pod_logged(tdm_pod_t *pod, const tdm_pod_plan_t *plan);
void tdm_pod_counted(tdm_pod_t *pod, const tdm_pod_plan_t *plan, tdm_pod_counters_t *out);

/* tdm_pod_self_test runs a small batch of the context's shape through one
   variant, compares it with the C reference, and tells the state
   (kernels/plan/health.h): at start, once for each variant that
   tdm_pod_variant_gate lets run.  *worst_out, where not NULL, is the largest
   error in parts of what is allowed.  Waits, takes memory and gives it back.
   A failed test is no error: only what keeps it from being made is. */
TDM_MUST_USE int tdm_pod_self_test(tdm_pod_t *pod, uint32_t variant, tdm_pod_state_t *state,
                                   uint64_t it, float *worst_out);

/* tdm_pod_self_test_fresh does so with tdm_pod_launch_fresh, at a grid that
   tdm_pod_fresh_max gave: four decodes, cut and whole, whose newest keys and
   values must also lie in their pages, and nothing else there be touched.
   *is_right_out is 0 where it must not be used: also where the device is too
   small to hold the test. */
TDM_MUST_USE int tdm_pod_self_test_fresh(tdm_pod_t *pod, uint32_t grid, int *is_right_out,
                                         float *worst_out);

/* tdm_pod_spans: the log that the last read fetched, [span_cnt]. */
const tdm_pod_span_t *tdm_pod_spans(const tdm_pod_t *pod);

/* tdm_pod_occupancy: registers of the plan's kernel, and the CTAs of it
   that the driver says an SM holds. */
TDM_MUST_USE int tdm_pod_occupancy(const tdm_pod_t *pod, const tdm_pod_plan_t *plan,
                                   uint32_t *reg_out, uint32_t *cta_sm_out, uint32_t *local_out);

TDM_END_DECLS

#endif /* TDM_KERNELS_INCLUDE_POD_H */
