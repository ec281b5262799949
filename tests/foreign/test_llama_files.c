/* Llama, Qwen 2, Qwen 3 and OLMo 2 in files of others.
 *
 * What could be wrong here: a key of config.json that changes the computation is passed over, or
 * means something else where it is absent; a linear weight lies straight where it should lie
 * across, and in a square one nobody would see it; a name has a prefix where it has none; rows of
 * q and k stand in another order than llama.cpp turns them; a tied head is written, an untied one
 * left out; a checkpoint is taken for Hugging Face's. Texts of config.json are those of published
 * models; formats are held to readers of their own. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "convert_case.h"
#include "gguf_cursor.h"

/* Nothing even: heads, key heads, features of a head apart from width / heads. */
static sl_model_shape make_shape(sl_architecture_kind architecture)
{
    sl_model_shape shape = {.layers = 2,
                            .width = 20,
                            .heads = 6,
                            .context = 48,
                            .vocab = 131,
                            .architecture = architecture,
                            .kv_heads = 2,
                            .head = 6,
                            .ffn = 28,
                            .norm_epsilon = 1e-5 / 3, /* all digits of a double */
                            .rope.base = 1e4};
    if (architecture == SL_ARCHITECTURE_LLAMA) {
        shape.is_untied = true;
        shape.rope = (sl_model_rope){500, SL_ROTARY_LLAMA3, 8, 1, 4, 16};
    }
    if (architecture == SL_ARCHITECTURE_QWEN2)
        shape.rope = (sl_model_rope){.base = 1e6, .scaling = SL_ROTARY_LINEAR, .factor = 2.5};
    return shape;
}

static const sl_architecture_kind architectures[] = {SL_ARCHITECTURE_LLAMA, SL_ARCHITECTURE_QWEN2,
                                                     SL_ARCHITECTURE_QWEN3, SL_ARCHITECTURE_OLMO2};
enum { ARCHITECTURES = sizeof architectures / sizeof architectures[0] };

/* ---- config.json ---- */

#define SIZES                                                                                      \
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,"                         \
    "\"num_attention_heads\":4,\"vocab_size\":300,\"max_position_embeddings\":512"
#define LLAMA3                                                                                     \
    "{\"factor\":32.0,\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,"                           \
    "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\""

static sl_status read_text(const char *directory, const char *text, sl_model_shape *out_shape)
{
    scratch_write(scratch_join(directory, "config.json").text, text, strlen(text));
    return sl_weights_read_config(directory, out_shape);
}

static void config_when_of_published_models_then_their_shapes(void **state)
{
    static const struct {
        const char *name, *text;
    } rows[] = {
        {"llama-3.2-1b",
         "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,\"head_dim\":64,"
         "\"hidden_act\":\"silu\",\"hidden_size\":2048,\"intermediate_size\":8192,"
         "\"max_position_embeddings\":131072,\"mlp_bias\":false,\"model_type\":\"llama\","
         "\"num_attention_heads\":32,\"num_hidden_layers\":16,\"num_key_value_heads\":8,"
         "\"pretraining_tp\":1,\"rms_norm_eps\":1e-05,\"rope_scaling\":" LLAMA3
         "},\"rope_theta\":500000.0,\"tie_word_embeddings\":true,\"vocab_size\":128256}"},
        {"llama-3.2-1b", /* as transformers 5 writes it */
         "{\"head_dim\":64,\"hidden_size\":2048,\"intermediate_size\":8192,"
         "\"max_position_embeddings\":131072,\"model_type\":\"llama\",\"num_attention_heads\":32,"
         "\"num_hidden_layers\":16,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,"
         "\"rope_parameters\":" LLAMA3 ",\"rope_theta\":500000.0},\"tie_word_embeddings\":true,"
         "\"vocab_size\":128256}"},
        {"qwen2.5-0.5b",
         "{\"hidden_act\":\"silu\",\"hidden_size\":896,\"intermediate_size\":4864,"
         "\"max_position_embeddings\":32768,\"max_window_layers\":24,\"model_type\":\"qwen2\","
         "\"num_attention_heads\":14,\"num_hidden_layers\":24,\"num_key_value_heads\":2,"
         "\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,\"sliding_window\":32768,"
         "\"tie_word_embeddings\":true,\"use_mrope\":false,\"use_sliding_window\":false,"
         "\"vocab_size\":151936}"},
        {"qwen3-8b",
         "{\"attention_bias\":false,\"head_dim\":128,\"hidden_size\":4096,"
         "\"intermediate_size\":12288,\"max_position_embeddings\":40960,\"model_type\":\"qwen3\","
         "\"num_attention_heads\":32,\"num_hidden_layers\":36,\"num_key_value_heads\":8,"
         "\"rms_norm_eps\":1e-06,\"rope_scaling\":null,\"rope_theta\":1000000,"
         "\"sliding_window\":null,\"tie_word_embeddings\":false,\"vocab_size\":151936}"},
        {"olmo2-7b", "{\"attention_bias\":false,\"hidden_act\":\"silu\",\"hidden_size\":4096,"
                     "\"intermediate_size\":11008,\"max_position_embeddings\":4096,"
                     "\"model_type\":\"olmo2\",\"num_attention_heads\":32,\"num_hidden_layers\":32,"
                     "\"num_key_value_heads\":32,\"rms_norm_eps\":1e-06,\"rope_scaling\":null,"
                     "\"rope_theta\":500000,\"tie_word_embeddings\":false,\"vocab_size\":100352}"},
    };
    const scratch_path *directory = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_model_shape shape = {0}, named = {0};
        must(read_text(directory->text, rows[i].text, &shape));
        must(sl_architecture_named(rows[i].name, &named));
        if (!sl_model_shape_is_same(&shape, &named))
            fail_msg("%s: another shape", rows[i].name);
    }
}

