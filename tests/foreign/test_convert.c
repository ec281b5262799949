/* What could be wrong here: a weight changes on its way into another format and back, lies across
 * where it should lie straight, or is rounded otherwise than to nearest; a file is not what its
 * readers expect; something half-written is left, or something goes that nobody gave up; a bad file
 * is read. Formats are held to readers of their own, written from their descriptions. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <sys/file.h>

#include "convert_case.h"
#include "foreign/convert/convert.h"
#include "foreign/convert/output.h"
#include "foreign/weights.h"
#include "gguf_cursor.h"
#include "hostile_models.h"
#include "text/text_case.h"

static bool is_linear(const char *name)
{
    return strstr(name, ".c_") && strstr(name, ".weight");
}

/* ---- rounding ---- */

/* All finite numbers of fp16 from 0 on are ldexp of an integer: 2^-24 times 0 .. 1023, and so on.
 */
static double fp16_value(uint32_t index)
{
    uint32_t exponent = index >> 10, mantissa = index & 0x3ff;
    return exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, (int)exponent - 25);
}

static uint16_t nearest_fp16(float value)
{
    uint32_t low = 0, high = 0x7bff;
    double size = fabs((double)value);
    while (low < high) { /* the last that is not above */
        uint32_t middle = (low + high + 1) / 2;
        if (fp16_value(middle) <= size)
            low = middle;
        else
            high = middle - 1;
    }
    double below = size - fp16_value(low), above = fp16_value(low + 1) - size;
    uint32_t index = above < below || (above == below && low % 2 == 1) ? low + 1 : low;
    return (uint16_t)(index | (signbit(value) ? 0x8000 : 0));
}

static uint16_t nearest_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t low = bits >> 16, rest = bits & 0xffff;
    return (uint16_t)(low + (rest > 0x8000 || (rest == 0x8000 && low % 2 == 1)));
}

static void halves_when_encoded_then_nearest_even(void **state)
{
    (void)state;
    uint64_t draw = scratch_seed(__func__, 11);
    for (uint64_t i = 0; i < scratch_count(200000, 20000000); i++) {
        uint32_t bits = (uint32_t)(scratch_draw(&draw) >> 32);
        if (i % 3 == 0)
            bits &= 0xfffff000; /* ties of fp16 */
        if (i % 5 == 0)
            bits &= 0xffff8000; /* of bf16 */
        float value, again;
        uint16_t half;
        memcpy(&value, &bits, sizeof value);
        if (fabsf(value) < 65504) {
            must(sl_encoding_encode(SL_ENCODING_FP16, &value, 1, &half));
            assert_int_equal(half, nearest_fp16(value));
        }
        if (fabsf(value) < 3e38f) {
            must(sl_encoding_encode(SL_ENCODING_BF16, &value, 1, &half));
            assert_int_equal(half, nearest_bf16(value));
            sl_encoding_decode(SL_ENCODING_BF16, &half, 1, &again);
            assert_true(fabsf(again - value) <= fabsf(value) / 256 + 1e-38f);
        }
    }
}

