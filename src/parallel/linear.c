/* The linear layer of a team: which part of the product a rank computes, and in which forms it
 * reads and writes activations. dx is a product with the transposed weight.
 *
 *   split     reads x   computes y   reads dy   computes dx
 *   WHOLE     whole     WHOLE        whole      WHOLE
 *   COLUMNS   whole     SPLIT        split      PARTIAL
 *   ROWS      split     PARTIAL      whole      SPLIT
 *
 * A rank without columns or rows has no product, and its term of a sum is zero.
 */
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "team.h"

typedef struct linear {
    sl_parallel_linear_args args;
    sl_team_activation x, y, dx, dy;
    uint64_t in, out; /* of this rank's part of the weight */
} linear;

static sl_status take_args(const sl_parallel_team *team, const sl_parallel_linear_args *given,
                           size_t bytes, linear *out)
{
    sl_parallel_linear_args *args = &out->args;
    SL_TRY(sl_sized_take("sl_parallel_linear_args", given, bytes, args, sizeof *args));
    SL_TRY(sl_team_check_product(args->rows, args->in, "x of a parallel linear"));
    SL_TRY(sl_team_check_product(args->rows, args->out, "y of a parallel linear"));
    SL_TRY(sl_team_check_product(args->in, args->out, "the weight of a parallel linear"));
    if (args->split > SL_PARALLEL_ROWS)
        SL_FAIL(SL_ERROR_USAGE, "a parallel linear cannot be split by %u", (unsigned)args->split);
    const bool is_x_split = args->is_x_split != 0, is_y_split = args->is_y_split != 0;
    out->x = (sl_team_activation){args->rows, args->in, is_x_split, args->x};
    out->y = (sl_team_activation){args->rows, args->out, is_y_split, args->y};
    out->dx = (sl_team_activation){args->rows, args->in, is_x_split, args->dx};
    out->dy = (sl_team_activation){args->rows, args->out, is_y_split, args->dy};
    out->in = sl_team_own(team, args->in, args->split == SL_PARALLEL_ROWS).count;
    out->out = sl_team_own(team, args->out, args->split == SL_PARALLEL_COLUMNS).count;
    return SL_OK;
}

static sl_parallel_split transpose(sl_parallel_split split)
{
    return split == SL_PARALLEL_COLUMNS ? SL_PARALLEL_ROWS
           : split == SL_PARALLEL_ROWS  ? SL_PARALLEL_COLUMNS
                                        : SL_PARALLEL_WHOLE;
}

static sl_status refuse_missing(const char *names)
{
    SL_FAIL(SL_ERROR_USAGE, "a parallel linear needs %s", names);
}

static sl_op_attrs find_attrs(const linear *it)
{
    return (sl_op_attrs){.row_count = it->args.rows,
                         .in = it->in,
                         .out = it->out,
                         .adds_gradient = it->args.adds_gradients != 0};
}

sl_status sl_parallel_linear_forward_sized(sl_parallel_team *team,
                                           const sl_parallel_linear_args *args, size_t bytes)
{
    linear it;
    const float *x;
    float *y;
    SL_TRY(take_args(team, args, bytes, &it));
    const bool is_by_rows = it.args.split == SL_PARALLEL_ROWS;
    const sl_team_form form = sl_team_form_of(it.args.split);
    if (!it.args.x || !it.args.weight || !it.args.y)
        return refuse_missing("x, weight and y");
    SL_TRY(sl_team_bring(team, SL_TEAM_INPUT, &it.x, is_by_rows, &x));
    SL_TRY(sl_team_place(team, &it.y, form, &y));
    sl_op_attrs attrs = find_attrs(&it);
    attrs.rank_index = is_by_rows ? (uint16_t)team->rank : 0; /* the first rank's has the bias */
    if (it.in == 0)
        memset(y, 0, it.args.rows * it.out * sizeof *y);
    else if (it.out > 0)
        SL_TRY(sl_team_compute(
            team, SL_OP_LINEAR, &attrs,
            (const void *[SL_OPERAND_MAX]){x, it.args.weight, it.args.bias, NULL, y}));
    return sl_team_give(team, &it.y, form, y);
}

/* dweight and dbias, each if it is wanted and this rank has some of it. */
static sl_status differentiate_parameters(sl_parallel_team *team, const linear *it, const float *dy)
{
    sl_op_attrs attrs = find_attrs(it);
    const float *x = NULL;
    float *dweight = it->args.dweight;
    if (dweight)
        SL_TRY(sl_team_bring(team, SL_TEAM_INPUT, &it->x, it->args.split == SL_PARALLEL_ROWS, &x));
    if (!dweight || it->in == 0) {
        attrs.in = 0;
        x = dweight = NULL;
    }
    if (it->out == 0 || (!dweight && !it->args.dbias))
        return SL_OK;
    return sl_team_compute(team, SL_OP_LINEAR_WEIGHT_BACKWARD, &attrs,
                           (const void *[SL_OPERAND_MAX]){x, dy, dweight, it->args.dbias});
}

static sl_status differentiate_input(sl_parallel_team *team, const linear *it, const float *dy)
{
    const sl_op_attrs attrs = find_attrs(it);
    const sl_team_form form = sl_team_form_of(transpose(it->args.split));
    float *dx;
    SL_TRY(sl_team_place(team, &it->dx, form, &dx));
    if (it->out == 0)
        memset(dx, 0, it->args.rows * it->in * sizeof *dx);
    else if (it->in > 0)
        SL_TRY(sl_team_compute(team, SL_OP_LINEAR_INPUT_BACKWARD, &attrs,
                               (const void *[SL_OPERAND_MAX]){dy, it->args.weight, dx}));
    return sl_team_give(team, &it->dx, form, dx);
}

sl_status sl_parallel_linear_backward_sized(sl_parallel_team *team,
                                            const sl_parallel_linear_args *args, size_t bytes)
{
    linear it;
    const float *dy;
    SL_TRY(take_args(team, args, bytes, &it));
    if (!it.args.dy || (it.args.dx && !it.args.weight) || (it.args.dweight && !it.args.x))
        return refuse_missing("dy, weight for dx, and x for dweight");
    SL_TRY(
        sl_team_bring(team, SL_TEAM_GRADIENT, &it.dy, it.args.split == SL_PARALLEL_COLUMNS, &dy));
    SL_TRY(differentiate_parameters(team, &it, dy));
    return it.args.dx ? differentiate_input(team, &it, dy) : SL_OK;
}
