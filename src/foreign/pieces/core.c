/* Megatron Core's distributed checkpoint of a GPT-2 (--ckpt-format torch_dist): what torch's is
 * (distributed.h), under Megatron Core's names, with what the ranks have in common beside it,
 *
 *   DIR/latest_checkpointed_iteration.txt             names the iteration; or DIR is one itself
 *   DIR/iter_0000100/metadata.json, .metadata, __0_0.distcp
 *   DIR/iter_0000100/common.pt                        arguments, the optimizer's step
 *
 * A tensor is whole there whatever ranks had it: linear weights are [out, in], rows of query, key
 * and value by head, then part, then element. Layers are tensors of their own
 * ("decoder.layers.0.mlp.linear_fc1.weight"), or one behind the other in a tensor for all
 * ("decoder.layers.mlp.linear_fc1.weight"). States of the optimizer are read where each has the
 * shape of its parameter, and with them the fp32 parameters of a run in half precision.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/log.h"
#include "distributed.h"
#include "foreign/megatron_arguments.h"
#include "foreign/megatron_model.h"
#include "foreign/megatron_tensors.h"
#include "formats.h"

enum {
    KINDS = 3,
    LAYERS_MAX = 4096,
    VOCAB_RANKS_MAX = 64,
    CORE_NAME_BYTES = 256,
    STATE_NAME_BYTES = 2 * CORE_NAME_BYTES
};

static const char common_name[] = "common.pt", mark_name[] = "metadata.json";
static const char state_front[] = "optimizer.state.";
static const char *const state_names[KINDS] = {NULL, "exp_avg", "exp_avg_sq"};
/* fp32 parameters of a run in half precision: of one optimizer, of a distributed one. */
static const char *const master_names[] = {"fp32_param", "param"};

/* A parameter or state: all of a tensor, or of one that has all layers the elements from `first`
 * on. */
typedef struct found {
    const sl_parted *parted;
    uint64_t first;
} found;

typedef struct core_model {
    sl_parts parts;
    const sl_model_names *names;
    sl_model_shape shape;
    found *found[KINDS]; /* [tensor_count] each: parameters, states */
    uint32_t tensor_count;
} core_model;

typedef struct core_name {
    char text[CORE_NAME_BYTES];
} core_name;

/* ---- where it is ---- */

static bool is_at(const char *path)
{
    char *directory = NULL;
    if (sl_megatron_model_find(path, &directory) != SL_OK)
        return false;
    const bool is_one =
        sl_distributed_is_at(directory) && sl_model_pieces_has(directory, mark_name);
    free(directory);
    return is_one;
}

/* ---- names ---- */

static const sl_parted *find_named(const core_model *self, const char *state, const char *name)
{
    char full[STATE_NAME_BYTES];
    if (!state)
        return sl_parts_find(&self->parts, name);
    snprintf(full, sizeof full, "%s%s.%s", state_front, state, name);
    return sl_parts_find(&self->parts, full);
}

/* Under one of its names; of a layer, its own tensor or its part of the one of all layers. */
static found find_tensor(const core_model *self, const char *state, const sl_foreign_tensor *tensor)
{
    const char *const *names = sl_model_tensors_kind(tensor)->megatron;
    const uint64_t count = tensor->rows * tensor->columns;
    for (int i = 0; i < SL_MEGATRON_NAMES_MAX && names[i]; i++) {
        core_name all;
        const sl_megatron_name own =
            sl_megatron_tensors_name(tensor, SL_MEGATRON_CORE_FRONT, names[i]);
        const sl_parted *parted = find_named(self, state, own.text);
        if (parted || !sl_model_tensors_is_of_layer(tensor)) {
            if (parted)
                return (found){parted, 0};
            continue;
        }
        snprintf(all.text, sizeof all.text, "%s.layers.%s", SL_MEGATRON_CORE_FRONT, names[i]);
        parted = find_named(self, state, all.text);
        if (parted)
            return (found){parted, tensor->layer * count};
    }
    return (found){NULL, 0};
}

/* ---- the shape ---- */

/* Sizes of a tensor without those in front of the last `dim_count`. */
static bool has_sizes(const sl_parted *parted, uint32_t dim_count, const uint64_t *sizes,
                      bool of_all_layers, uint32_t layers)
{
    const sl_parts_shape *shape = &parted->shape;
    const uint32_t more = of_all_layers;
    if (shape->dim_count != dim_count + more || (of_all_layers && shape->sizes[0] != layers))
        return false;
    for (uint32_t i = 0; i < dim_count; i++)
        if (shape->sizes[i + more] != sizes[i])
            return false;
    return true;
}

