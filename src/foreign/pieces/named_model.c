/* Finds the front of names, and then each tensor by its name; see named_model.h. */
#include "named_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "foreign/weights.h"
#include "formats.h"

enum { NAME_MAX_BYTES = 1280 };

static const char *const state_endings[SL_NAMED_STATES] = {".exp_avg", ".exp_avg_sq"};
static const char step_ending[] = ".step";

typedef struct full_name {
    char text[NAME_MAX_BYTES];
} full_name;

/* What stands before and behind the name of a tensor in a list of parts. */
typedef struct front {
    const sl_parts *parts;
    const char *start; /* not ended by a NUL */
    size_t bytes;
    bool is_bare; /* without the architecture's prefix */
} front;

typedef struct finder {
    const sl_named_model_args *args;
    const char *directory;
    const sl_model_names *names;
    sl_named_model *model;
    sl_model_pieces *pieces;
    bool *is_known; /* [weights.tensor_count] */
} finder;

static sl_weights_name name_tensor(const sl_model_names *names, const sl_foreign_tensor *tensor,
                                   bool is_bare)
{
    sl_weights_name bare;
    const sl_foreign_tensor_name name = sl_model_tensors_name(tensor);
    if (!is_bare)
        return sl_weights_whole_name(names, name.text);
    snprintf(bare.text, sizeof bare.text, "%.*s", (int)sizeof bare.text - 1, name.text);
    return bare;
}

static full_name join_name(const front *of, const char *name, const char *ending)
{
    full_name made;
    snprintf(made.text, sizeof made.text, "%.*s%s%s", (int)of->bytes, of->start, name, ending);
    return made;
}

/* ---- fronts ---- */

/* The front of a name that ends in another one behind a dot; false: it does not. */
static bool split_name(const char *name, const char *end, size_t *out_bytes)
{
    const size_t bytes = strlen(name), end_bytes = strlen(end);
    if (bytes < end_bytes || strcmp(name + bytes - end_bytes, end) != 0)
        return false;
    *out_bytes = bytes - end_bytes;
    return *out_bytes == 0 || name[*out_bytes - 1] == '.';
}

/* How many names end so; the front of one of them. */
static uint32_t count_fronts(const sl_parts *parts, const char *name, const char *ending,
                             front *out_front)
{
    uint32_t count = 0;
    size_t bytes;
    char end[NAME_MAX_BYTES];
    snprintf(end, sizeof end, "%s%s", name, ending);
    for (uint32_t i = 0; i < parts->tensor_count; i++)
        if (split_name(parts->tensors[i].name, end, &bytes)) {
            *out_front = (front){.parts = parts, .start = parts->tensors[i].name, .bytes = bytes};
            count++;
        }
    return count;
}

/* By the name of the model's first tensor, with the prefix or else without. `out_count`: how many
 * fronts there are. */
static void find_front(const finder *self, const sl_parts *parts, const char *ending,
                       front *out_front, uint32_t *out_count)
{
    const sl_foreign_tensor first = sl_model_tensors_nth(&self->model->shape, 0);
    *out_count =
        count_fronts(parts, name_tensor(self->names, &first, false).text, ending, out_front);
    if (*out_count > 0)
        return;
    *out_count =
        count_fronts(parts, name_tensor(self->names, &first, true).text, ending, out_front);
    out_front->is_bare = true;
}

/* ---- tensors ---- */

static bool has_shape(const finder *self, const sl_parted *parted, const sl_foreign_tensor *tensor)
{
    const bool is_across = tensor->is_linear && self->names->is_out_in;
    const uint64_t rows = is_across ? tensor->columns : tensor->rows;
    const uint64_t columns = is_across ? tensor->rows : tensor->columns;
    const sl_parts_shape *shape = &parted->shape;
    if (self->args->allows_flat && shape->dim_count == 1)
        return shape->sizes[0] == rows * columns;
    if (shape->dim_count != tensor->dim_count)
        return false;
    return shape->sizes[0] == rows && (shape->dim_count == 1 || shape->sizes[1] == columns);
}

static sl_status check_tensor(const finder *self, const sl_parted *parted,
                              const sl_foreign_tensor *tensor)
{
    if (has_shape(self, parted, tensor))
        return SL_OK;
    SL_FAIL(SL_ERROR_DATA,
            "%s: tensor \"%s\" has %u dimensions, the first of %" PRIu64
            ", and is not as large as config.json says",
            sl_files_show(self->directory).text, sl_files_show(parted->name).text,
            parted->shape.dim_count, parted->shape.dim_count ? parted->shape.sizes[0] : 0);
}

static const sl_parted *find_tensor(finder *self, const front *of, const sl_foreign_tensor *tensor,
                                    const char *ending)
{
    const sl_weights_name name = name_tensor(self->names, tensor, of->is_bare);
    const sl_parted *found = sl_parts_find(of->parts, join_name(of, name.text, ending).text);
    if (found && of->parts == &self->model->weights)
        self->is_known[found - of->parts->tensors] = true;
    return found;
}

