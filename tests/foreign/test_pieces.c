/* What could be wrong here: an element of a parameter or a moment is taken from another part, row
 * or layer; moments of one parameter go to another; a chunk that is missing, twice or elsewhere
 * becomes zeros; a name leads out of the directory; a tensor of another size or type is read as
 * this one; a run goes on from states that are not all there. What is read was written by torch,
 * Megatron Core and DeepSpeed themselves (golden/pieces, by reference/write_pieces.py, which put
 * what is in them beside them), or is made here byte by byte (distributed_case.h). */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>

#include "convert_case.h"
#include "distributed_case.h"
#include "foreign/pieces/distributed.h"
#include "foreign/pieces/model_pieces.h"
#include "scratch_case.h"
#include "tensors/across.h"

static const char golden[] = SL_TEST_SOURCE_DIRECTORY "/golden/pieces";

enum { STEPS = 2, MOST_ELEMENTS = 4096 };

static const struct {
    const char *name, *kind;
    uint32_t heads, layers;
} layouts[] = {
    {"fsdp-nested", "distributed checkpoint of torch, 3 files", 2, 1},
    {"fsdp-flat", "distributed checkpoint of torch, 2 files", 2, 1},
    {"fsdp-accelerate", "distributed checkpoint of torch, 2 files", 2, 1},
    {"core-parallel", "Megatron Core's distributed checkpoint, 4 files", 2, 1},
    {"core-stacked", "Megatron Core's distributed checkpoint, 4 files", 2, 2},
    {"zero1", "DeepSpeed's universal layout", 2, 1},
    {"zero3", "DeepSpeed's universal layout", 2, 1},
};

enum { LAYOUT_COUNT = sizeof layouts / sizeof layouts[0] };

static void run_shell(const char *format, const char *a, const char *b)
{
    char command[4096];
    snprintf(command, sizeof command, format, a, b);
    assert_int_equal(system(command), 0);
}

/* An archive of golden/pieces in a directory of its own. */
static scratch_path unpack(const scratch_path *scratch, const char *name)
{
    const scratch_path path = scratch_join(scratch->text, name);
    char archive[2048];
    snprintf(archive, sizeof archive, "%s/%s.tgz", golden, name);
    run_shell("rm -rf %s && mkdir %s", path.text, path.text);
    run_shell("tar xzf %s -C %s", archive, path.text);
    return path;
}

/* ---- what the libraries wrote ---- */

static const char *const endings[] = {"", ".exp_avg", ".exp_avg_sq"};
static const sl_group groups[] = {SL_GROUP_PARAM, SL_GROUP_STATE1, SL_GROUP_STATE2};

enum { GROUPS = 3 };

static sl_safetensors *open_expected(const char *directory)
{
    sl_safetensors *file;
    const scratch_path path = scratch_join(directory, "expected.safetensors");
    must(sl_safetensors_open(AT_FDCWD, NULL, path.text, SL_LINKS_FOLLOW, &file));
    return file;
}

/* The library's numbers, [in, out]; of an embedding those rows that are ids. */
static void read_expected(const sl_safetensors *file, const sl_foreign_tensor *tensor, int group,
                          float *out_data)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", sl_model_tensors_name(tensor).text, endings[group]);
    const sl_safetensors_tensor *found = sl_safetensors_find(file, name);
    scratch_need(found != NULL, name);
    const uint64_t count = tensor->rows * tensor->columns;
    scratch_need(count <= MOST_ELEMENTS, "room for a tensor");
    must(sl_safetensors_read(file, found, 0, count, out_data));
}

static void assert_same(const float *expected, const float *data, uint64_t count, const char *name,
                        int group)
{
    for (uint64_t i = 0; i < count; i++)
        if (memcmp(&expected[i], &data[i], sizeof *data) != 0)
            fail_msg("%s%s: element %llu is %g, not %g", name, endings[group],
                     (unsigned long long)i, (double)data[i], (double)expected[i]);
}