/* The embedding may have rows that only pad ids. */
static bool has_shape(const core_model *self, const sl_parted *parted,
                      const sl_foreign_tensor *tensor)
{
    const uint64_t sizes[] = {tensor->is_linear ? tensor->columns : tensor->rows,
                              tensor->is_linear ? tensor->rows : tensor->columns};
    const bool is_of_layer = sl_model_tensors_is_of_layer(tensor);
    if (sl_model_tensors_kind(tensor)->rows == SL_SIZE_VOCAB)
        return parted->shape.dim_count == 2 && parted->shape.sizes[0] >= sizes[0] &&
               parted->shape.sizes[1] == sizes[1];
    return has_sizes(parted, tensor->dim_count, sizes, false, 0) ||
           (is_of_layer && has_sizes(parted, tensor->dim_count, sizes, true, self->shape.layers));
}

/* Layers that have tensors of their own, or as many as one of all has. */
static uint32_t count_layers(const core_model *self)
{
    sl_foreign_tensor tensor = {.names = self->names, .kind = self->names->first_of_layer};
    while (tensor.kind + 1 < self->names->behind_layers &&
           self->names->kinds[tensor.kind].split != SL_MEGATRON_HEADS)
        tensor.kind++;
    found first = find_tensor(self, NULL, &tensor);
    if (first.parted && first.parted->shape.dim_count == 3)
        return first.parted->shape.sizes[0] <= LAYERS_MAX ? (uint32_t)first.parted->shape.sizes[0]
                                                          : 0;
    while (tensor.layer < LAYERS_MAX && find_tensor(self, NULL, &tensor).parted)
        tensor.layer++;
    return tensor.layer;
}

static sl_status need_size(const char *path, const char *what, uint64_t said, uint64_t there)
{
    if (said == there)
        return SL_OK;
    SL_FAIL(SL_ERROR_DATA,
            "%s: has %" PRIu64 " %s by its arguments, and %" PRIu64 " in its tensors",
            sl_files_show(path).text, said, what, there);
}

/* The published number of ids where the rows fit it, padded for some number of ranks. */
static void resolve_vocab(core_model *self, uint64_t rows)
{
    const uint32_t published = sl_architecture_ids(self->shape.architecture);
    for (uint64_t ranks = 1; self->shape.vocab == 0 && ranks <= VOCAB_RANKS_MAX; ranks *= 2)
        if (rows == sl_bits_round_up(published, SL_MEGATRON_VOCAB_UNIT * ranks)) {
            self->shape.vocab = published;
            sl_log_write(SL_LOG_NOTE,
                         "the number of ids is not said: of %" PRIu64 " rows those of %s's %u ids "
                         "are taken, the others are padding",
                         rows, self->names->title, published);
        }
    if (self->shape.vocab == 0)
        self->shape.vocab = (uint32_t)rows;
}

static sl_status complete_shape(core_model *self, const sl_model_pieces_args *args,
                                const char *path)
{
    sl_model_shape *shape = &self->shape;
    const sl_foreign_tensor of_words = {self->names,
                                        sl_model_tensors_find(self->names, SL_SIZE_VOCAB)};
    const sl_foreign_tensor of_positions = {self->names,
                                            sl_model_tensors_find(self->names, SL_SIZE_CONTEXT)};
    const sl_parted *words = find_tensor(self, NULL, &of_words).parted;
    const sl_parted *positions = find_tensor(self, NULL, &of_positions).parted;
    const uint32_t layers = count_layers(self);
    if (!words || !positions || layers == 0 || words->shape.dim_count != 2 ||
        positions->shape.dim_count != 2 || words->rows > INT32_MAX || words->columns > INT32_MAX ||
        positions->rows > INT32_MAX)
        SL_FAIL(SL_ERROR_DATA, "%s: has no embeddings of words and positions, or no layers",
                sl_files_show(path).text);
    SL_TRY(need_size(path, "layers", shape->layers ? shape->layers : layers, layers));
    SL_TRY(
        need_size(path, "features", shape->width ? shape->width : words->columns, words->columns));
    SL_TRY(need_size(path, "positions", shape->context ? shape->context : positions->rows,
                     positions->rows));
    shape->layers = layers;
    shape->width = (uint32_t)words->columns;
    shape->context = (uint32_t)positions->rows;
    resolve_vocab(self, words->rows);
    if (shape->heads == 0)
        shape->heads = args->heads;
    if (shape->heads > 0)
        return SL_OK;
    const uint32_t head_width = self->names->megatron_head_width;
    shape->heads = shape->width >= head_width ? shape->width / head_width : 1;
    sl_log_write(SL_LOG_WARNING,
                 "%s says no number of heads: %u are taken, %u wide as %s's; --heads N of train "
                 "and convert takes another number",
                 sl_files_show(path).text, shape->heads, head_width, self->names->title);
    return SL_OK;
}

