/* Opens the pieces, and says of each run of elements in which piece it lies; see megatron_model.h.
 */
#define _GNU_SOURCE
#include "megatron_model.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/log.h"
#include "foreign/torch/torch_file.h"
#include "megatron_arguments.h"
#include "megatron_tensors.h"

enum {
    KIND_BYTES = 96,
    RANKS_MAX = 4096, /* of either direction */
    OPEN_FILES_MAX = 512,
    LAYERS_MAX = 4096, /* of a stage */
    ITERATION_TEXT_MAX = 64,
    ROOM_ELEMENTS = 1 << 18 /* 1 MiB */
};

static const char tracker[] = SL_MEGATRON_TRACKER;

/* DeepSpeed's engine saves the pieces of a tensor-parallel group as files of one directory. */
#define DEEPSPEED_ENDING "_model_states.pt"

/* What stands in front of the names of layers and of the last norm. */
static const char *const fronts[] = {"language_model.encoder", "language_model.transformer",
                                     SL_MEGATRON_CORE_FRONT,
                                     "transformer" /* of DeepSpeedExamples' fork of 2019 */};

enum { FRONT_COUNT = sizeof fronts / sizeof fronts[0] };

typedef struct piece {
    sl_torch_file file;
    sl_torch_tensor *tensors; /* [sl_model_tensors_count of its stage] */
} piece;

typedef struct stage {
    sl_model_shape shape; /* with the layers of this stage */
    uint32_t first_layer;
    const char *front;
} stage;

struct sl_megatron_model {
    char *path; /* the directory of the pieces */
    char kind[KIND_BYTES];
    const sl_model_names *names;
    sl_model_shape shape;
    bool is_deepspeed;    /* each piece is a file, with the tensors under "module" */
    uint32_t given_heads; /* for pieces that do not say them; 0: none */
    uint32_t tp_size, pp_size;
    uint32_t version;        /* of the order of query, key and value */
    uint64_t embedding_rows; /* of each tensor-parallel rank */
    piece *pieces;           /* [pp_size][tp_size] */
    stage *stages;           /* [pp_size] */
    float *room;             /* [ROOM_ELEMENTS]: rows of a piece that has some columns of each */
};

/* ---- where pieces are ---- */

static bool is_there(const char *directory, const char *name)
{
    char *path = NULL;
    bool exists = false;
    if (sl_files_join_path(directory, name, &path) != SL_OK)
        return false;
    bool is_known = sl_files_exists(AT_FDCWD, NULL, path, &exists) == SL_OK;
    free(path);
    return is_known && exists;
}

bool sl_megatron_model_is_at(const char *path)
{
    return is_there(path, tracker) || is_there(path, "mp_rank_00") ||
           is_there(path, "mp_rank_00_000") || is_there(path, "mp_rank_00" DEEPSPEED_ENDING);
}

/* Megatron's own directory, or the one that DeepSpeed's engine makes of the number. */
static void name_iteration(const char *path, unsigned long long iteration, size_t capacity,
                           char *out_name)
{
    char other[ITERATION_TEXT_MAX];
    snprintf(out_name, capacity, "iter_%07llu", iteration);
    snprintf(other, sizeof other, "%llu", iteration);
    if (!is_there(path, out_name) && is_there(path, other))
        snprintf(out_name, capacity, "%s", other);
}

sl_status sl_megatron_model_find(const char *path, char **out_directory)
{
    sl_file file;
    char *text = NULL, name[ITERATION_TEXT_MAX + 16];
    if (!is_there(path, tracker))
        return sl_files_join_path(NULL, path, out_directory);
    char *tracker_path = NULL;
    SL_TRY(sl_files_join_path(path, tracker, &tracker_path));
    sl_status status = sl_files_open(AT_FDCWD, NULL, tracker_path, SL_LINKS_FOLLOW, &file);
    free(tracker_path);
    SL_TRY(status);
    status = sl_files_read_text(&file, ITERATION_TEXT_MAX, &text);
    sl_files_close(&file);
    SL_TRY(status);
    text[strcspn(text, " \t\r\n")] = '\0';
    if (strcmp(text, "release") == 0)
        snprintf(name, sizeof name, "release");
    else if (text[0] != '\0' && text[strspn(text, "0123456789")] == '\0')
        name_iteration(path, strtoull(text, NULL, 10), sizeof name, name);
    else
        status = sl_status_fail(SL_ERROR_DATA, "%s/%s: says \"%s\", which is no iteration",
                                sl_files_show(path).text, tracker, sl_files_show(text).text);
    free(text);
    return status == SL_OK ? sl_files_join_path(path, name, out_directory) : status;
}

