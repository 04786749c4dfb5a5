/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/cublaslt.h"

#include <dlfcn.h>
#include <string.h>

#define STRING_OF(x) #x
#define SONAME(v)    "libcublasLt.so." STRING_OF(v)
#define NAME         SONAME(CUBLAS_VER_MAJOR)

static const char *const place[] = {NAME, "/usr/local/cuda/lib64/" NAME,
                                    "/usr/local/cuda/targets/x86_64-linux/lib/" NAME};

tdm_status_t tdm_cublaslt_load(tdm_cublaslt_t *lt, tdm_error_t *err) {
    void *lib = NULL;
    memset(lt, 0, sizeof *lt);
    for (size_t i = 0; i < TDM_COUNT_OF(place) && !lib; i++)
        lib = dlopen(place[i], RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "cuBLASLt: %s is neither on the loader's path nor in the CUDA "
                             "toolkit's folder",
                             NAME);
#define FIND(name, result, arguments)                                                              \
    *(void **)&lt->name = dlsym(lib, "cublasLt" #name);                                            \
    if (!lt->name)                                                                                 \
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "cuBLASLt: %s has no cublasLt" #name, NAME);
    TDM_CUBLASLT_CALLS(FIND)
#undef FIND
    return TDM_OK;
}
