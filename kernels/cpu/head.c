/* The head's softmax over panels: statistics, loss, and the gradient of the logits. */
#include <math.h>

#include "ops.h"
#include "simd.h"
#include "tiles.h"

enum { TILE_ROWS = 16 };

/* Token ids of this panel without padding. */
static uint64_t count_valid(const sl_op_attrs *attrs)
{
    if (attrs->first_id >= attrs->valid_id_count)
        return 0;
    uint64_t left = attrs->valid_id_count - attrs->first_id;
    return left < attrs->id_count ? left : attrs->id_count;
}

static sl_head_rows describe_rows(const sl_op_attrs *attrs, void *logits, const int32_t *targets,
                                  float *stats)
{
    return (sl_head_rows){
        .logits = logits,
        .targets = targets + attrs->first_row,
        .stats = stats,
        .row_count = attrs->row_count,
        .column_count = attrs->id_count,
        .valid_count = count_valid(attrs),
        .first_id = attrs->first_id,
        .type = (sl_type)attrs->type,
    };
}

static sl_head_rows take_tile(const sl_head_rows *all, uint64_t tile_index)
{
    sl_head_rows rows = *all;
    const sl_span span = sl_tiles_span(rows.row_count, TILE_ROWS, tile_index);
    rows.logits = (char *)rows.logits + span.first * rows.column_count * sl_type_bytes(rows.type);
    rows.targets += span.first;
    rows.stats += span.first * 4;
    rows.row_count = span.count;
    return rows;
}

static void measure_head_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const sl_head_rows rows = take_tile(argument, tile_index);
    sl_simd_current()->head_stats(&rows);
}

sl_status sl_cpu_head_stats(const sl_kernel_call *call)
{
    sl_head_rows rows =
        describe_rows(call->attrs, call->operand[0], call->operand[1], call->operand[2]);
    rows.add = call->attrs->adds_output != 0;
    sl_workers_run(call->workers, sl_tiles_count(rows.row_count, TILE_ROWS), measure_head_tile,
                   &rows);
    return SL_OK;
}

/* In double and in row order: a few thousand logarithms are not worth a tile. */
sl_status sl_cpu_head_loss(const sl_kernel_call *call)
{
    const float *stats = call->operand[0];
    double *loss = call->operand[1], *counted = call->operand[2];
    double sum = call->attrs->adds_output ? *loss : 0.0;
    uint64_t masked = 0;
    for (uint64_t row = 0; row < call->attrs->row_count; row++, stats += 4) {
        if (stats[3] != 0.0f)
            masked++;
        else
            sum += log((double)stats[1]) + ((double)stats[0] - (double)stats[2]);
    }
    *loss = sum;
    if (counted)
        *counted =
            (call->attrs->adds_output ? *counted : 0.0) + (double)(call->attrs->row_count - masked);
    return SL_OK;
}

static void differentiate_head_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const sl_head_rows rows = take_tile(argument, tile_index);
    sl_simd_current()->head_backward(&rows);
}

sl_status sl_cpu_head_logits_backward(const sl_kernel_call *call)
{
    sl_head_rows rows =
        describe_rows(call->attrs, call->operand[2], call->operand[0], call->operand[1]);
    rows.scale = call->attrs->scale * call->scalars.loss_scale;
    sl_workers_run(call->workers, sl_tiles_count(rows.row_count, TILE_ROWS),
                   differentiate_head_tile, &rows);
    return SL_OK;
}
