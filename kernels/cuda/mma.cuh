/* The machine's own instructions, each as one small function: the warp's matrix product and the
 * loads that feed it, copies that pass registers by, the multiply-add and the exponential of
 * base 2.
 *
 * All lanes of a warp call the functions of matrices together. Which element of a matrix sits in
 * which lane is the instruction's own business (PTX ISA, "Matrix Fragments for mma.m16n8k16 with
 * floating point type" and "ldmatrix"); with g = lane / 4 and t = lane % 4:
 *
 *   a [16, 16]  a[0] row g, columns 2t, 2t+1   a[1] row g+8, same    a[2], a[3] columns + 8
 *   b [16, 8]   b0   column g, rows 2t, 2t+1   b1   rows + 8
 *   c [16, 8]   c[0], c[1] row g, columns 2t, 2t+1   c[2], c[3] row g+8
 *
 * So the sums c of two neighbouring products, rounded, are the operand a of a next one: its columns
 * 0..7 are c of the first, 8..15 of the second.
 */
#ifndef SL_KERNELS_CUDA_MMA_CUH
#define SL_KERNELS_CUDA_MMA_CUH

#include "typed.cuh"

#ifdef SL_CUDA_SHIM
#include <cuda_mma_emulated.h>
#else

/* c [16, 8] += a [16, 16] b [16, 8]: operands of a half-precision type, sums fp32. */
template <sl_type TYPE>
static __device__ __forceinline__ void sl_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                              uint32_t b1)
{
    if constexpr (TYPE == SL_TYPE_BF16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ uint32_t sl_shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* Four matrices [8, 8] of 2-byte elements from shared memory: matrix i has its rows (16 bytes each,
 * aligned) where lanes 8i .. 8i+7 point; part[i] becomes its row g, columns 2t and 2t+1. */
static __device__ __forceinline__ void sl_load_matrices(uint32_t (&part)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
                 : "r"(sl_shared_address(row))
                 : "memory");
}

/* The same, each matrix transposed: part[i] becomes rows 2t and 2t+1 of column g. */
static __device__ __forceinline__ void sl_load_transposed(uint32_t (&part)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
                 : "r"(sl_shared_address(row))
                 : "memory");
}

/* Begins to copy 16 bytes (both ends aligned), or to write zeros in their place: `from` is then not
 * read, but has to be an address. The thread's copies end with sl_copy_wait. */
static __device__ __forceinline__ void sl_copy_begin(void *shared, const void *from, bool copies)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(sl_shared_address(shared)), "l"(from), "r"(copies ? 16 : 0)
                 : "memory");
}

/* The same for one float. */
static __device__ __forceinline__ void sl_copy_begin_float(float *shared, const float *from,
                                                           bool copies)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(sl_shared_address(shared)), "l"(from), "r"(copies ? 4 : 0)
                 : "memory");
}

/* Waits for every copy that this thread began; a barrier then shows them to the others. */
static __device__ __forceinline__ void sl_copy_wait()
{
    asm volatile("cp.async.wait_all;" : : : "memory");
}

/* Sixteen bytes into global memory by one store, however the compiler would cut them. */
static __device__ __forceinline__ void sl_store_whole(void *global, uint4 value)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(global)), "r"(value.x), "r"(value.y), "r"(value.z),
                   "r"(value.w)
                 : "memory");
}

/* a * b + c, rounded once, for sums whose bits nobody compares with the cpu's. */
static __device__ __forceinline__ float sl_multiply_add(float a, float b, float c)
{
    return fmaf(a, b, c);
}

/* 2^x, at most 2 in the last place from the rounded one (PTX ISA, "ex2"); below 2^-126 it is 0. */
static __device__ __forceinline__ float sl_exp2(float x)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

#endif

/* Two floats rounded to a half-precision type, `low` in the low half: one conversion. */
template <sl_type TYPE>
static __device__ __forceinline__ uint32_t sl_round_pair(float low, float high)
{
#ifdef SL_CUDA_SHIM
    return (uint32_t)sl_round<TYPE>(low) | (uint32_t)sl_round<TYPE>(high) << 16;
#else
    uint32_t pair;
    if constexpr (TYPE == SL_TYPE_BF16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#endif
}

#endif
