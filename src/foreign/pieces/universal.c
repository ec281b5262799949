/* DeepSpeed's universal layout, as its ds_to_universal makes it of pieces of any ZeRO stage: a
 * directory for each parameter, a file for each of its states,
 *
 *   DIR/config.json                          the model's
 *   DIR/zero/NAME/fp32.pt, exp_avg.pt, exp_avg_sq.pt
 *   DIR/zero/NAME/step.pt                    of stages 1 and 2
 *   DIR/mp_rank_00_model_states.pt, or DIR/zero_pp_rank_0_mp_rank_00_model_states.pt of stage 3
 *
 * or a directory with `latest_universal`, which names DIR in it. Names are transformers'. A file is
 * {"param": tensor, ...}, or of stage 3 the tensor alone, as one run of elements.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats.h"
#include "named_model.h"

enum { TAG_BYTES_MAX = 255, TENSORS_MAX = 1 << 16, STEPS_MAX = 1 << 24 };

static const char parameters_name[] = "zero", tag_name[] = "latest_universal";

static bool is_at(const char *path)
{
    return sl_model_pieces_has(path, tag_name) || sl_model_pieces_has(path, parameters_name);
}

/* The directory that the tag names, or `path` itself. */
static sl_status find_directory(const char *path, char **out_directory)
{
    sl_file file;
    char *text = NULL, *tag_path = NULL;
    if (!sl_model_pieces_has(path, tag_name))
        return sl_files_join_path(NULL, path, out_directory);
    SL_TRY(sl_files_join_path(path, tag_name, &tag_path));
    sl_status status = sl_files_open(AT_FDCWD, NULL, tag_path, SL_LINKS_FOLLOW, &file);
    free(tag_path);
    SL_TRY(status);
    status = sl_files_read_text(&file, TAG_BYTES_MAX, &text);
    sl_files_close(&file);
    SL_TRY(status);
    text[strcspn(text, "\r\n")] = '\0';
    if (!*text || strchr(text, '/') || strcmp(text, "..") == 0)
        status = sl_status_fail(SL_ERROR_DATA, "%s/%s: says \"%s\", which is no directory in it",
                                sl_files_show(path).text, tag_name, sl_files_show(text).text);
    if (status == SL_OK)
        status = sl_files_join_path(path, text, out_directory);
    free(text);
    return status;
}

/* ---- steps ---- */

typedef struct reader {
    const char *directory, *parameters; /* the second: DIR/zero */
    sl_parts *parts;
    uint64_t step; /* UINT64_MAX: not said so far */
} reader;

/* A tensor of one number, or a number. */
static sl_status read_number(sl_torch_file *file, uint64_t *out_step)
{
    sl_torch_tensor tensor;
    float value;
    if (sl_pickle_get_u64(file->root, 0, STEPS_MAX, out_step))
        return SL_OK;
    if (sl_torch_file_find(file, file->root, &tensor) != SL_OK || tensor.element_count != 1)
        SL_FAIL(SL_ERROR_DATA, "%s: is no number of steps", sl_files_show(file->file.path).text);
    SL_TRY(sl_torch_file_read(file, &tensor, 0, 1, &value));
    if (!(value >= 0 && value <= STEPS_MAX) || value != (float)(uint64_t)value)
        SL_FAIL(SL_ERROR_DATA, "%s: is %g, which is no number of steps",
                sl_files_show(file->file.path).text, (double)value);
    *out_step = (uint64_t)value;
    return SL_OK;
}

/* The steps of all parameters are the same. */
static sl_status read_step(reader *self, const char *directory)
{
    char *path = NULL;
    sl_torch_file file;
    uint64_t step = 0;
    if (!sl_model_pieces_has(directory, "step.pt"))
        return SL_OK;
    SL_TRY(sl_files_join_path(directory, "step.pt", &path));
    sl_status status = sl_torch_file_open(path, &file);
    if (status == SL_OK) {
        status = read_number(&file, &step);
        sl_torch_file_close(&file);
    }
    if (status == SL_OK && self->step != UINT64_MAX && self->step != step)
        status = sl_status_fail(SL_ERROR_DATA,
                                "%s: is %" PRIu64 ", and %" PRIu64
                                " of a parameter before: a run here has one number of steps",
                                sl_files_show(path).text, step, self->step);
    free(path);
    if (status == SL_OK)
        self->step = step;
    return status;
}

