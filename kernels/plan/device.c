/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/plan/device.h"

#include <string.h>

#define KB 1024u

typedef struct known {
    const char *name;
    tdm_gpu_t gpu;
} known_t;

/* Shared memory: per SM, and per CTA (1 KB of the SM's is the system's for
   each CTA).  Rates: a measured read ceiling for the H200, 0.92 of the
   data sheet elsewhere; mma.sync attention at about 0.45 of the dense
   tensor rate where wgmma holds the full one, 0.65 elsewhere. */
static const known_t list[] = {
    {"a100", {80, 108, 108, 164 * KB, 163 * KB, 65536, 2048, 1800, 200}},
    {"a100-1g", {80, 14, 14, 164 * KB, 163 * KB, 65536, 2048, 250, 26}},
    {"l40s", {89, 142, 142, 100 * KB, 99 * KB, 65536, 1536, 790, 230}},
    {"h100", {90, 132, 132, 228 * KB, 227 * KB, 65536, 2048, 3050, 370}},
    {"h100-pcie", {90, 114, 114, 228 * KB, 227 * KB, 65536, 2048, 1850, 280}},
    {"h200", {90, 132, 132, 228 * KB, 227 * KB, 65536, 2048, 4400, 370}},
    {"h20", {90, 78, 78, 228 * KB, 227 * KB, 65536, 2048, 3700, 100}},
    {"h100-1g", {90, 16, 16, 228 * KB, 227 * KB, 65536, 2048, 400, 44}},
    {"h100-3g", {90, 60, 60, 228 * KB, 227 * KB, 65536, 2048, 1500, 165}},
    {"b200", {100, 148, 148, 228 * KB, 227 * KB, 65536, 2048, 7300, 450}},
    {"rtx5090", {120, 170, 170, 100 * KB, 99 * KB, 65536, 1536, 1650, 200}},
};

const tdm_gpu_t *tdm_gpu_known_at(uint32_t idx, const char **name_out) {
    if (idx >= TDM_COUNT_OF(list)) return NULL;
    *name_out = list[idx].name;
    return &list[idx].gpu;
}

const tdm_gpu_t *tdm_gpu_known(const char *name) {
    for (uint32_t i = 0; i < TDM_COUNT_OF(list); i++) {
        if (strcmp(list[i].name, name) == 0) return &list[i].gpu;
    }
    return NULL;
}

/* Per SM, from the whole device of the architecture nearest below. */
void tdm_gpu_rates(tdm_gpu_t *gpu) {
    const tdm_gpu_t *like = &list[0].gpu;
    for (uint32_t i = 0; i < TDM_COUNT_OF(list); i++) {
        if (list[i].gpu.arch <= gpu->arch && list[i].gpu.arch > like->arch) like = &list[i].gpu;
    }
    float share = (float)gpu->sm_cnt / (float)like->sm_cnt;
    if (gpu->hbm_gbs <= 0.0f) gpu->hbm_gbs = like->hbm_gbs * share;
    if (gpu->mma_tflops <= 0.0f) gpu->mma_tflops = like->mma_tflops * share;
}
