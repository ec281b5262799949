/* Gathers the ops of training steps. */
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "ops.h"
#include "sluice/gpt2.h"

typedef struct step {
    const char *model;
    uint32_t batch, seq;
    bool is_quick; /* also where there is little time */
} step;

/* 256 and 1024 rows of GPT-2 124M, 256 of the widest GPT-2; few rows where time is short. */
static const step steps[] = {
    {"gpt2", 1, 64, true},
    {"gpt2", 4, 64, false},
    {"gpt2", 4, 256, false},
    {"gpt2-xl", 1, 256, false},
};

/* Elements of measured chunks: the whole chunk says no more, and takes longer. */
static const uint64_t chunk_elements[] = {UINT64_C(1) << 20, UINT64_C(8) << 20};

static bool is_sized_by_chunk(sl_op_kind kind)
{
    return kind == SL_OP_ADAMW || kind == SL_OP_BLOCK_NORM || kind == SL_OP_CLEAR ||
           kind == SL_OP_ROUND;
}

static sl_status add_case(sl_ops *ops, sl_op_kind kind, const sl_op_attrs *attrs)
{
    for (uint32_t i = 0; i < ops->count; i++)
        if (ops->cases[i].kind == kind && memcmp(&ops->cases[i].attrs, attrs, sizeof *attrs) == 0)
            return SL_OK;
    if (ops->count == ops->capacity) {
        uint32_t capacity = ops->capacity ? 2 * ops->capacity : 64;
        sl_ops_case *cases = realloc(ops->cases, capacity * sizeof *cases);
        if (!cases)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u ops to measure", capacity);
        ops->cases = cases;
        ops->capacity = capacity;
    }
    ops->cases[ops->count++] = (sl_ops_case){.kind = kind, .attrs = *attrs};
    return SL_OK;
}

static sl_status add_op(sl_ops *ops, const sl_op *op)
{
    sl_op_attrs attrs = op->attrs;
    attrs.first_row = attrs.first_id = attrs.first_block = 0;
    if (is_sized_by_chunk(op->kind) || sl_op_info_of(op->kind)->is_collective)
        return SL_OK;
    for (uint16_t type = 0; type < SL_TYPE_COUNT; type++) {
        attrs.type = type;
        SL_TRY(add_case(ops, op->kind, &attrs));
    }
    return SL_OK;
}

static sl_status add_chunks(sl_ops *ops, bool is_quick)
{
    static const sl_op_kind kinds[] = {SL_OP_ADAMW, SL_OP_BLOCK_NORM, SL_OP_CLEAR, SL_OP_ROUND};
    for (int i = 0; i < 4; i++)
        for (int size = 0; size < (is_quick ? 1 : 2); size++)
            for (uint16_t type = 0; type < SL_TYPE_COUNT; type++) {
                sl_op_attrs attrs = {.element_count = chunk_elements[size], .type = type};
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

static sl_status add_step(sl_ops *ops, const step *wanted)
{
    sl_gpt2_shape shape;
    SL_TRY(sl_gpt2_named(wanted->model, &shape));
    shape.layers = 1; /* the others are like it */
    sl_gpt2_emit_options options = {.batch = wanted->batch, .seq = wanted->seq, .tp_size = 1};
    sl_program *forward = NULL, *whole = NULL;
    SL_TRY(sl_gpt2_emit(&shape, &options, &forward));
    sl_status status = derive(forward, &whole);
    for (uint32_t i = 0; status == SL_OK && i < whole->op_count; i++)
        status = add_op(ops, &whole->ops[i]);
    sl_program_close(whole);
    sl_program_close(forward);
    return status;
}

/* The largest workspace of any case, and the flags of the largest chunk. */
static sl_status take_scratch(sl_ops *ops, uint32_t worker_count)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        const sl_ops_case *one = &ops->cases[i];
        uint64_t bytes = sl_kernels_cpu()->workspace_bytes(one->kind, &one->attrs, worker_count);
        if (bytes > ops->workspace_bytes)
            ops->workspace_bytes = bytes;
    }
    ops->workspace_bytes = (ops->workspace_bytes + 255) / 256 * 256 + 256;
    ops->workspace = aligned_alloc(256, ops->workspace_bytes);
    ops->block_flags = calloc(chunk_elements[1] / SL_BLOCK_ELEMENTS, 1);
    if (!ops->workspace || !ops->block_flags)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a workspace of %llu bytes",
                (unsigned long long)ops->workspace_bytes);
    memset(ops->workspace, 0, ops->workspace_bytes);
    return SL_OK;
}

sl_status sl_ops_open(bool is_quick, uint32_t worker_count, sl_ops *out_ops)
{
    sl_ops ops = {0};
    sl_status status = SL_OK;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && status == SL_OK; i++)
        if (steps[i].is_quick || !is_quick)
            status = add_step(&ops, &steps[i]);
    if (status == SL_OK)
        status = add_chunks(&ops, is_quick);
    if (status == SL_OK)
        status = take_scratch(&ops, worker_count);
    if (status != SL_OK) {
        sl_ops_close(&ops);
        return status;
    }
    *out_ops = ops;
    return SL_OK;
}

void sl_ops_close(sl_ops *ops)
{
    free(ops->cases);
    free(ops->workspace);
    free(ops->block_flags);
    *ops = (sl_ops){0};
}
