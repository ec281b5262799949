/* Hugging Face directories. What could be wrong: a tensor taken twice, skipped or under the wrong
 * name, panels put together in the wrong place, padding rows left as they were, an index not
 * followed, a good configuration refused. Oracle: files that this test writes with jansson from the
 * definition of the format, from parameters that it drew. Bad files: test_safetensors.c. */
#define _GNU_SOURCE
#include "files/safetensors_case.h"

#include <jansson.h>

#include "foreign/weights.h"
#include "tensors/tiny_model.h"

static const sl_model_shape tiny_shape = {
    .layers = 2, .width = 8, .heads = 2, .context = 16, .vocab = 300};

static const bool param_only[SL_GROUP_COUNT] = {[SL_GROUP_PARAM] = true};

typedef enum store_as { AS_F32, AS_BF16 } store_as;

/* A directory as other tools write it: entries in model order, any prefix, buffers beside. */
typedef struct export_options {
    const char *prefix;
    store_as type;
    int with_buffers;
    const char *left_out; /* a tensor's name, or NULL */
    const char *extra;    /* name of one more scalar, or NULL */
    uint64_t wpe_rows_more;
} export_options;

typedef struct export_file {
    json_t *header;
    unsigned char *data;
    size_t bytes;
} export_file;

static void export_tensor(export_file *file, const char *name, store_as type, uint32_t dim_count,
                          const uint64_t *shape, const float *values)
{
    uint64_t count = 1, element = type == AS_F32 ? 4 : 2;
    json_t *dimensions = json_array();
    for (uint32_t i = 0; i < dim_count; i++) {
        json_array_append_new(dimensions, json_integer((json_int_t)shape[i]));
        count *= shape[i];
    }
    file->data = realloc(file->data, file->bytes + count * element + 1);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits = 0;
        if (values)
            memcpy(&bits, &values[i], 4);
        if (type == AS_BF16)
            bits >>= 16; /* cut, not rounded: the test fills with values that bf16 holds */
        memcpy(file->data + file->bytes + i * element, &bits, element);
    }
    json_object_set_new(file->header, name,
                        json_pack("{s:s,s:o,s:[I,I]}", "dtype", type == AS_F32 ? "F32" : "BF16",
                                  "shape", dimensions, "data_offsets", (json_int_t)file->bytes,
                                  (json_int_t)(file->bytes + count * element)));
    file->bytes += count * element;
}

static void export_finish(export_file *file, const char *path)
{
    char *header = json_dumps(file->header, JSON_COMPACT);
    write_by_hand(path, header, file->data, file->bytes);
    free(header);
    free(file->data);
    json_decref(file->header);
}

static void export_model(const tiny_model *model, const export_options *options, const char *path)
{
    export_file file = {.header = json_object()};
    float *wte = malloc(model->shape.vocab * model->shape.width * 4ull);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const sl_tensor_spec *spec = &model->tensors[i];
        const float *values = model->data[SL_GROUP_PARAM][i];
        uint64_t shape[2] = {spec->whole_shape[0], spec->whole_shape[1]};
        char name[96];
        if (strcmp(spec->name, "wte.weight") == 0) { /* panels: gathered, written with the last */
            memcpy(wte + spec->first_row * shape[1], values, spec->valid_rows * shape[1] * 4);
            if (spec->first_row + spec->valid_rows < shape[0])
                continue;
            values = wte;
        }
        if (options->left_out && strcmp(options->left_out, spec->name) == 0)
            continue;
        float *more = NULL;
        if (strcmp(spec->name, "wpe.weight") == 0 && options->wpe_rows_more) {
            shape[0] += options->wpe_rows_more;
            values = more = calloc(shape[0] * shape[1], 4);
        }
        snprintf(name, sizeof name, "%s%s", options->prefix, spec->name);
        export_tensor(&file, name, options->type, spec->dim_count, shape, values);
        free(more);
    }
    if (options->with_buffers) {
        char name[96];
        uint64_t mask[4] = {1, 1, 16, 16}, vocab[2] = {model->shape.vocab, model->shape.width};
        snprintf(name, sizeof name, "%sh.1.attn.bias", options->prefix);
        export_tensor(&file, name, AS_F32, 4, mask, NULL);
        snprintf(name, sizeof name, "%sh.0.attn.masked_bias", options->prefix);
        export_tensor(&file, name, AS_F32, 0, NULL, NULL);
        export_tensor(&file, "lm_head.weight", AS_F32, 2, vocab, wte);
    }
    if (options->extra)
        export_tensor(&file, options->extra, AS_F32, 0, NULL, NULL);
    export_finish(&file, path);
    free(wte);
}

