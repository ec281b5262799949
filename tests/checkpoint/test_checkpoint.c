/* Checkpoints. What could be wrong: a tensor, panel or counter lost or changed on the way, padding
 * kept, damage not noticed, a broken checkpoint hiding a good one, too much or too little pruned, a
 * file deleted that is not ours, a manifest believed that lies. Every byte is compared with what
 * was saved; damage is done here, byte by byte. Crashes and failing calls: test_checkpoint_crash.c.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <sys/file.h>

#include "checkpoint/steps.h"
#include "checkpoint_case.h"
#include "command/sealed_manifest.h"
#include "files/hostile_files.h"
#include "foreign/weights.h"
#include "scratch_case.h"
#include "sluice/log.h"

static void must_save(const char *directory, uint64_t step, uint32_t keep, uint64_t content)
{
    if (case_save(directory, step, keep, content) != SL_OK)
        fail_msg("%s", sl_status_message());
}

static sl_checkpoint *must_open(const char *path)
{
    sl_checkpoint *checkpoint = NULL;
    if (sl_checkpoint_open(path, &checkpoint) != SL_OK)
        fail_msg("%s", sl_status_message());
    return checkpoint;
}

static void must_refuse(const char *path, sl_status expected, const char *fragment)
{
    sl_checkpoint *checkpoint = NULL;
    sl_status status = sl_checkpoint_open(path, &checkpoint);
    must_fail(path, status, expected, fragment);
    assert_null(checkpoint);
}

/* ---- there and back ---- */

static void checkpoint_when_loaded_then_bit_equal(void **state)
{
    const scratch_path *directory = *state;
    scratch_path deep = scratch_join(directory->text, "a/b//c/");
    must_save(deep.text, 7, 0, 1);
    sl_checkpoint *checkpoint = must_open(scratch_join(deep.text, "step-00000007").text);
    const sl_checkpoint_info *info = sl_checkpoint_describe(checkpoint);
    assert_true(case_holds(checkpoint, 7, 1));
    assert_false(case_holds(checkpoint, 7, 2)); /* the comparison can fail */
    assert_memory_equal(&info->shape, &case_shape, sizeof case_shape);
    assert_memory_equal(info->has_state, case_saved, sizeof case_saved);
    assert_int_equal(info->precision, SL_TYPE_FP16);
    assert_string_equal(info->config_json, "{\"lr\":0.10000000000000001,\"data\":[\"a.txt\"]}");
    assert_string_equal(info->gemm, "reference");
    assert_string_equal(info->data_fingerprint, "0123");
    sl_checkpoint_close(checkpoint);
    sl_checkpoint_close(NULL);
}

