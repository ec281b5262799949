/* Gathers the ops of training steps. */
#include <stdlib.h>
#include <string.h>

#include "ops_scratch.h"

typedef enum step_use { USE_QUICK = 1, USE_CPU = 2, USE_GPU = 4 } step_use;

typedef struct step {
    const char *model;
    uint32_t batch, seq;
    int use; /* a set of step_use: where there is little time, and on which device */
} step;

/* On the cpu 256 and 1024 rows of GPT-2 124M, 256 of the widest GPT-2; on a GPU as many as keep it
 * busy; few rows where time is short. */
static const step steps[] = {
    {"gpt2", 1, 64, USE_QUICK | USE_CPU}, {"gpt2", 4, 64, USE_CPU},   {"gpt2", 4, 256, USE_CPU},
    {"gpt2-xl", 1, 256, USE_CPU},         {"gpt2", 1, 1024, USE_GPU}, {"gpt2", 16, 1024, USE_GPU},
    {"gpt2-xl", 4, 1024, USE_GPU},
};

static const uint64_t square_max = 8192, square_min = 512; /* roofs of a GPU */
static const uint64_t square_small = 64;                   /* of a small shape */
static const step small_step = {NULL, 1, 8, 0};

/* Elements of measured chunks: the whole chunk says no more, and takes longer. */
static const uint64_t chunk_elements[] = {UINT64_C(1) << 20, UINT64_C(8) << 20};

static bool is_sized_by_chunk(sl_op_kind kind)
{
    return kind == SL_OP_ADAMW || kind == SL_OP_BLOCK_NORM || kind == SL_OP_CLEAR ||
           kind == SL_OP_ROUND;
}

static sl_status add_case(sl_ops *ops, sl_op_kind kind, const sl_op_attrs *attrs)
{
    const sl_ops_case added = {.kind = kind, .attrs = *attrs};
    for (uint32_t i = 0; i < ops->count; i++)
        if (ops->cases[i].kind == kind && memcmp(&ops->cases[i].attrs, attrs, sizeof *attrs) == 0)
            return SL_OK;
    if (!sl_ops_fits(ops->memory, &added) || attrs->batch * attrs->seq > SL_OPS_TOKENS ||
        attrs->row_count > SL_OPS_TOKENS)
        return SL_OK;
    if (ops->count == ops->capacity) {
        uint32_t capacity = ops->capacity ? 2 * ops->capacity : 64;
        sl_ops_case *cases = realloc(ops->cases, capacity * sizeof *cases);
        if (!cases)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u ops to measure", capacity);
        ops->cases = cases;
        ops->capacity = capacity;
    }
    ops->cases[ops->count++] = added;
    return SL_OK;
}

static sl_status add_op(sl_ops *ops, const sl_op *op)
{
    sl_op_attrs attrs = op->attrs;
    attrs.first_row = attrs.first_id = attrs.first_block = 0;
    if (is_sized_by_chunk(op->kind) || sl_op_info_of(op->kind)->is_collective ||
        sl_op_info_of(op->kind)->is_input)
        return SL_OK;
    if (op->kind == SL_OP_GELU) /* other models have it where GPT-2 passes it in a product */
        SL_TRY(add_case(ops, SL_OP_GELU_BACKWARD, &attrs));
    return add_case(ops, op->kind, &attrs);
}

/* `count` of the kinds, AdamW first. */
static sl_status add_chunks(sl_ops *ops, int count, const sl_ops_wish *wish)
{
    static const uint64_t small_elements = 2 * SL_BLOCK_ELEMENTS;
    const bool is_small = wish->small_shape != NULL;
    static const sl_op_kind kinds[] = {SL_OP_ADAMW, SL_OP_BLOCK_NORM, SL_OP_CLEAR, SL_OP_ROUND};
    for (int i = 0; i < count; i++)
        for (int size = 0; size < (wish->is_quick || is_small ? 1 : 2); size++)
            for (uint16_t type = 0; type < SL_TYPE_COUNT; type++) {
                sl_op_attrs attrs = {.element_count =
                                         is_small ? small_elements : chunk_elements[size],
                                     .type = type};
                if (kinds[i] == SL_OP_ROUND && type == SL_TYPE_FP32)
                    continue; /* nothing to round */
                SL_TRY(add_case(ops, kinds[i], &attrs));
                attrs.grad_type = type; /* half precision stores gradients so where it can */
                if (kinds[i] == SL_OP_ADAMW || kinds[i] == SL_OP_BLOCK_NORM)
                    SL_TRY(add_case(ops, kinds[i], &attrs));
            }
    return SL_OK;
}