/* Random parameters that bf16 holds exactly. */
static tiny_model *draw_model(void)
{
    tiny_model *model = tiny_open(tiny_shape);
    tiny_fill(model, 3);
    for (uint32_t i = 0; i < model->tensor_count; i++)
        for (uint64_t j = 0; j < model->tensors[i].element_count; j++) {
            uint32_t bits;
            memcpy(&bits, &model->data[SL_GROUP_PARAM][i][j], 4);
            bits &= 0xffff0000;
            memcpy(&model->data[SL_GROUP_PARAM][i][j], &bits, 4);
        }
    return model;
}

static sl_status import_into(tiny_model *model, const char *directory)
{
    sl_tensor_io io = tiny_io(model);
    return sl_weights_import(&model->shape, directory, model->tensors, model->tensor_count, &io);
}

static void directories_when_imported_then_same_parameters(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "model.safetensors");
    static const export_options options[] = {
        {.prefix = ""},
        {.prefix = "transformer."},
        {.prefix = "", .with_buffers = 1},
        {.prefix = "transformer.", .with_buffers = 1, .type = AS_BF16},
    };
    tiny_model *model = draw_model();
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        tiny_model *read = tiny_open(tiny_shape); /* full of 0xEE: padding must become zero */
        uint64_t elements = 0;
        export_model(model, &options[i], path.text);
        if (import_into(read, directory->text) != SL_OK)
            fail_msg("%s", sl_status_message());
        assert_true(tiny_equal(model, read, param_only));
        for (uint32_t t = 0; t < model->tensor_count; t++)
            elements += model->tensors[t].element_count;
        assert_int_equal(read->write_count, elements); /* each element once */
        tiny_close(read);
    }
    tiny_close(model);
}

static void directories_when_wrong_then_told_before_any_write(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "model.safetensors");
    static const struct {
        export_options options;
        const char *fragment;
    } rows[] = {
        {{.prefix = "", .left_out = "h.1.mlp.c_fc.weight"}, "\"h.1.mlp.c_fc.weight\" is missing"},
        {{.prefix = "gpt."}, "is not one of a GPT-2"},
        {{.prefix = "", .extra = "h.2.ln_1.weight"}, "\"h.2.ln_1.weight\" is not one"},
        {{.prefix = "", .extra = "h.x.attn.bias"}, "\"h.x.attn.bias\" is not one"},
        {{.prefix = "", .extra = "transformer.wte.weight"}, "is there twice"},
        {{.prefix = "", .wpe_rows_more = 1},
         "shape [17, 8], but the model needs 2 dimensions and shape [16, 8]"},
    };
    tiny_model *model = draw_model();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tiny_model *read = tiny_open(tiny_shape);
        export_model(model, &rows[i].options, path.text);
        must_fail(rows[i].fragment, import_into(read, directory->text), SL_ERROR_DATA,
                  rows[i].fragment);
        assert_int_equal(read->calls, 0);
        tiny_close(read);
    }
    tiny_close(model);
}

static void import_when_sink_fails_then_its_status(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "model.safetensors");
    tiny_model *model = draw_model();
    export_model(model, &(export_options){.prefix = ""}, path.text);
    model->fail_call = 3;
    assert_int_equal(import_into(model, directory->text), SL_ERROR_RANK);
    assert_int_equal(model->calls, 3);
    tiny_close(model);
}

static void import_when_tensor_is_split_then_usage_error(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "model.safetensors");
    tiny_model *model = draw_model();
    export_model(model, &(export_options){.prefix = ""}, path.text);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        sl_tensor_spec kept = model->tensors[i];
        if (strcmp(kept.name, "h.0.attn.c_attn.weight") == 0) {
            model->tensors[i].shape[1] /= 2;
            must_fail("columns", import_into(model, directory->text), SL_ERROR_USAGE, "panels");
        }
        if (strcmp(kept.name, "wte.weight") == 0) {
            model->tensors[i].valid_rows--;
            must_fail("rows", import_into(model, directory->text), SL_ERROR_USAGE, "panels");
        }
        model->tensors[i] = kept;
    }
    tiny_close(model);
}

/* Splits the tensors over two shards as transformers does: by an index. */
static void export_shards(const tiny_model *model, const char *directory)
{
    static const char *const names[] = {"model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors"};
    json_t *map = json_object();
    scratch_path single = scratch_join(directory, "single");
    export_model(model, &(export_options){.prefix = "transformer."}, single.text);
    sl_safetensors *whole = must_open(single.text);
    export_file files[2] = {{.header = json_object()}, {.header = json_object()}};
    for (uint32_t i = 0; i < whole->tensor_count; i++) {
        const sl_safetensors_tensor *tensor = &whole->tensors[i];
        float *values = malloc(tensor->byte_count + 4);
        assert_int_equal(sl_safetensors_read(whole, tensor, 0, tensor->element_count, values),
                         SL_OK);
        export_tensor(&files[i % 2], tensor->name, AS_F32, tensor->dim_count, tensor->shape,
                      values);
        json_object_set_new(map, tensor->name, json_string(names[i % 2]));
        free(values);
    }
    for (int i = 0; i < 2; i++)
        export_finish(&files[i], scratch_join(directory, names[i]).text);
    json_t *index = json_pack("{s:{s:i},s:o}", "metadata", "total_size", 1, "weight_map", map);
    assert_int_equal(
        json_dump_file(index, scratch_join(directory, "model.safetensors.index.json").text, 0), 0);
    json_decref(index);
    sl_safetensors_close(whole);
}

