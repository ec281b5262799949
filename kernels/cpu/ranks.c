/* The computations of collectives, see kernels/ranks.h, in the thread of the lane `comm`. SUM is
 * for sums over sets of ranks alone: where all ranks add, communicators in host memory do it while
 * they exchange (comm/wire.h).
 */
#include <string.h>

#include "base/half.h"
#include "kernels/rank_stats.h"
#include "norm_sum.h"
#include "ops.h"
#include "simd.h"

static float load(sl_type type, const void *from, uint64_t index)
{
    if (type == SL_TYPE_FP32)
        return ((const float *)from)[index];
    const uint16_t half = ((const uint16_t *)from)[index];
    return type == SL_TYPE_BF16 ? sl_half_from_bf16(half) : sl_half_from_fp16(half);
}

static void store(sl_type type, void *to, uint64_t index, float value)
{
    if (type == SL_TYPE_FP32)
        ((float *)to)[index] = value;
    else
        ((uint16_t *)to)[index] =
            type == SL_TYPE_BF16 ? sl_half_to_bf16(value) : sl_half_to_fp16(value);
}

sl_status sl_cpu_ranks_convert(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    const sl_type from = (sl_type)attrs->type, to = (sl_type)attrs->grad_type;
    const uint64_t count = attrs->element_count;
    const bool narrows = from == SL_TYPE_FP32, widens = to == SL_TYPE_FP32;
    const void *x = call->operand[0];
    void *y = call->operand[1];
    if (attrs->adds_gradient ? !widens : from != to && !narrows && !widens)
        SL_FAIL(SL_ERROR_INTERNAL, "elements of type %d as type %d", from, to);
    if (attrs->adds_gradient)
        sl_simd_current()->add_to_float(x, from, y, count);
    else if (from == to)
        memcpy(y, x, count * sl_type_bytes(to));
    else if (widens)
        sl_simd_current()->widen(x, from, y, count);
    else
        sl_simd_current()->round(x, y, to, count);
    return SL_OK;
}

/* The value as another rank would have sent it. */
static float round_to(sl_type type, float value)
{
    uint32_t space;
    store(type, &space, 0, value);
    return load(type, &space, 0);
}

sl_status sl_cpu_ranks_sum(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    const sl_type type = (sl_type)attrs->type, stored = (sl_type)attrs->grad_type;
    for (uint64_t e = 0; e < attrs->element_count; e++) {
        float sum = 0;
        for (uint64_t rank = 0; rank < attrs->batch; rank++) {
            const float term = rank == attrs->rank_index
                                   ? round_to(type, load(stored, call->operand[1], e))
                                   : load(type, call->operand[0], rank * attrs->out + e);
            sum = rank == 0 ? term : sum + term;
        }
        if (call->operand[2])
            store(type, call->operand[2], e, sum);
        store(stored, call->operand[3], e, round_to(type, sum));
    }
    return SL_OK;
}

sl_status sl_cpu_ranks_stats(const sl_kernel_call *call)
{
    const uint64_t row_count = call->attrs->row_count;
    const float *parts = call->operand[0];
    float *stats = call->operand[1];
    for (uint64_t row = 0; row < row_count; row++)
        sl_rank_combine_stats(parts + row * SL_RANK_STATS_A_ROW, row_count * SL_RANK_STATS_A_ROW,
                              call->attrs->batch, stats + row * SL_RANK_STATS_A_ROW);
    return SL_OK;
}

/* ---- norms: integers, with the same sum in any order ---- */

sl_status sl_cpu_ranks_norm_prepare(const sl_kernel_call *call)
{
    sl_norm_sum *norm = call->operand[0];
    _Static_assert(sizeof norm->reserved == sizeof(double), "a loss fits a norm's free words");
    if (!call->attrs->adds_output)
        norm->flags = call->scalars.flags;
    if (call->operand[1])
        memcpy(norm->reserved, call->operand[1], sizeof norm->reserved);
    if (call->operand[2])
        norm->counted = (uint32_t) * (const double *)call->operand[2] & SL_COUNTED_MAX;
    return SL_OK;
}

sl_status sl_cpu_ranks_norm_merge(const sl_kernel_call *call)
{
    const sl_norm_sum *parts = call->operand[0];
    double *loss = call->operand[2], *counted = call->operand[3], sum = 0, rows = 0;
    sl_norm_sum merged = {0};
    for (uint64_t rank = 0; rank < call->attrs->batch; rank++) {
        double part;
        sl_norm_sum_merge(&merged, &parts[rank]);
        merged.flags |= parts[rank].flags;
        memcpy(&part, parts[rank].reserved, sizeof part);
        sum += part;
        rows += parts[rank].counted;
    }
    *(sl_norm_sum *)call->operand[1] = merged;
    if (loss)
        *loss = sum;
    if (counted)
        *counted = rows;
    return SL_OK;
}

/* ---- columns ---- */

/* Columns of rank `rank` among those of all. */
typedef struct columns {
    uint64_t first, bytes; /* of a row: offset in the gathered columns, bytes without padding */
} columns;

static columns find_columns(const sl_op_attrs *attrs, uint64_t rank)
{
    const uint64_t element = sl_type_bytes((sl_type)attrs->type), first = rank * attrs->out;
    const uint64_t left = attrs->in > first ? attrs->in - first : 0;
    const uint64_t count = left < attrs->out ? left : attrs->out;
    return (columns){count > 0 ? first * element : 0, count * element};
}

sl_status sl_cpu_ranks_pack_columns(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    const uint64_t element = sl_type_bytes((sl_type)attrs->type);
    const uint64_t row_bytes = attrs->in * element, part_bytes = attrs->out * element;
    const char *all = call->operand[0];
    char *part = call->operand[1];
    for (uint64_t i = 0; i < attrs->batch; i++) {
        const columns own = find_columns(attrs, attrs->rank_index + i);
        for (uint64_t row = 0; row < attrs->row_count; row++, part += part_bytes) {
            memcpy(part, all + row * row_bytes + own.first, own.bytes);
            memset(part + own.bytes, 0, part_bytes - own.bytes);
        }
    }
    return SL_OK;
}

sl_status sl_cpu_ranks_join_columns(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    const uint64_t element = sl_type_bytes((sl_type)attrs->type);
    const uint64_t row_bytes = attrs->in * element, part_bytes = attrs->out * element;
    const char *part = call->operand[0];
    char *all = call->operand[1];
    for (uint64_t i = 0; i < attrs->batch; i++) {
        const columns own = find_columns(attrs, i);
        for (uint64_t row = 0; row < attrs->row_count; row++, part += part_bytes)
            memcpy(all + row * row_bytes + own.first, part, own.bytes);
    }
    return SL_OK;
}