static void config_when_keys_are_absent_then_as_transformers(void **state)
{
    const scratch_path *directory = *state;
    sl_model_shape shape = {0};
    must(read_text(directory->text, "{\"model_type\":\"llama\"," SIZES "}", &shape));
    assert_int_equal(shape.kv_heads, 4);
    assert_int_equal(shape.head, 16);
    assert_true(shape.is_untied && shape.norm_epsilon == 1e-6 && shape.rope.base == 1e4);
    must(read_text(directory->text,
                   "{\"model_type\":\"mistral\",\"sliding_window\":null,"
                   "\"num_key_value_heads\":2," SIZES "}",
                   &shape));
    assert_true(shape.architecture == SL_ARCHITECTURE_LLAMA && shape.kv_heads == 2);
    must(read_text(directory->text,
                   "{\"model_type\":\"qwen3\",\"num_key_value_heads\":2," SIZES "}", &shape));
    assert_int_equal(shape.head, 128);
    must(read_text(directory->text, "{\"model_type\":\"olmo2\"," SIZES "}", &shape));
    assert_true(shape.kv_heads == 4 && shape.head == 16 && shape.is_untied);
    assert_true(shape.norm_epsilon == 1e-5 && shape.rope.base == 1e4);
    must(read_text(
        directory->text,
        "{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}," SIZES "}",
        &shape));
    assert_true(shape.rope.scaling == SL_ROTARY_LINEAR && shape.rope.factor == 2);
}

#define LONG_QWEN                                                                                  \
    "{\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,"                        \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":300,"                      \
    "\"max_position_embeddings\":8192,\"use_sliding_window\":true"

/* A window that is used and not given has 4096 positions; one that is null is none. */
static void config_when_a_window_is_absent_then_transformers_default(void **state)
{
    static const char *const types[] = {"qwen2", "qwen3"};
    const scratch_path *directory = *state;
    for (int i = 0; i < 2; i++) {
        char text[512];
        sl_model_shape shape = {0};
        snprintf(text, sizeof text, LONG_QWEN ",\"model_type\":\"%s\"}", types[i]);
        assert_int_equal(read_text(directory->text, text, &shape), SL_ERROR_DATA);
        assert_non_null(strstr(sl_status_message(), "4096 of 8192"));
        snprintf(text, sizeof text, LONG_QWEN ",\"model_type\":\"%s\",\"sliding_window\":null}",
                 types[i]);
        must(read_text(directory->text, text, &shape));
    }
}