static void numbers_when_they_do_not_fit_then_refused(void **state)
{
    (void)state;
    static const struct {
        sl_encoding encoding;
        float value;
        bool fits;
    } cases[] = {{SL_ENCODING_FP16, 65519.9f, true},    {SL_ENCODING_FP16, -65520, false},
                 {SL_ENCODING_FP16, INFINITY, true},    {SL_ENCODING_BF16, 3.3895e38f, true},
                 {SL_ENCODING_BF16, 3.3999e38f, false}, {SL_ENCODING_Q8_0, INFINITY, false},
                 {SL_ENCODING_Q8_0, NAN, false},        {SL_ENCODING_Q8_0, 8.2e6f, true},
                 {SL_ENCODING_Q8_0, 8.4e6f, false},     {SL_ENCODING_FP32, NAN, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float data[SL_ENCODING_Q8_0_ELEMENTS] = {1, 2, 3};
        unsigned char stored[sizeof data];
        data[9] = cases[i].value;
        sl_status status =
            sl_encoding_encode(cases[i].encoding, data, SL_ENCODING_Q8_0_ELEMENTS, stored);
        if (status != (cases[i].fits ? SL_OK : SL_ERROR_DATA))
            fail_msg("case %zu: status %d", i, (int)status);
    }
}

/* The definition, in double where it is exact: ggml divides by 127 in fp32, and so do we. */
static void check_block(const float *data, const unsigned char *block)
{
    float largest = 0;
    uint16_t half;
    for (int i = 0; i < 32; i++)
        largest = fmaxf(largest, fabsf(data[i]));
    float scale = largest / 127, inverse = scale != 0 ? 1 / scale : 0;
    memcpy(&half, block, sizeof half);
    assert_int_equal(half, nearest_fp16(scale));
    for (int i = 0; i < 32; i++)
        assert_int_equal((int8_t)block[2 + i], (int)round((double)(data[i] * inverse)));
}

static void blocks_when_encoded_then_as_q8_0_is_defined(void **state)
{
    (void)state;
    uint64_t draw = scratch_seed(__func__, 12);
    for (uint64_t i = 0; i < scratch_count(5000, 500000); i++) {
        float data[64];
        unsigned char stored[68];
        double size = ldexp(1, (int)scratch_below(&draw, 24) - 16);
        for (int j = 0; j < 64; j++)
            data[j] = (float)(size * ((double)scratch_below(&draw, 2001) / 1000 - 1));
        if (i % 50 == 0)
            memset(data, 0, 32 * sizeof *data);
        must(sl_encoding_encode(SL_ENCODING_Q8_0, data, 64, stored));
        check_block(data, stored);
        check_block(data + 32, stored + 34);
    }
    assert_int_equal(sl_encoding_bytes(SL_ENCODING_Q8_0, 64), 68);
}

/* ---- there and back ---- */

static void checkpoint_when_converted_and_back_then_every_bit(void **state)
{
    (void)state;
    scratch_path scratch = scratch_open();
    tiny_model *model = open_model(case_shape, 3, true);
    scratch_path from = scratch_join(scratch.text, "saved");
    scratch_path hf = scratch_join(scratch.text, "hf"), bin = scratch_join(scratch.text, "m.bin");
    scratch_path again = scratch_join(scratch.text, "again"),
                 last = scratch_join(scratch.text, "l.bin");
    must(case_save_model(from.text, 7, 0, model));
    convert(from.text, hf.text, SL_CONVERT_HF, SL_ENCODING_FP32);
    assert_has_model(hf.text, model);
    convert(from.text, bin.text, SL_CONVERT_LLMC, SL_ENCODING_FP32);
    convert(bin.text, again.text, SL_CONVERT_HF, SL_ENCODING_FP32);
    assert_has_model(again.text, model);
    convert(hf.text, last.text, SL_CONVERT_LLMC, SL_ENCODING_FP32);
    size_t bytes, last_bytes;
    char *data = scratch_read(bin.text, &bytes), *last_data = scratch_read(last.text, &last_bytes);
    assert_int_equal(bytes, last_bytes);
    assert_memory_equal(data, last_data, bytes);
    free(data);
    free(last_data);
    tiny_close(model);
    scratch_close(&scratch);
}

/* One file of safetensors under plain names; with a config.json beside it, --init reads it. */
static void weights_when_converted_then_one_file(void **state)
{
    (void)state;
    scratch_path scratch = scratch_open();
    tiny_model *model = open_model(case_shape, 4, true);
    scratch_path from = scratch_join(scratch.text, "saved");
    char *config;
    scratch_path file = scratch_join(scratch.text, "model.safetensors");
    must(case_save_model(from.text, 7, 0, model));
    convert(from.text, file.text, SL_CONVERT_WEIGHTS, SL_ENCODING_FP32);
    must(sl_weights_format_config(&case_shape, "float32", case_shape.vocab - 1, &config));
    scratch_write(scratch_join(scratch.text, "config.json").text, config, strlen(config));
    free(config);
    assert_has_model(scratch.text, model);
    size_t bytes;
    char *data = scratch_read(file.text, &bytes);
    assert_non_null(memmem(data, bytes, "\"h.0.ln_1.weight\"", 17));
    assert_null(memmem(data, bytes, "transformer.", 12));
    free(data);
    tiny_close(model);
    scratch_close(&scratch);
}

/* Shards of a size: the model is the same, no file is larger but with one tensor, and two
 * neighbours would not fit into one; an index names them. */
static uint32_t check_shards(const char *from, const char *to, const tiny_model *model,
                             uint64_t most)
{
    sl_model_files *files;
    must(convert_with(from, to, (sl_convert_args){.shard_bytes = most}));
    assert_has_model(to, model);
    must(sl_model_files_open(to, &files));
    uint32_t count = files->file_count;
    for (uint32_t i = 0; i < count; i++) {
        const sl_safetensors *file = files->files[i];
        const sl_safetensors_tensor *last = &file->tensors[file->tensor_count - 1];
        uint64_t bytes = last->first_byte + last->byte_count - file->tensors[0].first_byte;
        assert_true(bytes <= most || file->tensor_count == 1);
    }
    sl_model_files_close(files);
    assert_int_equal(case_count(to, "model-"), count > 1 ? count : 0);
    assert_int_equal(case_count(to, "model.safetensors"), 1); /* the file, or the index */
    return count;
}

static void shards_when_of_any_size_then_the_same_model(void **state)
{
    (void)state;
    uint64_t random = 20;
    scratch_path scratch = scratch_open();
    scratch_path from = scratch_join(scratch.text, "saved");
    tiny_model *model = open_model(case_shape, 6, true);
    uint32_t tensors = sl_model_tensors_count(&case_shape), last = UINT32_MAX;
    uint64_t sizes[12] = {1};
    must(case_save_model(from.text, 7, 0, model));
    for (uint32_t i = 1; i < 11; i++)
        sizes[i] = sizes[i - 1] * 2 + 64 + scratch_below(&random, 64);
    sizes[11] = UINT64_MAX;
    for (uint32_t i = 0; i < 12; i++) {
        char name[16];
        snprintf(name, sizeof name, "to%u", i);
        scratch_path to = scratch_join(scratch.text, name);
        uint32_t count = check_shards(from.text, to.text, model, sizes[i]);
        assert_true(i > 0 || count == tensors);
        assert_true(count <= last && (i < 11 || count == 1));
        scratch_path bin = scratch_join(scratch.text, "m.bin");
        must(convert_with(to.text, bin.text,
                          (sl_convert_args){.format = SL_CONVERT_LLMC, .overwrites = true}));
        last = count;
    }
    tiny_close(model);
    scratch_close(&scratch);
}

/* Linear weights of more than a block are laid across in parts. */
static void tensors_when_larger_than_a_block_then_every_bit(void **state)
{
    (void)state;
    static const sl_model_shape shape = {
        .layers = 1, .width = 1056, .heads = 2, .context = 3, .vocab = 5};
    scratch_path scratch = scratch_open();
    tiny_model *model = open_model(shape, 5, true);
    scratch_path from = scratch_join(scratch.text, "saved"), bin = scratch_join(scratch.text, "m");
    scratch_path hf = scratch_join(scratch.text, "hf");
    assert_true(4ull * shape.width * shape.width > SL_CONVERT_BLOCK_ELEMENTS);
    must(case_save_model(from.text, 1, 0, model));
    convert(from.text, bin.text, SL_CONVERT_LLMC, SL_ENCODING_FP32);
    convert(bin.text, hf.text, SL_CONVERT_HF, SL_ENCODING_FP32);
    assert_has_model(hf.text, model);
    tiny_close(model);
    scratch_close(&scratch);
}

/* ---- llm.c, by a reader of this file ---- */

/* The order of llm.c's ParameterTensors; a layer's stand one behind the other within a kind. */
static const char *const llmc_kinds[] = {"wte.weight",
                                         "wpe.weight",
                                         "h.%u.ln_1.weight",
                                         "h.%u.ln_1.bias",
                                         "h.%u.attn.c_attn.weight",
                                         "h.%u.attn.c_attn.bias",
                                         "h.%u.attn.c_proj.weight",
                                         "h.%u.attn.c_proj.bias",
                                         "h.%u.ln_2.weight",
                                         "h.%u.ln_2.bias",
                                         "h.%u.mlp.c_fc.weight",
                                         "h.%u.mlp.c_fc.bias",
                                         "h.%u.mlp.c_proj.weight",
                                         "h.%u.mlp.c_proj.bias",
                                         "ln_f.weight",
                                         "ln_f.bias"};

/* Compares one tensor with what stands at `at`; returns the end. */
static const uint16_t *check_llmc_tensor(const tiny_model *model, const char *name,
                                         const uint16_t *at)
{
    uint64_t rows, columns;
    float *data = gather(model, name, &rows, &columns);
    uint64_t outer = is_linear(name) ? columns : rows, inner = is_linear(name) ? rows : columns;
    for (uint64_t i = 0; i < outer; i++)
        for (uint64_t j = 0; j < inner; j++, at++)
            if (*at !=
                nearest_bf16(is_linear(name) ? data[j * columns + i] : data[i * columns + j]))
                fail_msg("%s[%llu, %llu]", name, (unsigned long long)i, (unsigned long long)j);
    free(data);
    return at;
}

static void llmc_when_written_then_its_layout(void **state)
{
    (void)state;
    static const sl_model_shape shape = {
        .layers = 3, .width = 12, .heads = 3, .context = 5, .vocab = 130};
    scratch_path scratch = scratch_open();
    tiny_model *model = open_model(shape, 6, false);
    scratch_path from = scratch_join(scratch.text, "saved"), bin = scratch_join(scratch.text, "m");
    size_t bytes;
    must(case_save_model(from.text, 7, 0, model));
    convert(from.text, bin.text, SL_CONVERT_LLMC, SL_ENCODING_BF16);
    char *file = scratch_read(bin.text, &bytes);
    int32_t words[256], expected[256] = {20240326, 5, 5, 130, 3, 3, 12, 256};
    memcpy(words, file, sizeof words);
    assert_memory_equal(words, expected, sizeof words);
    const uint16_t *at = (const uint16_t *)(const void *)(file + sizeof words);
    for (size_t kind = 0; kind < sizeof llmc_kinds / sizeof llmc_kinds[0]; kind++) {
        bool is_of_layer = strchr(llmc_kinds[kind], '%') != NULL;
        for (uint32_t layer = 0; layer < (is_of_layer ? shape.layers : 1); layer++) {
            char name[64];
            snprintf(name, sizeof name, is_of_layer ? "h.%u.%s" : "%.0u%s", layer,
                     is_of_layer ? llmc_kinds[kind] + 5 : llmc_kinds[kind]);
            at = check_llmc_tensor(model, name, at);
        }
        for (uint32_t i = 0; kind == 0 && i < (256 - 130) * shape.width; i++)
            assert_int_equal(*at++, 0);
    }
    assert_ptr_equal(at, file + bytes);
    free(file);
    tiny_close(model);
    scratch_close(&scratch);
}

static void llmc_when_hostile_then_refused(void **state)
{
    (void)state;
    scratch_path scratch = scratch_open();
    scratch_path path = scratch_join(scratch.text, "bad.bin");
    for (int i = 0; i < HOSTILE_MODEL_COUNT; i++) {
        sl_llmc_model *model = NULL;
        hostile_model_write(&hostile_models[i], path.text);
        sl_status status = sl_llmc_model_open(AT_FDCWD, NULL, path.text, &model);
        must_fail(hostile_models[i].what, status, SL_ERROR_DATA, hostile_models[i].fragment);
    }
    scratch_close(&scratch);
}

static void llmc_when_good_then_read(void **state)
{
    (void)state;
    scratch_path scratch = scratch_open();
    scratch_path path = scratch_join(scratch.text, "good.bin");
    sl_llmc_model *model = NULL;
    float data[2];
    hostile_model_write(&hostile_model_good, path.text);
    must(sl_llmc_model_open(AT_FDCWD, NULL, path.text, &model));
    uint64_t count = (model->file.bytes - 1024) / 4;
    must(sl_llmc_model_read(model, count - 2, 2, data));
    assert_int_equal(sl_llmc_model_read(model, count - 1, 2, data), SL_ERROR_USAGE);
    assert_int_equal(sl_llmc_model_read(model, count + 1, 0, data), SL_ERROR_USAGE);
    sl_llmc_model_close(model);
    scratch_close(&scratch);
}

/* ---- GGUF, by the reader of gguf_cursor.h ---- */

static void assert_line(const char *lines, const char *line)
{
    if (!strstr(lines, line))
        fail_msg("\"%s\" is not in \"%s\"", line, lines);
}

/* Of one tensor: name, shape, type and every element. */
static void check_gguf_tensor(gguf_cursor *self, const unsigned char *start,
                              const tiny_model *model, sl_encoding encoding)
{
    static const struct {
        const char *gguf, *name;
    } names[] = {{"token_embd.weight", "wte.weight"},
                 {"position_embd.weight", "wpe.weight"},
                 {"blk.0.attn_norm.weight", "h.0.ln_1.weight"},
                 {"blk.0.attn_norm.bias", "h.0.ln_1.bias"},
                 {"blk.0.attn_qkv.weight", "h.0.attn.c_attn.weight"},
                 {"blk.0.attn_qkv.bias", "h.0.attn.c_attn.bias"},
                 {"blk.0.attn_output.weight", "h.0.attn.c_proj.weight"},
                 {"blk.0.attn_output.bias", "h.0.attn.c_proj.bias"},
                 {"blk.0.ffn_norm.weight", "h.0.ln_2.weight"},
                 {"blk.0.ffn_norm.bias", "h.0.ln_2.bias"},
                 {"blk.0.ffn_up.weight", "h.0.mlp.c_fc.weight"},
                 {"blk.0.ffn_up.bias", "h.0.mlp.c_fc.bias"},
                 {"blk.0.ffn_down.weight", "h.0.mlp.c_proj.weight"},
                 {"blk.0.ffn_down.bias", "h.0.mlp.c_proj.bias"},
                 {"output_norm.weight", "ln_f.weight"},
                 {"output_norm.bias", "ln_f.bias"}};
    static const uint64_t types[] = {0, 30, 1, 8};
    char text[256];
    const char *name = NULL;
    uint64_t rows, columns;
    take_text(self, text);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        name = strcmp(names[i].gguf, text) == 0 ? names[i].name : name;
    assert_non_null(name);
    float *data = gather(model, name, &rows, &columns);
    bool is_plain = columns == 1 || strcmp(name, "wpe.weight") == 0;
    uint64_t inner = is_linear(name) ? rows : columns, outer = is_linear(name) ? columns : rows;
    sl_encoding stored = is_plain ? SL_ENCODING_FP32 : encoding;
    if (stored == SL_ENCODING_Q8_0 && inner % 32 != 0)
        stored = SL_ENCODING_FP16;
    assert_int_equal(take(self, 4), columns == 1 ? 1 : 2);
    assert_int_equal(take(self, 8), columns == 1 ? rows : inner);
    if (columns > 1)
        assert_int_equal(take(self, 8), outer);
    assert_int_equal(take(self, 4), types[stored]);
    const unsigned char *at = start + take(self, 8);
    assert_int_equal((at - self->data) % 32, 0);
    for (uint64_t i = 0; i < outer; i++) {
        float row[256];
        unsigned char bytes[1024];
        for (uint64_t j = 0; j < inner; j++)
            row[j] = is_linear(name) ? data[j * columns + i] : data[i * columns + j];
        must(sl_encoding_encode(stored, row, inner, bytes));
        uint64_t count = sl_encoding_bytes(stored, inner);
        assert_true(at + count <= self->end);
        assert_memory_equal(at, bytes, count);
        at += count;
    }
    free(data);
}

static void check_gguf(const char *path, const tiny_model *model, sl_encoding encoding,
                       char *out_lines, size_t capacity)
{
    size_t bytes;
    char *file = scratch_read(path, &bytes);
    const unsigned char *data = (const unsigned char *)file;
    gguf_cursor self = {data, data, data + bytes};
    assert_int_equal(take(&self, 4), 0x46554747);
    assert_int_equal(take(&self, 4), 3);
    uint64_t tensor_count = take(&self, 8), value_count = take(&self, 8);
    assert_int_equal(tensor_count, 16);
    take_values(&self, value_count, out_lines, capacity);
    gguf_cursor ahead = self;
    skip_gguf_tensors(&ahead, tensor_count);
    const unsigned char *start = data + ((size_t)(ahead.at - data) + 31) / 32 * 32;
    for (uint64_t i = 0; i < tensor_count; i++)
        check_gguf_tensor(&self, start, model, encoding);
    assert_int_equal(bytes % 32, 0);
    free(file);
}

static void gguf_when_written_then_every_value_and_block(void **state)
{
    (void)state;
    static const sl_model_shape shape = {
        .layers = 1, .width = 32, .heads = 2, .context = 9, .vocab = 705};
    static const char *const file_types[] = {"0", "32", "1", "7"};
    scratch_path scratch = scratch_open();
    tiny_model *model = open_model(shape, 8, false);
    scratch_path from = scratch_join(scratch.text, "saved");
    sl_vocabulary *vocabulary = text_open(TEXT_FIXTURES);
    must(case_save_model(from.text, 7, 0, model));
    for (int i = 0; i < 4; i++) {
        char lines[1 << 14], type[64];
        scratch_path to = scratch_join(scratch.text, sl_encoding_name((sl_encoding)i));
        must(convert_with(from.text, to.text,
                          (sl_convert_args){.format = SL_CONVERT_GGUF,
                                            .encoding = (sl_encoding)i,
                                            .vocabulary = vocabulary}));
        check_gguf(to.text, model, (sl_encoding)i, lines, sizeof lines);
        snprintf(type, sizeof type, "general.file_type=%s\n", file_types[i]);
        assert_line(lines, type);
        assert_line(lines, "general.architecture=gpt2\n");
        assert_line(lines, "gpt2.context_length=9\n");
        assert_line(lines, "gpt2.embedding_length=32\n");
        assert_line(lines, "gpt2.feed_forward_length=128\n");
        assert_line(lines, "gpt2.block_count=1\n");
        assert_line(lines, "gpt2.attention.head_count=2\n");
        assert_line(lines, "gpt2.attention.layer_norm_epsilon=9.99999975e-06\n");
        assert_line(lines, "tokenizer.ggml.model=gpt2\n");
        assert_line(lines, "tokenizer.ggml.pre=gpt-2\n");
        assert_line(lines, "tokenizer.ggml.tokens=705: [PAD704]\n");
        assert_line(lines, "tokenizer.ggml.token_type=705: 5\n");
        assert_line(lines, "tokenizer.ggml.bos_token_id=699\n");
        assert_line(lines, "tokenizer.ggml.eos_token_id=699\n");
        assert_line(lines, "tokenizer.ggml.merges=443: ");
    }
    sl_vocabulary_close(vocabulary);
    tiny_close(model);
    scratch_close(&scratch);
}

/* Rows of 12 and 48 elements: of these no block of q8_0 can be made. No vocabulary either. */
static void gguf_when_rows_are_no_blocks_then_fp16(void **state)
{
    (void)state;
    static const sl_model_shape shape = {
        .layers = 1, .width = 8, .heads = 2, .context = 4, .vocab = 150};
    char lines[1 << 12];
    scratch_path scratch = scratch_open();
    tiny_model *model = open_model(shape, 9, false);
    scratch_path from = scratch_join(scratch.text, "saved"), to = scratch_join(scratch.text, "a");
    must(case_save_model(from.text, 7, 0, model));
    convert(from.text, to.text, SL_CONVERT_GGUF, SL_ENCODING_Q8_0);
    check_gguf(to.text, model, SL_ENCODING_Q8_0, lines, sizeof lines);
    assert_line(lines, "tokenizer.ggml.model=no_vocab\n");
    assert_line(lines, "gpt2.vocab_size=150\n");
    tiny_close(model);
    scratch_close(&scratch);
}

/* ---- the same bytes for ever ---- */

static void files_when_of_known_weights_then_known_bytes(void **state)
{
    (void)state;
    static const struct {
        sl_convert_format format;
        sl_encoding encoding;
        const char *name, *hash;
    } cases[] = {
        {SL_CONVERT_HF, SL_ENCODING_FP32, "hf", "1715e42119705ff514edbd738fb42459"},
        {SL_CONVERT_HF, SL_ENCODING_BF16, "hf16", "3e284a517d593d14d2067fd11ce2eadc"},
        {SL_CONVERT_WEIGHTS, SL_ENCODING_FP16, "weights", "92d453557286b291adf123a2c7e22177"},
        {SL_CONVERT_LLMC, SL_ENCODING_FP32, "llmc", "8668781180c5a942f46848359f3ebae4"},
        {SL_CONVERT_LLMC, SL_ENCODING_BF16, "llmc16", "dd1fdb6852fed1694c5a6dc9050f4443"},
        {SL_CONVERT_GGUF, SL_ENCODING_FP32, "gguf", "3d02e241cf592125494484dc3f6c5368"},
        {SL_CONVERT_GGUF, SL_ENCODING_FP16, "gguf16", "f79f55da9bc7044d163c49481b7d9211"},
        {SL_CONVERT_GGUF, SL_ENCODING_Q8_0, "gguf8", "4b516011a34e4c89fd2c5d483d50a1b8"},
    };
    static const sl_model_shape shape = {
        .layers = 2, .width = 32, .heads = 4, .context = 6, .vocab = 700};
    scratch_path scratch = scratch_open();
    tiny_model *model = open_model(shape, 21, false);
    scratch_path from = scratch_join(scratch.text, "saved");
    sl_vocabulary *vocabulary = text_open(TEXT_FIXTURES);
    must(case_save_model(from.text, 7, 0, model));
    bool is_same = true;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char hash[40];
        size_t bytes;
        scratch_path to = scratch_join(scratch.text, cases[i].name);
        must(convert_with(from.text, to.text,
                          (sl_convert_args){.format = cases[i].format,
                                            .encoding = cases[i].encoding,
                                            .vocabulary = vocabulary}));
        if (cases[i].format == SL_CONVERT_HF)
            to = scratch_join(to.text, "model.safetensors");
        char *data = scratch_read(to.text, &bytes);
        sl_hash_value value = sl_hash_128(data, bytes);
        free(data);
        snprintf(hash, sizeof hash, "%016llx%016llx", (unsigned long long)value.high,
                 (unsigned long long)value.low);
        if (strcmp(hash, cases[i].hash) != 0) {
            print_message("%s: %s, not %s\n", cases[i].name, hash, cases[i].hash);
            is_same = false;
        }
    }
    assert_true(is_same);
    sl_vocabulary_close(vocabulary);
    tiny_close(model);
    scratch_close(&scratch);
}