/* The directory of a piece, or its file in DeepSpeed's layout. */
static sl_megatron_name name_piece(const sl_megatron_model *model, uint32_t tp_rank,
                                   uint32_t pp_rank, bool has_stages)
{
    sl_megatron_name name = sl_megatron_tensors_piece(tp_rank, pp_rank, has_stages);
    const size_t bytes = strlen(name.text);
    if (model->is_deepspeed)
        snprintf(name.text + bytes, sizeof name.text - bytes, DEEPSPEED_ENDING);
    return name;
}

/* Pieces that follow each other from 0 on, of the first stage, or of the first rank. */
static uint32_t count_ranks(const sl_megatron_model *model, bool of_stage, bool has_stages)
{
    for (uint32_t i = 0; i < RANKS_MAX; i++) {
        const sl_megatron_name name =
            name_piece(model, of_stage ? i : 0, of_stage ? 0 : i, has_stages);
        if (!is_there(model->path, name.text))
            return i;
    }
    return RANKS_MAX;
}

static sl_status count_pieces(sl_megatron_model *model, bool *out_has_stages)
{
    model->is_deepspeed = is_there(model->path, "mp_rank_00" DEEPSPEED_ENDING);
    const bool has_stages = !model->is_deepspeed && !is_there(model->path, "mp_rank_00");
    model->tp_size = count_ranks(model, true, has_stages);
    model->pp_size = has_stages ? count_ranks(model, false, true) : 1;
    *out_has_stages = has_stages;
    if (model->tp_size > 0 && model->pp_size > 0)
        return SL_OK;
    SL_FAIL(SL_ERROR_MISSING, "%s: no mp_rank_00 or mp_rank_00_000 is in it",
            sl_files_show(model->path).text);
}

static sl_status find_piece(const sl_megatron_model *model, sl_megatron_name name, char **out_path)
{
    static const char *const names[] = {"model_optim_rng.pt", "model_rng.pt"};
    char *directory = NULL;
    if (model->is_deepspeed)
        return sl_files_join_path(model->path, name.text, out_path);
    SL_TRY(sl_files_join_path(model->path, name.text, &directory));
    const char *file = is_there(directory, names[1]) ? names[1] : names[0];
    sl_status status = sl_files_join_path(directory, file, out_path);
    free(directory);
    return status;
}

static sl_status open_piece(const sl_megatron_model *model, sl_megatron_name name, piece *out_piece)
{
    char *path = NULL;
    SL_TRY(find_piece(model, name, &path));
    sl_status status = sl_torch_file_open(path, &out_piece->file);
    free(path);
    return status;
}

static sl_status open_pieces(sl_megatron_model *model, bool has_stages)
{
    uint32_t count = model->tp_size * model->pp_size; /* at most 2^24 */
    model->pieces = calloc(count, sizeof *model->pieces);
    model->stages = calloc(model->pp_size, sizeof *model->stages);
    model->room = malloc(ROOM_ELEMENTS * sizeof *model->room);
    if (!model->pieces || !model->stages || !model->room)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u pieces of a model", count);
    for (uint32_t i = 0; i < count; i++)
        model->pieces[i].file.file.fd = -1;
    return open_piece(model, name_piece(model, 0, 0, has_stages), &model->pieces[0]);
}

/* ---- what Megatron was told ---- */

