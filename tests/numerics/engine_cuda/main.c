/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU engine's numerics, part by part; exit 77 without a device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/probe.h"
#include "tests/numerics/engine_cuda/bench.h"

static int usage(void) {
    fprintf(stderr,
            "numerics_engine_cuda all | rows | sample ROUNDS | products | small SEEDS | fixed |\n"
            "  kept | graphs | llama-ref FILE [LAYERS [IDS]] | llama FILE | golden MODEL TOKENS |\n"
            "  speed SHAPE [WAY...] |\n"
            "  layer CONTEXT CHUNK BATCH | profile SHAPE BATCH\n");
    return 2;
}

int main(int argc, char **argv) {
    tdm_cuda_probe_t probe;
    const char *why, *part = argc > 1 ? argv[1] : "", *arg = argc > 2 ? argv[2] : "";
    if (strcmp(part, "llama-ref") == 0) /* needs no device */
        return part_llama_ref(arg, argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 2,
                              argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 8192);
    if (tdm_cuda_probe(&probe, &why) != 0) {
        printf("skipped: no CUDA device: %s\n", why);
        return 77;
    }
    unsigned cnt = (unsigned)strtoul(arg, NULL, 10);
    if (strcmp(part, "rows") == 0) return part_rows();
    if (strcmp(part, "sample") == 0) return part_sample(cnt ? cnt : 4);
    if (strcmp(part, "products") == 0) return part_products();
    if (strcmp(part, "small") == 0) return part_small(cnt ? cnt : 1);
    if (strcmp(part, "fixed") == 0) return part_fixed();
    if (strcmp(part, "kept") == 0) return part_kept();
    if (strcmp(part, "graphs") == 0) return part_graphs();
    if (strcmp(part, "llama") == 0) return part_llama(arg);
    if (strcmp(part, "golden") == 0 && argc > 3) return part_golden(arg, argv[3]);
    if (strcmp(part, "speed") == 0) return part_speed(arg, argc - 3, argv + 3);
    if (strcmp(part, "layer") == 0 && argc > 4)
        return part_layer(cnt, (uint32_t)strtoul(argv[3], NULL, 10),
                          (uint32_t)strtoul(argv[4], NULL, 10));
    if (strcmp(part, "profile") == 0 && argc > 3)
        return part_profile(arg, (uint32_t)strtoul(argv[3], NULL, 10));
    if (strcmp(part, "all") == 0)
        return part_rows() | part_sample(4) | part_products() | part_small(1) | part_fixed() |
               part_kept() | part_graphs();
    return usage();
}
