/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/gemm.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/narrow.h"
#include "kernels/cuda/skinny.h"
#include "kernels/keep/choices.h"

/* Who makes a product. */
enum way { WAY_LT, WAY_SKINNY, WAY_NARROW };

/* A shape and what was chosen for it.  cuBLASLt is column-major: y^T [out x
   rows] = w [in x out]^T * x^T [in x rows]. */
typedef struct kept {
    tdm_gemm_shape_t shape;
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulAlgo_t algo;
    tdm_narrow_cut_t cut; /* of WAY_NARROW */
    uint32_t way;
    uint32_t is_timed;
} kept_t;

struct tdm_gemm {
    tdm_cublaslt_t lt;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulPreference_t preference;
    void *workspace;
    float *part;  /* partial sums; NULL: no narrow products */
    void *encode; /* of tdm_narrow_open; NULL: likewise */
    uint32_t sm_cnt;
    uint32_t is_fixed;    /* tdm_gemm_fix */
    tdm_choice_t *before; /* of an earlier life; NULL: none */
    uint32_t before_cnt;
    uint32_t recalled_cnt;
    uint32_t kept_cnt;
    uint16_t first[TDM_GEMM_SHAPE_MAX]; /* by hash: 1 + number in kept, 0 none */
    kept_t kept[TDM_GEMM_SHAPE_MAX];
};

uint32_t tdm_gemm_rows(uint32_t rows) {
    static const struct {
        uint32_t up_to, step;
    } range[] = {{64, 8}, {256, 16}, {1024, 64}, {UINT32_MAX, 128}};
    for (uint32_t few = 1; few <= 8; few *= 2)
        if (rows <= few) return few;
    uint32_t i = 0;
    while (rows > range[i].up_to) i++;
    return (rows + range[i].step - 1) / range[i].step * range[i].step;
}

static cublasStatus_t open_all(tdm_gemm_t *g) {
    const cublasOperation_t turned = CUBLAS_OP_T;
    const uint64_t most = TDM_GEMM_WORKSPACE;
    cublasStatus_t e = g->lt.Create(&g->handle);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = g->lt.MatmulDescCreate(&g->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = g->lt.MatmulDescSetAttribute(g->desc, CUBLASLT_MATMUL_DESC_TRANSA, &turned,
                                         sizeof turned);
    if (e == CUBLAS_STATUS_SUCCESS) e = g->lt.MatmulPreferenceCreate(&g->preference);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = g->lt.MatmulPreferenceSetAttribute(
            g->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    return e;
}

tdm_status_t tdm_gemm_open(void *workspace, float *part, tdm_gemm_t **out, tdm_error_t *err) {
    *out = NULL;
    tdm_gemm_t *g = calloc(1, sizeof *g);
    if (!g) return tdm_error_set(err, TDM_ERR_NOMEM, "the table of matrix products");
    g->workspace = workspace;
    g->part = part;
    /* On a device without it cuBLASLt and the skinny kernel do. */
    if (part && tdm_narrow_open(&g->encode, &g->sm_cnt) != 0) g->encode = NULL;
    (void)cudaGetLastError();
    tdm_status_t st = tdm_cublaslt_load(&g->lt, err);
    if (st == TDM_OK) {
        cublasStatus_t e = open_all(g);
        if (e != CUBLAS_STATUS_SUCCESS)
            st = tdm_error_set(err, TDM_ERR_UNSUPPORTED, "cuBLASLt: status %d at start", (int)e);
    }
    if (st != TDM_OK) {
        tdm_gemm_close(g);
        return st;
    }
    *out = g;
    return TDM_OK;
}

tdm_status_t tdm_gemm_fix(tdm_gemm_t *g, tdm_error_t *err) {
    if (!g->encode)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "exec.deterministic: its products are for compute capability 9.0");
    g->is_fixed = 1;
    return TDM_OK;
}

void tdm_gemm_close(tdm_gemm_t *g) {
    if (!g) return;
    for (uint32_t i = 0; i < g->kept_cnt; i++) {
        if (!g->kept[i].w) continue; /* of tdm_gemm_fix */
        (void)g->lt.MatrixLayoutDestroy(g->kept[i].w);
        (void)g->lt.MatrixLayoutDestroy(g->kept[i].x);
        (void)g->lt.MatrixLayoutDestroy(g->kept[i].y);
    }
    if (g->preference) (void)g->lt.MatmulPreferenceDestroy(g->preference);
    if (g->desc) (void)g->lt.MatmulDescDestroy(g->desc);
    if (g->handle) (void)g->lt.Destroy(g->handle);
    free(g->before);
    free(g);
}

static cublasStatus_t lay_out(tdm_gemm_t *g, kept_t *k) {
    const tdm_gemm_shape_t *s = &k->shape;
    cudaDataType y = s->y_type == TDM_GEMM_F32 ? CUDA_R_32F : CUDA_R_16BF;
    cublasStatus_t e = g->lt.MatrixLayoutCreate(&k->w, CUDA_R_16BF, s->in, s->out, s->in);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = g->lt.MatrixLayoutCreate(&k->x, CUDA_R_16BF, s->in, s->rows, s->in);
    if (e == CUBLAS_STATUS_SUCCESS) e = g->lt.MatrixLayoutCreate(&k->y, y, s->out, s->rows, s->out);
    return e;
}

/* --- what an earlier life chose ------------------------------------------ */

_Static_assert(sizeof(tdm_gemm_shape_t) <= sizeof((tdm_choice_t *)0)->shape, "a shape fits");
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof((tdm_choice_t *)0)->algo,
               "an algorithm fits");

