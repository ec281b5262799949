/* What could be wrong here: rows of query, key and value of a rank are put in another's place, or
 * in another order than the checkpoint's version says; a stage's layers are counted from 0; rows
 * that only pad ids become ids; a model that is no GPT-2 is taken for one; pieces are missing and
 * nobody says so; a bit that flipped in a piece becomes a weight. What is read was written by
 * PyTorch (golden/megatron, by reference/write_megatron.py); what is written here is read again,
 * and by that script's other half under the label big. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sys/wait.h>

#include "base/bits.h"
#include "base/log.h"
#include "foreign/convert/convert.h"
#include "foreign/pieces/model_pieces.h"
#include "scratch_case.h"
#include "tensors/across.h"
#include "text/text_case.h"
#include "torch_case.h"

static const sl_model_shape golden_shape = {
    .layers = 2, .width = 8, .heads = 2, .context = 8, .vocab = 40};

static const char golden[] = SL_TEST_SOURCE_DIRECTORY "/golden/megatron";

static void run_shell(const char *format, const char *a, const char *b)
{
    char command[4096];
    snprintf(command, sizeof command, format, a, b);
    assert_int_equal(system(command), 0);
}

/* ---- what PyTorch wrote ---- */

/* count_weights of write_megatron.py: by the place in [in, out]. */
static float golden_value(const sl_foreign_tensor *tensor, uint64_t index)
{
    uint64_t number = (uint64_t)tensor->kind * 37 + tensor->layer * 11ull + index;
    return (float)((int)(number % 509) - 254) / 32;
}

/* The place in [in, out] of an element of [out, in]. */
static uint64_t lay_index_across(const sl_foreign_tensor *tensor, uint64_t index)
{
    if (!tensor->is_linear)
        return index;
    return index % tensor->rows * tensor->columns + index / tensor->rows;
}

static void assert_golden(const sl_model_reader *reader)
{
    float data[8 * 40];
    sl_model_shape shape = reader->shape;
    if (strstr(reader->path, "/bare-")) { /* says no ids: all rows are taken */
        assert_int_equal(shape.vocab % 128, 0);
        shape.vocab = golden_shape.vocab;
    }
    assert_memory_equal(&shape, &golden_shape, sizeof golden_shape);
    assert_true(reader->is_out_in);
    for (uint32_t i = 0; i < sl_model_tensors_count(&golden_shape); i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(&golden_shape, i);
        uint64_t count = tensor.rows * tensor.columns;
        for (uint64_t first = 0; first < count; first += 7) { /* runs across all borders */
            uint64_t part = count - first < 61 ? count - first : 61;
            must(sl_model_reader_read(reader, &tensor, first, part, data));
            for (uint64_t j = 0; j < part; j++)
                if (data[j] != golden_value(&tensor, lay_index_across(&tensor, first + j)))
                    fail_msg("%s: element %llu is %g", sl_model_tensors_name(&tensor).text,
                             (unsigned long long)(first + j), (double)data[j]);
        }
    }
}

static void pieces_when_of_pytorch_then_same_weights(void **state)
{
    (void)state;
    static const char *const names[] = {
        "core-2x2", "fused-1x1", "legacy-1x2", "first-2x1",
        "bare-2x1", "bare-1x1",  "bare-2x1/7", "core-2x2/iter_0000007"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        sl_model_reader reader;
        must(sl_model_reader_open(scratch_join(golden, names[i]).text, false, 2, &reader));
        assert_non_null(strstr(reader.kind, "Megatron-LM's pieces"));
        assert_golden(&reader);
        sl_model_reader_close(&reader);
    }
}

/* ---- straight into a program ---- */

enum { IMPORT_TENSORS = 28 };

typedef struct imported {
    float *data[IMPORT_TENSORS]; /* [elements of the tensor] */
    uint64_t written;
} imported;

static sl_status take_elements(void *user, sl_group group, uint32_t tensor_index,
                               uint64_t first_element, uint64_t element_count, const float *data)
{
    imported *to = user;
    assert_int_equal(group, SL_GROUP_PARAM);
    memcpy(to->data[tensor_index] + first_element, data, element_count * sizeof *data);
    to->written += element_count;
    return SL_OK;
}