/* The place in [in, out] of an element as it is stored. */
static uint64_t find_place(const sl_model_pieces *pieces, const sl_foreign_tensor *tensor,
                           uint64_t index)
{
    if (!tensor->is_linear || !pieces->is_out_in)
        return index;
    return index % tensor->rows * tensor->columns + index / tensor->rows;
}

/* By runs that cross all borders of rows and parts. */
static void assert_tensor(const sl_model_pieces *pieces, const sl_safetensors *file,
                          const sl_foreign_tensor *tensor, int group)
{
    static float expected[MOST_ELEMENTS], data[MOST_ELEMENTS];
    static const uint64_t lengths[] = {1, 3, 7, 16, 61, MOST_ELEMENTS};
    const uint64_t count = tensor->rows * tensor->columns;
    const char *name = sl_model_tensors_kind(tensor)->name;
    read_expected(file, tensor, group, expected);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (uint64_t first = 0; first < count; first += lengths[i]) {
            const uint64_t left = count - first, part = left < lengths[i] ? left : lengths[i];
            must(sl_model_pieces_read(pieces, groups[group], tensor, first, part, data));
            for (uint64_t j = 0; j < part; j++)
                assert_same(&expected[find_place(pieces, tensor, first + j)], &data[j], 1, name,
                            group);
        }
    }
}

static void assert_layout(const scratch_path *path, const char *kind, uint32_t heads,
                          uint32_t layers)
{
    sl_model_pieces *pieces;
    sl_safetensors *file;
    const sl_model_pieces_args args = {.path = path->text, .heads = heads};
    must(sl_model_pieces_open(&args, &pieces));
    file = open_expected(path->text);
    assert_non_null(strstr(pieces->kind, kind));
    assert_int_equal(pieces->shape.heads, heads);
    assert_int_equal(pieces->shape.layers, layers);
    assert_true(pieces->has_states);
    assert_int_equal(pieces->step, STEPS);
    for (uint32_t i = 0; i < sl_model_tensors_count(&pieces->shape); i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(&pieces->shape, i);
        for (int group = 0; group < GROUPS; group++)
            assert_tensor(pieces, file, &tensor, group);
    }
    sl_safetensors_close(file);
    sl_model_pieces_close(pieces);
}

static void pieces_when_of_their_libraries_then_same_elements(void **state)
{
    for (size_t i = 0; i < LAYOUT_COUNT; i++) {
        const scratch_path path = unpack(*state, layouts[i].name);
        assert_true(sl_model_pieces_are_at(path.text));
        assert_layout(&path, layouts[i].kind, layouts[i].heads, layouts[i].layers);
    }
}

/* ---- a checkpoint of them ---- */

typedef struct kept {
    sl_safetensors *expected;
    const sl_model_shape *shape;
    uint64_t element_count;
} kept;

static sl_status compare_elements(void *user, sl_group group, uint32_t tensor_index,
                                  uint64_t first_element, uint64_t element_count, const float *data)
{
    static float expected[MOST_ELEMENTS];
    kept *self = user;
    const sl_foreign_tensor tensor = sl_model_tensors_nth(self->shape, tensor_index);
    const int index = group == SL_GROUP_PARAM ? 0 : group == SL_GROUP_STATE1 ? 1 : 2;
    read_expected(self->expected, &tensor, index, expected);
    assert_same(expected + first_element, data, element_count, sl_model_tensors_kind(&tensor)->name,
                index);
    self->element_count += element_count;
    return SL_OK;
}

static sl_status convert_checkpoint(const char *from, const char *to, bool overwrites)
{
    sl_model_reader reader;
    sl_convert_report report;
    SL_TRY(sl_model_reader_open(from, false, 2, &reader));
    const sl_convert_args args = {
        .reader = &reader, .to = to, .format = SL_CONVERT_CHECKPOINT, .overwrites = overwrites};
    const sl_status status = sl_convert_run(&args, &report);
    sl_model_reader_close(&reader);
    return status;
}

