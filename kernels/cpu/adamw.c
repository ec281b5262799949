/* ADAMW: one chunk, whole blocks, one pass. Reads and writes seven streams at once, so a tile is
 * long enough for the memory's prefetchers. */
#include "ops.h"
#include "tiles.h"
#include "vector.h"

enum { TILE_BLOCKS = 64 };

static void update_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    sl_adamw_blocks blocks = *(const sl_adamw_blocks *)argument;
    const sl_span span = sl_tiles_span(blocks.block_count, TILE_BLOCKS, tile_index);
    const uint64_t first = span.first * SL_BLOCK_ELEMENTS;
    blocks.gradient += first;
    blocks.moment1 += first;
    blocks.moment2 += first;
    blocks.param += first;
    blocks.decay_flags += span.first;
    blocks.block_count = span.count;
    sl_vector_current()->adamw(&blocks);
}

sl_status sl_op_adamw(const sl_kernel_call *call)
{
    const sl_step_control *control = call->operand[0];
    const sl_step_scalars *scalars = &call->scalars;
    if (call->attrs->element_count % SL_BLOCK_ELEMENTS != 0)
        SL_FAIL(SL_ERROR_INTERNAL, "an update of %llu elements is not whole blocks",
                (unsigned long long)call->attrs->element_count);
    if (control->skip)
        return SL_OK;
    sl_adamw_blocks blocks = {
        .gradient = call->operand[1],
        .moment1 = call->operand[2],
        .moment2 = call->operand[3],
        .param = call->operand[4],
        .decay_flags = call->block_flags + call->attrs->first_block,
        .block_count = call->attrs->element_count / SL_BLOCK_ELEMENTS,
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
    sl_workers_run(call->workers, sl_tiles_count(blocks.block_count, TILE_BLOCKS), update_tile,
                   &blocks);
    return SL_OK;
}