/* ---- what is there, and what is left ---- */

typedef struct stop {
    uint64_t calls, at;
} stop;

static sl_status stop_at(void *user, uint64_t done_bytes, uint64_t total_bytes)
{
    stop *self = user;
    assert_true(done_bytes <= total_bytes);
    return ++self->calls == self->at ? SL_ERROR_RANK : SL_OK;
}

static void conversion_when_stopped_anywhere_then_nothing_is_left(void **state)
{
    (void)state;
    scratch_path scratch = scratch_open();
    scratch_path from = scratch_join(scratch.text, "saved"), to = scratch_join(scratch.text, "to");
    scratch_path other = scratch_join(scratch.text, "to_tokenizer.bin");
    sl_vocabulary *bytes = NULL;
    tiny_model *model = open_model(case_shape, 3, false);
    must(sl_vocabulary_of_bytes(&bytes));
    must(case_save_model(from.text, 7, 0, model));
    for (int format = 0; format < 4; format++) {
        uint64_t count = 0;
        for (uint64_t at = 1; at <= 16; at++, count++) {
            stop self = {0, at};
            sl_status status = convert_with(from.text, to.text,
                                            (sl_convert_args){.format = (sl_convert_format)format,
                                                              .progress = stop_at,
                                                              .user = &self});
            assert_int_equal(status, SL_ERROR_RANK);
            assert_int_equal(case_count(scratch.text, ""), 1);
        }
        assert_int_equal(count, 16); /* a call a tensor */
    }
    assert_false(scratch_exists(other.text));
    sl_vocabulary_close(bytes);
    tiny_close(model);
    scratch_close(&scratch);
}

