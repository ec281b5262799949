/* The table of one instruction set. */
#include "isa.h"

#define SL_TEXT_(isa) #isa
#define SL_TEXT(isa) SL_TEXT_(isa)

#define GEMM(bf16)                                                                                 \
    {                                                                                              \
        [SL_TYPE_FP32] = &SL_VECTOR(gemm), [SL_TYPE_BF16] = bf16,                                  \
        [SL_TYPE_FP16] = &SL_VECTOR(gemm)                                                          \
    }

const sl_vector SL_VECTOR(table) = {.isa = SL_TEXT(SL_ISA),
                                    .gemm = GEMM(&SL_VECTOR(gemm)),
#define X(name, arguments) .name = SL_VECTOR(name),
                                    SL_VECTOR_LIST(X)
#undef X
};

#if defined(__AVX512F__)
/* The same, but products of bf16 by the instruction for pairs. */
const sl_vector sl_vector_table_avx512_bf16 = {.isa = "avx512_bf16",
                                               .gemm = GEMM(&sl_vector_gemm_pairs),
#define X(name, arguments) .name = SL_VECTOR(name),
                                               SL_VECTOR_LIST(X)
#undef X
};
#endif
