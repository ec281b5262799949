/* The walk: a block of a tensor is read, laid across where the format has linear weights the other
 * way round, encoded and appended. */
#include "convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "target.h"
#include "tensors/elements.h"

/* ---- what is asked for ---- */

static const sl_target_ops *const formats[] = {
    [SL_CONVERT_HF] = &sl_target_hf,
    [SL_CONVERT_GGUF] = &sl_target_gguf,
    [SL_CONVERT_LLMC] = &sl_target_llmc,
    [SL_CONVERT_WEIGHTS] = &sl_target_weights,
    [SL_CONVERT_MEGATRON] = &sl_target_megatron,
    [SL_CONVERT_PEFT] = &sl_target_peft,
};

sl_status sl_convert_check(sl_convert_format format, sl_encoding encoding)
{
    if (format == SL_CONVERT_GGUF)
        return SL_OK;
    if (encoding == SL_ENCODING_Q8_0)
        SL_FAIL(SL_ERROR_USAGE, "--type q8_0 is for --format gguf: use fp32, bf16 or fp16");
    if (format == SL_CONVERT_LLMC && encoding == SL_ENCODING_FP16)
        SL_FAIL(SL_ERROR_USAGE, "--type fp16: models of llm.c are fp32 or bf16");
    return SL_OK;
}

/* A model without its adapters would be another one. */
static sl_status check_adapters(const sl_convert_args *args)
{
    const sl_model_reader *reader = args->reader;
    const bool has_some = reader->shape.lora.rank > 0, is_peft = args->format == SL_CONVERT_PEFT;
    if (has_some && !reader->merges && !is_peft)
        SL_FAIL(SL_ERROR_USAGE,
                "%s has adapters of LoRA: --merge adds them to its weights, --format peft writes "
                "them alone",
                sl_files_show(reader->path).text);
    if (!has_some && (reader->merges || is_peft))
        SL_FAIL(SL_ERROR_USAGE, "%s: %s has no adapters of LoRA: give --adapter DIR",
                is_peft ? "--format peft" : "--merge", sl_files_show(reader->path).text);
    return SL_OK;
}

static sl_status check_vocabulary(const sl_convert_args *args)
{
    uint32_t count = args->vocabulary ? sl_vocabulary_count(args->vocabulary) : 0;
    if (count > args->reader->shape.vocab)
        SL_FAIL(SL_ERROR_USAGE,
                "the tokenizer has %u tokens, but the model %u ids: it is another model's", count,
                args->reader->shape.vocab);
    bool takes_vocabulary = args->format != SL_CONVERT_WEIGHTS &&
                            args->format != SL_CONVERT_MEGATRON && args->format != SL_CONVERT_PEFT;
    if (!args->vocabulary && takes_vocabulary)
        sl_log_write(SL_LOG_WARNING,
                     "no vocabulary is known of this model, so what is written reads and prints no "
                     "text: --tokenizer DIR adds one");
    return SL_OK;
}

uint32_t sl_target_end_of_text(const sl_target *target)
{
    const sl_vocabulary *vocabulary = target->args->vocabulary;
    const sl_model_directory *source = &target->args->reader->source;
    if (source->names_end)
        return source->end_of_text;
    int32_t id = vocabulary ? sl_vocabulary_end_of_text(vocabulary) : SL_VOCABULARY_NONE;
    return id == SL_VOCABULARY_NONE ? target->args->reader->shape.vocab - 1 : (uint32_t)id;
}

sl_target_part sl_target_whole(const sl_target *target, const sl_foreign_tensor *tensor)
{
    bool is_across = tensor->is_linear && target->is_out_in;
    return (sl_target_part){.row_count = is_across ? tensor->columns : tensor->rows,
                            .column_count = is_across ? tensor->rows : tensor->columns};
}

sl_status sl_target_list(sl_target *target)
{
    const sl_model_shape *shape = &target->args->reader->shape;
    target->item_count = sl_model_tensors_count(shape);
    target->items = calloc((size_t)target->item_count + 1, sizeof *target->items);
    if (!target->items)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", target->item_count);
    for (uint32_t i = 0; i < target->item_count; i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(shape, i);
        target->items[i] = (sl_target_item){.tensor = tensor,
                                            .encoding = target->args->encoding,
                                            .part = sl_target_whole(target, &tensor)};
    }
    return SL_OK;
}

static void close_target(sl_target *target, const sl_target_ops *ops)
{
    if (ops->close)
        ops->close(target);
    sl_safetensors_writer_close(target->safetensors);
    sl_gguf_close(target->gguf);
    sl_files_close(&target->file);
    sl_output_close(&target->output);
    sl_output_close(&target->beside);
    free(target->items);
    free(target->names);
    free(target->plans);
    free(target->rotary_divisors);
}

/* ---- the walk ---- */

typedef struct walk {
    sl_target *target;
    const sl_target_ops *ops;
    uint64_t block_elements; /* of each buffer */
    float *data, *across;
    void *stored;
    uint64_t done_bytes;
} walk;