/* Somebody takes the place of the model while it is made. */
static sl_status take_place(void *user, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)done_bytes, (void)total_bytes;
    scratch_write(((scratch_path *)user)->text, "mine", 4);
    return SL_OK;
}

static void tokenizer_when_its_model_gets_no_name_then_it_has_none(void **state)
{
    (void)state;
    static const sl_model_shape shape = {
        .layers = 1, .width = 8, .heads = 2, .context = 4, .vocab = 260};
    scratch_path scratch = scratch_open();
    scratch_path from = scratch_join(scratch.text, "saved");
    scratch_path to = scratch_join(scratch.text, "to.bin");
    sl_vocabulary *bytes = NULL;
    tiny_model *model = open_model(shape, 3, false);
    must(sl_vocabulary_of_bytes(&bytes));
    must(case_save_model(from.text, 7, 0, model));
    const sl_convert_args args = {
        .format = SL_CONVERT_LLMC, .vocabulary = bytes, .progress = take_place, .user = &to};
    assert_int_equal(convert_with(from.text, to.text, args), SL_ERROR_IO);
    assert_non_null(strstr(sl_status_message(), "cannot be named"));
    assert_int_equal(case_count(scratch.text, ""), 2); /* what was there and what came */
    unlink(to.text);
    must(convert_with(from.text, to.text,
                      (sl_convert_args){.format = SL_CONVERT_LLMC, .vocabulary = bytes}));
    assert_int_equal(case_count(scratch.text, ""), 3);
    sl_vocabulary_close(bytes);
    tiny_close(model);
    scratch_close(&scratch);
}

