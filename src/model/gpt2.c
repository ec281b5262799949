/* GPT-2 as a forward program: embedding, blocks, last norm, head; segments in that order.
 *
 * Embedding and head share wte, in panels, so that neither all of wte nor all logits are needed at
 * once. The head goes over ranges of rows, and for each range over the panels. The vocabulary is
 * split over the tensor-parallel ranks by rows of wte. The softmax of a row needs the largest logit
 * and the sum over all panels; HEAD_STATS carries both from panel to panel, and one exchange of [R,
 * 4] numbers combines them over the ranks.
 *
 * ColossalAI's layout (its benchmarks of GPT-2) splits wte by columns, so that each rank could
 * compute only C / N terms of every logit. So with that layout the head gathers one panel at a
 * time, and each rank computes some of the rows.
 */
#include "sluice/gpt2.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/status.h"
#include "layer.h"

enum { PANEL_UNIT = 128, ROW_UNIT = 128, STATS_A_ROW = 4 };

/* The head is computed in pieces: one range of rows times one panel. Each piece adds ops, and a
 * plan takes time and memory for each op. So the numbers of panels and of pieces are bounded,
 * however narrow the model is and however many rows there are. */
enum { PANELS_MAX = 256, HEAD_PIECES_MAX = 8192 };

static const uint64_t default_head_logits = 32ull << 20, gpu_logits_bytes = 256ull << 20;

static const float weight_deviation = 0.02f;

/* Limits of the counters that number dropout's random draws (kernels/dropout.h). */
static const uint32_t dropout_seq_max = 1u << 20, dropout_heads_max = 1u << 12;

uint64_t sl_gpt2_gpu_head_logits(sl_type type)
{
    return gpu_logits_bytes / sl_type_bytes(type);
}

/* ---- panels of wte ---- */

static uint64_t find_first_id(const sl_emit *emit, uint32_t panel)
{
    const uint64_t first = emit->by_columns ? 0 : emit->options->tp_rank * emit->local_vocab;
    return first + panel * emit->panel_rows;
}

static uint64_t count_ids(const sl_emit *emit, uint32_t panel)
{
    uint64_t rest = emit->local_vocab - panel * emit->panel_rows;
    return rest < emit->panel_rows ? rest : emit->panel_rows;
}

/* Ids of a panel below the unpadded vocabulary. */
static uint64_t count_valid_ids(const sl_emit *emit, uint32_t panel)
{
    uint64_t first_id = find_first_id(emit, panel), ids = count_ids(emit, panel);
    uint64_t valid = emit->shape->vocab > first_id ? emit->shape->vocab - first_id : 0;
    return valid < ids ? valid : ids;
}

/* Sets this rank's columns of a tensor with C columns. */
static void split_columns(const sl_emit *emit, sl_tensor_spec *spec)
{
    const uint64_t first = emit->options->tp_rank * emit->columns;
    spec->split = SL_SPLIT_COLUMNS;
    spec->shape[1] = emit->columns;
    spec->first_column = first < emit->width ? first : emit->width;
    spec->valid_columns = emit->width - spec->first_column;
    if (spec->valid_columns > emit->columns)
        spec->valid_columns = emit->columns;
}

static bool has_stages(const sl_emit *emit)
{
    return emit->options->stage_count > 1;
}

static bool is_first_stage(const sl_emit *emit)
{
    return !has_stages(emit) || emit->options->stage_index == 0;
}

static bool is_last_stage(const sl_emit *emit)
{
    return !has_stages(emit) || emit->options->stage_index + 1 == emit->options->stage_count;
}

static sl_status add_panel(sl_emit *emit, uint32_t panel)
{
    uint64_t ids = count_ids(emit, panel);
    sl_tensor_spec spec = {
        .name = "wte.weight",
        .dim_count = 2,
        .shape = {ids, emit->width},
        .first_row = find_first_id(emit, panel),
        .valid_rows = count_valid_ids(emit, panel),
        .whole_shape = {emit->shape->vocab, emit->width},
        .split = emit->options->tp_size > 1 ? SL_SPLIT_ROWS : SL_SPLIT_NONE,
        .decay = true,
        .init_deviation = weight_deviation,
        .is_tied = has_stages(emit),
    };
    if (emit->by_columns)
        split_columns(emit, &spec);
    SL_TRY(sl_bits_multiply(ids, spec.shape[1], spec.name, &spec.element_count));
    return sl_program_add_tensor(emit->program, &spec, &emit->panels[panel]);
}

