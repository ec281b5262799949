/* Megatron-LM's pieces: a directory for each rank, with a file of torch.load in it. Its iteration
 * is called "release", as Megatron's own converters have it: weights to start from, no optimizer.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/bits.h"
#include "foreign/megatron_tensors.h"
#include "foreign/torch/torch_writer.h"
#include "target.h"

enum { RECORD_BYTES = 512 }; /* of the pickle and the archive for each tensor, at the most */

static const double VERSION = 3; /* of the order of query, key and value: by head */
static const char HEAD_COPY[] = "output_layer.weight"; /* the embedding, on the last stage */

/* A tensor of a piece. */
typedef struct record {
    sl_foreign_tensor tensor; /* its layer as its stage counts */
    bool is_head;
} record;

typedef struct sl_megatron_pieces {
    uint32_t tp_size, pp_size;
    uint64_t embedding_rows; /* of a rank */
    record *records;         /* [record_count], of all pieces, stage by stage, rank by rank */
    sl_torch_plan *plans;    /* [record_count] */
    uint32_t record_count, record_capacity;
    uint32_t item_capacity;
    uint32_t *ends;       /* [tp_size * pp_size], of each piece's records */
    uint32_t piece_index; /* that is being written */
    sl_torch_writer *writer;
} sl_megatron_pieces;

/* ---- what is divided how ---- */

static sl_status check_sizes(const sl_convert_args *args)
{
    const sl_model_shape *shape = &args->reader->shape;
    if (!sl_model_names_of(shape)->megatron_arguments)
        SL_FAIL(SL_ERROR_USAGE, "--format megatron: it is not known what Megatron-LM has of a %s",
                sl_model_names_of(shape)->title);
    if (shape->heads % args->tp_size != 0)
        SL_FAIL(SL_ERROR_USAGE, "--tp %u: Megatron divides %u heads only without a rest",
                args->tp_size, shape->heads);
    if (shape->layers % args->pp_size != 0)
        SL_FAIL(SL_ERROR_USAGE, "--pp %u: Megatron divides %u layers only without a rest",
                args->pp_size, shape->layers);
    return SL_OK;
}

static sl_status add_item(sl_target *target, const sl_foreign_tensor *tensor, sl_target_part part,
                          uint64_t padding_elements)
{
    SL_TRY(SL_ARRAY_GROW(target->items, target->item_count, target->pieces->item_capacity,
                         "a list of tensors"));
    target->items[target->item_count++] = (sl_target_item){.tensor = *tensor,
                                                           .encoding = target->args->encoding,
                                                           .part = part,
                                                           .padding_elements = padding_elements};
    return SL_OK;
}

/* The rows of a rank's heads, for each head those of query, key and value. */
static sl_status add_heads(sl_target *target, const sl_foreign_tensor *tensor, sl_target_part part,
                           uint32_t rank)
{
    const sl_model_shape *shape = &target->args->reader->shape;
    uint32_t heads = shape->heads / target->pieces->tp_size;
    part.row_count = shape->width / shape->heads;
    for (uint32_t head = rank * heads; head < (rank + 1) * heads; head++)
        for (uint32_t third = 0; third < 3; third++) {
            part.first_row = (uint64_t)third * shape->width + head * part.row_count;
            SL_TRY(add_item(target, tensor, part, 0));
        }
    return SL_OK;
}

/* A rank's rows of the embedding: those behind the last id are zeros. */
static sl_status add_embedding(sl_target *target, const sl_foreign_tensor *tensor, uint32_t rank)
{
    const uint64_t rows = target->pieces->embedding_rows, first = rank * rows;
    uint64_t left = first < tensor->rows ? tensor->rows - first : 0;
    uint64_t count = left < rows ? left : rows;
    const sl_target_part part = {
        .first_row = count ? first : 0, .row_count = count, .column_count = tensor->columns};
    return add_item(target, tensor, part, (rows - count) * tensor->columns);
}

/* The items of a rank's part of a tensor, and its shape there. */
static sl_status add_part(sl_target *target, const sl_foreign_tensor *tensor, uint32_t rank,
                          sl_torch_plan *plan)
{
    const uint32_t tp_size = target->pieces->tp_size;
    sl_target_part part = sl_target_whole(target, tensor);
    sl_megatron_split split = sl_model_tensors_kind(tensor)->split;
    *plan = (sl_torch_plan){.encoding = target->args->encoding, .dim_count = tensor->dim_count};
    if (sl_model_tensors_kind(tensor)->rows == SL_SIZE_VOCAB) {
        plan->shape[0] = target->pieces->embedding_rows;
        plan->shape[1] = tensor->columns;
        return add_embedding(target, tensor, rank);
    }
    if (split == SL_MEGATRON_ROWS || split == SL_MEGATRON_HEADS)
        part.row_count /= tp_size;
    if (split == SL_MEGATRON_COLUMNS)
        part.column_count /= tp_size;
    plan->shape[0] = part.row_count;
    plan->shape[1] = part.column_count;
    if (split == SL_MEGATRON_HEADS)
        return add_heads(target, tensor, part, rank);
    part.first_row = split == SL_MEGATRON_ROWS ? rank * part.row_count : 0;
    part.first_column = split == SL_MEGATRON_COLUMNS ? rank * part.column_count : 0;
    return add_item(target, tensor, part, 0);
}