static sl_status read_arguments(sl_megatron_model *model, const piece *self)
{
    const sl_megatron_arguments arguments = {
        .path = self->file.file.path,
        .names = model->names,
        .values = sl_pickle_attributes(sl_pickle_get(self->file.root, "args"))};
    uint32_t tp_size = model->tp_size;
    if (!arguments.values)
        return SL_OK;
    SL_TRY(sl_megatron_arguments_read_shape(&arguments, &model->shape));
    /* its name before 2021, and now */
    SL_TRY(sl_megatron_arguments_read_size(&arguments, "model_parallel_size", &tp_size));
    SL_TRY(sl_megatron_arguments_read_size(&arguments, "tensor_model_parallel_size", &tp_size));
    if (tp_size != model->tp_size)
        SL_FAIL(SL_ERROR_DATA, "%s: is a piece of %u tensor-parallel ranks, but %u are there",
                sl_files_show(self->file.file.path).text, tp_size, model->tp_size);
    SL_TRY(sl_megatron_arguments_need_size(&arguments, "pipeline_model_parallel_size",
                                           model->pp_size));
    return sl_megatron_arguments_need_size(&arguments, "virtual_pipeline_model_parallel_size", 1);
}

/* 0 where none is said: the first order there was. */
static sl_status read_version(sl_megatron_model *model, const piece *self)
{
    const sl_pickle_value *value = sl_pickle_get(self->file.root, "checkpoint_version");
    double version = 0;
    if (value && value->kind == SL_PICKLE_REAL)
        version = value->real;
    else if (value && value->kind == SL_PICKLE_INTEGER)
        version = (double)value->integer;
    if (!(version >= 0 && version < 4))
        SL_FAIL(SL_ERROR_DATA, "%s: its checkpoint_version is %g; 0 to 3 are read",
                sl_files_show(self->file.file.path).text, version);
    model->version = (uint32_t)version;
    return SL_OK;
}

/* ---- tensors of a piece ---- */

static const sl_pickle_value *get_tensors(const piece *self)
{
    const sl_pickle_value *model = sl_pickle_get(self->file.root, "model");
    return model ? model : sl_pickle_get(self->file.root, "module"); /* of DeepSpeed's engine */
}

/* A tensor of a piece under one of its names; NULL: there is none. */
static const sl_pickle_value *find_value(const piece *self, const char *front,
                                         const sl_foreign_tensor *tensor)
{
    const sl_pickle_value *model = get_tensors(self);
    const char *const *names = sl_model_tensors_kind(tensor)->megatron;
    for (int i = 0; i < SL_MEGATRON_NAMES_MAX && names[i]; i++) {
        const sl_megatron_name name = sl_megatron_tensors_name(tensor, front, names[i]);
        const sl_pickle_value *value = sl_pickle_find(model, name.text);
        if (value)
            return value;
    }
    return NULL;
}

/* Rows and columns of a tensor as Megatron has it, [out, in], before it is split. */
typedef struct extent {
    uint64_t rows, columns;
} extent;

static extent find_extent(const sl_foreign_tensor *tensor)
{
    return tensor->is_linear ? (extent){tensor->columns, tensor->rows}
                             : (extent){tensor->rows, tensor->columns};
}

/* The part of it that each rank has. */
static extent find_local(const sl_megatron_model *model, const sl_foreign_tensor *tensor)
{
    extent local = find_extent(tensor);
    sl_megatron_split how = sl_model_tensors_kind(tensor)->split;
    if (sl_model_tensors_kind(tensor)->rows == SL_SIZE_VOCAB)
        local.rows = model->embedding_rows;
    else if (how == SL_MEGATRON_ROWS || how == SL_MEGATRON_HEADS)
        local.rows /= model->tp_size;
    else if (how == SL_MEGATRON_COLUMNS)
        local.columns /= model->tp_size;
    return local;
}

static sl_status place_tensor(const sl_megatron_model *model, const piece *self, const char *front,
                              const sl_foreign_tensor *tensor, sl_torch_tensor *out_tensor)
{
    const sl_pickle_value *value = find_value(self, front, tensor);
    const sl_megatron_name name =
        sl_megatron_tensors_name(tensor, front, sl_model_tensors_kind(tensor)->megatron[0]);
    extent local = find_local(model, tensor);
    const char *path = self->file.file.path;
    if (!value)
        SL_FAIL(SL_ERROR_DATA, "%s: has no tensor \"%s\"", sl_files_show(path).text, name.text);
    if (sl_torch_file_find(&self->file, value, out_tensor) != SL_OK)
        return sl_status_prefix(SL_ERROR_DATA, "%s: tensor \"%s\"", sl_files_show(path).text,
                                name.text);
    bool is_right = out_tensor->dim_count == tensor->dim_count &&
                    out_tensor->shape[0] == local.rows &&
                    (tensor->dim_count == 1 || out_tensor->shape[1] == local.columns);
    if (!is_right)
        SL_FAIL(SL_ERROR_DATA,
                "%s: tensor \"%s\" has %u dimensions, the first of %" PRIu64 ", and [%" PRIu64
                ", %" PRIu64 "] is needed",
                sl_files_show(path).text, name.text, out_tensor->dim_count,
                out_tensor->dim_count ? out_tensor->shape[0] : 0, local.rows, local.columns);
    return SL_OK;
}