/* ---- common.pt ---- */

/* Updates of AdamW, of an optimizer alone or within another that has its loss scale; else the
 * iterations of the run. UINT64_MAX: neither is said. */
static uint64_t find_step(const sl_pickle_value *root)
{
    static const char *const steps[] = {"optimizer.optimizer.state.common_step",
                                        "optimizer.state.common_step"};
    static const char *const groups[] = {"optimizer.optimizer.param_groups",
                                         "optimizer.param_groups"};
    uint64_t step;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (sl_pickle_get_u64(sl_pickle_find(root, steps[i]), 0, INT32_MAX, &step))
            return step;
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        const sl_pickle_value *first =
            sl_pickle_item(sl_pickle_find(root, groups[i]), SL_PICKLE_LIST, 0);
        if (sl_pickle_get_u64(sl_pickle_get(first, "step"), 0, INT32_MAX, &step))
            return step;
    }
    return sl_pickle_get_u64(sl_pickle_get(root, "iteration"), 0, INT32_MAX, &step) ? step
                                                                                    : UINT64_MAX;
}

static sl_status read_common(core_model *self, const char *path, uint64_t *out_step)
{
    char *common = NULL;
    sl_torch_file file;
    *out_step = UINT64_MAX;
    if (!sl_model_pieces_has(path, common_name))
        return SL_OK;
    SL_TRY(sl_files_join_path(path, common_name, &common));
    sl_status status = sl_torch_file_open(common, &file);
    if (status == SL_OK) {
        const sl_megatron_arguments arguments = {
            .path = common,
            .names = self->names,
            .values = sl_pickle_attributes(sl_pickle_get(file.root, "args"))};
        if (arguments.values)
            status = sl_megatron_arguments_read_shape(&arguments, &self->shape);
        *out_step = find_step(file.root);
        sl_torch_file_close(&file);
    }
    free(common);
    return status;
}

/* ---- tensors ---- */

static sl_status refuse_head(const core_model *self, const char *path)
{
    if (!sl_parts_find(&self->parts, "output_layer.weight"))
        return SL_OK;
    SL_FAIL(SL_ERROR_DATA, "%s: has a head of its own (output_layer.weight): %s's is the embedding",
            sl_files_show(path).text, self->names->title);
}

static sl_status place_weights(core_model *self, const char *path)
{
    for (uint32_t i = 0; i < self->tensor_count; i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(&self->shape, i);
        const found next = find_tensor(self, NULL, &tensor);
        const sl_megatron_name name = sl_megatron_tensors_core_name(&tensor);
        if (!next.parted)
            SL_FAIL(SL_ERROR_DATA, "%s: has no tensor \"%s\"", sl_files_show(path).text, name.text);
        if (!has_shape(self, next.parted, &tensor))
            SL_FAIL(SL_ERROR_DATA,
                    "%s: tensor \"%s\" has %u dimensions, the first of %" PRIu64
                    ", and is not as large as the model needs",
                    sl_files_show(path).text, sl_files_show(next.parted->name).text,
                    next.parted->shape.dim_count, next.parted->shape.sizes[0]);
        self->found[0][i] = next;
        SL_TRY(sl_parts_check(&self->parts, next.parted));
    }
    return SL_OK;
}

/* All of one kind, or none of it. False: one is missing, or has another shape. */
static sl_status place_states(core_model *self, const char *name, found *out_found,
                              bool *out_has_all)
{
    *out_has_all = false;
    for (uint32_t i = 0; i < self->tensor_count; i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(&self->shape, i);
        const found next = find_tensor(self, name, &tensor);
        if (!next.parted || !has_shape(self, next.parted, &tensor))
            return SL_OK;
        out_found[i] = next;
        SL_TRY(sl_parts_check(&self->parts, next.parted));
    }
    *out_has_all = true;
    return SL_OK;
}

/* fp32 parameters take the place of those that were rounded. */
static sl_status find_masters(core_model *self)
{
    sl_status status = SL_OK;
    bool has_all = false;
    const size_t count = sizeof master_names / sizeof master_names[0];
    found *masters = calloc(self->tensor_count, sizeof *masters);
    if (!masters)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", self->tensor_count);
    for (size_t i = 0; status == SL_OK && !has_all && i < count; i++)
        status = place_states(self, master_names[i], masters, &has_all);
    if (status == SL_OK && has_all)
        memcpy(self->found[0], masters, self->tensor_count * sizeof *masters);
    free(masters);
    return status;
}