/* ---- embedding ---- */

/* The sizes of an embedding op; a rank may hold only some columns. */
static sl_op_attrs embedding_attrs(const sl_emit *emit)
{
    sl_op_attrs attrs = {
        .batch = emit->options->batch, .seq = emit->options->seq, .in = emit->columns};
    return attrs;
}

/* Positions that differ from row to row are looked up like token ids, with wpe as the table. */
static sl_status embed_position(sl_emit *emit, uint32_t wpe, uint32_t x)
{
    sl_op_attrs attrs = embedding_attrs(emit);
    attrs.rank_index = sl_layer_splits_rows(emit) ? (uint16_t)emit->options->tp_rank : 0;
    if (emit->positions != SL_NONE) {
        const sl_op_attrs clear = {.element_count = emit->rows * emit->columns};
        const uint32_t looked_up[] = {emit->positions, wpe, x};
        attrs.id_count = emit->shape->context;
        SL_TRY(sl_layer_add_op(emit, SL_OP_CLEAR, &clear, &x, 1));
        return sl_layer_add_op(emit, SL_OP_EMBED_TOKENS, &attrs, looked_up, 3);
    }
    const uint32_t operands[] = {wpe, x};
    return sl_layer_add_op(emit, SL_OP_EMBED_POSITION, &attrs, operands, 2);
}

static sl_status embed_tokens(sl_emit *emit, uint32_t x)
{
    for (uint32_t p = 0; p < emit->panel_count; p++) {
        sl_op_attrs attrs = embedding_attrs(emit);
        attrs.first_id = find_first_id(emit, p);
        attrs.id_count = count_ids(emit, p);
        const uint32_t operands[] = {emit->tokens, emit->panels[p], x};
        SL_TRY(sl_layer_add_op(emit, SL_OP_EMBED_TOKENS, &attrs, operands, 3));
    }
    return SL_OK;
}

/* With sequence parallelism: each rank looks up its ids for all rows, and receives its rows of the
 * sum over the ranks. Only rank 0 adds positions. */
static sl_status embed_shared(sl_emit *emit, uint32_t wpe, uint32_t *out_x)
{
    uint32_t terms;
    SL_TRY(
        sl_layer_add_activation(emit, "embedding.terms", emit->program->type, emit->width, &terms));
    SL_TRY(embed_position(emit, wpe, terms));
    SL_TRY(embed_tokens(emit, terms));
    return sl_layer_scatter_rows(emit, "embedding", terms, out_x);
}

/* Each rank holds some ids: the sum over the ranks has all tokens; positions are added after it,
 * once. */
static sl_status embed_split(sl_emit *emit, uint32_t wpe, uint32_t x)
{
    const sl_op_attrs attrs = {.element_count = emit->rows * emit->width};
    uint32_t position;
    SL_TRY(sl_layer_add_activation(emit, "position", emit->program->type, emit->width, &position));
    SL_TRY(embed_position(emit, wpe, position));
    SL_TRY(sl_layer_add_op(emit, SL_OP_CLEAR, &attrs, &x, 1));
    SL_TRY(embed_tokens(emit, x));
    SL_TRY(sl_layer_add_op(emit, SL_OP_ALL_REDUCE, &attrs, &x, 1));
    const uint32_t operands[] = {position, x};
    return sl_layer_add_op(emit, SL_OP_ADD, &attrs, operands, 2);
}

/* Each rank holds some columns of the table: it looks up its columns of all rows, and gathers the
 * rest. */
static sl_status embed_columns(sl_emit *emit, uint32_t wpe, uint32_t *out_x)
{
    uint32_t columns;
    SL_TRY(sl_layer_add_activation(emit, "embedding.part", emit->program->type, emit->columns,
                                   &columns));
    SL_TRY(embed_position(emit, wpe, columns));
    SL_TRY(embed_tokens(emit, columns));
    return sl_layer_gather_columns(emit, "embedding", columns, emit->columns, out_x);
}

static sl_status embed(sl_emit *emit, uint32_t wpe, uint32_t *out_x)
{
    if (sl_layer_splits_rows(emit))
        return embed_shared(emit, wpe, out_x);
    if (emit->by_columns)
        return embed_columns(emit, wpe, out_x);
    SL_TRY(sl_layer_add_activation(emit, "embedding", emit->program->type, emit->width, out_x));
    if (emit->options->tp_size > 1)
        return embed_split(emit, wpe, *out_x);
    SL_TRY(embed_position(emit, wpe, *out_x));
    return embed_tokens(emit, *out_x);
}