/* With windows of one row, of some and of all. */
static void assert_imported(const sl_model_pieces *model, uint64_t window_elements)
{
    sl_tensor_spec specs[IMPORT_TENSORS] = {0};
    imported to = {0};
    uint64_t count = 0;
    const sl_tensor_io io = {.write = take_elements, .user = &to};
    assert_int_equal(sl_model_tensors_count(&golden_shape), IMPORT_TENSORS);
    sl_model_tensors_specify(&golden_shape, specs);
    for (uint32_t i = 0; i < IMPORT_TENSORS; i++) {
        to.data[i] = calloc(specs[i].element_count, sizeof *to.data[i]);
        count += specs[i].element_count;
    }
    must(sl_model_pieces_import(model, specs, IMPORT_TENSORS, window_elements, &io));
    assert_int_equal(to.written, count);
    for (uint32_t i = 0; i < IMPORT_TENSORS; i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(&golden_shape, i);
        for (uint64_t j = 0; j < tensor.rows * tensor.columns; j++)
            if (to.data[i][j] != golden_value(&tensor, j))
                fail_msg("%s: element %llu is %g", specs[i].name, (unsigned long long)j,
                         (double)to.data[i][j]);
        free(to.data[i]);
    }
}

/* The fork that says no heads: as many as are given, else as wide as the published ones. */
static void pieces_when_heads_are_not_said_then_those_given(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t given, heads;
    } rows[] = {{"bare-2x1", 4, 4}, {"bare-1x1", 0, 1}, {"bare-1x1", 8, 8}, {"core-2x2", 4, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_model_reader reader;
        must(sl_model_reader_open(scratch_join(golden, rows[i].name).text, false, rows[i].given,
                                  &reader));
        assert_int_equal(reader.shape.heads, rows[i].heads);
        sl_model_reader_close(&reader);
    }
}

static void pieces_when_imported_then_in_the_programs_order(void **state)
{
    (void)state;
    static const char *const names[] = {"core-2x2", "fused-1x1", "legacy-1x2", "first-2x1"};
    static const uint64_t windows[] = {32, 33, 70, 100, 8 * 32, SL_ACROSS_WINDOW_ELEMENTS};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        sl_model_pieces *model;
        must(sl_model_pieces_open(
            &(sl_model_pieces_args){.path = scratch_join(golden, names[i]).text}, &model));
        for (size_t j = 0; j < sizeof windows / sizeof windows[0]; j++)
            assert_imported(model, windows[j]);
        sl_model_pieces_close(model);
    }
}

static void pieces_when_a_row_is_beyond_memory_then_refused(void **state)
{
    (void)state;
    sl_model_pieces *model;
    sl_tensor_spec specs[IMPORT_TENSORS] = {0};
    float element[8 * 40];
    imported to = {0};
    const sl_tensor_io io = {.write = take_elements, .user = &to};
    for (uint32_t i = 0; i < IMPORT_TENSORS; i++)
        to.data[i] = element;
    sl_model_tensors_specify(&golden_shape, specs);
    must(sl_model_pieces_open(
        &(sl_model_pieces_args){.path = scratch_join(golden, "core-2x2").text}, &model));
    assert_int_equal(sl_model_pieces_import(model, specs, IMPORT_TENSORS, 23, &io), SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "rows of 24 elements: at most 23 are read"));
    specs[5].whole_shape[0] = specs[5].shape[0] = specs[5].valid_rows = 9;
    specs[5].element_count += specs[5].shape[1];
    assert_int_equal(sl_model_pieces_import(model, specs, IMPORT_TENSORS, 999, &io), SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "has another shape than the model's"));
    sl_model_tensors_specify(&golden_shape, specs);
    snprintf(specs[3].name, sizeof specs[3].name, "h.7.ln_1.bias");
    assert_int_equal(sl_model_pieces_import(model, specs, IMPORT_TENSORS, 999, &io), SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "has 27 of the 28 tensors"));
    sl_model_pieces_close(model);
}

/* ---- what is written here ---- */

static void convert(const char *from, const char *to, sl_convert_args args)
{
    sl_model_reader reader;
    sl_convert_report report;
    must(sl_model_reader_open(from, false, 0, &reader));
    args.reader = &reader;
    args.to = to;
    args.overwrites = true;
    must(sl_convert_run(&args, &report));
    assert_int_equal(report.tensor_count, sl_model_tensors_count(&reader.shape));
    sl_model_reader_close(&reader);
}

