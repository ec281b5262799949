/* The head: logits, and the loss or what the mode asks of them.
 *
 * The head goes over ranges of rows, and for each range over the panels of the table. The softmax
 * of a row needs the largest logit and the sum over all panels; HEAD_STATS carries both from panel
 * to panel, and one exchange of [R, 4] numbers combines them over the ranks.
 *
 * Where ranks hold the table by columns, each rank could compute only C / N terms of every logit.
 * So the head gathers one panel at a time, and each rank computes some of the rows.
 */
#include <stdio.h>

#include "base/bits.h"
#include "base/status.h"
#include "build.h"

enum { ROW_UNIT = 128, STATS_A_ROW = 4 };

/* Pieces: ranges of rows times panels. Each one adds ops (see table.c). */
enum { HEAD_PIECES_MAX = 8192 };

static const uint64_t default_head_logits = 32ull << 20;

/* The sizes of a head op on rows [first_row, first_row + row_count) and one panel. */
static sl_op_attrs head_attrs(const sl_model *model, const sl_model_table *table,
                              uint64_t first_row, uint64_t row_count, uint32_t panel)
{
    sl_op_attrs attrs = {.batch = model->options->batch,
                         .seq = model->options->seq,
                         .in = table->width,
                         .first_row = first_row,
                         .row_count = row_count,
                         .first_id = sl_table_first_id(model, table, panel),
                         .id_count = sl_table_count_ids(table, panel),
                         .valid_id_count = table->ids};
    if (model->head_rows < model->rows) {
        attrs.batch = 1;
        attrs.seq = model->head_rows;
    }
    return attrs;
}

/* ---- logits ---- */

/* Gathers all columns of a panel. */
static sl_status gather_panel(sl_model *model, const sl_model_table *table, uint32_t panel,
                              uint32_t *out_all)
{
    sl_value value = {.kind = SL_VALUE_ACTIVATION, .type = model->program->type};
    const sl_op_attrs attrs = {
        .row_count = sl_table_count_ids(table, panel), .in = table->width, .out = table->columns};
    snprintf(value.name, sizeof value.name, "%.24s %u", table->name, panel);
    SL_TRY(sl_layer_add_rows(model, &value, attrs.row_count, table->width, out_all));
    return sl_layer_add_op(model, SL_OP_GATHER_COLUMNS, &attrs,
                           (uint32_t[]){table->panels[panel], *out_all}, 2);
}

/* Adds a value for the logits of one panel, "logits N", and the op that computes them. */
static sl_status emit_logits(sl_model *model, const sl_model_table *table, const sl_op_attrs *attrs,
                             uint32_t x, uint32_t panel, uint32_t *out_logits)
{
    const bool is_inner = sl_model_has_targets(model);
    sl_value value = {.kind = is_inner ? SL_VALUE_ACTIVATION : SL_VALUE_OUTPUT,
                      .index = is_inner ? 0 : panel,
                      .type = model->program->type};
    snprintf(value.name, sizeof value.name, "logits %u", panel);
    SL_TRY(sl_layer_add_rows(model, &value, attrs->row_count, attrs->id_count, out_logits));
    uint32_t all = table->panels[panel];
    if (model->by_columns)
        SL_TRY(gather_panel(model, table, panel, &all));
    return sl_layer_add_op(model, SL_OP_HEAD_LOGITS, attrs, (uint32_t[]){x, all, *out_logits}, 3);
}

/* ---- stats and loss ---- */

static sl_status emit_panel_stats(sl_model *model, const sl_model_table *table, sl_op_attrs attrs,
                                  uint32_t x, uint32_t panel, uint32_t stats)
{
    uint32_t logits;
    SL_TRY(emit_logits(model, table, &attrs, x, panel, &logits));
    attrs.adds_output = panel > 0;
    return sl_layer_add_op(model, SL_OP_HEAD_STATS, &attrs,
                           (uint32_t[]){logits, model->targets, stats}, 3);
}

/* Gathers the stats of all ranks' rows. */
static sl_status gather_stats(sl_model *model, uint64_t *row_count, uint32_t *stats)
{
    const sl_op_attrs attrs = {.batch = model->options->tp_size,
                               .seq = *row_count,
                               .in = STATS_A_ROW,
                               .row_count = *row_count,
                               .type = SL_TYPE_FP32};
    sl_value value = {.kind = SL_VALUE_ACTIVATION, .name = "softmax stats of all"};
    uint32_t all;
    *row_count *= model->options->tp_size;
    SL_TRY(sl_layer_add_rows(model, &value, *row_count, STATS_A_ROW, &all));
    SL_TRY(
        sl_program_add_op(model->program, SL_OP_GATHER_ROWS, &attrs, (uint32_t[]){*stats, all}, 2));
    *stats = all;
    return SL_OK;
}

