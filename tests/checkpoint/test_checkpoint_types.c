/* What could be wrong between a checkpoint and the run that saves or loads it: a master weight, a
 * parameter or a moment is rounded, lost or taken from another group; a policy or a precision shows
 * in the files; a checkpoint of one way to place and compute cannot be loaded by another.
 *
 * Sessions of every way save and load each other's checkpoints. Files of all of them must be equal
 * byte for byte, and so must those that a session saves again after it has loaded one; parameters
 * in chunks must be the masters rounded. Whether a resumed run goes on exactly:
 * test_command_files.c.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "checkpoint_case.h"
#include "search/search.h"
#include "session/runtime.h"

static const sl_model_shape small = {2, 48, 4, 32, 300};

static scratch_path scratch;
static char disk_dir[SCRATCH_PATH_BYTES + 16]; /* "disk-dir=..." */

typedef struct way {
    sl_type type;
    const char *settings[8];
} way;

static const way ways[] = {
    {SL_TYPE_FP32, {"policy=device"}},
    {SL_TYPE_FP32, {"policy=nvme", disk_dir, "nvme-params=1", "nvme-grads=1", "chunk-size=40000"}},
    {SL_TYPE_BF16, {"precision=bf16", "policy=host"}},
    {SL_TYPE_BF16, {"precision=bf16", "policy=nvme", disk_dir, "nvme-params=1"}},
    {SL_TYPE_FP16,
     {"precision=fp16", "policy=static", disk_dir, "nvme-params=0.5", "offload-optimizer=0.4",
      "nvme-optimizer=0.3", "chunk-size=30000"}},
};

enum { WAY_COUNT = sizeof ways / sizeof ways[0] };

/* ---- sessions ---- */

typedef struct run {
    sl_config config; /* lives as long as the session, which borrows its directories */
    sl_runtime *runtime;
    const way *way;
} run;

/* Nobody steps here. */
static sl_status fill_nothing(void *user, const sl_engine_fill *what, void *memory)
{
    (void)user, (void)what, (void)memory;
    return SL_ERROR_INTERNAL;
}

static void open_run(run *r, const way *chosen)
{
    sl_search search;
    sl_blueprint *blueprint;
    sl_refusal refusal;
    const sl_engine_source nothing = {fill_nothing, NULL};
    const sl_runtime_hooks hooks = {.source = &nothing};
    r->way = chosen;
    assert_int_equal(sl_config_init(&r->config), SL_OK);
    assert_int_equal(sl_config_assign(&r->config, SL_CONFIG_TRAIN, "data=x"), SL_OK);
    assert_int_equal(sl_config_assign(&r->config, SL_CONFIG_TRAIN, "device=cpu"), SL_OK);
    for (int i = 0; chosen->settings[i]; i++)
        assert_int_equal(sl_config_assign(&r->config, SL_CONFIG_TRAIN, chosen->settings[i]), SL_OK);
    if (sl_config_check(&r->config, SL_CONFIG_TRAIN) != SL_OK ||
        sl_config_fit_model(&r->config, &small) != SL_OK ||
        sl_search_init(&r->config, SL_WORK_TRAIN, &small, &search) != SL_OK ||
        sl_search_find(&search, &blueprint, &refusal) != SL_OK ||
        sl_runtime_open(blueprint, &hooks, &r->runtime) != SL_OK)
        fail_msg("%s", sl_status_message());
}

static void close_run(run *r)
{
    sl_runtime_close(r->runtime);
    sl_config_clear(&r->config);
}

static void save(const run *r, const char *directory, uint64_t step)
{
    sl_checkpoint_state state = case_state(step);
    sl_runtime *runtime = r->runtime;
    sl_checkpoint_save_args args = {.directory = directory,
                                    .shape = &small,
                                    .tensors = runtime->tensors,
                                    .tensor_count = runtime->tensor_count,
                                    .has_state = runtime->has_state,
                                    .io = &runtime->io,
                                    .state = &state,
                                    .precision = runtime->blueprint->task.type,
                                    .config_json = "{}",
                                    .gemm = "",
                                    .data_fingerprint = ""};
    if (sl_checkpoint_save(&args) != SL_OK)
        fail_msg("%s", sl_status_message());
}

