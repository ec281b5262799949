/* How the product ops of the CUDA backend are called under test: with a library or without, in
 * several orders of threads. */
#ifndef SL_TESTS_CUDA_PRODUCT_RUN_H
#define SL_TESTS_CUDA_PRODUCT_RUN_H

#include "kernels/cuda/library.h"
#include "kernels/cuda/ops.h"
#include "kernels/product_case.h"
#include "shim_control.h"

enum { SHAPES = 30, REAL_SHAPES = 6, ORDERS = 3 };

static sl_kernel_library library;

static const struct {
    sl_shim_order order;
    uint64_t seed;
} orders[ORDERS] = {{SL_SHIM_IN_ORDER, 0}, {SL_SHIM_REVERSED, 0}, {SL_SHIM_SHUFFLED, 5}};

static sl_kernel kernel_of(sl_op_kind kind)
{
    switch ((int)kind) {
    case SL_OP_LINEAR:
        return sl_cuda_linear;
    case SL_OP_LINEAR_INPUT_BACKWARD:
        return sl_cuda_linear_input_backward;
    case SL_OP_LINEAR_WEIGHT_BACKWARD:
        return sl_cuda_linear_weight_backward;
    case SL_OP_HEAD_LOGITS:
        return sl_cuda_head_logits;
    case SL_OP_HEAD_INPUT_BACKWARD:
        return sl_cuda_head_input_backward;
    default:
        return sl_cuda_head_weight_backward;
    }
}

/* What the kernel returns. */
static sl_status call_kernel(kernel_case *c)
{
    sl_kernel_call call = {.attrs = &c->attrs, .scalars = c->scalars, .library = &library};
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        if (c->bytes[i] > 0)
            memcpy(c->result[i], c->input[i], c->bytes[i]);
        call.operand[i] = c->result[i];
    }
    const uint64_t bytes = sl_cuda_linear_workspace_bytes(c->kind, &c->attrs, 0);
    assert_true(bytes > 0 && (bytes % 256 == 0 || c->attrs.in == 0) && bytes <= 32 << 20);
    call.workspace = allocate(bytes);
    memset(call.workspace, 0xff, bytes);
    const sl_status status = kernel_of(c->kind)(&call);
    free(call.workspace);
    return status;
}

/* As a plan does, but that nothing is launched. */
static sl_status prepare_op(sl_op_kind kind, const sl_op_attrs *attrs)
{
    const sl_kernel_call shapes = {.attrs = attrs};
    return sl_library_prepare(&library, kind, &shapes);
}

static void run_prepared(kernel_case *c)
{
    if (prepare_op(c->kind, &c->attrs) != SL_OK)
        fail_msg("op %d is not prepared: %s", (int)c->kind, sl_status_message());
    if (call_kernel(c) != SL_OK)
        fail_msg("op %d failed: %s", (int)c->kind, sl_status_message());
}

/* In several orders of threads; all results must be the same bits. */
static MAYBE_UNUSED void run_in_orders(kernel_case *c)
{
    void *first[SL_OPERAND_MAX] = {0};
    for (int order = 0; order < ORDERS; order++) {
        sl_shim_choose_order(orders[order].order, orders[order].seed);
        run_prepared(c);
        for (int i = 0; i < SL_OPERAND_MAX; i++) {
            if (c->bytes[i] == 0)
                continue;
            if (order == 0) {
                first[i] = allocate(c->bytes[i]);
                memcpy(first[i], c->result[i], c->bytes[i]);
            }
            assert_memory_equal(first[i], c->result[i], c->bytes[i]);
        }
    }
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        free(first[i]);
}

static void for_every_product(int shapes, bool integers, product_runner run)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int type = 0; type < SL_TYPE_COUNT; type++)
            for (int round = 0; round < shapes; round++)
                check_product(kinds[kind], (sl_type)type, draw_shape((uint64_t)round),
                              (uint64_t)round, integers, run);
}

/* ---- tests of both ways ---- */

static void products_when_a_factor_is_not_finite_spread_it(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        check_not_finite((sl_type)type, run_prepared);
}

/* y written where the residual stood. */
static void product_when_c_is_the_residual_adds_to_it(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        const product_shape s = {21, 34, 48};
        product_case p = open_product(SL_OP_LINEAR, (sl_type)type, s, 5, true);
        run_prepared(&p.c);
        kernel_case in_place = p.c;
        in_place.input[4] = p.c.input[3];
        in_place.result[4] = in_place.result[3] = allocate(p.c.bytes[4]);
        run_prepared(&in_place);
        assert_memory_equal(in_place.result[4], p.c.result[4], p.c.bytes[4]);
        free(in_place.result[4]);
        case_close(&p.c);
    }
}

#endif
