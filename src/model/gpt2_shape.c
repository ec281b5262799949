/* Shapes of GPT-2: checks and counts. Knows nothing of programs. */
#include "base/bits.h"
#include "base/status.h"
#include "gpt2.h"

enum { LAYERS_MAX = 1 << 16 };

static sl_status check_divisions(const sl_model_shape *shape, uint32_t tp_size)
{
    if (shape->layers == 0 || shape->width == 0 || shape->heads == 0 || shape->context == 0 ||
        shape->vocab == 0 || tp_size == 0)
        SL_FAIL(SL_ERROR_USAGE, "layers, width, heads, context, vocab and tp must be positive");
    if (shape->width % shape->heads != 0)
        SL_FAIL(SL_ERROR_USAGE, "width %u is not a multiple of %u heads", shape->width,
                shape->heads);
    if (tp_size > UINT16_MAX) /* the type of sl_op_attrs.rank_index */
        SL_FAIL(SL_ERROR_USAGE, "%u tensor-parallel ranks are too many", tp_size);
    if (tp_size > shape->heads)
        SL_FAIL(SL_ERROR_USAGE,
                "%u heads are too few for %u tensor-parallel ranks: --tp %u at most", shape->heads,
                tp_size, shape->heads);
    if (shape->layers > LAYERS_MAX)
        SL_FAIL(SL_ERROR_USAGE, "%u layers: at most %u", shape->layers, LAYERS_MAX);
    return SL_OK;
}

sl_status sl_gpt2_check(const sl_model_shape *shape, uint32_t tp_size)
{
    SL_TRY(check_divisions(shape, tp_size));
    uint64_t width = shape->width, vocab = sl_model_shape_padded_vocab(shape, tp_size);
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

uint64_t sl_gpt2_parameters(const sl_model_shape *shape)
{
    uint64_t width = shape->width;
    uint64_t layer = 12 * width * width + 13 * width;
    return shape->layers * layer + 2 * width + (shape->vocab + (uint64_t)shape->context) * width;
}

uint64_t sl_gpt2_attention_width(const sl_model_shape *shape)
{
    return (uint64_t)shape->layers * shape->width;
}