static void config_when_not_computed_then_the_key_is_named(void **state)
{
    static const struct {
        const char *type, *keys, *told;
    } rows[] = {
        {"llama", "\"hidden_act\":\"gelu\"", "hidden_act"},
        {"llama", "\"attention_bias\":true", "attention_bias"},
        {"qwen3", "\"attention_bias\":true,\"num_key_value_heads\":4", "attention_bias"},
        {"olmo2", "\"attention_bias\":true", "attention_bias"},
        {"llama", "\"mlp_bias\":true", "mlp_bias"},
        {"llama", "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}", "yarn"},
        {"llama", "\"rope_parameters\":{\"rope_type\":\"dynamic\",\"factor\":4}", "dynamic"},
        {"llama", "\"rope_scaling\":{\"rope_type\":\"linear\"}", "factor"},
        {"llama", "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}", "factors"},
        {"llama", "\"rope_scaling\":3", "rope_scaling"},
        {"llama", "\"partial_rotary_factor\":0.5", "partial_rotary_factor"},
        {"llama", "\"rope_parameters\":{\"partial_rotary_factor\":0.5}", "partial_rotary_factor"},
        {"llama", "\"num_key_value_heads\":3", "multiple"},
        {"llama", "\"head_dim\":7", "even"},
        {"llama", "\"quantization_config\":{\"bits\":4}", "quantised"},
        {"llama", "\"num_hidden_layers\":0", "num_hidden_layers"},
        {"mistral", "\"sliding_window\":256,\"num_key_value_heads\":2", "sliding window"},
        {"qwen2", "\"use_sliding_window\":true,\"sliding_window\":100,\"num_key_value_heads\":2",
         "sliding window"},
        {"qwen2", "\"hidden_act\":\"silu\"", "num_key_value_heads"},
        {"qwen3",
         "\"num_key_value_heads\":2,\"layer_types\":[\"full_attention\",\"sliding_attention\"]",
         "sliding_attention"},
        {"bloom", "\"head_dim\":16", "\"mistral\""},
    };
    const scratch_path *directory = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[1024];
        sl_model_shape shape = {0};
        snprintf(text, sizeof text, "{\"model_type\":\"%s\"," SIZES ",%s}", rows[i].type,
                 rows[i].keys);
        const sl_status status = read_text(directory->text, text, &shape);
        if (status != SL_ERROR_DATA || !strstr(sl_status_message(), rows[i].told))
            fail_msg("%s: status %d, \"%s\"", rows[i].keys, (int)status, sl_status_message());
    }
}

static void config_when_formatted_then_reads_back(void **state)
{
    const scratch_path *directory = *state;
    for (int i = 0; i < ARCHITECTURES; i++) {
        const sl_model_shape shape = make_shape(architectures[i]);
        sl_model_shape again = {0};
        char *text = NULL;
        must(sl_weights_format_config(&shape, "float32", 7, &text));
        must(read_text(directory->text, text, &again));
        assert_true(sl_model_shape_is_same(&shape, &again));
        assert_non_null(strstr(text, "ForCausalLM"));
        assert_non_null(strstr(text, "\"eos_token_id\": 7"));
        free(text);
    }
}

/* ---- directories ---- */

/* All of a file's tensor as fp32; the caller frees. */
static float *read_tensor(const char *directory, const char *name, uint64_t out_shape[2])
{
    sl_model_files *files;
    const sl_safetensors *file;
    must(sl_model_files_open(directory, &files));
    const sl_safetensors_tensor *tensor = sl_model_files_find(files, name, &file);
    scratch_need(tensor != NULL, name);
    float *data = calloc(tensor->element_count, sizeof *data);
    must(sl_safetensors_read(file, tensor, 0, tensor->element_count, data));
    memcpy(out_shape, tensor->shape, 2 * sizeof *out_shape);
    sl_model_files_close(files);
    return data;
}

static void assert_laid_across(const char *directory, const tiny_model *model, const char *name,
                               const char *whole_name)
{
    uint64_t rows, columns, shape[2];
    float *ours = gather(model, name, &rows, &columns);
    float *theirs = read_tensor(directory, whole_name, shape);
    assert_int_equal(shape[0], columns);
    assert_int_equal(shape[1], rows);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++)
            assert_true(ours[r * columns + c] == theirs[c * rows + r]);
    free(ours);
    free(theirs);
}

/* A checkpoint, the directory that is written of it, whole and in shards, and what is written of
 * that again: all are the same model. */
