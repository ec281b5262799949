/* Gradients of activations.
 *
 * An activation has one gradient. The first contribution writes it, later ones add. It is complete
 * when the rule of the op that makes the activation takes it: all readers of the activation stand
 * behind that op, and their rules have been emitted. Then the gradient is rounded to the type of
 * its activation, and after that summed over the ranks if each has a term: ranks exchange the
 * compute type.
 *
 * Row ranges write a gradient in row order: a range begins where the rows end that have been
 * written, or adds to such rows.
 */
#include "autodiff.h"
#include "base/status.h"

/* Emits an op on as many elements as value `like` has; the op's type is the type of `like`. */
static sl_status emit_elementwise(sl_autodiff *diff, sl_op_kind kind, uint32_t like,
                                  const uint32_t *operands)
{
    const sl_op_attrs attrs = sl_build_elementwise_attrs(&diff->tape->program->values[like]);
    return sl_autodiff_emit(diff, kind, &attrs, operands);
}

static sl_status start_gradient(sl_autodiff *diff, uint32_t forward_value,
                                const sl_contribution *contribution)
{
    const sl_value *value = &diff->forward->values[forward_value];
    sl_autodiff_value *it = &diff->values[forward_value];
    uint64_t elements = value->bytes / sl_type_bytes(value->type);
    it->gradient_is_partial = contribution->is_partial;
    return sl_autodiff_add(diff, contribution->type == value->type ? "d " : "d+ ", value->name,
                           elements * sl_type_bytes(contribution->type), contribution->type,
                           &it->gradient);
}

static sl_status check_rows(const sl_autodiff *diff, uint32_t forward_value)
{
    const sl_autodiff_value *it = &diff->values[forward_value];
    if (it->gradient != SL_NONE && it->gradient_rows != UINT64_MAX)
        SL_FAIL(SL_ERROR_INTERNAL, "the gradient of %s has its first %llu rows alone",
                diff->forward->values[forward_value].name, (unsigned long long)it->gradient_rows);
    return SL_OK;
}

/* Rounds a gradient that was summed in fp32 to the type of its forward value. */
static sl_status round_gradient(sl_autodiff *diff, uint32_t forward_value)
{
    const sl_value *value = &diff->forward->values[forward_value];
    sl_autodiff_value *it = &diff->values[forward_value];
    uint32_t rounded;
    if (it->gradient == SL_NONE || diff->tape->program->values[it->gradient].type == value->type)
        return SL_OK;
    SL_TRY(sl_autodiff_add(diff, "d ", value->name, value->bytes, value->type, &rounded));
    SL_TRY(emit_elementwise(diff, SL_OP_ROUND, rounded, (uint32_t[]){it->gradient, rounded}));
    it->gradient = rounded;
    return SL_OK;
}

/* Sets whether an op that contributes these rows adds to rows that have been written, all of them,
 * or writes the rows behind those. */
static sl_status extend_rows(sl_autodiff_value *it, const char *name,
                             const sl_contribution *contribution, uint32_t *out_adds)
{
    const bool is_next = contribution->first_row == it->gradient_rows;
    const bool adds =
        contribution->first_row < it->gradient_rows && contribution->end_row <= it->gradient_rows;
    if (!is_next && !adds)
        SL_FAIL(
            SL_ERROR_INTERNAL,
            "rows of the gradient of %s are left out or written twice: from row %llu on, behind "
            "the first %llu",
            name, (unsigned long long)contribution->first_row,
            (unsigned long long)it->gradient_rows);
    if (is_next)
        it->gradient_rows = contribution->end_row;
    *out_adds = adds;
    return SL_OK;
}