/* Somebody puts a file of his own into the directory that is being replaced. */
static sl_status add_file(void *user, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)done_bytes, (void)total_bytes;
    scratch_write(scratch_join(user, "mine").text, "mine", 4);
    return SL_OK;
}

static void directory_when_it_gets_a_file_meanwhile_then_that_stays(void **state)
{
    (void)state;
    scratch_path scratch = scratch_open();
    scratch_path from = scratch_join(scratch.text, "saved"), hf = scratch_join(scratch.text, "hf");
    tiny_model *model = open_model(case_shape, 3, false);
    char left[64];
    size_t bytes;
    must(case_save_model(from.text, 7, 0, model));
    convert(from.text, hf.text, SL_CONVERT_HF, SL_ENCODING_FP32);
    must(convert_with(
        from.text, hf.text,
        (sl_convert_args){
            .format = SL_CONVERT_HF, .overwrites = true, .progress = add_file, .user = hf.text}));
    assert_has_model(hf.text, model);
    assert_false(scratch_exists(scratch_join(hf.text, "mine").text));
    snprintf(left, sizeof left, "hf.tmp-%ld/mine", (long)getpid());
    free(scratch_read(scratch_join(scratch.text, left).text, &bytes));
    assert_int_equal(bytes, 4);
    tiny_close(model);
    scratch_close(&scratch);
}