static sl_status emit_embedding(sl_emit *emit)
{
    const sl_segment segment = {.site = emit->program->segment_count};
    const sl_layer_tensor wpe_tensor = {.name = "wpe.weight",
                                        .rows = emit->shape->context,
                                        .columns = emit->columns,
                                        .whole_columns = emit->width,
                                        .split =
                                            emit->by_columns ? SL_SPLIT_COLUMNS : SL_SPLIT_NONE,
                                        .split_whole = emit->width,
                                        .deviation = weight_deviation};
    uint32_t wpe;
    SL_TRY(sl_program_add_segment(emit->program, &segment));
    for (uint32_t p = 0; p < emit->panel_count; p++)
        SL_TRY(add_panel(emit, p)); /* before wpe, so that the short last panel shares wpe's
                                       chunk */
    SL_TRY(sl_layer_add_tensor(emit, &wpe_tensor, &wpe));
    SL_TRY(embed(emit, wpe, &emit->hidden));
    return sl_layer_dropout(emit, SL_LAYER_SITE_EMBEDDING, emit->hidden, false, &emit->hidden);
}

/* ---- a block: x + attention(norm(x)), then x + mlp(norm(x)) ---- */

/* 2 * layers branches are added to the residual stream, so each starts that much smaller (GPT-2,
 * Radford et al. 2019). */
static float residual_deviation(const sl_emit *emit)
{
    return (float)(0.02 / sqrt(2.0 * emit->shape->layers));
}

/* A linear layer adds the residual itself, unless dropout comes between. */
static uint32_t find_residual(const sl_emit *emit)
{
    return emit->options->dropout > 0 ? SL_NONE : emit->hidden;
}

static sl_status emit_attention_branch(sl_emit *emit)
{
    uint32_t x, qkv, mixed, added;
    SL_TRY(sl_layer_norm(emit, "ln_1", &x));
    const sl_linear_args enter = {.name = "attn.c_attn",
                                  .in = emit->width,
                                  .out = 3 * emit->width,
                                  .split = SL_SPLIT_QKV,
                                  .local_features = emit->local_width,
                                  .deviation = weight_deviation,
                                  .x = x,
                                  .residual = SL_NONE};
    SL_TRY(sl_layer_linear(emit, &enter, &qkv));
    SL_TRY(sl_layer_attention(emit, qkv, &mixed));
    if (emit->by_columns)
        SL_TRY(sl_layer_gather_columns(emit, "attn.all", mixed, emit->local_width, &mixed));
    const sl_linear_args leave = {.name = "attn.c_proj",
                                  .in = emit->width,
                                  .out = emit->width,
                                  .split = emit->by_columns ? SL_SPLIT_COLUMNS : SL_SPLIT_ROWS,
                                  .local_features =
                                      emit->by_columns ? emit->columns : emit->local_width,
                                  .is_gathered = emit->by_columns,
                                  .deviation = residual_deviation(emit),
                                  .x = mixed,
                                  .residual = find_residual(emit)};
    SL_TRY(sl_layer_linear(emit, &leave, &added));
    return sl_layer_dropout(emit, SL_LAYER_SITE_ATTENTION, added, true, &emit->hidden);
}

static sl_status emit_mlp_branch(sl_emit *emit)
{
    uint32_t x, wide, active, added;
    SL_TRY(sl_layer_norm(emit, "ln_2", &x));
    const sl_linear_args enter = {.name = "mlp.c_fc",
                                  .in = emit->width,
                                  .out = 4 * emit->width,
                                  .split = SL_SPLIT_COLUMNS,
                                  .local_features = emit->local_inner,
                                  .deviation = weight_deviation,
                                  .x = x,
                                  .residual = SL_NONE};
    SL_TRY(sl_layer_linear(emit, &enter, &wide));
    SL_TRY(sl_layer_gelu(emit, wide, emit->local_inner, &active));
    const sl_linear_args leave = {.name = "mlp.c_proj",
                                  .in = 4 * emit->width,
                                  .out = emit->width,
                                  .split = SL_SPLIT_ROWS,
                                  .local_features = emit->local_inner,
                                  .deviation = residual_deviation(emit),
                                  .x = active,
                                  .residual = find_residual(emit)};
    SL_TRY(sl_layer_linear(emit, &leave, &added));
    return sl_layer_dropout(emit, SL_LAYER_SITE_MLP, added, true, &emit->hidden);
}