static void checkpoint_when_made_then_private_and_named_by_latest(void **state)
{
    const scratch_path *directory = *state;
    struct stat info;
    size_t bytes;
    must_save(directory->text, 123456789012, 0, 1);
    scratch_path step = scratch_join(directory->text, "step-123456789012");
    assert_int_equal(stat(step.text, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(stat(scratch_join(step.text, "moment1.safetensors").text, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    char *latest = scratch_read(scratch_join(directory->text, "LATEST").text, &bytes);
    assert_string_equal(latest, "step-123456789012\n");
    free(latest);
    assert_int_equal(case_count(directory->text, ""), 2);
    assert_int_equal(case_count(step.text, ""), 5);
}

static void checkpoint_when_read_as_hugging_face_directory_then_same(void **state)
{
    const scratch_path *directory = *state;
    must_save(directory->text, 7, 0, 1);
    scratch_path step = scratch_join(directory->text, "step-00000007");
    static const bool param[SL_GROUP_COUNT] = {[SL_GROUP_PARAM] = true};
    sl_model_shape shape;
    assert_int_equal(sl_weights_read_config(step.text, &shape), SL_OK);
    assert_memory_equal(&shape, &case_shape, sizeof shape);
    tiny_model *expected = tiny_open(shape), *read = tiny_open(shape);
    sl_tensor_io io = tiny_io(read);
    case_fill(expected, 1);
    assert_int_equal(sl_weights_import(&shape, step.text, read->tensors, read->tensor_count, &io),
                     SL_OK);
    assert_true(tiny_equal(expected, read, param));
    tiny_close(expected);
    tiny_close(read);
}

static sl_status save_with(const char *directory, const sl_checkpoint_state *state,
                           const char *config)
{
    tiny_model *model = tiny_open(case_shape);
    sl_tensor_io io = tiny_io(model);
    sl_checkpoint_save_args args = {.directory = directory,
                                    .shape = &model->shape,
                                    .tensors = model->tensors,
                                    .tensor_count = model->tensor_count,
                                    .has_state = case_states,
                                    .io = &io,
                                    .state = state,
                                    .config_json = config,
                                    .gemm = "\"\\\x01",
                                    .data_fingerprint = ""};
    case_fill(model, 1);
    sl_status status = sl_checkpoint_save(&args);
    tiny_close(model);
    return status;
}

static void counters_when_extreme_then_exact(void **state)
{
    const scratch_path *directory = *state;
    static const double scales[] = {0x1p-126, 65536, 0.1, 0x1.fffffffffffffp1023};
    for (int i = 0; i < 4; i++) {
        sl_checkpoint_state counters = {.step = INT64_MAX,
                                        .tokens_total = INT64_MAX - 1,
                                        .seed = i == 0 ? UINT64_MAX : 0,
                                        .next_row = (1ull << 53) + 1,
                                        .skipped_steps = 1,
                                        .loss_scale = scales[i],
                                        .loss_scale_good_steps = 2,
                                        .loss_scale_hysteresis = 3};
        if (save_with(directory->text, &counters, "{}") != SL_OK)
            fail_msg("%s", sl_status_message());
        sl_checkpoint *checkpoint = NULL;
        assert_int_equal(sl_checkpoint_find_newest(directory->text, &checkpoint), SL_OK);
        const sl_checkpoint_info *info = sl_checkpoint_describe(checkpoint);
        assert_memory_equal(&info->state, &counters, sizeof counters);
        assert_string_equal(info->gemm, "\"\\\x01");
        sl_checkpoint_close(checkpoint);
    }
}

static void arguments_when_wrong_then_usage_error_and_nothing_left(void **state)
{
    const scratch_path *directory = *state;
    sl_checkpoint_state good = case_state(5), large = good, infinite = good;
    large.next_row = 1ull << 63;
    infinite.loss_scale = INFINITY;
    assert_int_equal(save_with(directory->text, &good, "[]"), SL_ERROR_USAGE);
    assert_int_equal(save_with(directory->text, &good, "{"), SL_ERROR_USAGE);
    assert_int_equal(save_with(directory->text, &large, "{}"), SL_ERROR_USAGE);
    assert_int_equal(save_with(directory->text, &infinite, "{}"), SL_ERROR_USAGE);
    assert_int_equal(save_with("", &good, "{}"), SL_ERROR_USAGE);
    assert_int_equal(case_count(directory->text, ""), 0);
}

static void save_when_source_fails_then_its_status_and_nothing_left(void **state)
{
    const scratch_path *directory = *state;
    tiny_model *model = tiny_open(case_shape);
    case_fill(model, 1);
    for (uint64_t call = 1; call < 40; call += 13) {
        model->calls = 0;
        model->fail_call = call;
        assert_int_equal(case_save_model(directory->text, 5, 0, model), SL_ERROR_RANK);
        assert_int_equal(case_count(directory->text, ""), 0);
    }
    tiny_close(model);
}

static void save_when_value_is_not_finite_then_refused_and_the_last_one_stays(void **state)
{
    const scratch_path *directory = *state;
    static const sl_group groups[] = {SL_GROUP_PARAM, SL_GROUP_STATE1, SL_GROUP_STATE2};
    static const float values[] = {INFINITY, -INFINITY, NAN};
    tiny_model *model = tiny_open(case_shape);
    must_save(directory->text, 4, 1, 1);
    for (int i = 0; i < 3; i++) {
        const uint32_t tensor = model->tensor_count - 1;
        case_fill(model, 2);
        model->data[groups[i]][tensor][7] = values[i];
        assert_int_equal(case_save_model(directory->text, 5, 1, model), SL_ERROR_NONFINITE);
        assert_non_null(strstr(sl_status_message(), "tensor \"ln_f.bias\" holds a value that is"));
        assert_int_equal(case_count(directory->text, "step-"), 1);
    }
    sl_checkpoint_close(must_open(scratch_join(directory->text, "step-00000004").text));
    tiny_close(model);
}

/* Loads `states` into a model of `shape`'s first `tensor_count` tensors (0: all), and asks for the
 * file of its parameters. */
static void must_refuse_load(const sl_checkpoint *checkpoint, sl_model_shape shape,
                             uint32_t tensor_count, const bool *states, const char *fragment)
{
    tiny_model *model = tiny_open(shape);
    sl_tensor_io io = tiny_io(model);
    uint32_t count = tensor_count ? tensor_count : model->tensor_count;
    assert_int_equal(sl_checkpoint_load(checkpoint, model->tensors, count, states, &io),
                     SL_ERROR_DATA);
    if (!strstr(sl_status_message(), fragment))
        fail_msg("%s", sl_status_message());
    assert_int_equal(model->calls, 0);
    const sl_safetensors *file;
    assert_int_equal(sl_checkpoint_parameters(checkpoint, model->tensors, count, &file),
                     SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), fragment));
    tiny_close(model);
}

static void load_when_model_differs_then_refused_before_any_write(void **state)
{
    const scratch_path *directory = *state;
    must_save(directory->text, 7, 0, 1);
    sl_checkpoint *checkpoint = must_open(scratch_join(directory->text, "step-00000007").text);
    sl_model_shape deep = case_shape, wide = case_shape, wordy = case_shape;
    deep.layers = 2;
    wide.width = 16;
    wordy.vocab = 151;
    must_refuse_load(checkpoint, deep, 0, case_states, "is missing");
    must_refuse_load(checkpoint, wide, 0, case_states, "but the model needs");
    must_refuse_load(checkpoint, wordy, 0, case_states, "but the model needs");
    tiny_model *model = tiny_open(case_shape);
    must_refuse_load(checkpoint, case_shape, model->tensor_count - 1, case_states,
                     "but the model has");
    tiny_close(model);
    sl_checkpoint_close(checkpoint);
}

static void load_when_names_change_after_opening_then_opened_files(void **state)
{
    const scratch_path *directory = *state;
    must_save(directory->text, 7, 0, 1);
    sl_checkpoint *checkpoint = must_open(scratch_join(directory->text, "step-00000007").text);
    must_save(directory->text, 7, 0, 2); /* replaces the directory */
    assert_true(case_holds(checkpoint, 7, 1));
    sl_checkpoint_close(checkpoint);
}

/* ---- damage ---- */

static const char *const file_names[] = {"manifest.json", "config.json", "model.safetensors",
                                         "moment1.safetensors", "moment2.safetensors"};

static void flip(const char *path, long offset, int bit)
{
    FILE *file = fopen(path, "r+b");
    scratch_need(file != NULL && fseek(file, offset, SEEK_SET) == 0, path);
    int byte = fgetc(file);
    fseek(file, offset, SEEK_SET);
    fputc(byte ^ (1 << bit), file);
    fclose(file);
}

static void any_bit_when_flipped_then_refused(void **state)
{
    const scratch_path *directory = *state;
    uint64_t random = scratch_seed("any_bit", 5), count = 0;
    must_save(directory->text, 7, 0, 1);
    scratch_path step = scratch_join(directory->text, "step-00000007");
    for (int i = 0; i < 5; i++) {
        scratch_path path = scratch_join(step.text, file_names[i]);
        struct stat info;
        scratch_need(stat(path.text, &info) == 0, path.text);
        uint64_t bytes = (uint64_t)info.st_size;
        uint64_t flips = i == 0 ? bytes : scratch_count(100, bytes);
        for (uint64_t j = 0; j < flips; j++, count++) {
            long offset = (long)(flips == bytes ? j : scratch_below(&random, bytes));
            int bit = (int)scratch_below(&random, 8);
            sl_checkpoint *checkpoint = NULL;
            flip(path.text, offset, bit);
            sl_status status = sl_checkpoint_open(step.text, &checkpoint);
            if (status != SL_ERROR_DATA)
                fail_msg("%s: bit %d of byte %ld: status %d", file_names[i], bit, offset, status);
            flip(path.text, offset, bit);
        }
    }
    sl_checkpoint_close(must_open(step.text)); /* all bits are back */
    printf("%llu bits flipped\n", (unsigned long long)count);
}

static void files_when_cut_grown_or_gone_then_refused(void **state)
{
    const scratch_path *directory = *state;
    must_save(directory->text, 7, 0, 1);
    scratch_path step = scratch_join(directory->text, "step-00000007");
    scratch_path aside = scratch_join(directory->text, "aside");
    for (int i = 0; i < 5; i++) {
        scratch_path path = scratch_join(step.text, file_names[i]);
        size_t bytes;
        char *content = scratch_read(path.text, &bytes);
        scratch_write(path.text, content, bytes - 1);
        must_refuse(step.text, SL_ERROR_DATA, file_names[i]);
        scratch_write(path.text, content, bytes + 1); /* with the NUL behind it */
        must_refuse(step.text, SL_ERROR_DATA, file_names[i]);
        scratch_write(path.text, "", 0);
        must_refuse(step.text, SL_ERROR_DATA, file_names[i]);
        unlink(path.text);
        must_refuse(step.text, SL_ERROR_MISSING, file_names[i]);
        scratch_need(mkfifo(path.text, 0600) == 0, path.text);
        must_refuse(step.text, SL_ERROR_DATA, "is a FIFO");
        unlink(path.text);
        scratch_write(aside.text, content, bytes);
        scratch_need(symlink(aside.text, path.text) == 0, path.text);
        must_refuse(step.text, SL_ERROR_DATA, "symbolic link");
        scratch_write(path.text, content, bytes);
        free(content);
    }
    sl_checkpoint_close(must_open(step.text));
    must_refuse(scratch_join(directory->text, "none").text, SL_ERROR_MISSING, "none");
    must_refuse(aside.text, SL_ERROR_DATA, "not a directory");
}

static void manifest_when_hostile_then_told(void **state)
{
    const scratch_path *directory = *state;
    scratch_path step = scratch_join(directory->text, "step-00000007");
    int count = 0;
    for (int i = 0; i < HOSTILE_COUNT; i++) {
        const hostile_row *row = &hostile_rows[i];
        if (row->kind != HOSTILE_MANIFEST)
            continue;
        must_save(directory->text, 7, 0, 1);
        hostile_write(row, step.text);
        must_refuse(step.text, SL_ERROR_DATA, row->fragment);
        count++;
    }
    assert_true(count >= 20);
}

/* Sizes that only a Llama has: all of them come back, and none may be absent or be what no model
 * has. */
static void manifest_when_of_a_llama_then_every_size_is_kept_and_needed(void **state)
{
    static const struct {
        const char *before, *after, *fragment;
    } rows[] = {
        {"\"kv_heads\": 2", "\"kv_heads\": 0", "kv_heads"},
        {"\"kv_heads\"", "\"kv_headz\"", "kv_heads"},
        {"\"untied\": true", "\"untied\":    1", "untied"},
        {"\"untied\"", "\"untiet\"", "untied"},
        {"\"norm_epsilon\"", "\"norm_epsiloN\"", "norm_epsilon"},
        {"\"rope_scaling\": 2", "\"rope_scaling\": 3", "rope_scaling"},
        {"\"rope_scaling\"", "\"rope_scalinG\"", "rope_scaling"},
        {"\"rope_original_context\"", "\"rope_original_contexT\"", "rope_original_context"},
    };
    const scratch_path *directory = *state;
    const scratch_path step = scratch_join(directory->text, "step-00000007");
    const scratch_path manifest = scratch_join(step.text, "manifest.json");
    const sl_model_shape shape = {.layers = 1,
                                  .width = 8,
                                  .heads = 4,
                                  .context = 48,
                                  .vocab = 150,
                                  .architecture = SL_ARCHITECTURE_LLAMA,
                                  .kv_heads = 2,
                                  .head = 6,
                                  .ffn = 12,
                                  .is_untied = true,
                                  .norm_epsilon = 1e-5 / 3,
                                  .rope = {500, SL_ROTARY_LLAMA3, 8, 1, 4, 16}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tiny_model *model = tiny_open(shape);
        case_fill(model, 1);
        assert_int_equal(case_save_model(directory->text, 7, 0, model), SL_OK);
        tiny_close(model);
        sl_checkpoint *checkpoint = must_open(step.text);
        assert_true(sl_model_shape_is_same(&sl_checkpoint_describe(checkpoint)->shape, &shape));
        sl_checkpoint_close(checkpoint);
        sealed_edit(manifest.text, rows[i].before, rows[i].after);
        must_refuse(step.text, SL_ERROR_DATA, rows[i].fragment);
    }
}

static void newest_when_broken_then_passed_over_and_told(void **state)
{
    const scratch_path *directory = *state;
    sl_checkpoint *checkpoint = NULL;
    for (uint64_t step = 1; step <= 3; step++)
        must_save(directory->text, step * 100, 0, step);
    scratch_need(mkdir(scratch_join(directory->text, "step-00000400").text, 0700) == 0, "mkdir");
    scratch_write(scratch_join(directory->text, "step-00000500").text, "file", 4);
    flip(scratch_join(directory->text, "step-00000300/moment2.safetensors").text, 4000, 3);
    assert_int_equal(sl_checkpoint_find_newest(directory->text, &checkpoint), SL_OK);
    assert_true(case_holds(checkpoint, 200, 2));
    sl_checkpoint_close(checkpoint);
    assert_non_null(strstr(remarks, "step-00000500: is not a directory"));
    assert_non_null(strstr(remarks, "step-00000400/manifest.json: cannot be opened"));
    assert_non_null(strstr(remarks, "step-00000300/moment2.safetensors: checksum is"));
    unlink(scratch_join(directory->text, "step-00000200/config.json").text);
    unlink(scratch_join(directory->text, "step-00000100/config.json").text);
    assert_int_equal(sl_checkpoint_find_newest(directory->text, &checkpoint), SL_ERROR_MISSING);
    assert_non_null(strstr(sl_status_message(), "holds no valid checkpoint (5 invalid)"));
    scratch_path none = scratch_join(directory->text, "none");
    assert_int_equal(sl_checkpoint_find_newest(none.text, &checkpoint), SL_ERROR_MISSING);
}

/* What a later version wrote is not damaged; what is damaged is of no version. */
static void newest_when_of_later_version_then_not_passed_over(void **state)
{
    const scratch_path *directory = *state;
    sl_checkpoint *checkpoint = NULL;
    scratch_path manifest = scratch_join(directory->text, "step-00000002/manifest.json");
    must_save(directory->text, 1, 0, 1);
    must_save(directory->text, 2, 0, 2);
    sealed_edit(manifest.text, "\"format_version\": 1", "\"format_version\": 2");
    sl_checkpoint_close(must_open(scratch_join(directory->text, "step-00000002").text));
    sealed_edit(manifest.text, "\"format_version\": 2", "\"format_version\": 6");
    assert_int_equal(sl_checkpoint_find_newest(directory->text, &checkpoint), SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "format_version 6 is newer than this program, "
                                                "which reads up to 5; it may be whole"));
    assert_non_null(strstr(sl_status_message(), "or move step-00000002 away"));
    assert_string_equal(remarks, "");
    size_t bytes;
    char *text = scratch_read(manifest.text, &bytes);
    strstr(text, "\"step\"")[1] = 'S';
    scratch_write(manifest.text, text, bytes);
    free(text);
    assert_int_equal(sl_checkpoint_find_newest(directory->text, &checkpoint), SL_OK);
    assert_true(case_holds(checkpoint, 1, 1));
    sl_checkpoint_close(checkpoint);
    assert_non_null(strstr(remarks, "step-00000002/manifest.json: its checksum does not match"));
}

/* ---- old ones ---- */

static void old_checkpoints_when_beyond_keep_then_removed(void **state)
{
    const scratch_path *directory = *state;
    for (uint64_t step = 8; step <= 12; step++)
        must_save(directory->text, step, 2, step);
    assert_int_equal(case_count(directory->text, "step-"), 2);
    assert_true(scratch_exists(scratch_join(directory->text, "step-00000011").text));
    assert_true(scratch_exists(scratch_join(directory->text, "step-00000012").text));
    assert_int_equal(case_count(directory->text, ""), 3); /* and LATEST */
    assert_string_equal(remarks, "");
}

/* "125": the steps of one digit that are there. */
static const char *list_steps(const char *directory)
{
    static char steps[10];
    size_t count = 0;
    for (int step = 1; step <= 9; step++) {
        char name[32];
        snprintf(name, sizeof name, "step-%08d", step);
        if (scratch_exists(scratch_join(directory, name).text))
            steps[count++] = (char)('0' + step);
    }
    steps[count] = '\0';
    return steps;
}

static int count_remarks(const char *part)
{
    int count = 0;
    for (const char *at = remarks; (at = strstr(at, part)) != NULL; at++)
        count++;
    return count;
}

static void old_checkpoints_when_damaged_then_push_out_no_whole_one(void **state)
{
    const scratch_path *directory = *state;
    for (uint64_t step = 1; step <= 3; step++)
        must_save(directory->text, step, 0, step);
    flip(scratch_join(directory->text, "step-00000003/moment2.safetensors").text, 4000, 3);
    must_save(directory->text, 4, 2, 4);
    assert_string_equal(list_steps(directory->text), "234");
    assert_int_equal(count_remarks("step-00000003 does not count for --keep"), 1);
    must_save(directory->text, 5, 2, 5); /* now two whole ones lie in front of it */
    assert_string_equal(list_steps(directory->text), "45");
}

/* Each is read once in a run, and what was whole then is looked at for its files and sizes. */
static void old_checkpoints_when_known_then_are_not_read_again(void **state)
{
    const scratch_path *directory = *state;
    sl_step_verdicts known = {0};
    for (uint64_t step = 1; step <= 3; step++)
        must_save(directory->text, step, 0, step);
    flip(scratch_join(directory->text, "step-00000003/moment2.safetensors").text, 4000, 3);
    case_known = &known;
    must_save(directory->text, 4, 3, 4);
    assert_string_equal(list_steps(directory->text), "1234");
    flip(scratch_join(directory->text, "step-00000004/moment2.safetensors").text, 4000, 3);
    must_save(directory->text, 5, 3, 5);
    assert_string_equal(list_steps(directory->text), "2345");
    assert_int_equal(count_remarks("does not count"), 1); /* 3, and it was said once */
    unlink(scratch_join(directory->text, "step-00000004/moment1.safetensors").text);
    must_save(directory->text, 6, 3, 6);
    case_known = NULL;
    sl_steps_forget(&known);
    assert_string_equal(list_steps(directory->text), "23456");
    assert_int_equal(count_remarks("step-00000004 does not count"), 1);
    assert_int_equal(count_remarks("does not count"), 2);
}

static void checkpoints_when_not_to_be_pruned_then_stay(void **state)
{
    const scratch_path *directory = *state;
    must_save(directory->text, 1, 0, 1);
    must_save(directory->text, 2, 0, 1);
    must_save(directory->text, 9, 0, 1); /* of another, longer run */
    scratch_write(scratch_join(directory->text, "step-00000001/notes.txt").text, "mine", 4);
    must_save(directory->text, 3, 1, 3);
    assert_true(scratch_exists(scratch_join(directory->text, "step-00000009/manifest.json").text));
    assert_true(scratch_exists(scratch_join(directory->text, "step-00000003/manifest.json").text));
    assert_false(scratch_exists(scratch_join(directory->text, "step-00000002").text));
    /* Somebody put a file there: nothing of it is touched. */
    assert_true(scratch_exists(scratch_join(directory->text, "step-00000001/notes.txt").text));
    sl_checkpoint_close(must_open(scratch_join(directory->text, "step-00000001").text));
    assert_non_null(strstr(remarks, "step-00000009: is newer than step 3"));
    assert_non_null(strstr(remarks, "step-00000001: stays"));
}

static void make_remains(const char *directory, const char *name, const char *file)
{
    scratch_path path = scratch_join(directory, name);
    scratch_need(mkdir(path.text, 0700) == 0, name);
    scratch_write(scratch_join(path.text, file).text, "x", 1);
}

static void remains_when_next_saved_then_only_dead_ones_of_ours_go(void **state)
{
    const scratch_path *directory = *state;
    static const struct {
        const char *name, *file;
        int goes;
    } rows[] = {
        {"step-00000005.tmp-0123456789abcdef", "model.safetensors", 1},
        {"step-00000006.tmp-0123456789abcdef", "manifest.json", 1},
        {".trash-step-00000001-00000000000000ff", "config.json", 1},
        {"step-00000005.tmp-00000000000000aa", "model.safetensors", 0}, /* locked below */
        {"step-00000005.tmp-00000000000000bb", "model.safetensors.bak", 0},
        {".trash-step-00000002-00000000000000ff", "holiday.jpg", 0},
        {"step-00000005.tmp-0123456789abcde", "model.safetensors", 0}, /* not quite our names */
        {"step-00000005.tmp-0123456789abcdeg", "model.safetensors", 0},
        {"step-00000005.tmp-0123456789ABCDEF", "model.safetensors", 0},
        {"step-5.tmp-0123456789abcdef", "model.safetensors", 0},
        {"step-+0000005.tmp-0123456789abcdef", "model.safetensors", 0},
        {"step-00000005.tmp", "model.safetensors", 0},
        {"step-00000005.old", "model.safetensors", 0},
        {".trash-step-00000001", "model.safetensors", 0},
        {"other", "model.safetensors", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        make_remains(directory->text, rows[i].name, rows[i].file);
    scratch_path link = scratch_join(directory->text, "step-00000007.tmp-0123456789abcdef");
    scratch_need(symlink("other", link.text) == 0, link.text);
    scratch_path alive = scratch_join(directory->text, rows[3].name);
    int lock = open(alive.text, O_RDONLY | O_DIRECTORY);
    scratch_need(lock >= 0 && flock(lock, LOCK_EX) == 0, alive.text);
    must_save(directory->text, 5, 1, 1);
    close(lock);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        scratch_path path =
            scratch_join(scratch_join(directory->text, rows[i].name).text, rows[i].file);
        if (scratch_exists(path.text) == rows[i].goes)
            fail_msg("%s %s", rows[i].name, rows[i].goes ? "is still there" : "was removed");
    }
    assert_true(scratch_exists(link.text));
    must_save(directory->text, 6, 0, 1); /* the lock is gone */
    assert_false(scratch_exists(alive.text));
}

static void step_when_saved_again_then_replaced(void **state)
{
    const scratch_path *directory = *state;
    for (uint64_t content = 1; content < 4; content++) {
        must_save(directory->text, 7, 1, content);
        sl_checkpoint *checkpoint = must_open(scratch_join(directory->text, "step-00000007").text);
        assert_true(case_holds(checkpoint, 7, content));
        sl_checkpoint_close(checkpoint);
        assert_int_equal(case_count(directory->text, ""), 2);
    }
    /* A broken one in the place too. */
    unlink(scratch_join(directory->text, "step-00000007/manifest.json").text);
    must_save(directory->text, 7, 1, 9);
    assert_int_equal(case_newest(directory->text, (uint64_t[]){9}, 1), 7);
}

int main(void)
{
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, open_scratch_and_log, close_scratch_and_log)
    const struct CMUnitTest tests[] = {
        TEST(checkpoint_when_loaded_then_bit_equal),
        TEST(checkpoint_when_made_then_private_and_named_by_latest),
        TEST(checkpoint_when_read_as_hugging_face_directory_then_same),
        TEST(counters_when_extreme_then_exact),
        TEST(arguments_when_wrong_then_usage_error_and_nothing_left),
        TEST(save_when_source_fails_then_its_status_and_nothing_left),
        TEST(save_when_value_is_not_finite_then_refused_and_the_last_one_stays),
        TEST(load_when_model_differs_then_refused_before_any_write),
        TEST(load_when_names_change_after_opening_then_opened_files),
        TEST(any_bit_when_flipped_then_refused),
        TEST(files_when_cut_grown_or_gone_then_refused),
        TEST(manifest_when_hostile_then_told),
        TEST(manifest_when_of_a_llama_then_every_size_is_kept_and_needed),
        TEST(newest_when_broken_then_passed_over_and_told),
        TEST(newest_when_of_later_version_then_not_passed_over),
        TEST(old_checkpoints_when_beyond_keep_then_removed),
        TEST(old_checkpoints_when_damaged_then_push_out_no_whole_one),
        TEST(old_checkpoints_when_known_then_are_not_read_again),
        TEST(checkpoints_when_not_to_be_pruned_then_stay),
        TEST(remains_when_next_saved_then_only_dead_ones_of_ours_go),
        TEST(step_when_saved_again_then_replaced),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
