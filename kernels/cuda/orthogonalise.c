/* ORTHOGONALISE: the products of its Newton-Schulz steps (kernels/newton_schulz.h), as those of a
 * linear layer are computed, and the kernels of muon.cu between them. */
#include <stddef.h>

#include "library.h"
#include "newton_schulz.h"
#include "ops.h"

enum { PRODUCTS = 3 };

static void list_products(const sl_op_attrs *attrs, sl_product products[PRODUCTS])
{
    products[0] = sl_newton_schulz_gram(attrs);
    products[1] = sl_newton_schulz_square(attrs);
    products[2] = sl_newton_schulz_step(attrs);
}

static sl_newton_schulz_layout lay_out(const sl_op_attrs *attrs)
{
    sl_product products[PRODUCTS];
    uint64_t most = 0;
    list_products(attrs, products);
    for (int i = 0; i < PRODUCTS; i++)
        most = sl_bits_max(most, sl_blas_workspace_bytes(&products[i]));
    return sl_newton_schulz_lay_out(attrs, most);
}

uint64_t sl_cuda_orthogonalise_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                               uint32_t worker_count)
{
    (void)kind;
    (void)worker_count;
    return sl_newton_schulz_elements(attrs) == 0 ? 0 : lay_out(attrs).bytes;
}

/* The products take the end of the workspace. */
static sl_status run_product(const sl_kernel_call *call, const sl_newton_schulz_room *room,
                             sl_product product, const void *a, const void *b, void *c)
{
    sl_kernel_call part = *call;
    part.workspace = room->product;
    product.a = a;
    product.b = b;
    product.c = c;
    return sl_cuda_linear_product(&part, &product);
}

static sl_status run_step(const sl_kernel_call *call, const sl_newton_schulz_room *room,
                          uint32_t step)
{
    const sl_op_attrs *attrs = call->attrs;
    const void *from = room->matrix[step % 2];
    void *to = room->matrix[(step + 1) % 2];
    sl_product last = sl_newton_schulz_step(attrs);
    last.residual = from;
    SL_TRY(run_product(call, room, sl_newton_schulz_gram(attrs), from, from, room->gram));
    SL_TRY(run_product(call, room, sl_newton_schulz_square(attrs), room->gram, room->gram,
                       room->square));
    SL_TRY(sl_cuda_matrix_quadratic(call, step, room->gram, room->square));
    return sl_newton_schulz_is_wide(attrs) ? run_product(call, room, last, room->gram, from, to)
                                           : run_product(call, room, last, from, room->gram, to);
}

static sl_status check_matrix(const sl_op_attrs *attrs)
{
    if (sl_newton_schulz_elements(attrs) == 0)
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix of %llu x %llu elements",
                (unsigned long long)attrs->in, (unsigned long long)attrs->out);
    if (attrs->grad_type != SL_TYPE_FP32 && attrs->grad_type != attrs->type)
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix stored as type %u, computed as type %u",
                attrs->grad_type, attrs->type);
    return SL_OK;
}

sl_status sl_cuda_orthogonalise(const sl_kernel_call *call)
{
    SL_TRY(check_matrix(call->attrs));
    void *matrix = call->operand[0];
    const sl_newton_schulz_layout layout = lay_out(call->attrs);
    const sl_newton_schulz_room room =
        sl_newton_schulz_place(call->attrs, &layout, matrix, call->workspace);
    SL_TRY(sl_cuda_matrix_norm(call, matrix, room.sums));
    SL_TRY(sl_cuda_matrix_begin(call, matrix, room.sums, room.matrix[0]));
    for (uint32_t step = 0; step < SL_NEWTON_SCHULZ_STEPS; step++)
        SL_TRY(run_step(call, &room, step));
    return sl_cuda_matrix_end(call, room.matrix[SL_NEWTON_SCHULZ_STEPS % 2], matrix);
}

/* Where there are operands, each product finds its own in the workspace; else they only have to be
 * there. */
sl_status sl_cuda_orthogonalise_prepare(sl_blas *blas, sl_op_kind kind, const sl_kernel_call *call)
{
    static char somewhere[1];
    sl_product products[PRODUCTS];
    if (kind != SL_OP_ORTHOGONALISE)
        return SL_OK;
    SL_TRY(check_matrix(call->attrs));
    const sl_newton_schulz_layout layout = lay_out(call->attrs);
    const bool is_wide = sl_newton_schulz_is_wide(call->attrs), runs = call->workspace != NULL;
    sl_newton_schulz_room room = {{somewhere, somewhere}, somewhere, NULL, NULL, NULL};
    if (runs)
        room = sl_newton_schulz_place(call->attrs, &layout, call->operand[0], call->workspace);
    void *const results[PRODUCTS] = {room.gram, room.square, room.matrix[1]};
    sl_kernel_call part = *call;
    part.workspace = room.product;
    list_products(call->attrs, products);
    for (int i = 0; i < PRODUCTS; i++) {
        const bool begins_by_gram = i == 1 || (i == 2 && is_wide);
        const bool ends_by_gram = i == 1 || (i == 2 && !is_wide);
        products[i].a = begins_by_gram ? room.gram : room.matrix[0];
        products[i].b = ends_by_gram ? room.gram : room.matrix[0];
        products[i].c = results[i];
        products[i].residual = i == 2 ? room.matrix[0] : NULL;
        SL_TRY(sl_cuda_linear_prepare_product(blas, &part, &products[i]));
    }
    return SL_OK;
}
