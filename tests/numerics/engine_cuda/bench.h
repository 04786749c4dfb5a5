/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_NUMERICS_ENGINE_CUDA_BENCH_H
#define TDM_TESTS_NUMERICS_ENGINE_CUDA_BENCH_H

/* What the programs of this folder share: device memory with guards, bf16
   on the host, and a count of what was wrong.  No cmocka: the program also
   runs on a bare GPU machine. */

#include "appliance/base/attr.h"
#include "appliance/base/rng.h"
#include "kernels/include/backend.h"

/* bench_ok counts a finding where cond is 0 and prints the first ones. */
void bench_ok(int cond, const char *fmt, ...) TDM_PRINTF(2, 3);

/* bench_end prints the sum of part; 0 where nothing was wrong and
   something was checked, else 1. */
int bench_end(const char *part);

/* bench_cuda ends the program where a CUDA call failed. */
void bench_cuda(int error, const char *what);

/* bench_put copies to new device memory, with 4 KiB of 0xa5 behind it, which
   bench_get checks; from NULL: all 0xff (NaN). */
void *bench_put(const void *from, size_t sz);
void bench_get(void *to, const void *device, size_t sz);
void bench_free(void *device);

uint16_t bench_bf16(float v); /* to nearest even */
float bench_f32(uint16_t bits);
float bench_draw(tdm_rng_t *rng); /* about normal, deviation 1 */
void *bench_alloc(size_t sz);     /* zeroed; ends the program without */

/* bench_backend opens a CUDA backend; ends the program where it does not
   open. */
tdm_backend_t *bench_backend(const tdm_weights_t *w, const tdm_backend_config_t *config);

/* bench_shape is a model of two layers with these heads, all else small and
   odd. */
tdm_shape_t bench_shape(const uint32_t head[3]); /* query heads, KV heads, head_dim */

/* The parts; each returns bench_end. */
int part_rows(void);
int part_sample(uint32_t rounds);
int part_products(void);
int part_small(uint64_t seeds);
int part_fixed(void);
int part_kept(void);
int part_graphs(void);
int part_llama_ref(const char *path, uint32_t layer_cnt, uint32_t vocab);
int part_llama(const char *path);
int part_golden(const char *model, const char *tokens);
/* way: as speed.c says; none: as it ships. */
int part_speed(const char *shape, int way_cnt, char *const *way);
int part_layer(uint32_t context, uint32_t chunk, uint32_t batch);
int part_profile(const char *shape, uint32_t batch);

#endif /* TDM_TESTS_NUMERICS_ENGINE_CUDA_BENCH_H */
