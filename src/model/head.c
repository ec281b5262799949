/* The tied head: wte in panels, logits a panel at a time, and the loss over groups of rows.
 *
 * The vocabulary is split over the tensor-parallel ranks by rows of wte. The softmax needs the
 * largest logit and the sum over all panels; HEAD_STATS carries both from panel to panel, and one
 * exchange of [R, 4] numbers carries them over the ranks.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/status.h"
#include "emit.h"
#include "sluice/gpt2.h"

enum { ROW_UNIT = 128, STATS_A_ROW = 4 };

static const uint64_t logits_unless_told = 32ull << 20, gpu_logits_bytes = 256ull << 20;

uint64_t sl_gpt2_gpu_head_logits(sl_type type)
{
    return gpu_logits_bytes / sl_type_bytes(type);
}

uint64_t sl_head_panel_first_id(const sl_emit *emit, uint32_t panel)
{
    return emit->options->tp_rank * emit->local_vocab + panel * emit->panel_rows;
}

uint64_t sl_head_panel_ids(const sl_emit *emit, uint32_t panel)
{
    uint64_t rest = emit->local_vocab - panel * emit->panel_rows;
    return rest < emit->panel_rows ? rest : emit->panel_rows;
}

/* Ids of a panel that exist outside: those below the unpadded vocabulary. */
static uint64_t count_valid_ids(const sl_emit *emit, uint32_t panel)
{
    uint64_t first_id = sl_head_panel_first_id(emit, panel);
    uint64_t ids = sl_head_panel_ids(emit, panel);
    uint64_t valid = emit->shape->vocab > first_id ? emit->shape->vocab - first_id : 0;
    return valid < ids ? valid : ids;
}

static sl_status add_panel(sl_emit *emit, uint32_t panel)
{
    uint64_t ids = sl_head_panel_ids(emit, panel);
    sl_tensor_spec spec = {
        .name = "wte.weight",
        .dim_count = 2,
        .shape = {ids, emit->width},
        .first_row = sl_head_panel_first_id(emit, panel),
        .valid_rows = count_valid_ids(emit, panel),
        .whole_shape = {emit->shape->vocab, emit->width},
        .split = emit->options->tp_size > 1 ? SL_SPLIT_ROWS : SL_SPLIT_NONE,
        .decay = true,
        .init_deviation = 0.02f,
    };
    SL_TRY(sl_bits_multiply(ids, emit->width, spec.name, &spec.element_count));
    return sl_program_add_tensor(emit->program, &spec, &emit->panels[panel]);
}

sl_status sl_head_add_panels(sl_emit *emit)
{
    for (uint32_t p = 0; p < emit->panel_count; p++)
        SL_TRY(add_panel(emit, p));
    return SL_OK;
}

/* The sizes of a head op on rows [first_row, first_row + row_count) and one panel. */
static sl_op_attrs head_attrs(const sl_emit *emit, uint64_t first_row, uint64_t row_count,
                              uint32_t panel)
{
    sl_op_attrs attrs = {.batch = emit->options->batch,
                         .seq = emit->options->seq,
                         .in = emit->width,
                         .first_row = first_row,
                         .row_count = row_count,
                         .first_id = sl_head_panel_first_id(emit, panel),
                         .id_count = sl_head_panel_ids(emit, panel),
                         .valid_id_count = emit->shape->vocab};
    return attrs;
}

/* A value of `row_count` rows of `columns` numbers of its type. */
static sl_status add_rows(sl_emit *emit, sl_value *value, uint64_t row_count, uint64_t columns,
                          uint32_t *out_value)
{
    SL_TRY(sl_bits_multiply(row_count, columns, value->name, &value->bytes));
    SL_TRY(sl_bits_multiply(value->bytes, sl_type_bytes(value->type), value->name, &value->bytes));
    return sl_program_add_value(emit->program, value, out_value);
}

static sl_status emit_logits(sl_emit *emit, const sl_op_attrs *attrs, uint32_t x, uint32_t panel,
                             uint32_t logits)
{
    uint32_t operands[] = {x, emit->panels[panel], logits};
    return sl_emit_add_op(emit, SL_OP_HEAD_LOGITS, attrs, operands, 3);
}

