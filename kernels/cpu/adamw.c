/* ADAMW: one chunk, whole blocks, one pass. Reads and writes seven or eight streams at once, so a
 * tile is long enough for the memory's prefetchers. */
#include <stddef.h>

#include "ops.h"
#include "simd.h"
#include "tiles.h"

enum { TILE_BLOCKS = 64 };

/* Moves the start of every array to its element `first`. */
static void skip_elements(sl_adamw_blocks *blocks, uint64_t first)
{
    blocks->gradient = sl_simd_gradient_from(&blocks->gradient, first);
    blocks->moment1 += first;
    blocks->moment2 += first;
    blocks->weights += first;
    if (blocks->param != NULL)
        blocks->param = (char *)blocks->param + first * sl_type_bytes(blocks->gradient.type);
}

static void update_adamw_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    sl_adamw_blocks blocks = *(const sl_adamw_blocks *)argument;
    const sl_span span = sl_tiles_span(blocks.block_count, TILE_BLOCKS, tile_index);
    skip_elements(&blocks, span.first * SL_BLOCK_ELEMENTS);
    blocks.decay_flags += span.first;
    blocks.block_count = span.count;
    sl_simd_current()->adamw(&blocks);
}

/* A skipped step still writes the parameters from their master copy. */
static void round_params_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    sl_adamw_blocks blocks = *(const sl_adamw_blocks *)argument;
    const sl_span span = sl_tiles_span(blocks.block_count, TILE_BLOCKS, tile_index);
    skip_elements(&blocks, span.first * SL_BLOCK_ELEMENTS);
    sl_simd_current()->round(blocks.weights, blocks.param, blocks.gradient.type,
                             span.count * SL_BLOCK_ELEMENTS);
}

static sl_status check_update(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    if (attrs->element_count % SL_BLOCK_ELEMENTS != 0)
        SL_FAIL(SL_ERROR_INTERNAL, "an update of %llu elements is not whole blocks",
                (unsigned long long)attrs->element_count);
    if (attrs->grad_type != SL_TYPE_FP32 && attrs->grad_type != attrs->type)
        SL_FAIL(SL_ERROR_INTERNAL, "a gradient stored as type %u, computed as type %u",
                attrs->grad_type, attrs->type);
    if (attrs->type != SL_TYPE_FP32 && call->operand[5] == NULL)
        SL_FAIL(SL_ERROR_INTERNAL, "an update in half precision without a master copy");
    return SL_OK;
}

sl_status sl_cpu_adamw(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    const sl_step_control *control = call->operand[0];
    const sl_step_scalars *scalars = &call->scalars;
    SL_TRY(check_update(call));
    const bool half = attrs->type != SL_TYPE_FP32;
    sl_adamw_blocks blocks = {
        .gradient = {call->operand[1], (sl_type)attrs->grad_type, (sl_type)attrs->type},
        .moment1 = call->operand[2],
        .moment2 = call->operand[3],
        .weights = call->operand[half ? 5 : 4],
        .param = half ? call->operand[4] : NULL,
        .decay_flags = call->block_flags + attrs->first_block,
        .block_count = attrs->element_count / SL_BLOCK_ELEMENTS,
        .clip_scale = control->clip_scale,
        .decay = 1.0f - scalars->learning_rate * scalars->weight_decay,
        .beta1 = scalars->beta1,
        .beta2 = scalars->beta2,
        .rest1 = 1.0f - scalars->beta1,
        .rest2 = 1.0f - scalars->beta2,
        .step = scalars->learning_rate / scalars->bias1,
        .inverse_root = 1.0f / scalars->bias2_root,
        .epsilon = scalars->epsilon,
    };
    const uint64_t tiles = sl_tiles_count(blocks.block_count, TILE_BLOCKS);
    if (!control->skip)
        sl_workers_run(call->workers, tiles, update_adamw_tile, &blocks);
    else if (half)
        sl_workers_run(call->workers, tiles, round_params_tile, &blocks);
    return SL_OK;
}
