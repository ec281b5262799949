/* The gated units gate s up, with s = 1 / (1 + exp(-gate)), and gelu(gate) up (Shazeer 2020), and
 * their gradients. A thread does sixteen bytes of each operand; the last one does what is left,
 * element by element.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and bytes of a pass.
 *
 *                                        sm_80                sm_90
 *   geglu_elements<bf16, false>      30    261     48     30    266     48
 *   geglu_elements<bf16, true>       40    421     80     40    428     80
 *   swiglu_elements<bf16, false>     30    221     48     30    226     48
 *   swiglu_elements<bf16, true>      39    281     80     40    287     80
 */
#include "gelu.cuh"
#include "launch.cuh"
#include "typed.cuh"

enum { THREADS = 256 };

typedef struct swiglu_args {
    const void *gate, *up;
    void *y;         /* forward */
    void *d, *dgate; /* backward; d: of y before, of up behind */
    uint64_t count;
} swiglu_args;

/* A pack from element `i` on where WIDE, else that element. */
template <sl_type TYPE, bool GELU, bool WIDE>
static __device__ __forceinline__ void multiply_gated(const swiglu_args &args, uint64_t i)
{
    const sl_piece<TYPE, WIDE> gate = sl_load_piece<TYPE, WIDE>(args.gate, i);
    sl_piece<TYPE, WIDE> up = sl_load_piece<TYPE, WIDE>(args.up, i);
#pragma unroll
    for (int j = 0; j < sl_piece<TYPE, WIDE>::COUNT; j++) {
        if constexpr (GELU)
            up.value[j] *= sl_gelu(gate.value[j]);
        else
            up.value[j] *= gate.value[j] / (1.0f + expf(-gate.value[j]));
    }
    sl_store_piece<TYPE, WIDE>(args.y, i, up);
}

/* The same; the slope of gate s is s + gate s (1 - s). */
template <sl_type TYPE, bool GELU, bool WIDE>
static __device__ __forceinline__ void differentiate(const swiglu_args &args, uint64_t i)
{
    const sl_piece<TYPE, WIDE> gate = sl_load_piece<TYPE, WIDE>(args.gate, i);
    sl_piece<TYPE, WIDE> up = sl_load_piece<TYPE, WIDE>(args.up, i);
    sl_piece<TYPE, WIDE> d = sl_load_piece<TYPE, WIDE>(args.d, i);
#pragma unroll
    for (int j = 0; j < sl_piece<TYPE, WIDE>::COUNT; j++) {
        if constexpr (GELU) {
            up.value[j] = d.value[j] * up.value[j] * sl_gelu_slope(gate.value[j]);
            d.value[j] *= sl_gelu(gate.value[j]);
        } else {
            const float s = 1.0f / (1.0f + expf(-gate.value[j]));
            const float slope = fmaf(gate.value[j], s * (1.0f - s), s);
            up.value[j] = d.value[j] * up.value[j] * slope; /* the gradient of gate */
            d.value[j] *= gate.value[j] * s;
        }
    }
    sl_store_piece<TYPE, WIDE>(args.dgate, i, up);
    sl_store_piece<TYPE, WIDE>(args.d, i, d);
}

template <sl_type TYPE, bool GELU, bool BACKWARD>
static __device__ __forceinline__ void run_thread(const swiglu_args &args)
{
    const uint64_t thread = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    const uint64_t first = thread * sl_pack<TYPE>::COUNT;
    if (first + sl_pack<TYPE>::COUNT <= args.count) {
        if constexpr (BACKWARD)
            differentiate<TYPE, GELU, true>(args, first);
        else
            multiply_gated<TYPE, GELU, true>(args, first);
        return;
    }
#pragma unroll 1
    for (uint64_t i = first; i < args.count; i++)
        if constexpr (BACKWARD)
            differentiate<TYPE, GELU, false>(args, i);
        else
            multiply_gated<TYPE, GELU, false>(args, i);
}

template <sl_type TYPE, bool BACKWARD>
static __global__ void __launch_bounds__(THREADS) swiglu_elements(swiglu_args args)
{
    run_thread<TYPE, false, BACKWARD>(args);
}

template <sl_type TYPE, bool BACKWARD>
static __global__ void __launch_bounds__(THREADS) geglu_elements(swiglu_args args)
{
    run_thread<TYPE, true, BACKWARD>(args);
}

template <sl_type TYPE, bool BACKWARD>
static sl_status launch(const sl_kernel_call *call, const swiglu_args *args)
{
    const swiglu_args copy = *args;
    const uint64_t each = THREADS * sl_pack<TYPE>::COUNT;
    const uint64_t blocks = sl_bits_divide_up(args->count, each);
    const auto kernel =
        call->attrs->is_gelu ? geglu_elements<TYPE, BACKWARD> : swiglu_elements<TYPE, BACKWARD>;
    SL_TRY(sl_launch_covers(blocks, "swiglu"));
    return SL_LAUNCH(call, (uint32_t)blocks, THREADS, 0, kernel, copy);
}

template <sl_type TYPE>
static sl_status launch_direction(const sl_kernel_call *call, const swiglu_args *args,
                                  bool is_backward)
{
    return is_backward ? launch<TYPE, true>(call, args) : launch<TYPE, false>(call, args);
}

static sl_status run(const sl_kernel_call *call, swiglu_args args, bool is_backward)
{
    args.gate = call->operand[0];
    args.up = call->operand[1];
    args.count = call->attrs->element_count;
    if (args.count == 0)
        return SL_OK;
    return SL_BY_TYPE(call->attrs->type, launch_direction, call, &args, is_backward);
}

extern "C" sl_status sl_cuda_swiglu(const sl_kernel_call *call)
{
    swiglu_args args = {};
    args.y = call->operand[2];
    return run(call, args, false);
}

extern "C" sl_status sl_cuda_swiglu_backward(const sl_kernel_call *call)
{
    swiglu_args args = {};
    args.d = call->operand[2];
    args.dgate = call->operand[3];
    return run(call, args, true);
}