static sl_status convert_over(const char *from, const char *to, sl_convert_format format,
                              bool overwrites)
{
    return convert_with(from, to, (sl_convert_args){.format = format, .overwrites = overwrites});
}

/* What a killed process may have left, and what may look so: which go at the next conversion. */
static void remains_when_next_converted_then_only_unfinished_ones_go(void **state)
{
    (void)state;
    static const struct {
        const char *name, *file;
        bool has_mark, goes;
    } rows[] = {
        {"hf.tmp-1", "model.safetensors", true, true},
        {"hf.tmp-22", SL_OUTPUT_MARK, true, true},
        {"hf.tmp-333", "config.json", true, false}, /* locked below: its writer lives */
        {"hf.tmp-4", "model.safetensors", false, false},
        {"hf.tmp-5", "mine", true, false},
        {"hf.tmp-", "model.safetensors", true, false}, /* not quite our names */
        {"hf.tmp-6a", "model.safetensors", true, false},
        {"hf.old-7", "model.safetensors", true, false},
        {"other.tmp-8", "model.safetensors", true, false},
        {"xhf.tmp-9", "model.safetensors", true, false},
    };
    scratch_path scratch = scratch_open();
    scratch_path from = scratch_join(scratch.text, "saved"), hf = scratch_join(scratch.text, "hf");
    tiny_model *model = open_model(case_shape, 3, false);
    must(case_save_model(from.text, 7, 0, model));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        scratch_path path = scratch_join(scratch.text, rows[i].name);
        assert_int_equal(mkdir(path.text, 0700), 0);
        scratch_write(scratch_join(path.text, rows[i].file).text, "x", 1);
        if (rows[i].has_mark)
            scratch_write(scratch_join(path.text, SL_OUTPUT_MARK).text, "", 0);
    }
    scratch_path link = scratch_join(scratch.text, "hf.tmp-10");
    assert_int_equal(symlink("other.tmp-8", link.text), 0);
    scratch_path mark = scratch_join(scratch_join(scratch.text, rows[2].name).text, SL_OUTPUT_MARK);
    const int lock = open(mark.text, O_RDONLY);
    assert_true(lock >= 0 && flock(lock, LOCK_EX) == 0);
    must(convert_over(from.text, hf.text, SL_CONVERT_HF, false));
    close(lock);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        scratch_path path = scratch_join(scratch.text, rows[i].name);
        if (scratch_exists(scratch_join(path.text, rows[i].file).text) == rows[i].goes)
            fail_msg("%s: %s", rows[i].name, rows[i].goes ? "is left" : "is gone");
        if (rows[i].goes && scratch_exists(path.text))
            fail_msg("%s: its directory is left", rows[i].name);
    }
    assert_true(scratch_exists(link.text));
    tiny_close(model);
    scratch_close(&scratch);
}