/* What the engine counted, less the steps that it left out. */
static sl_status read_engine_step(reader *self, const char *name)
{
    char *path = NULL;
    sl_torch_file file;
    uint64_t steps, skipped;
    SL_TRY(sl_files_join_path(self->directory, name, &path));
    sl_status status = sl_torch_file_open(path, &file);
    if (status == SL_OK) {
        if (sl_pickle_get_u64(sl_pickle_get(file.root, "global_steps"), 0, STEPS_MAX, &steps) &&
            sl_pickle_get_u64(sl_pickle_get(file.root, "skipped_steps"), 0, steps, &skipped))
            self->step = steps - skipped;
        sl_torch_file_close(&file);
    }
    free(path);
    return status;
}

static sl_status find_step(reader *self)
{
    static const char *const names[] = {"mp_rank_00_model_states.pt",
                                        "zero_pp_rank_0_mp_rank_00_model_states.pt"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (self->step == UINT64_MAX && sl_model_pieces_has(self->directory, names[i]))
            SL_TRY(read_engine_step(self, names[i]));
    return SL_OK;
}

/* ---- parameters ---- */

static sl_status add_file(reader *self, const char *directory, const char *name, const char *file,
                          const char *ending)
{
    char full[TAG_BYTES_MAX + 64];
    if (!sl_model_pieces_has(directory, file))
        return SL_OK;
    snprintf(full, sizeof full, "%s%s", name, ending);
    return sl_parts_add_whole(self->parts, directory, file, full);
}

static sl_status add_parameter(reader *self, const char *name)
{
    static const struct {
        const char *file, *ending;
    } files[] = {{"fp32.pt", ""}, {"exp_avg.pt", ".exp_avg"}, {"exp_avg_sq.pt", ".exp_avg_sq"}};
    char *directory = NULL;
    if (self->parts->tensor_count >= TENSORS_MAX)
        SL_FAIL(SL_ERROR_DATA, "%s: has more than %d files of parameters",
                sl_files_show(self->parameters).text, TENSORS_MAX);
    SL_TRY(sl_files_join_path(self->parameters, name, &directory));
    sl_status status = SL_OK;
    for (size_t i = 0; status == SL_OK && i < sizeof files / sizeof files[0]; i++)
        status = add_file(self, directory, name, files[i].file, files[i].ending);
    if (status == SL_OK)
        status = read_step(self, directory);
    free(directory);
    return status;
}

static sl_status add_parameters(reader *self)
{
    sl_status status = SL_OK;
    DIR *list = opendir(self->parameters);
    if (!list)
        SL_FAIL(SL_ERROR_IO, "%s: cannot be listed: %s", sl_files_show(self->parameters).text,
                strerror(errno));
    for (;;) {
        errno = 0;
        const struct dirent *next = readdir(list);
        if (!next || status != SL_OK)
            break;
        if (next->d_name[0] != '.' && strcmp(next->d_name, "optimizer_state.pt") != 0)
            status = add_parameter(self, next->d_name);
    }
    if (status == SL_OK && errno != 0)
        status = sl_status_fail(SL_ERROR_IO, "%s: cannot be listed: %s",
                                sl_files_show(self->parameters).text, strerror(errno));
    closedir(list);
    return status;
}

static sl_status list_parameters(const char *directory, sl_parts *parts, uint64_t *out_step)
{
    char *path = NULL;
    reader self = {.directory = directory, .parts = parts, .step = UINT64_MAX};
    SL_TRY(sl_files_join_path(directory, parameters_name, &path));
    self.parameters = path;
    sl_status status = add_parameters(&self);
    if (status == SL_OK)
        status = sl_parts_finish(parts);
    if (status == SL_OK)
        status = find_step(&self);
    free(path);
    *out_step = self.step;
    return status;
}

/* ---- all ---- */

static sl_status open_directory(const char *directory, sl_model_pieces *pieces)
{
    uint64_t step;
    sl_parts parts = {0}, none = {0};
    SL_TRY(sl_named_model_need_config(directory, "DeepSpeed's universal layout"));
    const sl_status status = list_parameters(directory, &parts, &step);
    if (status != SL_OK) {
        sl_parts_close(&parts);
        return status;
    }
    const sl_named_model_args args = {.directory = directory, .step = step, .allows_flat = true};
    SL_TRY(sl_named_model_open(&args, &parts, &none, pieces));
    snprintf(pieces->kind, sizeof pieces->kind, "DeepSpeed's universal layout");
    return SL_OK;
}

static sl_status open_pieces(const sl_model_pieces_args *args, sl_model_pieces *pieces)
{
    char *directory = NULL;
    SL_TRY(find_directory(args->path, &directory));
    const sl_status status = open_directory(directory, pieces);
    if (status != SL_OK) {
        free(directory);
        return status;
    }
    free(pieces->path);
    pieces->path = directory;
    return SL_OK;
}

const sl_model_pieces_format sl_model_pieces_universal = {.is_at = is_at, .open = open_pieces};