/* Fails unless two models have the same elements, one of [out, in] or not. */
static void assert_same(const char *path, const char *other)
{
    sl_model_reader a, b;
    must(sl_model_reader_open(path, false, 0, &a));
    must(sl_model_reader_open(other, false, 0, &b));
    assert_memory_equal(&a.shape, &b.shape, sizeof a.shape);
    for (uint32_t i = 0; i < sl_model_tensors_count(&a.shape); i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(&a.shape, i);
        uint64_t count = tensor.rows * tensor.columns;
        float *left = calloc(count, sizeof *left), *right = calloc(count, sizeof *right);
        must(sl_model_reader_read(&a, &tensor, 0, count, left));
        must(sl_model_reader_read(&b, &tensor, 0, count, right));
        for (uint64_t j = 0; j < count; j++) {
            uint64_t from_left = a.is_out_in ? j : lay_index_across(&tensor, j);
            uint64_t from_right = b.is_out_in ? j : lay_index_across(&tensor, j);
            if (sl_bits_of_float(left[from_left]) != sl_bits_of_float(right[from_right]))
                fail_msg("%s and %s differ in %s, element %llu", path, other,
                         sl_model_tensors_name(&tensor).text, (unsigned long long)j);
        }
        free(left);
        free(right);
    }
    sl_model_reader_close(&a);
    sl_model_reader_close(&b);
}

/* Weights of any bits, as llm.c has them: a header and floats. */
static void write_llmc(const char *path, const sl_model_shape *shape, uint64_t *draw)
{
    const sl_llmc_shape llmc = sl_model_tensors_llmc(shape);
    int32_t words[SL_LLMC_HEADER_WORDS];
    uint64_t count;
    FILE *file = fopen(path, "wb");
    must(sl_llmc_check(&llmc, &count));
    sl_llmc_format_header(&llmc, SL_ENCODING_FP32, words);
    fwrite(words, 1, sizeof words, file);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)(scratch_draw(draw) >> 33) + 0x00800000; /* finite, normal */
        bits = (bits & 0x3fffffff) | (uint32_t)(i % 2) << 31;
        fwrite(&bits, 1, sizeof bits, file);
    }
    assert_int_equal(fclose(file), 0);
}

static void pieces_when_written_then_read_again(void **state)
{
    const scratch_path *directory = *state;
    uint64_t draw = scratch_seed(__func__, 4);
    scratch_path source = scratch_join(directory->text, "model.bin"),
                 to = scratch_join(directory->text, "pieces"),
                 back = scratch_join(directory->text, "back");
    for (uint64_t i = 0; i < scratch_count(8, 60); i++) {
        static const uint32_t heads[] = {1, 2, 4, 6, 12};
        sl_model_shape shape = {.heads = heads[scratch_below(&draw, 5)],
                                .layers = 1 + (uint32_t)scratch_below(&draw, 6),
                                .context = 1 + (uint32_t)scratch_below(&draw, 20),
                                .vocab = 1 + (uint32_t)scratch_below(&draw, 400)};
        shape.width = shape.heads * (1 + (uint32_t)scratch_below(&draw, 9));
        write_llmc(source.text, &shape, &draw);
        for (uint32_t tp = 1; tp <= shape.heads; tp++)
            for (uint32_t pp = 1; pp <= shape.layers; pp++) {
                if (shape.heads % tp != 0 || shape.layers % pp != 0)
                    continue;
                const sl_convert_args args = {
                    .format = SL_CONVERT_MEGATRON, .tp_size = tp, .pp_size = pp};
                convert(source.text, to.text, args);
                assert_same(source.text, to.text);
            }
        convert(to.text, back.text, (sl_convert_args){.format = SL_CONVERT_HF});
        assert_same(source.text, back.text);
        const sl_convert_args args = {
            .format = SL_CONVERT_MEGATRON, .tp_size = shape.heads, .pp_size = shape.layers};
        convert(back.text, to.text, args); /* from [in, out] */
        assert_same(source.text, to.text);
    }
}

/* More pieces than files that are held open. */
static void pieces_when_many_then_read(void **state)
{
    const scratch_path *directory = *state;
    uint64_t draw = scratch_seed(__func__, 5);
    const sl_model_shape shape = {.layers = 24, .width = 16, .heads = 8, .context = 3, .vocab = 9};
    scratch_path source = scratch_join(directory->text, "many.bin"),
                 to = scratch_join(directory->text, "many");
    write_llmc(source.text, &shape, &draw);
    convert(source.text, to.text,
            (sl_convert_args){.format = SL_CONVERT_MEGATRON, .tp_size = 8, .pp_size = 24});
    assert_same(source.text, to.text);
}