static sl_status derive(const sl_program *forward, sl_program **out_program)
{
    sl_layout *layout = NULL;
    SL_TRY(sl_layout_build(forward, 0, &layout));
    sl_chunk_map map = sl_layout_chunk_map(layout);
    sl_step_options options = {.micro_batch_count = 1, .recompute = SL_RECOMPUTE_NONE};
    sl_status status = sl_program_derive_step(forward, &map, &options, out_program);
    sl_layout_close(layout);
    return status;
}

static sl_status add_step(sl_ops *ops, const step *wanted, const sl_gpt2_shape *small_shape,
                          sl_type type)
{
    sl_gpt2_shape shape;
    if (small_shape)
        shape = *small_shape;
    else
        SL_TRY(sl_gpt2_named(wanted->model, &shape));
    shape.layers = 1; /* the others are like it */
    sl_gpt2_emit_options options = {
        .batch = wanted->batch, .seq = wanted->seq, .tp_size = 1, .type = type, .grad_type = type};
    if (ops->rig->ops->kind == SL_DEVICE_CUDA)
        options.head_logits = sl_gpt2_gpu_head_logits(type);
    sl_program *forward = NULL, *whole = NULL;
    SL_TRY(sl_gpt2_emit(&shape, &options, &forward));
    sl_status status = derive(forward, &whole);
    for (uint32_t i = 0; status == SL_OK && i < whole->op_count; i++)
        status = add_op(ops, &whole->ops[i]);
    sl_program_close(whole);
    sl_program_close(forward);
    return status;
}

static sl_status add_steps(sl_ops *ops, const sl_ops_wish *wish)
{
    int use = wish->is_quick ? USE_QUICK : ops->rig->ops->kind == SL_DEVICE_CPU ? USE_CPU : USE_GPU;
    for (int type = 0; type < SL_TYPE_COUNT && wish->small_shape; type++)
        SL_TRY(add_step(ops, &small_step, wish->small_shape, (sl_type)type));
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && !wish->small_shape; i++)
        for (int type = 0; type < SL_TYPE_COUNT && steps[i].use & use; type++)
            SL_TRY(add_step(ops, &steps[i], NULL, (sl_type)type));
    return add_chunks(ops, 4, wish);
}

/* The largest square that there is room for. */
static sl_status add_square(sl_ops *ops, uint16_t type, const sl_ops_wish *wish)
{
    const uint32_t before = ops->count;
    const uint64_t least = wish->small_shape ? square_small : square_min;
    uint64_t edge = wish->is_quick || wish->small_shape ? least : square_max;
    for (; edge >= least && ops->count == before; edge /= 2) {
        sl_op_attrs attrs = {.row_count = edge, .in = edge, .out = edge, .type = type};
        SL_TRY(add_case(ops, SL_OP_LINEAR, &attrs));
    }
    return SL_OK;
}

static sl_status add_roofs(sl_ops *ops, const sl_ops_wish *wish)
{
    for (uint16_t type = 0; type < SL_TYPE_COUNT; type++)
        SL_TRY(add_square(ops, type, wish));
    sl_op_attrs least = {.element_count = SL_BLOCK_ELEMENTS};
    return add_case(ops, SL_OP_CLEAR, &least);
}

static sl_status add_list(sl_ops *ops, const sl_ops_wish *wish)
{
    if (wish->list == SL_OPS_ADAMW)
        return add_chunks(ops, 1, wish);
    return wish->list == SL_OPS_ROOFS ? add_roofs(ops, wish) : add_steps(ops, wish);
}

sl_status sl_ops_open(sl_memory *memory, const sl_ops_wish *wish, sl_ops *out_ops)
{
    sl_ops ops = {.memory = memory, .rig = memory->rig};
    sl_status status = add_list(&ops, wish);
    if (status == SL_OK)
        status = sl_ops_take_scratch(&ops, chunk_elements[1] / SL_BLOCK_ELEMENTS);
    if (status != SL_OK) {
        sl_ops_close(&ops);
        return status;
    }
    *out_ops = ops;
    return SL_OK;
}

void sl_ops_close(sl_ops *ops)
{
    sl_ops_give_scratch(ops);
    free(ops->cases);
    *ops = (sl_ops){0};
}
