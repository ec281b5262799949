/* The table of one instruction set. */
#include "isa.h"

#define SL_TEXT_(isa) #isa
#define SL_TEXT(isa) SL_TEXT_(isa)

#define GEMM(bf16)                                                                                 \
    {                                                                                              \
        [SL_TYPE_FP32] = &SL_SIMD(gemm), [SL_TYPE_BF16] = bf16, [SL_TYPE_FP16] = &SL_SIMD(gemm)    \
    }

const sl_simd SL_SIMD(table) = {.isa = SL_TEXT(SL_ISA),
                                .gemm = GEMM(&SL_SIMD(gemm)),
#define X(name, arguments) .name = SL_SIMD(name),
                                SL_SIMD_LIST(X)
#undef X
};

#if defined(__AVX512F__)
/* The same, but products of bf16 by the instruction for pairs. */
const sl_simd sl_simd_table_avx512_bf16 = {.isa = "avx512_bf16",
                                           .gemm = GEMM(&sl_simd_gemm_pairs),
#define X(name, arguments) .name = SL_SIMD(name),
                                           SL_SIMD_LIST(X)
#undef X
};
#endif
