/* Shapes of architectures like Llama's: checks and counts. Knows nothing of programs. */
#include <math.h>

#include "base/bits.h"
#include "base/status.h"
#include "llama.h"

enum { LAYERS_MAX = 1 << 16, FFN_UNIT = 256 };

/* ---- sizes that are not given ---- */

static void set_default(double value, double *number)
{
    if (*number == 0)
        *number = value;
}

void sl_llama_complete(sl_model_shape *shape)
{
    const sl_architecture *row = sl_architecture_of(shape);
    if (shape->kv_heads == 0)
        shape->kv_heads = shape->heads;
    if (shape->head == 0 && shape->heads > 0 && shape->width % shape->heads == 0)
        shape->head = shape->width / shape->heads;
    if (shape->ffn == 0) /* as many parameters as of an MLP of 4 * width with two linears */
        shape->ffn = (uint32_t)sl_bits_round_up(8 * (uint64_t)shape->width / 3, FFN_UNIT);
    set_default(row->norm_epsilon, &shape->norm_epsilon);
    set_default(row->rope_base, &shape->rope.base);
}

/* ---- checks ---- */

static sl_status check_sizes(const sl_model_shape *shape, uint32_t tp_size)
{
    if (shape->head == 0 && shape->heads > 0 && shape->width % shape->heads != 0)
        SL_FAIL(SL_ERROR_USAGE, "a width of %u is not a multiple of %u heads: give --head-size",
                shape->width, shape->heads);
    if (shape->layers == 0 || shape->width == 0 || shape->heads == 0 || shape->kv_heads == 0 ||
        shape->head == 0 || shape->ffn == 0 || shape->context == 0 || shape->vocab == 0 ||
        tp_size == 0)
        SL_FAIL(SL_ERROR_USAGE, "layers, width, heads, key-value heads, head size, ffn, context, "
                                "vocab and tp must be positive");
    if (shape->layers > LAYERS_MAX)
        SL_FAIL(SL_ERROR_USAGE, "%u layers: at most %u", shape->layers, LAYERS_MAX);
    if (shape->width > INT32_MAX || shape->ffn > INT32_MAX || shape->context > INT32_MAX ||
        sl_model_shape_padded_vocab(shape, tp_size) > INT32_MAX ||
        (uint64_t)shape->heads * shape->head > INT32_MAX)
        SL_FAIL(SL_ERROR_USAGE,
                "width, heads * head size, ffn, token ids and positions must fit 31 bits");
    return SL_OK;
}

/* Each rank has whole key heads; or equally many ranks share each key head, and each of them has
 * whole query heads. */
bool sl_llama_may_split(const sl_model_shape *shape, uint32_t tp_size)
{
    return shape->kv_heads % tp_size == 0 ||
           (tp_size % shape->kv_heads == 0 && shape->heads % tp_size == 0);
}

static sl_status check_heads(const sl_model_shape *shape, uint32_t tp_size)
{
    if (shape->heads % shape->kv_heads != 0)
        SL_FAIL(SL_ERROR_USAGE, "%u heads are not a multiple of %u key-value heads (--kv-heads)",
                shape->heads, shape->kv_heads);
    if (shape->head % 2 != 0)
        SL_FAIL(SL_ERROR_USAGE, "a head of %u features: rotary positions need an even number",
                shape->head);
    if (tp_size > UINT16_MAX) /* the type of sl_op_attrs.rank_index */
        SL_FAIL(SL_ERROR_USAGE, "%u tensor-parallel ranks are too many", tp_size);
    if (!sl_llama_may_split(shape, tp_size))
        SL_FAIL(SL_ERROR_USAGE,
                "%u tensor-parallel ranks cannot share %u heads on %u key-value heads: --tp must "
                "divide the number of key-value heads, or be a multiple of it that divides the "
                "number of heads",
                tp_size, shape->heads, shape->kv_heads);
    return SL_OK;
}

static sl_status check_rope(const sl_model_rope *rope)
{
    if (!(rope->base > 1) || !isfinite(rope->base))
        SL_FAIL(SL_ERROR_USAGE, "rotary positions of base %g: it must be above 1", rope->base);
    if (rope->scaling == SL_ROTARY_PLAIN)
        return SL_OK;
    if (rope->scaling > SL_ROTARY_LLAMA3)
        SL_FAIL(SL_ERROR_USAGE, "rotary positions of scaling %u, which is none", rope->scaling);
    if (!(rope->factor >= 1) || !isfinite(rope->factor))
        SL_FAIL(SL_ERROR_USAGE, "rotary positions scaled by %g: the factor must be at least 1",
                rope->factor);
    if (rope->scaling == SL_ROTARY_LLAMA3 &&
        (!(rope->low_frequency_factor > 0) || !isfinite(rope->high_frequency_factor) ||
         !(rope->high_frequency_factor > rope->low_frequency_factor) ||
         rope->original_context == 0))
        SL_FAIL(SL_ERROR_USAGE,
                "rotary positions of Llama 3 with factors %g and %g for %u positions: the factors "
                "must be positive and rise, the positions be positive",
                rope->low_frequency_factor, rope->high_frequency_factor, rope->original_context);
    return SL_OK;
}

/* ---- counts ---- */

/* Parameters, with `ids` rows of a table. A layer: q, k, v and the linear behind them; gate, up and
 * down; two norms; biases of q, k and v, or norms of q and k, of a head or of all. */
static sl_status count_parameters(const sl_model_shape *shape, uint64_t ids, uint64_t *out_count)
{
    const uint64_t q = (uint64_t)shape->heads * shape->head;
    const uint64_t kv = (uint64_t)shape->kv_heads * shape->head;
    const uint64_t features = 2 * q + 2 * kv + 3ull * shape->ffn + 2; /* of the matrices together */
    const uint64_t tables = shape->is_untied ? 2 : 1;
    uint64_t layer, layers, embedding;
    SL_TRY(sl_bits_multiply(features, shape->width, "a layer", &layer));
    if (sl_architecture_of(shape)->has_qkv_bias)
        layer += q + 2 * kv;
    if (sl_architecture_of(shape)->has_head_norms)
        layer += 2ull * shape->head;
    if (sl_architecture_of(shape)->has_whole_norms)
        layer += q + kv;
    SL_TRY(sl_bits_multiply(layer, shape->layers, "the layers", &layers));
    SL_TRY(sl_bits_multiply(tables * ids + 1, shape->width, "the embedding", &embedding));
    return sl_bits_add(layers, embedding, "the parameters", out_count);
}

sl_status sl_llama_check(const sl_model_shape *shape, uint32_t tp_size)
{
    uint64_t total, bytes;
    SL_TRY(check_sizes(shape, tp_size));
    SL_TRY(check_heads(shape, tp_size));
    if (!((float)shape->norm_epsilon > 0) || !(shape->norm_epsilon < 1))
        SL_FAIL(SL_ERROR_USAGE, "norms of epsilon %g: it must be between 0 and 1",
                shape->norm_epsilon);
    SL_TRY(check_rope(&shape->rope));
    SL_TRY(count_parameters(shape, sl_model_shape_padded_vocab(shape, tp_size), &total));
    return sl_bits_multiply(total, sizeof(float), "the parameters", &bytes);
}

uint64_t sl_llama_parameters(const sl_model_shape *shape)
{
    uint64_t count = 0;
    (void)count_parameters(shape, shape->vocab, &count); /* the shape was checked */
    return count;
}

uint64_t sl_llama_attention_width(const sl_model_shape *shape)
{
    return (uint64_t)shape->layers * shape->heads * shape->head;
}