static sl_status tell(walk *self)
{
    const sl_convert_args *args = self->target->args;
    return args->progress ? args->progress(args->user, self->done_bytes, self->target->total_bytes)
                          : SL_OK;
}

static sl_status append(walk *self, const sl_target_item *item, const float *data, uint64_t count)
{
    uint64_t bytes = sl_encoding_bytes(item->encoding, count);
    SL_TRY(sl_encoding_encode(item->encoding, data, count, self->stored));
    SL_TRY(self->ops->append(self->target, self->stored, bytes));
    self->done_bytes += bytes;
    return SL_OK;
}

/* A part of the tensor as it stands in the source, where a row has `columns` elements. */
typedef struct matrix {
    uint64_t columns;
    sl_target_part part;
} matrix;

/* Reads some columns of all its rows, or all columns of some, row by row unless they stand
 * together. */
static sl_status read_part(walk *self, const sl_foreign_tensor *tensor, const matrix *of)
{
    const sl_model_reader *reader = self->target->args->reader;
    const sl_target_part *part = &of->part;
    uint64_t first = part->first_row * of->columns + part->first_column;
    if (part->column_count == of->columns)
        return sl_model_reader_read(reader, tensor, first, part->row_count * of->columns,
                                    self->data);
    for (uint64_t row = 0; row < part->row_count; row++)
        SL_TRY(sl_model_reader_read(reader, tensor, first + row * of->columns, part->column_count,
                                    self->data + row * part->column_count));
    return SL_OK;
}

/* So many rows or columns, each of `elements`, fit a block. */
static sl_status count_in_block(const walk *self, uint64_t elements, uint64_t *out_count)
{
    *out_count = self->block_elements / elements;
    if (*out_count > 0)
        return SL_OK;
    SL_FAIL(SL_ERROR_DATA,
            "has rows of %" PRIu64 " elements, more than %" PRIu64 " are not converted", elements,
            self->block_elements);
}

/* Row i of the first half of each head, then row i of the second one: what llama.cpp turns together
 * stands side by side. */
static void interleave(const float *data, uint64_t rows, uint64_t columns, uint64_t pair_rows,
                       float *out_data)
{
    const uint64_t half = pair_rows / 2;
    for (uint64_t row = 0; row < rows; row++) {
        const uint64_t head = row / pair_rows * pair_rows, in_head = row % pair_rows;
        const uint64_t from = head + in_head % 2 * half + in_head / 2;
        memcpy(out_data + row * columns, data + from * columns, columns * sizeof *data);
    }
}

/* As many rows as fit a block; of a tensor whose rows are interleaved whole heads. */
static sl_status count_in_band(const walk *self, const sl_target_item *item, uint64_t elements,
                               uint64_t *out_count)
{
    const uint64_t unit = item->pair_rows > 0 ? item->pair_rows : 1;
    SL_TRY(count_in_block(self, elements * unit, out_count));
    *out_count *= unit;
    return SL_OK;
}

/* Appends [rows, columns] of a buffer; `other` is the other one. */
static sl_status append_rows(walk *self, const sl_target_item *item, const sl_target_part *size,
                             float *data, float *other)
{
    const uint64_t rows = size->row_count, columns = size->column_count;
    if (item->pair_rows > 0)
        interleave(data, rows, columns, item->pair_rows, other);
    SL_TRY(append(self, item, item->pair_rows > 0 ? other : data, rows * columns));
    return tell(self);
}

static sl_status copy_straight(walk *self, const sl_target_item *item)
{
    matrix of = {item->tensor.columns, item->part};
    uint64_t most, left = item->part.row_count;
    if (self->target->is_out_in && item->tensor.is_linear)
        of.columns = item->tensor.rows;
    SL_TRY(count_in_band(self, item, of.part.column_count, &most));
    for (; left > 0; left -= of.part.row_count) {
        of.part.row_count = left < most ? left : most;
        SL_TRY(read_part(self, &item->tensor, &of));
        SL_TRY(append_rows(self, item, &of.part, self->data, self->across));
        of.part.first_row += of.part.row_count;
    }
    return SL_OK;
}

/* Rows of the target are columns of the source: a band of them at a time. */
static sl_status copy_across(walk *self, const sl_target_item *item)
{
    const sl_target_part *part = &item->part;
    matrix of = {item->tensor.columns,
                 {part->first_column, part->column_count, part->first_row, 0}};
    uint64_t most, left = part->row_count;
    if (self->target->args->reader->is_out_in)
        of.columns = item->tensor.rows;
    SL_TRY(count_in_band(self, item, of.part.row_count, &most));
    for (; left > 0; left -= of.part.column_count) {
        of.part.column_count = left < most ? left : most;
        SL_TRY(read_part(self, &item->tensor, &of));
        sl_elements_lay_across(self->data, of.part.row_count, of.part.column_count,
                               of.part.row_count, self->across);
        const sl_target_part made = {.row_count = of.part.column_count,
                                     .column_count = of.part.row_count};
        SL_TRY(append_rows(self, item, &made, self->across, self->data));
        of.part.first_column += of.part.column_count;
    }
    return SL_OK;
}