static sl_status find_states(core_model *self, uint64_t step, sl_model_pieces *pieces)
{
    bool has_all = step != UINT64_MAX;
    if (!has_all)
        snprintf(pieces->no_states, sizeof pieces->no_states, "the number of steps is not said");
    SL_TRY(find_masters(self));
    for (uint32_t kind = 1; has_all && kind < KINDS; kind++) {
        SL_TRY(place_states(self, state_names[kind], self->found[kind], &has_all));
        if (!has_all)
            snprintf(pieces->no_states, sizeof pieces->no_states,
                     "%s%s is not there of each parameter in its shape", state_front,
                     state_names[kind]);
    }
    pieces->has_states = has_all;
    pieces->step = has_all ? step : 0;
    return SL_OK;
}

/* ---- reading ---- */

/* Where a row of query, key and value of all heads lies: by head, then part, then element. The rows
 * behind it, up to the head's last, follow it. */
static uint64_t find_head_row(const core_model *self, uint64_t row, uint64_t *out_count)
{
    const uint64_t width = self->shape.width, head_width = width / self->shape.heads;
    const uint64_t part = row / width, head = row % width / head_width, element = row % head_width;
    *out_count = head_width - element;
    return (head * 3 + part) * head_width + element;
}

static sl_status read_model(void *user, sl_group group, const sl_foreign_tensor *tensor,
                            uint64_t first_element, uint64_t element_count, float *out_data)
{
    core_model *self = user;
    const uint32_t kind = group == SL_GROUP_PARAM ? 0 : group == SL_GROUP_STATE1 ? 1 : 2;
    const found from = self->found[kind][sl_model_tensors_index(&self->shape, tensor)];
    const uint64_t columns = tensor->is_linear ? tensor->rows : tensor->columns;
    if (sl_model_tensors_kind(tensor)->split != SL_MEGATRON_HEADS)
        return sl_parts_read(&self->parts, from.parted, from.first + first_element, element_count,
                             out_data);
    for (uint64_t done = 0, count; done < element_count; done += count) {
        uint64_t rows;
        const uint64_t at = first_element + done, column = at % columns;
        const uint64_t row = find_head_row(self, at / columns, &rows);
        count = sl_bits_min(element_count - done, rows * columns - column);
        SL_TRY(sl_parts_read(&self->parts, from.parted, from.first + row * columns + column, count,
                             out_data + done));
    }
    return SL_OK;
}

static void close_model(void *user)
{
    core_model *self = user;
    sl_parts_close(&self->parts);
    for (int i = 0; i < KINDS; i++)
        free(self->found[i]);
    free(self);
}

static const sl_model_pieces_ops ops = {.read = read_model, .close = close_model};

/* ---- all ---- */

static sl_status place_all(core_model *self, const char *path, uint64_t step,
                           sl_model_pieces *pieces)
{
    if (sl_model_shape_check(&self->shape, 1) != SL_OK)
        return sl_status_prefix(SL_ERROR_DATA, "%s", sl_files_show(path).text);
    self->tensor_count = sl_model_tensors_count(&self->shape);
    for (int i = 0; i < KINDS; i++) {
        self->found[i] = calloc(self->tensor_count, sizeof(found));
        if (!self->found[i])
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", self->tensor_count);
    }
    SL_TRY(refuse_head(self, path));
    SL_TRY(place_weights(self, path));
    SL_TRY(find_states(self, step, pieces));
    if (self->parts.is_unchecked)
        sl_log_write(SL_LOG_WARNING,
                     "%s: was written without checksums: damage to it would not be seen",
                     sl_files_show(path).text);
    return SL_OK;
}

static sl_status open_model(core_model *self, const sl_model_pieces_args *args,
                            sl_model_pieces *pieces)
{
    uint64_t step;
    self->shape.architecture = sl_model_names_in_megatron();
    self->names = sl_model_names_of(&self->shape);
    SL_TRY(sl_distributed_open(pieces->path, &self->parts));
    SL_TRY(read_common(self, pieces->path, &step));
    SL_TRY(complete_shape(self, args, pieces->path));
    return place_all(self, pieces->path, step, pieces);
}

static sl_status open_pieces(const sl_model_pieces_args *args, sl_model_pieces *pieces)
{
    char *directory = NULL;
    SL_TRY(sl_megatron_model_find(args->path, &directory));
    free(pieces->path);
    pieces->path = directory;
    core_model *self = calloc(1, sizeof *self);
    if (!self)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to open a model");
    const sl_status status = open_model(self, args, pieces);
    if (status != SL_OK) {
        close_model(self);
        return status;
    }
    pieces->ops = &ops;
    pieces->self = self;
    pieces->shape = self->shape;
    pieces->is_out_in = true;
    snprintf(pieces->kind, sizeof pieces->kind, "Megatron Core's distributed checkpoint, %u files",
             self->parts.file_count);
    return SL_OK;
}

const sl_model_pieces_format sl_model_pieces_core = {.is_at = is_at, .open = open_pieces};