static sl_status emit_block(sl_emit *emit)
{
    const sl_segment segment = {.site = emit->program->segment_count, .is_block = true};
    SL_TRY(sl_program_add_segment(emit->program, &segment));
    SL_TRY(emit_attention_branch(emit));
    return emit_mlp_branch(emit);
}

static sl_status emit_last_norm(sl_emit *emit, uint32_t *out_x)
{
    const sl_segment segment = {.site = emit->program->segment_count};
    SL_TRY(sl_program_add_segment(emit->program, &segment));
    return sl_layer_norm(emit, "ln_f", out_x);
}

/* ---- head ---- */

/* The sizes of a head op on rows [first_row, first_row + row_count) and one panel. */
static sl_op_attrs head_attrs(const sl_emit *emit, uint64_t first_row, uint64_t row_count,
                              uint32_t panel)
{
    sl_op_attrs attrs = {
        .batch = emit->options->batch, .seq = emit->options->seq, .in = emit->width};
    if (emit->head_rows < emit->rows) {
        attrs.batch = 1;
        attrs.seq = emit->head_rows;
    }
    attrs.first_row = first_row;
    attrs.row_count = row_count;
    attrs.first_id = find_first_id(emit, panel);
    attrs.id_count = count_ids(emit, panel);
    attrs.valid_id_count = emit->shape->vocab;
    return attrs;
}

static bool has_targets(const sl_emit *emit)
{
    return emit->options->mode != SL_GPT2_CACHED;
}

/* Gathers all columns of a panel. */
static sl_status gather_panel(sl_emit *emit, uint32_t panel, uint32_t *out_all)
{
    sl_value value = {.kind = SL_VALUE_ACTIVATION, .type = emit->program->type};
    const sl_op_attrs attrs = {
        .row_count = count_ids(emit, panel), .in = emit->width, .out = emit->columns};
    snprintf(value.name, sizeof value.name, "wte %u", panel);
    SL_TRY(sl_layer_add_rows(emit, &value, attrs.row_count, emit->width, out_all));
    const uint32_t operands[] = {emit->panels[panel], *out_all};
    return sl_layer_add_op(emit, SL_OP_GATHER_COLUMNS, &attrs, operands, 2);
}

/* Adds a value for the logits of one panel, "logits N", and the op that computes them. */
static sl_status emit_logits(sl_emit *emit, const sl_op_attrs *attrs, uint32_t x, uint32_t panel,
                             uint32_t *out_logits)
{
    const bool is_inner = has_targets(emit);
    sl_value value = {.kind = is_inner ? SL_VALUE_ACTIVATION : SL_VALUE_OUTPUT,
                      .index = is_inner ? 0 : panel,
                      .type = emit->program->type};
    snprintf(value.name, sizeof value.name, "logits %u", panel);
    SL_TRY(sl_layer_add_rows(emit, &value, attrs->row_count, attrs->id_count, out_logits));
    uint32_t all = emit->panels[panel];
    if (emit->by_columns)
        SL_TRY(gather_panel(emit, panel, &all));
    const uint32_t operands[] = {x, all, *out_logits};
    return sl_layer_add_op(emit, SL_OP_HEAD_LOGITS, attrs, operands, 3);
}

static sl_status emit_panel_stats(sl_emit *emit, sl_op_attrs attrs, uint32_t x, uint32_t panel,
                                  uint32_t stats)
{
    uint32_t logits;
    SL_TRY(emit_logits(emit, &attrs, x, panel, &logits));
    attrs.adds_output = panel > 0;
    const uint32_t operands[] = {logits, emit->targets, stats};
    return sl_layer_add_op(emit, SL_OP_HEAD_STATS, &attrs, operands, 3);
}

/* Gathers the stats of all ranks' rows. */
static sl_status gather_stats(sl_emit *emit, uint64_t *row_count, uint32_t *stats)
{
    const sl_op_attrs attrs = {.batch = emit->options->tp_size,
                               .seq = *row_count,
                               .in = STATS_A_ROW,
                               .row_count = *row_count,
                               .type = SL_TYPE_FP32};
    sl_value value = {.kind = SL_VALUE_ACTIVATION, .name = "softmax stats of all"};
    uint32_t all;
    *row_count *= emit->options->tp_size;
    SL_TRY(sl_layer_add_rows(emit, &value, *row_count, STATS_A_ROW, &all));
    SL_TRY(
        sl_program_add_op(emit->program, SL_OP_GATHER_ROWS, &attrs, (uint32_t[]){*stats, all}, 2));
    *stats = all;
    return SL_OK;
}