static sl_status combine_stats(sl_model *model, uint64_t *row_count, uint32_t *stats)
{
    const sl_op_attrs attrs = {.row_count = *row_count};
    if (model->head_rows < model->rows)
        return gather_stats(model, row_count, stats);
    if (model->options->tp_size == 1 || model->by_columns)
        return SL_OK;
    return sl_layer_add_op(model, SL_OP_ALL_REDUCE_STATS, &attrs, stats, 1);
}

/* A range of rows that the head computes at once. */
typedef struct row_range {
    uint64_t first, count;
    uint32_t index; /* index of the row range, from 0 */
} row_range;

/* Outputs of the head; SL_NONE: absent. */
typedef struct loss_values {
    uint32_t loss, counted;
} loss_values;

/* Without a loss the stats are output number `index`. */
static sl_status emit_row_range(sl_model *model, const sl_model_table *table, row_range rows,
                                uint32_t x, loss_values to)
{
    const uint32_t loss = to.loss;
    sl_value value = {.kind = loss == SL_NONE ? SL_VALUE_OUTPUT : SL_VALUE_ACTIVATION,
                      .index = loss == SL_NONE ? rows.index : 0,
                      .name = "softmax stats"};
    uint64_t row_count = rows.count;
    uint32_t stats;
    SL_TRY(sl_layer_add_rows(model, &value, row_count, STATS_A_ROW, &stats));
    for (uint32_t panel = 0; panel < table->panel_count; panel++) {
        const sl_op_attrs attrs = head_attrs(model, table, rows.first, row_count, panel);
        SL_TRY(emit_panel_stats(model, table, attrs, x, panel, stats));
    }
    SL_TRY(combine_stats(model, &row_count, &stats));
    if (loss == SL_NONE)
        return SL_OK;
    const sl_op_attrs attrs = {.row_count = row_count, .adds_output = rows.first > 0};
    return sl_layer_add_op(model, SL_OP_HEAD_LOSS, &attrs, (uint32_t[]){stats, loss, to.counted},
                           3);
}

static uint64_t count_range_rows(const sl_model *model, const sl_model_table *table)
{
    const uint64_t wanted = model->options->head_logits;
    const uint64_t fitting = (wanted ? wanted : default_head_logits) / table->padded_ids;
    const uint64_t least =
        sl_bits_divide_up(model->head_rows, HEAD_PIECES_MAX / table->panel_count);
    uint64_t rows = fitting / ROW_UNIT * ROW_UNIT;
    if (rows < least)
        rows = sl_bits_round_up(least, ROW_UNIT);
    return sl_bits_min(rows, model->head_rows);
}

/* If ranks share the rows of the head: takes this rank's rows of x and of the targets. */
static sl_status slice_head_rows(sl_model *model, uint64_t width, uint32_t *x)
{
    sl_op_attrs attrs = {.batch = model->options->batch,
                         .seq = model->options->seq,
                         .in = width,
                         .row_count = model->head_rows};
    sl_value of_x = {.kind = SL_VALUE_ACTIVATION, .type = model->program->type, .name = "head x"};
    sl_value of_targets = {.kind = SL_VALUE_ACTIVATION, .name = "head targets"};
    uint32_t local_x, targets;
    if (model->head_rows == model->rows)
        return SL_OK;
    SL_TRY(sl_layer_add_rows(model, &of_x, model->head_rows, width, &local_x));
    SL_TRY(sl_layer_add_op(model, SL_OP_TAKE_ROWS, &attrs, (uint32_t[]){*x, local_x}, 2));
    SL_TRY(sl_layer_add_rows(model, &of_targets, model->head_rows, 1, &targets));
    attrs.in = 1; /* a target id is as large as a float */
    attrs.type = SL_TYPE_FP32;
    SL_TRY(sl_program_add_op(model->program, SL_OP_TAKE_ROWS, &attrs,
                             (uint32_t[]){model->targets, targets}, 2));
    *x = local_x;
    model->targets = targets;
    return SL_OK;
}

