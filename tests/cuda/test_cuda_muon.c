/* What could be wrong in ORTHOGONALISE on CUDA: a product of the wrong side, a factor of another
 * step, a matrix that begins in the wrong place or is read after it was replaced, a workspace too
 * small, an edge of a matrix that no pack divides, a norm that leaves out a tile.
 *
 * The cpu's kernel is the measure, for matrices of both orientations, of one row or column, and of
 * zeros. Products have their sums in another order. A step multiplies small singular values, and
 * the roundings beside them, by up to 3.4445, so five of them by up to 485. */
#include "cuda_case.h"
#include "kernels/cuda/ops.h"

enum { SMALL = 2 * CASE_EACH + 12 }; /* gradients of each type in turn */
#ifdef SL_TEST_GPU
enum { LONG = 12 };
#else
enum { LONG = 0 };
#endif

static void draw_matrix(cuda_case *c, int round)
{
    static const uint16_t sides[] = {33, 8, 65, 1, 17, 2, 3, 5, 15, 16, 24, 31, 32, 40, 48, 64, 96};
    enum { SIDES = sizeof sides / sizeof *sides };
    c->attrs.in = sides[round % SIDES];
    c->attrs.out = sides[(7 * round + 1 + round / SIDES) % SIDES];
    if (round >= SMALL) { /* rows of many sums of squares, of each launch another number */
        c->attrs.in = 1;
        c->attrs.out = 2048 * (uint64_t)(3 * (round - SMALL) + (int)c->type + 1) + 5;
    }
    c->attrs.scale = 0.5f + (float)(round % 37) / 64; /* of each launch another one */
    c->attrs.grad_type = (uint16_t)(round % 2 ? c->type : SL_TYPE_FP32);
    case_random(c, 0, c->attrs.grad_type, c->attrs.in * c->attrs.out, round % 5 ? 1e-2f : 0.0f);
}

/* Of an element of a matrix whose largest singular value is at most about 1.2. */
static double magnitude(const cuda_case *c, uint64_t element)
{
    (void)element;
    return (double)c->attrs.scale;
}

static void orthogonalise_when_run_is_near_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_ORTHOGONALISE,
                             .run = sl_cuda_orthogonalise,
                             .workspace_bytes = sl_cuda_orthogonalise_workspace_bytes,
                             .draw = draw_matrix,
                             .shapes = SMALL + LONG,
                             .orders = 1,
                             .bound = {[0] = {4000, 40, magnitude}}});
}

static void orthogonalise_when_misused_says_so(void **state)
{
    (void)state;
    sl_op_attrs attrs = {.in = 4};
    sl_kernel_call call = {.attrs = &attrs};
    assert_int_equal(sl_cuda_orthogonalise(&call), SL_ERROR_INTERNAL);
    attrs = (sl_op_attrs){.in = 4, .out = 4, .grad_type = SL_TYPE_BF16};
    assert_int_equal(sl_cuda_orthogonalise(&call), SL_ERROR_INTERNAL);
    assert_int_equal(
        sl_cuda_orthogonalise_workspace_bytes(SL_OP_ORTHOGONALISE, &(sl_op_attrs){.in = 4}, 1), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(orthogonalise_when_run_is_near_the_cpu),
    cmocka_unit_test(orthogonalise_when_misused_says_so),
};

CUDA_CASE_MAIN(tests)
