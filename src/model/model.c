/* Builds a model: calls the build function, with the layers of other stages left out.
 *
 * Regions: what comes before the blocks (on the first stage), the blocks (each on one stage), what
 * comes behind them (on the last stage). A layer that is on another stage returns a handle without
 * a value. If a layer of this stage reads such a handle, the tensor is received; if a layer of
 * another stage reads a tensor of this stage, the tensor is sent. Only one tensor may cross each
 * border. The blocks are counted by a first call of the build function, with every layer left out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/bits.h"
#include "base/status.h"
#include "build.h"

/* ---- errors and handles ---- */

void sl_model_note(sl_model *model, sl_status status)
{
    if (status == SL_OK || model->status != SL_OK)
        return;
    model->status = status;
    snprintf(model->message, sizeof model->message, "%s", sl_status_message());
}

static sl_status append_tensor(sl_model *model, const sl_model_tensor *tensor, sl_tensor *out)
{
    SL_TRY(SL_ARRAY_GROW(model->tensors, model->tensor_count, model->tensor_capacity,
                         "the tensors of a model"));
    out->index = model->tensor_count;
    model->tensors[model->tensor_count] = *tensor;
    model->tensors[model->tensor_count++].gathered = SL_NONE;
    return SL_OK;
}

sl_tensor sl_model_return(sl_model *model, sl_status status, const sl_model_tensor *made)
{
    sl_tensor handle = {0};
    if (status == SL_OK && model->status == SL_OK)
        status = append_tensor(model, made, &handle);
    sl_model_note(model, status);
    return handle;
}

/* ---- stages ---- */

bool sl_model_is_here(const sl_model *model)
{
    const sl_model_options *options = model->options;
    if (model->only_counts || model->status != SL_OK)
        return false;
    if (!sl_model_has_stages(model))
        return true;
    if (model->region == SL_REGION_BLOCK)
        return model->block >= model->first_block && model->block < model->block_end;
    return options->stage_index ==
           (model->region == SL_REGION_FIRST ? 0 : options->stage_count - 1);
}

/* The sizes of an exchange with `stage`: this rank's hidden states. */
static sl_op_attrs exchange_attrs(const sl_model *model, const sl_model_tensor *tensor,
                                  uint32_t stage)
{
    return (sl_op_attrs){
        .row_count = model->hidden_rows, .in = tensor->features, .rank_index = (uint16_t)stage};
}

/* A segment of its own, so that the received tensor is saved as the input of a block is. */
static sl_status receive(sl_model *model, sl_model_tensor *tensor)
{
    const sl_segment segment = {.site = model->program->segment_count};
    const sl_op_attrs attrs = exchange_attrs(model, tensor, model->options->stage_index - 1);
    sl_value value = {.kind = SL_VALUE_ACTIVATION, .type = model->program->type, .name = "taken"};
    SL_TRY(sl_program_add_segment(model->program, &segment));
    SL_TRY(sl_layer_add_rows(model, &value, model->hidden_rows, tensor->features, &tensor->value));
    return sl_layer_add_op(model, SL_OP_EXCHANGE, &attrs, (uint32_t[]){SL_NONE, tensor->value}, 2);
}

/* Adds an output of one double that is 0. */
static sl_status clear_output(sl_model *model, uint32_t index, const char *name)
{
    sl_value none = {.kind = SL_VALUE_OUTPUT, .index = index, .bytes = sizeof(double)};
    const sl_op_attrs attrs = {.element_count = sizeof(double) / sizeof(float),
                               .type = SL_TYPE_FP32};
    uint32_t value;
    snprintf(none.name, sizeof none.name, "%s", name);
    SL_TRY(sl_program_add_value(model->program, &none, &value));
    return sl_program_add_op(model->program, SL_OP_CLEAR, &attrs, &value, 1);
}

/* Sends the tensor, and sets the loss to 0: only the last stage has one, but every stage has the
 * output. Stats and logits are outputs of the last stage alone. */
static sl_status send(sl_model *model, const sl_model_tensor *tensor)
{
    const sl_segment segment = {.site = model->program->segment_count};
    const sl_op_attrs attrs = exchange_attrs(model, tensor, model->options->stage_index + 1);
    SL_TRY(sl_program_add_segment(model->program, &segment));
    SL_TRY(sl_layer_add_op(model, SL_OP_EXCHANGE, &attrs, (uint32_t[]){tensor->value, SL_NONE}, 2));
    if (model->options->mode != SL_MODEL_LOSS)
        return SL_OK;
    SL_TRY(clear_output(model, SL_OUTPUT_LOSS, "loss"));
    return model->options->masks ? clear_output(model, SL_OUTPUT_COUNTED, "counted") : SL_OK;
}