static sl_status try_convert(const char *from, const char *to, const sl_convert_args *args)
{
    sl_model_reader reader;
    sl_convert_report report;
    must(sl_model_reader_open(from, false, 0, &reader));
    sl_convert_args all = *args;
    all.reader = &reader;
    all.to = to;
    sl_status status = sl_convert_run(&all, &report);
    sl_model_reader_close(&reader);
    return status;
}

static void output_when_it_cannot_be_then_refused(void **state)
{
    const scratch_path *directory = *state;
    scratch_path from = scratch_join(golden, "core-2x2"), to = scratch_join(directory->text, "out");
    sl_convert_args args = {.format = SL_CONVERT_MEGATRON, .tp_size = 3, .pp_size = 1};
    assert_int_equal(try_convert(from.text, to.text, &args), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "--tp 3"));
    args = (sl_convert_args){.format = SL_CONVERT_MEGATRON, .tp_size = 1, .pp_size = 3};
    assert_int_equal(try_convert(from.text, to.text, &args), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "--pp 3"));
    assert_false(scratch_exists(to.text));
    args.pp_size = 2;
    must(try_convert(from.text, to.text, &args));
    assert_int_equal(try_convert(from.text, to.text, &args), SL_ERROR_USAGE); /* it is there */
    args.overwrites = true;
    run_shell("touch %s/release/mp_rank_00_000/mine%s", to.text, "");
    assert_int_equal(try_convert(from.text, to.text, &args), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "holds mine"));
    run_shell("rm %s/release/mp_rank_00_000/mine && mkdir %s/release/more", to.text, to.text);
    assert_int_equal(try_convert(from.text, to.text, &args), SL_ERROR_USAGE);
    run_shell("rmdir %s/release/more && touch %s/release/config.json", to.text, to.text);
    assert_int_equal(try_convert(from.text, to.text, &args), SL_ERROR_USAGE); /* of elsewhere */
    run_shell("rm %s/release/config.json%s", to.text, "");
    scratch_path iteration = scratch_join(directory->text, "iter_0000007");
    run_shell("cp -r %s/core-2x2/iter_0000007 %s", golden, iteration.text);
    assert_int_equal(try_convert(from.text, iteration.text, &args), SL_ERROR_USAGE);
    run_shell("rm -r %s%s", iteration.text, ""); /* with optimizer states */
    args.tp_size = 2;
    must(try_convert(from.text, to.text, &args));
    assert_same(from.text, to.text);
    run_shell("test $(ls %s | wc -l) = %s", directory->text, "1"); /* no temporary */
}

/* ---- pieces that are none ---- */

static void refuse(const char *what, const char *path, sl_status expected, const char *fragment)
{
    sl_model_reader reader;
    sl_status status = sl_model_reader_open(path, false, 0, &reader);
    must_fail(what, status, expected, fragment);
}

static void pieces_when_something_is_missing_then_refused(void **state)
{
    static const struct {
        const char *what, *command, *fragment;
        sl_status status;
    } rows[] = {
        {"a piece", "rm -r %s/iter_0000007/mp_rank_01_001", "mp_rank_01_001", SL_ERROR_MISSING},
        {"a stage", "rm -r %s/iter_0000007/mp_rank_0?_001", "pipeline_model_parallel_size is 2",
         SL_ERROR_DATA},
        {"a rank", "rm -r %s/iter_0000007/mp_rank_01_00?", "a piece of 2 tensor-parallel ranks",
         SL_ERROR_DATA},
        {"a file", "rm %s/iter_0000007/mp_rank_00_001/*.pt", "model_optim_rng.pt",
         SL_ERROR_MISSING},
        {"all", "rm -r %s/iter_0000007/*", "no mp_rank_00", SL_ERROR_MISSING},
        {"the iteration", "echo 9 > %s/latest_checkpointed_iteration.txt", "iter_0000009",
         SL_ERROR_MISSING},
        {"an iteration's name", "echo ../.. > %s/latest_checkpointed_iteration.txt",
         "is no iteration", SL_ERROR_DATA},
        {"any text of it", ": > %s/latest_checkpointed_iteration.txt", "is no iteration",
         SL_ERROR_DATA},
        {"the last stage, which is the first again",
         "cp %s/iter_0000007/mp_rank_00_000/*.pt $d/iter_0000007/mp_rank_00_001/",
         "has no tensor \"decoder.final", SL_ERROR_DATA},
        {"the first stage, which is the last again",
         "cp %s/iter_0000007/mp_rank_00_001/*.pt $d/iter_0000007/mp_rank_00_000/", "no embeddings",
         SL_ERROR_DATA},
        {"half of a file", "truncate -s 5000 %s/iter_0000007/mp_rank_01_000/*.pt",
         "no directory at its end", SL_ERROR_DATA},
        {"a file's sense", "echo text > $d/text; cp $d/text %s/iter_0000007/mp_rank_01_000/*.pt",
         "has no mark", SL_ERROR_DATA},
    };
    const scratch_path *directory = *state;
    scratch_path copy = scratch_join(directory->text, "copy");
    setenv("d", copy.text, 1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run_shell("rm -rf %s && cp -r %s/core-2x2 $d", copy.text, golden);
        run_shell(rows[i].command, copy.text, "");
        refuse(rows[i].what, copy.text, rows[i].status, rows[i].fragment);
    }
}