static void assert_checkpoint(const scratch_path *path, const char *to)
{
    static const bool all[SL_GROUP_COUNT] = {
        [SL_GROUP_PARAM] = true, [SL_GROUP_STATE1] = true, [SL_GROUP_STATE2] = true};
    sl_tensor_spec specs[64] = {0};
    sl_checkpoint *checkpoint;
    must(sl_checkpoint_open(scratch_join(to, "step-00000002").text, &checkpoint));
    const sl_checkpoint_info *info = sl_checkpoint_describe(checkpoint);
    kept self = {.shape = &info->shape};
    const uint32_t count = sl_model_tensors_count(&info->shape);
    const sl_tensor_io io = {.write = compare_elements, .user = &self};
    assert_int_equal(info->state.step, STEPS);
    assert_true(info->state.loss_scale == 1);
    scratch_need(count <= 64, "room for tensors");
    sl_model_tensors_specify(&info->shape, specs);
    self.expected = open_expected(path->text);
    must(sl_checkpoint_load(checkpoint, specs, count, all, &io));
    assert_int_equal(self.element_count, 3 * sl_model_shape_parameters(&info->shape));
    sl_safetensors_close(self.expected);
    sl_checkpoint_close(checkpoint);
}

static void checkpoint_when_made_of_pieces_then_has_their_states(void **state)
{
    for (size_t i = 0; i < LAYOUT_COUNT; i++) {
        const scratch_path path = unpack(*state, layouts[i].name);
        const scratch_path to = scratch_join(path.text, "made");
        must(convert_checkpoint(path.text, to.text, false));
        assert_checkpoint(&path, to.text);
        must_fail("made again", convert_checkpoint(path.text, to.text, false), SL_ERROR_USAGE,
                  "holds checkpoints already");
        must(convert_checkpoint(path.text, to.text, true));
        assert_checkpoint(&path, to.text);
    }
}

/* ---- into a program ---- */

static sl_status compare_parameters(void *user, sl_group group, uint32_t tensor_index,
                                    uint64_t first_element, uint64_t element_count,
                                    const float *data)
{
    assert_int_equal(group, SL_GROUP_PARAM);
    return compare_elements(user, group, tensor_index, first_element, element_count, data);
}

static void pieces_when_imported_then_in_the_programs_order(void **state)
{
    static const uint64_t windows[] = {16, 17, 40, SL_ACROSS_WINDOW_ELEMENTS};
    for (size_t i = 0; i < LAYOUT_COUNT; i++) {
        sl_model_pieces *pieces;
        sl_tensor_spec specs[64] = {0};
        const scratch_path path = unpack(*state, layouts[i].name);
        const sl_model_pieces_args args = {.path = path.text, .heads = 2};
        must(sl_model_pieces_open(&args, &pieces));
        kept self = {.shape = &pieces->shape};
        const sl_tensor_io io = {.write = compare_parameters, .user = &self};
        const uint32_t count = sl_model_tensors_count(&pieces->shape);
        self.expected = open_expected(path.text);
        sl_model_tensors_specify(&pieces->shape, specs);
        for (size_t j = 0; j < sizeof windows / sizeof windows[0]; j++) {
            self.element_count = 0;
            must(sl_model_pieces_import(pieces, specs, count, windows[j], &io));
            assert_int_equal(self.element_count, sl_model_shape_parameters(&pieces->shape));
        }
        sl_safetensors_close(self.expected);
        sl_model_pieces_close(pieces);
    }
}

/* ---- directories with something missing or changed ---- */

