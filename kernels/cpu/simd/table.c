/* The table of one instruction set. */
#include "isa.h"

#define SL_TEXT_(isa) #isa
#define SL_TEXT(isa) SL_TEXT_(isa)

#define MICRO_KERNELS(bf16)                                                                        \
    {                                                                                              \
        [SL_TYPE_FP32] = &SL_SIMD(micro_kernel), [SL_TYPE_BF16] = bf16,                            \
        [SL_TYPE_FP16] = &SL_SIMD(micro_kernel)                                                    \
    }

#define REGISTER_LOOPS(bf16)                                                                       \
    {                                                                                              \
        [SL_TYPE_FP32] = &SL_SIMD(register_loop), [SL_TYPE_BF16] = bf16,                           \
        [SL_TYPE_FP16] = &SL_SIMD(register_loop)                                                   \
    }

const sl_simd SL_SIMD(table) = {.isa = SL_TEXT(SL_ISA),
                                .micro_kernel = MICRO_KERNELS(&SL_SIMD(micro_kernel)),
                                .register_loop = REGISTER_LOOPS(&SL_SIMD(register_loop)),
#define X(name, arguments) .name = SL_SIMD(name),
                                SL_SIMD_LIST(X)
#undef X
};

#if defined(__AVX512F__)
/* The same, but products of bf16 by the instruction for pairs. */
const sl_simd sl_simd_table_avx512_bf16 = {
    .isa = "avx512_bf16",
    .micro_kernel = MICRO_KERNELS(&sl_simd_micro_kernel_pairs),
    .register_loop = REGISTER_LOOPS(&sl_simd_register_loop_pairs),
#define X(name, arguments) .name = SL_SIMD(name),
    SL_SIMD_LIST(X)
#undef X
};

/* The same, but products of bf16 in AMX's tiles. */
const sl_simd sl_simd_table_amx = {.isa = "amx",
                                   .micro_kernel = MICRO_KERNELS(&sl_simd_micro_kernel_amx),
                                   .register_loop = REGISTER_LOOPS(&sl_simd_register_loop_amx),
#define X(name, arguments) .name = SL_SIMD(name),
                                   SL_SIMD_LIST(X)
#undef X
};
#endif