static void load(const run *r, const char *directory, sl_type saved_by)
{
    sl_checkpoint *checkpoint;
    sl_runtime *runtime = r->runtime;
    if (sl_checkpoint_find_newest(directory, &checkpoint) != SL_OK ||
        sl_checkpoint_load(checkpoint, runtime->tensors, runtime->tensor_count, runtime->has_state,
                           &runtime->io) != SL_OK)
        fail_msg("%s", sl_status_message());
    assert_int_equal(sl_checkpoint_describe(checkpoint)->precision, saved_by);
    sl_checkpoint_close(checkpoint);
}

/* Numbers of all sizes, subnormals of half precision and signed zeros included; they depend on the
 * tensor's name and the element's place in the whole, as panels of ways may differ. */
static float draw(const sl_tensor_spec *tensor, int group, uint64_t row, uint64_t column)
{
    uint64_t place = (tensor->first_row + row) * tensor->shape[1] + column;
    uint64_t stream = (uint64_t)group * 1000 + strlen(tensor->name) + (uint64_t)tensor->name[2];
    float value = sl_rng_normal(5, stream, place);
    switch (sl_rng_below(6, stream, place, 8)) {
    case 0:
        return value * 1e-6f;
    case 1:
        return value * 1e-20f;
    case 2:
        return value * 1000.0f;
    case 3:
        return -0.0f;
    default:
        return value;
    }
}

static void fill(const run *r, int group, uint32_t index)
{
    const sl_tensor_spec *tensor = &r->runtime->tensors[index];
    float *data = calloc(tensor->element_count, sizeof *data);
    for (uint64_t row = 0; row < tensor->valid_rows; row++)
        for (uint64_t column = 0; column < tensor->shape[1]; column++)
            data[row * tensor->shape[1] + column] = draw(tensor, group, row, column);
    assert_int_equal(r->runtime->io.write(r->runtime->io.user, (sl_group)group, index, 0,
                                          tensor->element_count, data),
                     SL_OK);
    free(data);
}

static void fill_all(const run *r)
{
    for (uint32_t i = 0; i < r->runtime->tensor_count; i++) {
        fill(r, SL_GROUP_PARAM, i);
        fill(r, SL_GROUP_STATE1, i);
        fill(r, SL_GROUP_STATE2, i);
    }
}

/* ---- comparing ---- */

static void assert_same_file(const char *directory, const char *other, const char *name)
{
    size_t bytes, other_bytes;
    scratch_path path = scratch_join(scratch_join(directory, "step-00000007").text, name);
    scratch_path other_path = scratch_join(scratch_join(other, "step-00000007").text, name);
    char *text = scratch_read(path.text, &bytes);
    char *other_text = scratch_read(other_path.text, &other_bytes);
    assert_int_equal(bytes, other_bytes);
    if (memcmp(text, other_text, bytes) != 0)
        fail_msg("%s and %s differ", path.text, other_path.text);
    free(text);
    free(other_text);
}

static void assert_same_files(const char *directory, const char *other)
{
    assert_same_file(directory, other, "config.json");
    assert_same_file(directory, other, "model.safetensors");
    assert_same_file(directory, other, "moment1.safetensors");
    assert_same_file(directory, other, "moment2.safetensors");
}

static uint32_t store_as(sl_type type, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return type == SL_TYPE_FP32   ? bits
           : type == SL_TYPE_BF16 ? sl_half_to_bf16(value)
                                  : sl_half_to_fp16(value);
}

/* What the program computes with: straight from the chunks. */
static void assert_parameters_are_rounded(const run *r)
{
    const sl_layout *layout = r->runtime->blueprint->layout;
    uint64_t size = sl_type_bytes(r->way->type);
    for (uint32_t i = 0; i < r->runtime->tensor_count; i++) {
        const sl_tensor_spec *tensor = &r->runtime->tensors[i];
        unsigned char *data = malloc(tensor->element_count * size);
        assert_int_equal(sl_engine_read_chunk(
                             r->runtime->engine, SL_GROUP_PARAM, layout->chunk_of_tensor[i],
                             layout->first_element[i] * size, tensor->element_count * size, data),
                         SL_OK);
        for (uint64_t k = 0; k < tensor->valid_rows * tensor->shape[1]; k++) {
            uint32_t found = 0;
            memcpy(&found, data + k * size, size);
            float value = draw(tensor, SL_GROUP_PARAM, k / tensor->shape[1], k % tensor->shape[1]);
            assert_int_equal(found, store_as(r->way->type, value));
        }
        free(data);
    }
}

