/* Loops over elements of the gated units gate s up, with s = 1 / (1 + exp(-gate)), and gelu(gate)
 * up (Shazeer 2020). */
#include "gelu.h"
#include "isa.h"
#include "typed.h"

/* A gate's function of its input, and the derivative. */
typedef struct gate_lanes {
    lanes value, slope;
} gate_lanes;

/* The derivative of gate s is s + gate s (1 - s). */
SL_INLINE gate_lanes open_gate(lanes gate, const bool is_gelu)
{
    if (is_gelu)
        return (gate_lanes){gelu_lanes(gate), gelu_slope_lanes(gate)};
    const lanes one = set_lanes(1.0f);
    const lanes s = one / (one + exp_lanes(-gate));
    return (gate_lanes){gate * s, fma_lanes(gate, s * (one - s), s)};
}

/* is_gelu is a constant in each call, so that each form is a loop without a branch. */
SL_INLINE void multiply_gated(sl_type type, const sl_swiglu_span *span, const bool is_gelu)
{
    const lanes one = set_lanes(1.0f);
    for (uint64_t i = 0; i < span->count; i += LANES) {
        const uint32_t part = part_at(i, span->count);
        const lanes gate = load_at(type, span->gate, i, part);
        const lanes up = load_at(type, span->up, i, part);
        if (is_gelu)
            store_at(type, span->y, i, gelu_lanes(gate) * up, part);
        else
            store_at(type, span->y, i, gate / (one + exp_lanes(-gate)) * up, part);
    }
}

SL_INLINE void multiply(sl_type type, const sl_swiglu_span *span)
{
    if (span->is_gelu)
        multiply_gated(type, span, true);
    else
        multiply_gated(type, span, false);
}

void SL_SIMD(swiglu)(const sl_swiglu_span *span)
{
    SL_BY_TYPE(span->type, multiply, span);
}

SL_INLINE void differentiate_gated(sl_type type, const sl_swiglu_span *span, const bool is_gelu)
{
    for (uint64_t i = 0; i < span->count; i += LANES) {
        const uint32_t part = part_at(i, span->count);
        const lanes up = load_at(type, span->up, i, part);
        const lanes d = load_at(type, span->d, i, part);
        const gate_lanes gate = open_gate(load_at(type, span->gate, i, part), is_gelu);
        store_at(type, span->dgate, i, d * up * gate.slope, part);
        store_at(type, span->d, i, d * gate.value, part);
    }
}

SL_INLINE void differentiate(sl_type type, const sl_swiglu_span *span)
{
    if (span->is_gelu)
        differentiate_gated(type, span, true);
    else
        differentiate_gated(type, span, false);
}

void SL_SIMD(swiglu_backward)(const sl_swiglu_span *span)
{
    SL_BY_TYPE(span->type, differentiate, span);
}