/* Whether a stage has a tensor: the embeddings are the first's, the last norm is the last's. */
static bool has_tensor(const sl_megatron_model *model, uint32_t stage_index,
                       const sl_foreign_tensor *tensor)
{
    if (!sl_megatron_tensors_has_front(tensor))
        return stage_index == 0;
    return sl_model_tensors_is_of_layer(tensor) || stage_index == model->pp_size - 1;
}

static sl_status place_tensors(const sl_megatron_model *model, uint32_t stage_index, piece *self)
{
    const stage *at = &model->stages[stage_index];
    uint32_t count = sl_model_tensors_count(&at->shape);
    self->tensors = calloc(count, sizeof *self->tensors);
    if (!self->tensors)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", count);
    for (uint32_t i = 0; i < count; i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(&at->shape, i);
        if (has_tensor(model, stage_index, &tensor))
            SL_TRY(place_tensor(model, self, at->front, &tensor, &self->tensors[i]));
    }
    sl_torch_file_drop_tree(&self->file);
    if (model->tp_size * model->pp_size > OPEN_FILES_MAX)
        return sl_files_rest(&self->file.file);
    return SL_OK;
}

/* ---- stages ---- */

/* The first kind of a layer that is divided by heads. */
static uint32_t find_attention(const sl_model_names *names)
{
    uint32_t kind = names->first_of_layer;
    while (kind + 1 < names->behind_layers && names->kinds[kind].split != SL_MEGATRON_HEADS)
        kind++;
    return kind;
}

/* The names that a piece uses, and how many layers it has under them. */
static sl_status count_layers(const sl_megatron_model *model, const piece *self, stage *out_stage)
{
    for (int i = 0; i < FRONT_COUNT; i++) {
        sl_foreign_tensor tensor = {.names = model->names, .kind = find_attention(model->names)};
        while (tensor.layer < LAYERS_MAX && find_value(self, fronts[i], &tensor))
            tensor.layer++;
        if (tensor.layer == 0)
            continue;
        out_stage->shape = model->shape;
        out_stage->shape.layers = tensor.layer;
        out_stage->front = fronts[i];
        return SL_OK;
    }
    if (sl_pickle_get(self->file.root, "model0"))
        SL_FAIL(SL_ERROR_DATA,
                "%s: has a model of interleaved stages (model0, model1), which is not read",
                sl_files_show(self->file.file.path).text);
    SL_FAIL(SL_ERROR_DATA, "%s: has no layers of a GPT under \"model\"",
            sl_files_show(self->file.file.path).text);
}

/* Of one stage: in more, the last has a copy of the embedding under this name. */
static sl_status refuse_head(const sl_megatron_model *model, const piece *first)
{
    const sl_pickle_value *tensors = get_tensors(first);
    if (model->pp_size > 1 || (!sl_pickle_find(tensors, "output_layer.weight") &&
                               !sl_pickle_find(tensors, "language_model.output_layer.weight")))
        return SL_OK;
    SL_FAIL(SL_ERROR_DATA, "%s: has a head of its own (output_layer.weight): %s's is the embedding",
            sl_files_show(first->file.file.path).text, model->names->title);
}

