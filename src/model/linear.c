/* The tensor-parallel linear (Megatron-LM, Shoeybi et al. 2019): a column-parallel one needs no
 * exchange forward, a row-parallel one sums its parts. Backward it is the other way round; the pass
 * that derives it sees by the weight's split that dx is a part of a sum.
 *
 * All ranks emit the same ops. In a row-parallel linear the first rank alone adds bias and residual
 * (attrs.rank_index), so that the sum has them once, while the gradient rules hold on every rank.
 */
#include <stdio.h>

#include "base/status.h"
#include "emit.h"

/* The sizes of this rank's part of a linear. */
typedef struct part {
    uint64_t in, out;
    bool is_summed; /* over the ranks */
} part;

static part find_part(const sl_emit *emit, const sl_linear_args *args)
{
    uint32_t tp_size = emit->options->tp_size;
    bool splits_rows = args->split == SL_SPLIT_ROWS;
    part local = {.in = splits_rows ? args->in / tp_size : args->in,
                  .out = splits_rows ? args->out : args->out / tp_size,
                  .is_summed = splits_rows && tp_size > 1};
    return local;
}

static sl_status add_parameters(sl_emit *emit, const sl_linear_args *args, const part *local,
                                uint32_t *out_weight, uint32_t *out_bias)
{
    char name[32];
    snprintf(name, sizeof name, "%s.weight", args->name);
    sl_emit_tensor weight = {.name = name,
                             .rows = local->in,
                             .columns = local->out,
                             .whole_rows = args->in,
                             .whole_columns = args->out,
                             .split = args->split,
                             .init = {0.0f, args->deviation}};
    SL_TRY(sl_emit_add_tensor(emit, &weight, true, out_weight));
    snprintf(name, sizeof name, "%s.bias", args->name);
    /* A vector's only axis is its last one: it is split where the columns are. */
    sl_emit_tensor bias = {.name = name,
                           .rows = local->out,
                           .whole_rows = args->out,
                           .split = args->split == SL_SPLIT_ROWS ? SL_SPLIT_NONE : args->split};
    return sl_emit_add_tensor(emit, &bias, true, out_bias);
}

sl_status sl_linear_emit(sl_emit *emit, const sl_linear_args *args, uint32_t *out_y)
{
    part local = find_part(emit, args);
    uint32_t weight, bias, y;
    SL_TRY(add_parameters(emit, args, &local, &weight, &bias));
    SL_TRY(sl_emit_add_activation(emit, args->name, true, local.out, &y));
    sl_op_attrs attrs = {.row_count = emit->rows,
                         .in = local.in,
                         .out = local.out,
                         .rank_index = local.is_summed ? emit->options->tp_rank : 0};
    uint32_t operands[] = {args->x, weight, bias, args->residual, y};
    SL_TRY(sl_emit_add_op(emit, SL_OP_LINEAR, &attrs, operands, 5));
    if (local.is_summed) {
        sl_op_attrs sum = {.element_count = emit->rows * local.out};
        SL_TRY(sl_emit_add_op(emit, SL_OP_ALL_REDUCE, &sum, &y, 1));
    }
    *out_y = y;
    return SL_OK;
}
