/* A checkpoint of this program from pieces with an optimizer's states: what `train --resume` goes
 * on from. The checkpoint's own writer asks for runs of elements in the program's order, which are
 * read from the pieces, a linear weight through a window that lays it across. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "checkpoint/steps.h"
#include "convert.h"
#include "foreign/pieces/model_pieces.h"
#include "target.h"
#include "tensors/across.h"

/* Who reads one group after the other, tensor by tensor. */
typedef struct origin {
    const sl_convert_args *args;
    const sl_model_pieces *pieces;
    sl_across across;
    sl_group group;
    sl_foreign_tensor tensor;
    bool is_set;
    uint64_t done_bytes, total_bytes;
} origin;

static sl_status read_stored(void *user, uint64_t first_element, uint64_t element_count,
                             float *out_data)
{
    const origin *self = user;
    return sl_model_pieces_read(self->pieces, self->group, &self->tensor, first_element,
                                element_count, out_data);
}

static void turn_to(origin *self, sl_group group, const sl_foreign_tensor *tensor)
{
    const sl_across_source matrix = {.from = {read_stored, self},
                                     .rows = tensor->rows,
                                     .columns = tensor->columns,
                                     .path = self->pieces->path,
                                     .name = sl_model_tensors_kind(tensor)->name};
    self->group = group;
    self->tensor = *tensor;
    self->is_set = true;
    sl_across_set(&self->across, &matrix);
}

static sl_status read_elements(void *user, sl_group group, uint32_t tensor_index,
                               uint64_t first_element, uint64_t element_count, float *data)
{
    origin *self = user;
    const sl_convert_args *args = self->args;
    const sl_foreign_tensor tensor = sl_model_tensors_nth(&self->pieces->shape, tensor_index);
    const bool is_same = self->is_set && self->group == group && self->tensor.kind == tensor.kind &&
                         self->tensor.layer == tensor.layer;
    if (!is_same)
        turn_to(self, group, &tensor);
    if (tensor.is_linear && self->pieces->is_out_in)
        SL_TRY(sl_across_read(&self->across, first_element, element_count, data));
    else
        SL_TRY(read_stored(self, first_element, element_count, data));
    self->done_bytes += element_count * sizeof *data;
    return args->progress ? args->progress(args->user, self->done_bytes, self->total_bytes) : SL_OK;
}

static sl_status check_source(const sl_convert_args *args)
{
    const sl_model_pieces *pieces = args->reader->source.pieces;
    if (args->encoding != SL_ENCODING_FP32)
        SL_FAIL(SL_ERROR_USAGE, "--type %s: a checkpoint is fp32",
                sl_encoding_name(args->encoding));
    if (!pieces)
        SL_FAIL(SL_ERROR_USAGE,
                "--format checkpoint is for pieces with an optimizer's states: %s is %s; "
                "train --init takes its weights as they are",
                sl_files_show(args->reader->path).text, args->reader->kind);
    if (!pieces->has_states)
        SL_FAIL(SL_ERROR_DATA,
                "%s: has no states of an optimizer to go on from (%s); train --init takes its "
                "weights, and begins with states of 0",
                sl_files_show(pieces->path).text, pieces->no_states);
    return SL_OK;
}

static sl_status check_place(const sl_convert_args *args)
{
    bool is_used;
    uint64_t step;
    SL_TRY(sl_checkpoint_newest_step(args->to, &is_used, &step));
    if (!is_used || args->overwrites)
        return SL_OK;
    SL_FAIL(SL_ERROR_USAGE,
            "--to %s: holds checkpoints already: name another directory, or replace them with "
            "--overwrite",
            sl_files_show(args->to).text);
}

static sl_status remove_others(const sl_convert_args *args, uint64_t step)
{
    int fd;
    SL_TRY(sl_files_open_directory(AT_FDCWD, NULL, args->to, SL_LINKS_FOLLOW, &fd));
    sl_steps_remove_others(fd, args->to, step);
    close(fd);
    return SL_OK;
}

static sl_status save(origin *self, const sl_tensor_spec *tensors, uint32_t tensor_count)
{
    static const bool has_state[SL_GROUP_COUNT] = {
        [SL_GROUP_PARAM] = true, [SL_GROUP_STATE1] = true, [SL_GROUP_STATE2] = true};
    char vocabulary_name[SL_VOCABULARY_NAME_BYTES];
    const sl_convert_args *args = self->args;
    const sl_checkpoint_state state = {.step = self->pieces->step, .loss_scale = 1};
    const sl_tensor_io io = {.read = read_elements, .user = self};
    sl_checkpoint_save_args saving = {.directory = args->to,
                                      .shape = &self->pieces->shape,
                                      .tensors = tensors,
                                      .tensor_count = tensor_count,
                                      .has_state = has_state,
                                      .io = &io,
                                      .state = &state,
                                      .precision = SL_TYPE_FP32,
                                      .config_json = "{}",
                                      .given_json = "{}",
                                      .gemm = "",
                                      .data_fingerprint = ""};
    if (args->vocabulary) {
        SL_TRY(sl_vocabulary_name(args->vocabulary, vocabulary_name));
        saving.vocabulary = args->vocabulary;
        saving.tokenizer = vocabulary_name;
    }
    SL_TRY(sl_checkpoint_check_space(&saving, 1, args->overwrites));
    SL_TRY(sl_checkpoint_save(&saving));
    return args->overwrites ? remove_others(args, state.step) : SL_OK;
}

static sl_status open_and_save(origin *self, sl_convert_report *out_report)
{
    const sl_model_shape *shape = &self->pieces->shape;
    const uint32_t count = sl_model_tensors_count(shape);
    const uint64_t parameters = sl_model_shape_parameters(shape);
    self->total_bytes = 3 * parameters * sizeof(float);
    *out_report = (sl_convert_report){
        .tensor_count = count, .parameter_count = parameters, .bytes = self->total_bytes};
    SL_TRY(sl_across_open(sl_model_tensors_largest_linear(shape), SL_ACROSS_WINDOW_ELEMENTS,
                          &self->across));
    sl_tensor_spec *tensors = calloc(count, sizeof *tensors);
    sl_status status =
        tensors ? SL_OK
                : sl_status_fail(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", count);
    if (status == SL_OK) {
        sl_model_tensors_specify(shape, tensors);
        status = save(self, tensors, count);
    }
    free(tensors);
    sl_across_close(&self->across);
    return status;
}

sl_status sl_target_save_checkpoint(const sl_convert_args *args, sl_convert_report *out_report)
{
    SL_TRY(check_source(args));
    SL_TRY(check_place(args));
    origin self = {.args = args, .pieces = args->reader->source.pieces};
    SL_TRY(open_and_save(&self, out_report));
    sl_log_write(
        SL_LOG_NOTE,
        "go on with: sluice train --resume --save %s; what the other program was told "
        "(--lr, --beta2, --weight-decay, --steps, --data, ...) is not in it: give it again",
        sl_files_show(args->to).text);
    return SL_OK;
}