uint64_t tdm_gemm_library(const tdm_gemm_t *g) {
    return g->lt.GetVersion();
}

tdm_status_t tdm_gemm_recall(tdm_gemm_t *g, const tdm_choice_t *choice, uint32_t cnt,
                             tdm_error_t *err) {
    if (cnt == 0) return TDM_OK;
    g->before = calloc(cnt, sizeof *g->before);
    if (!g->before) return tdm_error_set(err, TDM_ERR_NOMEM, "choices of an earlier life");
    memcpy(g->before, choice, cnt * sizeof *choice);
    g->before_cnt = cnt;
    return TDM_OK;
}

uint32_t tdm_gemm_choices(const tdm_gemm_t *g, tdm_choice_t *out) {
    uint32_t cnt = 0;
    for (uint32_t i = 0; i < g->kept_cnt && cnt < TDM_CHOICES_MAX && !g->is_fixed; i++) {
        const kept_t *k = &g->kept[i];
        tdm_choice_t *c = &out[cnt++];
        memset(c, 0, sizeof *c);
        memcpy(c->shape, &k->shape, sizeof k->shape);
        memcpy(c->algo, &k->algo, sizeof k->algo);
        c->way = k->way;
        c->is_timed = k->is_timed;
    }
    return cnt;
}

/* is_taken: does who made the product then still take it, within the workspace? */
static int is_taken(const tdm_gemm_t *g, const kept_t *k) {
    cublasLtMatmulHeuristicResult_t found;
    switch (k->way) {
    case WAY_LT:
        return g->lt.MatmulAlgoCheck(g->handle, g->desc, k->w, k->x, k->y, k->y, &k->algo,
                                     &found) == CUBLAS_STATUS_SUCCESS &&
               found.workspaceSize <= TDM_GEMM_WORKSPACE;
    case WAY_SKINNY: return tdm_skinny_takes(&k->shape);
    case WAY_NARROW:
        return g->encode && k->shape.rows <= TDM_NARROW_ROWS_MAX && tdm_narrow_takes(&k->shape);
    default: return 0;
    }
}