static sl_status add_record(sl_target *target, const sl_foreign_tensor *tensor,
                            uint32_t first_layer, uint32_t rank, bool is_head)
{
    sl_megatron_pieces *pieces = target->pieces;
    uint32_t capacity = pieces->record_capacity; /* of both */
    SL_TRY(SL_ARRAY_GROW(pieces->records, pieces->record_count, capacity, "a list of tensors"));
    SL_TRY(SL_ARRAY_GROW(pieces->plans, pieces->record_count, pieces->record_capacity,
                         "a list of tensors"));
    uint32_t index = pieces->record_count++;
    pieces->records[index] = (record){*tensor, is_head};
    pieces->records[index].tensor.layer -= first_layer;
    SL_TRY(add_part(target, tensor, rank, &pieces->plans[index]));
    target->total_bytes += sl_torch_count_bytes(&pieces->plans[index]);
    return SL_OK;
}

static sl_status add_piece(sl_target *target, uint32_t stage, uint32_t rank)
{
    const sl_model_shape *shape = &target->args->reader->shape;
    uint32_t layers = shape->layers / target->pieces->pp_size, first_layer = stage * layers;
    bool is_last = stage == target->pieces->pp_size - 1;
    for (uint32_t i = 0; i < sl_model_tensors_count(shape); i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(shape, i);
        bool is_first_stages = !sl_megatron_tensors_has_front(&tensor);
        bool is_last_stages = !is_first_stages && !sl_model_tensors_is_of_layer(&tensor);
        if (is_first_stages  ? stage == 0
            : is_last_stages ? is_last
                             : tensor.layer / layers == stage)
            SL_TRY(add_record(target, &tensor, is_first_stages || is_last_stages ? 0 : first_layer,
                              rank, false));
    }
    const sl_foreign_tensor words =
        sl_model_tensors_nth(shape, sl_model_tensors_find(sl_model_names_of(shape), SL_SIZE_VOCAB));
    if (is_last && stage > 0)
        SL_TRY(add_record(target, &words, 0, rank, true));
    target->pieces->ends[stage * target->pieces->tp_size + rank] = target->pieces->record_count;
    return SL_OK;
}

static sl_status plan(sl_target *target)
{
    const sl_convert_args *args = target->args;
    SL_TRY(check_sizes(args));
    sl_megatron_pieces *pieces = calloc(1, sizeof *pieces);
    if (!pieces)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the pieces of a model");
    target->pieces = pieces;
    target->is_out_in = true;
    pieces->tp_size = args->tp_size;
    pieces->pp_size = args->pp_size;
    pieces->ends = calloc((uint64_t)args->tp_size * args->pp_size, sizeof *pieces->ends);
    if (!pieces->ends)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the pieces of a model");
    pieces->embedding_rows = sl_bits_round_up(args->reader->shape.vocab,
                                              SL_MEGATRON_VOCAB_UNIT * (uint64_t)args->tp_size) /
                             args->tp_size;
    for (uint32_t stage = 0; stage < args->pp_size; stage++)
        for (uint32_t rank = 0; rank < args->tp_size; rank++)
            SL_TRY(add_piece(target, stage, rank));
    target->other_bytes = (uint64_t)pieces->record_count * RECORD_BYTES;
    return SL_OK;
}

/* ---- the pickle of a piece ---- */

static void put_size(FILE *stream, const char *key, uint64_t value)
{
    sl_torch_put_text(stream, key);
    sl_torch_put_integer(stream, value);
}

static void put_flag(FILE *stream, const char *key, bool value)
{
    sl_torch_put_text(stream, key);
    sl_torch_put_bool(stream, value);
}

static void put_word(FILE *stream, const char *key, const char *value)
{
    sl_torch_put_text(stream, key);
    sl_torch_put_text(stream, value);
}

static void put_real(FILE *stream, const char *key, double value)
{
    sl_torch_put_text(stream, key);
    sl_torch_put_real(stream, value);
}