static sl_status find_weights(finder *self, const front *of)
{
    for (uint32_t i = 0; i < self->model->tensor_count; i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(&self->model->shape, i);
        const sl_parted *found = find_tensor(self, of, &tensor, "");
        if (!found)
            SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is missing",
                    sl_files_show(self->directory).text, sl_model_tensors_name(&tensor).text);
        SL_TRY(check_tensor(self, found, &tensor));
        self->model->found[i] = found;
    }
    return SL_OK;
}

/* What has the front is the model's: without a front, what has the architecture's prefix. */
static sl_status check_known(const finder *self, const front *of)
{
    const sl_parts *parts = &self->model->weights;
    const char *prefix = self->names->prefix;
    const size_t prefix_bytes = strlen(prefix);
    for (uint32_t i = 0; i < parts->tensor_count; i++) {
        const char *name = parts->tensors[i].name;
        if (self->is_known[i] || strncmp(name, of->start, of->bytes) != 0)
            continue;
        name += of->bytes;
        const bool has_prefix = strncmp(name, prefix, prefix_bytes) == 0;
        if ((of->bytes == 0 && !has_prefix) ||
            self->names->is_buffer(has_prefix ? name + prefix_bytes : name))
            continue;
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is not one of a %s of this shape",
                sl_files_show(self->directory).text, sl_files_show(parts->tensors[i].name).text,
                self->names->title);
    }
    return SL_OK;
}

/* ---- states ---- */

static sl_status find_states(finder *self, const front *of)
{
    sl_named_model *model = self->model;
    for (uint32_t i = 0; i < SL_NAMED_STATES * model->tensor_count; i++) {
        const char *ending = state_endings[i / model->tensor_count];
        const sl_foreign_tensor tensor =
            sl_model_tensors_nth(&model->shape, i % model->tensor_count);
        const sl_parted *found = find_tensor(self, of, &tensor, ending);
        if (found)
            SL_TRY(check_tensor(self, found, &tensor));
        else if (!*self->pieces->no_states)
            snprintf(self->pieces->no_states, sizeof self->pieces->no_states, "%s%s is missing",
                     sl_model_tensors_name(&tensor).text, ending);
        model->found[model->tensor_count + i] = found;
    }
    return SL_OK;
}

static sl_status read_step(finder *self, sl_parts *parts, const sl_parted *step, uint64_t *out_step)
{
    float value;
    const float most = 16777216; /* 2^24: above it fp32 skips steps */
    if (step->rows * step->columns != 1)
        SL_FAIL(SL_ERROR_DATA, "%s: \"%s\" is not one number", sl_files_show(self->directory).text,
                sl_files_show(step->name).text);
    SL_TRY(sl_parts_read(parts, step, 0, 1, &value));
    if (!(value >= 0 && value <= most) || floorf(value) != value)
        SL_FAIL(SL_ERROR_DATA, "%s: \"%s\" is %g, which is no number of steps",
                sl_files_show(self->directory).text, sl_files_show(step->name).text, (double)value);
    *out_step = (uint64_t)value;
    return SL_OK;
}

/* The same of all tensors. UINT64_MAX: none has one. */
static sl_status find_step(finder *self, const front *of, uint64_t *out_step)
{
    sl_parts *parts =
        of->parts == &self->model->weights ? &self->model->weights : &self->model->states;
    *out_step = UINT64_MAX;
    for (uint32_t i = 0; i < self->model->tensor_count; i++) {
        uint64_t step;
        const sl_foreign_tensor tensor = sl_model_tensors_nth(&self->model->shape, i);
        const sl_parted *found = find_tensor(self, of, &tensor, step_ending);
        if (!found)
            continue;
        SL_TRY(read_step(self, parts, found, &step));
        if (*out_step != UINT64_MAX && *out_step != step)
            SL_FAIL(SL_ERROR_DATA,
                    "%s: \"%s\" is %" PRIu64 ", and %" PRIu64 " of a tensor before: a run here has "
                    "one number of steps",
                    sl_files_show(self->directory).text, sl_files_show(found->name).text, step,
                    *out_step);
        *out_step = step;
    }
    return SL_OK;
}

static sl_status open_states(finder *self)
{
    front of = {0};
    uint32_t count;
    sl_model_pieces *pieces = self->pieces;
    const sl_named_model *model = self->model;
    const sl_parts *parts = model->states.tensor_count > 0 ? &model->states : &model->weights;
    find_front(self, parts, state_endings[0], &of, &count);
    if (count > 1)
        SL_FAIL(SL_ERROR_DATA, "%s: has states of %u optimizers",
                sl_files_show(self->directory).text, count);
    if (count == 0) {
        snprintf(pieces->no_states, sizeof pieces->no_states,
                 "none under the names of the model's tensors");
        return SL_OK;
    }
    SL_TRY(find_states(self, &of));
    SL_TRY(find_step(self, &of, &pieces->step));
    if (pieces->step == UINT64_MAX)
        pieces->step = self->args->step;
    if (!*pieces->no_states && pieces->step == UINT64_MAX)
        snprintf(pieces->no_states, sizeof pieces->no_states, "the number of steps is not said");
    pieces->has_states = !*pieces->no_states;
    return SL_OK;
}