static sl_status combine_stats(sl_emit *emit, uint64_t *row_count, uint32_t *stats)
{
    if (emit->head_rows < emit->rows)
        return gather_stats(emit, row_count, stats);
    if (emit->options->tp_size == 1 || emit->by_columns)
        return SL_OK;
    const sl_op_attrs attrs = {.row_count = *row_count};
    return sl_layer_add_op(emit, SL_OP_ALL_REDUCE_STATS, &attrs, stats, 1);
}

/* A range of rows that the head computes at once. */
typedef struct row_range {
    uint64_t first, count;
    uint32_t index; /* index of the row range, from 0 */
} row_range;

/* If `loss` is SL_NONE, the stats are output number `index`. */
static sl_status emit_row_range(sl_emit *emit, row_range rows, uint32_t x, uint32_t loss)
{
    sl_value value = {.kind = loss == SL_NONE ? SL_VALUE_OUTPUT : SL_VALUE_ACTIVATION,
                      .index = loss == SL_NONE ? rows.index : 0,
                      .name = "softmax stats"};
    const uint64_t first_row = rows.first;
    uint64_t row_count = rows.count;
    uint32_t stats;
    SL_TRY(sl_layer_add_rows(emit, &value, row_count, STATS_A_ROW, &stats));
    for (uint32_t p = 0; p < emit->panel_count; p++)
        SL_TRY(emit_panel_stats(emit, head_attrs(emit, first_row, row_count, p), x, p, stats));
    SL_TRY(combine_stats(emit, &row_count, &stats));
    if (loss == SL_NONE)
        return SL_OK;
    const sl_op_attrs attrs = {.row_count = row_count, .adds_output = first_row > 0};
    const uint32_t operands[] = {stats, loss};
    return sl_layer_add_op(emit, SL_OP_HEAD_LOSS, &attrs, operands, 2);
}

static uint64_t count_range_rows(const sl_emit *emit)
{
    const uint64_t wanted = emit->options->head_logits;
    uint64_t fitting = (wanted ? wanted : default_head_logits) / emit->padded_vocab;
    uint64_t least = sl_bits_divide_up(emit->head_rows, HEAD_PIECES_MAX / emit->panel_count);
    uint64_t rows = fitting / ROW_UNIT * ROW_UNIT;
    if (rows < least)
        rows = sl_bits_round_up(least, ROW_UNIT);
    return rows < emit->head_rows ? rows : emit->head_rows;
}

/* If ranks share the rows of the head: takes this rank's rows of x and of the targets. */
static sl_status slice_head_rows(sl_emit *emit, uint32_t *x)
{
    sl_op_attrs attrs = {.batch = emit->options->batch,
                         .seq = emit->options->seq,
                         .in = emit->width,
                         .row_count = emit->head_rows};
    sl_value of_x = {.kind = SL_VALUE_ACTIVATION, .type = emit->program->type, .name = "head x"};
    sl_value of_targets = {.kind = SL_VALUE_ACTIVATION, .name = "head targets"};
    uint32_t local_x, targets;
    if (emit->head_rows == emit->rows)
        return SL_OK;
    SL_TRY(sl_layer_add_rows(emit, &of_x, emit->head_rows, emit->width, &local_x));
    SL_TRY(sl_layer_add_op(emit, SL_OP_TAKE_ROWS, &attrs, (uint32_t[]){*x, local_x}, 2));
    SL_TRY(sl_layer_add_rows(emit, &of_targets, emit->head_rows, 1, &targets));
    attrs.in = 1; /* a target id is as large as a float */
    attrs.type = SL_TYPE_FP32;
    SL_TRY(sl_program_add_op(emit->program, SL_OP_TAKE_ROWS, &attrs,
                             (uint32_t[]){emit->targets, targets}, 2));
    *x = local_x;
    emit->targets = targets;
    return SL_OK;
}

/* The loss, or the stats of each token, over ranges of rows, each range a terminal segment. x: the
 * normalised hidden states. */
