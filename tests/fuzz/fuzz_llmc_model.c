/* A model of llm.c. The first byte of an input is a set of the bits below, the rest the file from
 * its start. Of what is accepted, the tensors cover the elements in order, elements are read up to
 * the last and not beyond, and the words written for its shape are those that were read. */
#define _GNU_SOURCE
#include "foreign/llmc_model.h"
#include "fuzz.h"

enum {
    HAS_ALL_WORDS = 1, /* zeros behind what is short of the words */
    RIGHT_SIZE = 2,    /* zeros, or a cut, to the size that the words need */
    HEADER_BYTES = SL_LLMC_HEADER_WORDS * 4,
    LAYERS_MAX = 64
};

/* Bytes of the file that these words promise; 0: of none of at most 1 TiB, which takes no space. */
static uint64_t find_size(const uint8_t *data, size_t bytes)
{
    int32_t words[8] = {0};
    uint64_t elements;
    memcpy(words, data, bytes < sizeof words ? bytes : sizeof words);
    const sl_llmc_shape shape = {(uint32_t)words[2], (uint32_t)words[3], (uint32_t)words[4],
                                 (uint32_t)words[5], (uint32_t)words[6], (uint32_t)words[7]};
    if (!fuzz_accepts(sl_llmc_check(&shape, &elements)) || elements > UINT64_C(1) << 38)
        return 0;
    return HEADER_BYTES + elements * (words[1] == 5 ? 2 : 4);
}

/* Every tensor starts where the one before ends. */
static void check_places(const sl_llmc_shape *shape, uint64_t element_count)
{
    uint64_t end = 0;
    uint32_t layers = shape->layers < LAYERS_MAX ? shape->layers : LAYERS_MAX;
    for (int kind = 0; kind < SL_LLMC_KIND_COUNT; kind++) {
        sl_llmc_place place = sl_llmc_find(shape, (sl_llmc_kind)kind, 0);
        FUZZ_NEED(place.first_element == end);
        for (uint32_t layer = 1; place.is_of_layer && layer < layers; layer++)
            FUZZ_NEED(sl_llmc_find(shape, (sl_llmc_kind)kind, layer).first_element ==
                      end + layer * place.rows * place.columns);
        end += place.rows * place.columns * (place.is_of_layer ? shape->layers : 1);
    }
    FUZZ_NEED(end == element_count);
}

static void check_elements(const sl_llmc_model *model, const uint8_t *data, size_t bytes,
                           uint64_t element_count)
{
    float read[3];
    uint64_t count = element_count < 3 ? element_count : 3;
    FUZZ_NEED(sl_llmc_model_read(model, element_count - count, count, read) == SL_OK);
    FUZZ_NEED(sl_llmc_model_read(model, element_count - count, count + 1, read) == SL_ERROR_USAGE);
    FUZZ_NEED(sl_llmc_model_read(model, UINT64_MAX, 1, read) == SL_ERROR_USAGE);
    FUZZ_NEED(sl_llmc_model_read(model, 0, 1, read) == SL_OK);
    uint32_t expected = 0;
    uint32_t width = model->encoding == SL_ENCODING_BF16 ? 2 : 4;
    if (bytes >= HEADER_BYTES + width)
        memcpy((char *)&expected + (4 - width), data + HEADER_BYTES, width);
    if (bytes >= HEADER_BYTES + width || bytes <= HEADER_BYTES)
        FUZZ_NEED(memcmp(&expected, read, sizeof expected) == 0);
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    sl_llmc_model *model = NULL;
    uint64_t element_count;
    int32_t words[SL_LLMC_HEADER_WORDS];
    if (bytes == 0)
        return;
    unsigned flags = data[0];
    scratch_path path = fuzz_write("model.bin", data + 1, bytes - 1);
    uint64_t size = flags & RIGHT_SIZE ? find_size(data + 1, bytes - 1) : 0;
    if (size == 0 && (flags & HAS_ALL_WORDS) && bytes - 1 < HEADER_BYTES)
        size = HEADER_BYTES;
    if (size > 0 && truncate(path.text, (off_t)size) != 0)
        return; /* more than the file system holds */
    if (!fuzz_accepts(sl_llmc_model_open(AT_FDCWD, NULL, path.text, &model)))
        return;
    FUZZ_NEED(sl_llmc_check(&model->shape, &element_count) == SL_OK);
    check_places(&model->shape, element_count);
    check_elements(model, data + 1, bytes - 1, element_count);
    sl_llmc_format_header(&model->shape, model->encoding, words);
    FUZZ_NEED(bytes - 1 < 32 || memcmp(words, data + 1, 32) == 0);
    sl_llmc_model_close(model);
}