/* recall makes a shape that is laid out as it was made before; 0: choose. */
static int recall(tdm_gemm_t *g, kept_t *k) {
    uint32_t shape[TDM_CHOICE_SHAPE_WORD] = {0};
    kept_t then = *k;
    memcpy(shape, &k->shape, sizeof k->shape);
    const tdm_choice_t *c = tdm_choices_find(g->before, g->before_cnt, shape);
    if (!c) return 0;
    memcpy(&then.algo, c->algo, sizeof then.algo);
    then.way = c->way;
    then.is_timed = c->is_timed != 0;
    if (!is_taken(g, &then)) return 0;
    if (then.way == WAY_NARROW) then.cut = tdm_narrow_cut(&then.shape, g->sm_cnt);
    *k = then;
    g->recalled_cnt++;
    return 1;
}

/* keep takes a shape up: as it was made before, or by cuBLASLt's first choice
   within the workspace. */
static cublasStatus_t keep(tdm_gemm_t *g, const tdm_gemm_shape_t *shape, kept_t **out) {
    cublasLtMatmulHeuristicResult_t found;
    int cnt = 0;
    kept_t *k = &g->kept[g->kept_cnt];
    if (g->kept_cnt == TDM_GEMM_SHAPE_MAX) return CUBLAS_STATUS_ALLOC_FAILED;
    memset(k, 0, sizeof *k);
    k->shape = *shape;
    if (g->is_fixed) {
        if (!tdm_narrow_takes(shape)) return CUBLAS_STATUS_NOT_SUPPORTED;
        k->way = WAY_NARROW;
        k->is_timed = 1; /* there is no choice */
        k->cut = tdm_narrow_cut_fixed(shape, g->sm_cnt);
        g->kept_cnt++;
        *out = k;
        return CUBLAS_STATUS_SUCCESS;
    }
    cublasStatus_t e = lay_out(g, k);
    if (e == CUBLAS_STATUS_SUCCESS && recall(g, k)) {
        g->kept_cnt++;
        *out = k;
        return e;
    }
    if (e == CUBLAS_STATUS_SUCCESS)
        e = g->lt.MatmulAlgoGetHeuristic(g->handle, g->desc, k->w, k->x, k->y, k->y, g->preference,
                                         1, &found, &cnt);
    if (e == CUBLAS_STATUS_SUCCESS && cnt == 0) e = CUBLAS_STATUS_NOT_SUPPORTED;
    if (e != CUBLAS_STATUS_SUCCESS) return e;
    k->algo = found.algo;
    g->kept_cnt++;
    *out = k;
    return e;
}

static uint32_t hash_of(const tdm_gemm_shape_t *s) {
    uint64_t h = s->rows;
    h = (h * 31 + s->out) * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ s->in) * UINT64_C(0x9e3779b97f4a7c15) + s->y_type * 4 + s->is_add * 2 + s->is_split;
    return (uint32_t)(h >> 32);
}

/* look_up: the shape's entry, or NULL; *free_out is where it would stand. */
static const kept_t *look_up(const tdm_gemm_t *g, const tdm_gemm_shape_t *shape,
                             uint32_t *free_out) {
    uint32_t at = hash_of(shape) % TDM_GEMM_SHAPE_MAX;
    for (uint32_t i = 0; i < TDM_GEMM_SHAPE_MAX; i++, at = (at + 1) % TDM_GEMM_SHAPE_MAX) {
        if (g->first[at] == 0) break;
        const kept_t *k = &g->kept[g->first[at] - 1];
        if (memcmp(&k->shape, shape, sizeof *shape) == 0) return k;
    }
    if (free_out) *free_out = at;
    return NULL;
}

static cublasStatus_t find(tdm_gemm_t *g, const tdm_gemm_shape_t *shape, kept_t **out) {
    uint32_t at = 0;
    const kept_t *there = look_up(g, shape, &at);
    if (there) {
        *out = &g->kept[there - g->kept];
        return CUBLAS_STATUS_SUCCESS;
    }
    cublasStatus_t e = keep(g, shape, out);
    if (e == CUBLAS_STATUS_SUCCESS) g->first[at] = (uint16_t)g->kept_cnt;
    return e;
}

int tdm_gemm_keep(tdm_gemm_t *g, const tdm_gemm_shape_t *shape) {
    kept_t *k = NULL;
    return (int)find(g, shape, &k);
}