static void places_when_taken_then_kept_unless_given_up(void **state)
{
    (void)state;
    scratch_path scratch = scratch_open();
    scratch_path from = scratch_join(scratch.text, "saved"), hf = scratch_join(scratch.text, "hf");
    scratch_path file = scratch_join(scratch.text, "file"), foreign = scratch_join(hf.text, "mine");
    tiny_model *model = open_model(case_shape, 3, false);
    size_t bytes;
    must(case_save_model(from.text, 7, 0, model));
    scratch_write(file.text, "before", 6);
    assert_int_equal(convert_over(from.text, file.text, SL_CONVERT_GGUF, false), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "--overwrite"));
    assert_int_equal(convert_over(from.text, file.text, SL_CONVERT_HF, true), SL_ERROR_USAGE);
    free(scratch_read(file.text, &bytes));
    assert_int_equal(bytes, 6);
    must(convert_over(from.text, file.text, SL_CONVERT_GGUF, true));
    must(convert_over(from.text, hf.text, SL_CONVERT_HF, false));
    assert_int_equal(convert_over(from.text, hf.text, SL_CONVERT_HF, false), SL_ERROR_USAGE);
    assert_int_equal(convert_over(from.text, hf.text, SL_CONVERT_LLMC, true), SL_ERROR_USAGE);
    scratch_write(foreign.text, "mine", 4);
    assert_int_equal(convert_over(from.text, hf.text, SL_CONVERT_HF, true), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "holds mine"));
    unlink(foreign.text);
    must(convert_over(from.text, hf.text, SL_CONVERT_HF, true));
    assert_has_model(hf.text, model);
    scratch_path deep = scratch_join(scratch.text, "no/where");
    assert_int_equal(convert_over(from.text, deep.text, SL_CONVERT_HF, false), SL_ERROR_MISSING);
    assert_int_equal(case_count(scratch.text, ""), 3);
    tiny_close(model);
    scratch_close(&scratch);
}