static const struct {
    const char *layout, *change; /* %s: the directory, once or twice */
    const char *message;
    sl_status of_checkpoint, of_weights;
} changes[] = {
    {"fsdp-nested", "rm %s/config.json", "put the model's config.json there", SL_ERROR_DATA,
     SL_ERROR_DATA},
    {"fsdp-nested", "sed -i 's/\"n_layer\": 1/\"n_layer\": 2/' %s/config.json",
     "\"h.1.ln_1.weight\" is missing", SL_ERROR_DATA, SL_ERROR_DATA},
    {"fsdp-nested", "sed -i 's/\"n_embd\": 4/\"n_embd\": 8/' %s/config.json",
     "is not as large as config.json says", SL_ERROR_DATA, SL_ERROR_DATA},
    {"fsdp-nested", "rm %s/__1_0.distcp", "__1_0.distcp", SL_ERROR_MISSING, SL_ERROR_MISSING},
    {"fsdp-nested", "cd %s && mv __1_0.distcp a && ln -s a __1_0.distcp", "symbolic link",
     SL_ERROR_DATA, SL_ERROR_DATA},
    {"fsdp-nested", "cd %s && cp __0_0.distcp __1_0.distcp", "w", SL_ERROR_DATA, SL_ERROR_DATA},
    {"fsdp-nested", "truncate -s 20000 %s/__2_0.distcp", "it is cut", SL_ERROR_DATA, SL_ERROR_DATA},
    {"fsdp-nested", "truncate -s -1 %s/.metadata", "ends in the middle", SL_ERROR_DATA,
     SL_ERROR_DATA},
    {"fsdp-nested", "truncate -s 17M %s/.metadata", "at most", SL_ERROR_DATA, SL_ERROR_DATA},
    {"fsdp-nested", "sed -i 's/exp_avg_sq/exp_avg_xx/g' %s/.metadata",
     "wte.weight.exp_avg_sq is missing", SL_ERROR_DATA, SL_OK},
    {"fsdp-nested", "sed -i 's/weight.step/weight.stop/g; s/bias.step/bias.stop/g' %s/.metadata",
     "the number of steps is not said", SL_ERROR_DATA, SL_OK},
    {"fsdp-nested", "sed -i 's/h.0.ln_1.weight/h.0.ln_9.weight/g' %s/.metadata",
     "\"h.0.ln_1.weight\" is missing", SL_ERROR_DATA, SL_ERROR_DATA},
    {"fsdp-nested", "sed -i 's/float32/float64/g' %s/.metadata", "is missing", SL_ERROR_DATA,
     SL_ERROR_DATA},
    {"fsdp-flat", "sed -i 's/lm_head.weight/lm_haed.weight/g' %s/.metadata",
     "\"lm_head.weight\" is missing", SL_ERROR_DATA, SL_ERROR_DATA},
    {"fsdp-accelerate", "rm -r %s/optimizer_0", "none under the names", SL_ERROR_DATA, SL_OK},
    {"fsdp-accelerate", "rm %s/optimizer_0/__0_0.distcp", "__0_0.distcp", SL_ERROR_MISSING,
     SL_ERROR_MISSING},
    {"core-parallel", "rm %s/iter_0000002/common.pt", "the number of steps is not said",
     SL_ERROR_DATA, SL_OK},
    {"core-parallel", "echo 9 > %s/latest_checkpointed_iteration.txt", "", SL_ERROR_MISSING,
     SL_ERROR_MISSING},
    {"core-parallel", "sed -i 's/linear_fc1.weight/linear_fc9.weight/g' %s/iter_0000002/.metadata",
     "has no tensor \"decoder.layers.0.mlp.linear_fc1.weight\"", SL_ERROR_DATA, SL_ERROR_DATA},
    {"core-parallel",
     "sed -i 's/state.exp_avg.decoder.layers.0.mlp/state.exp_abc.decoder.layers.0"
     ".mlp/g' %s/iter_0000002/.metadata",
     "optimizer.state.exp_avg is not there of each", SL_ERROR_DATA, SL_OK},
    {"zero1", "rm %s/global_step2/config.json", "put the model's config.json there", SL_ERROR_DATA,
     SL_ERROR_DATA},
    {"zero1", "rm %s/global_step2/zero/transformer.wte.weight/fp32.pt", "is missing", SL_ERROR_DATA,
     SL_ERROR_DATA},
    {"zero1", "rm %s/global_step2/zero/transformer.wpe.weight/exp_avg.pt",
     "wpe.weight.exp_avg is missing", SL_ERROR_DATA, SL_OK},
    {"zero1", "cd %s/global_step2/zero && cp transformer.wpe.weight/fp32.pt transformer.wte.weight",
     "is not as large as config.json says", SL_ERROR_DATA, SL_ERROR_DATA},
    {"zero1",
     "cd %s/global_step2/zero && cp transformer.wpe.weight/fp32.pt "
     "transformer.wte.weight/step.pt",
     "is no number of steps", SL_ERROR_DATA, SL_ERROR_DATA},
    {"zero1",
     "mkdir %s/global_step2/zero/transformer.h.7.ln_1.weight && cp "
     "%s/global_step2/zero/transformer.wpe.weight/fp32.pt "
     "%s/global_step2/zero/transformer.h.7.ln_1.weight",
     "is not one of a GPT-2", SL_ERROR_DATA, SL_ERROR_DATA},
    {"zero1", "printf ../global_step2 > %s/latest_universal", "which is no directory in it",
     SL_ERROR_DATA, SL_ERROR_DATA},
    {"zero3", "truncate -s -3 %s/global_step2/zero/transformer.wte.weight/fp32.pt", "fp32.pt",
     SL_ERROR_DATA, SL_ERROR_DATA},
    {"zero3", "rm %s/global_step2/zero_pp_rank_0_mp_rank_00_model_states.pt",
     "the number of steps is not said", SL_ERROR_DATA, SL_OK},
};