/* What the arguments leave open is told by the first piece's tensors. */
static sl_status complete_shape(sl_megatron_model *model, const piece *first)
{
    sl_torch_tensor words, positions;
    sl_model_shape *shape = &model->shape;
    const sl_model_names *names = model->names;
    const uint32_t head_width = names->megatron_head_width;
    const sl_foreign_tensor of_words = {names, sl_model_tensors_find(names, SL_SIZE_VOCAB)};
    const sl_foreign_tensor of_positions = {names, sl_model_tensors_find(names, SL_SIZE_CONTEXT)};
    const sl_pickle_value *word_value = find_value(first, fronts[0], &of_words),
                          *position_value = find_value(first, fronts[0], &of_positions);
    if (!word_value || !position_value ||
        sl_torch_file_find(&first->file, word_value, &words) != SL_OK ||
        sl_torch_file_find(&first->file, position_value, &positions) != SL_OK ||
        words.dim_count != 2 || positions.dim_count != 2 || words.shape[0] > INT32_MAX ||
        words.shape[1] > INT32_MAX || positions.shape[0] > INT32_MAX)
        SL_FAIL(SL_ERROR_DATA, "%s: has no embeddings of words and positions under \"%s\"%s",
                sl_files_show(first->file.file.path).text, model->is_deepspeed ? "module" : "model",
                model->is_deepspeed ? ": let DeepSpeed's ds_to_universal make its universal layout"
                                    : "");
    model->embedding_rows = words.shape[0];
    if (shape->width == 0)
        shape->width = (uint32_t)words.shape[1];
    if (shape->context == 0)
        shape->context = (uint32_t)positions.shape[0];
    if (shape->heads == 0)
        shape->heads = model->given_heads;
    if (shape->heads == 0) {
        shape->heads = shape->width >= head_width ? shape->width / head_width : 1;
        sl_log_write(
            SL_LOG_WARNING,
            "%s says no number of heads: %u are taken, %u wide as %s's; --heads N of train "
            "and convert takes another number",
            sl_files_show(model->path).text, shape->heads, head_width, names->title);
    }
    return SL_OK;
}

/* Megatron keeps the padded number: the published one where the padding fits it, else all rows. */
static sl_status resolve_vocab(sl_megatron_model *model)
{
    uint64_t rows = model->embedding_rows * model->tp_size;
    const uint32_t published = sl_architecture_ids(model->shape.architecture);
    uint64_t padded =
        sl_bits_round_up(published, SL_MEGATRON_VOCAB_UNIT * (uint64_t)model->tp_size);
    if (model->shape.vocab == 0 && rows == padded)
        sl_log_write(SL_LOG_NOTE,
                     "the number of ids is not said: of %" PRIu64 " rows those of %s's %u ids "
                     "are taken, the others are padding",
                     rows, model->names->title, published);
    if (model->shape.vocab == 0 && rows <= INT32_MAX)
        model->shape.vocab = rows == padded ? published : (uint32_t)rows;
    if (model->shape.vocab == 0 || model->shape.vocab > rows)
        SL_FAIL(SL_ERROR_DATA, "%s: has %" PRIu64 " rows of embedding for %u ids",
                sl_files_show(model->path).text, rows, model->shape.vocab);
    return SL_OK;
}

static sl_status check_shape(const sl_megatron_model *model, const sl_model_shape *shape)
{
    if (sl_model_shape_check(shape, 1) == SL_OK)
        return SL_OK;
    return sl_status_prefix(SL_ERROR_DATA, "%s", sl_files_show(model->path).text);
}

static sl_status check_heads(const sl_megatron_model *model)
{
    if (model->shape.heads % model->tp_size == 0)
        return SL_OK;
    SL_FAIL(SL_ERROR_DATA, "%s: %u heads do not divide among its %u tensor-parallel ranks",
            sl_files_show(model->path).text, model->shape.heads, model->tp_size);
}

/* Opens and places all pieces of a stage; the very first is open. */
static sl_status open_stage(sl_megatron_model *model, uint32_t stage_index, bool has_stages)
{
    piece *pieces = model->pieces + (uint64_t)stage_index * model->tp_size;
    for (uint32_t rank = 0; rank < model->tp_size; rank++) {
        if (stage_index + rank > 0)
            SL_TRY(
                open_piece(model, name_piece(model, rank, stage_index, has_stages), &pieces[rank]));
        if (stage_index > 0 && rank == 0)
            SL_TRY(count_layers(model, &pieces[rank], &model->stages[stage_index]));
        SL_TRY(place_tensors(model, stage_index, &pieces[rank]));
    }
    return SL_OK;
}