/* Notes that a tensor crosses a border: the first one of this kind, or the same again. */
static sl_status note_crossing(sl_model *model, uint32_t *crossing, uint32_t index)
{
    if (*crossing != SL_NONE && *crossing != index)
        SL_FAIL(SL_ERROR_USAGE,
                "%s and %s cross the border between two pipeline stages: only one tensor may, so "
                "what a block gives must go through its sum with the residual",
                model->tensors[*crossing].name, model->tensors[index].name);
    *crossing = index;
    return SL_OK;
}

static sl_status cross(sl_model *model, uint32_t index)
{
    sl_model_tensor *tensor = &model->tensors[index];
    const bool is_here = sl_model_is_here(model), is_new = tensor->value == SL_NONE;
    if (is_here && is_new) {
        SL_TRY(note_crossing(model, &model->received, index));
        return receive(model, tensor);
    }
    if (is_here || is_new || model->sent == index)
        return SL_OK;
    SL_TRY(note_crossing(model, &model->sent, index));
    return send(model, tensor);
}

sl_status sl_model_use_heads(sl_model *model, sl_tensor handle, sl_model_tensor *out_tensor)
{
    if (model->status != SL_OK)
        return model->status;
    if (handle.index >= model->tensor_count)
        SL_FAIL(SL_ERROR_USAGE, "a layer reads tensor %u of a model that has %u", handle.index,
                model->tensor_count);
    sl_model_tensor *tensor = &model->tensors[handle.index];
    if (tensor->is_taken)
        SL_FAIL(SL_ERROR_USAGE, "%s is read behind the sl_drop_add that took its memory",
                tensor->name);
    SL_TRY(cross(model, handle.index));
    *out_tensor = *tensor;
    tensor->is_read = true;
    return SL_OK;
}

sl_status sl_model_use(sl_model *model, sl_tensor handle, sl_model_tensor *out_tensor)
{
    SL_TRY(sl_model_use_heads(model, handle, out_tensor));
    if (out_tensor->is_shared)
        SL_FAIL(SL_ERROR_USAGE,
                "the heads of %s are fewer than the %u tensor-parallel ranks, which share them: "
                "sl_rms_norm of heads, sl_rotary and sl_attend read such a tensor, other layers do "
                "not",
                out_tensor->name, model->options->tp_size);
    return SL_OK;
}

/* ---- regions ---- */

sl_status sl_model_add_copy(sl_model *model)
{
    if (model->region != SL_REGION_LAST || model->has_copies || !sl_model_has_stages(model) ||
        model->tied_table == SL_NONE)
        return SL_OK;
    model->has_copies = true;
    return sl_table_add_panels(model, &model->tables[model->tied_table]);
}

sl_status sl_model_open_segment(sl_model *model)
{
    const sl_segment segment = {.site = model->program->segment_count,
                                .is_block = model->region == SL_REGION_BLOCK};
    if (model->has_segment)
        return SL_OK;
    model->has_segment = true;
    for (uint32_t t = 0; t < model->tensor_count; t++)
        model->tensors[t].gathered = SL_NONE; /* kept for its segment alone */
    SL_TRY(sl_model_add_copy(model));
    return sl_program_add_segment(model->program, &segment);
}

static sl_status enter_block(sl_model *model, const char *name, uint32_t index)
{
    if (model->region == SL_REGION_BLOCK || index != model->block_count)
        SL_FAIL(SL_ERROR_USAGE, "block %s.%u begins behind %u blocks%s", name, index,
                model->block_count, model->region == SL_REGION_BLOCK ? ", in another one" : "");
    if (model->region == SL_REGION_LAST && model->has_segment)
        SL_FAIL(SL_ERROR_USAGE, "there are layers between blocks %u and %u", index - 1, index);
    model->region = SL_REGION_BLOCK;
    model->has_segment = false;
    model->block = index;
    model->block_count++;
    if (snprintf(model->prefix, sizeof model->prefix, "%s.%u.", name, index) >=
        (int)sizeof model->prefix / 2)
        SL_FAIL(SL_ERROR_USAGE, "the name of block %s.%u is too long", name, index);
    return SL_OK;
}

void sl_block(sl_model *model, const char *name, uint32_t index)
{
    if (model->status == SL_OK)
        sl_model_note(model, enter_block(model, name, index));
}

void sl_block_end(sl_model *model)
{
    model->region = SL_REGION_LAST;
    model->has_segment = false;
    model->prefix[0] = '\0';
}

/* ---- sizes ---- */