static sl_status emit_loss(sl_emit *emit, uint32_t x)
{
    const sl_value value = {
        .kind = SL_VALUE_OUTPUT, .index = SL_OUTPUT_LOSS, .bytes = sizeof(double), .name = "loss"};
    const sl_segment segment = {.site = emit->program->segment_count, .is_terminal = true};
    const uint64_t range_rows = count_range_rows(emit);
    uint32_t loss = SL_NONE;
    if (emit->options->mode == SL_GPT2_LOSS)
        SL_TRY(sl_program_add_value(emit->program, &value, &loss));
    SL_TRY(slice_head_rows(emit, &x));
    for (row_range rows = {0}; rows.first < emit->head_rows;
         rows.first += range_rows, rows.index++) {
        const uint64_t rest = emit->head_rows - rows.first;
        rows.count = rest < range_rows ? rest : range_rows;
        SL_TRY(sl_program_add_segment(emit->program, &segment));
        SL_TRY(emit_row_range(emit, rows, x, loss));
    }
    return SL_OK;
}

/* Logits of the last token, one output per panel: of one row or, if rows are of one token, of all
 * rows. */
static sl_status emit_last_logits(sl_emit *emit, uint32_t x)
{
    const uint64_t row_count = emit->options->seq == 1 ? emit->options->batch : 1;
    const sl_segment segment = {.site = emit->program->segment_count, .is_terminal = true};
    SL_TRY(sl_program_add_segment(emit->program, &segment));
    for (uint32_t p = 0; p < emit->panel_count; p++) {
        const sl_op_attrs attrs = head_attrs(emit, emit->rows - row_count, row_count, p);
        uint32_t logits;
        SL_TRY(emit_logits(emit, &attrs, x, p, &logits));
    }
    return SL_OK;
}

/* ---- stages of a pipeline ---- */

/* The sizes of an exchange with `stage`: this rank's hidden states. */
static sl_op_attrs exchange_attrs(const sl_emit *emit, uint32_t stage)
{
    return (sl_op_attrs){
        .row_count = emit->hidden_rows, .in = emit->width, .rank_index = (uint16_t)stage};
}

/* A segment of its own, so that the received hidden states are saved as the input of a block is. */
static sl_status receive_hidden(sl_emit *emit)
{
    const sl_segment segment = {.site = emit->program->segment_count};
    const sl_op_attrs attrs = exchange_attrs(emit, emit->options->stage_index - 1);
    SL_TRY(sl_program_add_segment(emit->program, &segment));
    SL_TRY(sl_layer_add_hidden(emit, "taken", emit->program->type, emit->width, &emit->hidden));
    return sl_layer_add_op(emit, SL_OP_EXCHANGE, &attrs, (uint32_t[]){SL_NONE, emit->hidden}, 2);
}

/* Sends the hidden states, and sets the loss to 0: only the last stage has one, but every stage has
 * the output. */
static sl_status send_hidden(sl_emit *emit)
{
    const sl_segment segment = {.site = emit->program->segment_count};
    const sl_value none = {
        .kind = SL_VALUE_OUTPUT, .index = SL_OUTPUT_LOSS, .bytes = sizeof(double), .name = "loss"};
    const sl_op_attrs attrs = exchange_attrs(emit, emit->options->stage_index + 1);
    const sl_op_attrs of_loss = {.element_count = sizeof(double) / sizeof(float),
                                 .type = SL_TYPE_FP32};
    uint32_t loss;
    SL_TRY(sl_program_add_segment(emit->program, &segment));
    SL_TRY(sl_layer_add_op(emit, SL_OP_EXCHANGE, &attrs, (uint32_t[]){emit->hidden, SL_NONE}, 2));
    SL_TRY(sl_program_add_value(emit->program, &none, &loss));
    return sl_program_add_op(emit->program, SL_OP_CLEAR, &of_loss, &loss, 1);
}

/* ---- the model ---- */

static sl_status check_dropout(const sl_gpt2_shape *shape, const sl_gpt2_emit_options *options)
{
    if (!(options->dropout >= 0 && options->dropout < 1))
        SL_FAIL(SL_ERROR_USAGE, "a dropout of %g: it must be at least 0 and less than 1",
                (double)options->dropout);
    if (options->dropout > 0 &&
        (options->seq > dropout_seq_max || shape->heads > dropout_heads_max))
        SL_FAIL(SL_ERROR_USAGE,
                "dropout takes rows of at most %u tokens and %u heads, not %u and %u",
                dropout_seq_max, dropout_heads_max, options->seq, shape->heads);
    return SL_OK;
}