static sl_status open_stages(sl_megatron_model *model, bool has_stages)
{
    uint32_t layers = 0, said = model->shape.layers;
    for (uint32_t i = 0; i < model->pp_size; i++) {
        SL_TRY(open_stage(model, i, has_stages));
        model->stages[i].first_layer = layers;
        layers += model->stages[i].shape.layers;
    }
    if (said != 0 && said != layers)
        SL_FAIL(SL_ERROR_DATA, "%s: has %u layers in its pieces, and %u by its arguments",
                sl_files_show(model->path).text, layers, said);
    model->shape.layers = layers;
    return check_shape(model, &model->shape);
}

/* Once of all pieces, which one program wrote. */
static void warn_of_unchecked(const sl_megatron_model *model)
{
    for (uint32_t i = 0; i < model->tp_size * model->pp_size; i++)
        if (model->pieces[i].file.is_unchecked) {
            sl_log_write(SL_LOG_WARNING,
                         "%s: was written without checksums: damage to it would not be seen",
                         sl_files_show(model->pieces[i].file.file.path).text);
            return;
        }
}

static sl_status open_model(sl_megatron_model *model)
{
    bool has_stages;
    model->shape.architecture = sl_model_names_in_megatron();
    model->names = sl_model_names_of(&model->shape);
    SL_TRY(count_pieces(model, &has_stages));
    SL_TRY(open_pieces(model, has_stages));
    const piece *first = &model->pieces[0];
    SL_TRY(read_arguments(model, first));
    SL_TRY(read_version(model, first));
    SL_TRY(refuse_head(model, first));
    SL_TRY(complete_shape(model, first));
    SL_TRY(resolve_vocab(model));
    SL_TRY(count_layers(model, first, &model->stages[0]));
    SL_TRY(check_shape(model, &model->stages[0].shape));
    SL_TRY(check_heads(model));
    SL_TRY(open_stages(model, has_stages));
    warn_of_unchecked(model);
    return SL_OK;
}

sl_status sl_megatron_model_open(const char *path, uint32_t heads, sl_megatron_model **out_model)
{
    sl_megatron_model *model = calloc(1, sizeof *model);
    if (!model)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to open a model");
    model->given_heads = heads;
    sl_status status = sl_megatron_model_find(path, &model->path);
    if (status == SL_OK)
        status = open_model(model);
    if (status != SL_OK) {
        sl_megatron_model_close(model);
        return status;
    }
    snprintf(model->kind, sizeof model->kind,
             "Megatron-LM's pieces, %u x %u (tensor x pipeline parallel)", model->tp_size,
             model->pp_size);
    *out_model = model;
    return SL_OK;
}

void sl_megatron_model_close(sl_megatron_model *model)
{
    if (!model)
        return;
    for (uint32_t i = 0; model->pieces && i < model->tp_size * model->pp_size; i++) {
        free(model->pieces[i].tensors);
        sl_torch_file_close(&model->pieces[i].file);
    }
    free(model->pieces);
    free(model->stages);
    free(model->room);
    free(model->path);
    free(model);
}

sl_model_shape sl_megatron_model_shape(const sl_megatron_model *model)
{
    return model->shape;
}

const char *sl_megatron_model_path(const sl_megatron_model *model)
{
    return model->path;
}

const char *sl_megatron_model_kind(const sl_megatron_model *model)
{
    return model->kind;
}

/* ---- reading ---- */

/* A run of elements: in the piece of which rank, from where, and how many stand together. */
typedef struct run {
    uint64_t rank, first, count;
} run;

/* The row of a rank's query, key and value for that of all heads, one part after the other. */
static run find_head_row(const sl_megatron_model *model, uint64_t row)
{
    uint64_t width = model->shape.width, head_width = width / model->shape.heads;
    uint64_t heads = model->shape.heads / model->tp_size; /* of a rank */
    uint64_t part = row / width, head = row % width / head_width, element = row % head_width;
    uint64_t local = head % heads;
    run found = {.rank = head / heads, .count = head_width - element};
    if (model->version == 0)
        found.first = (part * heads + local) * head_width + element;
    else if (model->version == 1)
        found = (run){found.rank, (local * head_width + element) * 3 + part, 1};
    else
        found.first = (local * 3 + part) * head_width + element;
    return found;
}