static sl_status add_padding(walk *self, const sl_target_item *item)
{
    static const float zeros[SL_ENCODING_Q8_0_ELEMENTS];
    const uint64_t most = sizeof zeros / sizeof zeros[0];
    for (uint64_t left = item->padding_elements; left > 0;) {
        uint64_t part = left < most ? left : most;
        SL_TRY(append(self, item, zeros, part));
        left -= part;
    }
    return SL_OK;
}

static sl_status copy_item(walk *self, const sl_target_item *item)
{
    const sl_convert_args *args = self->target->args;
    bool is_across = item->tensor.is_linear && args->reader->is_out_in != self->target->is_out_in;
    if (item->values)
        return append(self, item, item->values, item->part.row_count);
    sl_status status = is_across ? copy_across(self, item) : copy_straight(self, item);
    if (status == SL_OK && item->padding_elements > 0)
        status = add_padding(self, item);
    if (status == SL_ERROR_DATA)
        status =
            sl_status_prefix(status, "%s: tensor \"%s\"", sl_files_show(args->reader->path).text,
                             sl_model_tensors_name(&item->tensor).text);
    return status;
}

static sl_status take_memory(walk *self)
{
    uint64_t largest = SL_ENCODING_Q8_0_ELEMENTS;
    for (uint32_t i = 0; i < self->target->item_count; i++) {
        const sl_foreign_tensor *tensor = &self->target->items[i].tensor;
        uint64_t count = tensor->rows * tensor->columns;
        largest = count > largest ? count : largest;
    }
    self->block_elements =
        largest < SL_CONVERT_BLOCK_ELEMENTS ? largest : SL_CONVERT_BLOCK_ELEMENTS;
    self->data = malloc(self->block_elements * sizeof *self->data);
    self->across = malloc(self->block_elements * sizeof *self->across);
    self->stored = malloc(self->block_elements * sizeof(float));
    if (!self->data || !self->across || !self->stored)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a block of %" PRIu64 " elements",
                self->block_elements);
    return SL_OK;
}

static sl_status walk_items(sl_target *target, const sl_target_ops *ops)
{
    walk self = {.target = target, .ops = ops};
    sl_status status = take_memory(&self);
    for (uint32_t i = 0; status == SL_OK && i < target->item_count; i++)
        status = copy_item(&self, &target->items[i]);
    free(self.data);
    free(self.across);
    free(self.stored);
    return status;
}

/* ---- one conversion ---- */

enum { SMALL_FILES_BYTES = 64 << 10, TOKEN_TEXT_BYTES = 64 /* of a token and its merge, about */ };

static sl_status check_space(const sl_target *target)
{
    const sl_convert_args *args = target->args;
    uint64_t free_bytes, block_bytes,
        needed = target->total_bytes + target->other_bytes + SMALL_FILES_BYTES;
    if (args->vocabulary)
        needed += sl_vocabulary_count(args->vocabulary) * (uint64_t)TOKEN_TEXT_BYTES;
    SL_TRY(sl_files_free_space(target->output.path, &free_bytes, &block_bytes));
    if (needed <= free_bytes)
        return SL_OK;
    SL_FAIL(SL_ERROR_FIT,
            "%s: %" PRIu64 " bytes are needed, but %" PRIu64 " are free there; write to a larger "
            "disk, or a smaller --type%s",
            sl_files_show(args->to).text, needed, free_bytes,
            args->overwrites ? " (what is replaced stays until the new is whole)" : "");
}

static sl_status convert(sl_target *target, const sl_target_ops *ops)
{
    const sl_convert_args *args = target->args;
    SL_TRY(ops->plan(target));
    SL_TRY(sl_output_open(args->to, ops->is_directory, args->overwrites, &target->output));
    SL_TRY(check_space(target));
    SL_TRY(ops->start(target));
    SL_TRY(walk_items(target, ops));
    SL_TRY(ops->finish(target));
    SL_TRY(sl_output_publish(&target->output)); /* a tokenizer alone would be another model's */
    return target->beside.is_made ? sl_output_publish(&target->beside) : SL_OK;
}

sl_status sl_convert_run(const sl_convert_args *args, sl_convert_report *out_report)
{
    sl_target target = {
        .args = args, .output = {.directory = -1}, .beside = {.directory = -1}, .file = {.fd = -1}};
    SL_TRY(sl_convert_check(args->format, args->encoding));
    SL_TRY(check_adapters(args));
    SL_TRY(check_vocabulary(args));
    if (args->format == SL_CONVERT_CHECKPOINT)
        return sl_target_save_checkpoint(args, out_report);
    sl_status status = convert(&target, formats[args->format]);
    *out_report =
        (sl_convert_report){.tensor_count = sl_model_tensors_count(&args->reader->shape),
                            .parameter_count = sl_model_shape_parameters(&args->reader->shape),
                            .bytes = target.total_bytes};
    if (target.peft) {
        out_report->tensor_count = target.tensor_count;
        out_report->parameter_count = target.parameter_count;
        snprintf(out_report->base, sizeof out_report->base, "%s", target.base);
    }
    close_target(&target, formats[args->format]);
    return status;
}
