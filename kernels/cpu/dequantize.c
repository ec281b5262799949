/* DEQUANTIZE: tiles of whole blocks. */
#include "ops.h"
#include "simd.h"
#include "tiles.h"

enum { TILE_BLOCKS = 16 };

static void run_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const sl_kernel_call *call = argument;
    const sl_frozen frozen = (sl_frozen)call->attrs->frozen_type;
    const sl_type type = (sl_type)call->attrs->type;
    const uint64_t block_count = call->attrs->element_count / SL_BLOCK_ELEMENTS;
    const sl_span span = sl_tiles_span(block_count, TILE_BLOCKS, tile_index);
    const char *stored = call->operand[0];
    char *y = call->operand[1];
    sl_simd_current()->dequantize(stored + span.first * sl_frozen_block_bytes(frozen), frozen,
                                  y + span.first * SL_BLOCK_ELEMENTS * sl_type_bytes(type), type,
                                  span.count);
}

sl_status sl_cpu_dequantize(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    sl_kernel_call own = *call;
    if (attrs->frozen_type == SL_FROZEN_OWN || attrs->frozen_type >= SL_FROZEN_COUNT ||
        attrs->element_count % SL_BLOCK_ELEMENTS != 0)
        SL_FAIL(SL_ERROR_INTERNAL, "dequantize: type %u of %llu elements", attrs->frozen_type,
                (unsigned long long)attrs->element_count);
    sl_workers_run(call->workers,
                   sl_tiles_count(attrs->element_count / SL_BLOCK_ELEMENTS, TILE_BLOCKS), run_tile,
                   &own);
    return SL_OK;
}
