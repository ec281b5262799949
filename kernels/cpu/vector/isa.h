/* The names of this folder's functions for the instruction set that is being compiled: SL_ISA is
 * avx512, avx2 or plain. */
#ifndef SL_KERNELS_CPU_VECTOR_ISA_H
#define SL_KERNELS_CPU_VECTOR_ISA_H

#include "kernels/cpu/vector.h"

#ifndef SL_ISA
#error "SL_ISA names the instruction set; the build gives it"
#endif

#define SL_JOIN_(name, isa) sl_vector_##name##_##isa
#define SL_JOIN(name, isa) SL_JOIN_(name, isa)
#define SL_VECTOR(name) SL_JOIN(name, SL_ISA)

#define X(name, arguments) void SL_VECTOR(name) arguments;
SL_VECTOR_LIST(X)
#undef X

extern const sl_gemm_micro SL_VECTOR(gemm);
extern const sl_vector SL_VECTOR(table);
#if defined(__AVX512F__)
extern const sl_gemm_micro sl_vector_gemm_pairs;
extern const sl_vector sl_vector_table_avx512_bf16;
#endif

#endif