/* ---- tests ---- */

static const bool only_parameters[SL_GROUP_COUNT] = {[SL_GROUP_PARAM] = true};

static sl_status save_case(const char *directory, tiny_model *model, const bool *has_state)
{
    sl_checkpoint_state counters = case_state(7);
    sl_tensor_io io = tiny_io(model);
    sl_checkpoint_save_args args = {.directory = directory,
                                    .shape = &case_shape,
                                    .tensors = model->tensors,
                                    .tensor_count = model->tensor_count,
                                    .has_state = has_state,
                                    .io = &io,
                                    .state = &counters,
                                    .config_json = "{}",
                                    .gemm = "",
                                    .data_fingerprint = ""};
    return sl_checkpoint_save(&args);
}

static void load_when_a_group_was_not_saved_then_refused(void **state)
{
    (void)state;
    scratch_path directory = scratch_join(scratch.text, "group");
    tiny_model *model = tiny_open(case_shape);
    sl_tensor_io io = tiny_io(model);
    sl_checkpoint *checkpoint;
    case_fill(model, 1);
    assert_int_equal(save_case(directory.text, model, only_parameters), SL_OK);
    assert_int_equal(sl_checkpoint_find_newest(directory.text, &checkpoint), SL_OK);
    model->calls = 0;
    assert_int_equal(
        sl_checkpoint_load(checkpoint, model->tensors, model->tensor_count, case_states, &io),
        SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "holds no moment1.safetensors"));
    assert_int_equal(model->calls, 0);
    sl_checkpoint_close(checkpoint);
    tiny_close(model);
}

/* Parameters stand for master weights, both ways: there is no file of them. */
static void master_weights_when_saved_and_loaded_have_no_file_of_their_own(void **state)
{
    (void)state;
    static const bool with_master[SL_GROUP_COUNT] = {
        [SL_GROUP_PARAM] = true, [SL_GROUP_MASTER] = true};
    scratch_path directory = scratch_join(scratch.text, "master");
    tiny_model *model = tiny_open(case_shape), *read = tiny_open(case_shape);
    sl_tensor_io io = tiny_io(read);
    sl_checkpoint *checkpoint;
    case_fill(model, 1);
    assert_int_equal(save_case(directory.text, model, with_master), SL_OK);
    assert_int_equal(sl_checkpoint_find_newest(directory.text, &checkpoint), SL_OK);
    /* Manifest, configuration, model. */
    assert_int_equal(case_count(scratch_join(directory.text, "step-00000007").text, ""), 3);
    assert_int_equal(
        sl_checkpoint_load(checkpoint, read->tensors, read->tensor_count, with_master, &io), SL_OK);
    assert_true(tiny_equal(model, read, only_parameters));
    sl_checkpoint_close(checkpoint);
    tiny_close(model);
    tiny_close(read);
}

static void checkpoints_when_saved_by_any_way_are_loaded_by_any_other(void **state)
{
    (void)state;
    scratch_path saved[WAY_COUNT], again = scratch_join(scratch.text, "again");
    for (int i = 0; i < WAY_COUNT; i++) {
        char name[32];
        run r;
        snprintf(name, sizeof name, "saved-%d", i);
        saved[i] = scratch_join(scratch.text, name);
        open_run(&r, &ways[i]);
        fill_all(&r);
        save(&r, saved[i].text, 7);
        close_run(&r);
        assert_same_files(saved[0].text, saved[i].text);
    }
    for (int i = 0; i < WAY_COUNT; i++) {
        for (int j = 0; j < WAY_COUNT; j++) {
            run r;
            open_run(&r, &ways[j]);
            load(&r, saved[i].text, ways[i].type);
            assert_parameters_are_rounded(&r);
            save(&r, again.text, 7);
            assert_same_files(saved[0].text, again.text);
            close_run(&r);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_when_a_group_was_not_saved_then_refused),
        cmocka_unit_test(master_weights_when_saved_and_loaded_have_no_file_of_their_own),
        cmocka_unit_test(checkpoints_when_saved_by_any_way_are_loaded_by_any_other),
    };
    scratch = scratch_open();
    snprintf(disk_dir, sizeof disk_dir, "disk-dir=%s", scratch.text);
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_close(&scratch);
    return failures;
}