/* Changes what stands within 40 bytes behind a key of the first piece's pickle. */
static void change_behind(const char *path, const char *key, const char *from, const char *to,
                          size_t bytes)
{
    size_t count;
    char *data = scratch_read(path, &count);
    char *at = memmem(data, count, key, strlen(key));
    assert_non_null(at);
    at += strlen(key);
    char *found = memmem(at, 40, from, bytes);
    if (!found)
        fail_msg("%s: not there", key);
    memcpy(found, to, bytes);
    torch_seal((unsigned char *)data, count);
    scratch_write(path, data, count);
    free(data);
}

static void arguments_when_of_another_model_then_refused(void **state)
{
    static const struct {
        const char *key, *from, *to;
        size_t bytes;
        const char *fragment;
    } rows[] = {
        {"swiglu", "\x89", "\x88", 1, "swiglu is True"},
        {"untie_embeddings_and_output_weights", "\x89", "\x88", 1, "untie_embeddings"},
        {"add_position_embedding", "\x88", "\x89", 1, "add_position_embedding is False"},
        {"normalization", "LayerNorm", "RMSNormed", 9, "normalization is not GPT-2's"},
        {"position_embedding_type", "learned_absolute", "learned_relative", 16,
         "position_embedding_type"},
        {"layernorm_epsilon", "\x3e\xe4", "\x3e\xf4", 2, "layernorm_epsilon is not 1e-5"},
        {"num_layers", "K\2", "K\3", 2, "2 layers in its pieces, and 3"},
        {"num_layers", "K\2", "K\0", 2, "num_layers is no integer"},
        {"num_attention_heads", "K\2", "K\3", 2, "kv_channels is 4, and 2"},
        {"num_attention_heads", "K\2", "K\1", 2, "kv_channels is 4, and 8"},
        {"hidden_size", "K\10", "K\11", 2, "ffn_hidden_size is 32, and 36"},
        {"max_position_embeddings", "K\10", "K\7", 2, "position_embeddings.weight\" has"},
        {"tensor_model_parallel_size", "K\2", "K\4", 2, "of 4 tensor-parallel ranks"},
        {"checkpoint_version", "\x40\x08", "\x40\x28", 2, "checkpoint_version is 12"},
        {"checkpoint_version", "\x40\x08", "\xc0\x08", 2, "checkpoint_version is -3"},
        {"checkpoint_version", "\x40\x08", "\x7f\xf8", 2, "checkpoint_version is nan"},
        {"modelq", "}", "]", 1, "fills what is no dict"},
    };
    const scratch_path *directory = *state;
    scratch_path copy = scratch_join(directory->text, "copy"),
                 piece = scratch_join(copy.text, "iter_0000007/mp_rank_00_000/model_optim_rng.pt");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run_shell("rm -rf %s && cp -r %s/core-2x2 $d", copy.text, golden);
        change_behind(piece.text, rows[i].key, rows[i].from, rows[i].to, rows[i].bytes);
        refuse(rows[i].key, copy.text, SL_ERROR_DATA, rows[i].fragment);
    }
}

