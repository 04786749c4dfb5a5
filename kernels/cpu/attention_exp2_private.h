/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CPU_ATTENTION_EXP2_PRIVATE_H
#define TDM_KERNELS_CPU_ATTENTION_EXP2_PRIVATE_H

/* 2^f on [-1/2, 1/2] as 1 + f * (C1 + f * (C2 + ... C6)): interpolation of
   (2^f - 1) / f at the six Chebyshev nodes; relative error 5.1e-9 before
   rounding, and exactly 1 at f = 0, which the fold and a block whose
   maximum stays rely on.  Scores below EXP2_LOW give 0: 2^-126 is the
   least normal float, and a weight that small changes no sum. */
#define EXP2_C1  0.6931471880262288f
#define EXP2_C2  0.24022650760568087f
#define EXP2_C3  0.05550357114219124f
#define EXP2_C4  0.009618082557285924f
#define EXP2_C5  0.001339086336464892f
#define EXP2_C6  0.0001545316294214853f
#define EXP2_LOW (-126.0f)

#endif /* TDM_KERNELS_CPU_ATTENTION_EXP2_PRIVATE_H */
