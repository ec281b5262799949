/* Which tensors of a gradient chunk have been written. CLEAR_PADDING starts a new version of the
 * chunk but writes only the padding. So each tensor must be written after it, before an op reads
 * the tensor or the whole chunk. Knows nothing of places and versions.
 */
#include "verify.h"

/* The chunk whose whole gradient a value holds; SL_NONE: the value holds none. */
static uint32_t find_chunk(const sl_verify *verify, uint32_t value_index)
{
    const sl_value *value = &verify->program->values[value_index];
    const sl_verify_value *it = &verify->values[value_index];
    if (value->kind == SL_VALUE_CHUNK)
        return value->group == SL_GROUP_GRAD ? value->index : SL_NONE;
    return it->chunk_index != SL_NONE && it->group == SL_GROUP_GRAD ? it->chunk_index : SL_NONE;
}

/* The tensor whose gradient a value is; SL_NONE: the value is not a tensor's gradient. */
static uint32_t find_tensor(const sl_verify *verify, uint32_t value_index)
{
    const sl_value *value = &verify->program->values[value_index];
    const bool is_tensor = value->kind == SL_VALUE_TENSOR || value->kind == SL_VALUE_PART;
    return is_tensor && value->group == SL_GROUP_GRAD ? value->index : SL_NONE;
}

/* The kernel finds the chunk's padding by attrs.first_block, so this must be the chunk's first
 * block. */
static sl_status check_padding(const sl_verify *verify, const sl_op *op)
{
    const sl_layout *layout = verify->layout;
    const uint32_t chunk_index = find_chunk(verify, op->operand[0]);
    uint64_t count = 0;
    if (chunk_index == SL_NONE || layout->first_padding == NULL)
        return sl_verify_reject(verify, "clears the padding of something else than a gradient");
    for (uint32_t p = layout->first_padding[chunk_index];
         p < layout->first_padding[chunk_index + 1]; p++)
        count += layout->padding[p].count;
    if (op->attrs.first_block != layout->chunks[chunk_index].first_block ||
        op->attrs.row_count != count)
        return sl_verify_reject(verify,
                                "clears %llu elements from block %llu on, not the %llu of "
                                "the padding of chunk %u",
                                (unsigned long long)op->attrs.row_count,
                                (unsigned long long)op->attrs.first_block,
                                (unsigned long long)count, chunk_index);
    return SL_OK;
}

static sl_status check_tensor(const sl_verify *verify, uint32_t tensor)
{
    if (verify->is_unwritten[tensor])
        return sl_verify_reject(verify,
                                "needs the gradient of tensor %u, which no op has written "
                                "since the padding of its chunk was cleared",
                                tensor);
    return SL_OK;
}

static sl_status check_read(const sl_verify *verify, uint32_t value)
{
    const uint32_t tensor = find_tensor(verify, value), chunk_index = find_chunk(verify, value);
    if (tensor != SL_NONE)
        SL_TRY(check_tensor(verify, tensor));
    for (uint32_t t = 0; chunk_index != SL_NONE && t < verify->layout->tensor_count; t++)
        if (verify->layout->chunk_of_tensor[t] == chunk_index)
            SL_TRY(check_tensor(verify, t));
    return SL_OK;
}

static void note_write(sl_verify *verify, const sl_op *op, uint32_t value)
{
    const uint32_t tensor = find_tensor(verify, value), chunk_index = find_chunk(verify, value);
    if (tensor != SL_NONE)
        verify->is_unwritten[tensor] = false;
    for (uint32_t t = 0; chunk_index != SL_NONE && t < verify->layout->tensor_count; t++)
        if (verify->layout->chunk_of_tensor[t] == chunk_index)
            verify->is_unwritten[t] = op->kind == SL_OP_CLEAR_PADDING;
}

sl_status sl_verify_gradients(sl_verify *verify, const sl_op *op)
{
    if (op->kind == SL_OP_CLEAR_PADDING)
        SL_TRY(check_padding(verify, op));
    for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
        if (op->operand[i] != SL_NONE && sl_op_reads(op, i))
            SL_TRY(check_read(verify, op->operand[i]));
    for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
        if (op->operand[i] != SL_NONE && sl_op_writes(op, i))
            note_write(verify, op, op->operand[i]);
    return SL_OK;
}