/* The weights alone, as a Hugging Face directory. */
static sl_status convert_weights(const char *from, const char *to)
{
    sl_model_reader reader;
    sl_convert_report report;
    SL_TRY(sl_model_reader_open(from, false, 2, &reader));
    const sl_convert_args args = {.reader = &reader, .to = to, .format = SL_CONVERT_HF};
    const sl_status status = sl_convert_run(&args, &report);
    sl_model_reader_close(&reader);
    return status;
}

static void pieces_when_changed_then_refused_or_without_states(void **state)
{
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        char command[4096];
        const scratch_path path = unpack(*state, changes[i].layout);
        const scratch_path checkpoint = scratch_join(path.text, "checkpoint");
        const scratch_path weights = scratch_join(path.text, "weights");
        snprintf(command, sizeof command, changes[i].change, path.text, path.text, path.text);
        assert_int_equal(system(command), 0);
        must_fail(changes[i].change, convert_checkpoint(path.text, checkpoint.text, false),
                  changes[i].of_checkpoint, changes[i].message);
        assert_false(scratch_exists(checkpoint.text));
        const sl_status status = convert_weights(path.text, weights.text);
        if (status != changes[i].of_weights)
            fail_msg("%s: the weights alone: %d, %s", changes[i].change, status,
                     sl_status_message());
    }
}

/* One bit of a part that is read later on: its checksum is compared when it is read. */
static void pieces_when_a_bit_flips_then_refused(void **state)
{
    size_t bytes;
    sl_model_reader reader;
    sl_convert_report report;
    const scratch_path path = unpack(*state, "core-stacked");
    const scratch_path to = scratch_join(path.text, "made");
    const scratch_path file = scratch_join(path.text, "iter_0000002/__0_0.distcp");
    char *data = scratch_read(file.text, &bytes);
    char *place = memmem(data, bytes, "archive/data/0", 14);
    scratch_need(place != NULL, "a storage");
    place[80] ^= 1;
    scratch_write(file.text, data, bytes);
    must(sl_model_reader_open(path.text, false, 2, &reader)); /* sizes are right */
    const sl_convert_args args = {
        .reader = &reader, .to = to.text, .format = SL_CONVERT_CHECKPOINT};
    must_fail("a flipped bit", sl_convert_run(&args, &report), SL_ERROR_DATA, "is damaged");
    sl_model_reader_close(&reader);
    free(data);
}

/* ---- hostile metadata ---- */

static void write_case(const char *directory, const case_metadata *of)
{
    static torch_bytes metadata, file;
    case_make(of, &metadata, &file);
    run_shell("rm -rf %s && mkdir %s", directory, directory);
    scratch_write(scratch_join(directory, ".metadata").text, metadata.data, metadata.count);
    scratch_write(scratch_join(directory, "__0_0.distcp").text, file.data, file.count);
}