static int run(tdm_gemm_t *g, const kept_t *k, const void *x, const void *w, void *y,
               struct CUstream_st *stream) {
    const float one = 1.0f, beta = k->shape.is_add ? 1.0f : 0.0f;
    if (k->way == WAY_SKINNY) return tdm_skinny_run(&k->shape, x, w, y, stream);
    if (k->way == WAY_NARROW)
        return tdm_narrow_run(g->encode, &k->shape, &k->cut, x, w, k->shape.is_split ? g->part : y,
                              stream);
    return (int)g->lt.Matmul(g->handle, g->desc, &one, w, k->w, x, k->x, &beta, y, k->y, y, k->y,
                             &k->algo, g->workspace, TDM_GEMM_WORKSPACE, stream);
}

int tdm_gemm_run(tdm_gemm_t *g, const tdm_gemm_shape_t *shape, const void *x, const void *w,
                 void *y, struct CUstream_st *stream) {
    kept_t *k = NULL;
    cublasStatus_t e = find(g, shape, &k);
    return e == CUBLAS_STATUS_SUCCESS ? run(g, k, x, w, y, stream) : (int)e;
}

/* --- timing ------------------------------------------------------------ */

#define TIME_ALGO_MAX 8   /* of cuBLASLt's list, which stands by its own prediction */
#define TIME_ROUNDS   12u /* launches that are timed together */
#define TIME_LONG     4u  /* of more than TIME_ROWS rows: each takes long enough */
#define TIME_ROWS     256u

typedef struct trial {
    tdm_gemm_t *g;
    const void *x;
    const void *const *w;
    uint32_t w_cnt;
    void *y;
    struct CUstream_st *stream;
    cudaEvent_t begin, end;
} trial_t;

/* rounds queues the launches of one timing, weight after weight. */
static int rounds(const trial_t *t, const kept_t *k) {
    uint32_t cnt = k->shape.rows > TIME_ROWS ? TIME_LONG : TIME_ROUNDS;
    int e = 0;
    for (uint32_t i = 0; i < cnt && e == 0; i++)
        e = run(t->g, k, t->x, t->w[(i + 1) % t->w_cnt], t->y, t->stream);
    return e;
}

/* captured makes a graph of them: a product of a few microseconds is made
   faster than the host can launch it, and it will be replayed. */
static int captured(const trial_t *t, const kept_t *k, cudaGraphExec_t *out) {
    cudaGraph_t graph = NULL;
    int e = (int)cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal);
    if (e != 0) return e;
    e = rounds(t, k);
    /* Also after an error: a stream must not stay in capture. */
    int end = (int)cudaStreamEndCapture(t->stream, &graph);
    if (e == 0) e = end;
    if (e == 0) e = (int)cudaGraphInstantiate(out, graph, 0);
    if (graph) (void)cudaGraphDestroy(graph);
    return e;
}

/* time_one gives the milliseconds of a shape's rounds; an algorithm that
   fails is no choice. */
static float time_one(const trial_t *t, const kept_t *k) {
    float ms = 0.0f;
    cudaGraphExec_t exec = NULL;
    int e = run(t->g, k, t->x, t->w[0], t->y, t->stream); /* loads its kernel */
    if (e == 0) e = captured(t, k, &exec);
    if (e == 0) e = (int)cudaEventRecord(t->begin, t->stream);
    if (e == 0) e = (int)cudaGraphLaunch(exec, t->stream);
    if (e == 0) e = (int)cudaEventRecord(t->end, t->stream);
    if (e == 0) e = (int)cudaEventSynchronize(t->end);
    if (e == 0) e = (int)cudaEventElapsedTime(&ms, t->begin, t->end);
    if (exec) (void)cudaGraphExecDestroy(exec);
    return e == 0 ? ms : INFINITY;
}

static void try_way(const trial_t *t, kept_t *k, const kept_t *now, float *best) {
    float ms = time_one(t, now);
    if (ms >= *best) return;
    *best = ms;
    k->algo = now->algo;
    k->way = now->way;
}