static void directories_when_written_and_read_then_the_same_model(void **state)
{
    const scratch_path *scratch = *state;
    for (int i = 0; i < ARCHITECTURES; i++) {
        char name[3][32];
        scratch_path path[3];
        for (int p = 0; p < 3; p++) {
            snprintf(name[p], sizeof name[p], "%d-%d", i, p);
            path[p] = scratch_join(scratch->text, name[p]);
        }
        tiny_model *model = open_model(make_shape(architectures[i]), 3, true);
        must(case_save_model(path[0].text, 7, 0, model));
        must(convert_with(path[0].text, path[1].text,
                          (sl_convert_args){.shard_bytes = i ? 0 : 9000}));
        assert_has_model(path[1].text, model);
        convert(path[1].text, path[2].text, SL_CONVERT_HF, SL_ENCODING_FP32);
        assert_has_model(path[2].text, model);
        assert_laid_across(path[2].text, model, "layers.1.self_attn.k_proj.weight",
                           "model.layers.1.self_attn.k_proj.weight");
        assert_laid_across(path[2].text, model, "layers.0.mlp.down_proj.weight",
                           "model.layers.0.mlp.down_proj.weight");
        size_t bytes;
        char *data = scratch_read(scratch_join(path[2].text, "model.safetensors").text, &bytes);
        assert_int_equal(memmem(data, bytes, "\"lm_head.weight\"", 16) != NULL,
                         model->shape.is_untied);
        assert_null(memmem(data, bytes, "model.lm_head", 13));
        free(data);
        tiny_close(model);
    }
}

/* A checkpoint keeps linear weights as [in, out]: its config.json is none that others read. */
static void checkpoint_when_saved_then_no_other_program_takes_it(void **state)
{
    const scratch_path *scratch = *state;
    tiny_model *model = open_model(make_shape(SL_ARCHITECTURE_QWEN3), 3, true);
    must(case_save_model(scratch_join(scratch->text, "saved").text, 7, 0, model));
    size_t bytes;
    char *text =
        scratch_read(scratch_join(scratch->text, "saved/step-00000007/config.json").text, &bytes);
    assert_non_null(memmem(text, bytes, "\"sluice-qwen3\"", 14));
    free(text);
    tiny_close(model);
}

static void formats_when_they_lack_the_model_then_told_by_name(void **state)
{
    const scratch_path *scratch = *state;
    static const struct {
        sl_convert_format format;
        const char *told;
    } rows[] = {{SL_CONVERT_LLMC, "llm.c has no Llama"}, {SL_CONVERT_MEGATRON, "Llama"}};
    tiny_model *model = open_model(make_shape(SL_ARCHITECTURE_LLAMA), 3, true);
    const scratch_path from = scratch_join(scratch->text, "saved");
    must(case_save_model(from.text, 7, 0, model));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const sl_convert_args args = {.format = rows[i].format, .tp_size = 1, .pp_size = 1};
        const sl_status status =
            convert_with(from.text, scratch_join(scratch->text, "to").text, args);
        assert_int_equal(status, SL_ERROR_USAGE);
        assert_non_null(strstr(sl_status_message(), rows[i].told));
    }
    tiny_close(model);
}

/* ---- GGUF ---- */

typedef struct gguf_place {
    uint64_t shape[2]; /* the fastest one first */
    const float *data;
} gguf_place;

/* An fp32 tensor of a file of `count` tensors whose description begins at `self`. */
static gguf_place find_gguf(const gguf_cursor *self, uint64_t count, const char *name)
{
    gguf_cursor walked = *self, ended = *self;
    gguf_place place = {{1, 1}, NULL};
    uint64_t offset = UINT64_MAX;
    skip_gguf_tensors(&ended, count);
    for (uint64_t i = 0; i < count; i++) {
        char text[256];
        const bool is_it = strcmp(take_text(&walked, text), name) == 0;
        const uint64_t dims = take(&walked, 4);
        for (uint64_t d = 0; d < dims; d++) {
            const uint64_t size = take(&walked, 8);
            if (is_it)
                place.shape[d] = size;
        }
        (void)take(&walked, 4);
        const uint64_t at = take(&walked, 8);
        if (is_it)
            offset = at;
    }
    if (offset == UINT64_MAX)
        fail_msg("%s is not there", name);
    const uint64_t start = ((uint64_t)(ended.at - ended.data) + 31) / 32 * 32;
    place.data = (const float *)(const void *)(ended.data + start + offset);
    return place;
}