uint64_t sl_model_share(const sl_model *model, uint64_t features)
{
    enum { VECTOR = 8 };
    const uint32_t tp_size = model->options->tp_size;
    const uint64_t share = sl_bits_divide_up(features, tp_size);
    return features % tp_size == 0 ? share : sl_bits_round_up(share, VECTOR);
}

uint32_t sl_model_number_site(sl_model *model)
{
    return model->site_count++;
}

uint32_t sl_model_number_slot(sl_model *model)
{
    return model->slot_count++;
}

const sl_model_options *sl_model_options_of(const sl_model *model)
{
    return model->options;
}

/* ---- one call of the build function ---- */

/* What nothing reads has no part in the loss, so its parameters would have no gradients. */
static sl_status check_all_read(const sl_model *model)
{
    for (uint32_t t = 0; t < model->tensor_count; t++)
        if (!model->tensors[t].is_read)
            SL_FAIL(SL_ERROR_USAGE, "%s: no layer reads what this layer makes",
                    model->tensors[t].name);
    return SL_OK;
}

static sl_status call_build(sl_model *model, sl_build build, const void *user)
{
    sl_status_guard guard;
    sl_status_guard_begin(&guard);
    const sl_status status =
        sl_status_guard_end(&guard, build(model, user), "the build function of the model");
    if (model->status != SL_OK)
        SL_FAIL(model->status, "%s", model->message);
    SL_TRY(status);
    if (model->region == SL_REGION_BLOCK)
        SL_FAIL(SL_ERROR_USAGE, "block %u does not end", model->block);
    if (!model->has_head)
        SL_FAIL(SL_ERROR_USAGE, "a model without a head");
    return check_all_read(model);
}

static void free_model(sl_model *model)
{
    for (uint32_t t = 0; t < model->table_count; t++)
        free(model->tables[t].panels);
    free(model->tensors);
}

static sl_model start_model(const sl_model_options *options)
{
    sl_model model = {.options = options,
                      .rows = (uint64_t)options->batch * options->seq,
                      .by_columns =
                          options->split_layout == SL_SPLIT_COLOSSAL && options->tp_size > 1,
                      .cache_rows = options->cache_rows,
                      .tied_table = SL_NONE,
                      .received = SL_NONE,
                      .sent = SL_NONE,
                      .tokens = SL_NONE,
                      .targets = SL_NONE,
                      .positions = SL_NONE};
    const bool shares_head =
        model.by_columns && model.rows % options->tp_size == 0 && options->mode == SL_MODEL_LOSS;
    model.hidden_rows = options->sequence_parallel ? model.rows / options->tp_size : model.rows;
    model.head_rows = shares_head ? model.rows / options->tp_size : model.rows;
    return model;
}

/* What stages need to know before the first layer: how many blocks there are, and which table the
 * head shares. */
static sl_status look_ahead(sl_model *model, sl_build build, const void *user, uint32_t *out_blocks)
{
    sl_model counted = start_model(model->options);
    counted.only_counts = true;
    const sl_status status = call_build(&counted, build, user);
    *out_blocks = counted.block_count;
    model->tied_table = counted.tied_table;
    free_model(&counted);
    return status;
}

static sl_status find_blocks(sl_model *model, sl_build build, const void *user)
{
    const sl_model_options *options = model->options;
    uint32_t count = 0;
    model->first_block = options->first_layer;
    model->block_end = options->layer_end;
    if (!sl_model_has_stages(model))
        return SL_OK;
    SL_TRY(look_ahead(model, build, user, &count));
    if (options->layer_end > 0)
        return SL_OK;
    if (count < options->stage_count)
        SL_FAIL(SL_ERROR_USAGE, "%u layers are too few for %u stages (--pp): each takes one", count,
                options->stage_count);
    model->first_block = (uint32_t)((uint64_t)count * options->stage_index / options->stage_count);
    model->block_end =
        (uint32_t)((uint64_t)count * (options->stage_index + 1ull) / options->stage_count);
    return SL_OK;
}

static sl_status add_input(sl_model *model, uint32_t slot, const char *name, uint32_t *out_value)
{
    sl_value value = {.kind = SL_VALUE_INPUT, .index = slot};
    snprintf(value.name, sizeof value.name, "%s", name);
    SL_TRY(sl_bits_multiply(model->rows, sizeof(int32_t), name, &value.bytes));
    return sl_program_add_value(model->program, &value, out_value);
}

static sl_status add_inputs(sl_model *model)
{
    const sl_model_options *options = model->options;
    const bool is_last =
        !sl_model_has_stages(model) || options->stage_index + 1 == options->stage_count;
    if (!sl_model_has_stages(model) || options->stage_index == 0)
        SL_TRY(add_input(model, SL_INPUT_TOKENS, "tokens", &model->tokens));
    if (sl_model_has_targets(model) && is_last)
        SL_TRY(add_input(model, SL_INPUT_TARGETS, "targets", &model->targets));
    if (options->by_document)
        SL_TRY(add_input(model, SL_INPUT_POSITIONS, "positions", &model->positions));
    return SL_OK;
}

