/* What the tests of checkpoints share: a small model whose content is a function of its step,
 * saving it, and finding out what a directory holds. */
#ifndef SL_TESTS_CHECKPOINT_CASE_H
#define SL_TESTS_CHECKPOINT_CASE_H

#include <dirent.h>

#include "checkpoint/checkpoint.h"
#include "tensors/tiny_model.h"

static const sl_model_shape case_shape = {
    .layers = 1, .width = 8, .heads = 2, .context = 4, .vocab = 150};

/* Without master weights: parameters stand for them. */
static const bool case_states[SL_GROUP_COUNT] = {[SL_GROUP_PARAM] = true,
                                                 [SL_GROUP_GRAD] = true,
                                                 [SL_GROUP_STATE1] = true,
                                                 [SL_GROUP_STATE2] = true};
static const bool case_saved[SL_GROUP_COUNT] = {
    [SL_GROUP_PARAM] = true, [SL_GROUP_STATE1] = true, [SL_GROUP_STATE2] = true};

static inline sl_checkpoint_state case_state(uint64_t step)
{
    return (sl_checkpoint_state){.step = step,
                                 .tokens_total = step * 4096,
                                 .seed = UINT64_MAX - step,
                                 .next_row = step * 16,
                                 .skipped_steps = step / 3,
                                 .loss_scale = 1.0,
                                 .loss_scale_good_steps = step % 7,
                                 .loss_scale_hysteresis = 2};
}

/* What the saves that follow know of each other; NULL: nothing. */
static struct sl_step_verdicts *case_known;

/* The lock that they have; NULL: each takes its own. */
static sl_save_lock *case_lock;

/* Random bits as tiny_fill gives them, but finite: others are not saved. */
static inline void case_fill(tiny_model *model, uint64_t content)
{
    tiny_fill(model, content);
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t i = 0; i < model->tensor_count; i++)
            for (uint64_t j = 0; j < model->tensors[i].element_count; j++) {
                uint32_t *bits = (uint32_t *)(void *)&model->data[group][i][j];
                *bits &= (*bits & 0x7f800000u) == 0x7f800000u ? 0xff7fffffu : 0xffffffffu;
            }
}

/* Saves `model` as it is under `step`. */
static inline sl_status case_save_model(const char *directory, uint64_t step, uint32_t keep,
                                        tiny_model *model)
{
    sl_checkpoint_state state = case_state(step);
    sl_tensor_io io = tiny_io(model);
    sl_checkpoint_save_args args = {.directory = directory,
                                    .lock = case_lock,
                                    .keep = keep,
                                    .shape = &model->shape,
                                    .tensors = model->tensors,
                                    .tensor_count = model->tensor_count,
                                    .has_state = case_states,
                                    .io = &io,
                                    .state = &state,
                                    .precision = SL_TYPE_FP16,
                                    .config_json = "{\"lr\": 0.1, \"data\": [\"a.txt\"]}",
                                    .gemm = "reference",
                                    .data_fingerprint = "0123",
                                    .known = case_known};
    return sl_checkpoint_save(&args);
}

/* Saves a model filled from `content`. */
static inline sl_status case_save(const char *directory, uint64_t step, uint32_t keep,
                                  uint64_t content)
{
    tiny_model *model = tiny_open(case_shape);
    case_fill(model, content);
    sl_status status = case_save_model(directory, step, keep, model);
    tiny_close(model);
    return status;
}

/* Whether `save_count` saves of such a model find room. */
static inline sl_status case_check_space(const char *directory, uint32_t keep, uint64_t save_count)
{
    tiny_model *model = tiny_open(case_shape);
    sl_checkpoint_save_args args = {.directory = directory,
                                    .keep = keep,
                                    .tensors = model->tensors,
                                    .tensor_count = model->tensor_count,
                                    .has_state = case_states};
    sl_status status = sl_checkpoint_check_space(&args, save_count, false);
    tiny_close(model);
    return status;
}

/* True if the checkpoint has the state of `step` and, bit for bit, the tensors of `content`. */
static inline int case_holds(const sl_checkpoint *checkpoint, uint64_t step, uint64_t content)
{
    const sl_checkpoint_info *info = sl_checkpoint_describe(checkpoint);
    sl_checkpoint_state state = case_state(step);
    tiny_model *expected = tiny_open(case_shape), *read = tiny_open(case_shape);
    sl_tensor_io io = tiny_io(read);
    case_fill(expected, content);
    sl_status status =
        sl_checkpoint_load(checkpoint, read->tensors, read->tensor_count, case_states, &io);
    int same = status == SL_OK && tiny_equal(expected, read, case_saved) &&
               memcmp(&info->state, &state, sizeof state) == 0;
    tiny_close(expected);
    tiny_close(read);
    return same;
}

/* The step of the newest valid checkpoint, 0 if there is none; aborts if it does not hold
 * `contents[i]` for one of `count` contents. */
static inline uint64_t case_newest(const char *directory, const uint64_t *contents, int count)
{
    sl_checkpoint *checkpoint = NULL;
    if (sl_checkpoint_find_newest(directory, &checkpoint) != SL_OK)
        return 0;
    uint64_t step = sl_checkpoint_describe(checkpoint)->state.step;
    int found = 0;
    for (int i = 0; i < count; i++)
        found |= case_holds(checkpoint, step, contents[i]);
    sl_checkpoint_close(checkpoint);
    scratch_need(found, "the newest checkpoint holds something that was never saved");
    return step;
}

/* Entries of a directory whose name contains `part`; the lock, which stays, is none. */
static inline int case_count(const char *directory, const char *part)
{
    int count = 0;
    DIR *stream = opendir(directory);
    scratch_need(stream != NULL, directory);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;)
        count += entry->d_name[strspn(entry->d_name, ".")] && strstr(entry->d_name, part) != NULL &&
                 strcmp(entry->d_name, SL_SAVE_LOCK_NAME) != 0;
    closedir(stream);
    return count;
}

#endif