static sl_status emit_panel_stats(sl_emit *emit, sl_op_attrs attrs, uint32_t x, uint32_t panel,
                                  uint32_t stats)
{
    sl_value value = {.kind = SL_VALUE_ACTIVATION, .type = emit->program->type};
    snprintf(value.name, sizeof value.name, "logits %u", panel);
    uint32_t logits;
    SL_TRY(add_rows(emit, &value, attrs.row_count, attrs.id_count, &logits));
    SL_TRY(emit_logits(emit, &attrs, x, panel, logits));
    attrs.adds_output = panel > 0;
    uint32_t operands[] = {logits, emit->targets, stats};
    return sl_emit_add_op(emit, SL_OP_HEAD_STATS, &attrs, operands, 3);
}

static sl_status combine_stats(sl_emit *emit, uint64_t row_count, uint32_t stats)
{
    if (emit->options->tp_size == 1)
        return SL_OK;
    sl_op_attrs attrs = {.element_count = STATS_A_ROW * row_count, .row_count = row_count};
    return sl_program_add_op(emit->program, SL_OP_ALL_REDUCE, &attrs, &stats, 1); /* fp32 */
}

static sl_status emit_group(sl_emit *emit, uint64_t first_row, uint64_t row_count, uint32_t x,
                            uint32_t loss)
{
    sl_value value = {.kind = SL_VALUE_ACTIVATION, .name = "softmax stats"};
    uint32_t stats;
    SL_TRY(add_rows(emit, &value, row_count, STATS_A_ROW, &stats));
    for (uint32_t p = 0; p < emit->panel_count; p++)
        SL_TRY(emit_panel_stats(emit, head_attrs(emit, first_row, row_count, p), x, p, stats));
    SL_TRY(combine_stats(emit, row_count, stats));
    sl_op_attrs attrs = {.row_count = row_count, .adds_output = first_row > 0};
    uint32_t operands[] = {stats, loss};
    return sl_emit_add_op(emit, SL_OP_HEAD_LOSS, &attrs, operands, 2);
}

static uint64_t count_group_rows(const sl_emit *emit)
{
    const uint64_t told = emit->options->head_logits;
    uint64_t fitting = (told ? told : logits_unless_told) / emit->padded_vocab;
    uint64_t rows = fitting / ROW_UNIT * ROW_UNIT;
    if (rows < ROW_UNIT)
        rows = ROW_UNIT;
    return rows < emit->rows ? rows : emit->rows;
}

sl_status sl_head_emit_loss(sl_emit *emit, uint32_t x)
{
    sl_value value = {
        .kind = SL_VALUE_OUTPUT, .index = SL_OUTPUT_LOSS, .bytes = sizeof(double), .name = "loss"};
    sl_segment segment = {.site = emit->program->segment_count, .is_terminal = true};
    uint32_t loss;
    SL_TRY(sl_program_add_value(emit->program, &value, &loss));
    uint64_t group_rows = count_group_rows(emit);
    for (uint64_t first_row = 0; first_row < emit->rows; first_row += group_rows) {
        uint64_t rest = emit->rows - first_row;
        SL_TRY(sl_program_add_segment(emit->program, &segment));
        SL_TRY(emit_group(emit, first_row, rest < group_rows ? rest : group_rows, x, loss));
    }
    return SL_OK;
}

sl_status sl_head_emit_last_logits(sl_emit *emit, uint32_t x)
{
    sl_segment segment = {.site = emit->program->segment_count, .is_terminal = true};
    SL_TRY(sl_program_add_segment(emit->program, &segment));
    for (uint32_t p = 0; p < emit->panel_count; p++) {
        sl_value value = {.kind = SL_VALUE_OUTPUT, .index = p, .type = emit->program->type};
        snprintf(value.name, sizeof value.name, "logits %u", p);
        sl_op_attrs attrs = head_attrs(emit, emit->rows - 1, 1, p);
        uint32_t logits;
        SL_TRY(add_rows(emit, &value, 1, attrs.id_count, &logits));
        SL_TRY(emit_logits(emit, &attrs, x, p, logits));
    }
    return SL_OK;
}