/* Opens it, opens its parts, and reads them. */
static sl_status read_case(const char *directory, float data[6])
{
    sl_parts parts;
    SL_TRY(sl_distributed_open(directory, &parts));
    const sl_parted *tensor = sl_parts_find(&parts, "w");
    sl_status status = tensor ? sl_parts_check(&parts, tensor) : SL_ERROR_MISSING;
    if (status == SL_OK)
        status = sl_parts_read(&parts, tensor, 0, 6, data);
    sl_parts_close(&parts);
    return status;
}

static void metadata_when_hostile_then_refused(void **state)
{
    static const case_metadata good = {.name = "good"};
    const scratch_path directory = scratch_join(((scratch_path *)*state)->text, "hostile");
    float data[6];
    write_case(directory.text, &good);
    must(read_case(directory.text, data));
    for (int i = 0; i < 6; i++)
        assert_true(data[i] == (float)(1 + i % 3));
    assert_true(HOSTILE_METADATA_COUNT >= 30);
    for (size_t i = 0; i < HOSTILE_METADATA_COUNT; i++) {
        const case_metadata *row = &hostile_metadata[i];
        write_case(directory.text, row);
        must_fail(row->name, read_case(directory.text, data), SL_ERROR_DATA, row->message);
    }
}

/* Chunks of one, two and three dimensions, divided by any of them. */
static void metadata_when_divided_anyhow_then_each_element_once(void **state)
{
    static const struct {
        case_metadata of;
        float data[6];
    } rows[] = {
        {{.dims = 1,
          .size = {6},
          .chunks = {{.dims = 1, .size = {4}}, {.dims = 1, .offset = {4}, .size = {2}}}},
         {1, 2, 3, 4, 1, 2}},
        {{.chunks = {{.dims = 2, .size = {2, 2}}, {.dims = 2, .offset = {0, 2}, .size = {2, 1}}}},
         {1, 2, 1, 3, 4, 2}},
        {{.dims = 3,
          .size = {2, 1, 3},
          .chunks = {{.dims = 3, .size = {2, 1, 2}},
                     {.dims = 3, .offset = {0, 0, 2}, .size = {2, 1, 1}}}},
         {1, 2, 1, 3, 4, 2}},
        {{.dims = 3,
          .size = {1, 3, 2},
          .chunks = {{.dims = 3, .size = {1, 1, 2}},
                     {.dims = 3, .offset = {0, 1, 0}, .size = {1, 2, 2}}}},
         {1, 2, 1, 2, 3, 4}},
    };
    const scratch_path directory = scratch_join(((scratch_path *)*state)->text, "divided");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float data[6];
        write_case(directory.text, &rows[i].of);
        must(read_case(directory.text, data));
        assert_memory_equal(data, rows[i].data, sizeof data);
    }
}

/* A type that is not read is left out, and so is what has more dimensions. */
static void metadata_when_of_other_types_then_left_out(void **state)
{
    static const case_metadata rows[] = {
        {.name = "integers", .dtype = "torch\nint64"},
        {.name = "another name", .dtype = "os\nsystem"},
    };
    const scratch_path directory = scratch_join(((scratch_path *)*state)->text, "others");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float data[6];
        write_case(directory.text, &rows[i]);
        assert_int_equal(read_case(directory.text, data), SL_ERROR_MISSING);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_when_of_their_libraries_then_same_elements),
        cmocka_unit_test(checkpoint_when_made_of_pieces_then_has_their_states),
        cmocka_unit_test(pieces_when_imported_then_in_the_programs_order),
        cmocka_unit_test(pieces_when_changed_then_refused_or_without_states),
        cmocka_unit_test(pieces_when_a_bit_flips_then_refused),
        cmocka_unit_test(metadata_when_hostile_then_refused),
        cmocka_unit_test(metadata_when_divided_anyhow_then_each_element_once),
        cmocka_unit_test(metadata_when_of_other_types_then_left_out),
    };
    return cmocka_run_group_tests_name("pieces", tests, open_scratch, close_scratch);
}