/* llama.cpp turns features 2 i and 2 i + 1 of a head where files of others turn i and i + n / 2. */
static void assert_rows(const tiny_model *model, const gguf_place *place, const char *name,
                        bool is_interleaved)
{
    uint64_t rows, columns;
    const uint64_t head = model->shape.head;
    float *ours = gather(model, name, &rows, &columns);
    assert_int_equal(place->shape[0], rows);
    assert_int_equal(place->shape[1], columns);
    for (uint64_t out = 0; out < columns; out++) {
        const uint64_t pair = out % head % (head / 2), half = out % head / (head / 2);
        const uint64_t to = is_interleaved ? out / head * head + 2 * pair + half : out;
        for (uint64_t in = 0; in < rows; in++)
            assert_true(ours[in * columns + out] == place->data[to * rows + in]);
    }
    free(ours);
}

static void check_gguf(const scratch_path *scratch, sl_architecture_kind architecture,
                       uint64_t expected_count, const char *const *lines)
{
    char values[4096];
    size_t bytes;
    const bool is_llama = architecture == SL_ARCHITECTURE_LLAMA;
    tiny_model *model = open_model(make_shape(architecture), 3, false);
    const scratch_path from = scratch_join(scratch->text, sl_architecture_name(architecture));
    const scratch_path to = scratch_join(from.text, "m.gguf");
    must(case_save_model(from.text, 7, 0, model));
    convert(from.text, to.text, SL_CONVERT_GGUF, SL_ENCODING_FP32);
    char *file = scratch_read(to.text, &bytes);
    gguf_cursor cursor = {(unsigned char *)file, (unsigned char *)file + 8,
                          (unsigned char *)file + bytes};
    const uint64_t count = take(&cursor, 8), value_count = take(&cursor, 8);
    take_values(&cursor, value_count, values, sizeof values);
    assert_int_equal(count, expected_count);
    for (; *lines; lines++)
        if (!strstr(values, *lines))
            fail_msg("no %s in\n%s", *lines, values);
    const gguf_place q = find_gguf(&cursor, count, "blk.1.attn_q.weight");
    const gguf_place k = find_gguf(&cursor, count, "blk.0.attn_k.weight");
    const gguf_place v = find_gguf(&cursor, count, "blk.0.attn_v.weight");
    assert_rows(model, &q, "layers.1.self_attn.q_proj.weight", is_llama);
    assert_rows(model, &k, "layers.0.self_attn.k_proj.weight", is_llama);
    assert_rows(model, &v, "layers.0.self_attn.v_proj.weight", false);
    if (is_llama) { /* base 500, heads of 6: turns of 16 positions are 2.55, 0.32 and 0.04 */
        const gguf_place divisors = find_gguf(&cursor, count, "rope_freqs.weight");
        const double share = (16 / (2 * M_PI) - 1) / 3;
        assert_int_equal(divisors.shape[0], 3);
        assert_true(fabs(divisors.data[0] - 1 / ((1 - share) / 8 + share)) < 1e-6);
        assert_true(divisors.data[1] == 8 && divisors.data[2] == 8);
    }
    free(file);
    tiny_close(model);
}

static void gguf_when_written_then_as_llama_cpp_reads_it(void **state)
{
    static const char *const llama[] = {
        "general.architecture=llama\n",   "llama.attention.head_count_kv=2\n",
        "llama.attention.key_length=6\n", "llama.rope.dimension_count=6\n",
        "llama.rope.freq_base=500\n",     "llama.attention.layer_norm_rms_epsilon=3.33333332e-06\n",
        "llama.feed_forward_length=28\n", NULL};
    static const char *const qwen2[] = {"general.architecture=qwen2\n",
                                        "qwen2.rope.scaling.type=linear\n",
                                        "qwen2.rope.scaling.factor=2.5\n", NULL};
    static const char *const qwen3[] = {"general.architecture=qwen3\n",
                                        "qwen3.attention.head_count=6\n", NULL};
    static const char *const olmo2[] = {"general.architecture=olmo2\n",
                                        "olmo2.attention.head_count_kv=2\n", NULL};
    const scratch_path *scratch = *state;
    check_gguf(scratch, SL_ARCHITECTURE_LLAMA, 2 * 9 + 4, llama);  /* head and frequencies */
    check_gguf(scratch, SL_ARCHITECTURE_QWEN2, 2 * 12 + 2, qwen2); /* biases */
    check_gguf(scratch, SL_ARCHITECTURE_QWEN3, 2 * 11 + 2, qwen3); /* norms of heads */
    check_gguf(scratch, SL_ARCHITECTURE_OLMO2, 2 * 11 + 2, olmo2);
}

/* ---- vocabularies ---- */

#define PATTERNS SL_TEST_SOURCE_DIRECTORY "/reference/patterns/"

