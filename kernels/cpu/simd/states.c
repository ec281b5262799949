/* The states of one block, from and to what is stored: bf16, and codes of 8 bits with their scales
 * behind them. Bits are the same on every processor and device. */
#include "base/dynamic_codes.h"
#include "base/stochastic.h"
#include "isa.h"
#include "typed.h"

enum {
    BLOCK = SL_BLOCK_ELEMENTS,
    GROUPS = BLOCK / SL_CODES_GROUP,
    DRAWS = BLOCK / SL_STOCHASTIC_WORDS
};

static void decode_block(const uint8_t *codes, const float *shares, float *values)
{
    float scales[GROUPS];
    memcpy(scales, codes + BLOCK, sizeof scales);
    for (int g = 0; g < GROUPS; g++)
        sl_codes_decode_group(codes + g * SL_CODES_GROUP, scales[g], shares,
                              values + g * SL_CODES_GROUP);
}

static void encode_block(const float *values, bool is_signed, uint8_t *codes)
{
    float scales[GROUPS];
    for (int g = 0; g < GROUPS; g++)
        scales[g] = sl_codes_encode_group(values + g * SL_CODES_GROUP, is_signed,
                                          codes + g * SL_CODES_GROUP);
    memcpy(codes + BLOCK, scales, sizeof scales);
}

void SL_SIMD(load_states)(const void *stored, sl_states states, const float *shares, float *values)
{
    if (states == SL_STATES_INT8)
        decode_block(stored, shares, values);
    else
        SL_SIMD(widen)(stored, SL_TYPE_BF16, values, BLOCK);
}

/* Both states of an element draw one word. */
static void draw_words(uint64_t key, uint64_t step, uint32_t *words)
{
    uint32_t drawn[SL_STOCHASTIC_WORDS][DRAWS];
    for (uint32_t n = 0; n < DRAWS; n++) {
        uint32_t one[SL_STOCHASTIC_WORDS];
        sl_stochastic_draw(key, step, n, one);
        for (uint32_t w = 0; w < SL_STOCHASTIC_WORDS; w++)
            drawn[w][n] = one[w];
    }
    for (uint32_t n = 0; n < DRAWS; n++)
        for (uint32_t w = 0; w < SL_STOCHASTIC_WORDS; w++)
            words[n * SL_STOCHASTIC_WORDS + w] = drawn[w][n];
}

static void round_block(const float *values, const uint32_t *words, uint32_t state,
                        uint16_t *halves)
{
    uint32_t bits[BLOCK];
    memcpy(bits, values, sizeof bits);
    for (uint32_t i = 0; i < BLOCK; i++)
        halves[i] = (uint16_t)sl_stochastic_round(bits[i], words[i], state);
}

void SL_SIMD(store_states)(const sl_update_blocks *blocks, uint64_t index,
                           float values[2][SL_BLOCK_ELEMENTS])
{
    uint32_t words[BLOCK];
    if (blocks->states == SL_STATES_BF16 && blocks->state[0] != NULL)
        draw_words(blocks->keys[index], blocks->step, words);
    for (uint32_t i = 0; i < 2 && blocks->state[i] != NULL; i++) {
        char *stored = (char *)blocks->state[i] + index * sl_states_block_bytes(blocks->states);
        if (blocks->states == SL_STATES_INT8)
            encode_block(values[i], i == 0, (uint8_t *)stored);
        else
            round_block(values[i], words, i, (uint16_t *)(void *)stored);
    }
}
