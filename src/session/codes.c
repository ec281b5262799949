/* See codes.h. */
#include "codes.h"

#include <string.h>

#include "base/bits.h"
#include "base/dynamic_codes.h"
#include "base/q8.h"

enum {
    BLOCK = SL_BLOCK_ELEMENTS,
    STATE_GROUPS = BLOCK / SL_CODES_GROUP,
    FROZEN_GROUPS = BLOCK / SL_Q8_GROUP
};

/* Some blocks of a run. */
typedef struct batch {
    const sl_codes_run *run;
    uint64_t first_block, block_count;
    uint64_t block_bytes;
    bool is_frozen;    /* a matrix; else states */
    float shares[256]; /* of states */
} batch;

static batch open_batch(const sl_codes_run *run)
{
    const bool is_frozen = run->group == SL_GROUP_PARAM;
    batch it = {.run = run,
                .first_block = run->first / BLOCK,
                .block_bytes = is_frozen ? sl_frozen_block_bytes(SL_FROZEN_INT8)
                                         : sl_states_block_bytes(SL_STATES_INT8),
                .is_frozen = is_frozen};
    if (!is_frozen)
        sl_codes_list_shares(run->group == SL_GROUP_STATE1, it.shares);
    return it;
}

/* Moves on to the next blocks; false: there are none. */
static bool advance(batch *it)
{
    const uint64_t end = sl_bits_divide_up(it->run->first + it->run->count, BLOCK);
    it->first_block += it->block_count;
    it->block_count = sl_bits_min(end - it->first_block, SL_CODES_BATCH_BLOCKS);
    return it->block_count > 0;
}

static sl_status read_blocks(const batch *it)
{
    return sl_engine_read_chunk(it->run->engine, it->run->group, it->run->chunk_index,
                                it->first_block * it->block_bytes,
                                it->block_count * it->block_bytes, it->run->buffer);
}

static void decode_states(const batch *it, const uint8_t *codes, float *values)
{
    float scales[STATE_GROUPS];
    memcpy(scales, codes + BLOCK, sizeof scales);
    for (uint64_t g = 0; g < STATE_GROUPS; g++)
        sl_codes_decode_group(codes + g * SL_CODES_GROUP, scales[g], it->shares,
                              values + g * SL_CODES_GROUP);
}

static void encode_states(const batch *it, const float *values, uint8_t *codes)
{
    const bool is_signed = it->run->group == SL_GROUP_STATE1;
    float scales[STATE_GROUPS];
    for (uint64_t g = 0; g < STATE_GROUPS; g++)
        scales[g] = sl_codes_encode_group(values + g * SL_CODES_GROUP, is_signed,
                                          codes + g * SL_CODES_GROUP);
    memcpy(codes + BLOCK, scales, sizeof scales);
}

static void decode_frozen(const uint8_t *codes, float *values)
{
    uint16_t scales[FROZEN_GROUPS];
    memcpy(scales, codes + BLOCK, sizeof scales);
    for (uint64_t g = 0; g < FROZEN_GROUPS; g++)
        sl_q8_decode_group((const int8_t *)codes + g * SL_Q8_GROUP, scales[g],
                           values + g * SL_Q8_GROUP);
}

static sl_status encode_frozen(const float *values, uint8_t *codes)
{
    uint16_t scales[FROZEN_GROUPS];
    for (uint64_t g = 0; g < FROZEN_GROUPS; g++) {
        scales[g] = sl_q8_encode_group(values + g * SL_Q8_GROUP, (int8_t *)codes + g * SL_Q8_GROUP);
        if (scales[g] == SL_Q8_NOT_A_NUMBER)
            SL_FAIL(SL_ERROR_DATA, "holds a number that is not finite or above 8e6, which codes of "
                                   "8 bits do not have: leave out int8 (--frozen-type, --weights)");
    }
    memcpy(codes + BLOCK, scales, sizeof scales);
    return SL_OK;
}

static void decode_block(const batch *it, const uint8_t *codes, float *values)
{
    if (it->is_frozen)
        decode_frozen(codes, values);
    else
        decode_states(it, codes, values);
}

static sl_status encode_block(const batch *it, const float *values, uint8_t *codes)
{
    if (it->is_frozen)
        return encode_frozen(values, codes);
    encode_states(it, values, codes);
    return SL_OK;
}

/* The elements that a block and the run share: from the block's element *out_first on, and from
 * element *out_at of the run. */
static uint64_t find_shared(const batch *it, uint64_t block, uint64_t *out_first, uint64_t *out_at)
{
    const sl_codes_run *run = it->run;
    const uint64_t start = block * BLOCK;
    const uint64_t first = sl_bits_max(start, run->first);
    *out_first = first - start;
    *out_at = first - run->first;
    return sl_bits_min(start + BLOCK, run->first + run->count) - first;
}

sl_status sl_codes_read(const sl_codes_run *run, float *data)
{
    float values[BLOCK];
    batch it = open_batch(run);
    while (advance(&it)) {
        SL_TRY(read_blocks(&it));
        for (uint64_t b = 0; b < it.block_count; b++) {
            uint64_t first, at;
            const uint64_t count = find_shared(&it, it.first_block + b, &first, &at);
            decode_block(&it, (const uint8_t *)run->buffer + b * it.block_bytes, values);
            memcpy(data + at, values + first, count * sizeof *values);
        }
    }
    return SL_OK;
}

sl_status sl_codes_write(const sl_codes_run *run, const float *data)
{
    float values[BLOCK];
    batch it = open_batch(run);
    const bool is_whole = run->first % BLOCK == 0 && run->count % BLOCK == 0;
    while (advance(&it)) {
        if (!is_whole)
            SL_TRY(read_blocks(&it));
        for (uint64_t b = 0; b < it.block_count; b++) {
            uint8_t *codes = (uint8_t *)run->buffer + b * it.block_bytes;
            uint64_t first, at;
            const uint64_t count = find_shared(&it, it.first_block + b, &first, &at);
            if (count < BLOCK)
                decode_block(&it, codes, values);
            memcpy(values + first, data + at, count * sizeof *values);
            SL_TRY(encode_block(&it, values, codes));
        }
        SL_TRY(sl_engine_write_chunk(run->engine, run->group, run->chunk_index,
                                     it.first_block * it.block_bytes,
                                     it.block_count * it.block_bytes, run->buffer));
    }
    return SL_OK;
}
