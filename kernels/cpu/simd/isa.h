/* The names of this folder's functions for the instruction set that is being compiled: SL_ISA is
 * avx512, avx2 or plain. */
#ifndef SL_KERNELS_CPU_SIMD_ISA_H
#define SL_KERNELS_CPU_SIMD_ISA_H

#include "kernels/cpu/simd.h"

#ifndef SL_ISA
#error "SL_ISA names the instruction set; the build gives it"
#endif

#define SL_JOIN_(name, isa) sl_simd_##name##_##isa
#define SL_JOIN(name, isa) SL_JOIN_(name, isa)
#define SL_SIMD(name) SL_JOIN(name, SL_ISA)

#define X(name, arguments) void SL_SIMD(name) arguments;
SL_SIMD_LIST(X)
#undef X

void SL_SIMD(gemm_epilogue)(const sl_gemm_epilogue *epilogue);
void SL_SIMD(gemm_multiply_few)(const sl_gemm_few *few);
extern const sl_micro_kernel SL_SIMD(micro_kernel);
extern const sl_register_loop SL_SIMD(register_loop);
extern const sl_simd SL_SIMD(table);
#if defined(__AVX512F__)
void sl_simd_gemm_multiply_few_pairs(const sl_gemm_few *few);
extern const sl_micro_kernel sl_simd_micro_kernel_pairs, sl_simd_micro_kernel_amx;
extern const sl_register_loop sl_simd_register_loop_pairs, sl_simd_register_loop_amx;
extern const sl_simd sl_simd_table_avx512_bf16, sl_simd_table_amx;
#endif

#endif