/* What Megatron and readers of its files ask of a model. */
static void put_arguments(FILE *stream, const sl_target *target)
{
    const sl_model_shape *shape = &target->args->reader->shape;
    const sl_model_names *names = sl_model_names_of(shape);
    const sl_megatron_pieces *pieces = target->pieces;
    sl_torch_put_object(stream, "argparse", "Namespace");
    put_size(stream, "num_layers", shape->layers);
    put_size(stream, "hidden_size", shape->width);
    put_size(stream, "num_attention_heads", shape->heads);
    put_size(stream, "ffn_hidden_size", names->size(shape, SL_SIZE_INNER));
    put_size(stream, "kv_channels", shape->width / shape->heads);
    put_size(stream, "max_position_embeddings", shape->context);
    put_size(stream, "seq_length", shape->context);
    put_size(stream, "vocab_size", shape->vocab);
    put_size(stream, "padded_vocab_size", pieces->embedding_rows * pieces->tp_size);
    put_size(stream, "make_vocab_size_divisible_by", SL_MEGATRON_VOCAB_UNIT);
    put_size(stream, "tensor_model_parallel_size", pieces->tp_size);
    put_size(stream, "pipeline_model_parallel_size", pieces->pp_size);
    put_real(stream, "layernorm_epsilon", names->epsilon(shape));
    put_real(stream, "norm_epsilon", names->epsilon(shape));
    for (const sl_megatron_argument *at = names->megatron_arguments; at->key; at++) {
        if (at->is_written && at->text)
            put_word(stream, at->key, at->text);
        else if (at->is_written)
            put_flag(stream, at->key, at->flag);
    }
    put_flag(stream, "fp16", target->args->encoding == SL_ENCODING_FP16);
    put_flag(stream, "bf16", target->args->encoding == SL_ENCODING_BF16);
    put_size(stream, "iteration", 0);
    put_size(stream, "consumed_train_samples", 0);
    put_size(stream, "consumed_valid_samples", 0);
    sl_torch_put_object_end(stream);
}

static void put_model(FILE *stream, const sl_megatron_pieces *pieces, uint32_t first, uint32_t end)
{
    sl_torch_put_dict(stream);
    for (uint32_t i = first; i < end; i++) {
        const record *at = &pieces->records[i];
        const sl_megatron_name name = sl_megatron_tensors_core_name(&at->tensor);
        sl_torch_put_text(stream, at->is_head ? HEAD_COPY : name.text);
        sl_torch_put_tensor(stream, i - first, &pieces->plans[i]);
    }
    sl_torch_put_dict_end(stream);
}

static sl_status make_pickle(const sl_target *target, uint32_t first, uint32_t end, char **out_text,
                             size_t *out_bytes)
{
    *out_text = NULL;
    FILE *stream = open_memstream(out_text, out_bytes);
    if (!stream)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a pickle");
    sl_torch_put_start(stream);
    sl_torch_put_dict(stream);
    sl_torch_put_text(stream, "args");
    put_arguments(stream, target);
    put_real(stream, "checkpoint_version", VERSION);
    put_size(stream, "iteration", 0);
    sl_torch_put_text(stream, "model");
    put_model(stream, target->pieces, first, end);
    sl_torch_put_dict_end(stream);
    sl_torch_put_end(stream);
    bool is_whole = !ferror(stream);
    if (fclose(stream) == 0 && is_whole)
        return SL_OK;
    free(*out_text);
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for a pickle");
}

/* ---- the files ---- */

static uint32_t first_record(const sl_megatron_pieces *pieces)
{
    return pieces->piece_index ? pieces->ends[pieces->piece_index - 1] : 0;
}

static sl_status open_piece(sl_target *target)
{
    sl_megatron_pieces *pieces = target->pieces;
    uint32_t first = first_record(pieces), end = pieces->ends[pieces->piece_index];
    uint32_t stage = pieces->piece_index / pieces->tp_size;
    char name[SL_MEGATRON_NAME_BYTES + 32], *text;
    size_t bytes;
    sl_file file;
    const sl_megatron_name directory = sl_megatron_tensors_piece(
        pieces->piece_index % pieces->tp_size, stage, pieces->pp_size > 1);
    snprintf(name, sizeof name, "release/%s/model_optim_rng.pt", directory.text);
    SL_TRY(make_pickle(target, first, end, &text, &bytes));
    sl_status status = sl_output_create(&target->output, name, &file);
    if (status == SL_OK)
        status = sl_torch_writer_open(&file, text, bytes, pieces->plans + first, end - first,
                                      &pieces->writer);
    free(text);
    return status;
}

static sl_status start(sl_target *target)
{
    return open_piece(target);
}

static sl_status close_piece(sl_megatron_pieces *pieces)
{
    SL_TRY(sl_torch_writer_finish(pieces->writer));
    sl_torch_writer_close(pieces->writer);
    pieces->writer = NULL;
    pieces->piece_index++;
    return SL_OK;
}

static sl_status append(sl_target *target, const void *stored, uint64_t bytes)
{
    sl_megatron_pieces *pieces = target->pieces;
    SL_TRY(sl_torch_writer_append(pieces->writer, stored, bytes));
    if (!sl_torch_writer_is_full(pieces->writer))
        return SL_OK;
    SL_TRY(close_piece(pieces));
    return pieces->piece_index < pieces->tp_size * pieces->pp_size ? open_piece(target) : SL_OK;
}

static sl_status finish(sl_target *target)
{
    static const char text[] = "release\n";
    return sl_output_write_text(&target->output, SL_MEGATRON_TRACKER, text, sizeof text - 1);
}

static void close_pieces(sl_target *target)
{
    sl_megatron_pieces *pieces = target->pieces;
    if (!pieces)
        return;
    sl_torch_writer_close(pieces->writer);
    free(pieces->records);
    free(pieces->plans);
    free(pieces->ends);
    free(pieces);
    target->pieces = NULL;
}

const sl_target_ops sl_target_megatron = {.is_directory = true,
                                          .plan = plan,
                                          .start = start,
                                          .append = append,
                                          .finish = finish,
                                          .close = close_pieces};