/* ---- the request ---- */

static sl_status check_ranks(const sl_model_options *options)
{
    const uint64_t rows = (uint64_t)options->batch * options->seq;
    if (options->tp_rank >= options->tp_size)
        SL_FAIL(SL_ERROR_USAGE, "rank %u of %u tensor-parallel ranks", options->tp_rank,
                options->tp_size);
    if (!options->sequence_parallel)
        return SL_OK;
    if (options->mode == SL_MODEL_CACHED || options->split_layout == SL_SPLIT_COLOSSAL)
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

static sl_status check_options(const sl_model_options *options)
{
    if (options->batch == 0 || options->seq == 0)
        SL_FAIL(SL_ERROR_USAGE, "%u rows of %u tokens: both must be positive", options->batch,
                options->seq);
    if (options->type >= SL_TYPE_COUNT ||
        (options->grad_type != SL_TYPE_FP32 && options->grad_type != options->type))
        SL_FAIL(SL_ERROR_USAGE, "gradients of type %d with compute type %d: fp32 or the same",
                (int)options->grad_type, (int)options->type);
    if (!(options->dropout >= 0 && options->dropout < 1))
        SL_FAIL(SL_ERROR_USAGE, "a dropout of %g: it must be at least 0 and less than 1",
                (double)options->dropout);
    if (options->mode == SL_MODEL_CACHED && (options->by_document || options->dropout != 0))
        SL_FAIL(SL_ERROR_USAGE, "decoding neither drops anything nor has documents to keep apart");
    if (options->masks && options->mode != SL_MODEL_LOSS)
        SL_FAIL(SL_ERROR_INTERNAL, "masks without a loss");
    if (options->stage_count > 1 && options->stage_index >= options->stage_count)
        SL_FAIL(SL_ERROR_INTERNAL, "stage %u of %u", options->stage_index, options->stage_count);
    return check_ranks(options);
}

static sl_status open_program(sl_model *model)
{
    const sl_model_options *options = model->options;
    SL_TRY(sl_program_open(&model->program));
    model->program->type = options->type;
    model->program->grad_type = options->grad_type;
    model->program->tp_size = options->tp_size;
    model->program->tp_rank = options->tp_rank;
    model->program->stage_count = options->stage_count;
    model->program->stage_index = options->stage_index;
    model->program->mask_rows = options->masks ? model->rows : 0;
    model->program->head_ranks = model->head_rows < model->rows ? options->tp_size : 1;
    return SL_OK;
}

static sl_status build_program(sl_model *model, sl_build build, const void *user)
{
    SL_TRY(find_blocks(model, build, user));
    SL_TRY(open_program(model));
    SL_TRY(add_inputs(model));
    return call_build(model, build, user);
}

/* Sizes whose type is narrower than the builder's. */
static sl_status note_sizes(const sl_model *model, sl_model_shape *shape)
{
    const sl_model_table *table = &model->tables[0];
    uint64_t ids = table->ids; /* those that may be a token and a target */
    for (uint32_t t = 1; t < model->table_count; t++)
        ids = sl_bits_min(ids, model->tables[t].ids);
    if (table->ids > INT32_MAX || table->width > INT32_MAX || model->cache_rows > INT32_MAX)
        SL_FAIL(SL_ERROR_USAGE, "%s: %llu ids, %llu wide, %llu positions: at most %d", table->name,
                (unsigned long long)table->ids, (unsigned long long)table->width,
                (unsigned long long)model->cache_rows, INT32_MAX);
    shape->layers = model->block_count;
    shape->vocab = (uint32_t)ids;
    shape->width = (uint32_t)table->width;
    shape->context = (uint32_t)model->cache_rows;
    return SL_OK;
}

sl_status sl_model_emit_sizes(sl_build build, const void *user, const sl_model_options *options,
                              sl_model_shape *shape, sl_program **out_forward)
{
    SL_TRY(check_options(options));
    sl_model model = start_model(options);
    sl_status status = build_program(&model, build, user);
    if (status == SL_OK && shape)
        status = note_sizes(&model, shape);
    free_model(&model);
    if (status == SL_OK)
        *out_forward = model.program;
    else
        sl_program_close(model.program);
    return status;
}

sl_status sl_model_emit(sl_build build, const void *user, const sl_model_options *options,
                        sl_program **out_forward)
{
    return sl_model_emit_sizes(build, user, options, NULL, out_forward);
}