static sl_status check_rows(const sl_gpt2_emit_options *options)
{
    const uint64_t rows = (uint64_t)options->batch * options->seq;
    if (!options->sequence_parallel)
        return SL_OK;
    if (options->mode == SL_GPT2_CACHED || options->split_layout == SL_SPLIT_COLOSSAL)
        SL_FAIL(SL_ERROR_USAGE,
                "neither decoding nor a model that is split by columns shares rows among ranks");
    if (rows % options->tp_size != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "%u rows of %u tokens cannot be shared among %u tensor-parallel ranks",
                options->batch, options->seq, options->tp_size);
    if (options->dropout > 0 && options->batch % options->tp_size != 0)
        SL_FAIL(SL_ERROR_USAGE, "with dropout %u tensor-parallel ranks share whole rows, not %u",
                options->tp_size, options->batch);
    return SL_OK;
}

static sl_status check_stages(const sl_gpt2_shape *shape, const sl_gpt2_emit_options *options)
{
    if (options->stage_count <= 1)
        return SL_OK;
    if (options->stage_count > shape->layers)
        SL_FAIL(SL_ERROR_USAGE, "%u layers are too few for %u stages (--pp): each takes one",
                shape->layers, options->stage_count);
    if (options->layer_end > 0 &&
        (options->layer_end > shape->layers || options->first_layer >= options->layer_end))
        SL_FAIL(SL_ERROR_INTERNAL, "layers %u to %u of %u on a stage", options->first_layer,
                options->layer_end, shape->layers);
    if (options->stage_index >= options->stage_count || options->mode != SL_GPT2_LOSS)
        SL_FAIL(SL_ERROR_INTERNAL, "stage %u of %u, mode %d", options->stage_index,
                options->stage_count, (int)options->mode);
    return SL_OK;
}

static sl_status check_options(const sl_gpt2_shape *shape, const sl_gpt2_emit_options *options)
{
    SL_TRY(sl_gpt2_check(shape, options->tp_size));
    if (options->tp_rank >= options->tp_size)
        SL_FAIL(SL_ERROR_USAGE, "rank %u of %u tensor-parallel ranks", options->tp_rank,
                options->tp_size);
    if (options->batch == 0 || options->seq == 0 || options->seq > shape->context)
        SL_FAIL(SL_ERROR_USAGE, "%u rows of %u tokens: rows must be positive, tokens 1 to %u",
                options->batch, options->seq, shape->context);
    if (options->type >= SL_TYPE_COUNT ||
        (options->grad_type != SL_TYPE_FP32 && options->grad_type != options->type))
        SL_FAIL(SL_ERROR_USAGE, "gradients of type %d with compute type %d: fp32 or the same",
                (int)options->grad_type, (int)options->type);
    const uint32_t cache_rows = options->cache_rows ? options->cache_rows : shape->context;
    if (cache_rows < options->seq || cache_rows > shape->context)
        SL_FAIL(SL_ERROR_USAGE, "a cache of %u tokens: %u to %u", cache_rows, options->seq,
                shape->context);
    if (options->mode == SL_GPT2_CACHED && (options->by_document || options->dropout != 0))
        SL_FAIL(SL_ERROR_USAGE, "decoding neither drops anything nor has documents to keep apart");
    SL_TRY(check_rows(options));
    SL_TRY(check_stages(shape, options));
    return check_dropout(shape, options);
}

/* Features of each rank: a multiple of VECTOR if `features` is not a multiple of tp_size. */
static uint64_t find_share(uint64_t features, uint32_t tp_size)
{
    enum { VECTOR = 8 };
    const uint64_t share = sl_bits_divide_up(features, tp_size);
    return features % tp_size == 0 ? share : sl_bits_round_up(share, VECTOR);
}

static void fill_columns(sl_emit *emit)
{
    const uint32_t tp_size = emit->options->tp_size;
    const bool shares_head = emit->rows % tp_size == 0 && emit->options->mode == SL_GPT2_LOSS;
    emit->by_columns = emit->options->split_layout == SL_SPLIT_COLOSSAL && tp_size > 1;
    emit->columns = emit->by_columns ? find_share(emit->width, tp_size) : emit->width;
    emit->head_rows = emit->by_columns && shares_head ? emit->rows / tp_size : emit->rows;
    emit->padded_vocab = sl_gpt2_padded_vocab(emit->shape, emit->by_columns ? 1 : tp_size);
    emit->local_vocab = emit->padded_vocab;
    if (!emit->by_columns && tp_size > 1)
        emit->local_vocab /= tp_size;
}

