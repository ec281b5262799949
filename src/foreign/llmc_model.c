/* The layout of llm.c's models, and a reader that trusts no word of them; see llmc_model.h. */
#include "llmc_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

enum {
    MAGIC = 20240326,
    VERSION_FP32 = 3,
    VERSION_BF16 = 5,
    SIZE_MAX_VALUE = 1 << 30,
    HEADER_BYTES = SL_LLMC_HEADER_WORDS * 4,
    SHAPE_WORD = 2 /* the first of the six */
};

/* ---- the layout ---- */

typedef enum extent { VECTOR = 0, PADDED_VOCAB = -1, CONTEXT = -2 } extent; /* else in widths */

typedef struct kind_row {
    int rows, columns;
    bool is_of_layer;
} kind_row;

static const kind_row kinds[SL_LLMC_KIND_COUNT] = {
#define KIND_ROW(name, rows, columns, of_layer) {rows, columns, of_layer},
    SL_LLMC_KINDS(KIND_ROW)
#undef KIND_ROW
};

static uint64_t size_of(const sl_llmc_shape *shape, int size)
{
    if (size == VECTOR)
        return 1;
    if (size == PADDED_VOCAB)
        return shape->padded_vocab;
    return size == CONTEXT ? shape->context : (uint64_t)size * shape->width;
}

/* Elements of one kind, all layers together. */
static sl_status count_kind(const sl_llmc_shape *shape, const kind_row *kind, uint64_t *out_count)
{
    SL_TRY(sl_bits_multiply(size_of(shape, kind->rows), size_of(shape, kind->columns), "a tensor",
                            out_count));
    return sl_bits_multiply(*out_count, kind->is_of_layer ? shape->layers : 1, "the layers",
                            out_count);
}

static sl_status count_elements(const sl_llmc_shape *shape, uint64_t *out_element_count)
{
    uint64_t count, bytes;
    *out_element_count = 0;
    for (int i = 0; i < SL_LLMC_KIND_COUNT; i++) {
        SL_TRY(count_kind(shape, &kinds[i], &count));
        SL_TRY(sl_bits_add(*out_element_count, count, "the parameters", out_element_count));
    }
    SL_TRY(sl_bits_multiply(*out_element_count, sizeof(float), "the parameters", &bytes));
    return sl_bits_add(bytes, HEADER_BYTES, "the parameters", &bytes);
}

sl_status sl_llmc_check(const sl_llmc_shape *shape, uint64_t *out_element_count)
{
    const struct {
        const char *name;
        uint32_t value;
    } sizes[] = {{"context", shape->context}, {"vocabulary", shape->vocab},
                 {"layers", shape->layers},   {"heads", shape->heads},
                 {"width", shape->width},     {"padded vocabulary", shape->padded_vocab}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].value == 0 || sizes[i].value > SIZE_MAX_VALUE)
            SL_FAIL(SL_ERROR_DATA, "its %s is %u, which is not from 1 to 2^30", sizes[i].name,
                    sizes[i].value);
    if (shape->width % shape->heads != 0)
        SL_FAIL(SL_ERROR_DATA, "its width %u is not a multiple of its %u heads", shape->width,
                shape->heads);
    if (shape->padded_vocab < shape->vocab)
        SL_FAIL(SL_ERROR_DATA, "its vocabulary has %u ids, but %u with padding", shape->vocab,
                shape->padded_vocab);
    return count_elements(shape, out_element_count) == SL_OK ? SL_OK : SL_ERROR_DATA;
}

sl_llmc_place sl_llmc_find(const sl_llmc_shape *shape, sl_llmc_kind kind, uint32_t layer)
{
    sl_llmc_place place = {.rows = size_of(shape, kinds[kind].rows),
                           .columns = size_of(shape, kinds[kind].columns),
                           .is_of_layer = kinds[kind].is_of_layer};
    for (int i = 0; i < (int)kind; i++)
        place.first_element += size_of(shape, kinds[i].rows) * size_of(shape, kinds[i].columns) *
                               (kinds[i].is_of_layer ? shape->layers : 1);
    if (place.is_of_layer)
        place.first_element += layer * place.rows * place.columns;
    return place;
}

void sl_llmc_format_header(const sl_llmc_shape *shape, sl_encoding encoding,
                           int32_t out_words[SL_LLMC_HEADER_WORDS])
{
    const uint32_t words[] = {shape->context, shape->vocab, shape->layers,
                              shape->heads,   shape->width, shape->padded_vocab};
    memset(out_words, 0, HEADER_BYTES);
    out_words[0] = MAGIC;
    out_words[1] = encoding == SL_ENCODING_BF16 ? VERSION_BF16 : VERSION_FP32;
    memcpy(out_words + SHAPE_WORD, words, sizeof words);
}

/* ---- reading ---- */