/* The tokenizer.json of a fixture with one place of its text changed, and nothing beside it. */
static sl_vocabulary *open_lone(const char *directory, const char *before, const char *after,
                                const char *config)
{
    size_t bytes;
    sl_vocabulary *vocabulary = NULL;
    char *json = scratch_read(scratch_join(directory, "tokenizer.json").text, &bytes);
    char *place = strstr(json, before);
    scratch_need(place && strlen(before) == strlen(after), before);
    memcpy(place, after, strlen(after));
    const sl_vocabulary_text text = {"tokenizer.json", json, bytes};
    const sl_vocabulary_text more = {"tokenizer_config.json", (char *)(uintptr_t)config,
                                     config ? strlen(config) : 0};
    must(sl_vocabulary_parse_json(&text, config ? &more : NULL, &vocabulary));
    free(json);
    return vocabulary;
}

static scratch_path save_for(const scratch_path *scratch, sl_architecture_kind architecture,
                             const sl_vocabulary *vocabulary, const char *name)
{
    sl_model_shape shape = make_shape(architecture);
    const scratch_path path = scratch_join(scratch->text, name);
    shape.vocab = vocabulary ? sl_vocabulary_count(vocabulary) : shape.vocab;
    shape.rope = (sl_model_rope){500, SL_ROTARY_LLAMA3, 8, 1, 4, 16};
    tiny_model *model = open_model(shape, 3, false);
    must(case_save_model(path.text, 7, 0, model));
    tiny_close(model);
    return path;
}

static void assert_file_has(const char *path, const char *part)
{
    size_t bytes;
    char *text = scratch_read(path, &bytes);
    if (!memmem(text, bytes, part, strlen(part)))
        fail_msg("no %s in %s", part, path);
    free(text);
}

/* The pattern is the vocabulary's, whatever the model. */
static void gguf_when_of_a_vocabulary_then_has_its_pattern(void **state)
{
    static const struct {
        sl_architecture_kind architecture;
        const char *directory, *pattern;
    } rows[] = {
        {SL_ARCHITECTURE_LLAMA, TEXT_FIXTURES, "\5\0\0\0\0\0\0\0gpt-2"},
        {SL_ARCHITECTURE_LLAMA, PATTERNS "qwen2", "\5\0\0\0\0\0\0\0qwen2"},
        {SL_ARCHITECTURE_LLAMA, PATTERNS "llama3", "\11\0\0\0\0\0\0\0llama-bpe"},
    };
    const scratch_path *scratch = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[24], key[64];
        size_t bytes;
        const size_t tail = 8 + (size_t)rows[i].pattern[0];
        sl_vocabulary *vocabulary = text_open(rows[i].directory);
        snprintf(name, sizeof name, "%zu", i);
        const scratch_path from = save_for(scratch, rows[i].architecture, vocabulary, name);
        const scratch_path to = scratch_join(from.text, "m.gguf");
        must(convert_with(from.text, to.text,
                          (sl_convert_args){.format = SL_CONVERT_GGUF, .vocabulary = vocabulary}));
        char *file = scratch_read(to.text, &bytes);
        const size_t length = (size_t)snprintf(key, sizeof key, "tokenizer.ggml.pre");
        const char *place = memmem(file, bytes, key, length);
        assert_non_null(place);
        assert_memory_equal(place + length + 4, rows[i].pattern, tail); /* behind the type */
        free(file);
        sl_vocabulary_close(vocabulary);
    }
}

static void gguf_when_llama_cpp_would_compute_otherwise_then_refused(void **state)
{
    const scratch_path *scratch = *state;
    sl_vocabulary *vocabulary = open_lone(PATTERNS "llama3", "{1,3}", "{1,2}", NULL);
    const scratch_path llama = save_for(scratch, SL_ARCHITECTURE_LLAMA, vocabulary, "llama");
    const scratch_path qwen = save_for(scratch, SL_ARCHITECTURE_QWEN3, NULL, "qwen");
    const scratch_path to = scratch_join(scratch->text, "m.gguf");
    assert_int_equal(
        convert_with(llama.text, to.text,
                     (sl_convert_args){.format = SL_CONVERT_GGUF, .vocabulary = vocabulary}),
        SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "no name for the pattern"));
    assert_int_equal(convert_with(qwen.text, to.text, (sl_convert_args){.format = SL_CONVERT_GGUF}),
                     SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "a qwen3"));
    assert_false(scratch_exists(to.text));
    sl_vocabulary_close(vocabulary);
}