static void time_all(const trial_t *t, kept_t *k) {
    cublasLtMatmulHeuristicResult_t found[TIME_ALGO_MAX];
    int cnt = 0;
    kept_t now = *k;
    float best = INFINITY;
    (void)t->g->lt.MatmulAlgoGetHeuristic(t->g->handle, t->g->desc, k->w, k->x, k->y, k->y,
                                          t->g->preference, TIME_ALGO_MAX, found, &cnt);
    now.way = WAY_LT;
    for (int i = 0; i < cnt; i++) {
        now.algo = found[i].algo;
        try_way(t, k, &now, &best);
    }
    now.way = WAY_SKINNY;
    if (tdm_skinny_takes(&k->shape)) try_way(t, k, &now, &best);
    k->is_timed = 1;
}

int tdm_gemm_time(tdm_gemm_t *g, const tdm_gemm_shape_t *shape, const void *x, const void *const *w,
                  uint32_t w_cnt, void *y, struct CUstream_st *stream) {
    kept_t *k = NULL;
    trial_t t = {.g = g, .x = x, .w = w, .w_cnt = w_cnt, .y = y, .stream = stream};
    cublasStatus_t found = find(g, shape, &k);
    if (found != CUBLAS_STATUS_SUCCESS) return (int)found;
    /* As in the life before: run once, for its kernel to be there. */
    if (k->is_timed) return k->way == WAY_LT ? run(g, k, x, w[0], y, stream) : 0;
    if (g->encode && shape->rows <= TDM_NARROW_ROWS_MAX && tdm_narrow_takes(shape)) {
        /* In an iteration it begins beside the kernel in front and makes SwiGLU
           on its way, which no loop of one product shows.  Of Llama-3-8B's
           shapes none of cuBLASLt's was faster by 15 %, and choosing all
           products took 1.6 s of each start. */
        k->way = WAY_NARROW;
        k->cut = tdm_narrow_cut(shape, g->sm_cnt);
        k->is_timed = 1;
        return 0;
    }
    cudaError_t e = cudaEventCreate(&t.begin);
    if (e == cudaSuccess) e = cudaEventCreate(&t.end);
    if (e == cudaSuccess) {
        time_all(&t, k);
        e = cudaStreamSynchronize(stream); /* an algorithm that broke the device shows here */
    }
    if (t.begin) (void)cudaEventDestroy(t.begin);
    if (t.end) (void)cudaEventDestroy(t.end);
    return (int)e;
}

int tdm_gemm_is_skinny(const tdm_gemm_t *g, const tdm_gemm_shape_t *shape) {
    const kept_t *k = look_up(g, shape, NULL);
    return k && k->way == WAY_SKINNY;
}

int tdm_gemm_is_narrow(const tdm_gemm_t *g, const tdm_gemm_shape_t *shape) {
    const kept_t *k = look_up(g, shape, NULL);
    return k && k->way == WAY_NARROW;
}

uint32_t tdm_gemm_part_cnt(const tdm_gemm_t *g, const tdm_gemm_shape_t *shape) {
    const kept_t *k = look_up(g, shape, NULL);
    return k && k->way == WAY_NARROW && k->shape.is_split ? k->cut.split_cnt : 0;
}

uint32_t tdm_gemm_shape_cnt(const tdm_gemm_t *g) {
    return g->kept_cnt;
}

uint32_t tdm_gemm_recalled_cnt(const tdm_gemm_t *g) {
    return g->recalled_cnt;
}

static uint32_t way_cnt(const tdm_gemm_t *g, uint32_t way) {
    uint32_t cnt = 0;
    for (uint32_t i = 0; i < g->kept_cnt; i++) cnt += g->kept[i].way == way;
    return cnt;
}

uint32_t tdm_gemm_skinny_cnt(const tdm_gemm_t *g) {
    return way_cnt(g, WAY_SKINNY);
}

uint32_t tdm_gemm_narrow_cnt(const tdm_gemm_t *g) {
    return way_cnt(g, WAY_NARROW);
}