static void types_when_a_format_lacks_them_then_refused(void **state)
{
    (void)state;
    assert_int_equal(sl_convert_check(SL_CONVERT_HF, SL_ENCODING_Q8_0), SL_ERROR_USAGE);
    assert_int_equal(sl_convert_check(SL_CONVERT_WEIGHTS, SL_ENCODING_Q8_0), SL_ERROR_USAGE);
    assert_int_equal(sl_convert_check(SL_CONVERT_LLMC, SL_ENCODING_Q8_0), SL_ERROR_USAGE);
    assert_int_equal(sl_convert_check(SL_CONVERT_LLMC, SL_ENCODING_FP16), SL_ERROR_USAGE);
    must(sl_convert_check(SL_CONVERT_LLMC, SL_ENCODING_BF16));
    must(sl_convert_check(SL_CONVERT_HF, SL_ENCODING_FP16));
    must(sl_convert_check(SL_CONVERT_GGUF, SL_ENCODING_Q8_0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_when_encoded_then_nearest_even),
        cmocka_unit_test(numbers_when_they_do_not_fit_then_refused),
        cmocka_unit_test(blocks_when_encoded_then_as_q8_0_is_defined),
        cmocka_unit_test(checkpoint_when_converted_and_back_then_every_bit),
        cmocka_unit_test(weights_when_converted_then_one_file),
        cmocka_unit_test(shards_when_of_any_size_then_the_same_model),
        cmocka_unit_test(tensors_when_larger_than_a_block_then_every_bit),
        cmocka_unit_test(llmc_when_written_then_its_layout),
        cmocka_unit_test(llmc_when_hostile_then_refused),
        cmocka_unit_test(llmc_when_good_then_read),
        cmocka_unit_test(gguf_when_written_then_every_value_and_block),
        cmocka_unit_test(gguf_when_rows_are_no_blocks_then_fp16),
        cmocka_unit_test(files_when_of_known_weights_then_known_bytes),
        cmocka_unit_test(conversion_when_stopped_anywhere_then_nothing_is_left),
        cmocka_unit_test(directory_when_it_gets_a_file_meanwhile_then_that_stays),
        cmocka_unit_test(tokenizer_when_its_model_gets_no_name_then_it_has_none),
        cmocka_unit_test(remains_when_next_converted_then_only_unfinished_ones_go),
        cmocka_unit_test(places_when_taken_then_kept_unless_given_up),
        cmocka_unit_test(types_when_a_format_lacks_them_then_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