/* ---- all ---- */

/* Before the first element is read. */
static sl_status check_archives(const finder *self)
{
    sl_named_model *model = self->model;
    for (uint32_t i = 0; i < (1 + SL_NAMED_STATES) * model->tensor_count; i++) {
        const bool is_weight = i < model->tensor_count || model->states.tensor_count == 0;
        if (model->found[i])
            SL_TRY(sl_parts_check(is_weight ? &model->weights : &model->states, model->found[i]));
    }
    if (model->weights.is_unchecked || model->states.is_unchecked)
        sl_log_write(SL_LOG_WARNING,
                     "%s: was written without checksums: damage to it would not be seen",
                     sl_files_show(self->directory).text);
    return SL_OK;
}

static sl_status find_all(finder *self)
{
    front of = {0};
    uint32_t count;
    const sl_model_shape *shape = &self->model->shape;
    const sl_foreign_tensor first = sl_model_tensors_nth(shape, 0);
    find_front(self, &self->model->weights, "", &of, &count);
    if (count == 0)
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is missing, whatever stands in front of it",
                sl_files_show(self->directory).text, name_tensor(self->names, &first, false).text);
    if (count > 1)
        SL_FAIL(SL_ERROR_DATA, "%s: has the weights of %u models",
                sl_files_show(self->directory).text, count);
    SL_TRY(find_weights(self, &of));
    SL_TRY(open_states(self));
    SL_TRY(check_known(self, &of));
    return check_archives(self);
}

static sl_status open_model(finder *self)
{
    sl_named_model *model = self->model;
    SL_TRY(sl_weights_read_config(self->directory, &model->shape));
    if (sl_model_shape_check(&model->shape, 1) != SL_OK)
        return sl_status_prefix(SL_ERROR_DATA, "%s", sl_files_show(self->directory).text);
    self->names = sl_model_names_of(&model->shape);
    model->tensor_count = sl_model_tensors_count(&model->shape);
    model->found = calloc((1ull + SL_NAMED_STATES) * model->tensor_count, sizeof *model->found);
    self->is_known = calloc(model->weights.tensor_count + 1ull, sizeof *self->is_known);
    if (!model->found || !self->is_known)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", model->tensor_count);
    return find_all(self);
}

static void close_model(void *user)
{
    sl_named_model *model = user;
    sl_parts_close(&model->weights);
    sl_parts_close(&model->states);
    free(model->found);
    free(model);
}

sl_status sl_named_model_need_config(const char *directory, const char *what)
{
    if (sl_model_pieces_has(directory, "config.json"))
        return SL_OK;
    SL_FAIL(SL_ERROR_DATA,
            "%s: %s says no shape of the model: put the model's config.json there "
            "(model.config.save_pretrained)",
            sl_files_show(directory).text, what);
}

sl_status sl_named_model_open(const sl_named_model_args *args, sl_parts *weights, sl_parts *states,
                              sl_model_pieces *pieces)
{
    sl_named_model *model = calloc(1, sizeof *model);
    if (!model) {
        sl_parts_close(weights);
        sl_parts_close(states);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to open a model");
    }
    model->weights = *weights;
    model->states = *states;
    *weights = *states = (sl_parts){0};
    finder self = {.args = args, .directory = args->directory, .model = model, .pieces = pieces};
    const sl_status status = open_model(&self);
    free(self.is_known);
    if (status != SL_OK) {
        close_model(model);
        return status;
    }
    pieces->ops = &sl_named_model_ops;
    pieces->self = model;
    pieces->shape = model->shape;
    pieces->is_out_in = self.names && self.names->is_out_in;
    return SL_OK;
}

static sl_status read_model(void *user, sl_group group, const sl_foreign_tensor *tensor,
                            uint64_t first_element, uint64_t element_count, float *out_data)
{
    sl_named_model *model = user;
    const uint32_t kind = group == SL_GROUP_PARAM ? 0 : group == SL_GROUP_STATE1 ? 1 : 2;
    const uint32_t index = sl_model_tensors_index(&model->shape, tensor);
    const sl_parted *found = model->found[(uint64_t)kind * model->tensor_count + index];
    if (!found)
        SL_FAIL(SL_ERROR_DATA, "tensor \"%s\" has no such state",
                sl_model_tensors_name(tensor).text);
    const bool is_weight = kind == 0 || model->states.tensor_count == 0;
    return sl_parts_read(is_weight ? &model->weights : &model->states, found, first_element,
                         element_count, out_data);
}

const sl_model_pieces_ops sl_named_model_ops = {.read = read_model, .close = close_model};