sl_status sl_gradient_contribute(sl_autodiff *diff, uint32_t forward_value,
                                 const sl_contribution *contribution, uint32_t *out_gradient,
                                 uint32_t *out_adds)
{
    const sl_value *value = &diff->forward->values[forward_value];
    sl_autodiff_value *it = &diff->values[forward_value];
    if (it->gradient == SL_NONE)
        SL_TRY(start_gradient(diff, forward_value, contribution));
    if (it->gradient_is_partial != contribution->is_partial)
        SL_FAIL(
            SL_ERROR_USAGE,
            "%s is read by a linear that is split over ranks and by other layers: put a norm, or "
            "sl_scale by 1, in front of that linear",
            value->name);
    if (contribution->type == value->type)
        SL_TRY(round_gradient(diff, forward_value));
    if (diff->tape->program->values[it->gradient].type != contribution->type)
        SL_FAIL(SL_ERROR_USAGE,
                "%s is read by the head and by layers before it: put a norm in "
                "front of the head",
                value->name);
    *out_gradient = it->gradient;
    return extend_rows(it, value->name, contribution, out_adds);
}

static sl_status add_all_rows(sl_autodiff *diff, uint32_t forward_value, uint32_t term,
                              bool is_partial)
{
    uint32_t gradient = SL_NONE, adds = 0;
    const sl_contribution all_rows = {0, UINT64_MAX, diff->tape->program->values[term].type,
                                      is_partial};
    SL_TRY(sl_gradient_contribute(diff, forward_value, &all_rows, &gradient, &adds));
    if (!adds)
        SL_TRY(emit_elementwise(diff, SL_OP_CLEAR, gradient, &gradient));
    return emit_elementwise(diff, SL_OP_ADD, term, (uint32_t[]){term, gradient});
}

sl_status sl_gradient_add(sl_autodiff *diff, uint32_t forward_value, uint32_t term, bool may_alias)
{
    if (may_alias && diff->values[forward_value].gradient == SL_NONE)
        return sl_gradient_set(diff, forward_value, term);
    return add_all_rows(diff, forward_value, term, false);
}

sl_status sl_gradient_add_terms(sl_autodiff *diff, uint32_t forward_value, uint32_t term)
{
    if (diff->values[forward_value].gradient != SL_NONE)
        return add_all_rows(diff, forward_value, term, true);
    SL_TRY(sl_gradient_set(diff, forward_value, term));
    diff->values[forward_value].gradient_is_partial = true;
    return SL_OK;
}

sl_status sl_gradient_set(sl_autodiff *diff, uint32_t forward_value, uint32_t gradient)
{
    sl_autodiff_value *it = &diff->values[forward_value];
    if (it->gradient != SL_NONE)
        SL_FAIL(SL_ERROR_INTERNAL, "%s has a gradient already",
                diff->forward->values[forward_value].name);
    it->gradient = gradient;
    it->gradient_rows = UINT64_MAX;
    it->gradient_is_partial = false;
    return SL_OK;
}

sl_status sl_gradient_take(sl_autodiff *diff, uint32_t forward_value, uint32_t *out_gradient)
{
    sl_autodiff_value *it = &diff->values[forward_value];
    SL_TRY(check_rows(diff, forward_value));
    SL_TRY(round_gradient(diff, forward_value));
    if (it->gradient != SL_NONE && it->gradient_is_partial) {
        SL_TRY(emit_elementwise(diff, SL_OP_ALL_REDUCE, it->gradient, &it->gradient));
        it->gradient_is_partial = false;
    }
    *out_gradient = it->gradient;
    return SL_OK;
}

sl_status sl_gradient_take_terms(sl_autodiff *diff, uint32_t forward_value, uint32_t *out_terms)
{
    sl_autodiff_value *it = &diff->values[forward_value];
    SL_TRY(check_rows(diff, forward_value));
    SL_TRY(round_gradient(diff, forward_value));
    if (it->gradient != SL_NONE && !it->gradient_is_partial)
        SL_FAIL(SL_ERROR_INTERNAL, "the gradient of %s is no sum over ranks",
                diff->forward->values[forward_value].name);
    *out_terms = it->gradient;
    return SL_OK;
}