static sl_status add_loss_values(sl_model *model, loss_values *out_to)
{
    const sl_value loss = {
        .kind = SL_VALUE_OUTPUT, .index = SL_OUTPUT_LOSS, .bytes = sizeof(double), .name = "loss"};
    const sl_value counted = {.kind = SL_VALUE_OUTPUT,
                              .index = SL_OUTPUT_COUNTED,
                              .bytes = sizeof(double),
                              .name = "counted"};
    *out_to = (loss_values){SL_NONE, SL_NONE};
    if (model->options->mode == SL_MODEL_LOSS)
        SL_TRY(sl_program_add_value(model->program, &loss, &out_to->loss));
    return model->options->masks ? sl_program_add_value(model->program, &counted, &out_to->counted)
                                 : SL_OK;
}

/* The loss, or the stats of each token, over ranges of rows, each range a terminal segment. x: the
 * normalised hidden states. */
static sl_status emit_loss(sl_model *model, const sl_model_table *table, uint32_t x)
{
    const sl_segment segment = {.site = model->program->segment_count, .is_terminal = true};
    const uint64_t range_rows = count_range_rows(model, table);
    loss_values to;
    SL_TRY(add_loss_values(model, &to));
    SL_TRY(slice_head_rows(model, table->width, &x));
    for (row_range rows = {0}; rows.first < model->head_rows;
         rows.first += range_rows, rows.index++) {
        rows.count = sl_bits_min(model->head_rows - rows.first, range_rows);
        SL_TRY(sl_program_add_segment(model->program, &segment));
        SL_TRY(emit_row_range(model, table, rows, x, to));
    }
    return SL_OK;
}

/* Logits of the last token, one output per panel: of one row or, if rows are of one token, of all
 * rows. */
static sl_status emit_last_logits(sl_model *model, const sl_model_table *table, uint32_t x)
{
    const uint64_t row_count = model->options->seq == 1 ? model->options->batch : 1;
    const sl_segment segment = {.site = model->program->segment_count, .is_terminal = true};
    SL_TRY(sl_program_add_segment(model->program, &segment));
    for (uint32_t panel = 0; panel < table->panel_count; panel++) {
        const sl_op_attrs attrs =
            head_attrs(model, table, model->rows - row_count, row_count, panel);
        uint32_t logits;
        SL_TRY(emit_logits(model, table, &attrs, x, panel, &logits));
    }
    return SL_OK;
}

/* What both heads do first. */
static sl_status begin_head(sl_model *model, sl_tensor x, sl_model_tensor *from)
{
    SL_TRY(sl_layer_use_rows(model, x, from));
    if (model->region == SL_REGION_BLOCK || model->has_head)
        SL_FAIL(SL_ERROR_USAGE, "a head in a block, or a second one");
    if (from->local != from->features)
        SL_FAIL(SL_ERROR_USAGE,
                "the head: each rank has some features of %s: a linear by rows, or "
                "gathered, comes before it",
                from->name);
    model->has_head = true;
    return SL_OK;
}

static sl_status emit_head(sl_model *model, const sl_model_table *table, uint32_t x)
{
    return sl_model_has_targets(model) ? emit_loss(model, table, x)
                                       : emit_last_logits(model, table, x);
}

static sl_status make_tied(sl_model *model, const char *name, sl_tensor x)
{
    const sl_model_table *table = sl_table_find(model, name);
    sl_model_tensor from;
    SL_TRY(begin_head(model, x, &from));
    if (table == NULL || from.features != table->width)
        SL_FAIL(SL_ERROR_USAGE, "the head: no embedding is called %s and is %llu wide, as %s is",
                name, (unsigned long long)from.features, from.name);
    if (model->only_counts)
        model->tied_table = (uint32_t)(table - model->tables);
    if (!sl_model_is_here(model))
        return SL_OK;
    SL_TRY(sl_model_add_copy(model));
    return emit_head(model, table, from.value);
}

void sl_head(sl_model *model, const char *table, sl_tensor x)
{
    sl_model_note(model, model->status == SL_OK ? make_tied(model, table, x) : model->status);
}

static sl_status make_untied(sl_model *model, const sl_embedding *spec, sl_tensor x)
{
    sl_embedding sized = *spec;
    sl_model_tensor from;
    sl_model_table *table;
    SL_TRY(begin_head(model, x, &from));
    sized.width = from.features;
    SL_TRY(sl_table_open(model, &sized, &table));
    if (!sl_model_is_here(model))
        return SL_OK;
    SL_TRY(sl_table_add_panels(model, table));
    return emit_head(model, table, from.value);
}

void sl_head_untied(sl_model *model, const char *name, sl_tensor x, uint64_t ids, float deviation)
{
    const sl_embedding spec = {.name = name, .ids = ids, .deviation = deviation};
    sl_model_note(model, model->status == SL_OK ? make_untied(model, &spec, x) : model->status);
}
