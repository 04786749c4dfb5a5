/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/isa.h"

static int has(uint32_t isa) {
#if defined(__x86_64__)
    if (isa == TDM_CPU_ISA_AVX512) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
               has(TDM_CPU_ISA_AVX2);
    }
    if (isa == TDM_CPU_ISA_AVX2) {
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    }
#endif
    return isa == TDM_CPU_ISA_SCALAR;
}

const char *tdm_cpu_isa_name(uint32_t isa) {
    switch (isa) {
    case TDM_CPU_ISA_AUTO: return "auto";
    case TDM_CPU_ISA_SCALAR: return "scalar";
    case TDM_CPU_ISA_AVX2: return "avx2";
    case TDM_CPU_ISA_AVX512: return "avx512";
    default: return "unknown";
    }
}

tdm_status_t tdm_cpu_isa_resolve(uint32_t wanted, uint32_t *isa_out, tdm_error_t *err) {
    if (wanted >= TDM_CPU_ISA_CNT) {
        return tdm_error_set(err, TDM_ERR_INVAL, "cpu_isa: no such instruction set (%u)", wanted);
    }
    if (wanted == TDM_CPU_ISA_AUTO) {
        uint32_t isa = TDM_CPU_ISA_AVX512;
        while (!has(isa)) isa--;
        *isa_out = isa;
        return TDM_OK;
    }
    if (!has(wanted)) {
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "cpu_isa: this processor has no %s",
                             tdm_cpu_isa_name(wanted));
    }
    *isa_out = wanted;
    return TDM_OK;
}