/* transformers computes the pattern of the class that is named. */
static void directory_when_of_a_vocabulary_then_names_the_class_of_its_files(void **state)
{
    const scratch_path *scratch = *state;
    /* what transformers writes where no limit is known */
    static const char limitless[] = "{\"model_max_length\": 1000000000000000019884624838656}";
    sl_vocabulary *vocabularies[] = {text_open(TEXT_FIXTURES),
                                     open_lone(PATTERNS "llama3", "{1,3}", "{1,2}", limitless)};
    static const char *const classes[] = {"\"GPT2Tokenizer\"", "\"PreTrainedTokenizerFast\""};
    for (int i = 0; i < 2; i++) {
        const scratch_path from =
            save_for(scratch, SL_ARCHITECTURE_LLAMA, vocabularies[i], i ? "a" : "b");
        const scratch_path to = scratch_join(scratch->text, i ? "to-a" : "to-b");
        must(convert_with(
            from.text, to.text,
            (sl_convert_args){.format = SL_CONVERT_HF, .vocabulary = vocabularies[i]}));
        assert_file_has(scratch_join(to.text, "tokenizer_config.json").text, classes[i]);
        assert_int_equal(scratch_exists(scratch_join(to.text, "tokenizer.json").text), i);
        sl_vocabulary_close(vocabularies[i]);
    }
}

/* llama.cpp finds a token in a text if it is of a user or of control, and by its own text.
 */
static void gguf_when_tokens_are_added_then_their_text_and_kind(void **state)
{
    static const struct {
        const char *name, *text, *type;
        uint32_t vocab;
    } cases[] = {{"qwen2", "tokens=1005: e\xcc\x81<\n", "token_type=1005: 4\n", 1005},
                 {"llama3", "tokens=1003: <|im_end|>\n", "token_type=1003: 3\n", 1003}};
    const scratch_path *scratch = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char values[4096];
        size_t bytes;
        sl_model_shape shape = make_shape(SL_ARCHITECTURE_QWEN2);
        shape.vocab = cases[i].vocab;
        tiny_model *model = open_model(shape, 3, false);
        const scratch_path from = scratch_join(scratch->text, cases[i].name);
        const scratch_path to = scratch_join(from.text, "m.gguf");
        const scratch_path tokens =
            scratch_join(SL_TEST_SOURCE_DIRECTORY "/reference/patterns", cases[i].name);
        sl_vocabulary *vocabulary = NULL;
        must(sl_vocabulary_read(tokens.text, &vocabulary));
        must(case_save_model(from.text, 7, 0, model));
        must(convert_with(from.text, to.text,
                          (sl_convert_args){.format = SL_CONVERT_GGUF, .vocabulary = vocabulary}));
        char *file = scratch_read(to.text, &bytes);
        gguf_cursor cursor = {(unsigned char *)file, (unsigned char *)file + 16,
                              (unsigned char *)file + bytes};
        take_values(&cursor, take(&cursor, 8), values, sizeof values);
        if (!strstr(values, cases[i].text) || !strstr(values, cases[i].type))
            fail_msg("no %s or no %s in\n%s", cases[i].text, cases[i].type, values);
        free(file);
        sl_vocabulary_close(vocabulary);
        tiny_close(model);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scratch, close_scratch)
    const struct CMUnitTest tests[] = {
        TEST(config_when_of_published_models_then_their_shapes),
        TEST(config_when_keys_are_absent_then_as_transformers),
        TEST(config_when_a_window_is_absent_then_transformers_default),
        TEST(config_when_not_computed_then_the_key_is_named),
        TEST(config_when_formatted_then_reads_back),
        TEST(directories_when_written_and_read_then_the_same_model),
        TEST(checkpoint_when_saved_then_no_other_program_takes_it),
        TEST(formats_when_they_lack_the_model_then_told_by_name),
        TEST(gguf_when_written_then_as_llama_cpp_reads_it),
        TEST(gguf_when_of_a_vocabulary_then_has_its_pattern),
        TEST(gguf_when_llama_cpp_would_compute_otherwise_then_refused),
        TEST(directory_when_of_a_vocabulary_then_names_the_class_of_its_files),
        TEST(gguf_when_tokens_are_added_then_their_text_and_kind),
    };
    return cmocka_run_group_tests_name("llama files", tests, NULL, NULL);
}