static run find_run(const sl_megatron_model *model, const sl_foreign_tensor *tensor,
                    uint64_t element)
{
    const extent of = find_extent(tensor), local = find_local(model, tensor);
    uint64_t row = element / of.columns, column = element % of.columns;
    sl_megatron_split how = sl_model_tensors_kind(tensor)->split;
    if (how == SL_MEGATRON_HEADS) {
        run rows = find_head_row(model, row);
        return (run){rows.rank, rows.first * of.columns + column, rows.count * of.columns - column};
    }
    if (how == SL_MEGATRON_COLUMNS && model->tp_size > 1)
        return (run){column / local.columns, row * local.columns + column % local.columns,
                     local.columns - column % local.columns};
    if (how == SL_MEGATRON_ROWS)
        return (run){row / local.rows, row % local.rows * of.columns + column,
                     (local.rows - row % local.rows) * of.columns - column};
    return (run){0, element, of.rows * of.columns - element};
}

/* The piece of tensor-parallel rank 0 that has a tensor, and the tensor as that stage counts it. */
static piece *find_pieces(const sl_megatron_model *model, const sl_foreign_tensor *tensor,
                          uint32_t *out_index)
{
    uint32_t at = 0;
    sl_foreign_tensor local = *tensor;
    if (sl_model_tensors_is_of_layer(tensor)) {
        while (at + 1 < model->pp_size && tensor->layer >= model->stages[at + 1].first_layer)
            at++;
        local.layer -= model->stages[at].first_layer;
    } else if (sl_megatron_tensors_has_front(tensor)) {
        at = model->pp_size - 1;
    }
    *out_index = sl_model_tensors_index(&model->stages[at].shape, &local);
    return model->pieces + (uint64_t)at * model->tp_size;
}

/* Of a weight whose columns are divided, so many whole rows are read at once: what a piece has of
 * them stands together there. 0: fewer than two, or it is another tensor. */
static uint64_t count_rows_at_once(const sl_megatron_model *model, const sl_foreign_tensor *tensor,
                                   uint64_t first_element, uint64_t element_count)
{
    const extent of = find_extent(tensor), local = find_local(model, tensor);
    if (sl_model_tensors_kind(tensor)->split != SL_MEGATRON_COLUMNS || model->tp_size == 1 ||
        first_element % of.columns != 0)
        return 0;
    uint64_t rows = element_count / of.columns, most = ROOM_ELEMENTS / local.columns;
    rows = rows < most ? rows : most;
    return rows > 1 ? rows : 0;
}

static sl_status read_rows(const sl_megatron_model *model, const sl_foreign_tensor *tensor,
                           uint64_t first_row, uint64_t row_count, float *out_data)
{
    uint32_t index;
    piece *pieces = find_pieces(model, tensor, &index);
    const extent of = find_extent(tensor), local = find_local(model, tensor);
    for (uint32_t rank = 0; rank < model->tp_size; rank++) {
        SL_TRY(sl_torch_file_read(&pieces[rank].file, &pieces[rank].tensors[index],
                                  first_row * local.columns, row_count * local.columns,
                                  model->room));
        for (uint64_t row = 0; row < row_count; row++)
            memcpy(out_data + row * of.columns + rank * local.columns,
                   model->room + row * local.columns, local.columns * sizeof *out_data);
    }
    return SL_OK;
}

static sl_status read_run(const sl_megatron_model *model, const sl_foreign_tensor *tensor,
                          uint64_t first_element, uint64_t *element_count, float *out_data)
{
    uint32_t index;
    piece *pieces = find_pieces(model, tensor, &index);
    const run next = find_run(model, tensor, first_element);
    piece *self = &pieces[next.rank];
    if (next.count < *element_count)
        *element_count = next.count;
    return sl_torch_file_read(&self->file, &self->tensors[index], next.first, *element_count,
                              out_data);
}

sl_status sl_megatron_model_read(const sl_megatron_model *model, const sl_foreign_tensor *tensor,
                                 uint64_t first_element, uint64_t element_count, float *out_data)
{
    const uint64_t columns = find_extent(tensor).columns;
    while (element_count > 0) {
        uint64_t count = element_count;
        uint64_t rows = count_rows_at_once(model, tensor, first_element, element_count);
        if (rows > 0) {
            count = rows * columns;
            SL_TRY(read_rows(model, tensor, first_element / columns, rows, out_data));
        } else {
            SL_TRY(read_run(model, tensor, first_element, &count, out_data));
        }
        first_element += count;
        element_count -= count;
        out_data += count;
    }
    return SL_OK;
}