/* Whether all is read; what is read is what PyTorch wrote. */
static bool reads_golden(const char *path)
{
    sl_model_reader reader;
    bool is_read = true;
    float data[8 * 40];
    if (sl_model_reader_open(path, false, 0, &reader) != SL_OK)
        return false;
    assert_memory_equal(&reader.shape, &golden_shape, sizeof golden_shape);
    for (uint32_t i = 0; is_read && i < sl_model_tensors_count(&golden_shape); i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(&golden_shape, i);
        const uint64_t count = tensor.rows * tensor.columns;
        is_read = sl_model_reader_read(&reader, &tensor, 0, count, data) == SL_OK;
        for (uint64_t j = 0; is_read && j < count; j++)
            if (data[j] != golden_value(&tensor, lay_index_across(&tensor, j)))
                fail_msg("%s: element %llu is %g", sl_model_tensors_name(&tensor).text,
                         (unsigned long long)j, (double)data[j]);
    }
    sl_model_reader_close(&reader);
    return is_read;
}

/* One bit anywhere in a piece: either all is as PyTorch wrote it, where the bit is of nothing that
 * is read, or it is refused, with the piece's name. */
static void piece_when_a_bit_is_flipped_then_refused_or_the_same(void **state)
{
    static const char *const names[] = {"core-2x2/iter_0000007/mp_rank_01_000",
                                        "legacy-1x2/iter_0000007/mp_rank_00_001"};
    const scratch_path *directory = *state;
    uint64_t draw = scratch_seed(__func__, 6), refused = 0, flips = scratch_count(400, 20000);
    for (uint64_t i = 0; i < flips; i++) {
        size_t bytes;
        const char *name = names[i % 2];
        scratch_path copy = scratch_join(directory->text, i % 2 ? "legacy-1x2" : "core-2x2"),
                     piece = scratch_join(scratch_join(directory->text, name).text,
                                          "model_optim_rng.pt");
        if (i < 2)
            run_shell("cp -r %s/* %s", golden, directory->text);
        char *data = scratch_read(piece.text, &bytes);
        const size_t at = scratch_below(&draw, bytes);
        const char bit = (char)(1 << scratch_below(&draw, 8));
        data[at] ^= bit;
        scratch_write(piece.text, data, bytes);
        if (!reads_golden(copy.text)) {
            refused++;
            if (!strstr(sl_status_message(), "iter_0000007"))
                fail_msg("byte %zu: no piece in \"%s\"", at, sl_status_message());
        }
        data[at] ^= bit;
        scratch_write(piece.text, data, bytes);
        free(data);
    }
    assert_true(refused > flips / 8);
}

static int unchecked_remarks;

static void count_remark(void *user, sl_log_level level, const char *line)
{
    (void)user;
    unchecked_remarks +=
        level == SL_LOG_WARNING && strstr(line, "was written without checksums") != NULL;
}

/* One warning for all pieces; none if they have checksums. */
static void pieces_when_without_checksums_then_a_warning(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int remarks;
    } rows[] = {{"core-2x2", 0}, {"legacy-1x2", 0}, {"first-2x1", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_model_reader reader;
        unchecked_remarks = 0;
        sl_log_set_callback(count_remark, NULL);
        sl_status status =
            sl_model_reader_open(scratch_join(golden, rows[i].name).text, false, 0, &reader);
        sl_log_set_callback(NULL, NULL);
        must(status);
        sl_model_reader_close(&reader);
        if (unchecked_remarks != rows[i].remarks)
            fail_msg("%s: %d remarks", rows[i].name, unchecked_remarks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_when_of_pytorch_then_same_weights),
        cmocka_unit_test(pieces_when_heads_are_not_said_then_those_given),
        cmocka_unit_test(pieces_when_imported_then_in_the_programs_order),
        cmocka_unit_test(pieces_when_a_row_is_beyond_memory_then_refused),
        cmocka_unit_test(output_when_it_cannot_be_then_refused),
        cmocka_unit_test(pieces_when_written_then_read_again),
        cmocka_unit_test(pieces_when_many_then_read),
        cmocka_unit_test(pieces_when_something_is_missing_then_refused),
        cmocka_unit_test(arguments_when_of_another_model_then_refused),
        cmocka_unit_test(piece_when_a_bit_is_flipped_then_refused_or_the_same),
        cmocka_unit_test(pieces_when_without_checksums_then_a_warning),
    };
    return cmocka_run_group_tests_name("megatron_model", tests, open_scratch, close_scratch);
}