static void sharded_directory_when_imported_then_same_parameters(void **state)
{
    const scratch_path *directory = *state;
    tiny_model *model = draw_model(), *read = tiny_open(tiny_shape);
    export_shards(model, directory->text);
    if (import_into(read, directory->text) != SL_OK)
        fail_msg("%s", sl_status_message());
    assert_true(tiny_equal(model, read, param_only));
    tiny_close(read);
    tiny_close(model);
}

static void import_when_files_are_missing_then_told(void **state)
{
    const scratch_path *directory = *state;
    tiny_model *model = draw_model();
    sl_model_shape shape;
    must_fail("none", import_into(model, directory->text), SL_ERROR_MISSING, "holds neither");
    scratch_path none = scratch_join(directory->text, "none");
    must_fail("none", import_into(model, none.text), SL_ERROR_MISSING, "cannot be opened");
    must_fail("none", sl_weights_read_config(none.text, &shape), SL_ERROR_MISSING, "none");
    must_fail("none", sl_weights_read_config(directory->text, &shape), SL_ERROR_MISSING,
              "config.json");
    scratch_write(none.text, "", 0);
    must_fail("file", import_into(model, none.text), SL_ERROR_DATA, "not a directory");
    tiny_close(model);
}

/* ---- config.json ---- */

static void config_when_good_then_shape(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "config.json");
    static const struct {
        const char *text;
        sl_model_shape shape;
    } rows[] = {
        {"{\"model_type\":\"gpt2\"}", {12, 768, 12, 1024, 50257}},
        {"{\"model_type\":\"gpt2\",\"n_layer\":48,\"n_embd\":1600,\"n_head\":25,\"n_inner\":null,"
         "\"n_ctx\":1024,\"layer_norm_epsilon\":1e-05,\"tie_word_embeddings\":true}",
         {48, 1600, 25, 1024, 50257}},
        {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":4,\"n_inner\":256,"
         "\"n_positions\":32,\"vocab_size\":257,\"activation_function\":\"gelu_pytorch_tanh\","
         "\"layer_norm_epsilon\":0.00001,\"attn_pdrop\":0.1,\"task\":{\"a\":[1,2]}}",
         {2, 64, 4, 32, 257}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_model_shape shape = {0};
        scratch_write(path.text, rows[i].text, strlen(rows[i].text));
        if (sl_weights_read_config(directory->text, &shape) != SL_OK)
            fail_msg("%s", sl_status_message());
        assert_memory_equal(&shape, &rows[i].shape, sizeof shape);
    }
}

static void config_when_formatted_then_reads_back(void **state)
{
    const scratch_path *directory = *state;
    sl_model_shape shape = {3, 96, 6, 40, 301}, again = {0};
    char *text = NULL;
    assert_int_equal(sl_weights_format_config(&shape, "float32", shape.vocab - 1, &text), SL_OK);
    scratch_write(scratch_join(directory->text, "config.json").text, text, strlen(text));
    assert_int_equal(sl_weights_read_config(directory->text, &again), SL_OK);
    assert_memory_equal(&shape, &again, sizeof shape);
    /* What transformers and other readers look for beyond the sizes. */
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(root, "architectures"), 0)),
        "GPT2LMHeadModel");
    assert_int_equal(json_integer_value(json_object_get(root, "n_ctx")), 40);
    assert_int_equal(json_integer_value(json_object_get(root, "eos_token_id")), 300);
    assert_true(json_real_value(json_object_get(root, "layer_norm_epsilon")) == 1e-5);
    json_decref(root);
    free(text);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scratch, close_scratch)
    const struct CMUnitTest tests[] = {
        TEST(directories_when_imported_then_same_parameters),
        TEST(directories_when_wrong_then_told_before_any_write),
        TEST(import_when_sink_fails_then_its_status),
        TEST(import_when_tensor_is_split_then_usage_error),
        TEST(sharded_directory_when_imported_then_same_parameters),
        TEST(import_when_files_are_missing_then_told),
        TEST(config_when_good_then_shape),
        TEST(config_when_formatted_then_reads_back),
    };
    return cmocka_run_group_tests_name("weights", tests, NULL, NULL);
}
