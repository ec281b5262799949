/* Blocks of frozen matrices, from bf16 or codes of 8 bits; the bits of
 * kernels/cpu/simd/dequantize.c. A thread does eight elements, which are of one group.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and bytes of a pass.
 *
 *                                         sm_80                sm_90
 *   dequantize_blocks<bf16, bf16>     16     32     32     16     35     32
 *   dequantize_blocks<bf16, fp16>     16     32     32     16     35     32
 *   dequantize_blocks<bf16, fp32>     18     27     48     18     30     48
 *   dequantize_blocks<int8, bf16>     22     70     26     20     73     26
 */
#include "launch.cuh"
#include "typed.cuh"

enum { THREADS = 256, EACH = 8, BLOCK = SL_BLOCK_ELEMENTS, GROUP = 32 };
enum { CODED_BYTES = BLOCK + BLOCK / GROUP * 2 /* of a block: codes and scales */ };

/* The code of a byte of a word. Between 2^23 and 2^24 the last bit of a float is worth 1: so a sum
 * converts, which is four times as fast as a conversion. Exact. */
static __device__ __forceinline__ float decode_byte(uint32_t word, int index)
{
    const uint32_t above = (word >> (8 * index) & 0xff) ^ 0x80; /* code + 128 */
    return __uint_as_float(0x4b000000 | above) - 8388736.0f;    /* 2^23 + 128 */
}

static __device__ __forceinline__ void load_codes(const uint8_t *stored, uint64_t first,
                                                  float values[EACH])
{
    const uint32_t in_block = (uint32_t)(first % BLOCK);
    const uint8_t *block = stored + first / BLOCK * CODED_BYTES;
    const uint2 codes = *(const uint2 *)(block + in_block);
    const uint16_t half = *(const uint16_t *)(block + BLOCK + in_block / GROUP * 2);
    const float scale = sl_widen<SL_TYPE_FP16>(half);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        values[i] = decode_byte(i < 4 ? codes.x : codes.y, i % 4) * scale;
}

template <sl_frozen FROZEN, sl_type TYPE>
static __global__ void __launch_bounds__(THREADS)
    dequantize_blocks(const void *__restrict__ stored, void *__restrict__ y, uint64_t count)
{
    enum { COUNT = sl_pack<TYPE>::COUNT };
    const uint64_t first = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) * EACH;
    float values[EACH];
    if (first >= count)
        return;
    if constexpr (FROZEN == SL_FROZEN_INT8) {
        load_codes((const uint8_t *)stored, first, values);
    } else {
        const sl_pack<SL_TYPE_BF16> from = sl_load_pack<SL_TYPE_BF16>(stored, first);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            values[i] = from.value[i];
    }
#pragma unroll
    for (int p = 0; p < EACH / COUNT; p++) {
        sl_pack<TYPE> to;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            to.value[i] = values[p * COUNT + i];
        sl_store_pack<TYPE>(y, first + p * COUNT, to);
    }
}

template <sl_type TYPE> static sl_status launch(const sl_kernel_call *call)
{
    const uint64_t count = call->attrs->element_count;
    const uint64_t blocks = sl_bits_divide_up(count, THREADS * EACH);
    SL_TRY(sl_launch_covers(blocks, "dequantize"));
    if (call->attrs->frozen_type == SL_FROZEN_INT8)
        return SL_LAUNCH(call, (uint32_t)blocks, THREADS, 0,
                         (dequantize_blocks<SL_FROZEN_INT8, TYPE>), call->operand[0],
                         call->operand[1], count);
    return SL_LAUNCH(call, (uint32_t)blocks, THREADS, 0, (dequantize_blocks<SL_FROZEN_BF16, TYPE>),
                     call->operand[0], call->operand[1], count);
}

extern "C" sl_status sl_cuda_dequantize(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    if (attrs->frozen_type == SL_FROZEN_OWN || attrs->frozen_type >= SL_FROZEN_COUNT ||
        attrs->element_count % BLOCK != 0)
        SL_FAIL(SL_ERROR_INTERNAL, "dequantize: type %u of %llu elements", attrs->frozen_type,
                (unsigned long long)attrs->element_count);
    return SL_BY_TYPE(attrs->type, launch, call);
}
