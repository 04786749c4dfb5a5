/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_INCLUDE_CHOICES_H
#define TDM_KERNELS_INCLUDE_CHOICES_H

/* tdm_choices is what a GPU backend chose by asking and measuring (which
   algorithm makes which matrix product), kept for the executor's next life:
   choosing anew is most of the time between a death and the next token.

     life k    nothing kept: choose, tdm_choices_keep
     death     tandemd keeps the memory; after a short life it forgets it
     life k+1  tdm_choices_take: all of it under the same key, or nothing

   It is one block of plain data in memory that tandemd owns and the executor
   writes.  A life may die while it writes, or of what it chose: so the block
   bears a key of all that choices depend on and a checksum, and whoever takes
   it also asks the library whether it still takes each algorithm.

   Writer: the executor that lives (kernels/keep).  Reader: the next one.
   tandemd only forgets, while there is none. */

#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

#define TDM_CHOICES_MAX       1024u
#define TDM_CHOICE_SHAPE_WORD 8u /* of a product, as its maker numbers them; unused ones 0 */
#define TDM_CHOICE_ALGO_WORD  8u /* an algorithm as cuBLASLt holds it: 64 bytes */

/* What choices depend on besides the product; no gaps: compared as bytes. */
typedef struct tdm_choices_key {
    uint8_t device[16]; /* the GPU's UUID */
    uint32_t arch;      /* 90 for compute capability 9.0 */
    uint32_t sm_cnt;
    uint32_t driver;  /* cudaDriverGetVersion */
    uint32_t runtime; /* cudaRuntimeGetVersion */
    uint64_t library; /* cublasLtGetVersion */
    /* The program's file: device, number, bytes, nanoseconds of its last change. */
    uint64_t program[4];
} tdm_choices_key_t;

typedef struct tdm_choice {
    uint64_t algo[TDM_CHOICE_ALGO_WORD];
    uint32_t shape[TDM_CHOICE_SHAPE_WORD];
    uint32_t way;      /* who makes the product, as its maker numbers them */
    uint32_t is_timed; /* chosen by time, not by the library's first answer */
} tdm_choice_t;

/* All zero: nothing is kept. */
typedef struct tdm_choices {
    uint64_t magic;
    uint64_t sum; /* of the key, cnt and cnt choices */
    tdm_choices_key_t key;
    uint64_t cnt; /* <= TDM_CHOICES_MAX */
    tdm_choice_t choice[TDM_CHOICES_MAX];
} tdm_choices_t;

/* tdm_choices_forget: nothing is kept any more. */
static inline void tdm_choices_forget(tdm_choices_t *c) {
    c->magic = 0;
    c->sum = 0;
    c->cnt = 0;
}

TDM_END_DECLS

#endif /* TDM_KERNELS_INCLUDE_CHOICES_H */