/* A panel of 4 * width / tp_size rows of wte is as large as the largest matrix of a block. A narrow
 * model with a large vocabulary has taller panels, so that there are at most PANELS_MAX. */
static uint64_t find_panel_rows(const sl_emit *emit)
{
    uint64_t least = sl_bits_divide_up(emit->local_vocab, PANELS_MAX);
    return sl_bits_round_up(emit->local_inner > least ? emit->local_inner : least, PANEL_UNIT);
}

static void fill_sizes(sl_emit *emit)
{
    const sl_gpt2_shape *shape = emit->shape;
    uint32_t tp_size = emit->options->tp_size;
    emit->rows = (uint64_t)emit->options->batch * emit->options->seq;
    emit->hidden_rows = emit->options->sequence_parallel ? emit->rows / tp_size : emit->rows;
    emit->width = shape->width;
    emit->local_heads = sl_bits_divide_up(shape->heads, tp_size);
    emit->local_width = emit->local_heads * (shape->width / shape->heads);
    emit->local_inner = find_share(4 * emit->width, tp_size);
    fill_columns(emit);
    emit->panel_rows = find_panel_rows(emit);
    emit->panel_count = (uint32_t)sl_bits_divide_up(emit->local_vocab, emit->panel_rows);
}

static sl_status add_input(sl_emit *emit, uint32_t slot, const char *name, uint32_t *out_value)
{
    sl_value value = {.kind = SL_VALUE_INPUT, .index = slot};
    snprintf(value.name, sizeof value.name, "%s", name);
    SL_TRY(sl_bits_multiply(emit->rows, sizeof(int32_t), name, &value.bytes));
    return sl_program_add_value(emit->program, &value, out_value);
}

static void find_layers(const sl_emit *emit, uint32_t *out_first, uint32_t *out_end)
{
    const sl_gpt2_emit_options *options = emit->options;
    *out_first = options->first_layer;
    *out_end = options->layer_end;
    if (options->layer_end == 0)
        sl_gpt2_stage_layers(emit->shape, options->stage_count, options->stage_index, out_first,
                             out_end);
}

static sl_status emit_model(sl_emit *emit)
{
    uint32_t x, first, end;
    find_layers(emit, &first, &end);
    if (is_first_stage(emit))
        SL_TRY(add_input(emit, SL_INPUT_TOKENS, "tokens", &emit->tokens));
    if (has_targets(emit) && is_last_stage(emit))
        SL_TRY(add_input(emit, SL_INPUT_TARGETS, "targets", &emit->targets));
    if (emit->options->by_document)
        SL_TRY(add_input(emit, SL_INPUT_POSITIONS, "positions", &emit->positions));
    SL_TRY(is_first_stage(emit) ? emit_embedding(emit) : receive_hidden(emit));
    for (uint32_t layer = first; layer < end; layer++) {
        emit->layer = layer;
        SL_TRY(emit_block(emit));
    }
    emit->layer = SL_NONE;
    if (!is_last_stage(emit))
        return send_hidden(emit);
    for (uint32_t p = 0; has_stages(emit) && p < emit->panel_count; p++)
        SL_TRY(add_panel(emit, p));
    SL_TRY(emit_last_norm(emit, &x));
    return has_targets(emit) ? emit_loss(emit, x) : emit_last_logits(emit, x);
}

sl_status sl_gpt2_emit(const sl_gpt2_shape *shape, const sl_gpt2_emit_options *options,
                       sl_program **out_forward)
{
    SL_TRY(check_options(shape, options));
    sl_emit emit = {.shape = shape, .options = options, .positions = SL_NONE, .layer = SL_NONE};
    fill_sizes(&emit);
    emit.panels = malloc(emit.panel_count * sizeof *emit.panels);
    if (emit.panels == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u panels", emit.panel_count);
    sl_status status;
    SL_TRY_GOTO(status, sl_program_open(&emit.program), free_panels);
    emit.program->type = options->type;
    emit.program->grad_type = options->grad_type;
    emit.program->tp_size = options->tp_size;
    emit.program->tp_rank = options->tp_rank;
    emit.program->stage_count = options->stage_count;
    emit.program->stage_index = options->stage_index;
    emit.program->head_ranks = emit.head_rows < emit.rows ? options->tp_size : 1;
    SL_TRY_GOTO(status, emit_model(&emit), close_program);
    *out_forward = emit.program;
    free(emit.panels);
    return SL_OK;
close_program:
    sl_program_close(emit.program);
free_panels:
    free(emit.panels);
    return status;
}
