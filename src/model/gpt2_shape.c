/* Shapes of GPT-2: the built-in ones by name, checks, and counts. Knows nothing of programs. */
#include <string.h>

#include "base/bits.h"
#include "base/status.h"
#include "sluice/gpt2.h"

enum { VOCAB_UNIT = 128, LAYERS_MAX = 1 << 16, NAME_MAX_LENGTH = 31 };

typedef struct named_shape {
    const char *name;
    sl_gpt2_shape shape; /* layers, width, heads, context, vocab */
} named_shape;

/* GPT-2's own four, then the shapes of ColossalAI's GPT benchmarks (its example and its test suite
 * for Gemini), by parameter count. */
static const named_shape named[] = {
    {"gpt2", {12, 768, 12, 1024, 50257}},        {"gpt2-medium", {24, 1024, 16, 1024, 50257}},
    {"gpt2-large", {36, 1280, 20, 1024, 50257}}, {"gpt2-xl", {48, 1600, 25, 1024, 50257}},
    {"gpt2-4b", {64, 2304, 16, 1024, 50257}},    {"gpt2-6b", {30, 4096, 16, 1024, 50257}},
    {"gpt2-8b", {72, 3072, 24, 1024, 50257}},    {"gpt2-10b", {50, 4096, 16, 1024, 50257}},
    {"gpt2-12b", {60, 4096, 16, 1024, 50257}},   {"gpt2-14b", {70, 4096, 16, 1024, 50257}},
    {"gpt2-15b", {78, 4096, 16, 1024, 50257}},   {"gpt2-18b", {90, 4096, 16, 1024, 50257}},
    {"gpt2-20b", {25, 8192, 16, 1024, 50257}},   {"gpt2-24b", {30, 8192, 16, 1024, 50257}},
    {"gpt2-28b", {35, 8192, 16, 1024, 50257}},   {"gpt2-30b", {37, 8192, 16, 1024, 50257}},
    {"gpt2-32b", {40, 8192, 16, 1024, 50257}},   {"gpt2-36b", {45, 8192, 16, 1024, 50257}},
    {"gpt2-40b", {50, 8192, 16, 1024, 50257}},   {"gpt2-45b", {56, 8192, 16, 1024, 50257}},
    {"gpt3-175b", {96, 12288, 96, 2048, 50257}},
};

enum { NAMED_COUNT = sizeof named / sizeof *named };

/* The same names again, in the form that sl_gpt2_names hands out. */
static const char *const names[NAMED_COUNT + 1] = {
    "gpt2",     "gpt2-medium", "gpt2-large", "gpt2-xl",  "gpt2-4b",  "gpt2-6b",
    "gpt2-8b",  "gpt2-10b",    "gpt2-12b",   "gpt2-14b", "gpt2-15b", "gpt2-18b",
    "gpt2-20b", "gpt2-24b",    "gpt2-28b",   "gpt2-30b", "gpt2-32b", "gpt2-36b",
    "gpt2-40b", "gpt2-45b",    "gpt3-175b",  NULL,
};

const char *const *sl_gpt2_names(void)
{
    return names;
}

static uint32_t least_of(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Edit distance (Levenshtein 1966) of two names; the first NAME_MAX_LENGTH characters count. */
static uint32_t measure_distance(const char *a, const char *b)
{
    uint32_t above[NAME_MAX_LENGTH + 1];
    size_t a_length = strnlen(a, NAME_MAX_LENGTH), b_length = strnlen(b, NAME_MAX_LENGTH);
    for (uint32_t j = 0; j <= b_length; j++)
        above[j] = j;
    for (uint32_t i = 1; i <= a_length; i++) {
        uint32_t diagonal = above[0];
        above[0] = i;
        for (uint32_t j = 1; j <= b_length; j++) {
            uint32_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = above[j];
            above[j] = least_of(replaced, above[j] + 1, above[j - 1] + 1);
        }
    }
    return above[b_length];
}

sl_status sl_gpt2_named(const char *name, sl_gpt2_shape *out_shape)
{
    const named_shape *nearest = &named[0];
    for (size_t i = 0; i < NAMED_COUNT; i++) {
        if (strcmp(name, named[i].name) == 0) {
            *out_shape = named[i].shape;
            return SL_OK;
        }
        if (measure_distance(name, named[i].name) < measure_distance(name, nearest->name))
            nearest = &named[i];
    }
    SL_FAIL(SL_ERROR_USAGE, "no model is called %.64s; the nearest name is %s", name,
            nearest->name);
}

static sl_status check_divisions(const sl_gpt2_shape *shape, uint32_t tp_size)
{
    if (shape->layers == 0 || shape->width == 0 || shape->heads == 0 || shape->context == 0 ||
        shape->vocab == 0 || tp_size == 0)
        SL_FAIL(SL_ERROR_USAGE, "layers, width, heads, context, vocab and tp must be positive");
    if (shape->width % shape->heads != 0)
        SL_FAIL(SL_ERROR_USAGE, "width %u is not a multiple of %u heads", shape->width,
                shape->heads);
    if (tp_size > UINT16_MAX) /* sl_op_attrs counts ranks so */
        SL_FAIL(SL_ERROR_USAGE, "%u tensor-parallel ranks are too many", tp_size);
    if (shape->heads % tp_size != 0)
        SL_FAIL(SL_ERROR_USAGE, "%u heads do not divide over %u tensor-parallel ranks",
                shape->heads, tp_size);
    if (shape->layers > LAYERS_MAX)
        SL_FAIL(SL_ERROR_USAGE, "%u layers: at most %u", shape->layers, LAYERS_MAX);
    return SL_OK;
}

sl_status sl_gpt2_check(const sl_gpt2_shape *shape, uint32_t tp_size)
{
    SL_TRY(check_divisions(shape, tp_size));
    uint64_t width = shape->width, vocab = sl_gpt2_padded_vocab(shape, tp_size);
    if (vocab > INT32_MAX || shape->context > INT32_MAX)
        SL_FAIL(SL_ERROR_USAGE, "token ids and positions must fit 31 bits");
    /* Parameters: 12 C^2 + 13 C a layer, 2 C of the last norm, (V + T) C of the embedding. */
    uint64_t layer, layers, rows, embedding, total, bytes;
    SL_TRY(sl_bits_multiply(12 * width + 13, width, "a layer", &layer));
    SL_TRY(sl_bits_multiply(layer, shape->layers, "the layers", &layers));
    SL_TRY(sl_bits_add(vocab, 2ull + shape->context, "the embedding", &rows));
    SL_TRY(sl_bits_multiply(rows, width, "the embedding", &embedding));
    SL_TRY(sl_bits_add(layers, embedding, "the parameters", &total));
    return sl_bits_multiply(total, sizeof(float), "the parameters", &bytes);
}

uint64_t sl_gpt2_parameter_count(const sl_gpt2_shape *shape)
{
    uint64_t width = shape->width;
    uint64_t layer = 12 * width * width + 13 * width;
    return shape->layers * layer + 2 * width + (shape->vocab + (uint64_t)shape->context) * width;
}

uint64_t sl_gpt2_padded_vocab(const sl_gpt2_shape *shape, uint32_t tp_size)
{
    return sl_bits_round_up(shape->vocab, (uint64_t)VOCAB_UNIT * tp_size);
}