/* What else people have that ends in .bin, or is one file. */
static sl_status refuse_kind(const unsigned char *start)
{
    static const struct {
        int32_t magic;
        const char *what;
    } others[] = {{20240327, "llm.c's state for debugging"},
                  {20240520, "llm.c's tokens"},
                  {20240801, "llm.c's tokens"},
                  {20240522, "llm.c's evaluation data"},
                  {20240527, "llm.c's optimizer state"},
                  {20240328, "llm.c's tokenizer"},
                  {0x46554747, "a GGUF file, which is written here and not read"}};
    int32_t magic;
    memcpy(&magic, start, sizeof magic);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].magic == magic)
            SL_FAIL(SL_ERROR_DATA, "is %s and no model of llm.c", others[i].what);
    if (start[8] == '{')
        SL_FAIL(SL_ERROR_DATA,
                "is a safetensors file, which does not say its model: name its directory");
    SL_FAIL(SL_ERROR_DATA, "is no model of llm.c, which starts with the word %d", MAGIC);
}

static sl_status read_words(const sl_llmc_model *model, int32_t words[SL_LLMC_HEADER_WORDS])
{
    if (model->file.bytes < HEADER_BYTES)
        SL_FAIL(SL_ERROR_DATA, "has %llu bytes, fewer than the %d in front of a model of llm.c",
                (unsigned long long)model->file.bytes, HEADER_BYTES);
    SL_TRY(sl_files_read_at(&model->file, 0, HEADER_BYTES, words));
    if (words[0] != MAGIC)
        return refuse_kind((const unsigned char *)words);
    if (words[1] != VERSION_FP32 && words[1] != VERSION_BF16)
        SL_FAIL(SL_ERROR_DATA,
                "is an llm.c model of version %d; %d (fp32) and %d (bf16) are read: let a later "
                "llm.c write it again",
                words[1], VERSION_FP32, VERSION_BF16);
    return SL_OK;
}

static sl_status check_bytes(const sl_llmc_model *model)
{
    uint64_t elements;
    SL_TRY(sl_llmc_check(&model->shape, &elements));
    uint64_t bytes = HEADER_BYTES + sl_encoding_bytes(model->encoding, elements);
    if (bytes != model->file.bytes)
        SL_FAIL(SL_ERROR_DATA, "its sizes need %llu bytes, but the file has %llu",
                (unsigned long long)bytes, (unsigned long long)model->file.bytes);
    return SL_OK;
}

static sl_status read_header(sl_llmc_model *model)
{
    int32_t words[SL_LLMC_HEADER_WORDS];
    uint32_t sizes[sizeof model->shape / sizeof(uint32_t)];
    SL_TRY(read_words(model, words));
    memcpy(sizes, words + SHAPE_WORD, sizeof sizes);
    model->encoding = words[1] == VERSION_BF16 ? SL_ENCODING_BF16 : SL_ENCODING_FP32;
    model->shape = (sl_llmc_shape){.context = sizes[0],
                                   .vocab = sizes[1],
                                   .layers = sizes[2],
                                   .heads = sizes[3],
                                   .width = sizes[4],
                                   .padded_vocab = sizes[5]};
    return check_bytes(model);
}

sl_status sl_llmc_model_open(int directory, const char *directory_path, const char *name,
                             sl_llmc_model **out_model)
{
    sl_llmc_model *model = calloc(1, sizeof *model);
    if (!model)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to open a file");
    sl_status status =
        sl_files_open(directory, directory_path, name, SL_LINKS_FOLLOW, &model->file);
    if (status != SL_OK) {
        free(model);
        return status;
    }
    status = read_header(model);
    if (status != SL_OK) {
        if (status == SL_ERROR_DATA)
            status = sl_status_prefix(status, "%s", sl_files_show(model->file.path).text);
        sl_llmc_model_close(model);
        return status;
    }
    *out_model = model;
    return SL_OK;
}

void sl_llmc_model_close(sl_llmc_model *model)
{
    if (!model)
        return;
    sl_files_close(&model->file);
    free(model);
}

sl_status sl_llmc_model_read(const sl_llmc_model *model, uint64_t first_element,
                             uint64_t element_count, float *out_data)
{
    uint64_t bytes = sl_encoding_bytes(model->encoding, 1);
    uint64_t count = (model->file.bytes - HEADER_BYTES) / bytes;
    if (first_element > count || element_count > count - first_element)
        SL_FAIL(SL_ERROR_USAGE, "%s: elements beyond its end are asked",
                sl_files_show(model->file.path).text);
    SL_TRY(sl_files_read_at(&model->file, HEADER_BYTES + bytes * first_element,
                            bytes * element_count,
                            (char *)out_data + (sizeof *out_data - bytes) * element_count));
    sl_encoding_widen(model->encoding, element_count, out_data);
    return SL_OK;
}
